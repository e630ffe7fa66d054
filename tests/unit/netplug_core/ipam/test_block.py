"""Block arithmetic: who holds what, the queue of free ordinals, sequence numbers, shape."""

from collections.abc import Iterable

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.block import BLOCK, Attribute, Block, block_key, blocks_path

WIDE = Prefix.parse("100.64.0.0/24")
NOW = 1_755_684_000_123_456_789


def new(prefix: Prefix = WIDE) -> Block:
    return Block.new(prefix, owner="host:node-a", now_ns=NOW)


def ordinals(*numbers: int) -> tuple[Ordinal, ...]:
    return tuple(Ordinal(number) for number in numbers)


def holding(handle: str, *numbers: int, block: Block | None = None) -> Block:
    return (block or new()).assign(ordinals(*numbers), Attribute(handle=handle))


def texts(addresses: Iterable[Address]) -> list[str]:
    return [str(address) for address in addresses]


def anything(_address: Address) -> bool:
    return True


def test_a_new_block_is_empty_and_queues_its_ordinals_in_order() -> None:  # I-1
    block = new()
    assert block.is_empty
    assert block.free == ordinals(*range(256))
    assert block.held() == ()
    assert (block.owner, block.sequence, block.problem()) == ("host:node-a", NOW, "")
    assert block.claim_time_ns == 1_755_684_000 * 10**9  # what its stored text can say


@pytest.mark.parametrize("cidr, size", [("10.0.0.7/32", 1), ("fd00::7/128", 1), ("10.0.0.0/20", 4096)])
def test_the_narrowest_and_the_widest_block(cidr: str, size: int) -> None:
    block = new(Prefix.parse(cidr))
    assert (len(block.free), block.problem()) == (size, "")
    full = block.assign(block.free, Attribute(handle="h"))
    assert (full.free, full.problem()) == ((), "")
    assert full.held()[-1].address == block.prefix.last


def test_the_key_of_a_block_says_family_and_prefix() -> None:
    assert new().key == block_key(WIDE)
    assert block_key(WIDE) == BLOCK.key("ipv4", "100.64.0.0/24")
    prefix = Prefix.parse("fd00::/122")
    assert block_key(prefix).path == (*blocks_path(prefix.family), "fd00::/122")


def test_assigned_addresses_are_held_under_one_attribute_and_remember_the_sequence() -> None:
    attribute = Attribute(handle="h", owner=(("node", "node-a"),))
    block = new().assign(ordinals(0, 7), attribute)
    assert [(str(held.address), held.ordinal, held.attribute) for held in block.held()] == [
        ("100.64.0.0", 0, attribute),
        ("100.64.0.7", 7, attribute),
    ]
    assert block.attributes == (attribute,)
    assert not block.is_empty
    assert len(block.free) == 254
    assert block.sequence == NOW + 1
    assert block.sequences == ((0, NOW), (7, NOW))
    assert block.problem() == ""


def test_equal_attributes_are_stored_once_and_handles_told_apart() -> None:
    block = holding("b", 3, block=holding("a", 2, block=holding("a", 1)))
    assert [attribute.handle for attribute in block.attributes] == ["a", "b"]
    assert texts(held.address for held in block.held_by("a")) == ["100.64.0.1", "100.64.0.2"]
    assert texts(held.address for held in block.held_by("b")) == ["100.64.0.3"]
    assert block.held_by("c") == ()


def test_releasing_one_of_three_leaves_the_others() -> None:  # I-6
    block = holding("h", 13, 26, 39).release(frozenset(ordinals(13)))
    assert [held.ordinal for held in block.held_by("h")] == [26, 39]
    assert block.free[-1] == 13
    assert [ordinal for ordinal, _at in block.sequences] == [26, 39]
    assert block.sequence == NOW + 2
    assert block.problem() == ""


def test_releasing_all_leaves_nothing_of_the_holder() -> None:  # I-7
    block = holding("h", 13, 26, 39).release(frozenset(ordinals(39, 13, 26)))
    assert block.is_empty
    assert (block.attributes, block.sequences) == ((), ())
    assert block.free[-3:] == ordinals(13, 26, 39)
    assert block.problem() == ""


def test_a_released_address_goes_to_the_end_of_the_queue() -> None:  # I-12
    block = holding("twenty", 20, block=holding("fifteen", 15))
    ours = frozenset(held.ordinal for held in block.held_by("fifteen"))
    block = block.release(ours)
    assert block.free[-1] == 15
    assert [held.attribute.handle for held in block.held()] == ["twenty"]
    assert block.attributes == (Attribute(handle="twenty"),)
    assert block.allocations[20] == 0  # renumbered: the first attribute is gone


def test_the_longest_free_address_is_given_first() -> None:
    block = holding("h", 0, 1, 2, 3, block=new(Prefix.parse("10.0.0.0/30")))
    for ordinal in (2, 0, 3):
        block = block.release(frozenset(ordinals(ordinal)))
    assert block.available(2, anything) == ordinals(2, 0)
    assert block.available(9, anything) == ordinals(2, 0, 3)


def test_what_may_not_serve_keeps_its_place_in_the_queue() -> None:
    block = new(Prefix.parse("10.0.0.0/30"))
    kept_back = {block.prefix.first, block.prefix.last}
    assert block.available(4, lambda address: address not in kept_back) == ordinals(1, 2)
    assert block.available(0, anything) == ()
    assert block.free == ordinals(0, 1, 2, 3)


def test_storing_once_more_changes_nothing_but_the_number() -> None:
    block = holding("h", 4)
    assert block.touched() == evolve(block, sequence=block.sequence + 1)


def test_an_attribute_knows_its_owner() -> None:
    attribute = Attribute(handle="h", owner=(("node", "node-a"), ("pod", "web-0")))
    assert (attribute.owner_value("pod"), attribute.owner_value("namespace")) == ("web-0", "")


SOUND = holding("h", 1, block=new(Prefix.parse("10.0.0.0/30")))


@pytest.mark.parametrize("block, problem", [
    (evolve(SOUND, allocations=(None, 0, None)), "3 allocations for 4 addresses"),
    (evolve(SOUND, allocations=(None, 1, None, None)), "an allocation names an attribute that does not exist"),
    (evolve(SOUND, attributes=(*SOUND.attributes, Attribute())), "an attribute is used by no allocation"),
    (evolve(SOUND, free=ordinals(0, 2)), "the queue of free ordinals does not hold each free ordinal once"),
    (evolve(SOUND, free=ordinals(0, 2, 3, 3)), "the queue of free ordinals does not hold each free ordinal once"),
    (evolve(SOUND, free=ordinals(0, 1, 2, 3)), "the queue of free ordinals does not hold each free ordinal once"),
    (evolve(SOUND, free=ordinals(0, 2, 9)), "the queue of free ordinals does not hold each free ordinal once"),
])  # fmt: skip
def test_a_broken_shape_is_named(block: Block, problem: str) -> None:
    assert block.problem() == problem
