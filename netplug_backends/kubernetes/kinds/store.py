"""The interface of the stores of kinds, through which ``datastore`` calls them, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from attrs import evolve, frozen

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiReply, ApiRequest, Json
from netplug_backends.kubernetes.client.objects import (
    ObjectVersion,
    error_of_reply,
    find_precondition,
    revision_of,
)
from netplug_core.clock import Deadline
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    NotSupported,
    ReadResult,
    Record,
    Revision,
    Update,
    WatchEvent,
)

__all__ = [
    "CONFLICT", "NOTHING_FOUND", "ConditionFailed", "KindStore", "QueryResult", "decode_each", "event_of_record",
    "get_precondition", "list_result", "not_supported", "record_result", "require_key", "write_error",
]  # fmt: skip

CONFLICT = 409
UNKNOWN_REVISION = Revision("")
"""The revision of a kind that is not known: no watch can start from it."""


@frozen
class QueryResult:
    """What a query found, and the revision of the kind from which a watch can start."""

    found: ReadResult
    revision: Revision = UNKNOWN_REVISION


NOTHING_FOUND = QueryResult(ReadResult(()))
"""The result of a query that finds nothing, and no revision of its kind."""


@frozen
class ConditionFailed(Exception):  # the datastore turns it into an error of the taxonomy
    """The condition of a write does not hold; ``current`` is the stored record."""

    current: Record[object] | None


class KindStore(Protocol):
    """Stores the records of one or more kinds. Errors are those of ``ApiClient.send``.

    Raises:
        ConditionFailed: the condition of a write does not hold.
        NotSupported: records of this kind cannot be written so.
    """

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """The record of one key."""
        ...

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All records of a list, in path order."""
        ...

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Store a value under a key that has none."""
        ...

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Replace the value that has the revision."""
        ...

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Remove the value that has the revision."""
        ...

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """The collections whose events concern the kind, each with the resourceVersion to watch from.

        If it is empty for some, those are listed first. If it is empty for all, no watch can start.
        """
        ...

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object] | None:
        """The change that an event of such a collection means; None if it does not concern the kind."""
        ...


def require_key(key: Key[object], record: Record[object]) -> Record[object]:
    """The record, which was requested by its key.

    Raises:
        Malformed: the object with the record's name holds another record.
    """
    if record.key != key:
        raise Malformed(str(key), f"the object of its name says that it is {record.key}")
    return record


def decode_each(
    items: Iterable[Json], decode: Callable[[Json], Record[object] | None]
) -> Iterator[Record[object] | Malformed]:
    """The records in some objects, and what is wrong with objects that hold none that can be understood."""
    for item in items:
        try:
            record = decode(item)
        except Malformed as error:
            yield evolve(error, revision=revision_of(item))
        else:
            if record is not None:
                yield record


def record_result(record: Record[object] | None) -> QueryResult:
    """The result of a query for one key."""
    return QueryResult(ReadResult((record,)), record.revision) if record else NOTHING_FOUND


def list_result(
    query: List[object], found: Iterable[Record[object] | Malformed | Key[object]], revision: str
) -> QueryResult:
    """The result of a list: the records whose paths begin as the query says, in path order."""
    result = ReadResult.of(found)
    matching = (record for record in result.records if query.covers(record.key))
    in_order = tuple(sorted(matching, key=lambda record: record.key.path))
    keys = tuple(filter(query.covers, result.keys))
    return QueryResult(evolve(result, records=in_order, keys=keys), Revision(revision))


def event_of_record(event: Json, record: Record[object]) -> WatchEvent[object]:
    """The change that an event means whose object is that record."""
    return WatchEvent(record.key, None if event.get("type") == "DELETED" else record.value, record.revision)


def get_precondition(revision: Revision, find_current: Callable[[], Record[object] | None]) -> ObjectVersion:
    """The precondition of a write under that revision.

    Raises:
        ConditionFailed: no object can have the revision, so nothing is sent.
    """
    version = find_precondition(revision)
    if version is None:
        raise ConditionFailed(find_current())
    return version


def write_error(
    client: ApiClient,
    exchange: tuple[ApiRequest, ApiReply],
    find_current: Callable[[], Record[object] | None],
    *,
    conflict_statuses: Collection[int] = (CONFLICT,),
) -> Exception:
    """The error for a refused write: ``ConditionFailed`` if its precondition may explain the refusal."""
    request, reply = exchange
    if not reply.is_missing and reply.status not in conflict_statuses:
        return error_of_reply(client, request, reply)
    return ConditionFailed(find_current())


def not_supported(write: Create[object] | Update[object] | Delete[object], reason: str) -> NotSupported:
    """The error for a write to a kind that the cluster itself maintains."""
    return NotSupported(type(write).__name__, write.key.kind, reason)
