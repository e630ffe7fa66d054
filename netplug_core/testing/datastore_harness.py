"""The stores that a check of the datastore suite works with, and their calls with the suite's deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice

from attrs import frozen

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.errors import InvalidArgument, require_type
from netplug_core.records import Create, Get, Key, Kind, Query, Record, Revision, Snapshot, WatchEvent, Write
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.medium import Medium, OpenMedium
from netplug_core.testing.samples import Samples

__all__ = ["DatastoreHarness", "open_harness"]

CALL_S = 30.0  # more than a store needs that shares its machine with other tests


@frozen
class DatastoreHarness:
    """Two handles on one empty medium, and what to put there."""

    medium: Medium
    store: Datastore
    other: Datastore
    samples: Samples
    clock: Clock

    @property
    def deadline(self) -> Deadline:
        """Time enough for any one call."""
        return self.deadline_in(CALL_S)

    def deadline_in(self, seconds: float) -> Deadline:
        """The deadline that many seconds from now."""
        return Deadline.after(self.clock, seconds)

    @property
    def is_atomic(self) -> bool:
        """Whether the store applies a commit whole or not at all."""
        return self.store.description.atomicity is Atomicity.ATOMIC

    def read(self, *queries: Query) -> Snapshot:
        """Read from the first handle."""
        return self.store.read(queries, deadline=self.deadline)

    def find(self, key: Key[object]) -> Record[object] | None:
        """What the first handle finds at the key."""
        return self.read(Get(key)).find(key)

    def commit(self, *writes: Write) -> tuple[Revision, ...]:
        """Commit by the first handle."""
        return self.store.commit(writes, deadline=self.deadline)

    def create(self, key: Key[object], number: int = 0) -> Revision:
        """Create the n-th value of a key by the first handle."""
        return self.commit(Create(key, self.samples.value(key, number)))[0]

    def watch(self, start: dict[Kind[object], Revision], count: int) -> list[WatchEvent[object]]:
        """So many events of a watch by the first handle; fewer if the watch ends before."""
        return list(islice(self.store.watch(start, deadline=self.deadline), count))


@contextmanager
def open_harness(
    open_medium: OpenMedium, samples: Samples, make_clock: Callable[[], Clock] = ManualClock
) -> Iterator[DatastoreHarness]:
    """A harness over an empty medium of the backend.

    Raises:
        InvalidArgument: the backend's functions do not open a ``Medium`` or a datastore.
    """
    clock = make_clock()
    with ExitStack() as stack:
        medium = stack.enter_context(open_medium(clock))
        require_type("open_medium", medium, Medium, "its context has to yield a Medium")
        store, other = (stack.enter_context(medium.open_handle()) for _ in range(2))
        for handle in (store, other):
            if not all(hasattr(handle, name) for name in ("description", "read", "commit", "watch")):
                raise InvalidArgument("open_handle", handle, "its context has to yield a Datastore")
        yield DatastoreHarness(medium, store, other, samples, clock)
