"""What controllers ask a view: last known records, and what has changed since a mark."""

import pytest
from attrs import define, field

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.feed import Damage, follow
from netplug_core.datastore.view import MAX_CHANGES, START, Mark, View
from netplug_core.encoding.stored_json import JsonCodec, KindCodec
from netplug_core.errors import InvariantBroken
from netplug_core.records import (
    Create,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    NotFound,
    ReadResult,
    Record,
    Revision,
    Snapshot,
    Unreadable,
    WatchEvent,
    Write,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import DamagedDatastore

FRUIT: Kind[object] = Kind("Fruit", ("shelf", "name"))
TOOL: Kind[object] = Kind("Tool", ("name",))
FRUIT_CODEC = JsonCodec({FRUIT.name: KindCodec(lambda _value: {}, lambda _kind, mapping: mapping)})
APPLE, PEAR, PLUM = FRUIT.key("high", "apple"), FRUIT.key("high", "pear"), FRUIT.key("low", "plum")
SAW = TOOL.key("saw")


@define
class ViewHarness:
    """A view of a store with an apple, whose fruits are followed."""

    view: View = field(init=False)
    store: MemoryDatastore = field(init=False)
    clock: ManualClock = field(factory=ManualClock)
    reported: list[Kind[object]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.store = MemoryDatastore(clock=self.clock)
        self.view = View.for_datastore(self.store, clock=self.clock, uncached_kinds=frozenset())
        self.view.on_change = self.reported.append
        self.commit(Create(APPLE, "green"))
        self.follow()

    def commit(self, *writes: Write) -> tuple[Revision, ...]:
        return self.store.commit(writes, deadline=Deadline.after(self.clock, 5))

    def follow(self) -> None:
        follow(self.store, self.view, (FRUIT,), deadline=Deadline.after(self.clock, 0.1))

    def deliver(self, key: Key[object], value: str | None, revision: str = "9") -> None:
        """Deliver an event."""
        self.view.apply_event(WatchEvent(key, value, Revision(revision)), now_s=0.0)

    def relist(self, *records: Record[object]) -> None:
        """The watch breaks, and the kind is listed again."""
        self.view.lose({FRUIT})
        listed = Snapshot({List(FRUIT): ReadResult(records)}, {FRUIT: Revision("20")})
        self.view.follow_lists(listed, now_s=0.0)

    @property
    def mark(self) -> Mark:
        return self.view.changes_since(START)[0]


@pytest.fixture
def harness() -> ViewHarness:
    return ViewHarness()


def test_a_kind_that_was_not_listed_has_no_answer(harness: ViewHarness) -> None:
    assert harness.view.has_listed([FRUIT])
    assert not harness.view.has_listed([FRUIT, TOOL])
    with pytest.raises(InvariantBroken, match="Tool was not listed"):
        harness.view.find(SAW)
    with pytest.raises(InvariantBroken, match="Tool was not listed"):
        harness.view.list(TOOL)


def test_a_record_is_found_by_its_key(harness: ViewHarness) -> None:
    assert harness.view.get(APPLE).value == "green"
    assert harness.view.find(PEAR) is None
    with pytest.raises(NotFound, match=r"Fruit\(high/pear\) does not exist"):
        harness.view.get(PEAR)


def test_records_are_listed_in_order_by_kind_and_by_prefix(harness: ViewHarness) -> None:
    for key in (PLUM, PEAR):
        harness.deliver(key, "ripe")
    assert [record.key for record in harness.view.list(FRUIT)] == [APPLE, PEAR, PLUM]
    assert [record.key for record in harness.view.list(FRUIT, ("high",))] == [APPLE, PEAR]
    assert harness.view.list(FRUIT, ("middle",)) == ()


def test_a_reader_gets_each_key_once_and_deleted_ones_too(harness: ViewHarness) -> None:
    before = harness.mark
    harness.deliver(PEAR, "ripe")
    harness.deliver(APPLE, "red")
    harness.deliver(APPLE, None)
    middle, keys = harness.view.changes_since(before)
    assert keys == frozenset((PEAR, APPLE))
    harness.deliver(PLUM, "blue")
    assert harness.view.changes_since(middle)[1] == frozenset((PLUM,))
    assert harness.view.changes_since(before)[1] == frozenset((PEAR, APPLE, PLUM)), "it comes late"
    assert harness.view.changes_since(harness.mark) == (harness.mark, frozenset())


def test_a_reader_that_has_seen_nothing_looks_at_everything(harness: ViewHarness) -> None:
    assert harness.view.changes_since(START)[1] is None


def test_a_reader_gets_the_values_of_what_has_changed_as_of_one_moment(harness: ViewHarness) -> None:
    whole = harness.view.read_changes(START)
    assert (whole.is_whole, dict(whole.values)) == (True, {APPLE: "green"})
    harness.deliver(PEAR, "ripe")
    harness.deliver(APPLE, None)
    later = harness.view.read_changes(whole.mark)
    assert (later.is_whole, dict(later.values)) == (False, {PEAR: "ripe", APPLE: None})
    assert later.mark == harness.mark
    assert not harness.view.read_changes(later.mark).values
    harness.relist(Record(PLUM, "blue", Revision("20")))
    relisted = harness.view.read_changes(later.mark)
    assert (relisted.is_whole, dict(relisted.values)) == (False, {PEAR: None, PLUM: "blue"})


def test_a_record_that_cannot_be_read_and_was_not_known_is_among_what_has_changed(harness: ViewHarness) -> None:
    """What was known before stays; and both end with the next list that can be read, or when the record is deleted."""
    mark, unreadable = harness.mark, Unreadable.UNREADABLE
    harness.commit(Create(PEAR, "ripe"), Create(PLUM, "blue"))
    damaged = DamagedDatastore(harness.store, FRUIT_CODEC, {APPLE: b"{", PEAR: b"{"})

    def follow_again() -> None:
        harness.view.lose({FRUIT})
        deadline = Deadline.after(harness.clock, 0.1)
        follow(damaged, harness.view, (FRUIT,), deadline=deadline, damage=Damage.PASSED_OVER)

    follow_again()
    changes = harness.view.read_changes(mark)
    assert (changes.is_whole, dict(changes.values)) == (False, {PEAR: unreadable, PLUM: "blue"})
    whole = harness.view.read_changes(START)
    assert (whole.is_whole, dict(whole.values)) == (True, {APPLE: "green", PEAR: unreadable, PLUM: "blue"})
    assert harness.view.find(PEAR) is None
    follow_again()
    assert not harness.view.read_changes(changes.mark).values, "nothing has changed"
    damaged.damage.clear()
    follow_again()
    repaired = harness.view.read_changes(changes.mark)
    assert (repaired.is_whole, dict(repaired.values)) == (False, {PEAR: "ripe"})


def test_what_is_kept_of_values_is_what_a_reader_gets() -> None:
    view = View(clock=ManualClock(), uncached_kinds=frozenset(), keep=lambda value: str(value)[0])
    listed = Snapshot({List(FRUIT): ReadResult((Record(APPLE, "green", Revision("1")),))}, {FRUIT: Revision("1")})
    view.follow_lists(listed, now_s=0.0)
    assert [record.value for record in view.list(FRUIT)] == ["g"]
    view.apply_event(WatchEvent(PEAR, "ripe", Revision("2")), now_s=0.0)
    view.apply_event(WatchEvent(APPLE, None, Revision("3")), now_s=0.0)
    assert [(record.key, record.value) for record in view.list(FRUIT)] == [(PEAR, "r")]


def test_a_reader_that_is_too_far_behind_looks_at_everything(harness: ViewHarness) -> None:
    before = harness.mark
    for number in range(MAX_CHANGES):
        harness.deliver(FRUIT.key("low", str(number)), "x")
    _, keys = harness.view.changes_since(before)
    assert keys is not None
    assert len(keys) == MAX_CHANGES
    harness.deliver(APPLE, None)
    assert harness.view.changes_since(before)[1] is None
    assert harness.view.changes_since(Mark(before + 1))[1] is not None, "it has seen the change that is missing"


def test_a_key_that_changes_all_the_time_takes_the_place_of_one(harness: ViewHarness) -> None:
    before = harness.mark
    for number in range(2 * MAX_CHANGES):
        harness.deliver(APPLE, str(number))
    assert harness.view.changes_since(before)[1] == frozenset((APPLE,))


def test_while_a_watch_is_interrupted_the_last_records_are_known_and_calls_read(harness: ViewHarness) -> None:
    harness.view.lose({FRUIT})
    assert harness.view.get(APPLE).value == "green"
    assert harness.view.lookup((Get(APPLE),)).missing == (Get(APPLE),)
    harness.deliver(APPLE, "late")
    assert harness.view.get(APPLE).value == "green", "an event of a watch that has ended does not count"
    harness.view.confirm({FRUIT: 1.0})
    assert harness.view.watched == {}


def test_after_an_interruption_exactly_what_differs_has_changed(harness: ViewHarness) -> None:
    harness.deliver(PLUM, "blue", "8")
    before, apple = harness.mark, harness.view.get(APPLE)
    harness.reported.clear()
    harness.relist(apple, Record(PEAR, "ripe", Revision("19")))
    assert harness.view.changes_since(before)[1] == frozenset((PEAR, PLUM))
    assert harness.reported == [FRUIT]
    harness.reported.clear()
    harness.relist(apple, Record(PEAR, "ripe", Revision("19")))
    assert harness.view.changes_since(harness.mark)[1] == frozenset()
    assert harness.reported == []


def test_a_change_of_a_followed_kind_is_reported_outside_of_the_guard(harness: ViewHarness) -> None:
    assert harness.reported == [FRUIT], "it was listed"
    harness.view.on_change = lambda _kind: harness.reported.extend(
        record.key.kind for record in harness.view.list(FRUIT)
    )
    harness.deliver(PEAR, "ripe")
    assert harness.reported == [FRUIT, FRUIT, FRUIT]
    harness.deliver(PEAR, None)
    assert len(harness.reported) == 4
    harness.view.apply_event(WatchEvent(SAW, "sharp", Revision("1")), now_s=0.0)
    assert len(harness.reported) == 4


def test_an_equal_value_is_no_change_and_its_revision_is_known(harness: ViewHarness) -> None:
    before = harness.mark
    harness.reported.clear()
    harness.deliver(APPLE, "green", "8")
    harness.deliver(FRUIT.key("high", "fig"), None)
    harness.relist(Record(APPLE, "green", Revision("20")))
    assert (harness.view.changes_since(before), harness.reported) == ((before, frozenset()), [])
    assert harness.view.get(APPLE).revision == Revision("20")
    assert harness.view.list(FRUIT) == (Record(APPLE, "green", Revision("20")),)
    harness.deliver(APPLE, None)
    harness.deliver(APPLE, "green")
    assert harness.view.changes_since(before)[1] == frozenset((APPLE,)), "it was gone meanwhile"
    assert harness.reported == [FRUIT, FRUIT]


def test_a_change_of_what_is_not_kept_is_no_change(harness: ViewHarness) -> None:
    harness.view.keep = lambda value: str(value)[0]
    harness.deliver(APPLE, "ripe")
    before = harness.mark
    harness.reported.clear()
    harness.deliver(APPLE, "red")
    assert (harness.view.changes_since(before), harness.reported) == ((before, frozenset()), [])
    harness.deliver(APPLE, "green")
    assert (harness.view.changes_since(before)[1], harness.reported) == (frozenset((APPLE,)), [FRUIT])


def test_our_own_commit_is_a_change(harness: ViewHarness) -> None:
    before, writes = harness.mark, (Create(PEAR, "ripe"),)
    harness.view.apply_writes(writes, harness.commit(*writes))
    middle, keys = harness.view.changes_since(before)
    assert keys == frozenset((PEAR,))
    assert harness.view.get(PEAR).value == "ripe"
    harness.reported.clear()
    harness.follow()
    assert (harness.view.changes_since(middle), harness.reported) == ((middle, frozenset()), []), "it is known already"


def test_a_long_list_is_made_for_who_asks_for_it(harness: ViewHarness) -> None:
    for number in range(300):
        harness.deliver(FRUIT.key("low", str(number)), "x")
    assert List(FRUIT) not in harness.view.lookup((Get(APPLE),)).snapshot.results
    assert len(harness.view.lookup((List(FRUIT),)).snapshot.list(List(FRUIT))) == 301
    assert List(FRUIT) in harness.view.lookup((Get(APPLE),)).snapshot.results, "it is there already"


def test_a_page_of_a_followed_kind_is_read(harness: ViewHarness) -> None:
    page = List(FRUIT, limit=1)
    assert harness.view.lookup((page,)).missing == (page,)
    assert harness.view.find(PEAR) is None


def test_a_kind_with_a_damaged_record_keeps_its_last_records(harness: ViewHarness) -> None:
    damaged = ReadResult((), malformed=(Malformed("Fruit(high/apple)", "not text"),))
    harness.view.max_age_s = 5.0
    harness.clock.sleep(1)
    harness.view.add_snapshot(Snapshot({List(FRUIT): damaged}, {FRUIT: Revision("20")}))
    assert harness.view.watched == {}
    assert harness.view.get(APPLE).value == "green"
