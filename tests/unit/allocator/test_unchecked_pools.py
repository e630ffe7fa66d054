"""Pools that are stored without a comparison, as kubectl does, and a handle over more blocks than a commit releases."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Family
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.request import Assignment, Automatic, Released, ReleaseRequest, Specific
from netplug_core.testing.clock import ManualClock
from tests.harness.allocator.collector import GRACE_PERIOD_S
from tests.harness.allocator.harness import AllocatorHarness
from tests.harness.allocator.operations import (
    AdvanceClock,
    ApplyResource,
    Assign,
    DeletePod,
    Release,
    RunCollector,
    StorePool,
)
from tests.harness.allocator.strategies import WIDE_POOL, make_pool, make_request, make_unchecked_pool
from tests.harness.allocator.teardown import tear_down
from tests.harness.local_stores import open_standalone_ipam


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> AllocatorHarness:
    """A cluster with a pool of four blocks, in one of which a pod has an address."""
    clock = ManualClock()
    store = MemoryDatastore(request.param, clock=clock)
    harness = AllocatorHarness(store=store, clock=clock, open_ipam=open_standalone_ipam)
    harness.run(ApplyResource(resource=make_pool("p0")))
    harness.run(Assign(request=make_request("w0", Automatic(family=Family.IPV4))))
    return harness


def count_assigned(harness: AllocatorHarness, handle: str, count: int, *pools: str) -> int:
    answer = harness.run(Assign(request=make_request(handle, Automatic(family=Family.IPV4, count=count, pools=pools))))
    assert isinstance(answer, Assignment)
    return len(answer.addresses)


def test_a_pool_of_another_block_size_gives_all_but_the_range_of_the_leftover_block(harness: AllocatorHarness) -> None:
    harness.run(StorePool(pool=make_unchecked_pool("p0", "10.0.0.0/28", 32)))
    assert harness.read_state().has_leftovers
    assert count_assigned(harness, "w1", 16) == 12
    tear_down(harness)


def test_the_collector_frees_addresses_of_the_leftover_block(harness: AllocatorHarness) -> None:
    harness.run(StorePool(pool=make_unchecked_pool("p0", "10.0.0.0/28", 29)))
    harness.run(DeletePod(handle="w0"))
    harness.run(RunCollector())
    harness.run(AdvanceClock(seconds=GRACE_PERIOD_S + 1))
    harness.run(RunCollector())
    assert harness.read_state().held == {}
    tear_down(harness)


def test_of_two_pools_that_overlap_only_the_older_gives_addresses(harness: AllocatorHarness) -> None:
    harness.run(StorePool(pool=make_unchecked_pool("a0", "10.0.0.0/27", 32)))
    assert count_assigned(harness, "w1", 32) == 15
    for wanted in (Automatic(family=Family.IPV4, pools=("a0",)), Specific(address=Address.parse("10.0.0.20"))):
        assert isinstance(harness.run(Assign(request=make_request("w2", wanted))), NetplugError)
    tear_down(harness)


def test_a_handle_over_many_blocks_is_released_whole(harness: AllocatorHarness) -> None:
    harness.run(ApplyResource(resource=make_unchecked_pool(*WIDE_POOL)))
    request = make_request("w1", Automatic(family=Family.IPV4, count=32, pools=(WIDE_POOL[0],)))
    assigned = harness.run(Assign(request=evolve(request, block_limit=40)))
    assert isinstance(assigned, Assignment)
    assert len(harness.read_state().handles["w1"].blocks) == 32
    released = harness.run(Release(request=ReleaseRequest(handle="w1", node="node-a")))
    assert released == Released(addresses=tuple(given.address for given in assigned.addresses))
    tear_down(harness)
