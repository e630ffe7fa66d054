"""What is known of a datastore without a read: what was read before, and what its watches have reported since.

``CachedState`` holds records with their revisions. ``DatastoreCache`` decides what of it still counts: what a watch of
an ordered store has reported counts for ``FRESH_S``, and is then read again. ``follow`` applies the events of a watch.
The node process holds one for each datastore; it has the threads, and nothing here waits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from typing import TypeAlias, TypeGuard, cast

from attrs import define, evolve, field, frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, FRESH_S, Atomicity, Datastore, LiveWatch, ShowsNodeEndpoints
from netplug_core.datastore.write_set import apply_writes
from netplug_core.locks import no_lock
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    Query,
    ReadResult,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    Write,
    Written,
)

__all__ = [
    "NOTHING_LASTS", "CachePolicy", "CachedState", "DatastoreCache", "Known", "Lasting", "follow", "follow_endpoints",
]  # fmt: skip


# --- records ----------------------------------------------------------------------------------------------------------


_NO_RECORDS = ReadResult(())
_Change: TypeAlias = Create[object] | Update[object] | Delete[object]


@frozen
class Lasting:
    """What a cache of a store that checks no requirements may use at any age.

    ``records``: kinds whose single records are used only where the commit writes these records themselves, under their
    revisions. ``lists``: kinds of whose lists only those are kept that a cache of the store may answer too. They are
    marked so (``is_cached``), and a rule that depends on such a list reads it again. ``views``: those of the kinds of
    ``records`` that others change all the time. A decision that does not write such a record is made from a read.
    """

    records: frozenset[Kind[object]] = frozenset()
    lists: frozenset[Kind[object]] = frozenset()
    views: frozenset[Kind[object]] = frozenset()

    @property
    def kinds(self) -> frozenset[Kind[object]]:
        """All of these kinds. Of them nothing else is kept."""
        return self.records | self.lists

    def keeps(self, query: Query) -> bool:
        """Whether an answer is kept, at any age or for a short time."""
        if query.kind in self.records:
            return isinstance(query, Get)
        return query.kind not in self.lists or (isinstance(query, List) and query.may_be_cached)


NOTHING_LASTS = Lasting()
"""A cache that may use everything for a short time only."""


@frozen(kw_only=True)
class CachePolicy:
    """What a cache keeps: nothing of the kinds in ``uncached``, and of ``uncached_absent`` only records that exist.

    ``max_age_s`` limits the age of what is not in ``lasting``; None: nothing ages, because the store checks what a
    decision rests on.
    """

    uncached: AbstractSet[Kind[object]] = frozenset()
    uncached_absent: AbstractSet[Kind[object]] = frozenset()
    max_age_s: float | None = None
    lasting: Lasting = NOTHING_LASTS

    def does_age(self, kind: Kind[object]) -> bool:
        """Whether what is known of a kind counts for a limited time."""
        return self.max_age_s is not None and kind not in self.lasting.kinds

    def keeps(self, query: Query, result: ReadResult) -> bool:
        """Whether an answer is kept.

        Pages are not: their other pages would be of another moment. Lists by the beginning of a name are not: who
        creates a record beside others has to see those of this moment. Answers with malformed records are not either,
        so that a repair is seen by the next call.
        """
        is_absence = isinstance(query, Get) and not result.records
        return (
            query.kind not in self.uncached
            and not _is_part(query)
            and not result.malformed
            and not (is_absence and query.kind in self.uncached_absent)
            and self.lasting.keeps(query)
        )


@frozen(eq=False, kw_only=True)
class Known:
    """What is known about some queries.

    ``missing`` have to be read. ``aging`` are answered by what counts for a limited time, the oldest of it since
    ``at_s`` (monotonic seconds; infinite: nothing of it ages).
    """

    snapshot: Snapshot
    missing: tuple[Query, ...]
    aging: tuple[Query, ...] = ()
    at_s: float = inf


@frozen(eq=False)
class CachedState:
    """The known answers of one store.

    ``watched`` has the kinds that a watch keeps true, each with the time (monotonic seconds) at which that was last
    confirmed: by its list, or by what the watch said. Of a watched kind the snapshot has the list of all records, from
    which answers are made. ``read_at_s`` has the time of each other answer that counts for a limited time: there are
    some only of a store that does not check requirements.
    """

    snapshot: Snapshot = field(factory=Snapshot.empty)
    watched: Mapping[Kind[object], float] = field(factory=dict)
    read_at_s: Mapping[Query, float] = field(factory=dict)

    def lookup(
        self, queries: Sequence[Query], assume_absent: Sequence[Query] = (), *, oldest_s: float | None = None
    ) -> Known:
        """What is known about the queries.

        ``oldest_s``: what is not confirmed since then is not known, and what ages is known only to who asks for it;
        None: nothing ages.
        """
        results = dict(self.snapshot.results)
        aging: dict[Query, float] = {}
        if oldest_s is not None:
            for query in (*self.read_at_s, *map(List, self.watched)):
                results.pop(query, None)
        if self.watched or self.read_at_s:
            for query in queries:
                # The list of all records, which most calls ask for, is there already.
                if query in results or (found := self._find(query, oldest_s)) is None:
                    continue
                results[query], at_s = found
                if oldest_s is not None:
                    aging[query] = at_s
        if results:
            for query in assume_absent:
                results.setdefault(query, _NO_RECORDS)
        missing = tuple([query for query in queries if query not in results])
        snapshot = Snapshot(results, self.snapshot.revisions)
        return Known(snapshot=snapshot, missing=missing, aging=tuple(aging), at_s=min(aging.values(), default=inf))

    def find_time(self, query: Query) -> float | None:
        """Since when the answer to a query of limited time counts; None if there is none."""
        found = self._find(query, None)
        return None if found is None else found[1]

    def _find(self, query: Query, oldest_s: float | None) -> tuple[ReadResult, float] | None:
        """What was read for a query, else what a watch keeps true, and since when it counts."""
        read_at_s = self.read_at_s.get(query)
        if read_at_s is not None and (oldest_s is None or read_at_s >= oldest_s):
            return self.snapshot.results[query], read_at_s
        confirmed_s = self.watched.get(query.kind)
        if confirmed_s is None or (oldest_s is not None and confirmed_s < oldest_s):
            return None
        found = self.find_watched(query)
        return None if found is None else (found, confirmed_s)

    def with_snapshot(self, read: Snapshot, policy: CachePolicy, *, at_s: float) -> CachedState:
        """The state with what was asked for at a time, as far as it is kept.

        Where nothing ages, a watched kind is left to its watch. Elsewhere, its list takes the place of what was known.
        """
        if policy.max_age_s is None:
            state = self
        else:
            state = self._without_older(at_s - policy.max_age_s)
            state = state._with_whole_lists(read, at_s)  # noqa: SLF001  its own
        old, lists = state.snapshot, policy.lasting.lists
        results = {
            query: evolve(result, is_cached=True) if query.kind in lists else result
            for query, result in read.results.items()
            if (query.kind not in state.watched or (policy.does_age(query.kind) and query != List(query.kind)))
            and policy.keeps(query, result)
        }
        aging = {query: at_s for query in results if policy.does_age(query.kind)}
        snapshot = Snapshot({**old.results, **results}, {**read.revisions, **old.revisions})
        return CachedState(snapshot, state.watched, {**state.read_at_s, **aging})

    def contradicts(self, read: Snapshot, *, oldest_s: float) -> bool:
        """Whether a kind has changed of which its watch has said nothing since ``oldest_s``."""
        for query, result in read.results.items():
            known = self.find_watched(query)
            if known is not None and known.records != result.records and self.watched[query.kind] < oldest_s:
                return True
        return False

    def with_writes(
        self,
        writes: Sequence[Write],
        revisions: Sequence[Revision],
        policy: CachePolicy,
        *,
        began: CachedState,
        at_s: float,
    ) -> CachedState:
        """The state after a commit of this process, which began at the state ``began`` and at a time.

        It keeps what ``with_snapshot`` keeps. What was read is not younger for a commit.

        A record of a watched kind changes only if it is cached as the commit found it. Otherwise the watch is ahead
        of this commit, or has yet to deliver a change before it, and delivers this one too.
        """
        lasting, uncached, uncached_absent = policy.lasting, policy.uncached, policy.uncached_absent
        changed = [number for number, write in enumerate(writes) if _is_change(write)]
        if self.watched or lasting.views:
            changed = [
                number
                for number in changed
                if self._is_current(writes[number], writes, began) and self._is_latest(writes[number], lasting.views)
            ]
        changes, revisions = [cast("_Change", writes[n]) for n in changed], [revisions[n] for n in changed]
        after = apply_writes(self.snapshot, changes, revisions, uncached=uncached, uncached_absent=uncached_absent)
        unkept_kinds = self.watched.keys() | lasting.lists - lasting.records
        unkept = {Get(write.key) for write in changes if write.key.kind in unkept_kinds}
        ours: dict[Query, float] = {Get(write.key): at_s for write in changes if policy.does_age(write.key.kind)}
        read_at_s = {query: time_s for query, time_s in {**ours, **self.read_at_s}.items() if query in after.results}
        written = CachedState(after, self.watched, read_at_s)
        return written.without_answers(unkept) if unkept else written

    def with_lists(self, read: Snapshot, *, now_s: float) -> CachedState:
        """The state with whole lists of kinds that a watch keeps true from here on."""
        kinds = {query.kind: now_s for query in read.results}
        rest = self.without(kinds.keys())
        old = rest.snapshot
        snapshot = Snapshot({**old.results, **read.results}, {**old.revisions, **read.revisions})
        return evolve(rest, snapshot=snapshot, watched={**rest.watched, **kinds})

    def with_event(self, event: WatchEvent[object], *, now_s: float) -> CachedState:
        """The state after a change that a watch delivered; unchanged if the kind is not watched any more.

        ``now_s`` is the time since which no change of the kind is missing, as far as the change proves one.
        """
        key = event.key
        if key.kind not in self.watched:
            return self
        everything = List(key.kind)
        records = self.snapshot.results[everything].records
        place = bisect_left(records, key.path, key=_path)
        is_known = place < len(records) and records[place].key == key
        changed = () if event.value is None else (Record(key, event.value, event.revision),)
        result = ReadResult((*records[:place], *changed, *records[place + is_known :]))
        rest = self.without_answers({query for query in self.read_at_s if _is_about(query, key)})
        snapshot = Snapshot(
            {**rest.snapshot.results, everything: result}, {**rest.snapshot.revisions, key.kind: event.revision}
        )
        return evolve(rest, snapshot=snapshot, watched={**self.watched, key.kind: max(now_s, self.watched[key.kind])})

    def with_record_event(self, event: WatchEvent[object]) -> CachedState:
        """The state after a change of a single record, of whose kind not all are known."""
        query = Get(event.key)
        if event.value is None:
            return self.without_answers({query})
        result = ReadResult((Record(event.key, event.value, event.revision),))
        return evolve(self, snapshot=Snapshot({**self.snapshot.results, query: result}, self.snapshot.revisions))

    def confirmed(self, times_s: Mapping[Kind[object], float]) -> CachedState:
        """The state in which watched kinds are known to have been up to date at some times."""
        later = {kind: max(at_s, self.watched[kind]) for kind, at_s in times_s.items() if kind in self.watched}
        return evolve(self, watched={**self.watched, **later})

    def without(self, kinds: AbstractSet[Kind[object]]) -> CachedState:
        """The state in which nothing is known of some kinds."""
        results = {query: result for query, result in self.snapshot.results.items() if query.kind not in kinds}
        revisions = {kind: revision for kind, revision in self.snapshot.revisions.items() if kind not in kinds}
        watched = {kind: at_s for kind, at_s in self.watched.items() if kind not in kinds}
        read_at_s = {query: at_s for query, at_s in self.read_at_s.items() if query.kind not in kinds}
        return CachedState(Snapshot(results, revisions), watched, read_at_s)

    def without_answers(self, queries: AbstractSet[Query]) -> CachedState:
        """The state in which some queries are not answered."""
        if not queries:
            return self
        results = {query: result for query, result in self.snapshot.results.items() if query not in queries}
        read_at_s = {query: at_s for query, at_s in self.read_at_s.items() if query not in queries}
        return CachedState(Snapshot(results, self.snapshot.revisions), self.watched, read_at_s)

    def without_reads(self) -> CachedState:
        """The state in which only watched kinds are known."""
        results: dict[Query, ReadResult] = {List(kind): self.snapshot.results[List(kind)] for kind in self.watched}
        revisions = {kind: self.snapshot.revisions[kind] for kind in self.watched}
        return CachedState(Snapshot(results, revisions), self.watched)

    def find_watched(self, query: Query) -> ReadResult | None:
        """The answer to a query about a watched kind; None for other kinds and for pages."""
        if query.kind not in self.watched or _is_page(query):
            return None
        everything = self.snapshot.results[List(query.kind)]
        if query == List(query.kind):
            return everything
        records = everything.records
        start = query.key.path if isinstance(query, Get) else query.start
        first = last = bisect_left(records, start, key=_path)
        if isinstance(query, Get):
            last += first < len(records) and records[first].key == query.key
            return ReadResult(records[first:last])
        while last < len(records) and query.covers(records[last].key):
            last += 1
        return ReadResult(records[first:last])

    def _without_older(self, oldest_s: float) -> CachedState:
        """The state without the answers that were asked for before a time, and without the revisions of their kinds."""
        old = {query for query, at_s in self.read_at_s.items() if at_s < oldest_s}
        if not old:
            return self
        rest = self.without_answers(old)
        gone = {query.kind for query in old} - {query.kind for query in rest.snapshot.results}
        return rest.without(gone)

    def _with_whole_lists(self, read: Snapshot, at_s: float) -> CachedState:
        """The state with those lists of watched kinds that were asked for after their watch spoke.

        Of a kind with a malformed record nothing is known: its watch would not say when it is repaired.
        """
        state = self
        for query, result in read.results.items():
            kind = query.kind
            if query != List(kind) or kind not in state.watched or state.watched[kind] >= at_s:
                continue
            listed = Snapshot({query: result}, {kind: read.revisions[kind]})
            state = state.without({kind}) if result.malformed else state.with_lists(listed, now_s=at_s)
        return state

    def _is_latest(self, write: Write, views: AbstractSet[Kind[object]]) -> bool:
        """Whether the record is cached as the write found it. A watch may have brought a later change already."""
        if not isinstance(write, (Update, Delete)) or write.key.kind not in views:
            return True
        found = self.snapshot.results.get(Get(write.key))
        return found is None or any(record.revision == write.revision for record in found.records)

    def _is_current(self, write: Write, writes: Sequence[Write], began: CachedState) -> bool:
        """Whether a write changes no record of a watched kind, or one that is cached as the commit found it."""
        if not _is_change(write) or write.key.kind not in self.watched:
            return True
        while not isinstance(write, Create) and isinstance(write.revision, Written):
            write = cast("_Change", writes[write.revision.index])
        found = self.find_watched(Get(write.key))
        record = found.records[0] if found and found.records else None
        if isinstance(write, Create):  # if the watch delivered anything since, the record may be deleted again
            revisions, kind = began.snapshot.revisions, write.key.kind
            return record is None and revisions.get(kind) == self.snapshot.revisions[kind]
        return record is not None and record.revision == write.revision


def _is_change(write: Write) -> TypeGuard[_Change]:
    return not isinstance(write, (Require, RequireUnchanged))


def _is_about(query: Query, key: Key[object]) -> bool:
    """Whether a record may be in the answer to a query."""
    return query.key == key if isinstance(query, Get) else query.covers(key)


def _is_page(query: Query) -> bool:
    return isinstance(query, List) and query.limit > 0


def _is_part(query: Query) -> bool:
    """Whether the answer may leave records of the list out, or must be of this moment."""
    return isinstance(query, List) and (query.limit > 0 or query.name_prefix != "" or query.keys_only_if is not None)


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path


# --- what still counts ------------------------------------------------------------------------------------------------


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


# --- events of a watch ------------------------------------------------------------------------------------------------


def follow(
    store: Datastore, cache: DatastoreCache, kinds: Sequence[Kind[object]], *, deadline: Deadline
) -> Malformed | None:
    """List the kinds that are not watched yet, then apply each change until the deadline.

    A kind of which a record cannot be decoded is left out, since a watch would not say when that is repaired: calls
    read it, and the next call of this function lists it again. The first such error is returned.

    Call it again after it returned or raised. The return of a watch that is no
    :class:`~netplug_core.datastore.protocol.LiveWatch` confirms that the kinds are up to date.

    Raises:
        WatchExpired: changes were forgotten before they were delivered; the next call lists the kinds again.
        Malformed: of each kind a record cannot be decoded, or one was changed to such a record.
        NotSupported: the store does not keep or watch a kind.
        Unavailable: the store does not answer.
    """
    clock = cache.clock
    try:
        damaged = _list_unknown(store, cache, kinds, deadline)
        kinds = [kind for kind in kinds if kind in cache.state.watched]
        events = store.watch(_positions(cache, kinds), deadline=deadline)
        live = cache.watch = events if isinstance(events, LiveWatch) else None
        for event in events:
            # After an interruption, older changes may follow: a live watch says how far it has come.
            now_s = clock.monotonic() if live is None else 0.0
            cache.change(partial(CachedState.with_event, event=event, now_s=now_s))
    except BaseException:
        cache.watch = None
        cache.change(lambda state: state.without(frozenset(kinds)))
        raise
    cache.note_progress()
    cache.watch = None
    if live is None:
        now_s = clock.monotonic()
        cache.change(lambda state: state.confirmed(dict.fromkeys(kinds, now_s)))
    return damaged


def follow_endpoints(store: ShowsNodeEndpoints, cache: DatastoreCache, node: str, *, deadline: Deadline) -> None:
    """Keep the endpoints of a node, which are views of its pods, in the cache until the deadline. Then it forgets them.

    Errors are those of ``follow``.
    """
    events = store.watch_endpoints(node, deadline=deadline)
    cache.endpoint_watch = events if isinstance(events, LiveWatch) else None
    try:
        for event in events:
            cache.change(partial(CachedState.with_record_event, event=event))
    finally:
        cache.endpoint_watch = None
        cache.change(lambda state: state.without(cache.lasting.views))


def _list_unknown(
    store: Datastore, cache: DatastoreCache, kinds: Sequence[Kind[object]], deadline: Deadline
) -> Malformed | None:
    """List the kinds that are not watched, and let those of which each record can be decoded count as watched.

    The first error of another one is returned; it is raised if there is nothing to watch.
    """
    unknown = [List(kind) for kind in kinds if kind not in cache.state.watched]
    if not unknown:
        return None
    listed_s = cache.clock.monotonic()
    listed = store.read(unknown, deadline=deadline.capped(CALL_TIMEOUT_S))
    results = {query: result for query, result in listed.results.items() if not result.malformed}
    sound = Snapshot(results, {query.kind: listed.revision(query.kind) for query in results})
    cache.change(lambda state: state.with_lists(sound, now_s=listed_s))
    errors = [error for query in unknown for error in listed.malformed(query)]
    if errors and not any(kind in cache.state.watched for kind in kinds):
        raise errors[0]
    return errors[0] if errors else None


def _positions(cache: DatastoreCache, kinds: Sequence[Kind[object]]) -> dict[Kind[object], Revision]:
    revisions = cache.state.snapshot.revisions
    return {kind: revisions[kind] for kind in kinds}
