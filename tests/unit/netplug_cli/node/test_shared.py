"""What calls share, and what they do not."""

from collections.abc import Iterator
from contextlib import contextmanager
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


def test_beyond_the_limit_each_caller_opens_its_own() -> None:
    shared, openings = SharedOpenings[str, str](limit=1), Openings()
    with shared.open("a", lambda: openings.open("a")):
        for _ in range(2):
            with shared.open("b", lambda: openings.open("b")) as value:
                assert value == "b"
    assert (openings.opened, openings.closed) == (["a", "b", "b"], ["b", "b"])


@pytest.mark.parametrize("mode", MemoryMode)
def test_an_atomic_store_has_a_queue_with_a_cache(mode: MemoryMode) -> None:
    store = MemoryDatastore(mode, clock=ManualClock())
    shared = SharedDatastore.of(store, ManualClock())
    assert shared.datastore is store
    assert (shared.queue is not None) is (mode is MemoryMode.ATOMIC)
    assert shared.queue is None or (shared.queue.store is store and shared.queue.cache is not None)


def test_what_cannot_be_opened_is_tried_again() -> None:
    shared, openings = SharedOpenings[str, str](limit=1), Openings()

    def fail() -> NoReturn:
        raise UnusableFile("etcd_ca_cert_file", "/nowhere", "a file is expected")

    with pytest.raises(UnusableFile):
        shared.open("a", fail)
    with shared.open("a", lambda: openings.open("a")):
        assert openings.opened == ["a"]
