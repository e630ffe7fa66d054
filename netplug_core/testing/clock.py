"""Clocks for tests: one that stands still until it is moved, and the machine's."""

from __future__ import annotations

import time

from attrs import define

__all__ = ["ManualClock", "RealClock"]

_SECOND_NS = 1_000_000_000


@define
class ManualClock:
    """A :class:`~netplug_core.clock.Clock` that stands still between calls.

    ``wall_ns`` may be set to any time, also an earlier one, as the clocks of real machines are; the monotonic time
    ``elapsed_ns`` only grows.
    """

    wall_ns: int = 1_767_225_600 * _SECOND_NS  # 2026-01-01T00:00:00Z
    elapsed_ns: int = 0

    def now_ns(self) -> int:
        """Wall-clock time: nanoseconds since 1970-01-01 UTC."""
        return self.wall_ns

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self.elapsed_ns / _SECOND_NS

    def sleep(self, seconds: float) -> None:
        """Move both times on by that much at once; by a nanosecond if it is less, so that no wait goes on for ever."""
        step = max(round(seconds * _SECOND_NS), int(seconds > 0))
        self.wall_ns += step
        self.elapsed_ns += step


class RealClock:
    """The machine's clock, for tests in which threads wait for one another."""

    def now_ns(self) -> int:
        """Wall-clock time: nanoseconds since 1970-01-01 UTC."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)
