"""How full pools and blocks are, and what is borrowed: for ``netplugctl ipam show`` and for whoever deletes a pool."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.allocation.reservations import NOTHING_RESERVED, Reserved
from netplug_core.ipam.model.affinity import host_owner
from netplug_core.ipam.model.block import Allocation, Block
from netplug_core.resources.ippool import IPPool

__all__ = ["ORPHANS", "BlockUsage", "BorrowedAddress", "PoolUsage", "borrowed", "utilization"]

ORPHANS = "orphaned allocation blocks"
"""What stands for a pool's name over the blocks that lie in no pool."""

_EVERYWHERE = Prefix(Family.IPV4, 0, 0)


@frozen(kw_only=True)
class BlockUsage:
    """One block: how many of its addresses are reserved, held or not, and how many can still be given."""

    block: Block
    reserved: int
    available: int

    @property
    def capacity(self) -> int:
        """How many addresses it has."""
        return self.block.prefix.size

    @property
    def in_use(self) -> int:
        """How many of them are not free: held, cooling down, or kept back by the host."""
        return self.block.used_count

    @property
    def cooling(self) -> int:
        """How many of those in use were released and cool down."""
        return self.block.cooling_count


@frozen(kw_only=True)
class PoolUsage:
    """One pool and the blocks that lie in it, by address.

    ``reserved`` counts every reserved address of its range once, held or not; ``available`` those that can still be
    given, in blocks and outside of them. Where ``pool`` is None the blocks are those that lie in no pool, of either
    family; it has the addresses of its blocks alone, and nobody is given one while no pool has them.
    """

    pool: IPPool | None
    blocks: tuple[BlockUsage, ...]
    capacity: int
    reserved: int
    available: int

    @property
    def name(self) -> str:
        """What it is called."""
        return self.pool.metadata.name if self.pool else ORPHANS

    @property
    def prefix(self) -> Prefix:
        """Where it lies; the blocks of no pool may lie anywhere."""
        return self.pool.spec.prefix if self.pool else _EVERYWHERE

    @property
    def in_use(self) -> int:
        """How many of its addresses are not free."""
        return sum(block.in_use for block in self.blocks)

    @property
    def cooling(self) -> int:
        """How many of those in use were released and cool down."""
        return sum(block.cooling for block in self.blocks)


@frozen(kw_only=True)
class BorrowedAddress:
    """One borrowed address: the node that has it, and the block of somebody else that it lies in."""

    allocation: Allocation
    node: str
    block: Block


def utilization(
    pools: Iterable[IPPool], blocks: Iterable[Block], reserved: Reserved = NOTHING_RESERVED
) -> tuple[PoolUsage, ...]:
    """Count blocks into the pools that cover them; of pools that overlap, the first by name has them.

    The pools stand by name, and behind them, if there are any, the blocks of no pool.
    """
    left = [_of_block(block, reserved) for block in sorted(blocks, key=lambda block: block.prefix)]
    usages = []
    for pool in sorted(pools, key=lambda pool: pool.metadata.name):
        prefix = pool.spec.prefix
        mine = tuple(usage for usage in left if prefix.covers(usage.block.prefix))
        left = [usage for usage in left if not prefix.covers(usage.block.prefix)]
        usages.append(_of_pool(pool, mine, reserved.count(prefix)))
    return (*usages, _orphans(tuple(left))) if left else tuple(usages)


def borrowed(blocks: Iterable[Block]) -> tuple[BorrowedAddress, ...]:
    """Every borrowed address, by address; one of a block that nobody owns is borrowed from nobody."""
    return tuple(
        BorrowedAddress(allocation=held, node=node, block=block)
        for block in sorted(blocks, key=lambda block: block.prefix)
        if block.owner
        for held in block.held()
        if (node := held.attribute.owner_value("node")) and host_owner(node) != block.owner
    )


def _of_block(block: Block, reserved: Reserved) -> BlockUsage:
    count = reserved.count(block.prefix)
    free = len(block.free)
    if count:
        free = sum(not reserved.contains(block.prefix.nth(ordinal)) for ordinal in block.free)
    return BlockUsage(block=block, reserved=count, available=free)


def _of_pool(pool: IPPool, blocks: tuple[BlockUsage, ...], reserved: int) -> PoolUsage:
    capacity = pool.spec.prefix.size
    in_no_block = capacity - sum(usage.capacity for usage in blocks)
    reserved_in_no_block = reserved - sum(usage.reserved for usage in blocks)
    return PoolUsage(
        pool=pool,
        blocks=blocks,
        capacity=capacity,
        reserved=reserved,
        available=sum(usage.available for usage in blocks) + in_no_block - reserved_in_no_block,
    )


def _orphans(blocks: tuple[BlockUsage, ...]) -> PoolUsage:
    return PoolUsage(
        pool=None,
        blocks=blocks,
        capacity=sum(usage.capacity for usage in blocks),
        reserved=sum(usage.reserved for usage in blocks),
        available=sum(usage.available for usage in blocks),
    )
