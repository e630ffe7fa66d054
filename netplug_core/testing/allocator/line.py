"""The way of one client to the store: what happens on it, by script, and who watches.

Calls are counted from 1, reads and commits alike, so that a test can let something happen at each of them: the request
or the reply gets lost, the process dies, somebody else comes first, time passes. Whoever watches sees the stored
state before and after every commit, whatever became of it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, assert_never

from attrs import Factory, define, field, frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.interface import Atomicity, Datastore, DatastoreDescription
from netplug_core.errors import InvariantBroken, Unavailable
from netplug_core.records import Change, CommitError, Kind, OutcomeUnknown, Query, Revision, Snapshot, Write
from netplug_core.testing.faults import Death, Fault, FaultyDatastore, LostRace, LostReply, LostRequest, ProcessDied

__all__ = ["CALL_S", "LATE_S", "Line", "Mishap", "Sort", "Watcher"]

CALL_S = 0.001
"""How long each call to the store takes."""

LATE_S = 200.0
"""How late something is that is too late: no deadline of an operation is that far away."""


class Sort(enum.Enum):
    """What happens to a call."""

    RACE = "another writer wins"
    REQUEST = "the request is lost"
    REPLY = "the reply is lost"
    DEATH = "the process dies"
    STALL = "it is sent after every deadline"
    LATE = "its reply comes after every deadline"
    RIVAL = "somebody else does something first"


@frozen
class Mishap:
    """What happens to the call ``at`` (from 1) that a client makes.

    ``position`` says how many writes of a commit are applied before it happens: all or none in an atomic store (odd or
    even), that many in an ordered one, modulo what there is. A ``RIVAL`` does ``act``.
    """

    sort: Sort
    at: int
    position: int = 0
    act: Callable[[], object] | None = field(default=None, eq=False)

    def fault(self, count: int, atomicity: Atomicity) -> Fault:
        """What it is to a commit of so many writes."""
        is_atomic = atomicity is Atomicity.ATOMIC
        applied = count * (self.position % 2) if is_atomic else self.position % (count + 1)
        before = 0 if is_atomic else self.position % count
        match self.sort:
            case Sort.RACE:
                return LostRace(before)
            case Sort.REQUEST:
                return LostRequest(before)
            case Sort.REPLY | Sort.LATE:
                return LostReply(applied)
            case Sort.DEATH:
                return Death(applied)
            case Sort.STALL | Sort.RIVAL:
                raise InvariantBroken(f"{self.sort} changes nothing about a commit")
            case _:
                assert_never(self.sort)


class Watcher(Protocol):
    """Who is told of commits."""

    def before_commit(self, line: Line) -> None:
        """A commit is about to arrive."""
        ...

    def after_commit(self, line: Line) -> None:
        """It has, or it has not: the store says what became of it."""
        ...


@define(eq=False, kw_only=True)
class Line:
    """A datastore as one client sees it.

    ``writes`` has, for each call since the last ``arm``, how many writes it brought; 0 for a read. ``kinds`` are those
    that were read since then, and ``reading_since`` is when the client began to read what its last commit rests on.
    ``has_half_done`` is whether a commit was refused since then of which a part was applied.
    """

    inner: Datastore
    clock: Clock
    watcher: Watcher
    mishaps: dict[int, Mishap] = field(default=Factory(dict))
    writes: list[int] = field(default=Factory(list))
    kinds: set[Kind[object]] = field(default=Factory(set))
    reading_since: float = 0.0
    has_half_done: bool = False
    _is_reading: bool = False

    def arm(self, *mishaps: Mishap) -> None:
        """Begin to count anew, with this ahead."""
        self.mishaps = {mishap.at: mishap for mishap in mishaps}
        self.writes.clear()
        self.kinds.clear()
        self.has_half_done = False
        self._begin_reading()
        self._is_reading = False

    @property
    def commits(self) -> int:
        """How many commits were sent."""
        return sum(count > 0 for count in self.writes)

    @property
    def reads(self) -> int:
        """How many reads were sent."""
        return len(self.writes) - self.commits

    @property
    def description(self) -> DatastoreDescription:
        """What the store says of itself."""
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries, unless something happens first.

        Raises:
            ProcessDied: the script says so.
        """
        mishap = self._turn(0)
        self.kinds.update(query.kind for query in queries)
        if not self._is_reading:
            self._begin_reading()
        match mishap.sort if mishap else None:
            case Sort.DEATH:
                raise ProcessDied
            case Sort.REQUEST | Sort.REPLY:
                raise Unavailable(self.description.location, "the read was lost")
            case Sort.LATE:
                self.clock.sleep(LATE_S)
                raise Unavailable(self.description.location, "the read took too long")
            case _:
                return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes, or suffer what the script has for this call.

        Raises:
            ProcessDied: the script says so.
        """
        mishap = self._turn(len(writes))
        self._is_reading = False
        self.watcher.before_commit(self)
        try:
            if mishap is None or mishap.sort in (Sort.STALL, Sort.RIVAL):
                return self.inner.commit(writes, deadline=deadline)
            fault = mishap.fault(len(writes), self.description.atomicity)
            return FaultyDatastore(self.inner, {1: fault}).commit(writes, deadline=deadline)
        except OutcomeUnknown:
            if mishap is not None and mishap.sort is Sort.LATE:
                self.clock.sleep(LATE_S)
            raise
        except CommitError as error:
            self.has_half_done |= error.applied > 0
            raise
        finally:
            self.watcher.after_commit(self)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        """Changes after the revisions given; never disturbed."""
        return self.inner.watch(start, deadline=deadline)

    def _turn(self, count: int) -> Mishap | None:
        self.writes.append(count)
        self.clock.sleep(CALL_S)
        mishap = self.mishaps.get(len(self.writes))
        if mishap is not None and mishap.sort is Sort.STALL:
            self.clock.sleep(LATE_S)
        if mishap is not None and mishap.sort is Sort.RIVAL and mishap.act is not None:
            mishap.act()
        return mishap

    def _begin_reading(self) -> None:
        self._is_reading = True
        self.reading_since = self.clock.monotonic()
