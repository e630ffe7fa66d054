"""What the blocks say of handles, and the handles that differ from it."""

import pytest
from attrs import evolve

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.gc.detect import HandleCounts, HandleTally
from netplug_core.ipam.model import RESERVED_HANDLE, Attribute, Block, Handle, handle_key
from netplug_core.records import Record, Revision

ONE, TWO = Prefix.parse("10.0.0.0/30"), Prefix.parse("10.0.0.4/30")


def make_block(prefix: Prefix, *handles: str | None) -> Block:
    block = Block.new(prefix, owner="host:a", now_ns=1)
    for ordinal, handle in enumerate(handles):
        block = block.assign((Ordinal(ordinal),), Attribute(handle=handle))
    return block


def stored(name: str, *blocks: tuple[Prefix, int]) -> Record[Handle]:
    return Record(handle_key(name), Handle(blocks=blocks), Revision("1"))


def test_a_handle_holds_addresses_in_several_blocks_in_their_order() -> None:
    counts = HandleCounts.of([make_block(TWO, "web"), make_block(ONE, "web", "db", "web")])
    assert counts.by_handle == {"web": ((ONE, 2), (TWO, 1)), "db": ((ONE, 1),)}
    assert counts.blocks_of("web") == {ONE, TWO}
    assert (counts.blocks_of("unknown"), counts.addresses) == (frozenset(), 4)


def test_no_handle_holds_what_is_reserved_cools_down_or_has_none() -> None:
    block = make_block(ONE, None, "web", RESERVED_HANDLE, "old")
    block = block.release(frozenset({Ordinal(3)}), cooling_from_ns=7)
    counts = HandleCounts.of([block])
    assert (counts.by_handle, counts.addresses) == ({"web": ((ONE, 1),)}, 2)


def test_an_entry_that_no_address_uses_counts_nothing() -> None:
    block = make_block(ONE, "web", "db")
    unused = evolve(block, allocations=(0, None, None, None))
    assert HandleCounts.of([unused]).by_handle == {"web": ((ONE, 1),)}


@pytest.mark.parametrize("record", [stored("web"), stored("web", (ONE, 2)), stored("web", (TWO, 1)), stored("left")])
def test_a_handle_that_differs_from_the_blocks_is_wrong(record: Record[Handle]) -> None:
    tally = HandleTally.of([make_block(ONE, "web")])
    tally.add(record)
    assert (tally.wrong, tally.count) == ([record], 1)


@pytest.mark.parametrize("record, is_high", [
    (stored("web", (ONE, 2), (TWO, 1)), False),
    (stored("web", (ONE, 3), (TWO, 1)), True),
    (stored("web", (ONE, 2), (TWO, 1), (Prefix.parse("10.0.0.8/30"), 1)), True),
    (stored("web", (ONE, 9)), False),  # it does not lead to an address that it holds
    (stored("web", (ONE, 1), (TWO, 2)), False),
    (stored("left", (ONE, 1)), False),  # it holds nothing
])  # fmt: skip
def test_a_count_is_high_where_it_hides_no_address(record: Record[Handle], *, is_high: bool) -> None:
    counts = HandleCounts.of([make_block(ONE, "web", "web"), make_block(TWO, "web")])
    assert counts.is_high(record) is is_high


def test_of_the_right_handles_only_the_number_is_kept() -> None:
    tally = HandleTally.of([make_block(ONE, "web", "db")])
    tally.add(stored("web", (ONE, 1)))
    tally.add(stored(RESERVED_HANDLE))
    assert (tally.wrong, tally.missing, tally.count) == ([], {"db"}, 2)
