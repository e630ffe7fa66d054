"""The stores that need no server, each opened empty, and the two ways to run an allocator on a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from tempfile import TemporaryDirectory

from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.clock import Clock
from netplug_core.datastore.batch import RequestQueue
from netplug_core.datastore.protocol import Datastore
from netplug_core.encoding.stored_json import STORED_JSON, ValueCodec
from netplug_core.flows.ipam.cache import make_node_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.testing.datastore_harness import OpenStore

__all__ = [
    "FAULT_MODES",
    "IS_DEEP",
    "MEMORY_STORES",
    "open_batching_ipam",
    "open_memory_store",
    "open_resident_ipam",
    "open_sqlite_store",
    "open_standalone_ipam",
]

IS_DEEP = os.environ.get("NETPLUG_HYPOTHESIS_PROFILE") == "nightly"
"""Whether tests try everything (`make nightly`), or what finds most."""

FAULT_MODES = tuple(MemoryMode) if IS_DEEP else (MemoryMode.ATOMIC, MemoryMode.KUBE_LIKE)
"""The memory stores for exhaustive tests of faults. What is wrong on the ordered one is wrong on the kube-like one."""


def open_memory_store(clock: Clock, *, mode: MemoryMode) -> AbstractContextManager[Datastore]:
    """A memory store in one of its modes."""
    return nullcontext(MemoryDatastore(mode, clock=clock))


MEMORY_STORES: dict[str, OpenStore] = {
    f"memory-{mode.value}": partial(open_memory_store, mode=mode) for mode in MemoryMode
}
"""The memory store in each of its modes, by name."""


@contextmanager
def open_sqlite_store(clock: Clock, *, codec: ValueCodec = STORED_JSON) -> Iterator[Datastore]:
    """A store in a file of its own."""
    with (
        TemporaryDirectory() as folder,
        closing(SqliteDatastore(f"{folder}/store.db", clock=clock, codec=codec)) as store,
    ):
        yield store


def open_standalone_ipam(store: Datastore, clock: Clock) -> BlockIPAM:
    """An allocator as a process has it that serves one call."""
    return BlockIPAM(datastore=store, clock=clock, chance=lambda: 0.5)


def open_resident_ipam(store: Datastore, clock: Clock) -> BlockIPAM:
    """An allocator as the node process has it, which stays and remembers what it read."""
    cache = make_node_cache(store, clock=clock)
    return BlockIPAM(datastore=store, clock=clock, chance=lambda: 0.5, cache=cache)


def open_batching_ipam(store: Datastore, clock: Clock) -> BlockIPAM:
    """The allocator of a resident process whose calls go through the queue of requests that share commits."""
    resident = open_resident_ipam(store, clock)
    return evolve(resident, queue=RequestQueue(store=store, cache=resident.cache))
