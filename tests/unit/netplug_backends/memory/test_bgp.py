"""The fake BGP daemons: they pass the suite of BGP daemons, and refuse what BIRD refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve, frozen

from netplug_backends.memory.bgp import MemoryBgp, MemoryBgpNetwork
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.bgp import BgpPlan, BgpRefused, FilterRule, RouteFilter
from netplug_core.errors import Unavailable
from netplug_core.resources.bgp import FilterAction, MatchOperator, PeerType
from netplug_core.testing.bgp_checks import BGP_CHECKS, BgpCheck
from netplug_core.testing.clock import ManualClock
from tests.harness.bgp import MESH_PLAN, POOL, internal_session

FOUR, SIX = ("10.240.0.11", "10.240.0.12"), ("fd10::11", "fd10::12")


@frozen
class MemoryHarness:
    """The harness of the suite over two fakes."""

    nodes: tuple[MemoryBgp, MemoryBgp]
    clock: ManualClock

    def daemon(self, node: int) -> MemoryBgp:
        return self.nodes[node]

    def address(self, node: int, family: Family) -> Address:
        return next(one for one in self.nodes[node].addresses if one.family is family)

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 1.0)

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        assert is_so(), what

    def announce(self, node: int, prefix: Prefix) -> None:
        self.nodes[node].announced.add(prefix)

    def withdraw(self, node: int, prefix: Prefix) -> None:
        self.nodes[node].announced.discard(prefix)

    def learned(self, node: int) -> frozenset[Prefix]:
        return self.nodes[node].learned()

    def kill(self, node: int) -> None:
        self.nodes[node].kill()

    def listen(self, node: int, port: int) -> None:
        self.nodes[node].ports_of_others.add(port)

    def leave_route(self, node: int, prefix: Prefix) -> None:
        self.nodes[node].routes_of_others.add(prefix)


@pytest.fixture
def harness() -> MemoryHarness:
    network = MemoryBgpNetwork()
    first, second = (network.add(Address.parse(FOUR[number]), Address.parse(SIX[number])) for number in (0, 1))
    return MemoryHarness((first, second), ManualClock())


@pytest.mark.parametrize("check", BGP_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: BgpCheck, harness: MemoryHarness) -> None:
    check(harness)


SESSION = internal_session("Mesh4", *FOUR)
PLAN = BgpPlan(node="n1", router_id=SESSION.address, addresses=(Address.parse(FOUR[0]),), sessions=(SESSION,))


@pytest.mark.parametrize(
    "plan, text",
    [
        (evolve(PLAN, sessions=(SESSION, SESSION)), "Mesh4 is defined twice"),
        (MESH_PLAN, ""),
        (evolve(MESH_PLAN, addresses=PLAN.addresses), "Mesh6_fd10__10: the node has no address of IPv6"),
        (
            evolve(PLAN, sessions=(evolve(SESSION, password='a"'),)),  # noqa: S106  # no password
            "a password has a quote, a backslash or a control character",
        ),
    ],
)
def test_it_refuses_what_bird_refuses(harness: MemoryHarness, plan: BgpPlan, text: str) -> None:
    if not text:
        assert harness.daemon(0).apply(plan, deadline=harness.deadline())
        return
    with pytest.raises(BgpRefused) as caught:
        harness.daemon(0).apply(plan, deadline=harness.deadline())
    assert caught.value.text == text


@pytest.mark.parametrize(
    "rule, is_exported",
    [
        (FilterRule(action=FilterAction.REJECT), False),
        (FilterRule(action=FilterAction.ACCEPT), True),
        (FilterRule(action=FilterAction.REJECT, peer_type=PeerType.INTERNAL), False),
        (FilterRule(action=FilterAction.REJECT, peer_type=PeerType.EXTERNAL), True),
        (FilterRule(action=FilterAction.REJECT, community=(1, 2)), True),
        (FilterRule(action=FilterAction.REJECT, priority=1), True),
        (FilterRule(action=FilterAction.REJECT, prefix=POOL, operator=MatchOperator.EQUAL), True),
        (FilterRule(action=FilterAction.REJECT, prefix=POOL, operator=MatchOperator.NOT_EQUAL), False),
        (FilterRule(action=FilterAction.REJECT, prefix=POOL, operator=MatchOperator.NOT_IN), True),
        (FilterRule(action=FilterAction.REJECT, prefix=POOL, lengths=(16, 24)), True),
    ],
)
def test_filters_are_evaluated(harness: MemoryHarness, rule: FilterRule, *, is_exported: bool) -> None:
    block = Prefix.parse("10.91.1.0/26")
    route_filter = RouteFilter(name="edge", family=Family.IPV4, exported=(rule,))
    filtered = evolve(PLAN, filters=(route_filter,), sessions=(evolve(SESSION, filters=("edge",)),))
    harness.announce(0, block)
    other = internal_session("Mesh4", *reversed(FOUR))
    harness.daemon(0).apply(filtered, deadline=harness.deadline())
    harness.daemon(1).apply(
        evolve(PLAN, addresses=(Address.parse(FOUR[1]),), sessions=(other,)), deadline=harness.deadline()
    )
    assert harness.learned(1) == (frozenset({block}) if is_exported else frozenset())


def test_it_may_not_answer(harness: MemoryHarness) -> None:
    daemon = harness.daemon(0)
    daemon.problem = "it hangs"
    with pytest.raises(Unavailable, match="it hangs"):
        daemon.find_status(deadline=harness.deadline())
