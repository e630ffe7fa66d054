"""Datastores around another datastore: they record its calls, or act when one comes.

A store that a test needs overrides one method of `StoreWrapper`; the others forward. Lost races, lost replies and the
death of a process are scripts for `netplug_core.testing.faults.FaultyDatastore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import define, field

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, DatastoreDescription
from netplug_core.errors import NotServed
from netplug_core.records import Get, Kind, Query, Revision, Snapshot, WatchEvent, Write

__all__ = [
    "CommitScript", "HookedStore", "RecordingStore", "ScriptedStore", "SendWrites", "StoreOfOldDefinitions",
    "StoreWrapper",
]  # fmt: skip

SendWrites = Callable[[int | None], tuple[Revision, ...]]
"""Sends the first writes of a commit, or all of them (None)."""

CommitScript = Callable[[SendWrites], tuple[Revision, ...]]


@define
class StoreWrapper:
    """A store that forwards every call."""

    inner: Datastore

    @property
    def description(self) -> DatastoreDescription:
        """What the inner store can do."""
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries from one moment."""
        return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes."""
        return self.inner.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Every change after the revisions given."""
        return self.inner.watch(start, deadline=deadline)


@define
class StoreOfOldDefinitions(StoreWrapper):
    """A store that knows some kinds not, as an API server with the definitions of an older release."""

    unserved: frozenset[Kind[object]] = frozenset()

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Refuse a query of such a kind."""
        kinds = {query.key.kind if isinstance(query, Get) else query.kind for query in queries}
        for kind in kinds & self.unserved:
            raise NotServed(str(kind), "the server has no such resource")
        return self.inner.read(queries, deadline=deadline)


@define
class RecordingStore(StoreWrapper):
    """A store that records the queries and the writes that it gets, and how much time each call has."""

    reads: list[tuple[Query, ...]] = field(factory=list)
    commits: list[tuple[Write, ...]] = field(factory=list)
    deadlines_s: list[float] = field(factory=list)

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Record the queries, then answer them."""
        self.record_read(queries, deadline)
        return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Record the writes, then apply them."""
        self.record_commit(writes, deadline)
        return self.inner.commit(writes, deadline=deadline)

    def record_read(self, queries: Sequence[Query], deadline: Deadline) -> None:
        """Record one read."""
        self.reads.append(tuple(queries))
        self.deadlines_s.append(deadline.remaining_s)

    def record_commit(self, writes: Sequence[Write], deadline: Deadline) -> None:
        """Record one commit."""
        self.commits.append(tuple(writes))
        self.deadlines_s.append(deadline.remaining_s)

    @property
    def calls(self) -> int:
        """How many reads and commits there were."""
        return len(self.reads) + len(self.commits)


@define
class HookedStore(RecordingStore):
    """A recording store that calls functions around each read and each commit; a function may raise."""

    before_read: Callable[[], object] = lambda: None
    after_read: Callable[[], object] = lambda: None
    before_commit: Callable[[], object] = lambda: None
    after_commit: Callable[[], object] = lambda: None

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Record the queries, then answer them between the functions."""
        self.record_read(queries, deadline)
        self.before_read()
        snapshot = self.inner.read(queries, deadline=deadline)
        self.after_read()
        return snapshot

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Record the writes, then apply them between the functions."""
        self.record_commit(writes, deadline)
        self.before_commit()
        revisions = self.inner.commit(writes, deadline=deadline)
        self.after_commit()
        return revisions


@define
class ScriptedStore(RecordingStore):
    """A store that runs a script instead of each commit, in order; commits beyond the list are applied.

    A script may act before and after it sends the writes, and may raise.
    """

    scripts: Sequence[CommitScript] = ()

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Run the script of this commit."""

        def send(applied: int | None) -> tuple[Revision, ...]:
            return self.inner.commit(writes[:applied], deadline=deadline)

        self.record_commit(writes, deadline)
        number = len(self.commits)
        return self.scripts[number - 1](send) if number <= len(self.scripts) else send(None)
