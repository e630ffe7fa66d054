"""The machine's late writes: an ADD is killed while a write is on its way, and the write arrives, or never does."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Family
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import Automatic, ReleaseRequest
from netplug_core.testing.clock import ManualClock
from tests.harness.allocator.client import CallFault, FaultKind
from tests.harness.allocator.harness import AllocatorHarness
from tests.harness.allocator.operations import AdvanceClock, ApplyResource, Assign, Release, RelinquishNode
from tests.harness.allocator.strategies import make_pool, make_request
from tests.harness.allocator.teardown import tear_down
from tests.harness.local_stores import open_standalone_ipam

ASSIGN = Assign(request=make_request("w0", Automatic(family=Family.IPV4)))
CREATION, ASSIGNMENT = 1, 4
"""Of the changes of a node's first assignment: the creation of the block, and the one that assigns the address."""


def make_killed(mode: MemoryMode, position: int) -> AllocatorHarness:
    clock = ManualClock()
    harness = AllocatorHarness(store=MemoryDatastore(mode, clock=clock), clock=clock, open_ipam=open_standalone_ipam)
    harness.run(ApplyResource(resource=make_pool("p1")))
    for call in range(1, 10):
        harness.run(ASSIGN, CallFault(FaultKind.LATE_WRITE, call, position))
        if harness.read_state().affinities or harness.is_atomic:
            return harness
    raise AssertionError("no commit was sent")


@pytest.mark.parametrize("mode", [MemoryMode.ORDERED, MemoryMode.KUBE_LIKE])
def test_after_a_release_no_late_write_assigns_an_address(mode: MemoryMode) -> None:
    harness = make_killed(mode, ASSIGNMENT)
    assert harness.read_state().handles.keys() == {"w0"}
    harness.run(Release(request=ReleaseRequest(handle="w0", node="node-a")))
    harness.land_late_writes()
    assert harness.read_state().held == {}
    tear_down(harness)


def test_without_a_release_the_late_write_assigns_the_address() -> None:
    harness = make_killed(MemoryMode.ORDERED, ASSIGNMENT)
    assert harness.read_state().held == {}
    harness.land_late_writes()
    assert len(harness.read_state().held) == 1
    tear_down(harness)


def test_a_block_whose_creation_is_late_may_have_lost_its_affinity() -> None:
    harness = make_killed(MemoryMode.KUBE_LIKE, CREATION)
    harness.run(RelinquishNode(node=ASSIGN.request.node, emptiness=Emptiness.NOT_REQUIRED))
    harness.land_late_writes()
    stored = harness.read_state()
    assert (len(stored.blocks), len(stored.affinities)) == (1, 0)
    tear_down(harness)


def test_a_write_that_is_older_than_a_call_may_be_never_arrives() -> None:
    harness = make_killed(MemoryMode.ORDERED, ASSIGNMENT)
    harness.run(AdvanceClock(seconds=6))
    harness.land_late_writes()
    assert harness.read_state().held == {}
    tear_down(harness)


def test_of_an_atomic_store_the_whole_commit_is_late_or_nothing() -> None:
    clock = ManualClock()
    store = MemoryDatastore(clock=clock)
    harness = AllocatorHarness(store=store, clock=clock, open_ipam=open_standalone_ipam)
    harness.run(ApplyResource(resource=make_pool("p1")))
    for call in range(1, 4):  # two reads and the commit
        harness.run(ASSIGN, CallFault(FaultKind.LATE_WRITE, call))
    harness.run(Release(request=ReleaseRequest(handle="w0")))
    harness.land_late_writes()
    assert len(harness.read_state().held) == 1
    tear_down(harness)
