"""The addresses of a node's own tunnel devices: which it needs, and from which pools they come.

Packets that a node itself sends to pods of others have the address of the tunnel as their source, so that the answers
find their way back. The address is one of a pool, assigned as those of pods are, under a handle of its own.

``netplug_core.flows.node`` assigns and releases by these rules.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import assert_never

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.allocation.pools import is_enabled
from netplug_core.ipam.model import Pairs
from netplug_core.resources.ippool import AllowedUse, Encapsulation, IPPool
from netplug_core.resources.node import Node, NodeBGP
from netplug_core.selectors import SelectorError, matches, parse

__all__ = ["TunnelAddress", "TunnelChange", "find_tunnel_pools", "plan_tunnel_address", "with_tunnel_address"]


class TunnelAddress(enum.Enum):
    """A sort of tunnel address, of which a node has at most one.

    The value has the family, what the handle begins with, and the type that is stored with the address.
    """

    VXLAN = (Family.IPV4, "vxlan-tunnel-addr", "vxlanTunnelAddress")
    VXLAN_V6 = (Family.IPV6, "vxlan-v6-tunnel-addr", "vxlanV6TunnelAddress")
    IPIP = (Family.IPV4, "ipip-tunnel-addr", "ipipTunnelAddress")

    @property
    def family(self) -> Family:
        """The family of the address."""
        return self.value[0]

    def handle(self, node: str) -> str:
        """The handle that holds the address of a node."""
        return f"{self.value[1]}-{node}"

    def owner(self, node: str) -> Pairs:
        """What is stored with the address."""
        return (("node", node), ("type", self.value[2]))

    def find(self, node: Node) -> Address | None:
        """The address that a Node names; None if it names none."""
        match self:
            case TunnelAddress.VXLAN:
                return node.spec.vxlan_tunnel_address
            case TunnelAddress.VXLAN_V6:
                return node.spec.vxlan_tunnel_address_v6
            case TunnelAddress.IPIP:
                return None if node.spec.bgp is None else node.spec.bgp.ipip_tunnel_address
            case _:
                assert_never(self)

    def is_needed_by(self, pool: IPPool) -> bool:
        """Whether packets to a pool are wrapped so."""
        spec = pool.spec
        mode = spec.ipip_mode if self is TunnelAddress.IPIP else spec.vxlan_mode
        return spec.prefix.family is self.family and mode is not Encapsulation.NEVER


def with_tunnel_address(node: Node, sort: TunnelAddress, address: Address | None) -> Node:
    """The Node with another address; None: without one."""
    match sort:
        case TunnelAddress.VXLAN:
            return evolve(node, spec=evolve(node.spec, vxlan_tunnel_address=address))
        case TunnelAddress.VXLAN_V6:
            return evolve(node, spec=evolve(node.spec, vxlan_tunnel_address_v6=address))
        case TunnelAddress.IPIP:
            bgp = evolve(node.spec.bgp or NodeBGP(), ipip_tunnel_address=address)
            return evolve(node, spec=evolve(node.spec, bgp=None if bgp == NodeBGP() else bgp))
        case _:
            assert_never(sort)


def find_tunnel_pools(sort: TunnelAddress, node: Node, pools: Iterable[IPPool]) -> tuple[IPPool, ...]:
    """The pools that an address may come from: enabled, wrapped so, for this node, and for tunnels.

    A pool whose selector cannot be read is passed over, as everywhere.
    """
    return tuple(
        pool
        for pool in pools
        if sort.is_needed_by(pool)
        and is_enabled(pool)
        and AllowedUse.TUNNEL in pool.spec.allowed_uses
        and _selects(pool, node)
    )


def _selects(pool: IPPool, node: Node) -> bool:
    try:
        return matches(parse(pool.spec.node_selector), dict(node.metadata.labels))
    except SelectorError:
        return False


@frozen(kw_only=True)
class TunnelChange:
    """What is to be done about one address, in this order.

    - ``released``: what the handle holds is released, since it cannot be used; then an address is assigned
    - ``pools``: an address is assigned from these; empty: none is
    - ``stored``: the Node names this one; None: none. After an assignment it is the one that was assigned
    - ``is_given_up``: what the handle holds is released at the end
    """

    pools: tuple[Prefix, ...] = ()
    stored: Address | None = None
    is_released: bool = False
    is_given_up: bool = False


def plan_tunnel_address(
    sort: TunnelAddress, node: Node, pools: Iterable[IPPool], held: tuple[Address, ...]
) -> TunnelChange | None:
    """What is to be done about an address of a node; None: nothing. ``held`` are the addresses of its handle.

    The handle says whose an address is, and not the Node: an address that the Node names and the handle does not hold
    is another's, and stays that.
    """
    named, ranges = sort.find(node), tuple(pool.spec.prefix for pool in find_tunnel_pools(sort, node, pools))
    usable = [address for address in held if any(address in prefix for prefix in ranges)]
    if not ranges:
        return TunnelChange(is_given_up=bool(held)) if held or named is not None else None
    if named in usable:
        return None
    if usable:  # it was assigned, and the Node was not written
        return TunnelChange(stored=min(usable))
    return TunnelChange(pools=ranges, is_released=bool(held))
