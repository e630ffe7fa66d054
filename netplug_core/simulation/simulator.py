"""A cluster in simulated time: pods come and go on nodes, and the allocator gives them addresses.

Every assignment and every release is decided by the same rules and committed by the same loop as in production, over
a store that is handed in (an empty one in memory, as a rule); only the pods and the time are made up. Whatever is left
to chance follows from the study's seed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from typing import cast

from attrs import Factory, define, field

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.cache import DatastoreCache
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import AllocationError
from netplug_core.flows.readiness import READINESS_GATE
from netplug_core.flows.resources.create import create
from netplug_core.ipam.allocation.block_order import hashed_start
from netplug_core.ipam.allocation.decide import decide, queries
from netplug_core.ipam.allocation.release import decide_release, release_queries
from netplug_core.ipam.allocation.request import (
    Assignment,
    AssignRequest,
    Automatic,
    Released,
    ReleaseRequest,
    Shortfall,
)
from netplug_core.ipam.model.handle import HANDLE, handle_key
from netplug_core.ipam.outcome.trace import BlockOutcome, BlockTrace
from netplug_core.records import Get, Query, TraceEntry
from netplug_core.resources.ippool import AllowedUse
from netplug_core.resources.manifest import Manifest
from netplug_core.simulation.counting_datastore import CountingDatastore
from netplug_core.simulation.metrics import MetricsReader
from netplug_core.simulation.pod_generator import PodGenerator, SeededRandom, SimulatedPod
from netplug_core.simulation.scenario import (
    ProcessModel,
    RefusedAssignment,
    Scenario,
    SimulatedCall,
    SimulationResult,
    StepSample,
)

__all__ = ["Observer", "SimulatedClock", "simulate"]

Observer = Callable[[SimulatedCall | StepSample], None]
"""Told of every call and of every step when it is over."""

_TIMEOUT_S = 60.0
_MAX_REFUSED_RETRIES = 16
"""So many pods that wait may be refused again at the beginning of a step before the others are left for the next."""


_SECOND_NS = 1_000_000_000
_EPOCH_NS = 1_767_225_600 * _SECOND_NS  # 2026-01-01T00:00:00Z, so that blocks and stamps are the same in every run


@define
class SimulatedClock:
    """A :class:`~netplug_core.clock.Clock` on which time passes only where somebody sleeps, and sleeping takes none."""

    _elapsed_ns: int = field(default=0, init=False)

    def now_ns(self) -> int:
        """Wall-clock time: nanoseconds since 1970-01-01 UTC."""
        return _EPOCH_NS + self._elapsed_ns

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_ns / _SECOND_NS

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        self._elapsed_ns += round(seconds * _SECOND_NS)


def _ignore(_event: SimulatedCall | StepSample) -> None:
    """Nobody wants to know."""


def simulate(scenario: Scenario, store: Datastore, clock: Clock, *, observe: Observer = _ignore) -> SimulationResult:
    """Create a study's resources in a store, let its pods come and go, and say what became of the pools.

    ``clock`` is the simulated time: it passes where the simulation sleeps on it.

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
        usages=cluster.metrics.read(deadline=Deadline.after(clock, _TIMEOUT_S)).usages,
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
            pace=Pace(clock=clock, deadline=Deadline.after(clock, _TIMEOUT_S), chance=lambda: 0.0),
            new_uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012x}",
        )


# --- the calls of the nodes ------------------------------------------------------------------------------------------


@define(kw_only=True)
class _Allocator:
    """Makes the calls that nodes make for their pods, as the plugin makes them."""

    scenario: Scenario
    store: CountingDatastore
    clock: Clock
    observe: Observer
    chance: SeededRandom
    started_s: float
    first_borrowed_s: float | None = None
    caches: dict[str, DatastoreCache] = field(factory=dict)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self.clock.monotonic() - self.started_s

    def assign(self, pod: SimulatedPod) -> Assignment | AllocationError:
        """A pod's addresses, or the reason why it gets none."""
        workload = self.scenario.load
        request = AssignRequest(
            handle=pod.handle,
            node=pod.node,
            wanted=tuple(Automatic(family=family) for family in workload.families),
            use=AllowedUse.WORKLOAD,
            shortfall=Shortfall.REFUSE,
            namespace_labels=workload.namespace_labels,
        )
        at_ns = self.clock.now_ns()
        result: Assignment | AllocationError
        try:
            decision = self._transaction(pod.node, Get(handle_key(pod.handle))).run(
                queries(request), lambda snapshot: decide(snapshot, request, self.clock.now_ns(), hashed_start)
            )
        except AllocationError as refusal:
            result = refusal
        else:
            result = cast("Assignment", decision.result)
            if self.first_borrowed_s is None and any(map(_is_borrowed, decision.trace)):
                self.first_borrowed_s = self.elapsed_s
        self.observe(SimulatedCall(at_ns=at_ns, request=request, result=result))
        return result

    def release(self, pod: SimulatedPod) -> None:
        """A pod's addresses are free again."""
        request = ReleaseRequest(handle=pod.handle)
        at_ns = self.clock.now_ns()
        decision = self._transaction(pod.node).run(
            release_queries(request), lambda snapshot: decide_release(snapshot, request, self.clock.now_ns())
        )
        self.observe(SimulatedCall(at_ns=at_ns, request=request, result=cast("Released", decision.result)))

    def _transaction(self, node: str, *assume_absent: Query) -> Transaction:
        pace = Pace(clock=self.clock, deadline=Deadline.after(self.clock, _TIMEOUT_S), chance=self.chance)
        return Transaction(self.store, pace, READINESS_GATE, self._node_cache(node), assume_absent)

    def _node_cache(self, node: str) -> DatastoreCache | None:
        """What the node's process remembers, if it is one that does."""
        if self.scenario.process_model is ProcessModel.ONE_SHOT:
            return None
        memory = self.caches.get(node)
        if memory is None:
            memory = self.caches[node] = DatastoreCache.for_datastore(
                self.store, clock=self.clock, uncached_kinds=frozenset((HANDLE,))
            )
        return memory


def _is_borrowed(remark: TraceEntry) -> bool:
    return isinstance(remark, BlockTrace) and remark.outcome is BlockOutcome.BORROWED_FROM


# --- the pods --------------------------------------------------------------------------------------------------------


@define
class _StepCounters:
    """What happened in one step."""

    started: int = 0
    ended: int = 0
    refusals: Counter[str] = Factory(Counter)


@define(kw_only=True)
class _SimulatedCluster:
    """Everything that changes while a study runs.

    ``waiting`` has the pods that were refused their addresses, by node: the nodes in the order of their turns, the
    pods in that of their arrival. A node asks for its oldest one first, since they all ask for the same.
    ``releases_at_refusal`` is how many releases there had been in the cluster when a node was last refused: until
    there is
    another one, asking again is of little use.
    """

    scenario: Scenario
    clock: Clock
    allocator: _Allocator
    pods: PodGenerator
    metrics: MetricsReader
    waiting: dict[str, deque[SimulatedPod]] = field(factory=dict)
    releases_at_refusal: dict[str, int] = field(factory=dict)
    releases: int = 0
    first_refusal: RefusedAssignment | None = None
    counters: _StepCounters = field(factory=_StepCounters)

    @classmethod
    def of(cls, scenario: Scenario, store: Datastore, clock: Clock, observe: Observer) -> _SimulatedCluster:
        """The cluster of a study before the first pod."""
        nodes = tuple(node.metadata.name for node in scenario.nodes)
        return cls(
            scenario=scenario,
            clock=clock,
            allocator=_Allocator(
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
        """Let one step pass (the first is 1): pods that wait ask again, some are replaced, others arrive.

        What happens is spread evenly over the step's time.
        """
        self.counters = _StepCounters()
        calls = self.allocator.store.calls
        begin_s, end_s = (number - 1) * self.scenario.step_s, number * self.scenario.step_s
        self._retry_waiting()
        ending = self.pods.due_for_replacement(end_s)
        moves: list[SimulatedPod | None] = [*ending, *[None] * self.pods.arrivals_due(end_s)]
        for index, pod in enumerate(moves):
            self._wait_until(begin_s + self.scenario.step_s * index / len(moves))
            if pod is not None:
                self._terminate(pod)
            self._schedule()
        self._wait_until(end_s)
        reading = self.metrics.read(deadline=Deadline.after(self.clock, _TIMEOUT_S))
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
        """Nodes with pods that wait ask for them, in turn, until too many were refused."""
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
        """A pod arrives on a node; behind others that wait there it waits too."""
        pod = self.pods.schedule()
        self.waiting.setdefault(pod.node, deque()).append(pod)
        if self.releases_at_refusal.get(pod.node) != self.releases:
            self._assign_oldest(pod.node)

    def _assign_oldest(self, node: str) -> bool:
        """Ask for the oldest pod that waits on a node; whether it got its addresses."""
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
