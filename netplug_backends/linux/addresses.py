"""The interfaces and addresses of the node, which of its addresses the kernel would send from, and whose routes it has.

Two listings, of the links and of the addresses, however many there are. They are read in the network namespace of the
calling thread; nothing is changed.
"""

from __future__ import annotations

import errno
import socket
import struct
from functools import lru_cache
from typing import Final

from netplug_backends.connections import resolve
from netplug_backends.linux.netlink import (
    MAIN_TABLE,
    KernelRoute,
    NetlinkMessage,
    NetlinkSocket,
    decode_attributes,
    decode_route,
    delete_route,
    encode_attribute,
    query_routes,
)
from netplug_core.addressing import Address, Family, InterfaceAddress
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import AddressState, HostAddress, HostInterface

__all__ = [
    "BIRD_PROTOCOL", "NAME_S", "count_routes", "decode_host_address", "decode_host_link", "find_interfaces",
    "find_source_address", "list_host_addresses", "list_host_links", "remove_routes",
]  # fmt: skip

BIRD_PROTOCOL: Final = 12
"""What routes of BIRD have as their protocol. Source: ``rtnetlink.h``."""

NAME_S: Final = 2.0
"""How long a name server may take."""

_PORT = 80  # nothing is sent there

_GETLINK, _GETADDR = 18, 22
_REQUEST, _DUMP = 0x1, 0x300
_IFINFOMSG = struct.Struct("=BxHiII")
_IFADDRMSG = struct.Struct("=BBBBI")
_IFF_UP = 0x1
_IFLA_IFNAME, _IFLA_MTU, _IFLA_IFALIAS, _IFLA_EXT_MASK = 3, 4, 20, 29
_SKIP_STATISTICS = 0x8
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_SECONDARY, _DUPLICATE, _DEPRECATED, _TENTATIVE = 0x01, 0x08, 0x20, 0x40
_SCOPE_UNIVERSE = 0
_NUMBER = struct.Struct("=I")
_FAMILY = {2: Family.IPV4, 10: Family.IPV6}
_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


# --- interfaces -------------------------------------------------------------------------------------------------------


_REMEMBERED_LINKS: Final = 1024


def list_host_links() -> NetlinkMessage:
    """List all interfaces, without their counters."""
    mask = encode_attribute(_IFLA_EXT_MASK, _NUMBER.pack(_SKIP_STATISTICS))
    return NetlinkMessage(
        _GETLINK, _REQUEST | _DUMP, _IFINFOMSG.pack(0, 0, 0, 0, 0) + mask, lambda: "listing the interfaces"
    )


def list_host_addresses() -> NetlinkMessage:
    """List the addresses of all interfaces, of both families."""
    return NetlinkMessage(_GETADDR, _REQUEST | _DUMP, _IFADDRMSG.pack(0, 0, 0, 0, 0), lambda: "listing the addresses")


@lru_cache(maxsize=_REMEMBERED_LINKS)
def decode_host_link(body: bytes) -> HostInterface:
    """Decode one of the replies to :func:`list_host_links`: an interface, without its addresses."""
    # The reply of a link that has not changed is the same; to decode its 40 attributes costs more than all else.
    _, _, index, flags, _ = _IFINFOMSG.unpack_from(body)
    found = decode_attributes(body, _IFINFOMSG.size)
    return HostInterface(
        name=found[_IFLA_IFNAME].rstrip(b"\0").decode(errors="replace"),
        index=index,
        is_up=bool(flags & _IFF_UP),
        mtu=_number(found[_IFLA_MTU]),
        alias=found.get(_IFLA_IFALIAS, b"").rstrip(b"\0").decode(errors="replace"),
    )


def decode_host_address(body: bytes) -> tuple[int, HostAddress] | None:
    """Decode one of the replies to :func:`list_host_addresses`: the index of the interface, and the address.

    None for an address of a family that is no IP.
    """
    number, length, short_flags, scope, index = _IFADDRMSG.unpack_from(body)
    family, found = _FAMILY.get(number), decode_attributes(body, _IFADDRMSG.size)
    other = found.get(_IFA_ADDRESS, b"")
    own = found.get(_IFA_LOCAL, other)  # IPv6 has it only beside the address of a peer
    if family is None or not own:
        return None
    flags = _number(found[_IFA_FLAGS]) if _IFA_FLAGS in found else short_flags
    address = Address(family, int.from_bytes(own, "big"))
    # The prefix of a link between two machines is that of the peer's address: nothing is beside our own.
    held = InterfaceAddress(address, length if other in (own, b"") else family.width)
    return index, HostAddress(
        held=held,
        state=_state(flags),
        is_secondary=bool(flags & _SECONDARY),
        is_global=scope == _SCOPE_UNIVERSE,
    )


def _decode_listed_link(datagram: bytes, start: int, end: int) -> HostInterface:
    return decode_host_link(datagram[start:end])


def _decode_listed_address(datagram: bytes, start: int, end: int) -> tuple[int, HostAddress] | None:
    return decode_host_address(datagram[start:end])


def _state(flags: int) -> AddressState:
    if flags & (_TENTATIVE | _DUPLICATE):
        return AddressState.TENTATIVE
    return AddressState.DEPRECATED if flags & _DEPRECATED else AddressState.USABLE


def _number(data: bytes) -> int:
    (number,) = _NUMBER.unpack(data)
    return int(number)


def find_interfaces() -> tuple[HostInterface, ...]:
    """All interfaces of the calling thread's network namespace with their addresses, by their index.

    Addresses are in the order of the kernel's own list.

    Raises:
        KernelError: the kernel would not say, or they changed again and again meanwhile.
    """
    with NetlinkSocket.open() as kernel:
        # The links last: an address of an interface that is not listed belongs to one that is gone.
        addresses = kernel.list_all(list_host_addresses(), _decode_listed_address)
        links = kernel.list_all(list_host_links(), _decode_listed_link)
    by_index: dict[int, list[HostAddress]] = {}
    for index, address in addresses:
        by_index.setdefault(index, []).append(address)
    return tuple(
        HostInterface(
            name=link.name,
            index=link.index,
            is_up=link.is_up,
            mtu=link.mtu,
            alias=link.alias,
            addresses=tuple(by_index.get(link.index, ())),
        )
        for link in sorted(links, key=lambda link: link.index)
    )


# --- the source of packets --------------------------------------------------------------------------------------------


def find_source_address(target: str, family: Family, *, deadline: Deadline) -> Address:
    """The local address that packets to an address or a name would have: that of a connected UDP socket.

    Nothing is sent. A name is resolved within :data:`NAME_S`.

    Raises:
        KernelError: there is no route, the name is unknown, or no name server has answered in time.
    """
    where = f"looking for the local {family} address for {target}"
    try:
        with socket.socket(_AF[family], socket.SOCK_DGRAM) as plain:
            plain.connect(_resolve(target, family, deadline.capped(NAME_S)))
            return Address.parse(str(plain.getsockname()[0]).partition("%")[0])  # a zone follows if it is link-local
    except OSError as error:
        raise KernelError(where, error.strerror or str(error)) from error


def _resolve(target: str, family: Family, deadline: Deadline) -> tuple[str, int]:
    """The socket address of a target."""
    try:
        address = Address.parse(target)
    except ValueError:
        (*_, found), *_others = resolve(target, _PORT, deadline, family=_AF[family], kind=socket.SOCK_DGRAM)
        return str(found[0]), _PORT
    if address.family is not family:
        raise OSError(errno.EAFNOSUPPORT, f"{target} is an address of {address.family}")
    return target, _PORT


# --- routes -----------------------------------------------------------------------------------------------------------

_PROTOCOL_OFFSET = 5  # in the header of a route: family, two lengths, TOS, table, protocol


def count_routes(protocol: int) -> int:
    """How many routes of the main table have a protocol, in both families.

    Raises:
        KernelError: the kernel would not say.
    """
    with NetlinkSocket.open() as kernel:
        return sum(len(_list_routes(kernel, family, protocol)) for family in Family)


def remove_routes(protocol: int) -> int:
    """Remove the routes of the main table that have a protocol, in both families; return how many there were.

    Raises:
        KernelError: the kernel would not.
    """
    count = 0
    with NetlinkSocket.open() as kernel:
        for family in Family:
            routes = _list_routes(kernel, family, protocol)
            for route in routes:
                kernel.send_one(delete_route(route, protocol)).require_success(errno.ESRCH, errno.ENOENT)
            count += len(routes)
    return count


def _list_routes(kernel: NetlinkSocket, family: Family, protocol: int) -> list[KernelRoute]:
    def decode(datagram: bytes, start: int, end: int) -> KernelRoute | None:
        body = datagram[start:end]
        route = decode_route(body) if body[_PROTOCOL_OFFSET] == protocol else None
        return route if route is not None and route.table == MAIN_TABLE else None

    return kernel.list_all(query_routes(family), decode)
