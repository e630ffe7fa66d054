"""What one decision works with: the rules in force, the limits, and which addresses may be given at all."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.allocation.context import (
    DEFAULT_BLOCK_LIMIT,
    AllocationContext,
    FamilyAllocation,
    link_reserved,
)
from netplug_core.ipam.allocation.decide import queries
from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate
from netplug_core.ipam.allocation.request import AssignedAddress, AssignRequest, LinkLayer, Shortfall
from netplug_core.ipam.model import block_key
from netplug_core.ipam.outcome import BlockOutcome, BlockTrace
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Get, NeedMore, Query
from netplug_core.resources.ippool import IPAM_CONFIGURATION, IPAMConfigurationSpec
from netplug_core.resources.node import node_key
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, first_block_first, ipv4, ipv6, make_request

BLOCK = Prefix.parse("10.0.0.0/26")
SECOND_NS = 1_000_000_000


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def opened(harness: IPAMHarness, request: AssignRequest, *more: Query) -> AllocationContext | NeedMore:
    return AllocationContext.open(
        harness.read(*queries(request), *more), request, harness.clock.now_ns(), first_block_first
    )


def open_context(harness: IPAMHarness, request: AssignRequest | None = None, *more: Query) -> AllocationContext:
    made = opened(harness, request or make_request(), *more)
    assert isinstance(made, AllocationContext)
    return made


# --- what has to be read first ------------------------------------------------------------------------------------


def test_nothing_more_is_read_for_a_node_that_has_nothing(harness: IPAMHarness) -> None:
    assert open_context(harness).own_affinities == {Family.IPV4: ()}
    assert open_context(harness).handle_blocks == ()


def test_the_blocks_of_handle_and_claims_and_the_nodes_labels_are_asked_for_together_and_once(
    harness: IPAMHarness,
) -> None:
    harness.change_pool("main", node_selector="has(zone)")
    harness.label_node(zone="a")
    harness.assign_or_refuse("h")
    request = make_request("h", ipv4(2))
    missing = opened(harness, request)
    assert missing == NeedMore((Get(block_key(BLOCK)), Get(node_key(NODE))))
    made = open_context(harness, request, Get(block_key(BLOCK)), Get(node_key(NODE)))
    (claim,) = made.own_affinities[Family.IPV4]
    assert (claim.prefix, claim.block) == (BLOCK, made.handle_blocks[0])
    assert made.labels == {"zone": "a"}


def test_a_block_that_is_gone_is_known_to_be(harness: IPAMHarness) -> None:
    harness.put_handle("h", b0=1)
    made = open_context(harness, make_request("h"), Get(block_key(BLOCK)))
    assert made.handle_blocks == ()
    assert made.handle is not None


@pytest.mark.parametrize("assign_request", [make_request("h", ipv6()), make_request("h", node="")])
def test_labels_are_read_only_where_a_pool_of_the_family_selects_by_those_of_a_node(
    harness: IPAMHarness, assign_request: AssignRequest
) -> None:
    harness.change_pool("main", node_selector="has(zone)")
    assert not open_context(harness, assign_request).has_read_node


def test_a_node_that_is_not_registered_has_no_labels(harness: IPAMHarness) -> None:
    harness.change_pool("main", node_selector="has(zone)")
    made = open_context(harness, make_request(), Get(node_key(NODE)))
    assert made.has_read_node
    assert made.labels == {}


# --- rules --------------------------------------------------------------------------------------------------------


def test_reading_the_configuration_does_not_make_one(harness: IPAMHarness) -> None:
    """Trap 13: the defaults are in memory."""
    assert open_context(harness).settings == IPAMConfigurationSpec()
    harness.assign_or_refuse("h")
    assert harness.records(IPAM_CONFIGURATION) == ()


@pytest.mark.parametrize("of_cluster, of_request, limit, is_explicit", [
    (0, None, DEFAULT_BLOCK_LIMIT, False),
    (3, None, 3, True),
    (0, 2, 2, True),
    (3, 2, 2, True),
    (2, 3, 2, True),
    (0, 0, 0, True),
    (40, None, 40, True),
])  # fmt: skip
def test_the_smaller_limit_counts_and_twenty_where_nobody_set_one(
    harness: IPAMHarness, of_cluster: int, of_request: int | None, limit: int, *, is_explicit: bool
) -> None:
    harness.configure(is_affinity_strict=True, max_blocks_per_host=of_cluster)
    made = open_context(harness, evolve(make_request(), block_limit=of_request))
    assert (made.block_limit, bool(made.explicit_limits)) == (limit, is_explicit)


def test_a_block_is_looked_at_as_it_is_once_all_that_has_cooled_down_is_free(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=30)
    harness.assign_or_refuse("h", ipv4(64))
    harness.release("h")
    block = harness.block(str(BLOCK))
    assert open_context(harness, make_request(None), Get(block_key(BLOCK))).claimant.cooldown.expire(block) == block
    harness.clock.sleep(31)
    assert open_context(harness, make_request(None), Get(block_key(BLOCK))).claimant.cooldown.expire(block).is_empty


# --- which addresses ----------------------------------------------------------------------------------------------


def test_reservations_of_all_objects_count_together(harness: IPAMHarness) -> None:
    harness.reserve("a", "10.0.0.0/31")
    harness.reserve("b", "10.0.0.3", "fd00::/64")
    made = open_context(harness)
    new = made.claimant.new_block(BLOCK)
    assert made.find_assignable(Prefix.parse("10.0.0.0/24"), new, 3) == (2, 4, 5)


def test_no_address_is_looked_at_one_by_one_where_none_is_reserved(harness: IPAMHarness) -> None:
    pool = Prefix.parse("10.0.0.0/24")
    assert open_context(harness).may_assign(pool, BLOCK) is None
    harness.reserve("elsewhere", "10.0.0.128/25")
    assert open_context(harness).may_assign(pool, BLOCK) is None
    may_assign = open_context(harness).may_assign(pool, Prefix.parse("10.0.0.128/26"))
    assert may_assign is not None
    assert not may_assign(Address.parse("10.0.0.128"))


def test_the_edges_of_a_link_are_its_network_gateway_and_broadcast_address() -> None:
    assert [str(edge) for edge in link_reserved(Prefix.parse("10.0.0.0/29"))] == ["10.0.0.0", "10.0.0.1", "10.0.0.7"]
    assert [str(edge) for edge in link_reserved(Prefix.parse("10.0.0.4/32"))] == ["10.0.0.4"] * 3


@pytest.mark.parametrize("cidr, length, given", [
    ("10.0.0.0/29", 29, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
    ("10.0.0.0/29", 31, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
    ("10.0.0.0/29", 32, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]),
    ("10.0.0.0/30", 32, ["10.0.0.2"]),
    ("10.0.0.0/31", 31, []),
    ("10.0.0.0/32", 32, []),
])  # fmt: skip
def test_network_gateway_and_broadcast_stay_free(cidr: str, length: int, given: list[str]) -> None:
    harness = IPAMHarness.new()
    harness.add_pool("link", cidr, length)
    request = evolve(make_request("h", ipv4(8)), link_layer=LinkLayer.L2, shortfall=Shortfall.RETURN)
    assert harness.assign(request) == given


def test_reserved_addresses_of_a_link_stay_free_too() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("link", "10.0.0.0/29")
    harness.reserve("r", "10.0.0.3")
    assert harness.assign(evolve(make_request("h", ipv4(2)), link_layer=LinkLayer.L2)) == ["10.0.0.2", "10.0.0.4"]


def test_blocks_that_a_link_cannot_use_do_not_count_as_claims() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("link", "10.0.0.0/24", 32)
    request = evolve(make_request("h", ipv4(20)), link_layer=LinkLayer.L2)
    assert harness.assign(request) == [f"10.0.0.{number}" for number in range(2, 22)]
    assert len(harness.blocks()) == 20


def test_a_link_of_ipv6_keeps_its_edges_too() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("link", "fd00::/125")
    request = evolve(make_request("h", ipv6(8)), link_layer=LinkLayer.L2, shortfall=Shortfall.RETURN)
    assert harness.assign(request) == ["fd00::2", "fd00::3", "fd00::4", "fd00::5", "fd00::6"]


# --- families -----------------------------------------------------------------------------------------------------


def family_allocation(harness: IPAMHarness, missing: int) -> FamilyAllocation:
    return FamilyAllocation(
        context=open_context(harness), wanted=missing, missing=missing, room=2, may_borrow=True, stale={}
    )


def hold(harness: IPAMHarness, prefix: Prefix, means: Acquisition = Acquisition.NEW) -> BlockCandidate:
    made = open_context(harness)
    return BlockCandidate(pool=made.pools[0], block=made.claimant.new_block(prefix), revision=None, acquisition=means)


def test_a_family_allocation_takes_what_is_missing_and_traces_the_block(harness: IPAMHarness) -> None:
    filled = family_allocation(harness, 3)
    filled.acquire(hold(harness, BLOCK))
    assert [taken.ordinals for taken in filled.candidates] == [(0, 1, 2)]
    assert (filled.missing, filled.room, filled.seen) == (0, 1, {BLOCK})
    assert filled.trace == [BlockTrace(block=BLOCK, outcome=BlockOutcome.CLAIMED)]


@pytest.mark.parametrize("reserved, outcome", [("10.0.0.0/26", BlockOutcome.RESERVED), ("", BlockOutcome.FULL)])
def test_a_block_that_gives_nothing_is_not_claimed(harness: IPAMHarness, reserved: str, outcome: BlockOutcome) -> None:
    if reserved:
        harness.reserve("r", reserved)
    filled, offered = family_allocation(harness, 1), hold(harness, BLOCK)
    if not reserved:
        offered = evolve(offered, block=evolve(offered.block, free=()))
    filled.acquire(offered)
    assert (filled.candidates, filled.missing, filled.room) == ([], 1, 2)
    assert filled.trace == [BlockTrace(block=BLOCK, outcome=outcome)]


@pytest.mark.parametrize("means, outcome", [
    (Acquisition.OWN, "gave addresses"),
    (Acquisition.UNCONFIRMED, "was claimed"),
    (Acquisition.NEW, "was claimed"),
    (Acquisition.ADOPTED, "had no owner and was claimed"),
    (Acquisition.TAKEN_OVER, "was empty for long and was taken over"),
    (Acquisition.BORROWED, "belongs to another node and lent addresses"),
])  # fmt: skip
def test_each_acquisition_has_its_word_in_the_trace(harness: IPAMHarness, means: Acquisition, outcome: str) -> None:
    filled = family_allocation(harness, 1)
    filled.take(hold(harness, BLOCK, means))
    assert [str(entry) for entry in filled.trace] == [f"block {BLOCK} {outcome}"]


def test_a_stale_claim_goes_along_with_the_block_that_becomes_ours_after_all(harness: IPAMHarness) -> None:
    harness.put_owned_block(str(BLOCK), node=OTHER_NODE)
    (stale,) = harness.affinity_records(OTHER_NODE)
    filled = evolve(family_allocation(harness, 1), stale={BLOCK: stale})
    filled.acquire(hold(harness, BLOCK))
    assert [taken.affinity for taken in filled.candidates] == [stale]
    assert filled.stale == {}


# --- what the handle holds ---------------------------------------------------------------------------------------


def test_a_handle_keeps_what_it_holds_of_a_family_and_gets_the_rest(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/120")
    harness.assign_or_refuse("h", ipv4(2))
    assert harness.assign_or_refuse("h", ipv4(3), ipv6()) == ["10.0.0.0", "10.0.0.1", "10.0.0.2", "fd00::"]


def test_what_is_held_already_comes_with_the_range_of_its_pool(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    (kept,) = harness.ipam().assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline).addresses
    assert kept == AssignedAddress(address=Address.parse("10.0.0.0"), prefix=Prefix.parse("10.0.0.0/24"))


def test_what_cools_down_is_not_held_any_more(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("h")
    harness.release("h")
    assert harness.assign_or_refuse("h") == ["10.0.0.1"]


def test_a_handle_whose_block_is_gone_holds_nothing_in_it(harness: IPAMHarness) -> None:
    harness.put_handle("h", b2=1)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
