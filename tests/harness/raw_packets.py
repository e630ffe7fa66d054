"""Packets as bytes, which no socket of the kernel would send like this, and who sees them.

They are sent from a workload's interface to the host's end of it, and looked for at the interface of another one.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import count
from typing import Final

from attrs import define, field

from netplug_core.addressing import Address, Family
from netplug_core.policy.model import ICMP, ICMP_V6, SCTP, TCP, UDP
from tests.harness.node import PodNamespace
from tests.harness.policy_scene import PolicyScene
from tests.harness.waiting import wait_until

__all__ = [
    "DESTINATION_OPTIONS", "FRAGMENT", "HOP_BY_HOP", "RawSender", "destination_options", "echo", "fragments",
    "ip_packet", "sctp_init", "tcp_syn", "udp",
]  # fmt: skip

HOP_BY_HOP, FRAGMENT, DESTINATION_OPTIONS = 0, 44, 60
_ETHERTYPES: Final = {Family.IPV4: 0x0800, Family.IPV6: 0x86DD}
_ARP = 0x0806
_EVERY_PROTOCOL, _OUTGOING = 3, 4
_FRAME_BYTES = 4096

Pair = tuple[Address, Address]
"""A source and a destination."""


# --- packets ----------------------------------------------------------------------------------------------------------


def _packed(address: Address) -> bytes:
    return int(address).to_bytes(4 if address.family is Family.IPV4 else 16, "big")


def _sum(*parts: bytes) -> int:
    """The checksum of the internet protocols."""
    whole = b"".join(parts)
    words: tuple[int, ...] = struct.unpack(f"!{(len(whole) + 1) // 2}H", whole + b"\0" * (len(whole) % 2))
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _pseudo(pair: Pair, protocol: int, length: int) -> bytes:
    return b"".join(map(_packed, pair)) + struct.pack("!II", length, protocol)


def ip_packet(pair: Pair, protocol: int, content: bytes, *, place: int = 0, has_more: bool = False) -> bytes:
    """A packet of the family of the pair; of IPv4 perhaps a fragment, whose ``place`` counts in eights of bytes."""
    source, destination = map(_packed, pair)
    if pair[0].family is Family.IPV6:
        return struct.pack("!IHBB", 6 << 28, len(content), protocol, 64) + source + destination + content
    flags = place | (0x2000 if has_more else 0)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(content), 7, flags, 64, protocol, 0) + source + destination
    return head[:10] + struct.pack("!H", _sum(head)) + head[12:] + content


def udp(pair: Pair, port: int, text: bytes) -> bytes:
    """A datagram from port 9000."""
    head = struct.pack("!HHHH", 9000, port, 8 + len(text), 0)
    checksum = _sum(_pseudo(pair, UDP, 8 + len(text)), head, text)
    return head[:6] + struct.pack("!H", checksum or 0xFFFF) + text


def tcp_syn(pair: Pair, port: int, text: bytes) -> bytes:
    """The first packet of a connection, with something in it."""
    head = struct.pack("!HHIIBBHHH", 9000, port, 1, 0, 5 << 4, 2, 1024, 0, 0)
    checksum = _sum(_pseudo(pair, TCP, len(head) + len(text)), head, text)
    return head[:16] + struct.pack("!H", checksum) + head[18:] + text


def sctp_init(_pair: Pair, port: int, text: bytes) -> bytes:
    """The first packet of an association: the text is its tag and its window, eight bytes."""
    chunk = struct.pack("!BBH", 1, 0, 20) + text[:8].ljust(8, b"-") + struct.pack("!HHI", 1, 1, 1)
    head = struct.pack("!HHI", 9000, port, 0)
    return head + struct.pack("<I", _crc32c(head + b"\0" * 4 + chunk)) + chunk


def _crc32c(content: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def echo(pair: Pair, _port: int, text: bytes) -> bytes:
    """A request of ICMP, or of ICMPv6."""
    is_v4 = pair[0].family is Family.IPV4
    head = struct.pack("!BBHHH", 8 if is_v4 else 128, 0, 0, 1, 1)
    pseudo = b"" if is_v4 else _pseudo(pair, ICMP_V6, len(head) + len(text))
    return head[:2] + struct.pack("!H", _sum(pseudo, head, text)) + head[4:] + text


def destination_options(protocol: int, content: bytes) -> bytes:
    """An extension header of IPv6 with six bytes of padding, before a content. A hop-by-hop header looks the same."""
    return struct.pack("!BBBB4x", protocol, 0, 1, 4) + content


def fragments(pair: Pair, protocol: int, content: bytes) -> list[bytes]:
    """A packet in two: the first has eight bytes of it."""
    first, rest = content[:8], content[8:]
    if pair[0].family is Family.IPV4:
        return [ip_packet(pair, protocol, first, has_more=True), ip_packet(pair, protocol, rest, place=1)]
    heads = (struct.pack("!BBHI", protocol, 0, (place << 3) | more, 7) for place, more in ((0, 1), (1, 0)))
    return [ip_packet(pair, FRAGMENT, head + part) for head, part in zip(heads, (first, rest), strict=True)]


PROTOCOL_OF: Final[dict[Callable[[Pair, int, bytes], bytes], int]] = {udp: UDP, tcp_syn: TCP, sctp_init: SCTP}


def protocol_of(make: Callable[[Pair, int, bytes], bytes], family: Family) -> int:
    """The number of what a function makes."""
    return PROTOCOL_OF.get(make, ICMP if family is Family.IPV4 else ICMP_V6)


# --- who sends and who sees -------------------------------------------------------------------------------------------


@define
class RawSender:
    """Sends from the workload ``client`` of a scene, and looks at the workload ``web``, unless said otherwise."""

    scene: PolicyScene
    _numbers: Iterable[int] = field(factory=count)

    @property
    def pair(self) -> Pair:
        """From the client to the web."""
        at = self.scene.nat.addresses
        return Address.parse(at.client), Address.parse(at.web)

    def does_pass(
        self, make: Callable[[Pair, int, bytes], bytes], port: int = 0, *, pair: Pair | None = None, by: str = "client"
    ) -> bool:
        """Whether a packet arrives at the web that a function makes of source and destination, a port and a text."""
        given = pair or self.pair
        protocol = protocol_of(make, given[0].family)
        return self.do_pass(lambda text: [ip_packet(given, protocol, make(given, port, text))], by=by)

    def do_pass(self, make: Callable[[bytes], list[bytes]], *, by: str = "client") -> bool:
        """Whether what a function makes of a text arrives: it has, when the text is seen; not, when rules drop more."""
        nat = self.scene.nat
        sender = nat.client if by == "client" else nat.web
        text = f"raw{next(iter(self._numbers)):05}".encode()
        frames = make(text)
        before, drops, is_seen = self.scene.dropped(), 0, False
        with closing(self._open(nat.web)) as watched, closing(self._open(sender)) as sending:
            to = ("eth0", _ETHERTYPES[nat.family], 0, 0, self._hardware_address("netp6" if by == "client" else "netp5"))

            def is_decided() -> bool:
                nonlocal before, drops, is_seen
                for frame in frames:
                    sending.sendto(frame, to)
                is_seen = is_seen or _has(watched, text)
                now = self.scene.dropped()
                drops, before = drops + (now > before), now
                return is_seen or drops > 1

            wait_until(is_decided, "the packet has come or is dropped")
        return is_seen

    def claim(self, address: str) -> None:
        """Let the client say to all on its link that it has an address, by an answer that nobody has asked for."""
        nat = self.scene.nat
        own = self._hardware_address("eth0", "-n", nat.client.name)
        claimed = _packed(Address.parse(address))
        if nat.family is Family.IPV4:
            answer = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2) + own + claimed + b"\xff" * 6 + claimed
            to, ethertype = b"\xff" * 6, _ARP
        else:
            pair = Address.parse("fe80::6"), Address.parse("ff02::1")
            head, rest = struct.pack("!BB", 136, 0), struct.pack("!I", 1 << 29) + claimed + b"\x02\x01" + own
            checksum = _sum(_pseudo(pair, ICMP_V6, len(rest) + 4), head, b"\0\0", rest)
            packet = ip_packet(pair, ICMP_V6, head + struct.pack("!H", checksum) + rest)
            answer = packet[:7] + b"\xff" + packet[8:]  # neighbours count only as long as nobody has forwarded them
            to, ethertype = bytes.fromhex("333300000001"), _ETHERTYPES[Family.IPV6]
        with closing(self._open(nat.client)) as sending:
            sending.sendto(answer, ("eth0", ethertype, 0, 0, to))

    def _open(self, pod: PodNamespace) -> socket.socket:
        with self.scene.nat.inside(pod.name):
            made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_EVERY_PROTOCOL))
        made.bind(("eth0", _EVERY_PROTOCOL))
        made.settimeout(0)
        return made

    def _hardware_address(self, name: str, *where: str) -> bytes:
        (found,) = json.loads(self.scene.node.run("ip", *where, "-j", "link", "show", name))
        return bytes.fromhex(str(found["address"]).replace(":", ""))


def _has(watched: socket.socket, text: bytes) -> bool:
    """Whether a packet with a text has come to a socket, that its own workload has not sent."""
    while True:
        try:
            frame, where = watched.recvfrom(_FRAME_BYTES)
        except BlockingIOError:
            return False
        if text in frame and where[2] != _OUTGOING:
            return True
