"""The controller ``packet filter``: the table ``inet netplug_net`` of the node is as it should be, and stays so.

What should be in it is a rule of ``netplug_core.reconcile.nat``. The controller compares it with the kernel's, and
makes what differs, in one transaction.
"""

from __future__ import annotations

from attrs import define, field, frozen

from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import (
    ChangeElements,
    DeleteTable,
    ObservedTable,
    PacketTable,
    ReplaceTable,
    RulesetDataplane,
    find_change,
)
from netplug_core.log import Level, Log
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Timing
from netplug_core.reconcile.nat import FORMER_TABLE, NET_TABLE, has_former_rule, plan_table

__all__ = ["CHECK_EVERY_S", "REST_S", "PacketFilter"]

CHECK_EVERY_S = 10.0
"""The pause between two looks at the packet filter, and the longest one after a failure."""

REST_S = 0.1
"""The shortest pause between two changes: nftables reads a set of prefixes whole before it changes it."""


@frozen
class _Look:
    """What should be, and what is. ``has_former``: a former release has left its table."""

    wanted: PacketTable
    observed: ObservedTable | None
    has_former: bool


@define(kw_only=True, eq=False)
class PacketFilter:
    """Programs the packet filter at the start, and again if another program has removed it.

    A firewall that is loaded again may flush the rules of all programs. At its end the process leaves them, so that a
    restart opens nothing.
    """

    ruleset: RulesetDataplane
    log: Log
    _programmed: PacketTable | None = field(default=None, init=False)
    _is_former_gone: bool = field(default=False, init=False)

    def controller(self) -> Controller[_Look, _Look]:
        """What looks again and again."""
        return Controller(
            name="packet filter",
            observe=self._look,
            plan=lambda look: Plan(actions=(look,), look_again_s=CHECK_EVERY_S),
            act=self._program,
            failure="the packet filter is not programmed: pods with a mapped port reach the node's 127.0.0.1",
            timing=Timing(backoff=Backoff(first_s=1.0, longest_s=CHECK_EVERY_S), rest_s=REST_S),
        )

    def _look(self, _deadline: Deadline) -> _Look:
        observed = self.ruleset.read(NET_TABLE)
        has_former = not self._is_former_gone and has_former_rule(self.ruleset.read(FORMER_TABLE))
        return _Look(plan_table(), observed, has_former)

    def _program(self, look: _Look, _deadline: Deadline) -> None:
        """Program what is missing, in one transaction. The table of a former release goes when its rule is in ours."""
        change = find_change(look.wanted, look.observed)
        if change is not None:
            self._apply(change)
            self._say(look.observed)
        self._programmed = look.wanted
        if look.has_former:
            self.ruleset.apply(DeleteTable(FORMER_TABLE))
            self.log(Level.INFO, "the packet filter of a former release is removed", table=FORMER_TABLE)
        self._is_former_gone = True

    def _apply(self, change: ReplaceTable | ChangeElements) -> None:
        try:
            self.ruleset.apply(change)
        except KernelError:
            if isinstance(change, ReplaceTable):
                raise
            # Whatever keeps elements from being changed, a table that is made anew has none of it.
            self.ruleset.apply(ReplaceTable(change.table))

    def _say(self, observed: ObservedTable | None) -> None:
        if self._programmed is None:
            self.log(Level.INFO, "the packet filter is programmed")
        elif find_change(self._programmed, observed) is not None:
            self.log(Level.WARNING, "the packet filter is programmed again: another program has removed it")
