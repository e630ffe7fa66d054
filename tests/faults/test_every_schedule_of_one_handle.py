"""Two operations on one handle, in every order in which their reads and writes can come; one of them may be killed.

Of orders that differ only in which of two reads comes first, one is run. On an ordered store each write is a step of
its own. A killed operation may have a write on its way: it arrives at any later moment, also after everything else. At
the end the handle is released, as a runtime does. Then on an ordered store nothing may be held. On an atomic store a
whole commit may have arrived after that release; then the collector frees it, or the next release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from attrs import Factory, define, evolve, field

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.collect import Collector, read_view, tick
from netplug_core.ipam.allocation.request import Assignment, Released, ReleaseRequest
from netplug_core.ipam.gc.candidates import CollectionReport, CollectorSettings, ScanHistory
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.testing.faults import ProcessDied
from tests.harness.cni_node import RecordingLog
from tests.harness.collector import FakePodLookup
from tests.harness.ipam import NODE, IPAMHarness, make_request
from tests.harness.local_stores import IS_DEEP
from tests.harness.schedules import CallScheduler, Choose, ScheduledDatastore, every_schedule

GRACE_S = 60.0
BLOCK = "10.0.0.0/26"
REQUEST = evolve(make_request("h"), owner=(("namespace", "default"), ("pod", "web")))
FREE_STEPS = 6 if IS_DEEP else 4
"""The steps of an operation that others may come between: its first attempt, in a deep run also most of the second.

Without an end to it, two operations could make each other start again for ever.
"""


@define(kw_only=True)
class Cluster:
    """A node with one block, and what its processes answered."""

    harness: IPAMHarness
    history: ScanHistory = field(factory=ScanHistory)
    answers: dict[str, object] = field(default=Factory(dict))

    @classmethod
    def new(cls, mode: MemoryMode) -> Cluster:
        cluster = cls(harness=IPAMHarness.new(mode))
        cluster.harness.add_pool("main", "10.0.0.0/24")
        cluster.harness.put_owned_block(BLOCK)
        cluster.harness.assign_or_refuse("neighbour")
        return cluster

    def add(self, store: Datastore) -> Assignment:
        ipam = evolve(self.harness.ipam(), datastore=store)
        return ipam.assign(REQUEST, NO_ENDPOINT, deadline=self.harness.deadline)

    def delete(self, store: Datastore) -> Released:
        ipam = evolve(self.harness.ipam(), datastore=store)
        return ipam.release(ReleaseRequest(handle="h", node=NODE), NO_ENDPOINT, deadline=self.harness.deadline)

    def collect(self, store: Datastore) -> CollectionReport:
        """A tick of the collector; the pod does not exist."""
        harness = self.harness
        view = read_view(
            harness.store, FakePodLookup().cluster, now_ns=harness.clock.now_ns(), deadline=harness.deadline
        )
        settings = CollectorSettings(grace_s=GRACE_S)
        collector = Collector(
            store=store, live_lookup=FakePodLookup(), clock=harness.clock, chance=lambda: 0.5, log=RecordingLog(),
            settings=settings,
        )  # fmt: skip
        self.history, report = tick(collector, view, self.history)
        return report

    def held(self) -> list[str]:
        """The addresses that the handle holds."""
        return [address for address, handle in self.harness.held().items() if handle == "h"]

    def check_reachable(self) -> None:
        """Whatever happened, the handle leads to what it holds, and the neighbour's address is its own."""
        assert list(self.harness.held().values()).count("neighbour") == 1
        held = self.held()
        if held:
            assert self.harness.handle_counts("h").get(BLOCK, 0) >= len(held)


def nothing(cluster: Cluster) -> None:
    del cluster


def leftover_handle(cluster: Cluster) -> None:
    """A handle that counts an address which it does not hold."""
    cluster.harness.put_handle("h", b0=1)


def held_address(cluster: Cluster) -> None:
    cluster.add(cluster.harness.store)


OPERATIONS: Mapping[str, Callable[[Cluster, Datastore], object]] = {
    "ADD": Cluster.add, "DEL": Cluster.delete, "the collector": Cluster.collect,
}  # fmt: skip
STARTS: Mapping[str, Callable[[Cluster], None]] = {
    "nothing": nothing, "a leftover handle": leftover_handle, "a held address": held_address,
}  # fmt: skip
STORES_AND_STARTS = tuple(
    (mode, start) for mode in MemoryMode for start in STARTS
    if IS_DEEP or mode is not MemoryMode.ORDERED or start != "a leftover handle"
)  # fmt: skip
"""What is wrong on the ordered store is wrong on the kube-like one, so the costliest start is tried there only."""

PAIRS = (("ADD", "ADD"), ("ADD", "DEL"), ("DEL", "DEL"), ("ADD", "the collector"), ("DEL", "the collector"))


@define(kw_only=True)
class Case:
    """Two operations, what is stored when they begin, and which of them dies at which of its steps (0: none)."""

    mode: MemoryMode
    names: tuple[str, str]
    start: str
    victim: int = 0
    dies_at: int = 0
    has_died: bool = False
    is_released: bool = False
    late_commits: int = 0

    def run(self, choose: Choose) -> None:
        """Run one schedule, and check what it leaves."""
        cluster, turns = Cluster.new(self.mode), CallScheduler()
        STARTS[self.start](cluster)
        if "the collector" in self.names:  # what it will look at is older than the grace period
            cluster.collect(cluster.harness.store)
            cluster.harness.clock.sleep(GRACE_S + 1)
        self.has_died = self.is_released = False
        clients = {str(n): partial(self.client, cluster, turns, n) for n in range(2)}
        turns.run(clients, partial(self.choose, cluster, choose))
        cluster.check_reachable()
        if not self.is_released:
            self.check_answers(cluster)
        elif self.mode is not MemoryMode.ATOMIC:
            assert cluster.held() == [], "a write arrived after the DEL, and its address is held"
        elif cluster.held():
            self.late_commits += 1
            self.free_by_collector(cluster)
        self.release(cluster)

    def choose(self, cluster: Cluster, choose: Choose, waiting: Sequence[str]) -> str:
        """Who goes on. If only a late write is left, the runtime's next DEL may come before it."""
        if list(waiting) == ["late"] and choose(("late", "DEL")) == "DEL":
            cluster.check_reachable()
            self.check_answers(cluster)
            self.release(cluster)
            self.is_released = True
        return choose(waiting) if list(waiting) != ["late"] else "late"

    def client(self, cluster: Cluster, turns: CallScheduler, number: int) -> None:
        name = self.names[number]

        def turn() -> None:
            if store.steps < FREE_STEPS:
                is_last = store.steps == FREE_STEPS - 1  # everything that follows is done in the same go
                turns.wait(str(number), is_read=store.is_reading and not is_last)

        store = ScheduledDatastore(
            inner=cluster.harness.store, dies_at=self.dies_at if number == self.victim else 0, turn=turn
        )
        try:
            cluster.answers[f"{number} {name}"] = OPERATIONS[name](cluster, store)
        except ProcessDied:
            self.has_died = True
            cluster.answers[f"{number} {name}"] = None
            if store.late is not None:
                turns.wait("late")
                store.late.land(cluster.harness.store, deadline=cluster.harness.deadline)

    def check_answers(self, cluster: Cluster) -> None:
        """What an ADD answered is held, unless it is freed by an operation that says so or has not answered."""
        freed: set[Address] = set()
        may_be_freed = False
        for name, answer in cluster.answers.items():
            freed.update(answer.addresses if isinstance(answer, Released) else ())
            may_be_freed |= isinstance(answer, CollectionReport) or (answer is None and "ADD" not in name)
        for answer in cluster.answers.values():
            if isinstance(answer, Assignment) and not may_be_freed:
                given = {assigned.address for assigned in answer.addresses}
                assert {str(address) for address in given - freed} <= set(cluster.held())

    def free_by_collector(self, cluster: Cluster) -> None:
        """Let a grace period pass: the pod does not exist, so what its handle holds is free afterwards."""
        cluster.collect(cluster.harness.store)
        cluster.harness.clock.sleep(GRACE_S + 1)
        cluster.collect(cluster.harness.store)
        assert cluster.held() == []
        assert cluster.harness.handles() == ["neighbour"]
        cluster.check_reachable()

    def release(self, cluster: Cluster) -> None:
        """The runtime's DEL: afterwards the handle holds nothing."""
        cluster.delete(cluster.harness.store)
        assert cluster.held() == []
        assert cluster.harness.handles() == ["neighbour"]


@pytest.mark.parametrize("mode, start", STORES_AND_STARTS)
@pytest.mark.parametrize("names", PAIRS, ids=" and ".join)
def test_two_operations_on_one_handle_leave_nothing(names: tuple[str, str], start: str, mode: MemoryMode) -> None:
    ran = late_commits = 0
    for victim in range(len(set(names))):  # of two that do the same, it does not matter which one dies
        for dies_at in range(victim, FREE_STEPS + 1):  # without a death there is no victim
            case = Case(mode=mode, names=names, start=start, victim=victim, dies_at=dies_at)
            deaths = 0
            for _schedule in every_schedule(case.run):
                ran += 1
                deaths += case.has_died
            late_commits += case.late_commits
            if dies_at and not deaths:
                break
    assert ran > 1
    # After an ADD of the same attachment the block has another revision, so the commit of the dead one is refused.
    assert bool(late_commits) == (mode is MemoryMode.ATOMIC and names.count("ADD") == 1)
