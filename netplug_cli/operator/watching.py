"""Waits in the main thread for changes, of which the loop of ``process`` is notified, and for the signal that ends it.

``Changes.note`` may be called from any thread, once for each event of a watch; the loop is woken once for many.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from types import FrameType
from typing import Final

from attrs import define, field

from netplug_core.clock import Clock

__all__ = ["Changes", "open_changes"]

_QUIET_S: Final = 0.02
"""The loop is woken when nothing has changed for that long,"""

_LONGEST_S: Final = 0.2
"""or that long after the first change."""

_LOOK_S: Final = 0.5
"""How often it is looked whether another part of the process has asked for the end."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_CHANGE: Final = b"c"
_MAX_READ: Final = 4096


@define(kw_only=True, eq=False)
class Changes:
    """Changes and the signal come through a pipe: a handler may take no lock that the main thread might hold."""

    reader: int
    writer: int
    clock: Clock
    _has_ended: bool = field(default=False, init=False)

    def note(self) -> None:
        """Something has changed."""
        self._send(_CHANGE)

    def end(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """The process has to end; a handler of signals."""
        self._has_ended = True  # the pipe may be full
        self._send(_CHANGE)

    def follow(self, on_change: Callable[[], None], stop: Event) -> None:
        """Call ``on_change`` once for changes that come together, until ``end`` was called or ``stop`` is set."""
        while not stop.is_set() and not self.has_to_end():
            found = self._receive(_LOOK_S)
            latest_s = self.clock.monotonic() + _LONGEST_S
            more = found
            while more and not self.has_to_end() and self.clock.monotonic() < latest_s:
                more = self._receive(_QUIET_S)
            if self.has_to_end():
                return
            if found:
                on_change()

    def has_to_end(self) -> bool:
        """Whether a signal has come."""
        return self._has_ended

    def _send(self, what: bytes) -> None:
        with suppress(BlockingIOError):  # the pipe is full of changes, and so the loop is woken anyway
            os.write(self.writer, what)

    def _receive(self, timeout_s: float) -> bytes:
        readable, _, _ = select.select([self.reader], [], [], timeout_s)
        return os.read(self.reader, _MAX_READ) if readable else b""


@contextmanager
def open_changes(clock: Clock) -> Iterator[Changes]:
    """What is noted and waited for, with the handlers of the signals that end the process; for the main thread."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    changes = Changes(reader=reader, writer=writer, clock=clock)
    before = {number: signal.signal(number, changes.end) for number in _SIGNALS}
    try:
        yield changes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
