"""What asks a process to end: a signal, or a part of it that cannot go on."""

from __future__ import annotations

import os
import select
import signal

import pytest

from netplug_cli.runtime.signals import StopSignals
from tests.harness.waiting import EMERGENCY_STOP_S


def is_asked(signals: StopSignals, timeout_s: float = 0) -> bool:
    return bool(select.select([signals.wakeup], [], [], timeout_s)[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_wakes_who_waits_and_the_handlers_of_before_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopSignals() as signals:
        assert not is_asked(signals)
        os.kill(os.getpid(), number)
        assert is_asked(signals, EMERGENCY_STOP_S)
    assert signal.getsignal(number) is before


def test_a_part_of_the_process_may_ask_too_as_often_as_it_likes() -> None:
    with StopSignals() as signals:
        for _ in range(10_000):
            signals.ask_to_stop()
        assert is_asked(signals)
    signals.ask_to_stop()  # what still runs at the very end
