"""The decision that a node owns a block, full or not: a node that advertises its blocks needs one at its start."""

from __future__ import annotations

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.acquire import OwnBlocks, find_own_blocks
from netplug_core.ipam.allocation.context import AllocationContext, FamilyAllocation, RelinquishedBlock
from netplug_core.ipam.allocation.decide import acquire_missing, conditions, give_up
from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate, claim_block
from netplug_core.ipam.allocation.pools import BlockOrder, Pools, choose
from netplug_core.ipam.allocation.request import AssignRequest, Automatic
from netplug_core.ipam.model.affinity import AFFINITY
from netplug_core.records import Decision, NeedMore, Query, RequireUnchanged, Snapshot, Write

__all__ = ["EnsuredBlocks", "decide_ensure"]


@frozen(kw_only=True)
class EnsuredBlocks:
    """One block for each family that was asked for, in the order of the request."""

    blocks: tuple[Prefix, ...]


def decide_ensure(
    snapshot: Snapshot, request: AssignRequest, now_ns: int, order: BlockOrder
) -> Decision[EnsuredBlocks] | NeedMore:
    """A block of the claimant in a pool that may serve, for each family: its first one, or one that it acquires.

    The request's counts are ignored, and no address is taken. A request for a specific address ensures no block.
    """
    context = AllocationContext.open(snapshot, request, now_ns, order)
    if isinstance(context, NeedMore):
        return context
    candidates: list[BlockCandidate] = []
    relinquished: list[RelinquishedBlock] = []
    needed: list[Query] = []
    for wanted in request.wanted:
        if not isinstance(wanted, Automatic):
            continue
        choice = choose(context.pools, context.request, wanted, context.labels)
        if isinstance(choice, NetplugError):
            return Decision((), choice)
        own = find_own_blocks(context, wanted.family, choice.pools)
        relinquished.extend(own.relinquished)
        found = _block(context, wanted, choice.pools, own)
        if isinstance(found, NetplugError):
            return Decision(_releases(context, relinquished), found)
        if isinstance(found, NeedMore):
            needed.extend(found.queries)
        else:
            candidates.append(found)
    if needed:
        return NeedMore(tuple(needed))
    writes = conditions(context, candidates)
    if context.explicit_limits and candidates:  # a concurrent claim could exceed the limit
        writes.append(RequireUnchanged(AFFINITY, snapshot.revision(AFFINITY)))
    before = len(writes)
    give_up(context, relinquished, writes)
    for candidate in candidates:
        claim_block(candidate, context.claimant.owner, writes)
    result = EnsuredBlocks(blocks=tuple(candidate.block.prefix for candidate in candidates))
    return Decision(tuple(writes) if len(writes) > before else (), result)


def _releases(context: AllocationContext, relinquished: list[RelinquishedBlock]) -> tuple[Write, ...]:
    """The writes by which the claimant gives up blocks, so that the next try has their room."""
    writes: list[Write] = []
    give_up(context, relinquished, writes)
    return tuple(writes)


def _block(
    context: AllocationContext, wanted: Automatic, pools: Pools, own: OwnBlocks
) -> BlockCandidate | NeedMore | NetplugError:
    is_own = bool(own.usable) and own.usable[0].acquisition is Acquisition.OWN
    if not is_own and (outdated := context.reread_affinities(wanted.family)):
        return outdated
    if own.usable:
        return own.usable[0]
    # Find a block with one free address; the address itself is not taken.
    room = context.block_limit - own.count
    allocation = FamilyAllocation(context=context, wanted=1, missing=1, room=room, may_borrow=False, stale=own.stale)
    refusal = acquire_missing(allocation, evolve(wanted, count=1), pools, own.pending)
    return allocation.candidates[0] if refusal is None else refusal
