"""A cluster in simulated time: pods come and go on nodes, and the block IPAM assigns their addresses.

Assignments and releases are those of production, over the datastore that is handed in; every one is counted, timed on
the simulated clock, and reported. Only the pods and the time are simulated. Every random choice follows from the
scenario's seed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count

from attrs import Factory, define, field

from netplug_core.clock import SECOND_NS, Clock, Deadline, Pace
from netplug_core.datastore.protocol import CommitCall, Datastore, DatastoreCall, ObservedDatastore
from netplug_core.errors import AllocationError
from netplug_core.flows.ipam.cache import make_ipam_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.flows.resources.write import create
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.model import Block, host_owner
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, Update, Write
from netplug_core.resources.ippool import AllowedUse
from netplug_core.resources.manifest import Manifest
from netplug_core.simulation.result import (
    DatastoreCallCount,
    MetricsReader,
    RefusedAssignment,
    SimulatedCall,
    SimulationResult,
    StepSample,
)
from netplug_core.simulation.scenario import PodGenerator, ProcessModel, Scenario, SeededRandom, SimulatedPod

__all__ = [
    "TIMEOUT_S", "CountingDatastore", "Observer", "SimulatedAllocator", "SimulatedClock", "simulate",
]  # fmt: skip


# --- allocator -------------------------------------------------------------------------------------------------------


# --- clock -----------------------------------------------------------------------------------------------------------


_EPOCH_NS = 1_767_225_600 * SECOND_NS  # 2026-01-01T00:00:00Z, so that stored times are the same in every run


@define
class SimulatedClock:
    """A :class:`~netplug_core.clock.Clock` on which time passes only by ``sleep``, which returns at once."""

    _elapsed_ns: int = field(default=0, init=False)

    def now_ns(self) -> int:
        """Wall-clock time: nanoseconds since 1970-01-01 UTC."""
        return _EPOCH_NS + self._elapsed_ns

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_ns / SECOND_NS

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        self._elapsed_ns += round(seconds * SECOND_NS)


# --- counting datastore ----------------------------------------------------------------------------------------------


_NOTHING_AROUND = nullcontext()


@define
class CountingDatastore(ObservedDatastore):
    """A datastore in front of another; watches are not counted. Threads may not share it.

    ``last_writes`` are the writes of the last commit.
    """

    last_writes: Sequence[Write] = field(default=(), init=False)
    _reads: int = field(default=0, init=False)
    _commits: int = field(default=0, init=False)

    @property
    def calls(self) -> DatastoreCallCount:
        """How many calls there were."""
        return DatastoreCallCount(reads=self._reads, commits=self._commits)

    def observe(self, call: DatastoreCall) -> AbstractContextManager[None]:
        """Count it."""
        if isinstance(call, CommitCall):
            self._commits += 1
            self.last_writes = call.writes
        else:
            self._reads += 1
        return _NOTHING_AROUND


# --- allocator -------------------------------------------------------------------------------------------------------


Observer = Callable[[SimulatedCall | StepSample], None]
"""Called with every call and with every step when it is over."""

TIMEOUT_S = 60.0
"""The simulated time that one call may take."""


@define(kw_only=True)
class SimulatedAllocator:
    """Assigns and releases the addresses of pods, as the nodes do it."""

    scenario: Scenario
    store: CountingDatastore
    clock: Clock
    observe: Observer
    chance: SeededRandom
    started_s: float
    first_borrowed_s: float | None = None
    ipams: dict[str, BlockIPAM] = field(factory=dict)

    @property
    def elapsed_s(self) -> float:
        """Simulated seconds since the beginning."""
        return self.clock.monotonic() - self.started_s

    def assign(self, pod: SimulatedPod) -> Assignment | AllocationError:
        """Assign a pod's addresses; return the error if there are none."""
        load = self.scenario.load
        request = AssignRequest(
            handle=pod.handle,
            node=pod.node,
            wanted=tuple(Automatic(family=family) for family in load.families),
            use=AllowedUse.WORKLOAD,
            shortfall=Shortfall.REFUSE,
            namespace_labels=load.namespace_labels,
        )
        at_ns = self.clock.now_ns()
        result: Assignment | AllocationError
        try:
            result = self._ipam(pod.node).assign(request, NO_ENDPOINT, deadline=self._deadline())
        except AllocationError as refusal:
            result = refusal
        else:
            if self.first_borrowed_s is None and _has_borrowed(self.store.last_writes, pod):
                self.first_borrowed_s = self.elapsed_s
        self.observe(SimulatedCall(at_ns=at_ns, request=request, result=result))
        return result

    def release(self, pod: SimulatedPod) -> None:
        """Release a pod's addresses."""
        request = ReleaseRequest(handle=pod.handle)
        at_ns = self.clock.now_ns()
        released = self._ipam(pod.node).release(request, NO_ENDPOINT, deadline=self._deadline())
        self.observe(SimulatedCall(at_ns=at_ns, request=request, result=released))

    def _deadline(self) -> Deadline:
        return Deadline.after(self.clock, TIMEOUT_S)

    def _ipam(self, node: str) -> BlockIPAM:
        """The IPAM of a node; that of a resident process has a cache."""
        ipam = self.ipams.get(node)
        if ipam is None:
            cache = None
            if self.scenario.process_model is ProcessModel.RESIDENT:
                cache = make_ipam_cache(self.store, clock=self.clock)
            ipam = BlockIPAM(datastore=self.store, clock=self.clock, chance=self.chance, cache=cache)
            self.ipams[node] = ipam
        return ipam


def _has_borrowed(writes: Sequence[Write], pod: SimulatedPod) -> bool:
    """Whether a commit assigned the pod an address of a block that is not its node's."""
    blocks = (write.value for write in writes if isinstance(write, (Create, Update)) and isinstance(write.value, Block))
    return any(
        block.owner != host_owner(pod.node) and any(held.attribute.handle == pod.handle for held in block.held())
        for block in blocks
    )


# --- simulator -------------------------------------------------------------------------------------------------------


_MAX_REFUSED_RETRIES = 16
"""How many waiting pods may be refused again at the beginning of a step; the others wait for the next step."""


def _ignore(_event: SimulatedCall | StepSample) -> None:
    """The observer that ignores every event."""


def simulate(scenario: Scenario, store: Datastore, clock: Clock, *, observe: Observer = _ignore) -> SimulationResult:
    """Create the resources of a scenario in a datastore, let its pods come and go, and return what happened.

    ``clock`` is the simulated time; the simulation sleeps on it. ``observe`` gets each call and each step.

    Raises:
        InvalidResource: a resource breaks rules, alone or beside the others.
        ResourceExists: two of a kind have one name.
        Unavailable: the store does not answer.
    """
    _create_resources(scenario, store, clock)
    cluster = _SimulatedCluster.of(scenario, store, clock, observe)
    samples = tuple(cluster.step(number) for number in range(1, scenario.steps + 1))
    return SimulationResult(
        samples=samples,
        usages=cluster.metrics.read(deadline=Deadline.after(clock, TIMEOUT_S)).usages,
        first_refusal=cluster.first_refusal,
        first_borrowed_s=cluster.allocator.first_borrowed_s,
    )


def _create_resources(scenario: Scenario, store: Datastore, clock: Clock) -> None:
    numbers = count(1)
    configuration = (scenario.configuration,) if scenario.configuration else ()
    for resource in (*scenario.reservations, *configuration, *scenario.pools, *scenario.nodes):
        create(
            store,
            Manifest(resource=resource),
            pace=Pace(clock=clock, deadline=Deadline.after(clock, TIMEOUT_S), chance=lambda: 0.0),
            new_uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012x}",
        )


@define
class _StepCounters:
    """Counts of one step."""

    started: int = 0
    ended: int = 0
    refusals: Counter[str] = Factory(Counter)


@define(kw_only=True)
class _SimulatedCluster:
    """Everything that changes during a simulation.

    ``waiting`` has the pods that were refused their addresses, by node, the oldest first; the nodes take turns in the
    order of the dictionary. ``releases_at_refusal`` is the number of releases in the cluster when a node was last
    refused: it asks again only after another release, or at the next step.
    """

    scenario: Scenario
    clock: Clock
    allocator: SimulatedAllocator
    pods: PodGenerator
    metrics: MetricsReader
    waiting: dict[str, deque[SimulatedPod]] = field(factory=dict)
    releases_at_refusal: dict[str, int] = field(factory=dict)
    releases: int = 0
    first_refusal: RefusedAssignment | None = None
    counters: _StepCounters = field(factory=_StepCounters)

    @classmethod
    def of(cls, scenario: Scenario, store: Datastore, clock: Clock, observe: Observer) -> _SimulatedCluster:
        """The cluster of a scenario before the first pod."""
        nodes = tuple(node.metadata.name for node in scenario.nodes)
        return cls(
            scenario=scenario,
            clock=clock,
            allocator=SimulatedAllocator(
                scenario=scenario,
                store=CountingDatastore(store),
                clock=clock,
                observe=observe,
                chance=SeededRandom(f"{scenario.seed} waits"),
                started_s=clock.monotonic(),
            ),
            pods=PodGenerator(nodes, scenario.load, SeededRandom(f"{scenario.seed} pods")),
            metrics=MetricsReader(store, nodes),
        )

    def step(self, number: int) -> StepSample:
        """Simulate a step (the first is 1): waiting pods are retried, some pods are replaced, others arrive.

        Replacements and arrivals are spread evenly over the step.
        """
        self.counters = _StepCounters()
        calls = self.allocator.store.calls
        begin_s, end_s = (number - 1) * self.scenario.step_s, number * self.scenario.step_s
        self._retry_waiting()
        replaced = self.pods.due_for_replacement(end_s)
        moves: list[SimulatedPod | None] = [*replaced, *[None] * self.pods.arrivals_due(end_s)]
        for index, pod in enumerate(moves):
            self._wait_until(begin_s + self.scenario.step_s * index / len(moves))
            if pod is not None:
                self._terminate(pod)
            self._schedule()
        self._wait_until(end_s)
        reading = self.metrics.read(deadline=Deadline.after(self.clock, TIMEOUT_S))
        sample = StepSample(
            at_s=end_s,
            running=self.pods.running,
            waiting=self.pods.waiting,
            pools=reading.pools,
            blocks_per_node=reading.blocks_per_node,
            started=self.counters.started,
            ended=self.counters.ended,
            refusals=tuple(sorted(self.counters.refusals.items())),
            calls=self.allocator.store.calls.difference(calls),
        )
        self.allocator.observe(sample)
        return sample

    def _wait_until(self, at_s: float) -> None:
        self.clock.sleep(max(0.0, at_s - self.allocator.elapsed_s))

    def _retry_waiting(self) -> None:
        """Retry the waiting pods of each node, in turn, until too many are refused."""
        refused = 0
        for node in tuple(self.waiting):
            while node in self.waiting and self._assign_oldest(node):
                pass
            if node in self.waiting:
                self.waiting[node] = self.waiting.pop(node)
                refused += 1
            if refused == _MAX_REFUSED_RETRIES:
                return

    def _terminate(self, pod: SimulatedPod) -> None:
        self.allocator.release(pod)
        self.pods.terminate(pod)
        self.releases += 1
        self.counters.ended += 1

    def _schedule(self) -> None:
        """Let a pod arrive on a node, behind the pods that wait there."""
        pod = self.pods.schedule()
        self.waiting.setdefault(pod.node, deque()).append(pod)
        if self.releases_at_refusal.get(pod.node) != self.releases:
            self._assign_oldest(pod.node)

    def _assign_oldest(self, node: str) -> bool:
        """Assign the addresses of the oldest pod that waits on a node; return whether it got them."""
        queue = self.waiting[node]
        pod = queue[0]
        result = self.allocator.assign(pod)
        if isinstance(result, AllocationError):
            self.releases_at_refusal[node] = self.releases
            self._record_refusal(pod, result)
            return False
        queue.popleft()
        if not queue:
            del self.waiting[node]
        self.pods.mark_running(pod, self.allocator.elapsed_s)
        self.counters.started += 1
        return True

    def _record_refusal(self, pod: SimulatedPod, refusal: AllocationError) -> None:
        self.counters.refusals[refusal.identifier] += 1
        if self.first_refusal is None:
            self.first_refusal = RefusedAssignment(
                at_s=self.allocator.elapsed_s, node=pod.node, identifier=refusal.identifier, text=str(refusal)
            )
