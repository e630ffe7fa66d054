"""The exhaustive scenarios notice an allocator, or a store, that is not what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pytest
from attrs import define, evolve

from netplug_backends.blocks.ipam import BlockIPAM
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.interface import Atomicity, Datastore, DatastoreDescription
from netplug_core.ipam.interface import IPAM, EndpointPart
from netplug_core.ipam.request import Assignment, AssignRequest, Released, ReleaseRequest
from netplug_core.records import Change, Kind, Query, Require, RequireUnchanged, Revision, Snapshot, Write
from netplug_core.resources.ippool import IPPOOL
from netplug_core.testing.allocator.bench import AllocatorBench
from netplug_core.testing.allocator.line import Mishap, Sort
from netplug_core.testing.allocator.scenarios import RIVALS, SCENARIOS, Scenario, arranged, every_mishap, suffer
from netplug_core.testing.clock import ManualClock

Spoil = Callable[[Sequence[Write]], Sequence[Write]]

NAMED = {scenario.name: scenario for scenario in SCENARIOS}
FIRST, RELEASE = NAMED["the first address of a node"], NAMED["a release of several blocks"]


@define
class Spoilt:
    """A store that does not do what it is told."""

    inner: MemoryDatastore
    spoil: Spoil

    @property
    def description(self) -> DatastoreDescription:
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        made = iter(self.inner.commit(self.spoil(writes), deadline=deadline))
        return tuple(next(made, Revision("")) for _write in writes)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        return self.inner.watch(start, deadline=deadline)


def as_told(writes: Sequence[Write]) -> Sequence[Write]:
    return writes


def deaf_to_pools(writes: Sequence[Write]) -> Sequence[Write]:
    """Judges no condition on pools."""

    def is_about_pools(write: Write) -> bool:
        kind = write.kind if isinstance(write, RequireUnchanged) else write.key.kind
        return isinstance(write, Require | RequireUnchanged) and kind == IPPOOL

    # What is left out is replaced by what always holds, so that positions stay.
    harmless = next(write for write in [*writes, None] if write is None or not is_about_pools(write))
    if not isinstance(harmless, Require):
        return writes
    return [harmless if is_about_pools(write) else write for write in writes]


class Leaky(BlockIPAM):
    """Forgets to release."""

    def release(self, request: ReleaseRequest, endpoint: EndpointPart, *, deadline: Deadline) -> Released:
        return Released(addresses=())


class Unsteady(BlockIPAM):
    """Gives other addresses than it stores."""

    def assign(self, request: AssignRequest, endpoint: EndpointPart, *, deadline: Deadline) -> Assignment:
        got = super().assign(request, endpoint, deadline=deadline)
        first, *others = got.addresses
        return evolve(got, addresses=(evolve(first, address=first.prefix.last), *others))


def sound(store: Datastore, clock: Clock) -> IPAM:
    return BlockIPAM(datastore=store, clock=clock, chance=lambda: 0.5)


def leaky(store: Datastore, clock: Clock) -> IPAM:
    return Leaky(datastore=store, clock=clock, chance=lambda: 0.5)


def unsteady(store: Datastore, clock: Clock) -> IPAM:
    return Unsteady(datastore=store, clock=clock, chance=lambda: 0.5)


def bench(
    atomicity: Atomicity = Atomicity.ATOMIC,
    open_ipam: Callable[[Datastore, Clock], IPAM] = sound,
    spoil: Spoil = as_told,
) -> AllocatorBench:
    clock = ManualClock()
    store = Spoilt(MemoryDatastore(atomicity, clock=clock), spoil)
    return AllocatorBench(store=store, clock=clock, open_ipam=open_ipam)


def test_a_lost_release_is_noticed() -> None:
    with pytest.raises(AssertionError, match="V1: Holder"):
        suffer(RELEASE, partial(bench, open_ipam=leaky))


def test_an_address_that_is_not_stored_is_noticed() -> None:
    with pytest.raises(AssertionError, match="V1: "):
        suffer(FIRST, partial(bench, open_ipam=unsteady))


def test_a_store_that_ignores_conditions_is_noticed() -> None:
    """Somebody disables the pool between the read and the commit."""
    disabling = next(n for n, act in enumerate(RIVALS) if "is_disabled=True" in str(act))
    suffer(FIRST, bench, Mishap(Sort.RIVAL, 3, disabling))
    with pytest.raises(AssertionError, match=r"^V10: "):
        suffer(FIRST, partial(bench, spoil=deaf_to_pools), Mishap(Sort.RIVAL, 3, disabling))


@pytest.mark.parametrize("atomicity,count", [(Atomicity.ATOMIC, 2), (Atomicity.ORDERED, 12)])
def test_a_process_dies_after_every_number_of_writes(atomicity: Atomicity, count: int) -> None:
    """The first address of a node takes two reads and a commit of eleven writes."""
    mishaps = list(every_mishap(FIRST, partial(bench, atomicity)))
    deaths = [mishap.position for mishap in mishaps if mishap.sort is Sort.DEATH and mishap.at == 3]
    assert deaths == list(range(count))
    assert {mishap.at for mishap in mishaps} == {1, 2, 3}
    assert len(set(mishaps)) == len(mishaps)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_every_scenario_has_something_to_disturb(scenario: Scenario) -> None:
    writes = arranged(scenario, bench).call(scenario.act).writes
    assert len(writes) > 1
    assert sum(writes) > 0 or scenario.name == "more than there is, refused"
