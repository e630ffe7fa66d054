"""The allocations of a simulated cluster: the block IPAM of each node, called as the plugin calls it.

``simulator`` calls it. Every assignment and release is counted, timed on the simulated clock, and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from attrs import define, field

from netplug_core.clock import SECOND_NS, Clock, Deadline
from netplug_core.datastore.protocol import CommitCall, DatastoreCall, ObservedDatastore
from netplug_core.errors import AllocationError
from netplug_core.flows.ipam.cache import make_ipam_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.model.handle import host_owner
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, Update, Write
from netplug_core.resources.ippool import AllowedUse
from netplug_core.simulation.result import DatastoreCallCount, SimulatedCall, StepSample
from netplug_core.simulation.scenario import ProcessModel, Scenario, SeededRandom, SimulatedPod

__all__ = [
    "TIMEOUT_S", "CountingDatastore", "Observer", "SimulatedAllocator", "SimulatedClock",
]  # fmt: skip


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
