"""Which blocks addresses are taken from: the claimant's own, then new and ownerless ones that are found at once.

``decide`` and ``affinities`` call ``find_own_blocks``, and ``acquire_nearby`` where the own blocks do not suffice: it
reads a few blocks in the node's own order. What these lack comes from ``borrow``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from attrs import Factory, define, field

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.block_listing import find_overlap, is_sound, overlap_queries
from netplug_core.ipam.allocation.context import AllocationContext, FamilyAllocation, OwnAffinity, RelinquishedBlock
from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate, Purpose
from netplug_core.ipam.allocation.pools import Pools, block_order, find_pool_of_block, is_enabled, is_selected
from netplug_core.ipam.allocation.request import Automatic
from netplug_core.ipam.model.block import block_query
from netplug_core.ipam.model.handle import Affinity, AffinityState
from netplug_core.ipam.outcome.trace import BlockOutcome, BlockTrace
from netplug_core.records import NeedMore, Query, Record, Snapshot, TraceEntry
from netplug_core.resources.ippool import IPPool

__all__ = [
    "PROBE_COUNT", "OwnBlocks", "PoolPrefix", "acquire_each", "acquire_nearby", "blocks_in_order", "claim_free",
    "find_own_blocks", "nearby_blocks", "start_position",
]  # fmt: skip

PROBE_COUNT = 8
"""Blocks that are read one by one before any list."""

PoolPrefix = tuple[Record[IPPool], Prefix]
"""A block of a pool, stored or not."""

OverlapFinder = Callable[[Snapshot, Prefix], Prefix | NeedMore | None]


# --- the claimant's own blocks -------------------------------------------------------------------------------------


@define(kw_only=True)
class OwnBlocks:
    """What the claimant's affinities name.

    ``usable`` are its blocks in pools that may serve. ``pending`` are blocks that are not stored (yet, or any more).
    ``stale`` are affinities to blocks of others. ``count`` is the number of its blocks in all pools, since requests for
    different pools must not exceed the block limit together. The default limit does not count blocks of pools that are
    disabled, terminating or gone.
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
            if entry.is_later and entry.affinity.value.state is AffinityState.CONFIRMED:
                continue  # another call of the claimant may have made the block its own by now
            own.stale[prefix] = entry.affinity
            own.trace.append(BlockTrace(block=prefix, outcome=BlockOutcome.STALE))
            continue
        candidate = _find_own_candidate(context, entry, pools)
        if record is None:
            own.pending.extend([candidate] if candidate else [])
        elif candidate is not None:
            own.count += 1
            own.usable.append(candidate)
        else:
            _sort_unusable(context, RelinquishedBlock(affinity=entry.affinity, block=record), own)
    for prefix in context.unreadable:
        if prefix.family is family:
            own.count += 1
            own.trace.append(BlockTrace(block=prefix, outcome=BlockOutcome.UNREADABLE))
    return own


def _find_own_candidate(context: AllocationContext, entry: OwnAffinity, pools: Pools) -> BlockCandidate | None:
    pool = find_pool_of_block(pools, entry.prefix)
    if pool is None:
        return None
    return context.claimant.find_candidate(Purpose.AUTOMATIC, pool, entry.prefix, entry.block, entry.affinity)


def _sort_unusable(context: AllocationContext, unusable: RelinquishedBlock, own: OwnBlocks) -> None:
    """Give up a block of the claimant that this request cannot use, if it is empty and no request can, or count it.

    One that this commit cannot give up any more counts too where a limit is set.
    """
    prefix = unusable.block.value.prefix
    pool = find_pool_of_block(context.pools, prefix)
    is_enabled_pool = pool is not None and is_enabled(pool.value)
    is_served = pool is not None and is_enabled_pool and _selects(context, pool)
    if context.knows_selection and not is_served and _is_empty(context, unusable):
        if context.releases_left > 0:
            context.releases_left -= 1
            own.relinquished.append(unusable)
            own.trace.append(BlockTrace(block=prefix, outcome=BlockOutcome.RELINQUISHED))
        elif context.explicit_limits:
            own.count += 1
    elif is_enabled_pool or context.explicit_limits:
        own.count += 1


def _is_empty(context: AllocationContext, unusable: RelinquishedBlock) -> bool:
    return context.claimant.cooldown.expire(unusable.block.value).is_empty


def _selects(context: AllocationContext, pool: Record[IPPool]) -> bool:
    try:
        return is_selected(pool, context.labels or {})
    except ConfigurationError:
        return True  # it is not known which nodes it selects, so the block is kept


# --- other blocks ---------------------------------------------------------------------------------------------------


def acquire_nearby(
    allocation: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]], pending: Iterable[BlockCandidate]
) -> NeedMore | None:
    """Take what is missing from new and ownerless blocks among the first ones of the node's order.

    ``pending`` come first: blocks that the claimant has an affinity to, and that are not stored (yet, or any more).
    """
    if not allocation.context.settings.may_auto_allocate_blocks:
        return None
    needed = acquire_each(allocation, pending)
    if needed is not None or allocation.room <= 0 or not allocation.missing:
        return needed
    return claim_free(allocation, nearby_blocks(allocation.context, wanted.family, pools))


def nearby_blocks(
    context: AllocationContext, family: Family, pools: Sequence[Record[IPPool]]
) -> tuple[PoolPrefix, ...]:
    """The first blocks of the node's order that the claimant has no affinity to."""
    own = {entry.prefix for entry in context.own_affinities[family]}
    in_order = ((pool, prefix) for pool in pools for prefix in blocks_in_order(context, pool) if prefix not in own)
    return tuple(islice(in_order, PROBE_COUNT))


def claim_free(allocation: FamilyAllocation, blocks: Sequence[PoolPrefix]) -> NeedMore | None:
    """Read some blocks one by one, and acquire those of them that are new or have no owner."""
    context, snapshot = allocation.context, allocation.context.snapshot
    queries: list[Query] = [block_query(prefix) for _, prefix in blocks]
    if not all(map(snapshot.has, queries)):
        queries.extend(overlap_queries((prefix for _, prefix in blocks), allocation.missing))
    needed = tuple(query for query in queries if not snapshot.has(query))
    if needed:
        return NeedMore(needed)
    found = (
        context.claimant.find_candidate(Purpose.AUTOMATIC, pool, prefix, snapshot.find(query))
        for pool, prefix in blocks
        if not snapshot.malformed(query := block_query(prefix))
    )
    free = (candidate for candidate in found if candidate and candidate.acquisition is not Acquisition.TAKEN_OVER)
    return acquire_each(allocation, free)


def acquire_each(
    allocation: FamilyAllocation, candidates: Iterable[BlockCandidate], find: OverlapFinder = find_overlap
) -> NeedMore | None:
    """Take what is missing from blocks that the claimant comes to own by it, as far as a limit allows."""
    snapshot, owner = allocation.context.snapshot, allocation.context.claimant.owner
    has_malformed = bool(allocation.context.malformed)
    find_other = find_overlap if has_malformed else find  # a list does not say where its damaged blocks are
    for candidate in candidates:
        if not allocation.missing or allocation.room <= 0:
            return None
        if candidate.block.prefix in allocation.seen:
            continue
        sound = not has_malformed or is_sound(snapshot, owner, candidate.block.prefix)
        if isinstance(sound, NeedMore):
            return sound
        is_new = candidate.acquisition is Acquisition.NEW
        overlap = find_other(snapshot, candidate.block.prefix) if sound and is_new else None
        if isinstance(overlap, NeedMore):
            return overlap
        if sound and overlap is None:
            allocation.acquire(candidate)
            continue
        allocation.seen.add(candidate.block.prefix)
        outcome = BlockOutcome.UNREADABLE if overlap is None else BlockOutcome.OVERLAPPED
        allocation.note(candidate.block.prefix, outcome, str(overlap or ""))
    return None


def blocks_in_order(context: AllocationContext, pool: Record[IPPool]) -> Iterator[Prefix]:
    """Every block of a pool in the order in which this node tries them."""
    spec = pool.value.spec
    return block_order(start_position(context, pool), spec.prefix, spec.block_length, context.reserved)


def start_position(context: AllocationContext, pool: Record[IPPool]) -> int:
    """The position in a pool at which this node starts."""
    spec = pool.value.spec
    return context.order(context.request.node, spec.prefix, spec.prefix.subprefix_count(spec.block_length))
