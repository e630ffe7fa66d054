"""The controllers that copy from Kubernetes to a datastore of netplug's own: one for each kind that is copied.

``netplug_core.reconcile.copies`` has the rules and the work. Here is when it is looked at, and how writes are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import define, evolve, field

from netplug_cli.controllers.nodes import CONFIGURATION_CHANGED, LEADER_CHANGED, WRITE_S, Acting
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.view import View
from netplug_core.errors import Unavailable
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Timing
from netplug_core.reconcile.copies import NODE_LABELS, CopyChange, CopyRules, CopyWork
from netplug_core.reconcile.kubecontrollers import RunningControllers, period_s
from netplug_core.records import Create, Get
from netplug_core.resources.kubecontrollersconfiguration import ControllerSettings, NodeController
from netplug_core.resources.networkpolicy import NetworkPolicy
from netplug_core.resources.profile import Profile

__all__ = ["Copying"]

_WAIT_S: Final = 5.0  # while something is not known yet, and in a process that does not act


@define(kw_only=True, eq=False)
class Copying:
    """Keeps the copies of one kind as their sources are, while this process acts and the settings ask for it.

    ``sources`` is the view of the cluster, ``find_source`` its open store, and ``copies`` the view of the copies.
    """

    acting: Acting
    rules: CopyRules
    sources: View
    copies: View
    find_running: Callable[[], RunningControllers | None]
    find_source: Callable[[], Datastore | None]
    _work: CopyWork = field(init=False)
    _is_new: bool = field(default=True, init=False)
    _due_s: float | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._work = CopyWork(self.rules)

    def controller(self) -> Controller[tuple[CopyChange, ...] | None, CopyChange]:
        """What looks."""
        return Controller(
            name=self.rules.name,
            observe=self._observe,
            plan=self._plan,
            act=self._act,
            failure=f"what is copied from Kubernetes is not up to date: {self.rules.source}",
            recovered=f"what is copied from Kubernetes is up to date again: {self.rules.source}",
            inputs=frozenset((self.rules.source, self.rules.target, CONFIGURATION_CHANGED, LEADER_CHANGED)),
            timing=Timing(backoff=Backoff(first_s=0.5, longest_s=60.0), step_s=WRITE_S),
        )

    def _observe(self, _deadline: Deadline) -> tuple[CopyChange, ...] | None:
        """The next changes; None while this controller has to leave everything as it is."""
        running = self.find_running()
        settings = None if running is None else _find_settings(running, self.rules.name)
        is_known = self.sources.has_listed((self.rules.source,)) and self.copies.has_listed((self.rules.target,))
        if settings is None or not is_known or not self.acting.is_leading():
            self._is_new = True
            return None
        now = self.acting.clock.monotonic()
        if self._is_new or (self._due_s is not None and now >= self._due_s):
            self._work.look_at_everything()
            pause_s = period_s(settings)
            self._is_new, self._due_s = False, None if pause_s is None else now + pause_s
        return self._work.look(self.sources, self.copies)

    def _plan(self, changes: tuple[CopyChange, ...] | None) -> Plan[CopyChange]:
        if changes is None:
            return Plan(look_again_s=_WAIT_S)
        pause_s = None if self._due_s is None else max(self._due_s - self.acting.clock.monotonic(), 0.0)
        return Plan(
            actions=changes, look_again_s=0.0 if self._work.is_behind else pause_s, problems=self._work.problems
        )

    def _act(self, change: CopyChange, deadline: Deadline) -> None:
        write = change.write
        if write is None or not self._is_still_wanted(change, deadline):
            return
        if isinstance(write, Create) and isinstance(write.value, Profile | NetworkPolicy):
            metadata = self.acting.new_metadata(write.value.metadata)
            write = Create(write.key, evolve(write.value, metadata=metadata))
        if self.acting.commit(write, deadline):
            self._work.done(write.key)

    def _is_still_wanted(self, change: CopyChange, deadline: Deadline) -> bool:
        """A copy goes only if its source is gone at a second look: a list may have been out of date."""
        if change.gone is None:
            return True
        source = self.find_source()
        if source is None:
            raise Unavailable("Kubernetes", "it is not connected")
        wanted = Get(change.gone)
        return source.read((wanted,), deadline=deadline).find(wanted) is None


def _find_settings(running: RunningControllers, name: str) -> ControllerSettings | NodeController | None:
    """The settings of the controller of that name; None: it does not run."""
    return running.label_sync if name == NODE_LABELS else running.copies.get(name)
