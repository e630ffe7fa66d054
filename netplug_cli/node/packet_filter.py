"""The controller ``packet filter``: the table ``inet netplug_net`` of the node is as it should be, and stays so.

What should be in it is a rule of ``netplug_core.reconcile.nat``. The controller compares it with the kernel's, and
makes what differs, in one transaction. Then connections to floating addresses that lead elsewhere now are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from typing import TypeAlias

from attrs import define, field, frozen

from netplug_cli.runtime.feed import FOLLOW_S, LIVE_FOLLOW_S, StoppableClock
from netplug_core.addressing import Address
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.packetfilter import Connections, RulesetDataplane
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import ChangeElements, DeleteTable, ObservedTable, ReplaceTable
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore, LiveWatch, ShowsNodeEndpoints
from netplug_core.datastore.view import View
from netplug_core.keys import Key, Kind
from netplug_core.log import Level, Log
from netplug_core.reconcile.controller import Backoff, Controller, Input, Plan, Problem, Timing, Unfinished
from netplug_core.reconcile.nat import (
    FORMER_TABLE,
    NET_TABLE,
    NatFacts,
    TablePlan,
    find_changed_floating,
    find_floating,
    find_nat_facts,
    find_table_change,
    has_former_rule,
    plan_table,
)
from netplug_core.records import List, Revision, WatchEvent
from netplug_core.resources.fields import Switch
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.node import NODE
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, effective_settings
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = [
    "CHECK_EVERY_S", "NAT_KINDS", "REST_S", "FindFacts", "LocalEndpoints", "NodeFacts",
    "PacketFilter",
]  # fmt: skip

NAT_KINDS: tuple[Kind[object], ...] = (NODE, IPPOOL, NODE_CONFIGURATION)
"""What the packet filter follows from, beside the workload endpoints of the node."""

CHECK_EVERY_S = 10.0
"""The pause between two looks at the packet filter, and the longest one after a failure."""

REST_S = 0.1
"""The shortest pause between two changes: nftables reads a set of prefixes whole before it changes it."""

_Endpoints: TypeAlias = "Mapping[Key[object], WorkloadEndpoint]"

FindFacts: TypeAlias = Callable[[Deadline], NatFacts | None]
"""What the table follows from now; None as long as it is not known whole."""


def _know_nothing(_deadline: Deadline) -> None:
    """A node without a datastore."""


@frozen
class _Look:
    """What is known, and what the kernel has. ``has_former``: a former release has left its table."""

    facts: NatFacts | None
    observed: ObservedTable | None
    has_former: bool


@frozen
class _Step:
    """What is planned, for what was seen; without a plan, only the guard of the node's loopback is."""

    plan: TablePlan | None
    look: _Look


@define(kw_only=True, eq=False)
class PacketFilter:
    """Programs the packet filter at the start, when facts change, and again if another program has removed it.

    A firewall that is loaded again may flush the rules of all programs. At its end the process leaves them, so that a
    restart opens nothing. Facts that are not known any more, as while the datastore is away, are those of before.
    """

    ruleset: RulesetDataplane
    connections: Connections
    log: Log
    find_facts: FindFacts = _know_nothing
    _facts: NatFacts | None = field(default=None, init=False)
    _programmed: TablePlan | None = field(default=None, init=False)
    _has_programmed: bool = field(default=False, init=False)
    _is_former_gone: bool = field(default=False, init=False)
    _to_forget: frozenset[Address] = field(default=frozenset(), init=False)

    def controller(self, inputs: frozenset[Input] = frozenset()) -> Controller[_Look, _Step]:
        """What looks again and again, and when one of the inputs changes."""
        return Controller(
            name="packet filter",
            inputs=inputs,
            observe=self._look,
            plan=_plan,
            act=self._program,
            failure="the packet filter is not programmed: pods with a mapped port reach the node's 127.0.0.1",
            timing=Timing(backoff=Backoff(first_s=1.0, longest_s=CHECK_EVERY_S), rest_s=REST_S),
        )

    def _look(self, deadline: Deadline) -> _Look:
        self._facts = self.find_facts(deadline) or self._facts
        observed = self.ruleset.read(NET_TABLE)
        has_former = not self._is_former_gone and has_former_rule(self.ruleset.read(FORMER_TABLE))
        return _Look(self._facts, observed, has_former)

    def _program(self, step: _Step, _deadline: Deadline) -> None:
        """Program what differs, in one transaction. The table of a former release goes when its rule is in ours."""
        look, change = step.look, find_table_change(step.plan, step.look.observed)
        if step.plan is not None:
            self._to_forget |= find_changed_floating(step.plan, look.observed)
        if change is not None:
            self._apply(change)
            self._say(look.observed)
        self._programmed, self._has_programmed = step.plan, True
        if look.has_former:
            self.ruleset.apply(DeleteTable(FORMER_TABLE))
            self.log(Level.INFO, "the packet filter of a former release is removed", table=FORMER_TABLE)
        self._is_former_gone = True
        self._forget_connections()

    def _apply(self, change: ReplaceTable | ChangeElements) -> None:
        try:
            self.ruleset.apply(change)
        except KernelError:
            if isinstance(change, ReplaceTable):
                raise
            # Whatever keeps elements from being changed, a table that is made anew has none of it.
            self.ruleset.apply(ReplaceTable(change.table))

    def _say(self, observed: ObservedTable | None) -> None:
        if not self._has_programmed:
            self.log(Level.INFO, "the packet filter is programmed")
        elif find_table_change(self._programmed, observed) is not None:
            self.log(Level.WARNING, "the packet filter is programmed again: another program has removed it")

    def _forget_connections(self) -> None:
        """Forget the connections to addresses that lead elsewhere; after a failure, again in the next pass."""
        if not self._to_forget:
            return
        try:
            self.connections.forget(self._to_forget)
        except KernelError as error:
            message = "connections to a floating address stay with the workload that had it"
            raise Unfinished((Problem(message=message, cause=str(error)),)) from error
        self._to_forget = frozenset()


def _plan(look: _Look) -> Plan[_Step]:
    plan = None if look.facts is None else plan_table(look.facts)
    problems = () if plan is None else plan.problems
    return Plan(actions=(_Step(plan, look),), look_again_s=CHECK_EVERY_S, problems=problems)


# --- what it follows from ---------------------------------------------------------------------------------------------


@define(kw_only=True, eq=False)
class LocalEndpoints:
    """Follows the workload endpoints of this node, as long as floating addresses are enabled for it.

    ``find_datastore`` is the open datastore of the node, ``note_change`` is called after each change.
    """

    view: View
    find_name: Callable[[], str | None]
    find_datastore: Callable[[], Datastore | None]
    note_change: Callable[[], None]
    clock: Clock
    _found: _Endpoints | None = field(default=None, init=False)
    _listing: _Endpoints | None = field(default=None, init=False)  # by a watch that begins with all of them
    _revision: Revision | None = field(default=None, init=False)
    _watch: LiveWatch | None = field(default=None, init=False)
    _stopping: Event = field(factory=Event, init=False)

    def find(self) -> tuple[WorkloadEndpoint, ...] | None:
        """Those that are known; none if they are not needed, None as long as not all are known. Any thread may call."""
        if not self._are_needed():
            return ()
        known = self._listing if self._has_listed() else self._found
        return None if known is None else tuple(known.values())

    def controller(self) -> Controller[Plan[None], None]:
        """What follows; each pass is one watch."""
        return Controller(
            name="endpoint feed",
            inputs=frozenset((NODE_CONFIGURATION,)),
            observe=self._observe,
            plan=lambda plan: plan,
            act=lambda _action, _deadline: None,
            failure="the workloads of this node cannot be followed; floating addresses stay as they are",
            timing=Timing(step_s=LIVE_FOLLOW_S + CALL_TIMEOUT_S, stuck_s=2 * LIVE_FOLLOW_S, jitter=0.0),
            interrupt=self._interrupt,
        )

    def _are_needed(self) -> bool:
        name = self.find_name()
        if name is None or not self.view.has_listed(NAT_KINDS):
            return False
        configurations = (record.value for record in self.view.list(NODE_CONFIGURATION))
        return effective_settings(configurations, name).floating_ips is Switch.ENABLED

    def _observe(self, _deadline: Deadline) -> Plan[None]:
        name, store = self.find_name(), self.find_datastore()
        if name is None or store is None or not self._are_needed():
            return Plan(look_again_s=CHECK_EVERY_S)
        clock = StoppableClock(self.clock, self._stopping)
        if isinstance(store, ShowsNodeEndpoints):
            self._follow_pods(store, name, Deadline.after(clock, LIVE_FOLLOW_S))
        else:
            self._follow_records(store, name, Deadline.after(clock, FOLLOW_S))
        return Plan(look_again_s=None if self._stopping.is_set() else 0.0)

    def _follow_records(self, store: Datastore, node: str, deadline: Deadline) -> None:
        """Follow all endpoints, and keep those of this node. The watch goes on where the last one has ended."""
        if self._revision is None:
            listed = store.read((List(WORKLOAD_ENDPOINT),), deadline=deadline.capped(CALL_TIMEOUT_S))
            records = listed.list(List(WORKLOAD_ENDPOINT))
            self._found = {each.key: each.value for each in records if each.value.spec.node == node}
            self._revision = listed.revision(WORKLOAD_ENDPOINT)
            self.note_change()
        try:
            for event in store.watch({WORKLOAD_ENDPOINT: self._revision}, deadline=deadline):
                self._found = _with_event(self._found or {}, event, node)
                self._revision = event.revision
                self.note_change()
        except BaseException:
            self._revision = None  # listed again in the next pass; what is known stays until then
            raise

    def _follow_pods(self, store: ShowsNodeEndpoints, node: str, deadline: Deadline) -> None:
        """Follow the pods of this node. Each watch begins with all of them; until then, those of before are known."""
        events = store.watch_endpoints(node, deadline=deadline)
        self._listing, self._watch = {}, events if isinstance(events, LiveWatch) else None
        try:
            for event in events:
                self._listing = _with_event(self._listing, event, node)
                self.note_change()
        finally:
            if self._has_listed():
                self._found = self._listing
            self._watch = None

    def _has_listed(self) -> bool:
        watch = self._watch
        return watch is not None and watch.current_until_s(WORKLOAD_ENDPOINT) is not None

    def _interrupt(self) -> None:
        self._stopping.set()
        watch = self._watch
        if watch is not None:
            watch.close()


def _with_event(known: _Endpoints, event: WatchEvent[object], node: str) -> _Endpoints:
    """The endpoints after an event; a new value, as other threads read the old one."""
    others = {key: value for key, value in known.items() if key != event.key}
    value = event.value
    return {**others, event.key: value} if isinstance(value, WorkloadEndpoint) and value.spec.node == node else others


@define(kw_only=True, eq=False)
class NodeFacts:
    """What is known for the packet filter; see ``PacketFilter.find_facts``."""

    view: View
    find_name: Callable[[], str | None]
    endpoints: LocalEndpoints

    def __call__(self, _deadline: Deadline) -> NatFacts | None:
        """The facts; None as long as something has not been listed."""
        name = self.find_name()
        if name is None or not self.view.has_listed(NAT_KINDS):
            return None
        endpoints = self.endpoints.find()
        return None if endpoints is None else find_nat_facts(self.view, name, endpoints)

    def find_floating(self) -> Mapping[Address, str] | None:
        """The floating addresses of this node's workloads, with their host ends; None as long as not all are known."""
        name = self.find_name()
        if name is None or not self.view.has_listed(NAT_KINDS):
            return None
        endpoints = self.endpoints.find()
        if not endpoints:
            return None if endpoints is None else {}
        return find_floating(find_nat_facts(self.view, name, endpoints))
