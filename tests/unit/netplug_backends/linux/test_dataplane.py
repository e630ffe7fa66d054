"""Work with a deadline. The rest of the dataplane needs a kernel: ``tests/integration``."""

import threading

import pytest

from netplug_backends.linux.dataplane import run_with_deadline
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import DataplaneTimeout
from netplug_core.testing.clock import ManualClock


def deadline(seconds: float) -> Deadline:
    return Deadline.after(ManualClock(), seconds)


def test_work_that_ends_in_time_is_done_when_the_call_returns() -> None:
    done: list[str] = []
    run_with_deadline(lambda: done.append("done"), deadline=deadline(20), operation="working")
    assert done == ["done"]


def test_an_error_of_the_work_is_raised_in_the_waiting_thread() -> None:
    def work() -> None:
        raise ProcessLookupError("gone")

    with pytest.raises(ProcessLookupError, match="gone"):
        run_with_deadline(work, deadline=deadline(20), operation="working")


def test_work_that_hangs_is_a_timeout() -> None:
    hanging = threading.Event()

    def work() -> None:
        hanging.wait(10)

    with pytest.raises(DataplaneTimeout, match="timed out removing 'eth0'"):
        run_with_deadline(work, deadline=deadline(0), operation="removing 'eth0'")
    hanging.set()
