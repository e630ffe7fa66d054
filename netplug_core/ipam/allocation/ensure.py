"""The decision that a node owns a block, full or not: a node that advertises its blocks needs one at its start."""

from __future__ import annotations

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.acquire import find_own_blocks
from netplug_core.ipam.allocation.block_order import BlockOrder
from netplug_core.ipam.allocation.context import AllocationContext, FamilyAllocation
from netplug_core.ipam.allocation.decide import acquire_missing, conditions
from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate, claim_block
from netplug_core.ipam.allocation.pools import choose
from netplug_core.ipam.allocation.request import AssignRequest, Automatic
from netplug_core.ipam.model.affinity import AFFINITY
from netplug_core.records import Decision, NeedMore, Query, RequireUnchanged, Snapshot

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
    needed: list[Query] = []
    for wanted in request.wanted:
        if not isinstance(wanted, Automatic):
            continue
        found = _block(context, wanted)
        if isinstance(found, NetplugError):
            return Decision((), found)
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
    for candidate in candidates:
        claim_block(candidate, context.claimant.owner, writes)
    result = EnsuredBlocks(blocks=tuple(candidate.block.prefix for candidate in candidates))
    return Decision(tuple(writes) if len(writes) > before else (), result)


def _block(context: AllocationContext, wanted: Automatic) -> BlockCandidate | NeedMore | NetplugError:
    choice = choose(context.pools, context.request, wanted, context.labels)
    if isinstance(choice, NetplugError):
        return choice
    own = find_own_blocks(context, wanted.family, choice.pools)
    is_own = bool(own.usable) and own.usable[0].acquisition is Acquisition.OWN
    if not is_own and (outdated := context.reread_affinities(wanted.family)):
        return outdated
    if own.usable:
        return own.usable[0]
    # Find a block with one free address; the address itself is not taken.
    room = context.block_limit - own.count
    allocation = FamilyAllocation(context=context, wanted=1, missing=1, room=room, may_borrow=False, stale=own.stale)
    refusal = acquire_missing(allocation, evolve(wanted, count=1), choice.pools, own.pending)
    return allocation.candidates[0] if refusal is None else refusal
