"""Create, apply, replace, find, list and delete over a real store in memory, with races and lost replies."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.changes import delete, edit, find, list_all, validate
from netplug_core.flows.resources.outcome import (
    Effect,
    KindNotWritable,
    Outcome,
    ResourceExists,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.ipam.model.affinity import AFFINITY, Affinity, AffinityState, affinity_key
from netplug_core.ipam.model.block import BLOCK, Attribute, Block
from netplug_core.records import Create, List, OutcomeUnknown
from netplug_core.resources.clusterinformation import ClusterInformation
from netplug_core.resources.ipamconfiguration import IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.ippool import IPPool, IPPoolStatus, PoolCondition, ippool_key
from netplug_core.resources.ipreservation import IPReservation, IPReservationSpec
from netplug_core.resources.kinds import Resource, get_kind, key_of
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node, NodeSpec, node_key
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    Profile,
    ProfileRule,
    ProfileSpec,
    RuleAction,
    profile_key,
)
from netplug_core.resources.validation import InvalidResource
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec, workload_endpoint_key
from netplug_core.testing.faults import LostReply, LostRequest, RunBefore
from tests.harness.resources import ResourceHarness, make_pool


@pytest.fixture
def bench() -> ResourceHarness:
    return ResourceHarness.with_mode(MemoryMode.ATOMIC)


# --- create --------------------------------------------------------------------------------------------------------


def test_create_gives_identity_and_birth_and_leaves_out_what_is_not_a_persons_to_say(bench: ResourceHarness) -> None:
    status = IPPoolStatus(conditions=(PoolCondition(type="Allocatable", status="False"),))
    asked = evolve(make_pool(), metadata=Metadata(name="p", deletion_time_ns=5), status=status)
    outcome = bench.create(asked)
    assert (outcome.effect, str(outcome.key), outcome.warnings) == (Effect.CREATED, "IPPool(p)", ())
    stored = bench.stored().value
    assert stored.metadata.uid == "00000000-0000-4000-8000-000000000001"
    assert stored.metadata.creation_time_ns == bench.clock.wall_ns
    assert not stored.is_terminating
    assert stored.status == IPPoolStatus()


def test_create_keeps_an_identity_and_a_birth_that_are_given(bench: ResourceHarness) -> None:
    bench.create(evolve(make_pool(), metadata=Metadata(name="p", uid="mine", creation_time_ns=7_000_000_000)))
    assert bench.stored().value.metadata == Metadata(name="p", uid="mine", creation_time_ns=7_000_000_000)


def test_create_says_what_nothing_acts_upon_yet(bench: ResourceHarness) -> None:
    (warning,) = bench.create(make_pool(has_outgoing_nat=True)).warnings
    assert warning == "IPPool(p): natOutgoing: stored, but not programmed until there is a node process"


@pytest.mark.parametrize("uid", ["", "mine"])
def test_what_exists_is_not_created_again(bench: ResourceHarness, uid: str) -> None:
    """S-29 of the catalogue."""
    asked = evolve(make_pool(), metadata=Metadata(name="p", uid=uid))
    bench.create(asked)
    with pytest.raises(ResourceExists, match=r"^resource already exists: IPPool\(p\); choose another name, or apply$"):
        bench.create(asked)


def test_create_refuses_an_overlap_and_writes_nothing(bench: ResourceHarness) -> None:
    """S-29 of the catalogue."""
    bench.create(make_pool("1.2.3.0/24", "ippool1"))
    for name, cidr in (("ippool2", "1.2.3.0/24"), ("ippool3", "1.2.0.0/16"), ("ippool4", "1.2.3.128/25")):
        with pytest.raises(InvalidResource) as caught:
            bench.create(make_pool(cidr, name))
        assert f"IPPool({name}) CIDR overlaps with IPPool(ippool1) CIDR 1.2.3.0/24" in str(caught.value)
    assert bench.names() == ["ippool1"]


def test_of_two_racing_creations_that_overlap_one_is_refused(bench: ResourceHarness) -> None:
    store = bench.with_faults(commit_1=RunBefore(lambda: bench.create(make_pool("10.0.0.0/8", "first"))))
    with pytest.raises(InvalidResource, match=r"IPPool\(second\) CIDR overlaps with IPPool\(first\)"):
        bench.create(make_pool("10.1.0.0/16", "second"), store=store)
    assert bench.names() == ["first"]


def test_create_refuses_what_no_pool_may_be(bench: ResourceHarness) -> None:
    with pytest.raises(InvalidResource, match="IP pool size is too small"):
        bench.create(make_pool("10.0.0.0/27"))
    assert bench.names() == []


def test_create_refuses_a_resource_version(bench: ResourceHarness) -> None:
    """S-35 of the catalogue."""
    text = "error with field Metadata.ResourceVersion = '12345' (field must not be set for a Create request)"
    with pytest.raises(InvalidResource) as caught:
        bench.create(make_pool(), revision="12345")
    assert text in str(caught.value)


def test_create_refuses_blocks_of_another_size_in_its_range(bench: ResourceHarness) -> None:
    """S-31 of the catalogue."""
    block = Block.new(Prefix.parse("1.2.3.0/26"), owner="", now_ns=1)
    bench.put(Create(block.key, block))
    with pytest.raises(InvalidResource, match="blocksSize conflicts with existing allocations"):
        bench.create(make_pool("1.2.3.0/26", block_length=28))
    assert bench.create(make_pool("1.2.3.0/26")).effect is Effect.CREATED


@pytest.mark.parametrize("act", [ResourceHarness.create, ResourceHarness.apply])
def test_a_lost_reply_is_no_second_creation(bench: ResourceHarness, act: Callable[..., Outcome]) -> None:
    outcome = act(bench, make_pool(), store=bench.with_faults(commit_1=LostReply()))
    assert outcome.effect is Effect.CREATED
    assert bench.names() == ["p"]


@pytest.mark.parametrize("act", [ResourceHarness.create, ResourceHarness.apply])
def test_a_lost_reply_about_an_identity_that_is_not_ours_is_reported(
    bench: ResourceHarness, act: Callable[..., Outcome]
) -> None:
    asked = evolve(make_pool(), metadata=Metadata(name="p", uid="mine"))
    with pytest.raises(OutcomeUnknown):
        act(bench, asked, store=bench.with_faults(commit_1=LostReply()))
    assert bench.names() == ["p"]


def test_a_store_that_is_away_is_reported(bench: ResourceHarness) -> None:
    with pytest.raises(Unavailable):
        bench.create(make_pool(), store=bench.with_faults(commit_1=LostRequest()))
    assert bench.names() == []


# --- apply ---------------------------------------------------------------------------------------------------------


def test_apply_creates_what_is_not_there(bench: ResourceHarness) -> None:
    assert bench.apply(make_pool()).effect is Effect.CREATED
    assert bench.stored().value.metadata.uid


def test_apply_looks_at_the_neighbours_of_what_it_creates(bench: ResourceHarness) -> None:
    bench.create(make_pool(name="a"))
    with pytest.raises(InvalidResource, match="CIDR overlaps"):
        bench.apply(make_pool(name="b"))


def test_apply_that_changes_nothing_writes_nothing(bench: ResourceHarness) -> None:
    bench.create(make_pool())
    before, commits = bench.stored(), bench.store.calls.commits
    assert bench.apply(make_pool()).effect is Effect.UNCHANGED
    assert bench.stored() == before
    assert bench.store.calls.commits == commits


def test_apply_takes_labels_annotations_and_spec_and_keeps_the_rest(bench: ResourceHarness) -> None:
    """S-34 and S-44 of the catalogue."""
    metadata = Metadata(
        name="p",
        uid="theirs",
        creation_time_ns=7_000_000_000,
        labels=(("old", "1"),),
        finalizers=("f",),
        unknown_json='{"new":1}',
    )
    status = IPPoolStatus(conditions=(PoolCondition(type="Allocatable", status="True"),))
    stored = IPPool(
        metadata=metadata, spec=make_pool(unknown_json='{"newer":2}').spec, status=status, unknown_json='{"newest":3}'
    )
    bench.put(Create(ippool_key("p"), stored))
    asked = Metadata(name="p", uid="other", creation_time_ns=9, labels=(("a", "b"),), annotations=(("c", "d"),))
    outcome = bench.apply(IPPool(metadata=asked, spec=make_pool(is_disabled=True).spec))
    assert outcome.effect is Effect.UPDATED
    assert bench.stored().value == evolve(
        stored,
        metadata=evolve(metadata, labels=asked.labels, annotations=asked.annotations),
        spec=evolve(stored.spec, is_disabled=True),
    )


@pytest.mark.parametrize(
    "wanted, rule",
    [
        (make_pool("1.2.4.0/24"), "IPPool CIDR cannot be modified"),
        (make_pool("1.2.3.0/24", block_length=25), "blockSize|BlockSize cannot be modified"),
    ],
)
def test_apply_refuses_what_never_changes(bench: ResourceHarness, wanted: IPPool, rule: str) -> None:
    """S-30 of the catalogue."""
    bench.create(make_pool("1.2.3.0/24"))
    before = bench.stored()
    with pytest.raises(InvalidResource, match=rule):
        bench.apply(wanted)
    assert bench.stored() == before


def test_a_resource_version_has_to_be_the_latest(bench: ResourceHarness) -> None:
    """S-40 of the catalogue."""
    bench.create(make_pool())
    first = bench.stored().revision
    bench.apply(make_pool(is_disabled=True), revision=first)
    latest = bench.stored().revision
    with pytest.raises(ResourceOutdated) as caught:
        bench.apply(make_pool(), revision=first)
    assert str(caught.value) == (
        f"update conflict: IPPool(p): resource version '{first}' is out of date (latest: {latest}). "
        "Update the resource YAML/JSON in order to make changes."
    )
    with pytest.raises(ResourceOutdated, match="update conflict"):
        bench.delete("p", revision=first)
    assert bench.apply(make_pool(), revision=latest).effect is Effect.UPDATED
    assert bench.delete("p", revision=bench.stored().revision).effect is Effect.DELETED
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        bench.apply(make_pool(), revision=latest)


def test_apply_after_a_lost_reply_finds_its_own_change(bench: ResourceHarness) -> None:
    bench.create(make_pool())
    outcome = bench.apply(make_pool(is_disabled=True), store=bench.with_faults(commit_1=LostReply()))
    assert outcome.effect is Effect.UNCHANGED
    assert bench.stored().value.spec.is_disabled


def test_apply_of_one_version_after_a_lost_reply_is_not_blamed_on_others(bench: ResourceHarness) -> None:
    bench.create(make_pool())
    with pytest.raises(OutcomeUnknown):
        bench.apply(make_pool(is_disabled=True), bench.stored().revision, store=bench.with_faults(commit_1=LostReply()))
    assert bench.stored().value.spec.is_disabled


# --- replace -------------------------------------------------------------------------------------------------------


def test_replace_changes_what_is_there_as_apply_does(bench: ResourceHarness) -> None:
    """S-40 of the catalogue."""
    bench.create(make_pool())
    first = bench.stored().revision
    assert bench.replace(make_pool(is_disabled=True)).effect is Effect.UPDATED
    assert bench.replace(make_pool(is_disabled=True)).effect is Effect.UNCHANGED
    with pytest.raises(ResourceOutdated, match=r"^update conflict: IPPool\(p\): resource version"):
        bench.replace(make_pool(), revision=first)
    assert bench.replace(make_pool(), revision=bench.stored().revision).effect is Effect.UPDATED
    with pytest.raises(InvalidResource, match="IPPool CIDR cannot be modified"):
        bench.replace(make_pool("10.9.0.0/16"))


def test_replace_creates_nothing(bench: ResourceHarness) -> None:
    """S-40 of the catalogue."""
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        bench.replace(make_pool())
    assert bench.store.calls.commits == 0


# --- other kinds ---------------------------------------------------------------------------------------------------

NODE = Node(metadata=Metadata(name="node-a", labels=(("rack", "a"),)))
RESERVATION = IPReservation(
    metadata=Metadata(name="routers"), spec=IPReservationSpec(reserved=(Prefix.parse("10.0.0.0/30"),))
)
CONFIGURATION = IPAMConfiguration(metadata=Metadata(name="default"), spec=IPAMConfigurationSpec(cooldown_s=60))
PROFILE = Profile(metadata=Metadata(name="web"), spec=ProfileSpec(ingress=(ProfileRule(action=RuleAction.ALLOW),)))
CLUSTER = ClusterInformation(metadata=Metadata(name="default"))
ENDPOINT = WorkloadEndpoint(
    metadata=Metadata(name="w", namespace="default"),
    spec=WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0"),
)


@pytest.mark.parametrize(
    "resource, changed",
    [
        (NODE, evolve(NODE, metadata=Metadata(name="node-a", labels=(("rack", "b"),)))),
        (RESERVATION, evolve(RESERVATION, spec=IPReservationSpec())),
        (CONFIGURATION, evolve(CONFIGURATION, spec=IPAMConfigurationSpec(cooldown_s=5))),
        (PROFILE, evolve(PROFILE, spec=ProfileSpec(labels_to_apply=(("a", "b"),)))),
    ],
)
def test_nodes_reservations_and_the_configuration_are_written_as_pools_are(
    bench: ResourceHarness, resource: Resource, changed: Resource
) -> None:
    key = key_of(resource)
    outcome = bench.create(resource)
    assert outcome == Outcome(key=key, effect=Effect.CREATED)
    stored = bench.find(key)
    assert stored is not None
    assert stored.value.spec == resource.spec
    assert stored.value.metadata.uid
    assert stored.value.metadata.creation_time_ns == bench.clock.wall_ns
    with pytest.raises(ResourceExists):
        bench.create(resource)
    assert bench.apply(resource).effect is Effect.UNCHANGED
    assert bench.apply(changed).effect is Effect.UPDATED
    assert bench.replace(resource).effect is Effect.UPDATED
    assert delete(bench.store, key, pace=bench.pace) == Outcome(key=key, effect=Effect.DELETED)
    assert bench.find(key) is None
    with pytest.raises(ResourceMissing):
        bench.replace(resource)


def test_a_rewrite_keeps_what_nobody_here_can_read(bench: ResourceHarness) -> None:
    """D6 of the catalogue."""
    metadata = Metadata(name="node-a", uid="theirs", creation_time_ns=7, finalizers=("f",), unknown_json='{"new":1}')
    stored = Node(metadata=metadata, spec=NodeSpec(unknown_json='{"bgp":{}}'), unknown_json='{"status":{}}')
    bench.put(Create(node_key("node-a"), stored))
    bench.apply(NODE)
    found = bench.find(node_key("node-a"))
    assert found is not None
    assert found.value == evolve(stored, metadata=evolve(metadata, labels=NODE.metadata.labels))


def test_rules_of_other_kinds_are_kept_too(bench: ResourceHarness) -> None:
    for bad in (
        evolve(NODE, metadata=Metadata(name="Node")),
        evolve(CONFIGURATION, metadata=Metadata(name="mine")),
        evolve(CONFIGURATION, spec=IPAMConfigurationSpec(may_auto_allocate_blocks=False)),
    ):
        for act in (bench.create, bench.apply, bench.replace):
            with pytest.raises(InvalidResource):
                act(bad)
    assert bench.store.calls.commits == 0


def test_a_change_that_meets_another_is_decided_again(bench: ResourceHarness) -> None:
    """Trap 24 of the store and trap 38 of the allocator: no configuration is written over another one unseen."""
    bench.create(CONFIGURATION)
    key, latest = key_of(CONFIGURATION), evolve(CONFIGURATION, spec=IPAMConfigurationSpec(is_affinity_strict=True))
    before = bench.find(key)
    assert before is not None
    store = bench.with_faults(commit_1=RunBefore(lambda: bench.apply(latest)))
    with pytest.raises(ResourceOutdated, match=r"^update conflict: IPAMConfiguration\(default\)"):
        bench.apply(evolve(CONFIGURATION, spec=IPAMConfigurationSpec(cooldown_s=5)), before.revision, store=store)
    after = bench.find(key)
    assert after is not None
    assert after.value.spec == latest.spec


@pytest.mark.parametrize(
    "resource, reason",
    [
        (CLUSTER, r"ClusterInformation\(default\): it is kept by netplug itself"),
        (DEFAULT_ALLOW_PROFILE.value, r"Profile\(projectnetplug-default-allow\): it is kept by netplug itself"),
        (ENDPOINT, r"WorkloadEndpoint\(default/w\): it is kept by the node that runs the workload"),
    ],
)
def test_kinds_that_are_not_a_persons_to_write(bench: ResourceHarness, resource: Resource, reason: str) -> None:
    with pytest.raises(KindNotWritable, match=f"^operation Create is not supported on {reason}$"):
        bench.create(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Apply is not supported on {reason}$"):
        bench.apply(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Update is not supported on {reason}$"):
        bench.replace(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Delete is not supported on {reason}$"):
        delete(bench.store, key_of(resource), pace=bench.pace)


# --- edit, validate -------------------------------------------------------------------------------------------------


def disabled(resource: Resource) -> Resource:
    assert isinstance(resource, IPPool)
    return evolve(resource, spec=evolve(resource.spec, is_disabled=True))


def test_an_edit_starts_from_what_is_stored_at_that_moment(bench: ResourceHarness) -> None:
    bench.create(make_pool())
    other = bench.with_faults(commit_1=RunBefore(lambda: bench.apply(make_pool(has_outgoing_nat=True))))
    assert edit(other, ippool_key("p"), disabled, pace=bench.pace).effect is Effect.UPDATED
    found = bench.find(ippool_key("p"))
    assert found is not None
    assert isinstance(found.value, IPPool)
    assert (found.value.spec.is_disabled, found.value.spec.has_outgoing_nat) == (True, True)
    assert edit(bench.store, ippool_key("p"), disabled, pace=bench.pace).effect is Effect.UNCHANGED


def test_an_edit_keeps_the_rules_and_needs_something_to_change(bench: ResourceHarness) -> None:
    with pytest.raises(ResourceMissing):
        edit(bench.store, ippool_key("p"), disabled, pace=bench.pace)
    bench.create(make_pool())
    with pytest.raises(InvalidResource, match="cannot be modified"):
        edit(bench.store, ippool_key("p"), lambda _: make_pool("10.1.0.0/16"), pace=bench.pace)
    with pytest.raises(InvalidResource, match="nodeSelector"):
        edit(bench.store, ippool_key("p"), lambda _: make_pool(node_selector="("), pace=bench.pace)


def test_a_manifest_is_judged_without_a_store() -> None:
    """S-49 of the catalogue."""
    outcome = validate(Manifest(resource=make_pool(has_outgoing_nat=True)))
    assert (outcome.effect, len(outcome.warnings)) == (Effect.VALID, 1)
    assert validate(Manifest(resource=Node(metadata=Metadata(name="n")))).warnings == ()
    with pytest.raises(InvalidResource):
        validate(Manifest(resource=make_pool(node_selector="(")))


# --- delete --------------------------------------------------------------------------------------------------------


def test_delete_removes_and_a_second_one_finds_nothing(bench: ResourceHarness) -> None:
    bench.create(make_pool())
    assert bench.delete("p") == Outcome(key=ippool_key("p"), effect=Effect.DELETED)
    assert bench.names() == []
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        bench.delete("p")


def test_delete_says_how_many_addresses_are_still_held(bench: ResourceHarness) -> None:
    bench.create(make_pool())
    inside = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1)
    inside = inside.assign((Ordinal(0), Ordinal(5)), Attribute(handle="h"))
    outside = Block.new(Prefix.parse("10.9.0.0/26"), owner="host:a", now_ns=1)
    outside = outside.assign((Ordinal(0),), Attribute(handle="h"))
    bench.create(make_pool("10.1.0.0/16", "other"))
    bench.put(Create(inside.key, inside), Create(outside.key, outside))
    (warning,) = bench.delete("p").warnings
    assert warning == "IPPool(p): addresses of it that are still held: 2; their workloads keep them"


@pytest.mark.parametrize("commit", ["commit_1", "commit_2"])
def test_delete_after_a_lost_reply_is_done(bench: ResourceHarness, commit: str) -> None:
    bench.create(make_pool())
    assert bench.delete("p", store=bench.with_faults(**{commit: LostReply()})).effect is Effect.DELETED
    assert bench.names() == []


def test_delete_leaves_a_pool_that_took_the_name_meanwhile(bench: ResourceHarness) -> None:
    bench.create(make_pool())

    def replace() -> None:
        bench.delete("p")
        bench.create(make_pool("10.9.0.0/16"))

    assert bench.delete("p", store=bench.with_faults(commit_2=RunBefore(replace))).effect is Effect.DELETED
    assert str(bench.stored().value.spec.prefix) == "10.9.0.0/16"


@pytest.mark.parametrize("resource", [NODE, RESERVATION, CONFIGURATION])
def test_delete_honours_a_resource_version(bench: ResourceHarness, resource: Resource) -> None:
    key = key_of(resource)
    bench.create(resource)
    first = bench.find(key)
    assert first is not None
    bench.apply(evolve(resource, metadata=evolve(resource.metadata, annotations=(("a", "b"),))))
    with pytest.raises(ResourceOutdated):
        delete(bench.store, key, revision=first.revision, pace=bench.pace)
    latest = bench.find(key)
    assert latest is not None
    assert delete(bench.store, key, revision=latest.revision, pace=bench.pace).effect is Effect.DELETED


def test_a_change_between_looking_and_deleting_is_seen(bench: ResourceHarness) -> None:
    bench.create(NODE)
    first = bench.find(key_of(NODE))
    assert first is not None
    relabelled = evolve(NODE, metadata=Metadata(name="node-a", labels=(("rack", "b"),)))
    store = bench.with_faults(commit_1=RunBefore(lambda: bench.apply(relabelled)))
    with pytest.raises(ResourceOutdated):
        delete(store, key_of(NODE), revision=first.revision, pace=bench.pace)
    assert bench.find(key_of(NODE)) is not None


def test_a_node_that_goes_gives_up_its_blocks_and_nobodys_addresses(bench: ResourceHarness) -> None:
    """I-64 of the catalogue for one without blocks."""
    bench.create(NODE)
    mine = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:node-a", now_ns=1)
    used = mine.assign((Ordinal(1),), Attribute(handle="h"))
    theirs = Block.new(Prefix.parse("10.0.0.64/26"), owner="host:node-b", now_ns=1)
    state = Affinity(state=AffinityState.CONFIRMED)
    for block in (used, theirs):
        bench.put(Create(affinity_key(block.owner, block.prefix), state), Create(block.key, block))
    for name in ("node-a", "node-c"):
        bench.apply(Node(metadata=Metadata(name=name)))
        assert delete(bench.store, node_key(name), pace=bench.pace).effect is Effect.DELETED
    snapshot = bench.store.read([List(AFFINITY), List(BLOCK)], deadline=bench.deadline)
    assert [record.key for record in snapshot.list(List(AFFINITY))] == [affinity_key("host:node-b", theirs.prefix)]
    left = {record.value.owner: record.value for record in snapshot.list(List(BLOCK))}
    assert left["host:node-b"] == theirs
    assert left[""].held() == used.held()


# --- reading -------------------------------------------------------------------------------------------------------


def test_lists_are_sorted_by_name_and_kept_to_a_namespace(bench: ResourceHarness) -> None:
    spec = WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0")
    for namespace, name in (("b", "1"), ("a", "2"), ("a", "1")):
        endpoint = WorkloadEndpoint(metadata=Metadata(name=name, namespace=namespace), spec=spec)
        bench.put(Create(workload_endpoint_key(namespace, name), endpoint))
    row = get_kind("wep")
    everywhere = list_all(bench.store, row, deadline=bench.deadline)
    assert [record.key.path for record in everywhere] == [("a", "1"), ("a", "2"), ("b", "1")]
    assert [record.key.name for record in list_all(bench.store, row, namespace="b", deadline=bench.deadline)] == ["1"]


def test_the_profile_that_allows_everything_is_there_in_every_store_once(bench: ResourceHarness) -> None:
    for name in ("zebra", "kns.shop"):
        bench.put(Create(profile_key(name), Profile(metadata=Metadata(name=name))))
    listed = list_all(bench.store, get_kind("profile"), deadline=bench.deadline)
    assert [record.key.name for record in listed] == ["kns.shop", "projectnetplug-default-allow", "zebra"]
    assert listed[1] == bench.find(DEFAULT_ALLOW_PROFILE.key) == DEFAULT_ALLOW_PROFILE
    bench.put(Create(DEFAULT_ALLOW_PROFILE.key, Profile(metadata=Metadata(name=DEFAULT_ALLOW_PROFILE.key.name))))
    assert list_all(bench.store, get_kind("profile"), deadline=bench.deadline) == listed


def test_find_answers_in_the_order_asked(bench: ResourceHarness) -> None:
    bench.create(make_pool())
    missing, there = find(bench.store, [ippool_key("nope"), ippool_key("p")], deadline=bench.deadline)
    assert missing is None
    assert there is not None
