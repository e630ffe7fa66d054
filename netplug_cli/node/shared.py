"""What is opened once and used by many calls: datastores with their connections, and the queues of their commits."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from threading import Lock
from typing import Generic, TypeVar

from attrs import frozen

from netplug_core.datastore.batch import RequestQueue
from netplug_core.datastore.protocol import Atomicity, Datastore

__all__ = ["MAX_SHARED", "SharedDatastore", "SharedOpenings"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_SHARED = 8
"""How many different datastores stay open. A call with another one opens and closes its own."""


@frozen
class SharedDatastore:
    """A datastore of many calls. Those that wait while a commit is in flight share the next one, through ``queue``.

    An ordered store has no queue: it makes the writes of a commit one by one, so that sharing saves nothing.
    """

    datastore: Datastore
    queue: RequestQueue | None

    @classmethod
    def of(cls, datastore: Datastore) -> SharedDatastore:
        """A datastore with a queue of its own, if it can use one."""
        is_atomic = datastore.description.atomicity is Atomicity.ATOMIC
        turn = Lock()
        return cls(datastore, RequestQueue(store=datastore, turn=lambda: turn) if is_atomic else None)


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
