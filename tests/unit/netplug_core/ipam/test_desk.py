"""What one decision works with: the rules in force, the limits, and which addresses may be given at all."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.block import block_key
from netplug_core.ipam.decide import queries
from netplug_core.ipam.desk import BLOCK_LIMIT, Basket, Desk, Hold, Means, edges
from netplug_core.ipam.request import AssignRequest, Reach, Shortfall
from netplug_core.ipam.trace import BlockOutcome, BlockSeen
from netplug_core.records import Get, NeedMore, Query
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION, IPAMConfigurationSpec
from netplug_core.resources.node import node_key
from tests.unit.netplug_core.ipam.bench import NODE, OTHER, Bench, from_first, request, v4, v6

BLOCK = Prefix.parse("10.0.0.0/26")
SECOND_NS = 1_000_000_000


@pytest.fixture
def bench() -> Bench:
    """A cluster with one pool of four blocks."""
    made = Bench.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def opened(bench: Bench, wish: AssignRequest, *more: Query) -> Desk | NeedMore:
    return Desk.open(bench.read(*queries(wish), *more), wish, bench.clock.now_ns(), from_first)


def desk(bench: Bench, wish: AssignRequest | None = None, *more: Query) -> Desk:
    made = opened(bench, wish or request(), *more)
    assert isinstance(made, Desk)
    return made


# --- what has to be read first ------------------------------------------------------------------------------------


def test_nothing_more_is_read_for_a_node_that_has_nothing(bench: Bench) -> None:
    assert desk(bench).claims == {Family.IPV4: ()}
    assert desk(bench).held == ()


def test_the_blocks_of_handle_and_claims_and_the_nodes_labels_are_asked_for_together_and_once(bench: Bench) -> None:
    bench.change_pool("main", node_selector="has(zone)")
    bench.label_node(zone="a")
    bench.take("h")
    wish = request("h", v4(2))
    missing = opened(bench, wish)
    assert missing == NeedMore((Get(block_key(BLOCK)), Get(node_key(NODE))))
    made = desk(bench, wish, Get(block_key(BLOCK)), Get(node_key(NODE)))
    (claim,) = made.claims[Family.IPV4]
    assert (claim.prefix, claim.block) == (BLOCK, made.held[0])
    assert made.labels == {"zone": "a"}


def test_a_block_that_is_gone_is_known_to_be(bench: Bench) -> None:
    bench.leave_handle("h", b0=1)
    made = desk(bench, request("h"), Get(block_key(BLOCK)))
    assert made.held == ()
    assert made.handle is not None


@pytest.mark.parametrize("wish", [request("h", v6()), request("h", node="")])
def test_labels_are_read_only_where_a_pool_of_the_family_selects_by_those_of_a_node(
    bench: Bench, wish: AssignRequest
) -> None:
    bench.change_pool("main", node_selector="has(zone)")
    assert not desk(bench, wish).is_node_known


def test_a_node_that_is_not_registered_has_no_labels(bench: Bench) -> None:
    bench.change_pool("main", node_selector="has(zone)")
    made = desk(bench, request(), Get(node_key(NODE)))
    assert made.is_node_known
    assert made.labels == {}


# --- rules --------------------------------------------------------------------------------------------------------


def test_reading_the_configuration_does_not_make_one(bench: Bench) -> None:
    """Trap 13: the defaults are in memory."""
    assert desk(bench).rules == IPAMConfigurationSpec()
    bench.take("h")
    assert bench.records(IPAM_CONFIGURATION) == ()


@pytest.mark.parametrize("of_cluster, of_request, limit, is_explicit", [
    (0, None, BLOCK_LIMIT, False),
    (3, None, 3, True),
    (0, 2, 2, True),
    (3, 2, 2, True),
    (2, 3, 2, True),
    (0, 0, 0, True),
    (40, None, 40, True),
])  # fmt: skip
def test_the_smaller_limit_counts_and_twenty_where_nobody_set_one(
    bench: Bench, of_cluster: int, of_request: int | None, limit: int, *, is_explicit: bool
) -> None:
    bench.configure(is_affinity_strict=True, max_blocks=of_cluster)
    made = desk(bench, evolve(request(), block_limit=of_request))
    assert (made.limit, bool(made.limits)) == (limit, is_explicit)


def test_a_block_is_looked_at_as_it_is_once_all_that_has_cooled_down_is_free(bench: Bench) -> None:
    bench.configure(cooldown_s=30)
    bench.take("h", v4(64))
    bench.release("h")
    block = bench.block(str(BLOCK))
    assert desk(bench, request(None), Get(block_key(BLOCK))).rested(block) == block
    bench.clock.sleep(31)
    assert desk(bench, request(None), Get(block_key(BLOCK))).rested(block).is_empty


# --- which addresses ----------------------------------------------------------------------------------------------


def test_reservations_of_all_objects_count_together(bench: Bench) -> None:
    bench.reserve("a", "10.0.0.0/31")
    bench.reserve("b", "10.0.0.3", "fd00::/64")
    made = desk(bench)
    new = made.new_block(BLOCK)
    assert made.servable(Prefix.parse("10.0.0.0/24"), new, 3) == (2, 4, 5)


def test_no_address_is_looked_at_one_by_one_where_none_is_reserved(bench: Bench) -> None:
    pool = Prefix.parse("10.0.0.0/24")
    assert desk(bench).may_serve(pool, BLOCK) is None
    bench.reserve("elsewhere", "10.0.0.128/25")
    assert desk(bench).may_serve(pool, BLOCK) is None
    may_serve = desk(bench).may_serve(pool, Prefix.parse("10.0.0.128/26"))
    assert may_serve is not None
    assert not may_serve(Address.parse("10.0.0.128"))


def test_the_edges_of_a_link_are_its_network_gateway_and_broadcast_address() -> None:
    assert [str(edge) for edge in edges(Prefix.parse("10.0.0.0/29"))] == ["10.0.0.0", "10.0.0.1", "10.0.0.7"]
    assert [str(edge) for edge in edges(Prefix.parse("10.0.0.4/32"))] == ["10.0.0.4"] * 3


@pytest.mark.parametrize("cidr, length, given", [
    ("10.0.0.0/29", 29, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
    ("10.0.0.0/29", 31, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
    ("10.0.0.0/29", 32, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
    ("10.0.0.0/30", 32, ["10.0.0.2"]),
    ("10.0.0.0/31", 31, []),
    ("10.0.0.0/32", 32, []),
])  # fmt: skip
def test_network_gateway_and_broadcast_stay_free(cidr: str, length: int, given: list[str]) -> None:
    bench = Bench.new()
    bench.add_pool("link", cidr, length)
    wish = evolve(request("h", v4(8)), reach=Reach.ON_LINK, shortfall=Shortfall.RETURN)
    assert bench.assign(wish) == given


def test_reserved_addresses_of_a_link_stay_free_too() -> None:
    bench = Bench.new()
    bench.add_pool("link", "10.0.0.0/29")
    bench.reserve("r", "10.0.0.3")
    assert bench.assign(evolve(request("h", v4(2)), reach=Reach.ON_LINK)) == ["10.0.0.2", "10.0.0.4"]


def test_blocks_that_a_link_cannot_use_do_not_count_as_claims() -> None:
    bench = Bench.new()
    bench.add_pool("link", "10.0.0.0/24", 32)
    wish = evolve(request("h", v4(20)), reach=Reach.ON_LINK)
    assert bench.assign(wish) == [f"10.0.0.{number}" for number in range(2, 22)]
    assert len(bench.blocks()) == 20


def test_a_link_of_ipv6_keeps_its_edges_too() -> None:
    bench = Bench.new()
    bench.add_pool("link", "fd00::/125")
    wish = evolve(request("h", v6(8)), reach=Reach.ON_LINK, shortfall=Shortfall.RETURN)
    assert bench.assign(wish) == ["fd00::2", "fd00::3", "fd00::4", "fd00::5", "fd00::6"]


# --- the basket ---------------------------------------------------------------------------------------------------


def basket(bench: Bench, missing: int) -> Basket:
    return Basket(desk=desk(bench), wanted=missing, missing=missing, room=2, may_borrow=True, stale={})


def hold(bench: Bench, prefix: Prefix, means: Means = Means.CLAIM) -> Hold:
    made = desk(bench)
    return Hold(pool=made.pools[0], block=made.new_block(prefix), revision=None, means=means)


def test_a_basket_takes_what_is_missing_and_notes_what_became_of_the_block(bench: Bench) -> None:
    filled = basket(bench, 3)
    filled.claim(hold(bench, BLOCK))
    assert [taken.ordinals for taken in filled.holds] == [(0, 1, 2)]
    assert (filled.missing, filled.room, filled.seen) == (0, 1, {BLOCK})
    assert filled.trace == [BlockSeen(block=BLOCK, outcome=BlockOutcome.CLAIMED)]


@pytest.mark.parametrize("reserved, outcome", [("10.0.0.0/26", BlockOutcome.RESERVED), ("", BlockOutcome.FULL)])
def test_a_block_that_gives_nothing_is_not_claimed(bench: Bench, reserved: str, outcome: BlockOutcome) -> None:
    if reserved:
        bench.reserve("r", reserved)
    filled, offered = basket(bench, 1), hold(bench, BLOCK)
    if not reserved:
        offered = evolve(offered, block=evolve(offered.block, free=()))
    filled.claim(offered)
    assert (filled.holds, filled.missing, filled.room) == ([], 1, 2)
    assert filled.trace == [BlockSeen(block=BLOCK, outcome=outcome)]


@pytest.mark.parametrize("means, outcome", [
    (Means.SETTLED, "gave addresses"),
    (Means.CONFIRM, "was claimed"),
    (Means.CLAIM, "was claimed"),
    (Means.ADOPT, "had no owner and was claimed"),
    (Means.RECLAIM, "was empty for long and was taken over"),
    (Means.BORROW, "belongs to another node and lent addresses"),
])  # fmt: skip
def test_each_means_has_its_word_in_the_trace(bench: Bench, means: Means, outcome: str) -> None:
    filled = basket(bench, 1)
    filled.offer(hold(bench, BLOCK, means))
    assert [str(remark) for remark in filled.trace] == [f"block {BLOCK} {outcome}"]


def test_a_stale_claim_goes_along_with_the_block_that_becomes_ours_after_all(bench: Bench) -> None:
    bench.give_block(str(BLOCK), node=OTHER)
    (stale,) = bench.records_of_claims(OTHER)
    filled = evolve(basket(bench, 1), stale={BLOCK: stale})
    filled.claim(hold(bench, BLOCK))
    assert [taken.affinity for taken in filled.holds] == [stale]
    assert filled.stale == {}
