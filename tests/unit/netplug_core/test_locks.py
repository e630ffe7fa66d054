"""Waiting for a lock, on a machine in memory and a clock that moves by hand."""

from netplug_backends.memory.locks import MemoryLocks
from netplug_core.clock import Deadline, Pace
from netplug_core.locks import HeldLock, no_lock, wait_for_lock
from netplug_core.testing.clock import ManualClock


def pace_of(clock: ManualClock, seconds: float) -> Pace:
    return Pace(clock=clock, deadline=Deadline.after(clock, seconds), chance=lambda: 1.0)


def test_a_free_lock_is_taken_without_waiting() -> None:
    clock, locks = ManualClock(), MemoryLocks()
    assert wait_for_lock(locks, "/lock", 1, pace_of(clock, 0)) is not None
    assert clock.monotonic() == 0


def test_a_held_lock_is_waited_for_until_the_deadline() -> None:
    clock, locks = ManualClock(), MemoryLocks()
    locks.try_lock("/lock", 1)
    assert wait_for_lock(locks, "/lock", 1, pace_of(clock, 2)) is None
    assert clock.monotonic() == 2


def test_a_lock_that_becomes_free_is_taken() -> None:
    locks = MemoryLocks()
    held = locks.try_lock("/lock", 1)
    assert held is not None
    first: HeldLock = held

    class ReleasingClock(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.monotonic() > 1:
                first.release()

    clock = ReleasingClock()
    assert wait_for_lock(locks, "/lock", 1, pace_of(clock, 60)) is not None
    assert 1 < clock.monotonic() < 2


def test_no_lock_excludes_nobody() -> None:
    with no_lock() as first, no_lock() as second:
        first.release()
        second.release()
