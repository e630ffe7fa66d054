"""The records that a cluster has one of: created once, and not changed behind another writer's back."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.cluster import (
    NodeRelease,
    VersionMismatch,
    ensure_initialized,
    find_cluster_information,
    refuse_older_client,
    store_release,
)
from netplug_core.flows.resources.pools import find_ipam_configuration
from netplug_core.flows.resources.write import configure_ipam
from netplug_core.records import Create, Malformed
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.node import Node, NodeStatus, node_key
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import DamagedDatastore, LostReply, RunBefore
from tests.harness.resources import ResourceHarness

Change = Callable[[IPAMConfigurationSpec], IPAMConfigurationSpec]


@pytest.fixture
def harness() -> ResourceHarness:
    return ResourceHarness.with_mode(MemoryMode.ATOMIC)


# --- who it is -----------------------------------------------------------------------------------------------------


def initialize(harness: ResourceHarness, version: str = "", store: Datastore | None = None) -> ClusterInformation:
    """Initialize a cluster whose one node runs a release."""
    return ensure_initialized(store or harness.store, pace=harness.pace, new_uid=harness.new_uid, recorded=(version,))


def test_a_cluster_gets_an_identity_once(harness: ResourceHarness) -> None:
    assert find_cluster_information(harness.store, deadline=harness.deadline) == ClusterInformationSpec()
    made = initialize(harness)
    assert len(made.spec.cluster_guid) == 32
    assert int(made.spec.cluster_guid, 16)
    assert made.metadata.creation_time_ns == harness.clock.wall_ns
    assert (made.spec.cluster_type, made.spec.version, made.spec.is_datastore_ready) == ("", "", True)
    commits = harness.store.calls.commits
    assert initialize(harness) == made
    assert harness.store.calls.commits == commits
    assert find_cluster_information(harness.store, deadline=harness.deadline) == made.spec


def test_a_lock_and_an_identity_are_never_overwritten(harness: ResourceHarness) -> None:
    spec = ClusterInformationSpec(cluster_guid="a" * 32, cluster_type="k8s", version="v1.0", is_datastore_ready=False)
    locked = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
    harness.put(Create(CLUSTER_INFORMATION_KEY, locked))
    assert initialize(harness) == locked
    assert initialize(harness, version="v2.0").spec == evolve(spec, version="v2.0")
    assert initialize(harness, version="v1.0").spec == evolve(spec, version="v2.0")


def test_what_is_unset_is_filled_in(harness: ResourceHarness) -> None:
    harness.put(Create(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"))))
    made = initialize(harness)
    assert made.spec.is_datastore_ready is True
    assert len(made.spec.cluster_guid) == 32


def test_two_who_initialize_at_once_agree(harness: ResourceHarness) -> None:
    others: list[ClusterInformation] = []
    store = harness.with_faults(commit_1=RunBefore(lambda: others.append(initialize(harness))))
    assert [initialize(harness, store=store)] == others


@pytest.mark.parametrize(
    "known, type_", [("", "kdd"), ("k8s,bgp", "k8s,bgp,kdd"), ("kdd", "kdd"), ("k8s,kdd,bgp", "k8s,kdd,bgp")]
)
def test_a_cluster_whose_store_is_kubernetes_says_so_in_its_type(
    harness: ResourceHarness, known: str, type_: str
) -> None:
    harness.store.description = evolve(harness.store.description, name="kubernetes")
    spec = ClusterInformationSpec(cluster_guid="a" * 32, cluster_type=known)
    harness.put(Create(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec)))
    assert initialize(harness).spec.cluster_type == type_


# --- its release ---------------------------------------------------------------------------------------------------


def put_node(harness: ResourceHarness, name: str, release: str) -> None:
    node = Node(metadata=Metadata(name=name), status=NodeStatus(release=release))
    harness.put(Create(node_key(name), node))


def put_cluster(harness: ResourceHarness, spec: ClusterInformationSpec) -> None:
    harness.put(Create(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec)))


def start(harness: ResourceHarness, own: NodeRelease, store: Datastore | None = None) -> str:
    return store_release(store or harness.store, own, pace=harness.pace, new_uid=harness.new_uid)


def own_release(
    release: str = "v3.33.0", types: tuple[str, ...] = (), others: tuple[str, ...] | None = None
) -> NodeRelease:
    return NodeRelease(node="own", release=release, types=types, others=others)


def stored_spec(harness: ResourceHarness) -> ClusterInformationSpec:
    return find_cluster_information(harness.store, deadline=harness.deadline)


def test_the_first_node_makes_the_cluster(harness: ResourceHarness) -> None:
    assert start(harness, own_release(types=("k8s", "bgp"))) == "v3.33.0"
    made = stored_spec(harness)
    assert (made.version, made.cluster_type, made.is_datastore_ready) == ("v3.33.0", "k8s,bgp", True)
    assert len(made.cluster_guid) == 32
    commits = harness.store.calls.commits
    assert start(harness, own_release(types=("k8s", "bgp"))) == ""
    assert harness.store.calls.commits == commits


@pytest.mark.parametrize(
    "own, others, expected",
    [
        ("v3.33.0", (), "v3.33.0"),
        ("v3.33.0", ("v3.32.0", "v3.33.0"), "v3.32.0"),
        ("v3.33.0", ("v3.32.9", "v3.34.0"), "v3.32.9"),
        ("v3.31.0", ("v3.33.0",), "v3.32.0"),
        ("v3.33.0", ("", "latest"), "v3.33.0"),
    ],
)
def test_the_last_node_of_an_upgrade_raises_the_release_and_no_node_lowers_it(
    harness: ResourceHarness, own: str, others: tuple[str, ...], expected: str
) -> None:
    spec = ClusterInformationSpec(cluster_guid="c0ffee", version="v3.32.0", is_datastore_ready=True)
    put_cluster(harness, spec)
    put_node(harness, "own", "v3.1.0")  # what it was before it started, as a watch may still show it
    for number, release in enumerate(others):
        put_node(harness, f"other-{number}", release)
    changed = start(harness, own_release(own))
    assert changed == ("" if expected == "v3.32.0" else expected)
    assert stored_spec(harness) == evolve(spec, version=expected)


def test_other_nodes_are_read_only_where_they_matter(harness: ResourceHarness) -> None:
    put_cluster(harness, ClusterInformationSpec(cluster_guid="a", version="v3.32.0", is_datastore_ready=True))
    put_node(harness, "old", "v3.32.0")
    for own, reads in (
        (own_release("v3.32.0"), 1),
        (own_release("v3.33.0"), 2),
        (own_release("v3.33.0", others=("v3.32.0",)), 1),
    ):
        before = harness.store.calls.reads
        assert start(harness, own) == ""
        assert harness.store.calls.reads == before + reads


def test_a_locked_cluster_keeps_its_release(harness: ResourceHarness) -> None:
    locked = ClusterInformationSpec(version="v3.32.0", is_datastore_ready=False)
    put_cluster(harness, locked)
    with pytest.raises(Unavailable, match="datastoreReady is false"):
        start(harness, own_release())
    assert stored_spec(harness) == locked


def test_two_nodes_that_start_at_once_agree(harness: ResourceHarness) -> None:
    """Of different releases, on a cluster without an identity: the lower one comes first, or makes no difference."""
    said: list[str] = []
    store = harness.with_faults(commit_1=RunBefore(lambda: said.append(start(harness, own_release("v3.32.0")))))
    put_node(harness, "other", "v3.32.0")
    assert start(harness, NodeRelease(node="second", release="v3.33.0"), store) == ""
    assert said == ["v3.32.0"]
    assert stored_spec(harness).version == "v3.32.0"


def test_a_lost_reply_changes_nothing(harness: ResourceHarness) -> None:
    start(harness, own_release(), harness.with_faults(commit_1=LostReply()))
    guid = stored_spec(harness).cluster_guid
    assert start(harness, own_release()) == ""
    assert (stored_spec(harness).cluster_guid, stored_spec(harness).version) == (guid, "v3.33.0")


def test_a_damaged_record_is_neither_replaced_nor_in_the_way_of_a_client(harness: ResourceHarness) -> None:
    start(harness, own_release("v9.0.0"))
    damaged = DamagedDatastore(harness.store, damage={CLUSTER_INFORMATION_KEY: b"{"})
    commits = harness.store.calls.commits
    with pytest.raises(Malformed):
        start(harness, own_release(), damaged)
    with pytest.raises(Malformed):
        initialize(harness, store=damaged)
    assert harness.store.calls.commits == commits
    refuse_older_client(damaged, "3.33.0", deadline=harness.deadline)


def test_a_node_whose_record_is_damaged_does_not_count(harness: ResourceHarness) -> None:
    put_cluster(harness, ClusterInformationSpec(cluster_guid="a", version="v3.32.0", is_datastore_ready=True))
    put_node(harness, "other", "v3.32.0")
    damaged = DamagedDatastore(harness.store, damage={node_key("other"): b"{"})
    assert start(harness, own_release(), damaged) == "v3.33.0"


# --- who may work with it ------------------------------------------------------------------------------------------


def of_release(harness: ResourceHarness, version: str) -> ResourceHarness:
    put_cluster(harness, ClusterInformationSpec(version=version))
    return harness


@pytest.mark.parametrize(
    "cluster", ["", "v3.33.0", "3.33.9", "v3.33.0-rc1", "v3.33", "v3.32.7", "v2.99.1", "v0.0.0.1.2.3"]
)
def test_a_client_may_be_as_new_as_the_cluster_or_newer(harness: ResourceHarness, cluster: str) -> None:
    """S-50 of the catalogue, as decided: fields of a new release are configured before an upgrade."""
    refuse_older_client(of_release(harness, cluster).store, "3.33.0", deadline=harness.deadline)
    assert find_cluster_information(harness.store, deadline=harness.deadline).version == cluster


@pytest.mark.parametrize(
    "cluster, rule",
    [
        ("v3.34.0", "use a client of release 3.34 or later"),
        ("v4.0.0-alpha", "use a client of release 4.0 or later"),
        ("3.100.2+build", "use a client of release 3.100 or later"),
        ("master", "the two cannot be compared"),
        ("v3", "the two cannot be compared"),
    ],
)
def test_an_older_client_is_refused(harness: ResourceHarness, cluster: str, rule: str) -> None:
    with pytest.raises(VersionMismatch) as refusal:
        refuse_older_client(of_release(harness, cluster).store, "3.33.0", deadline=harness.deadline)
    assert str(refusal.value) == (
        f"version mismatch. This is 3.33.0, and the cluster runs {cluster}: {rule}; "
        "--allow-version-mismatch goes on all the same"
    )


# --- how it assigns ------------------------------------------------------------------------------------------------


def strict(spec: IPAMConfigurationSpec) -> IPAMConfigurationSpec:
    return evolve(spec, is_affinity_strict=True)


def cooling(spec: IPAMConfigurationSpec) -> IPAMConfigurationSpec:
    return evolve(spec, cooldown_s=60)


def configure(harness: ResourceHarness, change: Change, store: Datastore | None = None) -> IPAMConfigurationSpec:
    return configure_ipam(store or harness.store, change, pace=harness.pace, new_uid=harness.new_uid)


def test_asking_for_the_rules_stores_none(harness: ResourceHarness) -> None:
    """Trap 13: reading the configuration does not write it."""
    assert find_ipam_configuration(harness.store, deadline=harness.deadline) == IPAMConfigurationSpec()
    assert harness.store.calls.commits == 0
    assert harness.find(IPAM_CONFIGURATION_KEY) is None


def test_the_first_rule_creates_the_configuration_and_others_change_it(harness: ResourceHarness) -> None:
    assert configure(harness, strict) == IPAMConfigurationSpec(is_affinity_strict=True)
    made = harness.find(IPAM_CONFIGURATION_KEY)
    assert made is not None
    assert made.value.metadata.uid
    assert made.value.metadata.creation_time_ns == harness.clock.wall_ns
    configure(harness, cooling)
    expected = IPAMConfigurationSpec(is_affinity_strict=True, cooldown_s=60)
    assert find_ipam_configuration(harness.store, deadline=harness.deadline) == expected
    after = harness.find(IPAM_CONFIGURATION_KEY)
    assert after is not None
    assert after.value.metadata == made.value.metadata


def test_a_rule_that_is_set_already_is_not_written_again(harness: ResourceHarness) -> None:
    configure(harness, strict)
    commits = harness.store.calls.commits
    assert configure(harness, strict).is_affinity_strict
    assert harness.store.calls.commits == commits


@pytest.mark.parametrize("others", [(), (lambda spec: evolve(spec, vm_address_persistence="Disabled"),)])
def test_two_concurrent_changes_lose_nothing(harness: ResourceHarness, others: tuple[Change, ...]) -> None:
    """Trap 38: two who configure at once, before there is a configuration and after."""
    for change in others:
        configure(harness, change)
    store = harness.with_faults(commit_1=RunBefore(lambda: configure(harness, strict)))
    settled = configure(harness, cooling, store=store)
    assert (settled.is_affinity_strict, settled.cooldown_s) == (True, 60)
    assert find_ipam_configuration(harness.store, deadline=harness.deadline) == settled


def test_a_change_whose_reply_is_lost_is_made_once(harness: ResourceHarness) -> None:
    for change in (strict, cooling):
        configure(harness, change, store=harness.with_faults(commit_1=LostReply()))
    expected = IPAMConfigurationSpec(is_affinity_strict=True, cooldown_s=60)
    assert find_ipam_configuration(harness.store, deadline=harness.deadline) == expected


def test_rules_that_contradict_each_other_are_refused_and_nothing_is_written(harness: ResourceHarness) -> None:
    with pytest.raises(InvalidResource, match="can only be set with strictAffinity true"):
        configure(harness, lambda spec: evolve(spec, max_blocks_per_host=4))
    stored = IPAMConfiguration(
        metadata=Metadata(name="default"),
        spec=IPAMConfigurationSpec(is_affinity_strict=True, may_auto_allocate_blocks=False),
    )
    harness.put(Create(IPAM_CONFIGURATION_KEY, stored))
    with pytest.raises(InvalidResource, match=r"spec\.autoAllocateBlocks"):
        configure(harness, lambda spec: evolve(spec, is_affinity_strict=False))
    assert find_ipam_configuration(harness.store, deadline=harness.deadline) == stored.spec
