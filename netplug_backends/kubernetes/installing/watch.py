"""Says when objects of the cluster change: each collection is listed and then watched, by a thread of its own.

``netplug_cli.operator`` calls it. It says only *that* something has changed: who is woken reads the cluster anew. So
after an expiry or a silence it is enough to list again, and to compare.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from threading import Event, Thread
from typing import Final

from attrs import define, field, frozen

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import (
    METADATA_TYPE,
    ApiClient,
    ApiConnection,
    ApiRequest,
    Json,
    RateLimiter,
)
from netplug_backends.kubernetes.client.objects import error_of_reply, event_object, list_objects, metadata_of
from netplug_backends.kubernetes.names import path_segment
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import NetplugError
from netplug_core.log import Level, Log
from netplug_core.settings.model import KubernetesAccess

__all__ = [
    "ClusterWatch", "ObjectCollection", "collection_of", "open_cluster_watch",
]  # fmt: skip


_STREAM_S: Final = 60
"""When the server ends a watch. A watch that was silent is begun with a new list.

So a broken connection is noticed, and a definition that was deleted and made again: the watch of the old one sees
nothing of the objects of the new one.
"""

_STREAM_END_S: Final = 10.0
_LIST_S: Final = 30.0
_FIRST_RETRY_S: Final = 0.5
_LONGEST_RETRY_S: Final = 30.0
_UNSERVED_S: Final = 5.0
"""The pause before it is looked again whether a kind is served: its definition may be made at any time."""

_PAUSE_S: Final = 0.1
"""The least pause between two streams, for a server that ends them at once."""

_END_S: Final = 5.0
_QPS, _BURST = 20.0, 60
_NOT_FOUND, _GONE = 404, 410
_EVENT_TYPE: Final = METADATA_TYPE.replace("PartialObjectMetadataList", "PartialObjectMetadata")


@frozen
class ObjectCollection:
    """Where some objects are listed, and which of them count; all of them if no names are given."""

    path: str
    names: frozenset[str] = frozenset()


@define(kw_only=True, eq=False)
class ClusterWatch:
    """Calls ``on_change`` after each change of an object in one of the collections, from any thread.

    ``on_crash`` is called with what no watch may raise: that collection is not watched any more.
    """

    client: ApiClient
    on_change: Callable[[], None]
    on_crash: Callable[[Exception], None]
    clock: Clock
    log: Log
    _watchers: list[_Watcher] = field(factory=list, init=False)

    def start(self, collections: Iterable[ObjectCollection]) -> None:
        """Begin to watch these."""
        for collection in collections:
            watcher = _Watcher(self.client, collection, self.on_change, self.on_crash, self.clock, self.log)
            self._watchers.append(watcher)
            watcher.start()

    def stop(self) -> bool:
        """End every watch; whether every thread has ended."""
        for watcher in self._watchers:
            watcher.interrupt()
        deadline = Deadline.after(self.clock, _END_S)
        joined = [watcher.join(deadline) for watcher in self._watchers]
        self.client.close()
        return all(joined)


@define(eq=False)
class _Watcher:
    """Watches one collection. ``_known`` has the state of each object that counts; None before the first list."""

    client: ApiClient
    collection: ObjectCollection
    on_change: Callable[[], None]
    on_crash: Callable[[Exception], None]
    clock: Clock
    log: Log
    _stopped: Event = field(factory=Event, init=False)
    _connection: ApiConnection | None = field(default=None, init=False)
    _thread: Thread | None = field(default=None, init=False)
    _known: Mapping[str, str] | None = field(default=None, init=False)
    _problem: str = field(default="", init=False)
    _failures: int = field(default=0, init=False)

    def start(self) -> None:
        self._thread = Thread(target=self._run, name=f"watch {self.collection.path}", daemon=True)
        self._thread.start()

    def interrupt(self) -> None:
        self._stopped.set()
        if self._connection is not None:
            self._connection.interrupt()

    def join(self, deadline: Deadline) -> bool:
        if self._thread is not None:
            self._thread.join(deadline.remaining_s)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                pause_s = self._list_and_watch()
            except (NetplugError, TimeoutError) as error:
                pause_s = self._note_failure(error)
            except Exception as error:  # noqa: BLE001  # a mistake of ours; its thread must not end unnoticed
                self.on_crash(error)
                return
            self._stopped.wait(pause_s)

    def _list_and_watch(self) -> float:
        """List, and watch for as long as the server has something to say; the pause before the next list."""
        reached = self._list()
        if reached is None:
            return _UNSERVED_S
        while not self._stopped.is_set():
            known, reached = self._known, self._watch(reached)
            self._note_success()
            if not reached or self._known is known:  # expired, or nothing has changed
                break
            self._stopped.wait(_PAUSE_S)
        return _PAUSE_S

    def _list(self) -> str | None:
        """The resourceVersion of the list; None if the kind is not served."""
        request = ApiRequest("GET", self.collection.path, accept=METADATA_TYPE)
        deadline = Deadline.after(self.clock, _LIST_S)
        first = self.client.send(
            ApiRequest("GET", request.path, {"limit": "1"}, accept=METADATA_TYPE), deadline=deadline
        )
        is_served = first.status != _NOT_FOUND
        found, version = list_objects(self.client, request, deadline=deadline) if is_served else ([], None)
        self._note_success()
        known = {name: state for name, state in map(_state_of, found) if self._counts(name)}
        if known != self._known:
            self._known = known
            self.on_change()
        return version

    def _watch(self, version: str) -> str:
        """Watch until the stream ends; the resourceVersion that it has reached, empty if it has expired."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_STREAM_S),
        }
        request = ApiRequest("GET", self.collection.path, query, accept=_EVENT_TYPE)
        deadline = Deadline.after(self.clock, _STREAM_S + _STREAM_END_S)
        stream = self.client.open_stream(request, deadline=deadline, on_connect=self._set_connection)
        try:
            if stream.reply.status in {_GONE, _NOT_FOUND}:
                return ""
            if not stream.reply.is_success:
                raise error_of_reply(self.client, request, stream.reply)
            for event in stream.events():
                if event.get("type") == "ERROR":  # mostly 410; whatever it is, a list says more
                    return ""
                version = self._apply(event, version)
        finally:
            self._connection = None
            stream.close()
        return version

    def _apply(self, event: Json, version: str) -> str:
        """Note an event; the resourceVersion after it."""
        found = event_object(event)
        name, state = _state_of(found)
        if event.get("type") != "BOOKMARK" and self._counts(name):
            known = {other: value for other, value in (self._known or {}).items() if other != name}
            self._known = known if event.get("type") == "DELETED" else {**known, name: state}
            self.on_change()
        return str(metadata_of(found).get("resourceVersion") or version)

    def _counts(self, name: str) -> bool:
        return not self.collection.names or name in self.collection.names

    def _set_connection(self, connection: ApiConnection) -> None:
        self._connection = connection
        if self._stopped.is_set():  # `interrupt` sets it before it looks at the connection: one of the two ends it
            connection.interrupt()

    def _note_failure(self, error: Exception) -> float:
        """A line if it fails in another way than before; the pause before the next attempt."""
        problem = str(error)
        if problem != self._problem and not self._stopped.is_set():
            self.log(Level.WARNING, "a watch fails and is tried again", path=self.collection.path, cause=problem)
        self._problem = problem
        ceiling = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return ceiling * (0.5 + random.random() / 2)  # noqa: S311  # jitter, no secret

    def _note_success(self) -> None:
        if self._problem:
            self.log(Level.INFO, "a watch works again", path=self.collection.path)
        self._problem, self._failures = "", 0


def open_cluster_watch(
    access: KubernetesAccess,
    environ: Mapping[str, str],
    on_change: Callable[[], None],
    on_crash: Callable[[Exception], None],
    *,
    clock: Clock,
    log: Log,
) -> ClusterWatch:
    """A watch on the server that an access leads to; nothing is sent before ``start``."""
    limiter = RateLimiter(clock=clock, qps=_QPS, burst=_BURST)
    client = ApiClient(AccessSource(access, environ), clock=clock, rate_limiter=limiter)
    return ClusterWatch(client=client, on_change=on_change, on_crash=on_crash, clock=clock, log=log)


def collection_of(api_version: str, plural: str, *, namespace: str = "", names: Iterable[str] = ()) -> ObjectCollection:
    """The objects of a kind, all of them or those with some names."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    place = f"/namespaces/{path_segment(namespace)}" if namespace else ""
    return ObjectCollection(f"{root}{place}/{plural}", frozenset(names))


def _state_of(found: Json) -> tuple[str, str]:
    metadata = metadata_of(found)
    return str(metadata.get("name") or ""), f"{metadata.get('uid')} {metadata.get('resourceVersion')}"
