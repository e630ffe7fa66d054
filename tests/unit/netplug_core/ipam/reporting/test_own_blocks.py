"""How full pools are, as far as one node knows."""

from netplug_core.addressing import Family, Ordinal, Prefix
from netplug_core.ipam.model import Attribute, Block, affinities_query, block_key, host_owner
from netplug_core.ipam.reporting.usage import OwnUsage, own_usage
from netplug_core.records import Get, List, Query, ReadResult, Record, Revision, Snapshot
from netplug_core.resources.ippool import IPPOOL, IPPool

POOL = IPPool.for_prefix(Prefix.parse("10.65.0.0/24"), name="main")
OTHER = IPPool.for_prefix(Prefix.parse("fd65::/112"), name="six")
POOLS = ReadResult((Record(POOL.key, POOL, Revision("1")), Record(OTHER.key, OTHER, Revision("1"))))
AFFINITIES = affinities_query(host_owner("node-1"), Family.IPV4)


def block_of(cidr: str, owner: str, count: int) -> Record[Block]:
    block = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    block = block.assign(tuple(map(Ordinal, range(count))), Attribute(handle="h")) if count else block
    return Record(block_key(block.prefix), block, Revision("1"))


def test_own_blocks_count_once_and_those_of_others_do_not() -> None:
    own = block_of("10.65.0.0/26", "host:node-1", 3)
    others = [block_of("10.65.0.64/26", "host:node-2", 5), block_of("10.65.0.128/26", "", 0)]
    orphan = block_of("10.99.0.0/26", "host:node-1", 1)
    results: dict[Query, ReadResult] = {
        List(IPPOOL): POOLS,
        AFFINITIES: ReadResult(()),
        Get(own.key): ReadResult((own,)),
        List(own.key.kind, own.key.path): ReadResult((own,)),
        **{Get(each.key): ReadResult((each,)) for each in (*others, orphan)},
    }
    assert own_usage(Snapshot(results, {})) == (
        OwnUsage(pool="main", range_size=256, block_size=64, in_use=3),
        OwnUsage(pool="six", range_size=65_536, block_size=0, in_use=0),
    )


def test_without_the_pools_nothing_is_known() -> None:
    assert own_usage(Snapshot.empty()) == ()


def test_without_affinities_no_block_is_known_as_own() -> None:
    own = block_of("10.65.0.0/26", "host:node-1", 3)
    known = Snapshot({List(IPPOOL): POOLS, Get(own.key): ReadResult((own,))}, {})
    assert [usage.block_size for usage in own_usage(known)] == [0, 0]
