"""The checks of reads and of commits: which are applied, which are refused, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from attrs import evolve

from netplug_core.errors import Unavailable
from netplug_core.records import (
    ABSENT,
    AlreadyExists,
    CommitError,
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    List,
    NotFound,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Update,
    ValueCondition,
    WatchEvent,
    WatchExpired,
    Write,
    Written,
)
from netplug_core.testing.assertions import describe, expect, expect_refused, expect_same
from netplug_core.testing.concurrency import run_in_thread
from netplug_core.testing.datastore_harness import DatastoreHarness

__all__ = ["COMMIT_CHECKS", "READ_CHECKS"]


def an_absent_key_is_an_answer(harness: DatastoreHarness) -> None:
    """Reading a key at which nothing is stored finds None, and reading nothing works."""
    key = harness.samples.keys[0]
    expect_same(harness.find(key), None, "what is stored at a fresh key")
    expect_same(dict(harness.read().results), {}, "the answers to no query")
    expect_same(harness.commit(), (), "the revisions of no write")


def a_created_value_is_read_back(harness: DatastoreHarness) -> None:
    """Key, value and the revision that the commit gave."""
    key = harness.samples.keys[0]
    revision = harness.create(key)
    record = harness.find(key)
    expect_same(record, Record(key, harness.samples.value(key, 0), revision), "the record just created")


def creating_twice_is_refused(harness: DatastoreHarness) -> None:
    """The second create says what is there, and changes nothing."""
    key = harness.samples.keys[0]
    harness.create(key)
    stored = harness.find(key)
    error = expect_refused(AlreadyExists, lambda: harness.create(key, 1), what=f"a second create of {key}")
    _expect_fields(error, key, current=stored)
    expect_same(harness.find(key), stored, "the record")


def a_key_created_again_has_a_new_revision(harness: DatastoreHarness) -> None:
    """A revision is never given twice to one key, so the new record is never mistaken for the old one."""
    key = harness.samples.keys[0]
    first = harness.create(key)
    harness.commit(Delete(key, first))
    expect_same(harness.find(key), None, "what is stored after the delete")
    second = harness.create(key)
    expect(second != first, "the record created again has the revision of the one that was deleted")
    stale = partial(harness.commit, Delete(key, first))
    expect_refused(Conflict, stale, what="a delete with the revision of a record that was deleted and created again")


def an_absent_key_cannot_be_changed(harness: DatastoreHarness) -> None:
    """Update and delete of nothing are ``NotFound``, whatever revision they name."""
    key, other = harness.samples.keys[:2]
    revision = harness.create(other)
    writes: tuple[Write, ...] = (Update(key, harness.samples.value(key, 1), revision), Delete(key, revision))
    for write in writes:
        error = expect_refused(
            NotFound, partial(harness.commit, write), what=f"{type(write).__name__} of an absent key"
        )
        _expect_fields(error, key)


def an_outdated_revision_is_refused(harness: DatastoreHarness) -> None:
    """Update and delete with an older revision are a ``Conflict`` that carries the present record."""
    key = harness.samples.keys[0]
    first = harness.create(key)
    harness.commit(Update(key, harness.samples.value(key, 1), first))
    stored = harness.find(key)
    writes: tuple[Write, ...] = (Update(key, harness.samples.value(key, 2), first), Delete(key, first))
    for write in writes:
        what = f"{type(write).__name__} with an outdated revision"
        error = expect_refused(Conflict, partial(harness.commit, write), what=what)
        _expect_fields(error, key, current=stored)
    expect_same(harness.find(key), stored, "the record")


def one_of_many_writers_wins(harness: DatastoreHarness) -> None:
    """Of several updates from one revision the first succeeds; the others change nothing."""
    key = harness.samples.keys[0]
    revision = harness.create(key)
    harness.commit(Update(key, harness.samples.value(key, 1), revision))
    for number in range(2, 6):
        late = Update(key, harness.samples.value(key, number), revision)
        expect_refused(Conflict, partial(harness.commit, late), what="a later update from the same revision")
    record = harness.find(key)
    expect_same(record and record.value, harness.samples.value(key, 1), "the value that the first writer stored")


def a_failed_commit_applies_nothing_or_a_prefix(harness: DatastoreHarness) -> None:
    """Nothing in an atomic store; in an ordered one the writes before the failing one, as the error says."""
    first, second, third = harness.samples.keys[:3]
    harness.create(second)
    writes = [Create(key, harness.samples.value(key, 1)) for key in (first, second, third)]
    error = expect_refused(AlreadyExists, lambda: harness.commit(*writes), what="a commit that creates an existing key")
    prefix = 0 if harness.is_atomic else 1
    _expect_fields(error, second, current=harness.find(second), index=1, applied=prefix)
    snapshot = harness.read(Get(first), Get(third))
    if harness.is_atomic:
        problem = "a refused commit has stored the write before the failing one: an ATOMIC store applies all or none"
        expect(snapshot.find(first) is None, problem)
    else:
        problem = "a refused commit has not stored the write before the failing one, and yet it says that 1 is applied"
        expect(snapshot.find(first) is not None, problem)
    expect_same(snapshot.find(third), None, "what the write after the failing one has stored")


def a_write_refers_to_an_earlier_one(harness: DatastoreHarness) -> None:
    """``Written`` stands for the revision that an earlier write of the list makes."""
    claim, block = harness.samples.keys[:2]
    values = [harness.samples.value(claim, number) for number in range(4)]
    *_, last = harness.commit(
        Create(claim, values[0]),
        Create(block, harness.samples.value(block, 0)),
        Update(claim, values[1], Written(0)),
    )
    record = harness.find(claim)
    expect_same(record, Record(claim, values[1], last), "the record that was created and updated")
    harness.commit(Update(claim, values[2], last), Delete(claim, Written(0)))
    expect_same(harness.find(claim), None, "the record that was updated and deleted")
    harness.commit(Create(claim, values[3]), Delete(claim, Written(0)))
    expect_same(harness.find(claim), None, "the record that was created and deleted")


def a_requirement_holds_or_refuses(harness: DatastoreHarness) -> None:
    """A commit is applied only if a key is as required; an ordered store does not look."""
    key, other = harness.samples.keys[:2]
    revision = harness.create(key)
    revisions = harness.commit(Require(key, revision), Require(other, ABSENT))
    expect_same(revisions, (revision, ""), "the revisions of two requirements")
    harness.commit(Update(key, harness.samples.value(key, 1), revision))
    _expect_required(harness, Require(key, revision), Conflict)
    _expect_required(harness, Require(key, ABSENT), Conflict)
    _expect_required(harness, Require(other, revision), NotFound)


def a_kind_is_required_unchanged(harness: DatastoreHarness) -> None:
    """Creations and changes of the kind refuse the commit; deletions and other kinds do not.

    The revision of a record that a commit has made is that of its kind too.
    """
    key, other = harness.samples.keys[:2]
    foreign = harness.samples.keys[-1]
    before = harness.read(List(key.kind)).revision(key.kind)
    revision = harness.create(key)
    _expect_required(harness, RequireUnchanged(key.kind, before), Conflict)
    created = harness.read(List(key.kind)).revision(key.kind)
    expect_same(harness.commit(RequireUnchanged(key.kind, created)), (created,), "the revision of the requirement")
    spare = harness.create(other)
    harness.commit(RequireUnchanged(key.kind, spare))
    listed = harness.read(List(key.kind)).revision(key.kind)
    harness.commit(Delete(other, spare))
    harness.create(foreign)
    harness.commit(RequireUnchanged(key.kind, listed))
    harness.commit(Update(key, harness.samples.value(key, 1), revision))
    _expect_required(harness, RequireUnchanged(key.kind, listed), Conflict)


def an_update_that_changes_nothing_is_applied(harness: DatastoreHarness) -> None:
    """It may keep the revision, as an API server does; with a new revision the old one is outdated."""
    key = harness.samples.keys[0]
    created = harness.create(key)
    same = harness.samples.value(key, 0)
    updated = harness.commit(Update(key, same, created))[0]
    expect_same(harness.find(key), Record(key, same, updated), "the record after an update that changes nothing")
    if updated != created:
        expect_refused(
            Conflict, lambda: harness.commit(Delete(key, created)), what="a delete with an outdated revision"
        )
    harness.commit(Delete(key, updated))
    expect_same(harness.find(key), None, "what is stored after the delete")


def _expect_fields(
    error: CommitError, key: Key[object], *, current: Record[object] | None = None, index: int = 0, applied: int = 0
) -> None:
    name = type(error).__name__
    expect_same(error.subject, key, f"the subject of {name}")
    expect_same(error.index, index, f"the index of {name}, the position of the refused write")
    expect_same(error.current, current, f"the field current of {name}, what is stored at the key")
    expect_same(error.applied, applied, f"the field applied of {name}, the number of writes that are applied")


def _expect_required(harness: DatastoreHarness, requirement: Write, error: type[CommitError]) -> None:
    # An atomic store refuses the requirement and the write beside it; an ordered one does the write.
    key = harness.samples.keys[2]
    before = harness.find(key)
    write = Delete(key, before.revision) if before else Create(key, harness.samples.value(key, 0))
    if harness.is_atomic:
        refusal = expect_refused(
            error, lambda: harness.commit(write, requirement), what=f"a commit with {describe(requirement)}"
        )
        expect_same(refusal.index, 1, f"the index of {type(refusal).__name__}")
        expect_same(refusal.applied, 0, f"the field applied of {type(refusal).__name__}")
        expect_same(harness.find(key), before, "what the write beside the requirement left")
    else:
        harness.commit(write, requirement)


COMMIT_CHECKS: Final[tuple[Callable[[DatastoreHarness], None], ...]] = (
    an_absent_key_is_an_answer,
    a_created_value_is_read_back,
    creating_twice_is_refused,
    a_key_created_again_has_a_new_revision,
    an_absent_key_cannot_be_changed,
    an_outdated_revision_is_refused,
    one_of_many_writers_wins,
    an_update_that_changes_nothing_is_applied,
    a_failed_commit_applies_nothing_or_a_prefix,
    a_write_refers_to_an_earlier_one,
    a_requirement_holds_or_refuses,
    a_kind_is_required_unchanged,
)
"""In the order in which an author makes them pass."""


# --- reads -----------------------------------------------------------------------------------------------------------

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
