"""Which notifications concern routes between nodes, and what a failure to read or send is."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.routing import EventFilter, LinuxKernelEvents
from netplug_core.clock import Deadline
from tests.harness.waiting import EMERGENCY_STOP_S

HEADER = struct.Struct("=IHHII")
OWN_PORT = 4242
POD = 9


def notification(
    kind: int,
    message: Any,  # noqa: ANN401  pyroute2 has no types
    found: Mapping[str, object],
    port: int = 0,
    **header: int,
) -> bytes:
    for name, number in header.items():
        message[name] = number
    message["attrs"] = list(found.items())
    message.encode()
    body = bytes(message.data[HEADER.size :])
    return HEADER.pack(HEADER.size + len(body), kind, 0, 7, port) + body


def link(kind: int, name: str, index: int = POD, port: int = 0) -> bytes:
    return notification(kind, ifinfmsg(), {"IFLA_IFNAME": name}, port, index=index)


def address(kind: int, index: int) -> bytes:
    return notification(kind, ifaddrmsg(), {"IFA_ADDRESS": "10.0.0.1"}, family=2, prefixlen=32, index=index)


def route(kind: int, interface: int | None, protocol: int = 78, port: int = 0) -> bytes:
    found = {"RTA_DST": "10.65.0.0"} | ({} if interface is None else {"RTA_OIF": interface})
    return notification(kind, rtmsg(), found, port, family=2, dst_len=26, proto=protocol)


def nexthop(kind: int, protocol: int) -> bytes:
    body = struct.pack("=BBBxI", 2, 0, protocol, 0)
    return HEADER.pack(HEADER.size + len(body), kind, 0, 7, 0) + body


@pytest.mark.parametrize(
    "datagram,expected",
    [
        (link(16, "eth0", 3), True),
        (link(17, "eth0", 3), True),
        (link(16, "vxlan.netplug", 4, OWN_PORT), False),
        (link(16, "netp0123456789b", 12), False),
        (address(20, 3), True),
        (address(21, 3), True),
        (address(20, POD), False),
        (route(24, 3), True),
        (route(25, None), True),
        (route(24, 3, protocol=4), False),
        (route(25, POD), False),
        (route(25, 3, port=OWN_PORT), False),
        (route(25, 3, port=OWN_PORT + 1), True),
        (nexthop(105, 78), True),
        (nexthop(104, 11), False),
        (HEADER.pack(20, 28, 0, 0, 0) + b"neig", False),
        (route(24, 3, protocol=12) + route(25, 3), True),
        (b"", False),
    ],
)
def test_a_notification_concerns_routes_between_nodes(datagram: bytes, *, expected: bool) -> None:
    assert EventFilter(OWN_PORT, {POD}).concerns(datagram) is expected


@pytest.mark.parametrize(
    "datagram, expected",
    [
        (route(24, POD), True),
        (route(25, POD), True),
        (route(24, POD, protocol=4), False),
        (link(16, "netp0123456789b", 12), False),
        (link(17, "netp0123456789a"), True),  # its route goes with it, of which the kernel does not notify
        (address(20, POD), False),
    ],
)
def test_routes_to_workloads_count_where_they_are_followed(datagram: bytes, *, expected: bool) -> None:
    assert EventFilter(OWN_PORT, {POD}, follows_workloads=True).concerns(datagram) is expected


@pytest.mark.parametrize(
    "datagram, expected",
    [
        (link(16, "netp0123456789b", 12), True),
        (link(17, "netp0123456789a"), True),
        (route(24, POD), False),
        (address(20, POD), False),
    ],
)
def test_interfaces_of_workloads_count_where_they_are_followed(datagram: bytes, *, expected: bool) -> None:
    assert EventFilter(OWN_PORT, {POD}, follows_links=True).concerns(datagram) is expected


def test_a_kernel_without_a_port_has_made_no_change_of_ours() -> None:
    """Before there is a socket of our own its port is 0, which is the kernel's."""
    assert EventFilter().concerns(route(25, 3))


def test_interfaces_of_pods_come_and_go() -> None:
    events = EventFilter()
    assert not events.concerns(link(16, "netp0123456789a"))
    assert not events.concerns(address(20, POD))
    assert not events.concerns(route(24, POD))
    assert not events.concerns(link(17, "netp0123456789a"))
    assert events.host_ends == set()
    assert events.concerns(address(20, POD))


def test_an_index_may_become_another_interfaces() -> None:
    events = EventFilter(host_ends={POD})
    assert events.concerns(link(16, "eth1"))
    assert events.concerns(route(24, POD))


def test_events_that_were_left_can_be_closed() -> None:
    with LinuxKernelEvents.open() as events:
        events.close()
        assert not events.wait(deadline=Deadline.after(SystemClock(), EMERGENCY_STOP_S))
    events.close()
