"""Metrics of a simulated cluster: its pools and blocks at one moment. ``simulator`` reads them after every step."""

from __future__ import annotations

from collections import Counter

from attrs import Factory, define, field, frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.read import read_utilization
from netplug_core.ipam.model.affinity import host_owner
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.reporting.usage import PoolUsage, borrowed
from netplug_core.resources.ippool import IPPoolSpec
from netplug_core.simulation.result import Distribution, PoolSample

__all__ = ["ClusterMetrics", "MetricsReader"]


@frozen(kw_only=True)
class ClusterMetrics:
    """All pools with their blocks, a sample of each pool, and the distribution of blocks over the nodes."""

    usages: tuple[PoolUsage, ...]
    pools: tuple[PoolSample, ...]
    blocks_per_node: Distribution


@define
class MetricsReader:
    """Reads the metrics of a cluster with these nodes."""

    store: Datastore
    nodes: tuple[str, ...]
    _borrowed_counts: dict[Prefix, tuple[Block, int]] = field(default=Factory(dict), init=False)

    def read(self, *, deadline: Deadline) -> ClusterMetrics:
        """The metrics now."""
        usages = read_utilization(self.store, deadline=deadline)
        return ClusterMetrics(
            usages=usages,
            pools=tuple(self._pool_sample(usage, usage.pool.spec) for usage in usages if usage.pool is not None),
            blocks_per_node=self._distribution(usages),
        )

    def _pool_sample(self, usage: PoolUsage, spec: IPPoolSpec) -> PoolSample:
        is_too_small = spec.prefix.length > spec.block_length  # a disabled pool may be
        return PoolSample(
            name=usage.name,
            prefix=usage.prefix,
            in_use=usage.in_use,
            cooling=usage.cooling,
            reserved=usage.reserved,
            available=usage.available,
            borrowed=sum(self._count_borrowed(block.block) for block in usage.blocks),
            blocks=len(usage.blocks),
            max_blocks=0 if is_too_small else spec.prefix.subprefix_count(spec.block_length),
            unaffined_blocks=sum(not block.block.owner for block in usage.blocks),
            blocks_per_node=self._distribution((usage,)),
        )

    def _distribution(self, usages: tuple[PoolUsage, ...]) -> Distribution:
        owned = Counter(block.block.owner for usage in usages for block in usage.blocks)
        return Distribution.of(owned[host_owner(node)] for node in self.nodes)

    def _count_borrowed(self, block: Block) -> int:
        """How many addresses of a block are borrowed; cached, because most blocks do not change in a step."""
        known = self._borrowed_counts.get(block.prefix)
        if known is None or known[0] is not block:
            known = self._borrowed_counts[block.prefix] = (block, len(borrowed((block,))))
        return known[1]
