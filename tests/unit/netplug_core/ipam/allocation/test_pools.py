"""Which pools may serve: by name, by prefix, by none, and what is said of the others."""

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.ipam.allocation.pools import (
    Choice,
    choose,
    find_pool_of_block,
    find_selector_problems,
    is_selected,
    pool_of_address,
    selects_some,
)
from netplug_core.ipam.allocation.request import AssignRequest, Automatic
from netplug_core.ipam.outcome import (
    UNJUDGED,
    AddressOutside,
    AddressWrongUse,
    NoPoolQualifies,
    NoPoolServes,
    PoolOutcome,
    PoolRefused,
    PoolUnknown,
    UseMissing,
)
from netplug_core.records import Record, Revision
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPool, IPPoolSpec, IPPoolStatus, PoolCondition
from netplug_core.resources.ippool import ippool_key as key
from tests.harness.ipam import IPAMHarness, ipv4, ipv6, make_pool, make_request, specific

P1, P2 = make_pool("p1", "10.0.0.0/24"), make_pool("p2", "10.1.0.0/24")
SIX = make_pool("six", "fd80:24e2:f998:72d6::/120")


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


def asked(
    pools: tuple[IPPool, ...],
    wanted: Automatic,
    request: AssignRequest | None = None,
    labels: Mapping[str, str] | None = None,
) -> Choice | NetplugError:
    return choose(stored(*pools), request or make_request(), wanted, labels or {})


def chosen(
    pools: tuple[IPPool, ...],
    wanted: Automatic,
    request: AssignRequest | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[str]:
    choice = asked(pools, wanted, request, labels)
    assert isinstance(choice, Choice), str(choice)
    return [record.key.name for record in choice.pools]


# --- nothing named -----------------------------------------------------------------------------------------------


def test_all_pools_of_the_family_serve_in_the_order_of_their_names() -> None:  # I-67
    assert chosen((P1, P2, SIX), ipv4()) == ["p1", "p2"]
    assert chosen((P1, P2, SIX), ipv6()) == ["six"]


@pytest.mark.parametrize("first", [DISABLED, TERMINATING, NOT_ALLOCATABLE, FOR_TUNNELS, MANUAL, ELSEWHERE, FOR_TEAM])
def test_a_pool_that_may_not_serve_is_passed_over(first: IPPool) -> None:
    assert chosen((first, P2), ipv4()) == ["p2"]


@pytest.mark.parametrize("pool_, outcome, detail", [
    (DISABLED, PoolOutcome.DISABLED, ""),
    (TERMINATING, PoolOutcome.TERMINATING, ""),
    (NOT_ALLOCATABLE, PoolOutcome.NOT_ALLOCATABLE, "CIDROverlap"),
    (MANUAL, PoolOutcome.MANUAL, ""),
    (ELSEWHERE, PoolOutcome.NODE_SELECTOR, "zone == 'x'"),
    (FOR_TEAM, PoolOutcome.NAMESPACE_SELECTOR, "team == 'x'"),
])  # fmt: skip
def test_where_no_pool_serves_each_one_says_why(pool_: IPPool, outcome: PoolOutcome, detail: str) -> None:
    refusal = asked((pool_, SIX), ipv4())
    assert isinstance(refusal, NoPoolServes)
    (seen,) = refusal.seen  # pools of the other family are not worth a word
    assert (seen.pool, seen.outcome, seen.detail) == ("p1", outcome, detail)


def test_conditions_other_than_allocatable_false_are_no_obstacle() -> None:
    assert chosen((with_condition("Allocatable", "True"),), ipv4()) == ["p1"]
    assert chosen((with_condition("Allocatable", "Unknown"),), ipv4()) == ["p1"]
    assert chosen((with_condition("Ready", "False"),), ipv4()) == ["p1"]


# --- uses and room in blocks --------------------------------------------------------------------------------------


def test_the_use_of_a_request_decides() -> None:
    for_tunnel = evolve(make_request(), use=AllowedUse.TUNNEL)
    assert chosen((FOR_TUNNELS, P2), ipv4(), for_tunnel) == ["p1", "p2"]


def test_where_pools_select_the_workload_and_none_is_for_its_use_the_uses_are_named() -> None:  # I-21
    refusal = asked((FOR_TUNNELS, ELSEWHERE), ipv4())
    assert isinstance(refusal, NoPoolQualifies)
    assert str(refusal) == (
        "cannot find a qualified ippool for use Workload: IPPool p1 (10.0.0.0/24) is not for this use "
        "(allowedUses: Tunnel); IPPool p1 (10.0.0.0/24) does not select this node (zone == 'x'): "
        "no pools match the required use"
    )


@pytest.mark.parametrize("named", [(), ("p1",)])
def test_a_use_must_be_stated(named: tuple[str, ...]) -> None:  # I-45
    refusal = asked((P1,), ipv4(1, *named), evolve(make_request(), use=None))
    assert isinstance(refusal, UseMissing)
    assert str(refusal).startswith("must specify the intended use when assigning an IP")


@pytest.mark.parametrize("length, kept_back, serves", [(30, (2, 1), True), (30, (2, 2), False), (32, (0, 1), False)])
@pytest.mark.parametrize("named", [(), ("p1",)])
def test_blocks_must_hold_more_than_what_the_host_keeps_back(
    length: int, kept_back: tuple[int, int], *, serves: bool, named: tuple[str, ...]
) -> None:
    """Trap 42: whether the pool was named or not."""
    pools, request = (evolve(P1, spec=spec(block_length=length)),), evolve(make_request(), host_reserved=kept_back)
    answer = asked(pools, ipv4(1, *named), request)
    assert isinstance(answer, Choice) is serves
    if isinstance(answer, NoPoolQualifies):
        (seen,) = answer.seen
        assert (seen.outcome, seen.detail) == (PoolOutcome.TOO_SMALL, f"blockSize {length}")


# --- selectors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["", "all()", "global()", " "])
def test_a_selector_of_everything_is_no_rule(selector: str) -> None:
    assert chosen((evolve(P1, spec=spec(node_selector=selector, namespace_selector=selector)),), ipv4()) == ["p1"]


@pytest.mark.parametrize("first, second, disabled, expected", [
    ('foo == "bar"', 'foo != "bar"', False, ["p1"]),
    ('foo != "bar"', "all()", False, ["p2"]),
    ("all()", "all()", True, ["p2"]),
])  # fmt: skip
def test_labels_of_the_node_choose_pools(first: str, second: str, *, disabled: bool, expected: list[str]) -> None:
    """I-67, for a node with foo=bar."""
    pools = (
        evolve(P1, spec=spec(node_selector=first, is_disabled=disabled)),
        evolve(P2, spec=evolve(P2.spec, node_selector=second)),
    )
    assert chosen(pools, ipv4(), labels={"foo": "bar"}) == expected


def test_where_one_pool_is_disabled_and_the_other_does_not_match_both_say_so() -> None:  # I-67
    pools = (DISABLED, evolve(P2, spec=evolve(P2.spec, node_selector='foo != "bar"')))
    refusal = asked(pools, ipv4(), labels={"foo": "bar"})
    assert isinstance(refusal, NoPoolServes)
    assert [seen.outcome for seen in refusal.seen] == [PoolOutcome.DISABLED, PoolOutcome.NODE_SELECTOR]


FOR_PRODUCTION = evolve(
    P1, spec=spec(node_selector="zone == 'us-west'", namespace_selector="environment == 'production'")
)


@pytest.mark.parametrize("zone, environment, outcome", [
    ("us-west", "production", None),
    ("us-west", "development", PoolOutcome.NAMESPACE_SELECTOR),
    ("us-east", "production", PoolOutcome.NODE_SELECTOR),
])  # fmt: skip
def test_node_and_namespace_must_both_match(zone: str, environment: str, outcome: PoolOutcome | None) -> None:  # I-69
    request = evolve(make_request(), namespace_labels=(("environment", environment),))
    answer = asked((FOR_PRODUCTION,), ipv4(), request, {"zone": zone})
    said = answer.seen[0].outcome if isinstance(answer, NoPoolServes) else None
    assert said is outcome


def test_a_namespace_must_match_the_whole_of_its_selector() -> None:  # I-69
    wanted = "environment == 'production' && tier == 'frontend'"
    request = evolve(make_request(), namespace_labels=(("environment", "production"), ("tier", "backend")))
    refusal = asked((evolve(P1, spec=spec(namespace_selector=wanted)),), ipv4(), request)
    assert isinstance(refusal, NoPoolServes)
    assert refusal.seen[0].detail == wanted


def test_a_workload_without_a_namespace_has_one_without_labels() -> None:
    assert chosen((evolve(P1, spec=spec(namespace_selector="!has(team)")),), ipv4()) == ["p1"]
    assert isinstance(asked((FOR_TEAM,), ipv4()), NoPoolServes)


@pytest.mark.parametrize("field", ["node_selector", "namespace_selector"])
def test_a_pool_whose_selector_cannot_be_read_is_passed_over(field: str) -> None:
    broken = evolve(P1, spec=spec(**{field: "zone = 'a'"}))
    answer = asked((broken, P2), ipv4())
    assert isinstance(answer, Choice)
    assert [pool.key.name for pool in answer.pools] == ["p2"]
    (seen,) = (entry for entry in answer.seen if entry.outcome in UNJUDGED)
    wire = "nodeSelector" if field == "node_selector" else "namespaceSelector"
    start = f"IPPool p1 ({broken.spec.prefix}) is passed over: its selector cannot be read (spec.{wire}: "
    assert str(seen).startswith(start)
    assert [problem.where for problem in find_selector_problems(stored(broken)[0])] == [f"IPPool(p1) spec.{wire}"]
    assert find_selector_problems(stored(P2)[0]) == ()


def test_a_refusal_names_a_pool_whose_selector_cannot_be_read() -> None:
    refusal = asked((evolve(P1, spec=spec(node_selector="zone =")),), ipv4())
    assert isinstance(refusal, NoPoolServes)
    assert "is passed over: its selector cannot be read (spec.nodeSelector: 'zone =' is not accepted;" in str(refusal)


def test_no_pool_that_selects_nodes_serves_one_whose_record_cannot_be_read() -> None:
    wide = evolve(P1, spec=spec(node_selector="!has(zone)"))
    answer = choose(stored(wide, P2, ELSEWHERE), make_request(), ipv4(), None)
    assert isinstance(answer, Choice)
    assert [pool.key.name for pool in answer.pools] == ["p2"]
    assert [entry.outcome for entry in answer.seen].count(PoolOutcome.UNKNOWN_LABELS) == 2


def test_a_selector_that_cannot_be_read_does_not_matter_to_pools_nobody_asks() -> None:
    broken = evolve(P1, spec=spec(node_selector="zone =="))
    assert chosen((broken, P2), ipv4(1, "p1", "p2")) == ["p1", "p2"]
    assert chosen((evolve(broken, spec=evolve(broken.spec, is_disabled=True)), P2), ipv4()) == ["p2"]
    assert chosen((broken, SIX), ipv6()) == ["six"]


def test_node_labels_are_wanted_only_for_a_pool_of_the_family_that_selects_by_them() -> None:
    assert not selects_some(stored(P1, SIX), {Family.IPV4})
    assert selects_some(stored(P2, ELSEWHERE), {Family.IPV4})
    assert not selects_some(stored(ELSEWHERE, SIX), {Family.IPV6})


def test_whether_a_pool_selects_a_node_is_a_question_of_its_labels() -> None:
    (elsewhere,) = stored(ELSEWHERE)
    assert is_selected(elsewhere, {"zone": "x"})
    assert not is_selected(elsewhere, {})


# --- by name or prefix --------------------------------------------------------------------------------------------


def test_named_pools_are_tried_in_the_order_given() -> None:
    assert chosen((P1, P2), ipv4(1, "p2", "p1")) == ["p2", "p1"]
    assert chosen((P1, P2), ipv4(1, "p2")) == ["p2"]


@pytest.mark.parametrize("entry", ["10.0.0.0/24", "p1"])
def test_a_pool_is_named_by_name_or_prefix(entry: str) -> None:
    assert chosen((P2, P1), ipv4(1, entry)) == ["p1"]


def test_spellings_of_a_prefix_are_equal() -> None:
    """I-70, trap 23."""
    assert chosen((SIX,), ipv6(1, "fd80:24e2:f998:72d6:0:0:0:0/120")) == ["six"]


def test_naming_one_pool_twice_is_naming_it_once() -> None:
    assert chosen((P1, P2), ipv4(1, "p2", "10.1.0.0/24", "p1")) == ["p2", "p1"]


@pytest.mark.parametrize("pool_", [MANUAL, ELSEWHERE, FOR_TEAM])
def test_a_name_overrides_mode_and_selectors(pool_: IPPool) -> None:  # I-69
    assert chosen((pool_, P2), ipv4(1, "p1")) == ["p1"]


@pytest.mark.parametrize("pool_, code, reason", [
    (DISABLED, 102, "is disabled"),
    (TERMINATING, 107, "is being removed"),
    (NOT_ALLOCATABLE, 108, "is not allocatable (CIDROverlap)"),
])  # fmt: skip
@pytest.mark.parametrize("entry", ["p1", "10.0.0.0/24"])
def test_a_name_overrides_nothing_else_and_one_bad_pool_spoils_the_list(
    pool_: IPPool, code: int, reason: str, entry: str
) -> None:  # I-29
    refusal = asked((pool_, P2), ipv4(1, "p2", entry))
    assert isinstance(refusal, PoolRefused)
    assert refusal.code == code
    assert str(refusal) == (
        f"the given pool ({entry}) does not exist, or is not enabled: IPPool p1 (10.0.0.0/24) {reason}"
    )


def test_the_uses_that_a_pool_is_for_are_named() -> None:
    for_both = evolve(P1, spec=spec(allowed_uses=(AllowedUse.TUNNEL, AllowedUse.LOAD_BALANCER)))
    refusal = asked((for_both,), ipv4())
    assert isinstance(refusal, NoPoolQualifies)
    assert refusal.seen[0].detail == "allowedUses: Tunnel, LoadBalancer"


def test_a_name_does_not_override_the_use() -> None:
    refusal = asked((FOR_TUNNELS, P2), ipv4(1, "p2", "p1"))
    assert isinstance(refusal, NoPoolQualifies)
    assert (refusal.code, [seen.pool for seen in refusal.seen]) == (109, ["p1"])


@pytest.mark.parametrize("entry", ["six", "fd80:24e2:f998:72d6::/120"])
def test_a_pool_of_the_other_family_is_refused(entry: str) -> None:  # I-29
    refusal = asked((P1, SIX), ipv4(1, entry))
    assert isinstance(refusal, PoolRefused)
    assert refusal.code == 103
    assert str(refusal) == (
        f"the given pool ({entry}) cannot be used: "
        "IPPool six (fd80:24e2:f998:72d6::/120) is of the other address family"
    )


@pytest.mark.parametrize("entry", ["40.0.0.0/24", "10.0.0.0/25", "10.0.0.0/16", "10.0.0.0", "main", ""])
def test_an_unknown_pool_spoils_the_list_and_the_known_ones_are_named(entry: str) -> None:  # I-29
    refusal = asked((P1, SIX), ipv4(1, "p1", entry))
    assert isinstance(refusal, PoolUnknown)
    assert refusal.code == 101
    assert str(refusal) == (
        f"the given pool ({entry}) does not exist, or is not enabled; pools of this cluster: "
        "p1 (10.0.0.0/24), six (fd80:24e2:f998:72d6::/120)"
    )


def test_host_bits_are_refused_with_the_prefix_that_was_meant() -> None:
    """Trap 23, as decided here: the spelling is not guessed at, and the text names the prefix."""
    refusal = asked((P1,), ipv4(1, "10.0.0.1/24"))
    assert isinstance(refusal, ConfigurationError)
    assert str(refusal) == (
        "ipv4_pools: '10.0.0.1/24' is not accepted; "
        "'10.0.0.1/24' has host bits set; 10.0.0.0/24 is the prefix that holds it"
    )


def test_what_looks_like_a_prefix_and_is_none_says_so() -> None:
    refusal = asked((P1,), ipv6(1, "p1/24"))
    assert isinstance(refusal, ConfigurationError)
    assert refusal.where == "ipv6_pools"


def test_what_is_said_of_a_pool_that_serves_is_that_and_no_more() -> None:
    for wanted in (ipv4(), ipv4(1, "p1")):
        choice = asked((P1,), wanted)
        assert isinstance(choice, Choice)
        assert [str(seen) for seen in choice.seen] == ["IPPool p1 (10.0.0.0/24) may serve"]


# --- the pool of a block ------------------------------------------------------------------------------------------


def test_a_block_is_one_of_the_pool_it_lies_in_and_has_the_size_of() -> None:
    pools = stored(P1, make_pool("narrow", "11.0.0.0/24", 28))
    texts = ("10.0.0.0/26", "11.0.0.16/28", "11.0.0.0/26", "12.0.0.0/26")
    found = [find_pool_of_block(pools, Prefix.parse(text)) for text in texts]
    assert [record.key.name if record else None for record in found] == ["p1", "narrow", None, None]


# --- the pool of one address --------------------------------------------------------------------------------------


def found(pools: tuple[IPPool, ...], address: str, *named: str, use: AllowedUse | None = None) -> str | NetplugError:
    record = pool_of_address(stored(*pools), specific(address, *named), use)
    return record if isinstance(record, NetplugError) else record.key.name


@pytest.mark.parametrize("pool_", [P1, MANUAL, ELSEWHERE, FOR_TEAM, FOR_TUNNELS])
def test_an_address_is_of_the_enabled_pool_it_lies_in_whatever_that_selects(pool_: IPPool) -> None:
    assert found((SIX, pool_, P2), "10.0.0.7") == "p1"


@pytest.mark.parametrize("pool_", [DISABLED, TERMINATING, NOT_ALLOCATABLE])
def test_an_address_of_a_pool_that_is_not_enabled_is_of_none(pool_: IPPool) -> None:
    refusal = found((pool_, P2), "10.0.0.7")
    assert isinstance(refusal, AddressOutside)
    assert str(refusal).startswith(
        "The provided IP address is not in a configured pool: 10.0.0.7; IPPool p1 (10.0.0.0/24) is "
    )
    assert str(refusal).endswith(" is not allocatable (CIDROverlap)") is (pool_ is NOT_ALLOCATABLE)


def test_of_overlapping_pools_the_older_serves() -> None:
    wide = make_pool("p9", "10.0.0.0/16")
    assert found((P1, wide), "10.0.0.7") == "p1"
    refused = "IPPool p9 (10.0.0.0/16) overlaps an older pool and gives no addresses (p1)"
    assert refused in str(found((P1, wide), "10.0.0.7", "p9"))
    assert refused in str(found((DISABLED, wide), "10.0.0.7"))
    assert refused in str(found((P1, wide), "10.0.9.9"))
    later = evolve(P1, metadata=evolve(P1.metadata, creation_time_ns=2))
    earlier = evolve(wide, metadata=evolve(wide.metadata, creation_time_ns=1))
    assert found((later, earlier), "10.0.0.7") == "p9"


def test_a_pool_that_overlaps_an_older_one_is_named_in_the_refusal() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("a", "10.0.0.0/24")
    harness.add_pool("b", "10.0.0.0/16")
    harness.disable_pool("a")
    with pytest.raises(NoPoolServes, match=r"IPPool b \(10\.0\.0\.0/16\) overlaps an older pool .* \(a\)"):
        harness.assign_or_refuse("h")
    with pytest.raises(PoolRefused, match=r"the given pool \(b\) .* overlaps an older pool .* \(a\)"):
        harness.assign_or_refuse("h", ipv4(1, "b"))


def test_named_pools_confine_an_address() -> None:
    assert found((P1, P2), "10.0.0.7", "p2", "10.0.0.0/24") == "p1"
    refusal = found((P1, P2), "10.0.0.7", "p2")
    assert str(refusal).startswith(
        "The provided IP address is not in a configured pool named (p2): 10.0.0.7; "
        "pools of this cluster: p1 (10.0.0.0/24), p2 "
    )


def test_a_pool_named_for_an_address_must_exist() -> None:
    assert isinstance(found((P1,), "10.0.0.7", "p3"), PoolUnknown)
    assert str(found((P1,), "10.0.0.7", "p3/24")).startswith("ipv4_pools: 'p3/24' is not accepted; ")


def test_a_stated_use_must_be_the_pools_and_none_need_be_stated() -> None:
    """I-49, trap 14."""
    refusal = found((FOR_TUNNELS,), "10.0.0.7", use=AllowedUse.WORKLOAD)
    assert isinstance(refusal, AddressWrongUse)
    assert str(refusal) == (
        'IP address 10.0.0.7 is in IP pool "p1", which is not allowed for use "Workload" (allowedUses: [Tunnel])'
    )
    assert found((FOR_TUNNELS,), "10.0.0.7", use=None) == "p1"
    assert found((P1,), "10.0.0.7", use=AllowedUse.TUNNEL) == "p1"
