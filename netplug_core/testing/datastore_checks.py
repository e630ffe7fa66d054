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
from netplug_core.datastore.interface import Atomicity
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
from netplug_core.testing.bench import FRUIT_AND_TOOLS, Bench, Make, Samples, expect, expect_same, opened
from netplug_core.testing.clock import ManualClock

__all__ = ["DATASTORE_CHECKS", "DatastoreCheck"]

E = TypeVar("E", bound=NetplugError)


class DatastoreCheck(Protocol):
    """One example; raises ``AssertionError`` where the store does not do as the text says."""

    __name__: str

    def __call__(
        self, make: Make, *, samples: Samples = FRUIT_AND_TOOLS, clock: Callable[[], Clock] = ManualClock
    ) -> None:
        """Open a store, try it, close it."""
        ...


def an_absent_key_is_an_answer(bench: Bench) -> None:
    """Reading a key at which nothing is stored finds None, and reading nothing works."""
    key = bench.samples.keys[0]
    expect_same(bench.read(Get(key)).find(key), None, "what is stored at a fresh key")
    expect_same(dict(bench.read().answers), {}, "the answers to no query")
    expect_same(bench.commit(), (), "the revisions of no write")


def a_created_value_is_read_back(bench: Bench) -> None:
    """Key, value and the revision that the commit gave."""
    key = bench.samples.keys[0]
    revision = _create(bench, key)
    record = bench.read(Get(key)).find(key)
    expect_same(record, Record(key, bench.samples.value(key, 0), revision), "the record just created")


def creating_twice_is_refused(bench: Bench) -> None:
    """The second create says what is there, and changes nothing."""
    key = bench.samples.keys[0]
    _create(bench, key)
    stored = bench.read(Get(key)).find(key)
    error = _refused(AlreadyExists, lambda: _create(bench, key, 1))
    expect_same((error.subject, error.index, error.current, error.applied), (key, 0, stored, 0), "the refusal")
    expect_same(bench.read(Get(key)).find(key), stored, "the record")


def a_key_created_again_has_a_new_revision(bench: Bench) -> None:
    """A revision is never given twice to one key, so nobody mistakes the new record for the old one."""
    key = bench.samples.keys[0]
    first = _create(bench, key)
    bench.commit(Delete(key, first))
    expect_same(bench.read(Get(key)).find(key), None, "what is stored after the delete")
    second = _create(bench, key)
    expect(second != first, "the record created again has the revision of the one that was deleted")
    _refused(Conflict, lambda: bench.commit(Delete(key, first)))


def an_absent_key_cannot_be_changed(bench: Bench) -> None:
    """Update and delete of nothing are ``NotFound``, whatever revision they name."""
    key, other = bench.samples.keys[:2]
    revision = _create(bench, other)
    writes: tuple[Write, ...] = (Update(key, bench.samples.value(key, 1), revision), Delete(key, revision))
    for write in writes:
        error = _refused(NotFound, partial(bench.commit, write))
        expect_same((error.subject, error.index, error.current, error.applied), (key, 0, None, 0), "the refusal")


def an_outdated_revision_is_refused(bench: Bench) -> None:
    """Update and delete with an older revision are a ``Conflict`` that carries the present record."""
    key = bench.samples.keys[0]
    first = _create(bench, key)
    bench.commit(Update(key, bench.samples.value(key, 1), first))
    stored = bench.read(Get(key)).find(key)
    writes: tuple[Write, ...] = (Update(key, bench.samples.value(key, 2), first), Delete(key, first))
    for write in writes:
        error = _refused(Conflict, partial(bench.commit, write))
        expect_same((error.subject, error.index, error.current, error.applied), (key, 0, stored, 0), "the refusal")
    expect_same(bench.read(Get(key)).find(key), stored, "the record")


def one_of_many_writers_wins(bench: Bench) -> None:
    """Of several updates with one revision the first succeeds; the others change nothing."""
    key = bench.samples.keys[0]
    revision = _create(bench, key)
    bench.commit(Update(key, bench.samples.value(key, 1), revision))
    for number in range(2, 6):
        late = Update(key, bench.samples.value(key, number), revision)
        _refused(Conflict, partial(bench.commit, late))
    record = bench.read(Get(key)).find(key)
    expect_same(record and record.value, bench.samples.value(key, 1), "the value that the first writer stored")


def a_failing_commit_leaves_nothing_or_a_prefix(bench: Bench) -> None:
    """Nothing in an atomic store; in an ordered one the writes before the failing one, as the error says."""
    first, second, third = bench.samples.keys[:3]
    _create(bench, second)
    writes = [Create(key, bench.samples.value(key, 1)) for key in (first, second, third)]
    error = _refused(AlreadyExists, lambda: bench.commit(*writes))
    prefix = 0 if _is_atomic(bench) else 1
    expect_same((error.subject, error.index, error.applied), (second, 1, prefix), "the refusal")
    snapshot = bench.read(Get(first), Get(third))
    expect_same(snapshot.find(first) is not None, prefix == 1, "whether the write before is applied")
    expect_same(snapshot.find(third), None, "what the write after has stored")


def a_write_goes_on_from_an_earlier_one(bench: Bench) -> None:
    """``Written`` stands for the revision that an earlier write of the list makes."""
    claim, block = bench.samples.keys[:2]
    values = [bench.samples.value(claim, number) for number in range(4)]
    *_, last = bench.commit(
        Create(claim, values[0]),
        Create(block, bench.samples.value(block, 0)),
        Update(claim, values[1], Written(0)),
    )
    record = bench.read(Get(claim)).find(claim)
    expect_same(record, Record(claim, values[1], last), "the record that was created and updated")
    bench.commit(Update(claim, values[2], last), Delete(claim, Written(0)))
    expect_same(bench.read(Get(claim)).find(claim), None, "the record that was updated and deleted")
    bench.commit(Create(claim, values[3]), Delete(claim, Written(0)))
    expect_same(bench.read(Get(claim)).find(claim), None, "the record that was created and deleted")


def a_requirement_holds_or_refuses(bench: Bench) -> None:
    """A commit is applied only if a key is as required; an ordered store does not look."""
    key, other = bench.samples.keys[:2]
    revision = _create(bench, key)
    made = bench.commit(Require(key, revision), Require(other, ABSENT))
    expect_same(made, (revision, ""), "the revisions of two requirements")
    bench.commit(Update(key, bench.samples.value(key, 1), revision))
    _expect_required(bench, Require(key, revision), Conflict)
    _expect_required(bench, Require(key, ABSENT), Conflict)
    _expect_required(bench, Require(other, revision), NotFound)


def a_kind_is_required_unchanged(bench: Bench) -> None:
    """Creations and changes of the kind refuse the commit; deletions and other kinds do not."""
    key, other = bench.samples.keys[:2]
    foreign = bench.samples.keys[-1]
    before = bench.read(List(key.kind)).revision(key.kind)
    revision = _create(bench, key)
    _expect_required(bench, RequireUnchanged(key.kind, before), Conflict)
    created = bench.read(List(key.kind)).revision(key.kind)
    expect_same(bench.commit(RequireUnchanged(key.kind, created)), (created,), "the revision of the requirement")
    spare = _create(bench, other)
    listed = bench.read(List(key.kind)).revision(key.kind)
    bench.commit(Delete(other, spare))
    _create(bench, foreign)
    bench.commit(RequireUnchanged(key.kind, listed))
    bench.commit(Update(key, bench.samples.value(key, 1), revision))
    _expect_required(bench, RequireUnchanged(key.kind, listed), Conflict)


def a_list_is_in_path_order(bench: Bench) -> None:
    """Lists show their kind, or the part of it that a path begins with, in the order of the paths."""
    samples = bench.samples
    for key in reversed(samples.keys):
        _create(bench, key)
    snapshot = bench.read(*samples.prefixes)
    for query in samples.prefixes:
        inside = [key for key in samples.keys if key.kind == query.kind]
        asked = [key for key in inside if key.path[: len(query.within)] == query.within]
        expect_same([record.key for record in snapshot.list(query)], sorted(asked, key=_path), str(query))


def pages_show_one_revision(bench: Bench) -> None:
    """Whatever is written between the pages of a list; a store may answer in one page."""
    kind = bench.samples.kinds[0]
    keys = [key for key in bench.samples.keys if key.kind == kind]
    for key in keys[1:]:
        _create(bench, key)
    expected = bench.read(List(kind)).list(List(kind))
    page = List(kind, limit=1)
    snapshot = bench.read(page)
    found = [*snapshot.list(page)]
    _create(bench, keys[0])
    bench.commit(Delete(expected[-1].key, expected[-1].revision))
    while snapshot.after(page):
        page = List(kind, limit=1, after=snapshot.after(page))
        snapshot = bench.read(page)
        found += snapshot.list(page)
    expect_same(tuple(found), expected, "the pages of the list")


def a_snapshot_has_a_revision_for_each_kind(bench: Bench) -> None:
    """Also for kinds of which nothing is stored."""
    first, last = bench.samples.keys[0], bench.samples.keys[-1]
    snapshot = bench.read(Get(first), List(last.kind))
    expect_same(set(snapshot.revisions), {first.kind, last.kind}, "the kinds that have a revision")


def a_watch_tells_what_came_after_a_read(bench: Bench) -> None:
    """Creations, changes and deletions, each once and in order; nothing of other kinds, nothing from before."""
    key, other = bench.samples.keys[:2]
    foreign = bench.samples.keys[-1]
    _create(bench, other)
    start = dict(bench.read(List(key.kind)).revisions)
    created = _create(bench, key)
    _create(bench, foreign)
    updated = bench.commit(Update(key, bench.samples.value(key, 1), created))[0]
    bench.commit(Delete(key, updated))
    _create(bench, key, 2)
    told = list(islice(bench.store.watch(start, deadline=bench.deadline), 4))
    values = [bench.samples.value(key, 0), bench.samples.value(key, 1), None, bench.samples.value(key, 2)]
    expect_same([(change.key, change.value) for change in told], [(key, value) for value in values], "the changes")
    expect_same([change.revision for change in told[:2]], [created, updated], "the revisions of the changes")


def a_watch_goes_on_from_a_change(bench: Bench) -> None:
    """From the revision of the last change seen, and from inside a commit of several writes too."""
    first, second, third = bench.samples.keys[:3]
    start = dict(bench.read(List(first.kind)).revisions)
    bench.commit(*(Create(key, bench.samples.value(key, 0)) for key in (first, second, third)))
    told: list[Key[object]] = []
    for _ in range(3):
        change = next(iter(bench.store.watch(start, deadline=bench.deadline)))
        told.append(change.key)
        start[change.key.kind] = change.revision
    expect_same(sorted(told, key=_path), [first, second, third], "the keys that three watches told of")


def a_watch_ends_by_its_deadline(bench: Bench) -> None:
    """Without a change there is nothing to tell, and no error."""
    start = dict(bench.read(List(bench.samples.kinds[0])).revisions)
    told = list(bench.store.watch(start, deadline=Deadline.after(bench.clock, 0.25)))
    expect_same(told, [], "the changes")


def a_call_past_its_deadline_does_nothing(bench: Bench) -> None:
    """It is ``Unavailable``, and the writes are not applied."""
    key = bench.samples.keys[0]
    passed = Deadline.after(bench.clock, 0.0)
    _refused(Unavailable, lambda: bench.store.read((Get(key),), deadline=passed))
    write = Create(key, bench.samples.value(key, 0))
    _refused(Unavailable, lambda: bench.store.commit((write,), deadline=passed))
    expect_same(bench.read(Get(key)).find(key), None, "what is stored")


def _create(bench: Bench, key: Key[object], number: int = 0) -> Revision:
    return bench.commit(Create(key, bench.samples.value(key, number)))[0]


def _expect_required(bench: Bench, requirement: Write, error: type[CommitError]) -> None:
    # An atomic store refuses the requirement and the write beside it; an ordered one does the write.
    key = bench.samples.keys[2]
    before = bench.read(Get(key)).find(key)
    write = Delete(key, before.revision) if before else Create(key, bench.samples.value(key, 0))
    if _is_atomic(bench):
        refusal = _refused(error, lambda: bench.commit(write, requirement))
        expect_same((refusal.index, refusal.applied), (1, 0), "the refusal")
        expect_same(bench.read(Get(key)).find(key), before, "what the write beside the requirement left")
    else:
        bench.commit(write, requirement)


def _is_atomic(bench: Bench) -> bool:
    return bench.store.description.atomicity is Atomicity.ATOMIC


def _path(key: Key[object]) -> tuple[str, ...]:
    return key.path


def _refused(error: type[E], call: Callable[[], object]) -> E:
    try:
        call()
    except error as refusal:
        return refusal
    raise AssertionError(f"not refused with {error.__name__}")


def _check(example: Callable[[Bench], None]) -> DatastoreCheck:
    @wraps(example)
    def check(make: Make, *, samples: Samples = FRUIT_AND_TOOLS, clock: Callable[[], Clock] = ManualClock) -> None:
        with opened(make, samples, clock) as bench:
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
            a_failing_commit_leaves_nothing_or_a_prefix,
            a_write_goes_on_from_an_earlier_one,
            a_requirement_holds_or_refuses,
            a_kind_is_required_unchanged,
            a_list_is_in_path_order,
            pages_show_one_revision,
            a_snapshot_has_a_revision_for_each_kind,
            a_watch_tells_what_came_after_a_read,
            a_watch_goes_on_from_a_change,
            a_watch_ends_by_its_deadline,
            a_call_past_its_deadline_does_nothing,
        ),
    )
)
"""Every example, in the order to make them pass in."""
