"""Repairs that make handles and affinities from blocks: what they write, and when they write nothing."""

import pytest

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.allocation.commit_sizes import BLOCKS_PER_RESTORED_HANDLE
from netplug_core.ipam.model.affinity import Affinity, AffinityState, affinity_key
from netplug_core.ipam.model.block import Attribute, Block
from netplug_core.ipam.model.handle import Handle, handle_key
from netplug_core.ipam.reporting.restore import DeleteDamaged, RestoreAffinity, RestoreHandle
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Malformed,
    Query,
    ReadResult,
    Record,
    Require,
    Revision,
    Snapshot,
    Update,
)

ONE, TWO = Prefix.parse("10.0.0.0/30"), Prefix.parse("10.0.0.4/30")
BLOCK = Block.new(ONE, owner="host:a", now_ns=1).assign((Ordinal(0), Ordinal(2)), Attribute(handle="h"))
KEY = affinity_key("host:a", ONE)
HANDLE = RestoreHandle(key=handle_key("h"), blocks=(BLOCK.key, Block.new(TWO, owner="", now_ns=1).key))
AFFINITY = RestoreAffinity(key=KEY, block=BLOCK.key)
DAMAGED = DeleteDamaged(key=handle_key("h"), revision=Revision("3"))


def snapshot_of(queries: tuple[Query, ...], *found: Record[object], damaged: str = "") -> Snapshot:
    """The records; the first query found a record that cannot be read, at that revision."""
    results: dict[Query, ReadResult] = {
        query: ReadResult(tuple(each for each in found if isinstance(query, Get) and query.key == each.key))
        for query in queries
    }
    if damaged:
        results[queries[0]] = ReadResult((), malformed=(Malformed("x", "it is rotten", Revision(damaged)),))
    return Snapshot(results, {})


def record(key: Key[object], value: object, revision: str = "1") -> Record[object]:
    return Record(key, value, Revision(revision))


def test_a_missing_handle_is_created_while_its_blocks_are_unchanged() -> None:
    found = snapshot_of(HANDLE.queries, record(BLOCK.key, BLOCK, "5"))
    assert HANDLE.writes(found) == (
        Require(BLOCK.key, Revision("5")),
        Create(handle_key("h"), Handle(blocks=((ONE, 2),))),
    )


def test_a_handle_over_more_blocks_than_a_commit_takes_is_restored_from_the_first() -> None:
    prefixes = [Prefix.parse(f"10.0.{number}.0/30") for number in range(BLOCKS_PER_RESTORED_HANDLE + 1)]
    blocks = [Block.new(each, owner="", now_ns=1).assign((Ordinal(1),), Attribute(handle="h")) for each in prefixes]
    wide = RestoreHandle(key=handle_key("h"), blocks=tuple(block.key for block in blocks))
    *required, made = wide.writes(snapshot_of(wide.queries, *(record(block.key, block) for block in blocks)))
    assert required == [Require(block.key, Revision("1")) for block in blocks[:-1]]
    assert made == Create(wide.key, Handle(blocks=tuple((each, 1) for each in prefixes[:-1])))


def test_a_damaged_handle_is_replaced_at_its_revision() -> None:
    found = snapshot_of(HANDLE.queries, record(BLOCK.key, BLOCK, "5"), damaged="9")
    assert HANDLE.writes(found)[-1] == Update(handle_key("h"), Handle(blocks=((ONE, 2),)), Revision("9"))


def test_a_handle_that_is_stored_by_now_or_holds_nothing_is_left() -> None:
    assert HANDLE.writes(snapshot_of(HANDLE.queries, record(handle_key("h"), Handle()))) == ()
    empty = Block.new(ONE, owner="host:a", now_ns=1)
    assert HANDLE.writes(snapshot_of(HANDLE.queries, record(BLOCK.key, empty))) == ()


def test_an_affinity_is_restored_pending_so_that_its_owner_confirms_it() -> None:
    pending = Affinity(state=AffinityState.PENDING)
    block = record(BLOCK.key, BLOCK, "5")
    required = Require(BLOCK.key, Revision("5"))
    assert AFFINITY.writes(snapshot_of(AFFINITY.queries, block)) == (required, Create(KEY, pending))
    damaged = snapshot_of(AFFINITY.queries, block, damaged="9")
    assert AFFINITY.writes(damaged) == (required, Update(KEY, pending, Revision("9")))
    stored = record(KEY, Affinity(state=AffinityState.CONFIRMED))
    assert AFFINITY.writes(snapshot_of(AFFINITY.queries, block, stored)) == ()


@pytest.mark.parametrize("block", [None, BLOCK.relinquished(), Block.new(ONE, owner="host:b", now_ns=1)])
def test_an_affinity_is_not_restored_to_a_block_of_another(block: Block | None) -> None:
    found = (record(BLOCK.key, block),) if block else ()
    assert AFFINITY.writes(snapshot_of(AFFINITY.queries, *found)) is None


def test_a_damaged_record_is_deleted_as_it_was_judged() -> None:
    assert DAMAGED.writes(snapshot_of(DAMAGED.queries, damaged="3")) == (Delete(handle_key("h"), Revision("3")),)
    assert DAMAGED.writes(snapshot_of(DAMAGED.queries, damaged="4")) is None
    assert DAMAGED.writes(snapshot_of(DAMAGED.queries, record(handle_key("h"), Handle(), "3"))) is None
    assert DAMAGED.writes(snapshot_of(DAMAGED.queries)) == ()
