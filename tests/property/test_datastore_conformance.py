"""Every datastore of ours is the datastore of the interface.

Laws (D1): commits are applied or refused as conditions say, all or a prefix; every read, list and page shows one
moment; of the writers that hold one revision one succeeds; a watch from a revision tells every later change exactly
once, in order per key.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from tempfile import TemporaryDirectory

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.clock import Clock
from netplug_core.datastore.protocol import Datastore
from netplug_core.testing.datastore_checks import DATASTORE_CHECKS, DatastoreCheck
from netplug_core.testing.datastore_conformance import datastore_conformance
from netplug_core.testing.datastore_harness import SAMPLE_CODEC, OpenStore
from netplug_core.testing.faults import FaultyDatastore


def open_memory_store(clock: Clock, *, mode: MemoryMode) -> AbstractContextManager[Datastore]:
    return nullcontext(MemoryDatastore(mode, clock=clock))


def open_store_without_faults(clock: Clock) -> AbstractContextManager[Datastore]:
    return nullcontext(FaultyDatastore(MemoryDatastore(clock=clock), {}))


@contextmanager
def open_sqlite_store(clock: Clock) -> Iterator[Datastore]:
    with (
        TemporaryDirectory() as folder,
        closing(SqliteDatastore(f"{folder}/store.db", clock=clock, codec=SAMPLE_CODEC)) as store,
    ):
        yield store


STORES: dict[str, OpenStore] = {
    "memory-atomic": partial(open_memory_store, mode=MemoryMode.ATOMIC),
    "memory-ordered": partial(open_memory_store, mode=MemoryMode.ORDERED),
    "memory-kube-like": partial(open_memory_store, mode=MemoryMode.KUBE_LIKE),
    "memory-faultless": open_store_without_faults,
    "sqlite": open_sqlite_store,
}

TestMemoryAtomic = datastore_conformance(STORES["memory-atomic"]).TestCase
TestMemoryOrdered = datastore_conformance(STORES["memory-ordered"]).TestCase
TestMemoryKubeLike = datastore_conformance(STORES["memory-kube-like"]).TestCase
TestSqlite = datastore_conformance(open_sqlite_store).TestCase


@pytest.mark.parametrize("check", DATASTORE_CHECKS)
@pytest.mark.parametrize("make", STORES.values(), ids=STORES.keys())
def test_d1_every_example_of_the_suite(make: OpenStore, check: DatastoreCheck) -> None:
    check(make)
