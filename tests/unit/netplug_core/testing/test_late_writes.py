"""A process dies while its commit is on its way: what is applied by then, and what arrives later."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.records import ABSENT, Create, Delete, Get, Kind, Require, Update, Write, Written
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import send_until

NOTE: Kind[str] = Kind("Note", ("name",))
ONE, TWO = NOTE.key("one"), NOTE.key("two")
WRITES: tuple[Write, ...] = (
    Require(NOTE.key("three"), ABSENT), Create(ONE, "a"), Create(TWO, "b"), Update(ONE, "c", Written(1)),
)  # fmt: skip


def stored(store: MemoryDatastore, deadline: Deadline) -> list[str | None]:
    snapshot = store.read((Get(ONE), Get(TWO)), deadline=deadline)
    return [record.value if record else None for record in (snapshot.find(ONE), snapshot.find(TWO))]


@pytest.fixture
def deadline() -> Deadline:
    return Deadline.after(ManualClock(), 5)


def make(mode: MemoryMode) -> MemoryDatastore:
    return MemoryDatastore(mode, clock=ManualClock())


def test_of_an_atomic_store_the_whole_commit_is_late(deadline: Deadline) -> None:
    store = make(MemoryMode.ATOMIC)
    late = send_until(store, WRITES, 1, deadline=deadline)
    assert stored(store, deadline) == [None, None]
    assert late is not None
    late.land(store, deadline=deadline)
    assert stored(store, deadline) == ["c", "b"]


@pytest.mark.parametrize(
    "position, before, after",
    [
        (0, [None, None], ["a", None]),
        (1, ["a", None], ["a", "b"]),
        (2, ["a", "b"], ["c", "b"]),
        (3, [None, None], ["a", None]),
    ],
)
def test_of_an_ordered_store_one_change_is_late(
    position: int, before: list[str | None], after: list[str | None], deadline: Deadline
) -> None:
    store = make(MemoryMode.ORDERED)
    late = send_until(store, WRITES, position, deadline=deadline)
    assert stored(store, deadline) == before
    assert late is not None
    late.land(store, deadline=deadline)
    assert stored(store, deadline) == after


def test_a_late_write_whose_condition_does_not_hold_any_more_is_refused(deadline: Deadline) -> None:
    store = make(MemoryMode.KUBE_LIKE)
    late = send_until(store, WRITES, 2, deadline=deadline)
    assert late is not None
    record = store.read((Get(ONE),), deadline=deadline).find(ONE)
    assert record is not None
    store.commit((Delete(ONE, record.revision),), deadline=deadline)
    late.land(store, deadline=deadline)
    assert stored(store, deadline) == [None, "b"]


def test_nothing_is_late_where_the_store_refused_an_earlier_write(deadline: Deadline) -> None:
    store = make(MemoryMode.ORDERED)
    store.commit((Create(ONE, "other"),), deadline=deadline)
    assert send_until(store, WRITES, 2, deadline=deadline) is None
    assert stored(store, deadline) == ["other", None]
