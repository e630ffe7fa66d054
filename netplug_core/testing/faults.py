"""A datastore with scripted faults.

The n-th commit loses its race, its request or its reply, the process dies before or after it, or another operation runs
first. Tests wrap any datastore in :class:`FaultyDatastore`. A fault happens once, at its commit; every other call
passes through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, assert_never

from attrs import frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity, Datastore, DatastoreDescription
from netplug_core.errors import InvariantBroken, Unavailable
from netplug_core.records import (
    CommitError,
    Conflict,
    Get,
    Kind,
    OutcomeUnknown,
    Query,
    RequireUnchanged,
    Revision,
    Snapshot,
    WatchEvent,
    Write,
)

__all__ = [
    "Fault", "FaultyDatastore", "LostRace", "LostReply", "LostRequest", "ProcessDeath", "ProcessDied", "RunBefore",
]  # fmt: skip

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


class FaultyDatastore:
    """A datastore around another one; ``script`` says what happens to the n-th commit, counted from 1."""

    def __init__(self, inner: Datastore, script: Mapping[int, Fault]) -> None:
        self.commits = 0
        self._inner = inner
        self._script = dict(script)

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
