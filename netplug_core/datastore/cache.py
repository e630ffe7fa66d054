"""What a process knows of a store between its calls, so that a call can begin without a read.

A transaction looks here first, and adds what it reads and writes. Correctness does not depend on the cache: a commit
carries conditions for everything that its decision depends on, so an outdated record costs a conflict and a new read,
never a wrong address. For a store that does not check such conditions the age of cached records is limited instead,
but for those that are used only as the condition of a write on themselves (``Lasting``).

``cached_state`` is a pure value. :class:`DatastoreCache` holds the current one and replaces it whole. ``feed``
keeps some kinds true by a watch; the other kinds are as the process last read or wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from attrs import define, field

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.cached_state import NOTHING_LASTS, CachedState, Lasting
from netplug_core.datastore.protocol import Atomicity, Datastore, LiveWatch
from netplug_core.records import (
    Kind,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Write,
)

__all__ = ["ORDERED_MAX_AGE_S", "DatastoreCache"]

ORDERED_MAX_AGE_S = 0.5
"""How old a cached record may be if the store does not check requirements."""


@define
class DatastoreCache:
    """The cache of one store: the smallest holder of a :class:`CachedState`, which is replaced whole.

    ``uncached_kinds`` are not kept, because there is a record for every workload. Of ``uncached_absent_kinds`` only
    records that exist are kept: who creates a block looks for all those that it would overlap. Every change goes
    through ``guard``: a process with threads gives a lock, so that no change is lost. When there are more than
    ``max_results`` answers, the cache starts anew, so that records which others deleted do not stay for ever.
    ``max_age_s`` limits the age of what is not in ``lasting``; None: there is no need to. ``watch`` is the one that
    keeps the watched kinds true, if it can say whether changes arrive. ``endpoint_watch`` is the one that keeps those
    endpoints true that are views of the node's pods; while there is none, they are read for each call.
    """

    clock: Clock
    uncached_kinds: frozenset[Kind[object]]
    max_age_s: float | None = None
    uncached_absent_kinds: frozenset[Kind[object]] = frozenset()
    max_results: int | None = None
    guard: AbstractContextManager[object] = field(factory=nullcontext)
    lasting: Lasting = NOTHING_LASTS
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
            max_age_s=None if is_atomic else ORDERED_MAX_AGE_S,
            uncached_absent_kinds=uncached_absent_kinds,
            max_results=max_results,
            guard=nullcontext() if guard is None else guard,
        )

    def lookup(
        self, queries: Sequence[Query], assume_absent: Sequence[Query] = ()
    ) -> tuple[Snapshot, tuple[Query, ...]]:
        """What is known, and which of the queries have to be read.

        ``assume_absent`` are queries that are taken to find nothing if other answers are known, but not theirs: the
        call is about to create these records. If one exists after all, the create fails.
        """
        if self.max_age_s is None:
            return self.state.lookup(queries, assume_absent, ignore=frozenset())
        oldest_s = self.clock.monotonic() - self.max_age_s
        if self.state.read_at_s < oldest_s:
            self.change(lambda state: state.without(state.unwatched_kinds() - self.lasting.kinds))
        state = self.state
        too_old = frozenset(kind for kind, at_s in state.watched.items() if at_s < oldest_s)
        return state.lookup(queries, assume_absent, ignore=too_old)

    def begin(
        self,
        queries: Sequence[Query],
        assume_absent: Sequence[Query],
        read: Callable[[tuple[Query, ...]], Snapshot],
    ) -> tuple[Snapshot, tuple[Query, ...]]:
        """What a decision may begin with, and which of the queries have to be read; see ``lookup``.

        If watched kinds were not confirmed for a while, what else is missing is read at once: its answer confirms them.
        If nothing else is missing, one record is read for it. ``read`` is the caller's, and calls that of the cache.
        """
        snapshot, missing = self.lookup(queries, assume_absent)
        watched = self.state.watched
        if self.find_connection() is None or not any(query.kind in watched for query in missing):
            return snapshot, missing
        found = read(tuple(query for query in missing if query.kind not in watched) or missing[:1])
        # Meanwhile another call may have forgotten what was known, so what is missing is asked for again.
        known, missing = self.lookup(queries, assume_absent)
        snapshot = known.merged(found)
        return snapshot, tuple(query for query in missing if query not in snapshot.results)

    def begin_unconfirmed(self, queries: Sequence[Query]) -> Snapshot | None:
        """What is known if it answers all queries, but is not confirmed; None otherwise, or if no changes arrive."""
        if not self.lasting.proving or self.find_connection() is None or not self.lookup(queries)[1]:
            return None
        snapshot, missing = self.state.lookup(queries, ignore=frozenset())
        return None if missing else snapshot

    def confirms(self, queries: Sequence[Query], snapshot: Snapshot) -> bool:
        """Whether the answers of a snapshot, but for those that last, are those that are known, and confirmed, now."""
        known = self.lookup(queries)[0].results
        aged = (query for query in queries if query.kind not in self.lasting.kinds)
        return all(query in known and known[query] == snapshot.results.get(query) for query in aged)

    def read(self, store: Datastore, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Read from the store, keep what was read, and confirm the watched kinds if their changes arrive."""
        with self.confirming():
            found = store.read(queries, deadline=deadline)
            self.add_snapshot(found)
        return found

    @contextmanager
    def confirming(self) -> Iterator[None]:
        """A request to the store, whose answer confirms the watched kinds if their changes arrive."""
        connection, sent_s = self.find_connection(), self.clock.monotonic()
        yield
        if connection is not None and connection == self.find_connection():
            self.change(lambda state: state.confirmed(state.watched, now_s=sent_s))

    def find_connection(self) -> object | None:
        """The connection through which changes of the watched kinds arrive now; None if that is not known."""
        watch = self.watch
        return None if watch is None else watch.find_connection()

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Keep what was read."""
        now_s = self.clock.monotonic()
        uncached, uncached_absent = self.uncached_kinds, self.uncached_absent_kinds
        self.change(
            lambda state: state.with_snapshot(
                snapshot, uncached=uncached, uncached_absent=uncached_absent, now_s=now_s, lasting=self.lasting
            )
        )

    def apply_writes(
        self, writes: Sequence[Write], revisions: Sequence[Revision], *, began: CachedState | None = None
    ) -> None:
        """Keep what a commit wrote, which began at a state (None: at the present one)."""
        uncached, uncached_absent = self.uncached_kinds, self.uncached_absent_kinds
        self.change(
            lambda now: now.with_writes(
                writes,
                revisions,
                uncached=uncached,
                uncached_absent=uncached_absent,
                began=began or now,
                lasting=self.lasting,
            )
        )

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
        self.change(lambda state: state.without(state.unwatched_kinds()))

    def change(self, change: Callable[[CachedState], CachedState]) -> None:
        """Replace the state by a function of it."""
        with self.guard:
            state = change(self.state)
            if self.max_results is not None and len(state.snapshot.results) > self.max_results:
                state = state.without(state.unwatched_kinds())
            self.state = state


def _required_kind(write: Write) -> Kind[object] | None:
    if isinstance(write, RequireUnchanged):
        return write.kind
    return write.key.kind if isinstance(write, Require) else None
