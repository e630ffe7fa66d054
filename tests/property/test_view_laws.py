"""A view that follows a watch is never outdated in silence.

Laws, for any commits of others, commits of this process that reach the view at once or late, watches that end early,
fail, have lost their history or deliver again what they had delivered, and readers that look whenever they like:

- after a watch has delivered everything, the view answers as the store does, by calls and by ``find`` and ``list``;
- after a watch has failed, no call is answered about its kinds;
- a reader that looks only at the keys that ``changes_since`` names, and at everything when there are too many, has then
  what the store has: no change and no deletion is lost to it, however late it comes;
- it gets exactly the keys whose kept values differ from those before, by an event or by a new list;
- nothing is absent before its kind was listed once.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.datastore.feed import follow
from netplug_core.datastore.view import START, Mark, View
from netplug_core.errors import InvariantBroken, NetplugError, Unavailable
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Query,
    ReadResult,
    Record,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    Write,
)
from netplug_core.testing.clock import ManualClock

FRUIT: Kind[str] = Kind("Fruit", ("name",))
TOOL: Kind[str] = Kind("Tool", ("name",))
KINDS = (FRUIT, TOOL)
KEYS = tuple(kind.key(name) for kind in KINDS for name in "ab")
QUERIES: tuple[Query, ...] = (*map(Get, KEYS), *map(List, KINDS))


class DisturbedWatch(MemoryDatastore):
    """A store whose next watch delivers ``limit`` events and then ends, or fails."""

    limit: int | None = None
    is_failing: bool = False
    does_repeat: bool = False
    first: Mapping[Kind[object], Revision] | None = None

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        self.first = start if self.first is None else self.first
        begin = self.first if self.does_repeat else start
        yield from islice(super().watch(begin, deadline=deadline), self.limit)
        if self.is_failing:
            raise Unavailable("the store", "the watch was cut")


@define
class Reader:
    """Keeps a copy of the records, which follows the changes that a view names."""

    view: View
    mark: Mark = START
    records: dict[Key[object], object] = field(factory=dict)

    def look(self) -> None:
        """Come to what the view has now."""
        self.mark, keys = self.view.changes_since(self.mark)
        if keys is None:
            kinds = [kind for kind in KINDS if self.view.has_listed([kind])]
            self.records = {record.key: record.value for kind in kinds for record in self.view.list(kind)}
            return
        for key in keys:
            found = self.view.find(key)
            if found is None:
                self.records.pop(key, None)
            else:
                self.records[key] = found.value


@define
class FedCache:
    store: DisturbedWatch
    clock: ManualClock
    cache: View
    untold: list[tuple[tuple[Write, ...], tuple[Revision, ...], Mapping[Kind[object], Revision]]] = field(factory=list)

    def write(self, key_index: int, value: str, *, is_own: bool, is_late: bool) -> None:
        """Create, update or (an empty value) delete a record."""
        key, began = KEYS[key_index], self.cache.revisions
        found = self.store.read((Get(key),), deadline=self.deadline).find(key)
        if found is None:
            writes: tuple[Write, ...] = (Create(key, value),)
        else:
            writes = (Update(key, value, found.revision) if value else Delete(key, found.revision),)
        revisions = self.store.commit(writes, deadline=self.deadline)
        if is_own:
            self.untold.append((writes, revisions, began))
            if not is_late:
                self.tell()

    def tell(self) -> None:
        """What this process has committed reaches its cache."""
        for writes, revisions, began in self.untold:
            self.cache.apply_writes(writes, revisions, began=began)
        self.untold.clear()

    def follow(self, limit: int | None, *, is_failing: bool, does_repeat: bool = False) -> bool:
        """Whether the watch ended well."""
        self.store.limit, self.store.is_failing, self.store.does_repeat = limit, is_failing, does_repeat
        try:
            follow(self.store, self.cache, KINDS, deadline=Deadline.after(self.clock, 0.1))
        except NetplugError:
            return False
        return True

    def compact(self) -> None:
        """The store forgets the changes so far."""
        scrap = Kind[str]("Scrap", ("name",)).key("a")
        for _ in range(4):
            (revision,) = self.store.commit((Create(scrap, "x"),), deadline=self.deadline)
            self.store.commit((Delete(scrap, revision),), deadline=self.deadline)

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3), st.sampled_from("xy "), st.booleans(), st.booleans()),
        st.tuples(st.just("follow"), st.sampled_from([0, 1, 2, None]), st.booleans(), st.booleans()),
        st.tuples(st.just("tell")),
        st.tuples(st.just("look"), st.integers(0, 1)),
        st.tuples(st.just("compact")),
    ),
    max_size=20,
)


@pytest.mark.parametrize("mode", MemoryMode)
@given(steps=STEPS)
def test_a_followed_view_is_true_and_loses_no_change(mode: MemoryMode, steps: list[tuple[object, ...]]) -> None:
    clock = ManualClock()
    store = DisturbedWatch(mode, clock=clock, keep_changes=4)
    fed = FedCache(store, clock, View.for_datastore(store, clock=clock, uncached_kinds=frozenset()))
    readers = Reader(fed.cache), Reader(fed.cache)
    for step in steps:
        match step:
            case ("write", int(index), str(value), bool(is_own), bool(is_late)):
                fed.write(index, value.strip() or "", is_own=is_own, is_late=is_late)
            case ("follow", limit, bool(is_failing), bool(does_repeat)):
                count = limit if isinstance(limit, int) else None
                if not fed.follow(count, is_failing=is_failing, does_repeat=does_repeat):
                    assert fed.cache.lookup(QUERIES).missing == QUERIES
            case ("look", int(number)):
                readers[number].look()
            case ("compact",):
                fed.compact()
            case _:
                fed.tell()
    fed.tell()
    if not fed.follow(None, is_failing=False):
        fed.follow(None, is_failing=False)  # its history was lost: it has listed everything again
    looked_up = fed.cache.lookup(QUERIES)
    known, missing = looked_up.snapshot, looked_up.missing
    assert missing == ()
    stored = store.read(QUERIES, deadline=fed.deadline)
    assert {query: known.results[query] for query in QUERIES} == stored.results
    records = {record.key: record.value for kind in KINDS for record in stored.list(List(kind))}
    assert {record.key: record.value for kind in KINDS for record in fed.cache.list(kind)} == records
    for reader in readers:
        reader.look()
        assert reader.records == records


VALUES = st.sampled_from(["red", "rotten", "green"])
APPLICATIONS = st.one_of(
    st.tuples(st.sampled_from("ab"), st.none() | VALUES), st.dictionaries(st.sampled_from("ab"), VALUES)
)


@given(applied=st.lists(APPLICATIONS, max_size=20))
def test_a_reader_gets_the_keys_whose_values_differ(
    applied: list[tuple[str, str | None] | dict[str, str]],
) -> None:
    reported: list[Kind[object]] = []
    view = View(clock=ManualClock(), uncached_kinds=frozenset(), keep=lambda value: str(value)[0])
    view.follow_lists(Snapshot({List(FRUIT): ReadResult(())}, {FRUIT: Revision("0")}), now_s=0.0)
    view.on_change = reported.append
    mark, before = view.changes_since(START)[0], dict[str, tuple[str, str]]()
    for number, each in enumerate(applied, 1):
        revision = str(number)
        if isinstance(each, dict):
            after = {name: (value, revision) for name, value in each.items()}
            records = tuple(Record(FRUIT.key(name), value, Revision(revision)) for name, value in sorted(each.items()))
            view.follow_lists(Snapshot({List(FRUIT): ReadResult(records)}, {FRUIT: Revision(revision)}), now_s=0.0)
        else:
            name, changed = each
            after = {**before, **({} if changed is None else {name: (changed, revision)})}
            if changed is None:
                after.pop(name, None)
            view.apply_event(WatchEvent(FRUIT.key(name), changed, Revision(revision)), now_s=0.0)
        differs = {name for name in "ab" if before.get(name, ("",))[0][:1] != after.get(name, ("",))[0][:1]}
        mark, keys = view.changes_since(mark)
        assert keys == frozenset(map(FRUIT.key, differs))
        assert reported == [FRUIT] * bool(differs)
        found = {record.key.name: (record.value, record.revision) for record in view.list(FRUIT)}
        assert found == {name: (value[0], revision) for name, (value, revision) in after.items()}
        reported.clear()
        before = after


@given(steps=STEPS)
def test_nothing_is_absent_before_its_kind_was_listed(steps: list[tuple[object, ...]]) -> None:
    clock = ManualClock()
    store = DisturbedWatch(clock=clock, keep_changes=4)
    fed = FedCache(store, clock, View.for_datastore(store, clock=clock, uncached_kinds=frozenset()))
    for step in steps:
        match step:
            case ("write", int(index), str(value), bool(is_own), bool(is_late)):
                fed.write(index, value.strip() or "", is_own=is_own, is_late=is_late)
            case ("look", _):
                fed.cache.add_snapshot(store.read(QUERIES[:1], deadline=fed.deadline))
            case _:
                fed.tell()
    for key in KEYS:
        assert not fed.cache.has_listed([key.kind])
        with pytest.raises(InvariantBroken):
            fed.cache.find(key)
    fed.follow(0, is_failing=False)
    for key in KEYS:
        stored = store.read([Get(key)], deadline=fed.deadline).find(key)
        assert fed.cache.find(key) == stored
