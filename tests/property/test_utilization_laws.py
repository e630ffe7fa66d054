"""Laws of counting (V17 of the catalogue), over pools, blocks and reservations of both families.

1. Of a block, what is in use and what is free make up all of it.
2. Of a pool, in use and available are the sums over its blocks, and what lies in no block and is not reserved.
3. What is available is never more than what is not reserved, and reserved is at most all.
4. Every block is counted exactly once.
5. The rows of a map have every address of a pool once; what is free or unclaimed there is available here.
6. At most as many rows of a pool as asked for have blocks, and every block is in one of them.
"""

from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.model import Attribute, Block
from netplug_core.ipam.reporting.address_map import AddressUse, MapBlock, MapGap, MapPool, make_address_map
from netplug_core.ipam.reporting.usage import utilization
from netplug_core.resources.ippool import IPPool
from netplug_core.testing.strategies import prefixes

RANGES = ("10.0.0.0/24", "10.0.1.0/25", "fd00::/118", "fd00:0:0:1::/64")
BLOCKS = ("10.0.0.0/26", "10.0.0.64/26", "10.0.1.0/27", "10.9.0.0/28", "fd00::/122", "fd00:0:0:1::40/122", "fe00::/126")


@st.composite
def block_values(draw: st.DrawFn, cidr: str) -> Block:
    empty = Block.new(Prefix.parse(cidr), owner="host:a", now_ns=1)
    held = draw(st.sets(st.integers(0, empty.prefix.size - 1).map(Ordinal), max_size=8))
    rests = draw(st.sets(st.sampled_from(sorted(held)), max_size=8)) if held else set()
    if not held:
        return empty
    full = empty.assign(tuple(sorted(held)), Attribute(handle="h"))
    return full.release(frozenset(rests), cooling_from_ns=5_000_000_000) if rests else full


POOLS = st.sets(st.sampled_from(RANGES)).map(
    lambda cidrs: [IPPool.for_prefix(Prefix.parse(cidr), name=f"p{n}") for n, cidr in enumerate(sorted(cidrs))]
)
STORED = st.sets(st.sampled_from(BLOCKS)).flatmap(
    lambda cidrs: st.tuples(*(block_values(cidr) for cidr in sorted(cidrs)))
)
RESERVED = st.lists(
    prefixes() | st.sampled_from(RANGES + BLOCKS).flatmap(lambda cidr: _within(Prefix.parse(cidr))), max_size=4
).map(Reserved.of)


def _within(prefix: Prefix) -> st.SearchStrategy[Prefix]:
    lengths = st.integers(prefix.length, prefix.family.width)
    return st.builds(lambda offset, length: Prefix.at(prefix.nth(offset), length), st.integers(0, 60), lengths).filter(
        prefix.covers
    )


@given(POOLS, STORED, RESERVED)
def test_counts_add_up(pools: list[IPPool], blocks: tuple[Block, ...], reserved: Reserved) -> None:
    """Laws 1 to 4."""
    usages = utilization(pools, blocks, reserved)
    for usage in usages:
        for inside in usage.blocks:
            assert inside.in_use + len(inside.block.free) == inside.capacity
            assert inside.cooling <= inside.in_use
            assert inside.available <= inside.capacity - max(inside.in_use, inside.reserved)
        in_no_block = usage.capacity - sum(inside.capacity for inside in usage.blocks)
        reserved_there = usage.reserved - sum(inside.reserved for inside in usage.blocks)
        assert 0 <= reserved_there <= in_no_block
        assert usage.in_use == sum(inside.in_use for inside in usage.blocks)
        assert usage.available == sum(inside.available for inside in usage.blocks) + in_no_block - reserved_there
        assert 0 <= usage.available <= usage.capacity - usage.reserved
    counted = sorted(inside.block.prefix for usage in usages for inside in usage.blocks)
    assert counted == sorted(block.prefix for block in blocks)


@given(POOLS, STORED, RESERVED, st.integers(1, 4))
def test_a_map_has_every_address_once(
    pools: list[IPPool], blocks: tuple[Block, ...], reserved: Reserved, max_rows: int
) -> None:
    """Laws 5 and 6."""
    usages = utilization(pools, blocks, reserved)
    mapped = make_address_map(usages, reserved, max_rows=max_rows)
    for usage, drawn in zip((usage for usage in usages if usage.pool), mapped, strict=False):
        counts = dict(drawn.counts.present)
        assert drawn.counts.total == usage.capacity
        assert counts.get(AddressUse.FREE, 0) + counts.get(AddressUse.UNCLAIMED, 0) == usage.available
        assert counts.get(AddressUse.COOLING, 0) == usage.cooling
    for drawn in mapped:
        with_blocks = [row for row in drawn.rows if not isinstance(row, MapGap)]
        assert len(with_blocks) <= max_rows
        assert sum(1 if isinstance(row, MapBlock) else row.block_count for row in with_blocks) == drawn.block_count
        assert _starts(drawn) == sorted(_starts(drawn))
    assert sum(drawn.block_count for drawn in mapped) == len(blocks)


def _starts(drawn: MapPool) -> list[int]:
    return [row.first.value if isinstance(row, MapGap) else row.prefix.base for row in drawn.rows]
