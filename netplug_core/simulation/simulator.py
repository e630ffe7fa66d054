"""A cluster in simulated time: pods come and go, the block IPAM assigns addresses, and every step has its result.

Assignments and releases are those of production, over the datastore that is handed in; every one is counted, timed on
the simulated clock, and reported. Only the pods and the time are simulated. Every random choice follows from the
scenario's seed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count

from attrs import Factory, define, field, frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import SECOND_NS, Clock, Deadline, Pace
from netplug_core.datastore.protocol import CommitCall, Datastore, DatastoreCall, ObservedDatastore
from netplug_core.errors import AllocationError
from netplug_core.flows.ipam.cache import make_ipam_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.flows.resources.write import create
from netplug_core.ipam.allocation.request import (
    Assignment,
    AssignRequest,
    Automatic,
    Released,
    ReleaseRequest,
    Shortfall,
)
from netplug_core.ipam.model import Block, host_owner
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.ipam.reporting.usage import PoolUsage, borrowed
from netplug_core.records import Create, Update, Write
from netplug_core.resources.codec import Manifest
from netplug_core.resources.ippool import AllowedUse, IPPoolSpec
from netplug_core.simulation.scenario import PodGenerator, ProcessModel, Scenario, SeededRandom, SimulatedPod

__all__ = [
    "TIMEOUT_S", "ClusterMetrics", "CountingDatastore", "DatastoreCallCount", "Distribution", "MetricsReader",
    "Observer", "PoolSample", "RefusedAssignment", "SimulatedAllocator", "SimulatedCall", "SimulatedClock",
    "SimulationResult", "StepSample", "simulate",
]  # fmt: skip


# --- result ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class DatastoreCallCount:
    """How many calls a datastore got; calls that failed count too."""

    reads: int = 0
    commits: int = 0

    def difference(self, earlier: DatastoreCallCount) -> DatastoreCallCount:
        """The calls since an earlier count."""
        return DatastoreCallCount(reads=self.reads - earlier.reads, commits=self.commits - earlier.commits)


@frozen(kw_only=True)
class SimulatedCall:
    """One call of a node: the wall-clock time, the request and the result."""

    at_ns: int
    request: AssignRequest | ReleaseRequest
    result: Assignment | Released | AllocationError


@frozen(kw_only=True)
class Distribution:
    """How a number is distributed over nodes; of two middle values, ``median`` is the lower one."""

    minimum: int
    median: int
    maximum: int

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Distribution:
        """The distribution of at least one number."""
        in_order = sorted(numbers)
        return cls(minimum=in_order[0], median=in_order[(len(in_order) - 1) // 2], maximum=in_order[-1])


@frozen(kw_only=True)
class PoolSample:
    """One pool at one moment.

    ``in_use`` are the addresses that are not free; ``cooling`` of them are released and in their cooldown.
    ``available`` addresses can still be assigned, to some node. A pool has at most ``max_blocks`` blocks;
    ``unaffined_blocks`` of its ``blocks`` have no affinity to a node.
    """

    name: str
    prefix: Prefix
    in_use: int
    cooling: int
    reserved: int
    available: int
    borrowed: int
    blocks: int
    max_blocks: int
    unaffined_blocks: int
    blocks_per_node: Distribution

    @property
    def utilization(self) -> float:
        """The share of its addresses that is not free."""
        return self.in_use / self.prefix.size


@frozen(kw_only=True)
class StepSample:
    """The cluster at the end of a step (``at_s`` seconds after the beginning), and what happened in the step.

    ``running`` pods have their addresses, ``waiting`` pods were refused theirs. ``started`` and ``ended`` pods,
    ``refusals`` (by identifier, sorted) and ``calls`` to the store are those of the step. ``blocks_per_node`` covers
    all pools.
    """

    at_s: int
    running: int
    waiting: int
    pools: tuple[PoolSample, ...]
    blocks_per_node: Distribution
    started: int
    ended: int
    refusals: tuple[tuple[str, int], ...]
    calls: DatastoreCallCount

    @property
    def held(self) -> int:
        """Addresses that pods hold."""
        return sum(pool.in_use - pool.cooling for pool in self.pools)

    @property
    def borrowed(self) -> int:
        """Addresses that pods hold in a block with an affinity to another node."""
        return sum(pool.borrowed for pool in self.pools)

    @property
    def borrowed_share(self) -> float:
        """The borrowed addresses as a share of those held."""
        return self.borrowed / self.held if self.held else 0.0

    @property
    def blocks(self) -> int:
        """Blocks of all pools."""
        return sum(pool.blocks for pool in self.pools)

    @property
    def unaffined_blocks(self) -> int:
        """Blocks without an affinity to a node."""
        return sum(pool.unaffined_blocks for pool in self.pools)

    @property
    def refused(self) -> int:
        """How many assignments were refused in the step."""
        return sum(count for _identifier, count in self.refusals)


@frozen(kw_only=True)
class RefusedAssignment:
    """An assignment that was refused: when (seconds after the beginning), where and why."""

    at_s: float
    node: str
    identifier: str
    text: str


@frozen(kw_only=True)
class SimulationResult:
    """The result of a simulation: a sample for each step, and all pools with their blocks at the end.

    ``first_refusal`` and ``first_borrowed_s`` are exact to the call; None if there was none.
    """

    samples: tuple[StepSample, ...]
    usages: tuple[PoolUsage, ...]
    first_refusal: RefusedAssignment | None = None
    first_borrowed_s: float | None = None

    @property
    def last(self) -> StepSample:
        """The sample of the last step."""
        return self.samples[-1]

    @property
    def refusals(self) -> tuple[tuple[str, int], ...]:
        """How many assignments were refused in all, by identifier."""
        total: dict[str, int] = {}
        for identifier, refused in (refusal for sample in self.samples for refusal in sample.refusals):
            total[identifier] = total.get(identifier, 0) + refused
        return tuple(sorted(total.items()))

    @property
    def calls(self) -> DatastoreCallCount:
        """How often the datastore was called in all."""
        counts = [sample.calls for sample in self.samples]
        return DatastoreCallCount(
            reads=sum(count.reads for count in counts), commits=sum(count.commits for count in counts)
        )

    def find_exhausted_s(self, pool: str) -> int | None:
        """The end of the first step after which a pool had no address left to assign; None if there is none."""
        full = (
            sample.at_s
            for sample in self.samples
            for other in sample.pools
            if other.name == pool and not other.available
        )
        return next(full, None)


# --- metrics ---------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ClusterMetrics:
    """All pools with their blocks, a sample of each pool, and the distribution of blocks over the nodes."""

    usages: tuple[PoolUsage, ...]
    pools: tuple[PoolSample, ...]
    blocks_per_node: Distribution


@define
class MetricsReader:
    """Reads the metrics of a cluster with these nodes."""

    store: Datastore
    nodes: tuple[str, ...]
    _borrowed_counts: dict[Prefix, tuple[Block, int]] = field(default=Factory(dict), init=False)

    def read(self, *, deadline: Deadline) -> ClusterMetrics:
        """The metrics now."""
        usages = read_utilization(self.store, deadline=deadline)
        return ClusterMetrics(
            usages=usages,
            pools=tuple(self._pool_sample(usage, usage.pool.spec) for usage in usages if usage.pool is not None),
            blocks_per_node=self._distribution(usages),
        )

    def _pool_sample(self, usage: PoolUsage, spec: IPPoolSpec) -> PoolSample:
        is_too_small = spec.prefix.length > spec.block_length  # a disabled pool may be
        return PoolSample(
            name=usage.name,
            prefix=usage.prefix,
            in_use=usage.in_use,
            cooling=usage.cooling,
            reserved=usage.reserved,
            available=usage.available,
            borrowed=sum(self._count_borrowed(block.block) for block in usage.blocks),
            blocks=len(usage.blocks),
            max_blocks=0 if is_too_small else spec.prefix.subprefix_count(spec.block_length),
            unaffined_blocks=sum(not block.block.owner for block in usage.blocks),
            blocks_per_node=self._distribution((usage,)),
        )

    def _distribution(self, usages: tuple[PoolUsage, ...]) -> Distribution:
        owned = Counter(block.block.owner for usage in usages for block in usage.blocks)
        return Distribution.of(owned[host_owner(node)] for node in self.nodes)

    def _count_borrowed(self, block: Block) -> int:
        """How many addresses of a block are borrowed; cached, because most blocks do not change in a step."""
        known = self._borrowed_counts.get(block.prefix)
        if known is None or known[0] is not block:
            known = self._borrowed_counts[block.prefix] = (block, len(borrowed((block,))))
        return known[1]


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
