"""The controllers of the network of a node, on a store and a kernel in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_backends.memory.routing import MemoryKernelEvents
from netplug_cli.node.routing import (
    CONDITION_EVERY_S,
    KERNEL_CHANGED,
    NETWORK_KINDS,
    NetworkCondition,
    kernel_events_controller,
)
from netplug_cli.node.tasks import ENDPOINTS_CHANGED, NODE_REGISTERED
from netplug_cli.node_status import NetworkStatus
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import HOST_ROUTE_METRIC
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import BLACKHOLE_METRIC, Change, Route, RouteKind, RoutingState, Tunnel
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.ipam.model import HANDLE
from netplug_core.records import Malformed, Query, ReadResult, Revision, Snapshot, WatchExpired
from netplug_core.resources.ippool import Encapsulation
from netplug_core.resources.node import NODE, node_key
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.network import NetworkHarness
from tests.harness.node_server import Lines
from tests.harness.routes import make_node, make_pool

A = make_node("a", "192.0.2.1/24")
B = make_node("b", "192.0.2.2/24", tunnel="10.0.0.65")
POOL = make_pool("10.0.0.0/16", vxlan=Encapsulation.ALWAYS)


def sorted_state(harness: NetworkHarness) -> RoutingState:
    """What the kernel has; it lists routes in the order in which they were made."""
    state = harness.kernel.read()
    return evolve(state, routes=tuple(sorted(state.routes, key=str)))


def cluster() -> NetworkHarness:
    """Two nodes with a block each, and a pool with VXLAN."""
    harness = NetworkHarness()
    harness.kernel.add_interface("eth0", "192.0.2.1/24")
    harness.put_pool(POOL)
    harness.put_node(A)
    harness.put_node(B)
    harness.put_block("10.0.0.0/26", "a")
    harness.put_block("10.0.0.64/26", "b")
    return harness


def destinations(harness: NetworkHarness) -> set[str]:
    return {str(each.destination) for each in harness.kernel.read().routes if each.kind is RouteKind.UNICAST}


def test_a_node_gets_a_tunnel_address_a_device_and_routes() -> None:
    harness = cluster()
    harness.pass_time(100)
    address = harness.node().spec.vxlan_tunnel_address
    assert address is not None
    assert address in Prefix.parse("10.0.0.0/26")
    state = harness.kernel.read()
    assert [each.address for each in state.tunnels] == [address]
    assert destinations(harness) == {"10.0.0.64/26"}
    assert [each.node_address for each in state.fdb] == [Address.parse("192.0.2.2")]
    assert (
        Route(destination=Prefix.parse("10.0.0.0/26"), kind=RouteKind.BLACKHOLE, metric=BLACKHOLE_METRIC)
        in state.routes
    )
    assert harness.log.texts == []


def test_pod_cidrs_of_nodes_are_the_blocks_and_no_tunnel_address_is_assigned() -> None:
    settings = DatastoreSettings(type="kubernetes", kubernetes=KubernetesAccess(uses_pod_cidr=True))
    harness = NetworkHarness(settings=settings)
    harness.kernel.add_interface("eth0", "192.0.2.1/24", "2001:db8::1/64")
    harness.put_pool(POOL)
    harness.put_pool(make_pool("fd00::/56", vxlan=Encapsulation.ALWAYS))
    for number, name in enumerate("ab"):
        node = make_node(
            name,
            f"192.0.2.{number + 1}/24",
            f"2001:db8::{number + 1}/64",
            tunnel=f"10.0.{number}.1",
            tunnel_v6=f"fd00:0:0:{number}::1",
            cidrs=(f"10.0.{number}.0/24", f"fd00:0:0:{number}::/64"),
        )
        harness.put_node(node)
    harness.put_block("10.0.7.0/26", "b")  # of a time before host-local
    harness.pass_time(100)
    assert destinations(harness) == {"10.0.1.0/24", "fd00:0:0:1::/64"}
    state = harness.kernel.read()
    assert {str(each.address) for each in state.tunnels} == {"10.0.0.1", "fd00::1"}
    holes = {str(each.destination) for each in state.routes if each.kind is RouteKind.BLACKHOLE}
    assert holes == {"10.0.0.0/24", "fd00::/64"}
    assert harness.node().spec.vxlan_tunnel_address == Address.parse("10.0.0.1")
    assert harness.find(HANDLE.key("vxlan-tunnel-addr-a")) is None
    sent = harness.kernel.messages
    harness.pass_time(700)
    assert harness.kernel.messages == sent
    assert harness.log.texts == []


def test_nothing_is_sent_while_nothing_changes() -> None:
    harness = cluster()
    harness.pass_time(100)
    sent = harness.kernel.messages
    harness.pass_time(600)
    assert harness.kernel.messages == sent


def test_a_node_that_goes_takes_its_routes_with_it_and_a_new_one_brings_them() -> None:
    harness = cluster()
    harness.pass_time(100)
    harness.delete(node_key("b"))
    harness.pass_time()
    state = harness.kernel.read()
    assert destinations(harness) == set()
    assert state.fdb == ()
    assert "there is no route to addresses of node b" in harness.log.texts[-1]
    harness.put_node(B)
    harness.pass_time()
    assert destinations(harness) == {"10.0.0.64/26"}
    assert harness.log.texts[-1] == "INFO routes to pods of all other nodes are programmed"


def test_what_a_foreign_hand_changed_is_repaired_with_the_next_notification_or_after_ninety_seconds() -> None:
    harness = cluster()
    harness.pass_time(100)
    before = sorted_state(harness)
    harness.kernel.set_down("vxlan.netplug")
    assert destinations(harness) == set()
    harness.routes.note_kernel_change()
    harness.wake(KERNEL_CHANGED)
    harness.pass_time(1)
    assert sorted_state(harness) == before
    harness.kernel.remove_by_hand(before.fdb[0])
    harness.pass_time(91)
    assert sorted_state(harness) == before


def test_a_route_to_a_workload_that_a_foreign_hand_deleted_is_restored_and_one_of_others_stays() -> None:
    harness = cluster()
    for name in ("netp1", "netp2"):
        harness.kernel.add_interface(name)
    web, db = (
        Route(destination=Prefix.parse(f"10.0.0.{number}/32"), device=f"netp{number}", metric=HOST_ROUTE_METRIC)
        for number in (1, 2)
    )
    for each in (web, db):
        harness.kernel.put_by_hand(each)
    harness.pass_time(100)
    harness.kernel.remove_by_hand(web)
    harness.kernel.remove_by_hand(db)
    others = evolve(db, device="eth0")
    harness.kernel.put_by_hand(others, 4)
    harness.pass_time(91)
    assert {each.route for each in harness.kernel.read().workloads} == {web}
    assert others in harness.kernel.foreign_routes()
    assert harness.log.texts == []
    harness.kernel.remove_by_hand(web)
    harness.kernel.delete_interface("netp1")
    harness.pass_time(200)
    assert harness.kernel.read().workloads == (), "the pod is gone"


def test_a_route_to_a_workload_that_the_kernel_refuses_is_named_and_tried_again() -> None:
    harness = cluster()
    harness.kernel.add_interface("netp1")
    web = Route(destination=Prefix.parse("10.0.0.1/32"), device="netp1", metric=HOST_ROUTE_METRIC)
    harness.kernel.put_by_hand(web)
    harness.pass_time(100)
    harness.kernel.remove_by_hand(web)

    def refuse(change: Change) -> None:
        if change.entry == web:
            raise KernelError("adding it", "Operation not permitted")

    harness.kernel.before_change = refuse
    harness.pass_time(200)
    status = harness.routes.status()
    assert status is not None
    assert any("10.0.0.1/32" in each and "Operation not permitted" in each for each in status.problems)
    assert status.obstacle == "", "the others are in force"
    harness.kernel.before_change = lambda _change: None
    harness.pass_time(100)
    assert [each.route for each in harness.kernel.read().workloads] == [web]
    after = harness.routes.status()
    assert after is not None
    assert after.problems == ()


def test_a_device_that_is_made_anew_gets_back_what_was_on_it() -> None:
    harness = cluster()
    harness.pass_time(100)
    before = sorted_state(harness)
    harness.put_node(
        make_node("a", "192.0.2.1/24", tunnel=str(harness.node().spec.vxlan_tunnel_address), mac="66:00:00:00:00:01")
    )
    harness.pass_time(32)
    after = sorted_state(harness)
    assert [each.mac for each in after.tunnels] == ["66:00:00:00:00:01"]
    assert (after.fdb, after.neighbours, after.nexthops, after.routes) == (
        before.fdb,
        before.neighbours,
        before.nexthops,
        before.routes,
    )


def test_a_restarted_process_sends_nothing_where_nothing_has_changed() -> None:
    harness = cluster()
    harness.pass_time(100)
    again = NetworkHarness(kernel=harness.kernel, clock=harness.clock)
    again.opened = harness.store
    sent = harness.kernel.messages
    again.pass_time(100)
    assert again.kernel.messages == sent
    assert destinations(again) == {"10.0.0.64/26"}


def test_nothing_is_removed_while_the_store_is_away_at_the_start() -> None:
    harness = cluster()
    harness.pass_time(100)
    before = harness.kernel.read()
    again = NetworkHarness(kernel=harness.kernel)
    again.opened = cast("Datastore", _Away(again.store))
    again.pass_time(300)
    assert again.kernel.read() == before


class _Away:
    """A store that does not answer."""

    def __init__(self, inner: MemoryDatastore) -> None:
        self.description = inner.description

    def read(self, _queries: Sequence[Query], **_more: object) -> Snapshot:
        raise Unavailable("the store", "it is away")


class _Forgetful(_Away):
    """A store that has always forgotten the changes that a watch asks for."""

    def __init__(self, inner: MemoryDatastore) -> None:
        super().__init__(inner)
        self.read = inner.read  # type: ignore[method-assign, assignment]
        self.watches = 0

    def watch(self, *_arguments: object, **_more: object) -> None:
        self.watches += 1
        raise WatchExpired(Revision("1"))


def test_a_watch_that_always_expires_is_a_failure_and_no_busy_loop() -> None:
    harness = cluster()
    store = _Forgetful(harness.store)
    harness.opened = cast("Datastore", store)
    harness.pass_time(60)
    assert 2 <= store.watches <= 20
    assert any("nodes, pools and blocks cannot be followed" in line for line in harness.log.texts)


class _DamagedNodes:
    """A store in which one Node cannot be read, as long as ``damaged`` names it."""

    def __init__(self, inner: MemoryDatastore) -> None:
        self.inner = inner
        self.damaged: str | None = None
        self.description, self.commit, self.watch = inner.description, inner.commit, inner.watch

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        found = self.inner.read(queries, deadline=deadline)
        if self.damaged is None:
            return found
        results = {query: self._damage(query, result) for query, result in found.results.items()}
        return Snapshot(results, found.revisions)

    def _damage(self, query: Query, result: ReadResult) -> ReadResult:
        if query.kind != NODE:
            return result
        kept = tuple(each for each in result.records if each.key.name != self.damaged)
        bad = tuple(
            Malformed(f"Node({self.damaged})", "no object", subject=each.key)
            for each in result.records
            if each not in kept
        )
        return ReadResult(kept, malformed=bad)


def test_a_record_that_cannot_be_read_costs_no_other_node_its_routes() -> None:
    harness = cluster()
    store = _DamagedNodes(harness.store)
    harness.opened = store
    harness.pass_time(100)
    store.damaged = "b"
    harness.feed.close()
    harness.feed.view.lose(frozenset(NETWORK_KINDS))
    harness.put_node(make_node("c", "192.0.2.3/24", tunnel="10.0.0.129"))
    harness.put_block("10.0.0.128/26", "c")
    harness.pass_time(60)
    assert destinations(harness) == {"10.0.0.64/26", "10.0.0.128/26"}, "what was known of b before still counts"
    assert any("a stored record cannot be read" in line for line in harness.log.texts)
    store.damaged = None
    harness.put_node(make_node("b", "192.0.2.22/24", tunnel="10.0.0.65"))
    harness.pass_time(60)
    assert Address.parse("192.0.2.22") in {each.node_address for each in harness.kernel.read().fdb}


def test_a_record_that_was_never_readable_is_passed_over() -> None:
    harness = cluster()
    store = _DamagedNodes(harness.store)
    store.damaged = "b"
    harness.opened = store
    harness.put_node(make_node("c", "192.0.2.3/24", tunnel="10.0.0.129"))
    harness.put_block("10.0.0.128/26", "c")
    harness.feed.view.lose(frozenset(NETWORK_KINDS))
    harness.pass_time(100)
    harness.feed.close()
    harness.feed.view.lose(frozenset(NETWORK_KINDS))
    harness.pass_time(60)
    assert destinations(harness) == {"10.0.0.128/26"}


def test_a_refusal_of_the_kernel_is_a_problem_and_costs_nothing_else() -> None:
    harness = cluster()
    harness.kernel.before_change = _refuse_nexthops
    harness.pass_time(100)
    assert any("the kernel refuses a route or tunnel" in line for line in harness.log.texts)
    assert harness.kernel.read().fdb != ()
    harness.kernel.before_change = lambda _change: None
    harness.pass_time(31)
    assert destinations(harness) == {"10.0.0.64/26"}


def test_a_route_that_is_always_refused_is_named_and_the_node_is_ready_without_it() -> None:
    harness = cluster()
    harness.put_node(make_node("c", "192.0.2.3/24", tunnel="10.0.0.193"))
    harness.put_block("10.0.0.192/26", "c")
    harness.kernel.before_change = _refuse_route_to_c
    harness.pass_time(100)
    status = harness.routes.status()
    assert status is not None
    assert not status.obstacle
    (problem,) = status.problems
    assert problem.startswith("the kernel refuses a route or tunnel: ")
    assert "10.0.0.192/26" in problem
    assert destinations(harness) == {"10.0.0.64/26"}
    assert sum("the kernel refuses" in line for line in harness.log.texts) == 1
    harness.kernel.before_change = lambda _change: None
    harness.pass_time(31)
    status = harness.routes.status()
    assert status is not None
    assert status.problems == ()
    assert destinations(harness) == {"10.0.0.64/26", "10.0.0.192/26"}


def test_a_node_whose_device_is_refused_is_not_ready() -> None:
    harness = cluster()
    harness.kernel.before_change = _refuse_devices
    harness.pass_time(100)
    status = harness.routes.status()
    assert status is not None
    assert status.obstacle


def _refuse_route_to_c(change: object) -> None:
    entry = getattr(change, "entry", None)
    if isinstance(entry, Route) and entry.destination == Prefix.parse("10.0.0.192/26"):
        raise KernelError("adding a route", "no")


def _refuse_devices(change: object) -> None:
    if isinstance(getattr(change, "entry", None), Tunnel):
        raise KernelError("adding a device", "no")


def _refuse_nexthops(change: object) -> None:
    if "nexthop" in str(getattr(change, "entry", "")):
        raise KernelError("adding a nexthop", "no")


@pytest.mark.parametrize("what", ["name", "datastore", "node"])
def test_nothing_is_done_before_the_node_is_registered(what: str) -> None:
    harness = cluster()
    if what == "name":
        harness.name = None
    elif what == "datastore":
        harness.settings = None
    else:
        harness.delete(node_key("a"))
    harness.pass_time(100)
    assert harness.kernel.messages == 0
    assert harness.times_opened == (0 if what == "datastore" else 1)


def test_a_node_that_is_registered_late_is_connected_at_once() -> None:
    """The Node was there before, so that no change of the datastore says that the name is known now."""
    harness = cluster()
    harness.name = None
    harness.pass_time(100)
    harness.name = "a"
    harness.wake(NODE_REGISTERED)
    harness.pass_time(35)
    assert [type(each) for each in harness.kernel.read().tunnels] == [Tunnel]


def test_a_name_that_changes_begins_anew() -> None:
    harness = cluster()
    harness.pass_time(100)
    harness.name = "b"
    harness.pass_time(100)
    engine = harness.routes.engine
    assert engine is not None
    assert engine.inputs.node == "b"


def test_another_datastore_is_opened_in_place_of_the_first() -> None:
    harness = cluster()
    harness.pass_time(31)
    assert harness.settings is not None
    harness.settings = type(harness.settings)(type="memory", sqlite_path="elsewhere")
    harness.pass_time(31)
    assert harness.times_opened == 2


def test_a_tunnel_address_goes_with_its_last_pool() -> None:
    harness = cluster()
    harness.pass_time(100)
    assert [type(each) for each in harness.kernel.read().tunnels] == [Tunnel]
    harness.put_configuration(clusterRoutingMode="Node")
    harness.put_pool(make_pool("10.0.0.0/16"))
    harness.pass_time(62)
    assert harness.node().spec.vxlan_tunnel_address is None
    assert harness.ipam().held("vxlan-tunnel-addr-a", deadline=harness.deadline()).addresses == ()
    assert harness.kernel.read().tunnels == ()
    assert destinations(harness) == {"10.0.0.64/26"}, "the nodes are in one subnet"


def test_notifications_of_the_kernel_are_passed_on_until_the_end() -> None:
    harness, events, noted = NetworkHarness(), MemoryKernelEvents(), list[str]()
    controller = kernel_events_controller(events, lambda: noted.append("changed"), clock=harness.clock)
    events.notify()
    outcome = controller.reconcile(harness.clock, lambda: True)
    assert (noted, outcome.look_again_s) == (["changed"], 0.0)
    controller.interrupt()
    assert controller.reconcile(harness.clock, lambda: True).look_again_s is None
    assert noted == ["changed"]


def test_a_feed_that_is_interrupted_ends_without_a_problem() -> None:
    harness = cluster()
    controller = harness.feed.controller()
    controller.interrupt()
    assert controller.reconcile(harness.clock, lambda: True).problems == ()


# --- the condition of the node ----------------------------------------------------------------------------------------


def test_the_condition_is_cleared_once_routes_are_programmed_and_now_and_then_again() -> None:
    told: list[str] = []
    found: list[NetworkStatus | None] = [None]
    condition = NetworkCondition(
        find_name=lambda: "a", find_status=lambda: found[0], clear=lambda name, _deadline: told.append(name)
    )
    clock = ManualClock()
    driven = DrivenControllers((condition.controller(),), clock=clock, log=Lines())
    driven.pass_time(30)
    found[0] = NetworkStatus(obstacle="routes to other nodes have not been programmed yet")
    driven.pass_time(30)
    assert told == []
    found[0] = NetworkStatus(nodes=2)
    driven.pass_time(30)
    assert told == ["a"]
    driven.pass_time(1.5 * CONDITION_EVERY_S)
    assert told == ["a", "a"]


def test_a_condition_that_cannot_be_cleared_is_tried_again() -> None:
    tried: list[str] = []

    def clear(name: str, _deadline: Deadline) -> None:
        tried.append(name)
        if len(tried) == 1:
            raise Unavailable("api server", "away")

    condition = NetworkCondition(find_name=lambda: "a", find_status=lambda: NetworkStatus(nodes=2), clear=clear)
    log = Lines()
    DrivenControllers((condition.controller(),), clock=ManualClock(), log=log).pass_time(60)
    assert tried == ["a", "a"]
    assert log.texts[0].startswith("WARNING the condition NetworkUnavailable of the node cannot be cleared")


def test_a_floating_address_has_its_route_once_it_is_known_and_its_interface_is_there() -> None:
    harness = cluster()
    known: dict[Address, str] | None = None
    harness.routes.find_floating = lambda: known
    harness.pass_time(10)
    assert harness.kernel.read().routes == (), "nothing is done before everything is known"
    known = {Address.parse("203.0.113.7"): "netp1"}
    harness.wake(ENDPOINTS_CHANGED)
    harness.pass_time(10)
    floating = Prefix.parse("203.0.113.7/32")
    assert floating not in {each.destination for each in harness.kernel.read().routes}
    assert harness.kernel.read().routes != ()
    harness.kernel.add_interface("netp1")
    harness.routes.note_kernel_change()
    harness.wake(ENDPOINTS_CHANGED)
    harness.pass_time(10)
    assert floating in {each.destination for each in harness.kernel.read().routes}
    known = None
    harness.wake(ENDPOINTS_CHANGED)
    harness.pass_time(100)
    assert floating in {each.destination for each in harness.kernel.read().routes}, "what was known stays"
