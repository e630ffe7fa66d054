"""A rule-based machine that holds the allocator to its invariants over any store, for our backends and a stranger's.

    TestAllocator = allocator_machine(open_store, open_ipam).TestCase

is a whole test module: ``open_store`` opens an empty store over a clock and closes it, ``open_ipam`` makes the IPAM of
one process over it. Hypothesis draws what nodes, people and the collector do, and what happens on the way: requests
and replies that get lost, lost races, deadlines, processes that die, somebody else's whole act between two calls.
After every commit and every act the invariants V1 to V18 and V20 are judged (``laws``, ``history``, ``calls``,
``ledger``); at the end everything is taken down, and nothing may be left.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import TypeAlias

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.allocation.claim import ClaimResult
from netplug_core.ipam.allocation.ensure import EnsuredBlocks
from netplug_core.ipam.allocation.request import Assignment, Released
from netplug_core.resources.ippool import IPPool
from netplug_core.testing.allocator import strategies
from netplug_core.testing.allocator.call_invariants import ObservedCall
from netplug_core.testing.allocator.client import CallFault, FaultKind
from netplug_core.testing.allocator.deferred import DeferredOperation
from netplug_core.testing.allocator.harness import AllocatorHarness, OpenIPAM
from netplug_core.testing.allocator.invariants import order_is_a_permutation
from netplug_core.testing.allocator.operations import (
    AdvanceClock,
    ApplyResource,
    Assign,
    Release,
    RunCollector,
    SetReady,
    StoreOperation,
)
from netplug_core.testing.allocator.teardown import tear_down
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.medium import OpenStore

__all__ = ["allocator_machine"]

OptionalFault: TypeAlias = CallFault | strategies.ConcurrentOperation | None

_CACHE_EXPIRY = AdvanceClock(
    seconds=1
)  # on a store that judges no requirements a resident process is half a second behind


def allocator_machine(open_store: OpenStore, open_ipam: OpenIPAM) -> type[RuleBasedStateMachine]:
    """A state machine that holds an IPAM over a store to the allocator's invariants; its ``TestCase`` is what runs."""

    class AllocatorMachine(_Machine):
        def open_store(self, clock: ManualClock) -> AbstractContextManager[Datastore]:
            return open_store(clock)

        def make_harness(self, store: Datastore, clock: ManualClock) -> AllocatorHarness:
            return AllocatorHarness(store=store, clock=clock, open_ipam=open_ipam)

    return AllocatorMachine


class _Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        clock = ManualClock()
        self.harness = self.make_harness(self._stack.enter_context(self.open_store(clock)), clock)
        self.has_failed = False

    def open_store(self, clock: ManualClock) -> AbstractContextManager[Datastore]:
        """An empty store."""
        raise NotImplementedError

    def make_harness(self, store: Datastore, clock: ManualClock) -> AllocatorHarness:
        """A cluster over it."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Take everything down, unless something has failed already, and close the store."""
        with self._stack:
            if not self.has_failed:
                tear_down(self.harness)

    @initialize(names=st.sampled_from([("p1", "s1"), ("p0", "s0"), ("p2", "s1"), ("p1", "p2", "s0", "s1")]))
    def create_pools(self, names: tuple[str, ...]) -> None:
        """There is a small pool of each family, or a few."""
        for name in names:
            self._run(ApplyResource(resource=strategies.make_pool(name)), None)

    # --- nodes -------------------------------------------------------------------------------------------------------
    # What stands here twice is drawn twice as often: mostly, addresses come and go.

    @rule(act=strategies.simple_assignments(), trouble=strategies.call_faults())
    def assign(self, act: Assign, trouble: OptionalFault) -> None:
        """A workload asks for an address or a few."""
        self._run(act, trouble)

    @rule(act=strategies.simple_assignments())
    def assign_twice(self, act: Assign) -> None:
        """A workload asks, and asked again, it gets the same."""
        call = self._run(act, None)
        if isinstance(call.answer, Assignment) and not call.answer.shortfalls:
            self._check_idempotent(call)

    @rule(act=strategies.assignments(), trouble=strategies.call_faults())
    def assign_anything(self, act: Assign, trouble: OptionalFault) -> None:
        """Somebody asks for something out of the ordinary."""
        self._run(act, trouble)

    @rule(act=strategies.releases(), trouble=strategies.call_faults())
    def release(self, act: DeferredOperation, trouble: OptionalFault) -> None:
        """Somebody gives back what they hold."""
        self._run(act, trouble)

    @rule(act=strategies.releases())
    def release_twice(self, act: DeferredOperation) -> None:
        """Somebody gives back what they hold, and there is no more."""
        call = self._run(act, None)
        if isinstance(call.answer, Released):
            self._check_idempotent(call)

    @rule(act=strategies.address_corrections(), trouble=strategies.call_faults())
    def correct_addresses(self, act: DeferredOperation, trouble: OptionalFault) -> None:
        """Addresses are freed one by one, or get other owners, if they are held as described."""
        self._run(act, trouble)

    @rule(act=strategies.claims() | strategies.relinquishments(), trouble=strategies.call_faults())
    def claim_or_relinquish(self, act: StoreOperation, trouble: OptionalFault) -> None:
        """Blocks are claimed ahead of time, or claims given up; done once more, that is so already."""
        call = self._run(act, trouble)
        if trouble is None and isinstance(call.answer, ClaimResult | EnsuredBlocks):
            self._check_idempotent(call)

    # --- people and controllers --------------------------------------------------------------------------------------

    @rule(act=strategies.admin_operations(), trouble=strategies.call_faults())
    def change_cluster(self, act: StoreOperation, trouble: OptionalFault) -> None:
        """People change pools, nodes, reservations, the configuration; pods disappear."""
        if isinstance(act, ApplyResource) and isinstance(act.resource, IPPool):
            spec = act.resource.spec
            order_is_a_permutation(strategies.NODES, spec.prefix, spec.block_length)
        self._run(act, trouble)

    @rule(act=strategies.collector_runs(), trouble=strategies.call_faults())
    def run_collector(self, act: RunCollector, trouble: OptionalFault) -> None:
        """The collector looks round."""
        self._run(act, trouble)

    @rule(act=strategies.clock_advances())
    def advance_clock(self, act: AdvanceClock) -> None:
        """Time passes."""
        self.harness.run(act)

    @rule(act=strategies.simple_assignments() | strategies.releases() | strategies.collector_runs())
    def run_while_locked(self, act: StoreOperation | RunCollector | DeferredOperation) -> None:
        """Somebody does something while the datastore is locked, once every process may know of it."""
        self._run(SetReady(is_ready=False), None)
        self.harness.run(_CACHE_EXPIRY)
        self._run(act, None)
        self._run(SetReady(is_ready=True), None)

    # --- means -------------------------------------------------------------------------------------------------------

    def _run(self, operation: StoreOperation | RunCollector | DeferredOperation, fault: OptionalFault) -> ObservedCall:
        act = self._resolve(operation)
        note(f"    {act}")
        mishaps = self._faults(act, fault)
        self.has_failed = True
        call = self.harness.call(act, *mishaps)
        self.has_failed = False
        return call

    def _check_idempotent(self, call: ObservedCall) -> None:
        self.has_failed = True
        self.harness.check_idempotent(call)
        self.has_failed = False

    def _faults(self, operation: StoreOperation | RunCollector, fault: OptionalFault) -> tuple[CallFault, ...]:
        if not isinstance(fault, strategies.ConcurrentOperation):
            return () if fault is None else (fault,)
        rival = self._resolve(fault.operation)
        if not _concerns_another_handle(rival, operation):
            return ()
        note(f"        before call {fault.at}: {rival}")
        return (CallFault(FaultKind.CONCURRENT_OPERATION, fault.at, operation=lambda: self.harness.run(rival)),)

    def _resolve(self, operation: StoreOperation | RunCollector | DeferredOperation) -> StoreOperation | RunCollector:
        return (
            operation.resolve(self.harness.model, strategies.SERVICE_HANDLE)
            if isinstance(operation, DeferredOperation)
            else operation
        )


def _concerns_another_handle(
    concurrent: StoreOperation | RunCollector, operation: StoreOperation | RunCollector
) -> bool:
    """Whether two acts are not about one handle: what overtakes itself on an ordered store the collector heals."""
    if not isinstance(concurrent, Assign | Release) or not isinstance(operation, Assign | Release):
        return True
    return concurrent.request.handle != operation.request.handle
