"""The controller ``packet filter``: the table ``inet netplug_net`` of the node is as it should be, and stays so.

What should be in it is a rule of ``netplug_core.reconcile.nat``. The controller compares it with the kernel's, and
makes what differs, in one transaction. Then connections to floating addresses that lead elsewhere now are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import define, field, frozen

from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import (
    ChangeElements,
    Connections,
    DeleteTable,
    ObservedTable,
    ReplaceTable,
    RulesetDataplane,
)
from netplug_core.log import Level, Log
from netplug_core.reconcile.controller import Backoff, Controller, Input, Plan, Problem, Timing, Unfinished
from netplug_core.reconcile.nat import (
    FORMER_TABLE,
    NET_TABLE,
    NatFacts,
    TablePlan,
    find_changed_floating,
    find_table_change,
    has_former_rule,
    plan_table,
)

__all__ = ["CHECK_EVERY_S", "REST_S", "FindFacts", "PacketFilter"]

CHECK_EVERY_S = 10.0
"""The pause between two looks at the packet filter, and the longest one after a failure."""

REST_S = 0.1
"""The shortest pause between two changes: nftables reads a set of prefixes whole before it changes it."""

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
