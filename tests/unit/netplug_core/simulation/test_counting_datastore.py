"""A store that counts: it answers as the one behind it, and knows how often it was asked."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.records import AlreadyExists, Create, Get, Kind, Revision, WatchEvent
from netplug_core.simulation.simulator import CountingDatastore, DatastoreCallCount
from netplug_core.testing.clock import ManualClock

FRUIT: Kind[str] = Kind("Fruit", ("name",))
APPLE = FRUIT.key("apple")


def test_every_call_reaches_the_store_behind_and_reads_and_commits_are_counted() -> None:
    clock = ManualClock()
    inner = MemoryDatastore(clock=clock)
    store, deadline = CountingDatastore(inner), Deadline.after(clock, 5)
    assert store.description == inner.description
    revisions = store.commit([Create(APPLE, "red")], deadline=deadline)
    found = store.read([Get(APPLE)], deadline=deadline).find(APPLE)
    assert found is not None
    assert (found.value, found.revision) == ("red", revisions[0])
    assert list(store.watch({FRUIT: Revision("0")}, deadline=deadline)) == [WatchEvent(APPLE, "red", revisions[0])]
    assert store.calls == DatastoreCallCount(reads=1, commits=1)


def test_a_call_that_failed_counts_too() -> None:
    clock = ManualClock()
    store, deadline = CountingDatastore(MemoryDatastore(clock=clock)), Deadline.after(clock, 5)
    store.commit([Create(APPLE, "red")], deadline=deadline)
    with pytest.raises(AlreadyExists):
        store.commit([Create(APPLE, "green")], deadline=deadline)
    assert store.calls == DatastoreCallCount(commits=2)


def test_a_count_can_be_taken_from_a_later_one() -> None:
    before, after = DatastoreCallCount(reads=3, commits=1), DatastoreCallCount(reads=10, commits=5)
    assert after.difference(before) == DatastoreCallCount(reads=7, commits=4)
