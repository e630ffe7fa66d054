"""A bucket of requests: a burst at once, then steadily, and never past a deadline."""

from netplug_backends.kubernetes.client.ratelimit import DEFAULT_BURST, RateLimiter
from netplug_core.clock import Deadline
from netplug_core.testing.clock import ManualClock


def test_a_burst_waits_for_nothing_and_then_requests_come_steadily() -> None:
    clock = ManualClock()
    limits = RateLimiter(clock=clock, qps=10, burst=3)
    times = []
    for _ in range(5):
        assert limits.try_acquire(Deadline.after(clock, 60))
        times.append(round(clock.monotonic(), 3))
    assert times == [0.0, 0.0, 0.0, 0.1, 0.2]


def test_a_bucket_fills_up_and_no_further() -> None:
    clock = ManualClock()
    limits = RateLimiter(clock=clock, qps=10, burst=2)
    clock.sleep(60)
    before = clock.monotonic()
    for _ in range(3):
        assert limits.try_acquire(Deadline.after(clock, 60))
    assert round(clock.monotonic() - before, 3) == 0.1


def test_nobody_waits_past_a_deadline_nor_takes_what_he_does_not_use() -> None:
    clock = ManualClock()
    limits = RateLimiter(clock=clock, qps=1, burst=1)
    assert limits.try_acquire(Deadline.after(clock, 1))
    before = clock.monotonic()
    assert not limits.try_acquire(Deadline.after(clock, 0.5))
    assert not limits.try_acquire(Deadline.after(clock, 0))
    assert clock.monotonic() == before
    assert limits.try_acquire(Deadline.after(clock, 2))
    assert clock.monotonic() == 1.0


def test_a_node_full_of_pods_is_no_flood_by_default() -> None:
    """Trap 28."""
    clock = ManualClock()
    limits = RateLimiter(clock=clock)
    for _ in range(DEFAULT_BURST):
        limits.try_acquire(Deadline.after(clock, 60))
    assert clock.monotonic() == 0.0
