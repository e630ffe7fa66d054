"""The store whose records can be damaged: what is read instead, and what removes the damage."""

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.ipam.model.handle import HANDLE, Handle, handle_key
from netplug_core.records import Create, Delete, Get, List, RequireUnchanged, Update
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.damage import DamagedDatastore

KEY, OTHER = handle_key("h"), handle_key("other")
ALL = List(HANDLE)


def test_damage_is_read_until_the_record_is_written() -> None:
    clock = ManualClock()
    store = DamagedDatastore(MemoryDatastore(clock=clock))
    deadline = Deadline.after(clock, 5)
    revision, _ = store.commit((Create(KEY, Handle()), Create(OTHER, Handle())), deadline=deadline)
    store.damage[KEY] = b"{"
    snapshot = store.read((ALL, Get(KEY), Get(OTHER)), deadline=deadline)
    assert [record.key for record in snapshot.readable(ALL)] == [OTHER]
    assert [error.key for error in snapshot.malformed(ALL)] == [str(KEY)]
    assert snapshot.state(Get(KEY)) == revision
    assert snapshot.find(OTHER) is not None
    kept = RequireUnchanged(HANDLE, snapshot.revision(HANDLE))
    store.commit((kept, Update(KEY, Handle(unknown_json="{}"), revision)), deadline=deadline)
    assert [record.key for record in store.read((ALL,), deadline=deadline).list(ALL)] == [KEY, OTHER]


def test_damage_may_be_a_mark_of_deletion_and_goes_with_the_record() -> None:
    clock = ManualClock()
    store = DamagedDatastore(MemoryDatastore(clock=clock))
    deadline = Deadline.after(clock, 5)
    start = store.read((ALL,), deadline=deadline).revision(HANDLE)
    (revision,) = store.commit((Create(KEY, Handle()),), deadline=deadline)
    store.damage[KEY] = b'{"deleted": true}'
    assert store.read((ALL,), deadline=deadline).list(ALL) == ()
    store.commit((Delete(KEY, revision),), deadline=deadline)
    assert store.damage == {}
    assert store.description == store.inner.description
    assert [event.value for event in store.watch({HANDLE: start}, deadline=Deadline.after(clock, 0))] == [
        Handle(),
        None,
    ]
