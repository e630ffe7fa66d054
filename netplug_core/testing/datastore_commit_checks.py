"""The checks of commits: which are applied, which are refused, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

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
    Update,
    Write,
    Written,
)
from netplug_core.testing.assertions import describe, expect, expect_refused, expect_same
from netplug_core.testing.datastore_harness import DatastoreHarness

__all__ = ["COMMIT_CHECKS"]


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
