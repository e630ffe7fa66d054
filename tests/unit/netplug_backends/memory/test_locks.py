"""The locks in memory: what the locks of every host do, and what only these show."""

from __future__ import annotations

from itertools import count

import pytest
from attrs import define, field

from netplug_backends.memory.datastore import MemoryLocks
from netplug_core.locks import LockHost
from netplug_core.testing.lock_checks import LOCK_CHECKS, LockCheck


@define
class MemoryLockHarness:
    """One machine in memory."""

    locks: MemoryLocks = field(factory=MemoryLocks)
    numbers: count[int] = field(factory=count)

    def open_host(self) -> LockHost:
        return self.locks

    def new_path(self) -> str:
        return f"/run/{next(self.numbers)}/lock"

    def unusable_path(self) -> str:
        self.locks.errors["/file/lock"] = NotADirectoryError(20, "Not a directory", "/file/lock")
        return "/file/lock"


@pytest.mark.parametrize("check", LOCK_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: LockCheck) -> None:
    check(MemoryLockHarness())
    assert check.__doc__


def test_every_lock_that_was_taken_is_listed() -> None:
    locks = MemoryLocks()
    first = locks.try_lock("/a", 1)
    assert first is not None
    assert locks.try_lock("/a", 1) is None
    first.release()
    locks.try_lock("/a", 1)
    locks.try_lock("/b", 2)
    assert locks.taken == [("/a", 1), ("/a", 1), ("/b", 2)]
    assert locks.held == {("/a", 1), ("/b", 2)}


def test_the_holders_may_all_die() -> None:
    locks = MemoryLocks()
    first = locks.try_lock("/a", 1)
    assert first is not None
    locks.release_all()
    assert locks.held == frozenset()
    first.release()
    assert locks.try_lock("/a", 1) is not None
