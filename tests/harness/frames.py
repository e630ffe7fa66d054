"""Ethernet frames as a pod with CAP_NET_RAW can send them: every field is what the test says."""

from __future__ import annotations

import struct

from netplug_core.addressing import Address, Family

__all__ = [
    "arp_reply",
    "icmp_redirect",
    "icmpv6_redirect",
    "router_advertisement",
    "udp_frame",
]

_UDP, _ICMP, _ICMPV6 = 17, 1, 58
_ETHERTYPES = {Family.IPV4: 0x0800, Family.IPV6: 0x86DD}
_ARP = 0x0806


def udp_frame(*, macs: tuple[str, str], addresses: tuple[str, str], port: int, payload: str) -> bytes:
    """A UDP datagram; ``macs`` and ``addresses`` are source and target."""
    data = payload.encode()
    source, target = _parse(addresses)
    header = struct.pack("!HHHH", 40000, port, 8 + len(data), 0)
    checksum = _checksum(_pseudo_header(source, target, _UDP, 8 + len(data)) + header + data)
    return _frame(macs, source, target, _UDP, header[:6] + struct.pack("!H", checksum) + data)


def arp_reply(*, macs: tuple[str, str], owner: tuple[str, str], asker: tuple[str, str]) -> bytes:
    """An ARP reply: the first of ``owner``, an address, is at the second, a MAC. ``asker`` likewise."""
    fields = b""
    for address, mac in (owner, asker):
        fields += _packed_mac(mac) + Address.parse(address).packed
    return _ethernet(macs, _ARP) + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2) + fields


def router_advertisement(*, macs: tuple[str, str], source: str) -> bytes:
    """A router advertisement to all nodes: a default route over the source, and the prefix ``2001:db8:bad::/64``."""
    prefix = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 3600, 3600, 0) + Address.parse("2001:db8:bad::").packed
    return _icmpv6(macs, (source, "ff02::1"), 134, struct.pack("!BBHII", 64, 0, 1800, 0, 0) + prefix)


def icmpv6_redirect(*, macs: tuple[str, str], addresses: tuple[str, str], destination: str, gateway: str) -> bytes:
    """A redirect: ``destination`` is better reached through ``gateway``."""
    body = bytes(4) + Address.parse(gateway).packed + Address.parse(destination).packed
    return _icmpv6(macs, addresses, 137, body)


def icmp_redirect(*, macs: tuple[str, str], addresses: tuple[str, str], destination: str, gateway: str) -> bytes:
    """The same for IPv4. The packet that it complains of is one from its target to the destination."""
    source, target = _parse(addresses)
    complained = _ipv4_header(target, Address.parse(destination), _UDP, 8) + struct.pack("!HHHH", 9, 9, 8, 0)
    body = Address.parse(gateway).packed + complained
    checksum = _checksum(struct.pack("!BBH", 5, 1, 0) + body)
    return _frame(macs, source, target, _ICMP, struct.pack("!BBH", 5, 1, checksum) + body)


def _icmpv6(macs: tuple[str, str], addresses: tuple[str, str], kind: int, body: bytes) -> bytes:
    source, target = _parse(addresses)
    message = struct.pack("!BBH", kind, 0, 0) + body
    checksum = _checksum(_pseudo_header(source, target, _ICMPV6, len(message)) + message)
    return _frame(macs, source, target, _ICMPV6, message[:2] + struct.pack("!H", checksum) + body)


def _frame(macs: tuple[str, str], source: Address, target: Address, protocol: int, data: bytes) -> bytes:
    start = _ethernet(macs, _ETHERTYPES[source.family])
    if source.family is Family.IPV4:
        return start + _ipv4_header(source, target, protocol, len(data)) + data
    # 255 hops: neighbour discovery refuses what a router may have forwarded.
    return start + struct.pack("!IHBB", 6 << 28, len(data), protocol, 255) + source.packed + target.packed + data


def _ipv4_header(source: Address, target: Address, protocol: int, length: int) -> bytes:
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 1, 0, 64, protocol, 0) + source.packed + target.packed
    return header[:10] + struct.pack("!H", _checksum(header)) + header[12:]


def _pseudo_header(source: Address, target: Address, protocol: int, length: int) -> bytes:
    return source.packed + target.packed + struct.pack("!II", length, protocol)


def _ethernet(macs: tuple[str, str], ethertype: int) -> bytes:
    source, target = macs
    return _packed_mac(target) + _packed_mac(source) + struct.pack("!H", ethertype)


def _packed_mac(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _parse(addresses: tuple[str, str]) -> tuple[Address, Address]:
    source, target = addresses
    return Address.parse(source), Address.parse(target)


def _checksum(data: bytes) -> int:
    """The Internet checksum. Source: RFC 1071."""
    padded = data + bytes(len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
