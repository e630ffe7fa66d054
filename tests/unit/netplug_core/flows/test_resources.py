"""Create, apply, find, list and delete over a real store in memory, with races and lost replies."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_backends.memory.faults import Fault, FaultyDatastore, LostReply, LostRequest, Meanwhile
from netplug_core.addressing import Family, Ordinal, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.interface import Datastore
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.resources import (
    Effect,
    KindNotWritable,
    Outcome,
    ResourceExists,
    ResourceMissing,
    ResourceOutdated,
    apply,
    create,
    delete,
    ensure_initialized,
    find,
    find_cluster_information,
    list_all,
    read_utilization,
)
from netplug_core.ipam.block import Attribute, Block
from netplug_core.records import Create, OutcomeUnknown, Record, Revision
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.ippool import IPPool, IPPoolSpec, IPPoolStatus, PoolCondition, ippool_key
from netplug_core.resources.kinds import Resource, get_kind
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.validation import InvalidResource
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec, workload_endpoint_key
from netplug_core.testing.clock import ManualClock


def pool(cidr: str = "10.0.0.0/16", name: str = "p", **spec: object) -> IPPool:
    prefix = Prefix.parse(cidr)
    usual = IPPoolSpec(prefix=prefix, block_length=prefix.family.default_block_length)
    return IPPool(metadata=Metadata(name=name), spec=evolve(usual, **spec))  # type: ignore[arg-type] # any field of it


def _uids() -> Iterator[str]:
    return (f"00000000-0000-4000-8000-{number:012}" for number in count(1))


@define
class Bench:
    """A store, a clock that tests move, and identities in a row."""

    clock: ManualClock
    store: MemoryDatastore
    uids: Iterator[str] = field(factory=_uids)

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 30)

    @property
    def pace(self) -> Pace:
        return Pace(clock=self.clock, deadline=self.deadline, chance=lambda: 0.5)

    def new_uid(self) -> str:
        return next(self.uids)

    def faulty(self, **script: Fault) -> FaultyDatastore:
        return FaultyDatastore(
            self.store, {int(number.removeprefix("commit_")): fault for number, fault in script.items()}
        )

    def create(self, resource: Resource, revision: str = "", store: Datastore | None = None) -> Outcome:
        manifest = Manifest(resource=resource, revision=revision)
        return create(store or self.store, manifest, pace=self.pace, new_uid=self.new_uid)

    def apply(self, resource: Resource, revision: str = "", store: Datastore | None = None) -> Outcome:
        manifest = Manifest(resource=resource, revision=revision)
        return apply(store or self.store, manifest, pace=self.pace, new_uid=self.new_uid)

    def delete(self, name: str, revision: str = "", store: Datastore | None = None) -> Outcome:
        return delete(store or self.store, ippool_key(name), revision=revision, pace=self.pace)

    def stored(self, name: str = "p") -> Record[IPPool]:
        (record,) = find(self.store, [ippool_key(name)], deadline=self.deadline)
        assert record is not None
        assert isinstance(record.value, IPPool)
        return Record(ippool_key(name), record.value, record.revision)

    def names(self) -> list[str]:
        return [record.key.name for record in list_all(self.store, get_kind("pool"), deadline=self.deadline)]

    def put(self, *writes: Create[object]) -> tuple[Revision, ...]:
        return self.store.commit(writes, deadline=self.deadline)


@pytest.fixture
def bench() -> Bench:
    clock = ManualClock()
    return Bench(clock, MemoryDatastore(clock=clock))


# --- create --------------------------------------------------------------------------------------------------------


def test_create_gives_identity_and_birth_and_leaves_out_what_is_not_a_persons_to_say(bench: Bench) -> None:
    status = IPPoolStatus(conditions=(PoolCondition(type="Allocatable", status="False"),))
    asked = evolve(pool(), metadata=Metadata(name="p", deletion_time_ns=5), status=status)
    outcome = bench.create(asked)
    assert (outcome.effect, str(outcome.key), outcome.warnings) == (Effect.CREATED, "IPPool(p)", ())
    stored = bench.stored().value
    assert stored.metadata.uid == "00000000-0000-4000-8000-000000000001"
    assert stored.metadata.creation_time_ns == bench.clock.wall_ns
    assert not stored.is_terminating
    assert stored.status == IPPoolStatus()


def test_create_keeps_an_identity_and_a_birth_that_are_given(bench: Bench) -> None:
    bench.create(evolve(pool(), metadata=Metadata(name="p", uid="mine", creation_time_ns=7_000_000_000)))
    assert bench.stored().value.metadata == Metadata(name="p", uid="mine", creation_time_ns=7_000_000_000)


def test_create_says_what_nothing_acts_upon_yet(bench: Bench) -> None:
    (warning,) = bench.create(pool(has_outgoing_nat=True)).warnings
    assert warning == "IPPool(p): natOutgoing: stored, but not programmed until there is a node process"


@pytest.mark.parametrize("uid", ["", "mine"])
def test_what_exists_is_not_created_again(bench: Bench, uid: str) -> None:
    """S-29 of the catalogue."""
    asked = evolve(pool(), metadata=Metadata(name="p", uid=uid))
    bench.create(asked)
    with pytest.raises(ResourceExists, match=r"^resource already exists: IPPool\(p\); choose another name, or apply$"):
        bench.create(asked)


def test_create_refuses_an_overlap_and_writes_nothing(bench: Bench) -> None:
    """S-29 of the catalogue."""
    bench.create(pool("1.2.3.0/24", "ippool1"))
    for name, cidr in (("ippool2", "1.2.3.0/24"), ("ippool3", "1.2.0.0/16"), ("ippool4", "1.2.3.128/25")):
        with pytest.raises(InvalidResource) as caught:
            bench.create(pool(cidr, name))
        assert f"IPPool({name}) CIDR overlaps with IPPool(ippool1) CIDR 1.2.3.0/24" in str(caught.value)
    assert bench.names() == ["ippool1"]


def test_of_two_racing_creations_that_overlap_one_is_refused(bench: Bench) -> None:
    store = bench.faulty(commit_1=Meanwhile(lambda: bench.create(pool("10.0.0.0/8", "first"))))
    with pytest.raises(InvalidResource, match=r"IPPool\(second\) CIDR overlaps with IPPool\(first\)"):
        bench.create(pool("10.1.0.0/16", "second"), store=store)
    assert bench.names() == ["first"]


def test_create_refuses_what_no_pool_may_be(bench: Bench) -> None:
    with pytest.raises(InvalidResource, match="IP pool size is too small"):
        bench.create(pool("10.0.0.0/27"))
    assert bench.names() == []


def test_create_refuses_a_resource_version(bench: Bench) -> None:
    """S-35 of the catalogue."""
    text = "error with field Metadata.ResourceVersion = '12345' (field must not be set for a Create request)"
    with pytest.raises(InvalidResource) as caught:
        bench.create(pool(), revision="12345")
    assert text in str(caught.value)


def test_create_refuses_blocks_of_another_size_in_its_range(bench: Bench) -> None:
    """S-31 of the catalogue."""
    block = Block.new(Prefix.parse("1.2.3.0/26"), owner="", now_ns=1)
    bench.put(Create(block.key, block))
    with pytest.raises(InvalidResource, match="blocksSize conflicts with existing allocations"):
        bench.create(pool("1.2.3.0/26", block_length=28))
    assert bench.create(pool("1.2.3.0/26")).effect is Effect.CREATED


@pytest.mark.parametrize("act", [Bench.create, Bench.apply])
def test_a_lost_reply_is_no_second_creation(bench: Bench, act: Callable[..., Outcome]) -> None:
    outcome = act(bench, pool(), store=bench.faulty(commit_1=LostReply()))
    assert outcome.effect is Effect.CREATED
    assert bench.names() == ["p"]


@pytest.mark.parametrize("act", [Bench.create, Bench.apply])
def test_a_lost_reply_about_an_identity_that_is_not_ours_is_reported(bench: Bench, act: Callable[..., Outcome]) -> None:
    asked = evolve(pool(), metadata=Metadata(name="p", uid="mine"))
    with pytest.raises(OutcomeUnknown):
        act(bench, asked, store=bench.faulty(commit_1=LostReply()))
    assert bench.names() == ["p"]


def test_a_store_that_is_away_is_reported(bench: Bench) -> None:
    with pytest.raises(Unavailable):
        bench.create(pool(), store=bench.faulty(commit_1=LostRequest()))
    assert bench.names() == []


# --- apply ---------------------------------------------------------------------------------------------------------


def test_apply_creates_what_is_not_there(bench: Bench) -> None:
    assert bench.apply(pool()).effect is Effect.CREATED
    assert bench.stored().value.metadata.uid


def test_apply_looks_at_the_neighbours_of_what_it_creates(bench: Bench) -> None:
    bench.create(pool(name="a"))
    with pytest.raises(InvalidResource, match="CIDR overlaps"):
        bench.apply(pool(name="b"))


def test_apply_that_changes_nothing_writes_nothing(bench: Bench) -> None:
    bench.create(pool())
    before, commits = bench.stored(), bench.store.calls.commits
    assert bench.apply(pool()).effect is Effect.UNCHANGED
    assert bench.stored() == before
    assert bench.store.calls.commits == commits


def test_apply_takes_labels_annotations_and_spec_and_keeps_the_rest(bench: Bench) -> None:
    """S-34 and S-44 of the catalogue."""
    metadata = Metadata(
        name="p",
        uid="theirs",
        creation_time_ns=7_000_000_000,
        labels=(("old", "1"),),
        finalizers=("f",),
        carried='{"new":1}',
    )
    status = IPPoolStatus(conditions=(PoolCondition(type="Allocatable", status="True"),))
    stored = IPPool(metadata=metadata, spec=pool(carried='{"newer":2}').spec, status=status, carried='{"newest":3}')
    bench.put(Create(ippool_key("p"), stored))
    asked = Metadata(name="p", uid="other", creation_time_ns=9, labels=(("a", "b"),), annotations=(("c", "d"),))
    outcome = bench.apply(IPPool(metadata=asked, spec=pool(is_disabled=True).spec))
    assert outcome.effect is Effect.UPDATED
    assert bench.stored().value == evolve(
        stored,
        metadata=evolve(metadata, labels=asked.labels, annotations=asked.annotations),
        spec=evolve(stored.spec, is_disabled=True),
    )


@pytest.mark.parametrize(
    "wanted, rule",
    [
        (pool("1.2.4.0/24"), "IPPool CIDR cannot be modified"),
        (pool("1.2.3.0/24", block_length=25), "blockSize|BlockSize cannot be modified"),
    ],
)
def test_apply_refuses_what_never_changes(bench: Bench, wanted: IPPool, rule: str) -> None:
    """S-30 of the catalogue."""
    bench.create(pool("1.2.3.0/24"))
    before = bench.stored()
    with pytest.raises(InvalidResource, match=rule):
        bench.apply(wanted)
    assert bench.stored() == before


def test_a_resource_version_has_to_be_the_latest(bench: Bench) -> None:
    """S-40 of the catalogue."""
    bench.create(pool())
    first = bench.stored().revision
    bench.apply(pool(is_disabled=True), revision=first)
    latest = bench.stored().revision
    with pytest.raises(ResourceOutdated) as caught:
        bench.apply(pool(), revision=first)
    assert str(caught.value) == (
        f"update conflict: IPPool(p): resource version '{first}' is out of date (latest: {latest}). "
        "Update the resource YAML/JSON in order to make changes."
    )
    with pytest.raises(ResourceOutdated, match="update conflict"):
        bench.delete("p", revision=first)
    assert bench.apply(pool(), revision=latest).effect is Effect.UPDATED
    assert bench.delete("p", revision=bench.stored().revision).effect is Effect.DELETED
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        bench.apply(pool(), revision=latest)


def test_apply_after_a_lost_reply_finds_its_own_change(bench: Bench) -> None:
    bench.create(pool())
    outcome = bench.apply(pool(is_disabled=True), store=bench.faulty(commit_1=LostReply()))
    assert outcome.effect is Effect.UNCHANGED
    assert bench.stored().value.spec.is_disabled


def test_apply_of_one_version_after_a_lost_reply_is_not_blamed_on_others(bench: Bench) -> None:
    bench.create(pool())
    with pytest.raises(OutcomeUnknown):
        bench.apply(pool(is_disabled=True), bench.stored().revision, store=bench.faulty(commit_1=LostReply()))
    assert bench.stored().value.spec.is_disabled


# --- kinds that are not a person's to write --------------------------------------------------------------------------

NODE = Node(metadata=Metadata(name="node-a"))
CLUSTER = ClusterInformation(metadata=Metadata(name="default"))


@pytest.mark.parametrize(
    "resource, reason",
    [
        (NODE, r"Node\(node-a\): this release changes IPPools; changing a Node comes later"),
        (CLUSTER, r"ClusterInformation\(default\): it is kept by netplug itself"),
    ],
)
def test_other_kinds_are_not_changed(bench: Bench, resource: Resource, reason: str) -> None:
    with pytest.raises(KindNotWritable, match=f"^operation Create is not supported on {reason}$"):
        bench.create(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Apply is not supported on {reason}$"):
        bench.apply(resource)


def test_other_kinds_are_not_deleted(bench: Bench) -> None:
    with pytest.raises(KindNotWritable, match=r"^operation Delete is not supported on Node"):
        delete(bench.store, node_key("node-a"), pace=bench.pace)


# --- delete --------------------------------------------------------------------------------------------------------


def test_delete_removes_and_a_second_one_finds_nothing(bench: Bench) -> None:
    bench.create(pool())
    assert bench.delete("p") == Outcome(key=ippool_key("p"), effect=Effect.DELETED)
    assert bench.names() == []
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        bench.delete("p")


def test_delete_says_how_many_addresses_are_still_held(bench: Bench) -> None:
    bench.create(pool())
    inside = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1)
    inside = inside.assign((Ordinal(0), Ordinal(5)), Attribute(handle="h"))
    outside = Block.new(Prefix.parse("10.9.0.0/26"), owner="host:a", now_ns=1)
    outside = outside.assign((Ordinal(0),), Attribute(handle="h"))
    bench.create(pool("10.1.0.0/16", "other"))
    bench.put(Create(inside.key, inside), Create(outside.key, outside))
    (warning,) = bench.delete("p").warnings
    assert warning == "IPPool(p): addresses of it that are still held: 2; their workloads keep them"


def test_delete_after_a_lost_reply_is_done(bench: Bench) -> None:
    bench.create(pool())
    assert bench.delete("p", store=bench.faulty(commit_1=LostReply())).effect is Effect.DELETED
    assert bench.names() == []


def test_delete_leaves_a_pool_that_took_the_name_meanwhile(bench: Bench) -> None:
    bench.create(pool())

    def replace() -> None:
        bench.delete("p")
        bench.create(pool("10.9.0.0/16"))

    assert bench.delete("p", store=bench.faulty(commit_1=Meanwhile(replace))).effect is Effect.DELETED
    assert str(bench.stored().value.spec.prefix) == "10.9.0.0/16"


# --- reading -------------------------------------------------------------------------------------------------------


def test_lists_are_sorted_by_name_and_kept_to_a_namespace(bench: Bench) -> None:
    spec = WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0")
    for namespace, name in (("b", "1"), ("a", "2"), ("a", "1")):
        endpoint = WorkloadEndpoint(metadata=Metadata(name=name, namespace=namespace), spec=spec)
        bench.put(Create(workload_endpoint_key(namespace, name), endpoint))
    row = get_kind("wep")
    everywhere = list_all(bench.store, row, deadline=bench.deadline)
    assert [record.key.path for record in everywhere] == [("a", "1"), ("a", "2"), ("b", "1")]
    assert [record.key.name for record in list_all(bench.store, row, namespace="b", deadline=bench.deadline)] == ["1"]


def test_find_answers_in_the_order_asked(bench: Bench) -> None:
    bench.create(pool())
    missing, there = find(bench.store, [ippool_key("nope"), ippool_key("p")], deadline=bench.deadline)
    assert missing is None
    assert there is not None


def test_utilization_reads_pools_and_blocks_at_once(bench: Bench) -> None:
    bench.create(pool())
    block = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1).assign((Ordinal(3),), Attribute())
    bench.put(Create(block.key, block))
    reads = bench.store.calls.reads
    usage = read_utilization(bench.store, deadline=bench.deadline)
    assert bench.store.calls.reads == reads + 1
    assert [(usage.pools[0].total, usage.pools[0].in_use)] == [(65536, 1)]
    assert block.prefix.family is Family.IPV4


# --- the cluster's first record ------------------------------------------------------------------------------------


def initialize(bench: Bench, version: str = "", store: Datastore | None = None) -> ClusterInformation:
    return ensure_initialized(store or bench.store, pace=bench.pace, new_uid=bench.new_uid, version=version)


def test_a_cluster_gets_an_identity_once(bench: Bench) -> None:
    assert find_cluster_information(bench.store, deadline=bench.deadline) == ClusterInformationSpec()
    made = initialize(bench)
    assert len(made.spec.cluster_guid) == 32
    assert int(made.spec.cluster_guid, 16)
    assert made.metadata.creation_time_ns == bench.clock.wall_ns
    assert (made.spec.cluster_type, made.spec.version, made.spec.is_datastore_ready) == ("", "", True)
    commits = bench.store.calls.commits
    assert initialize(bench) == made
    assert bench.store.calls.commits == commits
    assert find_cluster_information(bench.store, deadline=bench.deadline) == made.spec


def test_a_lock_and_an_identity_are_never_overwritten(bench: Bench) -> None:
    spec = ClusterInformationSpec(cluster_guid="a" * 32, cluster_type="k8s", version="v1", is_datastore_ready=False)
    locked = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
    bench.put(Create(CLUSTER_INFORMATION_KEY, locked))
    assert initialize(bench) == locked
    assert initialize(bench, version="v2").spec == evolve(spec, version="v2")


def test_what_is_unset_is_filled_in(bench: Bench) -> None:
    bench.put(Create(CLUSTER_INFORMATION_KEY, CLUSTER))
    made = initialize(bench)
    assert made.spec.is_datastore_ready is True
    assert len(made.spec.cluster_guid) == 32


def test_two_who_initialize_at_once_agree(bench: Bench) -> None:
    others: list[ClusterInformation] = []
    store = bench.faulty(commit_1=Meanwhile(lambda: others.append(initialize(bench))))
    assert [initialize(bench, store=store)] == others


def test_every_refusal_is_one_of_ours() -> None:
    assert all(issubclass(error, NetplugError) for error in (ResourceExists, ResourceMissing, ResourceOutdated))
