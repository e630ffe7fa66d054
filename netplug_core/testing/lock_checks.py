"""What the locks of every host must do, as checks that run against any implementation.

Each check takes a :class:`LockHarness`. A test module needs three lines::

    @pytest.mark.parametrize("check", LOCK_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check: LockCheck, harness: LockHarness) -> None:
        check(harness)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from netplug_core.locks import MAX_LOCK_OFFSET, HeldLock, LockHost
from netplug_core.testing.assertions import expect, expect_same
from netplug_core.testing.concurrency import run_together

__all__ = ["LOCK_CHECKS", "LockCheck", "LockHarness"]


class LockHarness(Protocol):
    """A machine whose locks are tested, and paths on it."""

    def open_host(self) -> LockHost:
        """The locks of the machine as one more of its processes sees them."""
        ...

    def new_path(self) -> str:
        """The path of a lock file that does not exist, in a folder that does not exist."""
        ...

    def unusable_path(self) -> str:
        """A path at which there can be no lock file."""
        ...


LockCheck: TypeAlias = Callable[[LockHarness], None]
"""One rule for locks; raises AssertionError if the host breaks it."""


def a_lock_has_one_holder(harness: LockHarness) -> None:
    """Neither another process nor the holder itself gets a lock that is held."""
    path, first, second = harness.new_path(), harness.open_host(), harness.open_host()
    held = _get_lock(first, path, 7)
    expect(second.try_lock(path, 7) is None, "another process got a lock that is held")
    expect(first.try_lock(path, 7) is None, "the holder got its own lock a second time")
    held.release()
    _get_lock(second, path, 7).release()


def a_released_lock_is_released_once(harness: LockHarness) -> None:
    """Releasing a lock again does not release it for the next holder."""
    path, host = harness.new_path(), harness.open_host()
    first = _get_lock(host, path, 0)
    first.release()
    second = _get_lock(host, path, 0)
    first.release()
    expect(host.try_lock(path, 0) is None, "a lock was released by somebody who did not hold it")
    second.release()
    _get_lock(host, path, 0).release()


def other_bytes_are_other_locks(harness: LockHarness) -> None:
    """The locks of one file, from the first byte to the last, do not exclude each other."""
    path, host = harness.new_path(), harness.open_host()
    offsets = (0, 1, 2, 2**31, 2**32, MAX_LOCK_OFFSET - 1, MAX_LOCK_OFFSET)
    held = [_get_lock(host, path, offset) for offset in offsets]
    held.pop(1).release()
    expect(host.try_lock(path, 0) is None, "releasing one byte released its neighbour")
    expect(host.try_lock(path, MAX_LOCK_OFFSET) is None, "releasing one byte released the last one")
    _get_lock(host, path, 1).release()
    for lock in held:
        lock.release()


def other_files_have_other_locks(harness: LockHarness) -> None:
    """The same byte of two files is two locks."""
    host = harness.open_host()
    held = [_get_lock(host, harness.new_path(), 5) for _ in range(2)]
    for lock in held:
        lock.release()


def threads_exclude_each_other(harness: LockHarness) -> None:
    """Of several threads that try at once, one gets the lock."""
    path, host = harness.new_path(), harness.open_host()
    outcomes = run_together([lambda: host.try_lock(path, 3)] * 8)
    held = [lock for lock in (outcome.get() for outcome in outcomes) if lock is not None]
    expect_same(len(held), 1, "the number of threads that got the lock")
    held[0].release()
    _get_lock(host, path, 3).release()


def an_unusable_path_is_an_os_error(harness: LockHarness) -> None:
    """Where no lock file can be, each attempt is an OSError, and never a lock."""
    path, host = harness.unusable_path(), harness.open_host()
    for _ in range(2):
        try:
            host.try_lock(path, 0)
        except OSError:
            continue
        raise AssertionError(f"there was no error for a lock at {path}")


LOCK_CHECKS: tuple[LockCheck, ...] = (
    a_lock_has_one_holder,
    a_released_lock_is_released_once,
    other_bytes_are_other_locks,
    other_files_have_other_locks,
    threads_exclude_each_other,
    an_unusable_path_is_an_os_error,
)
"""Every check."""


def _get_lock(host: LockHost, path: str, offset: int) -> HeldLock:
    held = host.try_lock(path, offset)
    if held is None:
        raise AssertionError(f"byte {offset} of {path} is not held, and could not be locked")
    return held
