"""What is counted of each pool and node."""

import pytest

from netplug_core.ipam.gc.model import CollectionReport
from netplug_core.ipam.model.block import block_key
from netplug_core.ipam.reporting.metrics import NO_AFFINITY, NO_POOL, UNKNOWN_NODE, PoolMetrics, pool_metrics
from tests.harness.collector import CollectorHarness


@pytest.fixture
def bench() -> CollectorHarness:
    made = CollectorHarness()
    made.add_pool("main", "10.0.0.0/24")
    return made


def test_addresses_and_blocks_are_counted_by_pool_and_node(bench: CollectorHarness) -> None:
    bench.assign_to("10.0.0.1", "h1", node="node-a")
    bench.assign_to("10.0.0.2", "h2", node="node-b")  # borrowed
    bench.assign_to("10.0.0.5", "h3", node="node-b")
    bench.add_block("10.0.0.8/30", "node-a")
    assert pool_metrics(bench.view(), CollectionReport()) == (
        PoolMetrics(pool="main", node="node-a", in_use=1, blocks=2),
        PoolMetrics(pool="main", node="node-b", in_use=2, borrowed=1, blocks=1),
    )


def test_what_has_no_pool_node_or_owner_is_counted_too(bench: CollectorHarness) -> None:
    bench.assign_to("10.1.0.1", "h1")
    bench.assign_to("10.1.0.2", "h2", node="node-a")
    assert bench.get(block_key(bench.get(bench.key_of("10.1.0.1")).prefix)).owner == ""
    assert pool_metrics(bench.view(), CollectionReport()) == (
        PoolMetrics(pool=NO_POOL, node=NO_AFFINITY, blocks=1),
        PoolMetrics(pool=NO_POOL, node="node-a", in_use=1, borrowed=1),
        PoolMetrics(pool=NO_POOL, node=UNKNOWN_NODE, in_use=1),
    )


def test_of_overlapping_pools_the_first_by_name_counts(bench: CollectorHarness) -> None:
    bench.add_pool("first", "10.0.0.0/16")
    bench.add_block("10.0.0.8/30")
    assert [count.pool for count in pool_metrics(bench.view(), CollectionReport())] == ["first"]


def test_candidates_and_what_was_reclaimed_are_counted(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    view = bench.view()
    (count,) = pool_metrics(view, bench.tick())
    assert (count.candidates, count.reclaimed) == (1, 0)
    bench.orchestrator.nodes.clear()
    (count,) = pool_metrics(view, bench.tick())
    assert (count.in_use, count.candidates, count.reclaimed) == (1, 0, 1)
