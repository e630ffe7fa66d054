"""The claimant's own blocks, as its affinities name them: the first place where addresses are looked for."""

from __future__ import annotations

from attrs import Factory, define, field, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.context import AllocationContext, OwnAffinity
from netplug_core.ipam.allocation.ownership import BlockCandidate, Purpose
from netplug_core.ipam.allocation.pools import Pools, find_pool_of_block, is_enabled, is_selected
from netplug_core.ipam.model.affinity import Affinity
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.outcome.trace import BlockOutcome, BlockTrace
from netplug_core.records import Record, TraceEntry

__all__ = ["OwnBlocks", "RelinquishedBlock", "find_own_blocks"]


@frozen(kw_only=True)
class RelinquishedBlock:
    """An empty block of the claimant in a pool that does not select its node any more, and the affinity to it."""

    affinity: Record[Affinity]
    block: Record[Block]


@define(kw_only=True)
class OwnBlocks:
    """What the claimant's affinities name.

    ``usable`` are its blocks in pools that may serve. ``pending`` are blocks that are not stored (yet, or any more).
    ``stale`` are affinities to blocks of others. ``count`` is the number of its blocks in all pools, since requests for
    different pools must not exceed the block limit together.
    """

    usable: list[BlockCandidate] = field(default=Factory(list))
    pending: list[BlockCandidate] = field(default=Factory(list))
    stale: dict[Prefix, Record[Affinity]] = field(default=Factory(dict))
    relinquished: list[RelinquishedBlock] = field(default=Factory(list))
    trace: list[TraceEntry] = field(default=Factory(list))
    count: int = 0


def find_own_blocks(context: AllocationContext, family: Family, pools: Pools) -> OwnBlocks:
    """Sort the claimant's affinities by what they lead to; ``pools`` are those that may serve."""
    own = OwnBlocks()
    for entry in context.own_affinities[family]:
        prefix, record = entry.prefix, entry.block
        if record is not None and record.value.owner != context.claimant.owner:
            own.stale[prefix] = entry.affinity
            own.trace.append(BlockTrace(block=prefix, outcome=BlockOutcome.STALE))
            continue
        candidate = _find_candidate(context, entry, pools)
        if record is None:
            own.pending.extend([candidate] if candidate else [])
        elif candidate is None and _is_superfluous(context, record):
            own.relinquished.append(RelinquishedBlock(affinity=entry.affinity, block=record))
            own.trace.append(BlockTrace(block=prefix, outcome=BlockOutcome.RELINQUISHED))
        else:
            own.count += 1
            own.usable.extend([candidate] if candidate else [])
    return own


def _find_candidate(context: AllocationContext, entry: OwnAffinity, pools: Pools) -> BlockCandidate | None:
    pool = find_pool_of_block(pools, entry.prefix)
    if pool is None:
        return None
    return context.claimant.find_candidate(Purpose.AUTOMATIC, pool, entry.prefix, entry.block, entry.affinity)


def _is_superfluous(context: AllocationContext, record: Record[Block]) -> bool:
    """Whether a block is empty and its pool, which is enabled, does not select the node any more."""
    pool = find_pool_of_block(context.pools, record.value.prefix)
    if pool is None or not is_enabled(pool.value):
        return False
    if not context.claimant.cooldown.expire(record.value).is_empty:
        return False
    try:
        return not is_selected(pool, context.labels)
    except ConfigurationError:
        return False  # requests that this pool would serve report the selector; the block is kept until then
