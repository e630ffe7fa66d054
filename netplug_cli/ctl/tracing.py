"""Prints which datastore is used and every call to it, as ``--log-level`` selects.

Keys are printed, values never: they may be secret.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from attrs import frozen

from netplug_cli.formatting import print_error
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Datastore, DatastoreDescription
from netplug_core.records import Get, Kind, List, Query, RequireUnchanged, Revision, Snapshot, WatchEvent, Write

__all__ = ["TraceLevel", "TracedDatastore"]


class TraceLevel(enum.Enum):
    """What is printed: nothing, which datastore is used, or every call to it too."""

    OFF = "off"
    STORE = "store"
    CALLS = "calls"

    @classmethod
    def of_level(cls, level: str) -> TraceLevel:
        """The trace level of a log level."""
        return {"info": cls.STORE, "debug": cls.CALLS}.get(level.lower(), cls.OFF)


@frozen
class TracedDatastore:
    """A datastore that prints each of its calls when it has ended."""

    inner: Datastore
    clock: Clock

    @property
    def description(self) -> DatastoreDescription:
        """The description of the store."""
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """See :class:`~netplug_core.datastore.protocol.Datastore`."""
        with self._traced("read", ", ".join(map(_format_query, queries))):
            return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """See :class:`~netplug_core.datastore.protocol.Datastore`."""
        with self._traced("commit", ", ".join(map(_format_write, writes))):
            return self.inner.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """See :class:`~netplug_core.datastore.protocol.Datastore`."""
        return self.inner.watch(start, deadline=deadline)

    @contextmanager
    def _traced(self, operation: str, subjects: str) -> Iterator[None]:
        began, outcome = self.clock.monotonic(), ""
        try:
            yield
        except Exception as error:
            outcome = f": {error}"
            raise
        finally:
            took_ms = (self.clock.monotonic() - began) * 1000
            print_error(f"{operation} {subjects} in {took_ms:.1f} ms{outcome}")


def _format_query(query: Query) -> str:
    match query:
        case Get(key):
            return str(key)
        case List(kind, within):
            return f"{kind}({'/'.join((*within, '*'))})"


def _format_write(write: Write) -> str:
    subject = write.kind if isinstance(write, RequireUnchanged) else write.key
    return f"{type(write).__name__.lower()} {subject}"
