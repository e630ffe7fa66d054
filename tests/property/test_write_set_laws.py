"""A snapshot to which writes were applied equals what a store answers after their commit.

The law holds in every mode of the memory store, for each kind of write, for several writes to one key that go on from
each other by ``Written``, and for every query that can still be answered: a page is left out if records were added or
removed. The revisions of kinds are not compared; they stay those of the read.
"""

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.clock import Deadline
from netplug_core.datastore.write_set import apply_writes
from netplug_core.records import (
    ABSENT,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    Write,
    Written,
)
from netplug_core.testing.clock import ManualClock

FRUIT: Kind[str] = Kind("Fruit", ("shelf", "name"))
TOOL: Kind[str] = Kind("Tool", ("name",))
KEYS = (*(FRUIT.key(shelf, name) for shelf in "ab" for name in "pqr"), TOOL.key("p"), TOOL.key("q"))
QUERIES: tuple[Query, ...] = (
    *map(Get, KEYS),
    List(FRUIT),
    List(FRUIT, ("a",)),
    List(FRUIT, ("b", "q")),
    List(FRUIT, limit=2),
    List(TOOL),
    List(TOOL, limit=1),
)
VALUES = st.sampled_from(["", "ripe", "old"])


@define
class CommitBuilder:
    """Draws a commit that a store with this state accepts."""

    snapshot: Snapshot
    draw: st.DrawFn
    writes: list[Write] = field(factory=list)
    last_write: dict[Key[str], int] = field(factory=dict)
    deleted: set[Key[str]] = field(factory=set)

    def add(self, key: Key[str]) -> None:
        """One more write to a key, or a condition."""
        record, index = self.snapshot.find(key), self.last_write.get(key)
        if key in self.deleted:
            return
        if index is None and self.draw(st.booleans()):
            self.writes.append(Require(key, record.revision if record else ABSENT))
        if self.draw(st.integers(0, 4)) == 0:
            self.writes.append(RequireUnchanged(key.kind, self.snapshot.revision(key.kind)))
        self.last_write[key] = len(self.writes)
        if index is None and record is None:
            self.writes.append(Create(key, self.draw(VALUES)))
            return
        revision = Written(index) if index is not None else Revision(record.revision if record else "")
        if self.draw(st.booleans()):
            self.writes.append(Update(key, self.draw(VALUES), revision))
        else:
            self.writes.append(Delete(key, revision))
            self.deleted.add(key)


@st.composite
def commits(draw: st.DrawFn, snapshot: Snapshot) -> tuple[Write, ...]:
    builder = CommitBuilder(snapshot, draw)
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=8)):
        builder.add(key)
    return tuple(builder.writes)


@pytest.mark.parametrize("mode", MemoryMode)
@given(data=st.data())
def test_the_snapshot_after_a_commit_is_what_the_store_then_answers(mode: MemoryMode, data: st.DataObject) -> None:
    clock = ManualClock()
    deadline = Deadline.after(clock, 60)
    store = MemoryDatastore(mode, clock=clock)
    contents = data.draw(st.dictionaries(st.sampled_from(KEYS), VALUES))
    store.commit([Create(key, value) for key, value in contents.items()], deadline=deadline)
    everything = store.read(QUERIES, deadline=deadline)
    queries = data.draw(st.lists(st.sampled_from(QUERIES), unique=True))
    before = store.read(queries, deadline=deadline)
    writes = data.draw(commits(everything))
    revisions = store.commit(writes, deadline=deadline)

    after, stored = apply_writes(before, writes, revisions), store.read(QUERIES, deadline=deadline)

    changed = {write.key for write in writes if not isinstance(write, Require | RequireUnchanged)}
    assert {query for query in queries if query not in after.results} <= {
        query for query in queries if isinstance(query, List) and query.limit and any(map(query.covers, changed))
    }
    for query, result in after.results.items():
        assert result.records == stored.results[query].records
    assert all(after.has(Get(key)) for key in changed)
    assert after.revisions == before.revisions

    unknown = apply_writes(before, writes)
    for query, result in unknown.results.items():
        values = [(record.key, record.value) for record in stored.results[query].records]
        assert [(record.key, record.value) for record in result.records] == values
        assert all(record.revision == "" for record in result.records if record.key in changed)
