"""The utilization of pools and blocks, and borrowed addresses: for ``netplugctl ipam show`` and deletions of pools."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.model.affinity import host_owner
from netplug_core.ipam.model.block import Allocation, Attribute, Block
from netplug_core.resources.ippool import IPPool

__all__ = ["ORPHANS", "BlockUsage", "BorrowedAddress", "PoolUsage", "borrowed", "borrowing_node", "utilization"]

ORPHANS = "orphaned allocation blocks"
"""The name of the group of blocks that are in no pool."""

_EVERYWHERE = Prefix(Family.IPV4, 0, 0)


@frozen(kw_only=True)
class BlockUsage:
    """One block. ``reserved`` counts its reserved addresses, ``available`` those that can be assigned."""

    block: Block
    reserved: int
    available: int

    @property
    def capacity(self) -> int:
        """How many addresses it has."""
        return self.block.prefix.size

    @property
    def in_use(self) -> int:
        """How many of them are not free: assigned, cooling down, or reserved for the host."""
        return self.block.used_count

    @property
    def cooling(self) -> int:
        """How many of those in use are cooling down."""
        return self.block.cooling_count


@frozen(kw_only=True)
class PoolUsage:
    """One pool and its blocks, by address.

    ``reserved`` counts the reserved addresses of its range, assigned or not; ``available`` those that can be assigned,
    in blocks and outside of them. If ``pool`` is None, the blocks are those in no pool, of both families, and only the
    addresses of these blocks are counted. No address of them is assigned while they are in no pool.
    """

    pool: IPPool | None
    blocks: tuple[BlockUsage, ...]
    capacity: int
    reserved: int
    available: int

    @property
    def name(self) -> str:
        """The pool's name, or ``ORPHANS``."""
        return self.pool.metadata.name if self.pool else ORPHANS

    @property
    def prefix(self) -> Prefix:
        """The pool's range; everything for the blocks in no pool."""
        return self.pool.spec.prefix if self.pool else _EVERYWHERE

    @property
    def in_use(self) -> int:
        """How many of its addresses are not free."""
        return sum(block.in_use for block in self.blocks)

    @property
    def cooling(self) -> int:
        """How many of those in use are cooling down."""
        return sum(block.cooling for block in self.blocks)


@frozen(kw_only=True)
class BorrowedAddress:
    """A borrowed address: the node that uses it, and the block of another owner that it is in."""

    allocation: Allocation
    node: str
    block: Block


def utilization(
    pools: Iterable[IPPool], blocks: Iterable[Block], reserved: Reserved | None = None
) -> tuple[PoolUsage, ...]:
    """The utilization of each pool, by name, and of the blocks in no pool, last, if there are any.

    A block counts for the first pool, by name, that covers it.
    """
    reserved = reserved or Reserved()
    remaining = [_of_block(block, reserved) for block in sorted(blocks, key=lambda block: block.prefix)]
    usages = []
    for pool in sorted(pools, key=lambda pool: pool.metadata.name):
        prefix = pool.spec.prefix
        covered = tuple(usage for usage in remaining if prefix.covers(usage.block.prefix))
        remaining = [usage for usage in remaining if not prefix.covers(usage.block.prefix)]
        usages.append(_of_pool(pool, covered, reserved.count(prefix)))
    return (*usages, _orphans(tuple(remaining))) if remaining else tuple(usages)


def borrowed(blocks: Iterable[Block]) -> tuple[BorrowedAddress, ...]:
    """Every borrowed address, by address. An address in a block without an owner is not borrowed."""
    return tuple(
        BorrowedAddress(allocation=held, node=node, block=block)
        for block in sorted(blocks, key=lambda block: block.prefix)
        for held in block.held()
        if (node := borrowing_node(block, held.attribute))
    )


def borrowing_node(block: Block, attribute: Attribute) -> str:
    """The node that borrows the addresses of a block with that attribute; empty if none does."""
    node = attribute.owner_value("node")
    return node if block.owner and host_owner(node) != block.owner else ""


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
