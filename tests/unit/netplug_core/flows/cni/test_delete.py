"""DEL: it cleans up whatever is left, again and again, and touches nothing of anybody else."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.dataplane.protocol import OWN_NAMESPACE, KernelError
from netplug_core.errors import NamespaceError, Unavailable
from netplug_core.flows.cni.delete import delete
from netplug_core.log import Level
from netplug_core.records import Delete, Get
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from tests.harness.cni_node import DEFAULT_CONTAINER, DUAL_STACK, NODE, POD, CNINodeHarness, ContainerInterface

X = ContainerInterface(id="x", netns="/run/netns/x", args=POD)
Y = ContainerInterface(id="y", netns="/run/netns/y", args=POD)


# --- what goes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "container", [DEFAULT_CONTAINER, ContainerInterface(args=POD), ContainerInterface(ifname="net0")]
)
def test_check_44_everything_goes_and_once_more_is_fine(bench: CNINodeHarness, container: ContainerInterface) -> None:
    bench.add(container, ipam=DUAL_STACK)
    assert bench.run("DEL", container) is None
    bench.assert_nothing_left()
    assert bench.dataplane.names(container.netns) == ()
    commits = bench.memory.calls.commits
    assert bench.run("DEL", container) is None
    assert bench.memory.calls.commits == commits


def test_the_line_names_what_was_freed(bench: CNINodeHarness) -> None:
    addresses = [ip.address for ip in bench.add(ipam=DUAL_STACK).ips]
    bench.log.lines.clear()
    bench.run("DEL")
    identity = {"container": "c1", "interface": "eth0", "network": "net1", "node": NODE}
    assert bench.log.lines == [
        (Level.INFO, "container detached", {**identity, "addresses": ",".join(map(str, addresses))})
    ]


@pytest.mark.parametrize("netns", ["", "/run/netns/c1", "/not/a/real/path1234567890"])
def test_check_47_a_container_that_was_never_added_is_gone(bench: CNINodeHarness, netns: str) -> None:
    bench.dataplane.add_namespace(DEFAULT_CONTAINER.netns)
    bench.run("DEL", ContainerInterface(netns=netns))
    bench.assert_nothing_left()


@pytest.mark.parametrize("netns", ["", "/run/netns/c1", "/somewhere/else"])
def test_check_47_a_namespace_that_is_gone_holds_nothing_up(bench: CNINodeHarness, netns: str) -> None:
    bench.add()
    bench.dataplane.remove_namespace(DEFAULT_CONTAINER.netns)
    bench.run("DEL", ContainerInterface(netns=netns))
    bench.assert_nothing_left()


def test_without_a_namespace_the_interface_is_the_runtimes(bench: CNINodeHarness) -> None:
    bench.add()
    bench.run("DEL", ContainerInterface(netns=""))
    assert bench.dataplane.names(DEFAULT_CONTAINER.netns) == ("eth0",)
    assert (bench.allocations(), bench.endpoints()) == ({}, [])


def test_a_del_needs_no_pool(bench: CNINodeHarness) -> None:
    bench.add()
    key = ippool_key("four")
    found = bench.memory.read((Get(key),), deadline=Deadline.after(bench.clock, 5)).find(key)
    assert found is not None
    bench.commit(Delete(key, found.revision))
    bench.run("DEL")
    bench.assert_nothing_left()


# --- what stays ----------------------------------------------------------------------------------------------------


def test_check_66_a_late_del_leaves_the_pods_next_container(bench: CNINodeHarness) -> None:
    bench.add(X)
    bench.run("DEL", X)
    result = bench.add(Y)
    bench.run("DEL", X)
    bench.check(Y, result)
    assert [endpoint.spec.container_id for endpoint in bench.endpoints()] == ["y"]
    bench.run("DEL", Y)
    bench.assert_nothing_left()


def test_check_67_the_old_containers_own_things_go(bench: CNINodeHarness) -> None:
    bench.add(X)
    result = bench.add(Y)
    bench.run("DEL", X)
    assert bench.allocations() == {result.ips[0].address: "net1.y"}
    assert bench.dataplane.names(X.netns) == ()
    bench.check(Y, result)
    bench.run("DEL", Y)
    bench.assert_nothing_left()


def test_check_71_pods_with_alike_names_are_two(bench: CNINodeHarness) -> None:
    p = ContainerInterface(id="a", netns="/run/netns/a", args="K8S_POD_NAMESPACE=test;K8S_POD_NAME=p")
    p1 = ContainerInterface(id="b", netns="/run/netns/b", args="K8S_POD_NAMESPACE=test;K8S_POD_NAME=p-1")
    bench.add(p)
    result = bench.add(p1)
    bench.run("DEL", p)
    bench.check(p1, result)


def test_one_interface_goes_and_the_other_stays(bench: CNINodeHarness) -> None:
    first, second = ContainerInterface(), ContainerInterface(ifname="net0")
    bench.add(first)
    result = bench.add(second)
    bench.run("DEL", first)
    bench.check(second, result)
    assert bench.handles() == ["net1.c1.net0"]


def test_another_networks_attachment_stays(bench: CNINodeHarness) -> None:
    other = ContainerInterface(netns="/run/netns/c1", ifname="net0")
    bench.add()
    result = bench.add(other, name="net2")
    bench.run("DEL")
    bench.run("DEL", other)
    assert bench.handles() == ["net2.c1.net0"]
    assert bench.allocations() == {result.ips[0].address: "net2.c1.net0"}


# --- our own namespace ---------------------------------------------------------------------------------------------


def test_the_hosts_own_namespace_is_refused(bench: CNINodeHarness) -> None:
    bench.dataplane.add_link("eth0")
    with pytest.raises(NamespaceError) as refusal:
        bench.run("DEL", ContainerInterface(netns=OWN_NAMESPACE))
    assert (refusal.value.code, str(refusal.value)) == (
        8,
        f"CNI_NETNS {OWN_NAMESPACE!r} is the plugin's own network namespace; nothing is removed",
    )
    assert bench.dataplane.names() == ("eth0",)


def test_check_12_the_override_lifts_that(bench: CNINodeHarness) -> None:
    bench.dataplane.add_link("eth0")
    request, netconf = bench.make_call("DEL", ContainerInterface(netns=OWN_NAMESPACE), Plugin.MAIN)
    delete(bench.world, evolve(request, has_netns_override=True), netconf)
    assert bench.dataplane.names() == ()


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
def test_a_value_that_del_does_not_use_stops_nothing(bench: CNINodeHarness, changes: dict[str, object]) -> None:
    bench.add()
    bench.host.texts = {"/var/lib/netplug/mtu": "abc"}
    bench.run("DEL", DEFAULT_CONTAINER, Plugin.MAIN, **changes)
    bench.assert_nothing_left()


def test_a_chosen_address_stops_no_del(bench: CNINodeHarness) -> None:
    bench.add()
    bench.run("DEL", ContainerInterface(args="IP=10.65.0.7"))
    bench.assert_nothing_left()


# --- what fails ----------------------------------------------------------------------------------------------------


def test_check_27_with_the_cluster_locked_the_node_is_clean_and_the_runtime_comes_again(bench: CNINodeHarness) -> None:
    bench.add()
    bench.set_ready()
    with pytest.raises(Unavailable) as refusal:
        bench.run("DEL")
    assert (refusal.value.code, refusal.value.what) == (11, "ClusterInformation default")
    assert (bench.dataplane.names(), bench.dataplane.names(DEFAULT_CONTAINER.netns), bench.dataplane.host_routes()) == (
        (),
        (),
        (),
    )
    assert (bench.handles(), len(bench.endpoints())) == (["net1.c1"], 1)
    bench.set_ready(is_ready=True)
    bench.run("DEL")
    bench.assert_nothing_left()


def test_a_store_that_is_away_means_the_same(bench: CNINodeHarness) -> None:
    bench.add()
    bench.store = FaultyDatastore(bench.memory, {1: LostRequest()})
    with pytest.raises(Unavailable) as refusal:
        bench.run("DEL")
    assert refusal.value.code == 11
    assert (bench.dataplane.names(), bench.handles()) == ((), ["net1.c1"])
    bench.run("DEL")
    bench.assert_nothing_left()


@pytest.mark.parametrize("fault", [LostRace(), LostReply()])
def test_a_lost_race_or_reply_is_made_good(bench: CNINodeHarness, fault: Fault) -> None:
    bench.add()
    bench.store = FaultyDatastore(bench.memory, {1: fault})
    bench.run("DEL")
    bench.assert_nothing_left()


def test_check_75_a_pod_restarted_meanwhile_keeps_its_endpoint(bench: CNINodeHarness) -> None:
    bench.add(X)
    bench.dataplane.add_namespace(Y.netns)
    undisturbed, addresses = bench.memory, list[Address]()

    def restart() -> None:
        bench.store = undisturbed
        addresses.extend(ip.address for ip in bench.add(Y).ips)

    # The lock of the host is best effort, and the other actor may be anywhere.
    bench.host.lock_error = PermissionError(13, "Permission denied")
    bench.store = FaultyDatastore(bench.memory, {1: RunBefore(restart)})
    bench.run("DEL", X)
    assert [endpoint.spec.container_id for endpoint in bench.endpoints()] == ["y"]
    assert bench.allocations() == dict.fromkeys(addresses, "net1.y")


def test_an_interface_that_cannot_be_removed_keeps_its_address(bench: CNINodeHarness) -> None:
    bench.add()

    def refuse(effect: str) -> None:
        raise KernelError(effect, "Device or resource busy")

    bench.dataplane.before_effect = refuse
    with pytest.raises(KernelError):
        bench.run("DEL")
    assert (bench.handles(), len(bench.endpoints())) == (["net1.c1"], 1)
