"""What the memory datastore does beyond the conformance suite: counting, forgetting, ordered mode."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity
from netplug_core.errors import InvariantBroken, Unavailable
from netplug_core.records import (
    Conflict,
    Create,
    Delete,
    Get,
    List,
    RequireUnchanged,
    Revision,
    Update,
    WatchExpired,
    Written,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_harness import FRUIT, TOOL

APPLE = FRUIT.key("green", "apple")
PEAR = FRUIT.key("green", "pear")
PLUM = FRUIT.key("green", "plum")


@pytest.fixture
def deadline(clock: ManualClock) -> Deadline:
    return Deadline.after(clock, 5.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryDatastore:
    return MemoryDatastore(clock=clock)


def test_calls_are_counted_also_those_that_are_refused(store: MemoryDatastore, deadline: Deadline) -> None:
    store.read((Get(APPLE), List(TOOL)), deadline=deadline)
    store.commit((Create(APPLE, "a"),), deadline=deadline)
    with pytest.raises(Conflict):
        store.commit((Update(APPLE, "b", Revision("77")),), deadline=deadline)
    assert (store.calls.reads, store.calls.commits) == (1, 2)


def test_the_description_has_name_and_atomicity(clock: ManualClock) -> None:
    store = MemoryDatastore(MemoryMode.ORDERED, clock=clock)
    assert (store.description.name, store.description.atomicity) == ("memory", Atomicity.ORDERED)


def test_revisions_are_one_count_over_all_kinds(store: MemoryDatastore, deadline: Deadline) -> None:
    assert store.commit((Create(APPLE, "a"), Create(TOOL.key("saw"), "s")), deadline=deadline) == ("1", "2")
    assert dict(store.read((List(FRUIT),), deadline=deadline).revisions) == {FRUIT: "2"}


def test_a_page_holds_as_many_records_as_its_limit(store: MemoryDatastore, deadline: Deadline) -> None:
    store.commit([Create(key, "x") for key in (PEAR, APPLE, PLUM)], deadline=deadline)
    first = List(FRUIT, limit=2)
    snapshot = store.read((first,), deadline=deadline)
    assert [record.key for record in snapshot.list(first)] == [APPLE, PEAR]
    rest = List(FRUIT, after=snapshot.after(first))
    snapshot = store.read((rest,), deadline=deadline)
    assert [record.key for record in snapshot.list(rest)] == [PLUM]
    assert snapshot.after(rest) == ""


def test_the_pages_of_a_cached_list_show_one_revision(clock: ManualClock, deadline: Deadline) -> None:
    store = MemoryDatastore(MemoryMode.KUBE_LIKE, clock=clock)
    store.commit([Create(key, "x") for key in (APPLE, PEAR, PLUM)], deadline=deadline)
    clock.sleep(2.0)
    store.commit((Create(FRUIT.key("green", "quince"), "x"),), deadline=deadline)
    page, found = List(FRUIT, limit=1, may_be_cached=True), []
    for _ in range(3):
        snapshot = store.read((page,), deadline=deadline)
        assert snapshot.results[page].is_cached
        found += [record.key for record in snapshot.list(page)]
        page = evolve(page, after=snapshot.after(page))
    assert (found, page.after) == ([APPLE, PEAR, PLUM], "")


def test_a_page_of_a_revision_that_is_forgotten_is_refused(clock: ManualClock, deadline: Deadline) -> None:
    store = MemoryDatastore(clock=clock, keep_changes=2)
    store.commit([Create(key, "x") for key in (APPLE, PEAR)], deadline=deadline)
    first = List(FRUIT, limit=1)
    after = store.read((first,), deadline=deadline).after(first)
    for key in (PLUM, TOOL.key("saw"), TOOL.key("axe")):
        store.commit((Create(key, "x"),), deadline=deadline)
    with pytest.raises(Unavailable, match="the list of Fruit: the revision of its first page is no longer kept"):
        store.read((List(FRUIT, limit=1, after=after),), deadline=deadline)


def test_changes_beyond_those_kept_are_an_expired_watch(clock: ManualClock, deadline: Deadline) -> None:
    store = MemoryDatastore(clock=clock, keep_changes=2)
    store.commit([Create(key, "x") for key in (APPLE, PEAR, PLUM)], deadline=deadline)
    with pytest.raises(WatchExpired, match="after revision 0 are no longer kept"):
        next(store.watch({FRUIT: Revision("0"), TOOL: Revision("2")}, deadline=deadline))
    assert next(store.watch({FRUIT: Revision("1")}, deadline=deadline)).key == PEAR


@pytest.mark.parametrize("revision", ["4", "uid/4", ""])
def test_a_revision_of_another_store_proves_nothing(store: MemoryDatastore, deadline: Deadline, revision: str) -> None:
    store.commit((Create(APPLE, "a"),), deadline=deadline)
    with pytest.raises(WatchExpired):
        next(store.watch({FRUIT: Revision(revision)}, deadline=deadline))
    with pytest.raises(Conflict):
        store.commit((RequireUnchanged(FRUIT, Revision(revision)),), deadline=deadline)


def test_a_watch_of_nothing_ends_by_its_deadline(store: MemoryDatastore, deadline: Deadline) -> None:
    assert list(store.watch({}, deadline=deadline)) == []


def test_an_ordered_store_makes_every_write_by_itself(clock: ManualClock, deadline: Deadline) -> None:
    store = MemoryDatastore(MemoryMode.ORDERED, clock=clock)
    writes = (Create(APPLE, "pending"), Update(APPLE, "confirmed", Written(0)), Delete(APPLE, Written(1)))
    assert store.commit(writes, deadline=deadline) == ("1", "2", "3")
    values = [change.value for change in store.watch({FRUIT: Revision("0")}, deadline=deadline)]
    assert values == ["pending", "confirmed", None]


def test_an_ordered_store_refuses_two_creates_of_one_key(clock: ManualClock, deadline: Deadline) -> None:
    store = MemoryDatastore(MemoryMode.ORDERED, clock=clock)
    with pytest.raises(InvariantBroken):
        store.commit((Create(APPLE, "a"), Create(APPLE, "b")), deadline=deadline)
    assert store.read((Get(APPLE),), deadline=deadline).find(APPLE) is None


def test_a_kube_like_store_keeps_the_revision_of_an_update_that_changes_nothing(
    clock: ManualClock, deadline: Deadline
) -> None:
    store = MemoryDatastore(MemoryMode.KUBE_LIKE, clock=clock)
    (created,) = store.commit((Create(APPLE, "a"),), deadline=deadline)
    assert store.commit((Update(APPLE, "a", created),), deadline=deadline) == (created,)
    with pytest.raises(Conflict):
        store.commit((Update(APPLE, "a", Revision("77")),), deadline=deadline)
    (changed,) = store.commit((Update(APPLE, "b", created),), deadline=deadline)
    events = [(event.value, event.revision) for event in store.watch({FRUIT: Revision("0")}, deadline=deadline)]
    assert events == [("a", created), ("b", changed)]
    assert next(store.watch({FRUIT: created}, deadline=deadline)).revision == changed


def test_a_kube_like_store_has_the_uid_of_a_record_in_its_revision(clock: ManualClock, deadline: Deadline) -> None:
    store = MemoryDatastore(MemoryMode.KUBE_LIKE, clock=clock)
    created, changed = store.commit((Create(APPLE, "a"), Update(APPLE, "b", Written(0))), deadline=deadline)
    assert (created, changed) == ("uid-1/1", "uid-1/2")
    with pytest.raises(Conflict):
        store.commit((Delete(APPLE, Revision("uid-0/2")),), deadline=deadline)
    store.commit((Delete(APPLE, changed),), deadline=deadline)
    assert store.commit((Create(APPLE, "a"),), deadline=deadline) == ("uid-4/4",)
    assert dict(store.read((List(FRUIT),), deadline=deadline).revisions) == {FRUIT: "4"}
