"""Claiming and relinquishing over a store: ranges, nodes, pools and single blocks, in batches and under faults."""

import pytest

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.ipam.affinities import (
    affinities_of,
    affinities_within,
    claim,
    ensure_blocks,
    relinquish,
    relinquish_block,
    relinquish_node,
    relinquish_pool,
)
from netplug_core.ipam.allocation.affinities import ClaimResult, Emptiness
from netplug_core.ipam.allocation.context import BLOCKS_PER_COMMIT
from netplug_core.ipam.model import AFFINITY, Affinity, AffinityState, Block, affinity_key, host_owner
from netplug_core.ipam.outcome import NoPoolServes
from netplug_core.records import PAGE_SIZE, List
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, first_block_first, ipv4, ipv6, make_request
from tests.harness.ipam_release import affinity_names, texts
from tests.harness.stores import RecordingStore

POOL, BLOCK_0, BLOCK_1 = "10.0.0.0/22", "10.0.0.0/26", "10.0.0.64/26"
ANYHOW, IF_EMPTY = Emptiness.NOT_REQUIRED, Emptiness.REQUIRED


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> IPAMHarness:
    """A cluster with one pool of sixteen blocks over a store of each mode."""
    harness = IPAMHarness.new(request.param)
    harness.add_pool("main", POOL)
    return harness


def claim_range(harness: IPAMHarness, owner: str, cidr: str = POOL) -> ClaimResult:
    return claim(harness.store, owner, Prefix.parse(cidr), pace=harness.pace)


def put_virtual_block(harness: IPAMHarness, cidr: str, owner: str = "virtual:lb") -> None:
    """An empty block of an owner that is not a node."""
    block = Block.new(Prefix.parse(cidr), owner=owner, now_ns=0)
    harness.put(block.key, block)
    harness.put(affinity_key(owner, block.prefix), Affinity(state=AffinityState.CONFIRMED))


# --- claiming a range -------------------------------------------------------------------------------------------


def test_every_block_of_a_range_is_claimed_in_batches(harness: IPAMHarness) -> None:
    harness.add_pool("wide", "11.0.0.0/20")
    harness.take_call_counts()
    result = claim_range(harness, host_owner(NODE), "11.0.0.0/20")
    assert (len(result.claimed), result.failed) == (64, ())
    assert harness.take_call_counts() == (1 + 64 // BLOCKS_PER_COMMIT, 64 // BLOCKS_PER_COMMIT)
    assert set(harness.blocks().values()) == {host_owner(NODE)}


def test_blocks_of_other_owners_in_a_claimed_range_are_reported(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", node=OTHER_NODE)
    result = claim_range(harness, host_owner(NODE), "10.0.0.0/25")
    assert (texts(result.claimed), texts(result.failed)) == ([BLOCK_1], [BLOCK_0])


def test_a_repeated_claim_changes_nothing(harness: IPAMHarness) -> None:
    first = claim_range(harness, "virtual:lb")
    before = harness.blocks(), harness.affinities()
    harness.take_call_counts()
    assert claim_range(harness, "virtual:lb") == first
    assert harness.take_call_counts()[1] == 0
    assert (harness.blocks(), harness.affinities()) == before


@pytest.mark.parametrize("cidr", ["12.0.0.0/24", "10.0.0.0/30"])
def test_a_range_that_cannot_be_claimed_is_refused_before_anything_is_written(harness: IPAMHarness, cidr: str) -> None:
    harness.take_call_counts()
    with pytest.raises(ConfigurationError, match="The requested CIDR"):
        claim_range(harness, host_owner(NODE), cidr)
    assert harness.take_call_counts()[1] == 0


def test_a_block_that_another_node_claims_in_the_meantime_is_reported(harness: IPAMHarness) -> None:
    store = FaultyDatastore(harness.store, {1: RunBefore(lambda: harness.assign_or_refuse("h1", node=OTHER_NODE))})
    result = claim(store, host_owner(NODE), Prefix.parse("10.0.0.0/25"), pace=harness.pace)
    assert (texts(result.claimed), texts(result.failed)) == ([BLOCK_1], [BLOCK_0])
    assert harness.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


@pytest.mark.parametrize("fault", [LostReply(), LostRace()])
def test_a_claim_is_completed_after_a_fault(harness: IPAMHarness, fault: LostReply | LostRace) -> None:
    store = FaultyDatastore(harness.store, {1: fault})
    assert len(claim(store, host_owner(NODE), Prefix.parse(POOL), pace=harness.pace).claimed) == 16
    assert set(harness.affinities().values()) == {"confirmed"}


def test_a_pool_that_is_disabled_in_the_meantime_gives_no_block() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", POOL)
    store = FaultyDatastore(harness.store, {1: RunBefore(lambda: harness.disable_pool("main"))})
    with pytest.raises(ConfigurationError):
        claim(store, host_owner(NODE), Prefix.parse(POOL), pace=harness.pace)
    assert (harness.blocks(), harness.affinities()) == ({}, {})


# --- ensuring a block -------------------------------------------------------------------------------------------


def ensured_blocks(harness: IPAMHarness, node: str = NODE) -> list[str]:
    ensured = ensure_blocks(
        harness.store, make_request(None, ipv4(), ipv6(), node=node), order=first_block_first, pace=harness.pace
    )
    return texts(ensured.blocks)


def test_ensuring_blocks_again_returns_the_same_blocks(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/120")
    assert ensured_blocks(harness) == [BLOCK_0, "fd00::/122"]
    harness.take_call_counts()
    assert ensured_blocks(harness) == [BLOCK_0, "fd00::/122"]
    assert harness.take_call_counts()[1] == 0
    assert harness.held() == {}
    assert harness.assign_or_refuse("h1") == ["10.0.0.0"]


def test_a_family_without_a_pool_is_refused_and_claims_nothing_of_the_other(harness: IPAMHarness) -> None:
    with pytest.raises(NoPoolServes):
        ensured_blocks(harness)
    assert harness.blocks() == {}


# --- relinquishing ----------------------------------------------------------------------------------------------


def test_many_affinities_are_relinquished_in_batches(harness: IPAMHarness) -> None:
    harness.add_pool("wide", "11.0.0.0/20")
    claim_range(harness, host_owner(NODE), "11.0.0.0/20")
    harness.take_call_counts()
    result = relinquish_node(harness.store, NODE, ANYHOW, pace=harness.pace)
    assert len(result.relinquished) == 64
    assert harness.take_call_counts() == (1 + 64 // BLOCKS_PER_COMMIT, 64 // BLOCKS_PER_COMMIT)
    assert (harness.blocks(), harness.affinities()) == ({}, {})


def test_only_the_blocks_of_the_node_are_relinquished_in_both_families(harness: IPAMHarness) -> None:
    harness.add_pool("six", "fd00::/120")
    harness.assign_or_refuse("h1", ipv4(), ipv6())
    harness.assign_or_refuse("h2", node=OTHER_NODE)
    relinquish_node(harness.store, NODE, ANYHOW, pace=harness.pace)
    assert harness.affinities() == {(OTHER_NODE, BLOCK_1): "confirmed"}
    assert harness.blocks() == {BLOCK_0: "", BLOCK_1: host_owner(OTHER_NODE), "fd00::/122": ""}
    assert set(harness.held().values()) == {"h1", "h2"}


def test_a_block_in_use_is_refused_if_blocks_must_be_empty(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.put_owned_block(BLOCK_1)
    result = relinquish_node(harness.store, NODE, IF_EMPTY, pace=harness.pace)
    assert [key.name for key in result.relinquished] == [BLOCK_1]
    assert [str(refusal.block) for refusal in result.refused] == [BLOCK_0]
    assert harness.blocks() == {BLOCK_0: host_owner(NODE)}


def test_when_the_store_fails_earlier_batches_stay_relinquished(harness: IPAMHarness) -> None:
    harness.add_pool("wide", "11.0.0.0/20")
    claim_range(harness, host_owner(NODE), "11.0.0.0/20")
    with pytest.raises(Unavailable):
        relinquish_node(FaultyDatastore(harness.store, {3: LostRequest()}), NODE, ANYHOW, pace=harness.pace)
    assert len(harness.blocks()) == len(harness.affinities()) == 64 - 2 * BLOCKS_PER_COMMIT


def test_a_concurrent_assignment_keeps_its_block(harness: IPAMHarness) -> None:
    harness.put_owned_block(BLOCK_0)
    store = FaultyDatastore(harness.store, {1: RunBefore(lambda: harness.assign_or_refuse("h1"))})
    result = relinquish_node(store, NODE, IF_EMPTY, pace=harness.pace)
    assert result.relinquished == ()
    assert len(result.refused) == 1
    assert harness.held() == {"10.0.0.0": "h1"}
    harness.refresh_cache()
    assert harness.assign_or_refuse("h2") == ["10.0.0.1"]
    assert harness.affinities() == {(NODE, BLOCK_0): "confirmed"}


def test_a_block_is_relinquished_by_its_prefix(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", node=OTHER_NODE)
    put_virtual_block(harness, BLOCK_1)
    for cidr in (BLOCK_0, BLOCK_1):
        assert len(relinquish_block(harness.store, Prefix.parse(cidr), ANYHOW, pace=harness.pace).relinquished) == 1
    assert harness.blocks() == {BLOCK_0: ""}
    assert affinity_names(harness) == []


@pytest.mark.parametrize("cidr", [BLOCK_0, BLOCK_1])
def test_nothing_is_done_for_a_missing_block_or_one_without_an_owner(harness: IPAMHarness, cidr: str) -> None:
    harness.put_block(BLOCK_0, node="")
    harness.take_call_counts()
    assert relinquish_block(harness.store, Prefix.parse(cidr), IF_EMPTY, pace=harness.pace).relinquished == ()
    assert harness.take_call_counts() == (1, 0)


def test_trap_18_affinities_are_relinquished_without_their_pool(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.remove(ippool_key("main"))
    assert len(relinquish_node(harness.store, NODE, ANYHOW, pace=harness.pace).relinquished) == 1
    assert (harness.affinities(), harness.blocks()) == ({}, {BLOCK_0: ""})


# --- listing -----------------------------------------------------------------------------------------------------


def test_trap_19_only_the_affinities_of_one_owner_are_listed(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    harness.assign_or_refuse("h2", node=OTHER_NODE)
    harness.put_affinity(BLOCK_1, AffinityState.PENDING, f"{NODE}-long")
    store = RecordingStore(harness.store)
    found = affinities_of(store, host_owner(NODE), deadline=harness.deadline)
    assert [key.name for key in found] == [BLOCK_0]
    assert store.reads == [(List(AFFINITY, ("host", NODE), limit=PAGE_SIZE),)]


def test_affinities_are_listed_page_by_page(harness: IPAMHarness) -> None:
    harness.add_pool("narrow", "11.0.0.0/20", 32)
    for number in range(PAGE_SIZE + 1):
        harness.put_affinity(f"11.0.{number // 256}.{number % 256}/32", AffinityState.CONFIRMED)
    harness.take_call_counts()
    assert len(affinities_of(harness.store, host_owner(NODE), deadline=harness.deadline)) == PAGE_SIZE + 1
    assert harness.take_call_counts() == (2, 0)


def test_affinities_of_a_range_are_those_of_all_owners(harness: IPAMHarness) -> None:
    harness.add_pool("next", "10.0.4.0/24")
    harness.put_owned_block(BLOCK_0)
    put_virtual_block(harness, BLOCK_1)
    harness.put_owned_block("10.0.4.0/26", OTHER_NODE)
    harness.put_block("10.0.0.128/26")  # its affinity is missing
    harness.put_block("10.0.0.192/26", node="")
    found = affinities_within(harness.store, Prefix.parse(POOL), deadline=harness.deadline)
    assert sorted((*key.path[:2], key.name) for key in found) == [
        ("host", NODE, BLOCK_0),
        ("host", NODE, "10.0.0.128/26"),
        ("virtual", "lb", BLOCK_1),
    ]


def test_trap_33_virtual_and_host_affinities_are_relinquished_with_a_pool(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1")
    put_virtual_block(harness, BLOCK_1, f"virtual:{NODE}")
    harness.put_block("10.0.0.128/26", OTHER_NODE)
    harness.add_pool("next", "10.0.4.0/24")
    harness.put_owned_block("10.0.4.0/26")
    assert len(relinquish_pool(harness.store, Prefix.parse(POOL), ANYHOW, pace=harness.pace).relinquished) == 3
    assert affinity_names(harness) == [f"host:{NODE} 10.0.4.0/26"]
    assert harness.blocks() == {BLOCK_0: "", "10.0.4.0/26": host_owner(NODE)}


def test_trap_44_affinities_without_a_block_are_relinquished_with_node_and_pool(harness: IPAMHarness) -> None:
    for state, cidr in zip(AffinityState, (BLOCK_0, BLOCK_1, "10.0.0.128/26"), strict=True):
        harness.put_affinity(cidr, state)
        harness.put_affinity(cidr, state, OTHER_NODE)
    assert len(relinquish_node(harness.store, NODE, IF_EMPTY, pace=harness.pace).relinquished) == 3
    assert {node for node, _block in harness.affinities()} == {OTHER_NODE}
    assert len(relinquish_pool(harness.store, Prefix.parse(POOL), IF_EMPTY, pace=harness.pace).relinquished) == 3
    assert harness.affinities() == {}


def test_relinquishing_nothing_calls_no_store(harness: IPAMHarness) -> None:
    harness.take_call_counts()
    assert relinquish(harness.store, (), ANYHOW, pace=harness.pace).relinquished == ()
    assert harness.take_call_counts() == (0, 0)
