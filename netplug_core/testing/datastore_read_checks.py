"""The checks of reads, pages, watches and deadlines, by one handle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from attrs import evolve

from netplug_core.errors import Unavailable
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    List,
    Record,
    Revision,
    Update,
    ValueCondition,
    WatchEvent,
    WatchExpired,
)
from netplug_core.testing.assertions import describe, expect, expect_refused, expect_same
from netplug_core.testing.concurrency import run_in_thread
from netplug_core.testing.datastore_harness import DatastoreHarness

__all__ = ["READ_CHECKS"]

_WATCH_S = 0.25
_EARLY_S = 0.1  # a server may count the time in its own way
_GRACE_S = 3.0


def a_list_is_in_path_order(harness: DatastoreHarness) -> None:
    """Lists show their kind, or the part of it that a path, and then a name, begins with, in the order of the paths."""
    samples = harness.samples
    for key in reversed(samples.keys):
        harness.create(key)
    snapshot = harness.read(*samples.prefixes)
    for query in samples.prefixes:
        expected = [key for key in samples.keys if query.covers(key)]
        expect_same(
            [record.key for record in snapshot.list(query)], expected, f"the keys of {describe(query)}, in path order"
        )


def pages_show_one_revision(harness: DatastoreHarness) -> None:
    """Whatever is written between the pages of a list; a store may answer in one page."""
    kind = harness.samples.kinds[0]
    keys = [key for key in harness.samples.keys if key.kind == kind]
    for key in keys[1:]:
        harness.create(key)
    expected = harness.read(List(kind)).list(List(kind))
    page = List(kind, limit=1)
    snapshot = harness.read(page)
    found = [*snapshot.list(page)]
    harness.create(keys[0])
    harness.commit(Delete(expected[-1].key, expected[-1].revision))
    while snapshot.after(page):
        page = List(kind, limit=1, after=snapshot.after(page))
        snapshot = harness.read(page)
        found += snapshot.list(page)
    expect_same(found, list(expected), "the pages of the list")


def a_list_leaves_out_only_values_that_meet_its_condition(harness: DatastoreHarness) -> None:
    """Of these it may have the keys alone; each record is there once, as a record or by its key."""
    kind = harness.samples.kinds[0]
    keys = [key for key in harness.samples.keys if key.kind == kind]
    for key in keys:
        harness.create(key)
    everything = List(kind)
    expected = {record.key: record for record in harness.read(everything).list(everything)}
    chosen = [expected[key].value for key in keys[::2]]
    condition = ValueCondition("one of every two", lambda value: value in chosen)
    for limit in (0, 1):
        page = List(kind, limit=limit, keys_only_if=condition)
        found: dict[Key[object], Record[object] | None] = {}
        after = ""
        while True:
            page = evolve(page, after=after)
            snapshot = harness.read(page)
            seen = [*snapshot.keys(page), *(record.key for record in snapshot.list(page))]
            expect(found.keys().isdisjoint(seen), f"{describe(page)} has a key twice")
            found.update(dict.fromkeys(snapshot.keys(page)))
            found.update((record.key, record) for record in snapshot.list(page))
            after = snapshot.after(page)
            if not after:
                break
        expect_same(set(found), set(expected), f"the keys of {describe(page)}")
        for key, record in found.items():
            is_allowed = record == expected[key] if record else condition.holds(expected[key].value)
            expect(is_allowed, f"{describe(page)} leaves out {key}, for which its condition does not hold")


def a_snapshot_has_a_revision_for_each_kind(harness: DatastoreHarness) -> None:
    """Also for kinds of which nothing is stored."""
    first, last = harness.samples.keys[0], harness.samples.keys[-1]
    snapshot = harness.read(Get(first), List(last.kind))
    expect_same(set(snapshot.revisions), {first.kind, last.kind}, "the kinds that have a revision")


def a_watch_yields_changes_after_a_read(harness: DatastoreHarness) -> None:
    """Creations, changes and deletions, each once and in order; nothing of other kinds, nothing from before."""
    key, other = harness.samples.keys[:2]
    foreign = harness.samples.keys[-1]
    harness.create(other)
    start = dict(harness.read(List(key.kind)).revisions)
    created = harness.create(key)
    harness.create(foreign)
    updated = harness.commit(Update(key, harness.samples.value(key, 1), created))[0]
    harness.commit(Delete(key, updated))
    harness.create(key, 2)
    events = harness.watch(start, 4)
    values = [harness.samples.value(key, 0), harness.samples.value(key, 1), None, harness.samples.value(key, 2)]
    expect_same([(event.key, event.value) for event in events], [(key, value) for value in values], "the events")
    expect_same([event.revision for event in events[:2]], [created, updated], "the revisions of the events")


def a_watch_resumes_from_a_change(harness: DatastoreHarness) -> None:
    """From the revision of the last change seen, and from inside a commit of several writes too."""
    first, second, third = harness.samples.keys[:3]
    start = dict(harness.read(List(first.kind)).revisions)
    harness.commit(*(Create(key, harness.samples.value(key, 0)) for key in (first, second, third)))
    found: list[Key[object]] = []
    for _ in range(3):
        for event in harness.watch(start, 1):
            found.append(event.key)
            start[event.key.kind] = event.revision
    expect_same(sorted(found, key=_path_of), [first, second, third], "the keys of three watches, one after the other")


def a_watch_ends_by_its_deadline(harness: DatastoreHarness) -> None:
    """Without changes it has no events. It waits for them until its deadline, and then ends without an error."""
    start = dict(harness.read(List(harness.samples.kinds[0])).revisions)
    deadline = harness.deadline_in(_WATCH_S)
    events: list[WatchEvent[object]] = []

    def watch() -> float:
        events.extend(islice(harness.store.watch(start, deadline=deadline), 10))
        return deadline.remaining_s

    outcome = run_in_thread(watch, limit_s=_WATCH_S + _GRACE_S)
    expect(outcome.has_ended, f"a watch has not ended {_GRACE_S:g} s after its deadline")
    left_s = outcome.get() or 0.0
    expect_same(events, [], "the events of a watch during which nothing changed")
    expect(
        left_s <= _EARLY_S,
        f"a watch during which nothing changed ended {left_s:.2f} s before its deadline: it has to wait for changes",
    )


def a_call_past_its_deadline_does_nothing(harness: DatastoreHarness) -> None:
    """It is ``Unavailable``, and the writes are not applied."""
    key = harness.samples.keys[0]
    passed = harness.deadline_in(0.0)
    read = partial(harness.store.read, (Get(key),), deadline=passed)
    expect_refused(Unavailable, read, what="a read after its deadline")
    write = Create(key, harness.samples.value(key, 0))
    commit = partial(harness.store.commit, (write,), deadline=passed)
    expect_refused(Unavailable, commit, what="a commit after its deadline")
    expect_same(harness.find(key), None, "what a commit after its deadline has stored")


def a_watch_from_an_unknown_revision_expires(harness: DatastoreHarness) -> None:
    """A revision that this store never gave, as of a store that was set up anew, is never taken for the present."""
    kind = harness.samples.kinds[0]
    start = {kind: Revision("of-another-store")}
    expect_refused(
        WatchExpired,
        lambda: list(harness.store.watch(start, deadline=harness.deadline_in(_WATCH_S))),
        what="a watch from a revision that this store never gave",
    )


def a_watch_from_forgotten_history_expires(harness: DatastoreHarness) -> None:
    """Changes that are no longer kept are never left out in silence; a watch from a new read works."""
    if harness.medium.forget is None:
        return
    key = harness.samples.keys[0]
    start = dict(harness.read(List(key.kind)).revisions)
    created = harness.create(key)
    updated = harness.commit(Update(key, harness.samples.value(key, 1), created))[0]
    harness.medium.forget()  # a store may keep the last change
    expect_refused(
        WatchExpired,
        lambda: list(harness.store.watch(start, deadline=harness.deadline_in(_WATCH_S))),
        what="a watch from a revision whose changes are forgotten",
    )
    start = dict(harness.read(List(key.kind)).revisions)
    harness.commit(Delete(key, updated))
    events = [(event.key, event.value) for event in harness.watch(start, 1)]
    expect_same(events, [(key, None)], "the events of a watch that starts after the forgotten history")


def _path_of(key: Key[object]) -> tuple[str, ...]:
    return key.path


READ_CHECKS: Final[tuple[Callable[[DatastoreHarness], None], ...]] = (
    a_call_past_its_deadline_does_nothing,
    a_list_is_in_path_order,
    pages_show_one_revision,
    a_list_leaves_out_only_values_that_meet_its_condition,
    a_snapshot_has_a_revision_for_each_kind,
    a_watch_ends_by_its_deadline,
    a_watch_yields_changes_after_a_read,
    a_watch_resumes_from_a_change,
    a_watch_from_an_unknown_revision_expires,
    a_watch_from_forgotten_history_expires,
)
"""In the order in which an author makes them pass."""
