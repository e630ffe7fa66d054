"""The rate limit: a burst at once, then a steady rate, and no wait past a deadline."""

from netplug_backends.kubernetes.client.apiclient import DEFAULT_BURST, RateLimiter
from netplug_core.clock import Deadline
from netplug_core.testing.clock import ManualClock


def test_a_burst_does_not_wait_and_later_requests_are_spaced() -> None:
    clock = ManualClock()
    limits = RateLimiter(clock=clock, qps=10, burst=3)
    times = []
    for _ in range(5):
        assert limits.try_acquire(Deadline.after(clock, 60))
        times.append(round(clock.monotonic(), 3))
    assert times == [0.0, 0.0, 0.0, 0.1, 0.2]


def test_a_bucket_fills_up_to_its_size() -> None:
    clock = ManualClock()
    limits = RateLimiter(clock=clock, qps=10, burst=2)
    clock.sleep(60)
    before = clock.monotonic()
    for _ in range(3):
        assert limits.try_acquire(Deadline.after(clock, 60))
    assert round(clock.monotonic() - before, 3) == 0.1


def test_no_wait_passes_a_deadline_and_an_unused_token_stays() -> None:
    clock = ManualClock()
    limits = RateLimiter(clock=clock, qps=1, burst=1)
    assert limits.try_acquire(Deadline.after(clock, 1))
    before = clock.monotonic()
    assert not limits.try_acquire(Deadline.after(clock, 0.5))
    assert not limits.try_acquire(Deadline.after(clock, 0))
    assert clock.monotonic() == before
    assert limits.try_acquire(Deadline.after(clock, 2))
    assert clock.monotonic() == 1.0


def test_the_default_burst_allows_the_pods_of_a_node() -> None:
    """Trap 28."""
    clock = ManualClock()
    limits = RateLimiter(clock=clock)
    for _ in range(DEFAULT_BURST):
        limits.try_acquire(Deadline.after(clock, 60))
    assert clock.monotonic() == 0.0
