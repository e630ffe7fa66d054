"""What a node gets whose own blocks are full, in a cluster in which all blocks are claimed."""

from collections.abc import Collection

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.allocation.decide import decide
from netplug_core.ipam.allocation.request import Assignment, AssignRequest
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    affinity_key,
    block_key,
    host_owner,
)
from netplug_core.ipam.outcome import BlockOutcome, BlockTrace, PoolExhausted, PoolsExhausted
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import PAGE_SIZE, Create, Decision, Get, List, NeedMore, Query, Update
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, first_block_first, ipv4, make_request

SAMPLED = 8
BLOCK_COUNT = PAGE_SIZE + 24
POOL = Prefix.parse("10.0.0.0/21")
FULL_NODE = "node-full"


def fill(harness: IPAMHarness, *, count: int, with_room: Collection[int] = (), length: int = 32) -> None:
    """Blocks that others have claimed, all of them full but for these: in each block with room one address is held."""
    now_ns = harness.clock.now_ns()
    for number in range(count):
        prefix, owner = POOL.subprefix(number, length), host_owner(f"node-{number}")
        block = Block.new(prefix, owner=owner, now_ns=now_ns)
        held = block.free[:1] if number in with_room else block.free
        if number not in with_room or length < POOL.family.width:
            block = block.assign(held, Attribute(handle=f"pod-{number}"))
        affinity = Affinity(state=AffinityState.CONFIRMED)
        harness.commit(Create(affinity_key(owner, prefix), affinity), Create(block_key(prefix), block))


def make_cluster(
    mode: MemoryMode = MemoryMode.ATOMIC, *, count: int, with_room: Collection[int] = (), length: int = 32
) -> IPAMHarness:
    """A cluster with a pool of so many blocks, each of one address by default."""
    harness = IPAMHarness.new(mode)
    harness.add_pool("main", str(POOL.subprefix(0, length - (count - 1).bit_length())), length)
    fill(harness, count=count, with_room=with_room, length=length)
    harness.refresh_cache()
    return harness


def decide_with(harness: IPAMHarness, draw: float, request: AssignRequest) -> tuple[Decision[Assignment], list[Query]]:
    """A decision with this draw, and all that was read for it."""
    decision, reads = harness.decision_and_reads(request, draw=lambda: draw)
    return decision, [query for read in reads for query in read]


def read_blocks(queries: list[Query]) -> set[str]:
    return {query.key.name for query in queries if isinstance(query, Get) and query.kind == BLOCK}


# --- a few blocks of random owners --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MemoryMode)
def test_borrowing_takes_the_same_reads_however_large_the_cluster_is(mode: MemoryMode) -> None:
    spent: list[tuple[int, int]] = []
    for count in (64, 1024):
        harness = make_cluster(mode, count=count, with_room=range(0, count, 2), length=31)
        assert harness.assign_or_refuse("warm-up")  # the first address of this cluster may be found nearby
        harness.take_call_counts()
        _decision, reads = harness.decision_and_reads(make_request("h"))
        assert not any(isinstance(query, List) and query.kind == BLOCK for read in reads for query in read)
        spent.append((len(reads), sum(map(len, reads))))
    assert spent[0] == spent[1]


@pytest.mark.parametrize("draw", [0.0, 0.3, 0.999, 1.0])
def test_the_draw_says_whose_blocks_are_looked_at(draw: float) -> None:
    harness = make_cluster(count=64)
    _decision, queries = decide_with(harness, draw, make_request("h"))
    nearby = {str(POOL.subprefix(number, 32)) for number in range(SAMPLED)}
    start = int(draw * 64) % 8
    evenly = {str(POOL.subprefix(number, 32)) for number in range(start, 64, 8)}
    over = {name for name in read_blocks(queries) if not name.endswith("/32")}
    assert read_blocks(queries) - over == nearby | evenly


def test_one_number_is_drawn_for_a_call_and_only_if_something_is_borrowed() -> None:
    harness = make_cluster(count=64, with_room=range(32, 64))
    drawn: list[float] = []

    def chance() -> float:
        drawn.append(0.5)
        return 0.5

    ipam = evolve(harness.ipam(), chance=chance)
    harness.add_pool("free", "11.0.0.0/24")
    for handle, pool, numbers in (("h1", "free", 0), ("h2", "main", 1)):
        ipam.assign(make_request(handle, ipv4(1, pool)), NO_ENDPOINT, deadline=harness.deadline)
        assert len(drawn) == numbers


def test_own_blocks_are_not_sampled() -> None:
    harness = make_cluster(count=16)
    harness.put_affinity(str(POOL.subprefix(15, 32)), AffinityState.CONFIRMED, NODE)
    harness.remove(affinity_key(host_owner("node-15"), POOL.subprefix(15, 32)))
    _decision, queries = decide_with(harness, 0.5, make_request("h"))
    sampled = [query for query in queries if isinstance(query, Get) and query.kind == BLOCK]
    assert sum(query.key.name == str(POOL.subprefix(15, 32)) for query in sampled) == 1  # as an own block


def test_of_the_sample_unused_blocks_are_taken_over_before_anything_is_borrowed() -> None:
    harness = make_cluster(count=64, with_room=range(64), length=31)
    unused = POOL.subprefix(24, 31)
    found = harness.find_record(block_key(unused))
    assert found is not None
    empty = Block.new(unused, owner="host:node-24", now_ns=harness.clock.now_ns())
    harness.commit(Update(found.key, empty, found.revision))
    harness.clock.sleep(61)
    assert harness.assign_or_refuse("h") == [str(unused.first)]
    assert harness.block(str(unused)).owner == host_owner(NODE)


def test_no_block_is_taken_over_twice() -> None:
    """A request that needs more than the sample has goes on with the list of all blocks."""
    harness = make_cluster(count=64, length=31, with_room=range(64))
    for number in range(64):
        prefix = POOL.subprefix(number, 31)
        found = harness.find_record(block_key(prefix))
        assert found is not None
        harness.commit(Update(found.key, Block.new(prefix, owner=found.value.owner, now_ns=1), found.revision))
    given = harness.assign_or_refuse("h", ipv4(20))
    assert len(set(given)) == len(given) == 20
    assert sum(owner == host_owner(NODE) for owner in harness.blocks().values()) == 10


def test_a_claim_without_a_block_is_no_reason_to_borrow() -> None:
    """A node that died between the affinity and the block owns nothing."""
    harness = make_cluster(count=64, with_room=range(32))
    phantom = POOL.subprefix(40, 32)
    harness.remove(block_key(phantom))
    assert harness.assign_or_refuse("h") == [str(phantom.first)]
    assert harness.block(str(phantom)).owner == host_owner(NODE)


def test_a_node_at_its_limit_borrows_from_a_claimed_block_without_looking_for_new_ones() -> None:
    harness = make_cluster(count=64, with_room=(8,), length=31)
    request = evolve(make_request("h", ipv4(1, "main")), node=FULL_NODE)
    harness.add_pool("own", "11.0.0.0/24", 32)
    harness.assign_or_refuse("h0", ipv4(20, "own"), node=FULL_NODE)
    decision, queries = decide_with(harness, 0.0, request)
    assert isinstance(decision.result, Assignment)
    assert not any(isinstance(query, List) and query.kind == BLOCK for query in queries)


# --- all blocks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MemoryMode)
@pytest.mark.parametrize("place, pages", [(8, 1), (PAGE_SIZE - 1, 1), (PAGE_SIZE, 2), (BLOCK_COUNT - 1, 2)])
def test_the_last_free_address_is_found_wherever_it_is(mode: MemoryMode, place: int, pages: int) -> None:
    harness = make_cluster(mode, count=1024)
    last = sorted(harness.blocks())[place]  # in the order of the pages
    found = harness.find_record(block_key(Prefix.parse(last)))
    assert found is not None
    harness.commit(Update(found.key, found.value.release(frozenset((Ordinal(0),))), found.revision))
    harness.refresh_cache()
    decision, reads = harness.decision_and_reads(make_request("h"), draw=lambda: 0.05)
    assert isinstance(decision.result, Assignment)
    assert [str(given.address) for given in decision.result.addresses] == [last.partition("/")[0]]
    lists = [query for read in reads for query in read if isinstance(query, List) and query.kind == BLOCK]
    assert len(lists) == pages
    assert len(reads) <= 5 + pages


def test_a_full_cluster_is_refused_and_counted() -> None:
    harness = make_cluster(count=1024)
    decision, reads = harness.decision_and_reads(make_request("h"))
    assert isinstance(decision.result, PoolsExhausted)
    assert decision.trace[-1] == PoolExhausted(
        pool="main", prefix=Prefix.parse("10.0.0.0/22"), used=1024, reserved=0, cooling=0, free_elsewhere=0
    )
    full = [entry for entry in decision.trace if isinstance(entry, BlockTrace) and entry.outcome is BlockOutcome.FULL]
    assert {entry.block for entry in full} == {POOL.subprefix(number, 32) for number in range(1024)}
    assert len(reads) == 6


def test_full_blocks_are_not_decoded_to_be_passed_over() -> None:
    harness = make_cluster(count=64, with_room=(9,), length=31)
    _decision, reads = harness.decision_and_reads(make_request("h"), draw=lambda: 0.05)
    (page,) = [query for read in reads for query in read if isinstance(query, List) and query.kind == BLOCK]
    found = harness.read(page)
    assert [record.key.name for record in found.list(page)] == [str(POOL.subprefix(9, 31))]
    assert len(found.keys(page)) == 63


def test_an_ownerless_block_that_no_affinity_names_is_found() -> None:
    harness = make_cluster(count=64, length=31)
    ownerless = POOL.subprefix(33, 31)
    harness.remove(block_key(ownerless))
    harness.put_block(str(ownerless), node="")
    assert harness.assign_or_refuse("h") == [str(ownerless.first)]
    assert harness.block(str(ownerless)).owner == host_owner(NODE)


@pytest.mark.parametrize("size", [64, 16])
def test_where_what_looks_unclaimed_is_taken_the_list_of_all_blocks_decides(size: int) -> None:
    """Blocks of others without affinities: nothing is borrowed while one block is left."""
    harness = IPAMHarness.new()
    harness.add_pool("main", str(POOL.subprefix(0, 31 - (size - 1).bit_length())), 31)
    for number in range(size - 1):
        harness.put_block(str(POOL.subprefix(number, 31)), node=OTHER_NODE)
    assert harness.assign_or_refuse("h") == [str(POOL.subprefix(size - 1, 31).first)]


def test_what_nobody_can_read_is_passed_over_in_a_list_of_affinities() -> None:
    """An affinity whose name is no prefix says nothing about any block."""
    harness = make_cluster(count=64, with_room=(8,), length=31)
    harness.put(AFFINITY.key("host", "node-x", "ipv4", "no-prefix"), Affinity(state=AffinityState.CONFIRMED))
    harness.put_affinity("fd00::/122", AffinityState.CONFIRMED, "node-y")
    assert harness.assign_or_refuse("h") == [str(POOL.subprefix(8, 31).nth(1))]


def test_a_decision_about_a_page_that_does_not_suffice_asks_for_the_next() -> None:
    harness = make_cluster(count=1024, with_room=(3, 1023), length=32)
    decided, asked = None, 0
    snapshot = harness.read(*harness.decision_and_reads(make_request("h", ipv4(2)))[1][0])
    while isinstance(
        decided := decide(snapshot, make_request("h", ipv4(2)), harness.clock.now_ns(), first_block_first), NeedMore
    ):
        snapshot, asked = snapshot.merged(harness.read(*decided.queries)), asked + 1
    assert isinstance(decided.result, Assignment)
    assert len(decided.result.addresses) == 2
