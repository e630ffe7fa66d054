"""Giving up claims: what becomes of block and affinity, in which order, and what a crash leaves to the next try."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.flows.ipam.affinities import relinquish
from netplug_core.ipam.allocation.relinquish import Emptiness, RelinquishResult, decide_relinquish, relinquish_queries
from netplug_core.ipam.model.affinity import Affinity, AffinityState, affinity_key, host_owner
from netplug_core.ipam.model.block import Block, block_key
from netplug_core.ipam.outcome.refusals import BlockNotEmpty
from netplug_core.records import Decision, Delete, Key, NeedMore, Snapshot, Update, Written
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import FaultyDatastore, ProcessDeath, ProcessDied
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4
from tests.harness.ipam_release import decide_without_commit

BLOCK_0, BLOCK_1 = "10.0.0.0/26", "10.0.0.64/26"
EITHER = pytest.mark.parametrize("emptiness", Emptiness)


@pytest.fixture
def bench() -> IPAMHarness:
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
def test_an_empty_block_goes_with_its_claim(bench: IPAMHarness, emptiness: Emptiness) -> None:
    bench.put_owned_block(BLOCK_0)
    assert give_up(bench, claim(), emptiness=emptiness) == RelinquishResult(relinquished=(claim(),))
    assert (bench.blocks(), bench.affinities()) == ({}, {})


def test_a_block_in_use_stays_without_an_owner(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    before = bench.block(BLOCK_0)
    assert give_up(bench, claim()).relinquished == (claim(),)
    assert bench.affinities() == {}
    after = bench.block(BLOCK_0)
    assert (after.owner, after.claim_time_ns, after.sequence) == ("", None, before.sequence + 1)
    assert bench.held() == {"10.0.0.0": "h1"}
    assert bench.release("h1") == ["10.0.0.0"]
    assert bench.blocks() == {}


def test_a_block_in_use_is_not_given_up_where_it_must_be_empty(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(3))
    bench.take_call_counts()
    result = give_up(bench, claim(), emptiness=Emptiness.REQUIRED)
    assert bench.take_call_counts() == (1, 0)
    (refusal,) = result.refused
    assert result.relinquished == ()
    assert (refusal.code, refusal.identifier) == (119, "block-not-empty")
    assert str(refusal) == "block 10.0.0.0/26 of host:node-a is not given up: it is not empty (3 addresses held)"
    assert bench.affinities() == {(NODE, BLOCK_0): "confirmed"}


def test_one_that_is_refused_keeps_no_other(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.put_owned_block(BLOCK_1)
    result = give_up(bench, claim(BLOCK_0), claim(BLOCK_1), emptiness=Emptiness.REQUIRED)
    assert result.relinquished == (claim(BLOCK_1),)
    assert [refusal.block for refusal in result.refused] == [Prefix.parse(BLOCK_0)]
    assert bench.blocks() == {BLOCK_0: host_owner(NODE)}


def test_an_address_that_rests_keeps_a_block_until_it_has_rested(bench: IPAMHarness) -> None:
    bench.configure(cooldown_s=60)
    bench.assign_or_refuse("h1")
    bench.release("h1")
    (refusal,) = give_up(bench, claim(), emptiness=Emptiness.REQUIRED).refused
    assert isinstance(refusal, BlockNotEmpty)
    bench.clock.sleep(61)
    assert give_up(bench, claim(), emptiness=Emptiness.REQUIRED).relinquished == (claim(),)
    assert bench.blocks() == {}


def test_addresses_that_have_rested_are_free_in_a_block_that_stays(bench: IPAMHarness) -> None:
    bench.configure(cooldown_s=60)
    bench.assign_or_refuse("h1")
    bench.assign_or_refuse("h2")
    bench.release("h1")
    bench.clock.sleep(61)
    give_up(bench, claim())
    assert bench.held() == {"10.0.0.1": "h2"}


def test_what_a_host_keeps_back_does_not_make_a_block_used(bench: IPAMHarness) -> None:
    block = Block.new(Prefix.parse(BLOCK_0), owner=host_owner(NODE), now_ns=0, host_reserved=(2, 1))
    bench.put(block.key, block)
    bench.put_affinity(BLOCK_0, AffinityState.CONFIRMED)
    assert give_up(bench, claim(), emptiness=Emptiness.REQUIRED).relinquished == (claim(),)
    assert bench.blocks() == {}


def test_trap_18_the_pool_may_be_gone(bench: IPAMHarness) -> None:
    bench.put_owned_block(BLOCK_0)
    bench.remove(ippool_key("main"))
    assert give_up(bench, claim()).relinquished == (claim(),)
    assert (bench.blocks(), bench.affinities()) == ({}, {})


def test_trap_11_a_block_of_old_days_that_knows_no_claim_time_is_given_up(bench: IPAMHarness) -> None:
    bench.put_owned_block(BLOCK_0)
    block = bench.block(BLOCK_0)
    bench.put(block.key, evolve(block, claim_time_ns=None))
    assert give_up(bench, claim(), emptiness=Emptiness.REQUIRED).relinquished == (claim(),)
    assert bench.blocks() == {}


def test_claims_of_others_than_nodes_are_given_up_likewise(bench: IPAMHarness) -> None:
    virtual = claim(owner="virtual:lb")
    block = Block.new(Prefix.parse(BLOCK_0), owner="virtual:lb", now_ns=0)
    bench.put(block.key, block)
    bench.put(virtual, Affinity(state=AffinityState.CONFIRMED))
    assert give_up(bench, virtual).relinquished == (virtual,)
    assert (bench.blocks(), bench.affinities()) == ({}, {})


# --- claims that lead nowhere -----------------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize("state", AffinityState)
def test_trap_44_a_claim_without_a_block_is_deleted(
    bench: IPAMHarness, state: AffinityState, emptiness: Emptiness
) -> None:
    bench.put_affinity(BLOCK_0, state)
    assert give_up(bench, claim(), emptiness=emptiness).relinquished == (claim(),)
    assert bench.affinities() == {}


@EITHER
@pytest.mark.parametrize("owner", [OTHER_NODE, ""])
def test_a_claim_on_somebody_elses_block_is_deleted_and_the_block_is_not(
    bench: IPAMHarness, owner: str, emptiness: Emptiness
) -> None:
    bench.put_block(BLOCK_0, node=owner)
    bench.put_affinity(BLOCK_0, AffinityState.PENDING)
    before = bench.block(BLOCK_0)
    assert give_up(bench, claim(), emptiness=emptiness).relinquished == (claim(),)
    assert bench.affinities() == {}
    assert bench.block(BLOCK_0) == before


def test_a_claim_that_is_not_there_is_gone(bench: IPAMHarness) -> None:
    bench.take_call_counts()
    assert give_up(bench, claim()) == RelinquishResult(relinquished=(claim(),))
    assert bench.take_call_counts() == (1, 0)


def test_an_owner_whose_claim_was_lost_gives_up_the_block(bench: IPAMHarness) -> None:
    bench.put_block(BLOCK_0)
    assert give_up(bench, claim()).relinquished == (claim(),)
    assert bench.blocks() == {}


def test_what_was_not_read_is_asked_for() -> None:
    needed = decide_relinquish(Snapshot.empty(), (claim(),), Emptiness.REQUIRED, 0)
    assert isinstance(needed, NeedMore)
    assert needed.queries == relinquish_queries((claim(),))


# --- the commit -------------------------------------------------------------------------------------------------


def test_the_claim_is_marked_before_its_block_goes_and_deleted_behind_it(bench: IPAMHarness) -> None:
    bench.put_owned_block(BLOCK_0)
    mark, block, end = decision(bench, claim()).writes
    assert isinstance(mark, Update)
    assert mark.value == Affinity(state=AffinityState.PENDING_DELETION)
    assert isinstance(block, Delete)
    assert end == Delete(claim(), Written(0))
    assert [mark.key, block.key] == [claim(), block_key(Prefix.parse(BLOCK_0))]


def test_what_is_marked_already_is_not_marked_again(bench: IPAMHarness) -> None:
    bench.put_block(BLOCK_0)
    bench.put_affinity(BLOCK_0, AffinityState.PENDING_DELETION)
    record = bench.find_record(claim())
    assert record is not None
    block, end = decision(bench, claim()).writes
    assert isinstance(block, Delete)
    assert end == Delete(claim(), record.revision)


@pytest.mark.parametrize("handle", ["", "h1"])
@pytest.mark.parametrize("applied", [0, 1, 2, 3])
def test_wherever_it_is_cut_the_next_try_ends_it(handle: str, applied: int) -> None:
    bench = IPAMHarness.new(MemoryMode.ORDERED)
    bench.add_pool("main", "10.0.0.0/24")
    bench.assign_or_refuse(handle or None)
    if not handle:
        block = bench.block(BLOCK_0)
        bench.put(block.key, Block.new(block.prefix, owner=block.owner, now_ns=bench.clock.now_ns()))
    with pytest.raises(ProcessDied):
        relinquish(
            FaultyDatastore(bench.store, {1: ProcessDeath(applied)}),
            (claim(),),
            Emptiness.NOT_REQUIRED,
            pace=bench.pace,
        )
    assert give_up(bench, claim()).relinquished == (claim(),)
    assert bench.affinities() == {}
    assert bench.blocks() == ({BLOCK_0: ""} if handle else {})
    assert bench.held() == ({"10.0.0.0": "h1"} if handle else {})
