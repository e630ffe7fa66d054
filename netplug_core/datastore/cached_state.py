"""What a process knows of a store, as a value; ``cache`` keeps the present one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeGuard, cast

from attrs import evolve, field, frozen

from netplug_core.datastore.write_set import apply_writes
from netplug_core.records import (
    Create,
    Delete,
    Get,
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

__all__ = ["NOTHING_LASTS", "CachedState", "Lasting"]

_NO_RECORDS = ReadResult(())
_Change: TypeAlias = Create[object] | Update[object] | Delete[object]


@frozen
class Lasting:
    """What a cache of a store that checks no requirements may use at any age.

    ``records``: kinds whose single records are used only where the commit writes these records themselves, under their
    revisions. ``lists``: kinds of whose lists only those are kept that a cache of the store may answer too. They are
    marked so (``is_cached``), and a rule that depends on such a list reads it again. ``proving``: those of the kinds of
    ``records`` whose deletion depends on nothing but the record itself. The answer to such a deletion, like that to a
    read, says that no change of a watched kind is missing, so that the commit may go on.
    """

    records: frozenset[Kind[object]] = frozenset()
    lists: frozenset[Kind[object]] = frozenset()
    proving: frozenset[Kind[object]] = frozenset()

    @property
    def kinds(self) -> frozenset[Kind[object]]:
        """All of these kinds. Of them nothing else is kept."""
        return self.records | self.lists

    def count_proving(self, writes: Sequence[Write]) -> int:
        """How many writes of a commit may be made before the watched kinds are confirmed; 0: none of them confirms."""
        for number, write in enumerate(writes):
            if _is_change(write):
                return number + 1 if isinstance(write, Delete) and write.key.kind in self.proving else 0
        return 0

    def keeps(self, query: Query) -> bool:
        """Whether an answer is kept, at any age or for a short time."""
        if query.kind in self.records:
            return isinstance(query, Get)
        return query.kind not in self.lists or (isinstance(query, List) and query.may_be_cached)


NOTHING_LASTS = Lasting()
"""A cache that may use everything for a short time only."""


@frozen(eq=False)
class CachedState:
    """The known answers of one store.

    ``watched`` has the kinds that a watch keeps true, each with the time (monotonic seconds) at which that was last
    confirmed. Of a watched kind the snapshot has the list of all records and nothing else; answers are made from it.
    ``read_at_s`` is the time of the oldest answer about other kinds, without those whose answers last.
    """

    snapshot: Snapshot = field(factory=Snapshot.empty)
    watched: Mapping[Kind[object], float] = field(factory=dict)
    read_at_s: float = 0.0

    def lookup(
        self, queries: Sequence[Query], assume_absent: Sequence[Query] = (), *, ignore: AbstractSet[Kind[object]]
    ) -> tuple[Snapshot, tuple[Query, ...]]:
        """What is known, and which of the queries have to be read; nothing is known of the kinds in ``ignore``."""
        known = self.without(ignore) if ignore else self
        results = dict(known.snapshot.results)
        if known.watched:
            for query in queries:
                # The list of all records, which most calls ask for, is there already.
                if query not in results and (found := known.find_watched(query)) is not None:
                    results[query] = found
        if results:
            for query in assume_absent:
                results.setdefault(query, _NO_RECORDS)
        missing = tuple([query for query in queries if query not in results])
        return Snapshot(results, known.snapshot.revisions), missing

    def with_snapshot(
        self,
        read: Snapshot,
        *,
        uncached: AbstractSet[Kind[object]],
        uncached_absent: AbstractSet[Kind[object]],
        now_s: float,
        lasting: Lasting = NOTHING_LASTS,
    ) -> CachedState:
        """The state with what was read: nothing of ``uncached``, of ``uncached_absent`` only records that exist.

        Pages are not kept: their other pages would be of another moment. Lists by the beginning of a name are not kept:
        who creates a record beside others has to see those of this moment. Answers with malformed records are not kept
        either, so that a repair is seen by the next call.
        """
        old = self.snapshot
        results = {
            query: evolve(result, is_cached=True) if query.kind in lasting.lists else result
            for query, result in read.results.items()
            if query.kind not in uncached
            and query.kind not in self.watched
            and not _is_part(query)
            and not result.malformed
            and not _is_uncached_absence(query, result, uncached_absent)
            and lasting.keeps(query)
        }
        ageless = lasting.kinds
        has_read = any(query.kind not in self.watched and query.kind not in ageless for query in old.results)
        snapshot = Snapshot({**old.results, **results}, {**read.revisions, **old.revisions})
        return CachedState(snapshot, self.watched, self.read_at_s if has_read else now_s)

    def with_writes(
        self,
        writes: Sequence[Write],
        revisions: Sequence[Revision],
        *,
        uncached: AbstractSet[Kind[object]],
        uncached_absent: AbstractSet[Kind[object]],
        began: CachedState,
        lasting: Lasting = NOTHING_LASTS,
    ) -> CachedState:
        """The state after a commit of this process, which began at the state ``began``.

        Of ``uncached`` and ``uncached_absent`` it keeps what ``with_snapshot`` keeps.

        A record of a watched kind changes only if it is cached as the commit found it. Otherwise the watch is ahead
        of this commit, or has yet to deliver a change before it, and delivers this one too.
        """
        changed = [number for number, write in enumerate(writes) if _is_change(write)]
        if self.watched or lasting.proving:
            changed = [
                number
                for number in changed
                if self._is_current(writes[number], writes, began) and self._is_latest(writes[number], lasting.proving)
            ]
        changes, revisions = [cast("_Change", writes[n]) for n in changed], [revisions[n] for n in changed]
        after = apply_writes(self.snapshot, changes, revisions, uncached=uncached, uncached_absent=uncached_absent)
        unkept_kinds = self.watched.keys() | lasting.lists - lasting.records
        unkept = {Get(write.key) for write in changes if write.key.kind in unkept_kinds}
        written = CachedState(after, self.watched, self.read_at_s)
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
        snapshot = Snapshot(
            {**self.snapshot.results, everything: result}, {**self.snapshot.revisions, key.kind: event.revision}
        )
        return evolve(self, snapshot=snapshot, watched={**self.watched, key.kind: max(now_s, self.watched[key.kind])})

    def with_record_event(self, event: WatchEvent[object]) -> CachedState:
        """The state after a change of a single record, of whose kind not all are known."""
        query = Get(event.key)
        if event.value is None:
            return self.without_answers({query})
        result = ReadResult((Record(event.key, event.value, event.revision),))
        return evolve(self, snapshot=Snapshot({**self.snapshot.results, query: result}, self.snapshot.revisions))

    def confirmed(self, kinds: Iterable[Kind[object]], *, now_s: float) -> CachedState:
        """The state in which some watched kinds are known to have been up to date then."""
        known = {kind: max(now_s, self.watched[kind]) for kind in kinds if kind in self.watched}
        return evolve(self, watched={**self.watched, **known})

    def without(self, kinds: AbstractSet[Kind[object]]) -> CachedState:
        """The state in which nothing is known of some kinds."""
        results = {query: result for query, result in self.snapshot.results.items() if query.kind not in kinds}
        revisions = {kind: revision for kind, revision in self.snapshot.revisions.items() if kind not in kinds}
        watched = {kind: at_s for kind, at_s in self.watched.items() if kind not in kinds}
        return evolve(self, snapshot=Snapshot(results, revisions), watched=watched)

    def without_answers(self, queries: AbstractSet[Query]) -> CachedState:
        """The state in which some queries are not answered."""
        results = {query: result for query, result in self.snapshot.results.items() if query not in queries}
        return evolve(self, snapshot=Snapshot(results, self.snapshot.revisions))

    def unwatched_kinds(self) -> frozenset[Kind[object]]:
        """The kinds that are known from reads alone."""
        known = {*self.snapshot.revisions, *(query.kind for query in self.snapshot.results)}
        return frozenset(known.difference(self.watched))

    def find_watched(self, query: Query) -> ReadResult | None:
        """The answer to a query about a watched kind; None for other kinds and for pages."""
        if query.kind not in self.watched or _is_page(query):
            return None
        records = self.snapshot.results[List(query.kind)].records
        start = query.key.path if isinstance(query, Get) else query.start
        first = last = bisect_left(records, start, key=_path)
        if isinstance(query, Get):
            last += first < len(records) and records[first].key == query.key
            return ReadResult(records[first:last])
        while last < len(records) and query.covers(records[last].key):
            last += 1
        return ReadResult(records[first:last])

    def _is_latest(self, write: Write, proving: AbstractSet[Kind[object]]) -> bool:
        """Whether the record is cached as the write found it. A watch may have brought a later change already."""
        if not isinstance(write, (Update, Delete)) or write.key.kind not in proving:
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


def _is_page(query: Query) -> bool:
    return isinstance(query, List) and query.limit > 0


def _is_part(query: Query) -> bool:
    """Whether the answer may leave records of the list out, or must be of this moment."""
    return isinstance(query, List) and (query.limit > 0 or query.name_prefix != "" or query.keys_only_if is not None)


def _is_uncached_absence(query: Query, result: ReadResult, uncached_absent: AbstractSet[Kind[object]]) -> bool:
    """Whether an answer says that a record of such a kind does not exist."""
    return query.kind in uncached_absent and isinstance(query, Get) and not result.records


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path
