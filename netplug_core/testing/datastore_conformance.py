"""A rule-based machine that checks a datastore against a dictionary, for our backends and a stranger's.

    TestStore = datastore_conformance(lambda clock: my_store(clock, codec=SAMPLE_CODEC)).TestCase

is a whole test module. Hypothesis draws commits (with fresh and with outdated revisions, with requirements and
``Written``), pages and watches; after each of them every key and every list is compared. ``datastore_checks`` has the
same text as plain examples, which are easier to read when a new backend fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice

from attrs import define, field, frozen
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from netplug_core.clock import Clock
from netplug_core.datastore.protocol import Atomicity
from netplug_core.records import (
    ABSENT,
    AlreadyExists,
    CommitError,
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    NotFound,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Update,
    WatchEvent,
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

__all__ = ["datastore_conformance"]


def datastore_conformance(
    open_store: OpenStore, *, samples: Samples = FRUIT_AND_TOOLS, make_clock: Callable[[], Clock] = ManualClock
) -> type[RuleBasedStateMachine]:
    """A state machine that holds the backend to the text of ``Datastore``; its ``TestCase`` is what a test runs.

    A backend that waits for a server in real time brings a real ``clock``.
    """

    class DatastoreConformance(_Machine):
        def open_harness(self) -> AbstractContextManager[DatastoreHarness]:
            return open_harness(open_store, samples, make_clock)

    return DatastoreConformance


@frozen
class _ReadPoint:
    # A read: how many changes there had been, and what the store called that moment.
    event_count: int
    revisions: dict[Kind[object], Revision]


@frozen
class _ModelEvent:
    key: Key[object]
    value: object | None


@define
class _Model:
    # What the store should hold and have told. Revisions are the store's, None where it has not said yet;
    # ``written_at`` counts changes.
    is_atomic: bool
    values: dict[Key[object], object] = field(factory=dict)
    revisions: dict[Key[object], Revision | None] = field(factory=dict)
    written_at: dict[Key[object], int] = field(factory=dict)
    events: list[_ModelEvent] = field(factory=list)

    def apply(self, writes: Sequence[Write]) -> None:
        if self.is_atomic:
            self._apply_folded(writes)
            return
        for write in writes:
            if isinstance(write, Create | Update):
                self._change(write.key, write.value)
            elif isinstance(write, Delete):
                self._change(write.key, None)

    def _apply_folded(self, writes: Sequence[Write]) -> None:
        final: dict[Key[object], object | None] = {}
        for write in writes:
            if isinstance(write, Create | Update | Delete):
                final.pop(write.key, None)
                final[write.key] = None if isinstance(write, Delete) else write.value
        for key, value in final.items():
            if value is not None or key in self.values:
                self._change(key, value)

    def _change(self, key: Key[object], value: object | None) -> None:
        self.events.append(_ModelEvent(key, value))
        self.values.pop(key, None)
        self.revisions.pop(key, None)
        self.written_at.pop(key, None)
        if value is not None:
            self.values[key] = value
            self.revisions[key] = None
            self.written_at[key] = len(self.events)

    def find_refusal(self, write: Write) -> type[CommitError] | None:
        # What a write by itself must be refused with, judged on what is stored now.
        if isinstance(write, RequireUnchanged) or (isinstance(write, Require) and not self.is_atomic):
            return None
        if isinstance(write, Create):
            return AlreadyExists if write.key in self.values else None
        if isinstance(write.revision, Written) or self.revisions.get(write.key, ABSENT) == write.revision:
            return None
        return Conflict if write.key in self.values else NotFound

    def is_kind_changed(self, kind: Kind[object], since: int) -> bool:
        return any(key.kind == kind and at > since for key, at in self.written_at.items())

    def may_kind_be_changed(self, kind: Kind[object], since: int) -> bool:
        # What was created and deleted again: a store may remember it or not.
        return any(event.key.kind == kind and event.value is not None for event in self.events[since:])


class _Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self.harness = self._stack.enter_context(self.open_harness())
        self.samples = self.harness.samples
        self.model = _Model(self.harness.store.description.atomicity is Atomicity.ATOMIC)
        self.read_points: list[_ReadPoint] = []
        self.event_counts: dict[tuple[Kind[object], Revision], int] = {}
        self.past_revisions: dict[Key[object], list[Revision]] = {key: [] for key in self.samples.keys}
        self.values_made = 0

    def open_harness(self) -> AbstractContextManager[DatastoreHarness]:
        """An empty store."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Close the store."""
        self._stack.close()

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Conditional writes are applied or refused as the text says."""
        self._commit(self._draw_writes(data))

    @rule(data=st.data())
    def list_in_pages(self, data: st.DataObject) -> None:
        """The pages of a list show the moment of the first one, whatever is written between them."""
        whole = data.draw(st.sampled_from(self.samples.prefixes))
        limit = data.draw(st.integers(1, 3))
        expected = self._expected(whole)
        found: list[Record[object]] = []
        after = ""
        while True:
            page = List(whole.kind, whole.within, limit, after)
            snapshot = self.harness.read(page)
            found += snapshot.list(page)
            after = snapshot.after(page)
            if not after:
                break
            expect(len(snapshot.list(page)) <= limit, "a page that is not the last one is longer than its limit")
            if data.draw(st.booleans()):
                self._commit(self._draw_writes(data))
                self._check_state()
        expect_same(found, expected, f"the pages of {whole}")

    @rule(data=st.data())
    def watch(self, data: st.DataObject) -> None:
        """A watch tells every change since a read exactly once, and another one goes on where it stopped."""
        mark = data.draw(st.sampled_from(self.read_points))
        kinds = data.draw(st.sets(st.sampled_from(self.samples.kinds), min_size=1))
        start = {kind: mark.revisions[kind] for kind in kinds}
        expected = [event for event in self.model.events[mark.event_count :] if event.key.kind in kinds]
        changes = self._watch_changes(start, len(expected))
        expect_same(_values_by_key(changes), _values_by_key(expected), f"what a watch from {start} told")
        stop = data.draw(st.integers(0, len(changes)))
        for change in changes[:stop]:
            start[change.key.kind] = change.revision
        rest = self._watch_changes(start, len(changes) - stop)
        expect_same(
            _values_by_key(rest), _values_by_key(changes[stop:]), f"what the watch that goes on from {start} told"
        )

    @invariant()
    def state_matches_model(self) -> None:
        """Every key and every list is what the dictionary says; a value that was written has a new revision."""
        self._check_state()

    def _check_state(self) -> None:
        keys = self.samples.keys
        lists = self.samples.prefixes
        snapshot = self.harness.read(*(Get(key) for key in keys), *lists)
        for key in keys:
            self._check_record(key, snapshot.find(key))
        for query in lists:
            expect_same(list(snapshot.list(query)), self._expected(query), str(query))
            expect(not snapshot.after(query), f"{query} has no limit, and yet there is a next page")
        time = len(self.model.events)
        self.read_points.append(_ReadPoint(time, dict(snapshot.revisions)))
        self.event_counts.update(((kind, revision), time) for kind, revision in snapshot.revisions.items())

    def _check_record(self, key: Key[object], record: Record[object] | None) -> None:
        if record is None:
            expect(key not in self.model.values, f"{key} is gone")
            return
        expect_same((record.key, record.value), (key, self.model.values.get(key)), f"the record of {key}")
        if self.model.revisions[key] is None:
            expect(record.revision not in self.past_revisions[key], f"{key} has a revision that it had before")
            self.model.revisions[key] = record.revision
        expect_same(record.revision, self.model.revisions[key], f"the revision of {key}")
        if record.revision not in self.past_revisions[key]:
            self.past_revisions[key].append(record.revision)

    def _expected(self, query: List[object]) -> list[Record[object]]:
        keys = (key for key in self.samples.keys if key.kind == query.kind)
        inside = (key for key in keys if key.path[: len(query.within)] == query.within)
        return [
            Record(key, self.model.values[key], self.model.revisions[key] or Revision(""))
            for key in inside
            if key in self.model.values
        ]

    def _watch_changes(self, start: dict[Kind[object], Revision], count: int) -> list[WatchEvent[object]]:
        return list(islice(self.harness.store.watch(start, deadline=self.harness.deadline), count))

    # --- commits ---------------------------------------------------------------------------------------------------

    def _commit(self, writes: Sequence[Write]) -> None:
        problems, doubtful = self._expected_refusals(writes)
        try:
            revisions = self.harness.commit(*writes)
        except CommitError as error:
            self._check_refusal(writes, problems, doubtful, error)
            return
        expect(not problems, f"the commit {writes} went through in spite of {problems}")
        expect_same(len(revisions), len(writes), "the number of revisions that a commit answered")
        self.model.apply(writes)
        for write, revision in zip(writes, revisions, strict=True):
            if isinstance(write, Require | RequireUnchanged):
                expect_same(revision, "" if write.revision is ABSENT else write.revision, f"the answer to {write}")
            elif write.key in self.model.values:
                expect(revision not in self.past_revisions[write.key], f"{write} made a revision that there was before")
                self.model.revisions[write.key] = revision

    def _expected_refusals(self, writes: Sequence[Write]) -> tuple[dict[int, type[CommitError]], set[int]]:
        # The writes that must be refused, and with what; and those that a store may refuse or not.
        problems: dict[int, type[CommitError]] = {}
        doubtful: set[int] = set()
        for index, write in enumerate(writes):
            problem = self.model.find_refusal(write)
            if isinstance(write, RequireUnchanged) and self.model.is_atomic:
                since = self.event_counts[write.kind, write.revision]
                problem = Conflict if self.model.is_kind_changed(write.kind, since) else None
                if self.model.may_kind_be_changed(write.kind, since):
                    doubtful.add(index)
            if problem:
                problems[index] = problem
        return problems, doubtful

    def _check_refusal(
        self,
        writes: Sequence[Write],
        problems: dict[int, type[CommitError]],
        optional: set[int],
        error: CommitError,
    ) -> None:
        expect(error.index in problems or error.index in optional, f"{error!r}, but nothing is wrong with that write")
        expect_same(type(error), problems.get(error.index, Conflict), f"the refusal of {writes[error.index]}")
        expect_same(error.applied, 0 if self.model.is_atomic else min(problems), f"what of {writes} is applied")
        write = writes[error.index]
        if isinstance(write, RequireUnchanged):
            expect_same((error.subject, error.current), (write.kind, None), f"what {error!r} names")
        else:
            expect_same(error.subject, write.key, f"what {error!r} names")
            expect((error.current is None) == (write.key not in self.model.values), f"{error!r} shows another state")
        if error.current is not None:
            self._check_record(error.current.key, error.current)
        self.model.apply(writes[: error.applied])

    def _draw_writes(self, data: st.DataObject) -> list[Write]:
        writes: list[Write] = []
        latest: dict[Key[object], int] = {}
        for key in data.draw(st.lists(st.sampled_from(self.samples.keys), min_size=1, max_size=4)):
            before = latest.get(key)
            if before is None:
                write = self._draw_write(data, key)
            elif isinstance(writes[before], Delete):
                continue
            else:
                write = self._draw_next_write(data, key, Written(before))
            if isinstance(write, Create | Update | Delete):
                latest[key] = len(writes)
            writes.append(write)
        return writes

    def _draw_write(self, data: st.DataObject, key: Key[object]) -> Write:
        current = self.model.revisions.get(key)
        # Three fresh revisions for each outdated one, so that most commits go through.
        known = [*self.past_revisions[key], *([current] * 3 * len(self.past_revisions[key]) if current else ())]
        choices: list[Callable[[], Write]] = [
            lambda: Create(key, self._next_value(key)),
            lambda: Require(key, ABSENT),
            lambda: self._draw_unchanged(data, key.kind),
        ]
        if known:
            revision = data.draw(st.sampled_from(known))
            choices = [
                lambda: Update(key, self._next_value(key), revision),
                lambda: Delete(key, revision),
                lambda: Require(key, revision),
                *choices,
            ]
        return data.draw(st.sampled_from(choices))()

    def _draw_next_write(self, data: st.DataObject, key: Key[object], before: Written) -> Write:
        if data.draw(st.booleans()):
            return Delete(key, before)
        return Update(key, self._next_value(key), before)

    def _draw_unchanged(self, data: st.DataObject, kind: Kind[object]) -> Write:
        return RequireUnchanged(kind, data.draw(st.sampled_from(self.read_points)).revisions[kind])

    def _next_value(self, key: Key[object]) -> object:
        self.values_made += 1
        return self.samples.value(key, self.values_made)


def _values_by_key(changes: Sequence[_ModelEvent | WatchEvent[object]]) -> dict[Key[object], list[object | None]]:
    values: dict[Key[object], list[object | None]] = {}
    for change in changes:
        values.setdefault(change.key, []).append(change.value)
    return values
