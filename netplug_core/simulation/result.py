"""The result of a simulation: its calls, and the metrics of pools and blocks after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attrs import Factory, define, field, frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import AllocationError
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Released, ReleaseRequest
from netplug_core.ipam.model import Block, host_owner
from netplug_core.ipam.reporting.usage import PoolUsage, borrowed
from netplug_core.resources.ippool import IPPoolSpec

__all__ = [
    "ClusterMetrics", "DatastoreCallCount", "Distribution", "MetricsReader", "PoolSample", "RefusedAssignment",
    "SimulatedCall", "SimulationResult", "StepSample",
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
        for identifier, count in (refusal for sample in self.samples for refusal in sample.refusals):
            total[identifier] = total.get(identifier, 0) + count
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
