"""Which blocks addresses are taken from: the claimant's own, then new and ownerless ones, unused ones, borrowed ones.

``decide`` and ``ensure`` call ``find_own_blocks``, and ``acquire`` where the own blocks do not suffice. ``acquire``
probes a few blocks in the node's own order one by one. Only if they do not suffice either are all blocks of the family
read, page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from attrs import Factory, define, evolve, field, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import AllocationError, ConfigurationError
from netplug_core.ipam.allocation.block_listing import all_blocks, find_overlap, is_sound, overlap_queries
from netplug_core.ipam.allocation.block_order import block_order, block_positions
from netplug_core.ipam.allocation.context import AllocationContext, FamilyAllocation, OwnAffinity, RelinquishedBlock
from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate, Purpose
from netplug_core.ipam.allocation.pools import Pools, find_pool_of_block, is_enabled, is_selected
from netplug_core.ipam.allocation.request import Automatic
from netplug_core.ipam.model.affinity import Affinity, affinity_key
from netplug_core.ipam.model.block import Block, block_key
from netplug_core.ipam.outcome.trace import AllocationRule, BlockOutcome, BlockTrace, PoolExhausted, RuleTrace
from netplug_core.records import Get, NeedMore, Query, Record, Snapshot, TraceEntry
from netplug_core.resources.ippool import IPPool

__all__ = ["PROBE_COUNT", "OwnBlocks", "acquire", "find_own_blocks"]

PROBE_COUNT = 8
"""Blocks that are probed one by one before all blocks are listed."""

Blocks = Mapping[Prefix, Record[Block]]
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
    """Give up a block of the claimant that this request cannot use, if it is empty and no request can, or count it."""
    prefix = unusable.block.value.prefix
    pool = find_pool_of_block(context.pools, prefix)
    is_enabled_pool = pool is not None and is_enabled(pool.value)
    is_served = pool is not None and is_enabled_pool and _selects(context, pool)
    if context.knows_selection and not is_served and _is_empty(context, unusable):
        own.relinquished.append(unusable)
        own.trace.append(BlockTrace(block=prefix, outcome=BlockOutcome.RELINQUISHED))
    elif is_enabled_pool or context.explicit_limits:
        own.count += 1


def _is_empty(context: AllocationContext, unusable: RelinquishedBlock) -> bool:
    return context.claimant.cooldown.expire(unusable.block.value).is_empty


def _selects(context: AllocationContext, pool: Record[IPPool]) -> bool:
    try:
        return is_selected(pool, context.labels)
    except ConfigurationError:
        return True  # requests that this pool would serve report the selector; the block is kept until then


# --- other blocks ---------------------------------------------------------------------------------------------------


def acquire(
    allocation: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]], pending: Iterable[BlockCandidate]
) -> AllocationError | NeedMore | None:
    """Take what is missing from blocks that are not the claimant's yet; why that is not enough, or what to read first.

    ``pending`` come first: blocks that the claimant has an affinity to, and that are not stored (yet, or any more).
    """
    settings, shortfall = allocation.context.settings, _ShortfallReason(allocation, wanted)
    if not settings.may_auto_allocate_blocks:
        return shortfall.by_rule(AllocationRule.NO_CLAIMS)
    needed = _acquire_each(allocation, pending) or _probe(allocation, wanted, pools)
    if needed is None and allocation.missing and not allocation.is_at_limit:
        needed = _acquire_from_all(allocation, wanted, pools)
    if needed is not None or not allocation.missing:
        return needed
    if allocation.is_at_limit:
        return shortfall.by_rule(AllocationRule.BLOCK_LIMIT)
    return shortfall.by_rule(AllocationRule.STRICT_AFFINITY) if settings.is_affinity_strict else shortfall.exhausted()


def _acquire_each(
    allocation: FamilyAllocation, candidates: Iterable[BlockCandidate], find: OverlapFinder = find_overlap
) -> NeedMore | None:
    has_malformed = bool(allocation.context.malformed)
    find_other = find_overlap if has_malformed else find  # a list does not say where its damaged blocks are
    for candidate in candidates:
        if not allocation.missing or allocation.room <= 0:
            return None
        if candidate.block.prefix in allocation.seen:
            continue
        sound = not has_malformed or is_sound(allocation.context, candidate.block.prefix)
        if isinstance(sound, NeedMore):
            return sound
        is_new = candidate.acquisition is Acquisition.NEW
        overlap = find_other(allocation.context.snapshot, candidate.block.prefix) if sound and is_new else None
        if isinstance(overlap, NeedMore):
            return overlap
        if sound and overlap is None:
            allocation.acquire(candidate)
            continue
        allocation.seen.add(candidate.block.prefix)
        outcome = BlockOutcome.UNREADABLE if overlap is None else BlockOutcome.OVERLAPPED
        allocation.note(candidate.block.prefix, outcome, str(overlap or ""))
    return None


# --- a few blocks, one by one ---------------------------------------------------------------------------------------


def _probe(allocation: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]]) -> NeedMore | None:
    """Acquire what is new or ownerless among the first blocks of the node's order; others' blocks wait for the list."""
    if allocation.room <= 0 or not allocation.missing:
        return None
    context = allocation.context
    own = {entry.prefix for entry in context.own_affinities[wanted.family]}
    in_order = ((pool, prefix) for pool in pools for prefix in _blocks_in_order(context, pool) if prefix not in own)
    probed = tuple(islice(in_order, PROBE_COUNT))
    queries: list[Query] = [Get(block_key(prefix)) for _, prefix in probed]
    if not all(map(context.snapshot.has, queries)):
        queries.extend(overlap_queries((prefix for _, prefix in probed), allocation.missing))
    needed = tuple(query for query in queries if not context.snapshot.has(query))
    if needed:
        return NeedMore(needed)
    found = (
        context.claimant.find_candidate(Purpose.AUTOMATIC, pool, prefix, context.snapshot.find(query))
        for pool, prefix in probed
        if not context.snapshot.malformed(query := Get(block_key(prefix)))
    )
    free = (candidate for candidate in found if candidate and candidate.acquisition is not Acquisition.TAKEN_OVER)
    return _acquire_each(allocation, free)


def _blocks_in_order(context: AllocationContext, pool: Record[IPPool]) -> Iterator[Prefix]:
    """Every block of a pool in the order in which this node tries them."""
    spec = pool.value.spec
    return block_order(_start(context, pool), spec.prefix, spec.block_length, context.reserved)


def _start(context: AllocationContext, pool: Record[IPPool]) -> int:
    """The position in a pool at which this node starts."""
    spec = pool.value.spec
    return context.order(context.request.node, spec.prefix, spec.prefix.subprefix_count(spec.block_length))


# --- all blocks of the family ---------------------------------------------------------------------------------------


def _acquire_from_all(
    allocation: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]]
) -> NeedMore | None:
    """Acquire new and ownerless blocks, then unused ones of other nodes, then borrow."""
    context = allocation.context
    blocks = all_blocks(context.snapshot, wanted.family)
    if isinstance(blocks, NeedMore):
        return blocks
    of_pools = tuple(_PoolBlocks.of(context, pool, blocks) for pool in pools)
    free = chain.from_iterable(of_pool.free() for of_pool in of_pools)
    needed = _acquire_each(allocation, free, lambda _snapshot, _new: None)  # ``free`` leaves out what is occupied
    if needed is None and allocation.missing:
        needed = _take_over(allocation, of_pools, blocks)
    if needed is not None:
        return needed
    if allocation.may_borrow and not allocation.is_at_limit:
        _borrow(allocation, of_pools)
    if allocation.missing:
        allocation.trace.extend(of_pool.exhausted(allocation) for of_pool in of_pools)
        _note_limit(allocation, of_pools)
    return None


def _take_over(allocation: FamilyAllocation, of_pools: Iterable[_PoolBlocks], blocks: Blocks) -> NeedMore | None:
    """Take over unused blocks of other nodes, and their owners' affinities with them."""
    context = allocation.context
    chosen: list[BlockCandidate] = []
    missing = allocation.missing
    for candidate in chain.from_iterable(of_pool.unused() for of_pool in of_pools):
        query = Get(affinity_key(blocks[candidate.block.prefix].value.owner, candidate.block.prefix))
        if context.snapshot.has(query) and context.snapshot.malformed(query):
            continue
        if missing <= 0 or len(chosen) >= allocation.room:
            break
        found = len(context.find_assignable(candidate.pool.value.spec.prefix, candidate.block, missing))
        if found:
            chosen.append(candidate)
            missing -= found
    prefixes = [candidate.block.prefix for candidate in chosen]
    keys = [affinity_key(blocks[prefix].value.owner, prefix) for prefix in prefixes]
    needed = tuple(query for key in keys if not context.snapshot.has(query := Get(key)))
    if needed:
        return NeedMore(needed)
    for key, candidate in zip(keys, chosen, strict=True):
        allocation.acquire(evolve(candidate, previous_affinity=context.snapshot.find(key)))
    return None


def _borrow(allocation: FamilyAllocation, of_pools: Iterable[_PoolBlocks]) -> None:
    for candidate in chain.from_iterable(of_pool.borrowable() for of_pool in of_pools):
        if not allocation.missing:
            return
        if candidate.block.prefix not in allocation.seen:  # a block acquired just now has given all it has
            allocation.take(candidate)


@frozen
class _PoolBlocks:
    """A pool and its stored blocks, in the order in which the node tries them.

    ``occupied`` are the positions in the pool at which a block is stored, or which one of another size overlaps.
    """

    context: AllocationContext
    pool: Record[IPPool]
    start: int
    blocks: tuple[Record[Block], ...]
    occupied: frozenset[int]

    @classmethod
    def of(cls, context: AllocationContext, pool: Record[IPPool], blocks: Blocks) -> _PoolBlocks:
        """Select a pool's blocks from those of a family."""
        spec = pool.value.spec
        count, start = spec.prefix.subprefix_count(spec.block_length), _start(context, pool)
        shift = spec.prefix.family.width - spec.block_length
        by_distance: dict[int, Record[Block]] = {}
        occupied: set[int] = set()
        for prefix, record in blocks.items():
            if prefix.length < spec.prefix.length and prefix.covers(spec.prefix):
                occupied.update(range(count))
            elif spec.prefix.covers(prefix):
                first = (prefix.base - spec.prefix.base) >> shift
                occupied.update(range(first, first + max(1, prefix.size >> shift)))
                if prefix.length == spec.block_length:
                    by_distance[(first - start) % count] = record
        in_order = tuple(by_distance[distance] for distance in sorted(by_distance))
        return cls(context, pool, start, in_order, frozenset(occupied))

    def free(self) -> Iterator[BlockCandidate]:
        """The blocks of no other node: first those that are not stored, then those without an owner."""
        spec, context = self.pool.value.spec, self.context
        if len(self.occupied) < spec.prefix.subprefix_count(spec.block_length):
            for position in block_positions(self.start, spec.prefix, spec.block_length, context.reserved):
                if position not in self.occupied:
                    prefix = spec.prefix.subprefix(position, spec.block_length)
                    new = context.claimant.find_candidate(Purpose.AUTOMATIC, self.pool, prefix, None)
                    yield from (new,) if new else ()
        yield from self._stored(Purpose.AUTOMATIC, (Acquisition.UNCONFIRMED, Acquisition.ADOPTED))

    def unused(self) -> Iterator[BlockCandidate]:
        """Blocks that other nodes own and do not use."""
        return self._stored(Purpose.AUTOMATIC, (Acquisition.TAKEN_OVER,))

    def borrowable(self) -> Iterator[BlockCandidate]:
        """Blocks of other nodes, and those without an owner that the claimant may not come to own."""
        return self._stored(Purpose.BORROW, (Acquisition.BORROWED,))

    def _stored(self, purpose: Purpose, acquisitions: tuple[Acquisition, ...]) -> Iterator[BlockCandidate]:
        for record in self.blocks:
            candidate = self.context.claimant.find_candidate(purpose, self.pool, record.value.prefix, record)
            if candidate is not None and candidate.acquisition in acquisitions:
                yield candidate

    def exhausted(self, allocation: FamilyAllocation) -> PoolExhausted:
        """How the pool's addresses are used; those that this allocation takes count as free."""
        spec, context = self.pool.value.spec, self.context
        blocks = [context.claimant.cooldown.expire(record.value) for record in self.blocks]
        cooling = sum(block.cooling_count for block in blocks)
        taken = {candidate.block.prefix: len(candidate.ordinals) for candidate in allocation.candidates}
        return PoolExhausted(
            pool=self.pool.key.name,
            prefix=spec.prefix,
            used=sum(block.used_count for block in blocks) - cooling,
            reserved=context.reserved.count(spec.prefix) if context.reserved else 0,
            cooling=cooling,
            free_elsewhere=sum(
                len(context.find_assignable(spec.prefix, block, block.prefix.size)) - taken.get(block.prefix, 0)
                for block in blocks
                if block.owner != context.claimant.owner
            ),
        )


# --- why it is not enough -------------------------------------------------------------------------------------------


def _note_limit(allocation: FamilyAllocation, of_pools: Iterable[_PoolBlocks]) -> None:
    """Name the first block that the node does not claim because it owns as many as the default limit allows."""
    if allocation.room > 0:
        return
    left = (candidate for of_pool in of_pools for candidate in of_pool.free())
    for candidate in islice((found for found in left if found.block.prefix not in allocation.seen), 1):
        limit = f"limit {allocation.context.block_limit}"
        allocation.note(candidate.block.prefix, BlockOutcome.OVER_LIMIT, limit)


@frozen
class _ShortfallReason:
    """Makes the refusal of an allocation that got less than was asked."""

    allocation: FamilyAllocation
    wanted: Automatic

    def by_rule(self, rule: AllocationRule) -> AllocationError:
        """A setting is the reason."""
        from netplug_core.ipam.outcome.refusals import BlockLimitReached, BlockUnavailable, StrictlyExhausted

        limit = self.allocation.context.block_limit
        detail = str(limit) if rule is AllocationRule.BLOCK_LIMIT else ""
        self.allocation.trace.append(RuleTrace(rule=rule, detail=detail))
        if rule is AllocationRule.BLOCK_LIMIT:
            return BlockLimitReached(*self._counts(), limit=limit)
        return (StrictlyExhausted if rule is AllocationRule.STRICT_AFFINITY else BlockUnavailable)(*self._counts())

    def exhausted(self) -> AllocationError:
        """The pools have no more."""
        from netplug_core.ipam.outcome.refusals import PoolsExhausted

        return PoolsExhausted(*self._counts())

    def _counts(self) -> tuple[Family, int, int, tuple[TraceEntry, ...], bool]:
        count = self.allocation.wanted
        return (
            self.wanted.family, count - self.allocation.missing, count, tuple(self.allocation.trace),
            any(self.allocation.context.request.host_reserved),
        )  # fmt: skip
