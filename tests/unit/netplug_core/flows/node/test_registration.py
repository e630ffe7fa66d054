"""The Node of this machine in the datastore, its labels, and the file with its name."""

import pytest
from attrs import evolve

from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.flows.node.registration import (
    NodeUnknown,
    copy_cluster_labels,
    publish_node_name,
    register_node,
    store_release,
)
from netplug_core.flows.resources.cluster import find_cluster_information
from netplug_core.netconf.model import NetConf
from netplug_core.records import Create, Malformed, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.metadata import Metadata
from netplug_core.testing.faults import FaultyDatastore, LostReply, RunBefore
from tests.harness.node_registration import NODE_NAME_FILE, NodeHarness


def test_a_node_is_registered_once_and_stays_as_it_is() -> None:
    harness = NodeHarness()
    for _ in range(2):
        assert register_node(harness.world(), harness.netconf()) == "machine"
    stored = harness.find("machine")
    assert stored is not None
    assert (stored.value.metadata.uid, stored.value.metadata.creation_time_ns) == (
        "00000000-0000-4000-8000-000000000001",
        harness.clock.wall_ns,
    )
    harness.put_node("machine", {"rack": "7"})
    assert register_node(harness.world(), harness.netconf()) == "machine"
    assert harness.labels("machine") == {"rack": "7"}
    assert harness.store.calls.commits == 2


@pytest.mark.parametrize(
    "configured, in_file, expected",
    [("node-1", "node-2", "node-1"), ("", "node-2\n", "node-2"), ("", "", "machine")],
)
def test_the_name_is_that_of_calls(configured: str, in_file: str, expected: str) -> None:
    harness = NodeHarness(names=NetConf(nodename=configured))
    harness.host.texts[NODE_NAME_FILE] = in_file
    assert register_node(harness.world(), harness.netconf()) == expected
    assert harness.find(expected) is not None


@pytest.mark.parametrize("machine", ["localhost", "Under_score"])
def test_a_machine_without_a_name_that_a_node_may_have_is_not_registered(machine: str) -> None:
    harness = NodeHarness()
    harness.host.name = machine
    with pytest.raises(ConfigurationError):
        register_node(harness.world(), harness.netconf())
    assert harness.store.calls.commits == 0


def test_a_locked_cluster_gets_no_node() -> None:
    harness = NodeHarness()
    locked = ClusterInformation(
        metadata=Metadata(name="default"), spec=ClusterInformationSpec(is_datastore_ready=False)
    )
    harness.store.commit([Create(CLUSTER_INFORMATION_KEY, locked)], deadline=harness.deadline())
    with pytest.raises(NetplugError, match="locked"):
        register_node(harness.world(), harness.netconf())
    assert harness.find("machine") is None


def test_a_reply_that_is_lost_and_another_process_that_is_first_do_no_harm() -> None:
    harness = NodeHarness()
    other = RunBefore(lambda: harness.put_node("machine", {"rack": "7"}))
    for script in ({1: LostReply()}, {1: other}):
        store = FaultyDatastore(harness.store, script)
        assert register_node(harness.world(store), harness.netconf()) == "machine"
        if script == {1: other}:
            assert harness.labels("machine") == {"rack": "7"}
        harness.delete_node("machine")


def test_where_nodes_are_the_orchestrators_own_none_is_created() -> None:
    harness = NodeHarness()
    with pytest.raises(NodeUnknown, match="the cluster has no node of that name"):
        register_node(harness.world(), harness.netconf("kubernetes"))
    harness.put_node("machine", {})
    assert register_node(harness.world(), harness.netconf("kubernetes")) == "machine"
    assert harness.store.calls.commits == 1, "the test's own"


def test_the_file_is_written_if_it_says_something_else() -> None:
    harness = NodeHarness()
    written: list[str] = []
    publish_node_name(harness.world(), harness.netconf(), "node-0")
    harness.host.before_write = lambda: written.append("")
    for name in ("node-1", "node-1", "node-2"):
        publish_node_name(harness.world(), harness.netconf(), name)
        assert harness.host.texts[NODE_NAME_FILE] == name
    assert len(written) == 2
    harness.host.texts[NODE_NAME_FILE] = "node-2\n"
    publish_node_name(harness.world(), harness.netconf(), "node-2")
    assert len(written) == 2


# --- labels --------------------------------------------------------------------------------------------------------


def test_labels_of_the_orchestrators_node_are_copied_and_own_ones_stay() -> None:
    harness = NodeHarness()
    harness.put_node("machine", {"rack": "7"})
    harness.put_cluster_node("machine", zone="a")
    assert copy_cluster_labels(harness.world(), "machine")
    assert harness.labels("machine") == {"rack": "7", "zone": "a"}
    assert not copy_cluster_labels(harness.world(), "machine")
    harness.put_cluster_node("machine")
    assert copy_cluster_labels(harness.world(), "machine")
    assert harness.labels("machine") == {"rack": "7"}


def test_without_access_to_an_orchestrator_nothing_is_copied() -> None:
    harness = NodeHarness(has_orchestrator=False)
    assert not copy_cluster_labels(harness.world(), "machine")
    assert harness.store.calls.reads == 0


def test_a_node_that_the_orchestrator_does_not_have_keeps_its_labels() -> None:
    harness = NodeHarness()
    harness.put_node("machine", {"rack": "7"})
    with pytest.raises(NodeUnknown, match="'machine'"):
        copy_cluster_labels(harness.world(), "machine")
    assert harness.labels("machine") == {"rack": "7"}


def test_a_node_that_is_deleted_meanwhile_is_left_to_the_next_registration() -> None:
    harness = NodeHarness()
    harness.put_cluster_node("machine", zone="a")
    assert not copy_cluster_labels(harness.world(), "machine")
    assert harness.find("machine") is None


def test_a_label_that_another_sets_at_the_same_time_stays() -> None:
    harness = NodeHarness()
    harness.put_node("machine", {})
    harness.put_cluster_node("machine", zone="a")
    store = FaultyDatastore(harness.store, {1: RunBefore(lambda: harness.put_node("machine", {"rack": "7"}))})
    assert copy_cluster_labels(harness.world(store), "machine")
    assert harness.labels("machine") == {"rack": "7", "zone": "a"}


def test_what_cannot_be_read_of_the_last_copy_is_not_overwritten() -> None:
    harness = NodeHarness()
    harness.put_cluster_node("machine", zone="a")
    harness.put_node("machine", {})
    assert copy_cluster_labels(harness.world(), "machine")
    stored = harness.find("machine")
    assert stored is not None
    metadata = evolve(stored.value.metadata, annotations=(("projectnetplug.org/kube-labels", "{"),))
    damaged = evolve(stored.value, metadata=metadata)
    harness.store.commit([Update(stored.key, damaged, stored.revision)], deadline=harness.deadline())
    with pytest.raises(Malformed):
        copy_cluster_labels(harness.world(), "machine")


# --- the release of the cluster -----------------------------------------------------------------------------------


def put_release(harness: NodeHarness, release: str, *, is_ready: bool = True) -> None:
    """A cluster that runs a release."""
    spec = ClusterInformationSpec(cluster_guid="c0ffee", version=release, is_datastore_ready=is_ready)
    found = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
    harness.store.commit([Create(CLUSTER_INFORMATION_KEY, found)], deadline=harness.deadline())


def release_of(harness: NodeHarness) -> str:
    return find_cluster_information(harness.store, deadline=harness.deadline()).version


def test_a_new_cluster_gets_an_identity_and_the_release() -> None:
    harness = NodeHarness()
    assert store_release(harness.world(), "v3.33.0", has_just_started=True)
    found = find_cluster_information(harness.store, deadline=harness.deadline())
    assert (found.version, found.is_datastore_ready, len(found.cluster_guid)) == ("v3.33.0", True, 32)


@pytest.mark.parametrize(
    "stored, at_start, later",
    [
        ("v3.33.0", "v3.33.0", "v3.33.0"),
        ("v3.32.5", "v3.33.0", "v3.33.0"),
        ("v3.9.0", "v3.33.0", "v3.33.0"),
        ("v3.33.0-rc1", "v3.33.0", "v3.33.0-rc1"),
        ("v3.33.1", "v3.33.0", "v3.33.1"),
        ("v4.0.0", "v3.33.0", "v4.0.0"),
        ("", "v3.33.0", "v3.33.0"),
        ("latest", "v3.33.0", "v3.33.0"),
    ],
)
def test_a_node_that_starts_has_the_last_word_and_later_only_raises(stored: str, at_start: str, later: str) -> None:
    for has_just_started, expected in ((True, at_start), (False, later)):
        harness = NodeHarness()
        put_release(harness, stored)
        changed = store_release(harness.world(), "v3.33.0", has_just_started=has_just_started)
        assert (release_of(harness), changed) == (expected, expected != stored)
        assert find_cluster_information(harness.store, deadline=harness.deadline()).cluster_guid == "c0ffee"


def test_nothing_is_written_if_the_release_is_there() -> None:
    harness = NodeHarness()
    put_release(harness, "v3.33.0")
    before = harness.store.calls.commits
    assert not store_release(harness.world(), "v3.33.0", has_just_started=True)
    assert harness.store.calls.commits == before


def test_a_locked_cluster_keeps_its_release() -> None:
    harness = NodeHarness()
    put_release(harness, "v3.32.0", is_ready=False)
    with pytest.raises(Unavailable, match="datastoreReady is false"):
        store_release(harness.world(), "v3.33.0", has_just_started=True)
    assert release_of(harness) == "v3.32.0"


def test_the_name_in_a_file_of_another_machine_is_not_taken_and_is_replaced() -> None:
    """A disk image of a node that ran: the machine made of it has another name."""
    harness = NodeHarness()
    texts = harness.host.texts
    boot = "/proc/sys/kernel/random/boot_id"
    texts[boot] = "first"
    publish_node_name(harness.world(), harness.netconf(), "first-node")
    texts[boot] = "second"
    assert register_node(harness.world(), harness.netconf()) == "machine"
    publish_node_name(harness.world(), harness.netconf(), "machine")
    assert (texts[NODE_NAME_FILE], texts[f"{NODE_NAME_FILE}.machine"]) == ("machine", "boot-id=second\n")
    assert register_node(harness.world(), harness.netconf()) == "machine"


def test_a_process_that_is_killed_between_the_two_files_leaves_no_name_that_counts() -> None:
    harness = NodeHarness()
    texts = harness.host.texts
    texts["/etc/machine-id"] = "m"
    publish_node_name(harness.world(), harness.netconf(), "first-node")
    written: list[str] = []

    def die_at_the_second() -> None:
        written.append("")
        if len(written) > 1:
            raise OSError

    texts["/etc/machine-id"], harness.host.before_write = "n", die_at_the_second
    with pytest.raises(OSError):  # noqa: PT011  the process ends here
        publish_node_name(harness.world(), harness.netconf(), "second-node")
    assert (texts[NODE_NAME_FILE], texts[f"{NODE_NAME_FILE}.machine"]) == ("second-node", "machine-id=m\n")
