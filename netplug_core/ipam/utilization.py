"""How full pools and blocks are: pure counting, for ``netplugctl ipam show`` and for whoever deletes a pool."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from netplug_core.ipam.block import Block
from netplug_core.resources.ippool import IPPool

__all__ = ["PoolUsage", "Utilization", "utilization"]


@frozen(kw_only=True)
class PoolUsage:
    """One pool and the blocks that lie in it, by address."""

    pool: IPPool
    blocks: tuple[Block, ...]

    @property
    def total(self) -> int:
        """How many addresses the pool has."""
        return self.pool.spec.prefix.size

    @property
    def in_use(self) -> int:
        """How many of them are held, those that cool down included."""
        return sum(len(block.allocations) - len(block.free) for block in self.blocks)

    @property
    def free(self) -> int:
        """How many of them nobody holds."""
        return self.total - self.in_use


@frozen(kw_only=True)
class Utilization:
    """Every pool, by name, and the ``strays``: blocks that lie in no pool, by address."""

    pools: tuple[PoolUsage, ...]
    strays: tuple[Block, ...]


def utilization(pools: Iterable[IPPool], blocks: Iterable[Block]) -> Utilization:
    """Sort blocks into the pools that cover them; of pools that overlap, the first by name has them."""
    left = sorted(blocks, key=lambda block: block.prefix)
    usages = []
    for pool in sorted(pools, key=lambda pool: pool.metadata.name):
        mine = tuple(block for block in left if pool.spec.prefix.covers(block.prefix))
        left = [block for block in left if not pool.spec.prefix.covers(block.prefix)]
        usages.append(PoolUsage(pool=pool, blocks=mine))
    return Utilization(pools=tuple(usages), strays=tuple(left))
