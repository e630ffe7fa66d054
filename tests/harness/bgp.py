"""Plans of BGP sessions that tests render and apply."""

from __future__ import annotations

from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.bgp import (
    AddedCommunity,
    BgpPlan,
    BgpSession,
    FilterRule,
    NextHop,
    Prepended,
    Priority,
    RouteFilter,
)
from netplug_core.resources.bgp import BindMode, FilterAction, MatchOperator, PeerType
from netplug_core.resources.fields import LogSeverity

__all__ = ["MESH_PLAN", "PLANS", "POOL", "internal_session"]

POOL = Prefix.parse("10.91.0.0/16")
IPIP_POOL = Prefix.parse("10.93.0.0/16")
SIX_POOL = Prefix.parse("fd91::/48")


def internal_session(name: str, own: str, address: str, *, port: int = 179) -> BgpSession:
    """A session within AS 64512, as the mesh has it."""
    here, there = Address.parse(own), Address.parse(address)
    return BgpSession(
        name=name,
        peer=name,
        address=there,
        port=port,
        local_as=64512,
        peer_as=64512,
        source=here,
        is_passive=here < there,
    )


MESH_PLAN = BgpPlan(
    node="n1",
    router_id=Address.parse("10.240.0.11"),
    addresses=(Address.parse("10.240.0.11"), Address.parse("fd10::11")),
    sessions=(
        internal_session("Mesh4_10_240_0_12", "10.240.0.11", "10.240.0.12"),
        internal_session("Mesh6_fd10__10", "fd10::11", "fd10::10"),
    ),
    pools=(POOL, SIX_POOL),
)
"""Two other nodes, one of each family."""

_EDGE = RouteFilter(
    name="filter4_edge",
    family=Family.IPV4,
    imported=(FilterRule(action=FilterAction.REJECT, peer_type=PeerType.EXTERNAL, as_path_prefix=(65001, 65002)),),
    exported=(
        FilterRule(action=FilterAction.REJECT, prefix=POOL, operator=MatchOperator.EQUAL),
        FilterRule(action=FilterAction.REJECT, prefix=POOL, operator=MatchOperator.NOT_EQUAL, lengths=(8, 24)),
        FilterRule(action=FilterAction.REJECT, prefix=POOL, lengths=(8, 24), is_from_peers=True, interface="eth*"),
        FilterRule(action=FilterAction.REJECT, prefix=POOL, operator=MatchOperator.NOT_IN, lengths=(8, 12)),
        FilterRule(action=FilterAction.REJECT, community=(65001, 100), peer_type=PeerType.INTERNAL),
        FilterRule(action=FilterAction.REJECT, community=(1, 2, 3), priority=100),
        FilterRule(
            action=FilterAction.ACCEPT,
            operations=(
                AddedCommunity((64512, 7)),
                Prepended((64512, 64513)),
                Priority(200),
                AddedCommunity((1, 2, 3)),
            ),
        ),
    ),
)

_ROUTER = BgpSession(
    name="Global4_192_0_2_1_port_1790",
    peer="router",
    address=Address.parse("192.0.2.1"),
    port=1790,
    local_as=64600,
    peer_as=65001,
    password="s3cret",  # noqa: S106  # no password
    hold_s=120,
    keepalive_s=40,
    restart_s=300,
    ttl_hops=2,
    allowed_local_as=3,
    next_hop=NextHop.SELF,
    filters=("filter4_edge",),
    gateway=Address.parse("10.240.0.1"),
)

_EVERYTHING = evolve(
    MESH_PLAN,
    listen_port=1791,
    bind_mode=BindMode.NODE_IP,
    log_severity=LogSeverity.DEBUG,
    cluster_id=Address.parse("224.0.0.1"),
    sessions=(
        _ROUTER,
        evolve(_ROUTER, name="Global4_192_0_2_2", address=Address.parse("192.0.2.2"), is_closed=True, gateway=None),
        evolve(
            internal_session("Reverse4_10_240_0_12", "10.240.0.11", "10.240.0.12"),
            is_reflector_client=True,
            next_hop=NextHop.SELF_FOR_EXTERNAL,
        ),
        internal_session("Reverse6_fd10__12", "fd10::11", "fd10::12"),
    ),
    filters=(_EDGE, RouteFilter(name="filter6_empty", family=Family.IPV6)),
    pools=(POOL, IPIP_POOL, SIX_POOL),
    node_written=(IPIP_POOL,),
    tunnelled=(IPIP_POOL,),
    unexported=(Prefix.parse("10.95.0.0/16"),),
    communities=((POOL, ((1, 2, 3), (65001, 100))), (SIX_POOL, ())),
    ignored_interfaces=("docker0", "br-*"),
)

PLANS = {
    "mesh": MESH_PLAN,
    "everything": _EVERYTHING,
    "alone": BgpPlan(
        node="n1",
        router_id=Address.parse("10.240.0.11"),
        addresses=(Address.parse("fd10::11"),),
        log_severity=LogSeverity.NONE,
    ),
}
"""Plans by a name; together they have whatever a plan can have."""
