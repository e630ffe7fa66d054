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
from netplug_core.datastore.protocol import Atomicity, Datastore, DatastoreDescription
from netplug_core.errors import InvariantBroken, Unavailable
from netplug_core.records import CommitError, Kind, OutcomeUnknown, Query, Revision, Snapshot, WatchEvent, Write
from netplug_core.testing.faults import (
    Fault,
    FaultyDatastore,
    LostRace,
    LostReply,
    LostRequest,
    ProcessDeath,
    ProcessDied,
)

__all__ = ["CALL_DURATION_S", "PAST_DEADLINE_S", "CallFault", "CommitObserver", "FaultKind", "StoreClient"]

CALL_DURATION_S = 0.001
"""How long each call to the store takes."""

PAST_DEADLINE_S = 200.0
"""How late something is that is too late: no deadline of an operation is that far away."""


class FaultKind(enum.Enum):
    """What happens to a call."""

    LOST_RACE = "another writer wins"
    LOST_REQUEST = "the request is lost"
    LOST_REPLY = "the reply is lost"
    PROCESS_DEATH = "the process dies"
    LATE_REQUEST = "it is sent after every deadline"
    LATE_REPLY = "its reply comes after every deadline"
    CONCURRENT_OPERATION = "somebody else does something first"


@frozen
class CallFault:
    """What happens to the call ``at`` (from 1) that a client makes.

    ``position`` says how many writes of a commit are applied before it happens: all or none in an atomic store (odd or
    even), that many in an ordered one, modulo what there is. A ``RIVAL`` does ``act``.
    """

    kind: FaultKind
    call_number: int
    position: int = 0
    operation: Callable[[], object] | None = field(default=None, eq=False)

    def commit_fault(self, count: int, atomicity: Atomicity) -> Fault:
        """What it is to a commit of so many writes."""
        is_atomic = atomicity is Atomicity.ATOMIC
        applied = count * (self.position % 2) if is_atomic else self.position % (count + 1)
        before = 0 if is_atomic else self.position % count
        match self.kind:
            case FaultKind.LOST_RACE:
                return LostRace(before)
            case FaultKind.LOST_REQUEST:
                return LostRequest(before)
            case FaultKind.LOST_REPLY | FaultKind.LATE_REPLY:
                return LostReply(applied)
            case FaultKind.PROCESS_DEATH:
                return ProcessDeath(applied)
            case FaultKind.LATE_REQUEST | FaultKind.CONCURRENT_OPERATION:
                raise InvariantBroken(f"{self.kind} changes nothing about a commit")
            case _:
                assert_never(self.sort)


class CommitObserver(Protocol):
    """Who is told of commits."""

    def before_commit(self, client: StoreClient) -> None:
        """A commit is about to arrive."""
        ...

    def after_commit(self, client: StoreClient) -> None:
        """It has, or it has not: the store says what became of it."""
        ...


@define(eq=False, kw_only=True)
class StoreClient:
    """A datastore as one client sees it.

    ``writes`` has, for each call since the last ``arm``, how many writes it brought; 0 for a read. ``kinds`` are those
    that were read since then, and ``reading_since`` is when the client began to read what its last commit rests on.
    ``has_half_done`` is whether a commit was refused since then of which a part was applied.
    """

    inner: Datastore
    clock: Clock
    observer: CommitObserver
    faults: dict[int, CallFault] = field(default=Factory(dict))
    writes: list[int] = field(default=Factory(list))
    kinds: set[Kind[object]] = field(default=Factory(set))
    read_started_s: float = 0.0
    has_partial_commit: bool = False
    _is_reading: bool = False

    def reset(self, *faults: CallFault) -> None:
        """Begin to count anew, with this ahead."""
        self.faults = {mishap.call_number: mishap for mishap in faults}
        self.writes.clear()
        self.kinds.clear()
        self.has_partial_commit = False
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
        mishap = self._next_call(0)
        self.kinds.update(query.kind for query in queries)
        if not self._is_reading:
            self._begin_reading()
        match mishap.kind if mishap else None:
            case FaultKind.PROCESS_DEATH:
                raise ProcessDied
            case FaultKind.LOST_REQUEST | FaultKind.LOST_REPLY:
                raise Unavailable(self.description.location, "the read was lost")
            case FaultKind.LATE_REPLY:
                self.clock.sleep(PAST_DEADLINE_S)
                raise Unavailable(self.description.location, "the read took too long")
            case _:
                return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes, or suffer what the script has for this call.

        Raises:
            ProcessDied: the script says so.
        """
        mishap = self._next_call(len(writes))
        self._is_reading = False
        self.observer.before_commit(self)
        try:
            if mishap is None or mishap.kind in (FaultKind.LATE_REQUEST, FaultKind.CONCURRENT_OPERATION):
                return self.inner.commit(writes, deadline=deadline)
            fault = mishap.commit_fault(len(writes), self.description.atomicity)
            return FaultyDatastore(self.inner, {1: fault}).commit(writes, deadline=deadline)
        except OutcomeUnknown:
            if mishap is not None and mishap.kind is FaultKind.LATE_REPLY:
                self.clock.sleep(PAST_DEADLINE_S)
            raise
        except CommitError as error:
            self.has_partial_commit |= error.applied > 0
            raise
        finally:
            self.observer.after_commit(self)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given; never disturbed."""
        return self.inner.watch(start, deadline=deadline)

    def _next_call(self, count: int) -> CallFault | None:
        self.writes.append(count)
        self.clock.sleep(CALL_DURATION_S)
        mishap = self.faults.get(len(self.writes))
        if mishap is not None and mishap.kind is FaultKind.LATE_REQUEST:
            self.clock.sleep(PAST_DEADLINE_S)
        if mishap is not None and mishap.kind is FaultKind.CONCURRENT_OPERATION and mishap.operation is not None:
            mishap.operation()
        return mishap

    def _begin_reading(self) -> None:
        self._is_reading = True
        self.read_started_s = self.clock.monotonic()
