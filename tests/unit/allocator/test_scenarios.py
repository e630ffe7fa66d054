"""The exhaustive scenarios notice an allocator, or a store, that is not what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from attrs import define, evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Released, ReleaseRequest
from netplug_core.ipam.protocol import IPAM, EndpointWrites
from netplug_core.records import Require, RequireUnchanged, Revision, Write
from netplug_core.resources.ippool import IPPOOL
from netplug_core.testing.clock import ManualClock
from tests.harness.allocator.client import CallFault, FaultKind
from tests.harness.allocator.harness import AllocatorHarness
from tests.harness.allocator.scenarios import (
    CONCURRENT_OPERATIONS,
    SCENARIOS,
    FaultScenario,
    every_fault,
    prepare,
    run_with_faults,
)
from tests.harness.local_stores import open_standalone_ipam
from tests.harness.stores import StoreWrapper

AlterWrites = Callable[[Sequence[Write]], Sequence[Write]]

NAMED = {scenario.name: scenario for scenario in SCENARIOS}
FIRST, RELEASE = NAMED["the first address of a node"], NAMED["a release of several blocks"]


@define
class AlteringStore(StoreWrapper):
    """A store that changes the writes of each commit."""

    alter: AlterWrites

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        made = iter(self.inner.commit(self.alter(writes), deadline=deadline))
        return tuple(next(made, Revision("")) for _write in writes)


def unaltered(writes: Sequence[Write]) -> Sequence[Write]:
    return writes


def without_pool_conditions(writes: Sequence[Write]) -> Sequence[Write]:
    """Judges no condition on pools."""

    def is_about_pools(write: Write) -> bool:
        kind = write.kind if isinstance(write, RequireUnchanged) else write.key.kind
        return isinstance(write, Require | RequireUnchanged) and kind == IPPOOL

    # What is left out is replaced by what always holds, so that positions stay.
    harmless = next(write for write in [*writes, None] if write is None or not is_about_pools(write))
    if not isinstance(harmless, Require):
        return writes
    return [harmless if is_about_pools(write) else write for write in writes]


class IPAMThatNeverReleases(BlockIPAM):
    """Forgets to release."""

    def release(self, request: ReleaseRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Released:
        return Released(addresses=())


class IPAMWithWrongAnswer(BlockIPAM):
    """Gives other addresses than it stores."""

    def assign(self, request: AssignRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Assignment:
        got = super().assign(request, endpoint, deadline=deadline)
        first, *others = got.addresses
        return evolve(got, addresses=(evolve(first, address=first.prefix.last), *others))


def open_ipam_that_never_releases(store: Datastore, clock: Clock) -> IPAM:
    return IPAMThatNeverReleases(datastore=store, clock=clock, chance=lambda: 0.5)


def open_ipam_with_wrong_answer(store: Datastore, clock: Clock) -> IPAM:
    return IPAMWithWrongAnswer(datastore=store, clock=clock, chance=lambda: 0.5)


def make_harness(
    mode: MemoryMode = MemoryMode.ATOMIC,
    open_ipam: Callable[[Datastore, Clock], IPAM] = open_standalone_ipam,
    alter: AlterWrites = unaltered,
) -> AllocatorHarness:
    clock = ManualClock()
    store = AlteringStore(MemoryDatastore(mode, clock=clock), alter)
    return AllocatorHarness(store=store, clock=clock, open_ipam=open_ipam)


def test_a_lost_release_is_noticed() -> None:
    with pytest.raises(AssertionError, match="V1: Holder"):
        run_with_faults(RELEASE, partial(make_harness, open_ipam=open_ipam_that_never_releases))


def test_an_address_that_is_not_stored_is_noticed() -> None:
    with pytest.raises(AssertionError, match="V1: "):
        run_with_faults(FIRST, partial(make_harness, open_ipam=open_ipam_with_wrong_answer))


def test_a_store_that_ignores_conditions_is_noticed() -> None:
    """Disable the pool between the read and the commit."""
    disabling = next(n for n, act in enumerate(CONCURRENT_OPERATIONS) if "is_disabled=True" in str(act))
    run_with_faults(FIRST, make_harness, CallFault(FaultKind.CONCURRENT_OPERATION, 3, disabling))
    with pytest.raises(AssertionError, match=r"^V10: "):
        run_with_faults(
            FIRST,
            partial(make_harness, alter=without_pool_conditions),
            CallFault(FaultKind.CONCURRENT_OPERATION, 3, disabling),
        )


@pytest.mark.parametrize("mode,count", [(MemoryMode.ATOMIC, 2), (MemoryMode.ORDERED, 12)])
def test_a_process_dies_after_every_number_of_writes(mode: MemoryMode, count: int) -> None:
    """The first address of a node takes two reads and a commit of eleven writes."""
    faults = list(every_fault(FIRST, partial(make_harness, mode)))
    deaths = [fault.position for fault in faults if fault.kind is FaultKind.PROCESS_DEATH and fault.call_number == 3]
    assert deaths == list(range(count))
    assert {fault.call_number for fault in faults} == {1, 2, 3}
    assert len(set(faults)) == len(faults)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_every_scenario_has_something_to_disturb(scenario: FaultScenario) -> None:
    writes = prepare(scenario, make_harness).call(scenario.operation).writes
    assert len(writes) > 1
    assert sum(writes) > 0 or scenario.name == "more than there is, refused"


@pytest.mark.parametrize("mode", MemoryMode)
@pytest.mark.parametrize("first_call", [1, 2])
def test_an_affinity_that_is_younger_than_what_was_read_of_its_block_stays(first_call: int, mode: MemoryMode) -> None:
    """The node gives up its block, an assignment reads it, and another one of the node claims it again meanwhile."""
    numbers = {str(operation): number for number, operation in enumerate(CONCURRENT_OPERATIONS)}
    leave = next(number for text, number in numbers.items() if text.startswith("RelinquishNode") and "node-a" in text)
    assign = next(number for text, number in numbers.items() if text.startswith("Assign") and "'w1'" in text)
    faults = [
        CallFault(FaultKind.CONCURRENT_OPERATION, call_number, position)
        for call_number, position in ((first_call, leave), (3, assign))
    ]
    run_with_faults(NAMED["more addresses for a handle that has some"], partial(make_harness, mode), *faults)
