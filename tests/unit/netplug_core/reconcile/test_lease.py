"""Who holds the Lease: by the own clock of each process."""

from __future__ import annotations

import pytest

from netplug_core.clock import SECOND_NS, parse_time
from netplug_core.reconcile.lease import (
    LEASE_S,
    TRUSTED_S,
    LeaseRecord,
    LeaseStep,
    SeenLease,
    decide_lease,
    is_recent,
    next_record,
    read_lease,
    released_record,
    see,
)

THEIRS = LeaseRecord(holder="b", acquired="t0", renewed="t1", transitions=4)


def step(record: LeaseRecord, age_s: float) -> LeaseStep:
    return decide_lease(SeenLease(record=record, since_s=100.0), "a", 100.0 + age_s)


def test_nobodys_lease_is_taken() -> None:
    assert read_lease(None) == LeaseRecord()
    assert step(LeaseRecord(), 0) is LeaseStep.TAKE
    assert step(released_record(THEIRS), 0) is LeaseStep.TAKE


def test_a_lease_of_another_is_taken_when_it_is_not_renewed() -> None:
    assert step(THEIRS, LEASE_S) is LeaseStep.WAIT
    assert step(THEIRS, LEASE_S + 0.1) is LeaseStep.TAKE


def test_the_holder_stops_before_another_may_take_it() -> None:
    assert TRUSTED_S < LEASE_S
    assert step(LeaseRecord(holder="a"), 1000) is LeaseStep.RENEW


def test_a_renewed_record_is_seen_anew() -> None:
    seen = see(None, THEIRS, 1.0)
    assert see(seen, THEIRS, 5.0) == seen
    assert see(seen, released_record(THEIRS), 5.0).since_s == 5.0


def test_the_records_that_are_written() -> None:
    taken = next_record(THEIRS, "a", "t2")
    assert taken == LeaseRecord(holder="a", acquired="t2", renewed="t2", transitions=5)
    assert next_record(taken, "a", "t3") == LeaseRecord(holder="a", acquired="t2", renewed="t3", transitions=5)
    assert read_lease({"spec": taken.spec()}) == taken
    assert taken.spec()["leaseDurationSeconds"] == LEASE_S


@pytest.mark.parametrize("age_s, is_fresh", [(-1, False), (0, True), (LEASE_S, True), (LEASE_S + 1, False)])
def test_who_sees_a_lease_once_compares_clocks(age_s: int, *, is_fresh: bool) -> None:
    """What seems to come from the future is not trusted either."""
    renewed = "2026-08-20T10:00:00.000000Z"
    assert is_recent(renewed, parse_time(renewed) + age_s * SECOND_NS) is is_fresh


def test_a_time_that_cannot_be_read_is_not_recent() -> None:
    assert not is_recent("", 0)
