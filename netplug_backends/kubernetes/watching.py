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

from netplug_backends.kubernetes.client import Client, Json, Request
from netplug_backends.kubernetes.keeper import failure, metadata_of, object_of
from netplug_backends.kubernetes.transport import Connection
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.records import Change, Kind, Revision, WatchExpired

__all__ = ["Positions", "Source", "events"]

_GONE = 410
_AGAIN_S = 0.1


@frozen
class Source:
    """A collection to follow for the sake of a kind, from the state with that number.

    ``place`` is its place among the collections of the kind, ``revision`` what the watch was to begin after.
    """

    kind: Kind[object]
    request: Request
    number: str
    revision: Revision
    place: int = 0


@define
class Positions:
    """How far the watch of a kind has come in each of its collections."""

    numbers: list[str]

    def moved(self, place: int, change: Change[object], number: str) -> Change[object]:
        """A change in one of them, with the revision that a watch goes on from after it."""
        self.numbers[place] = number
        return change if len(self.numbers) == 1 else evolve(change, revision=Revision("/".join(self.numbers)))


_Item: TypeAlias = "tuple[Source, Json] | BaseException | None"


def events(client: Client, sources: Sequence[Source], *, deadline: Deadline) -> Iterator[tuple[Source, Json]]:
    """Every event of every collection, each once and in the order of its collection; ends at the deadline.

    Raises:
        WatchExpired: the server does not remember a collection's number any more.
        Unavailable: it does not answer, or not to us.
    """
    queue: SimpleQueue[_Item] = SimpleQueue()
    followers = [_Follower(client, source, queue, deadline) for source in sources]
    try:
        for follower in followers:
            follower.start()
        running = len(followers)
        while running:
            item = _next(queue, deadline)
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for follower in followers:
            follower.stop()


def _next(queue: SimpleQueue[_Item], deadline: Deadline) -> _Item:
    # A little longer than the followers wait themselves, whose last words are worth hearing.
    try:
        return queue.get(timeout=deadline.remaining_s + _AGAIN_S)
    except Empty:
        return None


@define(eq=False)
class _Follower:
    """One collection, in a thread."""

    client: Client
    source: Source
    queue: SimpleQueue[_Item]
    deadline: Deadline
    connection: Connection | None = None
    stopped: Event = field(factory=Event)

    def start(self) -> None:
        Thread(target=self._run, name=f"watch {self.source.kind}", daemon=True).start()

    def stop(self) -> None:
        self.stopped.set()
        if self.connection is not None:
            self.connection.interrupt()

    def _wait_on(self, connection: Connection) -> None:
        self.connection = connection
        if self.stopped.is_set():  # whoever stops sets it first, so one of the two interrupts
            connection.interrupt()

    def _run(self) -> None:
        try:
            self._follow()
        except TimeoutError:
            self.queue.put(None)
        except BaseException as error:  # noqa: BLE001  # it belongs to the thread that asked
            self.queue.put(error)
        else:
            self.queue.put(None)

    def _follow(self) -> None:
        number = self.source.number
        while not self.deadline.has_passed and not self.stopped.is_set():
            before = number
            for event in self._events(number):
                found = object_of(event)
                if event.get("type") == "ERROR":
                    raise self._error(found)
                number = str(metadata_of(found).get("resourceVersion") or number)
                if event.get("type") != "BOOKMARK":
                    self.queue.put((self.source, event))
            if number == before:  # a server that ends streams at once is not asked without a pause
                self.stopped.wait(min(_AGAIN_S, self.deadline.remaining_s))

    def _events(self, number: str) -> Iterator[Json]:
        query = {
            **self.source.request.query,
            "watch": "1",
            "resourceVersion": number,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(self.deadline.remaining_s) + 1)),
        }
        request = Request("GET", self.source.request.path, query)
        stream = self.client.open_stream(request, deadline=self.deadline, asked=self._wait_on)
        try:
            if stream.reply.status == _GONE:
                raise WatchExpired(self.source.revision)
            if not stream.reply.is_success:
                raise failure(self.client, request, stream.reply)
            yield from stream.events()
        finally:
            stream.close()

    def _error(self, status: Json) -> Exception:
        if status.get("code") == _GONE:
            return WatchExpired(self.source.revision)
        what = f"kubernetes API {self.client.location}: watch of {self.source.request.path}"
        return Unavailable(what, str(status.get("message") or "it ended with an error"))
