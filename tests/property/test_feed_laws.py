"""A cache that a watch feeds is never outdated in silence.

Laws, for any commits of others, commits of this process that reach the cache at once or late, and watches that
end early, fail or have lost their history: after a watch has delivered everything, the cache answers as the store
does; after a watch has failed, nothing is known of its kinds.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.datastore.view import CachedState, DatastoreCache, follow
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.records import Create, Delete, Get, Kind, List, Query, Revision, Update, WatchEvent, Write
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

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        yield from islice(super().watch(start, deadline=deadline), self.limit)
        if self.is_failing:
            raise Unavailable("the store", "the watch was cut")


@define
class FedCache:
    store: DisturbedWatch
    clock: ManualClock
    cache: DatastoreCache
    untold: list[tuple[tuple[Write, ...], tuple[Revision, ...], CachedState]] = field(factory=list)

    def write(self, key_index: int, value: str, *, is_own: bool, is_late: bool) -> None:
        """Create, update or (an empty value) delete a record."""
        key, began = KEYS[key_index], self.cache.state
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

    def follow(self, limit: int | None, *, is_failing: bool) -> bool:
        """Whether the watch ended well."""
        self.store.limit, self.store.is_failing = limit, is_failing
        try:
            follow(self.store, self.cache, KINDS, deadline=Deadline.after(self.clock, 0.1))
        except NetplugError:
            return False
        return True

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 5)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3), st.sampled_from("xy "), st.booleans(), st.booleans()),
        st.tuples(st.just("follow"), st.sampled_from([0, 1, 2, None]), st.booleans()),
        st.tuples(st.just("tell")),
    ),
    max_size=20,
)


@pytest.mark.parametrize("mode", MemoryMode)
@given(steps=STEPS)
def test_a_fed_cache_is_true_or_empty(mode: MemoryMode, steps: list[tuple[object, ...]]) -> None:
    clock = ManualClock()
    store = DisturbedWatch(mode, clock=clock, keep_changes=4)
    fed = FedCache(store, clock, DatastoreCache.for_datastore(store, clock=clock, uncached_kinds=frozenset()))
    for step in steps:
        match step:
            case ("write", int(index), str(value), bool(is_own), bool(is_late)):
                fed.write(index, value.strip() or "", is_own=is_own, is_late=is_late)
            case ("follow", limit, bool(is_failing)):
                if not fed.follow(limit if isinstance(limit, int) else None, is_failing=is_failing):
                    assert fed.cache.lookup(QUERIES).missing == QUERIES
            case _:
                fed.tell()
    fed.tell()
    if not fed.follow(None, is_failing=False):
        fed.follow(None, is_failing=False)  # its history was lost: it has listed everything again
    looked_up = fed.cache.lookup(QUERIES)
    known, missing = looked_up.snapshot, looked_up.missing
    assert missing == ()
    assert {query: known.results[query] for query in QUERIES} == store.read(QUERIES, deadline=fed.deadline).results
