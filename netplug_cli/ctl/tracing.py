"""What the tool does, for whoever wants to know (``--log-level``): where it looks, and what it asks a store.

Keys are told, values never: a line may end up in anybody's terminal.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import click
from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.interface import Datastore, DatastoreDescription
from netplug_core.records import Change, Get, Kind, List, Query, RequireUnchanged, Revision, Snapshot, Write

__all__ = ["TracedDatastore", "Tracing", "tell"]


class Tracing(enum.Enum):
    """How much is told: nothing, which store is used, or every call to it too."""

    OFF = "off"
    STORE = "store"
    CALLS = "calls"

    @classmethod
    def of_level(cls, level: str) -> Tracing:
        """What a log level asks for."""
        return {"info": cls.STORE, "debug": cls.CALLS}.get(level.lower(), cls.OFF)


@frozen
class TracedDatastore:
    """A store whose calls are told, each once it has ended."""

    inner: Datastore
    clock: Clock

    @property
    def description(self) -> DatastoreDescription:
        """The store's own."""
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """See :class:`~netplug_core.datastore.interface.Datastore`."""
        with self._told("read", ", ".join(map(_query, queries))):
            return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """See :class:`~netplug_core.datastore.interface.Datastore`."""
        with self._told("commit", ", ".join(map(_write, writes))):
            return self.inner.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        """See :class:`~netplug_core.datastore.interface.Datastore`."""
        return self.inner.watch(start, deadline=deadline)

    @contextmanager
    def _told(self, what: str, subjects: str) -> Iterator[None]:
        began, outcome = self.clock.monotonic(), ""
        try:
            yield
        except Exception as error:
            outcome = f": {error}"
            raise
        finally:
            took_ms = (self.clock.monotonic() - began) * 1000
            tell(f"{what} {subjects} in {took_ms:.1f} ms{outcome}")


def tell(text: str) -> None:
    """One line on standard error."""
    click.echo(f"netplugctl: {text}", err=True)


def _query(query: Query) -> str:
    match query:
        case Get(key):
            return str(key)
        case List(kind, within):
            return f"{kind}({'/'.join((*within, '*'))})"


def _write(write: Write) -> str:
    subject = write.kind if isinstance(write, RequireUnchanged) else write.key
    return f"{type(write).__name__.lower()} {subject}"
