"""The scenario of a simulation: a cluster, the pods that run on it, and how long they are simulated."""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.addressing import Family
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.model.block import Pairs
from netplug_core.resources.ipamconfiguration import IPAMConfiguration
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.ipreservation import IPReservation
from netplug_core.resources.node import Node

__all__ = ["Placement", "PodLoad", "ProcessModel", "Scenario"]


class Placement(enum.Enum):
    """On which of the nodes that have room a new pod is placed.

    ``SPREAD``: on one that runs the fewest pods, as schedulers usually do. ``RANDOM``: on any. ``PACK``: on the first,
    as in a cluster where a node is added when the others are full.
    """

    SPREAD = "spread"
    RANDOM = "random"
    PACK = "pack"


class ProcessModel(enum.Enum):
    """What serves the calls of a node: a new process for each call, or a resident process with a cache."""

    ONE_SHOT = "one-shot"
    RESIDENT = "resident"


@frozen(kw_only=True)
class PodLoad:
    """The pods of a scenario.

    There are ``pods_per_node`` for each node when all have arrived; until then ``arrivals_per_s`` arrive in the whole
    cluster (None: all of them in the first step). A node runs at most ``max_per_node`` pods (None: ``pods_per_node``).
    In every step the share ``churn`` (0 to 1) of the running pods is replaced, and so is each pod that has run for
    ``lifetime_s``. A pod wants an address of each of ``families``; its namespace has ``namespace_labels``.
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
    """A cluster, its pods, and how long they are simulated: ``steps`` of ``step_s`` simulated seconds.

    Every random choice follows from ``seed``, so equal scenarios have equal results.
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
        """How many pods there are when all have arrived."""
        return len(self.nodes) * self.load.pods_per_node

    @property
    def duration_s(self) -> int:
        """The simulated time in seconds."""
        return self.steps * self.step_s


def _require(is_met: bool, field: str, value: object, accepted: str) -> None:  # noqa: FBT001 - the condition itself
    if not is_met:
        raise ConfigurationError(f"simulation {field}", value, accepted)
