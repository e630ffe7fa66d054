"""Addresses of one family that netplug chooses: those already held, then from the node's own blocks, then from others.

``decide`` calls ``allocate`` for each family and turns the outcomes into one commit. The work is bounded by the blocks
that the node owns plus a few probes (``acquire``), until borrowing or a shortfall forces a look at all blocks.
"""

from __future__ import annotations

from attrs import define, evolve

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.context import AllocationContext, FamilyAllocation
from netplug_core.ipam.allocation.own_blocks import RelinquishedBlock, find_own_blocks
from netplug_core.ipam.allocation.ownership import BlockCandidate
from netplug_core.ipam.allocation.pools import Pools, choose
from netplug_core.ipam.allocation.request import AssignedAddress, Automatic
from netplug_core.ipam.model.affinity import Affinity
from netplug_core.ipam.outcome.trace import AllocationRule, RuleTrace
from netplug_core.records import NeedMore, Record, TraceEntry

__all__ = ["FamilyOutcome", "allocate", "held_addresses"]


@define(kw_only=True)
class FamilyOutcome:
    """What one family gets: the addresses that the handle holds already, and candidates to take more from.

    ``stale`` are affinities to blocks of other owners, to be deleted; ``relinquished`` are blocks to be given up.
    ``refusal`` says why less than asked can be had. ``has_limited_claims``: candidates make blocks the claimant's
    while an explicit limit says how many it may own.
    """

    held: tuple[AssignedAddress, ...] = ()
    candidates: tuple[BlockCandidate, ...] = ()
    stale: tuple[Record[Affinity], ...] = ()
    relinquished: tuple[RelinquishedBlock, ...] = ()
    trace: tuple[TraceEntry, ...] = ()
    refusal: NetplugError | None = None
    has_limited_claims: bool = False


def allocate(context: AllocationContext, wanted: Automatic) -> FamilyOutcome | NeedMore:
    """What one family of the request gets, or what to read before that can be said."""
    held = held_addresses(context, wanted.family)
    total, entries = _total(context, wanted)
    if len(held) >= total:
        return FamilyOutcome(held=held[:total], trace=entries)
    choice = choose(context.pools, context.request, wanted, context.labels)
    if isinstance(choice, NetplugError):
        return FamilyOutcome(held=held, trace=entries, refusal=_with_registration(context, choice))
    own = find_own_blocks(context, wanted.family, choice.pools)
    allocation = FamilyAllocation(
        context=context,
        wanted=total,
        missing=total - len(held),
        room=context.block_limit - own.count,
        may_borrow=not context.settings.is_affinity_strict,
        stale=own.stale,
    )
    for candidate in own.usable:
        allocation.take(candidate)
        if not allocation.missing:
            break
    refusal: NetplugError | None = None
    room = allocation.room
    if allocation.missing:
        from netplug_core.ipam.allocation.acquire import acquire  # most calls do not need it

        outcome = acquire(allocation, wanted, choice.pools, own.pending)
        if isinstance(outcome, NeedMore):
            return outcome
        refusal = outcome
    return FamilyOutcome(
        held=held,
        candidates=tuple(allocation.candidates),
        stale=tuple(allocation.stale.values()),
        relinquished=tuple(own.relinquished),
        trace=(*entries, *choice.seen, *own.trace, *allocation.trace),
        refusal=refusal,
        has_limited_claims=allocation.room < room and bool(context.explicit_limits),
    )


def _with_registration(context: AllocationContext, refusal: NetplugError) -> NetplugError:
    """The refusal; where no pool selects the node, it also says whether the node is registered at all."""
    from netplug_core.ipam.outcome.refusals import NoPoolServes

    if isinstance(refusal, NoPoolServes) and context.has_read_node and context.node is None:
        return evolve(refusal, is_registered=False)
    return refusal


def _total(context: AllocationContext, wanted: Automatic) -> tuple[int, tuple[TraceEntry, ...]]:
    maximum = context.request.max_per_handle
    if maximum is None or wanted.count <= maximum:
        return wanted.count, ()
    return maximum, (RuleTrace(rule=AllocationRule.MAX_PER_HANDLE, detail=str(maximum)),)


def held_addresses(context: AllocationContext, family: Family) -> tuple[AssignedAddress, ...]:
    """The addresses of a family that the handle holds already."""
    handle = context.request.handle
    if handle is None or not context.handle_blocks:
        return ()
    return tuple(
        AssignedAddress(address=held.address, prefix=_range(context.pools, record.value.prefix))
        for record in context.handle_blocks
        if record.value.prefix.family is family
        for held in record.value.held_by(handle)
    )


def _range(pools: Pools, block: Prefix) -> Prefix:
    """The prefix of the pool that covers a block; the block's own where the pool is gone."""
    pool = next((pool for pool in pools if pool.value.spec.prefix.covers(block)), None)
    return pool.value.spec.prefix if pool else block
