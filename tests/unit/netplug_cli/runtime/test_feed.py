"""A datastore is opened once for all controllers of a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Barrier, Thread

import pytest
from attrs import define, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.runtime.feed import OpenedOnce
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock

ETCD, SQLITE = DatastoreSettings(type="etcdv3"), DatastoreSettings(type="sqlite")


@define
class Openings:
    """Counts what is opened and closed; ``problems`` are raised in that order in place of the next openings."""

    problems: list[Exception] = field(factory=list)
    opened: list[str] = field(factory=list)
    closed: list[str] = field(factory=list)

    @contextmanager
    def open(self, settings: DatastoreSettings) -> Iterator[Datastore]:
        if self.problems:
            raise self.problems.pop(0)
        self.opened.append(settings.type)
        yield MemoryDatastore(clock=ManualClock())
        self.closed.append(settings.type)


def test_who_opens_a_datastore_that_is_open_uses_that_one() -> None:
    openings = Openings()
    once = OpenedOnce(openings.open)
    with once.open(ETCD) as first:
        with once.open(ETCD) as second, once.open(SQLITE) as other:
            assert (second, openings.opened) == (first, ["etcdv3", "sqlite"])
            assert other is not first
        assert openings.closed == ["sqlite"], "it is closed by its last user"
    assert openings.closed == ["sqlite", "etcdv3"]
    with once.open(ETCD) as third:
        assert third is not first


def test_the_last_user_closes_it_and_not_the_one_that_opened_it() -> None:
    openings = Openings()
    once = OpenedOnce(openings.open)
    first, second = once.open(ETCD), once.open(ETCD)
    store = first.__enter__()
    assert second.__enter__() is store
    first.__exit__(None, None, None)
    assert openings.closed == []
    second.__exit__(None, None, None)
    assert openings.closed == ["etcdv3"]


def test_an_error_is_that_of_who_opens_and_the_next_one_tries_again() -> None:
    openings = Openings(problems=[Unavailable("etcd", "away")])
    once = OpenedOnce(openings.open)
    with pytest.raises(Unavailable), once.open(ETCD):
        pass
    with once.open(ETCD):
        assert openings.opened == ["etcdv3"]


def test_threads_that_open_it_at_once_share_it() -> None:
    openings, found = Openings(), list[Datastore]()
    once, barrier = OpenedOnce(openings.open), Barrier(4)

    def use() -> None:
        barrier.wait()
        with once.open(ETCD) as store:
            found.append(store)
            barrier.wait()

    threads = [Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
    assert (openings.opened, openings.closed) == (["etcdv3"], ["etcdv3"])
