"""What is simulated: nodes, pools, and the pods that are generated: on which node, and when each is replaced.

``simulator`` calls it. Random choices follow from a seed, equally on every machine.
"""

from __future__ import annotations

import enum
import hashlib
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import assert_never

from attrs import Factory, define, field, frozen

from netplug_core.addressing import Family
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.model import Pairs
from netplug_core.resources.ippool import IPAMConfiguration, IPPool, IPReservation
from netplug_core.resources.node import Node

__all__ = [
    "Placement", "PodGenerator", "PodLoad", "ProcessModel", "Scenario", "SeededRandom", "SimulatedPod",
]  # fmt: skip


# --- scenario --------------------------------------------------------------------------------------------------------


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


# --- pod generator ---------------------------------------------------------------------------------------------------


_NUMBER_BYTES = 8
_FRACTION_BITS = 53  # of a float
_ROUNDING = 1e-9  # a tenth of thirty pods is three, in spite of rounding

_Slot = tuple[float, float, int, int]
"""A place for a pod: two numbers that order placement, the position of its node, and its number on the node."""


@define
class SeededRandom:
    """Random numbers in [0, 1) that follow from a seed; the numbers of one seed never change."""

    seed: str
    _digest_count: int = field(default=0, init=False)
    _numbers: list[float] = field(default=Factory(list), init=False)

    def __call__(self) -> float:
        """The next number."""
        if not self._numbers:
            digest = hashlib.blake2b(f"{self.seed} {self._digest_count}".encode()).digest()
            self._digest_count += 1
            self._numbers = [
                (int.from_bytes(digest[first : first + _NUMBER_BYTES], "big") >> (64 - _FRACTION_BITS))
                / (1 << _FRACTION_BITS)
                for first in range(0, len(digest), _NUMBER_BYTES)
            ]
        return self._numbers.pop()

    def below(self, count: int) -> int:
        """The next number as one of 0 to ``count - 1``."""
        return int(self() * count)


@frozen(kw_only=True)
class SimulatedPod:
    """One pod: its number among all pods so far, its node, and its slot."""

    serial: int
    node: str
    slot: tuple[int, int]

    @property
    def handle(self) -> str:
        """The handle of its addresses."""
        return f"simulated.pod-{self.serial}"


@define
class PodGenerator:
    """The pods of a cluster. Each node has as many slots as it can run pods; a new pod gets the first free slot.

    A pod is scheduled first, runs when it has its addresses, and frees its slot when it terminates.
    """

    nodes: tuple[str, ...]
    load: PodLoad
    random: SeededRandom
    _free_slots: list[_Slot] = field(init=False)
    _running: list[SimulatedPod] = field(default=Factory(list), init=False)
    _positions: dict[SimulatedPod, int] = field(default=Factory(dict), init=False)
    _expirations: deque[tuple[float, SimulatedPod]] = field(default=Factory(deque), init=False)
    _scheduled: int = field(default=0, init=False)
    _serial: int = field(default=0, init=False)
    _churn_due: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        numbers = range(self.load.capacity_per_node)
        self._free_slots = [self._rank_slot(node, number) for node in range(len(self.nodes)) for number in numbers]
        heapify(self._free_slots)

    @property
    def running(self) -> int:
        """How many pods have their addresses."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many pods are scheduled and have no addresses."""
        return self._scheduled - len(self._running)

    def arrivals_due(self, at_s: float) -> int:
        """How many pods have to arrive until then."""
        total, rate = len(self.nodes) * self.load.pods_per_node, self.load.arrivals_per_s
        return (total if rate is None else min(total, int(rate * at_s + _ROUNDING))) - self._scheduled

    def schedule(self) -> SimulatedPod:
        """Schedule a new pod on a node."""
        *_rank, node, number = heappop(self._free_slots)
        self._serial += 1
        self._scheduled += 1
        return SimulatedPod(serial=self._serial, node=self.nodes[node], slot=(node, number))

    def mark_running(self, pod: SimulatedPod, at_s: float) -> None:
        """Record that a scheduled pod has its addresses from that moment on."""
        self._positions[pod] = len(self._running)
        self._running.append(pod)
        if self.load.lifetime_s is not None:
            self._expirations.append((at_s + self.load.lifetime_s, pod))

    def terminate(self, pod: SimulatedPod) -> None:
        """Remove a running pod and free its slot."""
        position, last = self._positions.pop(pod), self._running.pop()
        if last != pod:
            self._running[position], self._positions[last] = last, position
        self._scheduled -= 1
        heappush(self._free_slots, self._rank_slot(*pod.slot))

    def due_for_replacement(self, until_s: float) -> tuple[SimulatedPod, ...]:
        """The pods to replace in a step: those whose lifetime ends in it, and its share of churn."""
        return tuple(dict.fromkeys((*self._expired(until_s), *self._churned())))

    def _expired(self, until_s: float) -> Iterator[SimulatedPod]:
        while self._expirations and self._expirations[0][0] <= until_s:
            _end, pod = self._expirations.popleft()
            if pod in self._positions:
                yield pod

    def _churned(self) -> Iterator[SimulatedPod]:
        """As many running pods as churn requires, each once; the fraction of a pod is carried over to the next step."""
        self._churn_due += self.load.churn * len(self._running)
        count = int(self._churn_due + _ROUNDING)
        self._churn_due -= count
        for first in range(count):
            other = first + self.random.below(len(self._running) - first)
            self._swap(first, other)
            yield self._running[first]

    def _swap(self, first: int, other: int) -> None:
        pods = self._running
        pods[first], pods[other] = pods[other], pods[first]
        self._positions[pods[first]], self._positions[pods[other]] = first, other

    def _rank_slot(self, node: int, number: int) -> _Slot:
        match self.load.placement:
            case Placement.SPREAD:
                return number, self.random(), node, number
            case Placement.RANDOM:
                return self.random(), 0.0, node, number
            case Placement.PACK:
                return node, number, node, number
            case placement:
                assert_never(placement)
