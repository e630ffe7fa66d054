"""Lists that flows read page by page."""

from collections.abc import Sequence

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, LIST_TIMEOUT_S
from netplug_core.datastore.transaction import read_lists, read_pages
from netplug_core.records import PAGE_SIZE, Create, Kind, List, Malformed, Query, Revision, Snapshot
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


def test_whole_lists_are_read_page_by_page_and_only_long_ones_need_a_second_read() -> None:
    store, deadline = make_store(2 * PAGE_SIZE)
    store.commit([Create(BOOK.key("a", "only"), 7)], deadline=deadline)
    read = RecordingStore(store)
    found = read_lists(read, (PAPER, BOOK), deadline=deadline)
    assert [len(queries) for queries in read.reads] == [2, 1]
    assert all(isinstance(query, List) and query.limit for queries in read.reads for query in queries)
    papers = found.list(List(PAPER))
    assert [record.value for record in papers] == [*range(2 * PAGE_SIZE), -1]
    assert [record.key.path for record in papers] == sorted(record.key.path for record in papers)
    assert [record.value for record in found.list(List(BOOK))] == [7]
    assert not found.after(List(PAPER))


class ChangingStore(RecordingStore):
    """Something is written after each page, and one record of each page is damaged."""

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        found = super().read(queries, deadline=deadline)
        damaged = {
            query: evolve(result, records=result.records[1:], malformed=(Malformed(str(result.records[0].key), "no"),))
            for query, result in found.results.items()
        }
        self.inner.commit([Create(PAPER.key("z", str(len(self.reads))), 1)], deadline=deadline)
        return Snapshot(damaged, found.revisions)


def test_a_list_has_the_revision_of_its_first_page_and_the_errors_of_all() -> None:
    store, deadline = make_store(2 * PAGE_SIZE)
    now = store.read((List(PAPER, limit=1),), deadline=deadline).revision(PAPER)
    found = read_lists(ChangingStore(store), (PAPER,), deadline=deadline)
    assert found.revision(PAPER) == now != Revision("")
    assert len(found.malformed(List(PAPER))) == 2
    assert len(found.readable(List(PAPER))) == 2 * PAGE_SIZE - 1


@pytest.mark.parametrize("whole, longest_s", [(False, CALL_TIMEOUT_S), (True, LIST_TIMEOUT_S)], ids=["page", "whole"])
def test_a_list_that_comes_whole_has_the_time_of_all_its_pages(*, whole: bool, longest_s: float) -> None:
    store, earlier = make_store(1)
    store.description = evolve(store.description, lists_whole=whole)
    read = RecordingStore(store)
    deadline = Deadline.after(earlier.clock, 10 * LIST_TIMEOUT_S)
    read_lists(read, (PAPER,), deadline=deadline)
    assert len(list(read_pages(read, PAPER, deadline=deadline))) == 2
    assert read.deadlines_s == [longest_s, longest_s]
