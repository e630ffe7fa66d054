"""A datastore in front of another one: every read and commit reaches that one, and something is done around it.

Classes below it count calls (the simulation), print them (``netplugctl``) or measure them (the node process).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from attrs import define, frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, DatastoreDescription, HasIdentity, RefusesWrites
from netplug_core.errors import DatastoreError
from netplug_core.records import Kind, Query, Revision, Snapshot, WatchEvent, Write

__all__ = ["CommitCall", "DatastoreCall", "ObservedDatastore", "ReadCall"]


@frozen
class ReadCall:
    """A read, by its queries."""

    queries: Sequence[Query]


@frozen
class CommitCall:
    """A commit, by its writes."""

    writes: Sequence[Write]


DatastoreCall: TypeAlias = ReadCall | CommitCall
"""A call of a datastore. Watches are not observed: they last as long as their reader likes."""


@define
class ObservedDatastore(ABC):
    """A :class:`~netplug_core.datastore.protocol.Datastore` in front of another."""

    datastore: Datastore

    @abstractmethod
    def observe(self, call: DatastoreCall) -> AbstractContextManager[None]:
        """What is entered before a call and left after it, with its error if it failed."""

    @property
    def description(self) -> DatastoreDescription:
        """The other store's description."""
        return self.datastore.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """The other store's answers."""
        with self.observe(ReadCall(queries)):
            return self.datastore.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """The other store's revisions."""
        with self.observe(CommitCall(writes)):
            return self.datastore.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """The other store's changes."""
        return self.datastore.watch(start, deadline=deadline)

    def find_identity(self, *, deadline: Deadline) -> str | None:
        """The other store's identity, if it is a :class:`~netplug_core.datastore.protocol.HasIdentity`."""
        return self.datastore.find_identity(deadline=deadline) if isinstance(self.datastore, HasIdentity) else None

    def find_refusal(self, write: Write) -> DatastoreError | None:
        """The other store's refusal, if it is a :class:`~netplug_core.datastore.protocol.RefusesWrites`."""
        return self.datastore.find_refusal(write) if isinstance(self.datastore, RefusesWrites) else None
