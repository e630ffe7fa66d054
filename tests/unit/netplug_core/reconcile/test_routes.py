"""The routes between nodes: what each fact becomes, and that nothing is lost on the way from one state to another."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_backends.memory.routing import MemoryRouting
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane import routing
from netplug_core.dataplane.bgp import BgpUse
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import (
    ADVERTISED_TABLE,
    BLACKHOLE_METRIC,
    NEXTHOP_BASE,
    NEXTHOP_COUNT,
    Change,
    FailedChange,
    FdbEntry,
    ForeignEntry,
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
    tunnel_gateway,
)
from netplug_core.reconcile.route_inputs import (
    BlockRoutes,
    RouteInputs,
    vxlan_mac,
)
from netplug_core.reconcile.routes import RouteEngine, plan_removal
from netplug_core.resources.ippool import AllowedUse, Encapsulation
from netplug_core.resources.node import NodeStatus
from tests.harness.routes import SETTINGS, engine_of, interface, make_node, make_pool, seen

A = make_node("a", "192.0.2.1/24", "2001:db8::1/64", tunnel="10.0.0.1", tunnel_v6="fd00::1", ipip="10.9.0.1")
B = make_node("b", "192.0.2.2/24", "2001:db8::2/64", tunnel="10.0.0.65", tunnel_v6="fd00::401", ipip="10.9.0.2")
FAR = make_node("c", "198.51.100.3/24", tunnel="10.0.0.129")
ETH0 = interface("eth0", "192.0.2.1/24", "2001:db8::1/64")
ETH1 = interface("eth1", "203.0.113.1/24")
ALWAYS, CROSS = Encapsulation.ALWAYS, Encapsulation.CROSS_SUBNET
OWN, OF_B, OF_C = "10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26"
BLOCKS = {OWN: BlockRoutes("a"), OF_B: BlockRoutes("b"), OF_C: BlockRoutes("c")}


def engine(pool_mode: Encapsulation, **more: object) -> RouteEngine:
    """Node a with a VXLAN pool of that mode, and two others."""
    pools = (make_pool("10.0.0.0/16", vxlan=pool_mode),)
    return engine_of("a", nodes=(A, B, FAR), pools=pools, blocks=BLOCKS, interfaces=(ETH0,), **more)  # type: ignore[arg-type]


def blackhole(prefix: str) -> Route:
    return Route(destination=Prefix.parse(prefix), kind=RouteKind.BLACKHOLE, metric=BLACKHOLE_METRIC)


def problems(found: RouteEngine) -> list[str]:
    found.changes()
    return [f"{each.message}: {each.cause}" for each in found.problems]


def of_node(name: str, device: str, node_address: str, tunnel: str) -> set[object]:
    family = Address.parse(tunnel).family
    mac = vxlan_mac(name, family)
    return {
        FdbEntry(device, mac, Address.parse(node_address)),
        TunnelNeighbour(device, tunnel_gateway(Address.parse(tunnel), mac), mac),
    }


DEVICE = Tunnel(
    name="vxlan.netplug",
    kind=TunnelKind.VXLAN,
    address=Address.parse("10.0.0.1"),
    local=Address.parse("192.0.2.1"),
    mtu=1450,
    parent="eth0",
    mac=vxlan_mac("a", Family.IPV4),
    vni=4096,
    port=4789,
)


def test_the_mac_of_a_device_follows_from_the_name_of_the_node_and_the_family() -> None:
    assert vxlan_mac("node-a", Family.IPV4) == "66:07:02:c1:cc:60"
    assert vxlan_mac("node-a", Family.IPV6) == "66:d4:d5:51:3d:42"


def test_vxlan_always_wraps_packets_to_every_node() -> None:
    found = engine(ALWAYS)
    assert seen(found) == {
        DEVICE,
        blackhole(OWN),
        *of_node("b", "vxlan.netplug", "192.0.2.2", "10.0.0.65"),
        *of_node("c", "vxlan.netplug", "198.51.100.3", "10.0.0.129"),
        "10.0.0.65 over vxlan.netplug",
        "10.0.0.129 over vxlan.netplug",
        f"the route to {OF_B} via the link by 10.0.0.65 over vxlan.netplug from None mtu 1450",
        f"the route to {OF_C} via the link by 10.0.0.129 over vxlan.netplug from None mtu 1450",
    }
    assert problems(found) == []


def test_vxlan_across_subnets_wraps_nothing_within_one() -> None:
    found = seen(engine(CROSS))
    assert f"the route to {OF_B} via the link by 192.0.2.2 over eth0 from 192.0.2.1 mtu 0" in found
    assert f"the route to {OF_C} via the link by 10.0.0.129 over vxlan.netplug from None mtu 1450" in found


def test_without_encapsulation_nodes_of_other_subnets_are_not_reached_and_named() -> None:
    found = engine(Encapsulation.NEVER)
    assert seen(found) == {
        blackhole(OWN),
        "192.0.2.2 over eth0",
        f"the route to {OF_B} via the link by 192.0.2.2 over eth0 from 192.0.2.1 mtu 0",
    }
    problem = (
        "there is no route to pods of node c: "
        "198.51.100.3 is not in the subnet of this node, 192.0.2.0/24, and pool 10.0.0.0-16 has no encapsulation"
    )
    assert problems(found) == [problem]


def test_with_bgp_a_daemon_writes_the_routes_without_encapsulation_and_announces_own_blocks() -> None:
    settings = evolve(SETTINGS, bgp=BgpUse(is_enabled=True))
    announced = Route(
        destination=Prefix.parse(OWN), kind=RouteKind.BLACKHOLE, table=ADVERTISED_TABLE, metric=BLACKHOLE_METRIC
    )
    found = engine(Encapsulation.NEVER, settings=settings)
    assert seen(found) == {blackhole(OWN), announced}
    assert problems(found) == []
    found.inputs.set_pools([make_pool("10.0.0.0/16", is_export_disabled=True)])
    assert seen(found) == {blackhole(OWN)}
    found.inputs.set_pools([])
    assert announced not in seen(found)


def test_ipip_has_the_node_as_its_gateway() -> None:
    pools = (make_pool("10.0.0.0/16", ipip=ALWAYS),)
    found = seen(engine_of("a", nodes=(A, B), pools=pools, blocks=BLOCKS, interfaces=(ETH0,)))
    tunnel = Tunnel(
        name="ipip.netplug",
        kind=TunnelKind.IPIP,
        address=Address.parse("10.9.0.1"),
        local=Address.parse("192.0.2.1"),
        mtu=1480,
    )
    assert tunnel in found
    assert f"the route to {OF_B} via the link by 192.0.2.2 over ipip.netplug from None mtu 1480" in found
    assert not any(isinstance(each, FdbEntry | TunnelNeighbour) for each in found)


def test_both_families_have_devices_of_their_own() -> None:
    pools = (make_pool("10.0.0.0/16", vxlan=ALWAYS), make_pool("fd00::/64", vxlan=ALWAYS))
    blocks = {**BLOCKS, "fd00::400/122": BlockRoutes("b"), "fd00::/122": BlockRoutes("a")}
    found = seen(engine_of("a", nodes=(A, B), pools=pools, blocks=blocks, interfaces=(ETH0,)))
    assert of_node("b", "vxlan6.netplug", "2001:db8::2", "fd00::401") <= found
    assert blackhole("fd00::/122") in found
    gateway = tunnel_gateway(Address.parse("fd00::401"), vxlan_mac("b", Family.IPV6))
    assert f"the route to fd00::400/122 via the link by {gateway} over vxlan6.netplug from None mtu 1430" in found
    assert TunnelNeighbour("vxlan6.netplug", Address.parse("fd00::401"), vxlan_mac("b", Family.IPV6)) not in found


def test_an_ipv6_tunnel_address_outside_the_blocks_of_its_node_has_a_neighbour_too() -> None:
    """The route to it leads over the device alone, and nothing there would answer who has it."""
    blocks = {"fd00::400/122": BlockRoutes("a")}
    found = seen(
        engine_of("a", nodes=(A, B), pools=(make_pool("fd00::/64", vxlan=ALWAYS),), blocks=blocks, interfaces=(ETH0,))
    )
    address, mac = Address.parse("fd00::401"), vxlan_mac("b", Family.IPV6)
    assert of_node("b", "vxlan6.netplug", "2001:db8::2", "fd00::401") <= found
    assert TunnelNeighbour("vxlan6.netplug", address, mac) in found
    assert Route(destination=address.host_prefix, device="vxlan6.netplug", mtu=1430) in found


def test_both_families_over_one_device_have_nexthops_of_their_own() -> None:
    pools = (make_pool("10.0.0.0/16"), make_pool("fd00::/64"))
    blocks = {OF_B: BlockRoutes("b"), "fd00::400/122": BlockRoutes("b")}
    found = engine_of("a", nodes=(A, B), pools=pools, blocks=blocks, interfaces=(ETH0,))
    nexthops = [each for each in found.desired() if isinstance(each, Nexthop)]
    assert {str(each.gateway) for each in nexthops} == {"192.0.2.2", "2001:db8::2"}
    assert len({each.id for each in nexthops}) == 2


def test_an_address_held_elsewhere_has_a_route_to_who_holds_it_on_every_other_node() -> None:
    borrowed = (Address.parse("10.0.0.70"), "c")
    route = "the route to 10.0.0.70/32 via the link by 10.0.0.129 over vxlan.netplug from None mtu 1450"
    found = engine(ALWAYS)
    found.inputs.set_block(Prefix.parse(OF_B), BlockRoutes("b", (borrowed,)))
    assert route in seen(found)
    found.inputs.set_block(
        Prefix.parse(OF_B), BlockRoutes("b", ((borrowed[0], "a"),))
    )  # its own route leads to the pod
    assert route not in seen(found)
    found.inputs.set_block(Prefix.parse(OWN), BlockRoutes("a", ((Address.parse("10.0.0.9"), "b"),)))
    assert "the route to 10.0.0.9/32 via the link by 10.0.0.65 over vxlan.netplug from None mtu 1450" in seen(found)


def test_an_address_borrowed_by_this_node_is_announced_alone() -> None:
    found = engine(Encapsulation.NEVER, settings=evolve(SETTINGS, bgp=BgpUse(is_enabled=True)))
    found.inputs.set_block(Prefix.parse(OF_B), BlockRoutes("b", ((Address.parse("10.0.0.70"), "a"),)))
    announced = {each.destination for each in seen(found) if isinstance(each, Route) and each.table == ADVERTISED_TABLE}
    assert announced == {Prefix.parse(OWN), Prefix.parse("10.0.0.70")}


def test_a_block_of_nobody_has_no_route_and_its_addresses_do() -> None:
    found = engine(ALWAYS)
    found.inputs.set_block(Prefix.parse(OF_B), BlockRoutes("", ((Address.parse("10.0.0.70"), "b"),)))
    routes_of_b = [each for each in seen(found) if isinstance(each, str) and "10.0.0.65" in each]
    assert sorted(routes_of_b) == [
        "10.0.0.65 over vxlan.netplug",
        "the route to 10.0.0.70/32 via the link by 10.0.0.65 over vxlan.netplug from None mtu 1450",
    ]


def test_a_tunnel_address_outside_a_block_of_its_node_is_reached_over_the_device_itself() -> None:
    link = Route(destination=Prefix.parse("10.0.0.65"), device="vxlan.netplug", mtu=1450)
    found = engine(ALWAYS)
    assert link not in seen(found)
    found.inputs.set_block(Prefix.parse(OF_B), BlockRoutes("c", ((Address.parse("10.0.0.65"), "b"),)))  # borrowed
    assert link in seen(found)
    pools = (make_pool("10.0.0.0/16", vxlan=ALWAYS, block_length=32),)
    blocks = {"10.0.0.65/32": BlockRoutes("b")}
    assert link in seen(engine_of("a", nodes=(A, B), pools=pools, blocks=blocks, interfaces=(ETH0,)))
    # An address that was set by hand lies in no pool.
    by_hand = make_node("b", "192.0.2.2/24", tunnel="172.16.0.9")
    found.inputs.set_node("b", by_hand)
    assert evolve(link, destination=Prefix.parse("172.16.0.9")) in seen(found)


def test_the_address_of_a_node_never_goes_through_a_tunnel() -> None:
    pools = (make_pool("192.0.2.0/24", vxlan=ALWAYS), make_pool("198.51.100.0/24", vxlan=ALWAYS))
    block = BlockRoutes("b", ((Address.parse("198.51.100.3"), "c"),))
    found = seen(
        engine_of("a", nodes=(A, B, FAR), pools=pools, blocks={"198.51.100.0/26": block}, interfaces=(ETH1, ETH0))
    )
    assert Route(destination=Prefix.parse("192.0.2.2"), device="eth0") in found
    assert not any(isinstance(each, str) and "198.51.100.3/32" in each for each in found)
    assert not any(isinstance(each, Route) and each.destination == Prefix.parse("198.51.100.3") for each in found)


def test_pools_for_load_balancers_alone_are_no_pools() -> None:
    pools = (make_pool("10.0.0.0/16", vxlan=ALWAYS, uses=(AllowedUse.LOAD_BALANCER,)),)
    found = seen(engine_of("a", nodes=(A, B), pools=pools, interfaces=(ETH0,)))
    assert found == frozenset()


@pytest.mark.parametrize(
    "nodes,interfaces,problem",
    [
        ((make_node("a"), B), (ETH0,), "pods of other nodes are not reached over IPv4: this node has no IPv4 address"),
        (
            (A, B),
            (),
            "pods of other nodes are not reached over IPv4: no interface has the address of this node, 192.0.2.1",
        ),
        ((A,), (ETH0,), "there is no route to addresses of node b: it is not registered"),
        ((A, make_node("b")), (ETH0,), "there is no route to pods of node b: it has no IPv4 address"),
        (
            (A, make_node("b", "192.0.2.2/24")),
            (ETH0,),
            "there is no route to pods of node b: it has no IPv4 VXLAN tunnel address yet",
        ),
    ],
)
def test_a_missing_fact_is_named_and_costs_its_own_routes(nodes: tuple, interfaces: tuple, problem: str) -> None:  # type: ignore[type-arg]
    blocks = {OF_B: BlockRoutes("b")}
    for pool in (make_pool("10.0.0.0/16", vxlan=ALWAYS), make_pool("10.0.0.0/16", ipip=ALWAYS)):
        found = engine_of("a", nodes=nodes, pools=(pool,), blocks=blocks, interfaces=interfaces)
        assert not any(isinstance(each, str) for each in seen(found)) or "VXLAN" in problem
        if "VXLAN" not in problem or pool.spec.vxlan_mode is ALWAYS:
            assert problem in problems(found)


def test_blocks_of_a_node_share_its_nexthop_until_the_last_one_goes() -> None:
    found = engine(ALWAYS)
    found.note_applied(found.changes(), ())
    more = [Prefix.parse(f"10.0.{number}.0/26") for number in (3, 2, 1)]
    for prefix in more:  # each comes before the ones of before
        found.inputs.set_block(prefix, BlockRoutes("b"))
        found.note_applied(found.changes(), ())
    found.inputs.set_block(Prefix.parse("10.0.0.0/27"), BlockRoutes("b"))
    assert sorts(found.changes()) == ["Put Route"]
    found.note_applied(found.changes(), ())
    for prefix in (more[1], Prefix.parse("10.0.0.0/27"), more[0], Prefix.parse(OF_B)):
        found.inputs.set_block(prefix, None)
        assert "Remove Nexthop" not in sorts(found.changes())
        found.note_applied(found.changes(), ())
    found.inputs.set_block(more[2], None)
    assert "Remove Nexthop" in sorts(found.changes())


def test_nodes_with_one_pod_cidr_are_named_and_the_first_has_it() -> None:
    found = engine_of(
        "a",
        nodes=(evolve(A, status=NodeStatus(pod_cidrs=(Prefix.parse(OWN),))),),
        pools=(make_pool("10.0.0.0/16"),),
        interfaces=(ETH0,),
    )
    for name in ("c", "b"):
        found.inputs.set_node(name, make_node(name, "192.0.2.2/24", cidrs=(OF_B,)))
    message = f"nodes have the same pod CIDR, so that only the pods of the first one are reached: b, c: {OF_B}"
    assert message in problems(found)
    assert f"the route to {OF_B} via the link by 192.0.2.2 over eth0 from 192.0.2.1 mtu 0" in seen(found)
    found.inputs.set_node("b", None)
    assert problems(found) == []
    assert found.inputs.blocks == {Prefix.parse(OWN): BlockRoutes("a"), Prefix.parse(OF_B): BlockRoutes("c")}


def test_a_node_without_a_tunnel_address_of_its_own_makes_no_device_and_says_nothing_of_the_others() -> None:
    for pool in (make_pool("10.0.0.0/16", vxlan=ALWAYS), make_pool("10.0.0.0/16", ipip=ALWAYS)):
        nodes = (make_node("a", "192.0.2.1/24"), B)
        found = engine_of("a", nodes=nodes, pools=(pool,), blocks={OF_B: BlockRoutes("b")}, interfaces=(ETH0,))
        assert seen(found) == frozenset()
        assert problems(found) == []


def test_nothing_is_known_before_the_own_node_and_the_settings_are() -> None:
    found = engine_of("a", nodes=(B,), pools=(make_pool("10.0.0.0/16"),), blocks=BLOCKS, interfaces=(ETH0,))
    assert found.desired() == ()
    assert RouteEngine(RouteInputs("a")).desired() == ()


def test_of_two_nodes_with_one_tunnel_address_the_first_counts_and_both_are_named() -> None:
    twin = make_node("c", "192.0.2.3/24", tunnel="10.0.0.65")
    found = engine(ALWAYS)
    found.inputs.set_node("c", twin)
    problem = "two nodes have the same IPv4 tunnel address, so that the second one is not reached through tunnels"
    assert problems(found) == [f"{problem}: b and c: 10.0.0.65"]
    nodes = {each.node_address for each in seen(found) if isinstance(each, FdbEntry)}
    assert nodes == {Address.parse("192.0.2.2")}
    found.inputs.set_node("b", None)
    assert f"the route to {OF_C} via the link by 10.0.0.65 over vxlan.netplug from None mtu 1450" in seen(found)


def test_of_two_nodes_with_one_mac_the_first_counts() -> None:
    found = engine(ALWAYS)
    found.inputs.set_node("c", evolve(FAR, spec=evolve(FAR.spec, vxlan_tunnel_mac=vxlan_mac("b", Family.IPV4))))
    assert any("the same IPv4 tunnel MAC" in each for each in problems(found))
    assert not any(isinstance(each, str) and OF_C in each for each in seen(found))


def test_an_address_without_a_known_node_is_named() -> None:
    found = engine(ALWAYS)
    found.inputs.set_block(Prefix.parse(OF_B), BlockRoutes("b", nodeless=(Address.parse("10.0.0.70"),)))
    assert problems(found) == [
        "an address of a block has no recorded node, so that it has no route of its own: 10.0.0.64/26: 10.0.0.70"
    ]


# --- changes ----------------------------------------------------------------------------------------------------------


def sorts(changes: tuple[Change, ...]) -> list[str]:
    return [f"{type(each).__name__} {type(each.entry).__name__}" for each in changes]


def test_changes_come_in_an_order_in_which_nothing_is_missing() -> None:
    found = engine(ALWAYS)
    first = found.changes()
    assert [*dict.fromkeys(sorts(first))] == [
        "Put Tunnel",
        "Put FdbEntry",
        "Put TunnelNeighbour",
        "Put Nexthop",
        "Put Route",
    ]
    found.note_applied(first, ())
    assert found.changes() == ()
    found.inputs.set_node("b", None)
    found.inputs.set_block(Prefix.parse(OF_B), None)
    assert sorts(found.changes()) == ["Remove Route", "Remove Nexthop", "Remove TunnelNeighbour", "Remove FdbEntry"]
    found.inputs.set_pools([])
    assert sorts(found.changes())[-1] == "Remove Tunnel"


def test_one_node_that_changes_its_address_is_one_message_and_one_that_changes_its_tunnel_address_three() -> None:
    found = engine(ALWAYS)
    found.note_applied(found.changes(), ())
    found.inputs.set_node("b", make_node("b", "192.0.2.22/24", tunnel="10.0.0.65"))
    assert sorts(found.changes()) == ["Put FdbEntry"]
    found.note_applied(found.changes(), ())
    found.inputs.set_node("b", make_node("b", "192.0.2.22/24", tunnel="10.0.0.66"))
    assert sorts(found.changes()) == ["Put TunnelNeighbour", "Put Nexthop", "Remove TunnelNeighbour"]


def test_a_block_that_moves_is_replaced_by_one_message() -> None:
    found = engine(ALWAYS)
    found.note_applied(found.changes(), ())
    found.inputs.set_block(Prefix.parse(OF_B), BlockRoutes("c"))
    changes = found.changes()
    assert sorts(changes)[0] == "Put Route"
    assert "Remove Route" not in sorts(changes)


def test_what_failed_is_tried_again_and_what_a_foreign_hand_did_is_repaired() -> None:
    found = engine(ALWAYS)
    first = found.changes()
    failed = FailedChange(first[-1], KernelError("adding a route", "no"))
    found.note_applied(first, (failed,))
    assert found.changes() == (first[-1],)
    found.note_applied(found.changes(), ())
    entries = [each.entry for each in first]
    state = RoutingState(
        tunnels=tuple(each for each in entries if isinstance(each, Tunnel)),
        fdb=tuple(each for each in entries if isinstance(each, FdbEntry))[1:],
        neighbours=tuple(each for each in entries if isinstance(each, TunnelNeighbour)),
        nexthops=tuple(each for each in entries if isinstance(each, Nexthop)),
        routes=(*(each for each in entries if isinstance(each, Route)), blackhole("10.5.0.0/26")),
        foreign=(ForeignEntry("vxlan6.netplug", "it has no alias of netplug"),),
    )
    found.observe(state)
    assert sorts(found.changes()) == ["Put FdbEntry", "Remove Route"]
    assert problems(found) == [
        "a device of another program is where a tunnel is to be: vxlan6.netplug: it has no alias of netplug"
    ]


def test_nexthops_of_a_former_process_keep_their_ids() -> None:
    before = engine(ALWAYS)
    first = before.changes()
    nexthops = tuple(each.entry for each in first if isinstance(each.entry, Nexthop))
    moved = tuple(evolve(each, id=each.id + 100) for each in nexthops)
    after = RouteEngine(RouteInputs("a"))
    old = Nexthop(NEXTHOP_BASE, "eth0", Address.parse("192.0.2.9"), is_onlink=False)
    after.observe(RoutingState(nexthops=(*moved, old)))
    after.inputs.set_settings(SETTINGS)
    after.inputs.set_interfaces((ETH0,))
    after.inputs.set_pools([make_pool("10.0.0.0/16", vxlan=ALWAYS)])
    for node in (A, B, FAR, make_node("d", "192.0.2.4/24", tunnel="10.0.0.193")):
        after.inputs.set_node(node.metadata.name, node)
    for prefix, block in {**BLOCKS, "10.0.0.192/26": BlockRoutes("d")}.items():
        after.inputs.set_block(Prefix.parse(prefix), block)
    changes = after.changes()
    assert [each for each in changes if isinstance(each.entry, Nexthop)] == [
        Put(Nexthop(NEXTHOP_BASE + 1, "vxlan.netplug", Address.parse("10.0.0.193"), is_onlink=True)),
        Remove(old),
    ]


def test_ids_begin_again_when_all_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "NEXTHOP_COUNT", 2)
    assert NEXTHOP_COUNT > 2
    found = engine(ALWAYS)
    ids = {each.entry.id for each in found.changes() if isinstance(each.entry, Nexthop)}
    assert ids == {NEXTHOP_BASE, NEXTHOP_BASE + 1}
    found.inputs.set_node("b", None)
    found.inputs.set_block(Prefix.parse(OF_B), None)
    found.note_applied(found.changes(), ())
    found.inputs.set_node("d", make_node("d", "192.0.2.4/24", tunnel="10.0.0.193"))
    found.inputs.set_block(Prefix.parse("10.0.0.192/26"), BlockRoutes("d"))
    assert {each.id for each in found.desired() if isinstance(each, Nexthop)} == ids


def test_an_uninstallation_removes_everything_in_an_order_in_which_nothing_is_refused() -> None:
    found, kernel = engine(ALWAYS), MemoryRouting()
    kernel.add_interface("eth0", "192.0.2.1/24")
    assert kernel.apply(found.changes()) == ()
    removal = plan_removal(kernel.read())
    assert kernel.apply(removal) == ()
    assert kernel.read() == RoutingState()
    assert plan_removal(kernel.read()) == ()


def test_what_is_repeated_changes_nothing() -> None:
    found = engine(ALWAYS)
    found.note_applied(found.changes(), ())
    found.inputs.set_settings(SETTINGS)
    found.inputs.set_interfaces((ETH0,))
    found.inputs.set_pools([make_pool("10.0.0.0/16", vxlan=ALWAYS)])
    found.inputs.set_node("b", B)
    found.inputs.set_block(Prefix.parse(OF_B), BlockRoutes("b"))
    assert found.changes() == ()
    assert found.inputs.interfaces == (ETH0,)
    assert [pool.metadata.name for pool in found.inputs.pools] == ["10.0.0.0-16"]


# --- for people -------------------------------------------------------------------------------------------------------


def test_each_route_is_explained_by_the_fact_that_it_follows_from() -> None:
    found = engine(ALWAYS)
    found.inputs.set_block(Prefix.parse(OF_B), BlockRoutes("b", ((Address.parse("10.0.0.70"), "c"),)))
    found.inputs.set_block(Prefix.parse("172.16.0.0/26"), BlockRoutes("", ((Address.parse("172.16.0.1"), "b"),)))
    found.inputs.set_node("d", make_node("d", "10.0.200.1/24", tunnel="10.0.9.9"))
    found.inputs.set_interfaces((interface("eth0", "192.0.2.1/24", "10.0.200.2/24"), ETH1))
    changes = found.changes()
    found.note_applied(changes[:-1], ())
    explained = {str(each.destination): (each.way, each.reason) for each in found.explain()}
    assert explained == {
        "10.0.0.0/26": (
            "blackhole",
            "a block of this node: packets to its free addresses end here, pool 10.0.0.0-16",
        ),
        "10.0.0.64/26": (
            "via 10.0.0.65 dev vxlan.netplug",
            "a block of node b, pool 10.0.0.0-16, VXLAN Always",
        ),
        "10.0.0.70/32": (
            "via 10.0.0.129 dev vxlan.netplug",
            "held by node c in block 10.0.0.64/26 of node b, pool 10.0.0.0-16, VXLAN Always",
        ),
        "10.0.0.128/26": (
            "via 10.0.0.129 dev vxlan.netplug",
            "a block of node c, pool 10.0.0.0-16, VXLAN Always",
        ),
        "10.0.9.9/32": ("dev vxlan.netplug", "the tunnel address of node d"),
        "172.16.0.1/32": (
            "via 192.0.2.2 dev eth0",
            "held by node b in block 172.16.0.0/26 of no node, in no pool, not encapsulated",
        ),
    }
    assert [each.is_programmed for each in found.explain()].count(False) == 1


def test_what_bgp_announces_and_the_address_of_a_node_in_a_pool_are_explained() -> None:
    found = engine(Encapsulation.NEVER, settings=evolve(SETTINGS, bgp=BgpUse(is_enabled=True)))
    found.inputs.set_pools([make_pool("10.0.0.0/16"), make_pool("192.0.2.0/24", vxlan=ALWAYS)])
    found.changes()
    explained = [(str(each.destination), each.table, each.way, each.reason) for each in found.explain()]
    announced = "announced by BGP: of block 10.0.0.0/26 of this node, pool 10.0.0.0-16"
    assert ("10.0.0.0/26", 7801, "blackhole", announced) in explained
    assert ("192.0.2.2/32", 254, "dev eth0", "the address of node b, in a pool") in explained


# --- workloads of the node --------------------------------------------------------------------------------------------

BGP = evolve(SETTINGS, bgp=BgpUse(is_enabled=True))


def announced(found: RouteEngine) -> set[str]:
    return {str(each.destination) for each in found.desired() if isinstance(each, Route) and each.table == 7801}


def with_workloads(found: RouteEngine, *addresses: str) -> RouteEngine:
    found.observe(RoutingState(workloads=tuple(WorkloadRoute(Address.parse(each), "netp1", 7) for each in addresses)))
    return found


def test_an_address_outside_of_own_blocks_is_announced_from_pools_without_vxlan_alone() -> None:
    pools = (
        make_pool("10.0.0.0/16"),
        make_pool("10.1.0.0/16", ipip=ALWAYS),
        make_pool("10.2.0.0/16", vxlan=ALWAYS),
        evolve(silent := make_pool("10.3.0.0/16"), spec=evolve(silent.spec, is_bgp_export_disabled=True)),
    )
    found = engine_of("a", nodes=(A, B), pools=pools, blocks={OWN: BLOCKS[OWN]}, interfaces=(ETH0,), settings=BGP)
    with_workloads(found, "10.0.0.5", "10.0.9.9", "10.1.0.9", "10.2.0.9", "10.3.0.9", "192.168.0.9")
    assert announced(found) == {OWN, "10.0.9.9/32", "10.1.0.9/32"}
    reasons = {str(each.destination): each.reason for each in found.explain()}
    assert reasons["10.0.9.9/32"] == "announced by BGP: the address of a workload of this node, pool 10.0.0.0-16"
    with_workloads(found, "10.0.9.9")
    assert announced(found) == {OWN, "10.0.9.9/32"}
    found.inputs.set_block(Prefix.parse("10.0.9.0/26"), BlockRoutes("a"))
    assert announced(found) == {OWN, "10.0.9.0/26"}, "its block is announced"
    found.inputs.set_block(Prefix.parse("10.0.9.0/26"), None)
    assert announced(found) == {OWN, "10.0.9.9/32"}
    found.inputs.set_settings(SETTINGS)
    assert announced(found) == set()
    found.inputs.set_settings(BGP)
    assert announced(with_workloads(found)) == {OWN}


def test_no_route_leads_away_from_a_workload_that_is_here_whatever_its_block_says() -> None:
    block = BlockRoutes("b", ((Address.parse("10.0.0.70"), "c"),))
    found = engine(ALWAYS)
    found.inputs.set_block(Prefix.parse(OF_B), block)
    away = "10.0.0.70/32"
    assert away in {str(each.destination) for each in found.desired() if isinstance(each, Route)}
    with_workloads(found, "10.0.0.70")
    assert away not in {str(each.destination) for each in found.desired() if isinstance(each, Route)}
    with_workloads(found)
    assert away in {str(each.destination) for each in found.desired() if isinstance(each, Route)}


def test_a_route_to_a_workload_that_is_missing_while_its_host_end_is_there_is_lost() -> None:
    found, ends = engine(ALWAYS), frozenset((7, 8))
    web, db = (WorkloadRoute(Address.parse(f"10.0.0.{each}"), f"netp{each}", each) for each in (7, 8))
    lost = list[tuple[WorkloadRoute, ...]]()
    for present in ((web, db), (db,), (db,)):  # as long as nothing has restored it
        found.observe(RoutingState(workloads=present, host_ends=ends))
        lost.append(found.lost)
        assert web.address.host_prefix in found.inputs.workloads
    assert lost == [(), (web,), (web,)]
    again = WorkloadRoute(Address.parse("10.0.0.9"), "netp7", 12)
    found.observe(RoutingState(workloads=(db, again), host_ends=frozenset((8, 12))))
    assert found.lost == (), "another interface of that name has another address"
    assert web.address.host_prefix not in found.inputs.workloads


def test_what_bgp_has_learned_of_a_pool_with_ipip_leads_to_its_next_hop_unless_a_stored_block_says_otherwise() -> None:
    pools = (make_pool("10.0.0.0/16", ipip=CROSS),)
    found = engine_of("a", nodes=(A, B), pools=pools, interfaces=(ETH0,), settings=BGP)
    near, far, own, elsewhere = (Prefix.parse(each) for each in ("10.0.9.1/32", "10.0.9.2/32", OWN, "172.16.0.1/32"))
    next_hops = {near: "192.0.2.2", far: "198.51.100.3", own: "192.0.2.2", elsewhere: "192.0.2.2"}
    found.inputs.set_block(own, BlockRoutes("a"))
    found.inputs.set_learned({prefix: Address.parse(text) for prefix, text in next_hops.items()})
    direct = Route(
        destination=near, device="eth0", gateway=Address.parse("192.0.2.2"), source=Address.parse("192.0.2.1")
    )
    wrapped = Route(
        destination=far, device="ipip.netplug", gateway=Address.parse("198.51.100.3"), is_onlink=True, mtu=1480
    )
    learned = {each for each in found.desired() if isinstance(each, Route) and each.gateway is not None}
    assert learned == {direct, wrapped}
    assert {each.way for each in found.explain() if each.destination in {near, far}} == {
        "via 192.0.2.2 dev eth0",
        "via 198.51.100.3 dev ipip.netplug",
    }
    reasons = {each.reason for each in found.explain() if each.destination in {near, far}}
    assert "announced to this node by 192.0.2.2, pool 10.0.0.0-16" in reasons
    found.inputs.set_block(near, BlockRoutes("b"))
    assert direct not in found.desired(), "the store wins"
    (reason,) = (each.reason for each in found.explain() if each.destination == near)
    assert reason.startswith("a block of node b")
    found.inputs.set_block(near, None)
    assert direct in found.desired()
    with_workloads(found, "10.0.9.2")
    assert wrapped not in found.desired(), "it is here now"
    with_workloads(found)
    found.inputs.set_node("a", make_node("a", "192.0.2.1/24"))
    assert not any(isinstance(each, Route) and each.device == "ipip.netplug" for each in found.desired())
    found.inputs.set_learned({})
    assert not any(isinstance(each, Route) and each.gateway is not None for each in found.desired())


def test_a_floating_address_has_a_route_and_is_announced_if_it_lies_in_a_pool() -> None:
    pools = (make_pool("10.0.0.0/16"), make_pool("10.2.0.0/16", vxlan=ALWAYS))
    found = engine_of("a", nodes=(A,), pools=pools, interfaces=(ETH0,), settings=BGP)
    found.inputs.set_floating({Address.parse(each): "netp1" for each in ("10.0.0.77", "10.2.0.77", "203.0.113.7")})
    routes_here = {str(each.destination): each.device for each in found.desired() if isinstance(each, Route)}
    floating = {"10.0.0.77/32", "10.2.0.77/32", "203.0.113.7/32"}
    assert routes_here.keys() == floating
    assert announced(found) == {"10.0.0.77/32", "10.2.0.77/32"}
    reasons = {each.reason for each in found.explain() if each.destination == Prefix.parse("203.0.113.7/32")}
    assert reasons == {"the floating address of a workload of this node, in no pool"}
    found.inputs.set_floating({Address.parse("10.0.0.77"): "netp2"})
    assert [each.device for each in found.desired() if isinstance(each, Route) and each.table != 7801] == ["netp2"]
    assert announced(found) == {"10.0.0.77/32"}
    found.inputs.set_interfaces((ETH0, ETH1))
    assert announced(found) == {"10.0.0.77/32"}
    found.inputs.set_floating({})
    assert not [each for each in found.desired() if isinstance(each, Route)]
