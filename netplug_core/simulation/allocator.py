"""The allocations of a simulated cluster: the block IPAM of each node, called as the plugin calls it.

``simulator`` calls it. Every assignment and release is counted, timed on the simulated clock, and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, field

from netplug_core.clock import Clock, Deadline
from netplug_core.errors import AllocationError
from netplug_core.flows.ipam.cache import make_ipam_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.model.affinity import host_owner
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, Update, Write
from netplug_core.resources.ippool import AllowedUse
from netplug_core.simulation.counting_datastore import CountingDatastore
from netplug_core.simulation.pod_generator import SeededRandom, SimulatedPod
from netplug_core.simulation.result import SimulatedCall, StepSample
from netplug_core.simulation.scenario import ProcessModel, Scenario

__all__ = ["TIMEOUT_S", "Observer", "SimulatedAllocator"]

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
