"""Following collections: every change after a number, from any number of them at once.

``datastore`` calls it. Each collection is one long request, read in a thread of its own; an ended one is taken up
again where it stopped, with the help of bookmarks where nothing changed for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiRequest, Json
from netplug_backends.kubernetes.client.objects import error_of_reply, event_object, metadata_of
from netplug_backends.kubernetes.client.transport import ApiConnection
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.records import Kind, Revision, WatchEvent, WatchExpired

__all__ = ["WatchPositions", "WatchedCollection", "watch_events"]

_GONE = 410
_RETRY_S = 0.1


@frozen
class WatchedCollection:
    """A collection to follow for the sake of a kind, from the state with that number.

    ``place`` is its place among the collections of the kind, ``revision`` what the watch was to begin after.
    """

    kind: Kind[object]
    request: ApiRequest
    resource_version: str
    revision: Revision
    position: int = 0


@define
class WatchPositions:
    """How far the watch of a kind has come in each of its collections."""

    resource_versions: list[str]

    def advance(self, position: int, change: WatchEvent[object], resource_version: str) -> WatchEvent[object]:
        """A change in one of them, with the revision that a watch goes on from after it."""
        self.resource_versions[position] = resource_version
        return (
            change
            if len(self.resource_versions) == 1
            else evolve(change, revision=Revision("/".join(self.resource_versions)))
        )


_Item: TypeAlias = "tuple[WatchedCollection, Json] | BaseException | None"


def watch_events(
    client: ApiClient, collections: Sequence[WatchedCollection], *, deadline: Deadline
) -> Iterator[tuple[WatchedCollection, Json]]:
    """Every event of every collection, each once and in the order of its collection; ends at the deadline.

    Raises:
        WatchExpired: the server does not remember a collection's number any more.
        Unavailable: it does not answer, or not to us.
    """
    queue: SimpleQueue[_Item] = SimpleQueue()
    followers = [_CollectionWatcher(client, source, queue, deadline) for source in collections]
    try:
        for follower in followers:
            follower.start()
        running = len(followers)
        while running:
            item = _next_item(queue, deadline)
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for follower in followers:
            follower.stop()


def _next_item(queue: SimpleQueue[_Item], deadline: Deadline) -> _Item:
    # A little longer than the followers wait themselves, whose last words are worth hearing.
    try:
        return queue.get(timeout=deadline.remaining_s + _RETRY_S)
    except Empty:
        return None


@define(eq=False)
class _CollectionWatcher:
    """One collection, in a thread."""

    client: ApiClient
    collection: WatchedCollection
    queue: SimpleQueue[_Item]
    deadline: Deadline
    connection: ApiConnection | None = None
    stopped: Event = field(factory=Event)

    def start(self) -> None:
        Thread(target=self._run, name=f"watch {self.collection.kind}", daemon=True).start()

    def stop(self) -> None:
        self.stopped.set()
        if self.connection is not None:
            self.connection.interrupt()

    def _set_connection(self, connection: ApiConnection) -> None:
        self.connection = connection
        if self.stopped.is_set():  # whoever stops sets it first, so one of the two interrupts
            connection.interrupt()

    def _run(self) -> None:
        try:
            self._watch()
        except TimeoutError:
            self.queue.put(None)
        except BaseException as error:  # noqa: BLE001  # it belongs to the thread that asked
            self.queue.put(error)
        else:
            self.queue.put(None)

    def _watch(self) -> None:
        number = self.collection.resource_version
        while not self.deadline.has_passed and not self.stopped.is_set():
            before = number
            for event in self._events(number):
                found = event_object(event)
                if event.get("type") == "ERROR":
                    raise self._error_of_event(found)
                number = str(metadata_of(found).get("resourceVersion") or number)
                if event.get("type") != "BOOKMARK":
                    self.queue.put((self.collection, event))
            if number == before:  # a server that ends streams at once is not asked without a pause
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
            yield from stream.events()
        finally:
            stream.close()

    def _error_of_event(self, status: Json) -> Exception:
        if status.get("code") == _GONE:
            return WatchExpired(self.collection.revision)
        what = f"kubernetes API {self.client.location}: watch of {self.collection.request.path}"
        return Unavailable(what, str(status.get("message") or "it ended with an error"))
