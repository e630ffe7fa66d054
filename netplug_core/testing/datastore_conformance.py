"""The conformance suite of datastores: one class that a test module names.

    TestStore = datastore_conformance(empty_medium)

is a whole test module. The test runs the plain checks of ``datastore_checks`` first, because their failures are the
easiest to read. Then Hypothesis draws commits (with fresh and with outdated revisions, with requirements and
``Written``), pages and watches by two handles on one medium; after each of them every key and every list is compared
with a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from typing import ClassVar, Final, Protocol
from unittest import TestCase

import hypothesis
from attrs import define, evolve, field, frozen
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from netplug_core.clock import Clock
from netplug_core.datastore.protocol import HasIdentity
from netplug_core.errors import InvalidArgument, NetplugError
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
from netplug_core.testing.assertions import describe, expect, expect_same
from netplug_core.testing.clock import ManualClock, RealClock
from netplug_core.testing.datastore_commit_checks import COMMIT_CHECKS, READ_CHECKS
from netplug_core.testing.datastore_harness import FRUIT_AND_TOOLS, DatastoreHarness, OpenMedium, Samples, open_harness
from netplug_core.testing.datastore_sharing_checks import SHARING_CHECKS
from netplug_core.testing.view_checks import VIEW_CHECKS

__all__ = [
    "DATASTORE_CHECKS", "DatastoreCheck", "DatastoreConformance", "DatastoreModel", "ModelEvent", "ReadPoint",
    "datastore_conformance", "identities_differ",
]  # fmt: skip


# --- datastore checks ------------------------------------------------------------------------------------------------


class DatastoreCheck(Protocol):
    """One rule of the text; raises ``AssertionError`` where the store breaks it."""

    __name__: str

    def __call__(
        self,
        open_medium: OpenMedium,
        *,
        samples: Samples = FRUIT_AND_TOOLS,
        make_clock: Callable[[], Clock] = ManualClock,
    ) -> None:
        """Open two handles on an empty medium, check, close them."""
        ...


def _check(rule: Callable[[DatastoreHarness], None]) -> DatastoreCheck:
    needs_real_time = rule in SHARING_CHECKS  # threads that wait for one another cannot wait on a manual clock

    @wraps(rule)
    def check(
        open_medium: OpenMedium, *, samples: Samples = FRUIT_AND_TOOLS, make_clock: Callable[[], Clock] = ManualClock
    ) -> None:
        with open_harness(open_medium, samples, RealClock if needs_real_time else make_clock) as harness:
            try:
                rule(harness)
            except NetplugError as error:
                raise AssertionError(f"a call that the text allows was refused: {error!r}") from error

    return check


DATASTORE_CHECKS: Final[tuple[DatastoreCheck, ...]] = tuple(
    map(_check, (*COMMIT_CHECKS, *READ_CHECKS, *SHARING_CHECKS, *VIEW_CHECKS))
)
"""Every check, in the order in which an author makes them pass."""


def identities_differ(
    open_first: OpenMedium,
    open_second: OpenMedium,
    *,
    samples: Samples = FRUIT_AND_TOOLS,
    make_clock: Callable[[], Clock] = ManualClock,
) -> None:
    """Check that two media of a backend whose stores have identities (``HasIdentity``) have two of them.

    Raises:
        AssertionError: they have not.
    """
    with (
        open_harness(open_first, samples, make_clock) as first,
        open_harness(open_second, samples, make_clock) as second,
    ):
        found = []
        for harness in (first, second):
            store = harness.store
            if not isinstance(store, HasIdentity):
                raise AssertionError(f"the store {store.description.name} has no identity")
            found.append(store.find_identity(deadline=harness.deadline))
    expect(None not in found and found[0] != found[1], f"two stores have the identities {found}")


# --- datastore model -------------------------------------------------------------------------------------------------


@frozen
class ReadPoint:
    """A read: how many changes there had been before it, and the store's revision of each kind."""

    event_count: int
    revisions: dict[Kind[object], Revision]


@frozen
class ModelEvent:
    """One change: the new value, or None for a deletion."""

    key: Key[object]
    value: object | None


@define
class DatastoreModel:
    """What the store must hold, and all changes so far.

    Revisions are those that the store made, None where no answer has shown them yet. ``written_at`` is the number of
    changes when the key was last written.
    """

    is_atomic: bool
    values: dict[Key[object], object] = field(factory=dict)
    revisions: dict[Key[object], Revision | None] = field(factory=dict)
    written_at: dict[Key[object], int] = field(factory=dict)
    events: list[ModelEvent] = field(factory=list)

    def apply(self, writes: Sequence[Write]) -> None:
        """Make the changes of a commit."""
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
        self.events.append(ModelEvent(key, value))
        self.values.pop(key, None)
        self.revisions.pop(key, None)
        self.written_at.pop(key, None)
        if value is not None:
            self.values[key] = value
            self.revisions[key] = None
            self.written_at[key] = len(self.events)

    def find_refusal(self, write: Write) -> type[CommitError] | None:
        """What the write must be refused with, judged on what is stored now."""
        if isinstance(write, RequireUnchanged) or (isinstance(write, Require) and not self.is_atomic):
            return None
        if isinstance(write, Create):
            return AlreadyExists if write.key in self.values else None
        if isinstance(write.revision, Written) or self.revisions.get(write.key, ABSENT) == write.revision:
            return None
        return Conflict if write.key in self.values else NotFound

    def is_kind_changed(self, kind: Kind[object], since: int) -> bool:
        """Whether a stored record of the kind was written after so many changes."""
        return any(key.kind == kind and at > since for key, at in self.written_at.items())

    def may_kind_be_changed(self, kind: Kind[object], since: int) -> bool:
        """The same, with records that are deleted again: a store may remember them or not."""
        return any(event.key.kind == kind and event.value is not None for event in self.events[since:])


# --- datastore conformance -------------------------------------------------------------------------------------------


_SHORT_STEPS = 6


class DatastoreConformance(TestCase):
    """A test that holds one backend to the text of ``Datastore``.

    ``settings`` says how many examples the state machine draws, and of how many steps.
    """

    __test__ = False
    settings: ClassVar[hypothesis.settings]

    def runTest(self) -> None:  # noqa: N802  # the name that unittest knows
        """The checks, then the machine."""
        raise NotImplementedError


# How long a step takes, and how much an example draws, is up to the backend under test.
_HEALTH_CHECKS = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)


def datastore_conformance(
    open_medium: OpenMedium, *, samples: Samples = FRUIT_AND_TOOLS, make_clock: Callable[[], Clock] = ManualClock
) -> type[DatastoreConformance]:
    """The test for a backend; a backend that waits for a server in real time brings ``make_clock``.

    Raises:
        InvalidArgument: ``open_medium`` is no function.
    """
    if not callable(open_medium):
        raise InvalidArgument(
            "open_medium", open_medium, "a function that takes a clock and opens a Medium is expected"
        )

    class Machine(_Machine):
        def open_harness(self) -> AbstractContextManager[DatastoreHarness]:
            return open_harness(open_medium, samples, make_clock)

    class Conformance(DatastoreConformance):
        __test__ = True
        settings = hypothesis.settings(deadline=None, suppress_health_check=_HEALTH_CHECKS)

        def runTest(self) -> None:  # noqa: N802  # the name that unittest knows
            for check in DATASTORE_CHECKS:
                try:
                    check(open_medium, samples=samples, make_clock=make_clock)
                except Exception as error:
                    error.add_note(f"in the check {check.__name__}: {check.__doc__}")
                    raise
            for each in _bounded(self.settings):
                run_state_machine_as_test(Machine, settings=each)

    return Conformance


def _bounded(given: hypothesis.settings) -> tuple[hypothesis.settings, hypothesis.settings]:
    """Settings of two runs without shrinking, which may take minutes: short examples come first instead."""
    phases = [phase for phase in given.phases if phase not in (Phase.shrink, Phase.explain)]
    whole = hypothesis.settings(given, phases=phases, report_multiple_bugs=False)
    short = hypothesis.settings(whole, stateful_step_count=min(_SHORT_STEPS, given.stateful_step_count))
    return short, whole


class _Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self.harness = self._stack.enter_context(self.open_harness())
        self.samples = self.harness.samples
        self.model = DatastoreModel(self.harness.is_atomic)
        self.read_points: list[ReadPoint] = []
        self.event_counts: dict[tuple[Kind[object], Revision], int] = {}
        self.past_revisions: dict[Key[object], list[Revision]] = {key: [] for key in self.samples.keys}
        self.values_made = 0

    def open_harness(self) -> AbstractContextManager[DatastoreHarness]:
        """Two handles on an empty medium."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Close the stores."""
        self._stack.close()

    @rule()
    def change_handle(self) -> None:
        """The same calls by the other handle; the commits so far were made by the first one."""
        self.harness = evolve(self.harness, store=self.harness.other, other=self.harness.store)

    @rule(data=st.data())
    def rewrite(self, data: st.DataObject) -> None:
        """An update that changes nothing is applied, with a new revision or without a change."""
        for key in data.draw(st.sets(st.sampled_from(self.samples.keys), max_size=1)) & self.model.values.keys():
            write = Update(key, self.model.values[key], self.model.revisions[key] or Revision(""))
            (revision,) = self.harness.commit(write)
            if revision != write.revision:
                self.model.apply((write,))
                self._note_revision(key, revision, write)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Conditional writes are applied, or refused with the right error."""
        self._commit(self._draw_writes(data))

    @rule(data=st.data())
    def list_in_pages(self, data: st.DataObject) -> None:
        """All pages of a list show the state at the first page, whatever is written between them."""
        whole = data.draw(st.sampled_from(self.samples.prefixes))
        limit = data.draw(st.integers(1, 3))
        expected = self._expected(whole)
        found: list[Record[object]] = []
        after = ""
        while True:
            page = evolve(whole, limit=limit, after=after)
            snapshot = self.harness.read(page)
            found += snapshot.list(page)
            after = snapshot.after(page)
            if not after:
                break
            expect(len(snapshot.list(page)) <= limit, "a page that is not the last one is longer than its limit")
            if data.draw(st.booleans()):
                self._commit(self._draw_writes(data))
                self._check_state()
        expect_same(found, expected, f"the pages of {describe(whole)}")

    @rule(data=st.data())
    def watch(self, data: st.DataObject) -> None:
        """A watch shows every change after a read exactly once, and a second watch continues where it stopped."""
        mark = data.draw(st.sampled_from(self.read_points))
        kinds = data.draw(st.sets(st.sampled_from(self.samples.kinds), min_size=1))
        start = {kind: mark.revisions[kind] for kind in kinds}
        expected = [event for event in self.model.events[mark.event_count :] if event.key.kind in kinds]
        changes = self._watch_changes(start, len(expected))
        expect_same(_values_by_key(changes), _values_by_key(expected), f"the events of a watch from {describe(start)}")
        stop = data.draw(st.integers(0, len(changes)))
        for change in changes[:stop]:
            start[change.key.kind] = change.revision
        rest = self._watch_changes(start, len(changes) - stop)
        expect_same(
            _values_by_key(rest),
            _values_by_key(changes[stop:]),
            f"the events of the watch that continues from {describe(start)}",
        )

    @invariant()
    def state_matches_model(self) -> None:
        """Every key and every list is as in the dictionary; a value that was changed has a new revision."""
        self._check_state()

    def _check_state(self) -> None:
        keys = self.samples.keys
        lists = self.samples.prefixes
        snapshot = self.harness.read(*(Get(key) for key in keys), *lists)
        for key in keys:
            self._check_record(key, snapshot.find(key))
        for query in lists:
            expect_same(list(snapshot.list(query)), self._expected(query), describe(query))
            expect(not snapshot.after(query), f"{describe(query)} has no limit, and yet there is a next page")
        time = len(self.model.events)
        self.read_points.append(ReadPoint(time, dict(snapshot.revisions)))
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
        inside = (key for key in keys if query.covers(key))
        return [
            Record(key, self.model.values[key], self.model.revisions[key] or Revision(""))
            for key in inside
            if key in self.model.values
        ]

    def _watch_changes(self, start: dict[Kind[object], Revision], count: int) -> list[WatchEvent[object]]:
        return self.harness.watch(start, count)

    # --- commits ---------------------------------------------------------------------------------------------------

    def _commit(self, writes: Sequence[Write]) -> None:
        problems, optional = self._expected_refusals(writes)
        try:
            revisions = self.harness.commit(*writes)
        except CommitError as error:
            self._check_refusal(writes, problems, optional, error)
            return
        expect(not problems, f"the commit {describe(list(writes))} was applied, expected {problems}")
        expect_same(len(revisions), len(writes), "the number of revisions of a commit")
        self.model.apply(writes)
        for write, revision in zip(writes, revisions, strict=True):
            if isinstance(write, Require | RequireUnchanged):
                expect_same(
                    revision, "" if write.revision is ABSENT else write.revision, f"the answer to {describe(write)}"
                )
            elif write.key in self.model.values:
                self._note_revision(write.key, revision, write)

    def _note_revision(self, key: Key[object], revision: Revision, write: Write) -> None:
        expect(revision not in self.past_revisions[key], f"{describe(write)} made a revision that the key had before")
        self.model.revisions[key] = revision

    def _expected_refusals(self, writes: Sequence[Write]) -> tuple[dict[int, type[CommitError]], set[int]]:
        # The error of each write that must be refused; and the writes that a store may refuse or not.
        problems: dict[int, type[CommitError]] = {}
        optional: set[int] = set()
        for index, write in enumerate(writes):
            problem = self.model.find_refusal(write)
            if isinstance(write, RequireUnchanged) and self.model.is_atomic:
                since = self.event_counts[write.kind, write.revision]
                problem = Conflict if self.model.is_kind_changed(write.kind, since) else None
                if self.model.may_kind_be_changed(write.kind, since):
                    optional.add(index)
            if problem:
                problems[index] = problem
        return problems, optional

    def _check_refusal(
        self,
        writes: Sequence[Write],
        problems: dict[int, type[CommitError]],
        optional: set[int],
        error: CommitError,
    ) -> None:
        expect(
            error.index in problems or error.index in optional,
            f"{describe(error)}, but the condition of that write holds",
        )
        expect_same(type(error), problems.get(error.index, Conflict), f"the refusal of {describe(writes[error.index])}")
        expect_same(
            error.applied,
            0 if self.model.is_atomic else min(problems),
            f"the number of applied writes of {describe(list(writes))}",
        )
        write = writes[error.index]
        if isinstance(write, RequireUnchanged):
            expect_same((error.subject, error.current), (write.kind, None), f"what {describe(error)} names")
        else:
            expect_same(error.subject, write.key, f"what {describe(error)} names")
            expect(
                (error.current is None) == (write.key not in self.model.values),
                f"{describe(error)} shows another state",
            )
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


def _values_by_key(changes: Sequence[ModelEvent | WatchEvent[object]]) -> dict[Key[object], list[object | None]]:
    values: dict[Key[object], list[object | None]] = {}
    for change in changes:
        values.setdefault(change.key, []).append(change.value)
    return values
