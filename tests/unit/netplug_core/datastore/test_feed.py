"""Kinds of a cache that a watch keeps true: answers without a read, and nothing outdated in silence."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.feed import follow
from netplug_core.datastore.protocol import FRESH_S, Datastore, DatastoreDescription
from netplug_core.datastore.transaction import Transaction
from netplug_core.datastore.view import View
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.records import (
    Create,
    Decision,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    NeedMore,
    Query,
    ReadResult,
    Record,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    WatchExpired,
    Write,
    Written,
)
from netplug_core.testing.clock import ManualClock

BOOK: Kind[str] = Kind("Book", ("shelf", "title"))
TOOL: Kind[str] = Kind("Tool", ("name",))
ATLAS, BIBLE, COOKING = BOOK.key("upper", "atlas"), BOOK.key("upper", "bible"), BOOK.key("lower", "cooking")
HAMMER = TOOL.key("hammer")


@define
class FeedHarness:
    """A store, a cache of it, and a feed whose watch a test can disturb."""

    mode: MemoryMode = MemoryMode.ATOMIC
    clock: ManualClock = field(factory=ManualClock)
    store: MemoryDatastore = field(init=False)
    cache: View = field(init=False)
    during_watch: Callable[[], None] = lambda: None
    watch_error: NetplugError | None = None

    def __attrs_post_init__(self) -> None:
        self.store = MemoryDatastore(self.mode, clock=self.clock, keep_changes=20)
        self.cache = View.for_datastore(self.store, clock=self.clock, uncached_kinds=frozenset())
        self.commit(Create(ATLAS, "a"), Create(COOKING, "c"))

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5)

    @property
    def description(self) -> DatastoreDescription:
        return self.store.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        return self.store.read(queries, deadline=deadline)

    def commit(self, *writes: Write) -> tuple[Revision, ...]:
        """Commit as another process."""
        return self.store.commit(writes, deadline=self.deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        self.during_watch()
        yield from self.store.watch(start, deadline=deadline)
        if self.watch_error is not None:
            raise self.watch_error

    def follow(self, *kinds: Kind[object]) -> None:
        wrapper: Datastore = _Wrapper(self)
        follow(wrapper, self.cache, kinds or (BOOK,), deadline=Deadline.after(self.clock, 0.1))

    def stored(self, key: Key[str]) -> Record[str]:
        found = self.store.read((Get(key),), deadline=self.deadline).find(key)
        assert found is not None
        return found

    def known(self, *queries: Query) -> Snapshot:
        """What is known of these, all of which must be known."""
        looked_up = self.cache.lookup(queries)
        snapshot, missing = looked_up.snapshot, looked_up.missing
        assert missing == ()
        return snapshot

    def is_known(self, query: Query) -> bool:
        return self.cache.lookup((query,)).missing == ()

    def titles(self, *within: str) -> list[str]:
        query = List(BOOK, within)
        return [record.key.name for record in self.known(query).list(query)]


@define
class _Wrapper:
    harness: FeedHarness

    @property
    def description(self) -> DatastoreDescription:
        return self.harness.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        return self.harness.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        return self.harness.store.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        return self.harness.watch(start, deadline=deadline)


class _SlowWrapper(_Wrapper):
    """A read takes 100 seconds."""

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        self.harness.clock.sleep(100.0)
        assert not deadline.has_passed
        return super().read(queries, deadline=deadline)


@pytest.fixture
def harness() -> FeedHarness:
    return FeedHarness()


def test_a_watched_kind_answers_every_query_of_its_own(harness: FeedHarness) -> None:
    harness.follow()
    known = harness.known(Get(ATLAS), Get(BIBLE), List(BOOK, ("lower",)), List(BOOK))
    assert known.find(ATLAS) == harness.stored(ATLAS)
    assert known.find(BIBLE) is None
    assert harness.titles() == ["cooking", "atlas"]
    assert harness.titles("upper") == ["atlas"]
    assert harness.titles("upper", "atlas") == ["atlas"]
    assert not harness.is_known(Get(HAMMER))
    assert not harness.is_known(List(BOOK, limit=5))


def test_changes_of_others_are_followed(harness: FeedHarness) -> None:
    harness.follow()
    harness.commit(Create(BIBLE, "b"), Update(ATLAS, "new", harness.stored(ATLAS).revision))
    harness.commit(Delete(COOKING, harness.stored(COOKING).revision))
    assert harness.titles() == ["cooking", "atlas"]
    harness.follow()
    assert harness.titles() == ["atlas", "bible"]
    assert harness.known(Get(ATLAS)).find(ATLAS) == harness.stored(ATLAS)


def test_a_list_may_take_longer_than_the_watch_and_is_not_read_again(harness: FeedHarness) -> None:
    harness.store.description = evolve(harness.store.description, lists_whole=True)
    follow(_SlowWrapper(harness), harness.cache, (BOOK,), deadline=Deadline.after(harness.clock, 0.1))
    harness.commit(Create(BIBLE, "b"))
    reads = harness.store.calls.reads
    harness.follow()
    assert harness.titles() == ["cooking", "atlas", "bible"]
    assert harness.store.calls.reads == reads


def test_the_second_call_reads_nothing(harness: FeedHarness) -> None:
    harness.follow()
    reads = harness.store.calls.reads
    harness.follow()
    assert harness.store.calls.reads == reads


@pytest.mark.parametrize("error", [WatchExpired(Revision("1")), Unavailable("the store", "gone")], ids=type)
def test_a_watch_that_fails_makes_its_kinds_unknown(harness: FeedHarness, error: NetplugError) -> None:
    harness.follow(BOOK, TOOL)
    harness.watch_error = error
    with pytest.raises(type(error)):
        harness.follow()
    assert not harness.is_known(Get(ATLAS))
    assert harness.is_known(Get(HAMMER))
    harness.watch_error = None
    harness.follow()
    assert harness.is_known(Get(ATLAS))


def test_history_that_is_forgotten_is_listed_again(harness: FeedHarness) -> None:
    harness.follow()
    for number in range(30):
        harness.commit(Create(TOOL.key(str(number)), "t"))
    harness.commit(Create(BIBLE, "b"))
    with pytest.raises(WatchExpired):
        harness.follow()
    assert not harness.is_known(List(BOOK))
    harness.follow()
    assert harness.titles() == ["cooking", "atlas", "bible"]


def test_an_interrupted_watch_makes_its_kinds_unknown(harness: FeedHarness) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    harness.during_watch = interrupt
    with pytest.raises(KeyboardInterrupt):
        harness.follow()
    assert not harness.is_known(Get(ATLAS))


# --- commits of this process ----------------------------------------------------------------------------------------


def test_a_commit_of_this_process_is_known_before_the_watch_delivers_it(harness: FeedHarness) -> None:
    harness.follow()
    began = harness.cache.revisions
    writes = (Create(BIBLE, "b"), Update(ATLAS, "new", harness.stored(ATLAS).revision))
    harness.cache.apply_writes(writes, harness.commit(*writes), began=began)
    assert harness.titles() == ["cooking", "atlas", "bible"]
    assert harness.known(Get(ATLAS)).find(ATLAS) == harness.stored(ATLAS)
    harness.follow()
    assert harness.titles() == ["cooking", "atlas", "bible"]


def test_a_commit_may_change_what_is_watched_and_what_is_not(harness: FeedHarness) -> None:
    harness.follow(BOOK)
    began, atlas = harness.cache.revisions, harness.stored(ATLAS)
    writes: tuple[Write, ...] = (Create(HAMMER, "h"), Update(ATLAS, "new", atlas.revision))
    harness.cache.apply_writes(writes, harness.commit(*writes), began=began)
    assert harness.known(Get(ATLAS)).find(ATLAS) == harness.stored(ATLAS)
    assert harness.known(Get(HAMMER)).find(HAMMER) == harness.stored(HAMMER)


def test_a_commit_looks_at_no_record_that_it_does_not_change(harness: FeedHarness) -> None:
    harness.follow(BOOK)
    write = Create(HAMMER, "h")
    counts = []
    for known in (10, 1000):
        tools = [Get(TOOL.key(f"tool {number}")) for number in range(known)]
        harness.cache.add_snapshot(harness.read(tools, deadline=harness.deadline))
        began = harness.cache.revisions
        counts.append(calls_of(partial(harness.cache.apply_writes, (write,), [Revision("9")], began=began)))
    assert abs(counts[1] - counts[0]) < 50, "hashes may collide"


def calls_of(operation: Callable[[], object]) -> int:
    """How many functions of Python an operation calls."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(before)
    return count


def test_a_commit_that_the_watch_has_overtaken_changes_nothing(harness: FeedHarness) -> None:
    harness.follow()
    began = harness.cache.revisions
    write = Update(ATLAS, "mine", harness.stored(ATLAS).revision)
    revisions = harness.commit(write)
    harness.commit(Update(ATLAS, "theirs", revisions[0]))
    harness.follow()
    harness.cache.apply_writes((write,), revisions, began=began)
    assert harness.known(Get(ATLAS)).find(ATLAS) == harness.stored(ATLAS)


def test_a_record_that_was_deleted_again_meanwhile_stays_absent(harness: FeedHarness) -> None:
    harness.follow()
    began, write = harness.cache.revisions, Create(BIBLE, "mine")
    revisions = harness.commit(write)
    harness.commit(Delete(BIBLE, revisions[0]))
    harness.follow()
    harness.cache.apply_writes((write,), revisions, began=began)
    assert harness.known(Get(BIBLE)).find(BIBLE) is None


def test_what_was_read_of_a_watched_kind_is_left_to_the_watch(harness: FeedHarness) -> None:
    harness.follow()
    harness.commit(Create(BIBLE, "b"))
    harness.cache.add_snapshot(harness.store.read((List(BOOK), Get(HAMMER)), deadline=harness.deadline))
    assert harness.titles() == ["cooking", "atlas"]
    assert harness.is_known(Get(HAMMER))


def test_a_conflict_forgets_what_was_read_and_keeps_what_is_watched(harness: FeedHarness) -> None:
    harness.follow()
    harness.cache.add_snapshot(harness.store.read((Get(HAMMER),), deadline=harness.deadline))
    harness.cache.invalidate()
    assert not harness.is_known(Get(HAMMER))
    assert harness.is_known(Get(ATLAS))


def test_a_transaction_asks_the_cache_for_what_a_rule_needs_more(harness: FeedHarness) -> None:
    harness.follow(BOOK, TOOL)
    reads = harness.store.calls.reads

    def rule(snapshot: Snapshot) -> Decision[str] | NeedMore:
        if not snapshot.has(Get(ATLAS)):
            return NeedMore((Get(ATLAS),))
        found = snapshot.find(ATLAS)
        assert found is not None
        return Decision((Update(ATLAS, "new", found.revision),), "done")

    pace = Pace(clock=harness.clock, deadline=harness.deadline, chance=lambda: 0.5)
    transaction = Transaction(_Wrapper(harness), pace, cache=harness.cache)
    assert transaction.run((Get(HAMMER),), rule).result == "done"
    assert harness.store.calls.reads == reads


# --- a store that does not check requirements -----------------------------------------------------------------------


def test_a_watch_that_does_not_confirm_its_kinds_is_not_believed_for_long() -> None:
    harness = FeedHarness(MemoryMode.KUBE_LIKE)
    harness.follow()
    harness.clock.sleep(FRESH_S)
    assert harness.is_known(Get(ATLAS))
    harness.clock.sleep(0.01)
    assert not harness.is_known(Get(ATLAS))
    harness.follow()
    assert harness.is_known(Get(ATLAS))


def test_an_event_of_a_kind_that_is_not_watched_changes_nothing() -> None:
    harness = FeedHarness()
    harness.follow(BOOK)
    before = harness.cache.snapshot
    harness.cache.apply_event(WatchEvent(HAMMER, "h", Revision("9")), now_s=0.0)
    after = harness.cache.snapshot
    assert (after.results, after.revisions) == (before.results, before.revisions)


def test_a_record_that_our_commit_creates_and_changes_is_known_as_it_is_then() -> None:
    harness = FeedHarness()
    harness.follow(BOOK)
    writes: tuple[Write, ...] = (Create(BIBLE, "b"), Update(BIBLE, "bb", Written(0)))
    harness.cache.apply_writes(writes, harness.commit(*writes))
    assert harness.known(Get(BIBLE)).find(BIBLE) == harness.stored(BIBLE)


# --- a watch that says how far it has come ---------------------------------------------------------------------------


@define
class Live:
    """A live watch that delivers some changes and ends, and says when each of its kinds was spoken of last."""

    heard: dict[Kind[object], float] = field(factory=dict)
    changes: list[WatchEvent[object]] = field(factory=list)
    is_closed: bool = False

    def __iter__(self) -> Iterator[WatchEvent[object]]:
        return self

    def __next__(self) -> WatchEvent[object]:
        if not self.changes:
            raise StopIteration
        return self.changes.pop(0)

    def current_until_s(self, kind: Kind[object]) -> float | None:
        return self.heard.get(kind)

    def close(self) -> None:
        self.is_closed = True


@define
class LiveHarness(FeedHarness):
    """Two watched kinds of an ordered store, whose watch has said nothing since they were listed, long ago."""

    live: Live = field(factory=Live)

    @classmethod
    def make(cls) -> "LiveHarness":
        made = cls(MemoryMode.ORDERED)
        made.follow(BOOK, TOOL)
        made.cache.watch = made.live
        made.clock.sleep(2 * FRESH_S)
        return made

    def speak(self, *kinds: Kind[object], ago_s: float = 0.0) -> None:
        self.live.heard.update(dict.fromkeys(kinds, self.clock.monotonic() - ago_s))

    def look(self, *queries: Query) -> None:
        """Read as a call does, and keep it."""
        self.cache.read(self.store, queries, deadline=self.deadline)


@pytest.fixture
def silent() -> LiveHarness:
    return LiveHarness.make()


def test_what_a_silent_watch_said_does_not_count_any_more(silent: LiveHarness) -> None:
    assert [silent.is_known(query) for query in (Get(ATLAS), List(BOOK), List(TOOL))] == [False, False, False]


def test_a_kind_that_the_watch_spoke_of_counts_and_no_other_does(silent: LiveHarness) -> None:
    silent.speak(BOOK, ago_s=FRESH_S)
    assert [silent.is_known(query) for query in (Get(ATLAS), List(BOOK), List(TOOL))] == [True, True, False]
    silent.clock.sleep(0.001)
    assert not silent.is_known(Get(ATLAS))


def test_an_answer_to_another_request_says_nothing_about_the_watch(silent: LiveHarness) -> None:
    silent.look(Get(HAMMER), List(BOOK, limit=1))
    assert [silent.is_known(query) for query in (Get(ATLAS), List(BOOK), List(TOOL))] == [False, False, False]
    assert silent.is_known(Get(HAMMER)), "but it is an answer itself"


def test_a_list_takes_the_place_of_what_the_watch_said(silent: LiveHarness) -> None:
    silent.commit(Create(BIBLE, "b"))
    silent.look(List(BOOK))
    assert silent.titles() == ["cooking", "atlas", "bible"]
    assert silent.titles("upper") == ["atlas", "bible"]
    assert not silent.is_known(List(TOOL))


def test_a_watch_that_was_silent_about_a_change_is_opened_anew(silent: LiveHarness) -> None:
    was_closed = []
    silent.look(List(BOOK), Get(HAMMER))
    was_closed.append(silent.live.is_closed)
    silent.commit(Create(HAMMER, "h"))
    silent.look(Get(HAMMER))
    was_closed.append(silent.live.is_closed)
    assert was_closed == [False, True]
    assert silent.known(Get(HAMMER)).find(HAMMER) == silent.stored(HAMMER)


def test_a_change_that_the_watch_may_be_about_to_deliver_leaves_it_open(silent: LiveHarness) -> None:
    silent.speak(TOOL)
    silent.commit(Create(HAMMER, "h"))
    silent.look(Get(HAMMER))
    assert not silent.live.is_closed


def test_a_list_from_before_the_watch_spoke_is_not_kept(silent: LiveHarness) -> None:
    silent.commit(Create(BIBLE, "b"))
    listed = silent.store.read([List(BOOK)], deadline=silent.deadline)
    at_s = silent.clock.monotonic()
    silent.speak(BOOK)
    silent.known(List(BOOK))
    silent.cache.add_snapshot(listed, at_s=at_s)
    assert silent.titles() == ["cooking", "atlas"]


def test_a_list_with_a_damaged_record_makes_its_kind_unknown(silent: LiveHarness) -> None:
    listed = silent.store.read([List(BOOK)], deadline=silent.deadline)
    damaged = ReadResult(listed.results[List(BOOK)].records, malformed=(Malformed("book", "torn"),))
    silent.cache.add_snapshot(Snapshot({List(BOOK): damaged}, listed.revisions))
    assert silent.cache.watched.keys() == {TOOL}
    assert not silent.is_known(List(BOOK))


def test_a_change_replaces_what_was_read_about_its_record(silent: LiveHarness) -> None:
    silent.look(Get(ATLAS), List(BOOK, ("upper",)), Get(COOKING))
    silent.commit(Update(ATLAS, "new", silent.stored(ATLAS).revision))
    atlas = silent.stored(ATLAS)
    event: WatchEvent[object] = WatchEvent(ATLAS, "new", atlas.revision)
    silent.cache.apply_event(event, now_s=0.0)
    assert [silent.is_known(each) for each in (Get(ATLAS), List(BOOK, ("upper",)), Get(COOKING))] == [
        False,
        False,
        True,
    ]
    silent.speak(BOOK)
    assert silent.known(Get(ATLAS)).find(ATLAS) == atlas


def test_what_was_read_just_now_wins_over_what_the_watch_said_before(silent: LiveHarness) -> None:
    silent.speak(BOOK, ago_s=1)
    silent.commit(Update(ATLAS, "new", silent.stored(ATLAS).revision))
    silent.look(Get(ATLAS))
    assert silent.known(Get(ATLAS)).find(ATLAS) == silent.stored(ATLAS)
    silent.cache.invalidate()
    assert silent.known(Get(ATLAS)).find(ATLAS) != silent.stored(ATLAS)


def test_a_change_and_the_end_of_a_live_watch_confirm_only_what_it_says(silent: LiveHarness) -> None:
    """Older changes may follow the first one after an interruption, and the watch may end while it is interrupted."""

    class Store(_Wrapper):
        def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
            del start, deadline
            return silent.live

    silent.live.changes = [WatchEvent(BIBLE, "b", Revision("9"))]
    follow(Store(silent), silent.cache, (BOOK, TOOL), deadline=silent.deadline)
    assert silent.cache.watch is None
    assert not silent.is_known(Get(ATLAS))
    silent.live.changes = [WatchEvent(BIBLE, "b", Revision("9"))]
    silent.speak(BOOK)
    follow(Store(silent), silent.cache, (BOOK, TOOL), deadline=silent.deadline)
    assert silent.titles() == ["cooking", "atlas", "bible"]
    assert not silent.is_known(List(TOOL))


def test_what_calls_use_is_not_read_again_while_the_watch_speaks(silent: LiveHarness) -> None:
    silent.speak(BOOK)
    silent.known(List(BOOK))
    reads = silent.store.calls.reads
    for _ in range(3):
        silent.clock.sleep(FRESH_S - 1)
        silent.speak(BOOK)
        assert silent.cache.refresh(silent.store, deadline=silent.deadline) == pytest.approx(FRESH_S)
    assert silent.store.calls.reads == reads
