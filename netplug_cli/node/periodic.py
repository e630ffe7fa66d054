"""A thread that does the same again and again: what the node process does besides serving calls."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from threading import Event, Thread

from netplug_core.log import Level, Log

__all__ = ["PeriodicTask"]

_STOP_S = 5.0


class PeriodicTask:
    """Does ``work`` at once, and again after each pause. An error that it raises is logged, and not the end.

    ``name`` says what is done, in log lines.
    """

    def __init__(self, name: str, work: Callable[[], None], *, every_s: float, log: Log) -> None:
        self._name = name
        self._work = work
        self._every_s = every_s
        self._log = log
        self._stopping = Event()
        # A daemon: work that hangs must not keep the process from ending.
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        """Whether work that has several parts shall begin no other one."""
        return self._stopping.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no other time; wait a little for the one that has begun."""
        self._stopping.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work()
            except Exception:  # noqa: BLE001  the next time may succeed
                self._log(Level.ERROR, f"{self._name}: an unexpected error\n{traceback.format_exc()}")
            self._stopping.wait(self._every_s)
