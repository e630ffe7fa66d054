"""The text of ``Datastore`` as plain examples, each a function that takes a way to open an empty store.

    @pytest.mark.parametrize("check", DATASTORE_CHECKS)
    def test_my_store(check):
        check(lambda clock: my_store(clock, codec=SAMPLE_CODEC))

They store ``bench.FRUIT_AND_TOOLS`` on a clock moved by hand; one that needs something else is called with it:
``check(make, samples=…, clock=…)``. The rule-based machine in ``datastore`` checks the same and more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from itertools import islice
from typing import Final, Protocol, TypeVar

from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Atomicity
from netplug_core.errors import NetplugError, Unavailable
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
    Write,
    Written,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_harness import (
    FRUIT_AND_TOOLS,
    DatastoreHarness,
    OpenStore,
    Samples,
    expect,
    expect_same,
    open_harness,
)

__all__ = ["DATASTORE_CHECKS", "DatastoreCheck"]

E = TypeVar("E", bound=NetplugError)


class DatastoreCheck(Protocol):
    """One example; raises ``AssertionError`` where the store does not do as the text says."""

    __name__: str

    def __call__(
        self,
        open_store: OpenStore,
        *,
        samples: Samples = FRUIT_AND_TOOLS,
        make_clock: Callable[[], Clock] = ManualClock,
    ) -> None:
        """Open a store, try it, close it."""
        ...


def an_absent_key_is_an_answer(harness: DatastoreHarness) -> None:
    """Reading a key at which nothing is stored finds None, and reading nothing works."""
    key = harness.samples.keys[0]
    expect_same(harness.read(Get(key)).find(key), None, "what is stored at a fresh key")
    expect_same(dict(harness.read().results), {}, "the answers to no query")
    expect_same(harness.commit(), (), "the revisions of no write")


def a_created_value_is_read_back(harness: DatastoreHarness) -> None:
    """Key, value and the revision that the commit gave."""
    key = harness.samples.keys[0]
    revision = _create(harness, key)
    record = harness.read(Get(key)).find(key)
    expect_same(record, Record(key, harness.samples.value(key, 0), revision), "the record just created")


def creating_twice_is_refused(harness: DatastoreHarness) -> None:
    """The second create says what is there, and changes nothing."""
    key = harness.samples.keys[0]
    _create(harness, key)
    stored = harness.read(Get(key)).find(key)
    error = _expect_refused(AlreadyExists, lambda: _create(harness, key, 1))
    expect_same((error.subject, error.index, error.current, error.applied), (key, 0, stored, 0), "the refusal")
    expect_same(harness.read(Get(key)).find(key), stored, "the record")


def a_key_created_again_has_a_new_revision(harness: DatastoreHarness) -> None:
    """A revision is never given twice to one key, so nobody mistakes the new record for the old one."""
    key = harness.samples.keys[0]
    first = _create(harness, key)
    harness.commit(Delete(key, first))
    expect_same(harness.read(Get(key)).find(key), None, "what is stored after the delete")
    second = _create(harness, key)
    expect(second != first, "the record created again has the revision of the one that was deleted")
    _expect_refused(Conflict, lambda: harness.commit(Delete(key, first)))


def an_absent_key_cannot_be_changed(harness: DatastoreHarness) -> None:
    """Update and delete of nothing are ``NotFound``, whatever revision they name."""
    key, other = harness.samples.keys[:2]
    revision = _create(harness, other)
    writes: tuple[Write, ...] = (Update(key, harness.samples.value(key, 1), revision), Delete(key, revision))
    for write in writes:
        error = _expect_refused(NotFound, partial(harness.commit, write))
        expect_same((error.subject, error.index, error.current, error.applied), (key, 0, None, 0), "the refusal")


def an_outdated_revision_is_refused(harness: DatastoreHarness) -> None:
    """Update and delete with an older revision are a ``Conflict`` that carries the present record."""
    key = harness.samples.keys[0]
    first = _create(harness, key)
    harness.commit(Update(key, harness.samples.value(key, 1), first))
    stored = harness.read(Get(key)).find(key)
    writes: tuple[Write, ...] = (Update(key, harness.samples.value(key, 2), first), Delete(key, first))
    for write in writes:
        error = _expect_refused(Conflict, partial(harness.commit, write))
        expect_same((error.subject, error.index, error.current, error.applied), (key, 0, stored, 0), "the refusal")
    expect_same(harness.read(Get(key)).find(key), stored, "the record")


def one_of_many_writers_wins(harness: DatastoreHarness) -> None:
    """Of several updates with one revision the first succeeds; the others change nothing."""
    key = harness.samples.keys[0]
    revision = _create(harness, key)
    harness.commit(Update(key, harness.samples.value(key, 1), revision))
    for number in range(2, 6):
        late = Update(key, harness.samples.value(key, number), revision)
        _expect_refused(Conflict, partial(harness.commit, late))
    record = harness.read(Get(key)).find(key)
    expect_same(record and record.value, harness.samples.value(key, 1), "the value that the first writer stored")


def a_failed_commit_applies_nothing_or_a_prefix(harness: DatastoreHarness) -> None:
    """Nothing in an atomic store; in an ordered one the writes before the failing one, as the error says."""
    first, second, third = harness.samples.keys[:3]
    _create(harness, second)
    writes = [Create(key, harness.samples.value(key, 1)) for key in (first, second, third)]
    error = _expect_refused(AlreadyExists, lambda: harness.commit(*writes))
    prefix = 0 if _is_atomic(harness) else 1
    expect_same((error.subject, error.index, error.applied), (second, 1, prefix), "the refusal")
    snapshot = harness.read(Get(first), Get(third))
    expect_same(snapshot.find(first) is not None, prefix == 1, "whether the write before is applied")
    expect_same(snapshot.find(third), None, "what the write after has stored")


def a_write_refers_to_an_earlier_one(harness: DatastoreHarness) -> None:
    """``Written`` stands for the revision that an earlier write of the list makes."""
    claim, block = harness.samples.keys[:2]
    values = [harness.samples.value(claim, number) for number in range(4)]
    *_, last = harness.commit(
        Create(claim, values[0]),
        Create(block, harness.samples.value(block, 0)),
        Update(claim, values[1], Written(0)),
    )
    record = harness.read(Get(claim)).find(claim)
    expect_same(record, Record(claim, values[1], last), "the record that was created and updated")
    harness.commit(Update(claim, values[2], last), Delete(claim, Written(0)))
    expect_same(harness.read(Get(claim)).find(claim), None, "the record that was updated and deleted")
    harness.commit(Create(claim, values[3]), Delete(claim, Written(0)))
    expect_same(harness.read(Get(claim)).find(claim), None, "the record that was created and deleted")


def a_requirement_holds_or_refuses(harness: DatastoreHarness) -> None:
    """A commit is applied only if a key is as required; an ordered store does not look."""
    key, other = harness.samples.keys[:2]
    revision = _create(harness, key)
    made = harness.commit(Require(key, revision), Require(other, ABSENT))
    expect_same(made, (revision, ""), "the revisions of two requirements")
    harness.commit(Update(key, harness.samples.value(key, 1), revision))
    _expect_required(harness, Require(key, revision), Conflict)
    _expect_required(harness, Require(key, ABSENT), Conflict)
    _expect_required(harness, Require(other, revision), NotFound)


def a_kind_is_required_unchanged(harness: DatastoreHarness) -> None:
    """Creations and changes of the kind refuse the commit; deletions and other kinds do not."""
    key, other = harness.samples.keys[:2]
    foreign = harness.samples.keys[-1]
    before = harness.read(List(key.kind)).revision(key.kind)
    revision = _create(harness, key)
    _expect_required(harness, RequireUnchanged(key.kind, before), Conflict)
    created = harness.read(List(key.kind)).revision(key.kind)
    expect_same(harness.commit(RequireUnchanged(key.kind, created)), (created,), "the revision of the requirement")
    spare = _create(harness, other)
    listed = harness.read(List(key.kind)).revision(key.kind)
    harness.commit(Delete(other, spare))
    _create(harness, foreign)
    harness.commit(RequireUnchanged(key.kind, listed))
    harness.commit(Update(key, harness.samples.value(key, 1), revision))
    _expect_required(harness, RequireUnchanged(key.kind, listed), Conflict)


def a_list_is_in_path_order(harness: DatastoreHarness) -> None:
    """Lists show their kind, or the part of it that a path begins with, in the order of the paths."""
    samples = harness.samples
    for key in reversed(samples.keys):
        _create(harness, key)
    snapshot = harness.read(*samples.prefixes)
    for query in samples.prefixes:
        inside = [key for key in samples.keys if key.kind == query.kind]
        asked = [key for key in inside if key.path[: len(query.within)] == query.within]
        expect_same([record.key for record in snapshot.list(query)], sorted(asked, key=_path_of), str(query))


def pages_show_one_revision(harness: DatastoreHarness) -> None:
    """Whatever is written between the pages of a list; a store may answer in one page."""
    kind = harness.samples.kinds[0]
    keys = [key for key in harness.samples.keys if key.kind == kind]
    for key in keys[1:]:
        _create(harness, key)
    expected = harness.read(List(kind)).list(List(kind))
    page = List(kind, limit=1)
    snapshot = harness.read(page)
    found = [*snapshot.list(page)]
    _create(harness, keys[0])
    harness.commit(Delete(expected[-1].key, expected[-1].revision))
    while snapshot.after(page):
        page = List(kind, limit=1, after=snapshot.after(page))
        snapshot = harness.read(page)
        found += snapshot.list(page)
    expect_same(tuple(found), expected, "the pages of the list")


def a_snapshot_has_a_revision_for_each_kind(harness: DatastoreHarness) -> None:
    """Also for kinds of which nothing is stored."""
    first, last = harness.samples.keys[0], harness.samples.keys[-1]
    snapshot = harness.read(Get(first), List(last.kind))
    expect_same(set(snapshot.revisions), {first.kind, last.kind}, "the kinds that have a revision")


def a_watch_yields_changes_after_a_read(harness: DatastoreHarness) -> None:
    """Creations, changes and deletions, each once and in order; nothing of other kinds, nothing from before."""
    key, other = harness.samples.keys[:2]
    foreign = harness.samples.keys[-1]
    _create(harness, other)
    start = dict(harness.read(List(key.kind)).revisions)
    created = _create(harness, key)
    _create(harness, foreign)
    updated = harness.commit(Update(key, harness.samples.value(key, 1), created))[0]
    harness.commit(Delete(key, updated))
    _create(harness, key, 2)
    told = list(islice(harness.store.watch(start, deadline=harness.deadline), 4))
    values = [harness.samples.value(key, 0), harness.samples.value(key, 1), None, harness.samples.value(key, 2)]
    expect_same([(change.key, change.value) for change in told], [(key, value) for value in values], "the changes")
    expect_same([change.revision for change in told[:2]], [created, updated], "the revisions of the changes")


def a_watch_resumes_from_a_change(harness: DatastoreHarness) -> None:
    """From the revision of the last change seen, and from inside a commit of several writes too."""
    first, second, third = harness.samples.keys[:3]
    start = dict(harness.read(List(first.kind)).revisions)
    harness.commit(*(Create(key, harness.samples.value(key, 0)) for key in (first, second, third)))
    told: list[Key[object]] = []
    for _ in range(3):
        change = next(iter(harness.store.watch(start, deadline=harness.deadline)))
        told.append(change.key)
        start[change.key.kind] = change.revision
    expect_same(sorted(told, key=_path_of), [first, second, third], "the keys that three watches told of")


def a_watch_ends_by_its_deadline(harness: DatastoreHarness) -> None:
    """Without a change there is nothing to tell, and no error."""
    start = dict(harness.read(List(harness.samples.kinds[0])).revisions)
    told = list(harness.store.watch(start, deadline=Deadline.after(harness.clock, 0.25)))
    expect_same(told, [], "the changes")


def a_call_past_its_deadline_does_nothing(harness: DatastoreHarness) -> None:
    """It is ``Unavailable``, and the writes are not applied."""
    key = harness.samples.keys[0]
    passed = Deadline.after(harness.clock, 0.0)
    _expect_refused(Unavailable, lambda: harness.store.read((Get(key),), deadline=passed))
    write = Create(key, harness.samples.value(key, 0))
    _expect_refused(Unavailable, lambda: harness.store.commit((write,), deadline=passed))
    expect_same(harness.read(Get(key)).find(key), None, "what is stored")


def _create(harness: DatastoreHarness, key: Key[object], number: int = 0) -> Revision:
    return harness.commit(Create(key, harness.samples.value(key, number)))[0]


def _expect_required(harness: DatastoreHarness, requirement: Write, error: type[CommitError]) -> None:
    # An atomic store refuses the requirement and the write beside it; an ordered one does the write.
    key = harness.samples.keys[2]
    before = harness.read(Get(key)).find(key)
    write = Delete(key, before.revision) if before else Create(key, harness.samples.value(key, 0))
    if _is_atomic(harness):
        refusal = _expect_refused(error, lambda: harness.commit(write, requirement))
        expect_same((refusal.index, refusal.applied), (1, 0), "the refusal")
        expect_same(harness.read(Get(key)).find(key), before, "what the write beside the requirement left")
    else:
        harness.commit(write, requirement)


def _is_atomic(harness: DatastoreHarness) -> bool:
    return harness.store.description.atomicity is Atomicity.ATOMIC


def _path_of(key: Key[object]) -> tuple[str, ...]:
    return key.path


def _expect_refused(error: type[E], call: Callable[[], object]) -> E:
    try:
        call()
    except error as refusal:
        return refusal
    raise AssertionError(f"not refused with {error.__name__}")


def _check(example: Callable[[DatastoreHarness], None]) -> DatastoreCheck:
    @wraps(example)
    def check(
        open_store: OpenStore, *, samples: Samples = FRUIT_AND_TOOLS, make_clock: Callable[[], Clock] = ManualClock
    ) -> None:
        with open_harness(open_store, samples, make_clock) as bench:
            example(bench)

    return check


DATASTORE_CHECKS: Final[tuple[DatastoreCheck, ...]] = tuple(
    map(
        _check,
        (
            an_absent_key_is_an_answer,
            a_created_value_is_read_back,
            creating_twice_is_refused,
            a_key_created_again_has_a_new_revision,
            an_absent_key_cannot_be_changed,
            an_outdated_revision_is_refused,
            one_of_many_writers_wins,
            a_failed_commit_applies_nothing_or_a_prefix,
            a_write_refers_to_an_earlier_one,
            a_requirement_holds_or_refuses,
            a_kind_is_required_unchanged,
            a_list_is_in_path_order,
            pages_show_one_revision,
            a_snapshot_has_a_revision_for_each_kind,
            a_watch_yields_changes_after_a_read,
            a_watch_resumes_from_a_change,
            a_watch_ends_by_its_deadline,
            a_call_past_its_deadline_does_nothing,
        ),
    )
)
"""Every example, in the order to make them pass in."""
