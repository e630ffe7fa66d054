"""A damaged record in the harness: whoever needs it fails, all others go on, and once repaired it stops nobody."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Family
from netplug_core.ipam.allocation.request import Assignment, Automatic, Released, ReleaseItem, ReleaseRequest
from netplug_core.records import Malformed
from netplug_core.testing.clock import ManualClock
from tests.harness.allocator.client import CallFault, FaultKind
from tests.harness.allocator.collector import GRACE_PERIOD_S
from tests.harness.allocator.harness import AllocatorHarness, OpenIPAM
from tests.harness.allocator.operations import (
    AdvanceClock,
    ApplyResource,
    Assign,
    Release,
    ReleaseAddresses,
    RunCollector,
)
from tests.harness.allocator.strategies import make_pool, make_request
from tests.harness.allocator.teardown import tear_down
from tests.harness.local_stores import open_batching_ipam, open_resident_ipam, open_standalone_ipam

BLOCK, AFFINITY, HANDLE, OTHER_HANDLE = 0, 1, 2, 3


def make_damaged(mode: MemoryMode, open_ipam: OpenIPAM, record: int) -> AllocatorHarness:
    """A block of node-a with an address of each of two pods; one record is damaged."""
    clock = ManualClock()
    harness = AllocatorHarness(store=MemoryDatastore(mode, clock=clock), clock=clock, open_ipam=open_ipam)
    harness.run(ApplyResource(resource=make_pool("p0")))
    for handle in ("w0", "w1"):
        harness.run(Assign(request=make_request(handle, Automatic(family=Family.IPV4))))
    harness.damage_record(record)
    return harness


@pytest.mark.parametrize("open_ipam", [open_standalone_ipam, open_resident_ipam, open_batching_ipam])
@pytest.mark.parametrize("mode", MemoryMode)
@pytest.mark.parametrize("record,fails", [(BLOCK, True), (AFFINITY, False), (HANDLE, True), (OTHER_HANDLE, False)])
def test_a_pod_is_deleted_once_its_record_is_repaired(
    mode: MemoryMode, open_ipam: OpenIPAM, record: int, *, fails: bool
) -> None:
    harness = make_damaged(mode, open_ipam, record)
    release = Release(request=ReleaseRequest(handle="w0", node="node-a"))
    assert isinstance(harness.run(release), Malformed if fails else Released)
    assert isinstance(harness.run(Assign(request=make_request("w2", Automatic(family=Family.IPV4)))), Assignment)
    harness.repair_records()
    assert isinstance(harness.run(release), Released)
    assert isinstance(harness.run(Release(request=ReleaseRequest(handle="w1", node="node-a"))), Released)
    tear_down(harness)


def test_nobody_writes_a_damaged_record() -> None:
    harness = make_damaged(MemoryMode.ATOMIC, open_standalone_ipam, BLOCK)
    harness.damage_record(HANDLE)
    assert [key.name for key in harness.read_state().damaged] == ["10.0.0.4/30"]
    taken = harness.run(Assign(request=make_request("w3", Automatic(family=Family.IPV4, count=20))))
    assert isinstance(taken, Assignment)
    assert len(taken.addresses) == 12
    tear_down(harness)


def test_a_pod_whose_release_fails_during_another_call_is_promised_nothing() -> None:
    """Its release begins and fails while its address is being corrected; the collector may take it from then on."""
    harness = make_damaged(MemoryMode.ATOMIC, open_standalone_ipam, BLOCK)
    (address,) = harness.model.held_by("w0")
    release, answers = Release(request=ReleaseRequest(handle="w0", node="node-a")), list[object]()

    def release_meanwhile(_writes: int) -> None:
        answers.append(harness.run(release))

    meanwhile = CallFault(FaultKind.CONCURRENT_OPERATION, 1, operation=release_meanwhile)
    harness.run(ReleaseAddresses(items=(ReleaseItem(address=address, handle="other"),)), meanwhile)
    assert isinstance(answers.pop(), Malformed)
    harness.repair_records()
    for _tick in range(2):
        harness.run(RunCollector())
        harness.run(AdvanceClock(seconds=GRACE_PERIOD_S + 1))
    harness.run(RunCollector())
    assert address not in harness.read_state().held
    tear_down(harness)
