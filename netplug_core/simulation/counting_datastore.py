"""A datastore that counts its calls, for the report of a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import define, field, frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, DatastoreDescription
from netplug_core.records import Kind, Query, Revision, Snapshot, WatchEvent, Write

__all__ = ["CountingDatastore", "DatastoreCallCount"]


@frozen(kw_only=True)
class DatastoreCallCount:
    """How many calls a datastore got; calls that failed count too."""

    reads: int = 0
    commits: int = 0

    def difference(self, earlier: DatastoreCallCount) -> DatastoreCallCount:
        """The calls since an earlier count."""
        return DatastoreCallCount(reads=self.reads - earlier.reads, commits=self.commits - earlier.commits)


@define
class CountingDatastore:
    """A :class:`~netplug_core.datastore.protocol.Datastore` in front of another; watches are not counted.

    ``last_writes`` are the writes of the last commit.
    """

    datastore: Datastore
    calls: DatastoreCallCount = field(default=DatastoreCallCount(), init=False)
    last_writes: Sequence[Write] = field(default=(), init=False)

    @property
    def description(self) -> DatastoreDescription:
        """The other store's description."""
        return self.datastore.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """The other store's answers."""
        self.calls = DatastoreCallCount(reads=self.calls.reads + 1, commits=self.calls.commits)
        return self.datastore.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """The other store's revisions."""
        self.calls = DatastoreCallCount(reads=self.calls.reads, commits=self.calls.commits + 1)
        self.last_writes = writes
        return self.datastore.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """The other store's changes."""
        return self.datastore.watch(start, deadline=deadline)
