"""A store that counts what it is asked: what a simulation reports, and what a flow can be held to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import define, field, frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.interface import Datastore, DatastoreDescription
from netplug_core.records import Change, Kind, Query, Revision, Snapshot, Write

__all__ = ["CallCount", "Counted"]


@frozen(kw_only=True)
class CallCount:
    """How many calls a store got; one that failed counts too."""

    reads: int = 0
    commits: int = 0

    def since(self, before: CallCount) -> CallCount:
        """What was added to an earlier count."""
        return CallCount(reads=self.reads - before.reads, commits=self.commits - before.commits)


@define
class Counted:
    """A :class:`~netplug_core.datastore.interface.Datastore` in front of another; watches are not counted."""

    inner: Datastore
    calls: CallCount = field(default=CallCount(), init=False)

    @property
    def description(self) -> DatastoreDescription:
        """What the other store is."""
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """The other store's answers."""
        self.calls = CallCount(reads=self.calls.reads + 1, commits=self.calls.commits)
        return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """What the other store makes of the writes."""
        self.calls = CallCount(reads=self.calls.reads, commits=self.calls.commits + 1)
        return self.inner.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        """The other store's changes."""
        return self.inner.watch(start, deadline=deadline)
