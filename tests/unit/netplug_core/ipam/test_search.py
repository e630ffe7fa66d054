"""The order in which a node looks at the blocks of a pool."""

from itertools import islice

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.search import block_order, hashed_start


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
    count = pool.part_count(122)
    blocks = list(islice(block_order(count - 1, pool, 122), 2))
    assert [str(block) for block in blocks] == ["fd00::ffff:ffff:ffff:ffc0/122", "fd00::/122"]


def test_a_start_follows_from_node_and_pool_and_nodes_start_apart() -> None:
    pool, other = Prefix.parse("10.0.0.0/16"), Prefix.parse("10.1.0.0/16")
    assert hashed_start("node-a", pool, 1024) == hashed_start("node-a", pool, 1024) == 177
    assert hashed_start("node-a", other, 1024) != hashed_start("node-a", pool, 1024)
    starts = {hashed_start(f"node-{number}", pool, 1024) for number in range(100)}
    assert len(starts) > 80
    assert all(0 <= start < 1024 for start in starts)
