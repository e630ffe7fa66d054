"""Which pools may serve: by name, by prefix, by none, and what is said of the others."""

import pytest
from attrs import evolve

from netplug_core.errors import ConfigurationError
from netplug_core.ipam.pools import Choice, choose
from netplug_core.ipam.request import AssignRequest, Automatic
from netplug_core.ipam.trace import NoPoolServes, PoolOutcome, PoolRefused, PoolUnknown
from netplug_core.records import Record, Revision
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPool, IPPoolSpec, IPPoolStatus, PoolCondition
from netplug_core.resources.ippool import ippool_key as key
from tests.unit.netplug_core.ipam.bench import pool, request, v4, v6

P1, P2 = pool("p1", "10.0.0.0/24"), pool("p2", "10.1.0.0/24")
SIX = pool("six", "fd80:24e2:f998:72d6::/120")


def stored(*pools: IPPool) -> tuple[Record[IPPool], ...]:
    return tuple(Record(key(each.metadata.name), each, Revision("1")) for each in pools)


def spec(**changes: object) -> IPPoolSpec:
    base: IPPoolSpec = evolve(P1.spec, **changes)  # type: ignore[arg-type]
    return base


def with_condition(type_: str, status: str) -> IPPool:
    return evolve(P1, status=IPPoolStatus(conditions=(PoolCondition(type=type_, status=status, reason="CIDROverlap"),)))


DISABLED = evolve(P1, spec=spec(is_disabled=True))
TERMINATING = evolve(P1, metadata=evolve(P1.metadata, deletion_time_ns=1))
NOT_ALLOCATABLE = with_condition("Allocatable", "False")
FOR_TUNNELS = evolve(P1, spec=spec(allowed_uses=(AllowedUse.TUNNEL,)))
MANUAL = evolve(P1, spec=spec(assignment_mode=AssignmentMode.MANUAL))
ELSEWHERE = evolve(P1, spec=spec(node_selector="zone == 'x'"))
FOR_TEAM = evolve(P1, spec=spec(namespace_selector="team == 'x'"))


def chosen(pools: tuple[IPPool, ...], wanted: Automatic, wish: AssignRequest | None = None) -> list[str]:
    choice = choose(stored(*pools), wish or request(), wanted)
    assert isinstance(choice, Choice), str(choice)
    return [record.key.name for record in choice.pools]


def test_all_pools_of_the_family_serve_in_the_order_of_their_names() -> None:  # I-67
    assert chosen((P1, P2, SIX), v4()) == ["p1", "p2"]
    assert chosen((P1, P2, SIX), v6()) == ["six"]


@pytest.mark.parametrize("first", [DISABLED, TERMINATING, NOT_ALLOCATABLE, FOR_TUNNELS, MANUAL, ELSEWHERE, FOR_TEAM])
def test_a_pool_that_may_not_serve_is_passed_over(first: IPPool) -> None:
    assert chosen((first, P2), v4()) == ["p2"]


@pytest.mark.parametrize("pool_, outcome, detail", [
    (DISABLED, PoolOutcome.DISABLED, ""),
    (TERMINATING, PoolOutcome.TERMINATING, ""),
    (NOT_ALLOCATABLE, PoolOutcome.NOT_ALLOCATABLE, "CIDROverlap"),
    (FOR_TUNNELS, PoolOutcome.WRONG_USE, "allowedUses: Tunnel"),
    (MANUAL, PoolOutcome.MANUAL, ""),
    (ELSEWHERE, PoolOutcome.NODE_SELECTOR, "zone == 'x'"),
    (FOR_TEAM, PoolOutcome.NAMESPACE_SELECTOR, "team == 'x'"),
])  # fmt: skip
def test_where_no_pool_serves_each_one_says_why(pool_: IPPool, outcome: PoolOutcome, detail: str) -> None:
    refusal = choose(stored(pool_, SIX), request(), v4())
    assert isinstance(refusal, NoPoolServes)
    (seen,) = refusal.seen  # pools of the other family are not worth a word
    assert (seen.pool, seen.outcome, seen.detail) == ("p1", outcome, detail)


def test_conditions_other_than_allocatable_false_are_no_obstacle() -> None:
    assert chosen((with_condition("Allocatable", "True"),), v4()) == ["p1"]
    assert chosen((with_condition("Allocatable", "Unknown"),), v4()) == ["p1"]
    assert chosen((with_condition("Ready", "False"),), v4()) == ["p1"]


@pytest.mark.parametrize("selector", ["", "all()", "global()"])
def test_a_selector_of_everything_is_no_rule(selector: str) -> None:
    assert chosen((evolve(P1, spec=spec(node_selector=selector)),), v4()) == ["p1"]


def test_the_use_of_a_request_decides() -> None:
    for_tunnel = evolve(request(), use=AllowedUse.TUNNEL)
    assert chosen((FOR_TUNNELS, P2), v4(), for_tunnel) == ["p1", "p2"]
    for_service = evolve(request(), use=AllowedUse.LOAD_BALANCER)
    assert isinstance(choose(stored(P1, P2), for_service, v4()), NoPoolServes)


def test_named_pools_are_tried_in_the_order_given() -> None:
    assert chosen((P1, P2), v4(1, "p2", "p1")) == ["p2", "p1"]
    assert chosen((P1, P2), v4(1, "p2")) == ["p2"]


@pytest.mark.parametrize("entry", ["10.0.0.0/24", "p1"])
def test_a_pool_is_named_by_name_or_prefix(entry: str) -> None:
    assert chosen((P2, P1), v4(1, entry)) == ["p1"]


def test_spellings_of_a_prefix_are_equal() -> None:  # I-70
    assert chosen((SIX,), v6(1, "fd80:24e2:f998:72d6:0:0:0:0/120")) == ["six"]


def test_naming_one_pool_twice_is_naming_it_once() -> None:
    assert chosen((P1, P2), v4(1, "p2", "10.1.0.0/24", "p1")) == ["p2", "p1"]


@pytest.mark.parametrize("pool_", [MANUAL, ELSEWHERE, FOR_TEAM])
def test_a_name_overrides_mode_and_selectors(pool_: IPPool) -> None:
    assert chosen((pool_, P2), v4(1, "p1")) == ["p1"]


@pytest.mark.parametrize("pool_, code, reason", [
    (DISABLED, 102, "is disabled"),
    (TERMINATING, 107, "is being removed"),
    (NOT_ALLOCATABLE, 108, "is not allocatable (CIDROverlap)"),
    (FOR_TUNNELS, 109, "is not for this use (allowedUses: Tunnel)"),
])  # fmt: skip
@pytest.mark.parametrize("entry", ["p1", "10.0.0.0/24"])
def test_a_name_overrides_nothing_else_and_one_bad_pool_spoils_the_list(
    pool_: IPPool, code: int, reason: str, entry: str
) -> None:
    refusal = choose(stored(pool_, P2), request(), v4(1, "p2", entry))
    assert isinstance(refusal, PoolRefused)
    assert refusal.code == code
    assert str(refusal) == f"the given pool cannot be used: IPPool p1 (10.0.0.0/24) {reason}"


@pytest.mark.parametrize("entry", ["six", "fd80:24e2:f998:72d6::/120"])
def test_a_pool_of_the_other_family_is_refused(entry: str) -> None:
    refusal = choose(stored(P1, SIX), request(), v4(1, entry))
    assert isinstance(refusal, PoolRefused)
    assert refusal.code == 103
    assert "is of the other address family" in str(refusal)


@pytest.mark.parametrize("entry", ["40.0.0.0/24", "10.0.0.0/25", "10.0.0.0/16", "10.0.0.0", "main", ""])
def test_an_unknown_pool_spoils_the_list_and_the_known_ones_are_named(entry: str) -> None:  # I-29
    refusal = choose(stored(P1, SIX), request(), v4(1, "p1", entry))
    assert isinstance(refusal, PoolUnknown)
    assert refusal.code == 101
    assert str(refusal) == (
        f"the given pool ({entry}) does not exist; pools of this cluster: "
        "p1 (10.0.0.0/24), six (fd80:24e2:f998:72d6::/120)"
    )


def test_host_bits_are_refused_with_the_prefix_that_was_meant() -> None:
    refusal = choose(stored(P1), request(), v4(1, "10.0.0.1/24"))
    assert isinstance(refusal, ConfigurationError)
    assert str(refusal) == (
        "ipv4_pools: '10.0.0.1/24' is not accepted; "
        "'10.0.0.1/24' has host bits set; 10.0.0.0/24 is the prefix that holds it"
    )


def test_what_looks_like_a_prefix_and_is_none_says_so() -> None:
    refusal = choose(stored(P1), request(), v6(1, "p1/24"))
    assert isinstance(refusal, ConfigurationError)
    assert refusal.where == "ipv6_pools"
