"""Many requests in one commit: what a process that serves many callers uses in place of one transaction for each.

Requests that wait while a commit is in flight are decided one after the other and go into one commit, which
``batch_plan`` makes of them. :func:`run_batch` reads, plans and commits, once. A request that cannot share a commit,
and every request of a commit that fails, runs alone in its own ``Transaction``. :class:`RequestQueue` collects
requests. Nothing here starts a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeAlias, TypeVar, cast

from attrs import define, evolve, field, frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.batch_plan import BatchPlan, BatchRequest, plan_batch
from netplug_core.datastore.cache import DatastoreCache
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction, is_too_old
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.records import (
    MAX_COMMIT_WRITES,
    CommitError,
    Decision,
    NeedMore,
    OutcomeUnknown,
    Query,
    Snapshot,
)

__all__ = ["BatchTransactor", "RequestQueue", "run_batch"]

R = TypeVar("R")

Outcome: TypeAlias = Decision[object] | NetplugError
"""What became of a request: its decision, which is committed, or the error to raise."""


def run_batch(
    store: Datastore,
    requests: Sequence[BatchRequest],
    *,
    cache: DatastoreCache | None = None,
    max_writes: int = MAX_COMMIT_WRITES,
) -> list[Outcome]:
    """Run requests, as many as possible in one commit; one outcome for each, in their order."""
    outcomes: dict[int, Outcome] = {}
    waiting = list(range(len(requests)))
    while waiting:
        batch = _Batch(store, [requests[number] for number in waiting], cache, max_writes)
        outcomes.update((waiting[place], outcome) for place, outcome in batch.run().items())
        waiting = [number for number in waiting if number not in outcomes]
    return [outcomes[number] for number in range(len(requests))]


@define(eq=False)
class _Batch:
    """One commit for as many requests as it can serve, and the requests that have to run alone."""

    store: Datastore
    requests: list[BatchRequest]
    cache: DatastoreCache | None
    max_writes: int
    read_at_s: float = 0.0

    def run(self) -> dict[int, Outcome]:
        """The outcomes of all requests, but for those that found the commit full."""
        try:
            plan = self._plan()
        except Unavailable as error:
            return self._fail_together(error, range(len(self.requests)))
        except NetplugError:  # such as a record that only one of the requests asks for and that cannot be decoded
            return self._run_alone(range(len(self.requests)))
        return {
            **self._commit(plan),
            **self._run_alone(plan.alone),
            **self._run_alone(plan.unconfirmed, is_confirmed=False),
        }

    def _plan(self) -> BatchPlan:
        """Read what the requests need, from the cache if it has it, and plan."""
        wanted = tuple(
            dict.fromkeys(
                [query for request in self.requests for query in request.transaction.first_queries(request.queries)]
            )
        )
        snapshot, is_from_cache = Snapshot.empty(), False
        self.read_at_s = self.requests[0].transaction.pace.clock.monotonic()
        if self.cache is not None:
            absent = [query for request in self.requests for query in request.transaction.assume_absent]
            snapshot, wanted = self.cache.begin(wanted, absent, self._read)
            is_from_cache = bool(snapshot.results)
            self.read_at_s -= (self.cache.max_age_s or 0.0) if is_from_cache else 0.0
        while True:
            if wanted:
                snapshot = snapshot.merged(self._read(wanted))
            plan = plan_batch(self.requests, snapshot, is_from_cache=is_from_cache, max_writes=self.max_writes)
            wanted = plan.needed
            if not wanted:
                return plan
            if is_from_cache and self.cache is not None:
                known, wanted = self.cache.lookup(wanted)
                snapshot = snapshot.merged(known)

    def _read(self, queries: tuple[Query, ...]) -> Snapshot:
        reading = self.store.read if self.cache is None else partial(self.cache.read, self.store)
        found = reading(queries, deadline=self._deadline(self.requests))
        for request in self.requests:
            request.transaction.note_read(found)
        return found

    def _commit(self, plan: BatchPlan) -> dict[int, Outcome]:
        served = plan.decisions.keys()
        if plan.writes and is_too_old(self.store, self.requests[0].transaction.pace.clock, self.read_at_s):
            return self._run_alone(served)
        if plan.writes:
            began = self.cache.state if self.cache is not None else None
            try:
                deadline = self._deadline([self.requests[number] for number in served])
                revisions = self.store.commit(plan.writes, deadline=deadline)
            except BaseException as error:  # an interrupt too: writes may be applied that the cache does not know of
                self._note_commit(plan, error)
                if self.cache is not None:
                    self.cache.invalidate()
                if isinstance(error, Unavailable) and type(error) is Unavailable:
                    return self._fail_together(error, served)
                if isinstance(error, NetplugError):
                    return self._run_alone(served)
                raise
            self._note_commit(plan, None)
            if self.cache is not None:
                self.cache.apply_writes(plan.writes, revisions, began=began)
        return {
            number: decision.result if isinstance(decision.result, NetplugError) else decision
            for number, decision in plan.decisions.items()
        }

    def _note_commit(self, plan: BatchPlan, error: BaseException | None) -> None:
        """Let each request note what became of its own writes."""
        for number, decision in plan.decisions.items():
            if not decision.writes:
                continue
            own_error = error
            if isinstance(error, (CommitError, OutcomeUnknown)):
                applied = sum(position < error.applied for position in plan.own_positions[number])
                own_error = evolve(error, applied=applied)
            self.requests[number].transaction.note_commit(decision.writes, own_error)

    def _run_alone(self, numbers: Iterable[int], *, is_confirmed: bool = True) -> dict[int, Outcome]:
        """Run requests one by one; those whose decisions no commit confirms, from a read."""
        outcomes: dict[int, Outcome] = {}
        for number in numbers:
            request = self.requests[number]
            transaction = request.transaction if is_confirmed else evolve(request.transaction, may_use_cache=False)
            if self.cache is not None and not is_confirmed:
                self.cache.invalidate()
            try:
                outcomes[number] = transaction.run(request.queries, request.decide)
            except NetplugError as error:
                outcomes[number] = error
        return outcomes

    def _fail_together(self, error: Unavailable, numbers: Iterable[int]) -> dict[int, Outcome]:
        """The store did not answer in time: the error of all requests, or of those whose time is over.

        The others are tried again, because the earliest deadline limits a call for all. Each error is a value of its
        own, because callers add notes to it.
        """
        numbers = tuple(numbers)
        late = [number for number in numbers if self.requests[number].transaction.pace.deadline.has_passed]
        return {number: evolve(error) for number in late or numbers}

    def _deadline(self, requests: Iterable[BatchRequest]) -> Deadline:
        """The earliest deadline of some requests, and at most that of one call."""
        earliest = min((request.transaction.pace.deadline for request in requests), key=lambda deadline: deadline.at)
        return earliest.capped(CALL_TIMEOUT_S)


# --- a queue ----------------------------------------------------------------------------------------------------------


@define(eq=False)
class _Ticket:
    request: BatchRequest
    outcome: Outcome | None = None


@define(eq=False, kw_only=True)
class RequestQueue:
    """Requests of many callers that wait for the next commit.

    ``turn`` is entered before a caller commits for all that wait: a process with threads gives a lock, so that one
    commit is in flight and the callers behind it share the next one.
    """

    store: Datastore
    cache: DatastoreCache | None = None
    turn: Callable[[], AbstractContextManager[object]] = nullcontext
    max_writes: int = MAX_COMMIT_WRITES
    _waiting: deque[_Ticket] = field(factory=deque, init=False)  # threads append at any time

    def run(self, request: BatchRequest) -> Decision[object]:
        """Wait for the commit of a request, or make it; see ``Transactor.run`` for what is raised."""
        ticket = _Ticket(request)
        self._waiting.append(ticket)
        with self.turn():
            if ticket.outcome is None:
                self._flush()
        if isinstance(ticket.outcome, NetplugError):
            raise ticket.outcome
        return cast("Decision[object]", ticket.outcome)

    def _flush(self) -> None:
        tickets = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            outcomes = run_batch(
                self.store, [ticket.request for ticket in tickets], cache=self.cache, max_writes=self.max_writes
            )
        except BaseException:
            for ticket in tickets:
                ticket.outcome = OutcomeUnknown(self.store.description.location, "the batch was interrupted")
            raise
        for ticket, outcome in zip(tickets, outcomes, strict=True):
            ticket.outcome = outcome


@frozen(eq=False)
class BatchTransactor:
    """The :class:`~netplug_core.datastore.transaction.Transactor` of a request that may share its commit."""

    queue: RequestQueue
    transaction: Transaction

    def run(self, queries: Sequence[Query], decide: Callable[[Snapshot], Decision[R] | NeedMore]) -> Decision[R]:
        """Commit what ``decide`` decides, as :meth:`~netplug_core.datastore.transaction.Transactor.run` says."""
        return cast("Decision[R]", self.queue.run(BatchRequest(self.transaction, tuple(queries), decide)))
