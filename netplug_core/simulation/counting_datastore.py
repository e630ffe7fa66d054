"""A datastore that counts its calls, for the report of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from attrs import define, evolve, field, frozen

from netplug_core.datastore.observed import CommitCall, DatastoreCall, ObservedDatastore
from netplug_core.records import Write

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
class CountingDatastore(ObservedDatastore):
    """A datastore in front of another; watches are not counted. Threads may not share it.

    ``last_writes`` are the writes of the last commit.
    """

    calls: DatastoreCallCount = field(default=DatastoreCallCount(), init=False)
    last_writes: Sequence[Write] = field(default=(), init=False)

    def observe(self, call: DatastoreCall) -> AbstractContextManager[None]:
        """Count it."""
        if isinstance(call, CommitCall):
            self.calls = evolve(self.calls, commits=self.calls.commits + 1)
            self.last_writes = call.writes
        else:
            self.calls = evolve(self.calls, reads=self.calls.reads + 1)
        return nullcontext()
