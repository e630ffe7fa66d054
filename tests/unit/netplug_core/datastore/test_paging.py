"""Lists that flows read page by page."""

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.paging import read_pages
from netplug_core.records import PAGE_SIZE, Create, Kind
from netplug_core.testing.clock import ManualClock

PAPER: Kind[int] = Kind("Paper", ("shelf", "name"))


def make_store(count: int) -> tuple[MemoryDatastore, Deadline]:
    clock = ManualClock()
    store, deadline = MemoryDatastore(clock=clock), Deadline.after(clock, 60)
    store.commit([Create(PAPER.key("a", f"{number:04}"), number) for number in range(count)], deadline=deadline)
    store.commit([Create(PAPER.key("b", "0"), -1)], deadline=deadline)
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
