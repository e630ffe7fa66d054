"""What a process knows of a store, as a value; ``cache`` keeps the present one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import TypeAlias, TypeGuard, cast

from attrs import evolve, field, frozen

from netplug_core.datastore.write_set import apply_writes
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
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

__all__ = ["NOTHING_LASTS", "CachePolicy", "CachedState", "Known", "Lasting"]

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
