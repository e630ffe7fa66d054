"""The suite fails every wrong store within ten seconds, and says what is wrong with it.

Each store here is the memory store with one fault. The plain checks find all of them, so nothing has to be drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import Event, Lock
from time import sleep

import pytest
from attrs import evolve
from hypothesis import settings

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Datastore, DatastoreDescription
from netplug_core.datastore.write_set import Condition
from netplug_core.errors import InvalidArgument
from netplug_core.records import (
    CommitError,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    Query,
    ReadResult,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    WatchExpired,
    Write,
    Written,
)
from netplug_core.testing.datastore_conformance import datastore_conformance
from netplug_core.testing.datastore_harness import FRUIT_AND_TOOLS, TOOL, Medium, OpenMedium, open_harness

STOP = Event()
Changes = Iterator[WatchEvent[object]]
Start = Mapping[Kind[object], Revision]


class WrongStore(MemoryDatastore):
    """The memory store; subclasses make one thing wrong."""

    mode = MemoryMode.ATOMIC
    ignored: tuple[type[object], ...] = ()

    def __init__(self, clock: Clock) -> None:
        super().__init__(self.mode, clock=clock, keep_changes=100)

    def _check_condition(self, writes: Sequence[Write], condition: Condition, *, applied: int = 0) -> None:
        if not isinstance(writes[condition.index], self.ignored):
            super()._check_condition(writes, condition, applied=applied)


class CreatesOverExisting(WrongStore):
    ignored = (Create,)


class LosesUpdates(WrongStore):
    ignored = (Update,)


class DeletesAnything(WrongStore):
    ignored = (Delete,)

    def _change(self, key: Key[object], value: object | None) -> Revision:
        return super()._change(key, value) if key in self._records or value is not None else Revision("0")


class IgnoresRequire(WrongStore):
    ignored = (Require,)


class IgnoresRequireUnchanged(WrongStore):
    ignored = (RequireUnchanged,)


class ShowsNoRecord(WrongStore):
    def _check_condition(self, writes: Sequence[Write], condition: Condition, *, applied: int = 0) -> None:
        try:
            super()._check_condition(writes, condition, applied=applied)
        except CommitError as error:
            raise evolve(error, current=None) from None


class AppliesAPart(WrongStore):
    def _apply_atomically(self, writes: Sequence[Write]) -> tuple[Revision, ...]:
        try:
            return self._apply_in_order(writes)
        except CommitError as error:
            raise evolve(error, applied=0) from None


class CountsWrong(WrongStore):
    mode = MemoryMode.ORDERED

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        try:
            return super().commit(writes, deadline=deadline)
        except CommitError as error:
            raise evolve(error, applied=0) from None


class SkipsWritten(WrongStore):
    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        kept = [write for write in writes if not isinstance(getattr(write, "revision", None), Written)]
        made = iter(super().commit(kept, deadline=deadline))
        return tuple(next(made) if write in kept else Revision("") for write in writes)


class ReusesRevisions(WrongStore):
    def _revision_of_change(self, before: Record[object] | None) -> Revision:
        return Revision(str(int(before.revision) + 1)) if before else Revision("1")


class ListsInAnyOrder(WrongStore):
    def _answer(self, query: Query) -> ReadResult:
        found = super()._answer(query)
        return evolve(found, records=found.records[::-1])


class ListsTwice(WrongStore):
    def _answer(self, query: Query) -> ReadResult:
        found = super()._answer(query)
        return found if isinstance(query, Get) else evolve(found, records=(*found.records[:1], *found.records))


class IgnoresNames(WrongStore):
    def _answer(self, query: Query) -> ReadResult:
        return super()._answer(query if isinstance(query, Get) else evolve(query, name_prefix=""))


class ShowsLaterPages(WrongStore):
    def _answer(self, query: Query) -> ReadResult:
        if isinstance(query, Get) or not query.after:
            return super()._answer(query)
        _, *last = json.loads(query.after)
        return super()._answer(evolve(query, after=json.dumps([self._number, *last])))


class RepeatsEvents(WrongStore):
    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        for event in super().watch(start, deadline=deadline):
            yield event
            yield event


class WatchesOnce(WrongStore):
    """Its watch looks once, and ends."""

    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        return super().watch(start, deadline=deadline.capped(0))


class PollingStore(WrongStore):
    """Its watch is made of many short ones; subclasses make the later ones wrong."""

    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        seen = dict(start)
        look = 0
        while True:
            events = list(super().watch(seen, deadline=deadline.capped(0)))
            yield from self._events_to_show(events, look)
            for event in events:
                seen[event.key.kind] = event.revision
            look += 1
            if deadline.has_passed:
                return
            self._clock.sleep(min(0.02, deadline.remaining_s))

    def _events_to_show(self, events: list[WatchEvent[object]], look: int) -> list[WatchEvent[object]]:
        return events


class LosesLaterEvents(PollingStore):
    def _events_to_show(self, events: list[WatchEvent[object]], look: int) -> list[WatchEvent[object]]:
        return [] if look else events


class RepeatsAllEvents(PollingStore):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.all_events: list[WatchEvent[object]] = []

    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        self.all_events = []
        return super().watch(start, deadline=deadline)

    def _events_to_show(self, events: list[WatchEvent[object]], look: int) -> list[WatchEvent[object]]:
        self.all_events += events
        return self.all_events


class RepeatsTheLastEvent(RepeatsAllEvents):
    def _events_to_show(self, events: list[WatchEvent[object]], look: int) -> list[WatchEvent[object]]:
        self.all_events += events
        return self.all_events[-1:] if look else events


class LosesEvents(WrongStore):
    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        return (event for event in super().watch(start, deadline=deadline) if event.value is not None)


class WatchesAllKinds(WrongStore):
    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        everything = dict.fromkeys((*start, TOOL), min(start.values(), key=self._number_of))
        return super().watch(everything, deadline=deadline)


class SkipsForgottenHistory(WrongStore):
    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        try:
            yield from super().watch(start, deadline=deadline)
        except WatchExpired:
            if "of-another-store" in start.values():
                raise


class TakesAnyRevision(WrongStore):
    def _number_of(self, revision: Revision) -> int:
        number = super()._number_of(revision)
        return self._number if number < 0 else number


class WatchesForEver(WrongStore):
    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        yield from super().watch(start, deadline=deadline)
        STOP.wait(60)


class ReadsTooEarly(WrongStore):
    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        snapshot = super().read(queries, deadline=deadline)
        return evolve(snapshot, revisions=dict.fromkeys(snapshot.revisions, Revision("0")))


class IgnoresDeadlines(WrongStore):
    def _acquire_lock(self, deadline: Deadline) -> None:
        self.lock.acquire(timeout=60)


class WaitsForTheLock(WrongStore):
    def _acquire_lock(self, deadline: Deadline) -> None:
        if deadline.has_passed:
            super()._acquire_lock(deadline)
        self.lock.acquire(timeout=60)


class LocksNothing(WrongStore):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.lock = Unlocked()  # type: ignore[assignment]


class ShowsHalfACommit(WrongStore):
    def _change(self, key: Key[object], value: object | None) -> Revision:
        self.lock.release()
        sleep(0)
        self.lock.acquire()
        return super()._change(key, value)


class LocksWhileItWatches(WrongStore):
    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        for event in super().watch(start, deadline=deadline):
            with self.lock:
                yield event


class Unlocked:
    """A lock that locks nothing."""

    def acquire(self, *, blocking: bool = True, timeout: float = 0) -> bool:
        del blocking
        return timeout >= 0

    def release(self) -> None:
        pass

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        pass


class HandleWithItsOwnLock:
    """A handle whose lock the other handle does not know."""

    def __init__(self, inner: Datastore) -> None:
        self.inner = inner
        self.lock = Lock()

    @property
    def description(self) -> DatastoreDescription:
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        with self.lock:
            return self.inner.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        with self.lock:
            return self.inner.commit(writes, deadline=deadline)

    def watch(self, start: Start, *, deadline: Deadline) -> Changes:
        return self.inner.watch(start, deadline=deadline)


class HandleWithACache(HandleWithItsOwnLock):
    """A handle that remembers what it has read, and does not see what the other handle writes."""

    def __init__(self, inner: Datastore) -> None:
        super().__init__(inner)
        self.remembered: dict[tuple[Query, ...], Snapshot] = {}

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        found = super().read(queries, deadline=deadline)
        return self.remembered.setdefault(tuple(queries), found)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        self.remembered.clear()
        try:
            return super().commit(writes, deadline=deadline)
        finally:
            self.remembered.clear()


@contextmanager
def open_medium(
    clock: Clock,
    store_class: Callable[[Clock], MemoryDatastore],
    wrap: Callable[[Datastore], Datastore] = lambda store: store,
) -> Iterator[Medium]:
    store = store_class(clock)

    def forget() -> None:
        for number in range(51):
            scrap = TOOL.key(f"scrap-{number}")
            revision = store.commit((Create(scrap, ""),), deadline=Deadline.after(clock, 60))[0]
            store.commit((Delete(scrap, revision),), deadline=Deadline.after(clock, 60))

    yield Medium(lambda: nullcontext(wrap(store)), hold=lambda: store.lock, forget=forget)


def wrong(store_class: type[WrongStore]) -> OpenMedium:
    return partial(open_medium, store_class=store_class)


FAULTS: dict[str, tuple[OpenMedium, str]] = {
    "creates over existing": (wrong(CreatesOverExisting), r"a second create of Fruit\(green/apple\) was not refused"),
    "loses updates": (wrong(LosesUpdates), "Update .* was not refused with"),
    "deletes anything": (
        wrong(DeletesAnything),
        "a delete with the revision of a record .* created again was not refused",
    ),
    "ignores Require": (wrong(IgnoresRequire), r"a commit with Require\(.* was not refused with Conflict"),
    "ignores RequireUnchanged": (wrong(IgnoresRequireUnchanged), r"a commit with RequireUnchanged\(.* was not refused"),
    "conflict without record": (
        wrong(ShowsNoRecord),
        r"the field current of AlreadyExists, .*: found None, expected Record\(key=Fruit\(green/apple\)",
    ),
    "part of a commit": (
        wrong(AppliesAPart),
        "has stored the write before the failing one: an ATOMIC store applies all or none",
    ),
    "applied counted wrong": (wrong(CountsWrong), "the field applied of AlreadyExists, .*: found 0, expected 1"),
    "Written not honoured": (wrong(SkipsWritten), "the record that was created and updated: found"),
    "revision reused": (wrong(ReusesRevisions), "created again has the revision of the one that was deleted"),
    "list without order": (wrong(ListsInAnyOrder), r"the keys of List\(.*\(not in order at position 1\)"),
    "names ignored": (wrong(IgnoresNames), r"the keys of List\(.*name_prefix='a'"),
    "key listed twice": (wrong(ListsTwice), r"the keys of List\(.*\(twice: Fruit\(green/apple\)\)"),
    "pages of later states": (wrong(ShowsLaterPages), "the pages of the list: found"),
    "watch repeats": (wrong(RepeatsEvents), "the events: found"),
    "watch loses": (wrong(LosesEvents), r"the events: found .*\(missing: \(Fruit\(green/apple\), None\)\)"),
    "watch ends after one look": (
        wrong(WatchesOnce),
        "a watch during which nothing changed ended 0.25 s before its deadline",
    ),
    "watch loses later changes": (
        wrong(LosesLaterEvents),
        "a watch that waits has not shown the create 3 s after the commit",
    ),
    "watch repeats all at each look": (wrong(RepeatsAllEvents), "the events of a watch that waited, after the create"),
    "watch repeats the last": (wrong(RepeatsTheLastEvent), "the events of a watch that waited, after the create"),
    "watch of other kinds": (wrong(WatchesAllKinds), "the events: found .*Tool"),
    "watch skips forgotten history": (
        wrong(SkipsForgottenHistory),
        "a watch from a revision whose changes are forgotten was not refused with WatchExpired",
    ),
    "watch from anywhere": (
        wrong(TakesAnyRevision),
        "a watch from a revision that this store never gave was not refused with WatchExpired",
    ),
    "watch without end": (wrong(WatchesForEver), "a watch has not ended 3 s after its deadline"),
    "old revision of a kind": (wrong(ReadsTooEarly), "a call that the text allows was refused: Conflict"),
    "deadline ignored": (wrong(IgnoresDeadlines), "a read after its deadline was not refused with Unavailable"),
    "deadline ignored while locked": (
        wrong(WaitsForTheLock),
        "a commit with a deadline of 0.3 s has not returned .* while another holder has the store",
    ),
    "no lock": (wrong(LocksNothing), r"[234] of 4 threads created it: .* one lock"),
    "a lock of each handle": (
        partial(open_medium, store_class=LocksNothing, wrap=HandleWithItsOwnLock),
        r"[234] of 4 threads created it: .* one lock, which all threads and handles share",
    ),
    "a cache of each handle": (
        partial(open_medium, store_class=WrongStore, wrap=HandleWithACache),
        "what the other handle reads after a commit: found",
    ),
    "half a commit": (
        wrong(ShowsHalfACommit),
        "a read shows a part of a commit|threads (created|updated)|lost the race",
    ),
    "lock held by a watch": (wrong(LocksWhileItWatches), "a read beside a watch that waits failed: Unavailable"),
}


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    """Threads that a wrong store keeps end with the test."""
    STOP.clear()
    yield
    STOP.set()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_store_fails_with_the_reason_before_the_machine_runs(fault: str) -> None:
    medium, text = FAULTS[fault]
    suite = datastore_conformance(medium)
    suite.settings = settings(suite.settings, max_examples=1, stateful_step_count=1)  # too short to find anything
    with pytest.raises(AssertionError, match=text):
        suite().runTest()


@pytest.mark.parametrize("store_class", [WrongStore, PollingStore])
def test_the_store_without_a_fault_passes(store_class: type[WrongStore]) -> None:
    suite = datastore_conformance(wrong(store_class))
    suite.settings = settings(suite.settings, max_examples=5, stateful_step_count=10)
    result = suite().run()
    assert result is not None
    assert result.wasSuccessful()


def test_a_wrong_use_of_the_suite_is_an_error_that_says_what_is_expected() -> None:
    with pytest.raises(InvalidArgument, match="a function that takes a clock and opens a Medium is expected"):
        datastore_conformance(5)  # type: ignore[arg-type]
    for opened, text in ((5, "has to yield a Medium"), (Medium(lambda: nullcontext(5)), "has to yield a Datastore")):  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=text), open_harness(lambda _: nullcontext(opened), FRUIT_AND_TOOLS):  # type: ignore[arg-type] # noqa: B023
            pass
