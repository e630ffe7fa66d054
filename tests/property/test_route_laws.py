"""The laws of the routes between nodes.

- After any changes in any order, what should exist is what an engine says that was told the last state at once.
- Whatever the kernel has, applying the changes once makes it what should exist; then nothing is left to do.
- Each route leads to a nexthop of its family that exists, and each nexthop is used.
- Of two nodes with one tunnel address or MAC, exactly one is reached through tunnels, whoever came first.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Address, Prefix
from netplug_core.dataplane.routing import FdbEntry, Nexthop, Route, RoutingState, Tunnel, TunnelNeighbour
from netplug_core.reconcile.route_inputs import BlockRoutes, RouteInputs
from netplug_core.reconcile.routes import RouteEngine
from netplug_core.resources.ippool import Encapsulation, IPPool
from netplug_core.resources.node import Node
from tests.harness.routes import SETTINGS, interface, make_node, make_pool, seen

_NAMES = ("me", "n1", "n2", "n3")
_BLOCKS = ("10.0.0.0/26", "10.0.0.64/26", "10.1.0.0/26", "fd00::/122", "fd00::400/122")
_HELD = ("192.0.2.1/24", "192.0.2.2/24", "198.51.100.3/24", "10.0.0.70/24")
_HELD_V6 = ("2001:db8::1/64", "2001:db8:1::2/64")
_TUNNELS = ("", "10.0.0.1", "10.0.0.65", "10.7.0.1")
_MODES = st.sampled_from(Encapsulation)


@st.composite
def _nodes(draw: st.DrawFn) -> tuple[str, Node | None]:
    name = draw(st.sampled_from(_NAMES))
    if draw(st.booleans()) and name != "me":
        return name, None
    held = draw(st.sampled_from(("", *_HELD))), draw(st.sampled_from(("", *_HELD_V6)))
    node = make_node(
        name,
        *filter(None, held),
        tunnel=draw(st.sampled_from(_TUNNELS)),
        tunnel_v6=draw(st.sampled_from(("", "fd00::1", "fd00::401"))),
        ipip=draw(st.sampled_from(_TUNNELS)),
        mac=draw(st.sampled_from(("", "66:00:00:00:00:01"))),
    )
    return name, node


@st.composite
def _blocks(draw: st.DrawFn) -> tuple[str, BlockRoutes | None]:
    prefix = draw(st.sampled_from(_BLOCKS))
    if draw(st.booleans()):
        return prefix, None
    held = draw(st.lists(st.tuples(st.integers(0, 63), st.sampled_from((*_NAMES, "gone"))), max_size=2))
    elsewhere = tuple((Prefix.parse(prefix).nth(number), node) for number, node in dict(held).items())
    return prefix, BlockRoutes(draw(st.sampled_from(("", *_NAMES, "gone"))), elsewhere)


@st.composite
def _pools(draw: st.DrawFn) -> tuple[IPPool, ...]:
    found = [make_pool("10.0.0.0/16", vxlan=draw(_MODES)), make_pool("10.1.0.0/16", ipip=draw(_MODES))]
    found.append(make_pool("fd00::/64", vxlan=draw(_MODES)))
    return tuple(draw(st.lists(st.sampled_from(found), unique_by=lambda pool: pool.metadata.name)))


_INTERFACES = st.sampled_from(
    ((), (interface("eth0", *_HELD[:1], *_HELD_V6[:1]),), (interface("eth1", *_HELD, *_HELD_V6),))
)
_STEPS = st.lists(st.one_of(_nodes(), _blocks(), _pools(), _INTERFACES), max_size=25)


def _tell(engine: RouteEngine, step: object) -> None:
    match step:
        case (str() as name, Node() | None as node) if name in _NAMES:
            engine.inputs.set_node(name, node)
        case (str() as prefix, BlockRoutes() | None as block):
            engine.inputs.set_block(Prefix.parse(prefix), block)
        case tuple() as values if values and isinstance(values[0], IPPool):
            engine.inputs.set_pools(values)
        case tuple() as values:
            engine.inputs.set_interfaces(values)


def _kernel(engine: RouteEngine) -> RoutingState:
    entries = engine.desired()
    return RoutingState(
        tunnels=tuple(each for each in entries if isinstance(each, Tunnel)),
        fdb=tuple(each for each in entries if isinstance(each, FdbEntry)),
        neighbours=tuple(each for each in entries if isinstance(each, TunnelNeighbour)),
        nexthops=tuple(each for each in entries if isinstance(each, Nexthop)),
        routes=tuple(each for each in entries if isinstance(each, Route)),
    )


def _new() -> RouteEngine:
    engine = RouteEngine(RouteInputs("me"))
    engine.inputs.set_settings(SETTINGS)
    return engine


@given(_STEPS, _STEPS)
def test_the_order_of_changes_does_not_count(steps: list[object], more: list[object]) -> None:
    engine = _new()
    for step in steps:
        _tell(engine, step)
        engine.changes()
    for step in more:
        _tell(engine, step)
    last = _new()
    last.inputs.set_interfaces(engine.inputs.interfaces)
    last.inputs.set_pools(engine.inputs.pools)
    for prefix, block in sorted(engine.inputs.blocks.items(), reverse=True):
        last.inputs.set_block(prefix, block)
    for name, node in sorted(engine.inputs.nodes.items(), reverse=True):
        last.inputs.set_node(name, node)
    assert seen(engine) == seen(last)


@given(_STEPS, _STEPS)
def test_one_application_is_enough_from_any_state_of_the_kernel(before: list[object], after: list[object]) -> None:
    former = _new()
    for step in before:
        _tell(former, step)
    engine = _new()
    engine.observe(_kernel(former))
    for step in after:
        _tell(engine, step)
    changes = engine.changes()
    engine.note_applied(changes, ())
    assert engine.changes() == ()
    engine.observe(_kernel(engine))
    assert engine.changes() == ()


@given(st.permutations(("n1", "n2", "n3")), st.sampled_from(("mac", "tunnel")))
def test_of_rivals_the_first_by_name_is_reached(names: list[str], what: str) -> None:
    engine = _new()
    engine.inputs.set_interfaces((interface("eth0", "192.0.2.1/24"),))
    engine.inputs.set_pools([make_pool("10.0.0.0/16", vxlan=Encapsulation.ALWAYS)])
    engine.inputs.set_node("me", make_node("me", "192.0.2.1/24", tunnel="10.0.0.1"))
    for number, name in enumerate(names):
        tunnel = "10.0.0.65" if what == "tunnel" else f"10.0.0.{70 + number}"
        mac = "66:00:00:00:00:01" if what == "mac" else ""
        engine.inputs.set_node(name, make_node(name, f"192.0.2.{int(name[1]) + 10}/24", tunnel=tunnel, mac=mac))
    found = [each.node_address for each in engine.desired() if isinstance(each, FdbEntry)]
    assert found == [Address.parse("192.0.2.11")]


@given(_STEPS)
def test_each_route_leads_to_a_nexthop_of_its_family_that_exists(steps: list[object]) -> None:
    engine = _new()
    for step in steps:
        _tell(engine, step)
        entries = engine.desired()
        nexthops = {each.id: each for each in entries if isinstance(each, Nexthop)}
        for route in entries:
            if isinstance(route, Route) and route.nexthop is not None:
                assert nexthops[route.nexthop].gateway.family is route.destination.family
        used = {route.nexthop for route in entries if isinstance(route, Route)}
        assert used >= nexthops.keys(), "no nexthop is left that nothing uses"
