"""Keeps the cache of a shared datastore true by a watch, in a thread of its own."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from threading import Event, Thread

from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.cache import DatastoreCache
from netplug_core.datastore.feed import follow
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.errors import NetplugError
from netplug_core.log import Level, Log
from netplug_core.records import Kind, NotSupported, WatchExpired

__all__ = ["FOLLOW_S", "LIVE_FOLLOW_S", "CacheFeed"]

FOLLOW_S = 30.0
"""How long one watch lasts at most; the next one goes on where it ended."""

LIVE_FOLLOW_S = 600.0
"""The same for one that can say whether changes arrive: each new one costs a request for every kind."""

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
            self._stopping.set()
            if self._cache.watch is not None:
                self._cache.watch.close()
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        pauses, has_expired = 1, False
        while not self._stopping.is_set():
            try:
                seconds = _FIRST_FOLLOW_S if self._is_failing else self._follow_s
                deadline = Deadline.after(_StoppableClock(self._cache.clock, self._stopping), seconds)
                follow(self._datastore, self._cache, self._kinds, deadline=deadline)
            except NotSupported:
                return  # another IPAM assigns the addresses
            except Exception as error:  # noqa: BLE001  whatever it is, the next watch may succeed
                # The connection may lead to a store that was restored: its revisions may repeat.
                self._cache.invalidate()
                if isinstance(error, WatchExpired) and not has_expired:
                    # Stores forget old changes, and of some kinds all changes are old. They are listed again at once.
                    has_expired = True
                    continue
                self._note_failure(error)
                self._stopping.wait(self._pause_s * pauses)
                pauses = min(2 * pauses, _MAX_PAUSES)
            else:
                pauses, has_expired = 1, False
                self._note_success()

    def _note_failure(self, error: Exception) -> None:
        """Log the first failure of a row; one that was not foreseen, each time and with its traceback."""
        if not isinstance(error, NetplugError):
            self._log(Level.ERROR, f"the changes of the datastore cannot be followed\n{traceback.format_exc()}")
        elif not self._is_failing and not self._stopping.is_set():
            self._log(
                Level.WARNING,
                "the changes of the datastore cannot be followed; calls read what they need",
                datastore=self._datastore.description.location,
                cause=str(error),
            )
        self._is_failing = True

    def _note_success(self) -> None:
        if self._is_failing:
            location = self._datastore.description.location
            self._log(Level.INFO, "the changes of the datastore are followed again", datastore=location)
        self._is_failing = False
