"""What a process knows of a store between its calls, so that a call can begin without a read.

A transaction looks here first, and adds what it reads and writes. Correctness does not depend on the cache: a commit
carries conditions for everything that its decision depends on, so an outdated record costs a conflict and a new read,
never a wrong address. For a store that does not check such conditions the age of what is known is limited instead
(``FRESH_S``), but for records that are used only as the condition of a write on themselves (``Lasting``).

``cached_state`` is a pure value. :class:`DatastoreCache` holds the current one and replaces it whole. ``feed``
keeps some kinds true by a watch, and reads again what calls use before it is too old for them; the other kinds are as
the process last read or wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf

from attrs import define, evolve, field

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.cached_state import NOTHING_LASTS, CachedState, CachePolicy, Known, Lasting
from netplug_core.datastore.protocol import FRESH_S, Atomicity, Datastore, LiveWatch
from netplug_core.locks import no_lock
from netplug_core.records import (
    Kind,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Write,
)

__all__ = ["DatastoreCache"]


def _do_nothing() -> None:
    pass


@define
class DatastoreCache:
    """The cache of one store: the smallest holder of a :class:`CachedState`, which is replaced whole.

    ``uncached_kinds`` are not kept, because there is a record for every workload. Of ``uncached_absent_kinds`` only
    records that exist are kept: who creates a block looks for all those that it would overlap. Every change goes
    through ``guard``: a process with threads gives a lock, so that no change is lost. When there are more than
    ``max_results`` answers, the cache starts anew, so that records which others deleted do not stay for ever.
    ``max_age_s`` limits the age of what is not in ``lasting``; None: there is no need to. ``watch`` is the one that
    keeps the watched kinds true, if it says how far it has come. ``endpoint_watch`` is the one that keeps those
    endpoints true that are views of the node's pods; while there is none, they are read for each call.

    What is too old is read by one caller, while others wait for ``refreshing``, at most until their deadline.
    ``used`` has what calls have relied on since it was read: who reads in the background reads that again, and nothing
    while there are no calls. ``on_use`` is called when there is more of it.
    """

    clock: Clock
    uncached_kinds: frozenset[Kind[object]]
    max_age_s: float | None = None
    uncached_absent_kinds: frozenset[Kind[object]] = frozenset()
    max_results: int | None = None
    guard: AbstractContextManager[object] = field(factory=nullcontext)
    lasting: Lasting = NOTHING_LASTS
    refreshing: Callable[[Deadline], AbstractContextManager[object]] = no_lock
    on_use: Callable[[], None] = _do_nothing
    used: set[Query] = field(factory=set, init=False)
    state: CachedState = field(factory=CachedState, init=False)
    watch: LiveWatch | None = field(default=None, init=False)
    endpoint_watch: LiveWatch | None = field(default=None, init=False)

    @classmethod
    def for_datastore(
        cls,
        datastore: Datastore,
        *,
        clock: Clock,
        uncached_kinds: frozenset[Kind[object]],
        uncached_absent_kinds: frozenset[Kind[object]] = frozenset(),
        max_results: int | None = None,
        guard: AbstractContextManager[object] | None = None,
    ) -> DatastoreCache:
        """An empty cache for a store, with the age limit that the store needs."""
        is_atomic = datastore.description.atomicity is Atomicity.ATOMIC
        return cls(
            clock=clock,
            uncached_kinds=uncached_kinds,
            max_age_s=None if is_atomic else FRESH_S,
            uncached_absent_kinds=uncached_absent_kinds,
            max_results=max_results,
            guard=nullcontext() if guard is None else guard,
        )

    @property
    def policy(self) -> CachePolicy:
        """What it keeps, and for how long."""
        return CachePolicy(
            uncached=self.uncached_kinds,
            uncached_absent=self.uncached_absent_kinds,
            max_age_s=self.max_age_s,
            lasting=self.lasting,
        )

    def lookup(self, queries: Sequence[Query], assume_absent: Sequence[Query] = ()) -> Known:
        """What is known, and which of the queries have to be read.

        ``assume_absent`` are queries that are taken to find nothing if other answers are known, but not theirs: the
        call is about to create these records. If one exists after all, the create fails.
        """
        if self.max_age_s is None:
            return self.state.lookup(queries, assume_absent)
        oldest_s = self.clock.monotonic() - self.max_age_s
        known = self.state.lookup(queries, assume_absent, oldest_s=oldest_s)
        if known.missing and self.note_progress():
            known = self.state.lookup(queries, assume_absent, oldest_s=oldest_s)
        if not self.used.issuperset(known.aging):
            self.used.update(known.aging)
            self.on_use()
        return known

    def begin(
        self,
        queries: Sequence[Query],
        assume_absent: Sequence[Query],
        read: Callable[[tuple[Query, ...]], Snapshot],
        *,
        deadline: Deadline,
    ) -> Known:
        """What a decision may begin with, and which of the queries have to be read; see ``lookup``.

        What was known, and is too old by now, is read at once, unless another caller is about to. ``read`` is the
        caller's, and calls that of the cache.
        """
        known = self.lookup(queries, assume_absent)
        if not self._outdated(known.missing):
            return known
        with self.refreshing(deadline):
            known = self.lookup(queries, assume_absent)
            outdated = self._outdated(known.missing)
            if not outdated:
                return known
            at_s = self.clock.monotonic()
            snapshot = known.snapshot.merged(read(outdated))
            missing = tuple(query for query in known.missing if query not in snapshot.results)
            return evolve(known, snapshot=snapshot, missing=missing, at_s=min(known.at_s, at_s))

    def refresh(self, store: Datastore, *, deadline: Deadline) -> float | None:
        """Read again what calls have used, as far as it is too old by now; in how many seconds something will be.

        None: nothing that was used since it was read.
        """
        if self.max_age_s is None:
            return None
        self.note_progress()
        with self.guard:
            used, self.used = self.used, set()
        state, now_s = self.state, self.clock.monotonic()
        times = ((query, state.find_time(query)) for query in used)
        ends_s = {query: at_s + self.max_age_s for query, at_s in times if at_s is not None}
        due = {query: None for query, end_s in ends_s.items() if end_s <= now_s}
        self.used.update(ends_s.keys() - due.keys())
        if due:
            with self.refreshing(deadline):
                oldest_s = now_s - self.max_age_s
                again = [query for query in due if (self.state.find_time(query) or -inf) <= oldest_s]
                if again:
                    self.read(store, again, deadline=deadline)
        return min((max(0.0, end_s - now_s) for query, end_s in ends_s.items() if query not in due), default=None)

    def _outdated(self, queries: Sequence[Query]) -> tuple[Query, ...]:
        """Those of some unanswered queries to which there is an answer that is too old."""
        if self.max_age_s is None:
            return ()
        state = self.state
        return tuple(query for query in queries if state.find_time(query) is not None)

    def read(self, store: Datastore, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Read from the store, and keep what was read.

        If something has changed of which a watch has said nothing for so long that it does not count, the watch ends:
        it will be opened anew.
        """
        at_s = self.clock.monotonic()
        found = store.read(queries, deadline=deadline)
        watch = self.watch
        if watch is not None and self.max_age_s is not None:
            self.note_progress()
            if self.state.contradicts(found, oldest_s=at_s - self.max_age_s):
                watch.close()
        self.add_snapshot(found, at_s=at_s)
        return found

    def note_progress(self) -> bool:
        """Note how far the watch has come; whether that is further than was known."""
        watch, watched = self.watch, self.state.watched
        if watch is None:
            return False
        times_s = {kind: watch.current_until_s(kind) for kind in watched}
        later = {kind: at_s for kind, at_s in times_s.items() if at_s is not None and at_s > watched[kind]}
        if later:
            self.change(lambda state: state.confirmed(later))
        return bool(later)

    def add_snapshot(self, snapshot: Snapshot, *, at_s: float | None = None) -> None:
        """Keep what was read, and asked for at a time (None: now)."""
        asked_s = self.clock.monotonic() if at_s is None else at_s
        self.change(lambda state: state.with_snapshot(snapshot, self.policy, at_s=asked_s))

    def apply_writes(
        self,
        writes: Sequence[Write],
        revisions: Sequence[Revision],
        *,
        began: CachedState | None = None,
        at_s: float | None = None,
    ) -> None:
        """Keep what a commit wrote, which began at a state and a time (None: at the present ones)."""
        began_s = self.clock.monotonic() if at_s is None else at_s
        policy = self.policy
        self.change(lambda now: now.with_writes(writes, revisions, policy, began=began or now, at_s=began_s))

    def may_rely_on(self, writes: Sequence[Write]) -> bool:
        """Whether a decision from the cache with these writes requires only what the store checks, or is not old."""
        kinds = self.lasting.kinds
        return not kinds or not any(_required_kind(write) in kinds for write in writes)

    def forget(self, queries: Iterable[Query]) -> None:
        """Forget the answers to some queries."""
        forgotten = frozenset(queries)
        self.change(lambda state: state.without_answers(forgotten))

    def invalidate(self) -> None:
        """Forget what was read and written; the next call reads. Watched kinds stay: their watch corrects them."""
        self.change(CachedState.without_reads)

    def change(self, change: Callable[[CachedState], CachedState]) -> None:
        """Replace the state by a function of it."""
        with self.guard:
            state = change(self.state)
            if self.max_results is not None and len(state.snapshot.results) > self.max_results:
                state = state.without_reads()
            self.state = state


def _required_kind(write: Write) -> Kind[object] | None:
    if isinstance(write, RequireUnchanged):
        return write.kind
    return write.key.kind if isinstance(write, Require) else None
