"""What every datastore has to keep, so that a view of it that follows its watch is true.

``datastore_checks`` runs them with the others: a backend that passes them can feed controllers and caches. They work
with what a watch delivers, however a backend makes it: a stream of a server, or a history that is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from attrs import frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.feed import follow
from netplug_core.datastore.protocol import Datastore, DatastoreDescription
from netplug_core.datastore.view import START, View
from netplug_core.errors import InvariantBroken
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    Query,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    WatchExpired,
    Write,
)
from netplug_core.testing.assertions import describe, expect, expect_same
from netplug_core.testing.datastore_harness import DatastoreHarness

__all__ = ["VIEW_CHECKS"]


@frozen
class _ShortWatches:
    """A store whose watches end after so many changes, so that nothing waits for more."""

    store: Datastore
    count: int

    @property
    def description(self) -> DatastoreDescription:
        return self.store.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        return self.store.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        return self.store.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        return islice(self.store.watch(start, deadline=deadline), self.count)


def a_followed_view_has_what_the_store_has(harness: DatastoreHarness) -> None:
    """After a list, and after every change that its watch delivers: by key, by kind and by prefix."""
    kept, changed, deleted, new = harness.samples.keys[:4]
    for key in (kept, changed, deleted):
        harness.create(key)
    view = _new_view(harness)
    _follow(harness, view, 0)
    _expect_true(harness, view)
    _change(harness, changed, deleted, new)
    _follow(harness, view, 3)
    _expect_true(harness, view)


def a_followed_view_reports_each_changed_key(harness: DatastoreHarness) -> None:
    """Once, whether it was created, changed or deleted, to each reader from where that one has come."""
    kept, changed, deleted, new = harness.samples.keys[:4]
    for key in (kept, changed, deleted):
        harness.create(key)
    view = _new_view(harness)
    _follow(harness, view, 0)
    mark, keys = view.changes_since(START)
    expect(keys is None, "a reader that has seen nothing gets keys and not None")
    _change(harness, changed, deleted, new)
    _follow(harness, view, 3)
    later, keys = view.changes_since(mark)
    expect_same(keys, frozenset((changed, deleted, new)), "the keys that have changed")
    expect_same(view.changes_since(mark)[1], keys, "the keys that another reader gets")
    expect_same(view.changes_since(later), (later, frozenset()), "what has changed since then")


def a_view_whose_watch_was_interrupted_reports_what_differs(harness: DatastoreHarness) -> None:
    """Also a deletion: a new list says nothing of it. Until then controllers see the last known records."""
    kept, changed, deleted, new = harness.samples.keys[:4]
    for key in (kept, changed, deleted):
        harness.create(key)
    view = _new_view(harness)
    _follow(harness, view, 0)
    mark, _ = view.changes_since(START)
    _change(harness, changed, deleted, new)
    if harness.medium.forget is None:
        view.lose(frozenset(harness.samples.kinds))
    else:
        harness.medium.forget()
        try:
            _follow(harness, view, 3)
        except WatchExpired:
            expect(not view.watched, "a view answers calls from what its watch has lost")
    if view.watched:
        _expect_true(harness, view)  # the store keeps its changes after all
        return
    expect(view.find(deleted) is not None, "the last known records are gone with their watch")
    _follow(harness, view, 0)
    _expect_true(harness, view)
    expect_same(view.changes_since(mark)[1], frozenset((changed, deleted, new)), "the keys that differ")


def nothing_is_absent_before_its_kind_was_listed(harness: DatastoreHarness) -> None:
    """A view that has not listed a kind does not say that a record is not there."""
    view = _new_view(harness)
    key = harness.samples.keys[0]
    expect(not view.has_listed([key.kind]), f"{key.kind} counts as listed")
    for ask in (lambda: view.find(key), lambda: view.list(key.kind)):
        try:
            answer = ask()
        except InvariantBroken:
            continue
        raise AssertionError(f"{key.kind} was not listed, and the answer is {answer!r}")
    _follow(harness, view, 0)
    expect(view.has_listed(harness.samples.kinds), "a kind was listed and does not count as such")
    expect_same(view.find(key), None, "what is found where nothing is stored")


def _new_view(harness: DatastoreHarness) -> View:
    return View.for_datastore(harness.store, clock=harness.clock, uncached_kinds=frozenset())


def _follow(harness: DatastoreHarness, view: View, count: int) -> None:
    """List what is not watched yet, and apply so many changes."""
    follow(_ShortWatches(harness.store, count), view, harness.samples.kinds, deadline=harness.deadline)


def _change(harness: DatastoreHarness, changed: Key[object], deleted: Key[object], new: Key[object]) -> None:
    """Change a record, delete one and create one, by the other handle."""
    value = harness.samples.value
    before = harness.read(Get(changed), Get(deleted))
    found = {key: before.find(key) for key in (changed, deleted)}
    revisions = {key: record.revision for key, record in found.items() if record is not None}
    for write in (
        Update(changed, value(changed, 1), revisions[changed]),
        Delete(deleted, revisions[deleted]),
        Create(new, value(new, 0)),
    ):
        harness.other.commit((write,), deadline=harness.deadline)


def _expect_true(harness: DatastoreHarness, view: View) -> None:
    """The view has what the store has."""
    for query in harness.samples.prefixes:
        if not query.name_prefix:
            stored = harness.read(query).list(query)
            expect_same(view.list(query.kind, query.within), stored, f"the view of {describe(query)}")
    for key in harness.samples.keys:
        expect_same(view.find(key), harness.find(key), f"the view of {key}")


VIEW_CHECKS: Final[tuple[Callable[[DatastoreHarness], None], ...]] = (
    nothing_is_absent_before_its_kind_was_listed,
    a_followed_view_has_what_the_store_has,
    a_followed_view_reports_each_changed_key,
    a_view_whose_watch_was_interrupted_reports_what_differs,
)
"""Every check, in the order in which an author makes them pass."""
