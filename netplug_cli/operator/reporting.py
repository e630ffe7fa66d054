"""Writes the Events on an Installation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import define, field

from netplug_cli.operator.world import Cluster
from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.errors import NetplugError
from netplug_core.log import Level, Log
from netplug_core.operator.state import Json
from netplug_core.operator.status import Event, ref_of_event, render_event

__all__ = ["Reporter"]

_REQUEST_S: Final = 5.0


@define(kw_only=True)
class Reporter:
    """``identity`` is the name of this process. An Event that cannot be written is a line of the log, and is lost."""

    cluster: Cluster
    identity: str
    clock: Clock
    log: Log
    _problem: str = field(default="", init=False)

    def report(self, installation: Json, events: Iterable[Event]) -> None:
        """Write some Events. One with the same text is counted up."""
        for event in events:
            try:
                self._report(installation, event)
            except NetplugError as error:
                if str(error) != self._problem:
                    self.log(Level.WARNING, "an Event cannot be written", reason=event.reason, cause=error)
                self._problem = str(error)
            else:
                self._problem = ""

    def _report(self, installation: Json, event: Event) -> None:
        deadline = Deadline.after(self.clock, _REQUEST_S)
        found = self.cluster.find(ref_of_event(event, installation), deadline=deadline)
        now = f"{format_time(self.clock.now_ns())[:19]}Z"
        self.cluster.replace(
            render_event(event, installation, found, identity=self.identity, now=now), deadline=deadline
        )
