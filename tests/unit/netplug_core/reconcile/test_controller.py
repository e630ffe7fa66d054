"""One pass of a controller, when the next one is due, and what is said of its problems."""

from collections.abc import Callable

import pytest
from attrs import define, evolve, field

from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.log import Level
from netplug_core.reconcile.controller import (
    GATHER_S,
    MAX_GATHERED,
    Backoff,
    Controller,
    Outcome,
    Plan,
    Problem,
    Schedule,
    Timing,
    Unfinished,
    find_news,
)
from netplug_core.testing.clock import ManualClock

AWAY = Unavailable("etcd", "away")
FULL = Problem(message="no room")
PLAN = Plan(actions=("a", "b"), look_again_s=30)
TIMING = Timing(backoff=Backoff(first_s=1, longest_s=8), step_s=7, stuck_s=100)


@define
class Scene:
    """A controller whose actions are names; those in ``failing`` raise what they are mapped to."""

    plan: Plan[str] = PLAN
    failing: dict[str, Exception] = field(factory=dict)
    done: list[str] = field(factory=list)
    clock: ManualClock = field(factory=ManualClock)

    def observe(self, deadline: Deadline) -> Plan[str]:
        assert deadline.remaining_s == TIMING.step_s
        if error := self.failing.get("observe"):
            raise error
        return self.plan

    def act(self, action: str, deadline: Deadline) -> None:
        assert deadline.remaining_s == TIMING.step_s
        self.done.append(action)
        if error := self.failing.get(action):
            raise error

    def reconcile(self, begin_step: Callable[[], bool] = lambda: True) -> Outcome:
        controller = Controller(
            name="fruit",
            observe=self.observe,
            plan=lambda plan: plan,
            act=self.act,
            failure="there is no fruit",
            timing=TIMING,
            fields=(("tree", "apple"),),
        )
        return controller.reconcile(self.clock, begin_step)


# --- one pass -----------------------------------------------------------------------------------------------------


def test_what_is_planned_is_done_and_looked_at_again() -> None:
    scene = Scene(plan=Plan(actions=("a", "b"), look_again_s=30, problems=(FULL,)))
    assert scene.reconcile() == Outcome(problems=(FULL,), look_again_s=30)
    assert scene.done == ["a", "b"]


def test_an_action_that_fails_stops_no_other_one() -> None:
    scene = Scene(failing={"a": AWAY})
    problem = Problem(message="there is no fruit", cause="etcd: away", fields=(("tree", "apple"),))
    assert scene.reconcile() == Outcome(problems=(problem,), look_again_s=30, is_failed=True)
    assert scene.done == ["a", "b"]


@pytest.mark.parametrize("error", [AWAY, PermissionError("etcd: away"), ImportError("etcd: away")])
def test_without_a_look_nothing_is_done(error: Exception) -> None:
    scene = Scene(failing={"observe": error})
    problem = Problem(message="there is no fruit", cause="etcd: away", fields=(("tree", "apple"),))
    assert scene.reconcile() == Outcome(problems=(problem,), is_failed=True)
    assert scene.done == []


def test_an_error_that_was_not_foreseen_has_a_trace_that_makes_it_no_other_one() -> None:
    (problem,) = Scene(failing={"a": ZeroDivisionError("x")}).reconcile().problems
    assert (problem.message, problem.cause) == ("fruit: an unexpected error", "ZeroDivisionError: x")
    assert problem.level is Level.ERROR
    assert problem.trace.startswith("Traceback (most recent call last):")
    assert problem == evolve(problem, trace="elsewhere")


def test_an_action_that_is_done_in_part_says_what_is_left() -> None:
    left = Unfinished((FULL, Problem(message="no light", cause="night")))
    outcome = Scene(failing={"b": left}).reconcile()
    assert (outcome.problems, outcome.is_failed) == (left.problems, True)
    assert str(left) == "no room: ; no light: night"


@pytest.mark.parametrize("steps, done", [(0, []), (1, []), (2, ["a"]), (3, ["a", "b"])])
def test_a_pass_ends_between_two_steps_when_it_is_asked_to(steps: int, done: list[str]) -> None:
    scene, left = Scene(), iter(range(steps))
    assert not scene.reconcile(lambda: next(left, None) is not None).is_failed
    assert scene.done == done


# --- when the next pass is due ------------------------------------------------------------------------------------


def after(outcome: Outcome, now: float = 0.0, chance: float = 0.0) -> Schedule:
    """The schedule after a first pass."""
    return Schedule.starting(TIMING, 0.0).begin(0.0).end(outcome, now, chance=chance)


def test_the_first_pass_is_due_at_once_and_none_during_it() -> None:
    schedule = Schedule.starting(TIMING, 5.0)
    assert schedule.due_at == 5.0
    assert schedule.begin(6.0).due_at is None
    assert schedule.begin(6.0).waken(6.5).due_at is None


def test_without_a_wake_up_it_is_looked_at_again_or_never() -> None:
    assert after(Outcome(look_again_s=30)).due_at == 30.0
    assert after(Outcome(look_again_s=30), chance=0.5).due_at == pytest.approx(31.5)
    assert after(Outcome()).due_at is None


def test_wake_ups_are_gathered_for_a_moment_and_so_many_of_them() -> None:
    schedule = after(Outcome()).waken(50.0).waken(50.01)
    assert (schedule.due_at, schedule.woken) == (50.0 + GATHER_S, 2)
    for _ in range(MAX_GATHERED - 3):
        schedule = schedule.waken(50.01)
    assert schedule.due_at == 50.0 + GATHER_S
    assert schedule.waken(50.01).due_at == 50.0
    assert schedule.begin(50.02).woken == 0


def test_a_look_that_is_due_before_a_wake_up_is_not_delayed_by_it() -> None:
    assert after(Outcome(look_again_s=30)).waken(29.99).due_at == 30.0
    assert after(Outcome(look_again_s=30)).waken(20.0).due_at == 20.0 + GATHER_S


def test_a_wake_up_during_a_pass_is_another_pass() -> None:
    schedule = Schedule.starting(TIMING, 0.0).begin(0.0).waken(0.5).begin(1.0)
    assert schedule.end(Outcome(), 2.0, chance=0.0).due_at == 2.0


def test_after_failures_the_pause_grows_and_a_success_ends_it() -> None:
    schedule, pauses = Schedule.starting(TIMING, 0.0), list[float]()
    for _ in range(6):
        now = schedule.due_at or 0.0
        schedule = schedule.begin(now).end(Outcome(is_failed=True, look_again_s=1e9), now, chance=0.5)
        pauses.append((schedule.due_at or 0.0) - now)
    assert pauses == [0.75, 1.5, 3.0, 6.0, 6.0, 6.0]
    assert (schedule.failures, schedule.succeeded_at) == (6, None)
    schedule = schedule.begin(100.0).end(Outcome(), 100.0, chance=0.5)
    assert (schedule.failures, schedule.succeeded_at, schedule.due_at) == (0, 100.0, None)
    again = schedule.begin(200.0).end(Outcome(is_failed=True), 200.0, chance=0.5)
    assert (again.due_at, again.succeeded_at) == (200.75, 100.0)


def test_a_wake_up_shortens_the_pause_after_failures_but_not_below_the_first_one() -> None:
    schedule = evolve(after(Outcome()), failures=3).begin(0.0).end(Outcome(is_failed=True), 10.0, chance=0.0)
    assert schedule.due_at == 14.0
    assert schedule.waken(10.1).due_at == 11.0
    assert schedule.waken(12.0).due_at == 12.0 + GATHER_S


def test_a_back_off_is_bounded_after_any_number_of_failures() -> None:
    assert Backoff(first_s=1, longest_s=60).delay_s(10**6, chance=0.0) == 30


# --- what operators see -------------------------------------------------------------------------------------------


def test_the_health_says_how_long_ago_and_what_is_wrong() -> None:
    fresh = Schedule.starting(TIMING, 0.0).health("fruit", 1.0)
    assert (fresh.name, fresh.succeeded_s, fresh.busy_s, fresh.is_stuck) == ("fruit", None, None, False)
    schedule = after(Outcome(problems=(FULL,)), now=10.0).waken(11.0)
    health = schedule.health("fruit", 40.0)
    assert (health.succeeded_s, health.woken, health.problems, health.failures) == (30.0, 1, (FULL,), 0)


def test_a_step_that_takes_too_long_is_stuck_and_each_step_has_its_own_time() -> None:
    schedule = Schedule.starting(TIMING, 0.0).begin(0.0)
    assert [schedule.health("fruit", now).is_stuck for now in (100.0, 101.0)] == [False, True]
    assert not schedule.begin(100.0).health("fruit", 101.0).is_stuck
    assert not schedule.end(Outcome(), 200.0, chance=0.0).health("fruit", 1e6).is_stuck


def test_a_problem_is_news_once_until_its_cause_is_another_one() -> None:
    dark = Problem(message="no light", cause="night")
    assert find_news((), (FULL, dark, FULL)) == (FULL, dark)
    assert find_news((FULL, dark), (dark, FULL)) == ()
    eclipse = evolve(dark, cause="eclipse")
    assert find_news((FULL, dark), (FULL, eclipse)) == (eclipse,)
