"""What is opened once and used by many calls: datastores with their connections, and the queues of their commits."""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Event, Lock
from typing import Generic, TypeVar, cast

from attrs import define, evolve, field, frozen

from netplug_cli.node.cache_feed import CacheFeed, CacheRefresh, EndpointFeed
from netplug_core.clock import Clock
from netplug_core.datastore.batch import RequestQueue
from netplug_core.datastore.protocol import Atomicity, Datastore, ShowsNodeEndpoints
from netplug_core.datastore.view import DatastoreCache
from netplug_core.flows.ipam.cache import followed_kinds, make_node_cache
from netplug_core.ipam.outcome.record_memory import RecordMemory
from netplug_core.locks import Turn
from netplug_core.log import Level, Log

__all__ = ["MAX_SHARED", "OpeningUse", "SharedDatastore", "SharedOpenings"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_SHARED = 8
"""How many different datastores stay open. While all of them are in use, a call with another one opens its own."""


@frozen
class SharedDatastore:
    """A datastore of many calls, and a cache of it, so that a call begins without a read.

    Calls that wait while a commit is in flight share the next one, through ``queue``. An ordered store has none: it
    makes the writes of a commit one by one, so that sharing saves nothing, and calls at the same time would lose
    commits to each other. It has a ``turn`` in place of it, which one call at a time has. ``shown`` is a datastore
    whose endpoints are views of pods, and ``endpoints`` what follows those of the node while the datastore is ``fed``.
    ``memory`` is what the calls remember of records that cannot be read.
    """

    datastore: Datastore
    cache: DatastoreCache
    queue: RequestQueue | None
    shown: ShowsNodeEndpoints | None = None
    endpoints: EndpointFeed | None = None
    turn: Turn | None = None
    memory: RecordMemory = field(factory=RecordMemory)

    @classmethod
    def of(cls, datastore: Datastore, clock: Clock, shown: ShowsNodeEndpoints | None = None) -> SharedDatastore:
        """A datastore with a cache of its own, and a queue if it can use one."""
        cache = make_node_cache(datastore, clock=clock, guard=Lock())
        turn = Turn(guard=Lock(), make_signal=Event)
        if datastore.description.atomicity is not Atomicity.ATOMIC:
            cache.refreshing = Turn(guard=Lock(), make_signal=Event).taken
            return cls(datastore, cache, None, shown, turn=turn)
        return cls(datastore, cache, RequestQueue(store=datastore, cache=cache, turn=turn))

    @contextmanager
    def fed(self, log: Log) -> Iterator[SharedDatastore]:
        """The same, its cache kept true by a watch as long as the context lasts."""
        with ExitStack() as stack:
            stack.enter_context(
                CacheFeed(self.datastore, self.cache, followed_kinds(self.datastore), log=log).running()
            )
            if self.queue is None:
                stack.enter_context(CacheRefresh(self.datastore, self.cache, log=log).running())
            if self.shown is None:
                yield self
                return
            endpoints = EndpointFeed(self.datastore, self.shown, self.cache, log=log)
            stack.enter_context(endpoints.running())
            yield evolve(self, endpoints=endpoints)


@define(eq=False)
class _Opening(Generic[V]):
    """One key's value, while calls use it or it waits for the next one. ``lock`` is held while it is opened."""

    users: int = 0
    value: V | None = None
    is_open: bool = False
    stack: ExitStack = field(factory=ExitStack)
    lock: AbstractContextManager[object] = field(factory=Lock)


class OpeningUse(enum.Enum):
    """Who uses what is open: a call, which the next ones are like, or a task of the process itself."""

    CALL = "call"
    TASK = "task"


class SharedOpenings(Generic[K, V]):
    """Opened values by what they were opened with, at most ``limit``. Threads may share it.

    A value stays open until ``close``, or until another one needs its place and no call uses it: the one that was
    used longest ago goes. An opening that takes long delays only calls with the same key. A value that cannot be
    closed is a line of the log, and no error of the call that needed its place.
    """

    def __init__(self, limit: int = MAX_SHARED, *, log: Log | None = None) -> None:
        self._limit = limit
        self._log = log
        self._openings: dict[K, _Opening[V]] = {}  # the one that was used longest ago is the first
        self._lock = Lock()

    @contextmanager
    def open(
        self, key: K, opening: Callable[[], AbstractContextManager[V]], *, use: OpeningUse = OpeningUse.CALL
    ) -> Iterator[V]:
        """The value for a key: the one that is open, else a new one by ``opening``, whose errors are raised.

        If ``limit`` values are in use, a new one is the caller's alone. So is one that a task opens: it takes no place,
        and what it uses counts as used no later than by its last call.
        """
        found, former = self._enter(key, use)
        if former is not None:
            self._close(former.stack)
        if found is None:
            own = ExitStack()
            try:
                yield own.enter_context(opening())
            finally:
                self._close(own)
            return
        try:
            with found.lock:
                if not found.is_open:
                    found.value = found.stack.enter_context(opening())
                    found.is_open = True
            yield cast("V", found.value)
        finally:
            self._leave(key, found)

    def close(self) -> None:
        """Close every value; no call may use one."""
        with self._lock:
            openings = tuple(self._openings.values())
            self._openings.clear()
        for each in openings:
            self._close(each.stack)

    def __len__(self) -> int:
        return len(self._openings)

    def _enter(self, key: K, use: OpeningUse) -> tuple[_Opening[V] | None, _Opening[V] | None]:
        """What the caller uses from now on, None if it opens its own; and what has to be closed for it."""
        former = None
        with self._lock:
            found = self._openings.get(key)
            if found is None:
                if use is OpeningUse.TASK:
                    return None, None
                if len(self._openings) >= self._limit:
                    idle = next((each for each, opening in self._openings.items() if not opening.users), None)
                    if idle is None:
                        return None, None
                    former = self._openings.pop(idle)
                found = self._openings[key] = _Opening()
            elif use is OpeningUse.CALL:
                self._openings[key] = self._openings.pop(key)
            found.users += 1
        return found, former

    def _leave(self, key: K, found: _Opening[V]) -> None:
        with self._lock:
            found.users -= 1
            if not found.is_open and not found.users:
                self._openings.pop(key, None)  # it could not be opened

    def _close(self, stack: ExitStack) -> None:
        try:
            stack.close()
        except Exception:  # noqa: BLE001  what is closed is used no more, whatever happened
            if self._log is not None:
                self._log(Level.ERROR, f"a connection could not be closed\n{traceback.format_exc()}")
