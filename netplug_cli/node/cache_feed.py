"""Keeps the cache of a shared datastore true by a watch, and by reading again what calls use; each in a thread."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from threading import Event, Lock, Thread

from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Atomicity, Datastore, LiveWatch, ShowsNodeEndpoints
from netplug_core.datastore.view import DatastoreCache, follow, follow_endpoints
from netplug_core.errors import NetplugError
from netplug_core.log import Level, Log
from netplug_core.records import Kind, NotSupported, WatchExpired

__all__ = ["FOLLOW_S", "LIVE_FOLLOW_S", "CacheFeed", "CacheRefresh", "EndpointFeed"]

FOLLOW_S = 30.0
"""How long one watch lasts at most; the next one goes on where it ended."""

LIVE_FOLLOW_S = 600.0
"""The same for one that says how far it has come: each new one costs a request for every kind."""

_FIRST_FOLLOW_S = 5.0  # after a failure, so that a line soon says that it is over
_PAUSE_S = 1.0  # after a failure; twice as long after each further one
_MAX_PAUSES = 32
_STOP_S = 0.3  # a watch of etcd ends a moment later, when the datastore is closed


@frozen
class _StoppableClock:
    """A clock whose deadlines have all passed once the process stops."""

    clock: Clock
    stopping: Event

    def now_ns(self) -> int:
        return self.clock.now_ns()

    def monotonic(self) -> float:
        return inf if self.stopping.is_set() else self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


class CacheFeed:
    """Follows some kinds of a datastore. Without it, a commit on outdated records fails, and is made anew."""

    _what = "the changes of the datastore"

    def __init__(
        self,
        datastore: Datastore,
        cache: DatastoreCache,
        kinds: Sequence[Kind[object]],
        *,
        log: Log,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._datastore = datastore
        self._cache = cache
        self._kinds = kinds
        self._log = log
        self._pause_s = pause_s
        is_atomic = datastore.description.atomicity is Atomicity.ATOMIC
        self._follow_s = FOLLOW_S if is_atomic else LIVE_FOLLOW_S
        self._stopping = Event()
        self._is_failing = False
        self._thread = Thread(target=self._run, name="cache feed", daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Follow as long as the context lasts."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        watch = self._find_watch()
        if watch is not None:
            watch.close()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    def _find_watch(self) -> LiveWatch | None:
        return self._cache.watch

    def _follow(self, deadline: Deadline) -> NetplugError | None:
        """Follow until the deadline; why some kinds could not be followed meanwhile."""
        return follow(self._datastore, self._cache, self._kinds, deadline=deadline)

    def _forget(self) -> None:
        """Forget what is known: the connection may lead to a store that was restored, whose revisions may repeat."""
        self._cache.invalidate()

    def _run(self) -> None:
        pauses, has_expired = 1, False
        while not self._stopping.is_set():
            try:
                seconds = _FIRST_FOLLOW_S if self._is_failing else self._follow_s
                deadline = Deadline.after(_StoppableClock(self._cache.clock, self._stopping), seconds)
                hindrance = self._follow(deadline)
            except NotSupported:
                return  # another IPAM assigns the addresses
            except Exception as error:  # noqa: BLE001  whatever it is, the next watch may succeed
                self._forget()
                if isinstance(error, WatchExpired) and not has_expired:
                    # Stores forget old changes, and of some kinds all changes are old. They are listed again at once.
                    has_expired = True
                    continue
                self._note_failure(error)
                self._stopping.wait(self._pause_s * pauses)
                pauses = min(2 * pauses, _MAX_PAUSES)
            else:
                pauses, has_expired = 1, False
                if hindrance is None:
                    self._note_success()
                else:
                    self._note_failure(hindrance)

    def _note_failure(self, error: Exception) -> None:
        """Log the first failure of a row; one that was not foreseen, each time and with its traceback."""
        if not isinstance(error, NetplugError):
            self._log(Level.ERROR, f"{self._what} cannot be followed\n{traceback.format_exc()}")
        elif not self._is_failing and not self._stopping.is_set():
            self._log(
                Level.WARNING,
                f"{self._what} cannot be followed; calls read what they need",
                datastore=self._datastore.description.location,
                cause=str(error),
            )
        self._is_failing = True

    def _note_success(self) -> None:
        if self._is_failing:
            location = self._datastore.description.location
            self._log(Level.INFO, f"{self._what} are followed again", datastore=location)
        self._is_failing = False


class EndpointFeed(CacheFeed):
    """Follows the endpoints of a node whose pods are shown by a datastore, from its first pod on."""

    _what = "the pods of the node"

    def __init__(
        self,
        datastore: Datastore,
        shown: ShowsNodeEndpoints,
        cache: DatastoreCache,
        *,
        log: Log,
        pause_s: float = _PAUSE_S,
    ) -> None:
        super().__init__(datastore, cache, (), log=log, pause_s=pause_s)
        self._shown = shown
        self._node = ""
        self._starting = Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Follow from the first call of ``follow_node`` on, as long as the context lasts."""
        try:
            yield
        finally:
            with self._starting:
                self._node = self._node or "none"  # no thread begins after this
            self._stop()

    def follow_node(self, node: str) -> None:
        """Follow the endpoints of this node, if none is followed yet."""
        if self._node or not node:
            return
        with self._starting:
            if not self._node:
                self._node = node
                self._thread.start()

    def _find_watch(self) -> LiveWatch | None:
        return self._cache.endpoint_watch

    def _follow(self, deadline: Deadline) -> None:
        follow_endpoints(self._shown, self._cache, self._node, deadline=deadline)

    def _forget(self) -> None:
        """Nothing: the endpoints are forgotten already."""


class CacheRefresh:
    """Reads again what calls use of an ordered datastore when it is too old for them, so that they need not.

    Nothing is read while there are no calls: what no call has used since it was read is read by the next one.
    """

    def __init__(self, datastore: Datastore, cache: DatastoreCache, *, log: Log) -> None:
        self._datastore = datastore
        self._cache = cache
        self._log = log
        self._stopping = Event()
        self._used = Event()
        self._thread = Thread(target=self._run, name="cache refresh", daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read again as long as the context lasts."""
        self._cache.on_use = self._used.set
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._used.set()
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        clock = _StoppableClock(self._cache.clock, self._stopping)
        while not self._stopping.is_set():
            self._used.clear()
            wait_s: float | None = None
            try:
                wait_s = self._cache.refresh(self._datastore, deadline=Deadline.after(clock, CALL_TIMEOUT_S))
            except Exception as error:  # noqa: BLE001  the next call reads it itself, and says what is wrong
                self._log(Level.DEBUG, "what calls use could not be read again", cause=str(error))
            self._used.wait(wait_s)
