"""What a simulation is asked and what it answers: a cluster with its pods, and how its pools fared with them.

``simulate`` turns the one into the other; ``netplugctl simulate`` reads the first and shows the second.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import AllocationError, ConfigurationError
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Released, ReleaseRequest
from netplug_core.ipam.model.block import Pairs
from netplug_core.ipam.reporting.utilization import PoolUsage
from netplug_core.resources.ipamconfiguration import IPAMConfiguration
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.ipreservation import IPReservation
from netplug_core.resources.node import Node
from netplug_core.simulation.counting_datastore import DatastoreCallCount

__all__ = [
    "Distribution",
    "Placement",
    "PodLoad",
    "PoolSample",
    "ProcessModel",
    "RefusedAssignment",
    "Scenario",
    "SimulatedCall",
    "SimulationResult",
    "StepSample",
]


class Placement(enum.Enum):
    """On which of the nodes that have room a new pod is placed.

    ``SPREAD``: on one that runs the fewest, as schedulers usually do. ``RANDOM``: on any. ``PACK``: on the first, as
    where a node is added when the others are full.
    """

    SPREAD = "spread"
    RANDOM = "random"
    PACK = "pack"


class ProcessModel(enum.Enum):
    """What serves the calls of a node: a process for each, or one for all that remembers what it has read."""

    ONE_SHOT = "one-shot"
    RESIDENT = "resident"


@frozen(kw_only=True)
class PodLoad:
    """The pods of a study.

    There are ``pods_per_node`` for each node once all have arrived, ``arrivals_per_s`` in the whole cluster until then
    (None: all of them in the first step); a node runs at most ``most_per_node`` (None: no more than that average). In
    every step the share ``churn`` (0 to 1) of the pods that run then is replaced, and so is each that has run for
    ``lifetime_s``. A pod wants an address of each of ``families``, and its namespace has ``namespace_labels``.
    """

    pods_per_node: int
    max_per_node: int | None = None
    arrivals_per_s: float | None = None
    churn: float = 0.0
    lifetime_s: float | None = None
    placement: Placement = Placement.SPREAD
    families: tuple[Family, ...] = (Family.IPV4,)
    namespace_labels: Pairs = ()

    def __attrs_post_init__(self) -> None:
        pods, most, rate, lifetime_s = self.pods_per_node, self.max_per_node, self.arrivals_per_s, self.lifetime_s
        _require(pods >= 1, "pods_per_node", pods, "at least 1")
        _require(most is None or most >= pods, "most_per_node", most, "pods_per_node or more")
        _require(rate is None or rate > 0, "arrivals_per_s", rate, "more than 0")
        _require(0 <= self.churn <= 1, "churn", self.churn, "a share from 0 to 1")
        _require(lifetime_s is None or lifetime_s > 0, "lifetime_s", lifetime_s, "more than 0")
        is_set = bool(self.families) and len(set(self.families)) == len(self.families)
        _require(is_set, "families", self.families, "one family, or each once")

    @property
    def capacity_per_node(self) -> int:
        """How many pods a node can run."""
        return self.pods_per_node if self.max_per_node is None else self.max_per_node


@frozen(kw_only=True)
class Scenario:
    """A cluster, its pods, and how long to look at them: ``steps`` of ``step_s`` simulated seconds.

    Everything that is left to chance follows from ``seed``, so equal studies have equal findings.
    """

    nodes: tuple[Node, ...]
    pools: tuple[IPPool, ...]
    reservations: tuple[IPReservation, ...] = ()
    configuration: IPAMConfiguration | None = None
    load: PodLoad
    steps: int
    step_s: int = 60
    seed: int = 1
    process_model: ProcessModel = ProcessModel.ONE_SHOT

    def __attrs_post_init__(self) -> None:
        _require(bool(self.nodes), "nodes", (), "at least one node")
        _require(self.steps >= 1, "steps", self.steps, "at least 1")
        _require(self.step_s >= 1, "step_s", self.step_s, "at least 1")

    @property
    def pod_count(self) -> int:
        """How many pods there are once all have arrived."""
        return len(self.nodes) * self.load.pods_per_node

    @property
    def duration_s(self) -> int:
        """The simulated time in seconds."""
        return self.steps * self.step_s


@frozen(kw_only=True)
class SimulatedCall:
    """One call that a node made: when (wall-clock time), what it asked, and what it got."""

    at_ns: int
    request: AssignRequest | ReleaseRequest
    result: Assignment | Released | AllocationError


@frozen(kw_only=True)
class Distribution:
    """How a number differs between nodes; of two in the middle ``median`` is the lower."""

    minimum: int
    median: int
    maximum: int

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Distribution:
        """The spread of at least one number."""
        in_order = sorted(numbers)
        return cls(minimum=in_order[0], median=in_order[(len(in_order) - 1) // 2], maximum=in_order[-1])


@frozen(kw_only=True)
class PoolSample:
    """One pool at one moment.

    ``in_use`` are the addresses that are not free; the ``cooling`` ones among them were released and rest.
    ``available`` are those that can still be given, to whichever node. Of its ``blocks`` there can be at most
    ``max_blocks``; ``unowned`` ones belong to no node.
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

    ``running`` pods have their addresses, ``waiting`` ones were refused them. ``started`` and ``ended`` pods,
    ``refusals`` (by identifier, sorted) and ``calls`` to the store are those of the step. ``blocks_per_node`` is over
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
        """Addresses that somebody holds."""
        return sum(pool.in_use - pool.cooling for pool in self.pools)

    @property
    def borrowed(self) -> int:
        """Those among them that lie in a block of another node than their holder's."""
        return sum(pool.borrowed for pool in self.pools)

    @property
    def borrowed_share(self) -> float:
        """The same as a share of the addresses held."""
        return self.borrowed / self.held if self.held else 0.0

    @property
    def blocks(self) -> int:
        """Blocks of all pools."""
        return sum(pool.blocks for pool in self.pools)

    @property
    def unaffined_blocks(self) -> int:
        """Blocks that belong to no node."""
        return sum(pool.unaffined_blocks for pool in self.pools)

    @property
    def refused(self) -> int:
        """How many assignments were refused in the step, for whatever reason."""
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
    """How a cluster fared: a sample for each step, and all pools with their blocks as they were in the end.

    ``first_refusal`` and ``first_loan_s`` are exact to the call, None where there was none.
    """

    samples: tuple[StepSample, ...]
    usages: tuple[PoolUsage, ...]
    first_refusal: RefusedAssignment | None = None
    first_borrowed_s: float | None = None

    @property
    def last(self) -> StepSample:
        """How it ended."""
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
        """How often the store was called in all."""
        counts = [sample.calls for sample in self.samples]
        return DatastoreCallCount(
            reads=sum(count.reads for count in counts), commits=sum(count.commits for count in counts)
        )

    def find_exhausted_s(self, pool: str) -> int | None:
        """When a pool had no address left to give: the end of the first step with that, None where there is none."""
        full = (
            sample.at_s for sample in self.samples for seen in sample.pools if seen.name == pool and not seen.available
        )
        return next(full, None)


def _require(is_met: bool, field: str, value: object, accepted: str) -> None:  # noqa: FBT001 - the condition itself
    if not is_met:
        raise ConfigurationError(f"simulation {field}", value, accepted)
