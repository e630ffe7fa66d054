"""Nodes, pools and blocks for tests of routes, and the state of an engine without the ids of nexthops."""

from __future__ import annotations

from attrs import evolve

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.routing import Entry, HostAddress, HostInterface, Nexthop, Route
from netplug_core.reconcile.route_inputs import BlockRoutes, RouteInputs, RouteSettings
from netplug_core.reconcile.routes import RouteEngine
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse, Encapsulation, IPPool
from netplug_core.resources.node import Node, NodeBGP, NodeSpec, NodeStatus

__all__ = ["SETTINGS", "engine_of", "interface", "make_node", "make_pool", "seen"]

SETTINGS = RouteSettings(vxlan_mtu={Family.IPV4: 1450, Family.IPV6: 1430})


def make_node(
    name: str,
    *held: str,
    tunnel: str = "",
    tunnel_v6: str = "",
    ipip: str = "",
    mac: str = "",
    cidrs: tuple[str, ...] = (),
) -> Node:
    """A node with addresses (with their lengths), addresses of tunnels, and pod CIDRs."""
    addresses = {each.address.family: each for each in map(InterfaceAddress.parse, held)}
    bgp = NodeBGP(
        ipv4_address=addresses.get(Family.IPV4),
        ipv6_address=addresses.get(Family.IPV6),
        ipip_tunnel_address=Address.parse(ipip) if ipip else None,
    )
    spec = NodeSpec(
        bgp=None if bgp == NodeBGP() else bgp,
        vxlan_tunnel_address=Address.parse(tunnel) if tunnel else None,
        vxlan_tunnel_address_v6=Address.parse(tunnel_v6) if tunnel_v6 else None,
        vxlan_tunnel_mac=mac,
    )
    status = NodeStatus(pod_cidrs=tuple(map(Prefix.parse, cidrs)))
    return Node(metadata=Metadata(name=name), spec=spec, status=status)


def make_pool(
    prefix: str,
    *,
    vxlan: Encapsulation = Encapsulation.NEVER,
    ipip: Encapsulation = Encapsulation.NEVER,
    uses: tuple[AllowedUse, ...] = (AllowedUse.WORKLOAD, AllowedUse.TUNNEL),
    block_length: int | None = None,
    is_export_disabled: bool = False,
) -> IPPool:
    """A pool over a prefix; its name is the prefix."""
    pool = IPPool.for_prefix(Prefix.parse(prefix), name=prefix.replace("/", "-").replace(":", "-"))
    spec = evolve(
        pool.spec,
        vxlan_mode=vxlan,
        ipip_mode=ipip,
        allowed_uses=uses,
        is_bgp_export_disabled=is_export_disabled,
        block_length=pool.spec.block_length if block_length is None else block_length,
    )
    return evolve(pool, spec=spec)


def interface(name: str, *held: str, mtu: int = 1500) -> HostInterface:
    """An interface of the node that is up, with addresses."""
    addresses = tuple(HostAddress(held=InterfaceAddress.parse(each)) for each in held)
    return HostInterface(name=name, index=2, is_up=True, mtu=mtu, addresses=addresses)


def engine_of(
    node: str,
    *,
    nodes: tuple[Node, ...] = (),
    pools: tuple[IPPool, ...] = (),
    blocks: dict[str, BlockRoutes] | None = None,
    interfaces: tuple[HostInterface, ...] = (),
    settings: RouteSettings = SETTINGS,
) -> RouteEngine:
    """An engine that knows all this. If the orchestrator has given nodes pod CIDRs, these are the blocks."""
    inputs = RouteInputs(node, uses_pod_cidrs=any(each.status.pod_cidrs for each in nodes))
    inputs.set_settings(settings)
    inputs.set_interfaces(interfaces)
    inputs.set_pools(pools)
    for each in nodes:
        inputs.set_node(each.metadata.name, each)
    for prefix, block in (blocks or {}).items():
        inputs.set_block(Prefix.parse(prefix), block)
    return RouteEngine(inputs)


def seen(engine: RouteEngine) -> frozenset[Entry | str]:
    """What should exist, with each nexthop by what it is in place of its id."""
    entries = engine.desired()
    nexthops = {each.id: f"{each.gateway} over {each.device}" for each in entries if isinstance(each, Nexthop)}
    found = set[Entry | str]()
    for each in entries:
        if isinstance(each, Nexthop):
            found.add(nexthops[each.id])
        elif isinstance(each, Route) and each.nexthop is not None:
            found.add(f"{evolve(each, nexthop=None)} by {nexthops[each.nexthop]} from {each.source} mtu {each.mtu}")
        else:
            found.add(each)
    return frozenset(found)
