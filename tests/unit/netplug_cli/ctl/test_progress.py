"""The line about the progress of a long work: when it is there, what it says, and that it goes."""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest
from attrs import define, evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.ctl.reading import VisibleClock, count_reads, show_reads
from netplug_cli.progress import Progress, show_progress
from netplug_core.addressing import Prefix
from netplug_core.clock import SECOND_NS, Deadline
from netplug_core.datastore.protocol import DatastoreCall, ObservedDatastore, ReadReport
from netplug_core.records import Create, Get, List, Query, Snapshot
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, IPPool, IPPoolSpec
from netplug_core.testing.clock import ManualClock

ERASE = "\r\x1b[K"


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def progress_on(stream: io.StringIO, clock: ManualClock, total: int = 100) -> Progress:
    return Progress(label="records", total=total, clock=clock, stream=stream, began_s=clock.monotonic())


def test_short_work_shows_nothing_and_longer_work_a_count_and_the_time_left() -> None:
    clock, screen = ManualClock(), Terminal()
    progress = progress_on(screen, clock)
    progress.update(1)
    clock.sleep(1.9)
    progress.update(10)
    assert screen.getvalue() == ""
    clock.sleep(8.1)
    progress.update(25, " of some")
    progress.update(26)  # too soon to be read
    assert screen.getvalue() == f"{ERASE}records: 25 of 100 of some, about 30s left"
    progress.erase()
    progress.erase()
    assert screen.getvalue().endswith(f"left{ERASE}")
    assert screen.getvalue().count(ERASE) == 2


@pytest.mark.parametrize("done, shown", [(0, "records: 0 of 100"), (100, "records: 100 of 100")])
def test_nothing_is_said_about_time_at_the_beginning_and_the_end(done: int, shown: str) -> None:
    clock, screen = ManualClock(), Terminal()
    progress = progress_on(screen, clock)
    clock.sleep(3)
    progress.update(done)
    assert screen.getvalue() == f"{ERASE}{shown}"


def test_a_wait_for_others_shows_how_long_it_lasts_at_most() -> None:
    clock, screen = ManualClock(), Terminal()
    progress = Progress(
        label="pods", total=0, clock=clock, stream=screen, began_s=clock.monotonic(),
        deadline=Deadline.after(clock, 60),
    )  # fmt: skip
    clock.sleep(10)
    progress.update(1, total=3)
    clock.sleep(70)
    progress.update(2)
    assert screen.getvalue() == f"{ERASE}pods: 1 of 3, at most 50s left{ERASE}pods: 2 of 3, at most 0s left"


def test_off_a_terminal_there_is_none() -> None:
    clock, file = ManualClock(), io.StringIO()
    progress = progress_on(file, clock)
    clock.sleep(60)
    progress.update(50)
    progress.erase()
    assert file.getvalue() == ""


def interrupted(clock: ManualClock) -> None:
    with show_progress("records", 4, clock) as progress:
        clock.sleep(5)
        progress.update(1)
        raise KeyboardInterrupt


def test_an_interruption_takes_the_line_away(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, screen = ManualClock(), Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(KeyboardInterrupt):
        interrupted(clock)
    assert screen.getvalue() == f"{ERASE}records: 1 of 4, about 15s left{ERASE}"


def test_records_are_counted_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, screen = ManualClock(), Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    store = MemoryDatastore(clock=clock)
    pools = [IPPool(metadata=Metadata(name=name), spec=IPPoolSpec(prefix=Prefix.parse(cidr))) for name, cidr in POOLS]
    store.commit([Create(pool.key, pool) for pool in pools], deadline=Deadline.after(clock, 1.0))
    with count_reads(store, clock) as counted:
        for passed_s in (1.0, 3.0, 3.0):
            clock.sleep(passed_s)
            counted.read([List(IPPOOL)], deadline=Deadline.after(clock, 1.0))
        assert counted.description == store.description
    assert screen.getvalue() == f"{ERASE}records read: 4{ERASE}records read: 6{ERASE}"


@define
class PagedStore(ObservedDatastore):
    """A store that says with each page how many records follow, as etcd does; a page takes three seconds."""

    clock: ManualClock

    def observe(self, call: DatastoreCall) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        self.clock.sleep(3)
        found = self.datastore.read(queries, deadline=deadline)
        results = {query: evolve(result, left=1 if result.after else 0) for query, result in found.results.items()}
        return Snapshot(results, found.revisions)


def test_a_list_whose_length_is_known_shows_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, screen = ManualClock(), Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    store = MemoryDatastore(clock=clock)
    pools = [IPPool(metadata=Metadata(name=name), spec=IPPoolSpec(prefix=Prefix.parse(cidr))) for name, cidr in POOLS]
    store.commit([Create(pool.key, pool) for pool in pools], deadline=Deadline.after(clock, 1.0))
    with count_reads(PagedStore(store, clock), clock) as counted:
        first = List(IPPOOL, limit=1)
        after = counted.read([first], deadline=Deadline.after(clock, 9.0)).after(first)
        counted.read([List(IPPOOL, limit=1, after=after)], deadline=Deadline.after(clock, 9.0))
        counted.read([Get(pools[0].key)], deadline=Deadline.after(clock, 9.0))
    lines = ["IPPool records read: 1 of 2, about 3s left", "IPPool records read: 2 of 2", "records read: 3", ""]
    assert screen.getvalue() == "".join(f"{ERASE}{line}" for line in lines)


@define
class WholeStore(ObservedDatastore):
    """A store that answers a list as a whole, and says meanwhile how far it is, as sqlite and Kubernetes do."""

    clock: ManualClock
    report: ReadReport | None = None

    def observe(self, call: DatastoreCall) -> AbstractContextManager[None]:
        return nullcontext()

    def report_reads(self, report: ReadReport | None) -> None:
        self.report = report

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        for found, left in ((1000, 3000), (2000, 0)):
            self.clock.sleep(3)
            if self.report is not None:
                self.report(found, left)
        return self.datastore.read(queries, deadline=deadline)


def test_a_list_that_is_answered_as_a_whole_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, screen = ManualClock(), Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    store = WholeStore(MemoryDatastore(clock=clock), clock)
    with show_reads(store, clock) as shown:
        queries: tuple[Query, ...] = (List(IPPOOL), Get(IPPOOL.key("a")))
        for count in (1, 2):
            shown.read(queries[:count], deadline=Deadline.after(clock, 99.0))
            assert screen.getvalue().endswith(ERASE), "what the command prints next begins a line"
        with count_reads(shown, clock) as counted:
            counted.read([List(IPPOOL)], deadline=Deadline.after(clock, 99.0))
        shown.read([List(IPPOOL)], deadline=Deadline.after(clock, 99.0))
    assert store.report is None
    lines = ["IPPool records read: 1000 of 4000, about 9s left", "IPPool records read: 2000", ""]
    assert screen.getvalue() == "".join(f"{ERASE}{line}" for line in lines) * 4


def test_a_long_wait_is_shown_and_a_short_one_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, screen = ManualClock(), Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    visible = VisibleClock(clock)
    visible.sleep(2.0)
    assert screen.getvalue() == ""
    before_ns, before_s = visible.now_ns(), visible.monotonic()
    visible.sleep(90.0)
    assert (visible.now_ns() - before_ns, visible.monotonic() - before_s) == (90 * SECOND_NS, 90.0)
    shown = screen.getvalue().split(ERASE)
    assert shown[:2] == ["", "seconds passed: 2 of 90, at most 1m28s left"]
    assert shown[-2:] == ["seconds passed: 89 of 90, at most 0s left", ""]


POOLS = (("a", "10.0.0.0/16"), ("b", "10.1.0.0/16"))
