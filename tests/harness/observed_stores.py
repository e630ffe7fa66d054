"""A datastore whose calls take a time by a clock of the test, and fail when the test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.datastore.protocol import DatastoreCall, ObservedDatastore
from netplug_core.testing.clock import ManualClock

__all__ = ["SlowDatastore"]


@define(eq=False)
class SlowDatastore(ObservedDatastore):
    """A store in memory. Each call takes ``takes_s``, and then raises ``failure`` if there is one."""

    clock: ManualClock
    takes_s: float = 0.0
    failure: Exception | None = None
    asked: int = 0

    @classmethod
    def make(cls, clock: ManualClock, takes_s: float = 0.0) -> SlowDatastore:
        """An empty one."""
        return cls(MemoryDatastore(clock=clock), clock, takes_s)

    @contextmanager
    def observe(self, call: DatastoreCall) -> Iterator[None]:
        """Take the time, and fail."""
        self.asked += 1
        self.clock.sleep(self.takes_s)
        if self.failure is not None:
            raise self.failure
        yield
