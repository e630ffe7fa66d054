"""Claims on blocks over a store: ranges, nodes, pools and single blocks, in batches and under faults."""

from collections.abc import Mapping, Sequence

import pytest

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.interface import Atomicity, Datastore
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.affinities import (
    BATCH,
    claim,
    claims_of,
    claims_within,
    ensure_blocks,
    relinquish,
    relinquish_block,
    relinquish_node,
    relinquish_pool,
)
from netplug_core.ipam.affinity import AFFINITY, Affinity, AffinityState, affinity_key, host_owner
from netplug_core.ipam.block import Block
from netplug_core.ipam.claiming import Claimed
from netplug_core.ipam.listing import PAGE
from netplug_core.ipam.refusals import NoPoolServes
from netplug_core.ipam.relinquish import Emptiness
from netplug_core.records import List, Query, Snapshot
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import Fault, FaultyDatastore, LostRace, LostReply, LostRequest, Meanwhile
from tests.unit.netplug_core.ipam.bench import NODE, OTHER, Bench, from_first, request, v4, v6
from tests.unit.netplug_core.ipam.release_bench import claim_names, texts

POOL, BLOCK_0, BLOCK_1 = "10.0.0.0/22", "10.0.0.0/26", "10.0.0.64/26"
ANYHOW, IF_EMPTY = Emptiness.NOT_REQUIRED, Emptiness.REQUIRED


@pytest.fixture(params=Atomicity)
def bench(request: pytest.FixtureRequest) -> Bench:
    """A cluster with one pool of sixteen blocks over a store of either sort."""
    made = Bench.new(request.param)
    made.add_pool("main", POOL)
    return made


class Asked(FaultyDatastore):
    """A store that notes what it is asked."""

    def __init__(self, inner: Datastore, script: Mapping[int, Fault]) -> None:
        super().__init__(inner, script)
        self.asked: list[Query] = []

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        self.asked.extend(queries)
        return super().read(queries, deadline=deadline)


def claimed(bench: Bench, owner: str, cidr: str = POOL) -> Claimed:
    return claim(bench.store, owner, Prefix.parse(cidr), pace=bench.pace)


def give_virtual(bench: Bench, cidr: str, owner: str = "virtual:lb") -> None:
    """An empty block of somebody who is no node."""
    block = Block.new(Prefix.parse(cidr), owner=owner, now_ns=0)
    bench.put(block.key, block)
    bench.put(affinity_key(owner, block.prefix), Affinity(state=AffinityState.CONFIRMED))


# --- claiming a range -------------------------------------------------------------------------------------------


def test_every_block_of_a_range_is_claimed_in_batches(bench: Bench) -> None:
    bench.add_pool("wide", "11.0.0.0/20")
    bench.spent()
    result = claimed(bench, host_owner(NODE), "11.0.0.0/20")
    assert (len(result.claimed), result.failed) == (64, ())
    assert bench.spent() == (1 + 64 // BATCH, 64 // BATCH)
    assert set(bench.blocks().values()) == {host_owner(NODE)}


def test_a_part_of_a_pool_is_claimed_and_what_others_have_is_told(bench: Bench) -> None:
    bench.take("h1", node=OTHER)
    result = claimed(bench, host_owner(NODE), "10.0.0.0/25")
    assert (texts(result.claimed), texts(result.failed)) == ([BLOCK_1], [BLOCK_0])


def test_claiming_twice_is_claiming_once(bench: Bench) -> None:
    first = claimed(bench, "virtual:lb")
    before = bench.blocks(), bench.claims()
    bench.spent()
    assert claimed(bench, "virtual:lb") == first
    assert bench.spent()[1] == 0
    assert (bench.blocks(), bench.claims()) == before


@pytest.mark.parametrize("cidr", ["12.0.0.0/24", "10.0.0.0/30"])
def test_a_range_that_cannot_be_claimed_is_refused_before_anything_is_written(bench: Bench, cidr: str) -> None:
    bench.spent()
    with pytest.raises(ConfigurationError, match="The requested CIDR"):
        claimed(bench, host_owner(NODE), cidr)
    assert bench.spent()[1] == 0


def test_a_block_that_another_claims_meanwhile_is_the_others(bench: Bench) -> None:
    rival = FaultyDatastore(bench.store, {1: Meanwhile(lambda: bench.take("h1", node=OTHER))})
    result = claim(rival, host_owner(NODE), Prefix.parse("10.0.0.0/25"), pace=bench.pace)
    assert (texts(result.claimed), texts(result.failed)) == ([BLOCK_1], [BLOCK_0])
    assert bench.claims() == {(OTHER, BLOCK_0): "confirmed", (NODE, BLOCK_1): "confirmed"}


@pytest.mark.parametrize("mishap", [LostReply(), LostRace()])
def test_after_a_mishap_a_claim_goes_on(bench: Bench, mishap: LostReply | LostRace) -> None:
    store = FaultyDatastore(bench.store, {1: mishap})
    assert len(claim(store, host_owner(NODE), Prefix.parse(POOL), pace=bench.pace).claimed) == 16
    assert set(bench.claims().values()) == {"confirmed"}


def test_a_pool_that_is_disabled_meanwhile_gives_no_block() -> None:
    bench = Bench.new()
    bench.add_pool("main", POOL)
    store = FaultyDatastore(bench.store, {1: Meanwhile(lambda: bench.disable_pool("main"))})
    with pytest.raises(ConfigurationError):
        claim(store, host_owner(NODE), Prefix.parse(POOL), pace=bench.pace)
    assert (bench.blocks(), bench.claims()) == ({}, {})


# --- ensuring a block -------------------------------------------------------------------------------------------


def ensured(bench: Bench, node: str = NODE) -> list[str]:
    made = ensure_blocks(bench.store, request(None, v4(), v6(), node=node), order=from_first, pace=bench.pace)
    return texts(made.blocks)


def test_a_node_has_a_block_of_each_family_and_the_same_ones_again(bench: Bench) -> None:
    bench.add_pool("six", "fd00::/120")
    assert ensured(bench) == [BLOCK_0, "fd00::/122"]
    bench.spent()
    assert ensured(bench) == [BLOCK_0, "fd00::/122"]
    assert bench.spent()[1] == 0
    assert bench.held() == {}
    assert bench.take("h1") == ["10.0.0.0"]


def test_a_family_without_a_pool_is_refused_and_claims_nothing_of_the_other(bench: Bench) -> None:
    with pytest.raises(NoPoolServes):
        ensured(bench)
    assert bench.blocks() == {}


# --- giving up --------------------------------------------------------------------------------------------------


def test_many_claims_are_given_up_in_batches(bench: Bench) -> None:
    bench.add_pool("wide", "11.0.0.0/20")
    claimed(bench, host_owner(NODE), "11.0.0.0/20")
    bench.spent()
    result = relinquish_node(bench.store, NODE, ANYHOW, pace=bench.pace)
    assert len(result.gone) == 64
    assert bench.spent() == (1 + 64 // BATCH, 64 // BATCH)
    assert (bench.blocks(), bench.claims()) == ({}, {})


def test_a_node_gives_up_the_blocks_of_both_families_and_no_others(bench: Bench) -> None:
    bench.add_pool("six", "fd00::/120")
    bench.take("h1", v4(), v6())
    bench.take("h2", node=OTHER)
    relinquish_node(bench.store, NODE, ANYHOW, pace=bench.pace)
    assert bench.claims() == {(OTHER, BLOCK_1): "confirmed"}
    assert bench.blocks() == {BLOCK_0: "", BLOCK_1: host_owner(OTHER), "fd00::/122": ""}
    assert set(bench.held().values()) == {"h1", "h2"}


def test_a_node_keeps_what_it_uses_where_blocks_must_be_empty(bench: Bench) -> None:
    bench.take("h1")
    bench.give_block(BLOCK_1)
    result = relinquish_node(bench.store, NODE, IF_EMPTY, pace=bench.pace)
    assert [key.name for key in result.gone] == [BLOCK_1]
    assert [str(refusal.block) for refusal in result.refused] == [BLOCK_0]
    assert bench.blocks() == {BLOCK_0: host_owner(NODE)}


def test_a_store_that_goes_away_leaves_given_up_what_was(bench: Bench) -> None:
    bench.add_pool("wide", "11.0.0.0/20")
    claimed(bench, host_owner(NODE), "11.0.0.0/20")
    with pytest.raises(Unavailable):
        relinquish_node(FaultyDatastore(bench.store, {3: LostRequest()}), NODE, ANYHOW, pace=bench.pace)
    assert len(bench.blocks()) == len(bench.claims()) == 64 - 2 * BATCH


def test_a_pod_that_comes_while_its_block_is_given_up_keeps_its_address(bench: Bench) -> None:
    bench.give_block(BLOCK_0)
    store = FaultyDatastore(bench.store, {1: Meanwhile(lambda: bench.take("h1"))})
    result = relinquish_node(store, NODE, IF_EMPTY, pace=bench.pace)
    assert result.gone == ()
    assert len(result.refused) == 1
    assert bench.held() == {"10.0.0.0": "h1"}
    assert bench.take("h2") == ["10.0.0.1"]
    assert bench.claims() == {(NODE, BLOCK_0): "confirmed"}


def test_a_block_may_be_given_up_by_its_prefix_alone(bench: Bench) -> None:
    bench.take("h1", node=OTHER)
    give_virtual(bench, BLOCK_1)
    for cidr in (BLOCK_0, BLOCK_1):
        assert len(relinquish_block(bench.store, Prefix.parse(cidr), ANYHOW, pace=bench.pace).gone) == 1
    assert bench.blocks() == {BLOCK_0: ""}
    assert claim_names(bench) == []


@pytest.mark.parametrize("cidr", [BLOCK_0, BLOCK_1])
def test_a_block_of_nobody_or_none_at_all_is_given_up_already(bench: Bench, cidr: str) -> None:
    bench.leave_block(BLOCK_0, node="")
    bench.spent()
    assert relinquish_block(bench.store, Prefix.parse(cidr), IF_EMPTY, pace=bench.pace).gone == ()
    assert bench.spent() == (1, 0)


def test_trap_18_a_nodes_claims_are_given_up_though_their_pool_is_gone(bench: Bench) -> None:
    bench.take("h1")
    bench.remove(ippool_key("main"))
    assert len(relinquish_node(bench.store, NODE, ANYHOW, pace=bench.pace).gone) == 1
    assert (bench.claims(), bench.blocks()) == ({}, {BLOCK_0: ""})


# --- which claims there are -------------------------------------------------------------------------------------


def test_trap_19_only_one_owners_claims_are_listed(bench: Bench) -> None:
    bench.take("h1")
    bench.take("h2", node=OTHER)
    bench.leave_claim(BLOCK_1, AffinityState.PENDING, f"{NODE}-long")
    store = Asked(bench.store, {})
    found = claims_of(store, host_owner(NODE), deadline=bench.deadline)
    assert [key.name for key in found] == [BLOCK_0]
    assert store.asked == [List(AFFINITY, ("host", NODE), limit=PAGE)]


def test_claims_are_listed_page_by_page(bench: Bench) -> None:
    bench.add_pool("narrow", "11.0.0.0/20", 32)
    for number in range(PAGE + 1):
        bench.leave_claim(f"11.0.{number // 256}.{number % 256}/32", AffinityState.CONFIRMED)
    bench.spent()
    assert len(claims_of(bench.store, host_owner(NODE), deadline=bench.deadline)) == PAGE + 1
    assert bench.spent() == (2, 0)


def test_a_pools_claims_are_those_in_its_range_whoever_made_them(bench: Bench) -> None:
    bench.add_pool("next", "10.0.4.0/24")
    bench.give_block(BLOCK_0)
    give_virtual(bench, BLOCK_1)
    bench.give_block("10.0.4.0/26", OTHER)
    bench.leave_block("10.0.0.128/26")  # its claim was lost
    bench.leave_block("10.0.0.192/26", node="")
    found = claims_within(bench.store, Prefix.parse(POOL), deadline=bench.deadline)
    assert sorted((*key.path[:2], key.name) for key in found) == [
        ("host", NODE, BLOCK_0),
        ("host", NODE, "10.0.0.128/26"),
        ("virtual", "lb", BLOCK_1),
    ]


def test_trap_33_virtual_and_host_claims_are_both_given_up_with_a_pool(bench: Bench) -> None:
    bench.take("h1")
    give_virtual(bench, BLOCK_1, f"virtual:{NODE}")
    bench.leave_block("10.0.0.128/26", OTHER)
    bench.add_pool("next", "10.0.4.0/24")
    bench.give_block("10.0.4.0/26")
    assert len(relinquish_pool(bench.store, Prefix.parse(POOL), ANYHOW, pace=bench.pace).gone) == 3
    assert claim_names(bench) == [f"host:{NODE} 10.0.4.0/26"]
    assert bench.blocks() == {BLOCK_0: "", "10.0.4.0/26": host_owner(NODE)}


def test_trap_44_claims_without_a_block_go_with_node_and_pool(bench: Bench) -> None:
    for state, cidr in zip(AffinityState, (BLOCK_0, BLOCK_1, "10.0.0.128/26"), strict=True):
        bench.leave_claim(cidr, state)
        bench.leave_claim(cidr, state, OTHER)
    assert len(relinquish_node(bench.store, NODE, IF_EMPTY, pace=bench.pace).gone) == 3
    assert {node for node, _block in bench.claims()} == {OTHER}
    assert len(relinquish_pool(bench.store, Prefix.parse(POOL), IF_EMPTY, pace=bench.pace).gone) == 3
    assert bench.claims() == {}


def test_giving_up_nothing_asks_nothing(bench: Bench) -> None:
    bench.spent()
    assert relinquish(bench.store, (), ANYHOW, pace=bench.pace).gone == ()
    assert bench.spent() == (0, 0)
