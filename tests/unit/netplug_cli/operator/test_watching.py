"""What the main thread of the operator waits for."""

from __future__ import annotations

import os
import signal
from threading import Event

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_cli.operator.observing import open_changes


def test_changes_that_come_together_wake_once() -> None:
    stop, woken = Event(), list[int]()

    def wake() -> None:
        woken.append(1)
        stop.set()

    with open_changes(SystemClock()) as changes:
        for _ in range(100_000):  # more than the pipe holds
            changes.note()
        changes.follow(wake, stop)
    assert woken == [1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_even_behind_many_changes(number: signal.Signals) -> None:
    before, woken = signal.getsignal(number), list[int]()
    with open_changes(SystemClock()) as changes:
        for _ in range(100_000):
            changes.note()
        os.kill(os.getpid(), number)
        changes.follow(lambda: woken.append(1), Event())
    assert not woken
    assert signal.getsignal(number) == before


def test_another_part_of_the_process_ends_the_wait() -> None:
    stop = Event()
    stop.set()
    with open_changes(SystemClock()) as changes:
        changes.follow(lambda: pytest.fail("nothing has changed"), stop)
        assert not changes.has_to_end()
