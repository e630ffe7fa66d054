"""How tests wait: for a condition or a count. The time limits here are emergency stops, not expectations."""

from __future__ import annotations

import time
from collections.abc import Callable

from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Deadline

__all__ = ["EMERGENCY_STOP_S", "MARGIN_S", "deadline_in", "is_eventually", "wait_until"]

EMERGENCY_STOP_S = 300.0
"""What nothing takes on a machine that works, however busy it is."""

MARGIN_S = 10.0
"""How much later than its deadline a call may end, because the machine is busy.

It is far below what a test makes a call wait for that ignores its deadline.
"""


def deadline_in(seconds: float = 60.0) -> Deadline:
    """A deadline in real time."""
    return Deadline.after(SystemClock(), seconds)


def is_eventually(condition: Callable[[], bool], *, within_s: float = EMERGENCY_STOP_S) -> bool:
    """Whether a condition becomes true."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def wait_until(condition: Callable[[], bool], description: str) -> None:
    """Return as soon as a condition is true.

    Raises:
        AssertionError: it does not become true.
    """
    assert is_eventually(condition), f"this does not happen: {description}"
