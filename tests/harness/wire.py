"""What passes the interfaces of a node: the packets of pods as they are on the wire, wrapped or not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

from attrs import define, evolve, field, frozen

from netplug_backends.linux.netns import entered_namespace
from netplug_core.addressing import Address, Family
from netplug_core.policy.model import UDP
from tests.harness.node import NetnsNode

__all__ = ["Seen", "Wire", "open_wire"]

_VXLAN_PORT = 4789
_ETHERNET, _UDP_HEADER, _VXLAN_HEADER = 14, 8, 8
_FAMILIES = {0x0800: Family.IPV4, 0x86DD: Family.IPV6}
_EVERY_PROTOCOL, _OUTGOING, _LARGEST = 3, 4, 65535


@frozen
class Seen:
    """A packet: its addresses, and those of the packet that VXLAN has wrapped it in; None: it is not wrapped.

    ``is_sent``: the node has sent it, which includes what it forwards.
    """

    source: Address
    destination: Address
    outer: tuple[Address, Address] | None = None
    is_sent: bool = field(default=False, eq=False, kw_only=True)


@define
class Wire:
    """The packets of one interface, or of all of them."""

    _frames: socket.socket

    def seen(self) -> list[Seen]:
        """What has passed since the last look."""
        found: list[Seen] = []
        while True:
            try:
                frame, (_, _, kind, *_) = self._frames.recvfrom(_LARGEST)
            except BlockingIOError:
                return found
            packet = _parse(frame, None)
            if packet is not None:
                found.append(evolve(packet, is_sent=kind == _OUTGOING))


@contextmanager
def open_wire(node: NetnsNode, interface: str = "") -> Iterator[Wire]:
    """Look at an interface of a node, or at all of them, from now on."""
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0 if interface else socket.htons(_EVERY_PROTOCOL))
    with closing(opened):
        opened.settimeout(0)
        if interface:
            opened.bind((interface, _EVERY_PROTOCOL))
        yield Wire(opened)


def _parse(frame: bytes, outer: tuple[Address, Address] | None) -> Seen | None:
    """The innermost packet of an Ethernet frame; None: it has no IP packet."""
    family, packet = _FAMILIES.get(int.from_bytes(frame[12:14], "big")), frame[_ETHERNET:]
    if family is None:
        return None
    if family is Family.IPV4:
        protocol, length, addresses = packet[9], (packet[0] & 15) * 4, packet[12:20]
    else:
        protocol, length, addresses = packet[6], 40, packet[8:40]
    half = len(addresses) // 2
    source, destination = (Address(family, int.from_bytes(one, "big")) for one in (addresses[:half], addresses[half:]))
    content = packet[length:]
    if protocol == UDP and outer is None and int.from_bytes(content[2:4], "big") == _VXLAN_PORT:
        return _parse(content[_UDP_HEADER + _VXLAN_HEADER :], (source, destination))
    return Seen(source, destination, outer)
