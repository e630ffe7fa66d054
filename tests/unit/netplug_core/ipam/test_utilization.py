"""Blocks counted into the pools that cover them."""

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.block import Attribute, Block
from netplug_core.ipam.utilization import utilization
from netplug_core.resources.ippool import IPPool, IPPoolSpec
from netplug_core.resources.metadata import Metadata


def pool(name: str, cidr: str) -> IPPool:
    prefix = Prefix.parse(cidr)
    return IPPool(
        metadata=Metadata(name=name), spec=IPPoolSpec(prefix=prefix, block_length=prefix.family.default_block_length)
    )


def block(cidr: str, *held: int) -> Block:
    empty = Block.new(Prefix.parse(cidr), owner="host:a", now_ns=1)
    return empty.assign(tuple(map(Ordinal, held)), Attribute(handle="h")) if held else empty


def test_nothing_is_counted_of_nothing() -> None:
    usage = utilization([], [])
    assert (usage.pools, usage.strays) == ((), ())


def test_each_block_counts_in_the_pool_that_covers_it() -> None:
    pools = [pool("six", "fd00::/48"), pool("four", "10.0.0.0/16")]
    blocks = [block("10.0.0.64/26", 0, 1), block("10.0.0.0/26", 5), block("fd00::/122", 7), block("10.9.0.0/26", 1)]
    usage = utilization(pools, blocks)
    four, six = usage.pools
    assert [str(inside.prefix) for inside in four.blocks] == ["10.0.0.0/26", "10.0.0.64/26"]
    assert (four.total, four.in_use, four.free) == (65536, 3, 65533)
    assert (six.total, six.in_use, six.free) == (2**80, 1, 2**80 - 1)
    assert [str(stray.prefix) for stray in usage.strays] == ["10.9.0.0/26"]


def test_of_pools_that_overlap_the_first_by_name_has_the_block() -> None:
    usage = utilization([pool("b", "10.0.0.0/16"), pool("a", "10.0.0.0/24")], [block("10.0.0.0/26", 1)])
    assert [(found.pool.metadata.name, found.in_use) for found in usage.pools] == [("a", 1), ("b", 0)]
