"""The invariants of whole calls: what they accept."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Family
from netplug_core.ipam.allocation.request import Assignment, Automatic
from netplug_core.testing.allocator.harness import AllocatorHarness, OpenIPAM
from netplug_core.testing.allocator.operations import ApplyResource, Assign
from netplug_core.testing.allocator.strategies import make_pool, make_request
from netplug_core.testing.allocator.teardown import tear_down
from netplug_core.testing.clock import ManualClock
from tests.harness.local_stores import open_batching_ipam, open_resident_ipam, open_standalone_ipam


@pytest.mark.parametrize("open_ipam", [open_standalone_ipam, open_resident_ipam, open_batching_ipam])
@pytest.mark.parametrize("mode", MemoryMode)
def test_a_shortfall_without_a_handle_is_read_once_more_in_a_batch(mode: MemoryMode, open_ipam: OpenIPAM) -> None:
    clock = ManualClock()
    harness = AllocatorHarness(store=MemoryDatastore(mode, clock=clock), clock=clock, open_ipam=open_ipam)
    harness.run(ApplyResource(resource=make_pool("p2")))
    answer = harness.run(Assign(request=make_request(None, Automatic(family=Family.IPV4, count=5))))
    assert isinstance(answer, Assignment)
    assert (len(answer.addresses), len(answer.shortfalls)) == (4, 1)
    tear_down(harness)
