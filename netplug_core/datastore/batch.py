"""Many requests in one commit: what a process that serves many callers uses in place of one transaction for each.

Requests that wait while a commit is in flight are decided one after the other and go into one commit, which
a plan makes of them. :func:`run_batch` reads, plans and commits, once. A request that cannot share a commit,
and every request of a commit that fails, runs alone: in its own ``Transaction`` and in its own caller's thread, so that
no other one has its conflicts, its waits and its errors. :class:`RequestQueue` collects requests. Nothing here starts a
thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from typing import TypeAlias, TypeVar

from attrs import Factory, define, evolve, field, frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction, decide_behind, is_too_old
from netplug_core.datastore.view import View
from netplug_core.datastore.write_set import apply_writes
from netplug_core.errors import NetplugError, Unavailable, narrow
from netplug_core.locks import Signal, Turn, TurnPlace
from netplug_core.records import (
    ABSENT,
    MAX_COMMIT_WRITES,
    CommitError,
    Create,
    Decision,
    Delete,
    Key,
    NeedMore,
    OutcomeUnknown,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    Write,
    Written,
)

__all__ = [
    "BatchPlan", "BatchRequest", "BatchTransactor", "NextStep", "RequestQueue", "plan_batch", "run_batch",
]  # fmt: skip


# --- which requests share a commit ------------------------------------------------------------------------------------


_ChangeWrite: TypeAlias = Create[object] | Update[object] | Delete[object]


@frozen(eq=False)
class BatchRequest:
    """One request: what it reads, its rule, and the transaction that runs it if it has to run alone."""

    transaction: Transaction
    queries: tuple[Query, ...]
    decide: Callable[[Snapshot], Decision[object] | NeedMore]


@frozen(eq=False, kw_only=True)
class BatchPlan:
    """One commit for some requests, which are named by their positions.

    ``decisions``: the requests that the commit serves; one without writes depends on the writes of those before it.
    ``own_positions``: for each write of such a request its position in ``writes``; -1 if an earlier request's write
    implies it. ``needed``: queries to read before the requests in ``undecided`` can be decided. ``alone``: requests
    that cannot share a commit. ``unconfirmed``: those that no commit would confirm, so they are decided from a read,
    alone too. ``later``: requests that found the commit full.
    """

    writes: tuple[Write, ...]
    decisions: Mapping[int, Decision[object]]
    own_positions: Mapping[int, tuple[int, ...]]
    needed: tuple[Query, ...] = ()
    undecided: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()
    unconfirmed: tuple[int, ...] = ()
    later: tuple[int, ...] = ()


def plan_batch(
    requests: Sequence[BatchRequest],
    snapshot: Snapshot,
    *,
    is_from_cache: bool = False,
    max_writes: int = MAX_COMMIT_WRITES,
) -> BatchPlan:
    """Decide requests in their order, each on the writes of those before it, and make one commit of the decisions.

    A request runs alone if its decision cannot be repeated, has to be confirmed by a read, or deletes and creates what
    others of the batch write, or if its writes would need another order than theirs.
    """
    planner = _Planner(snapshot, _MergedWrites(snapshot), is_from_cache, max_writes)
    for number, request in enumerate(requests):
        planner.add(number, request)
    return planner.plan()


@define(eq=False)
class _Planner:
    """A plan in the making; see :class:`BatchPlan`."""

    read: Snapshot
    merged: _MergedWrites
    is_from_cache: bool
    max_writes: int
    decisions: dict[int, Decision[object]] = Factory(dict)
    places: dict[int, list[_Place]] = Factory(dict)
    needed: dict[Query, None] = Factory(dict)
    undecided: list[int] = Factory(list)
    alone: list[int] = Factory(list)
    unconfirmed: list[int] = Factory(list)
    later: list[int] = Factory(list)

    def add(self, number: int, request: BatchRequest) -> None:
        """Decide one more request, and add its writes to the commit if they go together."""
        decision = _decide(request, self.merged.snapshot())
        if isinstance(decision, NeedMore):
            missing = [query for query in decision.queries if query not in self.read.results]
            self.needed.update(dict.fromkeys(missing))
            (self.undecided if missing else self.alone).append(number)
            return
        if decision is not None and self.is_from_cache and not request.transaction.is_confirmed_by_commit(decision):
            self.unconfirmed.append(number)
            return
        candidate = self.merged.with_request(decision.writes) if decision is not None and _may_share(decision) else None
        if decision is None or candidate is None:
            self.alone.append(number)
        elif decision.writes and self.decisions and len(candidate[0]) > self.max_writes:
            self.later.append(number)
        else:
            self.merged, self.places[number] = candidate
            self.decisions[number] = decision

    def plan(self) -> BatchPlan:
        """The plan for the requests so far."""
        writes, positions = self.merged.in_order()
        return BatchPlan(
            writes=writes,
            decisions=self.decisions,
            own_positions={number: tuple(map(positions.__getitem__, own)) for number, own in self.places.items()},
            needed=tuple(self.needed),
            undecided=tuple(self.undecided),
            alone=tuple(self.alone),
            unconfirmed=tuple(self.unconfirmed),
            later=tuple(self.later),
        )


def _decide(request: BatchRequest, snapshot: Snapshot) -> Decision[object] | NeedMore | None:
    """The request's decision; None if it has to run alone, to raise its error or because its time is over."""
    if request.transaction.pace.deadline.has_passed:
        return None
    try:
        return decide_behind(request.transaction.gate, snapshot, request.decide)
    except Exception:  # noqa: BLE001  whatever it is, the rule raises it again to its own caller
        return None


def _may_share(decision: Decision[object]) -> bool:
    return decision.is_repeatable or not decision.writes


# --- one commit of many -----------------------------------------------------------------------------------------------

_Place: TypeAlias = Write | int | None
"""A write of a request in the merged commit: a condition, the number of a change, or None where it is implied."""


@define(eq=False)
class _MergedWrites:
    """The writes of the requests so far.

    ``changes`` are the changes, with the set of those that must come before each in ``before``. ``last`` has the
    newest change of each key, and ``tokens`` stands for its revision, which the store has yet to make. ``known`` is
    what the last request was decided on; its own writes, with their revisions, are in ``newest``.
    """

    known: Snapshot
    conditions: dict[Write, None] = Factory(dict)
    changes: list[_ChangeWrite] = Factory(list)
    before: list[frozenset[int]] = Factory(list)
    last: dict[Key[object], int] = Factory(dict)
    tokens: dict[Key[object], Revision] = Factory(dict)
    token_count: int = 0
    newest: tuple[Sequence[Write], Sequence[Revision]] = ((), ())

    def snapshot(self) -> Snapshot:
        """What the next request is decided on: what was read, as it is after these writes."""
        if self.newest[0]:
            self.known, self.newest = apply_writes(self.known, *self.newest), ((), ())
        return self.known

    def __len__(self) -> int:
        return len(self.conditions) + len(self.changes)

    def with_request(self, writes: Sequence[Write]) -> tuple[_MergedWrites, list[_Place]] | None:
        """These writes and those of one more request; None if they do not go together."""
        merged = _MergedWrites(
            self.snapshot(), dict(self.conditions), list(self.changes), list(self.before), dict(self.last),
            dict(self.tokens), self.token_count,
        )  # fmt: skip
        places: list[_Place] = []
        own: dict[Key[object], int] = {}
        newest = -1
        for write in writes:
            if isinstance(write, (Require, RequireUnchanged)):
                if not merged._add_condition(write, places):
                    return None
                continue
            number = merged._add_change(write, own.get(write.key))
            if number is None:
                return None
            if newest >= 0 and number != newest:
                merged.before[number] |= {newest}
            own[write.key] = newest = number
            places.append(number)
        if len(merged._sorted()) < len(merged.changes):
            return None
        tokens = [Revision(f"pending {merged.token_count + position}") for position in range(len(writes))]
        merged.token_count += len(writes)
        for write, token in zip(writes, tokens, strict=True):
            if not isinstance(write, (Require, RequireUnchanged)):
                merged.tokens[write.key] = token
        merged.newest = (writes, tokens)
        return merged, places

    def _add_condition(self, write: Require[object] | RequireUnchanged[object], places: list[_Place]) -> bool:
        """Whether a condition can hold; one about a key that an earlier request writes holds already, or never."""
        if isinstance(write, RequireUnchanged) or write.key not in self.last:
            self.conditions[write] = None
            places.append(write)
            return True
        places.append(None)
        is_deleted = isinstance(self.changes[self.last[write.key]], Delete)
        return is_deleted if write.revision is ABSENT else write.revision == self.tokens[write.key]

    def _add_change(self, write: _ChangeWrite, own: int | None) -> int | None:
        """The number of a change; one to a key that an earlier request wrote last is folded into that change."""
        place = self.last.get(write.key)
        if place is None or own is not None:
            if own is not None and not isinstance(write, Create):
                write = evolve(write, revision=Written(own))
            self.changes.append(write)
            self.before.append(frozenset() if own is None else frozenset({own}))
            self.last[write.key] = len(self.changes) - 1
            return len(self.changes) - 1
        folded = _fold(self.changes[place], write, self.tokens[write.key])
        if folded is None:
            return None
        self.changes[place] = folded
        return place

    def in_order(self) -> tuple[tuple[Write, ...], Mapping[_Place, int]]:
        """The commit, conditions first, and the position of each of its writes."""
        order = self._sorted()
        positions: dict[_Place, int] = dict(zip(self.conditions, range(len(self.conditions)), strict=True))
        positions.update(zip(order, range(len(self.conditions), len(self)), strict=False))
        positions[None] = -1
        moved = [
            evolve(change, revision=Written(positions[change.revision.index]))
            if not isinstance(change, Create) and isinstance(change.revision, Written)
            else change
            for change in map(self.changes.__getitem__, order)
        ]
        return (*self.conditions, *moved), positions

    def _sorted(self) -> list[int]:
        """The changes in an order that keeps that of each request; shorter if there is none."""
        open_count = [len(before) for before in self.before]
        followers: dict[int, list[int]] = {}
        for number, before in enumerate(self.before):
            for earlier in before:
                followers.setdefault(earlier, []).append(number)
        ready = [number for number, count in enumerate(open_count) if not count]
        order: list[int] = []
        while ready:
            number = heappop(ready)
            order.append(number)
            for follower in followers.get(number, ()):
                open_count[follower] -= 1
                if not open_count[follower]:
                    heappush(ready, follower)
        return order


def _fold(earlier: _ChangeWrite, write: _ChangeWrite, token: Revision) -> _ChangeWrite | None:
    """One write in place of two requests' writes to a key; None if the second has to wait for the first's commit."""
    if isinstance(write, Create) or isinstance(earlier, Delete) or write.revision != token:
        return None
    if isinstance(write, Update):
        return evolve(earlier, value=write.value)
    return None if isinstance(earlier, Create) else Delete(write.key, earlier.revision)


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
    cache: View | None = None,
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
    cache: View | None
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
            began, began_s = self.cache.revisions if self.cache is not None else None, clock.monotonic()
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


# --- the queue --------------------------------------------------------------------------------------------------------


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
    cache: View | None = None
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
        return narrow(self.queue.run(BatchRequest(self.transaction, tuple(queries), decide)), Decision)
