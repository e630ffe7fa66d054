"""SIGTERM and SIGINT: the first one asks the process to end its work, the second one ends it at once."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

__all__ = ["StopSignals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Receives the signals for as long as the context lasts; for the main thread.

    ``wakeup`` is readable once the process is asked to end.
    """

    def __init__(self) -> None:
        self.wakeup, self._signalled = socket.socketpair()
        self._is_stopping = False

    def __enter__(self) -> Self:
        self.wakeup.settimeout(0)
        self._signalled.settimeout(0)
        self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        # The interpreter writes to it when a signal comes, so that a thread that waits for sockets wakes up.
        self._wakeup_before = signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.wakeup.close()
        self._signalled.close()

    def ask_to_stop(self) -> None:
        """Ask the process to end, as a signal does; any thread may call it."""
        with suppress(OSError):  # asked already, or it has ended
            self._signalled.send(b"\0")

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._is_stopping:
            os._exit(128 + number)
        self._is_stopping = True
