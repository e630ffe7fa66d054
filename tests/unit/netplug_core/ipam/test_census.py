"""What is counted of each pool and node."""

import pytest

from netplug_core.ipam.block import block_key
from netplug_core.ipam.census import NO_AFFINITY, NO_POOL, UNKNOWN_NODE, Count, census
from netplug_core.ipam.collection import Report
from tests.collector_bench import CollectorBench


@pytest.fixture
def bench() -> CollectorBench:
    made = CollectorBench()
    made.add_pool("main", "10.0.0.0/24")
    return made


def test_addresses_and_blocks_are_counted_by_pool_and_node(bench: CollectorBench) -> None:
    bench.hold("10.0.0.1", "h1", node="node-a")
    bench.hold("10.0.0.2", "h2", node="node-b")  # borrowed
    bench.hold("10.0.0.5", "h3", node="node-b")
    bench.add_block("10.0.0.8/30", "node-a")
    assert census(bench.view(), Report()) == (
        Count(pool="main", node="node-a", in_use=1, blocks=2),
        Count(pool="main", node="node-b", in_use=2, borrowed=1, blocks=1),
    )


def test_what_has_no_pool_node_or_owner_is_counted_too(bench: CollectorBench) -> None:
    bench.hold("10.1.0.1", "h1")
    bench.hold("10.1.0.2", "h2", node="node-a")
    assert bench.get(block_key(bench.get(bench.key_of("10.1.0.1")).prefix)).owner == ""
    assert census(bench.view(), Report()) == (
        Count(pool=NO_POOL, node=NO_AFFINITY, blocks=1),
        Count(pool=NO_POOL, node="node-a", in_use=1, borrowed=1),
        Count(pool=NO_POOL, node=UNKNOWN_NODE, in_use=1),
    )


def test_of_overlapping_pools_the_first_by_name_counts(bench: CollectorBench) -> None:
    bench.add_pool("first", "10.0.0.0/16")
    bench.add_block("10.0.0.8/30")
    assert [count.pool for count in census(bench.view(), Report())] == ["first"]


def test_candidates_and_what_was_reclaimed_are_counted(bench: CollectorBench) -> None:
    bench.hold_for_pod("10.0.0.1")
    view = bench.view()
    (count,) = census(view, bench.tick())
    assert (count.candidates, count.reclaimed) == (1, 0)
    bench.orchestrator.nodes.clear()
    (count,) = census(view, bench.tick())
    assert (count.in_use, count.candidates, count.reclaimed) == (1, 0, 1)
