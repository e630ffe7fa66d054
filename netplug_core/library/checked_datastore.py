"""The typed datastore of a program: any backend, with the types of what it is asked checked first.

A backend trusts its callers, which are type-checked. A program may not be, so a wrong type is refused here by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, DatastoreDescription
from netplug_core.encoding.stored_json import STORED_JSON
from netplug_core.errors import InvalidArgument, require_tuple, require_type
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Affinity, Block, Handle
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    Write,
)
from netplug_core.resources.kinds import KINDS

__all__ = ["CheckedDatastore"]

_VALUE_TYPES: Final[Mapping[str, type]] = {
    **{row.name: row.value_type for row in KINDS},
    AFFINITY.name: Affinity,
    BLOCK.name: Block,
    HANDLE.name: Handle,
}
_DEADLINE = "a Deadline is expected, such as net.deadline()"


@frozen
class CheckedDatastore:
    """A datastore that refuses arguments of wrong types with InvalidArgument; everything else is the backend's."""

    backend: Datastore

    @property
    def description(self) -> DatastoreDescription:
        """What this store is."""
        return self.backend.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries; see :meth:`Datastore.read`."""
        for query in _members("read(queries)", queries):
            _check_query(query)
        require_type("read(deadline)", deadline, Deadline, _DEADLINE)
        return self.backend.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes; see :meth:`Datastore.commit`."""
        for write in _members("commit(writes)", writes):
            _check_write(write)
        require_type("commit(deadline)", deadline, Deadline, _DEADLINE)
        return self.backend.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Every change of some kinds; see :meth:`Datastore.watch`."""
        require_type("watch(start)", start, Mapping, "a mapping of kinds to revisions is expected")
        for kind in start:
            require_type("watch(start)", kind, Kind, "a Kind is expected, such as IPPOOL")
        require_type("watch(deadline)", deadline, Deadline, _DEADLINE)
        return self.backend.watch(start, deadline=deadline)


def _members(where: str, values: object) -> Sequence[object]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise InvalidArgument(where, values, "a list is expected")
    return values


def _check_query(query: object) -> None:
    match query:
        case Get():
            require_type("Get(key)", query.key, Key, "a Key is expected, such as pool.key")
        case List():
            require_type("List(kind)", query.kind, Kind, "a Kind is expected, such as IPPOOL")
        case _:
            raise InvalidArgument("read(queries)", query, "a Get or a List is expected")


def _check_write(write: object) -> None:
    match write:
        case Create() | Update():
            _check_key(write)
            _check_value(write)
        case Delete() | Require():
            _check_key(write)
        case RequireUnchanged():
            require_type("RequireUnchanged(kind)", write.kind, Kind, "a Kind is expected, such as IPPOOL")
        case _:
            raise InvalidArgument("commit(writes)", write, "a Create, Update, Delete or requirement is expected")


def _check_key(write: Create[object] | Update[object] | Delete[object] | Require[object]) -> None:
    where = f"{type(write).__name__}(key)"
    require_type(where, write.key, Key, "a Key is expected, such as pool.key")
    require_tuple(where, write.key.path, str, "a Key of texts is expected, such as pool.key")


def _check_value(write: Create[object] | Update[object]) -> None:
    expected = _VALUE_TYPES.get(write.key.kind.name)
    if expected is None:  # a kind that is not netplug's
        return
    where = f"{type(write).__name__}(value)"
    require_type(where, write.value, expected, f"{_a(expected)} is expected")
    try:
        STORED_JSON.decode(write.key, STORED_JSON.encode(write.key, write.value))
    except (AttributeError, TypeError, ValueError, Malformed) as error:  # one of its fields has another type
        accepted = f"{_a(expected)} with fields of the right types is expected: {error}"
        raise InvalidArgument(where, write.value, accepted) from error


def _a(value_type: type) -> str:
    name = value_type.__name__
    return f"an {name}" if name[0] in "AEIO" else f"a {name}"
