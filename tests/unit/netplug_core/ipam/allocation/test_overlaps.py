"""Blocks of different sizes: none is created over a stored one, by an assignment, by name, or by a claim."""

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError
from netplug_core.ipam.allocation.acquire import find_overlap, overlap_queries
from netplug_core.ipam.allocation.affinities import claim_queries, decide_claim
from netplug_core.ipam.model import BLOCK, FULL, AffinityState, block_key, blocks_path, host_owner
from netplug_core.ipam.outcome import BlockUnusable
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import PAGE_SIZE, List, Malformed, NeedMore, ReadResult, Snapshot
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, make_pool, make_request, specific


def assert_disjoint(harness: IPAMHarness) -> None:
    stored = [record.value.prefix for record in harness.records(BLOCK)]
    assert [(a, b) for a in stored for b in stored if a < b and a.overlaps(b)] == []


def damage(harness: IPAMHarness, cidr: str) -> None:
    """What is stored under a block's key cannot be understood any more."""
    damaged = DamagedDatastore(harness.store, damage={block_key(Prefix.parse(cidr)): b"{"})
    harness.store = damaged  # type: ignore[assignment]  # same calls


def recreate(harness: IPAMHarness, cidr: str, length: int) -> None:
    """Delete the pool and create it with another block size, as ``kubectl`` does while its pods live."""
    harness.remove(ippool_key("main"))
    harness.add_pool("main", cidr, length)


@pytest.mark.parametrize("before", [26, 28, 30, 32, 24, 20])
@pytest.mark.parametrize("after", [26, 28, 30, 32, 24, 20])
@pytest.mark.parametrize("node", [NODE, OTHER_NODE])
def test_a_pool_with_another_block_size_gives_no_address_twice(before: int, after: int, node: str) -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/19", before)
    held = harness.assign_or_refuse("h0", ipv4(3))
    recreate(harness, "10.0.0.0/19", after)
    for number in range(1, 4):
        held += harness.assign_or_refuse(f"h{number}", ipv4(3), node=node)
    assert len(set(held)) == 12
    assert_disjoint(harness)


def test_what_a_leftover_block_covers_is_passed_over_and_named_in_the_trace() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24", 30)
    harness.assign_or_refuse("h0")
    recreate(harness, "10.0.0.0/24", 26)
    trace = [str(entry) for entry in harness.decision(make_request("h")).trace]
    overlap = "block 10.0.0.0/26 cannot be created: it overlaps a stored block of another size (10.0.0.0/30)"
    assert overlap in trace
    harness.take_call_counts()
    assert harness.assign_or_refuse("h") == ["10.0.0.64"]
    assert harness.take_call_counts() == (3, 1), "no read more: the second block has the same neighbours"


def test_a_stored_block_gives_an_address_by_name_without_a_look_at_its_neighbours() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24")
    harness.assign_or_refuse("h0", specific("10.0.0.9"))
    _decision, reads = harness.decision_and_reads(make_request("h", specific("10.0.0.10")))
    assert [query for read in reads for query in read if isinstance(query, List) and query.kind is BLOCK] == []


def test_a_leftover_block_larger_than_the_pool_leaves_nothing_of_it() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/20", 20)
    harness.assign_or_refuse("h0")
    recreate(harness, "10.0.0.0/27", 30)
    with pytest.raises(AllocationError):
        harness.assign_or_refuse("h")
    assert_disjoint(harness)


@pytest.mark.parametrize("address", ["10.0.0.0", "10.0.0.3", "10.0.0.63"])
def test_an_address_by_name_is_not_served_over_a_leftover_block(address: str) -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24", 30)
    harness.assign_or_refuse("h0")
    recreate(harness, "10.0.0.0/24", 26)
    with pytest.raises(BlockUnusable, match=r"block 10\.0\.0\.0/26 cannot be created.*\(10\.0\.0\.0/30\)"):
        harness.assign_or_refuse("h", specific(address))
    assert harness.assign_or_refuse("h", specific("10.0.0.70")) == ["10.0.0.70"]
    assert_disjoint(harness)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_claim_leaves_leftover_blocks_alone(*, is_damaged: bool) -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24", 30)
    harness.assign_or_refuse("h0")
    recreate(harness, "10.0.0.0/24", 26)
    if is_damaged:
        damage(harness, "10.0.0.0/30")
    blocks = tuple(map(Prefix.parse, ("10.0.0.0/26", "10.0.0.64/26")))
    owner = host_owner(NODE)
    snapshot = harness.read(*claim_queries(owner, blocks))
    while isinstance(made := decide_claim(snapshot, owner, blocks, 0), NeedMore):
        snapshot = snapshot.merged(harness.read(*made.queries))
    assert not isinstance(made.result, Exception)
    assert (made.result.failed, made.result.claimed) == (blocks[:1], blocks[1:])


@pytest.mark.parametrize("length,pages", [(26, 0), (20, 1)])
def test_a_claim_reads_all_pages_of_blocks_before_it_creates_large_ones(length: int, pages: int) -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/16", length)
    for number in range(PAGE_SIZE + 1):
        harness.put_block(f"10.9.{number // 256}.{number % 256}/32")
    pool, owner = Prefix.parse("10.0.0.0/16"), host_owner(NODE)
    blocks = (pool.subprefix(0, length), pool.subprefix(1, length))
    made = decide_claim(harness.read(*claim_queries(owner, blocks)), owner, blocks, 0)
    assert (len(made.queries) if isinstance(made, NeedMore) else 0) == pages


def test_a_pending_affinity_does_not_make_its_block_over_another() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24", 26)
    harness.put_affinity("10.0.0.0/26", AffinityState.PENDING)
    harness.put_block("10.0.0.32/30", OTHER_NODE)
    assert harness.assign_or_refuse("h") == ["10.0.0.64"]
    assert_disjoint(harness)


def test_a_damaged_block_of_another_size_counts_too() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24", 26)
    harness.put_block("10.0.0.32/30", OTHER_NODE)
    damage(harness, "10.0.0.32/30")
    assert harness.assign_or_refuse("h") == ["10.0.0.64"]


@pytest.mark.parametrize(
    "new,beginning",
    [
        ("10.0.1.64/26", "10.0.1."),
        ("10.0.1.0/24", "10.0.1."),
        ("0.0.0.8/29", "0.0.0."),
        ("fd00::1:1240/122", "fd00::1:12"),
        ("fd00::240/122", "fd00::2"),
        ("fd00:1:2:3:4:5:6:ff00/120", "fd00:1:2:3:4:5:6:ff"),
    ],
)
def test_a_new_block_is_compared_with_those_among_the_same_256_addresses_and_four_larger_ones(
    new: str, beginning: str
) -> None:
    listed, *covering = overlap_queries([Prefix.parse(new)])
    assert isinstance(listed, List)
    assert listed == List(BLOCK, listed.within, name_prefix=beginning, keys_only_if=FULL)
    assert len(covering) == 4


@pytest.mark.parametrize("new", ["fd00::40/122", "fd00::/122", "fd00::1:c0/122"])
def test_blocks_are_compared_one_by_one_where_their_names_have_no_beginning_of_their_own(new: str) -> None:
    assert len(overlap_queries([Prefix.parse(new)])) == 6 + 126


@pytest.mark.parametrize("new,count", [("10.0.0.4/30", 10 + 6), ("fd00::1240/128", 12)])
def test_few_blocks_are_compared_one_by_one(new: str, count: int) -> None:
    assert len(overlap_queries([Prefix.parse(new)])) == count


@pytest.mark.parametrize("new", ["10.0.0.0/23", "10.0.0.0/20", "fd00::/121", "fd00::1200/119"])
def test_a_large_block_is_compared_with_all(new: str) -> None:
    prefix = Prefix.parse(new)
    page = List(BLOCK, blocks_path(prefix.family), limit=PAGE_SIZE, keys_only_if=FULL)
    assert overlap_queries([prefix]) == (page,)
    assert isinstance(find_overlap(IPAMHarness.new().read(), prefix), NeedMore)


@given(data=st.data())
def test_every_block_that_a_new_one_would_overlap_is_read_first(data: st.DataObject) -> None:
    """Of all sizes that a pool may have, in both families, wherever the text of an IPv6 address is shortened."""
    family = data.draw(st.sampled_from(Family))
    lengths = st.integers(family.width - 12, family.width)
    part = st.sampled_from((0, 0, 1, 0xFF, 0x100, 0x1200, 0xFFFF)) | st.integers(0, 0xFFFF)
    parts = data.draw(st.lists(part, min_size=family.width // 16, max_size=family.width // 16))
    value = sum(part << (16 * place) for place, part in enumerate(parts))
    new = Prefix.at(Address(family, value), data.draw(lengths))
    inside = Address(family, new.base + data.draw(st.integers(0, new.size - 1)))
    other = block_key(Prefix.at(inside, data.draw(lengths)))
    queries = overlap_queries([new])
    assert other == block_key(new) or any(
        query.covers(other) if isinstance(query, List) else query.key == other for query in queries
    )


@pytest.mark.parametrize("length", [30, 26, 24, 23, 20])
def test_no_page_of_blocks_is_read_twice_and_full_blocks_are_read_by_their_keys(length: int) -> None:
    """A node whose pool is used up, and which looks at every block before it says so."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/20", length)
    harness.put_block("10.0.0.0/32", OTHER_NODE)
    harness.put_block("10.0.8.0/32", OTHER_NODE)
    decision, reads = harness.decision_and_reads(make_request("h", ipv4(5000)))
    assert isinstance(decision.result, AllocationError)
    asked = [query for read in reads for query in read if isinstance(query, List) and query.kind is BLOCK]
    assert {query.keys_only_if for query in asked} == {FULL}
    assert len(set(asked)) == len(asked)


def test_all_pages_are_read_before_a_large_block_is_created_for_an_address() -> None:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/19", 20)
    for number in range(PAGE_SIZE):
        harness.put_block(f"10.{1 + number // 256}.{number % 256}.0/30", OTHER_NODE)
    assert harness.assign_or_refuse("h", specific("10.0.0.7")) == ["10.0.0.7"]
    pages = [query for query in harness.decision_and_reads(make_request("h2", specific("10.0.16.7")))[1] if query]
    after = [query.after for read in pages for query in read if isinstance(query, List) and query.kind is BLOCK]
    assert after[0] == ""
    assert len(after) == 2


@pytest.mark.parametrize("new", ["10.0.0.0/24", "10.0.0.0/20"])
def test_no_block_is_created_over_a_damaged_one(new: str) -> None:
    """There may be addresses in it; a large block beside others is created."""
    harness = IPAMHarness.new()
    harness.put_block("10.0.0.32/30", OTHER_NODE)
    harness.put_block("10.1.0.0/24", OTHER_NODE)
    damage(harness, "10.0.0.32/30")
    prefix, beside = Prefix.parse(new), Prefix.parse("10.2.0.0/20")
    snapshot = harness.read(*overlap_queries([prefix, beside], 2 * beside.size))
    assert find_overlap(snapshot, prefix) == Prefix.parse("10.0.0.32/30")
    assert find_overlap(snapshot, beside) is None


def test_a_block_whose_record_does_not_say_which_it_is_stops_no_large_one() -> None:
    new = Prefix.parse("10.0.0.0/20")
    pages = List(BLOCK, blocks_path(new.family), limit=PAGE_SIZE, keys_only_if=FULL)
    odd = BLOCK.key(*blocks_path(new.family), "no prefix")
    unknown = (Malformed("IPAMBlock ?", "cidr is missing"), Malformed(str(odd), "no JSON", subject=odd))
    assert find_overlap(Snapshot({pages: ReadResult((), malformed=unknown)}, {}), new) is None


def test_a_repeated_assignment_names_the_pool_that_gave_the_address() -> None:
    harness = IPAMHarness.new()
    for created_ns, pool in enumerate((make_pool("older", "10.0.0.0/24"), make_pool("later", "10.0.0.0/25"))):
        harness.put(pool.key, evolve(pool, metadata=evolve(pool.metadata, creation_time_ns=created_ns)))
    first, again = (
        harness.ipam().assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline) for _call in range(2)
    )
    assert [str(given.prefix) for given in first.addresses] == ["10.0.0.0/24"]
    assert again == first
