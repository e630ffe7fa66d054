"""What a resident process remembers of a store between its calls, so that a call can begin without a read.

``loop`` asks it first and tells it what was read and written. Nothing rests on it: a commit carries conditions for
everything that its decision leant on, so what is out of date costs a conflict and a fresh read, never a wrong address.
A store that cannot judge such conditions bounds the age of what is remembered instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from netplug_core.clock import Clock
from netplug_core.datastore.protocol import Atomicity, Datastore
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
    Write,
)

__all__ = ["ORDERED_MAX_AGE_S", "DatastoreCache"]

ORDERED_MAX_AGE_S = 0.5
"""How old an answer may be where the store does not judge requirements."""

_NO_RECORDS = ReadResult(())


@define
class DatastoreCache:
    """Answers of one store, the newest known.

    ``passing`` are kinds that are not remembered, because there is a record for every workload.
    """

    clock: Clock
    uncached_kinds: frozenset[Kind[object]]
    max_age_s: float | None = None
    _results: dict[Query, ReadResult] = field(factory=dict, init=False)
    _listed_kinds: set[Kind[object]] = field(factory=set, init=False)
    _revisions: dict[Kind[object], Revision] = field(factory=dict, init=False)
    _filled_at_s: float = field(default=0.0, init=False)

    @classmethod
    def for_datastore(
        cls, datastore: Datastore, *, clock: Clock, uncached_kinds: frozenset[Kind[object]]
    ) -> DatastoreCache:
        """A memory for a store, with the age that the store needs."""
        is_atomic = datastore.description.atomicity is Atomicity.ATOMIC
        return cls(clock, uncached_kinds, None if is_atomic else ORDERED_MAX_AGE_S)

    def lookup(self, queries: Sequence[Query], assume_absent: Sequence[Query]) -> tuple[Snapshot, tuple[Query, ...]]:
        """What is known, and which of the queries have to be read.

        ``presumed`` are queries that are taken to find nothing if anything else is known at all: records that the
        call is about to create. If one is there after all, the create will say so.
        """
        if self.max_age_s is not None and self._results and self.clock.monotonic() - self._filled_at_s > self.max_age_s:
            self.invalidate()
        answers = dict(self._results)
        if answers:
            answers.update(dict.fromkeys(assume_absent, _NO_RECORDS))
        return Snapshot(answers, dict(self._revisions)), tuple(query for query in queries if query not in answers)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Remember what was read."""
        if not self._results:
            self._filled_at_s = self.clock.monotonic()
        for query, answer in snapshot.results.items():
            if query.kind not in self.uncached_kinds and not (isinstance(query, List) and query.limit):
                self._results[query] = answer
                if isinstance(query, List):
                    self._listed_kinds.add(query.kind)
        self._revisions = {**snapshot.revisions, **self._revisions}

    def apply_writes(self, writes: Sequence[Write], revisions: Sequence[Revision]) -> None:
        """Remember what a commit made; an empty revision is that of a key which the commit removed."""
        for write, revision in zip(writes, revisions, strict=True):
            if isinstance(write, (Require, RequireUnchanged)) or write.key.kind in self.uncached_kinds:
                continue
            self._apply_write(write, revision)

    def invalidate(self) -> None:
        """Remember nothing; the next call reads."""
        self._results.clear()
        self._listed_kinds.clear()
        self._revisions.clear()

    def _apply_write(self, write: Create[object] | Update[object] | Delete[object], revision: Revision) -> None:
        key = write.key
        record = None if isinstance(write, Delete) else Record(key, write.value, revision)
        self._results[Get(key)] = ReadResult((record,)) if record else _NO_RECORDS
        if key.kind not in self._listed_kinds:
            return
        for query, answer in tuple(self._results.items()):  # another call of this process may be learning
            if isinstance(query, List) and query.kind == key.kind and key.path[: len(query.within)] == query.within:
                found = [old for old in answer.records if old.key != key]
                found.extend([record] if record else ())
                self._results[query] = ReadResult(tuple(sorted(found, key=_path)))


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path
