"""Runs controllers: their threads, wake-ups, pauses and log lines, and what operators see of them.

Each controller has a thread of its own, so that one that hangs delays no other one, and none runs twice at a time. When
a pass is due is a :class:`~netplug_core.reconcile.controller.Schedule`; here is only what waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import random
from threading import Condition, Thread
from typing import Protocol, TypeAlias

from attrs import define, field

from netplug_core.clock import Clock
from netplug_core.datastore.view import View
from netplug_core.log import Level, Log
from netplug_core.reconcile.controller import (
    ControllerHealth,
    Input,
    Outcome,
    Problem,
    Schedule,
    Timing,
    find_news,
)

__all__ = ["STOP_S", "ControllerLoop", "NotePass", "Reconciler", "Runtime"]

STOP_S = 5.0
"""How long the passes that have begun may take when the process ends; then they end with it."""


class Reconciler(Protocol):
    """A :class:`~netplug_core.reconcile.controller.Controller`, whatever it observes and does."""

    @property
    def name(self) -> str:
        """It is unique in a process; for logs and metrics."""
        ...

    @property
    def inputs(self) -> frozenset[Input]:
        """What wakes it."""
        ...

    @property
    def timing(self) -> Timing:
        """When it is tried again."""
        ...

    @property
    def recovered(self) -> str:
        """What is logged once no problem is left; empty: nothing."""
        ...

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Fields of that line."""
        ...

    @property
    def interrupt(self) -> Callable[[], None]:
        """Ends a step that waits."""
        ...

    def reconcile(self, clock: Clock, begin_step: Callable[[], bool]) -> Outcome:
        """One pass, which raises nothing."""
        ...


NotePass: TypeAlias = Callable[[str, bool, float], None]
"""Takes the name of a controller, whether a pass of it has failed, and the seconds that it took."""


def _note_nothing(_name: str, _is_failed: bool, _seconds: float) -> None:  # noqa: FBT001  a ``NotePass``
    """Counts nothing."""


@define(eq=False)
class ControllerLoop:
    """The loop of one controller. ``run_due`` is a turn of it; its thread, once started, takes one after the other.

    ``chance`` gives numbers in [0, 1), for the pauses.
    """

    controller: Reconciler
    clock: Clock
    log: Log
    note_pass: NotePass = _note_nothing
    chance: Callable[[], float] = random
    _schedule: Schedule = field(init=False)
    _changed: Condition = field(factory=Condition, init=False)  # of the schedule, and of whether it stops
    _is_stopping: bool = field(default=False, init=False)
    _thread: Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._schedule = Schedule.starting(self.controller.timing, self.clock.monotonic())
        # A daemon: a step that hangs must not keep the process from ending.
        self._thread = Thread(target=self._run, name=self.controller.name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @property
    def health(self) -> ControllerHealth:
        """How the controller does now."""
        return self._schedule.health(self.controller.name, self.clock.monotonic())

    def start(self) -> None:
        """Begin the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Let a pass come soon, which sees what is so now. Any thread may call it, and it costs little."""
        with self._changed:
            before, self._schedule = self._schedule.due_at, self._schedule.waken(self.clock.monotonic())
            due_at = self._schedule.due_at
            if due_at is not None and (before is None or due_at < before):
                self._changed.notify()

    def ask_to_stop(self) -> None:
        """Begin no other step, and end one that waits."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self.controller.interrupt()

    def join(self, seconds: float) -> None:
        """Wait so long for the end of the thread, if it was begun."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def run_due(self) -> float | None:
        """Make a pass if one is due; the seconds until the next one, None if it has to be woken."""
        if self._begin():
            self._make_pass()
        return self._find_pause()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_stopping and (pause_s := self._find_pause()) != 0:
                    self._changed.wait(pause_s)
            if not self._begin():
                return
            self._make_pass()

    def _find_pause(self) -> float | None:
        due_at = self._schedule.due_at
        return None if due_at is None else max(0.0, due_at - self.clock.monotonic())

    def _begin(self) -> bool:
        """Begin a pass if one is due; whether it has begun."""
        with self._changed:
            return self._find_pause() == 0 and self._begin_step()

    def _begin_step(self) -> bool:
        with self._changed:
            if not self._is_stopping:
                self._schedule = self._schedule.begin(self.clock.monotonic())
            return not self._is_stopping

    def _make_pass(self) -> None:
        began, before = self.clock.monotonic(), self._schedule.problems
        outcome = self.controller.reconcile(self.clock, self._begin_step)
        self._say(before, outcome.problems)
        ended = self.clock.monotonic()
        self.note_pass(self.controller.name, outcome.is_failed, ended - began)
        with self._changed:
            self._schedule = self._schedule.end(outcome, ended, chance=self.chance())

    def _say(self, before: tuple[Problem, ...], after: tuple[Problem, ...]) -> None:
        """Log what has changed."""
        for each in find_news(before, after):
            if each.trace:
                self.log(each.level, f"{each.message}\n{each.trace}", **dict(each.fields))
            else:
                cause = {"cause": each.cause} if each.cause else {}
                self.log(each.level, each.message, **dict(each.fields), **cause)
        if before and not after and self.controller.recovered:
            self.log(Level.INFO, self.controller.recovered, **dict(self.controller.fields))


class Runtime:
    """Runs some controllers, from ``start`` to ``stop``. Their names differ, as logs and metrics know them by these.

    ``note_pass`` gets each pass.
    """

    def __init__(
        self, controllers: Iterable[Reconciler], *, clock: Clock, log: Log, note_pass: NotePass = _note_nothing
    ) -> None:
        self._loops = tuple(ControllerLoop(each, clock, log, note_pass) for each in controllers)
        self._clock = clock
        self._woken_by: dict[Input, list[ControllerLoop]] = {}
        names = [loop.controller.name for loop in self._loops]
        if len(names) != len(set(names)):
            raise ValueError(f"controllers have the same name: {', '.join(sorted(names))}")
        for loop in self._loops:
            for each in loop.controller.inputs:
                self._woken_by.setdefault(each, []).append(loop)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the controllers."""
        return tuple(loop.controller.name for loop in self._loops)

    @property
    def are_alive(self) -> bool:
        """Whether all threads run."""
        return all(loop.is_alive for loop in self._loops)

    @property
    def has_ended(self) -> bool:
        """Whether no thread runs."""
        return not any(loop.is_alive for loop in self._loops)

    @property
    def healths(self) -> tuple[ControllerHealth, ...]:
        """How the controllers do now."""
        return tuple(loop.health for loop in self._loops)

    def start(self) -> None:
        """Begin the first pass of each."""
        for loop in self._loops:
            loop.start()

    def wake(self, changed: Input) -> None:
        """Let a pass of the controllers come soon that have this input."""
        for loop in self._woken_by.get(changed, ()):
            loop.wake()

    def watch(self, view: View) -> None:
        """Let the controllers be woken by the changes of a view, each by those of the kinds among its inputs."""
        view.on_change = self.wake

    @contextmanager
    def running(self, *, stop_s: float = STOP_S) -> Iterator[None]:
        """Run them as long as the context lasts."""
        self.start()
        try:
            yield
        finally:
            self.stop(stop_s)

    def stop(self, stop_s: float = STOP_S) -> None:
        """Begin no other step; wait a little, all in all, for those that have begun."""
        for loop in self._loops:
            loop.ask_to_stop()
        end = self._clock.monotonic() + stop_s
        for loop in self._loops:
            loop.join(max(0.0, end - self._clock.monotonic()))
