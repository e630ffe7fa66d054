"""A datastore in the memory of one process, for tests and simulation, and the locks of a host beside it.

It is as strict as a real store: it compares revisions, honours deadlines and forgets old history. ``MemoryMode`` says
which kind of store it behaves like. It counts its calls, so that a test can limit the round trips of a flow.
"""

from __future__ import annotations

import enum
import json
import os
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from threading import Lock

from attrs import define, evolve, field

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Atomicity, DatastoreDescription
from netplug_core.datastore.write_set import (
    Condition,
    KindCondition,
    condition_error,
    fold_writes,
    requirement_revision,
)
from netplug_core.errors import Unavailable
from netplug_core.locks import HeldLock
from netplug_core.records import (
    ABSENT,
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
    WatchEvent,
    WatchExpired,
    Write,
)

__all__ = [
    "CallCounts", "MemoryDatastore", "MemoryLocks", "MemoryMode",
]  # fmt: skip


# --- locks -----------------------------------------------------------------------------------------------------------


@define
class MemoryLocks:
    """The locks of one machine. ``taken`` lists each lock that was ever taken, in order."""

    errors: dict[str, OSError] = field(factory=dict)
    taken: list[tuple[str, int]] = field(factory=list)
    _held: set[tuple[str, int]] = field(factory=set)
    _guard: Lock = field(factory=Lock)

    def try_lock(self, path: str, offset: int) -> HeldLock | None:
        """Take a lock, as :meth:`netplug_core.locks.LockHost.try_lock` says."""
        if path in self.errors:
            raise self.errors[path]
        with self._guard:
            if (path, offset) in self._held:
                return None
            self._held.add((path, offset))
            self.taken.append((path, offset))
        return _MemoryLock(self._held, (path, offset))

    @property
    def held(self) -> frozenset[tuple[str, int]]:
        """The locks that are held now."""
        return frozenset(self._held)

    def release_all(self) -> None:
        """Release every lock, as the kernel does when the holders die."""
        self._held.clear()


@define(eq=False)
class _MemoryLock:
    _held: set[tuple[str, int]]
    _name: tuple[str, int]
    _is_released: bool = False

    def release(self) -> None:
        """Release it, once."""
        if not self._is_released:
            self._is_released = True
            self._held.discard(self._name)


# --- datastore -------------------------------------------------------------------------------------------------------


_WATCH_POLL_S = 0.1
_CACHE_LAG, _CACHE_LAG_S = 3, 1.0  # changes that a cached list does not show yet, and for how long
_MAX_INSERTIONS = 16  # paths that are put in their places one by one rather than by sorting all


class MemoryMode(enum.Enum):
    """Which kind of store the memory store behaves like.

    ``ATOMIC`` applies a commit whole or not at all, as etcd and sqlite do. ``ORDERED`` applies the writes one by one.
    ``KUBE_LIKE`` is ordered, and behaves like an API server: the revision of a record is its uid and its number, and
    an update that changes nothing keeps the revision and makes no event. A list that may be cached does not show the
    latest changes of the last second.
    """

    ATOMIC = "atomic"
    ORDERED = "ordered"
    KUBE_LIKE = "kube-like"

    @property
    def atomicity(self) -> Atomicity:
        """What a failing commit leaves behind in this mode."""
        return Atomicity.ATOMIC if self is MemoryMode.ATOMIC else Atomicity.ORDERED


@define
class CallCounts:
    """How many reads and commits a store has served."""

    reads: int = 0
    commits: int = 0


@define
class _ChangeEvent:
    # One change, with the record before it: the pages of an older revision are made from that.
    number: int
    key: Key[object]
    value: object | None
    revision: Revision
    before: Record[object] | None
    at_s: float


@define(eq=False, repr=False)
class _SortedPaths:
    """The paths of one kind's keys; they are sorted at the next list, not at each write."""

    _sorted: list[tuple[str, ...]] = field(factory=list, init=False)
    _new: set[tuple[str, ...]] = field(factory=set, init=False)

    def add(self, path: tuple[str, ...]) -> None:
        self._new.add(path)

    def remove(self, path: tuple[str, ...]) -> None:
        if path in self._new:
            self._new.remove(path)
        else:
            del self._sorted[bisect_left(self._sorted, path)]

    def sorted_paths(self) -> list[tuple[str, ...]]:
        if len(self._new) > _MAX_INSERTIONS:
            self._sorted.extend(self._new)
            self._sorted.sort()
        else:
            for path in self._new:
                insort(self._sorted, path)
        self._new.clear()
        return self._sorted


@define(eq=False)
class MemoryDatastore:
    """Records that end with the process; threads may share the store.

    A watch waits on ``clock``. ``keep_changes`` is the number of past changes that a watch, or the next page of a
    list, can start from. Each call holds ``lock``, and waits for it until its deadline.
    """

    mode: MemoryMode = MemoryMode.ATOMIC
    _clock: Clock = field(kw_only=True, alias="clock")
    _keep_changes: int = field(default=10_000, kw_only=True, alias="keep_changes")
    calls: CallCounts = field(factory=CallCounts, init=False)
    description: DatastoreDescription = field(init=False)
    lock: Lock = field(factory=Lock, init=False)
    _records: dict[Key[object], Record[object]] = field(factory=dict, init=False)
    # By name of the kind; likewise the number of the newest change that left a record.
    _paths: defaultdict[str, _SortedPaths] = field(factory=lambda: defaultdict(_SortedPaths), init=False)
    _newest: dict[str, int] = field(factory=dict, init=False)
    _events: deque[_ChangeEvent] = field(init=False)
    _number: int = field(default=0, init=False)
    _identity: str = field(factory=lambda: os.urandom(16).hex(), init=False)

    def __attrs_post_init__(self) -> None:
        atomicity = self.mode.atomicity
        self.description = DatastoreDescription(name="memory", atomicity=atomicity, location="this process")
        self._events = deque(maxlen=self._keep_changes)

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries from one moment; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        self._acquire_lock(deadline)
        try:
            self.calls.reads += 1
            now = Revision(str(self._number))
            kinds = (query.kind for query in queries)
            return Snapshot({query: self._answer(query) for query in queries}, dict.fromkeys(kinds, now))
        finally:
            self.lock.release()

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        self._acquire_lock(deadline)
        try:
            self.calls.commits += 1
            if self.mode is MemoryMode.ATOMIC:
                return self._apply_atomically(writes)
            return self._apply_in_order(writes)
        finally:
            self.lock.release()

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        seen = {kind: self._number_of(revision) for kind, revision in start.items()}
        while True:
            with self.lock:
                events = self._events_after(min(seen.values(), default=self._number))
                number = self._number
            if events is None:
                raise WatchExpired(min(start.values(), key=self._number_of))
            for event in events:
                if event.number > seen.get(event.key.kind, number):
                    yield WatchEvent(event.key, event.value, event.revision)
            seen = {kind: max(number, before) for kind, before in seen.items()}
            if deadline.has_passed:
                return
            self._clock.sleep(min(_WATCH_POLL_S, deadline.remaining_s))

    def find_identity(self, *, deadline: Deadline) -> str:
        """See :class:`~netplug_core.datastore.protocol.HasIdentity`."""
        self._acquire_lock(deadline)
        self.lock.release()
        return self._identity

    def _acquire_lock(self, deadline: Deadline) -> None:
        if deadline.has_passed:
            raise Unavailable("the memory datastore", "the deadline had passed before it was asked")
        if not self.lock.acquire(blocking=False) and not self.lock.acquire(timeout=deadline.remaining_s):
            raise Unavailable("the memory datastore", "another thread kept it locked until the deadline")

    # --- answers; the lock is held ---------------------------------------------------------------------------------

    def _answer(self, query: Query) -> ReadResult:
        if isinstance(query, Get):
            record = self._records.get(query.key)
            return ReadResult((record,) if record else ())
        is_cached = query.may_be_cached and self.mode is MemoryMode.KUBE_LIKE
        if query.after:
            number, last = _parse_after(query.after)
        else:
            number, last = self._number - (self._count_uncached_changes() if is_cached else 0), ()
        events = self._events_after(number)
        if events is None:
            raise Unavailable(f"the list of {query.kind}", "the revision of its first page is no longer kept")
        if not events:  # nothing was changed since: the usual case, and half the work
            return _page(query, self._records_after(query, last), number, is_cached=is_cached)
        # What was changed since the first page is shown as it was then.
        was: dict[Key[object], Record[object] | None] = {}
        for event in events:
            was.setdefault(event.key, event.before)
        still = (record for record in self._records_after(query, last) if record.key not in was)
        then = (record for record in was.values() if record and query.covers(record.key) and record.key.path > last)
        in_order = merge(still, sorted(then, key=_path), key=_path)
        return _page(query, in_order, number, is_cached=is_cached)

    def _count_uncached_changes(self) -> int:
        oldest_s = self._clock.monotonic() - _CACHE_LAG_S
        return sum(event.at_s > oldest_s for event in islice(reversed(self._events), _CACHE_LAG))

    def _records_after(self, query: List[object], last: tuple[str, ...]) -> Iterator[Record[object]]:
        paths = self._paths[query.kind.name].sorted_paths()
        first = bisect_right(paths, last) if last else bisect_left(paths, query.start)
        for position in range(first, len(paths)):
            key = Key(query.kind, paths[position])
            if not query.covers(key):
                return
            yield self._records[key]

    def _events_after(self, number: int) -> tuple[_ChangeEvent, ...] | None:
        # Event numbers have no gaps, so a subtraction finds the place. None: not kept, or not of this store.
        behind = self._number - number
        if not behind:
            return ()
        if not 0 <= behind <= len(self._events):
            return None
        newest_first = tuple(islice(reversed(self._events), behind))  # mostly none, of thousands
        return newest_first[::-1]

    # --- changes; the lock is held ---------------------------------------------------------------------------------

    def _apply_atomically(self, writes: Sequence[Write]) -> tuple[Revision, ...]:
        folded = fold_writes(writes)
        for condition in folded.conditions:
            self._check_condition(writes, condition)
        made = [self._change(effect.key, effect.value) for effect in folded.mutations]
        return folded.revisions(made, Revision(str(self._number)))

    def _apply_in_order(self, writes: Sequence[Write]) -> tuple[Revision, ...]:
        folded = fold_writes(writes)
        conditions = {condition.index: condition for condition in folded.conditions}
        made: list[Revision] = []
        for index, write in enumerate(writes):
            if isinstance(write, (Require, RequireUnchanged)):
                made.append(requirement_revision(write))
                continue
            if index in conditions:  # a write that goes on from an earlier one of the list finds what that one made
                self._check_condition(writes, conditions[index], applied=index)
            made.append(self._change(write.key, None if isinstance(write, Delete) else write.value))
        return tuple(made)

    def _check_condition(self, writes: Sequence[Write], condition: Condition, *, applied: int = 0) -> None:
        current: Record[object] | None = None
        if isinstance(condition, KindCondition):
            holds = self._newest.get(condition.kind.name, 0) <= self._number_of(condition.revision) <= self._number
        else:
            current = self._records.get(condition.key)
            holds = condition.expected == (current.revision if current else ABSENT)
        if not holds:
            raise condition_error(writes[condition.index], condition.index, current, applied=applied)

    def _change(self, key: Key[object], value: object | None) -> Revision:
        before = self._records.get(key)
        if self.mode is MemoryMode.KUBE_LIKE and before is not None and before.value == value:
            return before.revision
        self._number += 1
        revision = self._revision_of_change(before)
        if value is not None:
            self._records[key] = Record(key, value, revision)
            self._newest[key.kind.name] = self._number
        else:
            del self._records[key]
        if (before is None) is not (value is None):
            paths = self._paths[key.kind.name]
            paths.add(key.path) if before is None else paths.remove(key.path)
        at_s = self._clock.monotonic() if self.mode is MemoryMode.KUBE_LIKE else 0.0
        self._events.append(_ChangeEvent(self._number, key, value, revision, before, at_s))
        return revision

    def _revision_of_change(self, before: Record[object] | None) -> Revision:
        if self.mode is not MemoryMode.KUBE_LIKE:
            return Revision(str(self._number))
        uid = before.revision.partition("/")[0] if before else f"uid-{self._number}"
        return Revision(f"{uid}/{self._number}")

    def _number_of(self, revision: Revision) -> int:
        # A revision that this store never gave counts as older than everything, so it proves nothing.
        number = revision.rpartition("/")[2] if self.mode is MemoryMode.KUBE_LIKE else revision
        return int(number) if number.isascii() and number.isdigit() else -1


def _page(query: List[object], records: Iterator[Record[object]], number: int, *, is_cached: bool) -> ReadResult:
    """The first records, as many as the query wants at a time; ``number`` is that of the first page's change."""
    found = tuple(islice(records, query.limit + 1)) if query.limit else tuple(records)
    after = ""
    if query.limit and len(found) > query.limit:
        found = found[: query.limit]
        after = json.dumps([number, *found[-1].key.path])
    return _result(query, found, after, is_cached=is_cached)


def _result(query: List[object], records: tuple[Record[object], ...], after: str, *, is_cached: bool) -> ReadResult:
    condition = query.keys_only_if
    if condition is None:
        return ReadResult(records, after, is_cached=is_cached)
    found = ReadResult.of((record.key if condition.holds(record.value) else record for record in records), after)
    return evolve(found, is_cached=is_cached)


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path


def _parse_after(after: str) -> tuple[int, tuple[str, ...]]:
    number, *last = json.loads(after)
    return number, tuple(last)
