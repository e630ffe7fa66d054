"""DEL: it cleans up whatever is left, again and again, and touches nothing of anybody else."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.dataplane.protocol import OWN_NAMESPACE, KernelError
from netplug_core.errors import ConfigurationError, NamespaceError
from netplug_core.flows.cni.delete import delete
from netplug_core.locks import DEL_LOCK_S
from netplug_core.log import Level
from netplug_core.names import attachment_lock_offset
from netplug_core.records import Delete, Get
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from tests.harness.cni_node import (
    DEFAULT_CONTAINER,
    DUAL_STACK,
    LOCK_FILE,
    NODE,
    POD,
    CNINodeHarness,
    ContainerInterface,
)
from tests.harness.stores import HookedStore

X = ContainerInterface(id="x", netns="/run/netns/x", args=POD)
Y = ContainerInterface(id="y", netns="/run/netns/y", args=POD)


# --- what goes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "container", [DEFAULT_CONTAINER, ContainerInterface(args=POD), ContainerInterface(ifname="net0")]
)
def test_check_44_everything_goes_and_once_more_is_fine(harness: CNINodeHarness, container: ContainerInterface) -> None:
    harness.add(container, ipam=DUAL_STACK)
    assert harness.run("DEL", container) is None
    harness.assert_nothing_left()
    assert harness.dataplane.names(container.netns) == ()
    commits = harness.memory.calls.commits
    assert harness.run("DEL", container) is None
    assert harness.memory.calls.commits == commits


def test_the_line_names_what_was_freed(harness: CNINodeHarness) -> None:
    addresses = [ip.address for ip in harness.add(ipam=DUAL_STACK).ips]
    harness.log.lines.clear()
    harness.run("DEL")
    identity = {"container": "c1", "interface": "eth0", "network": "net1", "node": NODE}
    assert harness.log.lines == [
        (Level.INFO, "container detached", {**identity, "addresses": ",".join(map(str, addresses))})
    ]


@pytest.mark.parametrize("netns", ["", "/run/netns/c1", "/not/a/real/path1234567890"])
def test_check_47_a_container_that_was_never_added_is_gone(harness: CNINodeHarness, netns: str) -> None:
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    harness.run("DEL", ContainerInterface(netns=netns))
    harness.assert_nothing_left()


@pytest.mark.parametrize("netns", ["", "/run/netns/c1", "/somewhere/else"])
def test_check_47_a_namespace_that_is_gone_holds_nothing_up(harness: CNINodeHarness, netns: str) -> None:
    harness.add()
    harness.dataplane.remove_namespace(DEFAULT_CONTAINER.netns)
    harness.run("DEL", ContainerInterface(netns=netns))
    harness.assert_nothing_left()


@pytest.mark.parametrize("netns", ["", "/run/netns/gone", "/proc/1/cmdline"])
def test_the_interface_goes_whatever_became_of_the_path(harness: CNINodeHarness, netns: str) -> None:
    harness.add()
    harness.run("DEL", ContainerInterface(netns=netns))
    assert harness.dataplane.names(DEFAULT_CONTAINER.netns) == ()
    harness.assert_nothing_left()


@pytest.mark.parametrize("container", [DEFAULT_CONTAINER, X])
def test_a_recycled_namespace_keeps_the_interface_of_its_next_container(
    harness: CNINodeHarness, container: ContainerInterface
) -> None:
    """The runtime names the process of a container that has ended; its number is another one's by now."""
    harness.add(container)
    harness.dataplane.remove_namespace(container.netns)
    other = ContainerInterface(id="other", netns=container.netns)
    result = harness.add(other)
    harness.run("DEL", container)
    harness.check(other, result)
    assert harness.handles() == ["net1.other"]


def test_an_attachment_of_a_former_version_goes_by_the_name_it_had(harness: CNINodeHarness) -> None:
    name = harness.add().interfaces[0].name
    harness.dataplane.rename_link(name, "netp2f22765d049")
    former = harness.dataplane.interface("netp2f22765d049")
    assert former is not None
    former.alias = ""
    harness.run("DEL")
    harness.assert_nothing_left()


def test_a_del_needs_no_pool(harness: CNINodeHarness) -> None:
    harness.add()
    key = ippool_key("four")
    found = harness.memory.read((Get(key),), deadline=Deadline.after(harness.clock, 5)).find(key)
    assert found is not None
    harness.commit(Delete(key, found.revision))
    harness.run("DEL")
    harness.assert_nothing_left()


# --- what stays ----------------------------------------------------------------------------------------------------


def test_check_66_a_late_del_leaves_the_pods_next_container(harness: CNINodeHarness) -> None:
    harness.add(X)
    harness.run("DEL", X)
    result = harness.add(Y)
    harness.run("DEL", X)
    harness.check(Y, result)
    assert [endpoint.spec.container_id for endpoint in harness.endpoints()] == ["y"]
    harness.run("DEL", Y)
    harness.assert_nothing_left()


def test_check_67_the_old_containers_own_things_go(harness: CNINodeHarness) -> None:
    harness.add(X)
    result = harness.add(Y)
    harness.run("DEL", X)
    assert harness.allocations() == {result.ips[0].address: "net1.y"}
    assert harness.dataplane.names(X.netns) == ()
    harness.check(Y, result)
    harness.run("DEL", Y)
    harness.assert_nothing_left()


def test_check_71_pods_with_alike_names_are_two(harness: CNINodeHarness) -> None:
    p = ContainerInterface(id="a", netns="/run/netns/a", args="K8S_POD_NAMESPACE=test;K8S_POD_NAME=p")
    p1 = ContainerInterface(id="b", netns="/run/netns/b", args="K8S_POD_NAMESPACE=test;K8S_POD_NAME=p-1")
    harness.add(p)
    result = harness.add(p1)
    harness.run("DEL", p)
    harness.check(p1, result)


def test_one_interface_goes_and_the_other_stays(harness: CNINodeHarness) -> None:
    first, second = ContainerInterface(), ContainerInterface(ifname="net0")
    harness.add(first)
    result = harness.add(second)
    harness.run("DEL", first)
    harness.check(second, result)
    assert harness.handles() == ["net1.c1.net0"]


def test_another_networks_attachment_stays(harness: CNINodeHarness) -> None:
    other = ContainerInterface(netns="/run/netns/c1", ifname="net0")
    harness.add()
    result = harness.add(other, name="net2")
    harness.run("DEL")
    harness.run("DEL", other)
    assert harness.handles() == ["net2.c1.net0"]
    assert harness.allocations() == {result.ips[0].address: "net2.c1.net0"}


# --- our own namespace ---------------------------------------------------------------------------------------------


def test_the_hosts_own_namespace_is_refused(harness: CNINodeHarness) -> None:
    harness.dataplane.add_link("eth0")
    with pytest.raises(NamespaceError) as refusal:
        harness.run("DEL", ContainerInterface(netns=OWN_NAMESPACE))
    assert (refusal.value.code, str(refusal.value)) == (
        8,
        f"CNI_NETNS {OWN_NAMESPACE!r} is the plugin's own network namespace; nothing is removed",
    )
    assert harness.dataplane.names() == ("eth0",)


def test_check_12_the_override_lifts_that(harness: CNINodeHarness) -> None:
    harness.dataplane.add_link("eth0")
    request, netconf = harness.make_call("DEL", ContainerInterface(netns=OWN_NAMESPACE), Plugin.MAIN)
    delete(harness.world, evolve(request, has_netns_override=True), netconf)
    assert harness.dataplane.names() == ("eth0",), "an interface that is not this attachment's"


# --- a configuration that could not be added -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"mtu": -1},
        {"log_level": "LOUD"},
        {"policy": {"type": "foo"}},
        {"device_type": "bogus"},
        {"readiness_gates": [""]},
        {"policy_setup_timeout_seconds": -1},
        {"require_mtu_file": True},
        {"nodename_file_optional": False},
        {"ipam": None},
        {"ipam": {"type": "host-local"}},
        {"ipam": {"type": "netplug-ipam", "assign_ipv4": "never"}},
        {"ipam": {"type": "netplug-ipam", "ipv4_pools": ["nowhere"]}},
        {"ipam": {"type": "netplug-ipam", "assign_ipv4": "false"}},
        {"policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/k"}, "dataplane_options": {"type": "invalid"}},
        {"prevResult": {"ips": 1}},
    ],
)
def test_a_value_that_del_does_not_use_stops_nothing(harness: CNINodeHarness, changes: dict[str, object]) -> None:
    harness.add()
    harness.host.texts = {"/var/lib/netplug/mtu": "abc"}
    harness.run("DEL", DEFAULT_CONTAINER, Plugin.MAIN, **changes)
    harness.assert_nothing_left()


def test_a_chosen_address_stops_no_del(harness: CNINodeHarness) -> None:
    harness.add()
    harness.run("DEL", ContainerInterface(args="IP=10.65.0.7"))
    harness.assert_nothing_left()


# --- what fails ----------------------------------------------------------------------------------------------------


def test_check_27_with_the_cluster_locked_the_node_is_clean_and_a_record_keeps_the_rest(
    harness: CNINodeHarness,
) -> None:
    harness.add()
    harness.set_ready()
    harness.run("DEL")
    assert len(harness.release_records()) == 1
    assert (
        harness.dataplane.names(),
        harness.dataplane.names(DEFAULT_CONTAINER.netns),
        harness.dataplane.host_routes(),
    ) == (
        (),
        (),
        (),
    )
    assert (harness.handles(), len(harness.endpoints())) == (["net1.c1"], 1)
    harness.set_ready(is_ready=True)
    harness.run("DEL")
    harness.assert_nothing_left()


def test_a_store_that_is_away_means_the_same(harness: CNINodeHarness) -> None:
    harness.add()
    harness.store = FaultyDatastore(harness.memory, {1: LostRequest()})
    harness.run("DEL")
    assert (harness.dataplane.names(), harness.handles()) == ((), ["net1.c1"])
    harness.run("DEL")
    harness.assert_nothing_left()


@pytest.mark.parametrize("fault", [LostRace(), LostReply()])
def test_a_lost_race_or_reply_is_made_good(harness: CNINodeHarness, fault: Fault) -> None:
    harness.add()
    harness.store = FaultyDatastore(harness.memory, {1: fault})
    harness.run("DEL")
    harness.assert_nothing_left()


def test_check_75_a_pod_restarted_meanwhile_keeps_its_endpoint(harness: CNINodeHarness) -> None:
    harness.add(X)
    harness.dataplane.add_namespace(Y.netns)
    undisturbed, addresses = harness.memory, list[Address]()

    def restart() -> None:
        harness.store = undisturbed
        addresses.extend(ip.address for ip in harness.add(Y).ips)

    harness.store = FaultyDatastore(harness.memory, {1: RunBefore(restart)})
    harness.run("DEL", X)
    assert [endpoint.spec.container_id for endpoint in harness.endpoints()] == ["y"]
    assert harness.allocations() == dict.fromkeys(addresses, "net1.y")


def test_an_interface_that_cannot_be_removed_keeps_its_address(harness: CNINodeHarness) -> None:
    harness.add()

    def refuse(effect: str) -> None:
        raise KernelError(effect, "Device or resource busy")

    harness.dataplane.before_effect = refuse
    with pytest.raises(KernelError):
        harness.run("DEL")
    assert (harness.handles(), len(harness.endpoints())) == (["net1.c1"], 1)


# --- other calls of the same attachment ----------------------------------------------------------------------------


def test_the_attachment_is_locked_throughout_and_the_host_is_not(harness: CNINodeHarness) -> None:
    harness.add()
    lock = (LOCK_FILE, attachment_lock_offset("net1", "c1", "eth0"))
    held = list[frozenset[tuple[str, int]]]()

    def note(_effect: str = "") -> None:
        held.append(harness.host.locks.held)

    harness.store = HookedStore(harness.memory, before_read=note, before_commit=note)
    harness.dataplane.before_effect = note
    harness.run("DEL")
    assert len(held) > 3
    assert set(held) == {frozenset({lock})}
    assert harness.host.locks.held == frozenset()


def test_while_another_call_is_at_work_nothing_is_changed_but_a_record_stays(harness: CNINodeHarness) -> None:
    result = harness.add()
    harness.host.locks.try_lock(LOCK_FILE, attachment_lock_offset("net1", "c1", "eth0"))
    began = harness.clock.monotonic()
    harness.run("DEL")
    assert harness.clock.monotonic() - began == pytest.approx(DEL_LOCK_S, abs=0.1)
    assert len(harness.release_records()) == 1
    harness.check(DEFAULT_CONTAINER, result)


def test_without_a_lock_an_interface_that_an_add_made_meanwhile_goes_too(harness: CNINodeHarness) -> None:
    """The ADD made the interface, and found its addresses still held, after this call had looked for it."""
    harness.host.locks.errors[LOCK_FILE] = PermissionError(13, "Permission denied")
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)

    def add_first() -> None:
        store.before_read = lambda: None
        harness.add()

    store = harness.store = HookedStore(harness.memory, before_read=add_first)
    harness.run("DEL")
    harness.assert_nothing_left()
    assert harness.dataplane.names(DEFAULT_CONTAINER.netns) == ()


# --- a node that was renamed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", list(Plugin))
@pytest.mark.parametrize("ipam", [{"type": "netplug-ipam"}, DUAL_STACK])
def test_a_node_that_was_renamed_leaves_nothing(
    harness: CNINodeHarness, plugin: Plugin, ipam: dict[str, object]
) -> None:
    """The attributes of the addresses name the node that the endpoint is stored under."""
    harness.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    kind = {"type": "netplug" if plugin is Plugin.MAIN else "bridge", "ipam": ipam}
    harness.run("ADD", DEFAULT_CONTAINER, plugin, nodename="before", **kind)
    harness.run("DEL", DEFAULT_CONTAINER, plugin, nodename="after", **kind)
    harness.assert_nothing_left()


def test_a_node_renamed_between_an_add_and_its_repetition_leaves_nothing(harness: CNINodeHarness) -> None:
    """The container was started again in a new namespace, and its endpoint was stored under the new name too."""
    harness.add(nodename="before")
    harness.dataplane.remove_namespace(DEFAULT_CONTAINER.netns)
    harness.add(nodename="after")
    harness.run("DEL", DEFAULT_CONTAINER, Plugin.MAIN, nodename="after")
    harness.assert_nothing_left()


def test_the_endpoint_of_a_restarted_pod_on_another_node_stays(harness: CNINodeHarness) -> None:
    """Both nodes have an endpoint for the pod; the one that is the container's goes."""
    harness.add(X, nodename="before")
    harness.add(Y, nodename="after")
    harness.run("DEL", X, Plugin.MAIN, nodename="after")
    assert [endpoint.spec.container_id for endpoint in harness.endpoints()] == ["y"]
    assert harness.handles() == ["net1.y"]


def test_a_machine_without_a_name_detaches_what_it_has(harness: CNINodeHarness) -> None:
    """It was attached before such names were refused."""
    harness.add(nodename="localhost")
    harness.host.name = "localhost"
    with pytest.raises(ConfigurationError, match="set nodename"):
        harness.add(Y, nodename=None)
    harness.run("DEL", Y, Plugin.MAIN, nodename=None)
    harness.run("DEL", DEFAULT_CONTAINER, Plugin.MAIN, nodename=None)
    harness.assert_nothing_left()
