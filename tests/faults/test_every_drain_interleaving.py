"""A drain of a pool beside ADD, DEL, another drain and its undoing, in every order of their reads and writes.

On an ordered store each write is a step of its own, and an ADD that is killed may have a write on its way. Where the
drain waits for running assignments, those that have begun end, and what is on its way arrives: that is what the wait is
for. On an atomic store such a commit may arrive at any time.

No address is taken from a workload, no ADD gets an address of a pool that is gone, and whatever was interrupted is
ended by one more drain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from attrs import Factory, define, evolve, field

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import LATEST_COMMIT_S
from netplug_core.flows.resources.drain import DrainCancelled, Drainer, cancel_drain, drain
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.ipam.allocation.request import Assignment, Released, ReleaseRequest
from netplug_core.ipam.outcome import NoPoolServes
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.ipam.reporting.drain_plan import is_draining
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import ProcessDied
from tests.harness.ipam import IPAMHarness, make_request
from tests.harness.local_stores import FAULT_MODES, IS_DEEP
from tests.harness.schedules import CallScheduler, Choose, ScheduledDatastore, every_schedule

POOL = "main"
RANGE = Prefix.parse("10.0.0.0/26")
FREE_STEPS = 5 if IS_DEEP else 3
"""The steps of an operation that others may come between: its first attempt, in a deep run also the next one. A drain
reads more first, so two more are free. The rest of it follows in one go."""
MIN_STEPS = 3
"""What every ADD and DEL takes: to read its handle, to read blocks, to commit."""


@define(eq=False, kw_only=True)
class DrainClock:
    """The clock of a drain; ``waits`` is called when it waits for running assignments."""

    clock: ManualClock
    waits: Callable[[], object]

    def now_ns(self) -> int:
        return self.clock.now_ns()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds >= LATEST_COMMIT_S:
            self.waits()  # what it waits for has ended; a clock that jumps would stop the others' calls
        else:
            self.clock.sleep(seconds)


@define(kw_only=True)
class Cluster:
    """Two pools of which one is drained: one address of it is held, and a block of another node is empty."""

    harness: IPAMHarness
    answers: dict[str, object] = field(default=Factory(dict))

    @classmethod
    def new(cls, mode: MemoryMode) -> Cluster:
        cluster = cls(harness=IPAMHarness.new(mode))
        cluster.harness.add_pool(POOL, str(RANGE), 27)
        cluster.harness.put_owned_block("10.0.0.0/27")
        cluster.harness.put_owned_block("10.0.0.32/27", "node-b")
        return cluster

    def drainer(self, store: Datastore, waits: Callable[[], object] = lambda: None) -> Drainer:
        clock = DrainClock(clock=self.harness.clock, waits=waits)
        return Drainer(
            store=store, clock=clock, pace=lambda: Pace(clock=clock, deadline=self.harness.deadline, chance=lambda: 0.5)
        )

    def drain(self, store: Datastore, waits: Callable[[], object] = lambda: None) -> object:
        pool = self.harness.find_record(ippool_key(POOL))
        try:
            return pool and list(drain(self.drainer(store, waits), pool))
        except DrainCancelled as error:
            return error

    def undo(self, store: Datastore) -> object:
        try:
            return cancel_drain(self.drainer(store), POOL)
        except ResourceMissing as error:
            return error

    def add(self, store: Datastore) -> object:
        ipam = evolve(self.harness.ipam(), datastore=store)
        try:
            return ipam.assign(make_request("new"), NO_ENDPOINT, deadline=self.harness.deadline)
        except NoPoolServes as error:
            return error

    def delete(self, store: Datastore) -> Released:
        return evolve(self.harness.ipam(), datastore=store).release(
            ReleaseRequest(handle="held"), NO_ENDPOINT, deadline=self.harness.deadline
        )

    @property
    def is_there(self) -> bool:
        return self.harness.find_record(ippool_key(POOL)) is not None

    def held_in_range(self) -> dict[str, str | None]:
        return {
            address: handle for address, handle in self.harness.held().items() if RANGE.contains(Address.parse(address))
        }


OPERATIONS: Mapping[str, Callable[[Cluster, Datastore], object]] = {
    "ADD": Cluster.add, "DEL": Cluster.delete, "another drain": Cluster.drain, "its undoing": Cluster.undo,
}  # fmt: skip
OF_RUNTIME = ("ADD", "DEL")
DRAIN = "the drain"


@define(kw_only=True)
class Case:
    """A drain and another operation, and at which of its steps the other one is killed (0: at none)."""

    mode: MemoryMode
    other: str
    dies_at: int = 0
    has_died: bool = False
    is_running: bool = False
    is_settling: bool = False

    def run(self, choose: Choose) -> None:
        """Run one schedule, and check what it leaves."""
        cluster, turns = Cluster.new(self.mode), CallScheduler()
        if self.other != "ADD":
            cluster.harness.assign_or_refuse("held")
        self.has_died = self.is_running = self.is_settling = False
        clients = {
            DRAIN: partial(self.drain, cluster, turns),
            self.other: partial(self.operate, cluster, turns),
        }
        before = cluster.held_in_range()
        turns.run(clients, partial(self.choose, choose))
        self.check(cluster, before)
        self.finish(cluster)

    def choose(self, choose: Choose, waiting: Sequence[str]) -> str:
        """Who goes on; not the drain, while it waits for what has begun."""
        is_held_back = self.is_settling and self.is_running and len(waiting) > 1
        return choose([name for name in waiting if name != DRAIN] if is_held_back else waiting)

    def drain(self, cluster: Cluster, turns: CallScheduler) -> None:
        def wait() -> None:
            turns.wait(DRAIN)  # a step of its own: the reads before it and those of others during the wait differ
            self.is_settling = True
            turns.wait(DRAIN)
            self.is_settling = False

        store = ScheduledDatastore(
            inner=cluster.harness.store, turn=lambda: turns.wait(DRAIN, is_read=store.is_reading)
        )  # fmt: skip
        cluster.answers[DRAIN] = cluster.drain(store, wait)

    def operate(self, cluster: Cluster, turns: CallScheduler) -> None:
        def turn() -> None:
            self.is_running = self.other in OF_RUNTIME
            free = FREE_STEPS + (0 if self.other in OF_RUNTIME else 2)
            if store.steps < free:
                is_last = store.steps == free - 1  # everything that follows is done in the same go
                turns.wait(self.other, is_read=store.is_reading and not is_last)

        store = ScheduledDatastore(inner=cluster.harness.store, dies_at=self.dies_at, turn=turn)
        try:
            cluster.answers[self.other] = OPERATIONS[self.other](cluster, store)
        except ProcessDied:
            self.has_died = True
            if store.late is not None:
                turns.wait("late")
                store.late.land(cluster.harness.store, deadline=cluster.harness.deadline)
        self.is_running = False

    def check(self, cluster: Cluster, before: Mapping[str, str | None]) -> None:
        """No workload lost its address, and none has one of a pool that is gone."""
        held = cluster.held_in_range()
        answer = cluster.answers.get(self.other)
        if self.other != "DEL":
            assert before.items() <= held.items()
        elif isinstance(answer, Released):
            assert held == {}
        if isinstance(answer, Assignment):
            assert [str(given.address) for given in answer.addresses] == list(held)
        pool = cluster.harness.find(ippool_key(POOL))
        assert pool is not None or held == {}
        if self.other != "its undoing":
            assert pool is None or is_draining(pool)
        elif pool is not None and answer is True and isinstance(cluster.answers[DRAIN], DrainCancelled):
            assert not pool.spec.is_disabled

    def finish(self, cluster: Cluster) -> None:
        """The workloads go, and one more drain ends what was interrupted."""
        harness = cluster.harness
        was_there = cluster.is_there
        for handle in ("new", "held"):
            harness.release(handle)
        assert cluster.held_in_range() == {}
        cluster.drain(harness.store)
        assert not cluster.is_there
        if was_there:
            assert (harness.blocks(), harness.affinities(), harness.handles()) == ({}, {}, [])


@pytest.mark.parametrize(
    "other, mode",
    [
        (other, mode) for other in OPERATIONS for mode in FAULT_MODES
        if IS_DEEP or other != "another drain" or mode is MemoryMode.ATOMIC
    ],
)  # fmt: skip
def test_a_drain_takes_nothing_in_any_order(other: str, mode: MemoryMode) -> None:
    ran, died_at = 0, list[int]()
    for dies_at in range(FREE_STEPS + 1 if other in OF_RUNTIME else 1):
        case = Case(mode=mode, other=other, dies_at=dies_at)
        deaths = 0
        for _schedule in every_schedule(case.run):
            ran += 1
            deaths += case.has_died
        if deaths:
            died_at.append(dies_at)
    assert ran > 10
    assert died_at == list(range(1, len(died_at) + 1))  # a release has fewer steps than a deep run lets it die at
    assert len(died_at) >= (MIN_STEPS if other in OF_RUNTIME else 0)
