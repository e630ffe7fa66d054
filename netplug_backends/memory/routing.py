"""Routes and tunnels in memory: the strict fake of who programs the kernel of a node.

Tests of the engine of routes use it in place of a node. It refuses what the kernel refuses, and forgets what the kernel
forgets. A test adds interfaces (:meth:`MemoryRouting.add_interface`), and changes things as another program would. A
function given as ``before_change`` or ``before_read`` is called before each of these and may raise: a ``KernelError``
stands for a kernel that refuses, an exception that is not an :class:`Exception` for a process that dies there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, TypeVar, assert_never

from attrs import define, evolve, field

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import HOST_ROUTE_METRIC
from netplug_core.dataplane.protocol import KernelError, RouteProtocol
from netplug_core.dataplane.routing import (
    CLUSTER_METRIC,
    LINK_MARK,
    MAIN_TABLE,
    NEXTHOP_BASE,
    NEXTHOP_COUNT,
    TUNNEL_DEVICES,
    Change,
    Entry,
    FailedChange,
    FdbEntry,
    ForeignEntry,
    HostAddress,
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

__all__ = ["MemoryKernelEvents", "MemoryRouting"]

K = TypeVar("K")
V = TypeVar("V")

_OWN: Final = RouteProtocol.NETPLUG.value
_VXLAN_OVERHEAD: Final = {Family.IPV4: 50, Family.IPV6: 70}
_LINK_LOCAL: Final = Prefix.parse("fe80::/10")


@define(eq=False)
class MemoryKernelEvents:
    """Notifications of a kernel in memory; ``notify`` is what a change calls."""

    _condition: threading.Condition = field(factory=threading.Condition, init=False)
    _has_changed: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)

    def wait(self, *, deadline: Deadline) -> bool:
        """Wait for a change, the deadline or ``close``."""
        with self._condition:
            self._condition.wait_for(lambda: self._has_changed or self._is_closed, timeout=deadline.remaining_s)
            has_changed, self._has_changed = self._has_changed, False
            return has_changed and not self._is_closed

    def follow_workloads(self, *, is_asked: bool) -> None:
        """All changes are notified of anyway."""
        del is_asked

    def notify(self) -> None:
        """Something has changed."""
        with self._condition:
            self._has_changed = True
            self._condition.notify_all()

    def close(self) -> None:
        """End the wait."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()


@define(eq=False)
class _Link:
    """An interface; ``made_as`` is what a tunnel was made with, and ``has_asked`` whether offload was asked for."""

    interface: HostInterface
    made_as: Tunnel | None = None
    has_offload: bool = True
    has_asked: bool = False

    @property
    def is_ours(self) -> bool:
        return self.interface.name in TUNNEL_DEVICES and self.interface.alias == LINK_MARK

    @property
    def held(self) -> tuple[InterfaceAddress, ...]:
        """The addresses, without link-local ones."""
        held = (address.held for address in self.interface.addresses)
        return tuple(each for each in held if not _LINK_LOCAL.contains(each.address))

    def read(self, made_as: Tunnel) -> Tunnel:
        is_alone = len(self.held) == 1 and self.held[0].length == self.held[0].address.family.width
        return evolve(
            made_as,
            address=self.held[0].address if is_alone else None,
            mtu=self.interface.mtu,
            is_up=self.interface.is_up,
            has_checksum_offload=self.has_offload if self.has_asked else None,
        )


def _is_to_workload(route: Route) -> bool:
    return route.device.startswith(HOST_INTERFACE_PREFIX) and route.metric != CLUSTER_METRIC


def _no_script(change: Change) -> None:
    del change


def _no_read_script() -> None:
    return


@define(eq=False)
class MemoryRouting:
    """The :class:`~netplug_core.dataplane.routing.RoutingDataplane` without a kernel.

    ``messages`` counts what was sent to change something. ``has_ipip``: whether the kernel has IPIP devices.
    """

    before_change: Callable[[Change], None] = _no_script
    before_read: Callable[[], None] = _no_read_script
    has_ipip: bool = True
    messages: int = 0
    events: MemoryKernelEvents = field(factory=MemoryKernelEvents)
    _links: dict[str, _Link] = field(factory=dict, init=False)
    _fdb: dict[tuple[str, str], FdbEntry] = field(factory=dict, init=False)
    _neighbours: dict[tuple[str, Address], TunnelNeighbour] = field(factory=dict, init=False)
    _nexthops: dict[int, tuple[Nexthop, int]] = field(factory=dict, init=False)  # with their protocols
    _routes: dict[tuple[int, Prefix, int], tuple[Route, int]] = field(factory=dict, init=False)
    _indexes: count[int] = field(factory=lambda: count(1), init=False)

    # --- the dataplane ---------------------------------------------------------------------------------------------

    def find_interfaces(self) -> tuple[HostInterface, ...]:
        """All interfaces, by their index."""
        self.before_read()
        return tuple(sorted((link.interface for link in self._links.values()), key=lambda found: found.index))

    def read(self) -> RoutingState:
        """What exists and is ours."""
        self.before_read()
        ours = {name for name, link in self._links.items() if link.is_ours}
        foreign = (name for name in self._links if name in TUNNEL_DEVICES and name not in ours)
        return RoutingState(
            tunnels=tuple(
                link.read(link.made_as) for link in self._links.values() if link.is_ours and link.made_as is not None
            ),
            fdb=tuple(entry for entry in self._fdb.values() if entry.device in ours),
            neighbours=tuple(entry for entry in self._neighbours.values() if entry.device in ours),
            nexthops=tuple(
                entry
                for entry, protocol in self._nexthops.values()
                if protocol == _OWN and NEXTHOP_BASE <= entry.id < NEXTHOP_BASE + NEXTHOP_COUNT
            ),
            routes=tuple(
                route for route, protocol in self._routes.values() if protocol == _OWN and not _is_to_workload(route)
            ),
            workloads=tuple(
                WorkloadRoute(route.destination.first, route.device, self._get_link(route.device).interface.index)
                for route, protocol in self._routes.values()
                if protocol == _OWN and _is_to_workload(route)
            ),
            host_ends=frozenset(
                link.interface.index for name, link in self._links.items() if name.startswith(HOST_INTERFACE_PREFIX)
            ),
            foreign=tuple(ForeignEntry(name, _foreign_reason(self._links[name].interface)) for name in foreign),
        )

    def apply(self, changes: Sequence[Change]) -> tuple[FailedChange, ...]:
        """Make the changes in their order."""
        failed = []
        for change in changes:
            try:
                self.before_change(change)
                self._make(change)
            except KernelError as error:
                failed.append(FailedChange(change, error))
        return tuple(failed)

    def restore(self, routes: Sequence[WorkloadRoute]) -> tuple[FailedChange, ...]:
        """Make routes to workloads again, by the indexes of their interfaces."""
        failed = []
        names = {link.interface.index: name for name, link in self._links.items() if link.interface.is_up}
        for each in routes:
            self.messages += 1
            change = Put(each.route)
            try:
                self.before_change(change)
            except KernelError as error:
                failed.append(FailedChange(change, error))
                continue
            if names.get(each.index) == each.device:
                self._routes.setdefault(each.route.key, (each.route, _OWN))
        return tuple(failed)

    # --- what a user or another program does -----------------------------------------------------------------------

    def add_interface(self, name: str, *addresses: str, mtu: int = 1500, alias: str = "") -> HostInterface:
        """Make an interface, up, with these addresses (``10.0.0.1/24``), or give one that exists new ones."""
        held = tuple(HostAddress(held=InterfaceAddress.parse(text)) for text in addresses)
        known = self._links.get(name)
        index = next(self._indexes) if known is None else known.interface.index
        made = HostInterface(name=name, index=index, is_up=True, mtu=mtu, addresses=held, alias=alias)
        self.change_interface(made)
        return made

    def add_foreign_tunnel(self, tunnel: Tunnel) -> None:
        """Make a tunnel device as another program does: without netplug's alias, without an address."""
        interface = self.add_interface(tunnel.name, mtu=tunnel.mtu)
        self._links[tunnel.name] = _Link(interface, tunnel)

    def change_interface(self, interface: HostInterface) -> None:
        """Let an interface be like this; there is none of its name, or one with its index."""
        link = self._links.setdefault(interface.name, _Link(interface))
        former, link.interface = link.interface, evolve(interface, mtu=link.interface.mtu)
        self._set_mtu(link, interface.mtu)
        self._forget_sources({each.held.address for each in former.addresses})
        if former.is_up and not interface.is_up:
            self._forget_over_down_link(link)
        self.events.notify()

    def set_up(self, name: str) -> None:
        """Bring an interface up."""
        self.change_interface(evolve(self._get_link(name).interface, is_up=True))

    def set_down(self, name: str) -> None:
        """Take an interface down: everything over it goes, except IPv4 addresses and FDB entries."""
        self.change_interface(evolve(self._get_link(name).interface, is_up=False))

    def delete_interface(self, name: str) -> None:
        """Delete an interface with everything over it, and the tunnels whose parent it is."""
        self._delete_link(name)
        self.events.notify()

    def put_by_hand(
        self, entry: FdbEntry | TunnelNeighbour | Nexthop | Route, protocol: int = RouteProtocol.NETPLUG.value
    ) -> None:
        """Make an entry as another program does: with any protocol, and for any device."""
        match entry:
            case FdbEntry():
                self._fdb[entry.key] = entry
            case TunnelNeighbour():
                self._neighbours[entry.key] = entry
            case Nexthop():
                self._nexthops[entry.key] = entry, protocol
            case Route():
                self._routes[entry.key] = entry, protocol
            case _:
                assert_never(entry)
        self.events.notify()

    def remove_by_hand(self, entry: FdbEntry | TunnelNeighbour | Nexthop | Route) -> None:
        """Remove the entry with that key as another program does, whatever its protocol."""
        match entry:
            case FdbEntry():
                self._fdb.pop(entry.key, None)
            case TunnelNeighbour():
                self._neighbours.pop(entry.key, None)
            case Nexthop():
                self._delete_nexthop(entry.key)
            case Route():
                self._routes.pop(entry.key, None)
            case _:
                assert_never(entry)
        self.events.notify()

    def foreign_routes(self) -> frozenset[Route]:
        """The routes that are not netplug's, and those of workloads."""
        ours = set(self.read().routes)
        return frozenset(route for route, _protocol in self._routes.values() if route not in ours)

    # --- what the kernel does and refuses --------------------------------------------------------------------------

    def _make(self, change: Change) -> None:
        if not isinstance(change.entry, Tunnel):
            self.messages += 1
        match change:
            case Put(entry):
                self._put(entry)
            case Remove(entry):
                self._remove(entry)
            case _:
                assert_never(change)

    def _put(self, entry: Entry) -> None:
        operation = f"adding {entry}"
        match entry:
            case Tunnel():
                self._put_tunnel(entry)
            case FdbEntry():
                link = self._get_own_tunnel(entry.device, operation)
                if link.made_as is not None and link.made_as.local.family is not entry.node_address.family:
                    raise KernelError(operation, "Address family not supported by protocol")
                self._fdb[entry.key] = entry
            case TunnelNeighbour():
                self._get_own_tunnel(entry.device, operation)
                self._neighbours[entry.key] = entry
            case Nexthop():
                self._require_reachable(entry.device, entry.gateway, is_onlink=entry.is_onlink, operation=operation)
                self._nexthops[entry.key] = entry, _OWN
            case Route():
                self._require_possible(entry, operation)
                self._routes[entry.key] = entry, _OWN
            case _:
                assert_never(entry)

    def _remove(self, entry: Entry) -> None:
        match entry:
            case Tunnel():
                link = self._links.get(entry.name)
                if link is not None and link.is_ours:
                    self.messages += 1
                    self._delete_link(entry.name)
            case FdbEntry():
                self._remove_over_own_tunnel(self._fdb, entry.key)
            case TunnelNeighbour():
                self._remove_over_own_tunnel(self._neighbours, entry.key)
            case Nexthop():
                self._delete_nexthop(entry.id)
            case Route():
                if entry.metric == HOST_ROUTE_METRIC:
                    raise KernelError(f"removing {entry}", "it has the metric of routes to workloads")
                _route, protocol = self._routes.get(entry.key, (entry, _OWN))
                if protocol == _OWN:
                    self._routes.pop(entry.key, None)
            case _:
                assert_never(entry)

    def _remove_over_own_tunnel(self, held: dict[tuple[str, K], V], key: tuple[str, K]) -> None:
        link = self._links.get(key[0])
        if link is not None and link.is_ours:
            held.pop(key, None)

    def _put_tunnel(self, tunnel: Tunnel) -> None:
        operation = f"making {tunnel}"
        link = self._links.get(tunnel.name)
        if link is not None and not link.is_ours:
            raise KernelError(operation, _foreign_reason(link.interface))
        if link is None or link.made_as is None or _identity(link.made_as) != _identity(tunnel):
            self._require_room(tunnel, operation)
            if link is not None:
                self._delete_link(tunnel.name)
            self.messages += 1
            made = HostInterface(name=tunnel.name, index=next(self._indexes), is_up=False, mtu=68, alias=LINK_MARK)
            link = self._links[tunnel.name] = _Link(made, tunnel)
        self._change_tunnel(link, tunnel, operation)

    def _require_room(self, tunnel: Tunnel, operation: str) -> None:
        if tunnel.kind is TunnelKind.IPIP:
            if not self.has_ipip:
                raise KernelError(operation, "Operation not supported (Unknown device type)")
            return
        if tunnel.parent not in self._links:
            raise KernelError(operation, f"{tunnel.parent}: No such device")
        for name, link in self._links.items():
            other = link.made_as
            if name != tunnel.name and other is not None and _wire(other) == _wire(tunnel):
                raise KernelError(operation, f"File exists: {name} has this VNI and this port")

    def _change_tunnel(self, link: _Link, tunnel: Tunnel, operation: str) -> None:
        found, is_possible = link.interface, tunnel.mtu <= self._largest_mtu(tunnel)
        self.messages += tunnel.mtu != found.mtu
        if is_possible and tunnel.mtu != found.mtu:
            self._set_mtu(link, tunnel.mtu)
        wanted = None if tunnel.address is None else InterfaceAddress(tunnel.address, tunnel.address.family.width)
        if wanted is not None and link.held != (wanted,):
            self.messages += 1
            kept = tuple(each for each in found.addresses if _LINK_LOCAL.contains(each.held.address))
            gone = {each.address for each in link.held}
            link.interface = evolve(link.interface, addresses=(*kept, HostAddress(held=wanted)))
            self._forget_sources(gone)
        if tunnel.has_checksum_offload not in {None, link.has_offload}:
            self.messages += 1
            link.has_offload = bool(tunnel.has_checksum_offload)
        link.has_asked = tunnel.has_checksum_offload is not None
        if not found.is_up:
            self.messages += 1
            link.interface = evolve(link.interface, is_up=True)
        if not is_possible:
            raise KernelError(operation, f"an MTU of {tunnel.mtu}: Invalid argument")

    def _set_mtu(self, link: _Link, mtu: int) -> None:
        """IPv6 routes over the device that had its MTU, or that have more than its new one, get the new one."""
        name, former, link.interface = link.interface.name, link.interface.mtu, evolve(link.interface, mtu=mtu)
        for key, (route, protocol) in self._routes.items():
            has_other = bool(route.mtu) and (route.mtu >= mtu or route.mtu == former)
            if has_other and route.destination.family is Family.IPV6 and self._device_of(route) == name:
                self._routes[key] = evolve(route, mtu=mtu), protocol

    def _device_of(self, route: Route) -> str:
        nexthop, _protocol = self._nexthops.get(route.nexthop or 0, (None, _OWN))
        return route.device if nexthop is None else nexthop.device

    def _largest_mtu(self, tunnel: Tunnel) -> int:
        if tunnel.kind is TunnelKind.IPIP:
            return 0xFFF8 - 20
        return self._links[tunnel.parent].interface.mtu - _VXLAN_OVERHEAD[tunnel.local.family]

    def _require_possible(self, route: Route, operation: str) -> None:
        if route.metric == HOST_ROUTE_METRIC:
            raise KernelError(operation, "it has the metric of routes to workloads")
        if route.source is not None and not self._has_address(route.source):
            raise KernelError(operation, "Invalid argument (Invalid prefsrc address)")
        if route.kind is RouteKind.BLACKHOLE:
            return
        if route.nexthop is None:
            self._require_reachable(route.device, route.gateway, is_onlink=route.is_onlink, operation=operation)
            return
        nexthop, _protocol = self._nexthops.get(route.nexthop, (None, _OWN))
        if nexthop is None:
            raise KernelError(operation, "Invalid argument (Nexthop id does not exist)")
        if route.destination.family is Family.IPV6 and nexthop.gateway.family is Family.IPV4:
            raise KernelError(operation, "Invalid argument (IPv6 routes can not use an IPv4 nexthop)")

    def _require_reachable(self, device: str, gateway: Address | None, *, is_onlink: bool, operation: str) -> None:
        link = self._links.get(device)
        if link is None:
            raise KernelError(operation, f"{device}: No such device")
        if not link.interface.is_up:
            raise KernelError(operation, "Network is down (Nexthop device is not up)")
        if is_onlink and gateway is not None and self._leads_elsewhere(gateway, device):
            raise KernelError(operation, "Invalid argument (Nexthop has invalid gateway or device mismatch)")
        if gateway is None or is_onlink:
            return
        held = (address.held for address in link.interface.addresses)
        on_link = (each.prefix.contains(gateway) and each.address != gateway for each in held)
        if not any(on_link) and not _LINK_LOCAL.contains(gateway):
            raise KernelError(operation, "Network is unreachable (Nexthop has invalid gateway)")

    def _leads_elsewhere(self, gateway: Address, device: str) -> bool:
        """Whether an IPv6 gateway has a route over another device, other than the default one."""
        if gateway.family is Family.IPV4:
            return False
        found = [
            (route.destination.length, -route.metric, route.kind is RouteKind.UNICAST, self._device_of(route))
            for route, _protocol in self._routes.values()
            if route.table == MAIN_TABLE and route.destination.contains(gateway) and route.destination.base
        ]
        found += [
            (held.held.length, 0, True, name)
            for name, link in self._links.items()
            for held in link.interface.addresses
            if link.interface.is_up and held.held.prefix.contains(gateway)
        ]
        _length, _metric, is_unicast, over = max(found, default=(0, 0, False, ""))
        return is_unicast and over != device

    def _has_address(self, address: Address) -> bool:
        return any(held.held.address == address for link in self._links.values() for held in link.interface.addresses)

    def _get_own_tunnel(self, name: str, operation: str) -> _Link:
        link = self._links.get(name)
        if link is None:
            raise KernelError(operation, f"{name}: No such device")
        if not link.is_ours:
            raise KernelError(operation, _foreign_reason(link.interface))
        return link

    def _get_link(self, name: str) -> _Link:
        if name not in self._links:
            raise KernelError(f"looking for {name!r}", "No such device")
        return self._links[name]

    def _delete_link(self, name: str) -> None:
        link = self._get_link(name)
        over = [
            other for other, each in self._links.items() if each.made_as is not None and each.made_as.parent == name
        ]
        self._forget_over_down_link(link)
        del self._links[name]
        self._forget_sources({each.held.address for each in link.interface.addresses})
        self._fdb = {key: entry for key, entry in self._fdb.items() if entry.device != name}
        for other in over:
            self._delete_link(other)

    def _delete_nexthop(self, number: int) -> None:
        self._nexthops.pop(number, None)
        self._routes = {key: held for key, held in self._routes.items() if held[0].nexthop != number}

    def _forget_over_down_link(self, link: _Link) -> None:
        """What the kernel forgets, without a notification for each, when an interface goes down."""
        name, addresses = link.interface.name, link.interface.addresses
        kept = tuple(each for each in addresses if each.held.address.family is Family.IPV4)
        link.interface = evolve(link.interface, addresses=kept, is_up=False)
        self._forget_sources({each.held.address for each in addresses if each not in kept})
        self._neighbours = {key: entry for key, entry in self._neighbours.items() if entry.device != name}
        for number in [number for number, (entry, _protocol) in self._nexthops.items() if entry.device == name]:
            self._delete_nexthop(number)
        self._routes = {key: held for key, held in self._routes.items() if held[0].device != name}

    def _forget_sources(self, gone: set[Address]) -> None:
        """IPv4 routes go with the address that they have as source; IPv6 routes lose the source."""
        lost = {address for address in gone if not self._has_address(address)}
        for key, (route, protocol) in tuple(self._routes.items()):
            if route.source in lost and route.destination.family is Family.IPV4:
                del self._routes[key]
            elif route.source in lost:
                self._routes[key] = evolve(route, source=None), protocol


def _identity(tunnel: Tunnel) -> Tunnel:
    """What cannot be changed in place."""
    return evolve(tunnel, address=None, mtu=0, is_up=True, has_checksum_offload=None)


def _wire(tunnel: Tunnel) -> tuple[TunnelKind, Family, int, int]:
    """By what the kernel finds the device of a packet that arrives."""
    return tunnel.kind, tunnel.local.family, tunnel.vni, tunnel.port


def _foreign_reason(interface: HostInterface) -> str:
    return f"another program has made this device: its alias is {interface.alias!r}, not {LINK_MARK!r}"
