"""Many requests in one commit: what a process that serves many callers uses in place of one transaction for each.

Requests that wait while a commit is in flight are decided one after the other and go into one commit, which
``batch_plan`` makes of them. :func:`run_batch` reads, plans and commits, once. A request that cannot share a commit,
and every request of a commit that fails, runs alone: in its own ``Transaction`` and in its own caller's thread, so that
no other one has its conflicts, its waits and its errors. :class:`RequestQueue` collects requests. Nothing here starts a
thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias, TypeVar, cast

from attrs import define, evolve, field, frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.batch_plan import BatchPlan, BatchRequest, plan_batch
from netplug_core.datastore.cache import DatastoreCache
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction, is_too_old
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.locks import Signal, Turn, TurnPlace
from netplug_core.records import (
    MAX_COMMIT_WRITES,
    CommitError,
    Decision,
    NeedMore,
    OutcomeUnknown,
    Query,
    Snapshot,
)

__all__ = ["BatchTransactor", "NextStep", "RequestQueue", "run_batch"]

R = TypeVar("R")


class NextStep(enum.Enum):
    """What a request does whose outcome a batch has not settled."""

    SHARE = "wait for the next commit"
    ALONE = "run alone"
    ALONE_FROM_READ = "run alone, and decide from a read"


Outcome: TypeAlias = Decision[object] | Exception | NextStep
"""What became of a request: its decision, which is committed, the error to raise, or what it does next."""


def run_batch(
    store: Datastore,
    requests: Sequence[BatchRequest],
    *,
    cache: DatastoreCache | None = None,
    max_writes: int = MAX_COMMIT_WRITES,
    own: int = 0,
    settle: Callable[[Mapping[int, Outcome]], None] = lambda _outcomes: None,
) -> list[Outcome]:
    """Run as many requests as possible in one commit; one outcome for each, in their order.

    ``settle`` gets the outcomes of those that the commit does not serve before it begins: they need not wait for it.
    Nor does the one that makes it, which is the request ``own``: if it has less time than the commit may take, and is
    not served, the others share the next one.

    What fails for a reason that is not the store's, such as a mistake in a rule, fails for one request. All run alone
    then, and that one raises it again.
    """
    batch = _Batch(store, requests, cache, max_writes, own, settle)
    try:
        outcomes = batch.run()
    except Exception:  # noqa: BLE001  whatever it is, the request that it belongs to raises it again
        batch.invalidate_cache()
        outcomes = {}
    return [outcomes.get(number, NextStep.ALONE) for number in range(len(requests))]


@define(eq=False)
class _Batch:
    """One commit for as many requests as it can serve. Those without an outcome have to run alone."""

    store: Datastore
    requests: Sequence[BatchRequest]
    cache: DatastoreCache | None
    max_writes: int
    own: int
    settle: Callable[[Mapping[int, Outcome]], None]
    read_at_s: float = 0.0
    mistakes: dict[int, Exception] = field(factory=dict)

    def run(self) -> dict[int, Outcome]:
        """The outcomes of the requests that need not run alone."""
        try:
            plan = self._plan()
        except Unavailable as error:
            return self._fail_together(error, range(len(self.requests)))
        served = plan.decisions.keys()
        unserved: dict[int, Outcome] = {
            **dict.fromkeys(set(range(len(self.requests))) - served, NextStep.ALONE),
            **dict.fromkeys(plan.later, NextStep.SHARE),
            **dict.fromkeys(plan.unconfirmed, NextStep.ALONE_FROM_READ),
        }
        if unserved:
            self.settle(unserved)
        if self.own in unserved and plan.writes and self._remaining_s([self.own]) < self._remaining_s(served):
            return {**unserved, **dict.fromkeys(served, NextStep.SHARE), **self.mistakes}
        outcomes = self._commit(plan)
        if plan.unconfirmed:
            self.invalidate_cache()
        return {**unserved, **outcomes, **self.mistakes}

    def _remaining_s(self, numbers: Iterable[int]) -> float:
        return self._deadline([self.requests[number] for number in numbers]).remaining_s

    def invalidate_cache(self) -> None:
        """Forget what was cached: it was out of date, or may be."""
        if self.cache is not None:
            self.cache.invalidate()

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
            known = self.cache.begin(wanted, absent, self._read, deadline=self._deadline(self.requests))
            snapshot, wanted = known.snapshot, known.missing
            is_from_cache = bool(snapshot.results)
            self.read_at_s = min(self.read_at_s, known.at_s)
        while True:
            if wanted:
                snapshot = snapshot.merged(self._read(wanted))
            plan = plan_batch(self.requests, snapshot, is_from_cache=is_from_cache, max_writes=self.max_writes)
            wanted = plan.needed
            if not wanted:
                return plan
            if is_from_cache and self.cache is not None:
                known = self.cache.lookup(wanted)
                snapshot, wanted = snapshot.merged(known.snapshot), known.missing
                self.read_at_s = min(self.read_at_s, known.at_s)

    def _read(self, queries: tuple[Query, ...]) -> Snapshot:
        reading = self.store.read if self.cache is None else partial(self.cache.read, self.store)
        found = reading(queries, deadline=self._deadline(self.requests))
        for number, request in enumerate(self.requests):
            with self._blamed_on(number):
                request.transaction.note_read(found)
        return found

    def _commit(self, plan: BatchPlan) -> dict[int, Outcome]:
        served = plan.decisions.keys()
        clock = self.requests[0].transaction.pace.clock
        if plan.writes and is_too_old(self.store, clock, self.read_at_s):
            return {}
        if plan.writes:
            began, began_s = self.cache.state if self.cache is not None else None, clock.monotonic()
            try:
                deadline = self._deadline([self.requests[number] for number in served])
                revisions = self.store.commit(plan.writes, deadline=deadline)
            except BaseException as error:  # an interrupt too: writes may be applied that the cache does not know of
                self.invalidate_cache()
                self._note_commit(plan, error)
                if isinstance(error, Unavailable) and type(error) is Unavailable:
                    return self._fail_together(error, served)
                if isinstance(error, Exception):
                    return {}
                raise
            self._note_commit(plan, None)
            if self.cache is not None:
                self.cache.apply_writes(plan.writes, revisions, began=began, at_s=began_s)
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
            with self._blamed_on(number):
                self.requests[number].transaction.note_commit(decision.writes, own_error)

    @contextmanager
    def _blamed_on(self, number: int) -> Iterator[None]:
        """What a request's observer raises is that request's error, and stops no other."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  its own caller raises it
            self.mistakes[number] = error

    def _fail_together(self, error: Unavailable, numbers: Iterable[int]) -> dict[int, Outcome]:
        """The store did not answer in time: the error of all requests, or of those whose time is over.

        The others share the next commit, because the earliest deadline limits a call for all. Each error is a value of
        its own, because callers add notes to it.
        """
        numbers = tuple(numbers)
        late = [number for number in numbers if self.requests[number].transaction.pace.deadline.has_passed]
        errors: dict[int, Outcome] = {number: evolve(error) for number in late or numbers}
        return {number: errors.get(number, NextStep.SHARE) for number in numbers}

    def _deadline(self, requests: Iterable[BatchRequest]) -> Deadline:
        """The earliest deadline of some requests, and at most that of one call."""
        earliest = min((request.transaction.pace.deadline for request in requests), key=lambda deadline: deadline.at)
        return earliest.capped(CALL_TIMEOUT_S)


# --- a queue ----------------------------------------------------------------------------------------------------------


@define(eq=False)
class _Ticket:
    """A request in the queue. ``is_taken``: a thread makes the commit for it; ``settled`` is for who waits for that."""

    request: BatchRequest
    place: TurnPlace
    is_taken: bool = False
    outcome: Outcome | None = None
    settled: Signal | None = None


@define(eq=False, kw_only=True)
class RequestQueue:
    """Requests of many callers that wait for the next commit.

    The caller whose ``turn`` it is commits for all that wait: so one commit is in flight, and the callers behind it
    share the next one. No caller waits longer than its deadline. The calls that a batch makes to the store end by the
    earliest deadline of its requests. A caller commits for all once, whatever becomes of the others; one whose turn
    does not come in half of its time commits without it. A request that runs alone has a turn for each attempt.
    """

    store: Datastore
    cache: DatastoreCache | None = None
    turn: Turn = field(factory=Turn)
    max_writes: int = MAX_COMMIT_WRITES
    _waiting: list[_Ticket] = field(factory=list, init=False)

    def run(self, request: BatchRequest) -> Decision[object]:
        """Wait for the commit of a request, or make it; see ``Transactor.run`` for what is raised."""
        outcome: Outcome = NextStep.SHARE
        while outcome is NextStep.SHARE:
            outcome = self._share(request)
        if isinstance(outcome, Decision):
            return outcome
        if isinstance(outcome, Exception):
            raise outcome
        alone = evolve(request.transaction, turn=self.turn.taken)
        if outcome is NextStep.ALONE_FROM_READ:
            alone.may_use_cache = False
        return alone.run(request.queries, request.decide)

    def _share(self, request: BatchRequest) -> Outcome:
        """Commit for all that wait, or wait until another caller has."""
        ticket = _Ticket(request, self.turn.join())
        with self.turn.guard:
            self._waiting.append(ticket)
        try:
            ticket.place.wait(request.transaction.pace.deadline)  # or until another caller has settled it
            taken = self._take(ticket)
            if taken:
                self._commit(taken, taken.index(ticket))
        finally:
            self._withdraw(ticket)
        return self._outcome(ticket)

    def _take(self, ticket: _Ticket) -> Sequence[_Ticket]:
        """All requests that wait, for their caller to commit them; none if its own does not wait any more."""
        with self.turn.guard:
            if ticket.is_taken:
                return ()
            taken, self._waiting = self._waiting, []
            for each in taken:
                each.is_taken = True
        for each in taken:
            if each is not ticket:
                self.turn.leave(each.place)
        return taken

    def _withdraw(self, ticket: _Ticket) -> None:
        """Leave the queue, also after an interrupt."""
        with self.turn.guard:
            if not ticket.is_taken:
                self._waiting.remove(ticket)
        self.turn.leave(ticket.place)

    def _commit(self, tickets: Sequence[_Ticket], own: int) -> None:
        """Commit for all; who is interrupted leaves the others to themselves."""
        outcomes: Sequence[Outcome] = [NextStep.ALONE] * len(tickets)

        def settle(settled: Mapping[int, Outcome]) -> None:
            self._settle([(tickets[number], outcome) for number, outcome in settled.items()])

        try:
            requests = [ticket.request for ticket in tickets]
            outcomes = run_batch(
                self.store, requests, cache=self.cache, max_writes=self.max_writes, own=own, settle=settle
            )
        finally:
            self._settle(list(zip(tickets, outcomes, strict=True)))

    def _settle(self, outcomes: Sequence[tuple[_Ticket, Outcome]]) -> None:
        """Let callers know; a request that is settled already stays so."""
        with self.turn.guard:
            new = [(ticket, outcome) for ticket, outcome in outcomes if ticket.outcome is None]
            for ticket, outcome in new:
                ticket.outcome = outcome
        for ticket, _ in new:
            ticket.place.wake()
            if ticket.settled is not None:
                ticket.settled.set()

    def _outcome(self, ticket: _Ticket) -> Outcome:
        """What became of a request that is taken; waits for it."""
        with self.turn.guard:
            if ticket.outcome is None:
                ticket.settled = self.turn.make_signal()
        while ticket.outcome is None:
            assert ticket.settled is not None  # noqa: S101  made above
            ticket.settled.wait()
        return ticket.outcome


@frozen(eq=False)
class BatchTransactor:
    """The :class:`~netplug_core.datastore.transaction.Transactor` of a request that may share its commit."""

    queue: RequestQueue
    transaction: Transaction

    def run(self, queries: Sequence[Query], decide: Callable[[Snapshot], Decision[R] | NeedMore]) -> Decision[R]:
        """Commit what ``decide`` decides, as :meth:`~netplug_core.datastore.transaction.Transactor.run` says."""
        return cast("Decision[R]", self.queue.run(BatchRequest(self.transaction, tuple(queries), decide)))
