"""A store that is away for some of its calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from attrs import Factory, define

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import DatastoreCall, ObservedDatastore
from netplug_core.records import Kind, Query, Revision, Snapshot, WatchEvent

__all__ = ["InterruptedDatastore"]


@define
class InterruptedDatastore(ObservedDatastore):
    """A store whose next calls fail with these errors, one after another, or report these changes; None: they pass."""

    reads: list[Exception | None] = Factory(list)
    watches: list[Exception | Sequence[WatchEvent[object]] | None] = Factory(list)
    reads_done: int = 0

    def observe(self, call: DatastoreCall) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        self.reads_done += 1
        if self.reads and (error := self.reads.pop(0)):
            raise error
        return self.datastore.read(queries, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        script = self.watches.pop(0) if self.watches else None
        if isinstance(script, Exception):
            raise script
        return self.datastore.watch(start, deadline=deadline) if script is None else iter(script)
