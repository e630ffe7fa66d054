"""What every BGP daemon must do for a node, as checks that run against any implementation.

Each check takes a fresh :class:`BgpHarness`: two nodes on one link, of which none runs a daemon yet. A test module
needs three lines::

    @pytest.mark.parametrize("check", BGP_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check: BgpCheck, harness: BgpHarness) -> None:
        check(harness)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.bgp import (
    BGP_PORT,
    BgpDaemon,
    BgpPlan,
    BgpRefused,
    BgpSession,
    BgpStatus,
    FilterRule,
    ForeignBgpDaemon,
    RouteFilter,
)
from netplug_core.resources.bgp import FilterAction
from netplug_core.testing.assertions import expect, expect_refused, expect_same

__all__ = ["BGP_CHECKS", "BgpCheck", "BgpHarness"]

_AS: Final = 64512
_BLOCK: Final = {Family.IPV4: Prefix.parse("10.91.1.0/26"), Family.IPV6: Prefix.parse("fd91::/122")}
_OTHER: Final = {Family.IPV4: Prefix.parse("10.91.2.0/26"), Family.IPV6: Prefix.parse("fd91::40/122")}
_POOL: Final = {Family.IPV4: Prefix.parse("10.91.0.0/16"), Family.IPV6: Prefix.parse("fd91::/48")}


class BgpHarness(Protocol):
    """Two nodes, 0 and 1, with a daemon each."""

    def daemon(self, node: int) -> BgpDaemon:
        """The daemon of a node."""
        ...

    def address(self, node: int, family: Family) -> Address:
        """The address of a node on the link."""
        ...

    def deadline(self) -> Deadline:
        """The deadline of a call that begins now."""
        ...

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so; fail if that takes far too long."""
        ...

    def announce(self, node: int, prefix: Prefix) -> None:
        """Let a prefix stand in the table of what a node announces."""
        ...

    def withdraw(self, node: int, prefix: Prefix) -> None:
        """Take it out again."""
        ...

    def learned(self, node: int) -> frozenset[Prefix]:
        """The routes in the main table of a node that its daemon has made."""
        ...

    def kill(self, node: int) -> None:
        """End the daemon of a node at once, as the kernel does if there is no memory left."""
        ...

    def listen(self, node: int, port: int) -> None:
        """Let another program listen on a port of a node."""
        ...

    def leave_route(self, node: int, prefix: Prefix) -> None:
        """Put a route into the main table of a node that looks as if another daemon had made it."""
        ...


BgpCheck: TypeAlias = Callable[[BgpHarness], None]
"""One thing that a daemon must do; it raises AssertionError when it does not."""


# --- plans ------------------------------------------------------------------------------------------------------------


def _session(harness: BgpHarness, node: int, family: Family) -> BgpSession:
    own, other = harness.address(node, family), harness.address(1 - node, family)
    return BgpSession(
        name=f"Mesh{family.value}_{1 - node}",
        peer=f"node-{1 - node}",
        address=other,
        port=BGP_PORT,
        local_as=_AS,
        peer_as=_AS,
        source=own,
        is_passive=own < other,
    )


def _plan(harness: BgpHarness, node: int) -> BgpPlan:
    """A session of each family with the other node."""
    return BgpPlan(
        node=f"node-{node}",
        router_id=harness.address(node, Family.IPV4),
        addresses=tuple(harness.address(node, family) for family in Family),
        sessions=tuple(_session(harness, node, family) for family in Family),
        pools=tuple(_POOL.values()),
    )


def _apply(harness: BgpHarness, node: int, plan: BgpPlan | None = None) -> bool:
    return harness.daemon(node).apply(_plan(harness, node) if plan is None else plan, deadline=harness.deadline())


def _status(harness: BgpHarness, node: int) -> BgpStatus:
    status = harness.daemon(node).find_status(deadline=harness.deadline())
    if status is None:
        raise AssertionError(f"the daemon of node {node} does not run")
    return status


def _established(harness: BgpHarness, node: int) -> frozenset[str]:
    return frozenset(one.name for one in _status(harness, node).sessions if one.is_established)


def _connect(harness: BgpHarness) -> None:
    """Start both daemons, and wait until both sessions of both are established."""
    for node in (0, 1):
        expect(_apply(harness, node), "a daemon that is started does something else than before")
    _await_sessions(harness)


def _await_sessions(harness: BgpHarness) -> None:
    for node in (0, 1):
        names = {one.name for one in _plan(harness, node).sessions}
        harness.wait_until(
            lambda node=node, names=names: _established(harness, node) == names,  # type: ignore[misc]
            f"the sessions of node {node} are established",
        )


def _await_learned(harness: BgpHarness, node: int, *prefixes: Prefix) -> None:
    expected = frozenset(prefixes)
    harness.wait_until(lambda: harness.learned(node) == expected, f"node {node} has routes to {sorted(expected)}")


# --- sessions and routes ----------------------------------------------------------------------------------------------


def nothing_runs_before_the_first_plan(harness: BgpHarness) -> None:
    """Without a plan there is no daemon, and nothing to end."""
    daemon = harness.daemon(0)
    expect_same(daemon.find_status(deadline=harness.deadline()), None, "the status of a daemon that was never started")
    daemon.pause(deadline=harness.deadline())
    daemon.stop(deadline=harness.deadline())
    expect_same(daemon.find_status(deadline=harness.deadline()), None, "the status after a stop of nothing")


def what_a_node_announces_arrives_at_the_other(harness: BgpHarness) -> None:
    """A prefix in the table is announced, before and after the start; one that is taken out is withdrawn."""
    for prefix in _BLOCK.values():
        harness.announce(0, prefix)
    _connect(harness)
    _await_learned(harness, 1, *_BLOCK.values())
    configured = _status(harness, 0).configured_at
    harness.announce(0, _OTHER[Family.IPV4])
    _await_learned(harness, 1, *_BLOCK.values(), _OTHER[Family.IPV4])
    harness.withdraw(0, _BLOCK[Family.IPV4])
    _await_learned(harness, 1, _BLOCK[Family.IPV6], _OTHER[Family.IPV4])
    expect_same(_status(harness, 0).configured_at, configured, "the time of the last configuration")
    expect_same(harness.learned(0), frozenset(), "what a node learned of itself")


def an_equal_plan_does_nothing(harness: BgpHarness) -> None:
    """The daemon is not configured again for a plan that it has."""
    _connect(harness)
    configured = _status(harness, 0).configured_at
    expect(not _apply(harness, 0), "an equal plan changed something")
    expect_same(_status(harness, 0).configured_at, configured, "the time of the last configuration")
    expect_same(len(_established(harness, 0)), len(Family), "sessions after an equal plan")


def another_plan_leaves_the_sessions_that_it_has_too(harness: BgpHarness) -> None:
    """A session that is gone from the plan ends, and its routes go; the other one stays."""
    for prefix in _BLOCK.values():
        harness.announce(0, prefix)
    _connect(harness)
    _await_learned(harness, 1, *_BLOCK.values())
    plan = _plan(harness, 1)
    since = {one.name: one.since for one in _status(harness, 1).sessions}
    expect(_apply(harness, 1, evolve(plan, sessions=plan.sessions[:1])), "another plan changed nothing")
    _await_learned(harness, 1, _BLOCK[Family.IPV4])
    (left,) = _status(harness, 1).sessions
    expect(left.is_established, "the session that both plans have was ended")
    expect_same(left.since, since[left.name], "the time of the session that both plans have")


def a_plan_that_is_refused_changes_nothing(harness: BgpHarness) -> None:
    """Sessions stay up, and the next plan is taken."""
    _connect(harness)
    plan = _plan(harness, 0)
    broken = evolve(plan.sessions[0], filters=("filter_that_is_not_there",))
    refused = evolve(plan, sessions=(broken, *plan.sessions[1:]))
    expect_refused(BgpRefused, lambda: _apply(harness, 0, refused), what="a plan with a filter that it lacks")
    expect_same(len(_established(harness, 0)), len(Family), "sessions after a refused plan")
    expect(not _apply(harness, 0), "the plan of before is another one after a refused plan")


def a_first_plan_that_is_refused_starts_nothing(harness: BgpHarness) -> None:
    """The daemon does not run, and starts with the next plan."""
    plan = _plan(harness, 0)
    refused = evolve(plan, sessions=(evolve(plan.sessions[0], name="no name"),))
    expect_refused(BgpRefused, lambda: _apply(harness, 0, refused), what="a plan with a name that is none")
    expect_same(harness.daemon(0).find_status(deadline=harness.deadline()), None, "the status after a refused plan")
    expect(_apply(harness, 0), "a daemon that is started does something else than before")


def a_session_with_another_password_does_not_come_up(harness: BgpHarness) -> None:
    """Both ends need the same one; once they have it the session is established."""
    plan = _plan(harness, 0)
    one = evolve(plan.sessions[0], password="s3cret")  # noqa: S106  # no password
    for prefix in _BLOCK.values():
        harness.announce(0, prefix)
    _apply(harness, 0, evolve(plan, sessions=(one, plan.sessions[1])))
    _apply(harness, 1)
    _await_learned(harness, 1, _BLOCK[Family.IPV6])
    expect_same(_established(harness, 0), frozenset({plan.sessions[1].name}), "the sessions without a password")
    _apply(harness, 0)
    _await_sessions(harness)
    _await_learned(harness, 1, *_BLOCK.values())


# --- what is exchanged ------------------------------------------------------------------------------------------------


def a_closed_session_exchanges_nothing(harness: BgpHarness) -> None:
    """It is established all the same, so that people see that the peer answers."""
    for prefix in _BLOCK.values():
        harness.announce(0, prefix)
    plan = _plan(harness, 0)
    closed = evolve(plan.sessions[0], is_closed=True)
    _apply(harness, 0, evolve(plan, sessions=(closed, plan.sessions[1])))
    _apply(harness, 1)
    _await_sessions(harness)
    _await_learned(harness, 1, _BLOCK[Family.IPV6])


def what_is_not_to_be_exported_is_not(harness: BgpHarness) -> None:
    """Neither within a prefix of the plan, nor where a filter says so."""
    for prefix in (*_BLOCK.values(), *_OTHER.values()):
        harness.announce(0, prefix)
    plan = _plan(harness, 0)
    rule = FilterRule(action=FilterAction.REJECT, prefix=_BLOCK[Family.IPV4])
    route_filter = RouteFilter(name="filter4_edge", family=Family.IPV4, exported=(rule,))
    filtered = evolve(plan.sessions[0], filters=(route_filter.name,))
    sessions = (filtered, plan.sessions[1])
    _apply(harness, 0, evolve(plan, filters=(route_filter,), sessions=sessions, unexported=(_OTHER[Family.IPV6],)))
    _apply(harness, 1)
    _await_sessions(harness)
    _await_learned(harness, 1, _OTHER[Family.IPV4], _BLOCK[Family.IPV6])


def what_the_node_process_writes_stays_out_of_the_kernel(harness: BgpHarness) -> None:
    """The daemon makes no route within such a pool."""
    for prefix in _BLOCK.values():
        harness.announce(0, prefix)
    _apply(harness, 0)
    _apply(harness, 1, evolve(_plan(harness, 1), node_written=(_POOL[Family.IPV4],)))
    _await_sessions(harness)
    _await_learned(harness, 1, _BLOCK[Family.IPV6])


# --- restart and end --------------------------------------------------------------------------------------------------


def routes_stay_while_a_daemon_restarts(harness: BgpHarness) -> None:
    """They stay at the peer and here, whether the daemon was paused or killed."""
    for node, blocks in ((0, _BLOCK), (1, _OTHER)):
        for prefix in blocks.values():
            harness.announce(node, prefix)
    _connect(harness)
    _await_learned(harness, 0, *_OTHER.values())
    _await_learned(harness, 1, *_BLOCK.values())
    daemon = harness.daemon(0)
    for is_killed in (False, True):
        if is_killed:
            harness.kill(0)
        else:
            daemon.pause(deadline=harness.deadline())
        expect_same(daemon.find_status(deadline=harness.deadline()), None, "the status of a daemon that has ended")
        expect_same(harness.learned(0), frozenset(_OTHER.values()), "routes of a node whose daemon has ended")
        expect_same(harness.learned(1), frozenset(_BLOCK.values()), "routes to a node whose daemon has ended")
        expect(_apply(harness, 0), "a daemon that is started again does something else than before")
        _await_sessions(harness)
        harness.wait_until(lambda: not _status(harness, 0).is_recovering, "the daemon has recovered")
        expect_same(harness.learned(0), frozenset(_OTHER.values()), "routes of a node after a restart")
        expect_same(harness.learned(1), frozenset(_BLOCK.values()), "routes to a node after a restart")


def a_stop_withdraws_everything(harness: BgpHarness) -> None:
    """Nothing is left, at either node; a second stop is no error."""
    for node, blocks in ((0, _BLOCK), (1, _OTHER)):
        for prefix in blocks.values():
            harness.announce(node, prefix)
    _connect(harness)
    _await_learned(harness, 0, *_OTHER.values())
    daemon = harness.daemon(0)
    for _time in range(2):
        daemon.stop(deadline=harness.deadline())
        expect_same(daemon.find_status(deadline=harness.deadline()), None, "the status after a stop")
        expect_same(harness.learned(0), frozenset(), "routes of a node after a stop")
    _await_learned(harness, 1)


# --- other daemons ----------------------------------------------------------------------------------------------------


def nothing_is_started_beside_another_listener(harness: BgpHarness) -> None:
    """The error says where the other program listens; on another port the daemon starts."""
    harness.listen(0, BGP_PORT)
    expect_refused(ForeignBgpDaemon, lambda: _apply(harness, 0), "port 179", "listenPort", what="a start")
    expect_same(harness.daemon(0).find_status(deadline=harness.deadline()), None, "the status after a refused start")
    expect(_apply(harness, 0, evolve(_plan(harness, 0), listen_port=1790)), "it does not start on another port")


def routes_of_another_daemon_are_left_alone(harness: BgpHarness) -> None:
    """The daemon is not started: it might delete them."""
    harness.leave_route(0, _OTHER[Family.IPV4])
    expect_refused(ForeignBgpDaemon, lambda: _apply(harness, 0), "1 routes", "bird", what="a start")
    expect_same(harness.daemon(0).find_status(deadline=harness.deadline()), None, "the status after a refused start")
    expect_same(harness.learned(0), frozenset({_OTHER[Family.IPV4]}), "the routes of the other daemon")


BGP_CHECKS: Final[tuple[BgpCheck, ...]] = (
    nothing_runs_before_the_first_plan,
    what_a_node_announces_arrives_at_the_other,
    an_equal_plan_does_nothing,
    another_plan_leaves_the_sessions_that_it_has_too,
    a_plan_that_is_refused_changes_nothing,
    a_first_plan_that_is_refused_starts_nothing,
    a_session_with_another_password_does_not_come_up,
    a_closed_session_exchanges_nothing,
    what_is_not_to_be_exported_is_not,
    what_the_node_process_writes_stays_out_of_the_kernel,
    routes_stay_while_a_daemon_restarts,
    a_stop_withdraws_everything,
    nothing_is_started_beside_another_listener,
    routes_of_another_daemon_are_left_alone,
)
"""All checks."""
