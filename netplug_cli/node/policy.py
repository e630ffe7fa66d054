"""The controller ``policy``: what the cluster's policies mean for this node is in the kernel, and stays so.

``netplug_core.policy`` calculates what the node enforces from the objects of the datastore, ``dataplane.filter``
renders it as the table ``inet netplug``, and ``dataplane.phases`` finds the transactions that lead there. This
controller runs them, and says what the kernel has acknowledged.

Until all objects have been listed once, nothing is programmed but the guard, which lets no packet of a workload pass,
and that only where no workload runs yet: a table of an earlier process stays in force. While the datastore is away,
the last state does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import inf
from threading import Lock
from typing import Final, TypeAlias

from attrs import define, evolve, field, frozen

from netplug_cli.node.tasks import NODE_REGISTERED
from netplug_cli.node_status import DifferenceStatus, PolicyStatus
from netplug_cli.runtime.feed import notifications_controller
from netplug_core.addressing import Address
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.filter import NO_OVERLAY, POLICY_TABLE, SOURCE_GUARD, FilterRenderer, Overlay, guard_table
from netplug_core.dataplane.packetfilter import (
    Connections,
    DroppingChain,
    ForeignChanges,
    MissingFeature,
    RulesetDataplane,
    RulesetEvents,
)
from netplug_core.dataplane.phases import TableDifference, TableTracker, find_differences
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import HostInterface
from netplug_core.dataplane.ruleset import ChangeTable, ObservedTable, PacketTable, ReplaceTable
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore, EndpointStorage
from netplug_core.datastore.view import START, Mark, View
from netplug_core.keys import Key, Kind
from netplug_core.log import Level, Log
from netplug_core.policy.index import PolicyIndex
from netplug_core.policy.model import EndpointId, PolicyProblem, PolicySettings, PolicyState
from netplug_core.policy.resolve import Interfaces
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Source, Timing, Unfinished
from netplug_core.reconcile.programming import (
    Part,
    ProblemCounts,
    ProgrammingFacts,
    close_parts,
    count_problems,
    find_changed_parts,
    find_lost_addresses,
    find_network_profiles,
    find_programmed,
    isolate,
    keep_closed,
    name_of,
)
from netplug_core.records import AlreadyExists, Create
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.node import NODE
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION
from netplug_core.resources.profile import Profile, profile_key
from netplug_core.resources.validation import validate_resource
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = [
    "ATTEMPTS", "MAX_PROBLEMS", "OBJECTS_CHANGED", "PROFILES_EVERY_S", "PROFILES_MISSING", "READ_EVERY_S",
    "RETRY_CLOSED_S", "TABLE_CHANGED", "WORKLOADS_CHANGED", "FindObstacles", "NetworkProfiles", "NodePolicy",
    "PolicyCounts", "ReportProgrammed", "obstacles_of", "table_events_controller",
]  # fmt: skip

OBJECTS_CHANGED: Final = Source("objects of policy")
"""An object that policy follows from has changed."""

WORKLOADS_CHANGED: Final = Source("interfaces of workloads")
"""Interfaces of the node, or of its workloads, have changed, or this process has attached or detached one."""

TABLE_CHANGED: Final = Source("table of policy")
"""Another program may have changed the table."""

READ_EVERY_S: Final = 10.0
"""The table is read so often, if nothing has changed: what others have changed is repaired."""

ATTEMPTS: Final = 3
"""A state that the kernel refuses as often as this has a part that is at fault, which is looked for."""

MAX_PROBLEMS: Final = 20
"""So many of the objects that are not enforced as they stand are named; the others are counted."""

RETRY_CLOSED_S: Final = 60.0
"""A part that the kernel has refused is tried again after so long: it may have lacked memory."""

_NOT_PROGRAMMED: Final = "policy is not programmed: what was enforced before stays in force"
_NOT_LISTED: Final = "policy is not programmed yet: not all of its objects have been listed"
_NOT_ENFORCED: Final = "a part of a policy is not enforced as it stands"
_LACKING: Final = "the kernel of this node lacks what policy needs: what needs it lets nothing pass"
_DROPPING: Final = "another program may drop packets that policy allows"
_CLOSED: Final = "the kernel refuses a part of policy: it lets nothing pass"
_LOOPBACK: Final = "lo"
_UNKNOWN: Final = "unknown"
_MAX_PROGRAMS: Final = 20  # whose names are values of a label
_GUARD: Final = guard_table()
_GUARD_HOOKS: Final = frozenset(each.name for each in _GUARD.chains if each.base is not None)

_Change = ChangeTable | ReplaceTable

ReportProgrammed = Callable[[tuple[WorkloadEndpoint, ...]], tuple[Problem, ...]]
"""Takes the endpoints for which policy is programmed, all of them, whenever there are others, and every few seconds;
returns what keeps that from being said.
"""


def _report_nothing(_endpoints: tuple[WorkloadEndpoint, ...]) -> tuple[Problem, ...]:
    """Nothing waits for policy to be programmed."""
    return ()


FindObstacles: TypeAlias = Callable[[], tuple[Problem, ...]]
"""Finds what the kernel lacks, and what other programs have in it that policy cannot overrule."""


def _find_nothing() -> tuple[Problem, ...]:
    return ()


def obstacles_of(missing: Iterable[MissingFeature], dropping: Iterable[DroppingChain]) -> tuple[Problem, ...]:
    """What keeps policy from working as it stands, as problems."""
    lacking = (Problem(message=_LACKING, cause=str(each), event="PolicyUnsupported") for each in missing)
    chains = (f"{each} drops what its own rules do not accept; to change that: {each.remedy}" for each in dropping)
    return (*lacking, *(Problem(message=_DROPPING, cause=each) for each in chains))


def _do_nothing() -> None:
    """Nothing makes profiles."""


@define(kw_only=True, eq=False)
class PolicyCounts:
    """What has been counted, for metrics. ``transactions``: by phase and result; ``foreign``: by program."""

    transactions: dict[tuple[str, ...], float] = field(factory=dict)
    foreign: dict[tuple[str, ...], float] = field(factory=dict)

    def add_transaction(self, change: _Change, result: str) -> None:
        """One more."""
        phase = change.phase.value if isinstance(change, ChangeTable) else "replace"
        self.transactions[phase, result] = self.transactions.get((phase, result), 0) + 1

    def add_foreign(self, program: str) -> None:
        """One more. The name of a program that is one too many is left out."""
        program = program if (program,) in self.foreign or len(self.foreign) < _MAX_PROGRAMS else _UNKNOWN
        self.foreign[program,] = self.foreign.get((program,), 0) + 1


@frozen(kw_only=True)
class _Step:
    """What is done in a pass: first the guard, if the table is gone; then a state, if all of it is known."""

    guard: tuple[_Change, ...] = ()
    state: PolicyState | None = None
    overlay: Overlay = NO_OVERLAY


@frozen(kw_only=True)
class _Look:
    step: _Step = _Step()
    problems: tuple[Problem, ...] = ()


@define(kw_only=True, eq=False)
class NodePolicy:
    """Programs policy.

    ``view`` follows the kinds of ``find_kinds``; ``find_name`` is the name that the node is registered by, None: not
    yet. ``find_overlay`` are the wrapped packets that the node receives, None: not known yet. ``report`` takes the
    endpoints for which policy is programmed. ``on_missing`` is called when a profile of a network does not exist.
    ``usual`` are the settings where no NodeConfiguration says anything else.
    """

    view: View
    find_kinds: Callable[[], Iterable[Kind[object]]]
    find_name: Callable[[], str | None]
    find_overlay: Callable[[], Overlay | None]
    find_interfaces: Callable[[], tuple[HostInterface, ...]]
    ruleset: RulesetDataplane
    connections: Connections
    clock: Clock
    log: Log
    report: ReportProgrammed = _report_nothing
    find_obstacles: FindObstacles = _find_nothing
    on_missing: Callable[[], None] = _do_nothing
    usual: PolicySettings = field(factory=PolicySettings)
    missing_profiles: tuple[Profile, ...] = field(default=(), init=False)
    """The profiles of networks that workloads of the node name and that do not exist."""
    counts: PolicyCounts = field(factory=PolicyCounts, init=False)

    # What is followed.
    _index: PolicyIndex | None = field(default=None, init=False)
    _mark: Mark = field(default=START, init=False)
    _known: set[Key[object]] = field(factory=set, init=False)
    _workloads: dict[EndpointId, WorkloadEndpoint] = field(factory=dict, init=False)
    _state: PolicyState = field(factory=PolicyState, init=False)
    _overlay: Overlay | None = field(default=None, init=False)
    _interfaces: tuple[HostInterface, ...] = field(default=(), init=False)
    _attached: dict[str, str] = field(factory=dict, init=False)
    _new_attached: dict[str, str | None] = field(factory=dict, init=False)
    _lock: Lock = field(factory=Lock, init=False)  # of what other threads note
    _host_interfaces: Interfaces = field(default=(), init=False)
    _confirmed_at: dict[Kind[object], float] = field(factory=dict, init=False)

    # What the kernel has.
    _renderer: FilterRenderer = field(factory=FilterRenderer, init=False)
    _tracker: TableTracker = field(factory=lambda: TableTracker(POLICY_TABLE), init=False)
    _read_at: float = field(default=-inf, init=False)
    _must_read: bool = field(default=True, init=False)
    _must_look: bool = field(default=True, init=False)
    _was_there: bool = field(default=False, init=False)  # the table, at any time that this process has looked
    _wanted: PacketTable | None = field(default=None, init=False)  # what was programmed last, as long as all of it was
    _applied: PolicyState | None = field(default=None, init=False)
    _in_kernel: PolicyState = field(factory=PolicyState, init=False)  # the same, with the parts that are closed
    _closed: frozenset[Part] = field(default=frozenset(), init=False)
    _retry_at: float = field(default=inf, init=False)
    _refusals: int = field(default=0, init=False)
    _refusal: str = field(default="", init=False)
    _to_forget: frozenset[Address] = field(default=frozenset(), init=False)
    _foreign: dict[str, None] = field(factory=dict, init=False)  # programs that have changed it, since it was read

    # What is said of it.
    _reported: tuple[WorkloadEndpoint, ...] | None = field(default=None, init=False)
    _report_at: float = field(default=-inf, init=False)
    _report_problems: tuple[Problem, ...] = field(default=(), init=False)
    _obstacles: tuple[Problem, ...] = field(default=(), init=False)

    def controller(self) -> Controller[_Look, _Step]:
        """What programs."""
        inputs = (OBJECTS_CHANGED, WORKLOADS_CHANGED, TABLE_CHANGED, NODE_REGISTERED, NODE, IPPOOL, NODE_CONFIGURATION)
        return Controller(
            name="policy",
            observe=self._observe,
            plan=_plan,
            act=self._program,
            failure=_NOT_PROGRAMMED,
            recovered="all policies are programmed as they stand",
            inputs=frozenset(inputs),
            timing=Timing(backoff=Backoff(first_s=0.05, longest_s=5.0), gather_s=0.005, jitter=0.0),
        )

    # --- what others note; any thread may call it ---------------------------------------------------------------------

    def note_attached(self, interface: str, container_id: str) -> None:
        """This process has attached the interface of a workload for a container."""
        with self._lock:
            self._new_attached[interface] = container_id

    def note_detached(self, interface: str, container_id: str) -> None:
        """It has detached it; what is attached for another container stays."""
        with self._lock:
            if self._new_attached.get(interface, self._attached.get(interface)) == container_id:
                self._new_attached[interface] = None

    def note_interface_change(self) -> None:
        """Interfaces or their addresses have changed."""
        self._must_look = True

    def note_foreign_changes(self, changes: ForeignChanges) -> bool:
        """Other programs have changed something; whether it may be the table of policy."""
        if not changes.concern(POLICY_TABLE):
            return False
        with self._lock:
            self._foreign.update(dict.fromkeys(changes.programs(POLICY_TABLE)))
        self._must_read = True
        return True

    def status(self) -> PolicyStatus:
        """What is enforced."""
        applied, closed = self._applied, self._closed
        problems = (f"{each.message}: {each.cause}" for each in self._problems())
        if applied is None:
            return PolicyStatus(obstacle=self._obstacle(), problems=tuple(problems))
        return PolicyStatus(
            endpoints=len(applied.endpoints),
            host_endpoints=len(applied.host_endpoints),
            policies=len(applied.policies),
            sets=len(applied.sets),
            members=sum(len(each.members) for each in applied.sets),
            programmed=len(self._reported or ()),
            closed=tuple(sorted(map(name_of, closed))),
            obstacle=self._obstacle(),
            problems=tuple(problems),
        )

    def find_wanted(self) -> PacketTable | None:
        """The table that was programmed last; None as long as all of it is not in the kernel."""
        return self._wanted

    def check(self) -> PolicyStatus:
        """What is enforced, compared with what the kernel has."""
        wanted, status = self._wanted, self.status()
        if wanted is None:
            return status
        try:
            found = find_differences(wanted, self.ruleset.read(POLICY_TABLE))
        except KernelError as error:
            found = (TableDifference(f"table {POLICY_TABLE}", str(error)),)
        if wanted is not self._wanted:
            return self.status()  # it has just been changed
        differences = (DifferenceStatus(part=each.part, difference=each.difference) for each in found)
        return evolve(status, differences=tuple(differences))

    def count_problems(self) -> ProblemCounts:
        """What is not enforced as it stands, by sort."""
        return count_problems(self._state.problems)

    def count_source_drops(self) -> Mapping[tuple[str, ...], float]:
        """What the guard of sources has dropped since its rules were made; nothing if the kernel does not say."""
        try:
            return {(): self.ruleset.count_packets(POLICY_TABLE, SOURCE_GUARD)}
        except KernelError:
            return {}

    def find_age_s(self) -> float:
        """How long ago the objects were last known to be as they are; infinite as long as they never were."""
        confirmed = {**self._confirmed_at, **self.view.watched}
        oldest = min((confirmed.get(kind, -inf) for kind in self.find_kinds()), default=-inf)
        return self.clock.monotonic() - oldest

    def _obstacle(self) -> str:
        if self._refusals >= ATTEMPTS:
            return "policy is not programmed: the kernel refuses all of it"
        return "" if self._applied is not None else _NOT_LISTED

    # --- what is known ------------------------------------------------------------------------------------------------

    def _observe(self, _deadline: Deadline) -> _Look:
        now = self.clock.monotonic()
        must_read = self._must_read or now >= self._read_at + READ_EVERY_S
        must_look = must_read or self._must_look
        if must_look:
            self._look_at_interfaces()
        guard = self._read(now) if must_read else ()
        name, overlay = self.find_name(), self.find_overlay() or self._overlay
        if name is None or overlay is None or not self.view.has_listed(self.find_kinds()):
            return _Look(step=_Step(guard=guard))
        has_changed = self._follow(name) or overlay != self._overlay
        if has_changed and self.missing_profiles:
            self.on_missing()
        self._overlay = overlay
        is_settled = self._wanted is not None and self._state is self._applied and now < self._retry_at
        if is_settled and not (has_changed or must_look or self._to_forget):
            return _Look(problems=self._problems())  # nothing of this node: most changes are of other ones
        return _Look(step=_Step(guard=guard, state=self._state, overlay=overlay), problems=self._problems())

    def _look_at_interfaces(self) -> None:
        self._must_look = False
        try:
            self._interfaces = self.find_interfaces()
        except BaseException:
            self._must_look = True
            raise

    def _read(self, now: float) -> tuple[_Change, ...]:
        """Read the table; the transactions that make the guard, where there is to be one alone."""
        self._must_read = False  # what another program does from now on may be missing in what is read
        try:
            observed = self.ruleset.read(POLICY_TABLE)
        except KernelError:
            self._must_read = True
            raise
        self._read_at = now
        self._obstacles = self.find_obstacles()
        self._tracker.observe(observed)
        has_hooks = observed is not None and not _GUARD_HOOKS.isdisjoint(each.name for each in observed.chains)
        must_guard = not has_hooks and (self._was_there or not self._has_workloads())
        self._was_there = self._was_there or has_hooks or must_guard
        if self._wanted is not None and (not has_hooks or self._tracker.plan(self._wanted)):
            self._note_foreign(observed)
        return self._tracker.plan(_GUARD) if must_guard else ()

    def _note_foreign(self, observed: ObservedTable | None) -> None:
        with self._lock:
            programs, self._foreign = tuple(self._foreign) or (_UNKNOWN,), {}
        for each in programs:
            self.counts.add_foreign(each)
        what = "has removed" if observed is None else "has changed"
        message = f"another program {what} the table of policy: it is programmed again"
        self.log(Level.WARNING, message, program=", ".join(programs))
        self._wanted = None

    def _has_workloads(self) -> bool:
        prefixes = tuple(self._state.settings.interface_prefix.split(","))
        return any(each.name.startswith(prefixes) for each in self._interfaces)

    def _follow(self, name: str) -> bool:
        """Apply what has changed since the last pass; whether anything has changed for this node."""
        index = self._index
        if index is None or index.node != name:
            index, self._host_interfaces = PolicyIndex(name, self.usual), ()
            self._index = index
            for interface, container_id in self._attached.items():
                index.set_attached(interface, container_id)
            self._mark, self._state, self._known, self._workloads = START, PolicyState(), set(), {}
        try:
            has_changed = self._follow_objects(index, name)
            has_changed |= self._follow_node(index)
            delta = index.take_delta()
            if not delta.is_empty:
                self._state, has_changed = delta.apply_to(self._state), True
                self.missing_profiles = find_network_profiles(self._state, self._workloads.values())
        except BaseException:
            self._index = None  # what it has handed out is not in the state: all is calculated again
            raise
        return has_changed

    def _follow_objects(self, index: PolicyIndex, name: str) -> bool:
        """Whether one of the workloads of this node has changed."""
        changes, has_changed = self.view.read_changes(self._mark), False
        gone = dict.fromkeys(self._known - changes.values.keys()) if changes.is_whole else {}
        for key, value in (*changes.values.items(), *gone.items()):
            index.apply(key, value)
            (self._known.discard if value is None else self._known.add)(key)
            if key.kind.name == WORKLOAD_ENDPOINT.name:
                has_changed |= self._note_workload(name, EndpointId(*key.path), value)
        self._mark = changes.mark
        self._confirmed_at.update(self.view.watched)
        return has_changed

    def _note_workload(self, node: str, identity: EndpointId, value: object | None) -> bool:
        former = self._workloads.pop(identity, None)
        if isinstance(value, WorkloadEndpoint) and value.spec.node == node:
            self._workloads[identity] = value
        return former != self._workloads.get(identity)

    def _follow_node(self, index: PolicyIndex) -> bool:
        """Take what only the node knows; whether this process has attached or detached an interface."""
        with self._lock:
            attached, self._new_attached = self._new_attached, {}
        for interface, container_id in attached.items():
            index.set_attached(interface, container_id)
            self._attached.pop(interface, None)
            if container_id is not None:
                self._attached[interface] = container_id
        prefixes = tuple(self._state.settings.interface_prefix.split(","))
        others = (each for each in self._interfaces if each.name != _LOOPBACK and not each.name.startswith(prefixes))
        interfaces = tuple((each.name, tuple(one.held.address for one in each.addresses)) for each in others)
        if interfaces != self._host_interfaces:
            self._host_interfaces = interfaces
            index.set_interfaces(interfaces)
        return bool(attached)

    def _problems(self) -> tuple[Problem, ...]:
        """What is not enforced as it stands."""
        found = self._state.problems
        problems = [_problem_of(each) for each in found[:MAX_PROBLEMS]]
        if len(found) > MAX_PROBLEMS:
            problems.append(Problem(message=_NOT_ENFORCED, cause=f"and {len(found) - MAX_PROBLEMS} more"))
        closed = sorted(map(name_of, self._closed))
        problems += (
            Problem(message=_CLOSED, cause=f"{each}: {self._refusal}", event="PolicyRefused") for each in closed
        )
        return (*problems, *self._report_problems, *self._obstacles)

    # --- what is done -------------------------------------------------------------------------------------------------

    def _program(self, step: _Step, _deadline: Deadline) -> None:
        if step.guard:
            self._apply(step.guard)
            self.log(Level.INFO, "the guard is programmed: workloads pass nothing until policy is")
        if step.state is None:
            return
        if self.clock.monotonic() >= self._retry_at:
            self._closed, self._retry_at = frozenset(), inf
        closed = keep_closed(step.state, self._closed)
        try:
            self._enforce(step, closed)
        except KernelError as error:
            self._refusals, self._refusal = self._refusals + 1, error.reason
            if self._refusals < ATTEMPTS:
                raise
            self._close_refused(step, step.state)
        self._refusals = 0
        self._forget_connections()
        self._report(step.state)
        if self._closed - closed:
            raise Unfinished(self._problems())

    def _enforce(self, step: _Step, closed: frozenset[Part]) -> None:
        """Make the kernel have a state, with some parts closed.

        Raises:
            KernelError: it refuses; the table is read again before the next attempt.
        """
        state = step.state or PolicyState()
        enforced = close_parts(state, closed)
        table = self._renderer.render(enforced, step.overlay)
        before = self._applied or PolicyState()
        self._to_forget |= find_lost_addresses(self._tracker.sets.values(), table.sets, before, state)
        self._apply(self._tracker.plan(table))
        if self._applied is None:
            self.log(Level.INFO, "policy is programmed", endpoints=len(state.endpoints), policies=len(state.policies))
        self._wanted, self._applied, self._closed, self._in_kernel = table, state, closed, enforced

    def _apply(self, changes: Iterable[_Change]) -> None:
        for change in changes:
            try:
                self.ruleset.apply(change)
            except KernelError:
                self._must_read, self._wanted = True, None
                self.counts.add_transaction(change, "refused")
                raise
            self._tracker.note(change)
            self.counts.add_transaction(change, "applied")

    def _close_refused(self, step: _Step, state: PolicyState) -> None:
        """Find the parts that the kernel refuses, and program the state with these closed."""
        changed = find_changed_parts(state, self._in_kernel)
        candidates = tuple(each for each in changed if each not in self._closed)

        def does_accept(closed: frozenset[Part]) -> bool:
            try:
                self._tracker.observe(self.ruleset.read(POLICY_TABLE))
                self._enforce(step, closed)
            except KernelError:
                return False
            return True

        if isolate(candidates, self._closed, does_accept) is None:
            raise KernelError("programming the table of policy", self._refusal)
        self._retry_at = self.clock.monotonic() + RETRY_CLOSED_S

    def _forget_connections(self) -> None:
        """Forget the connections of addresses that an interface or a container has lost; after a failure, again."""
        if not self._to_forget:
            return
        try:
            self.connections.forget_workloads(self._to_forget)
        except KernelError as error:
            message = "connections of a workload that is gone are not forgotten"
            raise Unfinished((Problem(message=message, cause=str(error)),)) from error
        self._to_forget = frozenset()

    def _report(self, state: PolicyState) -> None:
        """Report for which endpoints policy is programmed, if there are others; and every few seconds."""
        up = frozenset(each.name for each in self._interfaces if each.is_up)
        facts = ProgrammingFacts(up=up, attached=self._attached, closed=self._closed)
        programmed = tuple(self._workloads[each.id] for each in find_programmed(state, facts))
        now = self.clock.monotonic()
        if programmed == self._reported and now < self._report_at:
            return
        self._reported, self._report_at = programmed, now + READ_EVERY_S
        before, self._report_problems = self._report_problems, self.report(programmed)
        if self._report_problems and not before:
            raise Unfinished(self._report_problems)


def _plan(look: _Look) -> Plan[_Step]:
    return Plan(actions=(look.step,), look_again_s=READ_EVERY_S, problems=look.problems)


def _problem_of(problem: PolicyProblem) -> Problem:
    return Problem(message=_NOT_ENFORCED, cause=str(problem))


# --- profiles of networks ---------------------------------------------------------------------------------------------

PROFILES_MISSING: Final = Source("missing profiles")
"""A workload of the node names the profile of a network, which does not exist."""

PROFILES_EVERY_S: Final = 10.0
"""The pause between two looks for missing profiles."""


@define(kw_only=True, eq=False)
class NetworkProfiles:
    """Makes the profile of a network for workloads that have none of an orchestrator: without it they are closed.

    ``find_datastore`` is the open datastore of the node, None while it is away. One that shows pods makes profiles by
    itself. What a person has stored by the name stays.
    """

    policy: NodePolicy
    find_datastore: Callable[[], Datastore | None]
    log: Log

    def controller(self) -> Controller[tuple[Profile, ...], Profile]:
        """What makes them."""
        return Controller(
            name="network profiles",
            observe=self._observe,
            plan=lambda missing: Plan(actions=missing, look_again_s=PROFILES_EVERY_S),
            act=self._create,
            failure="the profile of a network cannot be stored: its workloads pass nothing that no policy allows",
            inputs=frozenset((PROFILES_MISSING,)),
        )

    def _observe(self, _deadline: Deadline) -> tuple[Profile, ...]:
        store = self.find_datastore()
        if store is None or store.description.endpoints is EndpointStorage.PODS:
            return ()
        return self.policy.missing_profiles

    def _create(self, profile: Profile, deadline: Deadline) -> None:
        store = self.find_datastore()
        if store is None:
            return
        validate_resource(profile)
        write = Create(profile_key(profile.metadata.name), profile)
        with suppress(AlreadyExists):  # another node was first
            store.commit([write], deadline=deadline.capped(CALL_TIMEOUT_S))
            self.log(Level.INFO, "the profile of a network is stored", profile=profile.metadata.name)


# --- what others do ---------------------------------------------------------------------------------------------------


def table_events_controller(
    events: RulesetEvents, note: Callable[[ForeignChanges], None], *, clock: Clock
) -> Controller[Plan[None], None]:
    """What waits for changes of other programs, and calls ``note`` with them."""

    def wait(deadline: Deadline) -> None:
        changes = events.wait(deadline=deadline)
        if changes is not None:
            note(changes)

    return notifications_controller(
        name="policy table",
        failure=f"the kernel does not say what others do to the packet filter; it is read every {READ_EVERY_S:g} s",
        wait=wait,
        close=events.close,
        clock=clock,
    )
