"""Events of the node about conflicts: one for each, repeated seldom, and never too many."""

from __future__ import annotations

from attrs import define, evolve, field

from netplug_cli.node.tasks import CONFLICTS_EVERY_S, MAX_REPORTS, ConflictReports
from netplug_core.clock import Deadline
from netplug_core.cni.plugins import REPORT_AGAIN_S
from netplug_core.errors import Unavailable
from netplug_core.reconcile.controller import Problem
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node_server import Lines

PLAIN = Problem(message="the session is not established", cause="the peer does not answer")
CONFLICT = Problem(message="the address is not registered", cause="the node b has it", event="AddressConflict")


@define
class Scene:
    """What is wrong, and an orchestrator that takes reports."""

    problems: tuple[Problem, ...] = ()
    error: Unavailable | None = None
    reported: list[Problem] = field(factory=list)
    log: Lines = field(factory=Lines)
    driven: DrivenControllers = field(init=False)

    def __attrs_post_init__(self) -> None:
        clock = ManualClock()
        reports = ConflictReports(find_problems=lambda: self.problems, report=self.report, clock=clock)
        self.driven = DrivenControllers((reports.controller(),), clock=clock, log=self.log)

    def report(self, problem: Problem, _deadline: Deadline) -> None:
        if self.error is not None:
            raise self.error
        self.reported.append(problem)


def test_a_conflict_is_reported_once_and_again_after_a_while_however_often_it_comes_and_goes() -> None:
    scene = Scene((PLAIN, CONFLICT, CONFLICT))
    for _ in range(10):
        scene.driven.pass_time(CONFLICTS_EVERY_S)
        scene.problems = () if scene.problems else (PLAIN, CONFLICT)
    assert scene.reported == [CONFLICT]
    assert scene.log.texts == []
    scene.problems = (CONFLICT,)
    scene.driven.pass_time(REPORT_AGAIN_S)
    assert scene.reported == [CONFLICT, CONFLICT]


def test_there_are_never_more_than_so_many() -> None:
    scene = Scene(tuple(evolve(CONFLICT, cause=f"the node n{number} has it") for number in range(2 * MAX_REPORTS)))
    scene.driven.pass_time(10 * CONFLICTS_EVERY_S)
    assert scene.reported == list(scene.problems[:MAX_REPORTS])


def test_one_that_cannot_be_reported_is_tried_again() -> None:
    scene = Scene((CONFLICT,), error=Unavailable("the API server", "away"))
    scene.driven.pass_time(3 * CONFLICTS_EVERY_S)
    assert scene.log.texts == [
        "WARNING a conflict of the node cannot be reported to the orchestrator cause=the API server: away"
    ]
    scene.error = None
    scene.driven.pass_time(6 * CONFLICTS_EVERY_S)
    assert scene.reported == [CONFLICT]
