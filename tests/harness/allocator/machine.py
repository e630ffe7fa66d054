"""The conformance machine of allocators: it checks the invariants over any store, for netplug's backends and for yours.

    TestAllocator = allocator_machine(open_store, open_ipam).TestCase

is a whole test module: ``open_store`` opens an empty store with a clock and closes it, ``open_ipam`` makes the IPAM of
one process over it. Hypothesis draws the operations of nodes, users and the collector, and the faults: lost requests
and replies, lost races, deadlines that pass, processes that die, an operation of another client between two calls.
After every commit and every operation the invariants V1 to V18, V20 and V21 are checked (``invariants``, ``history``,
``call_invariants``, ``model``). At the end everything is removed, and the store must be empty.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import TypeAlias

from attrs import evolve
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.allocation.affinities import ClaimResult, EnsuredBlocks
from netplug_core.ipam.allocation.request import Assignment, Released
from netplug_core.resources.ippool import IPPool
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_harness import OpenStore
from tests.harness.allocator import strategies
from tests.harness.allocator.client import CallFault, FaultKind
from tests.harness.allocator.deferred import DeferredOperation
from tests.harness.allocator.harness import AllocatorHarness, OpenIPAM
from tests.harness.allocator.invariants import order_is_a_permutation
from tests.harness.allocator.observed_call import ObservedCall
from tests.harness.allocator.operations import (
    AdvanceClock,
    ApplyResource,
    Assign,
    EnsureBlocks,
    Release,
    RunCollector,
    SetReady,
    StoreOperation,
    StorePool,
)
from tests.harness.allocator.teardown import tear_down

__all__ = ["allocator_machine"]

OptionalFault: TypeAlias = CallFault | strategies.ConcurrentOperation | None

_CACHE_EXPIRY = AdvanceClock(seconds=6)
"""A resident process may use its cache for ``FRESH_S`` on a store that checks no requirements."""

_DECISIONS_END = AdvanceClock(seconds=11)
"""What a call has read on an ordered store is not written any more after ``LATEST_COMMIT_S``."""


def allocator_machine(open_store: OpenStore, open_ipam: OpenIPAM) -> type[RuleBasedStateMachine]:
    """A state machine that checks the invariants of an IPAM over a store; run its ``TestCase``."""

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
        self.names = {node: node for node in strategies.NODES}

    def open_store(self, clock: ManualClock) -> AbstractContextManager[Datastore]:
        """An empty store."""
        raise NotImplementedError

    def make_harness(self, store: Datastore, clock: ManualClock) -> AllocatorHarness:
        """A cluster over it."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Remove everything, unless a check has failed already, and close the store."""
        with self._stack:
            if not self.has_failed:
                tear_down(self.harness)

    @initialize(names=st.sampled_from([("p1", "s1"), ("p0", "s0"), ("p2", "s1"), ("p1", "p2", "s0", "s1")]))
    def create_pools(self, names: tuple[str, ...]) -> None:
        """Create a small pool of each family, or several."""
        for name in names:
            self._run(ApplyResource(resource=strategies.make_pool(name)), None)

    # --- nodes -------------------------------------------------------------------------------------------------------
    # Assignments and releases have two rules each, so that they are drawn twice as often.

    @rule(operation=strategies.simple_assignments(), fault=strategies.call_faults())
    def assign(self, operation: Assign, fault: OptionalFault) -> None:
        """Assign one or several addresses to a workload."""
        self._run(operation, fault)

    @rule(operation=strategies.simple_assignments())
    def assign_twice(self, operation: Assign) -> None:
        """Assign twice; the second answer is the same."""
        call = self._run(operation, None)
        if isinstance(call.answer, Assignment) and not call.answer.shortfalls:
            self._check_idempotent(call)

    @rule(operation=strategies.assignments(), fault=strategies.call_faults())
    def assign_anything(self, operation: Assign, fault: OptionalFault) -> None:
        """Assign for a request with unusual options."""
        self._run(operation, fault)

    @rule(operation=strategies.releases(), fault=strategies.call_faults())
    def release(self, operation: DeferredOperation, fault: OptionalFault) -> None:
        """Release the addresses of a handle."""
        self._run(operation, fault)

    @rule(operation=strategies.releases())
    def release_twice(self, operation: DeferredOperation) -> None:
        """Release twice; the second time there is nothing to release."""
        call = self._run(operation, None)
        if isinstance(call.answer, Released):
            self._check_idempotent(call)

    @rule(operation=strategies.address_corrections(), fault=strategies.call_faults())
    def correct_addresses(self, operation: DeferredOperation, fault: OptionalFault) -> None:
        """Release addresses one by one, or change their owners."""
        self._run(operation, fault)

    @rule(operation=strategies.claims() | strategies.relinquishments(), fault=strategies.call_faults())
    def claim_or_relinquish(self, operation: StoreOperation, fault: OptionalFault) -> None:
        """Claim blocks or relinquish affinities; a repeated claim changes nothing."""
        call = self._run(operation, fault)
        if fault is None and isinstance(call.answer, ClaimResult | EnsuredBlocks):
            self._check_idempotent(call)

    # --- users and controllers ---------------------------------------------------------------------------------------

    @rule(operation=strategies.admin_operations(), fault=strategies.call_faults())
    def change_cluster(self, operation: StoreOperation, fault: OptionalFault) -> None:
        """Change pools, nodes, reservations or the configuration, or delete a pod."""
        if isinstance(operation, ApplyResource) and isinstance(operation.resource, IPPool):
            spec = operation.resource.spec
            order_is_a_permutation(strategies.NODES, spec.prefix, spec.block_length)
        self._run(operation, fault)

    @rule(operation=strategies.unchecked_pools(), fault=strategies.call_faults())
    def store_pool(self, operation: StorePool, fault: OptionalFault) -> None:
        """Store a pool that nothing is compared with: of another block size over leftovers, or over another pool."""
        self._let_decisions_end()
        self._run(operation, fault)
        self._let_decisions_end()

    def _let_decisions_end(self) -> None:
        """An ordered store checks no conditions: let no decision, cache or late write go by pools of earlier times."""
        if not self.harness.is_atomic:
            self.harness.run(_DECISIONS_END)

    @rule(node=st.sampled_from(strategies.NODES))
    def rename_node(self, node: str) -> None:
        """Give a node another name, or its first one again; no pod of it is deleted."""
        old, new = self.names[node], node if self.names[node] != node else f"{node}-renamed"
        note(f"    {old} is {new} from now on")
        self.names[node] = new
        self.harness.model.rename_node(old, new)

    @rule(index=st.integers(0, 60))
    def damage_record(self, index: int) -> None:
        """Damage a block, an affinity or a handle, unless one is damaged."""
        self.harness.damage_record(index)
        note(f"    damaged: {set(self.harness.damaged.damage)}")

    @rule()
    def repair_records(self) -> None:
        """Repair what is damaged."""
        self.harness.repair_records()

    @rule(operation=strategies.wide_assignments(), fault=strategies.call_faults())
    def assign_from_many_blocks(self, operation: Assign, fault: OptionalFault) -> None:
        """Assign from more blocks than one commit of a release takes, from a pool for it."""
        pool = strategies.make_unchecked_pool(*strategies.WIDE_POOL)
        if pool.metadata.name not in self.harness.read_state().configuration.pools:
            self._run(ApplyResource(resource=pool), None)
        self._run(operation, fault)

    @rule(operation=strategies.collector_runs(), fault=strategies.call_faults())
    def run_collector(self, operation: RunCollector, fault: OptionalFault) -> None:
        """Run one tick of the collector."""
        self._run(operation, fault)

    @rule()
    def land_late_writes(self) -> None:
        """Let the writes arrive that were on their way when their processes died."""
        self.has_failed = True
        self.harness.land_late_writes()
        self.has_failed = False

    @rule(operation=strategies.clock_advances())
    def advance_clock(self, operation: AdvanceClock) -> None:
        """Let time pass."""
        self.harness.run(operation)

    @rule(operation=strategies.simple_assignments() | strategies.releases() | strategies.collector_runs())
    def run_while_locked(self, operation: StoreOperation | RunCollector | DeferredOperation) -> None:
        """Lock the datastore, wait until no cache is older, and run an operation."""
        self._run(SetReady(is_ready=False), None)
        self.harness.run(_CACHE_EXPIRY)
        self._run(operation, None)
        self._run(SetReady(is_ready=True), None)

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _run(self, operation: StoreOperation | RunCollector | DeferredOperation, fault: OptionalFault) -> ObservedCall:
        resolved = self._resolve(operation)
        note(f"    {resolved}")
        faults = self._faults(resolved, fault)
        self.has_failed = True
        call = self.harness.call(resolved, *faults)
        self.has_failed = False
        return call

    def _check_idempotent(self, call: ObservedCall) -> None:
        self.has_failed = True
        self.harness.check_idempotent(call)
        self.has_failed = False

    def _faults(self, operation: StoreOperation | RunCollector, fault: OptionalFault) -> tuple[CallFault, ...]:
        if not isinstance(fault, strategies.ConcurrentOperation):
            return () if fault is None else (fault,)
        concurrent = self._resolve(fault.operation)
        if not _concerns_another_handle(concurrent, operation):
            return ()
        note(f"        before call {fault.at}: {concurrent}")
        return (
            CallFault(FaultKind.CONCURRENT_OPERATION, fault.at, operation=lambda _writes: self.harness.run(concurrent)),
        )

    def _resolve(self, operation: StoreOperation | RunCollector | DeferredOperation) -> StoreOperation | RunCollector:
        if isinstance(operation, DeferredOperation):
            return operation.resolve(self.harness.model, strategies.SERVICE_HANDLE)
        if isinstance(operation, Assign | EnsureBlocks):
            node = self.names[operation.request.node]
            return evolve(operation, request=evolve(operation.request, node=node))
        return operation


def _concerns_another_handle(
    concurrent: StoreOperation | RunCollector, operation: StoreOperation | RunCollector
) -> bool:
    """Whether two operations are not about the same handle: two of one handle may leave work to the collector."""
    if not isinstance(concurrent, Assign | Release) or not isinstance(operation, Assign | Release):
        return True
    return concurrent.request.handle != operation.request.handle
