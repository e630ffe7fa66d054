"""What calls know of open datastores: how long ago caches were confirmed, how full pools are, what was passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import frozen

from netplug_cli.node.shared import SharedDatastore
from netplug_cli.node.tracked import Tracked
from netplug_core.clock import Clock
from netplug_core.datastore.view import DatastoreCache
from netplug_core.ipam.outcome.record_memory import RecordMemory
from netplug_core.ipam.reporting.usage import OwnUsage, own_usage

__all__ = ["OpenCaches"]


@frozen(eq=False)
class _OpenCache:
    name: str
    location: str
    cache: DatastoreCache


@frozen(eq=False)
class _OpenMemory:
    name: str
    location: str
    memory: RecordMemory


class OpenCaches:
    """The caches and memories that are open now. Threads may share it. Nothing is read from a datastore."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: Tracked[_OpenCache] = Tracked()
        self._memories: Tracked[_OpenMemory] = Tracked()

    @contextmanager
    def used_by(self, shared: SharedDatastore) -> Iterator[None]:
        """Those of a datastore are open for as long as the context lasts.

        The cache of an ordered store is left out: the calls confirm it, so that its age would say how long there was
        none.
        """
        cache = None if shared.queue is None else shared.queue.cache
        description = shared.datastore.description
        name, location = description.name, description.location
        with self._memories.including(_OpenMemory(name, location, shared.memory)):
            if cache is None:
                yield
                return
            with self._open.including(_OpenCache(name, location, cache)):
                yield

    def passed_over(self) -> dict[tuple[str, ...], float]:
        """How many records calls passed over of late, by datastore, location and kind."""
        now_s = self._clock.monotonic()
        return {
            (each.name, each.location, kind): float(count)
            for each in self._memories.all()
            for kind, count in each.memory.counts(now_s).items()
        }

    def ages(self) -> dict[tuple[str, ...], float]:
        """How many seconds ago it was confirmed that what is followed is true, the oldest kind counting.

        Names are those of the datastore and its location. A datastore that is not followed now has no value.
        """
        found = ((each, tuple(each.cache.state.watched.values())) for each in self._open.all())
        now_s = self._clock.monotonic()
        return {(each.name, each.location): max(0.0, now_s - min(confirmed)) for each, confirmed in found if confirmed}

    def range_sizes(self) -> dict[tuple[str, ...], float]:
        """The addresses of each pool's range, by datastore, location and pool."""
        return self._usages(lambda usage: usage.range_size)

    def block_sizes(self) -> dict[tuple[str, ...], float]:
        """The addresses of the node's own blocks, by datastore, location and pool."""
        return self._usages(lambda usage: usage.block_size)

    def in_use(self) -> dict[tuple[str, ...], float]:
        """Those that are assigned, cool down, or are reserved for the host."""
        return self._usages(lambda usage: usage.in_use)

    def _usages(self, count: Callable[[OwnUsage], int]) -> dict[tuple[str, ...], float]:
        return {name: float(count(usage)) for name, usage in self._own_usages()}

    def _own_usages(self) -> Iterator[tuple[tuple[str, str, str], OwnUsage]]:
        for each in self._open.all():
            for usage in own_usage(each.cache.state.snapshot):
                yield (each.name, each.location, usage.pool), usage
