"""Objects and collections of the API: reading them, their revisions, and the errors for refusals.

The kind stores, the watch and the orchestrator call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from attrs import evolve, frozen

from netplug_backends.kubernetes.client.apiclient import METADATA_TYPE, ApiClient, ApiReply, ApiRequest, Json
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, NetplugError, NotServed, Unavailable
from netplug_core.names import is_resource_name
from netplug_core.records import Revision

__all__ = [
    "ANY_VERSION", "ObjectVersion", "RejectedByServer", "collections_revision", "convert_objects", "error_of_reply",
    "event_object", "find_crd_mode", "find_object", "find_precondition", "get_object", "is_valid_path", "list_objects",
    "metadata_of", "parse_revision", "revision_of",
]  # fmt: skip

T = TypeVar("T")

ANY_VERSION = "0"
"""The resourceVersion of a list that the server may answer from its cache, however old."""

_PAGE_SIZE = "500"
_METADATA_PAGE_SIZE = "5000"  # about a kilobyte each
_NOT_FOUND, _EXPIRED = 404, 410
_REJECTED = (400, 413, 422)  # the object breaks a rule of the schema, or is too large
_OUR_API_PATHS = tuple(f"/apis/{mode.group}/" for mode in CrdMode)


@frozen
class RejectedByServer(ConfigurationError):
    """What was sent breaks a rule of the server; the text is the server's (code 7)."""

    def __str__(self) -> str:
        return f"{self.where}: {self.accepted}"


@frozen
class ObjectVersion:
    """The two parts of an object's revision: which object, and which state of it."""

    uid: str
    resource_version: str


def metadata_of(found: Json) -> Json:
    """An object's metadata."""
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def revision_of(found: Json) -> Revision:
    """An object's revision: uid and resourceVersion. An object that was created again has another uid."""
    metadata = metadata_of(found)
    return Revision(f"{metadata.get('uid', '')}/{metadata.get('resourceVersion', '')}")


def parse_revision(revision: Revision) -> ObjectVersion:
    """The parts of an object's revision; the revision of a collection has no uid."""
    uid, _, resource_version = revision.rpartition("/")
    return ObjectVersion(uid, resource_version)


def collections_revision(*resource_versions: str) -> Revision:
    """The revision of a kind that is read from some collections; empty for a collection whose state is not known."""
    return Revision("/".join(resource_versions))


def find_precondition(revision: Revision) -> ObjectVersion | None:
    """The precondition of a write; None if no object can have that revision.

    The server takes an empty precondition for none, and a write without a precondition must not be sent.
    """
    version = parse_revision(revision)
    is_number = version.resource_version.isascii() and version.resource_version.isdigit()
    return version if version.uid and is_number else None


def is_valid_path(path: str) -> bool:
    """Whether an object may have that path. The server reads even a quoted slash in a name as a slash."""
    return all(map(is_resource_name, path.split("/")[1:]))


def list_objects(client: ApiClient, request: ApiRequest, *, deadline: Deadline) -> tuple[list[Json], str]:
    """All objects of a collection and its resourceVersion, read in pages that show one state."""
    return convert_objects(client, request, lambda item: item, deadline=deadline)


def convert_objects(
    client: ApiClient, request: ApiRequest, convert: Callable[[Json], T], *, deadline: Deadline
) -> tuple[list[T], str]:
    """The same, each object converted when its page is read: a long list is not held in both forms.

    The server forgets a state after some minutes; then the list is read again from its first page.
    """
    items: list[T] = []
    query = dict(request.query) | {"limit": _METADATA_PAGE_SIZE if request.accept == METADATA_TYPE else _PAGE_SIZE}
    while True:
        reply = client.send(evolve(request, query=query), deadline=deadline)
        if reply.status == _EXPIRED and "continue" in query:
            items.clear()
            del query["continue"]
            continue
        if not reply.is_success:
            raise error_of_reply(client, request, reply)
        items += map(convert, _items(client, request, reply))
        metadata = metadata_of(reply.object)
        continue_token = metadata.get("continue")
        if not continue_token:
            return items, str(metadata.get("resourceVersion") or "")
        query["continue"] = str(continue_token)
        query.pop("resourceVersion", None)  # the token names the state


def find_object(client: ApiClient, path: str, *, deadline: Deadline) -> Json | None:
    """The object with that path; None if there is none. A path that no object can have is not requested."""
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
    """The object that a successful reply contains: the one that was read or written.

    Raises:
        Unavailable: it contains none, so the API server did not send it; after a write the outcome is unknown.
    """
    metadata = metadata_of(reply.object)
    if not metadata.get("uid") or not metadata.get("resourceVersion"):
        raise client.unusable_reply(request, "it has no uid and resourceVersion")
    return reply.object


def find_crd_mode(client: ApiClient, *, deadline: Deadline) -> CrdMode | None:
    """The group of custom objects that a cluster serves: v3 only if there is no v1, None if there is neither.

    A cluster serves both if a server in front of the v1 objects offers them as v3.
    """
    request = ApiRequest("GET", "/apis")
    reply = client.send(request, deadline=deadline)
    if not reply.is_success:
        raise error_of_reply(client, request, reply)
    groups = reply.object.get("groups", "")
    if not isinstance(groups, list | None):
        raise client.unusable_reply(request, "it has no list of groups")
    names = {group.get("name") for group in groups or () if isinstance(group, Mapping)}
    return next((mode for mode in (CrdMode.V1, CrdMode.V3) if mode.group in names), None)


def error_of_reply(client: ApiClient, request: ApiRequest, reply: ApiReply) -> NetplugError:
    """The error for a refusal that no precondition explains."""
    what = client.describe(request)
    if reply.status in _REJECTED:
        return RejectedByServer(what, reply.reason, reply.message)
    if reply.status != _NOT_FOUND:
        return Unavailable(what, reply.message)
    if request.path.startswith(_OUR_API_PATHS):
        problem = "the server has no such resource: are netplug's custom resource definitions installed?"
        return NotServed(what, problem)
    return Unavailable(what, f"no Kubernetes API answers at this address: {reply.message}")


def event_object(event: Json) -> Json:
    """The object in a watch event."""
    found = event.get("object")
    return found if isinstance(found, Mapping) else {}


def _items(client: ApiClient, request: ApiRequest, reply: ApiReply) -> Iterator[Json]:
    items = reply.object.get("items", "")
    if not isinstance(items, list | None):  # an empty list may be null
        raise client.unusable_reply(request, "it has no list of items")
    for item in items or ():
        if not isinstance(item, dict):
            raise client.unusable_reply(request, "it has no list of objects")
        yield item
