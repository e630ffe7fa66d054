"""Runs controllers: their threads, wake-ups, pauses and log lines, and what operators see of them.

There is a thread for each pass that takes long, so that one that hangs delays no other one; short passes, which are
most, share a few threads. No controller runs twice at a time. When a pass is due is a
:class:`~netplug_core.reconcile.controller.Schedule`; here is only what waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import random
from threading import Condition, Lock, RLock, Thread, current_thread
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


def _note_no_time() -> None:
    """Nothing waits for the next pass."""


@define(eq=False)
class ControllerLoop:
    """The passes of one controller. ``run_due`` makes one if it is due; a :class:`Runtime` calls it in time.

    ``note_due`` is called when a pass is due sooner than it was. ``chance`` gives numbers in [0, 1), for the pauses.
    """

    controller: Reconciler
    clock: Clock
    log: Log
    note_pass: NotePass = _note_nothing
    chance: Callable[[], float] = random
    note_due: Callable[[], None] = field(default=_note_no_time, init=False)
    _schedule: Schedule = field(init=False)
    _lock: AbstractContextManager[object] = field(factory=RLock, init=False)  # of the schedule, and of whether it stops
    _is_stopping: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._schedule = Schedule.starting(self.controller.timing, self.clock.monotonic())

    @property
    def due_at(self) -> float | None:
        """When the next pass is due; None: when it is woken, or when the present one has ended."""
        return self._schedule.due_at

    @property
    def health(self) -> ControllerHealth:
        """How the controller does now."""
        return self._schedule.health(self.controller.name, self.clock.monotonic())

    def wake(self) -> None:
        """Let a pass come soon, which sees what is so now. Any thread may call it, and it costs little."""
        with self._lock:
            before, self._schedule = self._schedule.due_at, self._schedule.waken(self.clock.monotonic())
            due_at = self._schedule.due_at
        if due_at is not None and (before is None or due_at < before):
            self.note_due()

    def ask_to_stop(self) -> None:
        """Begin no other step, and end one that waits."""
        with self._lock:
            self._is_stopping = True
        self.controller.interrupt()

    def run_due(self) -> float | None:
        """Make a pass if one is due; the seconds until the next one, None if it has to be woken."""
        if self._begin():
            self._make_pass()
        return self._find_pause()

    def _find_pause(self) -> float | None:
        due_at = self._schedule.due_at
        return None if due_at is None else max(0.0, due_at - self.clock.monotonic())

    def _begin(self) -> bool:
        """Begin a pass if one is due; whether it has begun."""
        with self._lock:
            return self._find_pause() == 0 and self._begin_step()

    def _begin_step(self) -> bool:
        with self._lock:
            if not self._is_stopping:
                self._schedule = self._schedule.begin(self.clock.monotonic())
            return not self._is_stopping

    def _make_pass(self) -> None:
        began, before = self.clock.monotonic(), self._schedule.problems
        outcome = self.controller.reconcile(self.clock, self._begin_step)
        self._say(before, outcome.problems)
        ended = self.clock.monotonic()
        self.note_pass(self.controller.name, outcome.is_failed, ended - began)
        with self._lock:
            self._schedule = self._schedule.end(outcome, ended, chance=self.chance())

    def _say(self, before: tuple[Problem, ...], after: tuple[Problem, ...]) -> None:
        """Log what has changed."""
        if not before and not after:
            return
        for each in find_news(before, after):
            if each.trace:
                self.log(each.level, f"{each.message}\n{each.trace}", **dict(each.fields))
            else:
                cause = {"cause": each.cause} if each.cause else {}
                self.log(each.level, each.message, **dict(each.fields), **cause)
        if before and not after and self.controller.recovered:
            self.log(Level.INFO, self.controller.recovered, **dict(self.controller.fields))


_TOGETHER_S = 0.005
"""Passes that are due within this time of each other are begun together, and one that takes longer holds up no other
one for longer than this.
"""


@define(eq=False)
class _Threads:
    """Calls ``run_due`` of loops in time: at any time at most one thread waits for the next pass that is due.

    The thread that begins a pass lets another one wait in its place, which it starts if all are busy. So there are as
    many threads as passes have taken long at the same time, and one or two more.
    """

    clock: Clock
    _due: list[tuple[float, int, ControllerLoop]] = field(factory=list, init=False)  # a heap
    _numbers: Iterator[int] = field(factory=count, init=False)
    _lock: Lock = field(factory=Lock, init=False)  # of all that follows
    _sooner: Condition = field(init=False)  # for the one thread that waits for the next pass
    _called: Condition = field(init=False)  # for the idle ones
    _waits_until: float | None = field(default=None, init=False)  # None: no thread waits for the next pass
    _has_called: bool = field(default=False, init=False)  # and the one that was called has not come yet
    _idle: int = field(default=0, init=False)
    _threads: list[Thread] = field(factory=list, init=False)
    _is_stopping: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._sooner, self._called = Condition(self._lock), Condition(self._lock)

    @property
    def are_alive(self) -> bool:
        """Whether there are threads, and none has ended."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    @property
    def have_ended(self) -> bool:
        """Whether no thread runs."""
        return not any(thread.is_alive() for thread in self._threads)

    def expect(self, loop: ControllerLoop) -> None:
        """The next pass of a loop is due when it says; too many calls do no harm."""
        due_at = loop.due_at
        if due_at is None:
            return
        with self._lock:
            heappush(self._due, (due_at, next(self._numbers), loop))
            if self._waits_until is not None and due_at < self._waits_until:
                self._sooner.notify()

    def start(self) -> None:
        """Begin to wait for passes."""
        with self._lock:
            self._start_thread(is_called=False)

    def ask_to_stop(self) -> None:
        """Begin no other pass."""
        with self._lock:
            self._is_stopping = True
            self._sooner.notify_all()
            self._called.notify_all()

    def join(self, seconds: float) -> None:
        """Wait at most so long for the passes that have begun."""
        end = self.clock.monotonic() + seconds
        with self._lock:
            threads = tuple(self._threads)
        for thread in threads:
            thread.join(max(0.0, end - self.clock.monotonic()))

    def _run(self, *, is_called: bool) -> None:
        while (loop := self._next(is_called=is_called)) is not None:
            is_called = False
            current_thread().name = loop.controller.name
            loop.run_due()
            self.expect(loop)

    def _next(self, *, is_called: bool) -> ControllerLoop | None:
        """The next loop of which a pass is due; None if there is to be no other one.

        A thread that was called begins by waiting: the one that called it may do all that is due now.
        """
        with self._lock:
            while not self._is_stopping:
                now = self.clock.monotonic()
                if not is_called and self._due and self._due[0][0] <= now:
                    loop = heappop(self._due)[2]
                    if self._waits_until is None and not self._has_called:
                        self._call_another()
                    return loop
                if self._waits_until is None:
                    self._wait_for_next(now)
                    is_called = False
                else:
                    self._wait_for_call()
                    is_called = True
        return None

    def _wait_for_next(self, now: float) -> None:
        pause_s = max(_TOGETHER_S, self._due[0][0] - now) if self._due else None
        self._has_called, self._waits_until = False, inf if pause_s is None else now + pause_s
        self._sooner.wait(pause_s)
        self._waits_until = None

    def _wait_for_call(self) -> None:
        self._has_called = False  # the one that was called has come
        self._idle += 1
        self._called.wait()
        self._idle -= 1

    def _call_another(self) -> None:
        """Let another thread wait for what is due next."""
        self._has_called = True
        if self._idle:
            self._called.notify()
        else:
            self._start_thread(is_called=True)

    def _start_thread(self, *, is_called: bool) -> None:
        # A daemon: a step that hangs must not keep the process from ending.
        thread = Thread(target=self._run, kwargs={"is_called": is_called}, name="controllers", daemon=True)
        thread.start()
        self._threads.append(thread)  # a look before finds no thread that has not begun


class Runtime:
    """Runs some controllers, from ``start`` to ``stop``. Their names differ, as logs and metrics know them by these.

    ``note_pass`` gets each pass.
    """

    def __init__(
        self, controllers: Iterable[Reconciler], *, clock: Clock, log: Log, note_pass: NotePass = _note_nothing
    ) -> None:
        self._loops = tuple(ControllerLoop(each, clock, log, note_pass) for each in controllers)
        self._threads = _Threads(clock)
        self._woken_by: dict[Input, list[ControllerLoop]] = {}
        names = [loop.controller.name for loop in self._loops]
        if len(names) != len(set(names)):
            raise ValueError(f"controllers have the same name: {', '.join(sorted(names))}")
        for loop in self._loops:
            loop.note_due = partial(self._threads.expect, loop)
            for each in loop.controller.inputs:
                self._woken_by.setdefault(each, []).append(loop)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the controllers."""
        return tuple(loop.controller.name for loop in self._loops)

    @property
    def are_alive(self) -> bool:
        """Whether it runs, and no thread has ended."""
        return self._threads.are_alive

    @property
    def has_ended(self) -> bool:
        """Whether no thread runs."""
        return self._threads.have_ended

    @property
    def healths(self) -> tuple[ControllerHealth, ...]:
        """How the controllers do now."""
        return tuple(loop.health for loop in self._loops)

    def start(self) -> None:
        """Begin the first pass of each."""
        for loop in self._loops:
            self._threads.expect(loop)
        self._threads.start()

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
        self._threads.ask_to_stop()
        for loop in self._loops:
            loop.ask_to_stop()
        self._threads.join(stop_s)
