"""The checks of two handles on one medium, called from several threads: what a store without a lock fails.

They run on the machine's clock. Every call that a wrong store may never return from is made in a thread and waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from attrs import define, field

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, HasIdentity
from netplug_core.errors import Unavailable
from netplug_core.records import (
    AlreadyExists,
    CommitError,
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    OutcomeUnknown,
    Revision,
    Update,
    WatchEvent,
    Write,
)
from netplug_core.testing.assertions import describe, expect, expect_refused, expect_same
from netplug_core.testing.clock import RealClock
from netplug_core.testing.concurrency import CallOutcome, run_in_thread, run_together
from netplug_core.testing.datastore_harness import DatastoreHarness

__all__ = ["SHARING_CHECKS"]

R = TypeVar("R")

_ROUNDS = 4
_THREADS = 4
_SHORT_S = 0.3
_GRACE_S = 3.0
_HELD_GRACE_S = 2.0
_LIVE_S = 15.0
_LOOK_S = 0.01
_TOO_MANY = 20


def a_commit_is_seen_by_another_handle(harness: DatastoreHarness) -> None:
    """At once, in reads, conditions and watches."""
    key = harness.samples.keys[0]
    before = harness.other.read((Get(key), List(key.kind)), deadline=harness.deadline)
    expect_same(before.find(key), None, "what the other handle reads before the first commit")
    start = dict(before.revisions)
    created = harness.create(key)
    found = harness.other.read((Get(key), List(key.kind)), deadline=harness.deadline).find(key)
    expect_same(found, harness.find(key), "what the other handle reads after a commit")
    update = Update(key, harness.samples.value(key, 1), created)
    harness.other.commit((update,), deadline=harness.deadline)
    expect_refused(
        Conflict, lambda: harness.commit(update), what="an update from the revision that the other handle has updated"
    )
    events = _watch(harness, harness.other, start, 2)
    values = [harness.samples.value(key, number) for number in range(2)]
    expect_same([event.value for event in events], values, "the events of the other handle's watch")


def a_watch_shows_what_another_handle_writes(harness: DatastoreHarness) -> None:
    """A watch that has begun gets the later changes, and holds up no call while its next event is not fetched."""
    first, second = harness.samples.keys[:2]
    start = dict(harness.read(List(first.kind)).revisions)
    events = harness.other.watch(start, deadline=harness.deadline)
    harness.create(first)
    event = _returned(harness, lambda: next(iter(events), None), "a watch by another handle")
    expect_same(event and event.key, first, "the event of a change by another handle")
    for store in (harness.store, harness.other):
        read = partial(store.read, (Get(first),), deadline=harness.deadline)
        _returned(harness, read, "a read beside a watch that waits")
    create = partial(harness.create, second)
    _returned(harness, create, "a commit beside a watch that waits")


def a_watch_that_waits_shows_each_change_once(harness: DatastoreHarness) -> None:
    """Changes that are made while a watch waits arrive one by one, in order, and no event is repeated later."""
    key, last = harness.samples.keys[:2]
    watch = _LiveWatch(harness.other, dict(harness.read(List(key.kind)).revisions), harness.deadline_in(_LIVE_S))
    run_in_thread(partial(watch.run, last), limit_s=_SHORT_S)  # it has looked, and found nothing
    expect_same(watch.events, [], "the events of a watch during which nothing has changed yet")
    created = harness.create(key)
    watch.expect_next(key, harness.samples.value(key, 0), "create")
    updated = harness.commit(Update(key, harness.samples.value(key, 1), created))[0]
    watch.expect_next(key, harness.samples.value(key, 1), "update")
    harness.commit(Delete(key, updated))
    watch.expect_next(key, None, "delete")
    harness.create(last)
    watch.expect_next(last, harness.samples.value(last, 0), "create of another key")


def one_of_many_threads_creates(harness: DatastoreHarness) -> None:
    """Of several creates of one key at the same moment one succeeds."""
    keys = [key for key in harness.samples.keys if key.kind == harness.samples.kinds[0]]
    for key in keys[:_ROUNDS]:
        writes = [Create(key, harness.samples.value(key, number)) for number in range(_THREADS)]
        _expect_one_winner(harness, key, writes, AlreadyExists, "created it")


def one_of_many_threads_updates(harness: DatastoreHarness) -> None:
    """Of several updates from one revision at the same moment one succeeds: no update is lost."""
    key = harness.samples.keys[0]
    revision = harness.create(key)
    for turn in range(_ROUNDS):
        values = [harness.samples.value(key, 1 + turn * _THREADS + number) for number in range(_THREADS)]
        writes = [Update(key, value, revision) for value in values]
        revision = _expect_one_winner(harness, key, writes, Conflict, "updated it from one revision")


def threads_with_keys_of_their_own_do_not_disturb_each_other(harness: DatastoreHarness) -> None:
    """No commit is lost, no condition of another key is broken, and a watch shows each change exactly once."""
    keys = harness.samples.keys[:_THREADS]
    start = dict(harness.read(*(List(kind) for kind in harness.samples.kinds)).revisions)
    stores = _handles(harness, len(keys))
    outcomes = run_together(
        [partial(_write_often, harness, store, key) for store, key in zip(stores, keys, strict=True)]
    )
    for key, outcome in zip(keys, outcomes, strict=True):
        expect(outcome.has_ended, f"the writes to {key} do not return while other threads write")
        if outcome.error is not None:
            raise AssertionError(f"only one thread writes {key}, and yet: {outcome.error!r}") from outcome.error
        record = harness.find(key)
        expect_same(
            record and (record.value, record.revision),
            (harness.samples.value(key, _ROUNDS), outcome.result[-1] if outcome.result else None),
            f"what is left of the writes to {key} while others wrote other keys",
        )
    events = _watch(harness, harness.store, start, len(keys) * (_ROUNDS + 1))
    for key in keys:
        values = [event.value for event in events if event.key == key]
        expected = [harness.samples.value(key, number) for number in range(_ROUNDS + 1)]
        expect_same(values, expected, f"the events of {key} while threads wrote other keys")


def readers_see_a_commit_whole(harness: DatastoreHarness) -> None:
    """In an atomic store, two values that are always written together are always read together."""
    if not harness.is_atomic:
        return
    pair = harness.samples.keys[:2]
    values = [[harness.samples.value(key, number) for key in pair] for number in range(_ROUNDS + 1)]
    revisions = harness.commit(*(Create(key, value) for key, value in zip(pair, values[0], strict=True)))

    def write() -> None:
        made = revisions
        for both in values[1:]:
            writes = [Update(*each) for each in zip(pair, both, made, strict=True)]
            made = harness.store.commit(writes, deadline=harness.deadline)

    def read() -> list[list[object]]:
        found: list[list[object]] = []
        while not found or (len(found) < 100 * _ROUNDS and found[-1] != values[-1]):
            snapshot = harness.other.read([Get(key) for key in pair], deadline=harness.deadline)
            found.append([record and record.value for record in map(snapshot.find, pair)])
        return found

    writer, *readers = run_together([write, read, read])
    writer.get()
    for reader in readers:
        for both in reader.get() or ():
            expect(both in values, f"a read shows a part of a commit: {both}, which was never written together")


def a_call_ends_by_its_deadline_while_another_holds_the_store(harness: DatastoreHarness) -> None:
    """The call is ``Unavailable``, not later than its deadline, and nothing of it is applied afterwards."""
    if harness.medium.hold is None:
        return
    key = harness.samples.keys[0]
    write = Create(key, harness.samples.value(key, 0))
    with harness.medium.hold():
        commit = _outcome_while_held(
            harness, lambda deadline: harness.store.commit((write,), deadline=deadline), "a commit"
        )
        read = _outcome_while_held(
            harness, lambda deadline: harness.store.read((Get(key),), deadline=deadline), "a read"
        )
    expect(
        isinstance(commit.error, Unavailable),
        f"a commit while another holder has the store: {commit.error or commit.result!r}, expected Unavailable",
    )
    expect(
        read.error is None or (isinstance(read.error, Unavailable) and not isinstance(read.error, OutcomeUnknown)),
        f"a read while another holder has the store: {read.error!r}, expected an answer or Unavailable",
    )
    if not isinstance(commit.error, OutcomeUnknown):
        expect_same(harness.find(key), None, "what a commit that was Unavailable has stored")


@define
class _LiveWatch:
    """A watch that runs in a thread of its own, and the events that it has yielded so far."""

    store: Datastore
    start: Mapping[Kind[object], Revision]
    deadline: Deadline
    events: list[tuple[Key[object], object]] = field(factory=list)
    expected: list[tuple[Key[object], object]] = field(factory=list)
    error: BaseException | None = None
    has_ended: bool = False

    def run(self, last: Key[object]) -> None:
        """Collect events up to that of the last key, or many more than there can be."""
        try:
            for event in self.store.watch(self.start, deadline=self.deadline):
                self.events.append((event.key, event.value))
                if event.key == last or len(self.events) == _TOO_MANY:
                    break
        except BaseException as error:  # noqa: BLE001  # the suite reports it in its own thread
            self.error = error
        self.has_ended = True

    def expect_next(self, key: Key[object], value: object, change: str) -> None:
        """Fail unless the watch shows this change next, and nothing else for a while."""
        self.expected.append((key, value))
        clock = RealClock()
        wait = Deadline.after(clock, _GRACE_S)
        while len(self.events) < len(self.expected) and not self.has_ended and not wait.has_passed:
            clock.sleep(_LOOK_S)
        clock.sleep(_SHORT_S)  # time for events that are repeated
        if self.error is not None:
            raise AssertionError(f"a watch that waited for changes failed: {self.error!r}") from self.error
        is_missing = len(self.events) < len(self.expected)
        expect(
            not (is_missing and self.has_ended),
            f"a watch that waited for changes ended before its deadline, and did not show the {change}",
        )
        expect(not is_missing, f"a watch that waits has not shown the {change} {_GRACE_S:g} s after the commit")
        expect_same(self.events, self.expected, f"the events of a watch that waited, after the {change}")


def _expect_one_winner(
    harness: DatastoreHarness, key: Key[object], writes: Sequence[Write], refusal: type[CommitError], done: str
) -> Revision:
    stores = _handles(harness, len(writes))
    calls = [
        partial(store.commit, (write,), deadline=harness.deadline) for store, write in zip(stores, writes, strict=True)
    ]
    outcomes = run_together(calls)
    expect(all(outcome.has_ended for outcome in outcomes), f"commits to {key} from several threads do not return")
    winners = [number for number, outcome in enumerate(outcomes) if outcome.error is None]
    expect(
        len(winners) == 1,
        f"{len(winners)} of {len(writes)} threads {done}: {key}; a commit must judge and write under one lock, "
        f"which all threads and handles share ({describe([outcome.error for outcome in outcomes])})",
    )
    for outcome in outcomes:
        if outcome.error is not None:
            expect(
                isinstance(outcome.error, refusal),
                f"a thread that lost the race for {key} got {outcome.error!r}, expected {refusal.__name__}",
            )
    record = harness.find(key)
    winner = writes[winners[0]]
    value = winner.value if isinstance(winner, Create | Update) else None
    expect_same(record and record.value, value, f"the value of {key} after a race: not that of the winner")
    revisions = list(outcomes[winners[0]].result or ())
    expect(
        len(revisions) == 1, f"the commit that won the race for {key} returns {len(revisions)} revisions, expected 1"
    )
    revision = revisions[0]
    expect_same(record and record.revision, revision, f"the revision of {key} after a race: not that of the winner")
    return revision


def _write_often(harness: DatastoreHarness, store: Datastore, key: Key[object]) -> tuple[Revision, ...]:
    revisions = store.commit((Create(key, harness.samples.value(key, 0)),), deadline=harness.deadline)
    for number in range(1, _ROUNDS + 1):
        update = Update(key, harness.samples.value(key, number), revisions[-1])
        revisions += store.commit((update,), deadline=harness.deadline)
    return revisions


def _handles(harness: DatastoreHarness, count: int) -> list[Datastore]:
    return [(harness.store, harness.other)[number % 2] for number in range(count)]


def _watch(
    harness: DatastoreHarness, store: Datastore, start: Mapping[Kind[object], Revision], count: int
) -> list[WatchEvent[object]]:
    return list(islice(store.watch(start, deadline=harness.deadline), count))


def _returned(harness: DatastoreHarness, call: Callable[[], R], what: str) -> R | None:
    outcome = run_in_thread(call, limit_s=harness.deadline.remaining_s + _GRACE_S)
    expect(outcome.has_ended, f"{what} has not returned {_GRACE_S:g} s after its deadline")
    if outcome.error is not None:
        raise AssertionError(f"{what} failed: {outcome.error!r}") from outcome.error
    return outcome.result


def _outcome_while_held(harness: DatastoreHarness, call: Callable[[Deadline], R], what: str) -> CallOutcome[R]:
    until = harness.deadline_in(_SHORT_S)
    outcome = run_in_thread(lambda: call(until), limit_s=_SHORT_S + _HELD_GRACE_S)
    expect(
        outcome.has_ended,
        f"{what} with a deadline of {_SHORT_S:g} s has not returned after {_SHORT_S + _HELD_GRACE_S:g} s "
        "while another holder has the store: waiting for a lock has to end by the deadline",
    )
    return outcome


def an_identity_is_the_same_in_every_handle(harness: DatastoreHarness) -> None:
    """A store that has an identity gives the same one in each handle and after each opening, also to many at once."""
    if not isinstance(harness.store, HasIdentity):
        return
    calls = [
        partial(store.find_identity, deadline=harness.deadline)
        for store in _handles(harness, _THREADS)
        if isinstance(store, HasIdentity)
    ]
    found = [outcome.get() for outcome in run_together(calls)]
    harness.create(harness.samples.keys[0])
    with harness.medium.open_handle() as another:
        expect(isinstance(another, HasIdentity), "another handle has no identity")
        if isinstance(another, HasIdentity):
            found.append(another.find_identity(deadline=harness.deadline))
    expect(len(set(found)) == 1, f"one store has several identities: {sorted(set(map(str, found)))}")


SHARING_CHECKS: Final[tuple[Callable[[DatastoreHarness], None], ...]] = (
    a_commit_is_seen_by_another_handle,
    an_identity_is_the_same_in_every_handle,
    a_watch_shows_what_another_handle_writes,
    a_watch_that_waits_shows_each_change_once,
    one_of_many_threads_creates,
    one_of_many_threads_updates,
    a_call_ends_by_its_deadline_while_another_holds_the_store,
    threads_with_keys_of_their_own_do_not_disturb_each_other,
    readers_see_a_commit_whole,
)
"""In the order in which an author makes them pass."""
