"""The interface of who programs routes, tunnels and their neighbours into the kernel of a node, and the values for it.

The engine of routes says what should exist, in these values; a :class:`RoutingDataplane` reads what of it exists, and
makes changes in the order in which it gets them. Each value has a ``key``: of two with one key only one can exist.
``netplug_core.testing.routing_checks`` tests every implementation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final, Protocol, TypeAlias

from attrs import define, field, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import HOST_ROUTE_METRIC
from netplug_core.dataplane.protocol import KernelError

__all__ = [
    "ADVERTISED_TABLE", "BLACKHOLE_METRIC", "CLUSTER_METRIC", "IPIP_DEVICE", "LINK_MARK", "MAIN_TABLE", "NEXTHOP_BASE",
    "NEXTHOP_COUNT", "TUNNEL_DEVICES", "VXLAN_DEVICES", "AddressState", "Change", "Entry", "FailedChange", "FdbEntry",
    "ForeignEntry", "HostAddress", "HostInterface", "KernelEvents", "Nexthop", "NexthopIds", "Put", "Remove", "Route",
    "RouteKind", "RoutingDataplane", "RoutingState", "Tunnel", "TunnelKind", "TunnelNeighbour", "WorkloadRoute",
    "tunnel_gateway",
]  # fmt: skip

MAIN_TABLE: Final = 254
ADVERTISED_TABLE: Final = 7801
"""What this node announces: blackhole routes in a table that no rule looks into. A BGP daemon reads it."""

CLUSTER_METRIC: Final = 20
"""The metric of routes to other nodes: after those of local workloads (10), before those a BGP daemon learned (32)."""

BLACKHOLE_METRIC: Final = 4096
"""The metric of blackholes of own blocks: a packet to a free address must not leave by the default route and loop."""

VXLAN_DEVICES: Final[Mapping[Family, str]] = {Family.IPV4: "vxlan.netplug", Family.IPV6: "vxlan6.netplug"}
IPIP_DEVICE: Final = "ipip.netplug"
TUNNEL_DEVICES: Final = (*VXLAN_DEVICES.values(), IPIP_DEVICE)
"""The names of all tunnel devices. None begins as host ends of workloads do, so no rule for those covers them."""

LINK_MARK: Final = "netplug"
"""The alias of the tunnel devices that are ours."""

NEXTHOP_BASE: Final = 0x4E500000
NEXTHOP_COUNT: Final = 0x100000
"""Our nexthop objects have the ids from the base on."""

_LINK_LOCAL: Final = 0xFE80 << 112


# --- interfaces of the node -------------------------------------------------------------------------------------------


class AddressState(enum.Enum):
    """Whether an address of an interface may be used: not while it is checked for duplicates, nor once it is old."""

    USABLE = "usable"
    TENTATIVE = "tentative"
    DEPRECATED = "deprecated"


@frozen(kw_only=True)
class HostAddress:
    """An address of an interface of the node. ``is_secondary``: the interface has an earlier one of the same prefix."""

    held: InterfaceAddress
    state: AddressState = AddressState.USABLE
    is_secondary: bool = False
    is_global: bool = True


@frozen(kw_only=True)
class HostInterface:
    """An interface of the node."""

    name: str
    index: int
    is_up: bool
    mtu: int
    addresses: tuple[HostAddress, ...] = ()
    alias: str = ""


# --- entries ----------------------------------------------------------------------------------------------------------


class TunnelKind(enum.Enum):
    """How packets between nodes are wrapped."""

    VXLAN = "vxlan"
    IPIP = "ipip"

    __hash__ = object.__hash__  # without a call of the function that enum has


@frozen(kw_only=True)
class Tunnel:
    """A tunnel device, with ``address`` as its only one besides a link-local one.

    A device that is read may be down, or have no address, or another one beside its own: then ``address`` is None. One
    that is wanted is up and has an address. Of two that differ in ``mtu``, ``address``, ``is_up`` or
    ``has_checksum_offload`` only, one becomes the other in place; otherwise the device is made anew, and its FDB
    entries, neighbours, nexthops and routes go with the old one.

    ``local`` is the address of the node that wrapped packets have as their source, on the interface ``parent`` (its
    name; IPIP has none). ``mac``, ``vni`` and ``port`` are those of VXLAN. ``has_checksum_offload``: None leaves what
    the kernel has chosen; it is read as None until this process has asked for something else.
    """

    name: str
    kind: TunnelKind
    address: Address | None
    local: Address
    mtu: int
    is_up: bool = True
    parent: str = ""
    mac: str = ""
    vni: int = 0
    port: int = 0
    has_checksum_offload: bool | None = None

    @property
    def key(self) -> str:
        """The name: there is one device of a name."""
        return self.name

    def __str__(self) -> str:
        return f"the {self.kind.value} device {self.name}"


@frozen
class FdbEntry:
    """A permanent entry of the forwarding database of a VXLAN device: behind which node a MAC is."""

    device: str
    mac: str
    node_address: Address

    @property
    def key(self) -> tuple[str, str]:
        """The device and the MAC."""
        return self.device, self.mac

    def __str__(self) -> str:
        return f"the FDB entry of {self.device}: {self.mac} at {self.node_address}"


@frozen
class TunnelNeighbour:
    """A permanent neighbour on a tunnel device: the MAC behind the tunnel address of another node."""

    device: str
    address: Address
    mac: str

    @property
    def key(self) -> tuple[str, Address]:
        """The device and the address."""
        return self.device, self.address

    def __str__(self) -> str:
        return f"the neighbour {self.address} at {self.mac} on {self.device}"


@frozen
class Nexthop:
    """A nexthop object: routes name it by its id, so that a change of a gateway is one message, however many use it.

    ``is_onlink``: the gateway is on the device even if no prefix of the device says so. The kernel refuses that for an
    IPv6 gateway to which a route leads over another device, unless it is the default route; :func:`tunnel_gateway` has
    one that it never refuses.
    """

    id: int
    device: str
    gateway: Address
    is_onlink: bool

    @property
    def key(self) -> int:
        """The id."""
        return self.id

    def __str__(self) -> str:
        return f"nexthop {self.id}: {self.gateway} over {self.device}"


def tunnel_gateway(address: Address, mac: str) -> Address:
    """The gateway, and the neighbour, for what lies behind a node, by its tunnel address and its MAC on a VXLAN device.

    For IPv4 it is the tunnel address, on the link. For IPv6 it is the link-local address of the MAC, which is always on
    the link, whatever other routes there are; the neighbour is permanent, so that nothing asks whether the node has it.
    """
    if address.family is Family.IPV4:
        return address
    bits = int(mac.replace(":", ""), 16) ^ 1 << 41  # RFC 4291, appendix A
    return Address(Family.IPV6, _LINK_LOCAL | (bits >> 24) << 40 | 0xFFFE << 24 | bits & 0xFFFFFF)


class RouteKind(enum.Enum):
    """What happens to a packet: it is sent on, or dropped without an answer."""

    UNICAST = "unicast"
    BLACKHOLE = "blackhole"


@frozen(kw_only=True)
class Route:
    """A route. One that is unicast has a ``nexthop``, or else a ``device`` and perhaps a ``gateway``.

    ``source`` is the address that packets of the node itself have (None: the kernel chooses); ``mtu`` 0 is that of the
    device. With a nexthop the device is that of the nexthop, and ``device`` is empty.
    """

    destination: Prefix
    table: int = MAIN_TABLE
    metric: int = CLUSTER_METRIC
    kind: RouteKind = RouteKind.UNICAST
    nexthop: int | None = None
    device: str = ""
    gateway: Address | None = None
    is_onlink: bool = False
    source: Address | None = None
    mtu: int = 0

    @property
    def key(self) -> tuple[int, Prefix, int]:
        """Table, destination and metric."""
        return self.table, self.destination, self.metric

    def __str__(self) -> str:
        where = "" if self.table == MAIN_TABLE else f" of table {self.table}"
        if self.kind is RouteKind.BLACKHOLE:
            return f"the blackhole {self.destination}{where}"
        via = f" by nexthop {self.nexthop}" if self.nexthop is not None else f" via {self.gateway or 'the link'}"
        over = f" over {self.device}" if self.device else ""
        return f"the route to {self.destination}{via}{over}{where}"


Entry: TypeAlias = Tunnel | FdbEntry | TunnelNeighbour | Nexthop | Route
"""What is programmed, one after the other."""


# --- ids of nexthops --------------------------------------------------------------------------------------------------


@define(eq=False)
class NexthopIds:
    """The ids of nexthop objects, by node, device and family. One that the kernel has for the same way is kept."""

    _ids: dict[tuple[str, Family], dict[str, int]] = field(factory=dict, init=False)  # by device and family, then node
    _known: dict[tuple[str, Address], int] = field(factory=dict, init=False)  # those found in the kernel
    _taken: dict[int, None] = field(factory=dict, init=False)  # a set of so many has more than three times the size
    _next: int = field(default=NEXTHOP_BASE, init=False)

    def adopt(self, found: Iterable[Nexthop]) -> None:
        """Use the ids of nexthops that a former process has made."""
        for each in found:
            if each.id not in self._taken:
                self._known[each.device, each.gateway] = each.id
                self._taken[each.id] = None

    def find(self, node: str, device: str, gateway: Address) -> int:
        """The id for the way to a node."""
        ids = self._ids.setdefault((device, gateway.family), {})
        found = ids.get(node)
        if found is None:
            known = self._known.pop((device, gateway), None)
            found = ids[node] = self._new() if known is None else known
        return found

    def forget(self, node: str, devices: Iterable[str]) -> None:
        """A node is gone. Its ids are given to others only when the whole range was."""
        for way in product(devices, Family):
            self._taken.pop(self._ids.get(way, {}).pop(node, 0), None)

    def _new(self) -> int:
        while self._next in self._taken:
            self._advance()
        found = self._next
        self._taken[found] = None
        self._advance()
        return found

    def _advance(self) -> None:
        self._next = NEXTHOP_BASE + (self._next + 1 - NEXTHOP_BASE) % NEXTHOP_COUNT


# --- changes ----------------------------------------------------------------------------------------------------------


@frozen
class Put:
    """Make an entry, or replace the one with its key; nothing is missing in between unless a device is made anew."""

    entry: Entry


@frozen
class Remove:
    """Remove an entry; that it is gone already is no error."""

    entry: Entry


Change: TypeAlias = Put | Remove


@frozen
class FailedChange:
    """A change that the kernel refused, with its error."""

    change: Change
    error: KernelError

    def __str__(self) -> str:
        return f"{self.change.entry}: {self.error}"


# --- what is read -----------------------------------------------------------------------------------------------------


@frozen
class ForeignEntry:
    """Something of others where something of ours is to be; it is left alone. ``reason`` is a sentence."""

    name: str
    reason: str


@frozen(kw_only=True)
class RoutingState:
    """What exists and is ours.

    - a tunnel: a device with a name of :data:`TUNNEL_DEVICES` and the alias :data:`LINK_MARK`
    - FDB entries and neighbours: permanent ones on our tunnel devices
    - nexthops: of protocol 78 and with an id of ours; routes: of protocol 78, not those to workloads (they have
      :data:`~netplug_core.dataplane.plan.HOST_ROUTE_METRIC`), in the main table and in :data:`ADVERTISED_TABLE`

    ``workloads`` are the routes to workloads of the node, ``host_ends`` the indexes of their interfaces that exist.
    ``foreign`` are devices with such a name and another alias. A device of ours whose kind is none of
    :class:`TunnelKind`, or that learns addresses, is not listed: it is made anew when the tunnel is put.
    """

    tunnels: tuple[Tunnel, ...] = ()
    fdb: tuple[FdbEntry, ...] = ()
    neighbours: tuple[TunnelNeighbour, ...] = ()
    nexthops: tuple[Nexthop, ...] = ()
    routes: tuple[Route, ...] = ()
    workloads: tuple[WorkloadRoute, ...] = ()
    host_ends: frozenset[int] = frozenset()
    foreign: tuple[ForeignEntry, ...] = ()


@frozen(order=True)
class WorkloadRoute:
    """The route that the plugin has made to an address of a workload, over its host end.

    ``index`` is that of the interface: one that is made anew has the same name and may have another address.
    """

    address: Address
    device: str
    index: int

    @property
    def route(self) -> Route:
        """What it is in the kernel."""
        return Route(destination=self.address.host_prefix, device=self.device, metric=HOST_ROUTE_METRIC)


class RoutingDataplane(Protocol):
    """Who programs tunnels and routes between nodes. One thread calls it."""

    def find_interfaces(self) -> tuple[HostInterface, ...]:
        """All interfaces of the node, by their index.

        Raises:
            KernelError: the kernel would not say.
        """
        ...

    def read(self) -> RoutingState:
        """What exists and is ours.

        Raises:
            KernelError: the kernel would not say.
        """
        ...

    def apply(self, changes: Sequence[Change]) -> tuple[FailedChange, ...]:
        """Make changes in their order; return those that failed. The others are made all the same.

        What is as it should be may be put again; for a tunnel nothing is sent then. A put replaces what others have
        made with that key, except a device, which fails. A removal leaves what others have made.

        The kernel removes more than it is asked to: with a device everything over it; with a nexthop its routes; with
        a device that goes down its neighbours, nexthops and routes, and IPv6 addresses. With the MTU of a device it
        changes those of IPv6 routes over it. A caller that has put a tunnel or removed a nexthop in use reads again.

        Raises:
            KernelError: nothing could be sent.
        """
        ...

    def restore(self, routes: Sequence[WorkloadRoute]) -> tuple[FailedChange, ...]:
        """Make routes to workloads again that were there; return those that the kernel refuses.

        One whose interface is gone or down, or whose destination has a route of that metric, is left out.

        Raises:
            KernelError: nothing could be sent.
        """
        ...


class KernelEvents(Protocol):
    """Notifications of the kernel."""

    def wait(self, *, deadline: Deadline) -> bool:
        """Wait until interfaces or addresses of the node have changed, or a route or nexthop of ours.

        Return whether anything has; False: the deadline has passed, or another thread called ``close``. Notifications
        that the kernel could not deliver count as a change. What comes at once is one change.

        Raises:
            KernelError: there are no notifications.
        """
        ...

    def follow_workloads(self, *, is_asked: bool) -> None:
        """From now on, count routes to workloads of the node too, or no more; any thread may call it."""
        ...

    def close(self) -> None:
        """End a wait; any thread may call it."""
        ...
