"""The few rtnetlink messages that an ADD and a DEL need: their encoding, and the socket that sends them."""

from __future__ import annotations

import _socket
import enum
import errno
import math
import os
import select
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

from attrs import define, field, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import (
    DataplaneTimeout,
    InterfacePlan,
    KernelError,
    Link,
    Neighbour,
    PlannedRoute,
    RouteProtocol,
    RouteScope,
    RouteTable,
)

__all__ = [
    "MAIN_TABLE", "NO_NFTABLES", "BatchError", "KernelLink", "KernelRoute", "NetlinkMessage", "NetlinkNotifications",
    "NetlinkOutcome", "NetlinkProtocol", "NetlinkSocket", "RouteInsertion", "add_address", "add_neighbour", "add_route",
    "add_source_rule", "create_veth_pair", "decode_attributes", "decode_link", "decode_namespace_id", "decode_route",
    "delete_link", "delete_route", "delete_rule_to_table", "encode_attribute", "encode_nested", "encode_text",
    "has_mac", "interface_table", "iterate_attributes", "query_link", "query_link_by_index", "query_namespace_id",
    "query_route", "query_routes", "set_alias", "set_up",
]  # fmt: skip


T = TypeVar("T")

# --- netlink ---------------------------------------------------------------------------------------------------------


_NEWLINK, _DELLINK, _GETLINK = 16, 17, 18
_NEWADDR = 20
_NEWROUTE, _DELROUTE, _GETROUTE = 24, 25, 26
_NEWNEIGH = 28
_NEWRULE, _DELRULE = 32, 33
_GETNSID = 90

_REQUEST = 0x1
_EXCL, _CREATE, _APPEND, _REPLACE = 0x200, 0x400, 0x800, 0x100
_DUMP = 0x300

_AF_UNSPEC = 0
_AF = {Family.IPV4: 2, Family.IPV6: 10}
_FAMILY = {number: family for family, number in _AF.items()}

_IFF_UP = 0x1
_IFLA_AF_SPEC, _IFLA_INET_CONF = 26, 1
_IPV4_DEVCONF = {"forwarding": 1, "proxy_arp": 3, "accept_redirects": 4, "rp_filter": 8, "route_localnet": 26}
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK = 1, 3, 4, 5
_IFLA_LINKINFO, _IFLA_IFALIAS, _IFLA_NET_NS_FD = 18, 20, 28
_IFLA_NUM_TX_QUEUES, _IFLA_NUM_RX_QUEUES, _IFLA_LINK_NETNSID = 31, 32, 37
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1

_IFA_ADDRESS, _IFA_LOCAL, _IFA_NODAD = 1, 2, 0x02
_NDA_DST, _NDA_LLADDR, _NUD_PERMANENT = 1, 2, 0x80
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY = 1, 4, 5, 6
_RTA_TABLE = 15
MAIN_TABLE, _RT_TABLE_UNSPEC, _FIRST_INTERFACE_TABLE = 254, 0, 100
_FRA_SRC, _FRA_PRIORITY, _FRA_TABLE, _FRA_PROTOCOL, _FR_ACT_TO_TABLE = 2, 6, 15, 21, 1
_RULE_PRIORITY = 32765  # the last before the main table's; without one, the kernel would add a rule again and again
_RTN_UNICAST, _RTM_F_FIB_MATCH = 1, 0x2000
_SCOPE = {RouteScope.GLOBAL: 0, RouteScope.LINK: 253}
_SCOPE_NOWHERE = 255  # any, in a deletion
_NETNSA_NSID, _NETNSA_FD = 1, 3

_ATTRIBUTE = struct.Struct("=HH")
_U32_ATTRIBUTE = struct.Struct("=HHI")
_S32 = struct.Struct("=i")
_IFINFOMSG = struct.Struct("=BxHiII")
_IFADDRMSG = struct.Struct("=BBBBI")
_NDMSG = struct.Struct("=B3xiHBB")
_RTMSG = struct.Struct("=BBBBBBBBI")
_FIB_RULE_HDR = struct.Struct("=BBBBB2xBI")
_RTGENMSG = struct.Struct("=B3x")
_NESTED = 0x8000
_TYPE_MASK = 0x3FFF


class RouteInsertion(enum.Enum):
    """Whether a route may be added after others to the same destination, or must be the only one of its metric."""

    APPEND = "joined"
    EXCLUSIVE = "refused"


@frozen
class NetlinkMessage:
    """One request: type, flags and the bytes after the netlink header; ``describe`` makes its text in errors."""

    type: int
    flags: int
    body: bytes
    describe: Callable[[], str] = field(eq=False)


@frozen(kw_only=True)
class KernelLink:
    """An interface as the kernel describes it.

    ``alias`` is empty if it has none. ``peer`` is the index of the other end in the namespace with the id
    ``peer_namespace`` (None: this namespace).
    """

    index: int
    name: str
    alias: str
    mac: str
    mtu: int
    tx_queues: int
    rx_queues: int
    is_up: bool
    peer: int | None
    peer_namespace: int | None


@frozen(kw_only=True)
class KernelRoute:
    """A route as the kernel describes it; ``interface`` is an index, 0 if the route has several."""

    destination: Prefix
    interface: int
    metric: int
    table: int


# --- requests ------------------------------------------------------------------------------------------------------


def create_veth_pair(
    link: Link, container: InterfacePlan, host: InterfacePlan, *, index: int, container_namespace: int
) -> NetlinkMessage:
    """Create both ends at once, down, with their final names and in their final namespaces.

    It must be sent in the host's namespace, where the host end gets that index; ``container_namespace`` is a descriptor
    of the container's. The length of the transmit queue stays the kernel's default: with 0, a workload could not use
    queueing disciplines.
    """
    peer = _link(attributes=_end(link, container) + _u32(_IFLA_NET_NS_FD, container_namespace))
    info = encode_text(_INFO_KIND, "veth") + encode_nested(_INFO_DATA, encode_attribute(_VETH_PEER, peer))
    body = _link(index, attributes=_end(link, host) + encode_nested(_IFLA_LINKINFO, info))

    def describe() -> str:
        return f"creating the interfaces {container.name!r} (in {link.namespace}) and {host.name!r} (on the host)"

    return NetlinkMessage(_NEWLINK, _REQUEST | _CREATE | _EXCL, body, describe)


def set_alias(index: int, name: str, alias: str) -> NetlinkMessage:
    """Set the alias of the interface with that index; the kernel refuses more than 255 bytes."""
    body = _link(index, attributes=encode_attribute(_IFLA_IFALIAS, alias.encode()))
    return NetlinkMessage(_NEWLINK, _REQUEST, body, lambda: f"giving {name!r} the alias {alias!r}")


def query_link(name: str) -> NetlinkMessage:
    """Query the interface with that name."""
    return NetlinkMessage(
        _GETLINK, _REQUEST, _link(attributes=encode_text(_IFLA_IFNAME, name)), lambda: f"looking for {name!r}"
    )


def query_link_by_index(index: int) -> NetlinkMessage:
    """Query the interface with that index."""
    return NetlinkMessage(_GETLINK, _REQUEST, _link(index), lambda: f"looking for interface {index}")


def set_up(index: int, name: str) -> NetlinkMessage:
    """Set an interface up."""
    body = _IFINFOMSG.pack(_AF_UNSPEC, 0, index, _IFF_UP, _IFF_UP)
    return NetlinkMessage(_NEWLINK, _REQUEST, body, lambda: f"bringing up {name!r}")


def change_ipv4_settings(index: int, name: str, settings: Mapping[str, int]) -> NetlinkMessage:
    """A change of IPv4 settings of an interface, by their names: what ``/proc/sys`` does, where that is read-only.

    Source: Linux, ``inet_set_link_af`` and ``include/uapi/linux/ip.h``.
    """
    values = b"".join(_u32(_IPV4_DEVCONF[setting], value) for setting, value in settings.items())
    ipv4 = encode_nested(_AF[Family.IPV4], encode_nested(_IFLA_INET_CONF, values))
    body = _link(index, attributes=encode_nested(_IFLA_AF_SPEC, ipv4))
    return NetlinkMessage(_NEWLINK, _REQUEST, body, lambda: f"changing settings of {name!r}")


def delete_link(index: int, name: str) -> NetlinkMessage:
    """Delete the interface with that index, and with it its peer; the name is only for the error."""
    return NetlinkMessage(_DELLINK, _REQUEST, _link(index), lambda: f"removing {name!r}")


def query_namespace_id(descriptor: int) -> NetlinkMessage:
    """Query the id of another namespace in this one."""
    body = _RTGENMSG.pack(_AF_UNSPEC) + _u32(_NETNSA_FD, descriptor)
    return NetlinkMessage(_GETNSID, _REQUEST, body, lambda: "asking for the number of the container's namespace")


def add_address(index: int, name: str, held: InterfaceAddress) -> NetlinkMessage:
    """Add an address to an interface, without duplicate address detection."""
    packed = held.address.packed
    body = _IFADDRMSG.pack(_AF[held.address.family], held.length, _IFA_NODAD, 0, index)
    body += encode_attribute(_IFA_LOCAL, packed) + encode_attribute(_IFA_ADDRESS, packed)
    return NetlinkMessage(_NEWADDR, _REQUEST | _CREATE | _EXCL, body, lambda: f"adding the address {held} to {name!r}")


def add_neighbour(index: int, name: str, neighbour: Neighbour) -> NetlinkMessage:
    """Add a permanent neighbour entry: the MAC of an address."""
    body = _NDMSG.pack(_AF[neighbour.address.family], index, _NUD_PERMANENT, 0, 0)
    body += encode_attribute(_NDA_DST, neighbour.address.packed) + encode_attribute(
        _NDA_LLADDR, _packed_mac(neighbour.mac)
    )
    return NetlinkMessage(
        _NEWNEIGH, _REQUEST | _CREATE | _REPLACE, body, lambda: f"adding the neighbour {neighbour} to {name!r}"
    )


def add_route(index: int, name: str, route: PlannedRoute, insertion: RouteInsertion) -> NetlinkMessage:
    """Add a route over an interface; the kernel refuses one that exists."""
    destination, is_main = route.destination, route.table is RouteTable.MAIN
    body = _RTMSG.pack(
        _AF[destination.family],
        destination.length,
        0,
        0,
        MAIN_TABLE if is_main else _RT_TABLE_UNSPEC,
        route.protocol,
        _SCOPE[route.scope],
        _RTN_UNICAST,
        0,
    )
    if destination.length:
        body += encode_attribute(_RTA_DST, destination.first.packed)
    body += _u32(_RTA_OIF, index)
    if not is_main:
        body += _u32(_RTA_TABLE, interface_table(index))
    if route.gateway is not None:
        body += encode_attribute(_RTA_GATEWAY, route.gateway.packed)
    if route.metric:
        body += _u32(_RTA_PRIORITY, route.metric)
    flags = _REQUEST | _CREATE | (_APPEND if insertion is RouteInsertion.APPEND else _EXCL)
    return NetlinkMessage(_NEWROUTE, flags, body, lambda: f"adding the route to {route} over {name!r}")


def interface_table(index: int) -> int:
    """The number of an interface's own routing table."""
    return _FIRST_INTERFACE_TABLE + index


def add_source_rule(index: int, name: str, address: Address) -> NetlinkMessage:
    """Let traffic from an address use an interface's own table; the kernel refuses a rule that exists."""
    family = address.family
    body = _FIB_RULE_HDR.pack(_AF[family], 0, family.width, 0, _RT_TABLE_UNSPEC, _FR_ACT_TO_TABLE, 0)
    body += encode_attribute(_FRA_SRC, address.packed) + _u32(_FRA_TABLE, interface_table(index))
    body += _u32(_FRA_PRIORITY, _RULE_PRIORITY) + encode_attribute(_FRA_PROTOCOL, bytes((RouteProtocol.BOOT,)))
    return NetlinkMessage(
        _NEWRULE, _REQUEST | _CREATE | _EXCL, body, lambda: f"adding the rule from {address} to {name!r}"
    )


def delete_rule_to_table(family: Family, table: int) -> NetlinkMessage:
    """Delete the first rule of a family that leads to a table."""
    body = _FIB_RULE_HDR.pack(_AF[family], 0, 0, 0, _RT_TABLE_UNSPEC, _FR_ACT_TO_TABLE, 0) + _u32(_FRA_TABLE, table)
    return NetlinkMessage(_DELRULE, _REQUEST, body, lambda: f"removing an {family} rule to table {table}")


def query_route(address: Address) -> NetlinkMessage:
    """Query the route that traffic to an address takes, as it is in its table."""
    family = _AF[address.family]
    body = _RTMSG.pack(family, address.family.width, 0, 0, 0, 0, 0, 0, _RTM_F_FIB_MATCH)
    body += encode_attribute(_RTA_DST, address.packed)
    return NetlinkMessage(_GETROUTE, _REQUEST, body, lambda: f"asking for the route to {address}")


def query_routes(family: Family) -> NetlinkMessage:
    """List all routes of a family."""
    body = _RTMSG.pack(_AF[family], 0, 0, 0, 0, 0, 0, 0, 0)
    return NetlinkMessage(_GETROUTE, _REQUEST | _DUMP, body, lambda: f"listing {family} routes")


def delete_route(route: KernelRoute, protocol: int) -> NetlinkMessage:
    """Delete the route with this destination, metric and protocol from a table; its way does not matter."""
    destination = route.destination
    body = _RTMSG.pack(_AF[destination.family], destination.length, 0, 0, 0, protocol, _SCOPE_NOWHERE, 0, 0)
    if destination.length:
        body += encode_attribute(_RTA_DST, destination.first.packed)
    body += _u32(_RTA_TABLE, route.table) + _u32(_RTA_PRIORITY, route.metric)
    return NetlinkMessage(_DELROUTE, _REQUEST, body, lambda: f"deleting the route to {destination}")


def _end(link: Link, end: InterfacePlan) -> bytes:
    # The peer does not inherit these, and the kernel's default number of queues is the number of processors.
    mtu = _u32(_IFLA_MTU, link.mtu) if link.mtu else b""
    queues = _u32(_IFLA_NUM_TX_QUEUES, link.queues) + _u32(_IFLA_NUM_RX_QUEUES, link.queues)
    return encode_text(_IFLA_IFNAME, end.name) + encode_attribute(_IFLA_ADDRESS, _packed_mac(end.mac)) + mtu + queues


def _link(index: int = 0, *, attributes: bytes = b"") -> bytes:
    return _IFINFOMSG.pack(_AF_UNSPEC, 0, index, 0, 0) + attributes


def encode_attribute(kind: int, payload: bytes) -> bytes:
    """One attribute: its length, its type and its payload, filled up to a multiple of four bytes."""
    return _ATTRIBUTE.pack(4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def encode_nested(kind: int, payload: bytes) -> bytes:
    """An attribute whose payload is a sequence of attributes."""
    return encode_attribute(kind | _NESTED, payload)


def _u32(kind: int, number: int) -> bytes:
    return _U32_ATTRIBUTE.pack(_U32_ATTRIBUTE.size, kind, number)


def encode_text(kind: int, text: str) -> bytes:
    """An attribute with a text, which ends with a zero."""
    return encode_attribute(kind, text.encode() + b"\0")


def _packed_mac(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


# --- replies -------------------------------------------------------------------------------------------------------


def decode_attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """The payloads of the attributes in a sequence, by their types; of several of one type, the last."""
    return dict(iterate_attributes(data, offset))


def iterate_attributes(data: bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """The type and the payload of each attribute in a sequence."""
    last = len(data) - _ATTRIBUTE.size
    while offset <= last:
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        yield kind & _TYPE_MASK, data[offset + 4 : offset + length]
        offset += (length + 3 & ~3) or _ATTRIBUTE.size


def decode_link(body: bytes) -> KernelLink:
    """Decode the reply to :func:`query_link`."""
    _, _, index, flags, _ = _IFINFOMSG.unpack_from(body)
    found = decode_attributes(body, _IFINFOMSG.size)
    peer, namespace = found.get(_IFLA_LINK), found.get(_IFLA_LINK_NETNSID)
    return KernelLink(
        index=index,
        name=found[_IFLA_IFNAME].rstrip(b"\0").decode(),
        alias=found.get(_IFLA_IFALIAS, b"").rstrip(b"\0").decode(errors="replace"),
        mac=found.get(_IFLA_ADDRESS, b"").hex(":"),
        mtu=_number(found[_IFLA_MTU]),
        tx_queues=_number(found[_IFLA_NUM_TX_QUEUES]),
        rx_queues=_number(found[_IFLA_NUM_RX_QUEUES]),
        is_up=bool(flags & _IFF_UP),
        peer=None if peer is None else _number(peer),
        peer_namespace=None if namespace is None else _number(namespace),
    )


def has_mac(body: bytes, mac: str) -> bool:
    """Whether the reply to :func:`query_link` has that MAC; its other 40 attributes are not decoded."""
    return encode_attribute(_IFLA_ADDRESS, _packed_mac(mac)) in body


def decode_namespace_id(body: bytes) -> int:
    """Decode the reply to :func:`query_namespace_id`; negative if the other namespace has no id here."""
    return _number(decode_attributes(body, _RTGENMSG.size)[_NETNSA_NSID])


def decode_route(body: bytes) -> KernelRoute:
    """Decode the reply to :func:`query_route`, or one of the replies to :func:`query_routes`."""
    number, length, _, _, table, *_ = _RTMSG.unpack_from(body)
    family = _FAMILY[number]
    found = decode_attributes(body, _RTMSG.size)
    return KernelRoute(
        destination=Prefix(family, int.from_bytes(found.get(_RTA_DST, b""), "big"), length),
        interface=_number(found[_RTA_OIF]) if _RTA_OIF in found else 0,
        metric=_number(found[_RTA_PRIORITY]) if _RTA_PRIORITY in found else 0,
        table=_number(found[_RTA_TABLE]) if _RTA_TABLE in found else table,
    )


def _number(data: bytes) -> int:
    (number,) = _S32.unpack(data)
    return int(number)


# --- netlink socket --------------------------------------------------------------------------------------------------


_SOL_NETLINK, _CAP_ACK, _EXT_ACK, _STRICT_CHECK = 270, 10, 11, 12
_SO_RECEIVE_BUFFER_FORCE, _ADD_MEMBERSHIP = 33, 1
_DUMP_ATTEMPTS = 3
_MOST_ERRORS_BYTES = 1 << 21  # a refusal of each message of a batch, with what the kernel adds for itself
_HEADER = struct.Struct("=IHHII")
_FLAGS_OFFSET = 6 if sys.byteorder == "little" else 7  # of the byte with the lowest bits
_BOUNDARY = struct.Struct("=IHHII2xH")
_BEGIN, _END = 0x10, 0x11
_ERROR_CODE = struct.Struct("=i")
_TIMEVAL = struct.Struct("@ll")
_ERROR, _DONE = 2, 3
_LAST = (_ERROR, _DONE)
_ACK, _DUMP_INTERRUPTED, _CAPPED, _ACK_TLVS = 0x4, 0x10, 0x100, 0x200
_EXT_ACK_MESSAGE = 1
_SUCCESS = (0, "")
_BUFFER = 1 << 16
_RECEIVE_TIMEOUT_S = 5
_NOTIFICATION_BYTES = 1 << 16


BatchError: TypeAlias = tuple[int, str]
"""Why the kernel refused a message: an error number and the kernel's text, often empty."""

NO_NFTABLES = "the kernel has no nftables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET)"
"""What it means if the kernel does not know a message of nftables."""


class NetlinkProtocol(enum.IntEnum):
    """What a socket is for; the numbers are those of the kernel."""

    ROUTE = 0
    NETFILTER = 12


@frozen
class NetlinkOutcome:
    """The outcome of one message: 0 or an error number, the kernel's text (often empty), and the replies."""

    message: NetlinkMessage
    error: int = 0
    error_text: str = ""
    replies: tuple[bytes, ...] = ()

    @property
    def reply(self) -> bytes:
        """The only reply to a request that has one."""
        return self.replies[0]

    def require_success(self, *tolerated: int) -> NetlinkOutcome:
        """This outcome, if it is a success or has a tolerated error.

        Raises:
            KernelError: any other error.
        """
        if not self.error or self.error in tolerated:
            return self
        text = f" ({self.error_text})" if self.error_text else ""
        raise KernelError(self.message.describe(), os.strerror(self.error) + text)


@define
class NetlinkSocket:
    """A socket, in the namespace in which it was opened."""

    _socket: _socket.socket
    _sequence: int = 0

    @classmethod
    def open(cls, protocol: NetlinkProtocol = NetlinkProtocol.ROUTE) -> NetlinkSocket:
        """A new socket in the calling thread's namespace.

        Raises:
            KernelError: the kernel refuses the socket.
        """
        try:
            raw_socket = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, protocol)
        except OSError as error:
            raise KernelError("opening a netlink socket", os.strerror(error.errno or 0)) from error
        raw_socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, _TIMEVAL.pack(_RECEIVE_TIMEOUT_S, 0))
        # Older kernels do not have these options: extended error texts, and errors without a copy of the request.
        for option in (_EXT_ACK, _CAP_ACK):
            try:
                raw_socket.setsockopt(_SOL_NETLINK, option, 1)
            except OSError:
                continue
        return cls(raw_socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def port(self) -> int:
        """The number by which the kernel knows this socket; what it notifies others of has the number of the cause."""
        _process, *groups = self._socket.getsockname()
        del groups
        return int(_process)

    def prepare_for_many(self) -> None:
        """Let the kernel filter what it lists, and hold its answers to a large batch; older kernels do not filter.

        From now on the socket has a port.
        """
        self._socket.bind((0, 0))
        for level, option, value in (
            (_SOL_NETLINK, _STRICT_CHECK, 1),
            (_socket.SOL_SOCKET, _SO_RECEIVE_BUFFER_FORCE, _MOST_ERRORS_BYTES),
        ):
            try:
                self._socket.setsockopt(level, option, value)
            except OSError:
                continue

    def send_one(self, message: NetlinkMessage) -> NetlinkOutcome:
        """Send one message and wait for its outcome."""
        return self.send((message,))[0]

    def send(self, messages: Sequence[NetlinkMessage], *, subsystem: int | None = None) -> tuple[NetlinkOutcome, ...]:
        """Send a batch and wait for the outcomes; the kernel continues after a message that fails.

        A listing must be the only message of its batch; :meth:`list_all` is for long ones. With ``subsystem``, a number
        of netfilter's, the batch is one transaction: if a message fails, none has an effect.

        Raises:
            DataplaneTimeout: the kernel did not answer within five seconds (normally it answers at once).
            KernelError: the socket failed.
        """
        if not messages:
            return ()
        first = self._sequence + 1
        self._sequence += len(messages)
        data = _encode(messages, first) if subsystem is None else _transaction(messages, first, subsystem)
        try:
            self._socket.send(data)
            return self._collect(messages, first)
        except BlockingIOError:
            raise DataplaneTimeout(messages[-1].describe()) from None
        except OSError as error:
            raise KernelError(messages[-1].describe(), os.strerror(error.errno or 0)) from error

    def reserve_numbers(self, count: int) -> int:
        """The first of so many sequence numbers, for the messages of :meth:`send_many`."""
        first = self._sequence + 1
        self._sequence += count
        return first

    def send_many(self, messages: Sequence[bytes], first: int, operation: str) -> dict[int, BatchError]:
        """Send whole messages in one datagram and wait for the end; the errors, by the positions of the messages.

        They are numbered from ``first`` on, of :meth:`reserve_numbers`. Nothing is made for a message that succeeds,
        unlike in :meth:`send`. ``operation`` is for the error.

        Raises:
            DataplaneTimeout: the kernel did not answer within five seconds.
            KernelError: the socket failed.
        """
        if not messages:
            return {}
        datagram = bytearray().join(messages)
        flags_at = len(datagram) - len(messages[-1]) + _FLAGS_OFFSET
        datagram[flags_at] |= _ACK
        pending = _PendingOutcomes(len(messages), first)
        with _translated(operation):
            self._socket.send(datagram)
            while not pending.are_complete:
                pending.add(self._socket.recv(_BUFFER))
        return {position: error for position, error in pending.errors.items() if error[0]}

    def list_all(
        self, message: NetlinkMessage, decode: Callable[[bytes, int, int], T | None], *tolerated: int
    ) -> list[T]:
        """What a listing has, each message decoded from its place in a datagram: where its body begins and ends.

        A list that changed while the kernel wrote it is read again, at most three times in all. What ``decode`` returns
        None for is left out. A tolerated error ends the list.

        Raises:
            DataplaneTimeout: the kernel did not answer within five seconds.
            KernelError: the kernel refused, the list kept changing, or the socket failed.
        """
        for _ in range(_DUMP_ATTEMPTS):
            self._sequence += 1
            listing = _Listing(self._sequence, decode)
            with _translated(message.describe()):
                self._socket.send(_encode((message,), self._sequence))
                while not listing.is_complete:
                    listing.add(self._socket.recv(_BUFFER))
            if listing.error not in {0, errno.EINTR, *tolerated}:
                raise KernelError(message.describe(), os.strerror(listing.error))
            if not listing.was_interrupted and listing.error != errno.EINTR:
                return listing.found
        raise KernelError(message.describe(), "the list changed while the kernel wrote it, three times")

    def _collect(self, messages: Sequence[NetlinkMessage], first: int) -> tuple[NetlinkOutcome, ...]:
        pending = _PendingOutcomes(len(messages), first)
        while not pending.are_complete:
            pending.add(self._socket.recv(_BUFFER))
        return pending.outcomes(messages)


@define(eq=False)
class NetlinkNotifications:
    """A socket that the kernel notifies of changes, in the namespace in which it was opened.

    One thread waits. It is left, as a context, once that thread waits no more; any thread may close it before.
    """

    _notified: _socket.socket
    _waking: _socket.socket
    _woken: _socket.socket

    @classmethod
    def open(cls, protocol: NetlinkProtocol, groups: Sequence[int], *, buffer_bytes: int) -> NetlinkNotifications:
        """The notifications of some groups from now on, in the calling thread's namespace; older kernels lack some.

        The kernel keeps ``buffer_bytes`` of them; without the right to that, they are lost earlier, which is noticed.

        Raises:
            KernelError: the kernel refuses a socket.
        """
        try:
            flags = _socket.SOCK_RAW | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK
            notified = _socket.socket(_socket.AF_NETLINK, flags, protocol)
        except OSError as error:
            raise KernelError("opening a netlink socket", os.strerror(error.errno or 0)) from error
        notified.bind((0, 0))
        for group in groups:
            with suppress(OSError):
                notified.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        opened = cls(notified, *_socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC))
        opened.set_buffer(buffer_bytes)
        return opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._notified, self._waking, self._woken):
            each.close()

    def set_buffer(self, size: int) -> None:
        """Let the kernel keep that many bytes of notifications."""
        with suppress(OSError):
            self._notified.setsockopt(_socket.SOL_SOCKET, _SO_RECEIVE_BUFFER_FORCE, size)

    def close(self) -> None:
        """End the wait, and each later one."""
        with suppress(OSError):  # it has been left
            self._waking.send(b"\0")

    def wait(self, has_something: Callable[[], bool], *, deadline: Deadline) -> bool:
        """Wait for notifications in which ``has_something`` finds what was waited for; False: deadline, or closed."""
        waiting = select.poll()
        waiting.register(self._woken, select.POLLIN)
        waiting.register(self._notified, select.POLLIN)
        while True:
            ready = dict(waiting.poll(math.ceil(deadline.remaining_s * 1000)))
            if self._woken.fileno() in ready:
                return False  # the byte stays there: whatever waits again ends at once
            if ready and has_something():
                return True
            if deadline.has_passed:
                return False

    def receive(self) -> Iterator[bytes | None]:
        """All datagrams of the kernel that there are; None: it could not deliver some.

        Raises:
            KernelError: there are no notifications.
        """
        while True:
            try:
                datagram, sender = self._notified.recvfrom(_NOTIFICATION_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise KernelError("waiting for notifications of the kernel", error.strerror or "") from error
                yield None
                continue
            if sender[0] == 0:  # other programs may send to the socket, too
                yield datagram


@contextmanager
def _translated(operation: str) -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise DataplaneTimeout(operation) from None
    except OSError as error:
        raise KernelError(operation, os.strerror(error.errno or 0)) from error


@define
class _Listing(Generic[T]):
    """A list as it arrives, in answer to the message with that sequence number."""

    number: int
    decode: Callable[[bytes, int, int], T | None]
    found: list[T] = field(factory=list)
    error: int = 0
    is_complete: bool = False
    was_interrupted: bool = False

    def add(self, datagram: bytes) -> None:
        unpack, decode, append = _HEADER.unpack_from, self.decode, self.found.append
        offset, size = 0, len(datagram)
        while offset < size:
            length, kind, flags, number, _ = unpack(datagram, offset)
            if number == self.number:  # another number: a late answer
                if flags & _DUMP_INTERRUPTED:
                    self.was_interrupted = True
                if kind in _LAST:
                    (code,) = _ERROR_CODE.unpack_from(datagram, offset + 16)
                    self.error, self.is_complete = -code, True
                elif (value := decode(datagram, offset + 16, offset + length)) is not None:
                    append(value)
            offset += length + 3 & ~3 or 16


@define
class _PendingOutcomes:
    """Outcomes that arrive for ``count`` messages; ``first`` is the sequence number of the first one.

    By the positions of the messages: the error number and the kernel's text, and the replies.
    """

    count: int
    first: int
    errors: dict[int, tuple[int, str]] = field(factory=dict)
    replies: dict[int, tuple[bytes, ...]] = field(factory=dict)
    are_complete: bool = False

    def add(self, datagram: bytes) -> None:
        offset = 0
        while offset + _HEADER.size <= len(datagram):
            length, kind, flags, number, _ = _HEADER.unpack_from(datagram, offset)
            position = number - self.first
            # A late answer to an earlier batch has a lower number.
            if 0 <= position < self.count:
                self._note(position, kind, flags, datagram[offset + _HEADER.size : offset + length])
            offset += max(length + 3 & ~3, _HEADER.size)

    def outcomes(self, messages: Sequence[NetlinkMessage]) -> tuple[NetlinkOutcome, ...]:
        """One outcome for each message. No answer is a success: only the last one was asked for an acknowledgement."""
        return tuple(
            [
                NetlinkOutcome(message, *self.errors.get(position, _SUCCESS), self.replies.get(position, ()))
                for position, message in enumerate(messages)
            ]
        )

    def _note(self, position: int, type_: int, flags: int, body: bytes) -> None:
        if type_ in {_ERROR, _DONE}:
            (code,) = _ERROR_CODE.unpack_from(body)
            self.errors[position] = (-code, _extended_ack_text(flags, body) if flags & _ACK_TLVS else "")
            self.are_complete = position == self.count - 1
        else:
            self.replies[position] = (*self.replies.get(position, ()), body)


def _encode(messages: Sequence[NetlinkMessage], first: int) -> bytes:
    batch = bytearray()
    last = len(messages) - 1
    for position, message in enumerate(messages):
        flags = message.flags | (_ACK if position == last else 0)
        batch += _HEADER.pack(_HEADER.size + len(message.body), message.type, flags, first + position, 0)
        batch += message.body
    return bytes(batch)


def _transaction(messages: Sequence[NetlinkMessage], first: int, subsystem: int) -> bytes:
    """The batch between its boundaries. They have the last number: what the kernel says about them is the end of it."""
    last = first + len(messages) - 1
    begin, end = (
        _BOUNDARY.pack(_BOUNDARY.size, kind, _REQUEST, last, 0, _socket.htons(subsystem)) for kind in (_BEGIN, _END)
    )
    return begin + _encode(messages, first) + end


def _extended_ack_text(flags: int, body: bytes) -> str:
    """The kernel's text about an error, which follows the header of the request (or the whole request)."""
    length, *_ = _HEADER.unpack_from(body, _ERROR_CODE.size)
    found = decode_attributes(body, _ERROR_CODE.size + (_HEADER.size if flags & _CAPPED else length))
    return found.get(_EXT_ACK_MESSAGE, b"").rstrip(b"\0").decode(errors="replace")
