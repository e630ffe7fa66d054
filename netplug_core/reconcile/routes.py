"""The routes between nodes: what a node has to program so that packets reach the pods of other nodes.

:class:`RouteEngine` knows nodes, pools, blocks and the node's own interfaces. Each block and each node contributes
entries for the kernel; the union of them is what should exist. A change of one block or node costs its own part only,
however many there are, and the result does not depend on the order of the changes.

``netplug_cli.node.routing`` feeds it from a view of the datastore, and applies its changes to the kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import chain
from typing import Final, TypeAlias

from attrs import define, field, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix, PrefixIndex
from netplug_core.dataplane.bgp import NO_BGP, BgpUse
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
    HostInterface,
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
    tunnel_gateway,
)
from netplug_core.dataplane.tracker import DeltaTracker
from netplug_core.datastore.view import View
from netplug_core.ipam.model.block import BLOCK, RESERVED_HANDLE, Block, block_key
from netplug_core.ipam.model.handle import AFFINITY, AffinityState, affinity_key, owner_node
from netplug_core.keys import Key
from netplug_core.reconcile.controller import Problem
from netplug_core.reconcile.mtus import NO_MTUS, MTUSettings, find_mtus
from netplug_core.resources.ippool import IPPOOL, AllowedUse, Encapsulation, IPPool
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, effective_settings

__all__ = [
    "BlockRoutes", "RouteEngine", "RouteReason", "RouteSettings", "find_block_routes",
    "find_route_settings", "plan_removal", "update_routes", "vxlan_mac",
]  # fmt: skip

_MAC_START: Final = 0x66


def vxlan_mac(node: str, family: Family) -> str:
    """The MAC of the VXLAN device of a node that has none configured: it follows from the name alone."""
    text = node if family is Family.IPV4 else f"{node}-v6"
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return bytes((_MAC_START, *digest[:5])).hex(":")


# --- what is known ----------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class RouteSettings:
    """Settings of this node. ``vxlan_mtu`` and ``ipip_mtu`` are those of the devices.

    ``bgp``: whether a BGP daemon announces this node's routes, and writes those to pools without encapsulation.
    ``has_checksum_offload``: None leaves what the kernel has chosen.
    """

    vxlan_mtu: Mapping[Family, int]
    ipip_mtu: int = 1480
    vxlan_vni: int = 4096
    vxlan_port: int = 4789
    bgp: BgpUse = NO_BGP
    has_checksum_offload: bool | None = None


@frozen
class BlockRoutes:
    """What routes need to know of a block.

    ``owner`` is the node that it is affine to, empty if no affinity is confirmed. ``elsewhere`` has the addresses that
    other nodes hold in it, with the node. ``nodeless`` are addresses that are held through no known node.
    """

    owner: str
    elsewhere: tuple[tuple[Address, str], ...] = ()
    nodeless: tuple[Address, ...] = ()

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes whose routes depend on it."""
        return frozenset((self.owner, *(node for _, node in self.elsewhere))) - {""}


def find_block_routes(block: Block, *, is_confirmed: bool) -> BlockRoutes:
    """What routes need to know of a stored block; ``is_confirmed``: its owner's affinity to it is."""
    affine_to, owner = owner_node(block.owner), ""
    if is_confirmed:
        owner = affine_to
    attributes, indexes = block.attributes, dict[int, str]()
    for index, handle in enumerate(attributes.handles):
        entry = attributes.whole[index]
        if handle == RESERVED_HANDLE or (entry is not None and entry.released_ns is not None):
            continue
        node = dict(zip(attributes.names[index], attributes.values[index], strict=True)).get("node", "")
        if not node or node != owner:
            indexes[index] = node
    if not indexes:
        return BlockRoutes(owner)
    held = (
        (block.prefix.nth(n), indexes[i]) for n, i in enumerate(block.allocations) if i is not None and i in indexes
    )
    found = tuple(held)
    elsewhere = tuple((address, node) for address, node in found if node)
    return BlockRoutes(owner, elsewhere, tuple(address for address, node in found if not node))


@frozen(kw_only=True)
class RouteReason:
    """A route that should exist, with the way that packets take and the fact that it follows from, for people."""

    destination: Prefix
    table: int
    way: str
    reason: str
    is_programmed: bool


_Part: TypeAlias = Entry | Problem
_Claim: TypeAlias = tuple[str, str]
_Source: TypeAlias = tuple[int, str] | tuple[int, Prefix]  # sources of one kind have an order
# Of two sources with an entry of one key, the first counts.
_OWN, _OF_FLOATING, _OF_WORKLOAD, _OF_NODE, _OF_BLOCK = range(5)
_SELF: Final[_Source] = (_OWN, "")


@frozen
class _Contribution:
    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()


@frozen
class _Way:
    """How packets reach a node: over a device, to a gateway."""

    device: str
    gateway: Address
    is_onlink: bool
    mtu: int = 0
    source: Address | None = None


# --- phases -----------------------------------------------------------------------------------------------------------

_PHASES: Final[Mapping[type[Entry], int]] = {Tunnel: 0, FdbEntry: 1, TunnelNeighbour: 2, Nexthop: 3, Route: 4}

_EntryKey: TypeAlias = tuple[int, object]


def _key_of(entry: Entry) -> _EntryKey:
    return _PHASES[type(entry)], entry.key


def plan_removal(state: RoutingState) -> tuple[Change, ...]:
    """The changes after which nothing of what exists is left, as an uninstallation makes them."""
    entries: tuple[Entry, ...] = (*state.routes, *state.nexthops, *state.neighbours, *state.fdb, *state.tunnels)
    return tuple(Remove(each) for each in entries)


# --- the engine -------------------------------------------------------------------------------------------------------


@define(eq=False)
class RouteEngine:
    """What should exist on a node, and what does; ``changes`` makes them the same.

    ``node`` is the name of this node. One thread uses an engine.
    """

    node: str
    _settings: RouteSettings | None = field(default=None, init=False)
    _interfaces: tuple[HostInterface, ...] = field(default=(), init=False)
    _nodes: dict[str, Node] = field(factory=dict, init=False)
    _pools: tuple[IPPool, ...] = field(default=(), init=False)
    _pool_index: PrefixIndex[IPPool] = field(factory=PrefixIndex, init=False)
    _blocks: dict[Prefix, BlockRoutes] = field(factory=dict, init=False)
    _blocks_of: dict[str, dict[Prefix, None]] = field(factory=dict, init=False)
    _claims: dict[_Claim, set[str]] = field(factory=dict, init=False)  # of tunnel addresses and MACs
    _contested: set[_Claim] = field(factory=set, init=False)  # those of several nodes
    _contributions: dict[_Source, _Contribution] = field(factory=dict, init=False)
    _offers: dict[_EntryKey, dict[_Source, Entry]] = field(factory=dict, init=False)
    _dirty: dict[_Source, None] = field(factory=dict, init=False)
    _is_all_dirty: bool = field(default=True, init=False)
    _in_use: set[tuple[TunnelKind, Family]] = field(factory=set, init=False)
    _local: dict[Family, tuple[InterfaceAddress, str] | Problem] = field(factory=dict, init=False)
    _ids: NexthopIds = field(factory=NexthopIds, init=False)
    _tracker: DeltaTracker[_EntryKey, Entry] = field(factory=DeltaTracker, init=False)
    _foreign: tuple[Problem, ...] = field(default=(), init=False)
    _workloads: frozenset[Prefix] = field(default=frozenset(), init=False)
    _floating: Mapping[Prefix, str] = field(factory=dict, init=False)

    # What is known.

    def set_settings(self, settings: RouteSettings) -> None:
        """These are the settings from now on."""
        if settings != self._settings:
            self._settings, self._is_all_dirty = settings, True

    def set_interfaces(self, interfaces: tuple[HostInterface, ...]) -> None:
        """These are the interfaces of the node from now on, as far as they are not those of pods."""
        if interfaces != self._interfaces:
            self._interfaces, self._is_all_dirty = interfaces, True

    def set_pools(self, pools: Iterable[IPPool]) -> None:
        """These are all pools. One that serves LoadBalancers alone is no pool here."""
        own = tuple(pool for pool in pools if set(pool.spec.allowed_uses) != {AllowedUse.LOAD_BALANCER})
        if own != self._pools:
            self._pools, self._is_all_dirty = own, True
            self._pool_index = PrefixIndex.of((pool.spec.prefix, pool) for pool in own)

    def set_node(self, name: str, node: Node | None) -> None:
        """This is what is known of a node; None: it is gone."""
        before = self._nodes.get(name)
        if node == before:
            return
        self._dirty[_OF_NODE, name] = None
        for claim in _claims_of(before):
            rivals = self._claims[claim]
            rivals.discard(name)
            self._note_rivals(claim, rivals)
        for claim in _claims_of(node):
            rivals = self._claims.setdefault(claim, set())
            rivals.add(name)
            self._note_rivals(claim, rivals)
        if node is None:
            del self._nodes[name]
        else:
            self._nodes[name] = node
        self._mark((name,))
        if name == self.node:
            self._is_all_dirty = True

    def set_block(self, prefix: Prefix, block: BlockRoutes | None) -> None:
        """This is what is known of a block; None: it is gone."""
        before = self._blocks.get(prefix)
        if block == before:
            return
        self._dirty[_OF_BLOCK, prefix] = None
        for name in () if before is None else before.nodes:
            self._blocks_of[name].pop(prefix)
            self._dirty[_OF_NODE, name] = None
        for name in () if block is None else block.nodes:
            self._blocks_of.setdefault(name, {})[prefix] = None
            self._dirty[_OF_NODE, name] = None
        if block is None:
            del self._blocks[prefix]
        else:
            self._blocks[prefix] = block
        if self.node in {each.owner for each in (before, block) if each is not None}:
            self._dirty.update(dict.fromkeys((_OF_WORKLOAD, each) for each in self._workloads if prefix.covers(each)))

    def set_floating(self, floating: Mapping[Address, str]) -> None:
        """These are the floating addresses of workloads of the node, each with the host end of its workload."""
        before, self._floating = self._floating, {each.host_prefix: device for each, device in floating.items()}
        changed = dict(before.items() ^ self._floating.items())
        self._dirty.update(dict.fromkeys((_OF_FLOATING, each) for each in changed))

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes that are known."""
        return self._nodes

    @property
    def blocks(self) -> Mapping[Prefix, BlockRoutes]:
        """The blocks that are known."""
        return self._blocks

    @property
    def pools(self) -> tuple[IPPool, ...]:
        """The pools that are known."""
        return self._pools

    @property
    def interfaces(self) -> tuple[HostInterface, ...]:
        """The interfaces of the node."""
        return self._interfaces

    def _note_rivals(self, claim: _Claim, rivals: set[str]) -> None:
        if len(rivals) > 1:
            self._contested.add(claim)
        else:
            self._contested.discard(claim)
        if not rivals:
            del self._claims[claim]
        self._mark(rivals)

    def _mark(self, names: Iterable[str]) -> None:
        for name in names:
            self._dirty[_OF_NODE, name] = None
            self._dirty.update(dict.fromkeys((_OF_BLOCK, prefix) for prefix in self._blocks_of.get(name, ())))

    # What the kernel has.

    def observe(self, state: RoutingState) -> None:
        """This is what exists."""
        self._ids.adopt(state.nexthops)
        entries: Iterable[Entry] = chain(state.tunnels, state.fdb, state.neighbours, state.nexthops, state.routes)
        self._tracker.observe_all({_key_of(entry): entry for entry in entries})
        self._set_workloads(frozenset(address.host_prefix for address, _device in state.workloads))
        self._foreign = tuple(
            Problem(
                message="a device of another program is where a tunnel is to be", cause=f"{each.name}: {each.reason}"
            )
            for each in state.foreign
        )

    def _set_workloads(self, workloads: frozenset[Prefix]) -> None:
        changed, self._workloads = self._workloads ^ workloads, workloads
        for each in changed:
            self._dirty[_OF_WORKLOAD, each] = None
            found = self._find_block(each)
            if found is not None:
                self._dirty[_OF_BLOCK, found[0]] = None

    def note_applied(self, changes: Iterable[Change], failed: Iterable[FailedChange]) -> None:
        """These changes were made, but for those that failed."""
        refused = {_key_of(each.change.entry) for each in failed}
        for change in changes:
            key = _key_of(change.entry)
            if key not in refused:
                self._tracker.observe(key, change.entry if isinstance(change, Put) else None)

    # What follows.

    def changes(self) -> tuple[Change, ...]:
        """The changes that are left, in their order: nothing is removed before what replaces it is there."""
        self._update()
        puts = sorted(self._tracker.updates(), key=_phase)
        removals = sorted(self._tracker.deletions(), key=_phase, reverse=True)
        return (*(Put(entry) for _, entry in puts), *(Remove(entry) for _, entry in removals))

    def desired(self) -> tuple[Entry, ...]:
        """What should exist, in the order in which it is made."""
        self._update()
        return tuple(entry for _, entry in sorted(self._tracker.desired.items(), key=_phase))

    def explain(self) -> tuple[RouteReason, ...]:
        """Every route that should exist, as of the last ``changes``, in the order of destinations."""
        found = list[RouteReason]()
        for key, offers in self._offers.items():
            source = min(offers)
            entry = offers[source]
            if isinstance(entry, Route):
                is_programmed = self._tracker.observed.get(key) == entry
                found.append(
                    RouteReason(
                        destination=entry.destination,
                        table=entry.table,
                        way=self._describe_way(entry),
                        reason=self._describe_source(source, entry),
                        is_programmed=is_programmed,
                    )
                )
        return tuple(sorted(found, key=lambda each: (each.destination, each.table)))

    def _describe_way(self, route: Route) -> str:
        if route.kind is RouteKind.BLACKHOLE:
            return "blackhole"
        nexthop = None if route.nexthop is None else self._tracker.desired.get((_PHASES[Nexthop], route.nexthop))
        if isinstance(nexthop, Nexthop):
            return f"via {nexthop.gateway} dev {nexthop.device}"
        return f"dev {route.device}"

    def _describe_source(self, source: _Source, route: Route) -> str:
        name = source[1]
        if not isinstance(name, Prefix):
            held = self._nodes[name].find_address(route.destination.family)
            is_node = held is not None and route.destination == held.address.host_prefix
            return f"the address of node {name}, in a pool" if is_node else f"the tunnel address of node {name}"
        pool = self._find_pool(name)
        if source[0] in (_OF_WORKLOAD, _OF_FLOATING):
            sort = "floating address" if source[0] == _OF_FLOATING else "address"
            text = f"the {sort} of a workload of this node, {_where(pool)}"
            return f"announced by BGP: {text}" if route.table == ADVERTISED_TABLE else text
        block = self._blocks[name]
        mode, kind = _encapsulation(pool)
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
        found = chain.from_iterable(each.problems for each in self._contributions.values() if each.problems)
        return (*self._foreign, *sorted(dict.fromkeys(found), key=lambda each: (each.message, each.cause)))

    def _update(self) -> None:
        if self._is_all_dirty:
            sources = (
                _SELF,
                *((_OF_NODE, name) for name in self._nodes),
                *((_OF_BLOCK, each) for each in self._blocks),
                *((_OF_WORKLOAD, each) for each in self._workloads),
                *((_OF_FLOATING, each) for each in self._floating),
            )
            self._dirty = dict.fromkeys((*self._contributions, *sources))
            self._is_all_dirty, self._local = False, {}
            wrapped = ((_encapsulation(pool)[1], pool.spec.prefix.family) for pool in self._pools)
            self._in_use = {(tunnel, family) for tunnel, family in wrapped if tunnel is not None}
        dirty, self._dirty = self._dirty, {}
        for source in dirty:
            self._replace(source, self._contribute(source))
        for kind, name in dirty:
            if kind == _OF_NODE and name not in self._nodes:
                self._ids.forget(str(name), self._devices())

    def _replace(self, source: _Source, new: _Contribution) -> None:
        old = self._contributions.pop(source, _Contribution())
        if new.entries or new.problems:
            self._contributions[source] = new
        before, after = {_key_of(each): each for each in old.entries}, {_key_of(each): each for each in new.entries}
        for key in before.keys() | after.keys():
            if before.get(key) == after.get(key):
                continue
            offers = self._offers.setdefault(key, {})
            if key in after:
                offers[source] = after[key]
            else:
                del offers[source]
            if not offers:
                del self._offers[key]
            self._tracker.desire(key, offers[min(offers)] if offers else None)

    def _devices(self) -> Iterator[str]:
        yield from TUNNEL_DEVICES
        yield from (each.name for each in self._interfaces)

    # --- contributions

    def _contribute(self, source: _Source) -> _Contribution:
        entries, problems = list[Entry](), list[Problem]()
        for each in self._find_parts(source):
            if isinstance(each, Problem):
                problems.append(each)
            else:
                entries.append(each)
        return _Contribution(tuple(dict.fromkeys(entries)), tuple(problems))

    def _find_parts(self, source: _Source) -> Iterator[_Part]:
        kind, name = source
        if self._settings is None or self.node not in self._nodes:
            return
        if kind == _OWN:
            yield from self._of_self(self._settings)
        elif isinstance(name, Prefix) and kind == _OF_WORKLOAD:
            yield from self._of_workload(name)
        elif isinstance(name, Prefix) and kind == _OF_FLOATING:
            yield from self._of_floating(name)
        elif isinstance(name, Prefix):
            block = self._blocks.get(name)
            if block is not None:
                yield from self._of_block(name, block)
        elif name in self._nodes and name != self.node:
            yield from self._of_node(name, self._settings)

    def _of_self(self, settings: RouteSettings) -> Iterator[_Part]:
        """The tunnel devices of this node."""
        for family, name in VXLAN_DEVICES.items():
            if not self._uses(TunnelKind.VXLAN, family):
                continue
            address = self._nodes[self.node].find_vxlan_address(family)
            found = self._find_local(family)
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
                    mac=self._mac(self.node, family),
                    vni=settings.vxlan_vni,
                    port=settings.vxlan_port,
                    has_checksum_offload=settings.has_checksum_offload,
                )
        if self._uses(TunnelKind.IPIP, Family.IPV4):
            bgp = self._nodes[self.node].spec.bgp
            address = None if bgp is None else bgp.ipip_tunnel_address
            found = self._find_local(Family.IPV4)
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
        node = self._nodes[name]
        for claim in _claims_of(node) if self._contested else ():
            first = min(self._claims[claim])
            if first != name:
                message = f"two nodes have the same {claim[0]}, so that the second one is not reached through tunnels"
                yield Problem(message=message, cause=f"{first} and {name}: {claim[1]}")
        for family, device in VXLAN_DEVICES.items():
            address, held = node.find_vxlan_address(family), node.find_address(family)
            has_tunnel = self._uses(TunnelKind.VXLAN, family) and self._has_tunnel(family)
            if has_tunnel and address is not None and held is not None and self._is_first(name):
                mac = self._mac(name, family)
                yield FdbEntry(device, mac, held.address)
                gateway = tunnel_gateway(address, mac)
                yield TunnelNeighbour(device, gateway, mac)
                if not self._is_in_own_block(name, address):
                    if gateway != address:
                        yield TunnelNeighbour(device, address, mac)
                    yield Route(destination=address.host_prefix, device=device, mtu=settings.vxlan_mtu[family])
            if held is not None and self._find_pool(held.address.host_prefix) is not None:
                yield from self._direct_host_route(held.address)

    def _direct_host_route(self, address: Address) -> Iterator[_Part]:
        """The route to the address of a node within a pool: a route to its block must not lead it into a tunnel."""
        found = self._find_local(address.family)
        if not isinstance(found, Problem) and found[0].prefix.contains(address):
            yield Route(destination=address.host_prefix, device=found[1])

    def _of_block(self, prefix: Prefix, block: BlockRoutes) -> Iterator[_Part]:
        """The route to a block of another node, the blackhole of an own one, and those of addresses held elsewhere."""
        pool = self._find_pool(prefix)
        if block.nodeless:
            message = "an address of a block has no recorded node, so that it has no route of its own"
            yield Problem(message=message, cause=f"{prefix}: {block.nodeless[0]}")
        if block.owner == self.node:
            yield Route(destination=prefix, kind=RouteKind.BLACKHOLE, metric=BLACKHOLE_METRIC)
            if pool is not None:
                yield from self._announce(prefix, pool)
        elif block.owner:
            yield from self._route_to(block.owner, prefix, pool)
        for address, node in block.elsewhere:
            if address.host_prefix in self._workloads and node != self.node:
                continue  # whatever its block says, the workload is here
            if node != self.node:
                yield from self._route_to(node, address.host_prefix, pool)
            elif pool is not None and pool.spec.vxlan_mode is Encapsulation.NEVER:
                yield from self._announce(address.host_prefix, pool)

    def _of_workload(self, address: Prefix) -> Iterator[_Part]:
        """What is announced of a workload here: its address, if it lies in a pool and in no block of this node.

        It is borrowed, or was chosen past address assignment. Of a pool with VXLAN no such address is announced.
        """
        pool = self._find_pool(address)
        if address not in self._workloads or pool is None or pool.spec.vxlan_mode is not Encapsulation.NEVER:
            return
        found = self._find_block(address)
        if found is None or found[1].owner != self.node:
            yield from self._announce(address, pool)

    def _of_floating(self, address: Prefix) -> Iterator[_Part]:
        """The route to a floating address of a workload here, which is announced if it lies in a pool."""
        device, pool = self._floating.get(address), self._find_pool(address)
        if device is not None:
            yield Route(destination=address, device=device)
            if pool is not None:
                yield from self._announce(address, pool)

    def _announce(self, prefix: Prefix, pool: IPPool) -> Iterator[_Part]:
        """What a BGP daemon reads and announces."""
        settings = self._settings
        if settings is not None and settings.bgp.is_enabled and not pool.spec.is_bgp_export_disabled:
            yield Route(destination=prefix, kind=RouteKind.BLACKHOLE, table=ADVERTISED_TABLE, metric=BLACKHOLE_METRIC)

    def _route_to(self, name: str, destination: Prefix, pool: IPPool | None) -> Iterator[_Part]:
        """The route to some addresses of another node, as their pool asks; or why there is none."""
        node = self._nodes.get(name)
        if node is None:
            yield Problem(message=f"there is no route to addresses of node {name}", cause="it is not registered")
            return
        way = self._find_way(name, node, destination.family, pool)
        if isinstance(way, Problem):
            yield way
        elif way is not None:
            held = node.find_address(destination.family)
            if held is not None and destination == held.address.host_prefix:
                return  # the address of the node itself never goes through a tunnel
            nexthop = self._ids.find(name, way.device, way.gateway)
            yield Nexthop(nexthop, way.device, way.gateway, is_onlink=way.is_onlink)
            yield Route(destination=destination, nexthop=nexthop, source=way.source, mtu=way.mtu)

    def _find_way(self, name: str, node: Node, family: Family, pool: IPPool | None) -> _Way | Problem | None:
        """How packets reach a node; None: another program knows."""
        message, held = f"there is no route to pods of node {name}", node.find_address(family)
        if held is None:
            return Problem(message=message, cause=f"it has no {family} address")
        own = self._find_local(family)
        if isinstance(own, Problem):
            return own
        mode, kind = _encapsulation(pool)
        is_near = own[0].prefix.contains(held.address)
        if kind is not None and not (mode is Encapsulation.CROSS_SUBNET and is_near):
            return self._find_tunnel(name, node, kind, held, message)
        settings = self._settings
        if kind is None and settings is not None and settings.bgp.makes_plain_routes:
            return None
        if is_near:
            return _Way(own[1], held.address, is_onlink=False, source=own[0].address)
        where = "no pool" if pool is None else f"pool {pool.metadata.name}"
        cause = f"{held.address} is not in the subnet of this node, {own[0].prefix}, and {where} has no encapsulation"
        return Problem(message=message, cause=cause)

    def _find_tunnel(
        self, name: str, node: Node, kind: TunnelKind, held: InterfaceAddress, message: str
    ) -> _Way | Problem | None:
        family, settings = held.address.family, self._settings
        if settings is None or not self._has_tunnel(family, kind):
            return None  # why there is no device is said once, and not for each node
        if kind is TunnelKind.IPIP:
            return _Way(IPIP_DEVICE, held.address, is_onlink=True, mtu=settings.ipip_mtu)
        address = node.find_vxlan_address(family)
        if address is None:
            return Problem(message=message, cause=f"it has no {family} VXLAN tunnel address yet")
        if not self._is_first(name):
            return None  # said already
        gateway, is_onlink = tunnel_gateway(address, self._mac(name, family)), family is Family.IPV4
        return _Way(VXLAN_DEVICES[family], gateway, is_onlink=is_onlink, mtu=settings.vxlan_mtu[family])

    # --- questions about what is known

    def _find_pool(self, prefix: Prefix) -> IPPool | None:
        """The pool that a prefix lies in: the smallest one."""
        found = [pool for pool in self._pool_index.overlapping(prefix) if pool.spec.prefix.covers(prefix)]
        return max(found, key=lambda pool: pool.spec.prefix.length, default=None)

    def _find_block(self, address: Prefix) -> tuple[Prefix, BlockRoutes] | None:
        """The block that an address of a pool lies in, with its prefix."""
        pool = self._find_pool(address)
        if pool is None:
            return None
        prefix = Prefix.at(address.first, pool.spec.block_length)
        return (prefix, self._blocks[prefix]) if prefix in self._blocks else None

    def _uses(self, kind: TunnelKind, family: Family) -> bool:
        """Whether some pool is wrapped so; disabled ones count, since their pods run on."""
        return (kind, family) in self._in_use

    def _has_tunnel(self, family: Family, kind: TunnelKind = TunnelKind.VXLAN) -> bool:
        """Whether this node has what a device needs."""
        node = self._nodes[self.node]
        bgp = node.spec.bgp
        ipip = None if bgp is None else bgp.ipip_tunnel_address
        address = node.find_vxlan_address(family) if kind is TunnelKind.VXLAN else ipip
        return address is not None and not isinstance(self._find_local(family), Problem)

    def _find_local(self, family: Family) -> tuple[InterfaceAddress, str] | Problem:
        """The address of this node in a family, and the name of the interface that has it."""
        found = self._local.get(family)
        if found is None:
            found = self._local[family] = self._look_for_local(family)
        return found

    def _look_for_local(self, family: Family) -> tuple[InterfaceAddress, str] | Problem:
        message, held = (
            f"pods of other nodes are not reached over {family}",
            self._nodes[self.node].find_address(family),
        )
        if held is None:
            return Problem(message=message, cause=f"this node has no {family} address")
        for each in self._interfaces:
            if any(other.held.address == held.address for other in each.addresses):
                return held, each.name
        return Problem(message=message, cause=f"no interface has the address of this node, {held.address}")

    def _is_in_own_block(self, name: str, address: Address) -> bool:
        """Whether an address lies in a block of a node that is more than this address."""
        pool = self._find_pool(address.host_prefix)
        length = address.family.width if pool is None else pool.spec.block_length
        block = self._blocks.get(Prefix.at(address, length))
        return block is not None and block.owner == name and length < address.family.width

    def _is_first(self, name: str) -> bool:
        """Whether no node with a lower name has a tunnel address or a MAC of this one."""
        if not self._contested:
            return True
        return all(min(self._claims[claim]) == name for claim in _claims_of(self._nodes[name]))

    def _mac(self, name: str, family: Family) -> str:
        return self._nodes[name].vxlan_mac(family) or vxlan_mac(name, family)


def _where(pool: IPPool | None) -> str:
    return "in no pool" if pool is None else f"pool {pool.metadata.name}"


def _phase(each: tuple[_EntryKey, object]) -> int:
    return each[0][0]


def _encapsulation(pool: IPPool | None) -> tuple[Encapsulation, TunnelKind | None]:
    """How packets to a pool are wrapped; None: not at all."""
    if pool is not None and pool.spec.vxlan_mode is not Encapsulation.NEVER:
        return pool.spec.vxlan_mode, TunnelKind.VXLAN
    if pool is not None and pool.spec.ipip_mode is not Encapsulation.NEVER and pool.spec.prefix.family is Family.IPV4:
        return pool.spec.ipip_mode, TunnelKind.IPIP
    return Encapsulation.NEVER, None


def _claims_of(node: Node | None) -> Iterator[_Claim]:
    """What no other node may have too."""
    if node is None:
        return
    for family in Family:
        address = node.find_vxlan_address(family)
        if address is not None:
            yield f"{family} tunnel address", str(address)
            yield f"{family} tunnel MAC", node.vxlan_mac(family) or vxlan_mac(node.metadata.name, family)


# --- from the view of a datastore -------------------------------------------------------------------------------------


def update_routes(engine: RouteEngine, view: View, changed: AbstractSet[Key[object]] | None) -> None:
    """Tell an engine what has changed in a view; None: everything may have."""
    kinds = {NODE, IPPOOL, BLOCK} if changed is None else {key.kind for key in changed}
    if IPPOOL in kinds:
        engine.set_pools(record.value for record in view.list(IPPOOL))
    if changed is None:
        nodes = {record.key.name for record in view.list(NODE)} | engine.nodes.keys()
        prefixes = {record.value.prefix for record in view.list(BLOCK)} | engine.blocks.keys()
    else:
        nodes = {key.name for key in changed if key.kind == NODE}
        prefixes = {prefix for key in changed if key.kind in {BLOCK, AFFINITY} for prefix in _prefixes_of(key)}
    for name in sorted(nodes):
        record = view.find(node_key(name))
        engine.set_node(name, None if record is None else record.value)
    for prefix in sorted(prefixes):
        block = view.find(block_key(prefix))
        engine.set_block(prefix, None if block is None else _find_block(view, block.value))


def _find_block(view: View, block: Block) -> BlockRoutes:
    affinity = view.find(affinity_key(block.owner, block.prefix)) if block.owner else None
    is_confirmed = affinity is not None and affinity.value.state is AffinityState.CONFIRMED
    return find_block_routes(block, is_confirmed=is_confirmed)


def _prefixes_of(key: Key[object]) -> Iterator[Prefix]:
    """The block that a key names; a key that names none is of no block that anybody can have."""
    with suppress(ValueError):
        yield Prefix.parse(key.name)


def find_route_settings(
    view: View,
    node: str,
    interfaces: Iterable[HostInterface],
    *,
    mtus: MTUSettings = NO_MTUS,
    bgp: BgpUse = NO_BGP,
) -> RouteSettings:
    """The settings of a node, from what is configured for it or for all nodes, and from its interfaces."""
    spec = effective_settings((record.value for record in view.list(NODE_CONFIGURATION)), node)
    found, usual = find_mtus(interfaces, spec, mtus), RouteSettings(vxlan_mtu={})
    return RouteSettings(
        vxlan_mtu=found.vxlan,
        ipip_mtu=found.ipip,
        vxlan_vni=spec.vxlan_vni or usual.vxlan_vni,
        vxlan_port=spec.vxlan_port or usual.vxlan_port,
        bgp=bgp,
    )
