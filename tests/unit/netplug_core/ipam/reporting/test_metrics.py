"""The counts of each pool and node."""

import pytest

from netplug_core.ipam.gc.candidates import CollectionReport
from netplug_core.ipam.model import block_key
from netplug_core.ipam.reporting.usage import NO_AFFINITY, NO_POOL, UNKNOWN_NODE, PoolMetrics, pool_metrics
from tests.harness.collector import CollectorHarness


@pytest.fixture
def harness() -> CollectorHarness:
    harness = CollectorHarness()
    harness.add_pool("main", "10.0.0.0/24")
    return harness


def test_addresses_and_blocks_are_counted_by_pool_and_node(harness: CollectorHarness) -> None:
    harness.assign_to("10.0.0.1", "h1", node="node-a")
    harness.assign_to("10.0.0.2", "h2", node="node-b")  # borrowed
    harness.assign_to("10.0.0.5", "h3", node="node-b")
    harness.add_block("10.0.0.8/30", "node-a")
    assert pool_metrics(harness.view(), CollectionReport()) == (
        PoolMetrics(pool="main", node="node-a", in_use=1, blocks=2),
        PoolMetrics(pool="main", node="node-b", in_use=2, borrowed=1, blocks=1),
    )


def test_blocks_without_a_pool_or_an_owner_and_addresses_without_a_node_are_counted(harness: CollectorHarness) -> None:
    harness.assign_to("10.1.0.1", "h1")
    harness.assign_to("10.1.0.2", "h2", node="node-a")
    assert harness.get(block_key(harness.get(harness.key_of("10.1.0.1")).prefix)).owner == ""
    assert pool_metrics(harness.view(), CollectionReport()) == (
        PoolMetrics(pool=NO_POOL, node=NO_AFFINITY, blocks=1),
        PoolMetrics(pool=NO_POOL, node="node-a", in_use=1, borrowed=1),
        PoolMetrics(pool=NO_POOL, node=UNKNOWN_NODE, in_use=1),
    )


def test_a_block_counts_for_the_first_of_overlapping_pools(harness: CollectorHarness) -> None:
    harness.add_pool("first", "10.0.0.0/16")
    harness.add_block("10.0.0.8/30")
    assert [count.pool for count in pool_metrics(harness.view(), CollectionReport())] == ["first"]


def test_candidates_and_reclaimed_addresses_are_counted(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    view = harness.view()
    (count,) = pool_metrics(view, harness.tick())
    assert (count.candidates, count.reclaimed) == (1, 0)
    harness.orchestrator.nodes.clear()
    (count,) = pool_metrics(view, harness.tick())
    assert (count.in_use, count.candidates, count.reclaimed) == (1, 0, 1)
