"""Read, decide, commit, again: the one retry loop around every write.

A caller hands over a pure rule; this loop gives it snapshots until it decides, commits the decision under its
conditions, and starts over when it lost the race or the reply. A rule is idempotent on its own output, which is why
deciding again after a lost reply is safe; one that says it is not (``Decision.repeatable``) is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from netplug_core.clock import Pace
from netplug_core.datastore.interface import Datastore
from netplug_core.errors import ContentionExhausted, NetplugError, Unavailable
from netplug_core.records import CommitError, Decision, NeedMore, OutcomeUnknown, Query, Snapshot

__all__ = ["CALL_S", "run"]

R = TypeVar("R")

CALL_S = 5.0
"""The longest one call to a store may take."""


def run(
    store: Datastore,
    queries: Sequence[Query],
    decide: Callable[[Snapshot], Decision[R] | NeedMore],
    *,
    pace: Pace,
) -> Decision[R]:
    """Commit what ``decide`` makes of the store and return its decision; its result is not an error.

    Raises:
        NetplugError: the error that the decision has as its result, once its writes are committed.
        ContentionExhausted: every attempt lost against other writers until the deadline.
        OutcomeUnknown: the reply was lost, and the decision cannot be repeated or no time is left.
        Unavailable: the store does not answer.
    """
    attempt = 0
    while True:
        attempt += 1
        decision = _decided(store, queries, decide, pace)
        try:
            if decision.writes:
                store.commit(decision.writes, deadline=pace.deadline.capped(CALL_S))
        except (CommitError, OutcomeUnknown) as error:
            is_lost = isinstance(error, OutcomeUnknown)
            if is_lost and not decision.repeatable:
                raise
            pace.wait(attempt)
            if not pace.deadline.has_passed:
                continue
            if is_lost:
                raise
            raise ContentionExhausted(attempt, str(error)) from error
        if isinstance(decision.result, NetplugError):
            raise decision.result
        return decision


def _decided(
    store: Datastore, queries: Sequence[Query], decide: Callable[[Snapshot], Decision[R] | NeedMore], pace: Pace
) -> Decision[R]:
    snapshot = store.read(queries, deadline=pace.deadline.capped(CALL_S)) if queries else Snapshot.empty()
    while True:
        decision = decide(snapshot)
        if isinstance(decision, Decision):
            return decision
        if pace.deadline.has_passed:
            raise Unavailable(store.description.location, "the deadline passed while reading")
        snapshot = snapshot.merged(store.read(decision.queries, deadline=pace.deadline.capped(CALL_S)))
