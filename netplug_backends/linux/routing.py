"""Programs tunnels and routes between nodes into the kernel, reads what of them is there, and waits for changes.

``routing_messages`` has the messages, ``netlink`` the socket. Devices of others are left alone, whatever their name;
routes and nexthops are netplug's by their protocol.
"""

from __future__ import annotations

import _socket
import errno
import os
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from fcntl import ioctl
from functools import partial
from types import TracebackType
from typing import Final, Generic, Self, TypeVar, assert_never

from attrs import define, field

from netplug_backends.linux import routing_messages as messages
from netplug_backends.linux.addresses import decode_host_address, find_interfaces, list_host_links
from netplug_backends.linux.attachment import choose_index
from netplug_backends.linux.netlink import (
    NetlinkMessage,
    NetlinkNotifications,
    NetlinkProtocol,
    NetlinkSocket,
    iterate_attributes,
    query_link,
)
from netplug_backends.linux.routing_messages import KernelDevice
from netplug_core.addressing import Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import HOST_ROUTE_METRIC
from netplug_core.dataplane.protocol import KernelError, RouteProtocol
from netplug_core.dataplane.routing import (
    ADVERTISED_TABLE,
    CLUSTER_METRIC,
    LINK_MARK,
    MAIN_TABLE,
    TUNNEL_DEVICES,
    Change,
    FailedChange,
    FdbEntry,
    ForeignEntry,
    HostInterface,
    Nexthop,
    Put,
    Remove,
    Route,
    RouteKind,
    RoutingState,
    Tunnel,
    TunnelKind,
    TunnelNeighbour,
    WorkloadRoute,
)
from netplug_core.names import HOST_INTERFACE_PREFIX

__all__ = ["EventFilter", "LinuxKernelEvents", "LinuxRouting"]

E = TypeVar("E")

_BATCH: Final = 800
_NOT_RESTORED: Final = frozenset((errno.EEXIST, errno.ENODEV, errno.ENETDOWN))
_GONE: Final = frozenset((errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.EADDRNOTAVAIL))
# What a kernel answers that has no such table yet, no nexthops (before 5.3) or no IPv6.
_NOTHING_LISTED: Final = (errno.ENOENT, errno.EOPNOTSUPP, errno.EAFNOSUPPORT)
_IFNAME = 3
_IFINFOMSG = struct.Struct("=BxHiII")
_LINK_LOCAL: Final = Prefix.parse("fe80::/10")
# The header of a neighbour and its address and MAC; what follows are ages, which change.
_NEIGHBOUR_SIZE: Final = {Family.IPV4: 12 + 8 + 12, Family.IPV6: 12 + 20 + 12}
_AF = {Family.IPV4: 2, Family.IPV6: 10}

_OWN: Final = RouteProtocol.NETPLUG.value
_GROUPS: Final = (1, 5, 7, 9, 11, 32)  # links, IPv4 addresses and routes, IPv6 addresses and routes, nexthops
_EVENT_BUFFER_BYTES = 1 << 20
_NEWLINK = 16
_LINK_EVENTS, _ADDRESS_EVENTS, _ROUTE_EVENTS, _NEXTHOP_EVENTS = {16, 17}, {20, 21}, {24, 25}, {104, 105}
_HEADER = struct.Struct("=IHHII")
_IFADDRMSG = struct.Struct("=BBBBI")
_RTMSG_SIZE, _RTA_OIF = 12, 4
_ROUTE_PROTOCOL_AT, _NEXTHOP_PROTOCOL_AT = 5, 2

_SIOCETHTOOL, _GET_TX_CHECKSUM, _SET_TX_CHECKSUM = 0x8946, 0x16, 0x17
_IFREQ = struct.Struct("@16sP16x")


@define(eq=False)
class _Decoded(Generic[E]):
    """Entries by the bytes from which they were decoded, so that each is decoded once while it stays as it is."""

    former: dict[bytes, E | None] = field(factory=dict)
    seen: dict[bytes, E | None] = field(factory=dict)

    def begin(self) -> None:
        self.former, self.seen = self.seen, {}

    def decoder(
        self, decode: Callable[[bytes], E | None], size: int | None = None
    ) -> Callable[[bytes, int, int], E | None]:
        """A decoder of messages of which the first ``size`` bytes count, or all."""
        former, seen = self.former, self.seen

        def find(datagram: bytes, start: int, end: int) -> E | None:
            key = datagram[start : end if size is None else start + size]
            try:
                entry = seen[key] = former[key]
            except KeyError:
                entry = seen[key] = decode(key)
            return entry

        return find


@define(eq=False)
class LinuxRouting:
    """The :class:`~netplug_core.dataplane.routing.RoutingDataplane` of the network namespace in which it was opened.

    ``messages_sent`` counts what was sent to change something.
    """

    _kernel: NetlinkSocket
    _control: _socket.socket
    messages_sent: int = field(default=0, init=False)
    _has_asked_offload: set[str] = field(factory=set, init=False)
    _names: dict[int, str] = field(factory=dict, init=False)
    _devices: dict[str, KernelDevice | None] = field(factory=dict, init=False)  # during one call
    _indexes: dict[str, int] = field(factory=dict, init=False)
    _own: dict[str, int] = field(factory=dict, init=False)
    _fdb: _Decoded[FdbEntry] = field(factory=_Decoded[FdbEntry], init=False)
    _neighbours: _Decoded[TunnelNeighbour] = field(factory=_Decoded[TunnelNeighbour], init=False)
    _nexthops: _Decoded[Nexthop] = field(factory=_Decoded[Nexthop], init=False)
    _routes: _Decoded[Route] = field(factory=_Decoded[Route], init=False)

    @classmethod
    def open(cls) -> LinuxRouting:
        """The routing of the calling thread's network namespace.

        Raises:
            KernelError: the kernel refuses a socket.
        """
        kernel = NetlinkSocket.open()
        kernel.prepare_for_many()
        return cls(kernel, _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._control.close()
        self._kernel.__exit__(kind, error, trace)

    @property
    def port(self) -> int:
        """The number that notifications have of changes that this object has made."""
        return self._kernel.port

    # --- reading ---------------------------------------------------------------------------------------------------

    def find_interfaces(self) -> tuple[HostInterface, ...]:
        """All interfaces of the calling thread's network namespace, by their index."""
        return find_interfaces()

    def read(self) -> RoutingState:
        """What exists and is ours."""
        listed = self._kernel.list_all(list_host_links(), _decode_listed_link)
        names = {index: name for index, name, _body in listed}
        found = [messages.decode_device(body) for _index, name, body in listed if name in TUNNEL_DEVICES]
        ours = [device for device in found if device.is_ours]
        for decoded in (self._fdb, self._neighbours, self._nexthops, self._routes):
            decoded.begin()
            if any(names.get(index, name) != name for index, name in self._names.items()):
                decoded.former = {}  # an interface has another name, which is in the entries
        self._names = names
        tunnels = (self._read_tunnel(device, names) for device in ours if device.local is not None)
        routes = [
            route
            for family in Family
            for table in (MAIN_TABLE, ADVERTISED_TABLE)
            for route in self._list(
                messages.list_routes(family, table),
                self._routes,
                lambda body: messages.decode_route(body, names),
            )
            if route.table == table  # a kernel that does not filter lists all tables
        ]
        workloads = [route for route in routes if _is_to_workload(route)]
        indexes = {name: index for index, name in names.items() if name.startswith(HOST_INTERFACE_PREFIX)}
        return RoutingState(
            tunnels=tuple(tunnel for tunnel in tunnels if tunnel is not None),
            fdb=tuple(entry for device in ours for entry in self._list_fdb(device)),
            neighbours=tuple(entry for device in ours for entry in self._list_neighbours(device)),
            nexthops=tuple(
                self._list(messages.list_nexthops(), self._nexthops, lambda body: messages.decode_nexthop(body, names))
            ),
            routes=tuple(route for route in routes if not _is_to_workload(route)) if workloads else tuple(routes),
            workloads=tuple(
                WorkloadRoute(route.destination.first, route.device, indexes.get(route.device, 0))
                for route in workloads
            ),
            host_ends=frozenset(indexes.values()),
            foreign=tuple(ForeignEntry(each.name, _foreign_reason(each)) for each in found if not each.is_ours),
        )

    def _list(
        self,
        message: NetlinkMessage,
        decoded: _Decoded[E],
        decode: Callable[[bytes], E | None],
        size: int | None = None,
    ) -> list[E]:
        return self._kernel.list_all(message, decoded.decoder(decode, size), *_NOTHING_LISTED)

    def _list_fdb(self, device: KernelDevice) -> list[FdbEntry]:
        if device.kind is not TunnelKind.VXLAN or device.local is None:
            return []
        size = _NEIGHBOUR_SIZE[device.local.family]
        message = messages.list_entries(messages.BRIDGE, device.index)
        return self._list(message, self._fdb, lambda body: messages.decode_fdb(body, device.name), size)

    def _list_neighbours(self, device: KernelDevice) -> list[TunnelNeighbour]:
        return [
            entry
            for family in Family
            for entry in self._list(
                messages.list_entries(_AF[family], device.index),
                self._neighbours,
                lambda body: messages.decode_neighbour(body, device.name),
                _NEIGHBOUR_SIZE[family],
            )
        ]

    def _read_tunnel(self, device: KernelDevice, names: dict[int, str]) -> Tunnel | None:
        if device.kind is None or device.local is None or device.is_learning:
            return None
        held = self._list_held(device.index)
        is_alone = len(held) == 1 and held[0].length == held[0].address.family.width
        return Tunnel(
            name=device.name,
            kind=device.kind,
            address=held[0].address if is_alone else None,
            local=device.local,
            mtu=device.mtu,
            is_up=device.is_up,
            parent=names.get(device.parent, ""),
            mac=device.mac if device.kind is TunnelKind.VXLAN else "",
            vni=device.vni,
            port=device.port,
            has_checksum_offload=self._find_offload(device.name) if device.name in self._has_asked_offload else None,
        )

    def _list_held(self, index: int) -> list[InterfaceAddress]:
        """The addresses of a device, without link-local ones."""

        def decode(datagram: bytes, start: int, end: int) -> InterfaceAddress | None:
            found = decode_host_address(datagram[start:end])
            is_other = found is None or found[0] != index or _LINK_LOCAL.contains(found[1].held.address)
            return None if found is None or is_other else found[1].held

        return self._kernel.list_all(messages.list_addresses(index), decode, errno.ENODEV)

    # --- applying --------------------------------------------------------------------------------------------------

    def apply(self, changes: Sequence[Change]) -> tuple[FailedChange, ...]:
        """Make the changes in their order, up to 800 in one datagram."""
        failed: dict[int, KernelError] = {}
        self._forget_devices()
        for start in range(0, len(changes), _BATCH):
            self._apply_part(changes, range(start, min(start + _BATCH, len(changes))), failed)
        return tuple(FailedChange(changes[position], failed[position]) for position in sorted(failed))

    def restore(self, routes: Sequence[WorkloadRoute]) -> tuple[FailedChange, ...]:
        """Make routes to workloads again, by the indexes of their interfaces."""
        if not routes:
            return ()
        first = self._kernel.reserve_numbers(len(routes))
        sent = [messages.create_route(each.route, each.index, number) for number, each in enumerate(routes, first)]
        self.messages_sent += len(sent)
        refused = self._kernel.send_many(sent, first, "restoring routes to workloads")
        return tuple(
            FailedChange(change, KernelError(_operation(change), _reason(error, text)))
            for place, (error, text) in sorted(refused.items())
            for change in (Put(routes[place].route),)
            if error not in _NOT_RESTORED
        )

    def _apply_part(self, changes: Sequence[Change], part: range, failed: dict[int, KernelError]) -> None:
        sent, positions = list[bytes](), list[int]()
        first = self._kernel.reserve_numbers(len(part))
        for position in part:
            change = changes[position]
            try:
                if isinstance(change.entry, Tunnel):
                    self._send(sent, first, positions, changes, failed)
                    sent, positions, first = [], [], self._kernel.reserve_numbers(len(part))
                    self._apply_tunnel(change.entry, change)
                    self._forget_devices()
                    continue
                message = self._encode(change, change.entry, first + len(sent))
            except KernelError as error:
                failed[position] = error
                continue
            if message:
                sent.append(message)
                positions.append(position)
        self._send(sent, first, positions, changes, failed)

    def _send(
        self,
        sent: Sequence[bytes],
        first: int,
        positions: Sequence[int],
        changes: Sequence[Change],
        failed: dict[int, KernelError],
    ) -> None:
        """Send messages, those of the changes at these positions, and note what the kernel refused."""
        self.messages_sent += len(sent)
        for place, (error, text) in self._kernel.send_many(sent, first, "programming routes and tunnels").items():
            change = changes[positions[place]]
            if isinstance(change, Put) or error not in _GONE:
                failed[positions[place]] = KernelError(_operation(change), _reason(error, text))

    def _encode(self, change: Change, entry: FdbEntry | TunnelNeighbour | Nexthop | Route, number: int) -> bytes:
        """The message of a change; empty if what is to be removed is gone with its device."""
        if isinstance(change, Remove):
            return self._encode_removal(change, entry, number)
        match entry:
            case FdbEntry():
                index = self._own.get(entry.device) or self._get_own(entry.device, change)
                return messages.put_fdb(entry, index, number)
            case TunnelNeighbour():
                index = self._own.get(entry.device) or self._get_own(entry.device, change)
                return messages.put_neighbour(entry, index, number)
            case Nexthop():
                index = self._indexes.get(entry.device) or self._get_device(entry.device, change).index
                return messages.put_nexthop(entry, index, number)
            case Route():
                _require_own_metric(entry, change)
                has_device = entry.nexthop is None and entry.kind is RouteKind.UNICAST
                index = self._get_device(entry.device, change).index if has_device else 0
                return messages.put_route(entry, index, number)
            case _:
                assert_never(entry)

    def _encode_removal(
        self, change: Remove, entry: FdbEntry | TunnelNeighbour | Nexthop | Route, number: int
    ) -> bytes:
        match entry:
            case FdbEntry() | TunnelNeighbour():
                device = self._find_device(entry.device)
                if device is None or not device.is_ours:
                    return b""
                return messages.remove_entry(entry, device.index, number)
            case Route():
                _require_own_metric(entry, change)
                return messages.remove_entry(entry, 0, number)
            case Nexthop():
                return messages.remove_entry(entry, 0, number)
            case _:
                assert_never(entry)

    def _forget_devices(self) -> None:
        self._devices, self._indexes, self._own = {}, {}, {}

    def _get_own(self, name: str, change: Change) -> int:
        """The index of a tunnel device of ours."""
        found = self._get_device(name, change)
        if not found.is_ours:
            raise KernelError(_operation(change), f"{name}: {_foreign_reason(found)}")
        self._own[name] = found.index
        return found.index

    def _find_device(self, name: str) -> KernelDevice | None:
        try:
            return self._devices[name]
        except KeyError:
            outcome = self._kernel.send_one(query_link(name)).require_success(errno.ENODEV)
            found = self._devices[name] = None if outcome.error else messages.decode_device(outcome.reply)
            return found

    def _get_device(self, name: str, change: Change) -> KernelDevice:
        found = self._find_device(name) if name else None
        if found is None:
            raise KernelError(_operation(change), f"{name}: {os.strerror(errno.ENODEV)}")
        self._indexes[name] = found.index
        return found

    # --- devices ---------------------------------------------------------------------------------------------------

    def _apply_tunnel(self, tunnel: Tunnel, change: Change) -> None:
        found, operation = self._find_device(tunnel.name), _operation(change)
        if isinstance(change, Remove):
            if found is not None and found.is_ours:
                self._delete(found, operation)
            return
        if found is not None and not found.is_ours:
            raise KernelError(operation, _foreign_reason(found))
        parent = self._get_device(tunnel.parent, change).index if tunnel.kind is TunnelKind.VXLAN else 0
        if found is None or not found.may_become(tunnel, parent):
            if found is not None:
                self._delete(found, operation)
            self._create(tunnel, parent, operation)
            self._forget_devices()
            found = self._get_device(tunnel.name, change)
        self._change_offload(tunnel)
        self._change_in_place(tunnel, found, operation)

    def _create(self, tunnel: Tunnel, parent: int, operation: str) -> None:
        twin = self._find_twin(tunnel)
        if twin:
            raise KernelError(operation, f"{os.strerror(errno.EEXIST)}: {twin} has this VNI and this port")
        first = self._kernel.reserve_numbers(2)
        self._change(messages.create_tunnel(tunnel, choose_index(), parent, first), first, operation)

    def _find_twin(self, tunnel: Tunnel) -> str:
        """The VXLAN device that would receive the same packets; empty if there is none."""
        wanted = (tunnel.kind, tunnel.local.family, tunnel.vni, tunnel.port)
        for _index, name, body in self._kernel.list_all(list_host_links(), _decode_listed_link):
            other = messages.decode_device(body)
            family = Family.IPV4 if other.local is None else other.local.family
            if other.kind is TunnelKind.VXLAN and (other.kind, family, other.vni, other.port) == wanted:
                return name
        return ""

    def _delete(self, device: KernelDevice, operation: str) -> None:
        first = self._kernel.reserve_numbers(1)
        self._change([messages.delete_device(device.index, first)], first, operation, _GONE)

    def _change_in_place(self, tunnel: Tunnel, found: KernelDevice, operation: str) -> None:
        index, wanted = found.index, list[Callable[[int], bytes]]()
        if found.mtu != tunnel.mtu:
            wanted.append(partial(messages.change_mtu, index, tunnel.mtu))
        if tunnel.address is not None:
            own, held = InterfaceAddress(tunnel.address, tunnel.address.family.width), self._list_held(index)
            if own not in held:
                wanted.append(partial(messages.put_address, index, own))
            wanted += [partial(messages.remove_address, index, other) for other in held if other != own]
        if not found.is_up:
            wanted.append(partial(messages.set_up, index))
        first = self._kernel.reserve_numbers(len(wanted))
        self._change([encode(number) for number, encode in enumerate(wanted, first)], first, operation)

    def _change(
        self, wanted: Sequence[bytes], first: int, operation: str, tolerated: frozenset[int] = frozenset()
    ) -> None:
        """Send messages about one device; the first that is refused is the error, and the others are sent too."""
        self.messages_sent += len(wanted)
        errors = self._kernel.send_many(wanted, first, operation)
        for _place, (error, text) in sorted(errors.items()):
            if error not in tolerated:
                raise KernelError(operation, _reason(error, text))

    def _change_offload(self, tunnel: Tunnel) -> None:
        """Whether the device leaves checksums of what it has wrapped to later devices."""
        if tunnel.has_checksum_offload is None:
            self._has_asked_offload.discard(tunnel.name)
            return
        self._has_asked_offload.add(tunnel.name)
        if self._find_offload(tunnel.name) is not tunnel.has_checksum_offload:
            self.messages_sent += 1
            try:
                self._ethtool(tunnel.name, _SET_TX_CHECKSUM, int(tunnel.has_checksum_offload))
            except OSError as error:
                raise KernelError(f"changing the checksum offload of {tunnel.name}", error.strerror or "") from error

    def _find_offload(self, name: str) -> bool | None:
        with suppress(OSError):  # the device may be gone by now
            return bool(self._ethtool(name, _GET_TX_CHECKSUM, 0))
        return None

    def _ethtool(self, name: str, command: int, value: int) -> int:
        buffer = array("I", (command, value))
        address, _length = buffer.buffer_info()
        ioctl(self._control, _SIOCETHTOOL, _IFREQ.pack(name.encode(), address))
        return buffer[1]


def _decode_listed_link(datagram: bytes, start: int, end: int) -> tuple[int, str, bytes]:
    """The index and the name of a listed link, and its message."""
    body = datagram[start:end]
    _, _, index, _, _ = _IFINFOMSG.unpack_from(body)
    name = next((payload for kind, payload in iterate_attributes(body, _IFINFOMSG.size) if kind == _IFNAME), b"")
    return index, name.rstrip(b"\0").decode(errors="replace"), body


def _require_own_metric(route: Route, change: Change) -> None:
    if route.metric == HOST_ROUTE_METRIC:
        raise KernelError(_operation(change), "it has the metric of routes to workloads")


def _operation(change: Change) -> str:
    return f"{'adding' if isinstance(change, Put) else 'removing'} {change.entry}"


def _reason(error: int, text: str) -> str:
    return os.strerror(error) + (f" ({text})" if text else "")


def _is_to_workload(route: Route) -> bool:
    return route.device.startswith(HOST_INTERFACE_PREFIX) and route.metric != CLUSTER_METRIC


def _foreign_reason(device: KernelDevice) -> str:
    return f"another program has made this device: its alias is {device.alias!r}, not {LINK_MARK!r}"


# --- notifications ----------------------------------------------------------------------------------------------------


@define(eq=False)
class EventFilter:
    """Which notifications concern routes between nodes: not those of pods, of other programs' routes, or of our own.

    ``own_port`` is the port of the socket whose changes need no notification. ``host_ends`` are the indexes of the
    interfaces of pods; links that are notified of change them. ``follows_workloads``: what becomes of routes to pods
    counts too; ``follows_links``: what becomes of their interfaces does.
    """

    own_port: int = 0
    host_ends: set[int] = field(factory=set)
    follows_workloads: bool = False
    follows_links: bool = False

    def concerns(self, datagram: bytes) -> bool:
        """Whether a datagram of the kernel has a notification that does."""
        concerned, offset = False, 0
        while offset + _HEADER.size <= len(datagram):
            length, kind, _flags, _number, port = _HEADER.unpack_from(datagram, offset)
            body = datagram[offset + _HEADER.size : offset + length]
            is_own = port != 0 and port == self.own_port
            concerned = (self._concerns(kind, body) and not is_own) or concerned
            offset += max(length + 3 & ~3, _HEADER.size)
        return concerned

    def _concerns(self, kind: int, body: bytes) -> bool:
        if kind in _LINK_EVENTS:
            return self._follow_link(kind, body)
        if kind in _ADDRESS_EVENTS:
            _, _, _, _, index = _IFADDRMSG.unpack_from(body)
            return index not in self.host_ends
        if kind in _ROUTE_EVENTS:
            return body[_ROUTE_PROTOCOL_AT] == _OWN and (self.follows_workloads or self._is_between_nodes(body))
        return kind in _NEXTHOP_EVENTS and body[_NEXTHOP_PROTOCOL_AT] == _OWN

    def _follow_link(self, kind: int, body: bytes) -> bool:
        index, name, _body = _decode_listed_link(body, 0, len(body))
        if not name.startswith(HOST_INTERFACE_PREFIX):
            self.host_ends.discard(index)  # one that was renamed, or a new one with the index
            return True
        if kind == _NEWLINK:
            self.host_ends.add(index)
            return self.follows_links
        self.host_ends.discard(index)
        return self.follows_workloads or self.follows_links

    def _is_between_nodes(self, body: bytes) -> bool:
        interface = next((payload for kind, payload in iterate_attributes(body, _RTMSG_SIZE) if kind == _RTA_OIF), b"")
        return int.from_bytes(interface, sys.byteorder) not in self.host_ends


@define(eq=False)
class LinuxKernelEvents:
    """The :class:`~netplug_core.dataplane.routing.KernelEvents` of the network namespace in which it was opened.

    One thread waits. It is left, as a context, once that thread waits no more.
    """

    _kernel: NetlinkSocket
    _notifications: NetlinkNotifications
    _filter: EventFilter

    @classmethod
    def open(cls, own_port: int = 0, *, follows_links: bool = False) -> LinuxKernelEvents:
        """The notifications of the calling thread's network namespace, from now on.

        What :class:`LinuxRouting` with the port ``own_port`` changes is left out. ``follows_links``: each change of the
        interface of a workload counts too.

        Raises:
            KernelError: the kernel refuses a socket.
        """
        # Kernels before 5.3 have no nexthops.
        notifications = NetlinkNotifications.open(NetlinkProtocol.ROUTE, _GROUPS, buffer_bytes=_EVENT_BUFFER_BYTES)
        events = cls(NetlinkSocket.open(), notifications, EventFilter(own_port, follows_links=follows_links))
        events._list_host_ends()
        return events

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kernel.__exit__(kind, error, trace)
        self._notifications.__exit__(kind, error, trace)

    def wait(self, *, deadline: Deadline) -> bool:
        """Wait for a notification that concerns routes between nodes."""
        return self._notifications.wait(self._receive, deadline=deadline)

    def follow_workloads(self, *, is_asked: bool) -> None:
        """From now on, count routes to workloads of the node too, or no more."""
        self._filter.follows_workloads = is_asked

    def set_buffer(self, size: int) -> None:
        """Let the kernel keep that many bytes of notifications; more are lost, which counts as a change."""
        self._notifications.set_buffer(size)

    def close(self) -> None:
        """End the wait, and each later one."""
        self._notifications.close()

    def _receive(self) -> bool:
        """Take all notifications there are; whether any of them concerns routes between nodes."""
        concerned = False
        for datagram in self._notifications.receive():
            if datagram is None:
                self._list_host_ends()
                concerned = True
            else:
                concerned = self._filter.concerns(datagram) or concerned
        return concerned

    def _list_host_ends(self) -> None:
        links = self._kernel.list_all(list_host_links(), _decode_listed_link)
        self._filter.host_ends = {index for index, name, _body in links if name.startswith(HOST_INTERFACE_PREFIX)}
