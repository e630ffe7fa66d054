"""The store as one client sees it: a wrapper with scripted faults and an observer.

Calls are counted from 1, reads and commits alike, so that a test can place a fault at each of them: the request or the
reply is lost, the process dies, another client writes first, time passes. The observer is called before and after every
commit, also after one that failed.
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
    LateWrite,
    LostRace,
    LostReply,
    LostRequest,
    ProcessDeath,
    ProcessDied,
    send_until,
)

__all__ = ["CALL_DURATION_S", "PAST_DEADLINE_S", "CallFault", "CommitObserver", "FaultKind", "StoreClient"]

CALL_DURATION_S = 0.001
"""How long each call to the store takes."""

PAST_DEADLINE_S = 200.0
"""The delay of a late request or reply. It is longer than every deadline."""


class FaultKind(enum.Enum):
    """The kinds of faults of a store call."""

    LOST_RACE = "another writer wins"
    LOST_REQUEST = "the request is lost"
    LOST_REPLY = "the reply is lost"
    PROCESS_DEATH = "the process dies"
    LATE_WRITE = "the process dies while a write is on its way"
    LATE_REQUEST = "the request is sent after every deadline"
    LATE_REPLY = "the reply comes after every deadline"
    CONCURRENT_OPERATION = "another client writes first"


@frozen
class CallFault:
    """A fault of one call of a client; ``call_number`` counts from 1.

    ``position`` says how many writes of a commit are applied before the fault. In an atomic store an odd number means
    all and an even number none; in an ordered store it is that many, modulo the number of writes. ``operation`` is what
    ``CONCURRENT_OPERATION`` runs; it is given the number of writes of the call, 0 for a read.
    """

    kind: FaultKind
    call_number: int
    position: int = 0
    operation: Callable[[int], object] | None = field(default=None, eq=False)

    def commit_fault(self, count: int, atomicity: Atomicity) -> Fault:
        """The fault of a commit with ``count`` writes."""
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
            case FaultKind.LATE_REQUEST | FaultKind.LATE_WRITE | FaultKind.CONCURRENT_OPERATION:
                raise InvariantBroken(f"{self.kind} changes nothing about a commit")
            case _:
                assert_never(self.kind)


class CommitObserver(Protocol):
    """What is called around each commit of a client."""

    def before_commit(self, client: StoreClient) -> None:
        """A commit is about to arrive."""
        ...

    def after_commit(self, client: StoreClient) -> None:
        """A commit has returned or failed; read the store to see which."""
        ...


@define(eq=False, kw_only=True)
class StoreClient:
    """A datastore as one client sees it.

    ``writes`` has the number of writes of each call since the last ``reset``, 0 for a read. ``read_started_s`` is when
    the first read before the last commit began. ``has_partial_commit`` is whether a commit since then failed after some
    of its writes were applied. ``late_write`` was on its way when the process died.
    """

    inner: Datastore
    clock: Clock
    observer: CommitObserver
    faults: dict[int, CallFault] = field(default=Factory(dict))
    writes: list[int] = field(default=Factory(list))
    read_started_s: float = 0.0
    has_partial_commit: bool = False
    late_write: LateWrite | None = None
    _is_reading: bool = False

    def reset(self, *faults: CallFault) -> None:
        """Count from 1 again, with these faults."""
        self.faults = {fault.call_number: fault for fault in faults}
        self.writes.clear()
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
        """The store's description."""
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries, unless the script has a fault for this call.

        Raises:
            ProcessDied: the script says so.
        """
        fault = self._next_call(0)
        if not self._is_reading:
            self._begin_reading()
        match fault.kind if fault else None:
            case FaultKind.PROCESS_DEATH | FaultKind.LATE_WRITE:
                raise ProcessDied
            case FaultKind.LOST_REQUEST | FaultKind.LOST_REPLY:
                raise Unavailable(self.description.location, "the read was lost")
            case FaultKind.LATE_REPLY:
                self.clock.sleep(PAST_DEADLINE_S)
                raise Unavailable(self.description.location, "the read took too long")
            case _:
                return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes, or fail as the script says.

        Raises:
            ProcessDied: the script says so.
        """
        fault = self._next_call(len(writes))
        self._is_reading = False
        self.observer.before_commit(self)
        try:
            if fault is None or fault.kind in (FaultKind.LATE_REQUEST, FaultKind.CONCURRENT_OPERATION):
                return self.inner.commit(writes, deadline=deadline)
            if fault.kind is FaultKind.LATE_WRITE:
                self.late_write = send_until(self.inner, writes, fault.position, deadline=deadline)
                raise ProcessDied
            of_commit = fault.commit_fault(len(writes), self.description.atomicity)
            return FaultyDatastore(self.inner, {1: of_commit}).commit(writes, deadline=deadline)
        except OutcomeUnknown:
            if fault is not None and fault.kind is FaultKind.LATE_REPLY:
                self.clock.sleep(PAST_DEADLINE_S)
            raise
        except CommitError as error:
            self.has_partial_commit |= error.applied > 0
            raise
        finally:
            self.observer.after_commit(self)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the given revisions; without faults."""
        return self.inner.watch(start, deadline=deadline)

    def _next_call(self, count: int) -> CallFault | None:
        self.writes.append(count)
        self.clock.sleep(CALL_DURATION_S)
        fault = self.faults.get(len(self.writes))
        if fault is not None and fault.kind is FaultKind.LATE_REQUEST:
            self.clock.sleep(PAST_DEADLINE_S)
        if fault is not None and fault.kind is FaultKind.CONCURRENT_OPERATION and fault.operation is not None:
            fault.operation(count)
        return fault

    def _begin_reading(self) -> None:
        self._is_reading = True
        self.read_started_s = self.clock.monotonic()
