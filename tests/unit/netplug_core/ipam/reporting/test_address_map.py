"""The map of the address space: every address has one use, and a large pool has a bounded number of rows."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.model import RESERVED_HANDLE, Attribute, Block
from netplug_core.ipam.reporting.address_map import (
    AddressUse,
    MapBlock,
    MapGap,
    MapGroup,
    MapPool,
    MapRow,
    UseCounts,
    make_address_map,
)
from netplug_core.ipam.reporting.usage import utilization
from netplug_core.resources.ippool import IPPool
from tests.harness.resources import make_pool

USED, BORROWED, COOLING, RESERVED, FREE, UNCLAIMED = AddressUse
NOTHING_RESERVED = Reserved()


def block(cidr: str, held: int = 0, *, owner: str = "host:a", node: str = "a") -> Block:
    empty = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    attribute = Attribute(handle="h", owner=(("node", node),))
    return empty.assign(tuple(map(Ordinal, range(held))), attribute) if held else empty


def mapped(
    pools: list[IPPool], blocks: list[Block], reserved: Reserved = NOTHING_RESERVED, max_rows: int = 64
) -> tuple[MapPool, ...]:
    return make_address_map(utilization(pools, blocks, reserved), reserved, max_rows=max_rows)


def counts(**numbers: int) -> UseCounts:
    return UseCounts.of({AddressUse[name.upper()]: number for name, number in numbers.items()})


def ranges(rows: tuple[MapRow, ...]) -> list[str]:
    return [f"{row.first}-{row.last}" if isinstance(row, MapGap) else str(row.prefix) for row in rows]


# --- addresses --------------------------------------------------------------------------------------------------------


def test_each_address_of_a_block_has_one_use() -> None:
    reserved = Reserved.of((Prefix.parse("10.0.0.1/32"), Prefix.parse("10.0.0.6/31")))
    stored = Block.new(Prefix.parse("10.0.0.0/29"), owner="host:a", now_ns=1, host_reserved=(1, 0))
    stored = stored.assign((Ordinal(1), Ordinal(2)), Attribute(handle="mine", owner=(("node", "a"),)))
    stored = stored.assign((Ordinal(3),), Attribute(handle="other", owner=(("node", "b"),)))
    stored = stored.assign((Ordinal(4),), Attribute(handle="old", owner=(("node", "b"),)))
    stored = stored.release(frozenset({Ordinal(4)}), cooling_from_ns=5_000_000_000)
    assert stored.find(Address.parse("10.0.0.0")) is not None
    assert RESERVED_HANDLE in stored.attributes.handles
    (pool,) = mapped([make_pool("10.0.0.0/29", block_length=29)], [stored], reserved)
    assert pool.rows == (
        MapBlock(
            prefix=stored.prefix,
            owner="host:a",
            counts=counts(used=2, borrowed=1, cooling=1, reserved=3, free=1),
            addresses=(RESERVED, USED, USED, BORROWED, COOLING, FREE, RESERVED, RESERVED),
            borrowers=(("b", 1),),
        ),
    )
    assert (pool.counts, pool.block_count, pool.owner_count) == (pool.rows[0].counts, 1, 1)


def test_borrowers_are_listed_by_how_much_they_borrow() -> None:
    stored = block("10.0.0.0/28", 1, node="c")
    for ordinal, node in ((1, "d"), (2, "b"), (3, "d"), (4, "a")):
        stored = stored.assign((Ordinal(ordinal),), Attribute(handle=f"h{ordinal}", owner=(("node", node),)))
    (pool,) = mapped([make_pool("10.0.0.0/28", block_length=28)], [stored])
    (row,) = pool.rows
    assert isinstance(row, MapBlock)
    assert row.borrowers == (("d", 2), ("b", 1), ("c", 1))


def test_an_address_in_a_block_without_an_owner_is_in_use() -> None:
    (pool,) = mapped([make_pool("10.0.0.0/28", block_length=28)], [block("10.0.0.0/28", 3, owner="", node="b")])
    assert (pool.counts, pool.owner_count) == (counts(used=3, free=13), 0)


def test_addresses_of_a_large_block_are_counted_and_not_listed() -> None:
    (pool,) = mapped([make_pool("10.0.0.0/24", block_length=25)], [block("10.0.0.0/25", 100), block("10.0.0.128/26")])
    large, small, _gap = pool.rows
    assert isinstance(large, MapBlock)
    assert isinstance(small, MapBlock)
    assert (large.addresses, large.counts) == ((), counts(used=100, free=28))
    assert small.addresses == (FREE,) * 64


def test_counts_name_the_uses_that_there_are() -> None:
    found = counts(used=3, free=61)
    assert found.present == ((USED, 3), (FREE, 61))
    assert found.total == 64
    assert UseCounts.sum((found, counts(free=1, unclaimed=2))) == counts(used=3, free=62, unclaimed=2)
    assert UseCounts.sum(()) == UseCounts()


# --- pools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cidrs, expected",
    [
        ((), ["10.0.0.0-10.0.0.255"]),
        (("10.0.0.0/26",), ["10.0.0.0/26", "10.0.0.64-10.0.0.255"]),
        (("10.0.0.192/26",), ["10.0.0.0-10.0.0.191", "10.0.0.192/26"]),
        (
            ("10.0.0.128/26", "10.0.0.64/27"),
            ["10.0.0.0-10.0.0.63", "10.0.0.64/27", "10.0.0.96-10.0.0.127", "10.0.0.128/26", "10.0.0.192-10.0.0.255"],
        ),
    ],
)
def test_what_is_in_no_block_is_in_rows_between_them(cidrs: tuple[str, ...], expected: list[str]) -> None:
    (pool,) = mapped([make_pool("10.0.0.0/24")], list(map(block, cidrs)))
    assert ranges(pool.rows) == expected
    assert pool.counts.total == 256


def test_reserved_addresses_outside_of_blocks_are_not_unclaimed() -> None:
    reserved = Reserved.of(map(Prefix.parse, ("10.0.0.62/31", "10.0.0.64/30", "10.0.1.0/24")))
    (pool,) = mapped([make_pool("10.0.0.0/24")], [block("10.0.0.0/26")], reserved)
    assert [row.counts for row in pool.rows if not isinstance(row, MapGroup)] == [
        counts(free=62, reserved=2),
        counts(unclaimed=188, reserved=4),
    ]


def test_a_wide_ipv6_pool_costs_no_more_than_its_blocks() -> None:
    (pool,) = mapped([make_pool("fd00::/48")], [block("fd00:0:0:1::/122", 2), block("fd00::/122", 1)])
    assert ranges(pool.rows) == [
        "fd00::/122",
        "fd00::40-fd00::ffff:ffff:ffff:ffff",
        "fd00:0:0:1::/122",
        "fd00:0:0:1::40-fd00::ffff:ffff:ffff:ffff:ffff",
    ]
    assert pool.counts == counts(used=3, free=125, unclaimed=2**80 - 128)


def test_pools_are_in_their_order_and_blocks_in_no_pool_by_family() -> None:
    pools = [make_pool("fd00::/48", "six"), make_pool("10.0.0.0/24", "four")]
    blocks = [block("10.9.0.0/26", 1), block("fe00::/122"), block("10.8.0.0/26"), block("10.0.0.0/26")]
    four, six, orphans4, orphans6 = mapped(pools, blocks)
    assert [pool.pool.metadata.name for pool in (four, six) if pool.pool] == ["four", "six"]
    assert (orphans4.pool, orphans4.family, ranges(orphans4.rows)) == (
        None,
        Family.IPV4,
        ["10.8.0.0/26", "10.9.0.0/26"],
    )
    assert (orphans6.pool, orphans6.family, ranges(orphans6.rows)) == (None, Family.IPV6, ["fe00::/122"])
    assert orphans4.counts == counts(used=1, free=127)


def test_without_pools_and_blocks_there_is_no_map() -> None:
    assert mapped([], []) == ()


# --- many blocks ------------------------------------------------------------------------------------------------------


def test_as_many_blocks_as_rows_have_a_row_each() -> None:
    blocks = [block(f"10.0.{n // 4}.{n % 4 * 64}/26") for n in range(8)]
    (pool,) = mapped([make_pool("10.0.0.0/22")], blocks, max_rows=8)
    assert [type(row) for row in pool.rows] == [MapBlock] * 8 + [MapGap]
    assert pool.group_count == 0


def test_neighbours_share_a_row_if_there_are_more() -> None:
    owners = ("host:a", "host:b", "host:b", "", "virtual:lb", "host:a", "host:b", "host:a")
    blocks = [block(f"10.0.0.{n * 16}/28", 2, owner=owner) for n, owner in enumerate(owners)]
    reserved = Reserved.of(map(Prefix.parse, ("10.0.0.15/32", "10.0.0.192/30")))
    (pool,) = mapped([make_pool("10.0.0.0/24", block_length=28)], [*blocks, block("10.0.0.240/28")], reserved, 3)
    first, second, gap, alone = pool.rows
    assert first == MapGroup(
        prefix=Prefix.parse("10.0.0.0/26"),
        block_count=4,
        owners=(("host:b", 2), ("", 1), ("host:a", 1)),
        counts=counts(used=4, borrowed=4, reserved=1, free=55),
        outside=counts(),
    )
    assert ranges((second, gap, alone)) == ["10.0.0.64/26", "10.0.0.128-10.0.0.239", "10.0.0.240/28"]
    assert isinstance(alone, MapBlock)
    assert (pool.group_count, pool.block_count, pool.owner_count) == (2, 9, 3)


def test_a_group_says_what_lies_between_its_blocks() -> None:
    reserved = Reserved.of(map(Prefix.parse, ("10.0.0.0/31", "10.0.0.32/30")))
    blocks = [block("10.0.0.0/28", 1), block("10.0.0.192/28", 1)]
    (pool,) = mapped([make_pool("10.0.0.0/24", block_length=28)], blocks, reserved, 1)
    (group,) = pool.rows
    assert isinstance(group, MapGroup)
    assert str(group.prefix) == "10.0.0.0/24"
    assert group.counts == counts(used=2, reserved=1, free=29)
    assert group.outside == counts(unclaimed=220, reserved=4)
    assert pool.counts == counts(used=2, reserved=5, free=29, unclaimed=220)


def test_blocks_in_no_pool_share_rows_too_and_have_nothing_between_them() -> None:
    (pool,) = mapped([], [block("10.0.0.0/28", 1), block("192.168.0.0/28", 1)], max_rows=1)
    (group,) = pool.rows
    assert isinstance(group, MapGroup)
    assert (str(group.prefix), group.outside) == ("0.0.0.0/0", counts())
    assert pool.counts == counts(used=2, free=30)


def test_scattered_ipv6_blocks_share_rows_by_long_prefixes() -> None:
    places = [n * 0x9E3779B97F4A7C15 % 2**74 << 6 for n in range(3000)]
    base = Prefix.parse("fd00::/48").base
    blocks = [evolve(block("fd00::/122"), prefix=Prefix(Family.IPV6, base + place, 122)) for place in places]
    (pool,) = mapped([make_pool("fd00::/48")], blocks)
    with_blocks = [row for row in pool.rows if not isinstance(row, MapGap)]
    assert 32 <= len(with_blocks) <= 64
    assert len(pool.rows) <= 2 * 64 + 1
    assert pool.counts.total == 2**80
    assert sum(row.block_count if isinstance(row, MapGroup) else 1 for row in with_blocks) == 3000
