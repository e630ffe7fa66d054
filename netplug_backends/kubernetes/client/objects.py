"""Objects of any kind: listed by pages, read, written, and watched.

Each watched collection is one long request, read by a thread of its own. A request that ends is sent
again from the last resourceVersion; bookmarks keep that recent in a collection where nothing changes, and say that
nothing is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TypeAlias, TypeVar

from attrs import define, evolve, field, frozen

from netplug_backends.kubernetes.client.apiclient import (
    METADATA_TYPE,
    ApiClient,
    ApiConnection,
    ApiReply,
    ApiRequest,
    Json,
)
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, NetplugError, NotServed, Unavailable
from netplug_core.names import is_resource_name
from netplug_core.records import Kind, Revision, WatchEvent, WatchExpired

__all__ = [
    "ANY_VERSION", "ObjectVersion", "RejectedByServer", "StreamState", "WatchPositions", "WatchedCollection",
    "collections_revision", "convert_objects", "error_of_reply", "event_object", "find_crd_mode", "find_object",
    "find_precondition", "get_object", "is_valid_path", "list_objects", "metadata_of", "parse_revision",
    "revision_of",
]  # fmt: skip


# --- objects ---------------------------------------------------------------------------------------------------------


T = TypeVar("T")

ANY_VERSION = "0"
"""The resourceVersion of a list that the server may answer from its cache, however old."""

_PAGE_SIZE = "500"
_METADATA_PAGE_SIZE = "5000"  # about a kilobyte each
_PAGE_S, _NEXT_PAGE_S = 10.0, 60.0  # a server that has sent the first page is there; one that fails costs the list
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
        reply = client.send(
            evolve(request, query=query), deadline=deadline.capped(_NEXT_PAGE_S if "continue" in query else _PAGE_S)
        )
        if reply.status == _EXPIRED and "continue" in query:
            items.clear()
            del query["continue"]
            continue
        if not reply.is_success:
            raise error_of_reply(client, request, reply)
        items += map(convert, _items(client, request, reply))
        metadata = metadata_of(reply.object)
        if client.report is not None:
            left = metadata.get("remainingItemCount")
            client.report(len(items), left if isinstance(left, int) else 0)
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
    if reply.status in _REJECTED or reply.is_missing:  # the namespace of a new object is missing
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


# --- watch -----------------------------------------------------------------------------------------------------------


_GONE = 410
_RETRY_S = 0.1
_SETTLING_S = 0.5


@frozen
class WatchedCollection:
    """A collection that is watched for a kind, from the state with that resourceVersion.

    ``position`` is its index among the collections of the kind, ``revision`` the one that the caller watches from.
    """

    kind: Kind[object]
    request: ApiRequest
    resource_version: str
    revision: Revision
    position: int = 0


@define
class WatchPositions:
    """The resourceVersion that the watch of a kind has reached in each of its collections."""

    resource_versions: list[str]

    def advance(self, position: int, change: WatchEvent[object], resource_version: str) -> WatchEvent[object]:
        """A change in one of the collections, with the revision from which a watch can continue after it."""
        self.resource_versions[position] = resource_version
        if len(self.resource_versions) == 1:
            return change
        return evolve(change, revision=collections_revision(*self.resource_versions))


@frozen
class _Arrival:
    """What a stream said at a time. ``is_proof``: everything that the server had said before has arrived too."""

    watcher: _CollectionWatcher
    event: Json
    at_s: float
    is_proof: bool

    @property
    def is_bookmark(self) -> bool:
        return self.event.get("type") == "BOOKMARK"


_Item: TypeAlias = "_Arrival | BaseException | None"


@define(eq=False, repr=False)
class StreamState:
    """How far the events of a watch have come. The thread that reads them, and others, look at it."""

    _queue: SimpleQueue[_Item] = field(factory=SimpleQueue, init=False)
    _watchers: list[_CollectionWatcher] = field(factory=list, init=False)
    _is_closed: bool = field(default=False, init=False)

    def current_until_s(self, kind: Kind[object]) -> float | None:
        """See :class:`~netplug_core.datastore.protocol.LiveWatch`: the collection that spoke longest ago counts."""
        times_s = [watcher.current_until_s for watcher in self._watchers if watcher.collection.kind == kind]
        known_s = [at_s for at_s in times_s if at_s is not None]
        return min(known_s) if known_s and len(known_s) == len(times_s) else None

    def close(self) -> None:
        """End the watch."""
        self._is_closed = True
        self._queue.put(None)

    def watch_events(
        self, client: ApiClient, collections: Sequence[WatchedCollection], *, deadline: Deadline
    ) -> Iterator[tuple[WatchedCollection, Json]]:
        """Every event of every collection once, in the order of its collection, until the deadline.

        Who asks for the next one has applied the one before.

        Raises:
            WatchExpired: the server no longer has the state to watch from.
            Unavailable: the server does not answer, or refuses.
        """
        watchers = [_CollectionWatcher(client, collection, self._queue, deadline) for collection in collections]
        try:
            self._watchers = watchers
            for watcher in watchers:
                watcher.start()
            running = len(watchers)
            while running and not self._is_closed:
                item = _next_item(self._queue, deadline)
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    running -= 1
                else:
                    if not item.is_bookmark:
                        yield item.watcher.collection, item.event
                    if item.is_proof:
                        item.watcher.current_until_s = item.at_s
        finally:
            for watcher in watchers:
                watcher.stop()


def _next_item(queue: SimpleQueue[_Item], deadline: Deadline) -> _Item:
    # Wait a little longer than the watchers, to receive their last error.
    try:
        return queue.get(timeout=deadline.remaining_s + _RETRY_S)
    except Empty:
        return None


@define(eq=False)
class _CollectionWatcher:
    """Watches one collection, in a thread. Its stream was opened last at ``opened_s``.

    ``current_until_s``: the reader of the queue has applied all that the server said until then.
    """

    client: ApiClient
    collection: WatchedCollection
    queue: SimpleQueue[_Item]
    deadline: Deadline
    connection: ApiConnection | None = None
    stopped: Event = field(factory=Event)
    opened_s: float = 0.0
    current_until_s: float | None = None

    def start(self) -> None:
        Thread(target=self._run, name=f"watch {self.collection.kind}", daemon=True).start()

    def stop(self) -> None:
        self.stopped.set()
        if self.connection is not None:
            self.connection.interrupt()

    def _set_connection(self, connection: ApiConnection) -> None:
        self.connection = connection
        if self.stopped.is_set():  # `stop` sets it before it looks at the connection, so one of the two interrupts
            connection.interrupt()

    def _run(self) -> None:
        try:
            self._watch()
        except TimeoutError:
            self.queue.put(None)
        except BaseException as error:  # noqa: BLE001  # the thread that reads the queue raises it
            self.queue.put(error)
        else:
            self.queue.put(None)

    def _watch(self) -> None:
        reached = self.collection.resource_version
        while not self.deadline.has_passed and not self.stopped.is_set():
            before = reached
            for event in self._events(reached):
                found = event_object(event)
                if event.get("type") == "ERROR":
                    raise self._error_of_event(found)
                reached = str(metadata_of(found).get("resourceVersion") or reached)
                self.queue.put(self._arrival(event))
            if reached == before:  # a pause before the next request to a server that ends streams at once
                self.stopped.wait(min(_RETRY_S, self.deadline.remaining_s))

    def _events(self, resource_version: str) -> Iterator[Json]:
        query = {
            **self.collection.request.query,
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(self.deadline.remaining_s) + 1)),
        }
        request = ApiRequest("GET", self.collection.request.path, query)
        stream = self.client.open_stream(request, deadline=self.deadline, on_connect=self._set_connection)
        try:
            if stream.reply.status == _GONE:
                raise WatchExpired(self.collection.revision)
            if not stream.reply.is_success:
                raise error_of_reply(self.client, request, stream.reply)
            self.opened_s = self.deadline.clock.monotonic()
            yield from stream.events()
        finally:
            stream.close()

    def _arrival(self, event: Json) -> _Arrival:
        """An event that has arrived now. Just after the stream was opened, older changes may follow it."""
        at_s = self.deadline.clock.monotonic()
        is_bookmark = event.get("type") == "BOOKMARK"
        return _Arrival(self, event, at_s, is_proof=is_bookmark or at_s - self.opened_s >= _SETTLING_S)

    def _error_of_event(self, status: Json) -> Exception:
        if status.get("code") == _GONE:
            return WatchExpired(self.collection.revision)
        what = f"kubernetes API {self.client.location}: watch of {self.collection.request.path}"
        return Unavailable(what, str(status.get("message") or "it ended with an error"))
