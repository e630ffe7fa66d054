"""Calls in threads end with an outcome, and meet."""

from functools import partial
from threading import Event

import pytest

from netplug_core.testing.concurrency import run_in_thread, run_together


def test_an_outcome_has_the_result_or_the_error() -> None:
    assert run_in_thread(lambda: 5, limit_s=60).get() == 5
    failed = run_in_thread(partial(int, "five"), limit_s=60)
    assert failed.has_ended
    with pytest.raises(ValueError, match="five"):
        failed.get()


def test_a_call_that_does_not_end_is_left_alone() -> None:
    release = Event()
    outcome = run_in_thread(release.wait, limit_s=0.01)
    assert not outcome.has_ended
    release.set()


def test_threads_that_count_without_a_lock_lose_counts() -> None:
    count = 0

    def add() -> None:
        nonlocal count
        for _ in range(50):
            found = count
            count = found + 1

    outcomes = run_together([partial(add) for _ in range(4)])
    assert all(outcome.has_ended for outcome in outcomes)
    assert count < 200
