"""The frame of every loop: what a controller is, and when its next pass is due.

A controller observes, plans and acts, in one pass. It is woken by changes, and looks again by itself; it never sees
which change woke it, so that a lost or doubled wake-up changes nothing. A pass that fails is tried again, each time
after a longer pause. What is wrong is a value, :class:`Problem`, which is said once for each change.

Nothing here waits, reads a clock or starts a thread: the time is an argument. ``netplug_cli.runtime`` runs controllers.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar

from attrs import evolve, field, frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.errors import NetplugError
from netplug_core.keys import Kind
from netplug_core.log import Level

__all__ = [
    "GATHER_S", "MAX_GATHERED", "Backoff", "Controller", "ControllerHealth", "Input", "Outcome", "Plan", "Problem",
    "Schedule", "Source", "Timing", "Unfinished", "find_news",
]  # fmt: skip

S = TypeVar("S")
A = TypeVar("A")

GATHER_S = 0.02
"""A wake-up waits so long for further ones, so that a burst of changes is one pass."""

MAX_GATHERED = 200
"""With so many wake-ups gathered, none is waited for."""

_JITTER = 0.1
_MAX_DOUBLINGS = 32


def _wait_for_nothing() -> None:
    pass


@frozen
class Source:
    """What may wake a controller beside changes of a kind: the kernel, a file, a timer. It only wakes."""

    name: str


Input: TypeAlias = Kind[object] | Source
"""What wakes a controller."""


@frozen(kw_only=True)
class Problem:
    """Something that is not as it should be, and why; logs, statuses and Events are rendered from it.

    ``message`` says what is so for as long as the problem lasts. ``event`` is the reason of an Event about it, in one
    word; empty: there is none. ``trace`` is where an unexpected error was raised; two problems that differ in it alone
    are the same one.
    """

    message: str
    cause: str = ""
    level: Level = Level.WARNING
    fields: tuple[tuple[str, str], ...] = ()
    event: str = ""
    trace: str = field(default="", eq=False)


@frozen
class Unfinished(Exception):
    """An action is done as far as it could be, and these problems are left. It is tried again like one that failed."""

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "; ".join(f"{each.message}: {each.cause}" for each in self.problems)


@frozen(kw_only=True)
class Plan(Generic[A]):
    """What one pass is to do. Actions are independent of each other: what belongs together or has an order is one.

    ``look_again_s``: how soon the next pass comes without a wake-up; None: there is none.
    """

    actions: tuple[A, ...] = ()
    look_again_s: float | None = None
    problems: tuple[Problem, ...] = ()


@frozen(kw_only=True)
class Backoff:
    """The pauses after failures of a row: twice as long after each, and between half and all of it by chance."""

    first_s: float = 1.0
    longest_s: float = 60.0

    def delay_s(self, failures: int, *, chance: float) -> float:
        """The pause after that many failures, at least one. ``chance`` is a number in [0, 1)."""
        ceiling_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        return ceiling_s * (1 + chance) / 2


@frozen(kw_only=True)
class Timing:
    """The times of a controller. Observing, and each action, may take ``step_s``, and is stuck after ``stuck_s``.

    ``jitter`` is the largest part of a pause that chance adds to it, so that the nodes of a cluster do not look all at
    once; 0 for what has to be on time.
    A pass begins ``rest_s`` after the last one has ended, however often it is woken: for what wakes itself by its acts.
    """

    backoff: Backoff = Backoff()
    rest_s: float = 0.0
    step_s: float = 60.0
    stuck_s: float = 300.0
    gather_s: float = GATHER_S
    jitter: float = _JITTER
    max_gathered: int = MAX_GATHERED


@frozen(kw_only=True)
class Outcome:
    """How a pass ended: what was found to be wrong, and whether it is tried again after a pause for failures."""

    problems: tuple[Problem, ...] = ()
    look_again_s: float | None = None
    is_failed: bool = False


@frozen(kw_only=True)
class Controller(Generic[S, A]):
    """What looks at the world, says what is to be done, and does it, again and again, until nothing is left to do.

    ``plan`` is pure, and sees the present state only. Each of ``act`` is one conditional transaction, or one batch for
    the kernel; if it raises, the other actions of the plan are done all the same. A controller that waits for an input
    plans nothing, and is woken by it: to wait is no failure. Who makes a controller binds the
    views and interfaces that ``observe`` and ``act`` need. ``failure`` says, in logs, what is so while a step fails,
    and ``recovered`` that no problem is left; empty: nothing says so. ``fields`` are added to both. ``interrupt``
    ends a step that waits for the world, as a watch does: another thread calls it when the process stops.
    """

    name: str
    observe: Callable[[Deadline], S]
    plan: Callable[[S], Plan[A]]
    act: Callable[[A, Deadline], None]
    failure: str
    inputs: frozenset[Input] = frozenset()
    timing: Timing = Timing()
    recovered: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    interrupt: Callable[[], None] = _wait_for_nothing

    def reconcile(self, clock: Clock, begin_step: Callable[[], bool]) -> Outcome:
        """One pass. ``begin_step`` is called before each step; if it returns False, the pass ends there.

        It raises nothing: whatever a step raises is a problem, and the next pass may succeed.
        """
        if not begin_step():
            return Outcome()
        try:
            plan = self.plan(self.observe(Deadline.after(clock, self.timing.step_s)))
        except Exception as error:  # noqa: BLE001  a bad input of one controller stops no other one
            return Outcome(problems=self._problems_of(error), is_failed=True)
        failures: list[Problem] = []
        for action in plan.actions:
            if not begin_step():
                break
            try:
                self.act(action, Deadline.after(clock, self.timing.step_s))
            except Exception as error:  # noqa: BLE001  the next action may succeed
                failures += self._problems_of(error)
        problems = (*plan.problems, *failures)
        return Outcome(problems=problems, look_again_s=plan.look_again_s, is_failed=bool(failures))

    def _problems_of(self, error: Exception) -> tuple[Problem, ...]:
        if isinstance(error, Unfinished):
            return error.problems
        if isinstance(error, NetplugError | OSError | ImportError):
            return (Problem(message=self.failure, cause=str(error), fields=self.fields),)
        cause, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
        message = f"{self.name}: an unexpected error"
        return (Problem(message=message, cause=cause, level=Level.ERROR, fields=self.fields, trace=trace),)


def find_news(before: Iterable[Problem], after: Iterable[Problem]) -> tuple[Problem, ...]:
    """The problems that are to be said: those that are new, or whose cause is another one, each once."""
    known = frozenset(before)
    return tuple(each for each in dict.fromkeys(after) if each not in known)


@frozen(kw_only=True)
class ControllerHealth:
    """How a controller does: what operators see of it. Times are in seconds before now; None: there was none.

    ``woken`` is the number of wake-ups that wait for the next pass. ``failures`` counts those of a row.
    """

    name: str
    succeeded_s: float | None
    busy_s: float | None
    woken: int
    failures: int
    problems: tuple[Problem, ...]
    is_stuck: bool


@frozen(kw_only=True)
class Schedule:
    """When the next pass of a controller is due, and what is known of the passes so far. Times are monotonic.

    - ``look_at``: when it comes without a wake-up
    - ``held_until``: no pass comes earlier, however often it is woken; after a failure, or for a rest
    - ``woken``, ``woken_at``: how many wake-ups wait for the next pass, and when the first of them came
    - ``busy_since``: when the step began that is being done; a pass is never begun during another one
    """

    timing: Timing
    look_at: float | None
    held_until: float = float("-inf")
    woken: int = 0
    woken_at: float = float("-inf")
    busy_since: float | None = None
    failures: int = 0
    succeeded_at: float | None = None
    problems: tuple[Problem, ...] = ()

    @classmethod
    def starting(cls, timing: Timing, now: float) -> Schedule:
        """The schedule of a controller whose first pass is due at once."""
        return cls(timing=timing, look_at=now)

    @property
    def due_at(self) -> float | None:
        """When the next pass is due; None: when it is woken, or when the present one has ended."""
        if self.busy_since is not None:
            return None
        if not self.woken:
            return self.look_at
        gathered_at = self.woken_at + (self.timing.gather_s if self.woken < self.timing.max_gathered else 0.0)
        woken_at = max(gathered_at, self.held_until)
        return woken_at if self.look_at is None else min(woken_at, self.look_at)

    def waken(self, now: float) -> Schedule:
        """The schedule after a wake-up, which may come at any time."""
        return evolve(self, woken=self.woken + 1, woken_at=self.woken_at if self.woken else now)

    def begin(self, now: float) -> Schedule:
        """The schedule while a pass, or its next step, is done. It sees all that has woken it until it begins."""
        if self.busy_since is not None:
            return evolve(self, busy_since=now)
        return evolve(self, busy_since=now, look_at=None, woken=0)

    def end(self, outcome: Outcome, now: float, *, chance: float) -> Schedule:
        """The schedule after a pass. ``chance`` is a number in [0, 1)."""
        if outcome.is_failed:
            failures = self.failures + 1
            delay_s = self.timing.backoff.delay_s(failures, chance=chance)
            look_at: float | None = now + delay_s
            held_s, succeeded_at = min(delay_s, self.timing.backoff.first_s), self.succeeded_at
        else:
            failures, succeeded_at, held_s, pause_s = 0, now, 0.0, outcome.look_again_s
            look_at = None if pause_s is None else now + pause_s * (1 + self.timing.jitter * chance)
        return evolve(
            self,
            look_at=look_at,
            held_until=now + max(held_s, self.timing.rest_s),
            busy_since=None,
            failures=failures,
            succeeded_at=succeeded_at,
            problems=outcome.problems,
        )

    def health(self, name: str, now: float) -> ControllerHealth:
        """How the controller of this schedule does."""
        busy_s = None if self.busy_since is None else now - self.busy_since
        return ControllerHealth(
            name=name,
            succeeded_s=None if self.succeeded_at is None else now - self.succeeded_at,
            busy_s=busy_s,
            woken=self.woken,
            failures=self.failures,
            problems=self.problems,
            is_stuck=busy_s is not None and busy_s > self.timing.stuck_s,
        )
