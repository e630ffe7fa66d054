"""What is known of a datastore without a read: what was read before, and what its watches have reported since.

A ``View`` holds answers, and the records of the kinds that are followed. It decides what of it still counts: what a
watch of an ordered store has reported counts for ``FRESH_S``, and is then read again. ``feed`` applies the events of
a watch. A process holds one view for each datastore; it has the threads, and nothing here waits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile
from math import inf
from typing import Final, NewType, TypeAlias, TypeGuard, TypeVar, cast

from attrs import define, evolve, field, frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import (
    ALL_EXPIRE,
    FRESH_S,
    Atomicity,
    CachePolicy,
    Datastore,
    InterruptibleWatch,
    LiveWatch,
    NonExpiring,
)
from netplug_core.datastore.write_set import apply_writes
from netplug_core.errors import InvariantBroken
from netplug_core.locks import no_lock
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    NotFound,
    Query,
    ReadResult,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Unreadable,
    Update,
    WatchEvent,
    Write,
    Written,
)

__all__ = ["MAX_CHANGES", "START", "Changes", "Known", "Mark", "View", "keep_whole"]


MAX_CHANGES = 4096
"""How many changed keys a view keeps for its readers. Who is further behind looks at everything."""

Mark = NewType("Mark", int)
"""How far a reader of a view has come."""

START: Final = Mark(0)
"""The mark of a reader that has seen nothing yet."""

_MAX_UNASKED = 256  # records of a followed kind: longer lists are made only for who asks for them
_NO_RECORDS = ReadResult(())
V = TypeVar("V")
_Change: TypeAlias = Create[object] | Update[object] | Delete[object]


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


@frozen(eq=False, kw_only=True)
class Changes:
    """What has changed of the followed kinds, all as of one moment, which ``mark`` is a mark of.

    A record whose value is the same as before has not changed, whatever its revision is.
    ``values`` has the value of each changed key, None where the record is deleted, and ``UNREADABLE`` where one is
    stored that cannot be read. ``is_whole``: they are all values that there are, and what has none among them does not
    exist.
    """

    mark: Mark
    values: Mapping[Key[object], object | None]
    is_whole: bool = False


def _is_change(write: Write) -> TypeGuard[_Change]:
    return not isinstance(write, (Require, RequireUnchanged))


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path


# --- what is known ----------------------------------------------------------------------------------------------------


@define(eq=False)
class _FollowedKind:
    """The records of a kind by their paths, as its list had them and its events have changed them since.

    ``confirmed_s`` is the time (monotonic seconds) at which that was last known to be true: of its list, or of what its
    watch has reported. ``is_kept_true`` is false after its watch has failed, until the kind is listed again.
    ``listed`` has the records in the order of their paths, from the first question for them until the next event.
    ``unreadable`` are the paths of those that the list has and that cannot be read, of which nothing was known before.
    """

    records: dict[tuple[str, ...], Record[object]]
    confirmed_s: float
    is_kept_true: bool = True
    listed: ReadResult | None = None
    unreadable: frozenset[tuple[str, ...]] = frozenset()

    def find_all(self) -> ReadResult:
        """All records in the order of their paths."""
        if self.listed is None:
            self.listed = ReadResult(tuple(sorted(self.records.values(), key=_path)))
        return self.listed

    def find(self, query: Query) -> ReadResult | None:
        """The answer to a query about the kind; None for pages."""
        if isinstance(query, Get):
            record = self.records.get(query.key.path)
            return _NO_RECORDS if record is None else ReadResult((record,))
        if query.limit:
            return None
        everything = self.find_all()
        if query == List(query.kind):
            return everything
        records, first = everything.records, bisect_left(everything.records, query.start, key=_path)
        last = first
        while last < len(records) and query.covers(records[last].key):
            last += 1
        return ReadResult(records[first:last])

    def value_of(self, path: tuple[str, ...]) -> object | None:
        """The value of a record; None if there is none."""
        record = self.records.get(path)
        if record is not None:
            return record.value
        return Unreadable.UNREADABLE if path in self.unreadable else None

    def put(self, key: Key[object], record: Record[object] | None) -> None:
        """Take a record in place of the one with this key; None: it is deleted."""
        self.listed = None
        self.unreadable -= {key.path}
        if record is None:
            self.records.pop(key.path, None)
        else:
            self.records[key.path] = record


@define(eq=False)
class _ChangeLog:
    """The keys that have changed, each once, with the number of its last change; at most ``MAX_CHANGES`` of them.

    ``cut_at`` is the number up to which changes are missing: a reader that has not come so far looks at everything.
    """

    last: int = 0
    cut_at: int = 0
    numbers: OrderedDict[Key[object], int] = field(factory=OrderedDict)

    def add(self, key: Key[object]) -> None:
        """A record was created, changed or deleted."""
        self.last += 1
        self.numbers[key] = self.last
        self.numbers.move_to_end(key)
        if len(self.numbers) > MAX_CHANGES:
            _, self.cut_at = self.numbers.popitem(last=False)

    def cut(self) -> None:
        """Everything may have changed."""
        self.last += 1
        self.cut_at = self.last
        self.numbers.clear()

    def since(self, mark: Mark) -> frozenset[Key[object]] | None:
        """The keys that have changed after a mark; None: more of them than are kept."""
        if mark < self.cut_at:
            return None
        return frozenset(key for key, _ in takewhile(lambda each: each[1] > mark, reversed(self.numbers.items())))


def _do_nothing() -> None:
    pass


def _ignore(_kind: Kind[object]) -> None:
    pass


def keep_whole(value: object) -> object:
    """Keep a value as it was read."""
    return value


@define(eq=False)
class View:
    """What is known of one store: answers that were read, and all records of the kinds that a watch keeps true.

    Calls ask ``lookup`` what still counts. Controllers ask ``find``, ``get``, ``list`` and ``changes_since``, about
    kinds that are followed. An event costs the same, whatever is held. Threads may share a view: all it holds is read
    and changed under ``guard``, which a process with threads gives as a lock.

    ``uncached_kinds`` are not kept, because there is a record for every workload. Of ``uncached_absent_kinds`` only
    records that exist are kept: who creates a block looks for all those that it would overlap. When there are more than
    ``max_results`` answers, they are all forgotten, so that records which others deleted do not stay for ever.
    ``max_age_s`` limits the age of what is not in ``non_expiring``; None: there is no need to. ``watch`` is the one
    that keeps the followed kinds true, if it says how far it has come, and ``interruptible_watch`` if another thread
    can end it. ``endpoint_watch`` is the one that keeps those endpoints true that are views of the node's pods; while
    there is none, they are read for each call.

    What is too old is read by one caller, while others wait for ``refreshing``, at most until their deadline.
    ``used`` has what calls have relied on since it was read: who reads in the background reads that again, and nothing
    while there are no calls. ``on_use`` is called when there is more of it, and ``on_change`` with each followed kind
    of which a value has changed. ``keep`` says what is kept of a value of a followed kind: who looks at parts of many
    values need not hold the others.
    """

    clock: Clock
    uncached_kinds: frozenset[Kind[object]]
    max_age_s: float | None = None
    uncached_absent_kinds: frozenset[Kind[object]] = frozenset()
    max_results: int | None = None
    guard: AbstractContextManager[object] = field(factory=nullcontext)
    non_expiring: NonExpiring = ALL_EXPIRE
    refreshing: Callable[[Deadline], AbstractContextManager[object]] = no_lock
    on_use: Callable[[], None] = _do_nothing
    on_change: Callable[[Kind[object]], None] = _ignore
    keep: Callable[[object], object] = keep_whole
    used: set[Query] = field(factory=set, init=False)
    watch: LiveWatch | None = field(default=None, init=False)
    interruptible_watch: InterruptibleWatch | None = field(default=None, init=False)
    endpoint_watch: LiveWatch | None = field(default=None, init=False)
    _answers: dict[Query, ReadResult] = field(factory=dict, init=False)
    _lists: dict[Kind[object], set[Query]] = field(factory=dict, init=False)  # the lists that may be among the answers
    _read_at_s: dict[Query, float] = field(factory=dict, init=False)  # of the answers that count for a limited time
    _revisions: Mapping[Kind[object], Revision] = field(factory=dict, init=False)  # replaced, never changed
    _followed: dict[Kind[object], _FollowedKind] = field(factory=dict, init=False)
    _log: _ChangeLog = field(factory=_ChangeLog, init=False)
    _changed: set[Kind[object]] = field(factory=set, init=False)  # those that ``on_change`` is to be called with

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
    ) -> View:
        """An empty view of a store, with the age limit that the store needs."""
        return cls(
            clock=clock,
            uncached_kinds=uncached_kinds,
            max_age_s=None if datastore.description.atomicity is Atomicity.ATOMIC else FRESH_S,
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
            non_expiring=self.non_expiring,
        )

    def has_listed(self, kinds: Iterable[Kind[object]]) -> bool:
        """Whether each of the kinds was listed once. Before that it is not known what is absent."""
        return all(kind in self._followed for kind in kinds)

    def find(self, key: Key[V]) -> Record[V] | None:
        """The last known record of a followed kind; None if there is none.

        Raises:
            InvariantBroken: the kind was never listed.
        """
        with self.guard:
            found = self._get_followed(key.kind).records.get(key.path)
        return cast("Record[V] | None", found)  # it is of the kind by which it is followed

    def is_unreadable(self, key: Key[object]) -> bool:
        """Whether a record of a followed kind is stored and cannot be read, and nothing was known of it before."""
        with self.guard:
            return key.path in self._get_followed(key.kind).unreadable

    def get(self, key: Key[V]) -> Record[V]:
        """The last known record of a followed kind.

        Raises:
            NotFound: there is none.
            InvariantBroken: the kind was never listed.
        """
        found = self.find(key)
        if found is None:
            raise NotFound(key)
        return found

    def list(self, kind: Kind[V], within: tuple[str, ...] = ()) -> tuple[Record[V], ...]:
        """The last known records of a followed kind whose paths begin with ``within``, in the order of their paths.

        While the watch of the kind is interrupted, these are the records that it had reported.

        Raises:
            InvariantBroken: the kind was never listed.
        """
        query = List(kind, within)
        with self.guard:
            found = self._get_followed(kind).find(query)
        return () if found is None else found.records_for(query)

    def changes_since(self, mark: Mark) -> tuple[Mark, frozenset[Key[object]] | None]:
        """A mark of now, and the keys of followed kinds whose values have changed since another mark, deleted ones too.

        None in place of the keys: look at everything. A kind was listed for the first time, or more than
        ``MAX_CHANGES`` keys have changed. A reader begins with ``START``.
        """
        with self.guard:
            return Mark(self._log.last), self._log.since(mark)

    def read_changes(self, mark: Mark) -> Changes:
        """The values of what has changed since a mark; as of one moment, so that none is newer than another one.

        A reader begins with ``START``. It gets all values where ``changes_since`` does not know which have changed.
        """
        with self.guard:
            now, keys = Mark(self._log.last), self._log.since(mark)
            if keys is None:
                return Changes(mark=now, values=self._all_values(), is_whole=True)
            return Changes(mark=now, values={key: self._get_followed(key.kind).value_of(key.path) for key in keys})

    def _all_values(self) -> dict[Key[object], object]:
        values = {one.key: one.value for each in self._followed.values() for one in each.records.values()}
        for kind, followed in self._followed.items():
            values.update(dict.fromkeys((Key(kind, path) for path in followed.unreadable), Unreadable.UNREADABLE))
        return values

    def _get_followed(self, kind: Kind[object]) -> _FollowedKind:
        found = self._followed.get(kind)
        if found is None:
            raise InvariantBroken(f"{kind} was not listed")
        return found

    @property
    def revisions(self) -> Mapping[Kind[object], Revision]:
        """The revision of each kind that is known now; a commit that begins now says so by it. It never changes."""
        return self._revisions

    @property
    def watched(self) -> dict[Kind[object], float]:
        """The kinds that a watch keeps true, each with the time at which that was last confirmed."""
        with self.guard:
            return {kind: each.confirmed_s for kind, each in self._followed.items() if each.is_kept_true}

    @property
    def snapshot(self) -> Snapshot:
        """Everything that is known, whatever its age."""
        with self.guard:
            lists: dict[Query, ReadResult] = {List(kind): each.find_all() for kind, each in self._kept_true()}
            return Snapshot({**self._answers, **lists}, self._revisions)

    def lookup(self, queries: Sequence[Query], assume_absent: Sequence[Query] = ()) -> Known:
        """What is known, and which of the queries have to be read.

        ``assume_absent`` are queries that are taken to find nothing if other answers are known, but not theirs: the
        call is about to create these records. If one exists after all, the create fails.
        """
        if self.max_age_s is None:
            return self._lookup(queries, assume_absent, None)
        oldest_s = self.clock.monotonic() - self.max_age_s
        known = self._lookup(queries, assume_absent, oldest_s)
        if known.missing and self.note_progress():
            known = self._lookup(queries, assume_absent, oldest_s)
        if not self.used.issuperset(known.aging):
            with self.guard:
                self.used.update(known.aging)
            self.on_use()
        return known

    def _lookup(self, queries: Sequence[Query], assume_absent: Sequence[Query], oldest_s: float | None) -> Known:
        """What is known about the queries.

        ``oldest_s``: what is not confirmed since then is not known, and what ages is known only to who asks for it;
        None: nothing ages.
        """
        aging: dict[Query, float] = {}
        with self.guard:
            results, revisions = dict(self._answers), self._revisions
            if oldest_s is None:
                results.update(self._unasked_lists())
            else:
                for query in self._read_at_s:
                    results.pop(query, None)
            if self._followed or self._read_at_s:
                for query in queries:
                    if query in results or (found := self._find(query, oldest_s)) is None:
                        continue
                    results[query], at_s = found
                    if oldest_s is not None:
                        aging[query] = at_s
        if results:
            for query in assume_absent:
                results.setdefault(query, _NO_RECORDS)
        missing = tuple([query for query in queries if query not in results])
        snapshot = Snapshot(results, revisions)
        return Known(snapshot=snapshot, missing=missing, aging=tuple(aging), at_s=min(aging.values(), default=inf))

    def _kept_true(self) -> tuple[tuple[Kind[object], _FollowedKind], ...]:
        return tuple([(kind, each) for kind, each in self._followed.items() if each.is_kept_true])

    def _unasked_lists(self) -> Iterator[tuple[Query, ReadResult]]:
        """The lists that are given to who has not asked for them, as most decisions do."""
        for kind, each in self._kept_true():
            if each.listed is not None or len(each.records) <= _MAX_UNASKED:
                yield List(kind), each.find_all()

    def _find_kept_true(self, kind: Kind[object]) -> _FollowedKind | None:
        found = self._followed.get(kind)
        return found if found is not None and found.is_kept_true else None

    def _find_time(self, query: Query) -> float | None:
        """Since when the answer to a query of limited time counts; None if there is none."""
        found = self._find(query, None)
        return None if found is None else found[1]

    def _find(self, query: Query, oldest_s: float | None) -> tuple[ReadResult, float] | None:
        """What was read for a query, else what a watch keeps true, and since when it counts."""
        read_at_s = self._read_at_s.get(query)
        if read_at_s is not None and (oldest_s is None or read_at_s >= oldest_s):
            return self._answers[query], read_at_s
        followed = self._find_kept_true(query.kind)
        if followed is None or (oldest_s is not None and followed.confirmed_s < oldest_s):
            return None
        found = followed.find(query)
        return None if found is None else (found, followed.confirmed_s)

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
        caller's, and calls that of the view.
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
            times = [(query, self._find_time(query)) for query in used]
        now_s = self.clock.monotonic()
        ends_s = {query: at_s + self.max_age_s for query, at_s in times if at_s is not None}
        due = {query: None for query, end_s in ends_s.items() if end_s <= now_s}
        with self.guard:
            self.used.update(ends_s.keys() - due.keys())
        if due:
            with self.refreshing(deadline):
                oldest_s = now_s - self.max_age_s
                with self.guard:
                    again = [query for query in due if (self._find_time(query) or -inf) <= oldest_s]
                if again:
                    self.read(store, again, deadline=deadline)
        return min((max(0.0, end_s - now_s) for query, end_s in ends_s.items() if query not in due), default=None)

    def _outdated(self, queries: Sequence[Query]) -> tuple[Query, ...]:
        """Those of some unanswered queries to which there is an answer that is too old."""
        if self.max_age_s is None:
            return ()
        with self.guard:
            return tuple(query for query in queries if self._find_time(query) is not None)

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
            if self._is_contradicted_by(found, oldest_s=at_s - self.max_age_s):
                watch.close()
        self.add_snapshot(found, at_s=at_s)
        return found

    def _is_contradicted_by(self, read: Snapshot, *, oldest_s: float) -> bool:
        """Whether a kind has changed of which its watch has said nothing since ``oldest_s``."""
        with self.guard:
            for query, result in read.results.items():
                followed = self._find_kept_true(query.kind)
                known = None if followed is None or followed.confirmed_s >= oldest_s else followed.find(query)
                if known is not None and known.records != result.records:
                    return True
        return False

    def note_progress(self) -> bool:
        """Note how far the watch has come; whether that is further than was known."""
        watch = self.watch
        if watch is None:
            return False
        watched = self.watched
        times_s = {kind: watch.current_until_s(kind) for kind in watched}
        later = {kind: at_s for kind, at_s in times_s.items() if at_s is not None and at_s > watched[kind]}
        if later:
            self.confirm(later)
        return bool(later)

    def confirm(self, times_s: Mapping[Kind[object], float]) -> None:
        """Note that watched kinds were up to date at some times."""
        with self.guard:
            for kind, at_s in times_s.items():
                followed = self._find_kept_true(kind)
                if followed is not None:
                    followed.confirmed_s = max(at_s, followed.confirmed_s)

    def add_snapshot(self, snapshot: Snapshot, *, at_s: float | None = None) -> None:
        """Keep what was read, and asked for at a time (None: now), as far as it is to be kept.

        Where nothing ages, a watched kind is left to its watch. Elsewhere, its list takes the place of what was known.
        """
        asked_s, policy = self.clock.monotonic() if at_s is None else at_s, self.policy
        with self.guard:
            if policy.max_age_s is not None:
                self._drop_older(asked_s - policy.max_age_s)
                self._take_whole_lists(snapshot, asked_s)
            for query, result in snapshot.results.items():
                does_age, is_watched = policy.does_age(query.kind), self._find_kept_true(query.kind) is not None
                if is_watched and not (does_age and query != List(query.kind)):
                    continue
                if policy.keeps(query, result):
                    is_cached = query.kind in policy.non_expiring.lists
                    self._keep(query, evolve(result, is_cached=True) if is_cached else result)
                    if does_age:
                        self._read_at_s[query] = asked_s
            self._revisions = {**snapshot.revisions, **self._revisions}
            self._limit()
        self._notify()

    def apply_writes(
        self,
        writes: Sequence[Write],
        revisions: Sequence[Revision],
        *,
        began: Mapping[Kind[object], Revision] | None = None,
        at_s: float | None = None,
    ) -> None:
        """Keep what a commit of this process wrote, which began at some ``revisions`` of this view and at a time.

        None: at the present ones. It keeps what ``add_snapshot`` keeps. What was read is not younger for a commit.

        A record of a watched kind changes only if it is known as the commit found it. Otherwise the watch is ahead
        of this commit, or has yet to deliver a change before it, and delivers this one too.
        """
        began_s, policy = self.clock.monotonic() if at_s is None else at_s, self.policy
        non_expiring, uncached, uncached_absent = policy.non_expiring, policy.uncached, policy.uncached_absent
        with self.guard:
            known = self._revisions if began is None else began
            made = [(write, revision) for write, revision in zip(writes, revisions, strict=True) if _is_change(write)]
            if self._followed or non_expiring.views:
                made = [one for one in made if self._is_current(one[0], writes, known)]
            changes, revisions = [write for write, _ in made], [revision for _, revision in made]
            before = Snapshot(self._answers, self._revisions)
            after = apply_writes(before, changes, revisions, uncached=uncached, uncached_absent=uncached_absent)
            self._answers = dict(after.results)
            for write, revision in zip(changes, revisions, strict=True):
                key, kind = write.key, write.key.kind
                if policy.does_age(kind):
                    self._read_at_s.setdefault(Get(key), began_s)
                followed = self._find_kept_true(kind)
                if followed is not None and kind not in uncached:
                    self._put(followed, key, None if isinstance(write, Delete) else Record(key, write.value, revision))
                if followed is not None or kind in non_expiring.lists - non_expiring.records:
                    self._drop(Get(key))
            gone = [query for query in self._read_at_s if query not in self._answers]
            for query in gone:
                del self._read_at_s[query]
            self._limit()
        self._notify()

    def _is_current(self, write: _Change, writes: Sequence[Write], began: Mapping[Kind[object], Revision]) -> bool:
        """Whether a write changes a record that is known as the commit found it, or one that no watch reports on."""
        kind = write.key.kind
        followed = self._find_kept_true(kind)
        if followed is None:
            if kind not in self.non_expiring.views or isinstance(write, Create):
                return True
            found = self._answers.get(Get(write.key))  # a watch may have brought a later change already
            return found is None or any(record.revision == write.revision for record in found.records)
        first: Write = write
        while isinstance(first, (Update, Delete)) and isinstance(first.revision, Written):
            first = writes[first.revision.index]  # an earlier change of the same record
        record = followed.records.get(write.key.path)
        if not isinstance(first, (Update, Delete)):  # a watch that delivered anything may have deleted the record again
            return record is None and began.get(kind) == self._revisions[kind]
        return record is not None and record.revision == first.revision

    def apply_event(self, event: WatchEvent[object], *, now_s: float) -> None:
        """Take a change that a watch delivered; nothing happens if the kind is not watched any more.

        ``now_s`` is the time since which no change of the kind is missing, as far as the change proves one.
        """
        key, kind = event.key, event.key.kind
        with self.guard:
            followed = self._find_kept_true(kind)
            if followed is None:
                return
            kept = None if event.value is None else Record(key, self.keep(event.value), event.revision)
            self._put(followed, key, kept)
            followed.confirmed_s = max(now_s, followed.confirmed_s)
            self._revisions = {**self._revisions, kind: event.revision}
            for query in (Get(key), *self._lists.get(kind, ())):
                if query in self._read_at_s and (isinstance(query, Get) or query.covers(key)):
                    self._drop(query)
        self._notify()

    def apply_record_event(self, event: WatchEvent[object]) -> None:
        """Take a change of a single record, of whose kind not all are known."""
        with self.guard:
            if event.value is None:
                self._drop(Get(event.key))
            else:
                self._keep(Get(event.key), ReadResult((Record(event.key, event.value, event.revision),)))
            self._limit()

    def follow_lists(self, read: Snapshot, *, now_s: float, unreadable: Iterable[Key[object]] = ()) -> None:
        """Take whole lists of kinds, which a watch keeps true from here on.

        ``unreadable`` are records that the lists lack because they cannot be read, and that were not known before.
        """
        with self.guard:
            self._take_lists(read, now_s, frozenset(unreadable))
        self._notify()

    def lose(self, kinds: AbstractSet[Kind[object]]) -> None:
        """Answer no call about some kinds: nothing keeps them true. Controllers still see their last records."""
        with self.guard:
            self._lose(kinds)

    def forget(self, queries: Iterable[Query]) -> None:
        """Forget the answers to some queries."""
        with self.guard:
            for query in queries:
                self._drop(query)

    def invalidate(self) -> None:
        """Forget what was read and written; the next call reads. Watched kinds stay: their watch corrects them."""
        with self.guard:
            self._drop_reads()

    # The caller of what follows has the guard.

    def _put(self, followed: _FollowedKind, key: Key[object], record: Record[object] | None) -> None:
        before = followed.value_of(key.path)
        followed.put(key, record)
        self._note(key, before, followed.value_of(key.path))

    def _note(self, key: Key[object], before: object | None, after: object | None) -> None:
        """Let readers see a value in place of another one; None: there is none.

        An equal one is no change: readers get values, and a write with an old revision fails and is tried again.
        """
        if before != after:
            self._log.add(key)
            self._changed.add(key.kind)

    def _keep(self, query: Query, result: ReadResult) -> None:
        self._answers[query] = result
        if isinstance(query, List):
            self._lists.setdefault(query.kind, set()).add(query)

    def _drop(self, query: Query) -> None:
        self._answers.pop(query, None)
        self._read_at_s.pop(query, None)

    def _drop_reads(self) -> None:
        self._answers, self._lists, self._read_at_s = {}, {}, {}
        self._revisions = {kind: self._revisions[kind] for kind, _ in self._kept_true()}

    def _limit(self) -> None:
        if self.max_results is not None and len(self._answers) + len(self._followed) > self.max_results:
            self._drop_reads()

    def _drop_older(self, oldest_s: float) -> None:
        """Drop the answers that were asked for before a time, and the revisions of kinds of which nothing is left."""
        old = [query for query, at_s in self._read_at_s.items() if at_s < oldest_s]
        for query in old:
            self._drop(query)
        gone = {query.kind for query in old}
        if gone:
            gone -= {query.kind for query in self._answers} | {kind for kind, _ in self._kept_true()}
            self._revisions = {kind: each for kind, each in self._revisions.items() if kind not in gone}

    def _take_whole_lists(self, read: Snapshot, at_s: float) -> None:
        """Take those lists of watched kinds that were asked for after their watch spoke.

        Of a kind with a malformed record no call is answered: its watch would not say when it is repaired.
        """
        for query, result in read.results.items():
            kind = query.kind
            followed = self._find_kept_true(kind) if query == List(kind) else None
            if followed is None or followed.confirmed_s >= at_s:
                continue
            if result.malformed:
                self._lose({kind})
            else:
                self._take_lists(Snapshot({query: result}, {kind: read.revisions[kind]}), at_s)

    def _take_lists(self, read: Snapshot, now_s: float, unreadable: frozenset[Key[object]] = frozenset()) -> None:
        """Take whole lists; what differs from the last records that were known has changed."""
        self._lose({query.kind for query in read.results})
        for query, result in read.results.items():
            kind, before = query.kind, self._followed.get(query.kind)
            listed = result if self.keep is keep_whole else None
            records = {record.key.path: record if listed else self._kept(record) for record in result.records}
            damaged = frozenset(key.path for key in unreadable if key.kind == kind)
            followed = self._followed[kind] = _FollowedKind(records, now_s, listed=listed, unreadable=damaged)
            if before is None:
                self._log.cut()
                self._changed.add(kind)
                continue
            for path in before.records.keys() | records.keys() | before.unreadable | damaged:
                self._note(Key(kind, path), before.value_of(path), followed.value_of(path))
        self._revisions = {**self._revisions, **read.revisions}

    def _kept(self, record: Record[object]) -> Record[object]:
        return Record(record.key, self.keep(record.value), record.revision)

    def _lose(self, kinds: AbstractSet[Kind[object]]) -> None:
        for query in [query for query in self._answers if query.kind in kinds]:
            self._drop(query)
        self._revisions = {kind: each for kind, each in self._revisions.items() if kind not in kinds}
        for kind in kinds & self._followed.keys():
            self._followed[kind].is_kept_true = False

    def _notify(self) -> None:
        """Call ``on_change``; without the guard, as it may ask the view."""
        if self._changed:
            with self.guard:
                changed, self._changed = self._changed, set()
            for kind in changed:
                self.on_change(kind)
