"""The decision that a node has a block at all, full or not: what a node that advertises blocks needs at its start."""

from __future__ import annotations

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.acquire import acquire
from netplug_core.ipam.allocation.affinity_writes import claim_block
from netplug_core.ipam.allocation.automatic import own_blocks
from netplug_core.ipam.allocation.block_order import BlockOrder
from netplug_core.ipam.allocation.context import AllocationContext, BlockCandidate, FamilyAllocation
from netplug_core.ipam.allocation.decide import conditions
from netplug_core.ipam.allocation.pools import choose
from netplug_core.ipam.allocation.readiness import lock_refusal
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
    """A block of the claimant's in a pool that may serve, for each family; the first there is, or a new one.

    The request's counts do not matter, and nothing is taken; one address asked for by name ensures nothing.
    """
    refusal = lock_refusal(snapshot)
    if refusal is not None:
        return Decision((), refusal)
    desk = AllocationContext.open(snapshot, request, now_ns, order)
    if isinstance(desk, NeedMore):
        return desk
    holds: list[BlockCandidate] = []
    needed: list[Query] = []
    for wanted in request.wanted:
        if not isinstance(wanted, Automatic):
            continue
        found = _block(desk, wanted)
        if isinstance(found, NetplugError):
            return Decision((), found)
        if isinstance(found, NeedMore):
            needed.extend(found.queries)
        else:
            holds.append(found)
    if needed:
        return NeedMore(tuple(needed))
    writes = conditions(desk, holds)
    if desk.limits and holds:  # no other claim may slip in beside one that a limit allows
        writes.append(RequireUnchanged(AFFINITY, snapshot.revision(AFFINITY)))
    before = len(writes)
    for hold in holds:
        claim_block(hold, request.claimant, writes)
    result = EnsuredBlocks(blocks=tuple(hold.block.prefix for hold in holds))
    return Decision(tuple(writes) if len(writes) > before else (), result)


def _block(desk: AllocationContext, wanted: Automatic) -> BlockCandidate | NeedMore | NetplugError:
    choice = choose(desk.pools, desk.request, wanted, desk.labels)
    if isinstance(choice, NetplugError):
        return choice
    own = own_blocks(desk, wanted.family, choice.pools)
    if own.usable:
        return own.usable[0]
    # One address more than none: what gives an address is a block, and the address is not taken.
    room = desk.limit - own.count
    basket = FamilyAllocation(context=desk, wanted=1, missing=1, room=room, may_borrow=False, stale=own.stale)
    refusal = acquire(basket, evolve(wanted, count=1), choice.pools, own.pending)
    return basket.candidates[0] if refusal is None else refusal
