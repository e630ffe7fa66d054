"""Which of several processes acts: the one whose name is in the Lease.

As of operators, or of controllers. Pure; the clocks of machines are not compared.

A process measures with its own clock how long it has seen the same record. If that is longer than the record's
duration, its holder has stopped renewing it, and the Lease may be taken.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Final

from attrs import evolve, frozen

from netplug_core.clock import SECOND_NS, parse_time
from netplug_core.decoding.tables import find_member, find_text

__all__ = [
    "LEASE_S", "RENEW_EVERY_S", "TRUSTED_S", "LeaseRecord", "LeaseStep", "SeenLease", "decide_lease",
    "is_recent", "next_record", "read_lease", "read_lease_text", "released_record", "see",
]  # fmt: skip

LEASE_S: Final = 15
"""How long a record that is not renewed keeps others away."""

TRUSTED_S: Final = 10.0
"""How long its holder acts after a renewal; shorter than the record lasts, so that two never act at once."""

RENEW_EVERY_S: Final = 2.0


class LeaseStep(enum.Enum):
    """What a process does with the Lease."""

    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


@frozen(kw_only=True)
class LeaseRecord:
    """Who holds the Lease, since when and renewed when, as texts of the API; an empty holder means that it is free."""

    holder: str = ""
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0

    def spec(self) -> Mapping[str, object]:
        """The ``spec`` of the object."""
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": LEASE_S,
            "acquireTime": self.acquired,
            "renewTime": self.renewed,
            "leaseTransitions": self.transitions,
        }


@frozen(kw_only=True)
class SeenLease:
    """A record and when this process saw it first, in seconds of its own clock."""

    record: LeaseRecord
    since_s: float


def read_lease_text(text: str) -> Mapping[str, object]:
    """The object in the text of a lease that a datastore holds; what is no JSON object is empty, which is free."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


def read_lease(found: Mapping[str, object] | None) -> LeaseRecord:
    """The record in the object; one that does not exist is free."""
    transitions = find_member(found or {}, "spec", "leaseTransitions")
    return LeaseRecord(
        holder=find_text(found, "spec", "holderIdentity"),
        acquired=find_text(found, "spec", "acquireTime"),
        renewed=find_text(found, "spec", "renewTime"),
        transitions=transitions if isinstance(transitions, int) else 0,
    )


def see(before: SeenLease | None, record: LeaseRecord, now_s: float) -> SeenLease:
    """What is known after a look."""
    return before if before is not None and before.record == record else SeenLease(record=record, since_s=now_s)


def is_recent(renewed: str, now_ns: int) -> bool:
    """Whether a record seems to be renewed, for a process that has read it once: clocks differ."""
    try:
        age_ns = now_ns - parse_time(renewed)
    except ValueError:
        return False
    return 0 <= age_ns <= LEASE_S * SECOND_NS


def decide_lease(seen: SeenLease, identity: str, now_s: float) -> LeaseStep:
    """What the process of that name does."""
    if seen.record.holder == identity:
        return LeaseStep.RENEW
    is_free = not seen.record.holder or now_s - seen.since_s > LEASE_S
    return LeaseStep.TAKE if is_free else LeaseStep.WAIT


def next_record(record: LeaseRecord, identity: str, now: str) -> LeaseRecord:
    """The record after a process has taken or renewed it; ``now`` is the time as a text of the API."""
    if record.holder == identity:
        return evolve(record, renewed=now)
    return LeaseRecord(holder=identity, acquired=now, renewed=now, transitions=record.transitions + 1)


def released_record(record: LeaseRecord) -> LeaseRecord:
    """The record after its holder has given it up, so that the next one does not wait."""
    return evolve(record, holder="")
