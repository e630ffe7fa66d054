"""Giving up claims: what becomes of block and affinity, in which order, and what a crash leaves to the next try."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.flows.ipam.affinities import relinquish
from netplug_core.ipam.allocation.affinities import Emptiness, RelinquishResult, decide_relinquish, relinquish_queries
from netplug_core.ipam.model import Affinity, AffinityState, Block, affinity_key, block_key, host_owner
from netplug_core.ipam.outcome import BlockNotEmpty
from netplug_core.records import Decision, Delete, Key, NeedMore, Snapshot, Update, Written
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import FaultyDatastore, ProcessDeath, ProcessDied
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4
from tests.harness.ipam_release import decide_without_commit

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"
EITHER = pytest.mark.parametrize("emptiness", Emptiness)


@pytest.fixture
def harness() -> IPAMHarness:
    """A cluster with one pool of four blocks."""
    made = IPAMHarness.new()
    made.add_pool("main", "10.0.0.0/24")
    return made


def claim(cidr: str = BLOCK_0, owner: str = host_owner(NODE)) -> Key[Affinity]:
    return affinity_key(owner, Prefix.parse(cidr))


def decision(
    harness: IPAMHarness, *claims: Key[Affinity], emptiness: Emptiness = Emptiness.NOT_REQUIRED
) -> Decision[RelinquishResult]:
    now_ns = harness.clock.now_ns()
    return decide_without_commit(
        harness, relinquish_queries(claims), lambda snapshot: decide_relinquish(snapshot, claims, emptiness, now_ns)
    )


def give_up(
    harness: IPAMHarness, *claims: Key[Affinity], emptiness: Emptiness = Emptiness.NOT_REQUIRED
) -> RelinquishResult:
    return relinquish(harness.store, claims, emptiness, pace=harness.pace)


# --- what becomes of the block ----------------------------------------------------------------------------------


@EITHER
def test_an_empty_block_goes_with_its_claim(harness: IPAMHarness, emptiness: Emptiness) -> None:
    harness.put_owned_block(BLOCK_0)
    assert give_up(harness, claim(), emptiness=emptiness) == RelinquishResult(relinquished=(claim(),))
    assert (harness.blocks(), harness.affinities()) == ({}, {})


def test_a_block_in_use_stays_without_an_owner(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    before = harness.block(BLOCK_0)
    assert give_up(harness, claim()).relinquished == (claim(),)
    assert harness.affinities() == {}
    after = harness.block(BLOCK_0)
    assert (after.owner, after.claim_time_ns, after.sequence) == ("", None, before.sequence + 1)
    assert harness.held() == {"10.0.0.0": "h1"}
    assert harness.release("h1") == ["10.0.0.0"]
    assert harness.blocks() == {}


def test_a_block_in_use_is_not_given_up_where_it_must_be_empty(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(3))
    harness.take_call_counts()
    result = give_up(harness, claim(), emptiness=Emptiness.REQUIRED)
    assert harness.take_call_counts() == (1, 0)
    (refusal,) = result.refused
    assert result.relinquished == ()
    assert (refusal.code, refusal.identifier) == (119, "block-not-empty")
    assert str(refusal) == "block 10.0.0.0/26 of host:node-a is not given up: it is not empty (3 addresses held)"
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}


def test_one_that_is_refused_keeps_no_other(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.put_owned_block(BLOCK_1)
    result = give_up(harness, claim(BLOCK_0), claim(BLOCK_1), emptiness=Emptiness.REQUIRED)
    assert result.relinquished == (claim(BLOCK_1),)
    assert [refusal.block for refusal in result.refused] == [Prefix.parse(BLOCK_0)]
    assert harness.blocks() == {BLOCK_0: host_owner(NODE)}


def test_a_cooling_address_keeps_a_block_until_its_cooldown_is_over(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("h1")
    harness.release("h1")
    (refusal,) = give_up(harness, claim(), emptiness=Emptiness.REQUIRED).refused
    assert isinstance(refusal, BlockNotEmpty)
    harness.clock.sleep(61)
    assert give_up(harness, claim(), emptiness=Emptiness.REQUIRED).relinquished == (claim(),)
    assert harness.blocks() == {}


def test_addresses_after_their_cooldown_are_free_in_a_block_that_stays(harness: IPAMHarness) -> None:
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("h1")
    harness.assign_or_refuse("h2")
    harness.release("h1")
    harness.clock.sleep(61)
    give_up(harness, claim())
    assert harness.held() == {"10.0.0.1": "h2"}


def test_what_a_host_keeps_back_does_not_make_a_block_used(harness: IPAMHarness) -> None:
    block = Block.new(Prefix.parse(BLOCK_0), owner=host_owner(NODE), now_ns=0, host_reserved=(2, 1))
    harness.put(block.key, block)
    harness.put_affinity(BLOCK_0, AffinityState.CONFIRMED)
    assert give_up(harness, claim(), emptiness=Emptiness.REQUIRED).relinquished == (claim(),)
    assert harness.blocks() == {}


def test_trap_18_the_pool_may_be_gone(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0)
    harness.remove(ippool_key("main"))
    assert give_up(harness, claim()).relinquished == (claim(),)
    assert (harness.blocks(), harness.affinities()) == ({}, {})


def test_trap_11_a_block_of_old_days_that_knows_no_claim_time_is_given_up(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0)
    block = harness.block(BLOCK_0)
    harness.put(block.key, evolve(block, claim_time_ns=None))
    assert give_up(harness, claim(), emptiness=Emptiness.REQUIRED).relinquished == (claim(),)
    assert harness.blocks() == {}


def test_claims_of_others_than_nodes_are_given_up_likewise(harness: IPAMHarness) -> None:
    virtual = claim(owner="virtual:lb")
    block = Block.new(Prefix.parse(BLOCK_0), owner="virtual:lb", now_ns=0)
    harness.put(block.key, block)
    harness.put(virtual, Affinity(state=AffinityState.CONFIRMED))
    assert give_up(harness, virtual).relinquished == (virtual,)
    assert (harness.blocks(), harness.affinities()) == ({}, {})


# --- claims that lead nowhere -----------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("state", AffinityState)
def test_trap_44_a_claim_without_a_block_is_deleted(
    harness: IPAMHarness, state: AffinityState, emptiness: Emptiness
) -> None:
    harness.put_affinity(BLOCK_0, state)
    assert give_up(harness, claim(), emptiness=emptiness).relinquished == (claim(),)
    assert harness.affinities() == {}


@EITHER
@pytest.mark.parametrize("owner", [OTHER_NODE, ""])
def test_an_affinity_to_a_block_of_another_owner_is_deleted_and_the_block_is_not(
    harness: IPAMHarness, owner: str, emptiness: Emptiness
) -> None:
    harness.put_block(BLOCK_0, node=owner)
    harness.put_affinity(BLOCK_0, AffinityState.PENDING)
    before = harness.block(BLOCK_0)
    assert give_up(harness, claim(), emptiness=emptiness).relinquished == (claim(),)
    assert harness.affinities() == {}
    assert harness.block(BLOCK_0) == before


def test_a_claim_that_is_not_there_is_gone(harness: IPAMHarness) -> None:
    harness.take_call_counts()
    assert give_up(harness, claim()) == RelinquishResult(relinquished=(claim(),))
    assert harness.take_call_counts() == (1, 0)


def test_an_owner_whose_claim_was_lost_gives_up_the_block(harness: IPAMHarness) -> None:
    harness.put_block(BLOCK_0)
    assert give_up(harness, claim()).relinquished == (claim(),)
    assert harness.blocks() == {}


def test_what_was_not_read_is_asked_for() -> None:
    needed = decide_relinquish(Snapshot.empty(), (claim(),), Emptiness.REQUIRED, 0)
    assert isinstance(needed, NeedMore)
    assert needed.queries == relinquish_queries((claim(),))


# --- the commit -------------------------------------------------------------------------------------------------


def test_the_claim_is_marked_before_its_block_goes_and_deleted_behind_it(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0)
    mark, block, end = decision(harness, claim()).writes
    assert isinstance(mark, Update)
    assert mark.value == Affinity(state=AffinityState.PENDING_DELETION)
    assert isinstance(block, Delete)
    assert end == Delete(claim(), Written(0))
    assert [mark.key, block.key] == [claim(), block_key(Prefix.parse(BLOCK_0))]


def test_what_is_marked_already_is_not_marked_again(harness: IPAMHarness) -> None:
    harness.put_block(BLOCK_0)
    harness.put_affinity(BLOCK_0, AffinityState.PENDING_DELETION)
    record = harness.find_record(claim())
    assert record is not None
    block, end = decision(harness, claim()).writes
    assert isinstance(block, Delete)
    assert end == Delete(claim(), record.revision)


@pytest.mark.parametrize("handle", ["", "h1"])
@pytest.mark.parametrize("applied", [0, 1, 2, 3])
def test_wherever_it_is_cut_the_next_try_ends_it(handle: str, applied: int) -> None:
    harness = IPAMHarness.new(MemoryMode.ORDERED)
    harness.add_pool("main", "10.0.0.0/24")
    harness.assign_or_refuse(handle or None)
    if not handle:
        block = harness.block(BLOCK_0)
        harness.put(block.key, Block.new(block.prefix, owner=block.owner, now_ns=harness.clock.now_ns()))
    with pytest.raises(ProcessDied):
        relinquish(
            FaultyDatastore(harness.store, {1: ProcessDeath(applied)}),
            (claim(),),
            Emptiness.NOT_REQUIRED,
            pace=harness.pace,
        )
    assert give_up(harness, claim()).relinquished == (claim(),)
    assert harness.affinities() == {}
    assert harness.blocks() == ({BLOCK_0: ""} if handle else {})
    assert harness.held() == ({"10.0.0.0": "h1"} if handle else {})
