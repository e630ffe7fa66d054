"""What calls share, and what they do not."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Event, Thread
from typing import NoReturn

import pytest
from attrs import define, field

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_cli.node.shared import SharedDatastore, SharedOpenings
from netplug_core.errors import UnusableFile
from netplug_core.testing.clock import ManualClock


@define
class Openings:
    """Counts what is opened and closed."""

    opened: list[str] = field(factory=list)
    closed: list[str] = field(factory=list)

    @contextmanager
    def open(self, name: str) -> Iterator[str]:
        self.opened.append(name)
        yield name
        self.closed.append(name)


def test_a_value_is_opened_once_and_stays_open() -> None:
    shared, openings = SharedOpenings[str, str](), Openings()
    for _ in range(3):
        with shared.open("a", lambda: openings.open("a")) as value:
            assert value == "a"
    assert (openings.opened, openings.closed) == (["a"], [])
    shared.close()
    assert openings.closed == ["a"]


def test_what_was_used_longest_ago_makes_room() -> None:
    shared, openings = SharedOpenings[str, str](limit=2), Openings()
    for name in ("a", "b", "a", "c", "a", "b"):
        with shared.open(name, partial(openings.open, name)) as value:
            assert value == name
    assert (openings.opened, openings.closed) == (["a", "b", "c", "b"], ["b", "c"])
    assert len(shared) == 2


def test_while_all_are_in_use_each_caller_opens_its_own() -> None:
    shared, openings = SharedOpenings[str, str](limit=1), Openings()
    with shared.open("a", lambda: openings.open("a")):
        for _ in range(2):
            with shared.open("b", lambda: openings.open("b")) as value:
                assert value == "b"
    assert (openings.opened, openings.closed) == (["a", "b", "b"], ["b", "b"])


def test_an_opening_that_waits_delays_no_other_key() -> None:
    shared, openings = SharedOpenings[str, str](), Openings()
    begun, end, found = Event(), Event(), list[str]()

    def wait() -> AbstractContextManager[str]:
        begun.set()
        assert end.wait(60)
        return openings.open("slow")

    def use() -> None:
        with shared.open("slow", wait) as value:
            found.append(value)

    threads = [Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    with shared.open("quick", lambda: openings.open("quick")) as value:
        assert value == "quick"
    end.set()
    for thread in threads:
        thread.join(60)
    assert found == ["slow", "slow"]
    assert openings.opened == ["quick", "slow"]


@pytest.mark.parametrize("mode", MemoryMode)
def test_every_store_has_a_cache_and_an_atomic_one_a_queue(mode: MemoryMode) -> None:
    store = MemoryDatastore(mode, clock=ManualClock())
    shared = SharedDatastore.of(store, ManualClock())
    assert shared.datastore is store
    assert (shared.queue is not None) is (mode is MemoryMode.ATOMIC)
    assert shared.queue is None or (shared.queue.store is store and shared.queue.cache is shared.cache)


def test_what_cannot_be_opened_is_tried_again() -> None:
    shared, openings = SharedOpenings[str, str](limit=1), Openings()

    def fail() -> NoReturn:
        raise UnusableFile("etcd_ca_cert_file", "/nowhere", "a file is expected")

    with pytest.raises(UnusableFile), shared.open("a", fail):
        pass
    assert len(shared) == 0
    with shared.open("a", lambda: openings.open("a")):
        assert openings.opened == ["a"]
