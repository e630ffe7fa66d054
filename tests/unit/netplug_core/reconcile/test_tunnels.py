"""Which tunnel addresses a node needs, and what is to be done about each."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.reconcile.tunnels import (
    TunnelAddress,
    TunnelChange,
    find_tunnel_pools,
    plan_tunnel_address,
    with_tunnel_address,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse, Encapsulation, IPPool
from netplug_core.resources.node import Node, NodeBGP, NodeSpec
from tests.harness.routes import make_pool

NODE = Node(metadata=Metadata(name="a", labels=(("zone", "x"),)))
V4 = make_pool("10.0.0.0/16", vxlan=Encapsulation.ALWAYS)
V6 = make_pool("fd00::/64", vxlan=Encapsulation.CROSS_SUBNET)
IPIP = make_pool("10.1.0.0/16", ipip=Encapsulation.ALWAYS)
FREE, OTHER = Address.parse("10.0.0.5"), Address.parse("10.5.0.5")


def with_spec(pool: IPPool, **changes: Any) -> IPPool:  # noqa: ANN401  any member
    return evolve(pool, spec=evolve(pool.spec, **changes))


@pytest.mark.parametrize("sort", TunnelAddress)
def test_each_sort_has_a_handle_an_owner_and_a_place_in_the_node(sort: TunnelAddress) -> None:
    address = Address.parse("10.0.0.1" if sort.family is Family.IPV4 else "fd00::1")
    node = with_tunnel_address(NODE, sort, address)
    assert [each.find(node) for each in TunnelAddress] == [address if each is sort else None for each in TunnelAddress]
    assert with_tunnel_address(node, sort, None) == NODE
    assert sort.handle("a").endswith("-tunnel-addr-a") or sort.handle("a") == "vxlan-v6-tunnel-addr-a"
    owner = dict(sort.owner("a"))
    assert owner["node"] == "a"
    assert owner["type"].endswith("TunnelAddress")


def test_names_are_those_of_the_field() -> None:
    found = [(sort.handle("n"), dict(sort.owner("n"))["type"]) for sort in TunnelAddress]
    assert found == [
        ("vxlan-tunnel-addr-n", "vxlanTunnelAddress"),
        ("vxlan-v6-tunnel-addr-n", "vxlanV6TunnelAddress"),
        ("ipip-tunnel-addr-n", "ipipTunnelAddress"),
    ]


def test_what_else_a_node_says_of_bgp_stays() -> None:
    node = evolve(NODE, spec=NodeSpec(bgp=NodeBGP(as_number=7, ipip_tunnel_address=FREE)))
    left = with_tunnel_address(node, TunnelAddress.IPIP, None)
    assert left.spec.bgp == NodeBGP(as_number=7)
    assert TunnelAddress.IPIP.find(left) is None


@pytest.mark.parametrize(
    "pool,sorts",
    [
        (V4, [TunnelAddress.VXLAN]),
        (V6, [TunnelAddress.VXLAN_V6]),
        (IPIP, [TunnelAddress.IPIP]),
        (make_pool("10.0.0.0/16"), []),
        (with_spec(V4, is_disabled=True), []),
        (with_spec(V4, allowed_uses=(AllowedUse.WORKLOAD,)), []),
        (with_spec(V4, node_selector="zone == 'x'"), [TunnelAddress.VXLAN]),
        (with_spec(V4, node_selector="zone == 'y'"), []),
        (with_spec(V4, node_selector="zone = 'x'"), []),
    ],
)
def test_an_address_comes_from_an_enabled_pool_that_selects_the_node_for_tunnels(
    pool: IPPool, sorts: list[TunnelAddress]
) -> None:
    assert [sort for sort in TunnelAddress if find_tunnel_pools(sort, NODE, [pool])] == sorts


@pytest.mark.parametrize(
    "named,held,pools,change",
    [
        (None, (), (), None),
        (None, (), (V4,), TunnelChange(pools=(Prefix.parse("10.0.0.0/16"),))),
        (FREE, (FREE,), (V4,), None),
        # It was assigned, and the process died before the Node was written.
        (None, (FREE,), (V4,), TunnelChange(stored=FREE)),
        # What the Node names is another's: it gets one of its own, and the other keeps its.
        (FREE, (), (V4,), TunnelChange(pools=(Prefix.parse("10.0.0.0/16"),))),
        # The pool of the address is gone or changed.
        (OTHER, (OTHER,), (V4,), TunnelChange(pools=(Prefix.parse("10.0.0.0/16"),), is_released=True)),
        (FREE, (FREE,), (), TunnelChange(is_given_up=True)),
        (FREE, (), (), TunnelChange()),
        (None, (FREE,), (), TunnelChange(is_given_up=True)),
    ],
)
def test_what_is_to_be_done(
    named: Address | None, held: tuple[Address, ...], pools: tuple[IPPool, ...], change: TunnelChange | None
) -> None:
    node = with_tunnel_address(NODE, TunnelAddress.VXLAN, named)
    assert plan_tunnel_address(TunnelAddress.VXLAN, node, pools, held) == change
