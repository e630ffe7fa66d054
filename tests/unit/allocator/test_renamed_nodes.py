"""A node gets another name between the ADD and the DEL of a pod: the pod keeps its address, and its DEL releases it."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Family
from netplug_core.ipam.allocation.request import Assignment, Automatic, Released, ReleaseRequest
from netplug_core.testing.clock import ManualClock
from tests.harness.allocator.collector import GRACE_PERIOD_S
from tests.harness.allocator.harness import AllocatorHarness
from tests.harness.allocator.operations import AdvanceClock, ApplyResource, Assign, Release, RunCollector
from tests.harness.allocator.strategies import make_pool, make_request
from tests.harness.allocator.teardown import tear_down
from tests.harness.local_stores import open_standalone_ipam


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_pod_of_a_renamed_node_keeps_the_address_that_it_reports(mode: MemoryMode) -> None:
    clock = ManualClock()
    harness = AllocatorHarness(store=MemoryDatastore(mode, clock=clock), clock=clock, open_ipam=open_standalone_ipam)
    harness.run(ApplyResource(resource=make_pool("p0")))
    first = harness.run(Assign(request=make_request("w0", Automatic(family=Family.IPV4))))
    assert isinstance(first, Assignment)
    harness.model.rename_node("node-a", "node-z")
    for _tick in range(3):
        harness.run(RunCollector())
        harness.run(AdvanceClock(seconds=GRACE_PERIOD_S + 1))
    again = harness.run(Assign(request=make_request("w0", Automatic(family=Family.IPV4), node="node-z")))
    assert again == first
    released = harness.run(Release(request=ReleaseRequest(handle="w0", node="node-z")))
    assert released == Released(addresses=tuple(given.address for given in first.addresses))
    tear_down(harness)
