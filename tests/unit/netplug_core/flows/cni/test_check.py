"""CHECK: fine right after ADD, and whatever was taken away since is named."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from netplug_backends.memory.dataplane import MemoryInterface as Found
from netplug_core.addressing import Address
from netplug_core.cni.dispatch import Plugin
from netplug_core.cni.result import CNIInterface, CNIResult, IPConfig, render_result
from netplug_core.errors import ConfigurationError, DecodeError
from netplug_core.flows.cni.check import AddressesNotHeld, AttachmentDiffers, EndpointDiffers
from netplug_core.records import Delete, Update
from tests.harness.cni_node import DEFAULT_CONTAINER, DUAL_STACK, POD, CNINodeHarness, ContainerInterface

BRIDGE = {"type": "bridge", "nodename": "node-1"}
IPV4: dict[str, object] = {"type": "netplug-ipam"}


def ends(harness: CNINodeHarness) -> tuple[Found, Found]:
    """Both ends of the attachment of C1, the container's first."""
    inside = harness.dataplane.interface("eth0", DEFAULT_CONTAINER.netns)
    assert inside is not None
    assert inside.peer is not None
    return inside, inside.peer


@pytest.mark.parametrize(
    "container", [DEFAULT_CONTAINER, ContainerInterface(args=POD), ContainerInterface(ifname="net0")]
)
@pytest.mark.parametrize("ipam", [{"type": "netplug-ipam"}, DUAL_STACK])
def test_an_attachment_is_fine_right_after_add(
    harness: CNINodeHarness, container: ContainerInterface, ipam: dict[str, object]
) -> None:
    result = harness.add(container, ipam=ipam, mtu=1450)
    harness.check(container, result, ipam=ipam, mtu=1450)
    harness.check(container, result, ipam=ipam)


def test_what_others_added_is_no_difference(harness: CNINodeHarness) -> None:
    result = harness.add()
    both = CNIResult(
        interfaces=(CNIInterface(name="lo", sandbox=DEFAULT_CONTAINER.netns),),
        ips=(IPConfig(address=Address.parse("192.0.2.1"), length=24, interface=0),),
    )
    harness.check(DEFAULT_CONTAINER, both.chained_with(result))


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
def test_a_result_of_an_older_version_serves(harness: CNINodeHarness, version: str) -> None:
    result = json.loads(render_result(harness.add(), version))
    assert harness.run("CHECK", DEFAULT_CONTAINER, Plugin.MAIN, prevResult=result, cniVersion=version) is None


def _down(inside: Found, _outside: Found) -> None:
    inside.is_up = False


def _mac(inside: Found, _outside: Found) -> None:
    inside.mac = "02:00:00:00:00:99"


def _no_addresses(inside: Found, _outside: Found) -> None:
    inside.addresses.clear()


def _no_neighbours(inside: Found, _outside: Found) -> None:
    inside.neighbours.clear()


def _mtu(_inside: Found, outside: Found) -> None:
    outside.mtu = 1400


def _no_host_route(_inside: Found, outside: Found) -> None:
    outside.routes.clear()


def _no_proxy_arp(_inside: Found, outside: Found) -> None:
    outside.settings[f"net/ipv4/conf/{outside.name}/proxy_arp"] = "0"


@pytest.mark.parametrize(
    "spoil,text",
    [
        (_down, "interface 'eth0' in /run/netns/c1: state: expected up, found down"),
        (_mac, "interface 'eth0' in /run/netns/c1: MAC: expected 9e:bc:c9:ec:fd:b5, found 02:00:00:00:00:99"),
        (_no_addresses, r"interface 'eth0' in /run/netns/c1: address: expected 10\.65\.0\.\d+/32, found none"),
        (_no_neighbours, r"neighbour: expected 169.254.1.1 at ee:ee:ee:ee:ee:ee, found none"),
        (_mtu, "interface 'netpbqv2v2guorc' on the host: MTU: expected 1450, found 1400"),
        (_no_host_route, r"on the host: route: expected 10\.65\.0\.\d+/32 \(protocol 78\), found none"),
        (_no_proxy_arp, "setting net/ipv4/conf/netpbqv2v2guorc/proxy_arp on the host: expected 1, found 0"),
    ],
)
def test_a_difference_is_named(harness: CNINodeHarness, spoil: Callable[[Found, Found], None], text: str) -> None:
    result = harness.add(mtu=1450)
    spoil(*ends(harness))
    with pytest.raises(AttachmentDiffers, match=f"^the attachment is not what ADD made: .*{text}") as refusal:
        harness.check(DEFAULT_CONTAINER, result)
    assert refusal.value.code == 130


def test_every_difference_is_named(harness: CNINodeHarness) -> None:
    result = harness.add(mtu=1450)
    _down(*ends(harness))
    _mtu(*ends(harness))
    with pytest.raises(AttachmentDiffers, match=r"found down; .*found 1400$"):
        harness.check(DEFAULT_CONTAINER, result)


def test_an_interface_that_is_gone_is_a_difference(harness: CNINodeHarness) -> None:
    result = harness.add()
    harness.dataplane.remove_namespace(DEFAULT_CONTAINER.netns)
    with pytest.raises(AttachmentDiffers, match="'eth0' in /run/netns/c1: expected an interface, found none; "):
        harness.check(DEFAULT_CONTAINER, result)


def test_addresses_that_are_not_held_are_named(harness: CNINodeHarness) -> None:
    result = harness.add(ipam=DUAL_STACK)
    harness.run("DEL", DEFAULT_CONTAINER, Plugin.IPAM)
    with pytest.raises(AddressesNotHeld) as refusal:
        harness.check(DEFAULT_CONTAINER, result, ipam=DUAL_STACK)
    four, six = (str(ip.address) for ip in result.ips)
    assert (refusal.value.code, str(refusal.value)) == (131, f"handle net1.c1 does not hold {four}, {six}")


def test_a_check_needs_what_add_answered(harness: CNINodeHarness) -> None:
    harness.add()
    for plugin in Plugin:
        with pytest.raises(ConfigurationError) as refusal:
            harness.run("CHECK", DEFAULT_CONTAINER, plugin)
        assert (refusal.value.code, str(refusal.value)) == (
            7,
            "network configuration.prevResult: None is not accepted; CHECK needs the result of ADD",
        )


def test_a_result_without_our_addresses_is_refused(harness: CNINodeHarness) -> None:
    harness.add()
    with pytest.raises(ConfigurationError, match="'no address of eth0' is not accepted; the result of ADD is expected"):
        harness.check(
            DEFAULT_CONTAINER, CNIResult(interfaces=(CNIInterface(name="eth0", sandbox=DEFAULT_CONTAINER.netns),))
        )


def test_a_malformed_result_is_refused(harness: CNINodeHarness) -> None:
    with pytest.raises(DecodeError, match=r"prevResult\.ips: must be an array"):
        harness.run("CHECK", DEFAULT_CONTAINER, Plugin.MAIN, prevResult={"ips": 1})


def test_a_check_changes_nothing(harness: CNINodeHarness) -> None:
    result = harness.add()
    commits, locks = harness.memory.calls.commits, list(harness.host.locks.taken)
    harness.check(DEFAULT_CONTAINER, result)
    assert harness.memory.calls.commits == commits
    assert harness.host.locks.taken == locks


def test_a_missing_endpoint_is_named(harness: CNINodeHarness) -> None:
    result = harness.add()
    stored = harness.stored_endpoint()
    harness.commit(Delete(stored.key, stored.revision))
    with pytest.raises(EndpointDiffers, match=r"^WorkloadEndpoint\(default/node--1-cni-c1-eth0\) does not exist$"):
        harness.check(DEFAULT_CONTAINER, result)


@pytest.mark.parametrize(
    "change, problem",
    [({"container_id": "c9"}, "belongs to container c9"), ({"addresses": ()}, r"does not have 10\.65\.[0-9.]+")],
)
def test_another_endpoint_is_named(harness: CNINodeHarness, change: dict[str, Any], problem: str) -> None:
    result = harness.add()
    stored = harness.stored_endpoint()
    spec = evolve(stored.value.spec, **change)
    harness.commit(Update(stored.key, evolve(stored.value, spec=spec), stored.revision))
    with pytest.raises(EndpointDiffers, match=f"{problem}$"):
        harness.check(DEFAULT_CONTAINER, result)


# --- netplug-ipam --------------------------------------------------------------------------------------------------


def assigned(harness: CNINodeHarness, ipam: dict[str, object]) -> CNIResult:
    result = harness.run("ADD", DEFAULT_CONTAINER, Plugin.IPAM, **BRIDGE, ipam=ipam)
    assert result is not None
    return result


@pytest.mark.parametrize("ipam", [{"type": "netplug-ipam"}, DUAL_STACK])
def test_netplug_ipam_finds_its_addresses(harness: CNINodeHarness, ipam: dict[str, object]) -> None:
    harness.check(DEFAULT_CONTAINER, assigned(harness, ipam), Plugin.IPAM, **BRIDGE, ipam=ipam)


def test_netplug_ipam_looks_at_nothing_but_its_own(harness: CNINodeHarness) -> None:
    result = assigned(harness, IPV4)
    foreign = (IPConfig(address=Address.parse(text), length=32) for text in ("192.0.2.1", "2001:db8::1"))
    harness.check(DEFAULT_CONTAINER, evolve(result, ips=(*foreign, *result.ips)), Plugin.IPAM, **BRIDGE)


def test_netplug_ipam_names_what_is_not_held(harness: CNINodeHarness) -> None:
    result = assigned(harness, DUAL_STACK)
    four, six = (str(ip.address) for ip in result.ips)
    stranger = IPConfig(address=Address.parse("10.65.0.99"), length=24)
    with pytest.raises(AddressesNotHeld) as refusal:
        harness.check(
            DEFAULT_CONTAINER, evolve(result, ips=(stranger, result.ips[1])), Plugin.IPAM, **BRIDGE, ipam=DUAL_STACK
        )
    assert str(refusal.value) == "handle net1.c1 does not hold 10.65.0.99"
    with pytest.raises(AddressesNotHeld, match=r"^handle net1\.c1 does not hold an IPv4 address of the result$"):
        harness.check(DEFAULT_CONTAINER, evolve(result, ips=result.ips[1:]), Plugin.IPAM, **BRIDGE, ipam=DUAL_STACK)
    harness.run("DEL", DEFAULT_CONTAINER, Plugin.IPAM, **BRIDGE)
    with pytest.raises(AddressesNotHeld, match=f"^handle net1.c1 does not hold {four}, {six}$"):
        harness.check(DEFAULT_CONTAINER, result, Plugin.IPAM, **BRIDGE, ipam=DUAL_STACK)
