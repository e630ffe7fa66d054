"""Where a node looks when its own blocks give no more: blocks nobody has, empty ones of others, and loans.

``supply`` calls ``look_further``. A few candidates in the node's own order are looked at one by one first; only when
they do not suffice are all blocks of the family read, page by page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from attrs import evolve, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import AllocationError
from netplug_core.ipam.affinity import Affinity, affinity_key
from netplug_core.ipam.block import Block, block_key
from netplug_core.ipam.desk import Basket, Desk, Hold, Means
from netplug_core.ipam.listing import all_blocks
from netplug_core.ipam.request import Automatic
from netplug_core.ipam.search import block_order, block_positions
from netplug_core.ipam.trace import BlockOutcome, PoolFull, Rule, RuleSeen
from netplug_core.records import Get, Key, NeedMore, Record, Remark
from netplug_core.resources.ippool import IPPool

__all__ = ["PROBES", "RECLAIM_AGE_S", "look_further"]

PROBES = 8
"""Candidate blocks that are looked at one by one before all blocks are listed."""

RECLAIM_AGE_S = 60
"""How long ago an empty block must have been claimed before another node takes it over."""

_SECOND_NS = 1_000_000_000

Blocks = Mapping[Prefix, Record[Block]]


def look_further(
    basket: Basket, wanted: Automatic, pools: Sequence[Record[IPPool]], pending: Iterable[Hold]
) -> AllocationError | NeedMore | None:
    """Fill a basket from other blocks than the claimant's; the reason why it is not full, or what to read first.

    First come the ``pending`` ones: the claimant has claimed them already, and they are not there (yet, or any more).
    """
    rules, shortfall = basket.desk.rules, _Shortfall(basket, wanted)
    if not rules.claims_blocks:
        return shortfall.because(Rule.NO_CLAIMS)
    _claim_each(basket, pending)
    needed = _probe(basket, wanted, pools)
    if needed is None and basket.missing and not _is_at_limit(basket):
        needed = _look_far(basket, wanted, pools)
    if needed is not None or not basket.missing:
        return needed
    if _is_at_limit(basket):
        return shortfall.because(Rule.BLOCK_LIMIT)
    return shortfall.because(Rule.STRICT_AFFINITY) if rules.is_affinity_strict else shortfall.for_want()


def _is_at_limit(basket: Basket) -> bool:
    """Whether a limit that somebody set allows no more blocks; the implicit one ends claims and not the search."""
    return basket.room <= 0 and bool(basket.desk.limits)


def _look_far(basket: Basket, wanted: Automatic, pools: Sequence[Record[IPPool]]) -> NeedMore | None:
    """Fill a basket with every block of the family at hand: what nobody has, what others leave empty, then loans."""
    blocks = all_blocks(basket.desk.snapshot, wanted.family)
    if isinstance(blocks, NeedMore):
        return blocks
    areas = tuple(_Area.of(basket.desk, pool, blocks) for pool in pools)
    _claim_each(basket, chain.from_iterable(area.unclaimed() for area in areas))
    needed = _reclaim(basket, areas) if basket.missing else None
    if needed is not None:
        return needed
    if basket.may_borrow and not _is_at_limit(basket):
        _borrow(basket, areas)
    if basket.missing:
        basket.trace.extend(area.full(basket) for area in areas)
        _note_unreached(basket, areas)
    return None


def _borrow(basket: Basket, areas: Iterable[_Area]) -> None:
    for hold in chain.from_iterable(area.lenders() for area in areas):
        if not basket.missing:
            return
        if hold.block.prefix not in basket.seen:  # what became ours just now has given all it has
            basket.offer(hold)


def _claim_each(basket: Basket, holds: Iterable[Hold]) -> None:
    for hold in holds:
        if not basket.missing or basket.room <= 0:
            return
        if hold.block.prefix not in basket.seen:
            basket.claim(hold)


def _probe(basket: Basket, wanted: Automatic, pools: Sequence[Record[IPPool]]) -> NeedMore | None:
    """Claim what is free among the first candidates of the node's order."""
    if basket.room <= 0 or not basket.missing:
        return None
    desk = basket.desk
    own = {claim.prefix for claim in desk.claims[wanted.family]}
    places = ((pool, prefix) for pool in pools for prefix in _places(desk, pool))
    probed = tuple(islice((place for place in places if place[1] not in own), PROBES))
    needed = tuple(query for query in (Get(block_key(prefix)) for _, prefix in probed) if not desk.snapshot.has(query))
    if needed:
        return NeedMore(needed)
    found = ((pool, prefix, desk.snapshot.find(block_key(prefix))) for pool, prefix in probed)
    _claim_each(basket, (hold for place in found if (hold := _claimable(desk, *place)) is not None))
    return None


def _places(desk: Desk, pool: Record[IPPool]) -> Iterator[Prefix]:
    """Every block of a pool in the order in which this node looks at them."""
    spec = pool.value.spec
    start = desk.order(desk.request.node, spec.prefix, spec.prefix.part_count(spec.block_length))
    return block_order(start, spec.prefix, spec.block_length, desk.reserved)


def _claimable(desk: Desk, pool: Record[IPPool], prefix: Prefix, record: Record[Block] | None) -> Hold | None:
    """A block that nobody has, or that is ours although no affinity says so; None for another's."""
    if record is None:
        return Hold(pool=pool, block=desk.new_block(prefix), revision=None, means=Means.CLAIM)
    block, owner = desk.rested(record.value), desk.request.claimant
    if block.owner == owner:
        return Hold(pool=pool, block=block.touched(), revision=record.revision, means=Means.CONFIRM)
    if not block.owner:
        return Hold(pool=pool, block=block.claimed(owner, desk.now_ns), revision=record.revision, means=Means.ADOPT)
    return None


@frozen
class _Area:
    """A pool, and its blocks in the order in which the node looks at them.

    ``taken`` are the positions at which a block stands, or which one of another size overlaps.
    """

    desk: Desk
    pool: Record[IPPool]
    start: int
    blocks: tuple[Record[Block], ...]
    taken: frozenset[int]

    @classmethod
    def of(cls, desk: Desk, pool: Record[IPPool], blocks: Blocks) -> _Area:
        """Pick a pool's blocks out of those of a family."""
        spec = pool.value.spec
        count = spec.prefix.part_count(spec.block_length)
        start = desk.order(desk.request.node, spec.prefix, count)
        shift = spec.prefix.family.width - spec.block_length
        placed: dict[int, Record[Block]] = {}
        taken: set[int] = set()
        for prefix, record in blocks.items():
            if spec.prefix.covers(prefix):
                first = (prefix.base - spec.prefix.base) >> shift
                taken.update(range(first, first + max(1, prefix.size >> shift)))
                if prefix.length == spec.block_length:
                    placed[(first - start) % count] = record
        return cls(desk, pool, start, tuple(placed[distance] for distance in sorted(placed)), frozenset(taken))

    def unclaimed(self) -> Iterator[Hold]:
        """The blocks that nobody has: those that are not there, then those that are."""
        spec, desk = self.pool.value.spec, self.desk
        if len(self.taken) < spec.prefix.part_count(spec.block_length):
            for position in block_positions(self.start, spec.prefix, spec.block_length, desk.reserved):
                if position not in self.taken:
                    new = desk.new_block(spec.prefix.part(position, spec.block_length))
                    yield Hold(pool=self.pool, block=new, revision=None, means=Means.CLAIM)
        for record in self.blocks:
            hold = _claimable(desk, self.pool, record.value.prefix, record)
            if hold is not None:
                yield hold

    def idle(self) -> Iterator[tuple[Key[Affinity], Hold]]:
        """Blocks of others that hold nothing and were claimed long ago, each with its owner's claim."""
        desk, request = self.desk, self.desk.request
        latest = desk.now_ns - RECLAIM_AGE_S * _SECOND_NS
        for record in self.blocks:
            owner, block = record.value.owner, desk.rested(record.value)
            if owner in ("", request.claimant) or not block.is_empty or (block.claim_time_ns or 0) >= latest:
                continue
            block = block.refilled(request.claimant, desk.now_ns, request.kept_back)
            hold = Hold(pool=self.pool, block=block, revision=record.revision, means=Means.RECLAIM)
            yield affinity_key(owner, block.prefix), hold

    def lenders(self) -> Iterator[Hold]:
        """Blocks of others, to borrow from."""
        for record in self.blocks:
            if record.value.owner != self.desk.request.claimant:
                block = self.desk.rested(record.value)
                yield Hold(pool=self.pool, block=block, revision=record.revision, means=Means.BORROW)

    def full(self, basket: Basket) -> PoolFull:
        """What became of the pool's addresses, those aside that are in the basket."""
        spec = self.pool.value.spec
        blocks = [self.desk.rested(record.value) for record in self.blocks]
        cooling = sum(block.cooling_count for block in blocks)
        found = {hold.block.prefix: len(hold.ordinals) for hold in basket.holds}
        return PoolFull(
            pool=self.pool.key.name,
            prefix=spec.prefix,
            used=sum(block.used_count for block in blocks) - cooling,
            reserved=self.desk.reserved.count(spec.prefix),
            cooling=cooling,
            free_elsewhere=sum(
                len(self.desk.servable(spec.prefix, block, block.prefix.size)) - found.get(block.prefix, 0)
                for block in blocks
                if block.owner != self.desk.request.claimant
            ),
        )


def _reclaim(basket: Basket, areas: Iterable[_Area]) -> NeedMore | None:
    """Take over empty blocks of others: their claims go with them."""
    snapshot = basket.desk.snapshot
    candidates: list[tuple[Key[Affinity], Hold]] = []
    missing = basket.missing
    for key, hold in chain.from_iterable(area.idle() for area in areas):
        if missing <= 0 or len(candidates) >= basket.room:
            break
        gives = len(basket.desk.servable(hold.pool.value.spec.prefix, hold.block, missing))
        if gives:
            candidates.append((key, hold))
            missing -= gives
    needed = tuple(Get(key) for key, _ in candidates if not snapshot.has(Get(key)))
    if needed:
        return NeedMore(needed)
    for key, hold in candidates:
        basket.claim(evolve(hold, rival=snapshot.find(key)))
    return None


def _note_unreached(basket: Basket, areas: Iterable[_Area]) -> None:
    """At the implicit limit there may be blocks left that this node does not claim: name the first."""
    if basket.room > 0:
        return
    left = (hold for area in areas for hold in area.unclaimed() if hold.block.prefix not in basket.seen)
    for hold in islice(left, 1):
        basket.note(hold.block.prefix, BlockOutcome.UNREACHED, f"limit {basket.desk.limit}")


@frozen
class _Shortfall:
    """Makes the refusal of a basket that cannot be filled."""

    basket: Basket
    wanted: Automatic

    def because(self, rule: Rule) -> AllocationError:
        """A setting is the reason."""
        from netplug_core.ipam.refusals import BlockLimitReached, BlockUnavailable, StrictlyExhausted

        limit = self.basket.desk.limit
        self.basket.trace.append(RuleSeen(rule=rule, detail=str(limit) if rule is Rule.BLOCK_LIMIT else ""))
        if rule is Rule.BLOCK_LIMIT:
            return BlockLimitReached(*self._counts(), limit=limit)
        return (StrictlyExhausted if rule is Rule.STRICT_AFFINITY else BlockUnavailable)(*self._counts())

    def for_want(self) -> AllocationError:
        """There is nothing left."""
        from netplug_core.ipam.refusals import PoolsExhausted

        return PoolsExhausted(*self._counts())

    def _counts(self) -> tuple[Family, int, int, tuple[Remark, ...], bool]:
        count = self.basket.wanted
        return (
            self.wanted.family, count - self.basket.missing, count, tuple(self.basket.trace),
            any(self.basket.desk.request.kept_back),
        )  # fmt: skip
