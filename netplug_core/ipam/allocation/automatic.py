"""Where the addresses of one family come from: those already held, the node's own blocks, then other ones.

``decide`` calls ``serve`` and turns the supplies of all families into one commit. Work is bounded by
the blocks the node owns plus a few probes (``places``), until a loan or a shortfall forces a look at all of them.
"""

from __future__ import annotations

from attrs import Factory, define, evolve, field, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.ipam.allocation.context import Acquisition, AllocationContext, BlockCandidate, FamilyAllocation
from netplug_core.ipam.allocation.pools import Pools, choose, is_selected
from netplug_core.ipam.allocation.request import AssignedAddress, Automatic
from netplug_core.ipam.model.affinity import Affinity, AffinityState
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.outcome.trace import AllocationRule, BlockOutcome, BlockTrace, RuleTrace
from netplug_core.records import NeedMore, Record, TraceEntry
from netplug_core.resources.ippool import IPPool

__all__ = ["FamilyOutcome", "OwnBlocks", "RelinquishedBlock", "allocate", "held_addresses", "own_blocks", "pool_of"]


@frozen(kw_only=True)
class RelinquishedBlock:
    """An empty block of ours in a pool that does not select us any more, and our claim on it."""

    affinity: Record[Affinity]
    block: Record[Block]


@define(kw_only=True)
class FamilyOutcome:
    """What one family gets: addresses the handle holds already, and holds to take.

    ``stale`` are claims on blocks that belong to somebody else by now. ``refusal`` says why less than asked can be
    had. ``has_limited_claims``: some holds make a block the claimant's, and somebody limits how many it may own.
    """

    held: tuple[AssignedAddress, ...] = ()
    candidates: tuple[BlockCandidate, ...] = ()
    stale: tuple[Record[Affinity], ...] = ()
    relinquished: tuple[RelinquishedBlock, ...] = ()
    trace: tuple[TraceEntry, ...] = ()
    refusal: NetplugError | None = None
    has_limited_claims: bool = False


def allocate(desk: AllocationContext, wanted: Automatic) -> FamilyOutcome | NeedMore:
    """What one family of the request gets, or what to read before that can be said."""
    kept = held_addresses(desk, wanted.family)
    total, remarks = _total(desk, wanted)
    if len(kept) >= total:
        return FamilyOutcome(held=kept[:total], trace=remarks)
    choice = choose(desk.pools, desk.request, wanted, desk.labels)
    if isinstance(choice, NetplugError):
        return FamilyOutcome(held=kept, trace=remarks, refusal=_with_registration(desk, choice))
    own = own_blocks(desk, wanted.family, choice.pools)
    basket = FamilyAllocation(
        context=desk,
        wanted=total,
        missing=total - len(kept),
        room=desk.limit - own.count,
        may_borrow=not desk.rules.is_affinity_strict,
        stale=own.stale,
    )
    for hold in own.usable:
        basket.take_from(hold)
        if not basket.missing:
            break
    refusal: NetplugError | None = None
    room = basket.room
    if basket.missing:
        from netplug_core.ipam.allocation.acquire import acquire  # what most calls have no need of

        outcome = acquire(basket, wanted, choice.pools, own.pending)
        if isinstance(outcome, NeedMore):
            return outcome
        refusal = outcome
    return FamilyOutcome(
        held=kept,
        candidates=tuple(basket.candidates),
        stale=tuple(basket.stale.values()),
        relinquished=tuple(own.relinquished),
        trace=(*remarks, *choice.seen, *own.trace, *basket.trace),
        refusal=refusal,
        has_limited_claims=basket.room < room and bool(desk.limits),
    )


def _with_registration(desk: AllocationContext, refusal: NetplugError) -> NetplugError:
    """The refusal, which says so where no pool selects a node because nobody registered it."""
    from netplug_core.ipam.outcome.refusals import NoPoolServes

    if isinstance(refusal, NoPoolServes) and desk.has_read_node and desk.node is None:
        return evolve(refusal, is_registered=False)
    return refusal


def _total(desk: AllocationContext, wanted: Automatic) -> tuple[int, tuple[TraceEntry, ...]]:
    most = desk.request.max_per_handle
    if most is None or wanted.count <= most:
        return wanted.count, ()
    return most, (RuleTrace(rule=AllocationRule.MAX_PER_HANDLE, detail=str(most)),)


def held_addresses(desk: AllocationContext, family: Family) -> tuple[AssignedAddress, ...]:
    """Addresses of a family that the handle holds already."""
    handle = desk.request.handle
    if handle is None or not desk.handle_blocks:
        return ()
    return tuple(
        AssignedAddress(address=held.address, prefix=_range(desk.pools, record.value.prefix))
        for record in desk.handle_blocks
        if record.value.prefix.family is family
        for held in record.value.held_by(handle)
    )


def _range(pools: Pools, block: Prefix) -> Prefix:
    pool = next((pool for pool in pools if pool.value.spec.prefix.covers(block)), None)
    return pool.value.spec.prefix if pool else block


def pool_of(block: Prefix, pools: Pools) -> Record[IPPool] | None:
    """The pool among some that a block is one of: it lies inside and has the pool's block size."""
    for pool in pools:
        if pool.value.spec.prefix.covers(block) and pool.value.spec.block_length == block.length:
            return pool
    return None


# --- the claimant's own blocks -------------------------------------------------------------------------------------


@define(kw_only=True)
class OwnBlocks:
    """What the claimant's affinities lead to.

    ``usable`` are its blocks in pools that may serve, ``pending`` its claims on blocks that are not there (yet, or any
    more). ``count`` has its blocks in all pools: requests for different pools must not exceed the limit together.
    """

    usable: list[BlockCandidate] = field(default=Factory(list))
    pending: list[BlockCandidate] = field(default=Factory(list))
    stale: dict[Prefix, Record[Affinity]] = field(default=Factory(dict))
    relinquished: list[RelinquishedBlock] = field(default=Factory(list))
    trace: list[TraceEntry] = field(default=Factory(list))
    count: int = 0


def own_blocks(desk: AllocationContext, family: Family, pools: Pools) -> OwnBlocks:
    """Sort the claimant's affinities; ``pools`` are those that may serve."""
    own = OwnBlocks()
    for claim in desk.own_affinities[family]:
        affinity, prefix, record = claim.affinity, claim.prefix, claim.block
        pool = pool_of(prefix, pools)
        if record is None:
            if pool is not None:
                new = desk.new_block(prefix)
                own.pending.append(
                    BlockCandidate(pool=pool, block=new, revision=None, acquisition=Acquisition.NEW, affinity=affinity)
                )
        elif record.value.owner != desk.request.claimant:
            own.stale[prefix] = affinity
            own.trace.append(BlockTrace(block=prefix, outcome=BlockOutcome.STALE))
        elif pool is not None:
            own.count += 1
            own.usable.append(_usable(desk, pool, record, affinity))
        elif desk.expire_cooldown(record.value).is_empty and _is_deselected(desk, prefix):
            own.relinquished.append(RelinquishedBlock(affinity=affinity, block=record))
            own.trace.append(BlockTrace(block=prefix, outcome=BlockOutcome.RELINQUISHED))
        else:
            own.count += 1
    return own


def _usable(
    desk: AllocationContext, pool: Record[IPPool], record: Record[Block], affinity: Record[Affinity]
) -> BlockCandidate:
    block, means = desk.expire_cooldown(record.value), Acquisition.OWN
    if affinity.value.state is not AffinityState.CONFIRMED:
        # Stored once more before it is confirmed, so that a half-done release of it fails.
        block, means = block.touched(), Acquisition.UNCONFIRMED
    return BlockCandidate(pool=pool, block=block, revision=record.revision, acquisition=means, affinity=affinity)


def _is_deselected(desk: AllocationContext, block: Prefix) -> bool:
    pool = pool_of(block, desk.pools)
    if pool is None or pool.value.spec.is_disabled or pool.value.is_terminating:
        return False
    try:
        return not is_selected(pool, desk.labels)
    except ConfigurationError:
        return False  # whoever is served by that pool hears of it; a block is not given up on a doubt
