"""Deadlines, waits between attempts, and the one format of stored times."""

import re

import pytest

from netplug_core.clock import Deadline, Pace, format_time, parse_time
from netplug_core.testing.clock import ManualClock

TEN = 1_787_220_000 * 10**9  # 2026-08-20T10:00:00Z


def test_a_deadline_that_has_passed_stays_passed() -> None:
    clock = ManualClock()
    deadline = Deadline.after(clock, 2.0)
    assert (deadline.remaining_s, deadline.has_passed) == (2.0, False)
    clock.sleep(1.5)
    assert (deadline.remaining_s, deadline.has_passed) == (0.5, False)
    clock.sleep(0.5)
    assert (deadline.remaining_s, deadline.has_passed) == (0.0, True)
    clock.sleep(1.0)
    assert (deadline.remaining_s, deadline.has_passed) == (0.0, True)


def test_the_wall_clock_may_jump_without_moving_a_deadline() -> None:
    clock = ManualClock()
    deadline = Deadline.after(clock, 2.0)
    clock.wall_ns += 3600 * 10**9
    assert deadline.remaining_s == 2.0


@pytest.mark.parametrize("seconds, remaining", [(1.0, 1.0), (5.0, 2.0)])
def test_a_cap_only_shortens(seconds: float, remaining: float) -> None:
    assert Deadline.after(ManualClock(), 2.0).capped(seconds).remaining_s == remaining


@pytest.mark.parametrize("attempt, waited", [(1, 0.004), (2, 0.008), (6, 0.128), (7, 0.25), (10**6, 0.25)])
def test_waits_double_up_to_the_longest(attempt: int, waited: float) -> None:
    clock = ManualClock()
    Pace(clock=clock, deadline=Deadline.after(clock, 60), chance=lambda: 0.5).wait(attempt)
    assert clock.monotonic() == pytest.approx(waited)


def test_no_wait_outlasts_the_deadline() -> None:
    clock = ManualClock()
    pace = Pace(clock=clock, deadline=Deadline.after(clock, 0.1), chance=lambda: 0.999)
    for _attempt in range(3):
        pace.wait(9)
    assert clock.monotonic() == pytest.approx(0.1)


def test_times_are_written_in_utc_and_whole_seconds() -> None:
    assert format_time(TEN) == "2026-08-20T10:00:00Z"
    assert format_time(TEN + 999_999_999) == "2026-08-20T10:00:00Z"
    assert format_time(0) == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("text", [
    "2026-08-20T10:00:00Z", "2026-08-20T12:00:00+02:00", "2026-08-20T10:00:00.999999Z", "2026-08-20T10:00:00+00:00",
])  # fmt: skip
def test_any_zone_and_fraction_is_parsed(text: str) -> None:
    assert parse_time(text) == TEN


def test_times_before_the_epoch_and_of_early_years_keep_their_text() -> None:
    for text in ("1969-12-31T23:59:59Z", "0900-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"):
        assert format_time(parse_time(text)) == text
    assert parse_time("1969-12-31T23:59:58.5Z") == -2 * 10**9


@pytest.mark.parametrize("text", [
    "", "yesterday", "2026-13-01T00:00:00Z", "2026-08-20 10:00:01 +0000 UTC",
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
])  # fmt: skip
def test_a_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is not an RFC 3339 time$"):
        parse_time(text)


@pytest.mark.parametrize("text", ["2026-08-20T10:00:00", "2026-08-20"])
def test_a_time_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an RFC 3339 time: it names no zone"):
        parse_time(text)
