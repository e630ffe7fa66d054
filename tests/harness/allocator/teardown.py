"""The end of a run: all workloads and nodes are removed, and the store must then be empty.

This shows that records left by crashes can always be removed: by a release, by relinquishing a node's affinities, or
by the collector.
"""

from __future__ import annotations

from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import ReleaseItem, ReleaseRequest
from netplug_core.ipam.model import claiming_owner, owner_node
from netplug_core.testing.assertions import expect_same
from tests.harness.allocator.collector import GRACE_PERIOD_S
from tests.harness.allocator.harness import AllocatorHarness
from tests.harness.allocator.invariants import handle_counts_are_exact
from tests.harness.allocator.operations import (
    AdvanceClock,
    DeletePod,
    Release,
    ReleaseAddresses,
    RelinquishAffinities,
    RelinquishNode,
    RunCollector,
    SetReady,
)

__all__ = ["tear_down"]


def tear_down(harness: AllocatorHarness) -> None:
    """Remove every workload and every node, and check that no handle, affinity or block is left."""
    harness.repair_records()
    harness.land_late_writes()
    harness.run(SetReady(is_ready=True))
    _release_other_handles(harness)
    _relinquish_virtual_affinities(harness)
    _delete_pods(harness)
    _delete_nodes(harness)
    stored = harness.read_state()
    expect_same(dict(stored.handles), {}, "V5: the handles that are left")
    expect_same(dict(stored.affinities), {}, "V6: the affinities that are left")
    expect_same(dict(stored.blocks), {}, "V7: the blocks that are left")


def _release_other_handles(harness: AllocatorHarness) -> None:
    """Release the addresses that belong to no pod. The collector cannot know whether they are in use."""
    stored = harness.read_state()
    others = {held.attribute.handle for held in stored.held.values() if not held.attribute.owner_value("pod")}
    for handle in sorted(handle for handle in others if handle is not None):
        harness.run(Release(request=ReleaseRequest(handle=handle)))
    left = harness.read_state().held
    items = tuple(ReleaseItem(address=a) for a, held in left.items() if not held.attribute.owner_value("pod"))
    if items:
        harness.run(ReleaseAddresses(items=items))


def _relinquish_virtual_affinities(harness: AllocatorHarness) -> None:
    """Relinquish the affinities of owners that are not nodes."""
    claims = tuple(key for key in harness.read_state().affinities if not owner_node(claiming_owner(key)))
    harness.run(RelinquishAffinities(affinities=claims, emptiness=Emptiness.NOT_REQUIRED))


def _delete_pods(harness: AllocatorHarness) -> None:
    """V18: addresses of deleted pods are free after the grace period and two ticks; handle counts are exact."""
    for handle in sorted(harness.model.pods):
        harness.run(DeletePod(handle=handle))
    _run_collector_and_wait(harness)
    harness.run(RunCollector())
    expect_same(dict(harness.read_state().held), {}, "V18: the addresses of deleted pods that are still held")
    _run_collector_and_wait(harness)
    harness.run(RunCollector())
    handle_counts_are_exact(harness.read_state())


def _delete_nodes(harness: AllocatorHarness) -> None:
    """Relinquish one node's affinities, leave the other nodes to the collector, and wait for cooldowns."""
    nodes = sorted({owner_node(claiming_owner(key)) for key in harness.read_state().affinities})
    for node in nodes[:1]:
        harness.run(RelinquishNode(node=node, emptiness=Emptiness.NOT_REQUIRED))
    for node in (*nodes, *harness.model.nodes):
        harness.model.delete_node(node)
    _run_collector_and_wait(harness)
    _run_collector_and_wait(harness)
    harness.run(RunCollector())


def _run_collector_and_wait(harness: AllocatorHarness) -> None:
    """Run the collector, and let the grace period pass."""
    harness.run(RunCollector())
    harness.run(AdvanceClock(seconds=GRACE_PERIOD_S + 1))
