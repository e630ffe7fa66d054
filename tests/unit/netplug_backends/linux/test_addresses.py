"""The interfaces and addresses of the node: what pyroute2 encodes is decoded here."""

import socket
import struct
from threading import Event
from typing import Any

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux import addresses
from netplug_core.addressing import Address, Family, InterfaceAddress
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import AddressState, HostAddress, HostInterface

HEADER = struct.Struct("=IHHII")
SECONDARY, DUPLICATE, DEPRECATED, TENTATIVE, PERMANENT = 0x01, 0x08, 0x20, 0x40, 0x80
LINK_SCOPE = 253


def in_time(seconds: float = 30.0) -> Deadline:
    return Deadline.after(SystemClock(), seconds)


def encoded(message: Any, attributes: dict[str, object], **header: int) -> bytes:  # noqa: ANN401  pyroute2 has no types
    """The body of a message as pyroute2 encodes it."""
    for name, number in header.items():
        message[name] = number
    message["attrs"] = list(attributes.items())
    message.encode()
    return bytes(message.data[HEADER.size :])


def address(family: int, length: int, flags: int = PERMANENT, scope: int = 0, **attributes: object) -> bytes:
    found = {f"IFA_{name.upper()}": value for name, value in attributes.items()}
    return encoded(ifaddrmsg(), found, family=family, prefixlen=length, flags=flags & 0xFF, scope=scope, index=7)


def held(text: str, **facts: Any) -> tuple[int, HostAddress]:  # noqa: ANN401  any field of the value
    return 7, HostAddress(held=InterfaceAddress.parse(text), **facts)


@pytest.mark.parametrize(
    "body, expected",
    [
        (address(2, 24, local="10.0.0.1", address="10.0.0.1"), held("10.0.0.1/24")),
        (address(10, 64, address="fd00::1"), held("fd00::1/64")),
        (address(10, 64, scope=LINK_SCOPE, address="fe80::1"), held("fe80::1/64", is_global=False)),
        (
            address(2, 24, SECONDARY, local="10.0.0.2", address="10.0.0.2"),
            held("10.0.0.2/24", is_secondary=True),
        ),
        (address(10, 64, TENTATIVE, address="fd00::1"), held("fd00::1/64", state=AddressState.TENTATIVE)),
        (address(10, 64, DUPLICATE, address="fd00::1"), held("fd00::1/64", state=AddressState.TENTATIVE)),
        (address(10, 64, DEPRECATED, address="fd00::1"), held("fd00::1/64", state=AddressState.DEPRECATED)),
        # The long flags win: the short ones have no room for those that came later.
        (
            address(10, 64, PERMANENT, address="fd00::1") + struct.pack("=HHI", 8, 8, DEPRECATED),
            held("fd00::1/64", state=AddressState.DEPRECATED),
        ),
        # The prefix belongs to the peer.
        (address(2, 24, local="10.0.0.1", address="10.9.0.2"), held("10.0.0.1/32")),
        (address(10, 64, local="fd00::1", address="fd09::2"), held("fd00::1/128")),
        (address(2, 24, local="10.0.0.1"), held("10.0.0.1/24")),
        (address(2, 24), None),
        (address(7, 8, address="10.0.0.1"), None),
    ],
)
def test_an_address_is_decoded(body: bytes, expected: tuple[int, HostAddress] | None) -> None:
    assert addresses.decode_host_address(body) == expected


@pytest.mark.parametrize("flags, is_up", [(0x1043, True), (0x1002, False)])
def test_an_interface_is_decoded(flags: int, is_up: bool) -> None:  # noqa: FBT001  a parameter of the test
    attributes = {"IFLA_IFNAME": "eth0", "IFLA_MTU": 9000, "IFLA_IFALIAS": "the uplink"}
    found = addresses.decode_host_link(encoded(ifinfmsg(), attributes, index=7, flags=flags))
    assert found == HostInterface(name="eth0", index=7, is_up=is_up, mtu=9000, alias="the uplink")


def test_an_interface_that_has_not_changed_is_decoded_once() -> None:
    """And one of which anything has changed is decoded anew."""
    bodies = [encoded(ifinfmsg(), {"IFLA_IFNAME": "eth1", "IFLA_MTU": mtu}, index=8) for mtu in (9000, 1500, 9000)]
    first, other, again = map(addresses.decode_host_link, bodies)
    assert first is again
    assert (first.mtu, other.mtu) == (9000, 1500)


def test_the_listings_are_understood_by_pyroute2() -> None:
    for message, kind in ((addresses.list_host_links(), ifinfmsg), (addresses.list_host_addresses(), ifaddrmsg)):
        assert message.flags == 0x301
        head = HEADER.pack(HEADER.size + len(message.body), message.type, message.flags, 1, 0)
        found: Any = kind(head + message.body)
        found.decode()
        assert [list(pair) for pair in found["attrs"]] == ([["IFLA_EXT_MASK", 8]] if kind is ifinfmsg else [])
    assert addresses.list_host_links().describe() == "listing the interfaces"


def test_the_source_for_an_address_of_this_machine_is_itself() -> None:
    assert addresses.find_source_address("127.0.0.9", Family.IPV4, deadline=in_time()) == Address.parse("127.0.0.1")


def test_a_name_is_resolved_in_the_family_that_is_asked_for() -> None:
    found = addresses.find_source_address("localhost", Family.IPV4, deadline=in_time())
    assert found == Address.parse("127.0.0.1")


@pytest.mark.parametrize(
    "target, family, reason",
    [
        ("::1", Family.IPV4, "::1 is an address of IPv6"),
        ("10.0.0.1", Family.IPV6, "10.0.0.1 is an address of IPv4"),
        (f"{'a' * 64}.example", Family.IPV4, "no host can have the name"),
    ],
)
def test_a_target_without_a_source_is_an_error(target: str, family: Family, reason: str) -> None:
    with pytest.raises(KernelError) as caught:
        addresses.find_source_address(target, family, deadline=in_time())
    assert str(caught.value).startswith(f"looking for the local {family} address for {target}: {reason}")


def test_an_unknown_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(KernelError, match="address for web: Name or service not known"):
        addresses.find_source_address("web", Family.IPV6, deadline=in_time())


def test_a_name_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = Event()

    def be_silent(*_arguments: object, **_options: object) -> list[object]:
        is_over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "too late")

    monkeypatch.setattr(socket, "getaddrinfo", be_silent)
    with pytest.raises(KernelError, match="address for web: no name server answered by the deadline"):
        addresses.find_source_address("web", Family.IPV4, deadline=in_time(0))
    is_over.set()
