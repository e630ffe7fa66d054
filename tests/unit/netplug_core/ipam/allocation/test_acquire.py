"""Where addresses are taken from: the node's own blocks, new, ownerless, unused and borrowed ones; and the limits."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.errors import AllocationError
from netplug_core.ipam.allocation import ownership
from netplug_core.ipam.allocation.acquire import PROBE_COUNT
from netplug_core.ipam.allocation.context import RELEASES_PER_DECISION
from netplug_core.ipam.allocation.request import Assignment, Shortfall
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, AffinityState, affinity_key, block_key, host_owner
from netplug_core.ipam.outcome import (
    AllocationRule,
    BlockLimitReached,
    BlockOutcome,
    BlockTrace,
    BlockUnavailable,
    NoPoolServes,
    PoolExhausted,
    PoolsExhausted,
    RuleTrace,
    StrictlyExhausted,
)
from netplug_core.records import PAGE_SIZE, Create, Get, List, Update
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, ippool_key
from netplug_core.testing.faults import RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request

BLOCK_0, BLOCK_1, BLOCK_2 = "10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26"
NEXT = "11.0.0.0/26"


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


@pytest.fixture
def one_block() -> IPAMHarness:
    """A cluster with one pool of one block."""
    made = IPAMHarness.new()
    made.add_pool("main", BLOCK_0)
    return made


@pytest.fixture
def small_blocks() -> IPAMHarness:
    """A cluster whose pools have more blocks than a node may own."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24", 30)
    made.add_pool("other", "11.0.0.0/24", 30)
    return made


# --- its own blocks ----------------------------------------------------------------------------------------------


def test_own_blocks_are_used_up_before_a_new_one_is_claimed(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(60))
    assert harness.assign_or_refuse("h2", ipv4(6))[3:] == ["10.0.0.63", "10.0.0.64", "10.0.0.65"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


def test_no_more_of_its_blocks_are_touched_than_it_takes(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0)
    harness.put_owned_block(BLOCK_1)
    harness.assign_or_refuse("h", ipv4(64))
    assert harness.block(BLOCK_1).is_empty
    assert harness.assign_or_refuse("h2") == ["10.0.0.64"]


def test_own_blocks_that_are_reserved_as_a_whole_are_passed_over(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.reserve("r", BLOCK_0)
    decision = harness.decision(make_request("h2"))
    assert BlockTrace(block=Prefix.parse(BLOCK_0), outcome=BlockOutcome.RESERVED) in decision.trace
    assert harness.assign_or_refuse("h2") == ["10.0.0.64"]


def test_own_blocks_of_a_pool_that_may_not_serve_are_not_used(harness: IPAMHarness) -> None:
    """Trap 8: the pool is disabled, or gone, or another one is named."""
    harness.assign_or_refuse("h1")
    harness.add_pool("next", "11.0.0.0/24")
    assert harness.assign_or_refuse("h2", ipv4(1, "next")) == ["11.0.0.0"]
    harness.disable_pool("main")
    assert harness.assign_or_refuse("h3") == ["11.0.0.1"]
    harness.remove(ippool_key("main"))
    assert harness.assign_or_refuse("h4") == ["11.0.0.2"]


@pytest.mark.parametrize("state", AffinityState)
def test_a_claim_without_its_block_is_gone_on_with(harness: IPAMHarness, state: AffinityState) -> None:
    harness.put_affinity(BLOCK_2, state)
    assert harness.assign_or_refuse("h") == ["10.0.0.128"]
    assert harness.affinities() == {(NODE, BLOCK_2): "confirmed"}
    assert harness.blocks() == {BLOCK_2: "host:node-a"}


def test_a_claim_without_its_block_in_a_pool_that_may_not_serve_is_left_alone(harness: IPAMHarness) -> None:
    harness.add_pool("next", "11.0.0.0/24")
    harness.put_affinity(NEXT, AffinityState.PENDING)
    assert harness.assign_or_refuse("h", ipv4(1, "main")) == ["10.0.0.0"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, NEXT): "pending"}


def test_a_pending_claim_is_no_ownership(harness: IPAMHarness) -> None:
    """Trap 6: it neither counts as a block nor gives an address before it is confirmed."""
    harness.configure(is_affinity_strict=True, max_blocks_per_host=1)
    harness.put_affinity(BLOCK_1, AffinityState.PENDING)
    harness.put_affinity(BLOCK_2, AffinityState.PENDING)
    assert harness.assign_or_refuse("h") == ["10.0.0.128"]
    assert harness.blocks() == {BLOCK_2: "host:node-a"}
    assert harness.affinities() == {(NODE, BLOCK_1): "pending", (NODE, BLOCK_2): "confirmed"}


@pytest.mark.parametrize("state", [AffinityState.PENDING, AffinityState.PENDING_DELETION])
def test_a_claim_half_made_or_half_given_up_is_confirmed_again(
    harness: IPAMHarness, state: AffinityState
) -> None:  # I-86
    harness.put_block(BLOCK_2)
    harness.put_affinity(BLOCK_2, state)
    before = harness.block(BLOCK_2).sequence
    assert harness.assign_or_refuse("h") == ["10.0.0.128"]
    assert harness.affinities() == {(NODE, BLOCK_2): "confirmed"}
    block = harness.block(BLOCK_2)
    (held,) = block.held()
    assert held.sequence == before + 1  # it was stored once more before the address was taken
    assert block.sequence == before + 2


def test_a_claim_keeps_what_a_newer_release_stored_in_it(harness: IPAMHarness) -> None:
    key = affinity_key(host_owner(NODE), Prefix.parse(BLOCK_2))
    harness.put_block(BLOCK_2)
    harness.put_affinity(BLOCK_2, AffinityState.PENDING_DELETION)
    harness.put(key, evolve(harness.get(key), unknown_json='{"x":1}'))
    harness.assign_or_refuse("h")
    assert harness.get(key).unknown_json == '{"x":1}'


@pytest.mark.parametrize("owner", [OTHER_NODE, ""])
@pytest.mark.parametrize("state", AffinityState)
def test_a_claim_that_another_won_is_given_up(
    harness: IPAMHarness, state: AffinityState, owner: str
) -> None:  # I-40, I-85
    harness.put_block(BLOCK_0, node=owner)
    harness.put_affinity(BLOCK_0, state)
    assert harness.assign_or_refuse("h") == ["10.0.0.64"]
    assert harness.affinities() == {(NODE, BLOCK_1): "confirmed"}
    assert harness.blocks()[BLOCK_0] == (f"host:{owner}" if owner else "")


@pytest.mark.parametrize("owner", [OTHER_NODE, ""])
def test_a_claim_that_another_won_serves_again_where_its_block_is_the_only_one_left(owner: str) -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", BLOCK_0)
    harness.put_block(BLOCK_0, node=owner)
    harness.put_affinity(BLOCK_0, AffinityState.PENDING_DELETION)
    harness.clock.sleep(61)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert harness.blocks() == {BLOCK_0: "host:node-a"}


def test_what_was_healed_stays_so_in_one_commit(harness: IPAMHarness) -> None:
    harness.put_block(BLOCK_2)
    harness.put_affinity(BLOCK_2, AffinityState.PENDING)
    harness.take_call_counts()
    harness.assign_or_refuse("h1")
    assert harness.take_call_counts() == (2, 1)
    changed = [
        write.key.kind for write in harness.decision(make_request("h2")).writes if isinstance(write, Create | Update)
    ]
    assert changed == [HANDLE, BLOCK]


def test_an_affinity_whose_key_is_rubbish_is_passed_over(harness: IPAMHarness) -> None:
    harness.put_affinity(BLOCK_0, AffinityState.CONFIRMED)
    record = harness.records(AFFINITY)[0]
    harness.put(AFFINITY.key(*record.key.path[:3], "rubbish"), record.value)
    assert harness.assign_or_refuse("h") == ["10.0.0.0"]


# --- blocks in pools that select the node no more -----------------------------------------------------------------


@pytest.fixture
def deselected() -> IPAMHarness:
    """A node with a block in a pool that has ceased to select it, and a pool that serves."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24")
    harness.add_pool("next", "11.0.0.0/24")
    harness.change_pool("main", node_selector="has(old)")
    harness.label_node()
    return harness


def test_an_empty_block_is_given_up_with_the_next_assignment(deselected: IPAMHarness) -> None:
    deselected.put_owned_block(BLOCK_0)
    decision = deselected.decision(make_request("h"))
    assert BlockTrace(block=Prefix.parse(BLOCK_0), outcome=BlockOutcome.RELINQUISHED) in decision.trace
    deselected.take_call_counts()
    assert deselected.assign_or_refuse("h") == ["11.0.0.0"]
    assert deselected.take_call_counts() == (3, 1)
    assert deselected.blocks() == {NEXT: "host:node-a"}
    assert deselected.affinities() == {(NODE, NEXT): "confirmed"}


def test_what_is_given_up_makes_room_for_what_is_claimed(deselected: IPAMHarness) -> None:
    deselected.configure(is_affinity_strict=True, max_blocks_per_host=1)
    deselected.put_owned_block(BLOCK_0)
    assert deselected.assign_or_refuse("h") == ["11.0.0.0"]
    assert deselected.blocks() == {NEXT: "host:node-a"}


def test_nothing_is_given_up_where_nothing_can_be_had(deselected: IPAMHarness) -> None:
    deselected.put_owned_block(BLOCK_0)
    deselected.disable_pool("next")
    with pytest.raises(NoPoolServes):
        deselected.assign_or_refuse("h")
    assert deselected.blocks() == {BLOCK_0: "host:node-a"}


def test_a_block_in_use_stays_and_counts(deselected: IPAMHarness) -> None:
    deselected.assign_or_refuse("h1", ipv4(1, "main"))
    deselected.configure(is_affinity_strict=True, max_blocks_per_host=1)
    assert deselected.assign_up_to("h2", ipv4(1, "main")) == ["10.0.0.1"]
    with pytest.raises(BlockLimitReached, match="limit of 1 blocks reached"):
        deselected.assign_or_refuse("h3")
    assert deselected.blocks() == {BLOCK_0: "host:node-a"}


def test_a_block_that_only_cools_down_stays_until_it_has(deselected: IPAMHarness) -> None:
    deselected.configure(cooldown_s=30)
    deselected.assign_or_refuse("h1", ipv4(1, "main"))
    deselected.release("h1")
    deselected.assign_or_refuse("h2")
    assert BLOCK_0 in deselected.blocks()
    deselected.clock.sleep(31)
    deselected.assign_or_refuse("h3")
    assert BLOCK_0 not in deselected.blocks()


def test_a_block_that_is_borrowed_from_meanwhile_is_not_given_up(deselected: IPAMHarness) -> None:
    deselected.put_owned_block(BLOCK_0)
    deselected.label_node(OTHER_NODE, old="yes")
    borrow = RunBefore(lambda: deselected.assign_or_refuse("h2", ipv4(4 * 64, "main"), node=OTHER_NODE))
    assert deselected.assign(make_request("h1"), {1: borrow}) == ["11.0.0.0"]
    assert deselected.blocks()[BLOCK_0] == "host:node-a"
    assert len(deselected.held()) == 257


def retire(harness: IPAMHarness, how: str) -> None:
    """Make the pool ``main`` one that serves nobody."""
    if how == "gone":
        harness.remove(ippool_key("main"))
    elif how == "disabled":
        harness.disable_pool("main")
    else:
        pool = harness.get(ippool_key("main"))
        harness.put(pool.key, evolve(pool, metadata=evolve(pool.metadata, deletion_time_ns=1)))


@pytest.mark.parametrize("how", ["disabled", "terminating", "gone"])
def test_blocks_of_a_pool_that_serves_nobody_do_not_use_up_the_default_limit(harness: IPAMHarness, how: str) -> None:
    harness.assign_or_refuse("h1", ipv4(1, "main"))
    first = [f"10.0.{number // 4}.{number % 4 * 64}/26" for number in range(1, 25)]
    harness.change_pool("main", prefix=Prefix.parse("10.0.0.0/16"))
    for block in first:
        harness.put_owned_block(block)
    harness.add_pool("next", "11.0.0.0/24")
    retire(harness, how)
    assert harness.assign_or_refuse("h2") == ["11.0.0.0"]
    assert len(harness.blocks()) == 2 + len(first) - RELEASES_PER_DECISION, "one decision gives up a bounded number"
    assert harness.assign_or_refuse("h3") == ["11.0.0.1"]
    assert set(harness.blocks()) == {BLOCK_0, NEXT}, "a block in use stays"


def test_blocks_of_a_pool_that_serves_nobody_count_against_a_limit_that_is_set(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True, max_blocks_per_host=1)
    harness.assign_or_refuse("h1")
    harness.disable_pool("main")
    harness.add_pool("next", "11.0.0.0/24")
    with pytest.raises(BlockLimitReached):
        harness.assign_or_refuse("h2")


@pytest.mark.parametrize("changes", [
    {"node_selector": "all()", "assignment_mode": AssignmentMode.MANUAL},
    {"node_selector": "all()", "namespace_selector": "has(team)"},
    {"node_selector": "all()", "allowed_uses": (AllowedUse.TUNNEL,)},
])  # fmt: skip
def test_a_block_left_out_for_another_reason_stays(deselected: IPAMHarness, changes: dict[str, object]) -> None:
    """Trap 25, I-37: only a node selector makes a node give its blocks up."""
    deselected.put_owned_block(BLOCK_0)
    deselected.change_pool("main", **changes)
    deselected.assign_or_refuse("h")
    assert deselected.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, NEXT): "confirmed"}


def test_a_block_stays_where_another_pool_is_named(deselected: IPAMHarness) -> None:  # trap 25
    deselected.change_pool("main", node_selector="all()")
    deselected.put_owned_block(BLOCK_0)
    deselected.assign_or_refuse("h", ipv4(1, "next"))
    assert deselected.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, NEXT): "confirmed"}


def test_a_block_is_not_given_up_on_a_selector_that_cannot_be_read(deselected: IPAMHarness) -> None:
    deselected.change_pool("main", node_selector="has(")
    deselected.put_owned_block(BLOCK_0)
    deselected.assign_or_refuse("h", ipv4(1, "next"))
    assert BLOCK_0 in deselected.blocks()


def test_a_block_of_the_other_family_is_given_up_only_with_an_assignment_of_it(deselected: IPAMHarness) -> None:
    deselected.add_pool("six", "fd00::/120")
    deselected.put_owned_block(BLOCK_0)
    request = evolve(make_request("h", ipv6()), shortfall=Shortfall.RETURN)
    assert deselected.assign(request) == ["fd00::"]
    assert BLOCK_0 in deselected.blocks()


# --- a few candidates first ---------------------------------------------------------------------------------------


def test_blocks_of_others_are_passed_over(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", node=OTHER_NODE)
    assert harness.assign_or_refuse("h2") == ["10.0.0.64"]
    assert harness.blocks() == {BLOCK_0: "host:node-b", BLOCK_1: "host:node-a"}


@pytest.mark.parametrize("owner, reads", [(NODE, 3), (OTHER_NODE, 4)])
def test_what_nobody_has_claimed_is_found_among_the_affinities(owner: str, reads: int) -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24", 28)
    harness.assign_or_refuse("h1", ipv4(10 * 16), node=owner)
    decision, found = harness.decision_and_reads(make_request("h2"))
    assert isinstance(decision.result, Assignment)
    assert str(decision.result.addresses[0].address) == "10.0.0.160"
    assert len(found) == reads
    lists = [query for read in found for query in read if isinstance(query, List) and query.kind == BLOCK]
    assert all(query.name_prefix for query in lists)


def test_all_blocks_are_listed_page_by_page() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/20", 32)
    for number in range(PAGE_SIZE + 1):  # without affinities, so that they seem to be unclaimed
        harness.put_block(str(Prefix.parse("10.0.0.0/20").subprefix(number, 32)), node=OTHER_NODE)
    _decision, reads = harness.decision_and_reads(make_request("h"))
    over_the_first, over_the_ninth = 12, 3  # most of the larger ones cover both
    assert [len(read) for read in reads[1:]] == [PROBE_COUNT + over_the_first, 1, PROBE_COUNT + over_the_ninth, 1, 1]
    assert harness.assign_or_refuse("h") == ["10.0.3.233"]


def test_probes_go_through_the_pools_in_their_order(harness: IPAMHarness) -> None:
    harness.add_pool("tiny", "11.0.0.0/31")
    decision, reads = harness.decision_and_reads(make_request("h", ipv4(1, "tiny", "main")))
    assert isinstance(decision.result, Assignment)
    assert str(decision.result.addresses[0].address) == "11.0.0.0"
    probed = [query.key.name for query in reads[1] if not isinstance(query, List)]
    assert probed[:5] == ["11.0.0.0/31", BLOCK_0, BLOCK_1, "10.0.0.128/26", "10.0.0.192/26"]


def test_reserved_blocks_are_never_looked_at_nor_claimed(harness: IPAMHarness) -> None:
    harness.reserve("r", "10.0.0.0/25")
    decision, reads = harness.decision_and_reads(make_request("h", ipv4(200)))
    assert isinstance(decision.result, PoolsExhausted)
    probed = [query.key.name for query in reads[1] if not isinstance(query, List)]
    assert probed[:2] == ["10.0.0.128/26", "10.0.0.192/26"]
    assert not any(name.endswith("/26") for name in probed[2:])
    assert len(harness.assign_up_to("h", ipv4(200))) == 128
    assert list(harness.blocks()) == ["10.0.0.128/26", "10.0.0.192/26"]


def test_two_first_requests_of_one_node_end_in_one_block(harness: IPAMHarness) -> None:
    """Trap 7: both look at the same block first, and the one that comes second takes from it."""
    assert harness.assign(make_request("h1"), {1: RunBefore(lambda: harness.assign_or_refuse("h2"))}) == ["10.0.0.1"]
    assert harness.blocks() == {BLOCK_0: "host:node-a"}
    assert harness.held() == {"10.0.0.0": "h2", "10.0.0.1": "h1"}


def test_a_race_for_a_block_is_lost_without_a_trace(harness: IPAMHarness) -> None:
    assert harness.assign(
        make_request("h1"), {1: RunBefore(lambda: harness.assign_or_refuse("h2", node=OTHER_NODE))}
    ) == ["10.0.0.64"]
    assert harness.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


@pytest.mark.parametrize("leftover, given", [
    ("10.0.0.32/31", "10.0.0.36"),  # smaller than blocks are now
    ("10.0.0.32/27", "10.0.0.64"),  # larger
])  # fmt: skip
def test_no_block_is_made_where_an_earlier_block_size_left_one(
    small_blocks: IPAMHarness, leftover: str, given: str
) -> None:
    for number in range(PROBE_COUNT):
        small_blocks.put_owned_block(f"10.0.0.{4 * number}/30", node=OTHER_NODE)
    small_blocks.put_block(leftover, node=OTHER_NODE)
    assert small_blocks.assign_or_refuse("h", ipv4(1, "main")) == [given]


@pytest.mark.parametrize("reserved, given", [("10.9.0.0/30", "10.0.0.32"), ("10.0.0.32/30", "10.0.0.36")])
def test_beyond_the_probes_the_first_block_that_is_neither_there_nor_reserved_is_claimed(
    small_blocks: IPAMHarness, reserved: str, given: str
) -> None:
    small_blocks.reserve("r", reserved)
    for number in (*range(PROBE_COUNT), 12):
        small_blocks.put_owned_block(f"10.0.0.{4 * number}/30", node=OTHER_NODE)
    trace = small_blocks.decision(make_request("h", ipv4(1, "main"))).trace
    assert not any(isinstance(seen, BlockTrace) and seen.outcome is BlockOutcome.RESERVED for seen in trace)
    assert small_blocks.assign_or_refuse("h", ipv4(1, "main")) == [given]


def starts_second(node: str, pool: Prefix, count: int) -> int:
    """A start that has to be asked for rightly."""
    return {(NODE, Prefix.parse("10.0.0.0/24"), 4): 1}[node, pool, count]


@pytest.mark.parametrize("is_taken", [False, True])
def test_probes_and_borrowing_start_where_the_order_of_the_node_says(harness: IPAMHarness, *, is_taken: bool) -> None:
    if is_taken:
        for number in range(4):
            harness.put_owned_block(f"10.0.0.{64 * number}/26", node=OTHER_NODE)
    assignment = harness.decision(make_request("h"), starts_second).result
    assert isinstance(assignment, Assignment)
    assert str(assignment.addresses[0].address) == "10.0.0.64"
    assert set(harness.blocks().values()) == ({"host:node-b"} if is_taken else set())


# --- unowned blocks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_block_of_nobody_is_adopted(harness: IPAMHarness, *, is_strict: bool) -> None:
    """Trap 34: its addresses are not lost."""
    harness.configure(is_affinity_strict=is_strict)
    harness.assign_or_refuse("h1", node=OTHER_NODE)
    harness.put(block_key(Prefix.parse(BLOCK_0)), harness.block(BLOCK_0).relinquished())
    harness.remove(affinity_key(host_owner(OTHER_NODE), Prefix.parse(BLOCK_0)))
    before = harness.block(BLOCK_0).sequence
    assert harness.assign_or_refuse("h2") == ["10.0.0.1"]
    assert harness.blocks() == {BLOCK_0: "host:node-a"}
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert harness.block(BLOCK_0).sequence == before + 2
    assert harness.held() == {"10.0.0.0": "h1", "10.0.0.1": "h2"}


def test_a_block_of_nobody_beyond_the_probes_is_adopted_too() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/28", 32)
    for number in range(16):
        harness.put_owned_block(f"10.0.0.{number}/32", node=OTHER_NODE if number != 12 else "")
    assert harness.assign_or_refuse("h") == ["10.0.0.12"]
    assert harness.blocks()["10.0.0.12/32"] == "host:node-a"


@pytest.mark.parametrize("age_s", [0, 61])
def test_an_adopted_block_is_neither_borrowed_from_nor_taken_over_as_well(one_block: IPAMHarness, age_s: int) -> None:
    one_block.put_block(BLOCK_0, node="")
    one_block.clock.sleep(age_s)
    given = one_block.assign_up_to("h", ipv4(65))
    assert len(given) == len(set(given)) == 64


def test_a_block_whose_claim_was_lost_is_claimed_again(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.remove(affinity_key(host_owner(NODE), Prefix.parse(BLOCK_0)))
    assert harness.assign_or_refuse("h2") == ["10.0.0.1"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert harness.held() == {"10.0.0.0": "h1", "10.0.0.1": "h2"}


def test_a_full_block_whose_claim_was_lost_is_no_claim_to_make(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(64))
    harness.remove(affinity_key(host_owner(NODE), Prefix.parse(BLOCK_0)))
    assert harness.assign_or_refuse("h2") == ["10.0.0.64"]
    assert harness.affinities() == {(NODE, BLOCK_1): "confirmed"}


# --- empty blocks of others ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("age_s, is_taken_over", [(30, False), (60, False), (61, True)])
def test_an_empty_block_is_taken_over_when_it_was_claimed_long_ago(
    one_block: IPAMHarness, age_s: int, *, is_taken_over: bool
) -> None:
    """I-42, trap 16: without an age two nodes would take it from each other for ever."""
    one_block.configure(is_affinity_strict=True)
    one_block.put_owned_block(BLOCK_0, node=OTHER_NODE)
    before = one_block.block(BLOCK_0).sequence
    one_block.clock.sleep(age_s)
    assert one_block.assign_up_to("h") == (["10.0.0.0"] if is_taken_over else [])
    owner = NODE if is_taken_over else OTHER_NODE
    assert one_block.affinities() == {(owner, BLOCK_0): "confirmed"}
    assert one_block.blocks() == {BLOCK_0: f"host:{owner}"}
    assert one_block.block(BLOCK_0).sequence == before + (2 if is_taken_over else 0)
    assert one_block.assign_up_to("h2", node=OTHER_NODE) == ([] if is_taken_over else ["10.0.0.0"])


def test_a_block_without_a_claim_time_was_claimed_long_ago(one_block: IPAMHarness) -> None:
    one_block.put_owned_block(BLOCK_0, node=OTHER_NODE)
    key = block_key(Prefix.parse(BLOCK_0))
    one_block.put(key, evolve(one_block.get(key), claim_time_ns=None))
    one_block.assign_or_refuse("h")
    assert one_block.blocks() == {BLOCK_0: "host:node-a"}


def test_a_block_whose_owners_claim_was_lost_is_taken_over_all_the_same(one_block: IPAMHarness) -> None:
    """Trap 34, the other half: no claim leads to it, and its range is not lost."""
    one_block.configure(is_affinity_strict=True)
    one_block.put_block(BLOCK_0, node=OTHER_NODE)
    one_block.clock.sleep(61)
    assert one_block.assign_or_refuse("h") == ["10.0.0.0"]
    assert one_block.affinities() == {(NODE, BLOCK_0): "confirmed"}


@pytest.mark.parametrize("state", AffinityState)
def test_whatever_the_rivals_claim_has_come_to_it_goes_with_the_block(
    one_block: IPAMHarness, state: AffinityState
) -> None:
    one_block.put_block(BLOCK_0, node=OTHER_NODE)
    one_block.put_affinity(BLOCK_0, state, node=OTHER_NODE)
    one_block.clock.sleep(61)
    assert one_block.assign_or_refuse("h") == ["10.0.0.0"]
    assert one_block.affinities() == {(NODE, BLOCK_0): "confirmed"}


def test_a_block_that_is_used_meanwhile_is_not_taken_over(one_block: IPAMHarness) -> None:
    one_block.configure(is_affinity_strict=True)
    one_block.put_owned_block(BLOCK_0, node=OTHER_NODE)
    one_block.clock.sleep(61)
    race = RunBefore(lambda: one_block.assign_or_refuse("h1", node=OTHER_NODE))
    with pytest.raises(StrictlyExhausted):
        one_block.assign(make_request("h2"), {1: race})
    assert one_block.blocks() == {BLOCK_0: "host:node-b"}


def test_a_block_in_which_something_cools_down_is_not_taken_over(one_block: IPAMHarness) -> None:
    one_block.configure(is_affinity_strict=True, cooldown_s=120)
    one_block.assign_or_refuse("h1", node=OTHER_NODE)
    one_block.release("h1")
    one_block.clock.sleep(100)
    assert one_block.assign_up_to("h2") == []
    one_block.clock.sleep(21)
    assert one_block.assign_up_to("h2") == ["10.0.0.1"]  # the longest-free one still goes first
    assert one_block.blocks() == {BLOCK_0: "host:node-a"}


def test_what_others_have_unused_is_taken_over_before_anything_is_borrowed(harness: IPAMHarness) -> None:
    for number in range(3):
        harness.assign_or_refuse(f"h{number}", node=f"node-{number}")
    harness.put_owned_block("10.0.0.192/26", node=OTHER_NODE)
    harness.clock.sleep(61)
    assert harness.assign_or_refuse("h") == ["10.0.0.192"]
    assert harness.blocks()["10.0.0.192/26"] == "host:node-a"


def test_a_block_that_was_taken_over_is_not_borrowed_from_as_well(one_block: IPAMHarness) -> None:
    one_block.put_owned_block(BLOCK_0, node=OTHER_NODE)
    one_block.clock.sleep(61)
    given = one_block.assign_up_to("h", ipv4(65))
    assert len(given) == len(set(given)) == 64


def test_as_many_blocks_are_taken_over_as_the_request_needs() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24", 30)
    harness.configure(is_affinity_strict=True)
    for number in range(64):
        harness.put_owned_block(str(Prefix.parse("10.0.0.0/24").subprefix(number, 30)), node=OTHER_NODE)
    harness.reserve("r", "10.0.0.0/27", "10.0.0.33/32")
    harness.clock.sleep(61)
    assert len(harness.assign_or_refuse("h", ipv4(60))) == 60
    assert list(harness.blocks().values()).count("host:node-a") == 16  # of the first one there were three
    assert len(harness.assign_up_to("h", ipv4(100))) == 79  # twenty blocks, the implicit limit
    assert len(harness.affinities()) == 64


def test_no_more_blocks_are_taken_over_than_the_request_needs(small_blocks: IPAMHarness) -> None:
    small_blocks.configure(is_affinity_strict=True)
    for number in range(64):
        small_blocks.put_owned_block(str(Prefix.parse("10.0.0.0/24").subprefix(number, 30)), node=OTHER_NODE)
    small_blocks.clock.sleep(61)
    decision, reads = small_blocks.decision_and_reads(make_request("h", ipv4(5, "main")))
    assert reads[-1] == tuple(
        Get(affinity_key(host_owner(OTHER_NODE), Prefix.parse(cidr))) for cidr in ("10.0.0.0/30", "10.0.0.32/30")
    )
    assert str(decision.trace[-1]) == "block 10.0.0.32/30 was empty for long and was taken over"


def test_a_host_keeps_its_own_addresses_back_in_a_block_that_it_takes_over(one_block: IPAMHarness) -> None:
    one_block.put_owned_block(BLOCK_0, node=OTHER_NODE)
    one_block.clock.sleep(61)
    assert one_block.assign(evolve(make_request("h"), host_reserved=(3, 1))) == ["10.0.0.3"]
    assert one_block.block(BLOCK_0).used_count == 5


# --- borrow -------------------------------------------------------------------------------------------------------


def test_an_address_is_borrowed_where_no_block_is_left(one_block: IPAMHarness) -> None:
    one_block.assign_or_refuse("h1", node=OTHER_NODE)
    assert one_block.assign_or_refuse("h2") == ["10.0.0.1"]
    assert one_block.blocks() == {BLOCK_0: "host:node-b"}
    assert one_block.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed"}
    assert one_block.block(BLOCK_0).held()[1].attribute.owner_value("node") == NODE
    assert one_block.release("h2") == ["10.0.0.1"]


def test_addresses_are_borrowed_pool_by_pool_in_the_order_of_the_node() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("a", "10.0.0.0/31", 32)
    harness.add_pool("b", "11.0.0.0/31", 32)
    harness.assign_or_refuse("h1", ipv4(1, "a"), node=OTHER_NODE)
    for cidr in ("10.0.0.1/32", "11.0.0.0/32", "11.0.0.1/32"):
        harness.put_owned_block(cidr, node=OTHER_NODE)
    assert harness.assign_or_refuse("h2", ipv4(2)) == ["10.0.0.1", "11.0.0.0"]
    assert set(harness.blocks().values()) == {"host:node-b"}


def test_nothing_reserved_is_borrowed(one_block: IPAMHarness) -> None:
    one_block.assign_or_refuse("h1", node=OTHER_NODE)
    one_block.reserve("r", "10.0.0.0/27", "10.0.0.32/28")
    assert one_block.assign_or_refuse("h2") == ["10.0.0.48"]
    one_block.reserve("r", BLOCK_0)
    with pytest.raises(PoolsExhausted):
        one_block.assign_or_refuse("h3")


def test_nothing_is_borrowed_under_strict_affinity(one_block: IPAMHarness) -> None:
    one_block.configure(is_affinity_strict=True)
    one_block.assign_or_refuse("h1", node=OTHER_NODE)
    with pytest.raises(StrictlyExhausted) as caught:
        one_block.assign_or_refuse("h2")
    assert str(caught.value) == (
        "Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled; "
        "IPPool main (10.0.0.0/26): 64 addresses, 1 used, 0 reserved, 0 cooling, 63 free in blocks of other nodes"
    )
    assert caught.value.trace[-1] == RuleTrace(rule=AllocationRule.STRICT_AFFINITY)


def test_what_was_borrowed_just_now_is_not_called_free(one_block: IPAMHarness) -> None:
    one_block.assign_or_refuse("h1", node=OTHER_NODE)
    refusal = one_block.decision(make_request("h2", ipv4(64))).result
    assert str(refusal) == (
        "Only 63 of the 64 requested IPv4 addresses are available, so nothing new is held; "
        "No IPs available in pools: [10.0.0.0/26]; "
        "IPPool main (10.0.0.0/26): 64 addresses, 1 used, 0 reserved, 0 cooling, 0 free in blocks of other nodes"
    )


def test_used_reserved_and_cooling_addresses_of_a_pool_are_counted_apart(one_block: IPAMHarness) -> None:
    """The whole reserved range counts, and overlapping entries once (trap 15)."""
    one_block.configure(cooldown_s=60)
    one_block.assign_or_refuse("h1", ipv4(10), node=OTHER_NODE)
    one_block.assign_or_refuse("h2", ipv4(2), node=OTHER_NODE)
    one_block.release("h2")
    one_block.reserve("r", "10.0.0.32/27", "10.0.0.48/28")
    one_block.assign_or_refuse("h3", ipv4(20), node=OTHER_NODE)
    trace = one_block.decision(make_request("h4")).trace
    assert trace[-1] == PoolExhausted(
        pool="main", prefix=Prefix.parse(BLOCK_0), used=30, reserved=32, cooling=2, free_elsewhere=0
    )


# --- the limit ----------------------------------------------------------------------------------------------------


def test_a_node_owns_no_more_blocks_than_the_implicit_limit(small_blocks: IPAMHarness) -> None:
    given = small_blocks.assign_up_to("h", ipv4(256, "main"))
    assert len(given) == 80
    assert len(small_blocks.blocks()) == 20
    assert small_blocks.assign_or_refuse("h2", ipv4(1, "main"), node=OTHER_NODE) == ["10.0.0.80"]


def test_a_node_at_the_implicit_limit_borrows(small_blocks: IPAMHarness) -> None:
    """Trap 29: without a configured limit a request is not refused for it."""
    small_blocks.assign_or_refuse("h1", ipv4(80, "main"))
    small_blocks.assign_or_refuse("h2", ipv4(1, "main"), node=OTHER_NODE)
    assert small_blocks.assign_or_refuse("h3", ipv4(1, "main")) == ["10.0.0.81"]
    assert small_blocks.blocks()["10.0.0.80/30"] == "host:node-b"
    assert len(small_blocks.affinity_records()) == 20


def test_alternating_pools_do_not_exceed_the_limit(small_blocks: IPAMHarness) -> None:
    """Trap 29: blocks count in whatever pool they lie."""
    small_blocks.assign_or_refuse("h1", ipv4(76, "main"))
    assert len(small_blocks.assign_up_to("h2", ipv4(76, "other"))) == 4
    assert len(small_blocks.blocks()) == 20


def test_each_family_has_a_limit_of_its_own(small_blocks: IPAMHarness) -> None:
    small_blocks.add_pool("six", "fd00::/120", 126)
    assert len(small_blocks.assign_or_refuse("h", ipv4(80), ipv6(80))) == 160


def test_the_implicit_limit_says_which_block_it_kept_from_being_claimed(small_blocks: IPAMHarness) -> None:
    small_blocks.assign_or_refuse("h1", ipv4(80, "main"))
    with pytest.raises(PoolsExhausted) as caught:
        small_blocks.assign_or_refuse("h2", ipv4(1, "main"))
    assert str(caught.value) == (
        "Assigned 0 out of 1 requested IPv4 addresses; "
        "block 10.0.0.80/30 was not claimed: the node has reached its block limit (limit 20); "
        "IPPool main (10.0.0.0/24): 256 addresses, 80 used, 0 reserved, 0 cooling, 0 free in blocks of other nodes"
    )
    unreached = [seen.block for seen in caught.value.trace if isinstance(seen, BlockTrace) and seen.detail]
    assert unreached == [Prefix.parse("10.0.0.80/30")]  # the first of many


def test_where_nothing_is_left_to_claim_the_limit_is_not_to_blame() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/28", 32)
    harness.add_pool("rest", "10.1.0.0/30", 32)
    harness.assign_or_refuse("h1", ipv4(20))
    with pytest.raises(
        PoolsExhausted, match=r"No IPs available in pools: \[10\.0\.0\.0/28 10\.1\.0\.0/30\]; IPPool main"
    ):
        harness.assign_or_refuse("h2")


@pytest.mark.parametrize("has_neighbour", [False, True])
def test_an_explicit_limit_is_a_reason_to_go_without(small_blocks: IPAMHarness, *, has_neighbour: bool) -> None:
    """Trap 29: it neither claims nor borrows, and does not read all blocks to say so."""
    if has_neighbour:
        small_blocks.assign_or_refuse("h0", node=OTHER_NODE)
    small_blocks.configure(is_affinity_strict=True, max_blocks_per_host=2)
    small_blocks.assign_or_refuse("h1", ipv4(8))
    decision, reads = small_blocks.decision_and_reads(make_request("h2"))
    assert isinstance(decision.result, BlockLimitReached)
    assert decision.result.trace[-1] == RuleTrace(rule=AllocationRule.BLOCK_LIMIT, detail="2")
    assert len(reads) == 2
    assert "limit of 2 blocks reached for this node" in str(decision.result)


def test_the_last_block_of_an_explicit_limit_is_probed_for_and_may_lie_beyond(small_blocks: IPAMHarness) -> None:
    small_blocks.configure(is_affinity_strict=True, max_blocks_per_host=1)
    _decision, reads = small_blocks.decision_and_reads(make_request("h", ipv4(1, "main")))
    over_the_first = 10 + 6
    assert [len(read) for read in reads[1:]] == [PROBE_COUNT + over_the_first]
    for number in range(PROBE_COUNT):
        small_blocks.put_owned_block(f"10.0.0.{4 * number}/30", node=OTHER_NODE)
    assert small_blocks.assign_or_refuse("h", ipv4(1, "main")) == ["10.0.0.32"]


def test_a_limit_above_twenty_lets_a_node_own_more(small_blocks: IPAMHarness) -> None:
    small_blocks.configure(is_affinity_strict=True, max_blocks_per_host=30)
    assert len(small_blocks.assign_or_refuse("h", ipv4(100, "main"))) == 100
    assert len(small_blocks.blocks()) == 25


def test_a_limit_of_none_owns_nothing(harness: IPAMHarness) -> None:
    with pytest.raises(BlockLimitReached, match="limit of 0 blocks"):
        harness.assign(evolve(make_request("h"), block_limit=0))
    assert harness.blocks() == {}


def test_two_requests_for_different_pools_do_not_exceed_an_explicit_limit_together(small_blocks: IPAMHarness) -> None:
    """Trap 29, at the same time: the second request sees the first one's claim."""
    small_blocks.configure(is_affinity_strict=True, max_blocks_per_host=1)
    rival = RunBefore(lambda: small_blocks.assign_or_refuse("h1", ipv4(1, "other")))
    with pytest.raises(BlockLimitReached):
        small_blocks.assign(make_request("h2", ipv4(1, "main")), {1: rival})
    assert small_blocks.blocks() == {"11.0.0.0/30": "host:node-a"}


# --- no claims ----------------------------------------------------------------------------------------------------


def test_where_no_block_is_claimed_only_those_there_are_serve(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True, may_auto_allocate_blocks=False)
    harness.put_owned_block(BLOCK_1)
    assert harness.assign_or_refuse("h1", ipv4(64)) == [f"10.0.0.{number}" for number in range(64, 128)]
    with pytest.raises(BlockUnavailable) as caught:
        harness.assign_or_refuse("h2")
    assert str(caught.value) == (
        "Assigned 0 out of 1 requested IPv4 addresses; failed to find or claim a block: autoAllocateBlocks is false"
    )
    assert caught.value.trace == (
        BlockTrace(block=Prefix.parse(BLOCK_1), outcome=BlockOutcome.FULL),
        RuleTrace(rule=AllocationRule.NO_CLAIMS),
    )


def test_what_can_be_had_without_a_claim_is_had_where_less_will_do(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True, may_auto_allocate_blocks=False)
    harness.put_owned_block(BLOCK_1)
    assert len(harness.assign_up_to("h1", ipv4(65))) == 64
    with pytest.raises(AllocationError, match="failed to find or claim a block"):
        harness.assign_up_to("h2")


def test_the_age_of_a_block_that_may_be_taken_over_is_a_minute() -> None:
    assert ownership.TAKE_OVER_AGE_S == 60
