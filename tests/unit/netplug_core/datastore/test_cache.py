"""What a resident process remembers of a store: how much, how long, and that it follows what is committed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import FRESH_S, NonExpiring
from netplug_core.datastore.view import View
from netplug_core.records import (
    ABSENT,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Query,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    ValueCondition,
    Write,
    Written,
)
from netplug_core.testing.clock import ManualClock

BOOK: Kind[str] = Kind("Book", ("shelf", "title"))
LOAN: Kind[str] = Kind("Loan", ("id",))
BOOKS, UPPER, LOWER = List(BOOK), List(BOOK, ("upper",)), List(BOOK, ("lower",))
ATLAS, BIBLE, COOKING = BOOK.key("upper", "atlas"), BOOK.key("upper", "bible"), BOOK.key("lower", "cooking")
SOME_LOAN = LOAN.key("17")


class CacheHarness:
    """A store with a few records, and a cache of it."""

    def __init__(self, mode: MemoryMode = MemoryMode.ATOMIC) -> None:
        self.clock = ManualClock()
        self.store = MemoryDatastore(mode, clock=self.clock)
        self.warm = View.for_datastore(self.store, clock=self.clock, uncached_kinds=frozenset({LOAN}))
        self.store.commit((Create(ATLAS, "a"), Create(COOKING, "c")), deadline=self.deadline)

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5)

    def read(self, *queries: Query) -> Snapshot:
        """Read, and remember."""
        snapshot = self.store.read(queries, deadline=self.deadline)
        self.warm.add_snapshot(snapshot)
        return snapshot

    def commit(self, *writes: Write) -> None:
        """Commit, and remember."""
        self.warm.apply_writes(writes, self.store.commit(writes, deadline=self.deadline))

    def revision(self, key: Key[str]) -> Revision:
        found = self.store.read((Get(key),), deadline=self.deadline).find(key)
        assert found is not None
        return found.revision

    def recalled(self, *queries: Query) -> Snapshot:
        """What is known of these, all of which must be known."""
        looked_up = self.warm.lookup(queries, ())
        snapshot, unknown = looked_up.snapshot, looked_up.missing
        assert unknown == ()
        return snapshot

    def is_known(self, query: Query) -> bool:
        return self.warm.lookup((query,), ()).missing == ()


@pytest.fixture
def library() -> CacheHarness:
    return CacheHarness()


def titles(records: tuple[Record[str], ...]) -> list[str]:
    return [record.key.name for record in records]


# --- learning -----------------------------------------------------------------------------------------------------


def test_who_has_seen_nothing_presumes_nothing(library: CacheHarness) -> None:
    looked_up = library.warm.lookup((BOOKS, Get(SOME_LOAN)), (Get(SOME_LOAN),))
    snapshot, unknown = looked_up.snapshot, looked_up.missing
    assert dict(snapshot.results) == {}
    assert unknown == (BOOKS, Get(SOME_LOAN))


def test_what_was_read_is_known_and_the_rest_is_to_be_read(library: CacheHarness) -> None:
    read = library.read(BOOKS, Get(BIBLE))
    looked_up = library.warm.lookup((Get(BIBLE), UPPER, BOOKS), ())
    snapshot, unknown = looked_up.snapshot, looked_up.missing
    assert unknown == (UPPER,)
    assert snapshot.list(BOOKS) == read.list(BOOKS)
    assert snapshot.find(BIBLE) is None
    assert snapshot.revision(BOOK) == read.revision(BOOK)


def test_an_assumed_record_is_absent_until_it_is_read(library: CacheHarness) -> None:
    library.read(BOOKS)
    looked_up = library.warm.lookup((BOOKS, Get(SOME_LOAN)), (Get(SOME_LOAN),))
    snapshot, unknown = looked_up.snapshot, looked_up.missing
    assert unknown == ()
    assert snapshot.find(SOME_LOAN) is None
    assert not library.is_known(Get(SOME_LOAN))  # an assumed record is in no cache


def test_records_of_workloads_pass_and_are_not_kept(library: CacheHarness) -> None:
    library.read(BOOKS, Get(SOME_LOAN), List(LOAN))
    library.commit(Create(SOME_LOAN, "lent"))
    assert [library.is_known(query) for query in (Get(SOME_LOAN), List(LOAN))] == [False, False]


def test_however_many_workloads_come_and_go_the_memory_does_not_grow(library: CacheHarness) -> None:
    library.read(BOOKS)
    for number in range(100):
        key = LOAN.key(str(number))
        library.read(Get(key))
        library.commit(Create(key, "lent"))
    assert list(library.recalled(BOOKS).results) == [BOOKS]


def test_a_page_is_not_kept_for_its_other_pages_would_be_of_another_moment(library: CacheHarness) -> None:
    page = List(BOOK, limit=1)
    library.read(page)
    assert not library.is_known(page)


def test_a_list_that_may_leave_records_out_is_not_kept(library: CacheHarness) -> None:
    page = List(BOOK, keys_only_if=ValueCondition("lent", lambda value: value == "lent"))
    library.read(page)
    assert not library.is_known(page)


def test_a_list_by_the_beginning_of_a_name_is_not_kept_for_it_shows_what_is_beside_a_record_now(
    library: CacheHarness,
) -> None:
    beside = List(BOOK, ("upper",), name_prefix="a")
    library.read(beside)
    assert not library.is_known(beside)


def test_the_revision_of_a_kind_is_the_oldest_at_which_it_was_read(library: CacheHarness) -> None:
    first = library.read(UPPER).revision(BOOK)
    library.commit(Create(BIBLE, "b"))
    assert library.read(LOWER).revision(BOOK) != first
    assert library.recalled(UPPER, LOWER).revision(BOOK) == first


def test_what_was_recalled_does_not_change_any_more(library: CacheHarness) -> None:
    library.read(BOOKS)
    before = library.recalled(BOOKS)
    library.commit(Create(BIBLE, "b"))
    library.warm.invalidate()
    assert titles(before.list(BOOKS)) == ["cooking", "atlas"]


# --- following commits --------------------------------------------------------------------------------------------


def test_a_created_record_is_known_by_key_and_in_its_place_in_lists(library: CacheHarness) -> None:
    library.read(BOOKS, UPPER, LOWER)
    library.commit(Create(BIBLE, "b"), Create(BOOK.key("upper", "aardvark"), "x"))
    known = library.recalled(BOOKS, UPPER, LOWER, Get(BIBLE))
    assert titles(known.list(BOOKS)) == ["cooking", "aardvark", "atlas", "bible"]
    assert titles(known.list(UPPER)) == ["aardvark", "atlas", "bible"]
    assert titles(known.list(LOWER)) == ["cooking"]
    assert known.find(BIBLE) == Record(BIBLE, "b", library.revision(BIBLE))


def test_an_updated_record_is_known_with_its_new_value_and_revision(library: CacheHarness) -> None:
    library.read(BOOKS, Get(ATLAS))
    library.commit(Update(ATLAS, "second edition", library.revision(ATLAS)))
    known, renewed = library.recalled(BOOKS, Get(ATLAS)), Record(ATLAS, "second edition", library.revision(ATLAS))
    assert known.find(ATLAS) == renewed
    assert known.list(BOOKS)[1] == renewed


def test_a_deleted_record_is_known_to_be_absent(library: CacheHarness) -> None:
    library.read(BOOKS, Get(ATLAS))
    library.commit(Delete(ATLAS, library.revision(ATLAS)))
    known = library.recalled(BOOKS, Get(ATLAS))
    assert known.find(ATLAS) is None
    assert titles(known.list(BOOKS)) == ["cooking"]


@pytest.mark.parametrize("mode", MemoryMode)
def test_of_several_writes_to_one_key_the_last_is_remembered(mode: MemoryMode) -> None:
    library = CacheHarness(mode)
    library.read(BOOKS)
    library.commit(Create(BIBLE, "draft"), Update(BIBLE, "b", Written(0)))
    assert library.recalled(Get(BIBLE)).find(BIBLE) == Record(BIBLE, "b", library.revision(BIBLE))
    library.commit(Update(BIBLE, "worn", library.revision(BIBLE)), Delete(BIBLE, Written(0)))
    assert library.recalled(Get(BIBLE)).find(BIBLE) is None


def test_requirements_are_no_records(library: CacheHarness) -> None:
    read = library.read(BOOKS)
    library.commit(RequireUnchanged(BOOK, read.revision(BOOK)), Require(ATLAS, library.revision(ATLAS)))
    assert list(library.recalled(BOOKS).results) == [BOOKS]


# --- forgetting ---------------------------------------------------------------------------------------------------


def test_what_is_forgotten_is_read_again(library: CacheHarness) -> None:
    library.read(BOOKS)
    library.warm.invalidate()
    looked_up = library.warm.lookup((BOOKS,), ())
    snapshot, unknown = looked_up.snapshot, looked_up.missing
    assert unknown == (BOOKS,)
    assert (dict(snapshot.results), dict(snapshot.revisions)) == ({}, {})


def test_a_store_that_judges_conditions_is_remembered_however_long_ago_it_was_read(library: CacheHarness) -> None:
    library.read(BOOKS)
    library.clock.sleep(3600)
    assert library.is_known(BOOKS)


def test_a_store_that_judges_none_is_remembered_for_a_limited_time() -> None:
    library = CacheHarness(MemoryMode.ORDERED)
    library.read(BOOKS)
    library.clock.sleep(FRESH_S)
    assert library.is_known(BOOKS)
    library.clock.sleep(0.001)
    assert not library.is_known(BOOKS)
    library.read(BOOKS)
    library.clock.sleep(FRESH_S)
    assert library.is_known(BOOKS)  # the time counts from the next reading


def test_each_answer_has_its_own_age_which_no_commit_changes() -> None:
    library = CacheHarness(MemoryMode.ORDERED)
    library.read(UPPER)
    library.clock.sleep(FRESH_S - 1)
    library.read(LOWER)
    library.commit(Create(BIBLE, "b"))
    library.clock.sleep(2)
    assert [library.is_known(query) for query in (UPPER, LOWER, Get(BIBLE))] == [False, True, True]


def test_a_record_that_was_read_and_that_we_write_keeps_its_age() -> None:
    library = CacheHarness(MemoryMode.ORDERED)
    library.read(Get(ATLAS))
    library.clock.sleep(FRESH_S)
    library.commit(Update(ATLAS, "new", library.revision(ATLAS)))
    assert library.recalled(Get(ATLAS)).find(ATLAS) == Record(ATLAS, "new", library.revision(ATLAS))
    library.clock.sleep(0.001)
    assert not library.is_known(Get(ATLAS))


def test_what_is_too_old_is_not_kept_beside_what_is_read() -> None:
    library = CacheHarness(MemoryMode.ORDERED)
    library.commit(Create(SOME_LOAN, "l"))
    library.warm.uncached_kinds = frozenset()
    library.read(UPPER, Get(SOME_LOAN))
    library.clock.sleep(FRESH_S + 1)
    library.read(LOWER)
    assert set(library.warm.snapshot.results) == {LOWER}
    assert set(library.warm.snapshot.revisions) == {BOOK}


def test_what_ages_is_known_only_to_who_asks_for_it_and_says_since_when() -> None:
    """A decision is as old as the oldest of what it may rest on."""
    library = CacheHarness(MemoryMode.ORDERED)
    began_s = library.clock.monotonic()
    library.read(UPPER)
    library.clock.sleep(1)
    library.read(LOWER)
    assert library.warm.lookup((LOWER,)).snapshot.results.keys() == {LOWER}
    assert library.warm.lookup((LOWER,)).at_s == began_s + 1
    assert library.warm.lookup((LOWER, UPPER)).at_s == began_s


def test_an_answer_counts_from_the_moment_when_it_was_asked_for() -> None:
    library = CacheHarness(MemoryMode.ORDERED)

    class Slow(MemoryDatastore):
        def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
            found = library.store.read(queries, deadline=deadline)
            library.clock.sleep(3)
            return found

    library.warm.read(Slow(clock=library.clock), (BOOKS,), deadline=library.deadline)
    library.clock.sleep(FRESH_S - 3)
    assert library.is_known(BOOKS)
    library.clock.sleep(0.001)
    assert not library.is_known(BOOKS)


def test_a_cache_that_is_full_starts_anew(library: CacheHarness) -> None:
    library.warm.max_results = 3
    library.read(Get(ATLAS), Get(BIBLE), Get(COOKING))
    assert library.warm.lookup((Get(ATLAS), Get(COOKING))).missing == ()
    library.read(BOOKS)
    assert library.warm.lookup((Get(ATLAS), BOOKS)).missing == (Get(ATLAS), BOOKS)


def test_a_record_that_is_known_is_not_assumed_to_be_absent(library: CacheHarness) -> None:
    library.read(Get(ATLAS))
    looked_up = library.warm.lookup((Get(ATLAS), Get(BIBLE)), (Get(ATLAS), Get(BIBLE)))
    known, missing = looked_up.snapshot, looked_up.missing
    assert missing == ()
    assert (known.find(ATLAS) is not None, known.find(BIBLE)) == (True, None)


# --- what lasts on a store that checks no requirements ----------------------------------------------------------------

SHELF: Kind[str] = Kind("Shelf", ("room", "name"))
TOP = SHELF.key("hall", "top")
SHELVES, CURRENT_SHELVES = List(SHELF, ("hall",), may_be_cached=True), List(SHELF, ("hall",))


@pytest.fixture
def non_expiring() -> CacheHarness:
    """An ordered store, of which books are used under their own revisions, and lists of shelves are read again."""
    harness = CacheHarness(MemoryMode.ORDERED)
    harness.warm = View.for_datastore(harness.store, clock=harness.clock, uncached_kinds=frozenset())
    harness.warm.non_expiring = NonExpiring(records=frozenset((BOOK,)), lists=frozenset((SHELF,)))
    return harness


def known(harness: CacheHarness, *queries: Query) -> list[Query]:
    """Which of the queries need no read."""
    missing = harness.warm.lookup(queries).missing
    return [query for query in queries if query not in missing]


def test_records_whose_revision_is_a_condition_are_known_at_any_age(non_expiring: CacheHarness) -> None:
    non_expiring.commit(Create(SOME_LOAN, "l"))
    non_expiring.read(Get(ATLAS), Get(SOME_LOAN), UPPER)
    non_expiring.clock.sleep(2 * FRESH_S)
    assert known(non_expiring, Get(ATLAS), Get(SOME_LOAN), UPPER) == [Get(ATLAS)]


def test_their_age_does_not_make_others_old(non_expiring: CacheHarness) -> None:
    non_expiring.read(Get(ATLAS))
    non_expiring.clock.sleep(2 * FRESH_S)
    non_expiring.read(Get(SOME_LOAN))
    assert known(non_expiring, Get(ATLAS), Get(SOME_LOAN)) == [Get(ATLAS), Get(SOME_LOAN)]


def test_a_list_that_does_not_expire_is_marked_as_cached_and_follows_commits(non_expiring: CacheHarness) -> None:
    non_expiring.read(SHELVES, CURRENT_SHELVES, Get(TOP))
    non_expiring.commit(Create(TOP, "t"))
    non_expiring.clock.sleep(2 * FRESH_S)
    looked_up = non_expiring.warm.lookup((SHELVES, CURRENT_SHELVES, Get(TOP)))
    snapshot, missing = looked_up.snapshot, looked_up.missing
    assert missing == (CURRENT_SHELVES, Get(TOP))
    assert snapshot.results[SHELVES].is_cached
    assert [record.key for record in snapshot.list(SHELVES)] == [TOP]


@pytest.mark.parametrize("write", [Require(ATLAS, ABSENT), RequireUnchanged(SHELF, Revision("1"))])
def test_a_requirement_about_what_does_not_expire_is_not_relied_on(non_expiring: CacheHarness, write: Write) -> None:
    assert not non_expiring.warm.non_expiring.may_rely_on([write])


@pytest.mark.parametrize("write", [Require(SOME_LOAN, ABSENT), Create(ATLAS, "a")])
def test_a_write_and_a_requirement_about_what_is_new_are_relied_on(non_expiring: CacheHarness, write: Write) -> None:
    assert non_expiring.warm.non_expiring.may_rely_on([write])


def test_a_store_that_checks_requirements_needs_no_such_distinction(library: CacheHarness) -> None:
    assert library.warm.non_expiring.may_rely_on([Require(ATLAS, ABSENT)])


# --- what is too old, and is read by one for all ----------------------------------------------------------------------


def begin(harness: CacheHarness, *queries: Query) -> tuple[Query, ...]:
    """Begin a decision; what is left to read."""

    def read(missing: tuple[Query, ...]) -> Snapshot:
        return harness.warm.read(harness.store, missing, deadline=harness.deadline)

    return harness.warm.begin(queries, (), read, deadline=harness.deadline).missing


def reads_of(harness: CacheHarness, act: Callable[[], object]) -> int:
    """How many reads of the store something takes."""
    before = harness.store.calls.reads
    act()
    return harness.store.calls.reads - before


@pytest.fixture
def aged() -> CacheHarness:
    """An ordered store, of which a list was read long ago."""
    harness = CacheHarness(MemoryMode.ORDERED)
    harness.read(UPPER)
    harness.clock.sleep(FRESH_S + 1)
    return harness


def test_what_is_too_old_is_read_at_once_and_what_was_never_known_is_left_to_the_caller(aged: CacheHarness) -> None:
    assert reads_of(aged, lambda: begin(aged, UPPER)) == 1
    assert reads_of(aged, lambda: begin(aged, UPPER)) == 0
    assert begin(aged, LOWER) == (LOWER,)


def test_a_caller_that_waited_for_another_reader_reads_nothing(aged: CacheHarness) -> None:
    @contextmanager
    def after_another(deadline: Deadline) -> Iterator[None]:
        aged.warm.read(aged.store, (UPPER,), deadline=deadline)
        yield

    aged.warm.refreshing = after_another
    assert reads_of(aged, lambda: begin(aged, UPPER)) == 1


def test_a_decision_on_what_was_read_for_it_is_no_older_than_that(aged: CacheHarness) -> None:
    def read(missing: tuple[Query, ...]) -> Snapshot:
        aged.clock.sleep(2)
        return aged.warm.read(aged.store, missing, deadline=aged.deadline)

    began_s = aged.clock.monotonic()
    assert aged.warm.begin((UPPER,), (), read, deadline=aged.deadline).at_s == began_s


def refresh(harness: CacheHarness) -> float | None:
    return harness.warm.refresh(harness.store, deadline=harness.deadline)


def test_what_calls_use_is_read_again_when_it_is_too_old_and_so_no_call_reads(aged: CacheHarness) -> None:
    begin(aged, UPPER)
    aged.clock.sleep(1)
    assert reads_of(aged, lambda: begin(aged, UPPER)) == 0
    assert refresh(aged) == FRESH_S - 1
    aged.clock.sleep(FRESH_S - 1)
    assert reads_of(aged, lambda: refresh(aged)) == 1
    aged.clock.sleep(FRESH_S - 0.1)
    assert reads_of(aged, lambda: begin(aged, UPPER)) == 0


def test_nothing_is_read_again_that_no_call_has_used_since(aged: CacheHarness) -> None:
    """Neither after the call that read it, nor after the reading in the background."""
    assert refresh(aged) is None
    begin(aged, UPPER)
    aged.clock.sleep(FRESH_S)
    assert reads_of(aged, lambda: refresh(aged)) == 0
    begin(aged, UPPER)
    begin(aged, UPPER)
    aged.clock.sleep(FRESH_S)
    assert reads_of(aged, lambda: refresh(aged)) == 1
    aged.clock.sleep(FRESH_S)
    assert reads_of(aged, lambda: refresh(aged)) == 0


def test_what_was_used_and_is_forgotten_or_read_since_is_not_read_again(aged: CacheHarness) -> None:
    aged.read(UPPER)
    begin(aged, UPPER)
    aged.clock.sleep(FRESH_S)

    @contextmanager
    def after_another(deadline: Deadline) -> Iterator[None]:
        aged.warm.read(aged.store, (UPPER,), deadline=deadline)
        yield

    aged.warm.refreshing = after_another
    assert reads_of(aged, lambda: refresh(aged)) == 1, "the other's"
    begin(aged, UPPER)
    aged.warm.invalidate()
    aged.clock.sleep(FRESH_S)
    assert reads_of(aged, lambda: refresh(aged)) == 0


def test_the_reader_in_the_background_is_notified_of_new_queries(aged: CacheHarness) -> None:
    told: list[int] = []
    aged.warm.on_use = lambda: told.append(len(aged.warm.used))
    aged.read(UPPER, LOWER)
    for queries in ((UPPER,), (UPPER,), (UPPER, LOWER)):
        begin(aged, *queries)
    assert told == [1, 2]


def test_a_store_that_judges_conditions_is_not_read_again(library: CacheHarness) -> None:
    library.read(UPPER)
    begin(library, UPPER)
    library.clock.sleep(3600)
    assert (refresh(library), reads_of(library, lambda: refresh(library))) == (None, 0)
    assert begin(library, LOWER) == (LOWER,)
