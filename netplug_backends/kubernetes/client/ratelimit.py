"""How many requests one client may send: a bucket that fills steadily, so that a burst of pod starts is no flood."""

from __future__ import annotations

from threading import Lock

from netplug_core.clock import Clock, Deadline

__all__ = ["DEFAULT_BURST", "DEFAULT_QPS", "RateLimiter"]

DEFAULT_QPS = 100.0
"""Requests a second, in the long run, where the configuration says nothing. The server has limits of its own."""

DEFAULT_BURST = 200
"""Requests at once."""


class RateLimiter:
    """A bucket of ``burst`` requests that gains ``qps`` a second; 0 means the default."""

    def __init__(self, *, clock: Clock, qps: float = 0, burst: int = 0) -> None:
        self._clock = clock
        self._qps = qps or DEFAULT_QPS
        self._burst = float(burst or DEFAULT_BURST)
        self._tokens = self._burst
        self._filled_at = clock.monotonic()
        self._lock = Lock()

    def try_acquire(self, deadline: Deadline) -> bool:
        """Wait for one's turn; false when it would come only after the deadline, and then it is not taken."""
        if deadline.has_passed:
            return False
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
            self._filled_at = now
            wait_s = max(0.0, (1.0 - self._tokens) / self._qps)
            if wait_s >= deadline.remaining_s:
                return False
            self._tokens -= 1.0
        if wait_s:
            self._clock.sleep(wait_s)
        return True
