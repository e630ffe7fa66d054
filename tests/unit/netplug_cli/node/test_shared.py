"""What calls share, and what they do not."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Event, Thread
from typing import NoReturn

import pytest
from attrs import define, field

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_cli.node.stores import OpeningUse, SharedDatastore, SharedOpenings
from netplug_core.errors import UnusableFile
from netplug_core.testing.clock import ManualClock
from tests.harness.node_server import Lines


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


@contextmanager
def breaking(name: str) -> Iterator[str]:
    """A value whose closing fails."""
    yield name
    raise RuntimeError("it cannot be closed")


def test_a_value_that_cannot_be_closed_makes_no_other_call_fail_and_gives_up_its_place() -> None:
    lines = Lines()
    shared, openings = SharedOpenings[str, str](limit=1, log=lines), Openings()
    with shared.open("a", lambda: breaking("a")):
        pass
    for name in ("b", "c"):
        with shared.open(name, partial(openings.open, name)) as value:
            assert value == name
    assert (openings.opened, openings.closed) == (["b", "c"], ["b"])
    assert [line.partition("\n")[0] for line in lines.texts] == ["ERROR a connection could not be closed"]
    with shared.open("c", lambda: openings.open("c")), shared.open("own", lambda: breaking("own")) as value:
        assert value == "own"
    shared.close()
    assert openings.closed == ["b", "c"]


def test_one_that_cannot_be_closed_in_the_end_leaves_no_other_open() -> None:
    shared, openings = SharedOpenings[str, str](), Openings()
    for name, opening in (("a", breaking), ("b", openings.open)):
        with shared.open(name, partial(opening, name)):
            pass
    shared.close()
    assert openings.closed == ["b"]


def test_an_error_of_a_call_is_raised_to_it_also_where_it_has_its_own() -> None:
    shared, openings = SharedOpenings[str, str](limit=0), Openings()
    with pytest.raises(ValueError, match="call"), shared.open("a", lambda: openings.open("a")):
        raise ValueError("call")
    assert openings.closed == ["a"]


def test_a_task_takes_no_place_of_a_call() -> None:
    """Nine configurations in the life of a process: the task of eight that no call uses leaves the ninth open."""
    shared, openings = SharedOpenings[str, str](limit=2), Openings()
    with shared.open("live", lambda: openings.open("live")):
        pass
    for name in ("dead 1", "dead 2", "dead 3"):
        with shared.open(name, partial(openings.open, name), use=OpeningUse.TASK) as value:
            assert value == name
    assert openings.closed == ["dead 1", "dead 2", "dead 3"]
    with shared.open("live", lambda: openings.open("live"), use=OpeningUse.TASK):
        assert openings.opened.count("live") == 1
    assert len(shared) == 1


def test_a_use_by_a_task_keeps_nothing_open_for_longer() -> None:
    shared, openings = SharedOpenings[str, str](limit=2), Openings()
    for name, use in (("a", OpeningUse.CALL), ("b", OpeningUse.CALL), ("a", OpeningUse.TASK), ("c", OpeningUse.CALL)):
        with shared.open(name, partial(openings.open, name), use=use):
            pass
    assert openings.closed == ["a"]
