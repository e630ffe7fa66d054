"""Waits for what other processes do to a file, as the kernel tells it (inotify(7)).

A process that waits for a lock opens the lock file for each attempt, and closes it if the lock is held.
"""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from tests.harness.waiting import EMERGENCY_STOP_S

__all__ = ["CloseWatch", "watch_closes"]

_IN_CLOSE_WRITE = 0x8
_LIBC = ctypes.CDLL(None, use_errno=True)


@frozen
class CloseWatch:
    """Every close of a file that was open for writing, since the watch began."""

    descriptor: int

    def wait(self) -> None:
        """Return when a process has closed the file.

        Raises:
            AssertionError: none does.
        """
        ready, _, _ = select.select([self.descriptor], [], [], EMERGENCY_STOP_S)
        assert ready, "no process closes the file"


@contextmanager
def watch_closes(path: str) -> Iterator[CloseWatch]:
    """Watch a file that exists."""
    descriptor = _LIBC.inotify_init1(os.O_CLOEXEC)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    try:
        found = _LIBC.inotify_add_watch(descriptor, path.encode(), _IN_CLOSE_WRITE)
        assert found >= 0, os.strerror(ctypes.get_errno())
        yield CloseWatch(descriptor)
    finally:
        os.close(descriptor)
