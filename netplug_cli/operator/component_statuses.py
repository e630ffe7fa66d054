"""Writes the objects that say how each component is. ``netplug_core.operator.status`` has their content."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from attrs import define, field

from netplug_cli.operator.world import Cluster
from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.errors import NetplugError
from netplug_core.log import Level, Log
from netplug_core.operator.plan import Plan
from netplug_core.operator.report import Report
from netplug_core.operator.state import Json, find_text, is_being_deleted, may_delete
from netplug_core.operator.status import (
    STATUS_KIND,
    Component,
    component_object,
    component_ref,
    component_reports,
    component_status,
    has_conditions,
)

__all__ = ["ComponentStatuses"]

_REQUESTS_S: Final = 5.0


@define(kw_only=True)
class ComponentStatuses:
    """They repeat what the Installation says, so one that cannot be written is a line of the log, and no failure."""

    cluster: Cluster
    clock: Clock
    log: Log
    _problem: str = field(default="", init=False)

    def write(self, installation: Json, plan: Plan) -> None:
        """Make the object of each component say how it is."""
        with self._reporting():
            for component, report in component_reports(plan).items():
                self._write(component, report, installation)

    def remove(self) -> None:
        """Delete those that there are: there is no Installation any more."""
        with self._reporting():
            for component in Component:
                self._remove(component)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """What fails within is a line of the log, once."""
        try:
            yield
        except NetplugError as error:
            if str(error) != self._problem:
                self.log(Level.WARNING, f"{STATUS_KIND} objects are not as they should be", cause=error)
            self._problem = str(error)
        else:
            self._problem = ""

    def _write(self, component: Component, report: Report, installation: Json) -> None:
        deadline = Deadline.after(self.clock, _REQUESTS_S)
        wanted, found = component_object(component), self.cluster.find(component_ref(component), deadline=deadline)
        if found is None:
            found = self.cluster.apply(wanted, deadline=deadline)
        status = component_status(report, found, installation, format_time(self.clock.now_ns()))
        if not has_conditions(found, status):
            metadata = {member: find_text(found, "metadata", member) for member in ("name", "uid")}
            document = {**wanted, "metadata": metadata, "status": status}
            self.cluster.apply(document, deadline=deadline, subresource="status")

    def _remove(self, component: Component) -> None:
        deadline = Deadline.after(self.clock, _REQUESTS_S)
        found = self.cluster.find(component_ref(component), deadline=deadline)
        if found is not None and may_delete(found) and not is_being_deleted(found):
            self.cluster.delete(component_ref(component), find_text(found, "metadata", "uid"), deadline=deadline)
