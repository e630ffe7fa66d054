"""Values that exist for a while, such as open datastores. Threads may share the list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Tracked"]

T = TypeVar("T")


class Tracked(Generic[T]):
    """The values that there are now, in the order in which they came."""

    def __init__(self) -> None:
        self._values: list[T] = []
        self._lock = Lock()

    @contextmanager
    def including(self, value: T) -> Iterator[T]:
        """The value is one of them for as long as the context lasts."""
        self.add(value)
        try:
            yield value
        finally:
            with self._lock:
                self._values = [each for each in self._values if each is not value]

    def add(self, value: T) -> None:
        """The value is one of them from now on."""
        with self._lock:
            self._values.append(value)

    def all(self) -> tuple[T, ...]:
        """All of them."""
        with self._lock:
            return tuple(self._values)
