"""What is opened once and used by many calls: datastores with their connections, and the queues of their commits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from threading import Lock
from typing import Generic, TypeVar

from attrs import frozen

from netplug_cli.node.cache_feed import CacheFeed
from netplug_core.clock import Clock
from netplug_core.datastore.batch import RequestQueue
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.flows.ipam.cache import FOLLOWED_KINDS, make_node_cache
from netplug_core.log import Log

__all__ = ["MAX_SHARED", "SharedDatastore", "SharedOpenings"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_SHARED = 8
"""How many different datastores stay open. A call with another one opens and closes its own."""


@frozen
class SharedDatastore:
    """A datastore of many calls. Those that wait while a commit is in flight share the next one, through ``queue``.

    The queue has a cache, so that a call begins without a read. An ordered store has neither: it makes the writes of
    a commit one by one, so that sharing saves nothing, and it does not check what a call took from a cache.
    """

    datastore: Datastore
    queue: RequestQueue | None

    @classmethod
    def of(cls, datastore: Datastore, clock: Clock) -> SharedDatastore:
        """A datastore with a queue and a cache of its own, if it can use them."""
        if datastore.description.atomicity is not Atomicity.ATOMIC:
            return cls(datastore, None)
        turn = Lock()
        cache = make_node_cache(datastore, clock=clock, guard=Lock())
        return cls(datastore, RequestQueue(store=datastore, cache=cache, turn=lambda: turn))

    @contextmanager
    def fed(self, log: Log) -> Iterator[SharedDatastore]:
        """The same, its cache kept true by a watch as long as the context lasts."""
        if self.queue is None or self.queue.cache is None:
            yield self
            return
        with CacheFeed(self.datastore, self.queue.cache, FOLLOWED_KINDS, log=log).running():
            yield self


class SharedOpenings(Generic[K, V]):
    """Opened values by what they were opened with, at most ``limit``; open until ``close``. Threads may share it."""

    def __init__(self, limit: int = MAX_SHARED) -> None:
        self._limit = limit
        self._opened: dict[K, V] = {}
        self._stack = ExitStack()
        self._lock = Lock()

    def open(self, key: K, opening: Callable[[], AbstractContextManager[V]]) -> AbstractContextManager[V]:
        """The value for a key: the one that is open, else a new one by ``opening``, whose errors are raised.

        When the limit is reached, a new one is the caller's alone.
        """
        with self._lock:
            if key not in self._opened:
                if len(self._opened) >= self._limit:
                    return opening()
                self._opened[key] = self._stack.enter_context(opening())
            return nullcontext(self._opened[key])

    def close(self) -> None:
        """Close every value."""
        with self._lock:
            self._opened.clear()
            self._stack.close()
