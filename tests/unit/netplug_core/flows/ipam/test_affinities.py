"""Claims on blocks over a store: ranges, nodes, pools and single blocks, in batches and under faults."""

from collections.abc import Mapping, Sequence

import pytest

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
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
from netplug_core.ipam.allocation.batches import BLOCKS_PER_COMMIT
from netplug_core.ipam.allocation.claim import ClaimResult
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.model.affinity import AFFINITY, Affinity, AffinityState, affinity_key, host_owner
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.outcome.refusals import NoPoolServes
from netplug_core.records import PAGE_SIZE, List, Query, Snapshot
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, first_block_first, ipv4, ipv6, make_request
from tests.harness.ipam_release import affinity_names, texts

POOL, BLOCK_0, BLOCK_1 = "10.0.0.0/22", "10.0.0.0/26", "10.0.0.64/26"
ANYHOW, IF_EMPTY = Emptiness.NOT_REQUIRED, Emptiness.REQUIRED


@pytest.fixture(params=MemoryMode)
def bench(request: pytest.FixtureRequest) -> IPAMHarness:
    """A cluster with one pool of sixteen blocks over a store of either sort."""
    made = IPAMHarness.new(request.param)
    made.add_pool("main", POOL)
    return made


class QueryRecordingDatastore(FaultyDatastore):
    """A store that notes what it is asked."""

    def __init__(self, inner: Datastore, script: Mapping[int, Fault]) -> None:
        super().__init__(inner, script)
        self.queries: list[Query] = []

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        self.queries.extend(queries)
        return super().read(queries, deadline=deadline)


def claimed(harness: IPAMHarness, owner: str, cidr: str = POOL) -> ClaimResult:
    return claim(harness.store, owner, Prefix.parse(cidr), pace=harness.pace)


def give_virtual(harness: IPAMHarness, cidr: str, owner: str = "virtual:lb") -> None:
    """An empty block of somebody who is no node."""
    block = Block.new(Prefix.parse(cidr), owner=owner, now_ns=0)
    harness.put(block.key, block)
    harness.put(affinity_key(owner, block.prefix), Affinity(state=AffinityState.CONFIRMED))


# --- claiming a range -------------------------------------------------------------------------------------------


def test_every_block_of_a_range_is_claimed_in_batches(bench: IPAMHarness) -> None:
    bench.add_pool("wide", "11.0.0.0/20")
    bench.take_call_counts()
    result = claimed(bench, host_owner(NODE), "11.0.0.0/20")
    assert (len(result.claimed), result.failed) == (64, ())
    assert bench.take_call_counts() == (1 + 64 // BLOCKS_PER_COMMIT, 64 // BLOCKS_PER_COMMIT)
    assert set(bench.blocks().values()) == {host_owner(NODE)}


def test_a_part_of_a_pool_is_claimed_and_what_others_have_is_told(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", node=OTHER_NODE)
    result = claimed(bench, host_owner(NODE), "10.0.0.0/25")
    assert (texts(result.claimed), texts(result.failed)) == ([BLOCK_1], [BLOCK_0])


def test_claiming_twice_is_claiming_once(bench: IPAMHarness) -> None:
    first = claimed(bench, "virtual:lb")
    before = bench.blocks(), bench.affinities()
    bench.take_call_counts()
    assert claimed(bench, "virtual:lb") == first
    assert bench.take_call_counts()[1] == 0
    assert (bench.blocks(), bench.affinities()) == before


@pytest.mark.parametrize("cidr", ["12.0.0.0/24", "10.0.0.0/30"])
def test_a_range_that_cannot_be_claimed_is_refused_before_anything_is_written(bench: IPAMHarness, cidr: str) -> None:
    bench.take_call_counts()
    with pytest.raises(ConfigurationError, match="The requested CIDR"):
        claimed(bench, host_owner(NODE), cidr)
    assert bench.take_call_counts()[1] == 0


def test_a_block_that_another_claims_meanwhile_is_the_others(bench: IPAMHarness) -> None:
    rival = FaultyDatastore(bench.store, {1: RunBefore(lambda: bench.assign_or_refuse("h1", node=OTHER_NODE))})
    result = claim(rival, host_owner(NODE), Prefix.parse("10.0.0.0/25"), pace=bench.pace)
    assert (texts(result.claimed), texts(result.failed)) == ([BLOCK_1], [BLOCK_0])
    assert bench.affinities() == {(OTHER_NODE, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


@pytest.mark.parametrize("mishap", [LostReply(), LostRace()])
def test_after_a_mishap_a_claim_goes_on(bench: IPAMHarness, mishap: LostReply | LostRace) -> None:
    store = FaultyDatastore(bench.store, {1: mishap})
    assert len(claim(store, host_owner(NODE), Prefix.parse(POOL), pace=bench.pace).claimed) == 16
    assert set(bench.affinities().values()) == {"confirmed"}


def test_a_pool_that_is_disabled_meanwhile_gives_no_block() -> None:
    bench = IPAMHarness.new()
    bench.add_pool("main", POOL)
    store = FaultyDatastore(bench.store, {1: RunBefore(lambda: bench.disable_pool("main"))})
    with pytest.raises(ConfigurationError):
        claim(store, host_owner(NODE), Prefix.parse(POOL), pace=bench.pace)
    assert (bench.blocks(), bench.affinities()) == ({}, {})


# --- ensuring a block -------------------------------------------------------------------------------------------


def ensured(harness: IPAMHarness, node: str = NODE) -> list[str]:
    made = ensure_blocks(
        harness.store, make_request(None, ipv4(), ipv6(), node=node), order=first_block_first, pace=harness.pace
    )
    return texts(made.blocks)


def test_a_node_has_a_block_of_each_family_and_the_same_ones_again(bench: IPAMHarness) -> None:
    bench.add_pool("six", "fd00::/120")
    assert ensured(bench) == [BLOCK_0, "fd00::/122"]
    bench.take_call_counts()
    assert ensured(bench) == [BLOCK_0, "fd00::/122"]
    assert bench.take_call_counts()[1] == 0
    assert bench.held() == {}
    assert bench.assign_or_refuse("h1") == ["10.0.0.0"]


def test_a_family_without_a_pool_is_refused_and_claims_nothing_of_the_other(bench: IPAMHarness) -> None:
    with pytest.raises(NoPoolServes):
        ensured(bench)
    assert bench.blocks() == {}


# --- giving up --------------------------------------------------------------------------------------------------


def test_many_claims_are_given_up_in_batches(bench: IPAMHarness) -> None:
    bench.add_pool("wide", "11.0.0.0/20")
    claimed(bench, host_owner(NODE), "11.0.0.0/20")
    bench.take_call_counts()
    result = relinquish_node(bench.store, NODE, ANYHOW, pace=bench.pace)
    assert len(result.relinquished) == 64
    assert bench.take_call_counts() == (1 + 64 // BLOCKS_PER_COMMIT, 64 // BLOCKS_PER_COMMIT)
    assert (bench.blocks(), bench.affinities()) == ({}, {})


def test_a_node_gives_up_the_blocks_of_both_families_and_no_others(bench: IPAMHarness) -> None:
    bench.add_pool("six", "fd00::/120")
    bench.assign_or_refuse("h1", ipv4(), ipv6())
    bench.assign_or_refuse("h2", node=OTHER_NODE)
    relinquish_node(bench.store, NODE, ANYHOW, pace=bench.pace)
    assert bench.affinities() == {(OTHER_NODE, BLOCK_1): "confirmed"}
    assert bench.blocks() == {BLOCK_0: "", BLOCK_1: host_owner(OTHER_NODE), "fd00::/122": ""}
    assert set(bench.held().values()) == {"h1", "h2"}


def test_a_node_keeps_what_it_uses_where_blocks_must_be_empty(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.put_owned_block(BLOCK_1)
    result = relinquish_node(bench.store, NODE, IF_EMPTY, pace=bench.pace)
    assert [key.name for key in result.relinquished] == [BLOCK_1]
    assert [str(refusal.block) for refusal in result.refused] == [BLOCK_0]
    assert bench.blocks() == {BLOCK_0: host_owner(NODE)}


def test_a_store_that_goes_away_leaves_given_up_what_was(bench: IPAMHarness) -> None:
    bench.add_pool("wide", "11.0.0.0/20")
    claimed(bench, host_owner(NODE), "11.0.0.0/20")
    with pytest.raises(Unavailable):
        relinquish_node(FaultyDatastore(bench.store, {3: LostRequest()}), NODE, ANYHOW, pace=bench.pace)
    assert len(bench.blocks()) == len(bench.affinities()) == 64 - 2 * BLOCKS_PER_COMMIT


def test_a_pod_that_comes_while_its_block_is_given_up_keeps_its_address(bench: IPAMHarness) -> None:
    bench.put_owned_block(BLOCK_0)
    store = FaultyDatastore(bench.store, {1: RunBefore(lambda: bench.assign_or_refuse("h1"))})
    result = relinquish_node(store, NODE, IF_EMPTY, pace=bench.pace)
    assert result.relinquished == ()
    assert len(result.refused) == 1
    assert bench.held() == {"10.0.0.0": "h1"}
    assert bench.assign_or_refuse("h2") == ["10.0.0.1"]
    assert bench.affinities() == {(NODE, BLOCK_0): "confirmed"}


def test_a_block_may_be_given_up_by_its_prefix_alone(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", node=OTHER_NODE)
    give_virtual(bench, BLOCK_1)
    for cidr in (BLOCK_0, BLOCK_1):
        assert len(relinquish_block(bench.store, Prefix.parse(cidr), ANYHOW, pace=bench.pace).relinquished) == 1
    assert bench.blocks() == {BLOCK_0: ""}
    assert affinity_names(bench) == []


@pytest.mark.parametrize("cidr", [BLOCK_0, BLOCK_1])
def test_a_block_of_nobody_or_none_at_all_is_given_up_already(bench: IPAMHarness, cidr: str) -> None:
    bench.put_block(BLOCK_0, node="")
    bench.take_call_counts()
    assert relinquish_block(bench.store, Prefix.parse(cidr), IF_EMPTY, pace=bench.pace).relinquished == ()
    assert bench.take_call_counts() == (1, 0)


def test_trap_18_a_nodes_claims_are_given_up_though_their_pool_is_gone(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.remove(ippool_key("main"))
    assert len(relinquish_node(bench.store, NODE, ANYHOW, pace=bench.pace).relinquished) == 1
    assert (bench.affinities(), bench.blocks()) == ({}, {BLOCK_0: ""})


# --- which claims there are -------------------------------------------------------------------------------------


def test_trap_19_only_one_owners_claims_are_listed(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    bench.assign_or_refuse("h2", node=OTHER_NODE)
    bench.put_affinity(BLOCK_1, AffinityState.PENDING, f"{NODE}-long")
    store = QueryRecordingDatastore(bench.store, {})
    found = affinities_of(store, host_owner(NODE), deadline=bench.deadline)
    assert [key.name for key in found] == [BLOCK_0]
    assert store.queries == [List(AFFINITY, ("host", NODE), limit=PAGE_SIZE)]


def test_claims_are_listed_page_by_page(bench: IPAMHarness) -> None:
    bench.add_pool("narrow", "11.0.0.0/20", 32)
    for number in range(PAGE_SIZE + 1):
        bench.put_affinity(f"11.0.{number // 256}.{number % 256}/32", AffinityState.CONFIRMED)
    bench.take_call_counts()
    assert len(affinities_of(bench.store, host_owner(NODE), deadline=bench.deadline)) == PAGE_SIZE + 1
    assert bench.take_call_counts() == (2, 0)


def test_a_pools_claims_are_those_in_its_range_whoever_made_them(bench: IPAMHarness) -> None:
    bench.add_pool("next", "10.0.4.0/24")
    bench.put_owned_block(BLOCK_0)
    give_virtual(bench, BLOCK_1)
    bench.put_owned_block("10.0.4.0/26", OTHER_NODE)
    bench.put_block("10.0.0.128/26")  # its claim was lost
    bench.put_block("10.0.0.192/26", node="")
    found = affinities_within(bench.store, Prefix.parse(POOL), deadline=bench.deadline)
    assert sorted((*key.path[:2], key.name) for key in found) == [
        ("host", NODE, BLOCK_0),
        ("host", NODE, "10.0.0.128/26"),
        ("virtual", "lb", BLOCK_1),
    ]


def test_trap_33_virtual_and_host_claims_are_both_given_up_with_a_pool(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1")
    give_virtual(bench, BLOCK_1, f"virtual:{NODE}")
    bench.put_block("10.0.0.128/26", OTHER_NODE)
    bench.add_pool("next", "10.0.4.0/24")
    bench.put_owned_block("10.0.4.0/26")
    assert len(relinquish_pool(bench.store, Prefix.parse(POOL), ANYHOW, pace=bench.pace).relinquished) == 3
    assert affinity_names(bench) == [f"host:{NODE} 10.0.4.0/26"]
    assert bench.blocks() == {BLOCK_0: "", "10.0.4.0/26": host_owner(NODE)}


def test_trap_44_claims_without_a_block_go_with_node_and_pool(bench: IPAMHarness) -> None:
    for state, cidr in zip(AffinityState, (BLOCK_0, BLOCK_1, "10.0.0.128/26"), strict=True):
        bench.put_affinity(cidr, state)
        bench.put_affinity(cidr, state, OTHER_NODE)
    assert len(relinquish_node(bench.store, NODE, IF_EMPTY, pace=bench.pace).relinquished) == 3
    assert {node for node, _block in bench.affinities()} == {OTHER_NODE}
    assert len(relinquish_pool(bench.store, Prefix.parse(POOL), IF_EMPTY, pace=bench.pace).relinquished) == 3
    assert bench.affinities() == {}


def test_giving_up_nothing_asks_nothing(bench: IPAMHarness) -> None:
    bench.take_call_counts()
    assert relinquish(bench.store, (), ANYHOW, pace=bench.pace).relinquished == ()
    assert bench.take_call_counts() == (0, 0)
