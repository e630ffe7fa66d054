"""The store whose records can be damaged: what is read instead, and what removes the damage."""

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.model import (
    BLOCK,
    FULL,
    HANDLE,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
    affinities_query,
    affinity_key,
    handle_key,
)
from netplug_core.records import Create, Delete, Get, List, RequireUnchanged, Update
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import DamagedDatastore

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


def test_a_damaged_record_is_not_answered_by_its_key_and_the_others_are() -> None:
    clock = ManualClock()
    store = DamagedDatastore(MemoryDatastore(clock=clock))
    deadline = Deadline.after(clock, 5)
    blocks = [Block.new(Prefix.parse(f"10.0.0.{number}/32"), owner="host:a", now_ns=1) for number in range(4)]
    full = [block.assign(block.free, Attribute(handle="h")) for block in blocks[:3]]
    revisions = store.commit([Create(block.key, block) for block in (*full, blocks[3])], deadline=deadline)
    store.damage[full[0].key] = b"{"
    store.damage[full[1].key] = store.codec.encode(full[1].key, blocks[1])  # stored otherwise, and sound
    page = List(BLOCK, keys_only_if=FULL)
    snapshot = store.read((page,), deadline=deadline)
    assert list(snapshot.results) == [page]
    assert snapshot.keys(page) == (full[2].key,)
    assert [record.value for record in snapshot.readable(page)] == [blocks[1], blocks[3]]
    assert [(error.subject, error.revision) for error in snapshot.malformed(page)] == [(full[0].key, revisions[0])]


def test_damage_of_one_record_does_not_hide_that_a_cache_answered() -> None:
    clock = ManualClock()
    store = DamagedDatastore(MemoryDatastore(MemoryMode.KUBE_LIKE, clock=clock))
    prefix = Prefix.parse("10.0.0.0/26")
    key, query = affinity_key("host:a", prefix), affinities_query("host:a", prefix.family)
    store.commit([Create(key, Affinity(state=AffinityState.CONFIRMED))], deadline=Deadline.after(clock, 5))
    clock.sleep(10)
    store.damage[key] = b"{"
    result = store.read((query,), deadline=Deadline.after(clock, 5)).results[query]
    assert (result.records, len(result.malformed), result.is_cached) == ((), 1, True)
