"""Lists that flows read page by page."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.transaction import read_pages
from netplug_core.records import PAGE_SIZE, Create, Kind, List
from netplug_core.testing.clock import ManualClock
from tests.harness.stores import RecordingStore

PAPER: Kind[int] = Kind("Paper", ("shelf", "name"))
BOOK: Kind[int] = Kind("Book", ("shelf", "name"), is_large=True)


def make_store(count: int, kind: Kind[int] = PAPER) -> tuple[MemoryDatastore, Deadline]:
    clock = ManualClock()
    store, deadline = MemoryDatastore(clock=clock), Deadline.after(clock, 60)
    store.commit([Create(kind.key("a", f"{number:05}"), number) for number in range(count)], deadline=deadline)
    store.commit([Create(kind.key("b", "0"), -1)], deadline=deadline)
    return store, deadline


def test_every_record_is_read_once_in_order_page_by_page() -> None:
    store, deadline = make_store(PAGE_SIZE + 1)
    reads = store.calls.reads
    found = [record.value for record in read_pages(store, PAPER, ("a",), deadline=deadline)]
    assert found == list(range(PAGE_SIZE + 1))
    assert store.calls.reads - reads == 2


def test_a_page_is_read_when_its_first_record_is_needed() -> None:
    store, deadline = make_store(PAGE_SIZE + 1)
    reads = store.calls.reads
    records = read_pages(store, PAPER, deadline=deadline)
    assert store.calls.reads == reads
    assert next(records).value == 0
    assert store.calls.reads - reads == 1


@pytest.mark.parametrize("kind, pages", [(PAPER, [1, 2, 4, 8, 8, 8]), (BOOK, [1] * 24)])
def test_pages_grow_while_their_records_are_small(kind: Kind[int], pages: list[int]) -> None:
    """Etcd counts all that is left for every page. A page of thousands of large records would be too much at once."""
    store, deadline = make_store(24 * PAGE_SIZE, kind)
    read = RecordingStore(store)
    assert sum(1 for _record in read_pages(read, kind, ("a",), deadline=deadline)) == 24 * PAGE_SIZE
    limits = [query.limit for (query,) in read.reads if isinstance(query, List)]
    assert limits == [PAGE_SIZE * size for size in pages]
