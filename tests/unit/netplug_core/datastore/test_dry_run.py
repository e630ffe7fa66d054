"""The datastore of a dry run: what was written is found again, and the store behind gets reads only."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from attrs import define

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.dry_run import DryRunDatastore
from netplug_core.datastore.protocol import Atomicity
from netplug_core.errors import DatastoreError
from netplug_core.records import (
    ABSENT,
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    List,
    NotFound,
    NotSupported,
    Require,
    RequireUnchanged,
    Revision,
    Update,
    ValueCondition,
    Write,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.datastore_conformance import DATASTORE_CHECKS, DatastoreCheck
from netplug_core.testing.datastore_harness import FRUIT, SAMPLE_CODEC, TOOL, Medium
from netplug_core.testing.datastore_sharing_checks import SHARING_CHECKS
from netplug_core.testing.faults import DamagedDatastore
from netplug_core.testing.view_checks import VIEW_CHECKS
from tests.harness.stores import StoreWrapper

CLOCK = ManualClock()
SOON = Deadline.after(CLOCK, 60)
APPLE, PEAR, PLUM = (FRUIT.key("top", name) for name in ("apple", "pear", "plum"))
FRUITS = List(FRUIT)


@contextmanager
def open_dry_run_medium(clock: Clock) -> Iterator[Medium]:
    store = DryRunDatastore(MemoryDatastore(clock=clock))
    yield Medium(lambda: nullcontext(store))


# A dry run has one thread, nothing to watch, and pages that show its own writes.
NOT_PROMISED = {"pages_show_one_revision", *(rule.__name__ for rule in (*SHARING_CHECKS, *VIEW_CHECKS))}
PROMISED = [each for each in DATASTORE_CHECKS if each.__name__ not in NOT_PROMISED and "watch" not in each.__name__]


@pytest.mark.parametrize("check", PROMISED, ids=lambda check: check.__name__)
def test_it_is_a_datastore(check: DatastoreCheck) -> None:
    check(open_dry_run_medium)


@pytest.fixture(params=MemoryMode)
def inner(request: pytest.FixtureRequest) -> MemoryDatastore:
    """A store with an apple and a pear."""
    store = MemoryDatastore(request.param, clock=CLOCK)
    store.commit([Create(APPLE, "red"), Create(PEAR, "green")], deadline=SOON)
    store.calls.commits = 0
    return store


def values(store: DryRunDatastore | MemoryDatastore, query: List[str] = FRUITS) -> dict[Key[str], str]:
    return {record.key: record.value for record in store.read([query], deadline=SOON).list(query)}


def revision_of(store: DryRunDatastore, key: Key[str]) -> Revision:
    found = store.read([Get(key)], deadline=SOON).find(key)
    assert found is not None
    return found.revision


def test_what_is_written_is_found_and_never_reaches_the_store_behind(inner: MemoryDatastore) -> None:
    store, before = DryRunDatastore(inner), values(inner)
    writes: list[Write] = [
        Create(PLUM, "blue"),
        Update(APPLE, "brown", revision_of(store, APPLE)),
        Delete(PEAR, revision_of(store, PEAR)),
    ]
    store.commit(writes, deadline=SOON)
    assert values(store) == {APPLE: "brown", PLUM: "blue"}
    snapshot = store.read([Get(APPLE), Get(PEAR), Get(PLUM)], deadline=SOON)
    assert [found and found.value for found in map(snapshot.find, (APPLE, PEAR, PLUM))] == ["brown", None, "blue"]
    store.commit([Update(PLUM, "violet", revision_of(store, PLUM)), Create(PEAR, "ripe")], deadline=SOON)
    assert values(store) == {APPLE: "brown", PEAR: "ripe", PLUM: "violet"}
    assert (values(inner), inner.calls.commits) == (before, 0)


def test_its_commits_are_atomic_on_every_store(inner: MemoryDatastore) -> None:
    store = DryRunDatastore(inner)
    assert store.description.atomicity is Atomicity.ATOMIC
    assert store.description.location == inner.description.location
    before = values(store)
    with pytest.raises(Conflict) as caught:
        store.commit([Create(PLUM, "blue"), Delete(APPLE, Revision("old"))], deadline=SOON)
    assert (caught.value.subject, caught.value.index, caught.value.applied) == (APPLE, 1, 0)
    assert caught.value.current is not None
    assert values(store) == before


def test_a_change_by_another_writer_is_a_conflict(inner: MemoryDatastore) -> None:
    store = DryRunDatastore(inner)
    revision = revision_of(store, APPLE)
    inner.commit([Update(APPLE, "eaten", revision)], deadline=SOON)
    with pytest.raises(Conflict):
        store.commit([Update(APPLE, "brown", revision)], deadline=SOON)


def test_a_kind_is_unchanged_until_a_write_here(inner: MemoryDatastore) -> None:
    store = DryRunDatastore(inner)
    first = store.read([FRUITS], deadline=SOON).revision(FRUIT)
    store.commit([RequireUnchanged(FRUIT, first), Create(PLUM, "blue")], deadline=SOON)
    with pytest.raises(Conflict) as caught:
        store.commit([RequireUnchanged(FRUIT, first), Create(TOOL.key("saw"), "steel")], deadline=SOON)
    assert (caught.value.subject, caught.value.current) == (FRUIT, None)
    second = store.read([FRUITS], deadline=SOON).revision(FRUIT)
    store.commit([Delete(PLUM, revision_of(store, PLUM))], deadline=SOON)  # deletions do not count
    store.commit([RequireUnchanged(FRUIT, second), RequireUnchanged(TOOL, second)], deadline=SOON)
    with pytest.raises(Conflict):
        store.commit([RequireUnchanged(FRUIT, Revision("unknown"))], deadline=SOON)


def test_a_requirement_sees_what_was_written(inner: MemoryDatastore) -> None:
    store = DryRunDatastore(inner)
    store.commit([Require(PLUM, ABSENT), Create(PLUM, "blue")], deadline=SOON)
    with pytest.raises(Conflict):
        store.commit([Require(PLUM, ABSENT)], deadline=SOON)


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_pages_show_every_record_once_and_in_order(limit: int) -> None:
    inner = MemoryDatastore(clock=CLOCK)
    keys = [FRUIT.key(shelf, f"{number:02}") for shelf in ("low", "top") for number in range(9)]
    inner.commit([Create(key, "stored") for key in keys[::3]], deadline=SOON)
    store = DryRunDatastore(inner)
    store.commit([Create(key, "new") for key in keys[1::3]], deadline=SOON)
    store.commit([Delete(keys[3], revision_of(store, keys[3]))], deadline=SOON)
    found, after = list[Key[str]](), ""
    while True:
        page = List(FRUIT, limit=limit, after=after)
        snapshot = store.read([page], deadline=SOON)
        found.extend(record.key for record in snapshot.list(page))
        after = snapshot.after(page)
        if not after:
            break
    assert found == sorted(set(keys[::3] + keys[1::3]) - {keys[3]})


def test_lists_within_a_path_and_keys_alone() -> None:
    inner = MemoryDatastore(clock=CLOCK)
    inner.commit([Create(APPLE, "red"), Create(PEAR, "green")], deadline=SOON)
    store = DryRunDatastore(inner)
    store.commit([Create(PLUM, "red"), Create(FRUIT.key("low", "fig"), "red")], deadline=SOON)
    store.commit([Update(APPLE, "brown", revision_of(store, APPLE))], deadline=SOON)
    assert values(store, List(FRUIT, ("top",))) == {APPLE: "brown", PEAR: "green", PLUM: "red"}
    assert values(store, List(FRUIT, ("top",), name_prefix="p")) == {PEAR: "green", PLUM: "red"}
    some = List(FRUIT, ("top",), keys_only_if=ValueCondition("any", lambda _value: True))
    snapshot = store.read([some], deadline=SOON)
    assert snapshot.keys(some) == (PEAR,)
    assert [record.key for record in snapshot.readable(some)] == [APPLE, PLUM]


def test_a_damaged_record_can_be_replaced() -> None:
    inner = MemoryDatastore(clock=CLOCK)
    inner.commit([Create(APPLE, "red"), Create(PEAR, "green")], deadline=SOON)
    damaged = DamagedDatastore(inner, codec=SAMPLE_CODEC, damage={APPLE: b"7", PEAR: b"8"})
    store, query = DryRunDatastore(damaged), Get(APPLE)
    state = store.read([query], deadline=SOON).state(query)
    assert isinstance(state, str)
    with pytest.raises(NotFound):  # nothing that can be shown is there, as other stores say too
        store.commit([Update(APPLE, "new", Revision("old"))], deadline=SOON)
    store.commit([Update(APPLE, "new", state)], deadline=SOON)
    snapshot = store.read([FRUITS], deadline=SOON)
    assert [record.value for record in snapshot.readable(FRUITS)] == ["new"]
    assert [error.key for error in snapshot.malformed(FRUITS)] == [str(PEAR)]
    assert set(damaged.damage) == {APPLE, PEAR}


@define
class Refusing(StoreWrapper):
    """A store whose cluster keeps the fruit by itself."""

    def find_refusal(self, write: Write) -> DatastoreError | None:
        refused = isinstance(write, Create) and write.key.kind == FRUIT
        return NotSupported("Create", FRUIT, "fruit grows") if refused else None


def test_what_the_store_behind_always_refuses_is_refused() -> None:
    store = DryRunDatastore(Refusing(MemoryDatastore(clock=CLOCK)))
    with pytest.raises(NotSupported, match="fruit grows"):
        store.commit([Create(TOOL.key("saw"), "steel"), Create(APPLE, "red")], deadline=SOON)
    store.commit([Create(TOOL.key("saw"), "steel")], deadline=SOON)
    assert values(store) == {}


def test_nothing_changes_in_a_dry_run(inner: MemoryDatastore) -> None:
    with pytest.raises(NotSupported, match="nothing changes in a dry run"):
        DryRunDatastore(inner).watch({FRUIT: Revision("0")}, deadline=SOON)
