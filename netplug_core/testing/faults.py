"""Datastores that fail: scripted faults, writes of killed processes that arrive late, and records that are damaged.

The n-th commit loses its race, its request or its reply, the process dies before or after it, or another operation runs
first. Tests wrap any datastore in :class:`FaultyDatastore`. A fault happens once, at its commit; every other call
passes through unchanged.

A late write was on its way when its process was killed: the store applies it later, if its conditions hold then. On an
atomic store a whole commit is on its way. On an ordered store it is one write: those before it are applied, and those
after it were never sent.

Tests wrap a datastore in :class:`DamagedDatastore`. A damaged record is read from the bytes that are put in its place.
A write that replaces or deletes the record removes the damage with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, assert_never

from attrs import define, evolve, field, frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity, Datastore, DatastoreDescription
from netplug_core.datastore.write_set import requirement_revision
from netplug_core.encoding.stored_json import STORED_JSON, ValueCodec
from netplug_core.errors import InvariantBroken, Unavailable
from netplug_core.records import (
    CommitError,
    Conflict,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    OutcomeUnknown,
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
    "DamagedDatastore", "Fault", "FaultyDatastore", "LateWrite", "LostRace", "LostReply", "LostRequest", "ProcessDeath",
    "ProcessDied", "RunBefore", "SentWrites", "send_until",
]  # fmt: skip


# --- faults ----------------------------------------------------------------------------------------------------------


_LOCATION = "the scripted datastore"


class ProcessDied(BaseException):
    """The process ends here, as by ``kill -9``; no error handler may catch this."""


@frozen
class LostRace:
    """Another writer was faster at write ``applied``: ``Conflict``. An ordered store has applied those before it."""

    applied: int = 0


@frozen
class LostRequest:
    """The request of the write ``applied`` never arrived. An ordered store has applied those before it."""

    applied: int = 0


@frozen
class LostReply:
    """The store applied the writes, and the reply was lost.

    ``applied`` is the number of writes that reached the store; None is all of them.
    """

    applied: int | None = None


@frozen
class ProcessDeath:
    """The process dies after ``applied`` writes: 0 is before the commit, None after the whole of it."""

    applied: int | None


@frozen
class RunBefore:
    """Another operation runs completely just before this commit arrives."""

    operation: Callable[[], object]


Fault: TypeAlias = LostRace | LostRequest | LostReply | ProcessDeath | RunBefore


@define(eq=False)
class FaultyDatastore:
    """A datastore around another one; ``script`` says what happens to the n-th commit, counted from 1."""

    _inner: Datastore
    _script: Mapping[int, Fault]
    commits: int = field(default=0, init=False)

    @property
    def description(self) -> DatastoreDescription:
        """The description of the inner store."""
        return self._inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries; has no faults."""
        return self._inner.read(queries, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given; has no faults."""
        return self._inner.watch(start, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes, or fail as the script says for this commit.

        Raises:
            ProcessDied: the script says so.
        """
        self.commits += 1
        match self._script.get(self.commits):
            case None:
                return self._inner.commit(writes, deadline=deadline)
            case RunBefore(operation):
                operation()
                return self._inner.commit(writes, deadline=deadline)
            case ProcessDeath(applied):
                with suppress(CommitError):  # the process that would get the answer is dead
                    self._send(writes, applied, deadline)
                raise ProcessDied
            case LostReply(applied):
                with suppress(CommitError):
                    self._send(writes, applied, deadline)
                sent = len(writes) if applied is None else applied
                known = 0 if self._is_atomic else max(0, sent - 1)
                raise OutcomeUnknown(_LOCATION, "the reply was lost", known)
            case LostRequest(applied) | LostRace(applied) if applied >= len(writes):
                return self._inner.commit(writes, deadline=deadline)  # the commit has no such write to lose
            case LostRequest(0):
                raise Unavailable(_LOCATION, "the request was lost")
            case LostRequest(applied):
                self._send(writes, applied, deadline)
                raise OutcomeUnknown(_LOCATION, f"the request of write {applied} was lost", applied)
            case LostRace(applied):
                self._send(writes, applied, deadline)
                raise self._lost_race(writes[applied], applied, deadline)
            case unexpected:
                assert_never(unexpected)

    @property
    def _is_atomic(self) -> bool:
        return self.description.atomicity is Atomicity.ATOMIC

    def _send(self, writes: Sequence[Write], applied: int | None, deadline: Deadline) -> None:
        count = len(writes) if applied is None else applied
        if self._is_atomic and 0 < count < len(writes):
            raise InvariantBroken(f"the script applies {count} of {len(writes)} writes, and the store is atomic")
        if count:
            self._inner.commit(writes[:count], deadline=deadline)

    def _lost_race(self, write: Write, index: int, deadline: Deadline) -> Conflict:
        if isinstance(write, RequireUnchanged):
            return Conflict(write.kind, index, None, index)
        current = self._inner.read((Get(write.key),), deadline=deadline).find(write.key)
        return Conflict(write.key, index, current, index)


# --- late writes -----------------------------------------------------------------------------------------------------


@frozen
class LateWrite:
    """What a process that died has sent, and the store has not received yet."""

    writes: tuple[Write, ...]

    def land(self, store: Datastore, *, deadline: Deadline) -> None:
        """Let it arrive: the store applies it, or refuses it because a condition does not hold any more."""
        with suppress(CommitError):  # the process that would get the answer is dead
            store.commit(self.writes, deadline=deadline)


@define(eq=False, repr=False)
class SentWrites:
    """A commit to an ordered store, sent write by write: each is a commit of its own."""

    _store: Datastore
    _deadline: Deadline
    revisions: list[Revision] = field(factory=list, init=False)

    @staticmethod
    def is_change(write: Write) -> bool:
        """Whether a write is sent at all: an ordered store does not evaluate requirements."""
        return not isinstance(write, (Require, RequireUnchanged))

    def prepared(self, write: Write) -> Write:
        """The write as it is sent: with the revision that an earlier write of the commit has made."""
        if isinstance(write, (Update, Delete)) and isinstance(write.revision, Written):
            return evolve(write, revision=self.revisions[write.revision.index])
        return write

    def send(self, write: Write) -> None:
        """Send the next write.

        Raises:
            CommitError: it was refused; ``applied`` counts the writes before it.
        """
        if isinstance(write, (Require, RequireUnchanged)):
            self.revisions.append(requirement_revision(write))
            return
        try:
            self.revisions += self._store.commit((self.prepared(write),), deadline=self._deadline)
        except CommitError as error:
            place = len(self.revisions)
            raise evolve(error, index=place, applied=place) from None


def send_until(store: Datastore, writes: Sequence[Write], position: int, *, deadline: Deadline) -> LateWrite | None:
    """Send a commit up to the change at ``position`` (modulo their number), which is on its way when the process dies.

    None if the store refused a write before it: then no other was sent.
    """
    if store.description.atomicity is Atomicity.ATOMIC:
        return LateWrite(tuple(writes))
    sent = SentWrites(store, deadline)
    places = [place for place, write in enumerate(writes) if sent.is_change(write)]
    last = places[position % len(places)]
    try:
        for write in writes[:last]:
            sent.send(write)
    except CommitError:
        return None
    return LateWrite((sent.prepared(writes[last]),))


# --- damaged records -------------------------------------------------------------------------------------------------


@define
class DamagedDatastore:
    """A datastore around another one; ``damage`` has the bytes of records that differ from what was stored."""

    inner: Datastore
    codec: ValueCodec = STORED_JSON
    damage: dict[Key[object], bytes] = field(factory=dict)

    @property
    def description(self) -> DatastoreDescription:
        """The description of the inner store."""
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries; what is damaged is decoded anew, also where a list would answer it by its key alone."""
        kinds = {query.kind for query in queries if isinstance(query, List) and query.keys_only_if is not None}
        damaged = tuple(Get(key) for key in self.damage if key.kind in kinds)
        found = self.inner.read(tuple(dict.fromkeys((*queries, *damaged))), deadline=deadline)
        by_key = {record.key: record for query in damaged for record in found.readable(query)}
        results = {query: self._damaged(found.results[query], by_key) for query in queries}
        return Snapshot(results, found.revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes; a record that is written is sound again."""
        revisions = self.inner.commit(writes, deadline=deadline)
        for write in writes:
            if not isinstance(write, (Require, RequireUnchanged)):
                self.damage.pop(write.key, None)
        return revisions

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given: damage is none."""
        return self.inner.watch(start, deadline=deadline)

    def _damaged(self, result: ReadResult, by_key: Mapping[Key[object], Record[object]]) -> ReadResult:
        if self.damage.keys().isdisjoint((*(record.key for record in result.records), *result.keys)):
            return result
        named = (by_key[key] for key in result.keys if key in self.damage)
        stored = sorted((*result.records, *named), key=lambda record: record.key.path)
        decoded = (each for record in stored if (each := self._decode(record)) is not None)
        keys = (key for key in result.keys if key not in self.damage)
        made = ReadResult.of((*result.malformed, *decoded, *keys), result.after)
        return evolve(made, is_cached=result.is_cached)

    def _decode(self, record: Record[object]) -> Record[object] | Malformed | None:
        data = self.damage.get(record.key)
        try:
            value = record.value if data is None else self.codec.decode(record.key, data)
        except Malformed as error:
            return evolve(error, revision=record.revision)
        return None if value is None else evolve(record, value=value)
