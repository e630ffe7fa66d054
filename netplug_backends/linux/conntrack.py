"""Forgets connections that the kernel tracks, by the address that they were begun to or by a workload's address.

A connection keeps the translation that its first packet got, and what policy decided of it. After a floating address
leads to another workload, its connections have to be forgotten, or they stay with the old one. After a workload is
gone, its own have to be: the next one with its address would inherit them.

Source: the kernel's ``linux/netfilter/nfnetlink_conntrack.h`` and ``net/netfilter/nf_conntrack_netlink.c``.
"""

from __future__ import annotations

import enum
import errno
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

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

__all__ = ["End", "LinuxConnections", "delete_connection", "list_connections", "read_end"]

_SUBSYSTEM = 1 << 8
_GET, _DELETE = _SUBSYSTEM | 1, _SUBSYSTEM | 2
_REQUEST, _DUMP = 0x1, 0x300
_NFGENMSG = struct.Struct("!BBH")
_AF = {Family.IPV4: 2, Family.IPV6: 10}
_FLAGS = struct.Struct("=I")

_TUPLE_ORIGINAL, _TUPLE_REPLY, _ID, _ZONE, _FILTER = 1, 2, 12, 18, 25
_TUPLE_IP = 1
_IP_SOURCE = {Family.IPV4: 1, Family.IPV6: 3}
_IP_DESTINATION = {Family.IPV4: 2, Family.IPV6: 4}
_BY_SOURCE, _BY_DESTINATION = 1 << 0, 1 << 1
_MAX_DELETIONS = 200  # in one batch
_MAX_FILTERED = 8  # addresses; for more of them all connections are listed once


class End(enum.Enum):
    """Where in a connection an address stands.

    ``REPLY_SOURCE`` is who answers, after any translation: the workload that a connection was led to.
    """

    SOURCE = "from"
    DESTINATION = "to"
    REPLY_SOURCE = "answered by"


_TUPLES: Final = {
    End.SOURCE: (_TUPLE_ORIGINAL, _IP_SOURCE, _BY_SOURCE),
    End.DESTINATION: (_TUPLE_ORIGINAL, _IP_DESTINATION, _BY_DESTINATION),
    End.REPLY_SOURCE: (_TUPLE_REPLY, _IP_SOURCE, _BY_SOURCE),
}


@frozen
class LinuxConnections:
    """The :class:`~netplug_core.dataplane.packetfilter.Connections` of the calling thread's network namespace."""

    def forget(self, destinations: Iterable[Address]) -> int:
        """List the connections to the addresses and delete them, one by one; what is gone already is no error."""
        return _forget(destinations, (End.DESTINATION,))

    def forget_workloads(self, addresses: Iterable[Address]) -> int:
        """Likewise those from, to and answered by the addresses."""
        return _forget(addresses, tuple(End))


def _forget(addresses: Iterable[Address], ends: Sequence[End]) -> int:
    wanted, count = frozenset(addresses), 0
    with NetlinkSocket.open(NetlinkProtocol.NETFILTER) as kernel:
        for family in Family:
            own = frozenset(each for each in wanted if each.family is family)
            messages = [delete_connection(body, family) for body in _find(kernel, family, own, ends)]
            for batch in _batches(messages):
                outcomes = kernel.send(batch)
                count += sum(outcome.require_success(errno.ENOENT).error == 0 for outcome in outcomes)
    return count


def _find(kernel: NetlinkSocket, family: Family, own: frozenset[Address], ends: Sequence[End]) -> Iterable[bytes]:
    """The connections that have one of the addresses at one of the ends, each once.

    The kernel's own filter lists for IPv6 every connection but those that are asked for (seen on 6.18).
    """

    def has_own(datagram: bytes, begin: int, end: int) -> bytes | None:
        body = datagram[begin:end]
        return body if any(read_end(body, family, each) in own for each in ends) else None

    if not own:
        return ()
    listings = [list_connections(family)]
    if family is Family.IPV4 and len(own) <= _MAX_FILTERED:
        listings = [list_connections(family, address, end) for address in sorted(own, key=int) for end in ends]
    # A kernel before 5.8 does not filter, and connections change while they are listed: the ends alone say which it is.
    found = [body for each in listings for body in kernel.list_all(each, has_own)]
    return {_identity(body): body for body in found}.values()


def list_connections(family: Family, address: Address | None = None, end: End = End.DESTINATION) -> NetlinkMessage:
    """List the connections of a family, or only those that have an address at one end."""
    body = _NFGENMSG.pack(_AF[family], 0, 0)
    if address is not None:
        kind, fields, flags = _TUPLES[end]
        ends = encode_nested(_TUPLE_IP, encode_attribute(fields[family], address.packed))
        # The number of the flags of a tuple is the number of the tuple.
        body += encode_nested(kind, ends) + encode_nested(_FILTER, encode_attribute(kind, _FLAGS.pack(flags)))
    what = "" if address is None else f" {end.value} {address}"
    return NetlinkMessage(_GET, _REQUEST | _DUMP, body, lambda: f"listing the {family} connections{what}")


def delete_connection(listed: bytes, family: Family) -> NetlinkMessage:
    """Delete a connection that was listed, and not a later one with the same ends."""
    attributes = decode_attributes(listed, _NFGENMSG.size)
    same = b"".join(
        encode_nested(kind, attributes[kind]) if kind == _TUPLE_ORIGINAL else encode_attribute(kind, attributes[kind])
        for kind in (_TUPLE_ORIGINAL, _ID, _ZONE)
        if kind in attributes
    )
    body = _NFGENMSG.pack(_AF[family], 0, 0) + same

    def describe() -> str:
        ends = f"from {read_end(listed, family, End.SOURCE)} to {read_end(listed, family, End.DESTINATION)}"
        return f"forgetting a connection {ends}"

    return NetlinkMessage(_DELETE, _REQUEST, body, describe)


def read_end(listed: bytes, family: Family, end: End) -> Address | None:
    """The address at one end of a connection; None if it is one of another family."""
    kind, fields, _flags = _TUPLES[end]
    ends = decode_attributes(decode_attributes(listed, _NFGENMSG.size).get(kind, b""))
    packed = decode_attributes(ends.get(_TUPLE_IP, b"")).get(fields[family])
    return None if packed is None else Address(family, int.from_bytes(packed, "big"))


def _identity(listed: bytes) -> tuple[bytes | None, ...]:
    attributes = decode_attributes(listed, _NFGENMSG.size)
    return tuple(attributes.get(kind) for kind in (_TUPLE_ORIGINAL, _ID, _ZONE))


def _batches(messages: list[NetlinkMessage]) -> Iterator[list[NetlinkMessage]]:
    for start in range(0, len(messages), _MAX_DELETIONS):
        yield messages[start : start + _MAX_DELETIONS]
