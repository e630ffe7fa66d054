"""Addresses and blocks of each pool and node: the values of the collector's metrics (docs/collector.md).

They are counted from a view and the report of its tick. The process that runs the collector publishes them.
"""

from __future__ import annotations

from collections import defaultdict

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.ipam.gc.candidates import allocation_owners
from netplug_core.ipam.gc.model import CollectionReport, StoreView
from netplug_core.ipam.model.affinity import owner_node

__all__ = ["NO_AFFINITY", "NO_POOL", "UNKNOWN_NODE", "PoolMetrics", "pool_metrics"]

NO_POOL = "no_ippool"
UNKNOWN_NODE = "unknown_node"
NO_AFFINITY = "no_affinity"


@frozen(kw_only=True)
class PoolMetrics:
    """The counts of one node in one pool.

    ``in_use`` are assigned addresses, and ``borrowed`` those of them that are in blocks of other owners. ``blocks`` are
    the blocks that the node owns. ``candidates`` look leaked and are not freed yet. ``reclaimed`` were freed by the
    tick.
    """

    pool: str
    node: str
    in_use: int = 0
    borrowed: int = 0
    blocks: int = 0
    candidates: int = 0
    reclaimed: int = 0


def pool_metrics(view: StoreView, report: CollectionReport) -> tuple[PoolMetrics, ...]:
    """The counts of every pool and node with a block or an address, by their names."""
    pool_of = _PoolNames(view)
    counts: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for record in view.blocks:
        block, pool = record.value, pool_of.name(record.value.prefix)
        owner = owner_node(block.owner)
        counts[pool, owner or NO_AFFINITY]["blocks"] += 1
        for holder in allocation_owners(block):
            held = counts[pool, holder.node or UNKNOWN_NODE]
            held["in_use"] += 1
            held["borrowed"] += bool(holder.node) and holder.node != owner
    for name, leaks in (("candidates", report.candidates), ("reclaimed", report.freed)):
        for leak in leaks:
            counts[pool_of.name(leak.owner.block), leak.owner.node or UNKNOWN_NODE][name] += 1
    return tuple(PoolMetrics(pool=pool, node=node, **found) for (pool, node), found in sorted(counts.items()))


class _PoolNames:
    """The names of the pools of blocks; each block is looked up once."""

    def __init__(self, view: StoreView) -> None:
        self._pools = view.pools
        self._known: dict[Prefix, str] = {}

    def name(self, block: Prefix) -> str:
        """The first pool, by name, that covers the block."""
        if block not in self._known:
            covering = (pool.key.name for pool in self._pools if pool.value.spec.prefix.covers(block))
            self._known[block] = min(covering, default=NO_POOL)
        return self._known[block]
