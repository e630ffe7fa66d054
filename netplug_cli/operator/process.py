"""The operator: its command line, its controller, and what it says of itself over HTTP.

The controller reads the cluster, plans, acts and reports. Over HTTP the process answers probes and shows its metrics.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import define, field, frozen

from netplug_cli.http_server import METRICS_TYPE, Page, Pages
from netplug_cli.loopback import port_argument
from netplug_cli.operator.world import (
    Actor,
    ComponentStatuses,
    Observer,
    Reporter,
    Unreadable,
    write_component_statuses,
)
from netplug_cli.runtime.controllers import Runtime
from netplug_cli.runtime.election import LeaderElection
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
from netplug_core.reconcile.controller import Backoff, Controller, Problem, Source, Timing, Unfinished
from netplug_core.reconcile.controller import Plan as FramePlan
from netplug_core.resources.installation import INSTALLATION_KIND

if TYPE_CHECKING:
    from netplug_cli.operator.metrics import OperatorMetrics

__all__ = [
    "CHANGES", "END_S", "REST_S", "RESYNC_S", "Operator", "OperatorArguments", "add_values", "find_dead",
    "operator_pages", "parse_arguments",
]  # fmt: skip


# --- arguments -------------------------------------------------------------------------------------------------------


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
        type=port_argument,
        default=HEALTH_PORT,
        metavar="N",
        help="serve /livez, /readyz and /metrics at this port of 127.0.0.1 (default: %(default)s)",
    )
    found = parser.parse_args(arguments)
    return OperatorArguments(manages_definitions=found.manage_crds == "true", health_port=found.health_port)


# --- process ---------------------------------------------------------------------------------------------------------


RESYNC_S: Final = 300.0
"""How long after a look the next one comes, if no change is noticed."""

REST_S: Final = 2.0
"""The least time from a look to the next one: each pod of a rollout is an event, and so is our own status."""

CHANGES: Final = Source("changes of the cluster")
"""What wakes the operator: something that it watches has changed, or it has got or lost the Lease."""

END_S: Final = 25.0
"""How long the action that lasts may take when the process ends."""

_NAME: Final = "installation"
_LONGEST_RETRY_S: Final = 30.0
_AWAITED_S: Final = 10.0
"""The pause while pods start or end: they are not watched."""

_STUCK_S: Final = 300.0
"""No action takes as long as that."""


@frozen(kw_only=True)
class _Pass:
    """What one look has found, and what is to be done about it, in order."""

    state: ClusterState
    plan: Plan


_Seen: TypeAlias = ClusterState | Unreadable | None


@define(kw_only=True)
class Operator:
    """``is_leading`` says whether this process may write."""

    observer: Observer
    actor: Actor
    reporter: Reporter
    components: ComponentStatuses
    metrics: OperatorMetrics
    is_leading: Callable[[], bool]
    clock: Clock
    log: Log
    _is_stopping: bool = field(default=False, init=False)
    _moved_at: float | None = field(default=None, init=False)
    _outcome: str = field(default="", init=False)
    _done: tuple[Action, ...] = field(default=(), init=False)
    _has_led: bool = field(default=False, init=False)
    _unready: str = field(default="the cluster has not been read yet", init=False)
    _conditions: Mapping[str, float] = field(factory=dict, init=False)

    def controller(self) -> Controller[_Seen, _Pass | Unreadable]:
        """What looks and acts. Its actions have an order, so that all of a look are one."""
        return Controller(
            name=_NAME,
            inputs=frozenset({CHANGES}),
            observe=lambda _deadline: self._observe(),
            plan=self._plan,
            act=lambda action, _deadline: self._act(action),
            failure="the cluster cannot be made as its Installation says",
            timing=Timing(rest_s=REST_S, backoff=Backoff(first_s=REST_S, longest_s=_LONGEST_RETRY_S)),
        )

    def ask_to_stop(self) -> None:
        """Begin no other action."""
        self._is_stopping = True

    def note_pass(self, name: str, _is_failed: bool, seconds: float) -> None:  # noqa: FBT001  a ``NotePass``
        """Count a look that has ended, and how; one without the Lease is none."""
        if name != _NAME:
            return
        self._moved_at = None
        if self._outcome:
            self.metrics.note_look(self._outcome, seconds)
        self._outcome = ""

    def find_problem(self) -> str:
        """Why the process has to be started again; empty if what it does moves."""
        still_s = 0.0 if self._moved_at is None else self.clock.monotonic() - self._moved_at
        return f"nothing has moved for {still_s:.0f} s" if still_s > _STUCK_S else ""

    def find_unready(self) -> str:
        """Why the process that acts could not act now; empty if it can, and in one that waits."""
        return self._unready if self.is_leading() else ""

    @property
    def conditions(self) -> dict[str, float]:
        """The conditions of the Installation, 1 for those that are true; none in a process that waits."""
        return dict(self._conditions) if self.is_leading() else {}

    # --- one look --------------------------------------------------------------------------------------------------

    def _observe(self) -> _Seen:
        """The cluster; None without the Lease, with which this process is woken."""
        if not self._may_write():
            self._has_led = False
            return None
        self._moved_at, self._outcome = self.clock.monotonic(), "failed"  # until it has ended
        try:
            state = self.observer.observe()
        except Unreadable as error:
            self._unready = f"the cluster cannot be read: {error}"
            return error
        self._unready = ""
        return state

    def _plan(self, seen: _Seen) -> FramePlan[_Pass | Unreadable]:
        if seen is None:
            return FramePlan(look_again_s=REST_S)
        if isinstance(seen, Unreadable):
            return FramePlan(actions=(seen,))
        found = plan(seen, self.observer.shipped, self.observer.settings)
        idle_s = RESYNC_S if found.report.is_ready else _AWAITED_S
        return FramePlan(
            actions=(_Pass(state=seen, plan=found),),
            look_again_s=REST_S if found.actions else idle_s,
            problems=tuple(_degraded(found.report)),
        )

    def _act(self, action: _Pass | Unreadable) -> None:
        if isinstance(action, Unreadable):
            self._outcome = "unreadable"
            problems = (*self._note_unreadable(action), _problem("the cluster cannot be read", action))
            raise Unfinished(problems)
        problems = self._make_so(action)
        if problems:
            raise Unfinished(problems)
        self._outcome = "done"

    def _make_so(self, action: _Pass) -> tuple[Problem, ...]:
        """Do a plan and write the status; what is left. If actions come again although they were done, that is left."""
        state, found = action.state, action.plan
        repeats, self._done = bool(found.actions) and found.actions == self._done, found.actions
        self._report_take_over(state)
        failure = self._do(state, found)
        problems: list[Problem] = []
        if failure is not None:
            problems.append(_problem(describe(failure[0]), failure[1]))
            found = plan_after_failure(found, *failure)
        problems += self._write_status(state, found)
        problems += self._write_component_statuses()
        if repeats and not problems:
            text = "what was done is to be done again: something undoes it"
            problems.append(Problem(message=text, cause=describe(found.actions[0]), level=Level.INFO))
        return tuple(problems)

    def _report_take_over(self, state: ClusterState) -> None:
        """An Event, once for each time that this process begins to act on an Installation."""
        if state.installation is not None and not self._has_led:
            self._has_led = True
            self.reporter.report(state.installation, [TAKE_OVER])

    def _do(self, state: ClusterState, found: Plan) -> tuple[Action, NetplugError] | None:
        """Do everything of a plan; what failed, and how, if anything did. The rest is then not done."""
        for action in found.actions:
            if not self._may_write() or found.mode is None:
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

    def _may_write(self) -> bool:
        return not self._is_stopping and self.is_leading()

    def _write_status(self, state: ClusterState, found: Plan) -> tuple[Problem, ...]:
        """Make the status say what was found; also if there is no Installation any more. What is left."""
        is_gone = any(isinstance(action, SetFinalizer) and not action.is_held for action in found.actions)
        if not self._may_write():
            return ()
        if state.installation is None or is_gone:
            self.components.remove()
            return ()
        return self._write(state.installation, found)

    def _write(self, installation: Json, found: Plan) -> tuple[Problem, ...]:
        now = format_time(self.clock.now_ns())
        status = status_of(found, installation, version=self.observer.settings.version, now=now)
        self._conditions = condition_values(status)
        self.components.write(installation, found)
        if has_status(installation, status):
            return ()
        try:
            self.actor.write_status(installation, status)
        except NetplugError as error:
            self.metrics.note_write("apply", f"{INSTALLATION_KIND}/status", has_failed=True)
            return (_problem("the status cannot be written", error),)
        self.metrics.note_write("apply", f"{INSTALLATION_KIND}/status", has_failed=False)
        self.reporter.report(installation, events_of_status(installation, status))
        return ()

    def _write_component_statuses(self) -> tuple[Problem, ...]:
        """Make the components say what this release does for them; what is left."""
        if not self._may_write():
            return ()
        try:
            write_component_statuses(self.actor)
        except NetplugError as error:
            return (_problem("the status of the components cannot be written", error),)
        return ()

    def _note_unreadable(self, error: Unreadable) -> tuple[Problem, ...]:
        if error.installation is None:
            return ()
        report = report_failure(Report(), "the cluster cannot be read", error, is_read=True)
        return self._write(error.installation, Plan(report=report))


def _problem(what: str, error: Exception) -> Problem:
    return Problem(message=what, cause=str(error), level=Level.ERROR)


def _degraded(report: Report) -> Iterator[Problem]:
    """Why the Installation is degraded: without one there is no status that could have it."""
    if report.degraded is not None:
        reason, message = report.degraded
        yield Problem(message="the installation is degraded", cause=message, fields=(("reason", reason),))


# --- pages -----------------------------------------------------------------------------------------------------------


def find_dead(operator: Operator, runtime: Runtime) -> str:
    """Why the process has to be started again; empty if its threads run and move."""
    return operator.find_problem() if runtime.are_alive else "a thread has ended"


def find_unforeseen(runtime: Runtime) -> str:
    """An error of ours, with which a controller is tried again and does nothing meanwhile; empty if there is none."""
    problems = (problem for health in runtime.healths for problem in health.problems)
    return next((f"{problem.message}: {problem.cause}" for problem in problems if problem.trace), "")


def operator_pages(operator: Operator, election: LeaderElection, runtime: Runtime) -> Pages:
    """The pages by their paths."""
    return {
        "/livez": lambda: _page_of(find_dead(operator, runtime)),
        "/readyz": lambda: _page_of(
            find_dead(operator, runtime) or find_unforeseen(runtime) or election.problem or operator.find_unready()
        ),
        "/metrics": lambda: Page(body=operator.metrics.render(), media_type=METRICS_TYPE),
    }


def add_values(operator: Operator, election: LeaderElection) -> None:
    """Add what is read when the metrics are."""
    text = "1 if this process has the Lease, and acts; otherwise 0."
    operator.metrics.add_value("netplug_operator_leader", text, lambda: float(election.is_leading))
    text = "The conditions of the Installation: 1 if it is true, otherwise 0. Only of the process that acts."
    operator.metrics.add_values("netplug_operator_condition", text, "type", lambda: operator.conditions)


def _page_of(problem: str) -> Page:
    if not problem:
        return Page(body=b"ok\n")
    return Page(body=f"{problem}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
