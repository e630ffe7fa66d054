"""How far a long work or a long wait is, as one line of a terminal. Every room may use it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import TextIO

from attrs import define

from netplug_cli.formatting import format_count, format_duration
from netplug_core.clock import Clock, Deadline

__all__ = ["Progress", "estimate_left", "show_progress"]

_SILENT_S, _EVERY_S = 2.0, 0.2
_ERASE = "\r\x1b[K"


def estimate_left(done: int, total: int, passed_s: float) -> str:
    """How long the rest of a work takes if it goes on as it did; empty at its beginning and its end."""
    return f", about {format_duration(passed_s / done * (total - done))} left" if 0 < done < total else ""


@define(kw_only=True)
class Progress:
    """How far a long work is, as one line of a terminal that is written again and again, and erased at the end.

    Nothing is shown in the first two seconds, and nothing off a terminal. ``total`` 0: it is not known, and so neither
    is the time left. ``deadline`` is that of a wait for others, whose time left is not known but limited.
    """

    label: str
    total: int
    clock: Clock
    stream: TextIO
    began_s: float
    deadline: Deadline | None = None
    counted_since_s: float | None = None
    shown_s: float = -inf
    is_shown: bool = False

    def update(self, done: int, note: str = "", *, total: int | None = None) -> None:
        """Show that so many of all are done; ``note`` is what is counted besides, ``total`` how many all are now."""
        self.total = self.total if total is None else total
        now_s = self.clock.monotonic()
        passed_s = now_s - self.began_s
        if passed_s < _SILENT_S or now_s - self.shown_s < _EVERY_S or not self.stream.isatty():
            return
        if self.deadline is None:
            since_s = self.began_s if self.counted_since_s is None else self.counted_since_s
            left = estimate_left(done, self.total, now_s - since_s)
        else:
            left = f", at most {format_duration(max(0.0, self.deadline.remaining_s))} left"
        counted = f"{format_count(done)} of {format_count(self.total)}" if self.total else format_count(done)
        self.stream.write(f"{_ERASE}{self.label}: {counted}{note}{left}")
        self.stream.flush()
        self.shown_s, self.is_shown = now_s, True

    def go_on_with(self, label: str, since_s: float) -> None:
        """Count something else, since a moment."""
        if label != self.label:
            self.label, self.counted_since_s = label, since_s

    def erase(self) -> None:
        """Take the line away, if there is one."""
        if self.is_shown:
            self.stream.write(_ERASE)
            self.stream.flush()
            self.is_shown = False


@contextmanager
def show_progress(label: str, total: int, clock: Clock, deadline: Deadline | None = None) -> Iterator[Progress]:
    """A line about the progress of a work; it is taken away when the context ends, also by Ctrl-C."""
    progress = Progress(
        label=label, total=total, clock=clock, stream=sys.stderr, began_s=clock.monotonic(), deadline=deadline
    )
    try:
        yield progress
    finally:
        progress.erase()
