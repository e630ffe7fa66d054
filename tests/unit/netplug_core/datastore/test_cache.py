"""What a resident process remembers of a store: how much, how long, and that it follows what is committed."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.datastore.cache import ORDERED_MAX_AGE_S, DatastoreCache
from netplug_core.datastore.cached_state import Lasting
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
        self.warm = DatastoreCache.for_datastore(self.store, clock=self.clock, uncached_kinds=frozenset({LOAN}))
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
        snapshot, unknown = self.warm.lookup(queries, ())
        assert unknown == ()
        return snapshot

    def is_known(self, query: Query) -> bool:
        return self.warm.lookup((query,), ())[1] == ()


@pytest.fixture
def library() -> CacheHarness:
    return CacheHarness()


def titles(records: tuple[Record[str], ...]) -> list[str]:
    return [record.key.name for record in records]


# --- learning -----------------------------------------------------------------------------------------------------


def test_who_has_seen_nothing_presumes_nothing(library: CacheHarness) -> None:
    snapshot, unknown = library.warm.lookup((BOOKS, Get(SOME_LOAN)), (Get(SOME_LOAN),))
    assert dict(snapshot.results) == {}
    assert unknown == (BOOKS, Get(SOME_LOAN))


def test_what_was_read_is_known_and_the_rest_is_to_be_read(library: CacheHarness) -> None:
    read = library.read(BOOKS, Get(BIBLE))
    snapshot, unknown = library.warm.lookup((Get(BIBLE), UPPER, BOOKS), ())
    assert unknown == (UPPER,)
    assert snapshot.list(BOOKS) == read.list(BOOKS)
    assert snapshot.find(BIBLE) is None
    assert snapshot.revision(BOOK) == read.revision(BOOK)


def test_an_assumed_record_is_absent_until_it_is_read(library: CacheHarness) -> None:
    library.read(BOOKS)
    snapshot, unknown = library.warm.lookup((BOOKS, Get(SOME_LOAN)), (Get(SOME_LOAN),))
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
    snapshot, unknown = library.warm.lookup((BOOKS,), ())
    assert unknown == (BOOKS,)
    assert (dict(snapshot.results), dict(snapshot.revisions)) == ({}, {})


def test_a_store_that_judges_conditions_is_remembered_however_long_ago_it_was_read(library: CacheHarness) -> None:
    library.read(BOOKS)
    library.clock.sleep(3600)
    assert library.is_known(BOOKS)


def test_a_store_that_judges_none_is_remembered_for_half_a_second() -> None:
    library = CacheHarness(MemoryMode.ORDERED)
    library.read(BOOKS)
    library.clock.sleep(ORDERED_MAX_AGE_S)
    assert library.is_known(BOOKS)
    library.clock.sleep(0.001)
    assert not library.is_known(BOOKS)
    library.read(BOOKS)
    library.clock.sleep(ORDERED_MAX_AGE_S)
    assert library.is_known(BOOKS)  # the time counts from the next reading


def test_the_oldest_answer_is_what_counts_and_a_commit_of_ours_is_no_reading() -> None:
    library = CacheHarness(MemoryMode.ORDERED)
    library.read(UPPER)
    library.clock.sleep(0.4)
    library.read(LOWER)
    library.commit(Create(BIBLE, "b"))
    library.clock.sleep(0.2)
    assert [library.is_known(query) for query in (UPPER, LOWER, Get(BIBLE))] == [False, False, False]


def test_a_cache_that_is_full_starts_anew(library: CacheHarness) -> None:
    library.warm.max_results = 3
    library.read(Get(ATLAS), Get(BIBLE), Get(COOKING))
    assert library.warm.lookup((Get(ATLAS), Get(COOKING)))[1] == ()
    library.read(BOOKS)
    assert library.warm.lookup((Get(ATLAS), BOOKS))[1] == (Get(ATLAS), BOOKS)


def test_a_record_that_is_known_is_not_assumed_to_be_absent(library: CacheHarness) -> None:
    library.read(Get(ATLAS))
    known, missing = library.warm.lookup((Get(ATLAS), Get(BIBLE)), (Get(ATLAS), Get(BIBLE)))
    assert missing == ()
    assert (known.find(ATLAS) is not None, known.find(BIBLE)) == (True, None)


# --- what lasts on a store that checks no requirements ----------------------------------------------------------------

SHELF: Kind[str] = Kind("Shelf", ("room", "name"))
TOP = SHELF.key("hall", "top")
SHELVES, CURRENT_SHELVES = List(SHELF, ("hall",), may_be_cached=True), List(SHELF, ("hall",))


@pytest.fixture
def lasting() -> CacheHarness:
    """An ordered store, of which books are used under their own revisions, and lists of shelves are read again."""
    harness = CacheHarness(MemoryMode.ORDERED)
    harness.warm = DatastoreCache.for_datastore(harness.store, clock=harness.clock, uncached_kinds=frozenset())
    harness.warm.lasting = Lasting(records=frozenset((BOOK,)), lists=frozenset((SHELF,)))
    return harness


def known(harness: CacheHarness, *queries: Query) -> list[Query]:
    """Which of the queries need no read."""
    missing = harness.warm.lookup(queries)[1]
    return [query for query in queries if query not in missing]


def test_records_whose_revision_is_a_condition_are_known_at_any_age(lasting: CacheHarness) -> None:
    lasting.commit(Create(SOME_LOAN, "l"))
    lasting.read(Get(ATLAS), Get(SOME_LOAN), UPPER)
    lasting.clock.sleep(2 * ORDERED_MAX_AGE_S)
    assert known(lasting, Get(ATLAS), Get(SOME_LOAN), UPPER) == [Get(ATLAS)]


def test_their_age_does_not_make_others_old(lasting: CacheHarness) -> None:
    lasting.read(Get(ATLAS))
    lasting.clock.sleep(2 * ORDERED_MAX_AGE_S)
    lasting.read(Get(SOME_LOAN))
    assert known(lasting, Get(ATLAS), Get(SOME_LOAN)) == [Get(ATLAS), Get(SOME_LOAN)]


def test_a_list_that_lasts_is_marked_as_cached_and_follows_commits(lasting: CacheHarness) -> None:
    lasting.read(SHELVES, CURRENT_SHELVES, Get(TOP))
    lasting.commit(Create(TOP, "t"))
    lasting.clock.sleep(2 * ORDERED_MAX_AGE_S)
    snapshot, missing = lasting.warm.lookup((SHELVES, CURRENT_SHELVES, Get(TOP)))
    assert missing == (CURRENT_SHELVES, Get(TOP))
    assert snapshot.results[SHELVES].is_cached
    assert [record.key for record in snapshot.list(SHELVES)] == [TOP]


@pytest.mark.parametrize("write", [Require(ATLAS, ABSENT), RequireUnchanged(SHELF, Revision("1"))])
def test_a_requirement_about_what_lasts_is_not_relied_on(lasting: CacheHarness, write: Write) -> None:
    assert not lasting.warm.may_rely_on([write])


@pytest.mark.parametrize("write", [Require(SOME_LOAN, ABSENT), Create(ATLAS, "a")])
def test_a_write_and_a_requirement_about_what_is_not_old_are_relied_on(lasting: CacheHarness, write: Write) -> None:
    assert lasting.warm.may_rely_on([write])


def test_a_store_that_checks_requirements_needs_no_such_distinction(library: CacheHarness) -> None:
    assert library.warm.may_rely_on([Require(ATLAS, ABSENT)])


@pytest.mark.parametrize(
    "writes, count",
    [
        ((Delete(SOME_LOAN, Revision("1")), Delete(ATLAS, Revision("1"))), 1),
        ((Require(ATLAS, ABSENT), Delete(SOME_LOAN, Revision("1"))), 2),
        ((Delete(ATLAS, Revision("1")), Delete(SOME_LOAN, Revision("1"))), 0),
        ((Update(SOME_LOAN, "x", Revision("1")),), 0),
        ((Require(ATLAS, ABSENT), RequireUnchanged(SHELF, Revision("1"))), 0),
        ((), 0),
    ],
    ids=["a deletion", "after a requirement", "after another change", "an update", "no change", "nothing"],
)
def test_only_a_deletion_that_comes_first_may_confirm(writes: tuple[Write, ...], count: int) -> None:
    assert Lasting(records=frozenset((LOAN,)), proving=frozenset((LOAN,))).count_proving(writes) == count
