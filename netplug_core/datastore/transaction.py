"""Read, decide, commit, again: the one retry loop around every write.

A caller hands over a pure rule; this loop gives it snapshots until it decides, commits the decision under its
conditions, and starts over when it lost the race or the reply. A rule is idempotent on its own output, which is why
deciding again after a lost reply is safe; one that says it is not (``Decision.repeatable``) is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from attrs import define

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ContentionExhausted, NetplugError, Unavailable
from netplug_core.records import CommitError, Create, Decision, Get, NeedMore, OutcomeUnknown, Query, Snapshot, Write

if TYPE_CHECKING:
    from netplug_core.datastore.cache import DatastoreCache

__all__ = ["CALL_TIMEOUT_S", "run"]

R = TypeVar("R")

CALL_TIMEOUT_S = 5.0
"""The longest one call to a store may take."""


def run(
    store: Datastore,
    queries: Sequence[Query],
    decide: Callable[[Snapshot], Decision[R] | NeedMore],
    *,
    pace: Pace,
    cache: DatastoreCache | None = None,
    assume_absent: Sequence[Query] = (),
) -> Decision[R]:
    """Commit what ``decide`` makes of the store and return its decision; its result is not an error.

    With a memory (``warm``) the first attempt decides on what it knows, takes what is ``presumed`` to be absent for
    so, and reads only the rest. A decision that commits nothing, or does not create what was presumed to be absent,
    proves nothing then: it is made again from a read, and so is every other attempt.

    Raises:
        NetplugError: the error that the decision has as its result, once its writes are committed.
        ContentionExhausted: every attempt lost against other writers until the deadline.
        OutcomeUnknown: the reply was lost, and the decision cannot be repeated or no time is left.
        Unavailable: the store does not answer.
    """
    attempt = 0
    while True:
        attempt += 1
        reading = _Attempt(store, pace, cache, tuple(assume_absent), may_use_cache=attempt == 1)
        decision = reading.decide(queries, decide)
        if not reading.is_validated_by(decision):
            reading.invalidate_cache()
            continue
        try:
            reading.commit(decision.writes)
        except (CommitError, OutcomeUnknown) as error:
            _wait_before_retry(error, attempt, decision, pace)
            continue
        if isinstance(decision.result, NetplugError):
            raise decision.result
        return decision


def _wait_before_retry(error: CommitError | OutcomeUnknown, attempt: int, decision: Decision[R], pace: Pace) -> None:
    """Wait before the next attempt, or raise where there can be none."""
    is_lost = isinstance(error, OutcomeUnknown)
    if is_lost and not decision.is_repeatable:
        raise error
    pace.wait(attempt)
    if not pace.deadline.has_passed:
        return
    if is_lost:
        raise error
    raise ContentionExhausted(attempt, str(error)) from error


@define
class _Attempt:
    """What one attempt reads and writes, with the memory kept up to date."""

    store: Datastore
    pace: Pace
    cache: DatastoreCache | None
    assume_absent: tuple[Query, ...]
    may_use_cache: bool
    is_from_cache: bool = False

    def decide(self, queries: Sequence[Query], decide: Callable[[Snapshot], Decision[R] | NeedMore]) -> Decision[R]:
        """What the rule makes of the store, or of what is known of it; with as many reads as it asks for."""
        snapshot, wanted = Snapshot.empty(), tuple(queries)
        if self.cache is not None and self.may_use_cache:
            snapshot, wanted = self.cache.lookup(wanted, self.assume_absent)
            self.is_from_cache = bool(snapshot.results)
        while True:
            if wanted:
                snapshot = snapshot.merged(self._read(wanted))
            decision = decide(snapshot)
            if isinstance(decision, Decision):
                return decision
            if self.pace.deadline.has_passed:
                raise Unavailable(self.store.description.location, "the deadline passed while reading")
            wanted = decision.queries

    def is_validated_by(self, decision: Decision[R]) -> bool:
        """Whether the conditions of a decision's commit stand for what was only remembered or presumed.

        What was taken to be absent is proven by its creation alone.
        """
        if not self.is_from_cache:
            return True
        if not decision.writes or decision.is_partial or isinstance(decision.result, NetplugError):
            return False
        created = {Get(write.key) for write in decision.writes if isinstance(write, Create)}
        return created.issuperset(self.assume_absent)

    def _read(self, wanted: tuple[Query, ...]) -> Snapshot:
        found = self.store.read(wanted, deadline=self.pace.deadline.capped(CALL_TIMEOUT_S))
        if self.cache is not None:
            self.cache.add_snapshot(found)
        return found

    def commit(self, writes: tuple[Write, ...]) -> None:
        """Write, if there is anything to write."""
        if not writes:
            return
        try:
            revisions = self.store.commit(writes, deadline=self.pace.deadline.capped(CALL_TIMEOUT_S))
        except BaseException:  # an interrupt too: the store may have taken what the memory does not know of
            self.invalidate_cache()
            raise
        if self.cache is not None:
            self.cache.apply_writes(writes, revisions)

    def invalidate_cache(self) -> None:
        """What was remembered is not to be trusted."""
        if self.cache is not None:
            self.cache.invalidate()
