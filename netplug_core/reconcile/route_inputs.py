"""What the routes between nodes follow from: settings, interfaces, nodes, pools and blocks, as one node knows them.

:class:`RouteInputs` keeps all of it, and which sources of entries a change concerns: a source is a node, a block, or an
address of a workload. It answers what the rules of ``netplug_core.reconcile.routes`` ask, and decides no route.

``netplug_cli.node.routing`` feeds it from a view of the datastore.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final, TypeAlias

from attrs import define, field, frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.bgp import NO_BGP, BgpUse
from netplug_core.dataplane.routing import HostInterface, TunnelKind
from netplug_core.datastore.view import View
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    RESERVED_HANDLE,
    AffinityState,
    Block,
    affinity_key,
    block_key,
    owner_node,
)
from netplug_core.keys import Key
from netplug_core.reconcile.controller import Problem
from netplug_core.reconcile.tunnels import NO_MTUS, MTUSettings, find_mtus
from netplug_core.resources.ippool import IPPOOL, AllowedUse, Encapsulation, IPPool
from netplug_core.resources.node import NODE, Node, node_key
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, effective_settings

__all__ = [
    "OF_BLOCK", "OF_FLOATING", "OF_LEARNED", "OF_NODE", "OF_WORKLOAD", "OWN", "SELF", "BlockRoutes", "RouteInputs",
    "RouteSettings", "Source", "encapsulation_of", "find_block_routes", "find_route_settings", "update_inputs",
    "vxlan_mac",
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


Source: TypeAlias = tuple[int, str] | tuple[int, Prefix]
"""What entries come from: its sort, and the name of a node or a prefix. Of two with an entry of one key, the lower
counts.
"""

OWN, OF_FLOATING, OF_WORKLOAD, OF_NODE, OF_BLOCK, OF_LEARNED = range(6)
"""The sorts of sources: this node, a floating address or an address of its workloads, another node, a block, a prefix
that BGP has learned.
"""

SELF: Final[Source] = (OWN, "")
"""This node, as a source."""

_Claim: TypeAlias = tuple[str, int]
_ADDRESS_CLAIMS: Final = {family: f"{family} tunnel address" for family in Family}
_MAC_CLAIMS: Final = {family: f"{family} tunnel MAC" for family in Family}


# --- what is kept -----------------------------------------------------------------------------------------------------


@define(eq=False)
class RouteInputs:
    """What a node knows. ``node`` is its name.

    With ``uses_pod_cidrs`` the orchestrator has given each node the prefixes of its pods: these are its blocks, and
    there are no others.
    """

    node: str
    uses_pod_cidrs: bool = field(default=False, kw_only=True)
    settings: RouteSettings | None = field(default=None, init=False)
    interfaces: tuple[HostInterface, ...] = field(default=(), init=False)
    nodes: dict[str, Node] = field(factory=dict, init=False)
    pools: tuple[IPPool, ...] = field(default=(), init=False)
    blocks: dict[Prefix, BlockRoutes] = field(factory=dict, init=False)
    workloads: frozenset[Prefix] = field(default=frozenset(), init=False)
    floating: Mapping[Prefix, str] = field(factory=dict, init=False)
    learned: Mapping[Prefix, Address] = field(factory=dict, init=False)
    _pools_by_length: dict[Family, dict[int, dict[int, IPPool]]] = field(factory=dict, init=False)  # longest first
    _block_lengths: Counter[tuple[Family, int]] = field(factory=Counter, init=False)
    _blocks_of: dict[str, tuple[Prefix, ...]] = field(factory=dict, init=False)  # few of each: the smallest container
    _nodes_of_cidr: dict[Prefix, set[str]] = field(factory=dict, init=False)
    _claims: dict[str, dict[int, str]] = field(factory=dict, init=False)  # of tunnel addresses, MACs: the first node
    _rivals: dict[_Claim, set[str]] = field(factory=dict, init=False)  # those of several nodes: all of them
    _changed: dict[Source, None] = field(factory=dict, init=False)
    _has_all_changed: bool = field(default=True, init=False)
    _in_use: frozenset[tuple[TunnelKind, Family]] = field(default=frozenset(), init=False)
    _local: dict[Family, tuple[InterfaceAddress, str] | Problem] = field(factory=dict, init=False)
    _tunnels: dict[tuple[TunnelKind, Family], bool] = field(factory=dict, init=False)

    def set_settings(self, settings: RouteSettings) -> None:
        """These are the settings from now on."""
        if settings != self.settings:
            self.settings, self._has_all_changed = settings, True

    def set_interfaces(self, interfaces: tuple[HostInterface, ...]) -> None:
        """These are the interfaces of the node from now on, as far as they are not those of pods."""
        if interfaces != self.interfaces:
            self.interfaces, self._has_all_changed = interfaces, True
            self._forget_local()

    def set_pools(self, pools: Iterable[IPPool]) -> None:
        """These are all pools. One that serves LoadBalancers alone is no pool here."""
        own = tuple(pool for pool in pools if set(pool.spec.allowed_uses) != {AllowedUse.LOAD_BALANCER})
        if own == self.pools:
            return
        self.pools, self._has_all_changed = own, True
        self._pools_by_length = {}
        for pool in sorted(own, key=lambda each: each.spec.prefix.length, reverse=True):
            prefix = pool.spec.prefix
            of_family = self._pools_by_length.setdefault(prefix.family, {})
            of_family.setdefault(prefix.length, {}).setdefault(prefix.base, pool)
        wrapped = ((encapsulation_of(pool)[1], pool.spec.prefix.family) for pool in own)
        self._in_use = frozenset((tunnel, family) for tunnel, family in wrapped if tunnel is not None)

    def set_node(self, name: str, node: Node | None) -> None:
        """This is what is known of a node; None: it is gone."""
        before = self.nodes.get(name)
        if node == before:
            return
        self._changed[OF_NODE, name] = None
        for claim in _claims_of(before):
            self._withdraw(claim, name)
        for claim in _claims_of(node):
            self._claim(claim, name)
        if node is None:
            del self.nodes[name]
        else:
            self.nodes[name] = node
        self._mark((name,))
        if name == self.node:
            self._has_all_changed = True
            self._forget_local()
        if self.uses_pod_cidrs:
            self._follow_cidrs(name, before, node)

    def _follow_cidrs(self, name: str, before: Node | None, node: Node | None) -> None:
        former = () if before is None else before.status.pod_cidrs
        latter = () if node is None else node.status.pod_cidrs
        for prefix in dict.fromkeys((*former, *latter)):
            names = self._nodes_of_cidr.setdefault(prefix, set())
            if prefix in latter:
                names.add(name)
            else:
                names.discard(name)
            self._changed[OF_BLOCK, prefix] = None
            self.set_block(prefix, BlockRoutes(min(names)) if names else None)

    def set_block(self, prefix: Prefix, block: BlockRoutes | None) -> None:
        """This is what is known of a block; None: it is gone."""
        before = self.blocks.get(prefix)
        if block == before:
            return
        self._changed[OF_BLOCK, prefix] = None
        self._changed[OF_LEARNED, prefix] = None
        for name in () if before is None else before.nodes:
            left = tuple(each for each in self._blocks_of.pop(name) if each != prefix)
            if left:
                self._blocks_of[name] = left
            self._changed[OF_NODE, name] = None
        for name in () if block is None else block.nodes:
            self._blocks_of[name] = (*self._blocks_of.get(name, ()), prefix)
            self._changed[OF_NODE, name] = None
        length = prefix.family, prefix.length
        if block is None:
            del self.blocks[prefix]
            self._block_lengths[length] -= 1
        else:
            self.blocks[prefix] = block
            self._block_lengths[length] += before is None
        if self.node in {each.owner for each in (before, block) if each is not None}:
            self._changed.update(dict.fromkeys((OF_WORKLOAD, each) for each in self.workloads if prefix.covers(each)))

    def set_floating(self, floating: Mapping[Address, str]) -> None:
        """These are the floating addresses of workloads of the node, each with the host end of its workload."""
        before, self.floating = self.floating, {each.host_prefix: device for each, device in floating.items()}
        changed = dict(before.items() ^ self.floating.items())
        self._changed.update(dict.fromkeys((OF_FLOATING, each) for each in changed))

    def set_learned(self, learned: Mapping[Prefix, Address]) -> None:
        """These prefixes of pools with IPIP are announced to this node, each with its next hop."""
        before, self.learned = self.learned, learned
        changed = dict(before.items() ^ learned.items())
        self._changed.update(dict.fromkeys((OF_LEARNED, each) for each in changed))

    def set_workloads(self, workloads: frozenset[Prefix]) -> None:
        """These are the addresses of workloads of the node."""
        changed, self.workloads = self.workloads ^ workloads, workloads
        for each in changed:
            self._changed[OF_WORKLOAD, each] = None
            self._changed[OF_LEARNED, each] = None
            found = self.find_block(each)
            if found is not None:
                self._changed[OF_BLOCK, found[0]] = None

    def take_changed(self) -> tuple[Source, ...] | None:
        """The sources that changes since the last call concern; None: all, those that are gone too."""
        changed, self._changed = tuple(self._changed), {}
        has_all, self._has_all_changed = self._has_all_changed, False
        return None if has_all else changed

    def sources(self) -> Iterator[Source]:
        """All sources that there are."""
        yield SELF
        yield from ((OF_NODE, name) for name in self.nodes)
        yield from ((OF_BLOCK, each) for each in self.blocks)
        yield from ((OF_WORKLOAD, each) for each in self.workloads)
        yield from ((OF_FLOATING, each) for each in self.floating)
        yield from ((OF_LEARNED, each) for each in self.learned)

    def _forget_local(self) -> None:
        self._local, self._tunnels = {}, {}

    def _claim(self, claim: _Claim, name: str) -> None:
        sort, number = claim
        first = self._claims.setdefault(sort, {}).setdefault(number, name)
        if first != name:
            rivals = self._rivals.setdefault(claim, {first})
            rivals.add(name)
            self._note_rivals(claim, rivals)

    def _withdraw(self, claim: _Claim, name: str) -> None:
        rivals, (sort, number) = self._rivals.get(claim), claim
        if rivals is None:
            del self._claims[sort][number]
        else:
            rivals.discard(name)
            self._note_rivals(claim, rivals)

    def _note_rivals(self, claim: _Claim, rivals: set[str]) -> None:
        sort, number = claim
        self._claims[sort][number] = min(rivals)
        if len(rivals) == 1:
            del self._rivals[claim]
        self._mark(rivals)

    def _mark(self, names: Iterable[str]) -> None:
        for name in names:
            self._changed[OF_NODE, name] = None
            self._changed.update(dict.fromkeys((OF_BLOCK, prefix) for prefix in self._blocks_of.get(name, ())))

    # What follows from it.

    def find_pool(self, prefix: Prefix) -> IPPool | None:
        """The pool that a prefix lies in: the smallest one."""
        width, base = prefix.family.width, prefix.base
        for length, pools in self._pools_by_length.get(prefix.family, {}).items():
            if length <= prefix.length:
                shift = width - length
                found = pools.get(base >> shift << shift)
                if found is not None:
                    return found
        return None

    def find_block(self, address: Prefix) -> tuple[Prefix, BlockRoutes] | None:
        """The block that an address lies in, with its prefix. Blocks do not overlap."""
        for family, length in self._block_lengths:
            if family is address.family:
                prefix = Prefix.at(address.first, length)
                found = self.blocks.get(prefix)
                if found is not None:
                    return prefix, found
        return None

    def nodes_of_cidr(self, prefix: Prefix) -> tuple[str, ...]:
        """The nodes that the orchestrator has given a prefix for their pods."""
        return tuple(sorted(self._nodes_of_cidr.get(prefix, ())))

    def uses(self, kind: TunnelKind, family: Family) -> bool:
        """Whether some pool is wrapped so; disabled ones count, since their pods run on."""
        return (kind, family) in self._in_use

    def has_tunnel(self, family: Family, kind: TunnelKind = TunnelKind.VXLAN) -> bool:
        """Whether this node has what a device needs."""
        found = self._tunnels.get((kind, family))
        if found is None:
            node = self.nodes[self.node]
            bgp = node.spec.bgp
            ipip = None if bgp is None else bgp.ipip_tunnel_address
            address = node.find_vxlan_address(family) if kind is TunnelKind.VXLAN else ipip
            found = address is not None and not isinstance(self.find_local(family), Problem)
            self._tunnels[kind, family] = found
        return found

    def find_local(self, family: Family) -> tuple[InterfaceAddress, str] | Problem:
        """The address of this node in a family, and the name of the interface that has it."""
        found = self._local.get(family)
        if found is None:
            found = self._local[family] = self._look_for_local(family)
        return found

    def _look_for_local(self, family: Family) -> tuple[InterfaceAddress, str] | Problem:
        message, held = (
            f"pods of other nodes are not reached over {family}",
            self.nodes[self.node].find_address(family),
        )
        if held is None:
            return Problem(message=message, cause=f"this node has no {family} address")
        for each in self.interfaces:
            if any(other.held.address == held.address for other in each.addresses):
                return held, each.name
        return Problem(message=message, cause=f"no interface has the address of this node, {held.address}")

    def is_in_own_block(self, name: str, address: Address) -> bool:
        """Whether an address lies in a block of a node that is more than this address."""
        found = self.find_block(address.host_prefix)
        return found is not None and found[1].owner == name and found[0].length < address.family.width

    def is_first(self, name: str) -> bool:
        """Whether no node with a lower name has a tunnel address or a MAC of this one."""
        if not self._rivals:
            return True
        return all(self._claims[sort][number] == name for sort, number in _claims_of(self.nodes[name]))

    def rivals_of(self, name: str) -> Iterator[tuple[str, str, str]]:
        """What a node has that one with a lower name has too: the other one, what it is, and its text."""
        for sort, number in _claims_of(self.nodes[name]) if self._rivals else ():
            first = self._claims[sort][number]
            if first != name:
                family = next(each for each in Family if sort in {_ADDRESS_CLAIMS[each], _MAC_CLAIMS[each]})
                is_address = sort == _ADDRESS_CLAIMS[family]
                yield first, sort, str(Address(family, number)) if is_address else number.to_bytes(6, "big").hex(":")

    def mac(self, name: str, family: Family) -> str:
        """The MAC of the VXLAN device of a node."""
        return _mac_of(self.nodes[name], family)


def _mac_of(node: Node, family: Family) -> str:
    return node.vxlan_mac(family) or vxlan_mac(node.metadata.name, family)


def _claims_of(node: Node | None) -> Iterator[_Claim]:
    """What no other node may have too."""
    if node is None:
        return
    for family in Family:
        address = node.find_vxlan_address(family)
        if address is not None:
            yield _ADDRESS_CLAIMS[family], address.value
            yield _MAC_CLAIMS[family], int(_mac_of(node, family).replace(":", ""), 16)


def encapsulation_of(pool: IPPool | None) -> tuple[Encapsulation, TunnelKind | None]:
    """How packets to a pool are wrapped; None: not at all."""
    if pool is not None and pool.spec.vxlan_mode is not Encapsulation.NEVER:
        return pool.spec.vxlan_mode, TunnelKind.VXLAN
    if pool is not None and pool.spec.ipip_mode is not Encapsulation.NEVER and pool.spec.prefix.family is Family.IPV4:
        return pool.spec.ipip_mode, TunnelKind.IPIP
    return Encapsulation.NEVER, None


# --- from the view of a datastore -------------------------------------------------------------------------------------


def update_inputs(inputs: RouteInputs, view: View, changed: AbstractSet[Key[object]] | None) -> None:
    """Tell what has changed in a view; None: everything may have. Where pod CIDRs are the blocks, it has no blocks."""
    if changed is None or any(key.kind == IPPOOL for key in changed):
        inputs.set_pools(record.value for record in view.list(IPPOOL))
    if changed is None:
        nodes = {record.key.name for record in view.list(NODE)} | inputs.nodes.keys()
        prefixes = set[Prefix]()
        if not inputs.uses_pod_cidrs:
            prefixes = {record.value.prefix for record in view.list(BLOCK)} | inputs.blocks.keys()
    else:
        nodes = {key.name for key in changed if key.kind == NODE}
        prefixes = {prefix for key in changed if key.kind in {BLOCK, AFFINITY} for prefix in _prefixes_of(key)}
    for name in sorted(nodes):
        record = view.find(node_key(name))
        inputs.set_node(name, None if record is None else record.value)
    for prefix in sorted(prefixes):
        block = view.find(block_key(prefix))
        inputs.set_block(prefix, None if block is None else _find_block(view, block.value))


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
    kernel: str = "",
) -> RouteSettings:
    """The settings of a node, from what is configured for it or for all nodes, and from its interfaces.

    ``kernel`` is the release of its kernel, such as 6.1.0-18-amd64; empty: one without known errors.
    """
    spec = effective_settings((record.value for record in view.list(NODE_CONFIGURATION)), node)
    found, usual = find_mtus(interfaces, spec, mtus), RouteSettings(vxlan_mtu={})
    return RouteSettings(
        vxlan_mtu=found.vxlan,
        ipip_mtu=found.ipip,
        vxlan_vni=spec.vxlan_vni or usual.vxlan_vni,
        vxlan_port=spec.vxlan_port or usual.vxlan_port,
        bgp=bgp,
        has_checksum_offload=_find_checksum_offload(spec.feature_overrides, kernel),
    )


_LAST_BROKEN_CHECKSUMS: Final = 5, 7


def _find_checksum_offload(overrides: str, kernel: str) -> bool | None:
    """Whether a tunnel device leaves checksums to later devices; None: as the kernel has chosen.

    Kernels up to 5.7 sum wrong after a translation to a random port: connections through a tunnel stall.
    """
    given = dict(each.split("=") for each in overrides.split(",") if each).get("ChecksumOffloadBroken")
    if given is not None:
        return given == "false"
    found = re.match(r"(\d+)\.(\d+)", kernel)
    is_broken = found is not None and (int(found[1]), int(found[2])) <= _LAST_BROKEN_CHECKSUMS
    return False if is_broken else None
