"""The order in which a node looks at the blocks of a pool."""

from itertools import islice

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.pools import Reserved, block_order, block_positions, hashed_start


@pytest.mark.parametrize("pool, length, count", [
    ("10.10.0.0/24", 26, 4),
    ("fd80:24e2:f998:72d6::/120", 122, 4),
    ("10.10.0.0/16", 20, 16),
    ("fd80:24e2:f998:72d6::/114", 116, 4),
    ("10.10.0.0/24", 32, 256),
    ("fd80:24e2:f998:72d6::/120", 128, 256),
    ("10.10.0.0/26", 26, 1),
])  # fmt: skip
def test_each_block_of_a_pool_comes_once(pool: str, length: int, count: int) -> None:  # I-72
    prefix = Prefix.parse(pool)
    start = hashed_start("node-a", prefix, count)
    blocks = list(block_order(start, prefix, length))
    assert len(blocks) == len(set(blocks)) == count
    assert all(block.length == length and prefix.covers(block) for block in blocks)


def test_the_order_is_a_rotation() -> None:
    pool = Prefix.parse("10.0.0.0/24")
    assert [str(block.first) for block in block_order(2, pool, 26)] == [
        "10.0.0.128", "10.0.0.192", "10.0.0.0", "10.0.0.64",
    ]  # fmt: skip


def test_no_list_of_a_huge_pool_is_made() -> None:
    pool = Prefix.parse("fd00::/64")
    count = pool.subprefix_count(122)
    blocks = list(islice(block_order(count - 1, pool, 122), 2))
    assert [str(block) for block in blocks] == ["fd00::ffff:ffff:ffff:ffc0/122", "fd00::/122"]


def test_a_start_follows_from_node_and_pool_and_nodes_start_apart() -> None:
    pool, other = Prefix.parse("10.0.0.0/16"), Prefix.parse("10.1.0.0/16")
    assert hashed_start("node-a", pool, 1024) == hashed_start("node-a", pool, 1024) == 177
    assert hashed_start("node-a", other, 1024) != hashed_start("node-a", pool, 1024)
    starts = {hashed_start(f"node-{number}", pool, 1024) for number in range(100)}
    assert len(starts) > 80
    assert all(0 <= start < 1024 for start in starts)


# --- around what is reserved --------------------------------------------------------------------------------------


def around(start: int, pool: str, length: int, *reserved: str) -> list[int]:
    kept = Reserved.of(map(Prefix.parse, reserved))
    return list(block_positions(start, Prefix.parse(pool), length, kept))


@pytest.mark.parametrize("start, reserved, positions", [
    (0, ["10.0.0.0/26"], [1, 2, 3]),
    (2, ["10.0.0.128/25"], [0, 1]),
    (2, ["10.0.0.64/26", "10.0.0.128/25"], [0]),
    (3, ["10.0.0.0/26"], [3, 1, 2]),
    (1, ["10.0.0.0/8"], []),
    (1, ["10.0.0.0/27", "10.0.0.64/26", "10.0.0.128/27"], [2, 3, 0]),
])  # fmt: skip
def test_reserved_blocks_are_left_out_and_half_reserved_ones_are_not(
    start: int, reserved: list[str], positions: list[int]
) -> None:
    assert around(start, "10.0.0.0/24", 26, *reserved) == positions


def test_a_reserved_range_is_leapt_over_however_long_it_is() -> None:
    """All but the last of 2**58 blocks are reserved, in 58 entries."""
    pool = Prefix.parse("fd00::/64")
    halves = [Prefix.at(pool.last, length - 1).subprefix(0, length) for length in range(65, 123)]
    entries = [str(half) for half in halves]
    assert len(entries) == 58
    assert around(17, "fd00::/64", 122, *entries) == [(1 << 58) - 1]


def test_a_leap_wraps_around_with_the_order() -> None:
    pool, kept = Prefix.parse("fd00::/64"), Reserved.of([Prefix.parse("fd00::8000:0:0:0/65")])
    start = (1 << 57) + 5
    assert list(islice(block_positions(start, pool, 122, kept), 2)) == [0, 1]


def test_two_names_that_differ_in_their_last_letter_start_apart() -> None:  # I-47
    pool = Prefix.parse("fd00::/64")
    names = [f"{'n' * 251}{last}" for last in "ab"]
    assert len({hashed_start(name, pool, 1 << 58) for name in names}) == 2
