"""The clocks for tests."""

from netplug_core.clock import Deadline
from netplug_core.testing.clock import ManualClock, RealClock


def test_it_stands_still_between_sleeps() -> None:
    clock = ManualClock()
    deadline = Deadline.after(clock, 0.3)
    wall = clock.now_ns()
    clock.sleep(0.1)
    assert (clock.now_ns() - wall, clock.monotonic()) == (100_000_000, 0.1)
    for _ in range(2):
        assert not deadline.has_passed
        clock.sleep(0.1)
    assert deadline.has_passed  # three tenths are three tenths: time is counted in nanoseconds


def test_the_wall_clock_may_go_back_and_waiting_does_not_notice() -> None:
    clock = ManualClock()
    clock.sleep(5.0)
    clock.wall_ns -= 3_600_000_000_000
    assert clock.monotonic() == 5.0


def test_the_real_clock_goes_on_by_itself() -> None:
    clock = RealClock()
    wall, elapsed = clock.now_ns(), clock.monotonic()
    clock.sleep(0.001)
    assert clock.monotonic() - elapsed >= 0.001
    assert clock.now_ns() != wall
