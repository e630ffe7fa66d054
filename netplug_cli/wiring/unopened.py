"""What stands for a datastore that cannot be opened: a DEL cleans the node without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity, DatastoreDescription
from netplug_core.errors import NetplugError
from netplug_core.records import Kind, Query, Revision, Write

__all__ = ["UnopenedDatastore"]


class UnopenedDatastore:
    """A datastore that could not be opened: each use of it raises the reason."""

    def __init__(self, name: str, error: NetplugError) -> None:
        self.description = DatastoreDescription(name=name, atomicity=Atomicity.ORDERED, location="")
        self._error = error

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> NoReturn:
        """Raise the reason."""
        del queries, deadline
        raise self._error

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> NoReturn:
        """Raise the reason."""
        del writes, deadline
        raise self._error

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> NoReturn:
        """Raise the reason."""
        del start, deadline
        raise self._error
