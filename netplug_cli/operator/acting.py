"""Writes what the operator decided: objects, the status of each component, and Events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, assert_never

from attrs import define, field, frozen

from netplug_cli.operator.world import Cluster, Pools
from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.decoding.tables import find_text
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.log import Level, Log
from netplug_core.operator.plan import Plan
from netplug_core.operator.report import COMPONENT_REFS, Report, pending_statuses
from netplug_core.operator.state import (
    FINALIZER,
    Action,
    ApplyObject,
    ChangePool,
    ClusterMode,
    CompleteInstallation,
    DeleteObject,
    Json,
    LockDatastore,
    SetFinalizer,
    is_being_deleted,
    may_delete,
    ref_of,
)
from netplug_core.operator.status import (
    STATUS_KIND,
    Component,
    Event,
    component_object,
    component_ref,
    component_reports,
    component_status,
    has_conditions,
    ref_of_event,
    render_event,
)
from netplug_core.resources.installation import INSTALLATION_API_VERSION, INSTALLATION_KIND

__all__ = [
    "Actor", "ComponentStatuses", "Reporter", "write_component_statuses",
]  # fmt: skip


# --- component statuses ----------------------------------------------------------------------------------------------


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


# --- acting ----------------------------------------------------------------------------------------------------------


_WRITE_S: Final = 5.0
"""How long the write of an object may take: with it, one that was begun ends before another operator acts.

A change of a pool may take longer (``world.Pools``). It may end while another operator acts, so it relies on the
revisions of what it has read, and on nothing else.
"""


@frozen(kw_only=True)
class Actor:
    """Writes to a cluster. Every method raises NetplugError if it cannot be done."""

    cluster: Cluster
    pools: Pools
    clock: Clock

    def act(self, action: Action, mode: ClusterMode) -> None:
        """Do what an action says."""
        deadline = Deadline.after(self.clock, _WRITE_S)
        match action:
            case ApplyObject(wanted):
                self.cluster.apply(wanted, deadline=deadline)
            case DeleteObject(ref, uid):
                self.cluster.delete(ref, uid, deadline=deadline)
            case ChangePool(step):
                self.pools.change(mode, step)
            case CompleteInstallation(installation):
                if self.cluster.replace(installation, deadline=deadline) is None:
                    raise Unavailable(str(ref_of(installation)), "it has changed meanwhile, and is read again")
            case LockDatastore(is_locked):
                self.pools.lock(mode, is_locked=is_locked)
            case SetFinalizer(name, uid, is_held):
                finalizers = [FINALIZER] if is_held else []
                metadata = {"name": name, "uid": uid, "finalizers": finalizers}
                self.cluster.apply(_installation(metadata), deadline=deadline)
            case _:
                assert_never(action)

    def write_status(self, found: Json, status: Json) -> None:
        """Write the status of an object that was read."""
        head = {member: find_text(found, member) for member in ("apiVersion", "kind")}
        metadata = {member: find_text(found, "metadata", member) for member in ("name", "uid")}
        deadline = Deadline.after(self.clock, _WRITE_S)
        self.cluster.apply({**head, "metadata": metadata, "status": status}, deadline=deadline, subresource="status")


def _installation(metadata: Json) -> Json:
    return {"apiVersion": INSTALLATION_API_VERSION, "kind": INSTALLATION_KIND, "metadata": metadata}


# --- reporting -------------------------------------------------------------------------------------------------------


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


# --- components ------------------------------------------------------------------------------------------------------


_READ_S: Final = 5.0


def write_component_statuses(actor: Actor) -> None:
    """Make the status of each component that exists say what this release does for it.

    Raises:
        NetplugError: a component cannot be read, or its status cannot be written.
    """
    deadline = Deadline.after(actor.clock, _READ_S)
    read = {kind: actor.cluster.find(ref, deadline=deadline) for kind, ref in COMPONENT_REFS.items()}
    found = {kind: component for kind, component in read.items() if component is not None}
    for component, status in pending_statuses(found, format_time(actor.clock.now_ns())):
        actor.write_status(component, status)
