"""Waiting for a lock, on a machine in memory and a clock that moves by hand."""

from threading import Lock

import pytest

from netplug_backends.memory.datastore import MemoryLocks
from netplug_core.clock import Deadline, Pace
from netplug_core.locks import TURN_S, HeldLock, Turn, no_lock, wait_for_lock
from netplug_core.testing.clock import ManualClock
from tests.harness.simulated_threads import SimulatedThreads


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


# --- turns ----------------------------------------------------------------------------------------------------------


class TurnScene:
    """Calls that take turns in simulated time; each notes when it began and when it ended."""

    def __init__(self) -> None:
        self.threads = SimulatedThreads()
        self.turn = Turn(guard=Lock(), make_signal=self.threads.make_signal)
        self.spans: list[tuple[str, float, float]] = []

    def run(self, *calls: tuple[str, float, float, float]) -> list[tuple[str, float, float]]:
        """Calls by name, when they come, how much time they have, and how long they hold the turn."""

        def call(name: str, seconds: float, holds_s: float) -> None:
            with self.turn.taken(Deadline.after(self.threads, seconds)):
                began = self.threads.monotonic()
                self.threads.sleep(holds_s)
            self.spans.append((name, began, round(self.threads.monotonic(), 6)))

        self.threads.run(
            [(at, lambda call=call, each=(name, *rest): call(*each)) for name, at, *rest in calls]  # type: ignore[misc]
        )
        return self.spans


def test_calls_have_their_turns_in_the_order_in_which_they_came() -> None:
    spans = TurnScene().run(("a", 0, 60, 1), ("b", 0.1, 60, 1), ("c", 0.2, 60, 1), ("d", 5, 60, 1))
    assert spans == [("a", 0, 1), ("b", 1, 2), ("c", 2, 3), ("d", 5, 6)]


def test_a_call_whose_turn_does_not_come_goes_on_in_half_of_its_time_at_most() -> None:
    spans = TurnScene().run(("hangs", 0, 60, 50), ("short", 1, 0.5, 0.1), ("long", 2, 60, 0.1), ("late", 49, 60, 0.1))
    assert spans == [("short", 1.25, 1.35), ("long", 2 + TURN_S, 12.1), ("hangs", 0, 50), ("late", 50, 50.1)]


def test_a_call_without_time_does_not_wait_for_its_turn() -> None:
    assert TurnScene().run(("hangs", 0, 60, 9), ("late", 1, 0, 0.5)) == [("late", 1, 1.5), ("hangs", 0, 9)]


def test_an_error_ends_a_turn() -> None:
    turn, deadline = Turn(), Deadline.after(ManualClock(), 1)
    with pytest.raises(OSError), turn.taken(deadline):  # noqa: PT011  whatever a call raises
        raise OSError
    assert turn.join().signal is None, "it is free"


def test_in_a_process_with_one_thread_a_turn_is_not_waited_for() -> None:
    turn, deadline = Turn(), Deadline.after(ManualClock(), 60)
    with turn.taken(deadline):
        waiting = turn.join()
        waiting.wait(deadline)
        turn.leave(waiting)
    nobody = turn.join()
    nobody.wake()
    turn.leave(nobody)
    assert turn.join().signal is None, "it is free"
