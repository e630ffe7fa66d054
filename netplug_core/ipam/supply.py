"""Where the addresses of one family come from: those already held, the node's own blocks, then other ones.

``decide`` calls ``serve`` and turns the supplies of all families into one commit. Work is bounded by
the blocks the node owns plus a few probes (``places``), until a loan or a shortfall forces a look at all of them.
"""

from __future__ import annotations

from attrs import Factory, define, evolve, field, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.ipam.affinity import Affinity, AffinityState
from netplug_core.ipam.block import Block
from netplug_core.ipam.desk import Basket, Desk, Hold, Means
from netplug_core.ipam.pools import Pools, choose, is_selected
from netplug_core.ipam.request import AssignedAddress, Automatic
from netplug_core.ipam.trace import BlockOutcome, BlockSeen, Rule, RuleSeen
from netplug_core.records import NeedMore, Record, Remark
from netplug_core.resources.ippool import IPPool

__all__ = ["GivenUp", "Own", "Supply", "keep", "own_blocks", "pool_of", "serve"]


@frozen(kw_only=True)
class GivenUp:
    """An empty block of ours in a pool that does not select us any more, and our claim on it."""

    affinity: Record[Affinity]
    block: Record[Block]


@define(kw_only=True)
class Supply:
    """What one family gets: addresses the handle holds already, and holds to take.

    ``stale`` are claims on blocks that belong to somebody else by now. ``refusal`` says why less than asked can be
    had. ``has_limited_claims``: some holds make a block the claimant's, and somebody limits how many it may own.
    """

    kept: tuple[AssignedAddress, ...] = ()
    holds: tuple[Hold, ...] = ()
    stale: tuple[Record[Affinity], ...] = ()
    given_up: tuple[GivenUp, ...] = ()
    trace: tuple[Remark, ...] = ()
    refusal: NetplugError | None = None
    has_limited_claims: bool = False


def serve(desk: Desk, wanted: Automatic) -> Supply | NeedMore:
    """What one family of the request gets, or what to read before that can be said."""
    kept = keep(desk, wanted.family)
    total, remarks = _total(desk, wanted)
    if len(kept) >= total:
        return Supply(kept=kept[:total], trace=remarks)
    choice = choose(desk.pools, desk.request, wanted, desk.labels)
    if isinstance(choice, NetplugError):
        return Supply(kept=kept, trace=remarks, refusal=_of_node(desk, choice))
    own = own_blocks(desk, wanted.family, choice.pools)
    basket = Basket(
        desk=desk,
        wanted=total,
        missing=total - len(kept),
        room=desk.limit - own.count,
        may_borrow=not desk.rules.is_affinity_strict,
        stale=own.stale,
    )
    for hold in own.usable:
        basket.offer(hold)
        if not basket.missing:
            break
    refusal: NetplugError | None = None
    room = basket.room
    if basket.missing:
        from netplug_core.ipam.places import look_further  # what most calls have no need of

        outcome = look_further(basket, wanted, choice.pools, own.pending)
        if isinstance(outcome, NeedMore):
            return outcome
        refusal = outcome
    return Supply(
        kept=kept,
        holds=tuple(basket.holds),
        stale=tuple(basket.stale.values()),
        given_up=tuple(own.given_up),
        trace=(*remarks, *choice.seen, *own.trace, *basket.trace),
        refusal=refusal,
        has_limited_claims=basket.room < room and bool(desk.limits),
    )


def _of_node(desk: Desk, refusal: NetplugError) -> NetplugError:
    """The refusal, which says so where no pool selects a node because nobody registered it."""
    from netplug_core.ipam.refusals import NoPoolServes

    if isinstance(refusal, NoPoolServes) and desk.is_node_known and desk.node is None:
        return evolve(refusal, is_registered=False)
    return refusal


def _total(desk: Desk, wanted: Automatic) -> tuple[int, tuple[Remark, ...]]:
    most = desk.request.max_per_handle
    if most is None or wanted.count <= most:
        return wanted.count, ()
    return most, (RuleSeen(rule=Rule.MOST_PER_HANDLE, detail=str(most)),)


def keep(desk: Desk, family: Family) -> tuple[AssignedAddress, ...]:
    """Addresses of a family that the handle holds already."""
    handle = desk.request.handle
    if handle is None or not desk.held:
        return ()
    return tuple(
        AssignedAddress(address=held.address, prefix=_range(desk.pools, record.value.prefix))
        for record in desk.held
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
class Own:
    """What the claimant's affinities lead to.

    ``usable`` are its blocks in pools that may serve, ``pending`` its claims on blocks that are not there (yet, or any
    more). ``count`` has its blocks in all pools: requests for different pools must not exceed the limit together.
    """

    usable: list[Hold] = field(default=Factory(list))
    pending: list[Hold] = field(default=Factory(list))
    stale: dict[Prefix, Record[Affinity]] = field(default=Factory(dict))
    given_up: list[GivenUp] = field(default=Factory(list))
    trace: list[Remark] = field(default=Factory(list))
    count: int = 0


def own_blocks(desk: Desk, family: Family, pools: Pools) -> Own:
    """Sort the claimant's affinities; ``pools`` are those that may serve."""
    own = Own()
    for claim in desk.claims[family]:
        affinity, prefix, record = claim.affinity, claim.prefix, claim.block
        pool = pool_of(prefix, pools)
        if record is None:
            if pool is not None:
                new = desk.new_block(prefix)
                own.pending.append(Hold(pool=pool, block=new, revision=None, means=Means.CLAIM, affinity=affinity))
        elif record.value.owner != desk.request.claimant:
            own.stale[prefix] = affinity
            own.trace.append(BlockSeen(block=prefix, outcome=BlockOutcome.STALE))
        elif pool is not None:
            own.count += 1
            own.usable.append(_usable(desk, pool, record, affinity))
        elif desk.rested(record.value).is_empty and _is_deselected(desk, prefix):
            own.given_up.append(GivenUp(affinity=affinity, block=record))
            own.trace.append(BlockSeen(block=prefix, outcome=BlockOutcome.GIVEN_UP))
        else:
            own.count += 1
    return own


def _usable(desk: Desk, pool: Record[IPPool], record: Record[Block], affinity: Record[Affinity]) -> Hold:
    block, means = desk.rested(record.value), Means.SETTLED
    if affinity.value.state is not AffinityState.CONFIRMED:
        # Stored once more before it is confirmed, so that a half-done release of it fails.
        block, means = block.touched(), Means.CONFIRM
    return Hold(pool=pool, block=block, revision=record.revision, means=means, affinity=affinity)


def _is_deselected(desk: Desk, block: Prefix) -> bool:
    pool = pool_of(block, desk.pools)
    if pool is None or pool.value.spec.is_disabled or pool.value.is_terminating:
        return False
    try:
        return not is_selected(pool, desk.labels)
    except ConfigurationError:
        return False  # whoever is served by that pool hears of it; a block is not given up on a doubt
