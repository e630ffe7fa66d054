"""Block arithmetic: who holds what, the queue of free ordinals, cooling, ownership, sequence numbers, shape."""

from collections.abc import Iterable

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.model import (
    BLOCK,
    RESERVED_HANDLE,
    Allocation,
    Attribute,
    Attributes,
    Block,
    block_key,
    blocks_path,
)

WIDE = Prefix.parse("100.64.0.0/24")
FOUR = Prefix.parse("10.0.0.0/30")
SECOND_NS = 10**9
NOW = 1_755_684_000_123_456_789
NOW_STORED = 1_755_684_000 * SECOND_NS  # what the text of a stored time can say


def new(prefix: Prefix = WIDE, *, kept_back: tuple[int, int] = (0, 0)) -> Block:
    return Block.new(prefix, owner="host:node-a", now_ns=NOW, host_reserved=kept_back)


def ordinals(*numbers: int) -> tuple[Ordinal, ...]:
    return tuple(Ordinal(number) for number in numbers)


def some(*numbers: int) -> frozenset[Ordinal]:
    return frozenset(ordinals(*numbers))


def holding(handle: str | None, *numbers: int, block: Block | None = None) -> Block:
    return (block or new()).assign(ordinals(*numbers), Attribute(handle=handle))


def held_ordinals(block: Block) -> list[int]:
    return [held.ordinal for held in block.held()]


def texts(addresses: Iterable[Address]) -> list[str]:
    return [str(address) for address in addresses]


def test_a_new_block_is_empty_and_queues_its_ordinals_in_order() -> None:  # I-1
    block = Block.new(WIDE, owner="host:node-a", now_ns=NOW)
    assert block.is_empty
    assert block.free == ordinals(*range(256))
    assert (block.held(), block.used_count) == ((), 0)
    assert (block.owner, block.sequence, block.problem()) == ("host:node-a", NOW, "")
    assert block.claim_time_ns == NOW_STORED


@pytest.mark.parametrize("cidr, size", [("10.0.0.7/32", 1), ("fd00::7/128", 1), ("10.0.0.0/20", 4096)])
def test_the_narrowest_and_the_widest_block(cidr: str, size: int) -> None:
    block = new(Prefix.parse(cidr))
    assert (len(block.free), block.problem()) == (size, "")
    full = block.assign(block.free, Attribute(handle="h"))
    assert (full.free, full.used_count, full.problem()) == ((), size, "")
    assert full.held()[-1].address == block.prefix.last


def test_the_key_of_a_block_says_family_and_prefix() -> None:
    assert new().key == block_key(WIDE)
    assert block_key(WIDE) == BLOCK.key("ipv4", "100.64.0.0/24")
    prefix = Prefix.parse("fd00::/122")
    assert block_key(prefix).path == (*blocks_path(prefix.family), "fd00::/122")


def test_equal_blocks_are_one_in_a_set() -> None:
    block, other = holding("h", 1), holding("h", 1)
    assert {block, other} == {block}
    assert len({block, block.touched()}) == 2


# --- what a host keeps back -----------------------------------------------------------------------------------------


def test_a_block_that_only_its_host_keeps_back_from_is_empty() -> None:  # I-2
    block = new(kept_back=(0, 1))
    assert block.is_empty
    assert RESERVED_HANDLE == "windows-reserved-ipam-handle"
    assert held_ordinals(block) == [255]
    assert block.free == ordinals(*range(255))
    assert block.held()[0] == Allocation(
        address=WIDE.last, ordinal=Ordinal(255), attribute=Attribute(handle=RESERVED_HANDLE), sequence=0
    )
    assert block.problem() == ""


@pytest.mark.parametrize("prefix, kept_back, free", [
    (FOUR, (2, 1), (2,)),
    (FOUR, (1, 0), (1, 2, 3)),
    (FOUR, (3, 3), ()),
    (FOUR, (9, 9), ()),
    (FOUR, (0, 9), ()),
    (Prefix.parse("fd00::7/128"), (3, 1), ()),
])  # fmt: skip
def test_a_host_keeps_back_what_there_is_at_both_ends(
    prefix: Prefix, kept_back: tuple[int, int], free: tuple[int, ...]
) -> None:
    block = new(prefix, kept_back=kept_back)
    assert (block.free, block.used_count) == (free, prefix.size - len(free))
    assert (block.is_empty, block.problem()) == (True, "")


def test_a_workload_beside_what_is_kept_back_makes_the_block_non_empty() -> None:
    block = new(FOUR, kept_back=(2, 1))
    assert not holding("h", 2, block=block).is_empty
    assert holding("h", 2, block=block).release(some(2)).is_empty


def test_an_address_without_a_handle_makes_the_block_non_empty() -> None:
    block = holding(None, 3)
    assert not block.is_empty
    assert block.held_by("") == ()


# --- assigning ------------------------------------------------------------------------------------------------------


def test_assigned_addresses_are_held_under_one_attribute_and_remember_the_sequence() -> None:
    attribute = Attribute(handle="h", owner=(("node", "node-a"),))
    block = new().assign(ordinals(0, 7), attribute)
    assert block.held() == (
        Allocation(address=Address.parse("100.64.0.0"), ordinal=Ordinal(0), attribute=attribute, sequence=NOW),
        Allocation(address=Address.parse("100.64.0.7"), ordinal=Ordinal(7), attribute=attribute, sequence=NOW),
    )
    assert tuple(block.attributes) == (attribute,)
    assert not block.is_empty
    assert (len(block.free), block.used_count) == (254, 2)
    assert block.sequence == NOW + 1
    assert block.problem() == ""


def test_equal_attributes_are_stored_once_and_those_of_other_handles_apart() -> None:
    block = holding("b", 3, block=holding("a", 2, block=holding("a", 1)))
    assert [attribute.handle for attribute in block.attributes] == ["a", "b"]
    assert texts(held.address for held in block.held_by("a")) == ["100.64.0.1", "100.64.0.2"]
    assert texts(held.address for held in block.held_by("b")) == ["100.64.0.3"]
    assert block.held_by("c") == ()


def test_assigning_nothing_stores_the_block_once_more() -> None:
    assert holding("h") == new().touched()


def test_what_is_taken_out_of_the_middle_leaves_the_queue_in_order() -> None:
    assert holding("h", 2, block=new(FOUR)).free == ordinals(0, 1, 3)
    assert holding("h", 1, 0, block=new(FOUR)).free == ordinals(2, 3)


def test_an_address_is_found_with_its_holder_and_its_number() -> None:  # what I-9 and I-10 are refused by
    block = holding("newstuff", 100)
    found = block.find(Address.parse("100.64.0.100"))
    assert found is not None
    assert (found.ordinal, found.attribute.handle, found.sequence, found.is_cooling) == (100, "newstuff", NOW, False)
    assert block.find(Address.parse("100.64.0.99")) is None


def test_each_round_of_taking_and_giving_back_moves_the_number_by_two() -> None:
    block = new(FOUR)
    for turn in range(3):
        block = holding("h", 0, block=block)
        assert block.held()[0].sequence == NOW + 2 * turn
        block = block.release(some(0))


@pytest.mark.parametrize("reserved, free", [("100.64.0.128/25", 126), ("100.64.0.0/24", 0)])
def test_what_is_reserved_is_not_available(reserved: str, free: int) -> None:  # I-4, I-5
    block = holding("h", 10, 20, 210, 220)
    ranges = Prefix.parse(reserved)
    assert len(block.find_free(256, lambda address: not ranges.contains(address))) == free
    assert sum(ranges.contains(held.address) for held in block.held()) == (2 if free else 4)


def test_the_longest_free_address_is_given_first() -> None:
    block = holding("h", 0, 1, 2, 3, block=new(FOUR))
    for ordinal in (2, 0, 3):
        block = block.release(some(ordinal))
    assert block.find_free(2, None) == ordinals(2, 0)
    assert block.find_free(9, None) == ordinals(2, 0, 3)
    assert block.find_free(0, None) == ()


def test_what_may_not_serve_keeps_its_place_in_the_queue() -> None:
    block = new(FOUR)
    kept_back = {block.prefix.first, block.prefix.last}
    assert block.find_free(4, lambda address: address not in kept_back) == ordinals(1, 2)
    assert block.find_free(1, lambda address: address not in kept_back) == ordinals(1)
    assert block.find_free(0, lambda _address: True) == ()
    assert block.free == ordinals(0, 1, 2, 3)


# --- releasing ------------------------------------------------------------------------------------------------------


def test_releasing_one_of_three_leaves_the_others() -> None:  # I-6
    block = holding("h", 13, 26, 39).release(some(13))
    assert [held.ordinal for held in block.held_by("h")] == [26, 39]
    assert block.free[-1] == 13
    assert [held.sequence for held in block.held()] == [NOW, NOW]
    assert block.sequence == NOW + 2
    assert block.problem() == ""


def test_releasing_all_leaves_nothing_of_the_holder() -> None:  # I-7
    block = holding("h", 13, 26, 39).release(some(39, 13, 26))
    assert block.is_empty
    assert (len(block.attributes), set(block.sequences)) == (0, {0})
    assert block.free[-3:] == ordinals(13, 26, 39)
    assert block.problem() == ""


def test_an_address_of_another_sequence_number_is_reported_and_stays() -> None:  # I-11
    early = evolve(new(), sequence=10)
    block = holding("teens", 15, 16, 18, block=early)
    block = holding("teens", 17, block=evolve(block, sequence=999))
    stale = some(*(held.ordinal for held in block.held_by("teens") if held.sequence == 10))
    block = block.release(stale)
    assert (stale, held_ordinals(block)) == (some(15, 16, 18), [17])


def test_a_released_address_goes_to_the_end_of_the_queue() -> None:  # I-12
    block = holding("twenty", 20, block=holding("fifteen", 15))
    block = block.release(some(*(held.ordinal for held in block.held_by("fifteen"))))
    assert block.free[-1] == 15
    assert [held.attribute.handle for held in block.held()] == ["twenty"]
    assert tuple(block.attributes) == (Attribute(handle="twenty"),)
    assert block.allocations[20] == 0  # renumbered: the first attribute is gone


# --- cooling down ---------------------------------------------------------------------------------------------------


def cooled(*numbers: int, block: Block, since_ns: int = NOW) -> Block:
    return block.release(some(*numbers), cooling_from_ns=since_ns)


def test_a_cooling_address_is_held_by_nobody_and_not_free() -> None:  # I-57
    before = holding("h", 1, 2, block=new(FOUR))
    block = cooled(1, block=before)
    assert block.free == ordinals(0, 3)
    assert (block.used_count, block.cooling_count) == (2, 1)
    assert [held.ordinal for held in block.held_by("h")] == [2]
    found = block.find(Address.parse("10.0.0.1"))
    assert found is not None
    assert (found.is_cooling, found.attribute) == (True, Attribute(released_ns=NOW_STORED))
    assert (found.sequence, block.sequence) == (before.sequence, before.sequence + 1)
    assert block.problem() == ""


def test_a_cooling_address_makes_the_block_non_empty() -> None:
    block = cooled(2, block=holding("h", 2, block=new(FOUR, kept_back=(2, 1))))
    assert not block.is_empty
    assert block.expire_cooldown(NOW, 0).is_empty


def test_addresses_released_in_one_second_share_one_entry() -> None:
    block = cooled(2, block=cooled(0, 1, block=holding("h", 0, 1, 2)), since_ns=NOW + 1)
    assert tuple(block.attributes) == (Attribute(released_ns=NOW_STORED),)
    assert block.cooling_count == 3


def test_an_entry_that_cools_holds_nothing_even_if_it_names_a_handle() -> None:
    block = new(FOUR).assign(ordinals(0), Attribute(handle=RESERVED_HANDLE, released_ns=NOW_STORED))
    assert block.held_by(RESERVED_HANDLE) == ()
    assert not block.is_empty


def fourteen() -> Block:
    block = holding("gone", 31, 33, 42, 44, block=holding("live", 52, 54))
    return cooled(
        42, 44, block=cooled(31, 33, block=block, since_ns=NOW - 60 * SECOND_NS), since_ns=NOW + 60 * SECOND_NS
    )


def test_what_has_cooled_down_is_free_and_what_is_ahead_of_time_counts_as_now() -> None:  # I-14, trap 39
    block = fourteen().expire_cooldown(NOW, 30 * SECOND_NS)
    assert len(block.free) == 252
    assert block.free[-2:] == ordinals(31, 33)
    assert held_ordinals(block) == [42, 44, 52, 54]
    assert [held.attribute.released_ns for held in block.held()] == [NOW_STORED, NOW_STORED, None, None]
    assert [held.sequence for held in block.held()][:2] == [held.sequence for held in fourteen().held()][2:4]
    assert block.sequence == fourteen().sequence
    assert block.problem(NOW) == ""


@pytest.mark.parametrize("waited_ns, is_free", [
    (0, False),
    (60 * SECOND_NS, False),
    (61 * SECOND_NS - 1, False),
    (61 * SECOND_NS, True),
])  # fmt: skip
def test_a_second_more_than_the_cooldown_has_to_pass(waited_ns: int, *, is_free: bool) -> None:  # trap 39, I-57
    block = cooled(1, block=holding("h", 1), since_ns=NOW_STORED)
    later = block.expire_cooldown(NOW_STORED + waited_ns, 60 * SECOND_NS)
    assert (later.cooling_count == 0) is is_free
    assert (later is block) is not is_free


@pytest.mark.parametrize("cooldown_ns", [0, -1, -60 * SECOND_NS])
def test_without_a_cooldown_all_is_free_at_once(cooldown_ns: int) -> None:
    block = fourteen().expire_cooldown(NOW, cooldown_ns)
    assert held_ordinals(block) == [52, 54]
    assert block.free[-4:] == ordinals(31, 33, 42, 44)


def test_the_shortest_cooldown_is_one() -> None:
    assert cooled(1, block=holding("h", 1)).expire_cooldown(NOW, 1).cooling_count == 1


def test_what_has_not_cooled_down_leaves_the_block_itself() -> None:
    for block in (new(), holding("h", 1), cooled(1, block=holding("h", 1))):
        assert block.expire_cooldown(NOW, 60 * SECOND_NS) is block


def test_collecting_again_changes_nothing() -> None:
    once = fourteen().expire_cooldown(NOW, 30 * SECOND_NS)
    assert once.expire_cooldown(NOW, 30 * SECOND_NS) is once


def test_stamps_that_become_equal_become_one_entry_and_keep_what_they_carry() -> None:  # trap 39
    block = holding("h", 0, 1, 2, 3, block=new(FOUR))
    block = cooled(0, block=cooled(1, block=block), since_ns=NOW + 60 * SECOND_NS)
    block = block.with_attribute(Ordinal(2), Attribute(released_ns=NOW + 90 * SECOND_NS, unknown_json='{"zone":"eu"}'))
    block = block.expire_cooldown(NOW, 60 * SECOND_NS)
    assert [held.attribute for held in block.held()] == [
        Attribute(released_ns=NOW_STORED),
        Attribute(released_ns=NOW_STORED),
        Attribute(released_ns=NOW_STORED, unknown_json='{"zone":"eu"}'),
        Attribute(handle="h"),
    ]
    assert (len(block.attributes), block.problem(NOW)) == (3, "")


# --- changing hands -------------------------------------------------------------------------------------------------


def test_storing_once_more_changes_nothing_but_the_number() -> None:
    block = holding("h", 4)
    assert block.touched() == evolve(block, sequence=block.sequence + 1)


def test_a_block_is_claimed_and_given_up_with_all_that_is_held_in_it() -> None:
    block = holding("h", 4)
    nobodys = block.relinquished()
    assert nobodys == evolve(block, owner="", claim_time_ns=None, sequence=block.sequence + 1)
    claimed = nobodys.claimed("virtual:lb", NOW + SECOND_NS)
    assert claimed == evolve(
        nobodys, owner="virtual:lb", claim_time_ns=NOW_STORED + SECOND_NS, sequence=block.sequence + 2
    )


def test_an_empty_block_is_refilled_for_its_next_owner() -> None:
    block = evolve(new(FOUR, kept_back=(1, 1)), unknown_json='{"shard":1}')
    taken = block.taken_over("host:node-b", NOW + 5 * SECOND_NS, (0, 2))
    assert (taken.owner, taken.claim_time_ns) == ("host:node-b", NOW_STORED + 5 * SECOND_NS)
    assert taken.sequence == block.sequence + 1
    assert held_ordinals(taken) == [2, 3]
    assert taken.free == ordinals(1, 0)  # what was kept back so far comes last
    assert (taken.is_empty, taken.unknown_json, taken.problem()) == (True, '{"shard":1}', "")


def test_a_refilled_block_gives_the_longest_free_address_first() -> None:
    block = holding("h", 0, block=new(FOUR)).release(some(0))
    assert block.taken_over("host:node-b", NOW).free == ordinals(1, 2, 3, 0)


def test_one_address_of_several_gets_another_holder() -> None:  # trap 36
    block = holding("h", 1, 2, 3)
    changed = block.with_attribute(Ordinal(2), Attribute(handle="h", owner=(("pod", "web-1"),)))
    assert [held.attribute.owner_value("pod") for held in changed.held()] == ["", "web-1", ""]
    assert [held.sequence for held in changed.held()] == [NOW, NOW, NOW]
    assert (changed.sequence, changed.free, changed.problem()) == (block.sequence + 1, block.free, "")


def test_the_last_address_of_an_entry_takes_it_along() -> None:  # trap 36
    block = holding("other", 2, block=holding("h", 1))
    changed = block.with_attribute(Ordinal(1), Attribute(handle="other"))
    assert tuple(changed.attributes) == (Attribute(handle="other"),)
    assert changed.problem() == ""


# --- shape ----------------------------------------------------------------------------------------------------------


SOUND = holding("h", 1, block=new(FOUR))


@pytest.mark.parametrize("block, problem", [
    (evolve(SOUND, allocations=(None, 0, None)), "allocations: 3 entries for 4 addresses"),
    (evolve(SOUND, allocations=(None, 1, None, None)), "allocations[1]: 1 is none of the 1 attributes"),
    (evolve(SOUND, allocations=(None, -1, None, None)), "allocations[1]: -1 is none of the 1 attributes"),
    (evolve(SOUND, attributes=Attributes()), "allocations[1]: 0 is none of the 0 attributes"),
    (evolve(SOUND, attributes=SOUND.attributes.plus(Attribute())), "attributes[1]: it is used by no allocation"),
    (evolve(SOUND, free=ordinals(0, 2)), "unallocated: 3 is free and is not listed"),
    (evolve(SOUND, free=ordinals(0, 2, 3, 3)), "unallocated[3]: 3 stands there twice"),
    (evolve(SOUND, free=ordinals(0, 1, 2, 3)), "unallocated[1]: 1 is not free, or is no ordinal of the block"),
    (evolve(SOUND, free=ordinals(0, 2, 9)), "unallocated[2]: 9 is not free, or is no ordinal of the block"),
])  # fmt: skip
def test_a_broken_shape_is_named(block: Block, problem: str) -> None:
    assert block.problem() == problem


@pytest.mark.parametrize("block, has_unused", [
    (SOUND, False),
    (evolve(SOUND, attributes=SOUND.attributes.plus(Attribute())), True),
    (evolve(SOUND, allocations=(None, 7, None, None)), False),
])  # fmt: skip
def test_an_attribute_that_no_ordinal_uses_is_seen_where_all_others_exist(block: Block, *, has_unused: bool) -> None:
    assert block.has_unused_attributes is has_unused


def test_unused_attributes_are_pruned_and_the_others_renumbered() -> None:
    unused = Attribute(handle="nobody")
    damaged = evolve(
        SOUND, allocations=(None, 1, None, None), attributes=Attributes.of((unused, *SOUND.attributes, unused))
    )
    assert damaged.pruned() == SOUND


def test_a_release_of_the_future_is_a_problem_once_the_time_is_known() -> None:
    block = cooled(1, block=SOUND, since_ns=NOW + 60 * SECOND_NS)
    assert block.problem() == ""
    assert block.problem(NOW + 60 * SECOND_NS) == ""
    assert block.problem(NOW) == "an address was released in the future, at 2025-08-20T10:01:00Z"
    assert SOUND.problem(0) == ""
