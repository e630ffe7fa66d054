"""What ``datastore`` asks of whoever keeps a kind, and what they have in common: revisions, lists, refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from attrs import frozen

from netplug_backends.kubernetes.client import Client, Json, Reply, Request
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.records import Change, Create, Delete, Get, Kind, List, Record, Revision, Update

__all__ = [
    "ConditionFailed",
    "Found",
    "Keeper",
    "Version",
    "failure",
    "found_at",
    "listed",
    "metadata_of",
    "object_of",
    "revision_of",
    "version_of",
]

_PAGE = "500"
_NOT_FOUND, _EXPIRED = 404, 410
NOWHERE = Revision("")
"""The revision of what was never seen: no watch can start from it."""

_OUR_FAULT = (400, 413, 422)  # what was sent breaks a rule of the schema, or is too large


@frozen
class Found:
    """What a query found, and the revision of the kind that a watch can go on from; empty where nobody knows it."""

    records: tuple[Record[object], ...]
    revision: Revision = NOWHERE


@frozen
class ConditionFailed(Exception):  # caught by the datastore, which makes a proper refusal of it
    """A write that its condition forbids; ``current`` is what is stored there now."""

    current: Record[object] | None


@frozen
class Version:
    """A revision taken apart: which object, and which state of it."""

    uid: str
    number: str


class Keeper(Protocol):
    """Keeps all records of some kinds. Errors are those of ``Client.ask``; writes also raise :class:`ConditionFailed`.

    Raises:
        NotSupported: this cannot be done to that kind here.
    """

    def find(self, query: Get[object], *, deadline: Deadline) -> Found:
        """The record of one key."""
        ...

    def find_all(self, query: List[object], *, deadline: Deadline) -> Found:
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

    def sources(self, kind: Kind[object], revision: Revision) -> tuple[tuple[Request, str], ...]:
        """The collections whose changes are the kind's, each with the number that its watch starts after.

        An empty one begins with everything there is, unless all are: then nobody knows where to begin.
        """
        ...

    def change(self, kind: Kind[object], event: Json) -> Change[object] | None:
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


def version_of(revision: Revision) -> Version:
    """The parts of an object's revision; a collection's has no uid."""
    uid, _, number = revision.rpartition("/")
    return Version(uid, number)


def listed(client: Client, request: Request, *, deadline: Deadline) -> tuple[list[Json], str]:
    """All objects of a collection, fetched in pages that show one state of it, and that state's number.

    The server forgets a state after some minutes; then the list begins anew.
    """
    items: list[Json] = []
    query = dict(request.query) | {"limit": _PAGE}
    while True:
        reply = client.ask(Request(request.method, request.path, query), deadline=deadline)
        if reply.status == _EXPIRED and "continue" in query:
            items.clear()
            del query["continue"]
            continue
        if not reply.is_success:
            raise failure(client, request, reply)
        items += _items(reply.object)
        metadata = metadata_of(reply.object)
        after = metadata.get("continue")
        if not after:
            return items, str(metadata.get("resourceVersion") or "")
        query["continue"] = str(after)


def found_at(client: Client, path: str, *, deadline: Deadline) -> Json | None:
    """The object with that path; None where there is none."""
    request = Request("GET", path)
    reply = client.ask(request, deadline=deadline)
    if reply.is_missing:
        return None
    if not reply.is_success:
        raise failure(client, request, reply)
    return reply.object


def failure(client: Client, request: Request, reply: Reply) -> NetplugError:
    """The error for a refusal that no condition explains."""
    what = f"kubernetes API {client.location}: {request.method} {request.path}"
    if reply.status in _OUR_FAULT:
        return ConfigurationError(what, reply.reason, reply.message)
    if reply.status == _NOT_FOUND:
        problem = "the server has no such resource: are netplug's custom resource definitions installed?"
        return Unavailable(what, problem)
    return Unavailable(what, reply.message)


def object_of(event: Json) -> Json:
    """The object that an event of a watch is about."""
    found = event.get("object")
    return found if isinstance(found, Mapping) else {}


def _items(found: Json) -> Iterator[Json]:
    items = found.get("items")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield item
