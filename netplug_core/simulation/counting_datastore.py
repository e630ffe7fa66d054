"""A datastore that counts its calls, for the report of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from attrs import define, field, frozen

from netplug_core.datastore.protocol import CommitCall, DatastoreCall, ObservedDatastore
from netplug_core.records import Write

__all__ = ["CountingDatastore", "DatastoreCallCount"]


_NOTHING_AROUND = nullcontext()


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

    last_writes: Sequence[Write] = field(default=(), init=False)
    _reads: int = field(default=0, init=False)
    _commits: int = field(default=0, init=False)

    @property
    def calls(self) -> DatastoreCallCount:
        """How many calls there were."""
        return DatastoreCallCount(reads=self._reads, commits=self._commits)

    def observe(self, call: DatastoreCall) -> AbstractContextManager[None]:
        """Count it."""
        if isinstance(call, CommitCall):
            self._commits += 1
            self.last_writes = call.writes
        else:
            self._reads += 1
        return _NOTHING_AROUND
