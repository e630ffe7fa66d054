"""Clocks, deadlines, and the waits between the attempts of a loop.

Wall-clock time is in integer nanoseconds since the epoch, because the sequence number of a new block is made of it.
Waiting is measured in seconds on a monotonic clock. The core never reads the machine's clock: callers pass one.
``netplug_backends.host`` has the real one, ``netplug_core.testing`` has one that tests move by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

from attrs import define, frozen

from netplug_core.errors import quote, require_type

__all__ = ["SECOND_NS", "Clock", "Deadline", "Pace", "format_time", "parse_time"]

SECOND_NS = 1_000_000_000
"""Nanoseconds of a second."""

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_IN_UTC = _EPOCH.replace(tzinfo=None)  # without a zone, so that its text has none
_EARLIEST_S = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _SECOND
_LATEST_S = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _SECOND


class Clock(Protocol):
    """A source of time."""

    def now_ns(self) -> int:
        """Wall-clock time: nanoseconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back. Only differences are meaningful."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        ...


@frozen
class Deadline:
    """The moment by which a call must have ended. Everything that the call does shares it."""

    clock: Clock
    at: float

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        """The deadline that many seconds from now."""
        return cls(clock, clock.monotonic() + seconds)

    @property
    def remaining_s(self) -> float:
        """Seconds left; 0 when it has passed."""
        return max(0.0, self.at - self.clock.monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return self.clock.monotonic() >= self.at

    def capped(self, seconds: float) -> Deadline:
        """This deadline, or the one that many seconds from now if that is earlier."""
        return Deadline(self.clock, min(self.at, self.clock.monotonic() + seconds))


@define(kw_only=True)  # not frozen: each call makes one, and a frozen object takes three times as long to make
class Pace:
    """How a loop waits between its attempts: exponential backoff with full jitter, until a deadline.

    ``chance`` returns a number in [0, 1). The wait before attempt *n* is ``chance() * min(longest, first * 2**n)``.
    Without jitter, writers that collided once would collide again.
    """

    clock: Clock
    deadline: Deadline
    chance: Callable[[], float]
    first_s: float = 0.004
    longest_s: float = 0.5

    def __attrs_post_init__(self) -> None:
        require_type("deadline", self.deadline, Deadline, "a Deadline is expected, such as net.deadline()")

    def wait(self, attempt: int) -> None:
        """Wait before the next attempt. ``attempt`` is the number of attempts that have failed."""
        ceiling = min(self.longest_s, self.first_s * 2.0 ** min(attempt, 16))
        self.clock.sleep(min(self.chance() * ceiling, self.deadline.remaining_s))


def format_time(time_ns: int) -> str:
    """The RFC 3339 text of a wall-clock time, in UTC and whole seconds: ``2026-08-20T10:00:00Z``."""
    return _text(time_ns // SECOND_NS)


@lru_cache(maxsize=1024)  # many addresses store a time of the same second
def _text(seconds: int) -> str:
    return (_EPOCH_IN_UTC + timedelta(seconds=seconds)).isoformat() + "Z"


def parse_time(text: str) -> int:
    """Nanoseconds since the epoch of an RFC 3339 text; fractions of a second are dropped.

    Raises:
        ValueError: it is not such a text.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{quote(text)} is not an RFC 3339 time") from None
    if parsed.tzinfo is None:
        raise ValueError(f"{quote(text)} is not an RFC 3339 time: it names no zone")
    seconds = (parsed - _EPOCH) // _SECOND
    if not _EARLIEST_S <= seconds <= _LATEST_S:  # in UTC it is not in the years 1 to 9999
        raise ValueError(f"{quote(text)} is not an RFC 3339 time")
    return seconds * SECOND_NS
