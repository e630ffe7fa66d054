"""What ``datastore`` asks of whoever keeps a kind, and what they have in common: revisions, lists, refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from attrs import frozen

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiReply, ApiRequest, Json
from netplug_backends.kubernetes.layout import CrdMode
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.names import is_resource_name
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    OutcomeUnknown,
    Record,
    Revision,
    Update,
    WatchEvent,
)

__all__ = [
    "ConditionFailed",
    "KindStore",
    "ObjectVersion",
    "QueryResult",
    "RejectedByServer",
    "describe_request",
    "error_of_reply",
    "event_object",
    "find_object",
    "find_precondition",
    "get_object",
    "is_valid_path",
    "list_objects",
    "metadata_of",
    "parse_revision",
    "require_key",
    "revision_of",
    "unusable_reply",
]

_PAGE_SIZE = "500"
_NOT_FOUND, _EXPIRED = 404, 410
_OUR_API_PATHS = tuple(f"/apis/{mode.group}/" for mode in CrdMode)
UNKNOWN_REVISION = Revision("")
"""The revision of what was never seen: no watch can start from it."""

_REJECTED = (400, 413, 422)  # what was sent breaks a rule of the schema, or is too large


@frozen
class QueryResult:
    """What a query found, and the revision of the kind that a watch can go on from; empty where nobody knows it."""

    records: tuple[Record[object], ...]
    revision: Revision = UNKNOWN_REVISION


@frozen
class ConditionFailed(Exception):  # caught by the datastore, which makes a proper refusal of it
    """A write that its condition forbids; ``current`` is what is stored there now."""

    current: Record[object] | None


@frozen
class RejectedByServer(ConfigurationError):
    """What was sent breaks a rule of the server, which says so itself (code 7)."""

    def __str__(self) -> str:
        return f"{self.where}: {self.accepted}"


@frozen
class ObjectVersion:
    """A revision taken apart: which object, and which state of it."""

    uid: str
    resource_version: str


class KindStore(Protocol):
    """Keeps all records of some kinds. Errors are those of ``Client.ask``; writes also raise :class:`ConditionFailed`.

    Raises:
        NotSupported: this cannot be done to that kind here.
    """

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """The record of one key."""
        ...

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All records of a list, in path order."""
        ...

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Store a value where nothing is."""
        ...

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Replace the value that has the revision."""
        ...

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Remove the value that has the revision."""
        ...

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """The collections whose changes are the kind's, each with the number that its watch starts after.

        An empty one begins with everything there is, unless all are: then nobody knows where to begin.
        """
        ...

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object] | None:
        """What one event of such a collection means; None where it means nothing to this kind."""
        ...


def metadata_of(found: Json) -> Json:
    """An object's metadata."""
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def revision_of(found: Json) -> Revision:
    """Which object, and which state of it: an object made again under the same name has another uid."""
    metadata = metadata_of(found)
    return Revision(f"{metadata.get('uid', '')}/{metadata.get('resourceVersion', '')}")


def parse_revision(revision: Revision) -> ObjectVersion:
    """The parts of an object's revision; a collection's has no uid."""
    uid, _, number = revision.rpartition("/")
    return ObjectVersion(uid, number)


def find_precondition(revision: Revision) -> ObjectVersion | None:
    """What a write to an object names as its condition; None where no object ever had that revision.

    The server takes an empty condition for none at all, and a write without any cannot be spelled.
    """
    version = parse_revision(revision)
    is_number = version.resource_version.isascii() and version.resource_version.isdigit()
    return version if version.uid and is_number else None


def is_valid_path(path: str) -> bool:
    """Whether an object may have that path. The server takes a slash in a name for a slash, however it is quoted."""
    return all(map(is_resource_name, path.split("/")[1:]))


def require_key(key: Key[object], record: Record[object]) -> Record[object]:
    """The record that was asked for by its key.

    Raises:
        Malformed: it is another.
    """
    if record.key != key:
        raise Malformed(str(key), f"the object of its name says that it is {record.key}")
    return record


def list_objects(client: ApiClient, request: ApiRequest, *, deadline: Deadline) -> tuple[list[Json], str]:
    """All objects of a collection, fetched in pages that show one state of it, and that state's number.

    The server forgets a state after some minutes; then the list begins anew.
    """
    items: list[Json] = []
    query = dict(request.query) | {"limit": _PAGE_SIZE}
    while True:
        reply = client.send(ApiRequest(request.method, request.path, query), deadline=deadline)
        if reply.status == _EXPIRED and "continue" in query:
            items.clear()
            del query["continue"]
            continue
        if not reply.is_success:
            raise error_of_reply(client, request, reply)
        items += _items(client, request, reply)
        metadata = metadata_of(reply.object)
        after = metadata.get("continue")
        if not after:
            return items, str(metadata.get("resourceVersion") or "")
        query["continue"] = str(after)


def find_object(client: ApiClient, path: str, *, deadline: Deadline) -> Json | None:
    """The object with that path; None where there is none. What none can be called is not asked for."""
    if not is_valid_path(path):
        return None
    request = ApiRequest("GET", path)
    reply = client.send(request, deadline=deadline)
    if reply.is_missing:
        return None
    if not reply.is_success:
        raise error_of_reply(client, request, reply)
    return get_object(client, request, reply)


def get_object(client: ApiClient, request: ApiRequest, reply: ApiReply) -> Json:
    """The object that a success brings, which was read or written.

    Raises:
        Unavailable: it brings none, so it was somebody between us and the server who answered. Where the request is
            a write, nobody knows what became of it.
    """
    metadata = metadata_of(reply.object)
    if not metadata.get("uid") or not metadata.get("resourceVersion"):
        raise unusable_reply(client, request, "uid and resourceVersion")
    return reply.object


def unusable_reply(client: ApiClient, request: ApiRequest, missing: str) -> Unavailable:
    """The error for a success that lacks what every such answer of the API has: nothing follows from it."""
    problem = f"the answer is none of the API's: it has no {missing}"
    error = Unavailable if request.is_read else OutcomeUnknown
    return error(describe_request(client, request), problem)


def error_of_reply(client: ApiClient, request: ApiRequest, reply: ApiReply) -> NetplugError:
    """The error for a refusal that no condition explains."""
    what = describe_request(client, request)
    if reply.status in _REJECTED:
        return RejectedByServer(what, reply.reason, reply.message)
    if reply.status != _NOT_FOUND:
        return Unavailable(what, reply.message)
    if request.path.startswith(_OUR_API_PATHS):
        problem = "the server has no such resource: are netplug's custom resource definitions installed?"
        return Unavailable(what, problem)
    return Unavailable(what, f"no Kubernetes API answers at this address: {reply.message}")


def event_object(event: Json) -> Json:
    """The object that an event of a watch is about."""
    found = event.get("object")
    return found if isinstance(found, Mapping) else {}


def _items(client: ApiClient, request: ApiRequest, reply: ApiReply) -> Iterator[Json]:
    items = reply.object.get("items", "")
    if not isinstance(items, list | None):  # one that is empty may be null
        raise unusable_reply(client, request, "list of items")
    for item in items or ():
        if not isinstance(item, dict):
            raise unusable_reply(client, request, "list of objects")
        yield item


def describe_request(client: ApiClient, request: ApiRequest) -> str:
    """What people call a request."""
    return f"kubernetes API {client.location}: {request.method} {request.path}"
