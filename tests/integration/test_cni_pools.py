"""Which addresses a call gets, and which it is refused, by the pools and the address that it names.

Numbers are those of the black-box checks.
"""

from __future__ import annotations

import pytest

from netplug_core.resources.ippool import AllowedUse
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace

pytestmark = pytest.mark.netns


def conf(runtime: CNIRuntime, **ipam: object) -> NetConfDict:
    return runtime.make_netconf(ipam={"type": "netplug-ipam", **ipam})


def refusal(node: NetnsNode, runtime: CNIRuntime, given: NetConfDict, args: str = "") -> PluginReply:
    """An ADD that is refused and leaves nothing of its own."""
    pod, held = node.make_pod(), node.store.held()
    reply = runtime.call("ADD", given, pod, CNI_ARGS=args)
    assert reply.status == 1
    assert set(node.links(pod)) == {"lo"}
    assert node.store.held() == held
    assert node.store.handles() == set(held)
    return reply


def test_check_19_pools_of_a_family_that_is_off_are_not_looked_at(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace
) -> None:
    (address,) = runtime.add(conf(runtime, ipv6_pools=["nowhere"]), pod).addresses
    assert address.startswith("10.65.0.")
    runtime.delete(conf(runtime, ipv6_pools=["nowhere"]), pod)
    assert node.store.is_empty


def test_checks_20_and_21_a_pool_that_does_not_exist_is_an_error(node: NetnsNode, runtime: CNIRuntime) -> None:
    """Also beside one that exists, in either order; by prefix and by name."""
    for pools in (["10.65.0.0/24", "192.169.1.0/24"], ["192.169.1.0/24", "10.65.0.0/24"]):
        reply = refusal(node, runtime, conf(runtime, ipv4_pools=pools))
        assert (reply.code, "192.169.1.0/24) does not exist" in reply.text) == (101, True), reply
    reply = refusal(node, runtime, conf(runtime, ipv4_pools=["nowhere"]))
    assert (reply.code, "(nowhere) does not exist" in reply.text) == (101, True), reply
    assert node.store.is_empty


@pytest.mark.parametrize("named", ["blue", "10.77.0.0/28"])
def test_check_21_a_pool_is_named_by_name_or_by_prefix(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, named: str
) -> None:
    node.store.add_pool("blue", "10.77.0.0/28")
    given = conf(runtime, ipv4_pools=[named])
    assert runtime.add(given, pod).addresses[0].startswith("10.77.0.")
    runtime.delete(given, pod)
    assert node.store.is_empty


def test_check_22_the_next_pool_serves_if_the_first_is_full(node: NetnsNode, runtime: CNIRuntime) -> None:
    node.store.add_pool("tiny", "10.88.0.0/32")
    first, second = node.make_pods(2)
    alone, both = conf(runtime, ipv4_pools=["tiny"]), conf(runtime, ipv4_pools=["tiny", "v4"])
    assert runtime.add(alone, first).addresses == ("10.88.0.0",)
    assert refusal(node, runtime, alone).code == 105
    assert runtime.add(both, second).addresses[0].startswith("10.65.0.")
    for pod in (first, second):
        runtime.delete(both, pod)
    assert node.store.is_empty


def test_check_56_a_named_address(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """It is had, and had again after DEL; another container does not get it meanwhile."""
    wanted = {"CNI_ARGS": "IP=10.65.0.123"}
    for _ in range(2):
        added = runtime.add(conf(runtime), pod, **wanted)
        assert '"10.65.0.123/32"' in added.stdout
        assert node.store.held() == {f"net1.{pod.name}": ("10.65.0.123",)}
        reply = refusal(node, runtime, conf(runtime), wanted["CNI_ARGS"])
        assert (reply.code, "10.65.0.123: Address already assigned" in reply.text) == (112, True), reply
        assert node.can_ping("10.65.0.123")
        runtime.delete(conf(runtime), pod, **wanted)
    assert node.store.is_empty


MAC = "02:00:5e:10:00:0a"


@pytest.mark.parametrize(
    "asked,arguments",
    [
        ({"runtimeConfig": {"ips": ["10.65.0.20/24", "fd65::20"], "mac": MAC}}, ""),
        ({"args": {"cni": {"ips": ["fd65::20/112"], "mac": MAC.upper()}}}, "IP=10.65.0.20"),
        ({"runtimeConfig": {"ips": ["10.65.0.20", "fd65::20"]}}, f"IgnoreUnknown=1;IP=10.65.0.20;MAC={MAC}"),
    ],
)
def test_addresses_and_mac_that_the_runtime_asks_for(
    node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace, asked: dict[str, object], arguments: str
) -> None:
    """As podman, Multus and nerdctl ask for them; the container has them, and CHECK agrees."""
    wanted = {**conf(runtime), "cniVersion": "1.0.0", **asked}
    added = runtime.add(wanted, pod, CNI_ARGS=arguments)
    assert added.addresses == ("10.65.0.20", "fd65::20")
    assert MAC in node.run("ip", "link", "show", "eth0", inside=pod.name)
    assert node.can_ping("10.65.0.20")
    checked = runtime.check(wanted, pod, added, CNI_ARGS=arguments)
    assert checked.is_success_without_output, checked
    runtime.delete(conf(runtime), pod)
    assert node.store.is_empty


def test_what_is_asked_for_twice_has_to_agree(node: NetnsNode, runtime: CNIRuntime) -> None:
    other = {**conf(runtime), "runtimeConfig": {"ips": ["10.65.0.21"], "mac": "02:00:5e:10:00:0b"}}
    for argument in ("IP=10.65.0.20", f"MAC={MAC}"):
        reply = refusal(node, runtime, other, argument)
        assert reply.code == 7, reply
        assert argument.partition("=")[2] in reply.text
        assert "runtimeConfig" in reply.text
    assert refusal(node, runtime, conf(runtime), "MAC=01:00:5e:00:00:01").code == 4
    assert node.store.is_empty


def test_a_bridge_chooses_its_own_mac(node: NetnsNode, runtime: CNIRuntime, pod: PodNamespace) -> None:
    """``netplug-ipam`` takes the addresses, and leaves the MAC to the plugin that makes the interface."""
    wanted = runtime.make_netconf(type="bridge", bridge="br0", cniVersion="1.0.0")
    added = runtime.add({**wanted, "runtimeConfig": {"ips": ["10.65.0.20"], "mac": MAC}}, pod, plugin="bridge")
    assert added.addresses == ("10.65.0.20",)
    assert MAC in node.run("ip", "link", "show", "eth0", inside=pod.name)
    runtime.delete(wanted, pod, plugin="bridge")
    assert node.store.is_empty


def test_check_57_an_address_that_no_pool_gives_to_pods(node: NetnsNode, runtime: CNIRuntime) -> None:
    node.store.add_pool("tunnels", "10.99.0.0/24", uses=(AllowedUse.TUNNEL,))
    reply = refusal(node, runtime, conf(runtime), "IP=10.99.0.9")
    assert (reply.code, 'IP pool "tunnels", which is not allowed for use "Workload"' in reply.text) == (109, True), (
        reply
    )
    reply = refusal(node, runtime, conf(runtime), "IP=192.0.2.77")
    assert (reply.code, "not in a configured pool" in reply.text) == (111, True), reply
    assert node.store.is_empty


def test_check_49_addresses_without_assignment_need_a_pod(node: NetnsNode, runtime: CNIRuntime) -> None:
    reply = refusal(node, runtime, runtime.make_netconf(feature_control={"ip_addrs_no_ipam": True}))
    assert reply.code == 7
    assert "requested feature is not supported for this runtime: ip_addrs_no_ipam" in reply.text
    assert node.store.is_empty
