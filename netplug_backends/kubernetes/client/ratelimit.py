"""The rate limit of one client: a token bucket, so that many pod starts at once do not overload the server."""

from __future__ import annotations

from threading import Lock

from netplug_core.clock import Clock, Deadline

__all__ = ["DEFAULT_BURST", "DEFAULT_QPS", "RateLimiter"]

DEFAULT_QPS = 100.0
"""The default average of requests per second. The server has limits of its own."""

DEFAULT_BURST = 200
"""The default number of requests at once."""


class RateLimiter:
    """A bucket of ``burst`` tokens that gains ``qps`` tokens per second; 0 means the default."""

    def __init__(self, *, clock: Clock, qps: float = 0, burst: int = 0) -> None:
        self._clock = clock
        self._qps = qps or DEFAULT_QPS
        self._burst = float(burst or DEFAULT_BURST)
        self._tokens = self._burst
        self._filled_at = clock.monotonic()
        self._lock = Lock()

    def try_acquire(self, deadline: Deadline) -> bool:
        """Take a token, and wait for it if there is none; false, without one, if it would come after the deadline."""
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
