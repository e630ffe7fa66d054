"""Claiming given blocks: whose they are then, which pools allow it, and what is written."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.affinities import ClaimResult, claim_queries, decide_claim, pool_of_range
from netplug_core.ipam.allocation.context import POOLS
from netplug_core.ipam.model import Affinity, AffinityState, Block, affinity_key, block_key, host_owner
from netplug_core.records import Create, Decision, Delete, Malformed, Require, RequireUnchanged, Update, Write, Written
from netplug_core.resources.ippool import IPPOOL, IPPoolStatus, PoolCondition, ippool_key
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness

BLOCK_0, BLOCK_1, BLOCK_2 = "10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26"
OURS = host_owner(NODE)


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def decision(harness: IPAMHarness, *cidrs: str, claimant: str = OURS) -> Decision[ClaimResult]:
    blocks = tuple(map(Prefix.parse, cidrs))
    made = decide_claim(harness.read(*claim_queries(claimant, blocks)), claimant, blocks, harness.clock.now_ns())
    assert isinstance(made, Decision)
    return made


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


def test_blocks_that_are_not_there_are_made(harness: IPAMHarness) -> None:
    assert claim(harness, BLOCK_0, BLOCK_1) == ([BLOCK_0, BLOCK_1], [])
    assert harness.blocks() == {BLOCK_0: OURS, BLOCK_1: OURS}
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}
    assert harness.block(BLOCK_0).is_empty
    assert harness.block(BLOCK_0).claim_time_ns == harness.clock.now_ns()


def test_a_block_of_another_owner_is_left_alone(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0, OTHER_NODE)
    before = harness.block(BLOCK_0)
    assert claim(harness, BLOCK_0, BLOCK_1) == ([BLOCK_1], [BLOCK_0])
    assert harness.block(BLOCK_0) == before
    assert harness.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


def test_an_own_affinity_to_a_block_of_another_owner_is_deleted(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0, OTHER_NODE)
    harness.put_affinity(BLOCK_0, AffinityState.PENDING)
    assert claim(harness, BLOCK_0) == ([], [BLOCK_0])
    assert harness.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed"}


def test_a_block_of_nobody_is_adopted_with_what_it_holds(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", node=OTHER_NODE)
    block = harness.block(BLOCK_0)
    harness.put(block.key, block.relinquished())
    harness.remove(affinity_key(host_owner(OTHER_NODE), block.prefix))
    harness.clock.sleep(10)
    assert claim(harness, BLOCK_0) == ([BLOCK_0], [])
    assert harness.block(BLOCK_0).claim_time_ns == harness.clock.now_ns()
    assert harness.blocks() == {BLOCK_0: OURS}
    assert harness.held() == {"10.0.0.0": "h1"}


@pytest.mark.parametrize("state", [None, AffinityState.PENDING, AffinityState.PENDING_DELETION])
def test_a_claim_of_ours_that_was_cut_is_confirmed(harness: IPAMHarness, state: AffinityState | None) -> None:
    harness.put_block(BLOCK_0)
    if state is not None:
        harness.put_affinity(BLOCK_0, state)
    before = harness.block(BLOCK_0).sequence
    assert claim(harness, BLOCK_0) == ([BLOCK_0], [])
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}
    assert harness.block(BLOCK_0).sequence == before + 1  # so that a half-done release of it fails


def test_what_is_ours_already_takes_no_write(harness: IPAMHarness) -> None:
    claim(harness, BLOCK_0)
    made = decision(harness, BLOCK_0)
    assert (made.writes, made.result) == ((), ClaimResult(claimed=(Prefix.parse(BLOCK_0),)))


def test_a_block_of_another_owner_takes_no_write(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0, OTHER_NODE)
    assert decision(harness, BLOCK_0).writes == ()


def test_trap_33_claimants_of_one_name_and_another_sort_are_two(harness: IPAMHarness) -> None:
    assert claim(harness, BLOCK_0, claimant=f"virtual:{NODE}") == ([BLOCK_0], [])
    assert claim(harness, BLOCK_0, BLOCK_1) == ([BLOCK_1], [BLOCK_0])
    assert harness.blocks() == {BLOCK_0: f"virtual:{NODE}", BLOCK_1: OURS}
    virtual = affinity_key(f"virtual:{NODE}", Prefix.parse(BLOCK_0))
    assert harness.get(virtual) == Affinity(state=AffinityState.CONFIRMED)


def test_trap_24_names_as_long_as_they_may_be_are_not_mixed_up(harness: IPAMHarness) -> None:
    first, second = (host_owner("n" * 251 + letter) for letter in "ab")
    assert claim(harness, BLOCK_0, claimant=first) == ([BLOCK_0], [])
    assert claim(harness, BLOCK_0, BLOCK_1, claimant=second) == ([BLOCK_1], [BLOCK_0])
    assert harness.blocks() == {BLOCK_0: first, BLOCK_1: second}


# --- which pools ------------------------------------------------------------------------------------------------


def refusal(harness: IPAMHarness, cidr: str) -> str:
    found = pool_of_range(harness.read(POOLS), Prefix.parse(cidr))
    assert isinstance(found, ConfigurationError)
    assert (found.code, found.value) == (7, cidr)
    return found.accepted


@pytest.mark.parametrize("cidr", ["10.0.0.0/24", "10.0.0.128/25", "10.0.0.192/26"])
def test_a_range_of_whole_blocks_lies_in_its_pool(harness: IPAMHarness, cidr: str) -> None:
    found = pool_of_range(harness.read(POOLS), Prefix.parse(cidr))
    assert not isinstance(found, ConfigurationError)
    assert found.key == ippool_key("main")


@pytest.mark.parametrize("cidr", ["11.0.0.0/24", "10.0.0.0/23", "fd00::/120"])
def test_a_range_outside_all_pools_is_refused(harness: IPAMHarness, cidr: str) -> None:
    assert refusal(harness, cidr) == f"The requested CIDR ({cidr}) is not within any configured pools."


def test_a_part_of_a_block_is_refused(harness: IPAMHarness) -> None:
    smaller = "The requested CIDR (10.0.0.0/27) is smaller than the minimum."
    assert refusal(harness, "10.0.0.0/27") == f"{smaller} Blocks are /26"


def test_a_pool_that_gives_nothing_has_no_blocks_to_claim(harness: IPAMHarness) -> None:
    stored = harness.get(ippool_key("main"))
    overlap = PoolCondition(type="Allocatable", status="False", reason="CIDROverlap")
    for unusable in (
        evolve(stored, spec=evolve(stored.spec, is_disabled=True)),
        evolve(stored, metadata=evolve(stored.metadata, deletion_time_ns=1)),
        evolve(stored, status=IPPoolStatus(conditions=(overlap,))),
    ):
        harness.put(ippool_key("main"), unusable)
        assert refusal(harness, BLOCK_0).endswith("is not within any configured pools.")


def test_a_pool_that_overlaps_an_older_one_has_no_blocks_to_claim(harness: IPAMHarness) -> None:
    """A block of the older one, of another size, may be created at the same moment."""
    harness.add_pool("a", "10.0.0.0/28", 32)
    assert refusal(harness, BLOCK_0) == "The pool main overlaps the older pool a."
    assert decision(harness, BLOCK_0).writes == ()
    older = pool_of_range(harness.read(POOLS), Prefix.parse("10.0.0.3/32"))
    assert not isinstance(older, ConfigurationError)
    assert older.key == ippool_key("a")


def test_a_pool_that_went_meanwhile_refuses_the_blocks(harness: IPAMHarness) -> None:
    harness.remove(ippool_key("main"))
    made = decision(harness, BLOCK_0)
    assert made.writes == ()
    assert isinstance(made.result, ConfigurationError)


# --- the commit -------------------------------------------------------------------------------------------------


def test_a_claim_rests_on_its_pool_and_on_there_being_no_new_one(harness: IPAMHarness) -> None:
    pool = harness.find_record(ippool_key("main"))
    assert pool is not None
    snapshot = harness.read(POOLS)
    unchanged, required, *_rest = decision(harness, BLOCK_0).writes
    assert unchanged == RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL))
    assert required == Require(pool.key, pool.revision)


def test_the_claim_is_pending_before_the_block_is_made_and_confirmed_behind_it(harness: IPAMHarness) -> None:
    key, block = affinity_key(OURS, Prefix.parse(BLOCK_0)), block_key(Prefix.parse(BLOCK_0))
    made = Block.new(Prefix.parse(BLOCK_0), owner=OURS, now_ns=harness.clock.now_ns())
    assert beyond_conditions(decision(harness, BLOCK_0).writes) == [
        Create(key, Affinity(state=AffinityState.PENDING)),
        Create(block, made),
        Update(key, Affinity(state=AffinityState.CONFIRMED), Written(2)),
    ]


def test_a_lost_claim_is_deleted_by_the_revision_that_was_read(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0, OTHER_NODE)
    harness.put_affinity(BLOCK_0, AffinityState.PENDING)
    record = harness.find_record(affinity_key(OURS, Prefix.parse(BLOCK_0)))
    assert record is not None
    writes = decision(harness, BLOCK_0, BLOCK_2).writes
    assert beyond_conditions(writes)[0] == Delete(record.key, record.revision)


def test_a_pool_that_cannot_be_read_matters_where_no_other_has_the_range(harness: IPAMHarness) -> None:
    harness.add_pool("other", "10.9.0.0/24")
    harness.store = DamagedDatastore(harness.store, damage={ippool_key("other"): b"{"})  # type: ignore[assignment]
    assert claim(harness, BLOCK_0) == ([BLOCK_0], [])
    with pytest.raises(Malformed, match=r"IPPool\(other\)"):
        decision(harness, "10.9.0.0/26")
