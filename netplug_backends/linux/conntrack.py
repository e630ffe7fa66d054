"""Forgets connections that the kernel tracks, by the address that they were begun to.

A connection keeps the translation that its first packet got. After a floating address leads to another workload, its
connections have to be forgotten, or they stay with the old one.

Source: the kernel's ``linux/netfilter/nfnetlink_conntrack.h`` and ``net/netfilter/nf_conntrack_netlink.c``.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator

from attrs import frozen

from netplug_backends.linux.netlink import (
    NetlinkMessage,
    NetlinkProtocol,
    NetlinkSocket,
    decode_attributes,
    encode_attribute,
    encode_nested,
)
from netplug_core.addressing import Address, Family

__all__ = ["LinuxConnections", "delete_connection", "list_connections", "read_destination"]

_SUBSYSTEM = 1 << 8
_GET, _DELETE = _SUBSYSTEM | 1, _SUBSYSTEM | 2
_REQUEST, _DUMP = 0x1, 0x300
_NFGENMSG = struct.Struct("!BBH")
_AF = {Family.IPV4: 2, Family.IPV6: 10}
_FLAGS = struct.Struct("=I")

_TUPLE_ORIGINAL, _ID, _ZONE, _FILTER = 1, 12, 18, 25
_TUPLE_IP = 1
_IP_DESTINATION = {Family.IPV4: 2, Family.IPV6: 4}
_FILTER_ORIGINAL_FLAGS, _BY_DESTINATION = 1, 1 << 1
_MAX_DELETIONS = 200  # in one batch


@frozen
class LinuxConnections:
    """The :class:`~netplug_core.dataplane.packetfilter.Connections` of the calling thread's network namespace."""

    def forget(self, destinations: Iterable[Address]) -> int:
        """List the connections to each address and delete them, one by one; what is gone already is no error."""
        count = 0
        with NetlinkSocket.open(NetlinkProtocol.NETFILTER) as kernel:
            for destination in sorted(destinations, key=lambda address: (address.family, int(address))):
                listed = kernel.send_one(list_connections(destination)).require_success().replies
                # For IPv6, and by a kernel before 5.8, all connections are listed.
                found = [body for body in listed if read_destination(body, destination.family) == destination]
                for batch in _batches([delete_connection(body, destination) for body in found]):
                    outcomes = kernel.send(batch)
                    count += sum(outcome.require_success(errno.ENOENT).error == 0 for outcome in outcomes)
        return count


def list_connections(destination: Address) -> NetlinkMessage:
    """List the connections of the family of an address; for IPv4, only those that were begun to it.

    The kernel's own filter lists for IPv6 every connection but those that are asked for (seen on 6.18).
    """
    body = _NFGENMSG.pack(_AF[destination.family], 0, 0)
    if destination.family is Family.IPV4:
        address = encode_attribute(_IP_DESTINATION[Family.IPV4], destination.packed)
        flags = encode_attribute(_FILTER_ORIGINAL_FLAGS, _FLAGS.pack(_BY_DESTINATION))
        body += encode_nested(_TUPLE_ORIGINAL, encode_nested(_TUPLE_IP, address)) + encode_nested(_FILTER, flags)
    return NetlinkMessage(_GET, _REQUEST | _DUMP, body, lambda: f"listing the connections to {destination}")


def delete_connection(listed: bytes, destination: Address) -> NetlinkMessage:
    """Delete a connection that was listed, and not a later one with the same ends."""
    attributes = decode_attributes(listed, _NFGENMSG.size)
    same = b"".join(
        encode_nested(kind, attributes[kind]) if kind == _TUPLE_ORIGINAL else encode_attribute(kind, attributes[kind])
        for kind in (_TUPLE_ORIGINAL, _ID, _ZONE)
        if kind in attributes
    )
    body = _NFGENMSG.pack(_AF[destination.family], 0, 0) + same
    return NetlinkMessage(_DELETE, _REQUEST, body, lambda: f"forgetting a connection to {destination}")


def read_destination(listed: bytes, family: Family) -> Address | None:
    """The address that a connection was begun to; None if it is one of another family."""
    original = decode_attributes(decode_attributes(listed, _NFGENMSG.size).get(_TUPLE_ORIGINAL, b""))
    packed = decode_attributes(original.get(_TUPLE_IP, b"")).get(_IP_DESTINATION[family])
    return None if packed is None else Address(family, int.from_bytes(packed, "big"))


def _batches(messages: list[NetlinkMessage]) -> Iterator[list[NetlinkMessage]]:
    for start in range(0, len(messages), _MAX_DELETIONS):
        yield messages[start : start + _MAX_DELETIONS]
