"""Read, decide, commit, and again after a conflict: the one loop around a write, and lists that are read page by page.

A decision is a pure function of a snapshot; ``Transaction`` reads what it asks for, commits what it writes, and starts
over if it lost the race or the reply. ``read_pages`` is for flows that only read; a decision asks for its pages itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Protocol, TypeVar

from attrs import define, evolve, field

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, FRESH_S, LIST_TIMEOUT_S, Atomicity, Datastore
from netplug_core.errors import ContentionExhausted, NetplugError, Unavailable
from netplug_core.locks import no_lock
from netplug_core.records import (
    PAGE_SIZE,
    CommitError,
    Create,
    Decision,
    Delete,
    Get,
    Kind,
    List,
    Malformed,
    NeedMore,
    OutcomeUnknown,
    Query,
    ReadResult,
    Record,
    Revision,
    Snapshot,
    Update,
    Write,
    WriteGate,
)

if TYPE_CHECKING:
    from netplug_core.datastore.view import View

__all__ = [
    "LATEST_COMMIT_S", "CommitObserver", "Transaction", "Transactor", "decide_behind", "is_too_old",
    "read_lists", "read_pages",
]  # fmt: skip


# --- one transaction --------------------------------------------------------------------------------------------------


R = TypeVar("R")

LATEST_COMMIT_S = FRESH_S + CALL_TIMEOUT_S
"""How long a commit to an ordered store may still be made that rests on what is not true any more.

It begins at most ``FRESH_S`` after that was true, and takes at most one call's time.
"""

_NOTHING_READ = Snapshot.empty()


def decide_behind(
    gate: WriteGate | None, snapshot: Snapshot, decide: Callable[[Snapshot], Decision[R] | NeedMore]
) -> Decision[R] | NeedMore:
    """The decision of a rule behind a gate: a refusal, or the rule's own with the gate's condition first."""
    if gate is None:
        return decide(snapshot)
    condition = gate.check(snapshot)
    if isinstance(condition, NetplugError):
        return Decision((), condition)
    decision = decide(snapshot)
    if isinstance(decision, NeedMore) or not decision.writes:
        return decision
    return decision.with_writes((condition,))


class Transactor(Protocol):
    """Runs a rule against a datastore: reads what it needs, and commits what it decides."""

    def run(self, queries: Sequence[Query], decide: Callable[[Snapshot], Decision[R] | NeedMore]) -> Decision[R]:
        """Commit what ``decide`` decides and return the decision; its result is not an error.

        Raises:
            NetplugError: the error that is the result of the decision, after its writes are committed.
            ContentionExhausted: other writers were faster in every attempt until the deadline.
            OutcomeUnknown: the reply was lost, and the decision cannot be repeated or no time is left.
            Unavailable: the store does not answer.
        """
        ...


def is_too_old(store: Datastore, clock: Clock, read_at_s: float) -> bool:
    """Whether a decision from what was read then has to be made again before its commit.

    An ordered store does not check whether what was read still holds. So a commit begins at most ``FRESH_S`` after the
    oldest of it was known to be true, and takes at most one call's time; see ``LATEST_COMMIT_S``.
    """
    is_ordered = store.description.atomicity is Atomicity.ORDERED
    return is_ordered and clock.monotonic() - read_at_s > FRESH_S


class CommitObserver(Protocol):
    """Notes what a transaction read and what it may have written, so that a caller can clean up after a failure."""

    def note_read(self, snapshot: Snapshot) -> None:
        """Note an answer of the store."""
        ...

    def note_commit(self, writes: Sequence[Write], error: BaseException | None) -> None:
        """Note the end of a commit, before the cache is changed; ``error`` is None if all writes are applied."""
        ...


@define  # not frozen: each call makes one, and a frozen object takes three times as long to make
class Transaction:
    """The :class:`Transactor` of a single call.

    ``gate``: the rule is asked, and its writes are committed, only while the gate allows it. Without a gate nothing
    is checked. ``cache``: the first attempt decides on what the cache knows and reads the rest. ``assume_absent``:
    queries that the first attempt takes to find nothing if the cache knows anything, because the call is about to
    create these records. A decision from the cache that commits nothing, or does not create what was assumed to be
    absent, is not confirmed by any condition. It is made again from a read, like every later attempt. So is one that
    met a damaged record, or that does not write a cached record of a kind that others change all the time
    (``NonExpiring.views``). One that says what it rests on stands if that was read for it (``Decision.depends_on``).

    ``revisions`` are those of the last commit, one for each of its writes, the gate's included; empty if it failed.

    ``may_use_cache`` is false if the caller knows already that the first attempt has to be made from a read.
    ``turn`` is held from a read to its commit, so that calls which would only make each other's commits fail go one
    after another. It is not held while the transaction waits to try again, nor after a commit without an answer: no
    other call has to wait for the conflicts and time-outs of this one.
    """

    store: Datastore
    pace: Pace
    gate: WriteGate | None = None
    cache: View | None = None
    assume_absent: tuple[Query, ...] = ()
    observer: CommitObserver | None = None
    may_use_cache: bool = True
    turn: Callable[[Deadline], AbstractContextManager[object]] = no_lock
    revisions: tuple[Revision, ...] = field(default=(), init=False)

    def note_read(self, snapshot: Snapshot) -> None:
        """Let the observer note an answer of the store."""
        if self.observer is not None:
            self.observer.note_read(snapshot)

    def note_commit(self, writes: Sequence[Write], error: BaseException | None) -> None:
        """Let the observer note the end of a commit."""
        if self.observer is not None:
            self.observer.note_commit(writes, error)

    def is_confirmed_by_commit(self, decision: Decision[object]) -> bool:
        """Whether the commit of a decision proves what was only cached or assumed.

        What was assumed to be absent is proven only by its creation. A requirement that the store does not check proves
        nothing about a record of any age.
        """
        if not decision.writes or decision.needs_read or isinstance(decision.result, NetplugError):
            return False
        if self.cache is not None and not self.cache.non_expiring.may_rely_on(decision.writes):
            return False
        if not self.assume_absent:
            return True
        created = {write.key for write in decision.writes if isinstance(write, Create)}
        return all(isinstance(query, Get) and query.key in created for query in self.assume_absent)

    def first_queries(self, queries: Sequence[Query]) -> tuple[Query, ...]:
        """What is read before the rule is asked: what the gate needs, and what the rule does."""
        return tuple(queries) if self.gate is None else (self.gate.query, *queries)

    def run(self, queries: Sequence[Query], decide: Callable[[Snapshot], Decision[R] | NeedMore]) -> Decision[R]:
        """Commit what ``decide`` decides, as :meth:`Transactor.run` says."""
        wanted, numbers, turn = self.first_queries(queries), count(1), self.turn
        while True:
            with turn(self.pace.deadline):
                decision, error, number = self._try(numbers, wanted, decide)
            if error is not None:
                turn = no_lock if isinstance(error, OutcomeUnknown) else turn
                self._wait_before_retry(error, number, decision)
                continue
            if isinstance(decision.result, NetplugError):
                raise decision.result
            return decision

    def _try(
        self, numbers: Iterator[int], wanted: tuple[Query, ...], decide: Callable[[Snapshot], Decision[R] | NeedMore]
    ) -> tuple[Decision[R], CommitError | OutcomeUnknown | None, int]:
        """Decide, from a read if the cache does not do, and commit once; with the error of the commit if it failed."""
        while True:
            number = next(numbers)
            attempt = _Attempt(self, may_use_cache=self.may_use_cache and number == 1)
            try:
                decision = attempt.decide(wanted, decide)
            except Malformed:
                if not attempt.is_from_cache:
                    raise
                attempt.invalidate_cache()  # an outdated record may have led to one that does not matter any more
                continue
            if attempt.is_from_cache and not attempt.is_confirmed(decision):
                attempt.invalidate_cache()
                continue
            if decision.writes and is_too_old(self.store, self.pace.clock, attempt.read_at_s):
                attempt.invalidate_cache()
                attempt.require_time()
                continue
            try:
                attempt.commit(decision.writes)
            except (CommitError, OutcomeUnknown) as error:
                return decision, error, number
            return decision, None, number

    def _wait_before_retry(self, error: CommitError | OutcomeUnknown, attempt: int, decision: Decision[R]) -> None:
        """Wait before the next attempt, or raise if there can be none."""
        is_unknown = isinstance(error, OutcomeUnknown)
        if is_unknown and not decision.is_repeatable:
            raise error
        self.pace.wait(attempt)
        if not self.pace.deadline.has_passed:
            return
        if is_unknown:
            raise error
        raise ContentionExhausted(attempt, str(error)) from error


@define
class _Attempt:
    """The reads and the commit of one attempt; they keep the cache up to date."""

    of: Transaction
    may_use_cache: bool
    is_from_cache: bool = False
    read_at_s: float = 0.0
    queries: tuple[Query, ...] = ()
    read: set[Query] = field(factory=set)

    def decide(self, queries: tuple[Query, ...], decide: Callable[[Snapshot], Decision[R] | NeedMore]) -> Decision[R]:
        """The rule's decision about the store, or about the cache; with as many reads as the rule needs."""
        cache, self.queries = self.of.cache, queries
        snapshot, missing = _NOTHING_READ, queries
        self.read_at_s = self.of.pace.clock.monotonic()
        if cache is not None and self.may_use_cache:
            known = cache.begin(queries, self.of.assume_absent, self._read, deadline=self.of.pace.deadline)
            snapshot, missing = known.snapshot, known.missing
            self.is_from_cache = bool(snapshot.results)
            self.read_at_s = min(self.read_at_s, known.at_s)
        while True:
            if missing:
                snapshot = snapshot.merged(self._read(missing))
            decision = decide_behind(self.of.gate, snapshot, decide)
            if isinstance(decision, Decision):
                return decision
            self.require_time()
            missing = decision.queries
            self.queries = (*self.queries, *missing)
            if cache is not None and self.is_from_cache:
                known = cache.lookup(missing)
                snapshot, missing = snapshot.merged(known.snapshot), known.missing
                self.read_at_s = min(self.read_at_s, known.at_s)

    def is_confirmed(self, decision: Decision[object]) -> bool:
        """Whether the commit of a decision proves what it takes from the cache, or that was read for it."""
        if not self._does_write_views(decision.writes):
            return False
        return self.of.is_confirmed_by_commit(decision) or self._has_read_all(decision.depends_on)

    def _does_write_views(self, writes: Sequence[Write]) -> bool:
        """Whether each cached record that others change all the time is written, under the revision that is cached."""
        views = None if self.of.cache is None else self.of.cache.non_expiring.views
        if not views:
            return True
        cached = {query for query in self.queries if query.kind in views and query not in self.read}
        return cached <= {Get(write.key) for write in writes if isinstance(write, (Update, Delete))}

    def _has_read_all(self, depends_on: tuple[Query, ...]) -> bool:
        """Whether what a decision rests on was read for it. What its gate asks may be as old as anything that counts.

        Where the store checks requirements, what is known is not confirmed but by a commit.
        """
        cache = self.of.cache
        return (
            bool(depends_on) and cache is not None and cache.max_age_s is not None and self.read.issuperset(depends_on)
        )

    def require_time(self) -> None:
        """Raise if no time is left to read again."""
        if self.of.pace.deadline.has_passed:
            raise Unavailable(self.of.store.description.location, "the deadline passed while reading")

    def _read(self, queries: tuple[Query, ...]) -> Snapshot:
        of, deadline = self.of, self.of.pace.deadline.capped(CALL_TIMEOUT_S)
        reading = of.store.read if of.cache is None else partial(of.cache.read, of.store)
        found = reading(queries, deadline=deadline)
        self.read.update(queries)
        of.note_read(found)
        return found

    def commit(self, writes: tuple[Write, ...]) -> None:
        """Write, if there is anything to write."""
        self.of.revisions = ()
        if not writes:
            return
        cache = self.of.cache
        began, began_s = cache.revisions if cache is not None else None, self.of.pace.clock.monotonic()
        try:
            revisions = self.of.store.commit(writes, deadline=self.of.pace.deadline.capped(CALL_TIMEOUT_S))
        except BaseException as error:  # an interrupt too: writes may be applied that the cache does not know of
            self.of.note_commit(writes, error)
            self.invalidate_cache()
            raise
        self.of.note_commit(writes, None)
        self.of.revisions = revisions
        if cache is not None:
            cache.apply_writes(writes, revisions, began=began, at_s=began_s)

    def invalidate_cache(self) -> None:
        """Forget what was cached: it was out of date, or may be."""
        if self.of.cache is not None:
            self.of.cache.invalidate()


# --- lists page by page -----------------------------------------------------------------------------------------------


V = TypeVar("V")

_MAX_PAGE_SIZE = 8 * PAGE_SIZE


def read_pages(
    store: Datastore,
    kind: Kind[V],
    within: tuple[str, ...] = (),
    *,
    deadline: Deadline,
    malformed: list[Malformed] | None = None,
) -> Iterator[Record[V]]:
    """Every record of a kind whose path begins with ``within``. A page is read when its first record is needed.

    The first page is small, so that its records come soon, and each later one twice as large: for every page etcd
    counts all records that are left, which takes longer than to read a thousand of them.

    With ``malformed``, records that cannot be decoded are passed over, and their errors are added to it.

    Raises:
        Malformed: a record cannot be decoded, and ``malformed`` is not given.
        Unavailable: the store does not answer.
    """
    after, limit = "", PAGE_SIZE
    while True:
        page = List(kind, within, limit=limit, after=after)
        snapshot = store.read((page,), deadline=deadline.capped(_page_timeout_s(store)))
        if malformed is None:
            yield from snapshot.list(page)
        else:
            malformed.extend(snapshot.malformed(page))
            yield from snapshot.readable(page)
        after = snapshot.after(page)
        if not after:
            return
        limit = _next_limit(kind, limit)


def read_lists(store: Datastore, kinds: Sequence[Kind[object]], *, deadline: Deadline) -> Snapshot:
    """The answers to ``List(kind)`` for some kinds, read page by page. Each kind is as it was at its own revision.

    Errors are those of ``Datastore.read``; records that cannot be decoded are in the answers.
    """
    pages: dict[Kind[object], List[object]] = {kind: List(kind, limit=PAGE_SIZE) for kind in kinds}
    found: dict[Kind[object], list[ReadResult]] = {kind: [] for kind in kinds}
    revisions: dict[Kind[object], Revision] = {}
    while pages:
        snapshot = store.read(tuple(pages.values()), deadline=deadline.capped(_page_timeout_s(store)))
        for kind, page in tuple(pages.items()):
            found[kind].append(snapshot.results[page])
            revisions.setdefault(kind, snapshot.revision(kind))
            pages[kind] = evolve(page, after=snapshot.after(page), limit=_next_limit(kind, page.limit))
            if not pages[kind].after:
                del pages[kind]
    return Snapshot({List(kind): _joined(results) for kind, results in found.items()}, revisions)


def _next_limit(kind: Kind[object], limit: int) -> int:
    return limit if kind.is_large else min(2 * limit, _MAX_PAGE_SIZE)


def _joined(pages: Sequence[ReadResult]) -> ReadResult:
    """The answer to a whole list, of its pages. Those of a kind whose paths have several segments are in no order."""
    if len(pages) == 1:
        return pages[0]
    records = sorted(chain.from_iterable(page.records for page in pages), key=lambda record: record.key.path)
    malformed = tuple(chain.from_iterable(page.malformed for page in pages))
    return ReadResult(tuple(records), malformed=malformed)


def _page_timeout_s(store: Datastore) -> float:
    return LIST_TIMEOUT_S if store.description.lists_whole else CALL_TIMEOUT_S
