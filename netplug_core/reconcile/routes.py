"""The routes between nodes: what a node has to program so that packets reach the pods of other nodes.

:class:`RouteEngine` follows what a node knows, its :class:`~netplug_core.reconcile.route_inputs.RouteInputs`. Each
block and each node contributes entries for the kernel; the union of them is what should exist. A change of one block or
node costs its own part only, however many there are, and the result does not depend on the order of the changes.

``netplug_cli.node.routing`` applies its changes to the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, TypeAlias, assert_never

from attrs import define, field, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.routing import (
    ADVERTISED_TABLE,
    BLACKHOLE_METRIC,
    IPIP_DEVICE,
    TUNNEL_DEVICES,
    VXLAN_DEVICES,
    Change,
    Entry,
    FailedChange,
    FdbEntry,
    Nexthop,
    NexthopIds,
    Put,
    Remove,
    Route,
    RouteKind,
    RoutingState,
    Tunnel,
    TunnelKind,
    TunnelNeighbour,
    WorkloadRoute,
    tunnel_gateway,
)
from netplug_core.dataplane.tracker import DeltaTracker
from netplug_core.reconcile.controller import Problem
from netplug_core.reconcile.route_inputs import (
    OF_BLOCK,
    OF_FLOATING,
    OF_LEARNED,
    OF_NODE,
    OF_WORKLOAD,
    OWN,
    BlockRoutes,
    RouteInputs,
    RouteSettings,
    Source,
    encapsulation_of,
)
from netplug_core.resources.ippool import Encapsulation, IPPool
from netplug_core.resources.node import Node

__all__ = ["RouteEngine", "RouteReason", "plan_removal"]


@frozen(kw_only=True)
class RouteReason:
    """A route that should exist, with the way that packets take and the fact that it follows from, for people."""

    destination: Prefix
    table: int
    way: str
    reason: str
    is_programmed: bool


_Part: TypeAlias = Entry | Problem


@frozen
class _Way:
    """How packets reach a node: over a device, to a gateway, by a nexthop of the kernel."""

    nexthop: Nexthop
    mtu: int = 0
    source: Address | None = None


# --- tables of the kernel ---------------------------------------------------------------------------------------------

_TableId: TypeAlias = tuple[int | str, ...]
"""A table of the kernel: the phase in which its entries are made, and what is its own among those of that phase."""

_Key: TypeAlias = int | str | Prefix
"""What only one entry of a table can have: a part that the entry has anyway."""

_TUNNEL, _FDB, _NEIGHBOUR, _NEXTHOP, _ROUTE = range(5)
_NEXTHOPS: Final[_TableId] = (_NEXTHOP,)


def _locate(entry: Entry) -> tuple[_TableId, _Key]:
    """The table of an entry, and its key there."""
    match entry:
        case Route():
            return (_ROUTE, entry.table, entry.metric), entry.destination
        case Nexthop():
            return _NEXTHOPS, entry.id
        case TunnelNeighbour():
            return (_NEIGHBOUR, entry.device), entry.address.value
        case FdbEntry():
            return (_FDB, entry.device), entry.mac
        case Tunnel():
            return (_TUNNEL,), entry.name
        case _:
            assert_never(entry)


def plan_removal(state: RoutingState) -> tuple[Change, ...]:
    """The changes after which nothing of what exists is left, as an uninstallation makes them."""
    entries: tuple[Entry, ...] = (*state.routes, *state.nexthops, *state.neighbours, *state.fdb, *state.tunnels)
    return tuple(Remove(each) for each in entries)


# --- what is offered --------------------------------------------------------------------------------------------------


@define(eq=False)
class _Table:
    """The entries of one table of the kernel that sources offer. Of several with one key that of the lowest counts.

    Those that count are desired. What the others offer is known to the engine, by source.
    """

    tracker: DeltaTracker[_Key, Entry] = field(factory=DeltaTracker, init=False)
    winners: dict[_Key, Source] = field(factory=dict, init=False)
    _losers: dict[_Key, tuple[Source, ...]] = field(factory=dict, init=False)

    def offer(self, key: _Key, source: Source, entry: Entry) -> None:
        """A source offers this entry, perhaps in place of another one."""
        winner = self.winners.setdefault(key, source)
        if winner is not source and winner != source:
            losers = self._losers.get(key, ())
            if min(winner, source) is winner:
                self._losers[key] = losers if source in losers else (*losers, source)
                return
            self._losers[key] = (*losers, winner)
            self.winners[key] = source
        self.tracker.desire(key, entry)

    def withdraw(self, key: _Key, source: Source) -> Source | None:
        """A source offers nothing any more; return the one whose offer counts in its place."""
        losers = self._losers.pop(key, ())
        if self.winners[key] != source:
            self._set_losers(key, losers, source)
            return None
        if losers:
            winner = self.winners[key] = min(losers)
            self._set_losers(key, losers, winner)
            return winner
        del self.winners[key]
        self.tracker.desire(key, None)
        return None

    def _set_losers(self, key: _Key, former: tuple[Source, ...], gone: Source) -> None:
        losers = tuple(each for each in former if each != gone)
        if losers:
            self._losers[key] = losers


# --- the engine -------------------------------------------------------------------------------------------------------


@define(eq=False)
class RouteEngine:
    """What should exist on a node, and what does; ``changes`` makes them the same.

    ``inputs`` is what the node knows; after a change of it, ask for the changes. One thread uses an engine.
    """

    inputs: RouteInputs
    _entries: dict[Source, tuple[Entry, ...]] = field(factory=dict, init=False)  # what a source offers
    _problems: dict[Source, tuple[Problem, ...]] = field(factory=dict, init=False)
    _tables: dict[_TableId, _Table] = field(factory=dict, init=False)
    _ways: dict[tuple[str, Family, str], _Way] = field(factory=dict, init=False)  # those of this update, with the pool
    _ids: NexthopIds = field(factory=NexthopIds, init=False)
    _foreign: tuple[Problem, ...] = field(default=(), init=False)
    lost: tuple[WorkloadRoute, ...] = field(default=(), init=False)
    """The routes to workloads that were there, and are missing while their host ends exist."""
    _workloads: frozenset[WorkloadRoute] = field(default=frozenset(), init=False)

    # What the kernel has.

    def observe(self, state: RoutingState) -> None:
        """This is what exists."""
        self._ids.adopt(state.nexthops)
        found = dict[_TableId, dict[_Key, Entry]]()
        entries: Iterable[Entry] = chain(state.tunnels, state.fdb, state.neighbours, state.nexthops, state.routes)
        for entry in entries:
            table_id, key = _locate(entry)
            found.setdefault(table_id, {})[key] = entry
        for table_id in (*self._tables, *found):
            self._table(table_id).tracker.observe_all(found.get(table_id, {}))
        present = frozenset(state.workloads)
        self.lost = tuple(sorted(each for each in self._workloads - present if each.index in state.host_ends))
        self._workloads = present.union(self.lost)
        self.inputs.set_workloads(frozenset(each.address.host_prefix for each in self._workloads))
        self._foreign = tuple(
            Problem(
                message="a device of another program is where a tunnel is to be", cause=f"{each.name}: {each.reason}"
            )
            for each in state.foreign
        )

    def note_applied(self, changes: Iterable[Change], failed: Iterable[FailedChange]) -> None:
        """These changes were made, but for those that failed."""
        refused = {_locate(each.change.entry) for each in failed}
        for change in changes:
            table_id, key = _locate(change.entry)
            if (table_id, key) not in refused:
                self._table(table_id).tracker.observe(key, change.entry if isinstance(change, Put) else None)

    # What follows.

    def changes(self) -> tuple[Change, ...]:
        """The changes that are left, in their order: nothing is removed before what replaces it is there."""
        self._update()
        trackers = [self._tables[table_id].tracker for table_id in sorted(self._tables)]
        puts = (Put(entry) for tracker in trackers for _, entry in tracker.updates())
        removals = (Remove(entry) for tracker in reversed(trackers) for _, entry in tracker.deletions())
        return (*puts, *removals)

    def desired(self) -> tuple[Entry, ...]:
        """What should exist, in the order in which it is made."""
        self._update()
        table_ids = sorted(self._tables)
        return tuple(entry for table_id in table_ids for entry in self._tables[table_id].tracker.desired.values())

    def explain(self) -> tuple[RouteReason, ...]:
        """Every route that should exist, as of the last ``changes``, in the order of destinations."""
        found = list[RouteReason]()
        for source, entries in self._entries.items():
            for entry in (each for each in entries if isinstance(each, Route)):
                table_id, key = _locate(entry)
                tracker = self._tables[table_id].tracker
                if tracker.desired[key] is entry:
                    found.append(
                        RouteReason(
                            destination=entry.destination,
                            table=entry.table,
                            way=self._describe_way(entry),
                            reason=self._describe_source(source, entry),
                            is_programmed=not tracker.differs(key),
                        )
                    )
        return tuple(sorted(found, key=lambda each: (each.destination, each.table)))

    def _describe_way(self, route: Route) -> str:
        if route.kind is RouteKind.BLACKHOLE:
            return "blackhole"
        nexthop = None if route.nexthop is None else self._table(_NEXTHOPS).tracker.desired.get(route.nexthop)
        if isinstance(nexthop, Nexthop):
            return f"via {nexthop.gateway} dev {nexthop.device}"
        via = "" if route.gateway is None else f"via {route.gateway} "
        return f"{via}dev {route.device}"

    def _describe_source(self, source: Source, route: Route) -> str:
        name = source[1]
        if not isinstance(name, Prefix):
            held = self.inputs.nodes[name].find_address(route.destination.family)
            is_node = held is not None and route.destination == held.address.host_prefix
            return f"the address of node {name}, in a pool" if is_node else f"the tunnel address of node {name}"
        pool = self.inputs.find_pool(name)
        if source[0] in (OF_WORKLOAD, OF_FLOATING):
            sort = "floating address" if source[0] == OF_FLOATING else "address"
            text = f"the {sort} of a workload of this node, {_where(pool)}"
            return f"announced by BGP: {text}" if route.table == ADVERTISED_TABLE else text
        if source[0] == OF_LEARNED:
            return f"announced to this node by {route.gateway}, {_where(pool)}"
        return self._describe_block(name, route, pool)

    def _describe_block(self, name: Prefix, route: Route, pool: IPPool | None) -> str:
        block = self.inputs.blocks[name]
        mode, kind = encapsulation_of(pool)
        where = _where(pool)
        wrapped = "not encapsulated" if kind is None else f"{kind.name} {mode.value}"
        if route.table == ADVERTISED_TABLE:
            return f"announced by BGP: of block {name} of this node, {where}"
        if route.kind is RouteKind.BLACKHOLE:
            return f"a block of this node: packets to its free addresses end here, {where}"
        if route.destination == name:
            return f"a block of node {block.owner}, {where}, {wrapped}"
        holder = next(node for address, node in block.elsewhere if address == route.destination.first)
        owner = f"node {block.owner}" if block.owner else "no node"
        return f"held by node {holder} in block {name} of {owner}, {where}, {wrapped}"

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What keeps nodes from being reached, as of the last ``changes``."""
        found = dict.fromkeys(chain.from_iterable(self._problems.values()))
        return (*self._foreign, *sorted(found, key=lambda each: (each.message, each.cause)))

    def _update(self) -> None:
        changed = self.inputs.take_changed()
        if changed is None:
            changed = tuple(dict.fromkeys((*self._entries, *self._problems, *self.inputs.sources())))
        for source in changed:
            self._replace(source, self._find_parts(source))
        self._ways = {}
        for kind, name in changed:
            if kind == OF_NODE and name not in self.inputs.nodes:
                self._ids.forget(str(name), self._devices())

    def _replace(self, source: Source, parts: Iterable[_Part]) -> None:
        """A source contributes these parts from now on, and no others."""
        entries, problems = list[Entry](), list[Problem]()
        for part in parts:
            if isinstance(part, Problem):
                problems.append(part)
            else:
                entries.append(part)
        self._problems.pop(source, None)
        if problems:
            self._problems[source] = tuple(problems)
        former = self._entries.pop(source, ())
        if entries:
            self._entries[source] = tuple(entries)
        if former:
            kept = set(map(_locate, entries))
            for table_id, key in dict.fromkeys(map(_locate, former)):
                if (table_id, key) not in kept:
                    self._withdraw(table_id, key, source)
        for entry in entries:
            table_id, key = _locate(entry)
            self._table(table_id).offer(key, source, entry)

    def _withdraw(self, table_id: _TableId, key: _Key, source: Source) -> None:
        table = self._tables[table_id]
        winner = table.withdraw(key, source)
        if winner is not None:
            entry = next(each for each in reversed(self._entries[winner]) if _locate(each) == (table_id, key))
            table.tracker.desire(key, entry)

    def _table(self, table_id: _TableId) -> _Table:
        table = self._tables.get(table_id)
        if table is None:
            table = self._tables[table_id] = _Table()
        return table

    def _devices(self) -> Iterator[str]:
        yield from TUNNEL_DEVICES
        yield from (each.name for each in self.inputs.interfaces)

    # --- contributions

    def _find_parts(self, source: Source) -> Iterable[_Part]:
        kind, name = source
        settings = self.inputs.settings
        if settings is None or self.inputs.node not in self.inputs.nodes:
            return ()
        if not isinstance(name, Prefix):
            if kind == OWN:
                return self._of_self(settings)
            return self._of_node(name, settings) if name in self.inputs.nodes and name != self.inputs.node else ()
        if kind == OF_BLOCK:
            block = self.inputs.blocks.get(name)
            return () if block is None else self._of_block(name, block)
        if kind == OF_WORKLOAD:
            return self._of_workload(name)
        return self._of_floating(name) if kind == OF_FLOATING else self._of_learned(name, settings)

    def _of_self(self, settings: RouteSettings) -> Iterator[_Part]:
        """The tunnel devices of this node."""
        for family, name in VXLAN_DEVICES.items():
            if not self.inputs.uses(TunnelKind.VXLAN, family):
                continue
            address = self.inputs.nodes[self.inputs.node].find_vxlan_address(family)
            found = self.inputs.find_local(family)
            if isinstance(found, Problem):
                yield found
            elif address is not None:  # without one, the controller of tunnel addresses says why
                local, parent = found
                yield Tunnel(
                    name=name,
                    kind=TunnelKind.VXLAN,
                    address=address,
                    local=local.address,
                    mtu=settings.vxlan_mtu[family],
                    parent=parent,
                    mac=self.inputs.mac(self.inputs.node, family),
                    vni=settings.vxlan_vni,
                    port=settings.vxlan_port,
                    has_checksum_offload=settings.has_checksum_offload,
                )
        if self.inputs.uses(TunnelKind.IPIP, Family.IPV4):
            bgp = self.inputs.nodes[self.inputs.node].spec.bgp
            address = None if bgp is None else bgp.ipip_tunnel_address
            found = self.inputs.find_local(Family.IPV4)
            if isinstance(found, Problem):
                yield found
            elif address is not None:
                yield Tunnel(
                    name=IPIP_DEVICE,
                    kind=TunnelKind.IPIP,
                    address=address,
                    local=found[0].address,
                    mtu=settings.ipip_mtu,
                    has_checksum_offload=settings.has_checksum_offload,
                )

    def _of_node(self, name: str, settings: RouteSettings) -> Iterator[_Part]:
        """What leads to another node, whatever blocks it has."""
        node = self.inputs.nodes[name]
        for first, what, text in self.inputs.rivals_of(name):
            message = f"two nodes have the same {what}, so that the second one is not reached through tunnels"
            yield Problem(message=message, cause=f"{first} and {name}: {text}")
        for family, device in VXLAN_DEVICES.items():
            address, held = node.find_vxlan_address(family), node.find_address(family)
            has_tunnel = self.inputs.uses(TunnelKind.VXLAN, family) and self.inputs.has_tunnel(family)
            if has_tunnel and address is not None and held is not None and self.inputs.is_first(name):
                mac = self.inputs.mac(name, family)
                yield FdbEntry(device, mac, held.address)
                gateway = tunnel_gateway(address, mac)
                yield TunnelNeighbour(device, gateway, mac)
                if not self.inputs.is_in_own_block(name, address):
                    if gateway != address:
                        yield TunnelNeighbour(device, address, mac)
                    yield Route(destination=address.host_prefix, device=device, mtu=settings.vxlan_mtu[family])
            if held is not None and self.inputs.find_pool(held.address.host_prefix) is not None:
                yield from self._direct_host_route(held.address)

    def _direct_host_route(self, address: Address) -> Iterator[_Part]:
        """The route to the address of a node within a pool: a route to its block must not lead it into a tunnel."""
        found = self.inputs.find_local(address.family)
        if not isinstance(found, Problem) and found[0].prefix.contains(address):
            yield Route(destination=address.host_prefix, device=found[1])

    def _of_block(self, prefix: Prefix, block: BlockRoutes) -> Iterator[_Part]:
        """The route to a block of another node, the blackhole of an own one, and those of addresses held elsewhere."""
        pool = self.inputs.find_pool(prefix)
        rivals = self.inputs.nodes_of_cidr(prefix)
        if len(rivals) > 1:
            message = "nodes have the same pod CIDR, so that only the pods of the first one are reached"
            yield Problem(message=message, cause=f"{', '.join(rivals)}: {prefix}")
        if block.nodeless:
            message = "an address of a block has no recorded node, so that it has no route of its own"
            yield Problem(message=message, cause=f"{prefix}: {block.nodeless[0]}")
        if block.owner == self.inputs.node:
            yield Route(destination=prefix, kind=RouteKind.BLACKHOLE, metric=BLACKHOLE_METRIC)
            if pool is not None:
                yield from self._announce(prefix, pool)
        elif block.owner:
            yield from self._route_to(block.owner, prefix, pool)
        for address, node in block.elsewhere:
            if address.host_prefix in self.inputs.workloads and node != self.inputs.node:
                continue  # whatever its block says, the workload is here
            if node != self.inputs.node:
                yield from self._route_to(node, address.host_prefix, pool)
            elif pool is not None and pool.spec.vxlan_mode is Encapsulation.NEVER:
                yield from self._announce(address.host_prefix, pool)

    def _of_workload(self, address: Prefix) -> Iterator[_Part]:
        """What is announced of a workload here: its address, if it lies in a pool and in no block of this node.

        It is borrowed, or was chosen past address assignment. Of a pool with VXLAN no such address is announced.
        """
        pool = self.inputs.find_pool(address)
        if address not in self.inputs.workloads or pool is None or pool.spec.vxlan_mode is not Encapsulation.NEVER:
            return
        found = self.inputs.find_block(address)
        if found is None or found[1].owner != self.inputs.node:
            yield from self._announce(address, pool)

    def _of_floating(self, address: Prefix) -> Iterator[_Part]:
        """The route to a floating address of a workload here, which is announced if it lies in a pool."""
        device, pool = self.inputs.floating.get(address), self.inputs.find_pool(address)
        if device is not None:
            yield Route(destination=address, device=device)
            if pool is not None:
                yield from self._announce(address, pool)

    def _of_learned(self, prefix: Prefix, settings: RouteSettings) -> Iterator[_Part]:
        """The route to a prefix of a pool with IPIP that others announce and no stored block is.

        The daemon cannot write it: it knows no gateway that is on the link of a tunnel.
        """
        gateway, (mode, kind) = self.inputs.learned.get(prefix), encapsulation_of(self.inputs.find_pool(prefix))
        own, block = self.inputs.find_local(Family.IPV4), self.inputs.blocks.get(prefix)
        is_own = prefix in self.inputs.workloads or (block is not None and block.owner == self.inputs.node)
        if gateway is None or kind is not TunnelKind.IPIP or is_own or isinstance(own, Problem):
            return
        if mode is Encapsulation.CROSS_SUBNET and own[0].prefix.contains(gateway):
            yield Route(destination=prefix, device=own[1], gateway=gateway, source=own[0].address)
        elif self.inputs.has_tunnel(Family.IPV4, TunnelKind.IPIP):
            yield Route(destination=prefix, device=IPIP_DEVICE, gateway=gateway, is_onlink=True, mtu=settings.ipip_mtu)

    def _announce(self, prefix: Prefix, pool: IPPool) -> Iterator[_Part]:
        """What a BGP daemon reads and announces."""
        settings = self.inputs.settings
        if settings is not None and settings.bgp.is_enabled and not pool.spec.is_bgp_export_disabled:
            yield Route(destination=prefix, kind=RouteKind.BLACKHOLE, table=ADVERTISED_TABLE, metric=BLACKHOLE_METRIC)

    def _route_to(self, name: str, destination: Prefix, pool: IPPool | None) -> Iterator[_Part]:
        """The route to some addresses of another node, as their pool asks; or why there is none."""
        node = self.inputs.nodes.get(name)
        if node is None:
            yield Problem(message=f"there is no route to addresses of node {name}", cause="it is not registered")
            return
        family = destination.family
        key = name, family, "" if pool is None else pool.metadata.name
        way = self._ways.get(key)
        if way is None:
            found = self._find_way(name, node, family, pool)
            if not isinstance(found, _Way):
                if found is not None:
                    yield found
                return
            way = self._ways[key] = found
        held = node.find_address(family)
        if held is not None and destination.base == held.address.value and destination.length == family.width:
            return  # the address of the node itself never goes through a tunnel
        yield way.nexthop
        yield Route(destination=destination, nexthop=way.nexthop.id, source=way.source, mtu=way.mtu)

    def _find_way(self, name: str, node: Node, family: Family, pool: IPPool | None) -> _Way | Problem | None:
        """How packets reach a node; None: another program knows."""
        message, held = f"there is no route to pods of node {name}", node.find_address(family)
        if held is None:
            return Problem(message=message, cause=f"it has no {family} address")
        own = self.inputs.find_local(family)
        if isinstance(own, Problem):
            return own
        mode, kind = encapsulation_of(pool)
        is_near = own[0].prefix.contains(held.address)
        if kind is not None and not (mode is Encapsulation.CROSS_SUBNET and is_near):
            return self._find_tunnel(name, node, kind, held, message)
        settings = self.inputs.settings
        if kind is None and settings is not None and settings.bgp.makes_plain_routes:
            return None
        if is_near:
            nexthop = self._nexthop(name, own[1], held.address, is_onlink=False)
            return _Way(nexthop, source=own[0].address)
        where = "no pool" if pool is None else f"pool {pool.metadata.name}"
        cause = f"{held.address} is not in the subnet of this node, {own[0].prefix}, and {where} has no encapsulation"
        return Problem(message=message, cause=cause)

    def _find_tunnel(
        self, name: str, node: Node, kind: TunnelKind, held: InterfaceAddress, message: str
    ) -> _Way | Problem | None:
        family, settings = held.address.family, self.inputs.settings
        if settings is None or not self.inputs.has_tunnel(family, kind):
            return None  # why there is no device is said once, and not for each node
        if kind is TunnelKind.IPIP:
            nexthop = self._nexthop(name, IPIP_DEVICE, held.address, is_onlink=True)
            return _Way(nexthop, mtu=settings.ipip_mtu)
        address = node.find_vxlan_address(family)
        if address is None:
            return Problem(message=message, cause=f"it has no {family} VXLAN tunnel address yet")
        if not self.inputs.is_first(name):
            return None  # said already
        is_onlink = family is Family.IPV4
        gateway = address if is_onlink else tunnel_gateway(address, self.inputs.mac(name, family))
        nexthop = self._nexthop(name, VXLAN_DEVICES[family], gateway, is_onlink=is_onlink)
        return _Way(nexthop, mtu=settings.vxlan_mtu[family])

    def _nexthop(self, name: str, device: str, gateway: Address, *, is_onlink: bool) -> Nexthop:
        return Nexthop(self._ids.find(name, device, gateway), device, gateway, is_onlink=is_onlink)


def _where(pool: IPPool | None) -> str:
    return "in no pool" if pool is None else f"pool {pool.metadata.name}"
