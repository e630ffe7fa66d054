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
from netplug_core.datastore.counted import Counted
from netplug_core.datastore.interface import Datastore
from netplug_core.datastore.loop import run
from netplug_core.datastore.warm import Warm
from netplug_core.errors import AllocationError
from netplug_core.flows import resources
from netplug_core.flows.gauge import Gauge
from netplug_core.flows.population import Chance, Pod, Population
from netplug_core.flows.study import Call, Findings, Process, Refusal, Sample, Study
from netplug_core.ipam.decide import decide, queries
from netplug_core.ipam.handle import HANDLE, handle_key
from netplug_core.ipam.release import decide_release, release_queries
from netplug_core.ipam.request import Assignment, AssignRequest, Automatic, Released, ReleaseRequest, Shortfall
from netplug_core.ipam.search import hashed_start
from netplug_core.ipam.trace import BlockOutcome, BlockSeen
from netplug_core.records import Get, Remark
from netplug_core.resources.ippool import AllowedUse
from netplug_core.resources.manifest import Manifest

__all__ = ["SimulatedClock", "Watch", "simulate"]

Watch = Callable[[Call | Sample], None]
"""Told of every call and of every step when it is over."""

_PATIENCE_S = 60.0
_REFUSED_AGAIN = 16
"""So many pods that wait may be refused again at the beginning of a step before the others are left for the next."""


_SECOND_NS = 1_000_000_000
_FIRST_NS = 1_767_225_600 * _SECOND_NS  # 2026-01-01T00:00:00Z, so that blocks and stamps are the same in every run


@define
class SimulatedClock:
    """A :class:`~netplug_core.clock.Clock` on which time passes only where somebody sleeps, and sleeping takes none."""

    _elapsed_ns: int = field(default=0, init=False)

    def now_ns(self) -> int:
        """Wall-clock time: nanoseconds since 1970-01-01 UTC."""
        return _FIRST_NS + self._elapsed_ns

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_ns / _SECOND_NS

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        self._elapsed_ns += round(seconds * _SECOND_NS)


def _unwatched(_event: Call | Sample) -> None:
    """Nobody wants to know."""


def simulate(study: Study, store: Datastore, clock: Clock, *, watch: Watch = _unwatched) -> Findings:
    """Create a study's resources in a store, let its pods come and go, and say what became of the pools.

    ``clock`` is the simulated time: it passes where the simulation sleeps on it.

    Raises:
        InvalidResource: a resource breaks rules, alone or beside the others.
        ResourceExists: two of a kind have one name.
        Unavailable: the store does not answer.
    """
    _create_resources(study, store, clock)
    cluster = _Cluster.of(study, store, clock, watch)
    samples = tuple(cluster.step(number) for number in range(1, study.steps + 1))
    return Findings(
        samples=samples,
        usages=cluster.gauge.read(deadline=Deadline.after(clock, _PATIENCE_S)).usages,
        first_refusal=cluster.first_refusal,
        first_loan_s=cluster.allocator.first_loan_s,
    )


def _create_resources(study: Study, store: Datastore, clock: Clock) -> None:
    numbers = count(1)
    configuration = (study.configuration,) if study.configuration else ()
    for resource in (*study.reservations, *configuration, *study.pools, *study.nodes):
        resources.create(
            store,
            Manifest(resource=resource),
            pace=Pace(clock=clock, deadline=Deadline.after(clock, _PATIENCE_S), chance=lambda: 0.0),
            new_uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012x}",
        )


# --- the calls of the nodes ------------------------------------------------------------------------------------------


@define(kw_only=True)
class _Allocator:
    """Makes the calls that nodes make for their pods, as the plugin makes them."""

    study: Study
    store: Counted
    clock: Clock
    watch: Watch
    chance: Chance
    began_s: float
    first_loan_s: float | None = None
    memories: dict[str, Warm] = field(factory=dict)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self.clock.monotonic() - self.began_s

    def assign(self, pod: Pod) -> Assignment | AllocationError:
        """A pod's addresses, or the reason why it gets none."""
        workload = self.study.workload
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
            decision = run(
                self.store,
                queries(request),
                lambda snapshot: decide(snapshot, request, self.clock.now_ns(), hashed_start),
                pace=self._pace(),
                warm=self._memory(pod.node),
                presumed=(Get(handle_key(pod.handle)),),
            )
        except AllocationError as refusal:
            result = refusal
        else:
            result = cast("Assignment", decision.result)
            if self.first_loan_s is None and any(map(_is_loan, decision.trace)):
                self.first_loan_s = self.elapsed_s
        self.watch(Call(at_ns=at_ns, request=request, result=result))
        return result

    def release(self, pod: Pod) -> None:
        """A pod's addresses are free again."""
        request = ReleaseRequest(handle=pod.handle)
        at_ns = self.clock.now_ns()
        decision = run(
            self.store,
            release_queries(request),
            lambda snapshot: decide_release(snapshot, request, self.clock.now_ns()),
            pace=self._pace(),
            warm=self._memory(pod.node),
        )
        self.watch(Call(at_ns=at_ns, request=request, result=cast("Released", decision.result)))

    def _pace(self) -> Pace:
        return Pace(clock=self.clock, deadline=Deadline.after(self.clock, _PATIENCE_S), chance=self.chance)

    def _memory(self, node: str) -> Warm | None:
        """What the node's process remembers, if it is one that does."""
        if self.study.process is Process.ONE_SHOT:
            return None
        memory = self.memories.get(node)
        if memory is None:
            memory = self.memories[node] = Warm.over(self.store, clock=self.clock, passing=frozenset((HANDLE,)))
        return memory


def _is_loan(remark: Remark) -> bool:
    return isinstance(remark, BlockSeen) and remark.outcome is BlockOutcome.BORROWED_FROM


# --- the pods --------------------------------------------------------------------------------------------------------


@define
class _Step:
    """What happened in one step."""

    started: int = 0
    ended: int = 0
    refusals: Counter[str] = Factory(Counter)


@define(kw_only=True)
class _Cluster:
    """Everything that changes while a study runs.

    ``waiting`` has the pods that were refused their addresses, by node: the nodes in the order of their turns, the
    pods in that of their arrival. A node asks for its oldest one first, since they all ask for the same.
    ``refused_after`` is how many releases there had been in the cluster when a node was last refused: until there is
    another one, asking again is of little use.
    """

    study: Study
    clock: Clock
    allocator: _Allocator
    population: Population
    gauge: Gauge
    waiting: dict[str, deque[Pod]] = field(factory=dict)
    refused_after: dict[str, int] = field(factory=dict)
    releases: int = 0
    first_refusal: Refusal | None = None
    now: _Step = field(factory=_Step)

    @classmethod
    def of(cls, study: Study, store: Datastore, clock: Clock, watch: Watch) -> _Cluster:
        """The cluster of a study before the first pod."""
        nodes = tuple(node.metadata.name for node in study.nodes)
        return cls(
            study=study,
            clock=clock,
            allocator=_Allocator(
                study=study,
                store=Counted(store),
                clock=clock,
                watch=watch,
                chance=Chance(f"{study.seed} waits"),
                began_s=clock.monotonic(),
            ),
            population=Population(nodes, study.workload, Chance(f"{study.seed} pods")),
            gauge=Gauge(store, nodes),
        )

    def step(self, number: int) -> Sample:
        """Let one step pass (the first is 1): pods that wait ask again, some are replaced, others arrive.

        What happens is spread evenly over the step's time.
        """
        self.now = _Step()
        calls = self.allocator.store.calls
        begin_s, end_s = (number - 1) * self.study.step_s, number * self.study.step_s
        self._ask_again()
        ending = self.population.ending(end_s)
        moves: list[Pod | None] = [*ending, *[None] * self.population.growth(end_s)]
        for index, pod in enumerate(moves):
            self._wait_until(begin_s + self.study.step_s * index / len(moves))
            if pod is not None:
                self._end(pod)
            self._start()
        self._wait_until(end_s)
        reading = self.gauge.read(deadline=Deadline.after(self.clock, _PATIENCE_S))
        sample = Sample(
            at_s=end_s,
            running=self.population.running,
            waiting=self.population.waiting,
            pools=reading.pools,
            blocks_per_node=reading.blocks_per_node,
            started=self.now.started,
            ended=self.now.ended,
            refusals=tuple(sorted(self.now.refusals.items())),
            calls=self.allocator.store.calls.since(calls),
        )
        self.allocator.watch(sample)
        return sample

    def _wait_until(self, at_s: float) -> None:
        self.clock.sleep(max(0.0, at_s - self.allocator.elapsed_s))

    def _ask_again(self) -> None:
        """Nodes with pods that wait ask for them, in turn, until too many were refused."""
        refused = 0
        for node in tuple(self.waiting):
            while node in self.waiting and self._ask(node):
                pass
            if node in self.waiting:
                self.waiting[node] = self.waiting.pop(node)
                refused += 1
            if refused == _REFUSED_AGAIN:
                return

    def _end(self, pod: Pod) -> None:
        self.allocator.release(pod)
        self.population.end(pod)
        self.releases += 1
        self.now.ended += 1

    def _start(self) -> None:
        """A pod arrives on a node; behind others that wait there it waits too."""
        pod = self.population.place()
        self.waiting.setdefault(pod.node, deque()).append(pod)
        if self.refused_after.get(pod.node) != self.releases:
            self._ask(pod.node)

    def _ask(self, node: str) -> bool:
        """Ask for the oldest pod that waits on a node; whether it got its addresses."""
        queue = self.waiting[node]
        pod = queue[0]
        result = self.allocator.assign(pod)
        if isinstance(result, AllocationError):
            self.refused_after[node] = self.releases
            self._note(pod, result)
            return False
        queue.popleft()
        if not queue:
            del self.waiting[node]
        self.population.run(pod, self.allocator.elapsed_s)
        self.now.started += 1
        return True

    def _note(self, pod: Pod, refusal: AllocationError) -> None:
        self.now.refusals[refusal.identifier] += 1
        if self.first_refusal is None:
            self.first_refusal = Refusal(
                at_s=self.allocator.elapsed_s, node=pod.node, identifier=refusal.identifier, text=str(refusal)
            )
