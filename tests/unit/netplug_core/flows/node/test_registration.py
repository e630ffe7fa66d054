"""The Node of this machine in the datastore, its labels, and the file with its name."""

from collections.abc import Mapping
from itertools import count

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.flows.node import (
    NodeUnknown,
    SettledAddresses,
    copy_cluster_labels,
    find_on_host,
    publish_node_name,
    publish_pod_mtu,
    register_node,
    settle_addresses,
)
from netplug_core.netconf.model import NetConf
from netplug_core.orchestrator.model import NodeFacts
from netplug_core.reconcile.kubecontrollers import CopySource, default_configuration
from netplug_core.reconcile.nodes import orchestrator_name
from netplug_core.reconcile.registration import FoundOnHost, RegistrationSettings
from netplug_core.reconcile.tunnels import MTUInputs
from netplug_core.records import Create, Malformed, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.ippool import Encapsulation, IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION_KEY,
    Controllers,
    KubeControllersSpec,
    NodeController,
)
from netplug_core.resources.node import Node, NodeBGP, NodeInterface, NodeSpec, node_key
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration, NodeConfigurationSpec
from netplug_core.testing.faults import DamagedDatastore, FaultyDatastore, LostReply, RunBefore
from tests.harness.cni_node import BOOT_ID
from tests.harness.node_registration import MTU_FILE, NODE_NAME_FILE, NodeHarness, interface
from tests.harness.stores import HookedStore


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
    assert copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    assert harness.labels("machine") == {"rack": "7", "zone": "a"}
    assert not copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    harness.put_cluster_node("machine")
    assert copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    assert harness.labels("machine") == {"rack": "7"}


def put_controllers(harness: NodeHarness, sync: Switch) -> None:
    """Let controllers run with a setting of label sync."""
    value = default_configuration(CopySource.KUBERNETES)
    running = KubeControllersSpec(controllers=Controllers(node=NodeController(sync_labels=sync)))
    value = evolve(value, status=evolve(value.status, running=running))
    harness.store.commit([Create(KUBE_CONTROLLERS_CONFIGURATION_KEY, value)], deadline=harness.deadline())


def test_where_controllers_copy_only_the_first_labels_are_copied() -> None:
    harness = NodeHarness()
    put_controllers(harness, Switch.ENABLED)
    harness.put_node("machine", {"rack": "7"})
    harness.put_cluster_node("machine", zone="a")
    assert copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    assert harness.labels("machine") == {"rack": "7", "zone": "a"}
    harness.put_cluster_node("machine", zone="b")
    assert not copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    assert harness.labels("machine") == {"rack": "7", "zone": "a"}


def test_where_labels_are_not_to_be_copied_a_node_still_names_its_machine() -> None:
    harness = NodeHarness()
    put_controllers(harness, Switch.DISABLED)
    harness.put_node("machine", {"rack": "7"})
    harness.put_cluster_node("machine", zone="a")
    assert copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    assert not copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    stored = harness.find("machine")
    assert stored is not None
    assert (orchestrator_name(stored.value), harness.labels("machine")) == ("machine", {"rack": "7"})


def test_settings_of_controllers_that_cannot_be_read_keep_no_label_away() -> None:
    harness = NodeHarness()
    put_controllers(harness, Switch.ENABLED)
    harness.put_node("machine", {})
    harness.put_cluster_node("machine", zone="a")
    store = DamagedDatastore(harness.store, damage={KUBE_CONTROLLERS_CONFIGURATION_KEY: b"{"})
    copy_cluster_labels(harness.world(store), harness.netconf(), "machine")
    harness.put_cluster_node("machine", zone="b")
    assert copy_cluster_labels(harness.world(store), harness.netconf(), "machine")
    assert harness.labels("machine") == {"zone": "b"}


def test_without_access_to_an_orchestrator_nothing_is_copied() -> None:
    harness = NodeHarness(has_orchestrator=False)
    assert not copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    assert harness.store.calls.reads == 0


def test_a_node_that_the_orchestrator_does_not_have_keeps_its_labels() -> None:
    harness = NodeHarness()
    harness.put_node("machine", {"rack": "7"})
    with pytest.raises(NodeUnknown, match="'machine'"):
        copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    assert harness.labels("machine") == {"rack": "7"}


def test_a_node_that_is_deleted_meanwhile_is_left_to_the_next_registration() -> None:
    harness = NodeHarness()
    harness.put_cluster_node("machine", zone="a")
    assert not copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    assert harness.find("machine") is None


def test_a_label_that_another_sets_at_the_same_time_stays() -> None:
    harness = NodeHarness()
    harness.put_node("machine", {})
    harness.put_cluster_node("machine", zone="a")
    store = FaultyDatastore(harness.store, {1: RunBefore(lambda: harness.put_node("machine", {"rack": "7"}))})
    assert copy_cluster_labels(harness.world(store), harness.netconf(), "machine")
    assert harness.labels("machine") == {"rack": "7", "zone": "a"}


def test_what_cannot_be_read_of_the_last_copy_is_not_overwritten() -> None:
    harness = NodeHarness()
    harness.put_cluster_node("machine", zone="a")
    harness.put_node("machine", {})
    assert copy_cluster_labels(harness.world(), harness.netconf(), "machine")
    stored = harness.find("machine")
    assert stored is not None
    metadata = evolve(stored.value.metadata, annotations=(("projectnetplug.org/kube-labels", "{"),))
    damaged = evolve(stored.value, metadata=metadata)
    harness.store.commit([Update(stored.key, damaged, stored.revision)], deadline=harness.deadline())
    with pytest.raises(Malformed):
        copy_cluster_labels(harness.world(), harness.netconf(), "machine")


def test_where_nodes_are_the_orchestrators_own_their_labels_are_there_already() -> None:
    harness = NodeHarness()
    assert not copy_cluster_labels(harness.world(), harness.netconf("kubernetes"), "machine")
    assert harness.store.calls.reads == 0


# --- addresses ----------------------------------------------------------------------------------------------------


def settle(harness: NodeHarness, **environ: str) -> SettledAddresses:
    """What a registered node settles with these variables."""
    return settle_in(harness, harness.store, environ)


def settle_in(harness: NodeHarness, store: Datastore, environ: Mapping[str, str]) -> SettledAddresses:
    world = harness.world(store)
    settings, found = find_on_host(world, harness.network, RegistrationSettings.parse(environ), "machine")
    return settle_addresses(world, "machine", settings, found)


def registered() -> NodeHarness:
    harness = NodeHarness()
    register_node(harness.world(), harness.netconf())
    return harness


def address_of(harness: NodeHarness, family: Family = Family.IPV4, name: str = "machine") -> str:
    stored = harness.find(name)
    assert stored is not None
    return str(stored.value.find_address(family))


def put_other(harness: NodeHarness, name: str, address: str) -> None:
    node = Node(metadata=Metadata(name=name), spec=NodeSpec(bgp=NodeBGP(ipv4_address=InterfaceAddress.parse(address))))
    harness.store.commit([Create(node_key(name), node)], deadline=harness.deadline())


def test_addresses_and_interfaces_are_stored_in_one_commit_and_then_stay() -> None:
    harness = registered()
    before = harness.store.calls.commits
    for _ in range(2):
        settled = settle(harness, IP6="autodetect", AS="65000")
        assert [str(each.address) for each in settled.addresses] == ["10.240.0.11/24", "fd10::11/64"]
        assert (settled.node, settled.conflicts, settled.problems) == ("machine", (), ())
    assert harness.store.calls.commits == before + 1
    stored = harness.find("machine")
    assert stored is not None
    addresses = (Address.parse("10.240.0.11"), Address.parse("fd10::11"))
    assert stored.value.spec.interfaces == (NodeInterface(name="eth0", addresses=addresses),)
    assert stored.value.spec.bgp is not None
    assert stored.value.spec.bgp.as_number == 65_000


def test_other_nodes_are_read_only_if_an_address_is_new() -> None:
    harness = registered()
    settle(harness)
    before = harness.store.calls.reads
    settle(harness)
    assert harness.store.calls.reads == before + 2, "the Node, and pools with settings"


def test_an_address_of_another_node_is_not_registered_and_named() -> None:
    harness = registered()
    put_other(harness, "n1", "10.240.0.11/24")
    for origin, environ in (("detected", {}), ("configured", {"IP": "10.240.0.11"})):
        settled = settle(harness, **environ)
        assert address_of(harness) == "None"
        assert [f"{each.problem.message}: {each.problem.cause}" for each in settled.conflicts] == [
            f"the {origin} IPv4 address is not registered: the node n1 has the address 10.240.0.11"
        ]
        assert settled.problems == ()
    assert address_of(harness, name="n1") == "10.240.0.11/24"
    settle(harness, DISABLE_NODE_IP_CHECK="true")
    assert address_of(harness) == "10.240.0.11/24"


MOMENTS = ("before_read", "after_read", "before_commit", "after_commit")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("call", [1, 2, 3, 4])
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_two_nodes_that_register_one_address_in_the_same_instant_end_with_one_conflict(
    names: tuple[str, str], moment: str, call: int
) -> None:
    """Whatever the first one does just then, the second one registers as a whole. Then both look once more."""
    harness = NodeHarness()
    for name in names:
        harness.put_node(name, {})
    first, second = names
    calls = count(1)

    def register_second() -> None:
        if next(calls) == call:
            settle_as(harness, harness.store, second)

    hooked = HookedStore(harness.store)
    setattr(hooked, moment, register_second)
    settle_as(harness, hooked, first)
    settle_as(harness, harness.store, second)  # where the first one did less
    left = {name: settle_as(harness, harness.store, name, is_contested=True) for name in (*names, *names)}
    holders = [name for name in names if address_of(harness, name=name) == "10.240.0.11/24"]
    assert len(holders) == 1
    (loser,) = set(names) - set(holders)
    assert left[holders[0]].conflicts == ()
    assert [str(each) for each in left[loser].conflicts] == [f"the node {holders[0]} has the address 10.240.0.11"]
    assert settle_as(harness, harness.store, loser).conflicts == left[loser].conflicts


def test_where_neither_saw_the_other_the_higher_name_gives_the_address_back() -> None:
    harness = NodeHarness()
    for name in ("a", "b"):
        put_other(harness, name, "10.240.0.11/24")
    assert settle_as(harness, harness.store, "a", is_contested=True).conflicts == ()
    (found,) = settle_as(harness, harness.store, "b", is_contested=True).conflicts
    assert str(found) == "the node a has the address 10.240.0.11"
    assert [address_of(harness, name=name) for name in ("a", "b")] == ["10.240.0.11/24", "None"]


def settle_as(harness: NodeHarness, store: Datastore, name: str, *, is_contested: bool = False) -> SettledAddresses:
    """What a node of this name settles on a host that has the address."""
    world = harness.world(store)
    settings, found = find_on_host(world, harness.network, RegistrationSettings.parse({}), name)
    return settle_addresses(world, name, settings, found, is_contested=is_contested)


def test_a_detected_address_that_is_in_conflict_leaves_none_and_a_configured_one_what_there_was() -> None:
    for environ, left in (({"IP": "autodetect"}, "None"), ({"IP": "10.240.0.12/24"}, "10.240.0.11/24")):
        harness = registered()
        settle(harness)
        put_other(harness, "n1", "10.240.0.12/24")
        harness.network.interfaces = (interface("eth0", 2, "10.240.0.12/24"),)
        settle(harness, **environ)
        assert address_of(harness) == left


def test_a_damaged_node_of_others_is_passed_over() -> None:
    harness = registered()
    put_other(harness, "n1", "10.240.0.12/24")
    damaged = DamagedDatastore(harness.store, damage={node_key("n1"): b"{"})
    assert settle_in(harness, damaged, {}).conflicts == ()
    assert address_of(harness) == "10.240.0.11/24"


def test_a_lost_reply_and_another_writer_do_no_harm() -> None:
    harness = registered()
    other = RunBefore(lambda: harness.put_node("machine", {"rack": "7"}))
    for script in ({1: LostReply()}, {1: other}):
        settled = settle_in(harness, FaultyDatastore(harness.store, script), {})
        assert (settled.conflicts, address_of(harness)) == ((), "10.240.0.11/24")
        harness.put_node("machine", {})


def test_a_node_that_is_deleted_meanwhile_is_settled_after_the_next_registration() -> None:
    harness = NodeHarness()
    with pytest.raises(Unavailable, match="it was deleted meanwhile"):
        settle(harness)


def test_without_networking_a_node_has_interfaces_and_no_addresses() -> None:
    harness = registered()
    settled = settle(harness, NETPLUG_NETWORKING_BACKEND="none", IP="autodetect", IP_AUTODETECTION_METHOD="can-reach=x")
    stored = harness.find("machine")
    assert stored is not None
    assert (stored.value.spec.bgp, len(stored.value.spec.interfaces)) == (None, 1)
    assert (settled.addresses, settled.problems) == ((), ())


def test_what_is_not_detected_is_a_problem_and_so_is_a_node_without_addresses() -> None:
    harness = registered()
    settled = settle(harness, IP="none")
    assert [each.message for each in settled.problems] == ["the node has no address: other nodes do not reach its pods"]
    harness.network.interfaces = ()
    settled = settle(harness)
    assert [each.message for each in settled.problems] == [
        "the address of the node is not detected: other nodes do not reach its pods",
        "the MTU of the host is not known; 1460 is taken",
    ]


def test_the_source_of_packets_to_a_target_is_found_where_it_is_needed() -> None:
    harness = registered()
    harness.network.interfaces = (interface("eth0", 2, "10.240.0.11/24"), interface("eth1", 3, "10.241.0.11/16"))
    harness.network.sources["10.240.0.1"] = "10.240.0.11"
    settled = settle(harness, IP_AUTODETECTION_METHOD="can-reach=10.240.0.1", IP6_AUTODETECTION_METHOD="can-reach=::1")
    assert address_of(harness) == "10.240.0.11/24"
    assert [str(step) for step in settled.addresses[1].trace] == ["IPv6: not asked for"]
    settled = settle(harness, IP="autodetect", IP_AUTODETECTION_METHOD="can-reach=10.9.9.9")
    assert address_of(harness) == "10.240.0.11/24"
    assert [f"{each.message}: {each.cause}" for each in settled.problems] == [
        "the node keeps the address that is registered: can-reach=10.9.9.9 finds no IPv4 address"
    ]
    assert str(settled.addresses[0].trace[0]) == "the source of packets to 10.9.9.9: Network is unreachable"


def test_the_internal_address_of_the_orchestrators_node_is_looked_up() -> None:
    method = {"IP_AUTODETECTION_METHOD": "kubernetes-internal-ip", "IP": "autodetect"}
    harness = registered()
    harness.orchestrator.put_node(NodeFacts(name="machine", uid="", internal_addresses=(Address.parse("10.240.0.11"),)))
    settle(harness, **method)
    assert address_of(harness) == "10.240.0.11/24"
    harness = registered()
    assert settle(harness, **method).problems[0].cause == "kubernetes-internal-ip finds no IPv4 address"
    harness.has_orchestrator = False
    assert settle(harness, **method).problems[0].cause == "kubernetes-internal-ip finds no IPv4 address"


def test_the_mtu_of_pods_follows_pools_and_settings_and_is_written_if_it_is_another_one() -> None:
    harness = registered()
    spec = IPPoolSpec(prefix=Prefix.parse("10.65.0.0/16"), vxlan_mode=Encapsulation.ALWAYS)
    assert settle(harness).pod_mtu == 1500
    pool = IPPool(metadata=Metadata(name="v4"), spec=spec)
    harness.store.commit([Create(ippool_key("v4"), pool)], deadline=harness.deadline())
    assert settle(harness).pod_mtu == 1450
    own = NodeConfiguration(metadata=Metadata(name="node.machine"), spec=NodeConfigurationSpec(vxlan_mtu=1400))
    harness.store.commit([Create(NODE_CONFIGURATION.key("node.machine"), own)], deadline=harness.deadline())
    assert settle(harness).pod_mtu == 1400
    assert settle(harness, NETPLUG_VXLANMTU="1390").pod_mtu == 1390
    known, before = MTUInputs(pools=(pool,)), harness.store.calls.reads
    world, settings = harness.world(), RegistrationSettings()
    found = FoundOnHost(interfaces=harness.network.interfaces)
    assert settle_addresses(world, "machine", settings, found, known=known).pod_mtu == 1450
    assert harness.store.calls.reads == before + 1, "the Node alone"
    world, netconf = harness.world(), harness.netconf()
    assert [publish_pod_mtu(world, netconf, mtu) for mtu in (1450, 1450, 1400)] == [True, False, True]
    assert harness.host.texts[MTU_FILE] == "1400"


# --- the release of the node --------------------------------------------------------------------------------------


def test_a_node_records_the_release_of_its_process_with_its_addresses() -> None:
    harness = NodeHarness(release="v3.33.0")
    register_node(harness.world(), harness.netconf())
    settle(harness)
    commits = harness.store.calls.commits
    settle(harness)
    assert harness.store.calls.commits == commits
    for release, recorded in (("v3.32.1", "v3.32.1"), ("", "v3.32.1")):
        harness.release = release
        settle(harness)
        stored = harness.find("machine")
        assert stored is not None
        assert stored.value.status.release == recorded


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
    assert (texts[NODE_NAME_FILE], texts[f"{NODE_NAME_FILE}.machine"]) == (
        "second-node",
        f"boot-id={BOOT_ID}\nmachine-id=m\n",
    )
