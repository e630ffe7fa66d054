"""Where a node looks when its own blocks give no more: blocks nobody has, empty ones of others, and loans.

``supply`` calls ``acquire``. A few candidates in the node's own order are looked at one by one first; only when
they do not suffice are all blocks of the family read, page by page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from attrs import evolve, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import AllocationError
from netplug_core.ipam.allocation.block_listing import all_blocks
from netplug_core.ipam.allocation.block_order import block_order, block_positions
from netplug_core.ipam.allocation.context import Acquisition, AllocationContext, BlockCandidate, FamilyAllocation
from netplug_core.ipam.allocation.request import Automatic
from netplug_core.ipam.model.affinity import Affinity, affinity_key
from netplug_core.ipam.model.block import Block, block_key
from netplug_core.ipam.outcome.trace import AllocationRule, BlockOutcome, PoolExhausted, RuleTrace
from netplug_core.records import Get, Key, NeedMore, Record, TraceEntry
from netplug_core.resources.ippool import IPPool

__all__ = ["PROBE_COUNT", "TAKE_OVER_AGE_S", "acquire"]

PROBE_COUNT = 8
"""Candidate blocks that are looked at one by one before all blocks are listed."""

TAKE_OVER_AGE_S = 60
"""How long ago an empty block must have been claimed before another node takes it over."""

_SECOND_NS = 1_000_000_000

Blocks = Mapping[Prefix, Record[Block]]


def acquire(
    basket: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]], pending: Iterable[BlockCandidate]
) -> AllocationError | NeedMore | None:
    """Fill a basket from other blocks than the claimant's; the reason why it is not full, or what to read first.

    First come the ``pending`` ones: the claimant has claimed them already, and they are not there (yet, or any more).
    """
    rules, shortfall = basket.context.rules, _ShortfallReason(basket, wanted)
    if not rules.may_auto_allocate_blocks:
        return shortfall.by_rule(AllocationRule.NO_CLAIMS)
    _claim_each(basket, pending)
    needed = _probe(basket, wanted, pools)
    if needed is None and basket.missing and not _is_at_limit(basket):
        needed = _acquire_from_all(basket, wanted, pools)
    if needed is not None or not basket.missing:
        return needed
    if _is_at_limit(basket):
        return shortfall.by_rule(AllocationRule.BLOCK_LIMIT)
    return shortfall.by_rule(AllocationRule.STRICT_AFFINITY) if rules.is_affinity_strict else shortfall.exhausted()


def _is_at_limit(basket: FamilyAllocation) -> bool:
    """Whether a limit that somebody set allows no more blocks; the implicit one ends claims and not the search."""
    return basket.room <= 0 and bool(basket.context.limits)


def _acquire_from_all(basket: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]]) -> NeedMore | None:
    """Fill a basket with every block of the family at hand: what nobody has, what others leave empty, then loans."""
    blocks = all_blocks(basket.context.snapshot, wanted.family)
    if isinstance(blocks, NeedMore):
        return blocks
    areas = tuple(_PoolBlocks.of(basket.context, pool, blocks) for pool in pools)
    _claim_each(basket, chain.from_iterable(area.unclaimed() for area in areas))
    needed = _take_over(basket, areas) if basket.missing else None
    if needed is not None:
        return needed
    if basket.may_borrow and not _is_at_limit(basket):
        _borrow(basket, areas)
    if basket.missing:
        basket.trace.extend(area.exhausted(basket) for area in areas)
        _note_limit(basket, areas)
    return None


def _borrow(basket: FamilyAllocation, areas: Iterable[_PoolBlocks]) -> None:
    for hold in chain.from_iterable(area.borrowable() for area in areas):
        if not basket.missing:
            return
        if hold.block.prefix not in basket.seen:  # what became ours just now has given all it has
            basket.take_from(hold)


def _claim_each(basket: FamilyAllocation, holds: Iterable[BlockCandidate]) -> None:
    for hold in holds:
        if not basket.missing or basket.room <= 0:
            return
        if hold.block.prefix not in basket.seen:
            basket.take_and_claim(hold)


def _probe(basket: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]]) -> NeedMore | None:
    """Claim what is free among the first candidates of the node's order."""
    if basket.room <= 0 or not basket.missing:
        return None
    desk = basket.context
    own = {claim.prefix for claim in desk.own_affinities[wanted.family]}
    places = ((pool, prefix) for pool in pools for prefix in _blocks_in_order(desk, pool))
    probed = tuple(islice((place for place in places if place[1] not in own), PROBE_COUNT))
    needed = tuple(query for query in (Get(block_key(prefix)) for _, prefix in probed) if not desk.snapshot.has(query))
    if needed:
        return NeedMore(needed)
    found = ((pool, prefix, desk.snapshot.find(block_key(prefix))) for pool, prefix in probed)
    _claim_each(basket, (hold for place in found if (hold := _claimable(desk, *place)) is not None))
    return None


def _blocks_in_order(desk: AllocationContext, pool: Record[IPPool]) -> Iterator[Prefix]:
    """Every block of a pool in the order in which this node looks at them."""
    spec = pool.value.spec
    start = desk.order(desk.request.node, spec.prefix, spec.prefix.subprefix_count(spec.block_length))
    return block_order(start, spec.prefix, spec.block_length, desk.reserved)


def _claimable(
    desk: AllocationContext, pool: Record[IPPool], prefix: Prefix, record: Record[Block] | None
) -> BlockCandidate | None:
    """A block that nobody has, or that is ours although no affinity says so; None for another's."""
    if record is None:
        return BlockCandidate(pool=pool, block=desk.new_block(prefix), revision=None, acquisition=Acquisition.NEW)
    block, owner = desk.expire_cooldown(record.value), desk.request.claimant
    if block.owner == owner:
        return BlockCandidate(
            pool=pool, block=block.touched(), revision=record.revision, acquisition=Acquisition.UNCONFIRMED
        )
    if not block.owner:
        return BlockCandidate(
            pool=pool,
            block=block.claimed(owner, desk.now_ns),
            revision=record.revision,
            acquisition=Acquisition.ADOPTED,
        )
    return None


@frozen
class _PoolBlocks:
    """A pool, and its blocks in the order in which the node looks at them.

    ``taken`` are the positions at which a block stands, or which one of another size overlaps.
    """

    context: AllocationContext
    pool: Record[IPPool]
    start: int
    blocks: tuple[Record[Block], ...]
    occupied: frozenset[int]

    @classmethod
    def of(cls, desk: AllocationContext, pool: Record[IPPool], blocks: Blocks) -> _PoolBlocks:
        """Pick a pool's blocks out of those of a family."""
        spec = pool.value.spec
        count = spec.prefix.subprefix_count(spec.block_length)
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

    def unclaimed(self) -> Iterator[BlockCandidate]:
        """The blocks that nobody has: those that are not there, then those that are."""
        spec, desk = self.pool.value.spec, self.context
        if len(self.occupied) < spec.prefix.subprefix_count(spec.block_length):
            for position in block_positions(self.start, spec.prefix, spec.block_length, desk.reserved):
                if position not in self.occupied:
                    new = desk.new_block(spec.prefix.subprefix(position, spec.block_length))
                    yield BlockCandidate(pool=self.pool, block=new, revision=None, acquisition=Acquisition.NEW)
        for record in self.blocks:
            hold = _claimable(desk, self.pool, record.value.prefix, record)
            if hold is not None:
                yield hold

    def empty_of_others(self) -> Iterator[tuple[Key[Affinity], BlockCandidate]]:
        """Blocks of others that hold nothing and were claimed long ago, each with its owner's claim."""
        desk, request = self.context, self.context.request
        latest = desk.now_ns - TAKE_OVER_AGE_S * _SECOND_NS
        for record in self.blocks:
            owner, block = record.value.owner, desk.expire_cooldown(record.value)
            if owner in ("", request.claimant) or not block.is_empty or (block.claim_time_ns or 0) >= latest:
                continue
            block = block.taken_over(request.claimant, desk.now_ns, request.host_reserved)
            hold = BlockCandidate(
                pool=self.pool, block=block, revision=record.revision, acquisition=Acquisition.TAKEN_OVER
            )
            yield affinity_key(owner, block.prefix), hold

    def borrowable(self) -> Iterator[BlockCandidate]:
        """Blocks of others, to borrow from."""
        for record in self.blocks:
            if record.value.owner != self.context.request.claimant:
                block = self.context.expire_cooldown(record.value)
                yield BlockCandidate(
                    pool=self.pool, block=block, revision=record.revision, acquisition=Acquisition.BORROWED
                )

    def exhausted(self, basket: FamilyAllocation) -> PoolExhausted:
        """What became of the pool's addresses, those aside that are in the basket."""
        spec = self.pool.value.spec
        blocks = [self.context.expire_cooldown(record.value) for record in self.blocks]
        cooling = sum(block.cooling_count for block in blocks)
        found = {hold.block.prefix: len(hold.ordinals) for hold in basket.candidates}
        return PoolExhausted(
            pool=self.pool.key.name,
            prefix=spec.prefix,
            used=sum(block.used_count for block in blocks) - cooling,
            reserved=self.context.reserved.count(spec.prefix),
            cooling=cooling,
            free_elsewhere=sum(
                len(self.context.servable(spec.prefix, block, block.prefix.size)) - found.get(block.prefix, 0)
                for block in blocks
                if block.owner != self.context.request.claimant
            ),
        )


def _take_over(basket: FamilyAllocation, areas: Iterable[_PoolBlocks]) -> NeedMore | None:
    """Take over empty blocks of others: their claims go with them."""
    snapshot = basket.context.snapshot
    candidates: list[tuple[Key[Affinity], BlockCandidate]] = []
    missing = basket.missing
    for key, hold in chain.from_iterable(area.empty_of_others() for area in areas):
        if missing <= 0 or len(candidates) >= basket.room:
            break
        gives = len(basket.context.servable(hold.pool.value.spec.prefix, hold.block, missing))
        if gives:
            candidates.append((key, hold))
            missing -= gives
    needed = tuple(Get(key) for key, _ in candidates if not snapshot.has(Get(key)))
    if needed:
        return NeedMore(needed)
    for key, hold in candidates:
        basket.take_and_claim(evolve(hold, previous_affinity=snapshot.find(key)))
    return None


def _note_limit(basket: FamilyAllocation, areas: Iterable[_PoolBlocks]) -> None:
    """At the implicit limit there may be blocks left that this node does not claim: name the first."""
    if basket.room > 0:
        return
    left = (hold for area in areas for hold in area.unclaimed() if hold.block.prefix not in basket.seen)
    for hold in islice(left, 1):
        basket.record(hold.block.prefix, BlockOutcome.OVER_LIMIT, f"limit {basket.context.limit}")


@frozen
class _ShortfallReason:
    """Makes the refusal of a basket that cannot be filled."""

    allocation: FamilyAllocation
    wanted: Automatic

    def by_rule(self, rule: AllocationRule) -> AllocationError:
        """A setting is the reason."""
        from netplug_core.ipam.outcome.refusals import BlockLimitReached, BlockUnavailable, StrictlyExhausted

        limit = self.allocation.context.limit
        self.allocation.trace.append(
            RuleTrace(rule=rule, detail=str(limit) if rule is AllocationRule.BLOCK_LIMIT else "")
        )
        if rule is AllocationRule.BLOCK_LIMIT:
            return BlockLimitReached(*self._counts(), limit=limit)
        return (StrictlyExhausted if rule is AllocationRule.STRICT_AFFINITY else BlockUnavailable)(*self._counts())

    def exhausted(self) -> AllocationError:
        """There is nothing left."""
        from netplug_core.ipam.outcome.refusals import PoolsExhausted

        return PoolsExhausted(*self._counts())

    def _counts(self) -> tuple[Family, int, int, tuple[TraceEntry, ...], bool]:
        count = self.allocation.wanted
        return (
            self.wanted.family, count - self.allocation.missing, count, tuple(self.allocation.trace),
            any(self.allocation.context.request.host_reserved),
        )  # fmt: skip
