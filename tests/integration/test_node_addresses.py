"""The address of a node: what the kernel has, what is chosen of it, and what is registered."""

from __future__ import annotations

import pytest
from pyroute2 import IPRoute

from netplug_backends.linux.addresses import BIRD_PROTOCOL, count_routes, find_interfaces, find_source_address
from netplug_backends.linux.netns import entered_namespace
from netplug_core.addressing import Address, Family
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import AddressState, HostAddress
from tests.harness.node import NODE_ADDRESS, NetnsNode
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.netns

_UNUSED_STATES = """
link add eth1 mtu 9000 type bridge
link set eth1 up
addr add 10.1.0.1/24 dev eth1
addr add 10.1.0.2/24 dev eth1
addr add 10.1.0.3/32 dev eth1
addr add 10.1.1.1 peer 10.1.1.2/30 dev eth1
addr add 169.254.7.7/16 scope link dev eth1
addr add fd01::1/64 dev eth1 nodad
addr add fd01::2/64 dev eth1 nodad preferred_lft 0
"""


def test_interfaces_are_those_that_pyroute2_finds(node: NetnsNode) -> None:
    node.run("ip", "-batch", "-", stdin=_UNUSED_STATES)
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        found = find_interfaces()
        with IPRoute() as kernel:
            links = [
                (each["index"], each.get_attr("IFLA_IFNAME"), each.get_attr("IFLA_MTU")) for each in kernel.get_links()
            ]
            listed = [
                (each["index"], each.get_attr("IFA_LOCAL") or each.get_attr("IFA_ADDRESS"))
                for each in kernel.get_addr()
            ]
    assert [(each.index, each.name, each.mtu) for each in found] == sorted(links)
    addresses = [(each.index, str(one.held.address)) for each in found for one in each.addresses]
    assert sorted(addresses) == sorted(listed)
    assert {each.name: each.is_up for each in found} == {"lo": True, "up0": True, "eth1": True}
    (eth1,) = (each for each in found if each.name == "eth1")
    described = {_described(each) for each in eth1.addresses if not str(each.held).startswith("fe80")}
    assert described == {
        "10.1.0.1/24",
        "10.1.0.2/24 secondary",
        "10.1.0.3/32",
        "10.1.1.1/32",
        "169.254.7.7/16 not global",
        "fd01::1/64",
        "fd01::2/64 deprecated",
    }


def _described(address: HostAddress) -> str:
    marks = [
        *([] if address.state is AddressState.USABLE else [address.state.value]),
        *(["secondary"] if address.is_secondary else []),
        *([] if address.is_global else ["not global"]),
    ]
    return " ".join((str(address.held), *marks))


def test_the_source_of_packets_is_that_of_the_route(node: NetnsNode) -> None:
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        for target, family, expected in (
            ("203.0.113.9", Family.IPV4, NODE_ADDRESS),
            ("2001:db8:9::9", Family.IPV6, "2001:db8::1"),
        ):
            assert find_source_address(target, family, deadline=deadline_in()) == Address.parse(expected)
        node.run("ip", "route", "delete", "default")
        with pytest.raises(KernelError, match=r"address for 203\.0\.113\.9: Network is unreachable"):
            find_source_address("203.0.113.9", Family.IPV4, deadline=deadline_in())


def test_routes_of_the_main_table_are_counted_by_their_protocol(node: NetnsNode) -> None:
    for destination, more in (("10.9.0.0/24", ()), ("10.9.1.0/24", ("table", "77")), ("fd09::/64", ())):
        node.run("ip", "route", "add", "blackhole", destination, "protocol", "bird", *more)
    node.run("ip", "route", "add", "blackhole", "10.9.2.0/24", "protocol", "static")
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        assert count_routes(BIRD_PROTOCOL) == 2
