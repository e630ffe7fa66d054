"""Every datastore of ours is the datastore of the interface.

Laws (D1): commits are applied or refused as conditions say, all or a prefix; every read, list and page shows one
moment; of the writers that hold one revision one succeeds; a watch from a revision shows every later change exactly
once, in order per key.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from sqlite3 import connect
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.records import Create, Delete, Kind
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_conformance import (
    DATASTORE_CHECKS,
    DatastoreCheck,
    datastore_conformance,
    identities_differ,
)
from netplug_core.testing.datastore_harness import SAMPLE_CODEC, Medium, OpenMedium
from netplug_core.testing.faults import FaultyDatastore
from tests.harness.example_counts import CONFORMANCE_EXAMPLES

KEPT_CHANGES = 1000


def overflow_history(store: Datastore) -> None:
    """Change more than the store remembers."""
    keys = [Kind[object]("Scrap", ("number",)).key(str(number)) for number in range(KEPT_CHANGES)]
    soon = Deadline.after(ManualClock(), 60)
    created = store.commit([Create(key, "scrap") for key in keys], deadline=soon)
    store.commit([Delete(key, revision) for key, revision in zip(keys, created, strict=True)], deadline=soon)


@contextmanager
def open_memory_medium(clock: Clock, *, mode: MemoryMode = MemoryMode.ATOMIC) -> Iterator[Medium]:
    store = MemoryDatastore(mode, clock=clock, keep_changes=KEPT_CHANGES)
    yield Medium(lambda: nullcontext(store), hold=lambda: store.lock, forget=partial(overflow_history, store))


@contextmanager
def open_medium_without_faults(clock: Clock) -> Iterator[Medium]:
    with open_memory_medium(clock) as medium, medium.open_handle() as store:
        yield Medium(lambda: nullcontext(FaultyDatastore(store, {})), medium.hold, medium.forget)


@contextmanager
def open_sqlite_medium(clock: Clock) -> Iterator[Medium]:
    def open_handle() -> AbstractContextManager[SqliteDatastore]:
        return closing(SqliteDatastore(path, clock=clock, codec=SAMPLE_CODEC, keep_changes=KEPT_CHANGES))

    def forget() -> None:
        with open_handle() as store:
            overflow_history(store)

    with TemporaryDirectory() as folder:
        path = f"{folder}/store.db"
        yield Medium(open_handle, hold=lambda: locked_database(path), forget=forget)


@contextmanager
def locked_database(path: str) -> Iterator[None]:
    """Another process writes."""
    with closing(connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


MEDIA: dict[str, OpenMedium] = {
    "memory-atomic": partial(open_memory_medium, mode=MemoryMode.ATOMIC),
    "memory-ordered": partial(open_memory_medium, mode=MemoryMode.ORDERED),
    "memory-kube-like": partial(open_memory_medium, mode=MemoryMode.KUBE_LIKE),
    "memory-faultless": open_medium_without_faults,
    "sqlite": open_sqlite_medium,
}

TestMemoryAtomic = datastore_conformance(MEDIA["memory-atomic"])
TestMemoryOrdered = datastore_conformance(MEDIA["memory-ordered"])
TestMemoryKubeLike = datastore_conformance(MEDIA["memory-kube-like"])
TestSqlite = datastore_conformance(MEDIA["sqlite"])
FEWER_EXAMPLES = settings(TestSqlite.settings, max_examples=CONFORMANCE_EXAMPLES)
TestMemoryAtomic.settings = TestMemoryOrdered.settings = TestMemoryKubeLike.settings = FEWER_EXAMPLES
TestSqlite.settings = FEWER_EXAMPLES


@pytest.mark.parametrize("check", DATASTORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("medium", MEDIA)
def test_d1_every_check_of_the_suite(medium: str, check: DatastoreCheck) -> None:
    check(MEDIA[medium])
    assert check.__doc__


@pytest.mark.parametrize("medium", [name for name in MEDIA if name != "memory-faultless"])
def test_d1_two_stores_have_two_identities(medium: str) -> None:
    identities_differ(MEDIA[medium], MEDIA[medium])
