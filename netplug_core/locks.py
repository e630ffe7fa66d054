"""Locks between the calls of one machine: what a host offers, and how a call waits for one.

A lock is one byte of a lock file. ``flows.locks`` says which byte stands for what. A host in memory and the machine
pass the same suite, ``netplug_core.testing.lock_checks``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from netplug_core.clock import Deadline, Pace

__all__ = ["MAX_LOCK_OFFSET", "HeldLock", "LockHost", "NoLock", "no_lock", "no_turn", "wait_for_lock"]

MAX_LOCK_OFFSET = 2**62
"""The highest byte that can be locked. A lock file stays empty: bytes beyond its end can be locked too."""


class HeldLock(Protocol):
    """A lock that a call holds. It is released with the process at the latest, however that ends."""

    def release(self) -> None:
        """Release the lock; a lock that is released already stays so."""
        ...


class LockHost(Protocol):
    """A machine whose processes exclude each other."""

    def try_lock(self, path: str, offset: int) -> HeldLock | None:
        """Take the exclusive lock on one byte of a lock file; None if it is held, also by the caller itself.

        The file is made if it does not exist.

        Raises:
            OSError: the file cannot be made, opened or locked.
        """
        ...


class NoLock:
    """The lock of a program that goes on without one."""

    def release(self) -> None:
        """Do nothing."""


_NO_LOCK = nullcontext(NoLock())


def no_lock() -> AbstractContextManager[HeldLock]:
    """A lock that excludes no other call, for programs whose machine has none."""
    return _NO_LOCK


def no_turn(deadline: Deadline) -> AbstractContextManager[HeldLock]:
    """The turn of a call in a process that serves one at a time: it comes at once."""
    del deadline
    return _NO_LOCK


def wait_for_lock(host: LockHost, path: str, offset: int, pace: Pace) -> HeldLock | None:
    """Take a lock, waiting for its holder until the deadline; None if it is held even then.

    Raises:
        OSError: it cannot be locked.
    """
    attempt = 0
    while True:
        held = host.try_lock(path, offset)
        if held is not None or pace.deadline.has_passed:
            return held
        attempt += 1
        pace.wait(attempt)
