"""The utilization of pools and blocks, reservations, and borrowed addresses."""

import pytest

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.model import Attribute, Block
from netplug_core.ipam.reporting.usage import ORPHANS, borrowed, utilization
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPPoolSpec


def pool(name: str, cidr: str) -> IPPool:
    prefix = Prefix.parse(cidr)
    return IPPool(
        metadata=Metadata(name=name), spec=IPPoolSpec(prefix=prefix, block_length=prefix.family.default_block_length)
    )


def block(cidr: str, *held: int, owner: str = "host:a", node: str = "") -> Block:
    empty = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    attribute = Attribute(handle="h", owner=(("node", node),) if node else ())
    return empty.assign(tuple(map(Ordinal, held)), attribute) if held else empty


def reserved(*cidrs: str) -> Reserved:
    return Reserved.of(map(Prefix.parse, cidrs))


def test_without_pools_and_blocks_there_is_no_utilization() -> None:
    assert utilization([], []) == ()


def test_each_block_counts_in_the_pool_that_covers_it() -> None:
    pools = [pool("six", "fd00::/48"), pool("four", "10.0.0.0/16")]
    blocks = [block("10.0.0.64/26", 0, 1), block("10.0.0.0/26", 5), block("fd00::/122", 7), block("10.9.0.0/26", 1)]
    four, six, orphans = utilization(pools, [*blocks, block("fe00::/122")])
    assert [str(inside.block.prefix) for inside in four.blocks] == ["10.0.0.0/26", "10.0.0.64/26"]
    assert (four.name, four.capacity, four.in_use, four.available) == ("four", 65536, 3, 65533)
    assert (six.capacity, six.in_use, six.available) == (2**80, 1, 2**80 - 1)
    assert [str(inside.block.prefix) for inside in orphans.blocks] == ["10.9.0.0/26", "fe00::/122"]
    assert (orphans.pool, orphans.name, str(orphans.prefix)) == (None, ORPHANS, "0.0.0.0/0")
    assert (orphans.capacity, orphans.in_use, orphans.reserved, orphans.available) == (128, 1, 0, 127)


def test_a_block_counts_for_the_first_of_overlapping_pools() -> None:
    usages = utilization([pool("b", "10.0.0.0/16"), pool("a", "10.0.0.0/24")], [block("10.0.0.0/26", 1)])
    assert [(usage.name, usage.in_use) for usage in usages] == [("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    "cidrs, of_pool, of_block",
    [
        ((), (256, 1, 0, 255), (64, 1, 0, 63)),
        (("10.0.0.32/30",), (256, 1, 4, 251), (64, 1, 4, 59)),
        (("10.0.0.128/25",), (256, 1, 128, 127), (64, 1, 0, 63)),
        (("10.0.0.5/32",), (256, 1, 1, 255), (64, 1, 1, 63)),
        (("10.0.0.0/25", "10.0.0.5/32", "10.0.0.64/26"), (256, 1, 128, 128), (64, 1, 64, 0)),
        (("0.0.0.0/0",), (256, 1, 256, 0), (64, 1, 64, 0)),
    ],
)
def test_reserved_addresses_are_not_available_and_count_once(
    cidrs: tuple[str, ...], of_pool: tuple[int, ...], of_block: tuple[int, ...]
) -> None:
    """I-66 of the catalogue, and trap 15."""
    (usage,) = utilization([pool("p", "10.0.0.0/24")], [block("10.0.0.0/26", 5)], reserved(*cidrs))
    (inside,) = usage.blocks
    assert (usage.capacity, usage.in_use, usage.reserved, usage.available) == of_pool
    assert (inside.capacity, inside.in_use, inside.reserved, inside.available) == of_block


def test_addresses_that_are_cooling_down_are_in_use() -> None:
    full = block("10.0.0.0/26", 1, 2, 3)
    cooling = full.release(frozenset({Ordinal(2)}), cooling_from_ns=5_000_000_000)
    (usage,) = utilization([pool("p", "10.0.0.0/24")], [cooling, block("10.0.0.64/26", 9)])
    assert (usage.in_use, usage.cooling, usage.available) == (4, 1, 252)
    assert [(inside.in_use, inside.cooling) for inside in usage.blocks] == [(3, 1), (1, 0)]


def test_an_address_is_borrowed_when_its_node_does_not_own_the_block() -> None:
    blocks = [
        block("10.0.0.64/26", 1, 0, owner="host:a", node="b"),
        block("10.0.0.0/26", 5, owner="virtual:balancer", node="a"),
        block("10.0.1.0/26", 5, owner="host:a", node="a"),
        block("10.0.2.0/26", 5, owner="", node="a"),
        block("10.0.3.0/26", 5, owner="host:a"),
    ]
    found = borrowed(blocks)
    assert [(str(address.allocation.address), address.node, address.block.owner) for address in found] == [
        ("10.0.0.5", "a", "virtual:balancer"),
        ("10.0.0.64", "b", "host:a"),
        ("10.0.0.65", "b", "host:a"),
    ]
