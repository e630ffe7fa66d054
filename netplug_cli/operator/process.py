"""The operator: its command line, its loop, and what it says of itself over HTTP.

The loop reads the cluster, plans, acts and reports. Over HTTP it answers probes and shows its metrics.
"""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from threading import Event, Thread
from typing import Final

from attrs import define, field, frozen

from netplug_cli.http_server import Page, Pages
from netplug_cli.operator.acting import Actor, ComponentStatuses, Reporter, write_component_statuses
from netplug_cli.operator.election import Election
from netplug_cli.operator.metrics import METRICS_TYPE, OperatorMetrics
from netplug_cli.operator.observing import Observer, Unreadable
from netplug_core.clock import Clock, format_time
from netplug_core.errors import NetplugError
from netplug_core.log import Level, Log
from netplug_core.operator.deployment import HEALTH_PORT
from netplug_core.operator.plan import Plan, plan
from netplug_core.operator.report import Report, condition_values
from netplug_core.operator.state import Action, ClusterState, Json, SetFinalizer, describe
from netplug_core.operator.status import (
    TAKE_OVER,
    event_of,
    events_of_status,
    has_status,
    plan_after_failure,
    report_failure,
    status_of,
)
from netplug_core.resources.installation import INSTALLATION_KIND

__all__ = [
    "REST_S", "RESYNC_S", "OperatorArguments", "OperatorLoop", "add_values", "find_dead", "operator_pages",
    "parse_arguments",
]  # fmt: skip


# --- arguments -------------------------------------------------------------------------------------------------------


_MAX_PORT = 65_535


@frozen(kw_only=True)
class OperatorArguments:
    """``manages_definitions``: the CRDs are applied at the start and kept. ``health_port`` is one of 127.0.0.1."""

    manages_definitions: bool
    health_port: int


def parse_arguments(arguments: Sequence[str]) -> OperatorArguments:
    """The arguments; a mistake ends the process with status 2."""
    parser = argparse.ArgumentParser(
        prog="netplug-operator", description="Keep the cluster as its Installation named default says."
    )
    parser.add_argument(
        "--manage-crds",
        choices=("true", "false"),
        default="true",
        help="apply the custom resource definitions, and keep them as they are (default: %(default)s)",
    )
    parser.add_argument(
        "--health-port",
        type=_port,
        default=HEALTH_PORT,
        metavar="N",
        help="serve /livez, /readyz and /metrics at this port of 127.0.0.1 (default: %(default)s)",
    )
    found = parser.parse_args(arguments)
    return OperatorArguments(manages_definitions=found.manage_crds == "true", health_port=found.health_port)


def _port(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; a number from 1 to {_MAX_PORT} is")
    return number


# --- process ---------------------------------------------------------------------------------------------------------


RESYNC_S: Final = 300.0
"""How long after a look the next one comes, if no change is noticed."""

REST_S: Final = 2.0
"""The least time from a look to the next one: each pod of a rollout is an event, and so is our own status."""

_FIRST_RETRY_S: Final = REST_S
_LONGEST_RETRY_S: Final = 30.0
_AWAITED_S: Final = 10.0
"""The pause while pods start or end: they are not watched."""

_NOT_LEADING_S: Final = REST_S
_STUCK_S: Final = 300.0
"""No action takes as long as that."""

_END_S: Final = 25.0


@define(kw_only=True)
class OperatorLoop:
    """``is_leading`` says whether this process may write; ``on_crash`` is called if the loop ends by an error."""

    observer: Observer
    actor: Actor
    reporter: Reporter
    components: ComponentStatuses
    metrics: OperatorMetrics
    is_leading: Callable[[], bool]
    on_crash: Callable[[], None]
    clock: Clock
    log: Log
    _wakeup: Event = field(factory=Event, init=False)
    _stopping: Event = field(factory=Event, init=False)
    _thread: Thread | None = field(default=None, init=False)
    _moved_at: float = field(default=0.0, init=False)
    _retry_s: float = field(default=_FIRST_RETRY_S, init=False)
    _done: tuple[Action, ...] = field(default=(), init=False)
    _reported: str = field(default="", init=False)
    _degraded: tuple[str, str] | None = field(default=None, init=False)
    _has_led: bool = field(default=False, init=False)
    _unready: str = field(default="the cluster has not been read yet", init=False)
    _conditions: Mapping[str, float] = field(factory=dict, init=False)

    def start(self) -> None:
        """Begin, in a thread."""
        self._moved_at = self.clock.monotonic()
        self._thread = Thread(target=self._run, name="operator", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look soon: at most ``REST_S`` after the last look, or after the one that lasts."""
        self._wakeup.set()

    def stop(self) -> bool:
        """End after the action that lasts; whether it has ended."""
        self._stopping.set()
        self.wake()
        if self._thread is not None:
            self._thread.join(_END_S)
        return not self.is_alive

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def find_problem(self) -> str:
        """Why the process has to be started again; empty if the loop moves."""
        if not self.is_alive:
            return "the loop has ended"
        still_s = self.clock.monotonic() - self._moved_at
        return f"nothing has moved for {still_s:.0f} s" if still_s > RESYNC_S + _STUCK_S else ""

    def find_unready(self) -> str:
        """Why the process that acts could not act now; empty if it can, and in one that waits."""
        return self._unready if self.is_leading() else ""

    @property
    def conditions(self) -> dict[str, float]:
        """The conditions of the Installation, 1 for those that are true; none in a process that waits."""
        return dict(self._conditions) if self.is_leading() else {}

    def look(self) -> float:
        """Look once, and act; how many seconds to wait before the next look, unless something changes."""
        if not self.is_leading():
            self._has_led = False
            return _NOT_LEADING_S
        began_s = self.clock.monotonic()
        outcome, pause_s = self._look()
        self.metrics.note_look(outcome, self.clock.monotonic() - began_s)
        return pause_s

    def _look(self) -> tuple[str, float]:
        """How the look has ended, and the pause after it."""
        try:
            state = self.observer.observe()
        except Unreadable as error:
            self._unready = f"the cluster cannot be read: {error}"
            self._report_once("the cluster cannot be read", error)
            return "unreadable", self._after_unreadable(error)
        self._unready = ""
        self._report_take_over(state)
        found = plan(state, self.observer.shipped, self.observer.settings)
        failure = self._act(state, found)
        if failure is not None:
            self._report_once(describe(failure[0]), failure[1])
            found = plan_after_failure(found, *failure)
        self._report_degraded(found.report)
        has_status = self._write_status(state, found) and self._write_component_statuses()
        has_failed = failure is not None or not has_status
        return ("failed" if has_failed else "done"), self._pause(found, has_failed=has_failed)

    # --- one look --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._wakeup.clear()
                self._moved_at = self.clock.monotonic()
                pause_s = self.look()
                self._stopping.wait(REST_S)
                self._wakeup.wait(max(0.0, pause_s - REST_S))
        except Exception:  # noqa: BLE001  # the process ends, and is started again
            self.log(Level.ERROR, f"the loop has ended\n{traceback.format_exc()}")
            self.on_crash()

    def _report_take_over(self, state: ClusterState) -> None:
        """An Event, once for each time that this process begins to act on an Installation."""
        if state.installation is not None and not self._has_led:
            self._has_led = True
            self.reporter.report(state.installation, [TAKE_OVER])

    def _act(self, state: ClusterState, found: Plan) -> tuple[Action, NetplugError] | None:
        """Do everything of a plan; what failed, and how, if anything did. The rest is then not done."""
        for action in found.actions:
            if self._stopping.is_set() or not self.is_leading() or found.mode is None:
                return None
            self._moved_at = self.clock.monotonic()
            self.log(Level.INFO, describe(action))
            try:
                self.actor.act(action, found.mode)
            except NetplugError as error:
                self.metrics.note_action(action, has_failed=True)
                return action, error
            self.metrics.note_action(action, has_failed=False)
            event = event_of(action, state.objects)
            if event is not None and state.installation is not None:
                self.reporter.report(state.installation, [event])
        return None

    def _write_status(self, state: ClusterState, found: Plan) -> bool:
        """Whether the status says what was found; also if there is no Installation any more."""
        is_gone = any(isinstance(action, SetFinalizer) and not action.is_held for action in found.actions)
        if self._stopping.is_set() or not self.is_leading():
            return True
        if state.installation is None or is_gone:
            self.components.remove()
            return True
        return self._write(state.installation, found)

    def _write(self, installation: Json, found: Plan) -> bool:
        now = format_time(self.clock.now_ns())
        status = status_of(found, installation, version=self.observer.settings.version, now=now)
        self._conditions = condition_values(status)
        self.components.write(installation, found)
        if has_status(installation, status):
            return True
        try:
            self.actor.write_status(installation, status)
        except NetplugError as error:
            self.metrics.note_write("apply", f"{INSTALLATION_KIND}/status", has_failed=True)
            self._report_once("the status cannot be written", error)
            return False
        self.metrics.note_write("apply", f"{INSTALLATION_KIND}/status", has_failed=False)
        self.reporter.report(installation, events_of_status(installation, status))
        return True

    def _write_component_statuses(self) -> bool:
        """Whether the components say what this release does for them."""
        if self._stopping.is_set() or not self.is_leading():
            return True
        try:
            write_component_statuses(self.actor)
        except NetplugError as error:
            self._report_once("the status of the components cannot be written", error)
            return False
        return True

    def _after_unreadable(self, error: Unreadable) -> float:
        if error.installation is not None:
            report = report_failure(Report(), "the cluster cannot be read", error, is_read=True)
            self._write(error.installation, Plan(report=report))
        return self._backed_off()

    def _pause(self, found: Plan, *, has_failed: bool) -> float:
        """The pause after a look. Actions that come again although they were done do not make it hurry."""
        repeats, self._done = found.actions == self._done, found.actions
        if has_failed or (found.actions and repeats):
            return self._backed_off()
        self._retry_s, self._reported = _FIRST_RETRY_S, ""
        if found.actions:
            return 0.0
        return RESYNC_S if found.report.is_ready else _AWAITED_S

    def _backed_off(self) -> float:
        pause_s, self._retry_s = self._retry_s, min(2 * self._retry_s, _LONGEST_RETRY_S)
        return pause_s

    def _report_degraded(self, report: Report) -> None:
        """A line when the reason changes: without an Installation there is no status that could have it."""
        if report.degraded is not None and report.degraded != self._degraded:
            reason, message = report.degraded
            self.log(Level.WARNING, "the installation is degraded", reason=reason, cause=message)
        self._degraded = report.degraded

    def _report_once(self, what: str, error: Exception) -> None:
        text = f"{what}: {error}"
        if text != self._reported:
            self.log(Level.ERROR, what, cause=error)
        self._reported = text


# --- pages -----------------------------------------------------------------------------------------------------------


def find_dead(loop: OperatorLoop, election: Election) -> str:
    """Why the process has to be started again; empty if its threads run and move."""
    return loop.find_problem() or ("" if election.is_alive else "the election has ended")


def operator_pages(loop: OperatorLoop, election: Election, metrics: OperatorMetrics) -> Pages:
    """The pages by their paths."""
    return {
        "/livez": lambda: _page_of(find_dead(loop, election)),
        "/readyz": lambda: _page_of(find_dead(loop, election) or election.problem or loop.find_unready()),
        "/metrics": lambda: Page(body=metrics.render(), media_type=METRICS_TYPE),
    }


def add_values(metrics: OperatorMetrics, loop: OperatorLoop, election: Election) -> None:
    """Add what is read when the metrics are."""
    text = "1 if this process has the Lease, and acts; otherwise 0."
    metrics.add_value("netplug_operator_leader", text, lambda: float(election.is_leading))
    text = "The conditions of the Installation: 1 if it is true, otherwise 0. Only of the process that acts."
    metrics.add_values("netplug_operator_condition", text, "type", lambda: loop.conditions)


def _page_of(problem: str) -> Page:
    if not problem:
        return Page(body=b"ok\n")
    return Page(body=f"{problem}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
