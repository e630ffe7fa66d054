"""Threads in simulated time: one runs at a time, and time passes only while all of them sleep or wait.

Each run is the one that its inputs say, and no real time is waited. What threads share needs a lock all the same: a
:class:`SimulatedSignal` is what they wait for in place of ``threading.Event``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from threading import Event, Thread, local

from attrs import define, field

from netplug_core.testing.clock import ManualClock

__all__ = ["SimulatedSignal", "SimulatedThreads"]

_LIMIT_S = 60.0  # of real time; a run takes milliseconds
_START_NS = ManualClock().wall_ns


@define(eq=False)
class SimulatedThreads:
    """The clock of some threads, and what makes the next one run."""

    now_s: float = 0.0
    wake_at: dict[int, float] = field(factory=dict)
    _may_run: dict[int, Event] = field(factory=dict)
    _own: local = field(factory=local)
    _ended: Event = field(factory=Event)

    def run(self, calls: Sequence[tuple[float, Callable[[], None]]]) -> None:
        """Make each call in a thread of its own, at its time, and wait until all have returned."""
        self.wake_at = {number: starts_at for number, (starts_at, _) in enumerate(calls)}
        self._may_run = {number: Event() for number in self.wake_at}
        threads = [
            Thread(target=self._call, args=(number, call), daemon=True) for number, (_, call) in enumerate(calls)
        ]
        for thread in threads:
            thread.start()
        self._run_next()
        assert self._ended.wait(_LIMIT_S), f"threads wait for each other: {self.wake_at}"

    def now_ns(self) -> int:
        """Wall-clock time."""
        return _START_NS + round(self.now_s * 1e9)

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass for the thread that runs."""
        self.park(self.now_s + max(seconds, 1e-9))

    def make_signal(self) -> SimulatedSignal:
        """A signal that threads of this clock wait for."""
        return SimulatedSignal(self)

    def park(self, until_s: float) -> int:
        """Let others run until that time, or until this thread is woken; its number."""
        number: int = self._own.number
        self.wake_at[number] = until_s
        self._run_next()
        self._await(number)
        return number

    @property
    def current(self) -> int:
        """The number of the thread that runs."""
        number: int = self._own.number
        return number

    def _call(self, number: int, call: Callable[[], None]) -> None:
        self._own.number = number
        self._await(number)
        try:
            call()
        finally:
            del self.wake_at[number]
            self._run_next()

    def _await(self, number: int) -> None:
        assert self._may_run[number].wait(_LIMIT_S)
        self._may_run[number].clear()

    def _run_next(self) -> None:
        if not self.wake_at:
            self._ended.set()
            return
        number = min(self.wake_at, key=lambda number: (self.wake_at[number], number))
        assert self.wake_at[number] < inf, "every thread waits for another one"
        self.now_s = max(self.now_s, self.wake_at[number])
        self._may_run[number].set()


@define(eq=False)
class SimulatedSignal:
    """A signal in simulated time."""

    threads: SimulatedThreads
    is_set: bool = False
    waiting: set[int] = field(factory=set)

    def set(self) -> None:
        """Let those who wait go on."""
        self.is_set = True
        for number in self.waiting:
            self.threads.wake_at[number] = min(self.threads.wake_at[number], self.threads.now_s)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most that many seconds."""
        ends_at = inf if timeout is None else self.threads.now_s + timeout
        if not self.is_set and self.threads.now_s < ends_at:
            self.waiting.add(self.threads.current)
            self.waiting.discard(self.threads.park(ends_at))
        return self.is_set
