"""What is opened once and used by many calls, such as a datastore with its connections."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["MAX_SHARED", "SharedOpenings"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_SHARED = 8
"""How many different datastores stay open. A call with another one opens and closes its own."""


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
