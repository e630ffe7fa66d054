"""How full the pools of a simulated cluster are at one moment; ``simulate`` reads it at the end of every step."""

from __future__ import annotations

from collections import Counter

from attrs import Factory, define, field, frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.interface import Datastore
from netplug_core.flows.overview import read_utilization
from netplug_core.flows.study import PoolSample, Spread
from netplug_core.ipam.affinity import host_owner
from netplug_core.ipam.block import Block
from netplug_core.ipam.utilization import PoolUsage, borrowed
from netplug_core.resources.ippool import IPPoolSpec

__all__ = ["Gauge", "Reading"]


@frozen(kw_only=True)
class Reading:
    """What a gauge shows: all pools with their blocks, the same in numbers, and the blocks that each node has."""

    usages: tuple[PoolUsage, ...]
    pools: tuple[PoolSample, ...]
    blocks_per_node: Spread


@define
class Gauge:
    """Reads a store in the name of some nodes."""

    store: Datastore
    nodes: tuple[str, ...]
    _loans: dict[Prefix, tuple[Block, int]] = field(default=Factory(dict), init=False)

    def read(self, *, deadline: Deadline) -> Reading:
        """What the store holds now."""
        usages = read_utilization(self.store, deadline=deadline)
        return Reading(
            usages=usages,
            pools=tuple(self._pool(usage, usage.pool.spec) for usage in usages if usage.pool is not None),
            blocks_per_node=self._spread(usages),
        )

    def _pool(self, usage: PoolUsage, spec: IPPoolSpec) -> PoolSample:
        is_too_small = spec.prefix.length > spec.block_length  # a disabled pool may be
        return PoolSample(
            name=usage.name,
            prefix=usage.prefix,
            in_use=usage.in_use,
            cooling=usage.cooling,
            reserved=usage.reserved,
            available=usage.available,
            borrowed=sum(self._borrowed(block.block) for block in usage.blocks),
            blocks=len(usage.blocks),
            most_blocks=0 if is_too_small else spec.prefix.part_count(spec.block_length),
            unowned=sum(not block.block.owner for block in usage.blocks),
            blocks_per_node=self._spread((usage,)),
        )

    def _spread(self, usages: tuple[PoolUsage, ...]) -> Spread:
        owned = Counter(block.block.owner for usage in usages for block in usage.blocks)
        return Spread.of(owned[host_owner(node)] for node in self.nodes)

    def _borrowed(self, block: Block) -> int:
        """How many addresses of a block are borrowed; looking at each is dear, and most blocks stay as they were."""
        known = self._loans.get(block.prefix)
        if known is None or known[0] is not block:
            known = self._loans[block.prefix] = (block, len(borrowed((block,))))
        return known[1]
