"""Reads and waits that a person sees: how many records are read, how many are left, and how long it still takes.

``session`` opens every datastore so on a terminal, and its clock shows long waits. Commands that read page by page keep
one line over all pages with ``count_reads``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from attrs import Factory, define, frozen

from netplug_cli.progress import Progress, show_progress
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Datastore, DatastoreCall, ObservedDatastore
from netplug_core.records import Kind, List, Query, ReadResult, Snapshot

__all__ = ["VisibleClock", "count_reads", "show_reads"]

_ALL_RECORDS = "records read"
_SHORT_WAIT_S = 2.0
_STEP_S = 0.5


@define
class _CountedDatastore(ObservedDatastore):
    """A datastore whose records are counted as they are read. ``is_lasting``: the line stays between reads."""

    progress: Progress
    is_lasting: bool = True
    _count: int = 0
    _of_kind: dict[Kind[object], int] = Factory(dict)
    _reading: tuple[str, float] = (_ALL_RECORDS, 0.0)

    def observe(self, call: DatastoreCall) -> AbstractContextManager[None]:  # noqa: ARG002 - the interface's
        """Nothing is done about a call as such."""
        return nullcontext()

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """The answers, which count."""
        began_s = self.progress.clock.monotonic()
        lists = [query for query in queries if isinstance(query, List)]
        self._reading = (f"{lists[0].kind} records read" if len(lists) == 1 else _ALL_RECORDS, began_s)
        try:
            snapshot = self.datastore.read(queries, deadline=deadline)
            for query, result in snapshot.results.items():
                self._add(query, result, began_s)
        finally:
            if not self.is_lasting:
                self.progress.erase()
        return snapshot

    def show(self, found: int, left: int) -> None:
        """Show how far the list is that the store reads."""
        self.progress.go_on_with(*self._reading)
        self.progress.update(found, total=found + left if left else 0)

    def _add(self, query: Query, result: ReadResult, began_s: float) -> None:
        """Show how far the list is whose pages are read, where the store says how long it is; otherwise all records."""
        self._count += len(result.records)
        is_next = isinstance(query, List) and bool(query.after)
        of_kind = len(result.records) + (self._of_kind.get(query.kind, 0) if is_next else 0)
        self._of_kind[query.kind] = of_kind
        if result.left or (is_next and self.progress.total):
            self.progress.go_on_with(f"{query.kind} records read", began_s)
            self.progress.update(of_kind, total=of_kind + result.left)
        else:
            self.progress.go_on_with(_ALL_RECORDS, began_s)
            self.progress.update(self._count, total=0)


@contextmanager
def count_reads(store: Datastore, clock: Clock) -> Iterator[Datastore]:
    """The datastore; while it is read, a line says how many records were. Nothing else may be printed meanwhile."""
    shown = store if isinstance(store, _CountedDatastore) else None
    store = store if shown is None else shown.datastore  # one line, and not that of the session too
    with show_progress(_ALL_RECORDS, 0, clock) as progress, _reported(_CountedDatastore(store, progress)) as counted:
        yield counted
    if shown is not None:
        shown.report_reads(shown.show)


@contextmanager
def show_reads(store: Datastore, clock: Clock) -> Iterator[Datastore]:
    """The datastore; during each read that takes long, a line says how many records were read."""
    with (
        show_progress(_ALL_RECORDS, 0, clock) as progress,
        _reported(_CountedDatastore(store, progress, is_lasting=False)) as shown,
    ):
        yield shown


@contextmanager
def _reported(store: _CountedDatastore) -> Iterator[Datastore]:
    store.report_reads(store.show)
    try:
        yield store
    finally:
        store.report_reads(None)


@frozen
class VisibleClock:
    """A clock whose long waits are shown: how long they last still."""

    clock: Clock

    def now_ns(self) -> int:
        """Wall-clock time."""
        return self.clock.now_ns()

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        if seconds <= _SHORT_WAIT_S:
            self.clock.sleep(seconds)
            return
        deadline = Deadline.after(self.clock, seconds)
        with show_progress("seconds passed", round(seconds), self.clock, deadline) as progress:
            while not deadline.has_passed:
                progress.update(int(seconds - deadline.remaining_s))
                self.clock.sleep(min(_STEP_S, deadline.remaining_s))
