"""Claiming given blocks: whose they are then, which pools allow it, and what is written."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.claim import ClaimResult, claim_queries, decide_claim, pool_of_range
from netplug_core.ipam.allocation.context import POOLS
from netplug_core.ipam.model.affinity import Affinity, AffinityState, affinity_key, host_owner
from netplug_core.ipam.model.block import Block, block_key
from netplug_core.records import Create, Decision, Delete, Require, RequireUnchanged, Update, Write, Written
from netplug_core.resources.ippool import IPPOOL, IPPoolStatus, PoolCondition, ippool_key
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness

BLOCK_0, BLOCK_1, BLOCK_2 = "10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26"
OURS = host_owner(NODE)


@pytest.fixture
def bench() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def decision(harness: IPAMHarness, *cidrs: str, claimant: str = OURS) -> Decision[ClaimResult]:
    blocks = tuple(map(Prefix.parse, cidrs))
    return decide_claim(harness.read(*claim_queries(claimant, blocks)), claimant, blocks, harness.clock.now_ns())


def claim(harness: IPAMHarness, *cidrs: str, claimant: str = OURS) -> tuple[list[str], list[str]]:
    """Claim, and say what was claimed and what was not."""
    made = decision(harness, *cidrs, claimant=claimant)
    assert isinstance(made.result, ClaimResult)
    if made.writes:
        harness.commit(*made.writes)
    return [str(block) for block in made.result.claimed], [str(block) for block in made.result.failed]


def beyond_conditions(writes: tuple[Write, ...]) -> list[Write]:
    return [write for write in writes if not isinstance(write, Require | RequireUnchanged)]


# --- which blocks -----------------------------------------------------------------------------------------------


def test_blocks_that_are_not_there_are_made(bench: IPAMHarness) -> None:
    assert claim(bench, BLOCK_0, BLOCK_1) == ([BLOCK_0, BLOCK_1], [])
    assert bench.blocks() == {BLOCK_0: OURS, BLOCK_1: OURS}
    assert bench.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}
    assert bench.block(BLOCK_0).is_empty
    assert bench.block(BLOCK_0).claim_time_ns == bench.clock.now_ns()


def test_a_block_of_somebody_else_is_left_alone(bench: IPAMHarness) -> None:
    bench.put_owned_block(BLOCK_0, OTHER_NODE)
    before = bench.block(BLOCK_0)
    assert claim(bench, BLOCK_0, BLOCK_1) == ([BLOCK_1], [BLOCK_0])
    assert bench.block(BLOCK_0) == before
    assert bench.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


def test_a_claim_of_ours_on_somebody_elses_block_is_deleted(bench: IPAMHarness) -> None:
    bench.put_owned_block(BLOCK_0, OTHER_NODE)
    bench.put_affinity(BLOCK_0, AffinityState.PENDING)
    assert claim(bench, BLOCK_0) == ([], [BLOCK_0])
    assert bench.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed"}


def test_a_block_of_nobody_is_adopted_with_what_it_holds(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", node=OTHER_NODE)
    block = bench.block(BLOCK_0)
    bench.put(block.key, block.relinquished())
    bench.remove(affinity_key(host_owner(OTHER_NODE), block.prefix))
    bench.clock.sleep(10)
    assert claim(bench, BLOCK_0) == ([BLOCK_0], [])
    assert bench.block(BLOCK_0).claim_time_ns == bench.clock.now_ns()
    assert bench.blocks() == {BLOCK_0: OURS}
    assert bench.held() == {"10.0.0.0": "h1"}


@pytest.mark.parametrize("state", [None, AffinityState.PENDING, AffinityState.PENDING_DELETION])
def test_a_claim_of_ours_that_was_cut_is_confirmed(bench: IPAMHarness, state: AffinityState | None) -> None:
    bench.put_block(BLOCK_0)
    if state is not None:
        bench.put_affinity(BLOCK_0, state)
    before = bench.block(BLOCK_0).sequence
    assert claim(bench, BLOCK_0) == ([BLOCK_0], [])
    assert bench.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert bench.block(BLOCK_0).sequence == before + 1  # so that a half-done release of it fails


def test_what_is_ours_already_takes_no_write(bench: IPAMHarness) -> None:
    claim(bench, BLOCK_0)
    made = decision(bench, BLOCK_0)
    assert (made.writes, made.result) == ((), ClaimResult(claimed=(Prefix.parse(BLOCK_0),)))


def test_what_is_somebody_elses_takes_no_write(bench: IPAMHarness) -> None:
    bench.put_owned_block(BLOCK_0, OTHER_NODE)
    assert decision(bench, BLOCK_0).writes == ()


def test_trap_33_claimants_of_one_name_and_another_sort_are_two(bench: IPAMHarness) -> None:
    assert claim(bench, BLOCK_0, claimant=f"virtual:{NODE}") == ([BLOCK_0], [])
    assert claim(bench, BLOCK_0, BLOCK_1) == ([BLOCK_1], [BLOCK_0])
    assert bench.blocks() == {BLOCK_0: f"virtual:{NODE}", BLOCK_1: OURS}
    virtual = affinity_key(f"virtual:{NODE}", Prefix.parse(BLOCK_0))
    assert bench.get(virtual) == Affinity(state=AffinityState.CONFIRMED)


def test_trap_24_names_as_long_as_they_may_be_are_not_mixed_up(bench: IPAMHarness) -> None:
    first, second = (host_owner("n" * 251 + letter) for letter in "ab")
    assert claim(bench, BLOCK_0, claimant=first) == ([BLOCK_0], [])
    assert claim(bench, BLOCK_0, BLOCK_1, claimant=second) == ([BLOCK_1], [BLOCK_0])
    assert bench.blocks() == {BLOCK_0: first, BLOCK_1: second}


# --- which pools ------------------------------------------------------------------------------------------------


def refusal(harness: IPAMHarness, cidr: str) -> str:
    found = pool_of_range(harness.read(POOLS), Prefix.parse(cidr))
    assert isinstance(found, ConfigurationError)
    assert (found.code, found.value) == (7, cidr)
    return found.accepted


@pytest.mark.parametrize("cidr", ["10.0.0.0/24", "10.0.0.128/25", "10.0.0.192/26"])
def test_a_range_of_whole_blocks_lies_in_its_pool(bench: IPAMHarness, cidr: str) -> None:
    found = pool_of_range(bench.read(POOLS), Prefix.parse(cidr))
    assert not isinstance(found, ConfigurationError)
    assert found.key == ippool_key("main")


@pytest.mark.parametrize("cidr", ["11.0.0.0/24", "10.0.0.0/23", "fd00::/120"])
def test_a_range_outside_all_pools_is_refused(bench: IPAMHarness, cidr: str) -> None:
    assert refusal(bench, cidr) == f"The requested CIDR ({cidr}) is not within any configured pools."


def test_a_part_of_a_block_is_refused(bench: IPAMHarness) -> None:
    smaller = "The requested CIDR (10.0.0.0/27) is smaller than the minimum."
    assert refusal(bench, "10.0.0.0/27") == f"{smaller} Blocks are /26"


def test_a_pool_that_gives_nothing_has_no_blocks_to_claim(bench: IPAMHarness) -> None:
    stored = bench.get(ippool_key("main"))
    overlap = PoolCondition(type="Allocatable", status="False", reason="CIDROverlap")
    for unusable in (
        evolve(stored, spec=evolve(stored.spec, is_disabled=True)),
        evolve(stored, metadata=evolve(stored.metadata, deletion_time_ns=1)),
        evolve(stored, status=IPPoolStatus(conditions=(overlap,))),
    ):
        bench.put(ippool_key("main"), unusable)
        assert refusal(bench, BLOCK_0).endswith("is not within any configured pools.")


def test_a_pool_that_went_meanwhile_refuses_the_blocks(bench: IPAMHarness) -> None:
    bench.remove(ippool_key("main"))
    made = decision(bench, BLOCK_0)
    assert made.writes == ()
    assert isinstance(made.result, ConfigurationError)


# --- the commit -------------------------------------------------------------------------------------------------


def test_a_claim_rests_on_its_pool_and_on_there_being_no_new_one(bench: IPAMHarness) -> None:
    pool = bench.find_record(ippool_key("main"))
    assert pool is not None
    snapshot = bench.read(POOLS)
    unchanged, required, *_rest = decision(bench, BLOCK_0).writes
    assert unchanged == RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL))
    assert required == Require(pool.key, pool.revision)


def test_the_claim_is_pending_before_the_block_is_made_and_confirmed_behind_it(bench: IPAMHarness) -> None:
    key, block = affinity_key(OURS, Prefix.parse(BLOCK_0)), block_key(Prefix.parse(BLOCK_0))
    made = Block.new(Prefix.parse(BLOCK_0), owner=OURS, now_ns=bench.clock.now_ns())
    assert beyond_conditions(decision(bench, BLOCK_0).writes) == [
        Create(key, Affinity(state=AffinityState.PENDING)),
        Create(block, made),
        Update(key, Affinity(state=AffinityState.CONFIRMED), Written(2)),
    ]


def test_a_lost_claim_is_deleted_by_the_revision_that_was_read(bench: IPAMHarness) -> None:
    bench.put_owned_block(BLOCK_0, OTHER_NODE)
    bench.put_affinity(BLOCK_0, AffinityState.PENDING)
    record = bench.find_record(affinity_key(OURS, Prefix.parse(BLOCK_0)))
    assert record is not None
    writes = decision(bench, BLOCK_0, BLOCK_2).writes
    assert beyond_conditions(writes)[0] == Delete(record.key, record.revision)
