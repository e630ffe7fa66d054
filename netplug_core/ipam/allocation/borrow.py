"""Where the claimant's own blocks and those nearby do not suffice: unclaimed blocks, unused ones, borrowing.

``decide`` and ``affinities`` call ``acquire_elsewhere``. Its steps, until nothing is missing:

1. The affinities of all nodes say which blocks are unclaimed. The first of these in the node's order are read and
   claimed.
2. If all blocks are claimed, or the claimant may own no more, a few blocks of random owners are read: unused ones are
   taken over, and addresses borrowed. So this costs the same however large the cluster is.
3. All blocks are read, page by page, full ones by their keys alone. Where all are claimed, the first pages that suffice
   are enough. An address that may be assigned is always found, and what is missing is refused.

Affinities only say where to look. The revisions of the blocks are the conditions of the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from attrs import evolve, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import AllocationError
from netplug_core.ipam.allocation.acquire import (
    PROBE_COUNT,
    ListedBlocks,
    PoolPrefix,
    acquire_each,
    blocks_in_order,
    claim_free,
    list_blocks,
    list_claims,
    nearby_blocks,
    start_position,
)
from netplug_core.ipam.allocation.context import AllocationContext, FamilyAllocation
from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate, Purpose
from netplug_core.ipam.allocation.pools import block_positions
from netplug_core.ipam.allocation.request import Automatic
from netplug_core.ipam.model import Affinity, Block, affinity_key, block_query
from netplug_core.ipam.outcome import (
    AllocationRule,
    BlockLimitReached,
    BlockOutcome,
    BlockUnavailable,
    PoolExhausted,
    PoolsExhausted,
    RuleTrace,
    StrictlyExhausted,
)
from netplug_core.records import Get, NeedMore, Record, TraceEntry
from netplug_core.resources.ippool import IPPool

__all__ = ["acquire_elsewhere"]

_SAMPLE_COUNT = 8  # blocks of random owners


def acquire_elsewhere(
    allocation: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]]
) -> AllocationError | NeedMore | None:
    """Take what is missing from any block of the pools; why that is not enough, or what to read first."""
    settings, shortfall = allocation.context.settings, _ShortfallReason(allocation, wanted)
    if not settings.may_auto_allocate_blocks:
        return shortfall.by_rule(AllocationRule.NO_CLAIMS)
    needed = None if allocation.is_at_limit else _search(allocation, wanted.family, pools)
    if needed is not None or not allocation.missing:
        return needed
    if allocation.is_at_limit:
        return shortfall.by_rule(AllocationRule.BLOCK_LIMIT)
    return shortfall.by_rule(AllocationRule.STRICT_AFFINITY) if settings.is_affinity_strict else shortfall.exhausted()


def _search(allocation: FamilyAllocation, family: Family, pools: Sequence[Record[IPPool]]) -> NeedMore | None:
    """The steps, as the module says."""
    context = allocation.context
    nearby = nearby_blocks(context, family, pools) if allocation.room > 0 else ()
    is_all_read = 0 < len(nearby) < PROBE_COUNT  # the pools have no others, but for the claimant's own
    if is_all_read:
        sample, is_claimed = nearby, True
    else:
        claims = list_claims(context.snapshot, family)
        if isinstance(claims, NeedMore):
            return claims
        unclaimed = _find_unclaimed(context, pools, {*claims, *(prefix for _pool, prefix in nearby)})
        needed = claim_free(allocation, _first_unclaimed(allocation, unclaimed)) if nearby else None
        if needed is not None or not allocation.missing or allocation.is_at_limit:
            return needed
        is_claimed = allocation.room <= 0 or next(unclaimed, None) is None
        others = (prefix for prefix, owner in claims.items() if owner != context.claimant.owner)
        sample = _sample(context, pools, others) if is_claimed else ()
    needed = _use_sample(allocation, sample)
    if needed is not None or not allocation.missing:
        return needed
    return _use_listed(allocation, family, pools, is_claimed=is_claimed)


# --- unclaimed blocks -----------------------------------------------------------------------------------------------


def _find_unclaimed(
    context: AllocationContext, pools: Iterable[Record[IPPool]], known: set[Prefix]
) -> Iterator[PoolPrefix]:
    """The blocks of the pools, in the node's order, that are not known to be taken."""
    return ((pool, prefix) for pool in pools for prefix in blocks_in_order(context, pool) if prefix not in known)


def _first_unclaimed(allocation: FamilyAllocation, unclaimed: Iterator[PoolPrefix]) -> tuple[PoolPrefix, ...]:
    """As many blocks as have room for what is missing, and the claimant and the commit may take; at least a few."""
    chosen: list[PoolPrefix] = []
    size, most = 0, min(allocation.room, allocation.context.records_left)
    for pool, prefix in unclaimed:
        chosen.append((pool, prefix))
        size += prefix.size
        has_enough = size >= allocation.missing or len(chosen) >= most
        if has_enough and len(chosen) >= PROBE_COUNT:
            break
    return tuple(chosen)


# --- a few blocks of random owners ----------------------------------------------------------------------------------


def _sample(
    context: AllocationContext, pools: Iterable[Record[IPPool]], prefixes: Iterable[Prefix]
) -> tuple[PoolPrefix, ...]:
    """A few of these blocks, as far as they are blocks of the pools: evenly spaced ones, from a random one on."""
    by_start = sorted(prefixes)
    blocks = [
        (pool, prefix)
        for pool in pools
        for prefix in by_start
        if prefix.length == pool.value.spec.block_length and pool.value.spec.prefix.covers(prefix)
    ]
    if len(blocks) <= _SAMPLE_COUNT:
        return tuple(blocks)
    count = len(blocks)
    start = int(context.draw() * count)
    places = sorted((start + number * count // _SAMPLE_COUNT) % count for number in range(_SAMPLE_COUNT))
    return tuple(blocks[place] for place in places)


def _use_sample(allocation: FamilyAllocation, sample: Sequence[PoolPrefix]) -> NeedMore | None:
    """Claim those of some blocks that are not stored, adopt, take over, or borrow from the others."""
    context, snapshot = allocation.context, allocation.context.snapshot
    unread = tuple(query for _, prefix in sample if not snapshot.has(query := block_query(prefix)))
    if unread:
        return NeedMore(unread)
    needed = claim_free(allocation, sample) if allocation.room > 0 else None
    if needed is not None:
        return needed
    found = (record for _, prefix in sample for record in snapshot.readable(block_query(prefix)))
    blocks = ListedBlocks(records={record.value.prefix: record for record in found})
    pools = {pool.key: pool for pool, _ in sample}
    return _use_stored(allocation, [_PoolBlocks.of(context, pool, blocks) for pool in pools.values()])


def _use_stored(allocation: FamilyAllocation, of_pools: Sequence[_PoolBlocks]) -> NeedMore | None:
    """Adopt blocks without an owner, take over unused ones, and borrow from the others."""
    ownerless = chain.from_iterable(of_pool.ownerless() for of_pool in of_pools)
    needed = acquire_each(allocation, ownerless) or _take_over(allocation, of_pools)
    if needed is not None:
        return needed
    if allocation.may_borrow and not allocation.is_at_limit:
        _borrow(allocation, of_pools)
    return None


def _take_over(allocation: FamilyAllocation, of_pools: Iterable[_PoolBlocks]) -> NeedMore | None:
    """Take over unused blocks of other nodes, and their owners' affinities with them."""
    context = allocation.context
    chosen: list[tuple[BlockCandidate, Get[Affinity]]] = []
    missing = allocation.missing
    for candidate, owner in chain.from_iterable(of_pool.unused() for of_pool in of_pools):
        if missing <= 0 or len(chosen) >= allocation.room:
            break
        prefix = candidate.block.prefix
        query = Get(affinity_key(owner, prefix))
        if prefix in allocation.seen or (context.snapshot.has(query) and context.snapshot.malformed(query)):
            continue
        found = len(context.find_assignable(candidate.pool.value.spec.prefix, candidate.block, missing))
        if found:
            chosen.append((candidate, query))
            missing -= found
    needed = tuple(query for _, query in chosen if not context.snapshot.has(query))
    if needed:
        return NeedMore(needed)
    for candidate, query in chosen:
        if allocation.missing:  # not where the commit takes no more blocks
            allocation.acquire(evolve(candidate, previous_affinity=context.snapshot.find(query)))
    return None


def _borrow(allocation: FamilyAllocation, of_pools: Iterable[_PoolBlocks]) -> None:
    for of_pool in of_pools:
        for candidate in of_pool.borrowable():
            if not allocation.missing:
                return
            if candidate.block.prefix not in allocation.seen:  # a block that was used already has given all it has
                allocation.take(candidate)
        for prefix in of_pool.full:
            allocation.note(prefix, BlockOutcome.FULL)


# --- all blocks of the family ---------------------------------------------------------------------------------------


def _use_listed(
    allocation: FamilyAllocation, family: Family, pools: Sequence[Record[IPPool]], *, is_claimed: bool
) -> NeedMore | None:
    """Acquire new and ownerless blocks, then unused ones of other nodes, then borrow.

    If all blocks are claimed, the pages that were read so far may suffice: nothing is left to claim on the others.
    """
    context = allocation.context
    listed = list_blocks(context.snapshot, family)
    of_pools = [_PoolBlocks.of(context, pool, listed) for pool in pools]
    if listed.next_page is not None:
        needed = _use_stored(allocation, of_pools) if is_claimed else None
        return needed if needed is not None or not allocation.missing else NeedMore((listed.next_page,))
    free = chain.from_iterable(of_pool.free() for of_pool in of_pools)
    needed = acquire_each(allocation, free, lambda _snapshot, _new: None)  # ``free`` leaves out what is occupied
    if needed is None and allocation.missing:
        needed = _use_stored(allocation, of_pools)
    if needed is None and allocation.missing:
        allocation.trace.extend(of_pool.exhausted(allocation) for of_pool in of_pools)
        _note_limit(allocation, of_pools)
    return needed


@frozen
class _PoolBlocks:
    """A pool and its stored blocks, in the order in which the node tries them.

    ``full`` are those of which only the keys were read. ``occupied`` are the positions in the pool at which a block is
    stored, or which one of another size overlaps.
    """

    context: AllocationContext
    pool: Record[IPPool]
    start: int
    blocks: tuple[Record[Block], ...]
    full: tuple[Prefix, ...]
    occupied: frozenset[int]

    @classmethod
    def of(cls, context: AllocationContext, pool: Record[IPPool], listed: ListedBlocks) -> _PoolBlocks:
        """Select a pool's blocks from those of a family."""
        spec = pool.value.spec
        count, start = spec.prefix.subprefix_count(spec.block_length), start_position(context, pool)
        shift = spec.prefix.family.width - spec.block_length
        by_distance: dict[int, Record[Block]] = {}
        full: list[Prefix] = []
        occupied: set[int] = set()
        for prefix in chain(listed.records, listed.full):
            if prefix.length < spec.prefix.length and prefix.covers(spec.prefix):
                occupied.update(range(count))
            elif spec.prefix.covers(prefix):
                first = (prefix.base - spec.prefix.base) >> shift
                occupied.update(range(first, first + max(1, prefix.size >> shift)))
                record = listed.records.get(prefix)
                if record is None:
                    full.append(prefix)
                elif prefix.length == spec.block_length:
                    by_distance[(first - start) % count] = record
        in_order = tuple(by_distance[distance] for distance in sorted(by_distance))
        own_size = tuple(prefix for prefix in full if prefix.length == spec.block_length)
        return cls(context, pool, start, in_order, own_size, frozenset(occupied))

    def free(self) -> Iterator[BlockCandidate]:
        """The blocks of no other node: first those that are not stored, then those without an owner."""
        spec, context = self.pool.value.spec, self.context
        if len(self.occupied) < spec.prefix.subprefix_count(spec.block_length):
            for position in block_positions(self.start, spec.prefix, spec.block_length, context.reserved):
                if position not in self.occupied:
                    prefix = spec.prefix.subprefix(position, spec.block_length)
                    new = context.claimant.find_candidate(Purpose.AUTOMATIC, self.pool, prefix, None)
                    yield from (new,) if new else ()
        yield from self.ownerless()

    def ownerless(self) -> Iterator[BlockCandidate]:
        """Stored blocks without an owner, and those of the claimant to which it has no confirmed affinity."""
        return self._stored(Purpose.AUTOMATIC, (Acquisition.UNCONFIRMED, Acquisition.ADOPTED))

    def unused(self) -> Iterator[tuple[BlockCandidate, str]]:
        """Blocks that other nodes own and do not use, each with its owner."""
        for record in self.blocks:
            candidate = self._find(Purpose.AUTOMATIC, record)
            if candidate is not None and candidate.acquisition is Acquisition.TAKEN_OVER:
                yield candidate, record.value.owner

    def borrowable(self) -> Iterator[BlockCandidate]:
        """Blocks of other nodes, and those without an owner that the claimant may not come to own."""
        return self._stored(Purpose.BORROW, (Acquisition.BORROWED,))

    def _stored(self, purpose: Purpose, acquisitions: tuple[Acquisition, ...]) -> Iterator[BlockCandidate]:
        found = (self._find(purpose, record) for record in self.blocks)
        return (candidate for candidate in found if candidate is not None and candidate.acquisition in acquisitions)

    def _find(self, purpose: Purpose, record: Record[Block]) -> BlockCandidate | None:
        return self.context.claimant.find_candidate(purpose, self.pool, record.value.prefix, record)

    def exhausted(self, allocation: FamilyAllocation) -> PoolExhausted:
        """How the pool's addresses are used; those that this allocation takes count as free."""
        spec, context = self.pool.value.spec, self.context
        blocks = [context.claimant.cooldown.expire(record.value) for record in self.blocks]
        cooling = sum(block.cooling_count for block in blocks)
        taken = {candidate.block.prefix: len(candidate.ordinals) for candidate in allocation.candidates}
        return PoolExhausted(
            pool=self.pool.key.name,
            prefix=spec.prefix,
            used=sum(block.used_count for block in blocks) + sum(prefix.size for prefix in self.full) - cooling,
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
        limit = self.allocation.context.block_limit
        detail = str(limit) if rule is AllocationRule.BLOCK_LIMIT else ""
        self.allocation.trace.append(RuleTrace(rule=rule, detail=detail))
        if rule is AllocationRule.BLOCK_LIMIT:
            return BlockLimitReached(*self._counts(), limit=limit)
        return (StrictlyExhausted if rule is AllocationRule.STRICT_AFFINITY else BlockUnavailable)(*self._counts())

    def exhausted(self) -> AllocationError:
        """The pools have no more."""
        return PoolsExhausted(*self._counts())

    def _counts(self) -> tuple[Family, int, int, tuple[TraceEntry, ...], bool]:
        count = self.allocation.wanted
        return (
            self.wanted.family, count - self.allocation.missing, count, tuple(self.allocation.trace),
            any(self.allocation.context.request.host_reserved),
        )  # fmt: skip
