"""How full the pools are as far as one node knows without a read: by its own blocks, in what it has cached."""

from __future__ import annotations

from attrs import frozen

from netplug_core.ipam.model.affinity import AFFINITY
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.reporting.utilization import utilization
from netplug_core.records import List, Snapshot
from netplug_core.resources.ippool import IPPOOL

__all__ = ["OwnUsage", "own_usage"]


@frozen(kw_only=True)
class OwnUsage:
    """One pool: the addresses of its range, those of the node's own blocks, and how many of these are not free."""

    pool: str
    range_size: int
    block_size: int
    in_use: int


def own_usage(known: Snapshot) -> tuple[OwnUsage, ...]:
    """Each pool, by name; none if the pools are not known.

    A block is the node's own if its affinity is one that the node has listed: it lists its own alone.
    """
    if not known.has(List(IPPOOL)):
        return ()
    usages = utilization([record.value for record in known.readable(List(IPPOOL))], _own_blocks(known))
    return tuple(
        OwnUsage(
            pool=usage.name,
            range_size=usage.capacity,
            block_size=sum(block.capacity for block in usage.blocks),
            in_use=usage.in_use,
        )
        for usage in usages
        if usage.pool is not None
    )


def _own_blocks(known: Snapshot) -> tuple[Block, ...]:
    owners = {
        ":".join(query.within[:2]) for query in known.results if query.kind == AFFINITY and isinstance(query, List)
    }
    records = (record for result in known.results.values() for record in result.records)
    blocks = (record.value for record in records if isinstance(record.value, Block))
    # Several answers may have the same block; they agree on it.
    return tuple({block.prefix: block for block in blocks if block.owner in owners}.values())
