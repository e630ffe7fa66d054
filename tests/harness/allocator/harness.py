"""A cluster over one store, in which operations run one after the other and each is checked against the invariants.

The machine and the exhaustive fault tests use it. Faults may be placed in a call. After the call its answer is
recorded in the model. ``teardown`` removes everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeAlias

from attrs import Factory, define, evolve, field

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import FRESH_S, Atomicity, Datastore
from netplug_core.errors import NetplugError
from netplug_core.flows.ipam import collect
from netplug_core.ipam.allocation.request import Released
from netplug_core.ipam.gc.candidates import CollectionReport, ScanHistory
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, affinity_key
from netplug_core.ipam.protocol import IPAM
from netplug_core.orchestrator.model import ClusterView
from netplug_core.records import Create, Delete, Get, Key, Kind, List, Malformed
from netplug_core.testing.assertions import expect, expect_same
from netplug_core.testing.faults import DamagedDatastore, LateWrite, ProcessDied
from tests.harness.allocator.call_invariants import (
    CALL_INVARIANTS,
    DAMAGED_CALL_INVARIANTS,
    FAULT_FREE_CALL_INVARIANTS,
)
from tests.harness.allocator.client import CallFault, StoreClient
from tests.harness.allocator.collector import ModelLookup, make_collector
from tests.harness.allocator.history import History
from tests.harness.allocator.invariants import (
    COMMIT_INVARIANTS,
    SETTLED_STATE_INVARIANTS,
    STATE_INVARIANTS,
    ObservedCommit,
)
from tests.harness.allocator.model import AllocationModel, Holder
from tests.harness.allocator.observed_call import Answer, ObservedCall, ProcessDiedAnswer
from tests.harness.allocator.operations import (
    ASSIGN_TIMEOUT_S,
    AdvanceClock,
    Assign,
    CollectorView,
    EnsureBlocks,
    Operation,
    OperationContext,
    Release,
    RunCollector,
    StoreOperation,
    StorePool,
)
from tests.harness.allocator.pool_invariants import CHECKED_POOL_INVARIANTS
from tests.harness.allocator.state import ClusterConfiguration, PossibleConfigurations, StoredState, read_state

__all__ = ["AllocatorHarness", "OpenIPAM"]

MAX_CACHE_AGE_S = FRESH_S
"""The highest age of records that a client of an ordered store may use from its cache."""

LATEST_S = 5.0
"""How long a write of a process that died may be on its way: as long as one call may take."""

DAMAGED_KINDS: tuple[Kind[object], ...] = (BLOCK, AFFINITY, HANDLE)
"""The kinds of records that are damaged. ``tests/property/test_damaged_records.py`` damages all others too."""

OpenIPAM: TypeAlias = Callable[[Datastore, Clock], IPAM]
"""Makes the IPAM of one process over its store client."""


@define(eq=False, kw_only=True)
class AllocatorHarness:
    """A store, the processes that use it, the model of what they were assigned, and the checks.

    ``is_settled`` is whether nothing has happened yet that leaves records to repair for a later call or the collector,
    as a failed commit on an ordered store does. ``are_pools_checked`` is whether every pool was created through the
    flows, which compare it with the others.
    """

    store: Datastore
    clock: Clock
    open_ipam: OpenIPAM
    model: AllocationModel = field(factory=AllocationModel)
    history: History = field(factory=History)
    collector_memory: ScanHistory = field(factory=ScanHistory)
    is_settled: bool = True
    are_pools_checked: bool = True
    damaged: DamagedDatastore = field(init=False)
    _resident_processes: dict[str, _ClientProcess] = field(default=Factory(dict))
    _node_by_handle: dict[str, str] = field(default=Factory(dict))
    _configurations: list[tuple[float, ClusterConfiguration]] = field(default=Factory(list))
    _uids: Iterator[int] = field(factory=lambda: count(1))
    _late_writes: list[tuple[Assign, LateWrite, float]] = field(default=Factory(list))
    _late_blocks: set[str] = field(default=Factory(set))
    _latest_state: StoredState | None = None
    _nesting: int = 0

    def __attrs_post_init__(self) -> None:
        """Put the store of the processes around the store itself: only they see damage."""
        self.damaged = DamagedDatastore(self.store)

    @property
    def is_atomic(self) -> bool:
        """Whether the store applies all of a commit or nothing."""
        return self.store.description.atomicity is Atomicity.ATOMIC

    def read_state(self) -> StoredState:
        """Everything that is stored. It is read once per commit, because only processes of the harness write."""
        if self._latest_state is None:
            stored = read_state(self.store, Deadline.after(self.clock, ASSIGN_TIMEOUT_S))
            self._latest_state = evolve(stored, damaged=frozenset(self.damaged.damage))
        return self._latest_state

    def reread_state(self) -> StoredState:
        """Read the stored state again, after a commit."""
        self._latest_state = None
        return self.read_state()

    def run(self, operation: Operation, *faults: CallFault) -> Answer:
        """Run an operation with these faults and check the outcome; its answer."""
        if isinstance(operation, AdvanceClock):
            self.clock.sleep(operation.seconds)
            return None
        return self.call(operation, *faults).answer

    def call(self, operation: StoreOperation | RunCollector, *faults: CallFault) -> ObservedCall:
        """Run an operation as ``run`` does; all that was observed of it."""
        if faults or self._nesting:
            self.is_settled = self.is_settled and self.is_atomic
        before, since_ns, since_s = self.read_state(), self.clock.now_ns(), self.clock.monotonic()
        self.record_configuration(before.configuration)
        self.are_pools_checked = self.are_pools_checked and not isinstance(operation, StorePool)
        scope = self.model.begin_call(operation)
        process = self._process_for(operation)
        may_use_cache = process.begin(operation, faults)
        self._nesting += 1
        answer = self._perform(operation, process)
        self._nesting -= 1
        # Also without a fault: the cache of a resident process may be out of date.
        self.is_settled = self.is_settled and not process.client.has_partial_commit
        call = ObservedCall(
            operation=operation, before=before, after=self.read_state(), answer=answer,
            writes=tuple(process.client.writes), started_ns=since_ns, ended_ns=self.clock.now_ns(),
            configurations=self._possible_configurations(since_s, before, may_use_cache=may_use_cache),
            may_use_cache=may_use_cache, has_partial_commit=process.client.has_partial_commit,
        )  # fmt: skip
        self.model.end_call(call, scope)
        self._check_call(call, is_exact=not faults)
        return call

    def _possible_configurations(
        self, since_s: float, before: StoredState, *, may_use_cache: bool
    ) -> PossibleConfigurations:
        """What a call that began then may have decided by.

        An ordered store checks no conditions, so a process may use a cached configuration for a short time.
        """
        if self.is_atomic or not may_use_cache:
            return PossibleConfigurations((before.configuration,))
        return PossibleConfigurations(self.configurations_since(since_s - MAX_CACHE_AGE_S))

    def check_idempotent(self, call: ObservedCall) -> None:
        """V15: a repeated operation has the same answer (a repeated release: no addresses) and changes nothing."""
        again = self.call(call.operation)
        expected = Released(addresses=()) if isinstance(call.operation, Release) else call.answer
        # The first answer may come from what the process remembers, before a record was damaged that it needs.
        is_damage = again.may_use_cache and again.needs_damaged and isinstance(again.answer, Malformed)
        expect_same(
            again.answer, again.answer if is_damage else expected, f"V15: the answer to {call.operation}, repeated"
        )
        if self.is_atomic or not again.may_use_cache:
            expect(again.has_no_effect, f"V15: {call.operation}, repeated, changed something")

    # --- processes ---------------------------------------------------------------------------------------------------

    def _process_for(self, operation: StoreOperation | RunCollector) -> _ClientProcess:
        """The process that runs an operation: the node's resident one, or a new one while another operation runs."""
        node = ""
        if isinstance(operation, Assign | EnsureBlocks):
            node = operation.request.node
            self._node_by_handle.update({operation.request.handle: node} if operation.request.handle else {})
        elif isinstance(operation, Release):
            node = self._node_by_handle.get(operation.request.handle, "")
        if not node or self._nesting:
            return _ClientProcess.start(self)
        if node not in self._resident_processes:
            self._resident_processes[node] = _ClientProcess.start(self)
        return self._resident_processes[node]

    def _perform(self, operation: StoreOperation | RunCollector, process: _ClientProcess) -> Answer:
        try:
            if isinstance(operation, RunCollector):
                return self._run_collector(operation.view, process.client)
            client = OperationContext(store=process.client, ipam=process.ipam, clock=self.clock, new_uid=self._new_uid)
            return operation.perform(client)
        except NetplugError as error:
            return error
        except ProcessDied:
            self._resident_processes = {
                node: other for node, other in self._resident_processes.items() if other is not process
            }
            if isinstance(operation, RunCollector):
                self.collector_memory = ScanHistory()
            if isinstance(operation, Assign) and process.client.late_write is not None:
                expires_s = self.clock.monotonic() + LATEST_S
                self._late_writes.append((operation, process.client.late_write, expires_s))
            return ProcessDiedAnswer()

    def land_late_writes(self) -> None:
        """Let the writes of killed assignments arrive, unless they are too old, and check what they change.

        On an atomic store one may be a whole assignment. On an ordered store none assigns an address to a handle that
        was released in the meantime: the model finds such an address.
        """
        for operation, late, expires_s in self._late_writes:
            if self.clock.monotonic() > expires_s:
                continue
            before = self.read_state()
            late.land(self.damaged, deadline=Deadline.after(self.clock, ASSIGN_TIMEOUT_S))
            after = self.reread_state()
            if self.is_atomic:
                self.model.uncertain.add(Holder.of_request(operation.request))
            self._note_orphans(late)
            configurations = self.configurations_since(expires_s - LATEST_S - ASSIGN_TIMEOUT_S)
            self.check_commit(
                ObservedCommit(
                    operation=operation, before=before, after=after, configurations=configurations,
                    now_ns=self.clock.now_ns(), is_exact=False,
                )
            )  # fmt: skip
            self.model.check_state(after)
        self._late_writes.clear()

    def _note_orphans(self, late: LateWrite) -> None:
        """Note a block whose creation was late: the affinity that was written before it may be gone by then."""
        if not self.is_atomic:
            self._late_blocks.update(write.key.name for write in late.writes if isinstance(write, Create))

    # --- damaged records ---------------------------------------------------------------------------------------------

    def damage_record(self, index: int) -> None:
        """Let another program store something in place of a record that no process can read, unless there is one."""
        deadline = Deadline.after(self.clock, ASSIGN_TIMEOUT_S)
        queries = [List(kind) for kind in DAMAGED_KINDS]
        stored = self.store.read(queries, deadline=deadline)
        records = [record for query in queries for record in stored.list(query)]
        if records and not self.damaged.damage:
            self.is_settled = False
            self._store_again(records[index % len(records)].key)
            self.damaged.damage[records[index % len(records)].key] = b"{"
            self._latest_state = None

    def repair_records(self) -> None:
        """Store the damaged record as it was, as an administrator does."""
        for key in tuple(self.damaged.damage):
            self._store_again(key)
            del self.damaged.damage[key]
        self._latest_state = None

    def _store_again(self, key: Key[object]) -> None:
        """Store a record as it is under another revision; wait until what a process remembers is not used alone.

        An update that changes nothing may keep the revision.
        """
        deadline = Deadline.after(self.clock, ASSIGN_TIMEOUT_S)
        record = self.store.read([Get(key)], deadline=deadline).find(key)
        if record is not None:
            self.store.commit([Delete(key, record.revision)], deadline=deadline)
            self.store.commit([Create(key, record.value)], deadline=deadline)
        self.clock.sleep(2 * MAX_CACHE_AGE_S)

    def _run_collector(self, view: CollectorView, store: Datastore) -> CollectionReport:
        """Run a tick. V18: the collector frees nothing that is in use, also with an empty view; the model checks it."""
        live_lookup = ModelLookup(self.model)
        cluster = ClusterView() if view.is_empty else live_lookup.cluster
        collector = make_collector(store, live_lookup, self.clock)
        deadline = Deadline.after(self.clock, ASSIGN_TIMEOUT_S)
        scan = collect.read_view(self.damaged, cluster, now_ns=self.clock.now_ns(), deadline=deadline)
        self.collector_memory, report = collect.tick(collector, scan, self.collector_memory)
        return report

    def _new_uid(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._uids):012}"

    # --- checks ------------------------------------------------------------------------------------------------------

    def _check_call(self, call: ObservedCall, *, is_exact: bool) -> None:
        self.model.check_state(call.after)
        left = call.before.damaged - call.after.damaged
        expect(not left, f"V21: {call.operation} wrote {left}, which it could not read")
        for of_call in CALL_INVARIANTS:
            of_call(call)
        if is_exact:
            for of_fault_free_call in DAMAGED_CALL_INVARIANTS if call.before.damaged else FAULT_FREE_CALL_INVARIANTS:
                of_fault_free_call(call)
        if self.is_settled and not self._nesting:
            for of_settled_state in SETTLED_STATE_INVARIANTS:
                of_settled_state(call.after)

    def check_commit(self, commit: ObservedCommit) -> None:
        """Check all invariants of commits and of stored states."""
        self.record_configuration(commit.after.configuration)
        for of_commit in COMMIT_INVARIANTS:
            of_commit(commit)
        for of_state in STATE_INVARIANTS:
            of_state(self._without_orphans(commit.after))
        if self.are_pools_checked:
            for of_checked_pools in CHECKED_POOL_INVARIANTS:
                of_checked_pools(self._without_orphans(commit.after))
        self.history.check_commit(commit)

    def _without_orphans(self, state: StoredState) -> StoredState:
        """The state without empty blocks that were created late, and have no affinity: the collector deletes them."""
        orphans = {
            prefix
            for prefix, block in state.blocks.items()
            if str(prefix) in self._late_blocks and affinity_key(block.owner, prefix) not in state.affinities
        }
        if not orphans:
            return state
        return evolve(state, blocks={prefix: block for prefix, block in state.blocks.items() if prefix not in orphans})

    def record_configuration(self, configuration: ClusterConfiguration) -> None:
        """Record a configuration with the time since when it is stored."""
        if not self._configurations or self._configurations[-1][1] != configuration:
            self._configurations.append((self.clock.monotonic(), configuration))

    def configurations_since(self, time_s: float) -> tuple[ClusterConfiguration, ...]:
        """The configurations that were stored at some time since then, the oldest first."""
        newer = [configuration for since, configuration in self._configurations if since > time_s]
        older = [configuration for since, configuration in self._configurations if since <= time_s]
        return (*older[-1:], *newer)


@define(eq=False, kw_only=True)
class _ClientProcess:
    """One process of the cluster. It observes its own commits for the harness."""

    harness: AllocatorHarness
    client: StoreClient = field(init=False)
    ipam: IPAM = field(init=False)
    operation: StoreOperation | RunCollector | None = None
    before: StoredState | None = None

    @classmethod
    def start(cls, harness: AllocatorHarness) -> _ClientProcess:
        """A process with an empty cache."""
        process = cls(harness=harness)
        process.client = StoreClient(inner=harness.damaged, clock=harness.clock, observer=process)
        process.ipam = harness.open_ipam(process.client, harness.clock)
        return process

    def begin(self, operation: StoreOperation | RunCollector, faults: tuple[CallFault, ...]) -> bool:
        """Start an operation; whether the process has run one before."""
        has_run_before, self.operation = self.operation is not None, operation
        self.client.reset(*faults)
        return has_run_before

    def before_commit(self, client: StoreClient) -> None:
        """Read the state before the commit."""
        del client
        self.before = self.harness.read_state()

    def after_commit(self, client: StoreClient) -> None:
        """Read the state after the commit, and check it."""
        harness, before, after = self.harness, self.before, self.harness.reread_state()
        if before is None or self.operation is None:
            return
        is_exact = harness.is_atomic
        configurations = (
            (before.configuration,)
            if is_exact
            else harness.configurations_since(client.read_started_s - MAX_CACHE_AGE_S)
        )
        harness.check_commit(
            ObservedCommit(
                operation=self.operation,
                before=before,
                after=after,
                configurations=configurations,
                now_ns=harness.clock.now_ns(),
                is_exact=is_exact,
            )
        )
