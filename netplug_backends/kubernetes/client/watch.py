"""Watches several collections at once and yields their events.

``datastore`` calls it. Each collection is one long request, read by a thread of its own. A request that ends is sent
again from the last resourceVersion; bookmarks keep that recent in a collection where nothing changes, and say that
nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiConnection, ApiRequest, Json
from netplug_backends.kubernetes.client.objects import collections_revision, error_of_reply, event_object, metadata_of
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.records import Kind, Revision, WatchEvent, WatchExpired

__all__ = ["StreamState", "WatchPositions", "WatchedCollection"]

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


class StreamState:
    """How far the events of a watch have come. The thread that reads them, and others, look at it."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._watchers: list[_CollectionWatcher] = []
        self._is_closed = False

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
