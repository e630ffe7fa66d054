"""Which blocks addresses are taken from: the claimant's own, then new and ownerless ones that are found at once.

``decide`` and ``affinities`` call ``find_own_blocks``, and ``acquire_nearby`` where the own blocks do not suffice: it
reads a few blocks in the node's own order. What these lack comes from ``borrow``. A new block must not overlap another:
what is read for that is here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from typing import TypeAlias

from attrs import Factory, define, evolve, field, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.context import AllocationContext, FamilyAllocation, OwnAffinity, RelinquishedBlock
from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate, Purpose
from netplug_core.ipam.allocation.pools import Pools, block_order, find_pool_of_block, is_enabled, is_selected
from netplug_core.ipam.allocation.request import Automatic
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    FULL,
    Affinity,
    AffinityState,
    Block,
    affinity_key,
    block_key,
    block_query,
    blocks_path,
    claimed_block,
    claiming_owner,
)
from netplug_core.ipam.outcome import BlockOutcome, BlockTrace
from netplug_core.records import PAGE_SIZE, Get, List, Malformed, NeedMore, Query, Record, Snapshot, TraceEntry
from netplug_core.resources.ippool import IPPool

__all__ = [
    "PROBE_COUNT", "ListedBlocks", "OwnBlocks", "PoolPrefix", "acquire_each", "acquire_nearby", "all_blocks",
    "blocks_in_order", "claim_free", "find_overlap", "find_own_blocks", "is_sound", "list_blocks", "list_claims",
    "nearby_blocks", "overlap_queries", "start_position",
]  # fmt: skip


# --- block listing ---------------------------------------------------------------------------------------------------


_LARGEST_BLOCK_BITS = 12  # of 4,096 addresses, the largest that a pool may have
_FEW_BITS = 2  # a block of 4 addresses overlaps 16 blocks of other sizes
_NEIGHBOUR_BITS = 8  # 256 addresses: their texts differ in the last number only,
_NEIGHBOUR_DIGITS = 2  # or in its last two hexadecimal digits
_CLAIMS_PAGE_SIZE = 10 * PAGE_SIZE  # an affinity takes less than a hundredth of a block
_MAX_BITS_READ_SINGLY = 6  # a block of 64 addresses can have 126 smaller ones; of larger ones the list is shorter


_BlockQuery: TypeAlias = Get[Block] | List[Block]


def all_blocks(snapshot: Snapshot, family: Family) -> Mapping[Prefix, Record[Block]] | NeedMore:
    """The blocks of all pages that can be read; a request for the next page while one is missing."""
    blocks: dict[Prefix, Record[Block]] = {}
    after = ""
    while True:
        page = List(BLOCK, blocks_path(family), limit=PAGE_SIZE, after=after)
        if not snapshot.has(page):
            return NeedMore((page,))
        blocks.update((record.value.prefix, record) for record in snapshot.readable(page))
        after = snapshot.after(page)
        if not after:
            return blocks


@frozen(kw_only=True)
class ListedBlocks:
    """Blocks of a family: ``records`` by prefix, and the prefixes of ``full`` ones, which are not decoded.

    ``next_page`` asks for more; None if these are all.
    """

    records: Mapping[Prefix, Record[Block]]
    full: tuple[Prefix, ...] = ()
    next_page: Query | None = None


def list_blocks(snapshot: Snapshot, family: Family) -> ListedBlocks:
    """The blocks of the pages that were read, without those that cannot be understood."""
    records: dict[Prefix, Record[Block]] = {}
    full: list[Prefix] = []
    page = _first_page(family)
    while snapshot.has(page):
        records.update((record.value.prefix, record) for record in snapshot.readable(page))
        full.extend(_parsed(key.name) for key in snapshot.keys(page))
        after = snapshot.after(page)
        if not after:
            return ListedBlocks(records=records, full=tuple(full))
        page = evolve(page, after=after)
    return ListedBlocks(records=records, full=tuple(full), next_page=page)


@lru_cache(maxsize=16_384)  # the same few thousand are listed again for every decision about another page
def _parsed(name: str) -> Prefix:
    return Prefix.parse(name)


def list_claims(snapshot: Snapshot, family: Family) -> Mapping[Prefix, str] | NeedMore:
    """The blocks that any affinity names, with the owner of an affinity; a request for what has to be read first.

    They say where to look, so a cache of the store may answer.
    """
    claims: dict[Prefix, str] = {}
    page = List(AFFINITY, limit=_CLAIMS_PAGE_SIZE, may_be_cached=True)
    while snapshot.has(page):
        for record in snapshot.readable(page):
            with suppress(Malformed):
                prefix = claimed_block(record.key)
                if prefix.family is family:
                    claims[prefix] = claiming_owner(record.key)
        after = snapshot.after(page)
        if not after:
            return claims
        page = evolve(page, after=after)
    return NeedMore((page,))


def overlap_queries(new: Iterable[Prefix], wanted: int = 1) -> tuple[Query, ...]:
    """What to read before blocks are created: what the first ones would overlap, as many as have room enough.

    For a large block that is the first page of all blocks. Mostly no other read follows.
    """
    queries: dict[Query, None] = {}  # blocks beside each other have the same neighbours
    for prefix in new:
        queries.update(dict.fromkeys(_queries_near(prefix) or _queries_over(prefix) or (_first_page(prefix.family),)))
        wanted -= prefix.size
        if wanted <= 0:
            break
    return tuple(queries)


def find_overlap(snapshot: Snapshot, prefix: Prefix) -> Prefix | NeedMore | None:
    """A stored block of another size that overlaps a new one; None without one, or what to read first.

    A block counts also if its record cannot be understood. In a list, some stores do not say which one such a record
    is: if the list of the neighbours has one, all blocks that a small new one would overlap are read by their keys.
    """
    near = _queries_near(prefix)
    if near:
        overlap = _find_among(snapshot, prefix, near)
        if overlap is not None or not snapshot.malformed(near[0]):
            return overlap
    over = _queries_over(prefix)
    if over:
        return _find_among(snapshot, prefix, over)
    page = _first_page(prefix.family)
    while snapshot.has(page):
        overlap = _first_overlap(prefix, _stored(snapshot, page))
        after = snapshot.after(page)
        if overlap is not None or not after:
            return overlap
        page = evolve(page, after=after)
    return NeedMore((page,))


def _find_among(snapshot: Snapshot, prefix: Prefix, queries: Sequence[_BlockQuery]) -> Prefix | NeedMore | None:
    """The first overlapping block of some queries, of which the single ones ask for such blocks only."""
    unread = tuple(query for query in queries if not snapshot.has(query))
    if unread:
        return NeedMore(unread)
    return _first_overlap(prefix, chain.from_iterable(_stored(snapshot, query) for query in queries))


def _stored(snapshot: Snapshot, query: _BlockQuery) -> Sequence[Prefix]:
    """The blocks that a query found, also those that cannot be understood if it is known which they are."""
    if isinstance(query, List):
        found = [record.value.prefix for record in snapshot.readable(query)]
        return [*found, *(_parsed(key.name) for key in snapshot.keys(query)), *_damaged(snapshot, query)]
    return (Prefix.parse(query.key.name),) if snapshot.readable(query) or snapshot.malformed(query) else ()


def _damaged(snapshot: Snapshot, query: List[Block]) -> Iterator[Prefix]:
    for error in snapshot.malformed(query):
        if error.subject is not None:
            with suppress(ValueError):  # its key is damaged too
                yield _parsed(error.subject.name)


def _first_overlap(prefix: Prefix, stored: Iterable[Prefix]) -> Prefix | None:
    return next((other for other in stored if other != prefix and other.overlaps(prefix)), None)


def _first_page(family: Family) -> List[Block]:
    """The same for everything that needs no values of full blocks, so that no page is read twice."""
    return List(BLOCK, blocks_path(family), limit=PAGE_SIZE, keys_only_if=FULL)


@lru_cache(maxsize=8)  # a claim asks for them when it reads and when it decides
def _queries_near(prefix: Prefix) -> tuple[_BlockQuery, ...]:
    """The list of the blocks among the same 256 addresses, and the larger blocks around them.

    Empty for a larger block, and for one so small that it overlaps fewer blocks than there may be neighbours. Empty
    also where the texts of those addresses have no beginning of their own: the names of a whole pool may begin with
    ``fd00::``, as that of ``fd00::40/122`` does.
    """
    if not _FEW_BITS < prefix.family.width - prefix.length <= _NEIGHBOUR_BITS:
        return ()
    address = str(prefix.first)
    number = max(address.rfind("."), address.rfind(":")) + 1
    if "." not in address:
        if len(address) - number <= _NEIGHBOUR_DIGITS:
            return ()
        number = len(address) - _NEIGHBOUR_DIGITS
    neighbours = List(BLOCK, blocks_path(prefix.family), name_prefix=address[:number], keys_only_if=FULL)
    return (neighbours, *_covering(prefix, prefix.family.width - _NEIGHBOUR_BITS))


@lru_cache(maxsize=8)
def _queries_over(prefix: Prefix) -> tuple[_BlockQuery, ...]:
    """Every block of another size that overlaps a small one; empty for a larger one, which overlaps too many."""
    width = prefix.family.width
    if width - prefix.length > _MAX_BITS_READ_SINGLY:
        return ()
    inside = (
        prefix.subprefix(position, length)
        for length in range(prefix.length + 1, width + 1)
        for position in range(prefix.subprefix_count(length))
    )
    return (*_covering(prefix, prefix.length), *map(block_query, inside))


def _covering(prefix: Prefix, end: int) -> Iterator[Get[Block]]:
    """The blocks around a prefix whose lengths are less than ``end``."""
    lengths = range(prefix.family.width - _LARGEST_BLOCK_BITS, end)
    return (block_query(Prefix.at(prefix.first, length)) for length in lengths)


def is_sound(snapshot: Snapshot, owner: str, prefix: Prefix) -> bool | NeedMore:
    """Whether neither a block that looks free nor an owner's affinity to it is stored in a form that cannot be read.

    A list that has damaged records does not say where they are stored, so both are read by themselves.
    """
    queries = (Get(block_key(prefix)), Get(affinity_key(owner, prefix)))
    needed = tuple(query for query in queries if not snapshot.has(query))
    if needed:
        return NeedMore(needed)
    return not any(snapshot.malformed(query) for query in queries)


# --- acquire ---------------------------------------------------------------------------------------------------------


PROBE_COUNT = 8
"""Blocks that are read one by one before any list."""

PoolPrefix = tuple[Record[IPPool], Prefix]
"""A block of a pool, stored or not."""

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
            if entry.is_later and entry.affinity.value.state is AffinityState.CONFIRMED:
                continue  # another call of the claimant may have made the block its own by now
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
    """Give up a block of the claimant that this request cannot use, if it is empty and no request can, or count it.

    One that this commit cannot give up any more counts too where a limit is set.
    """
    prefix = unusable.block.value.prefix
    pool = find_pool_of_block(context.pools, prefix)
    is_enabled_pool = pool is not None and is_enabled(pool.value)
    is_served = pool is not None and is_enabled_pool and _selects(context, pool)
    if context.knows_selection and not is_served and _is_empty(context, unusable):
        if context.releases_left > 0:
            context.releases_left -= 1
            own.relinquished.append(unusable)
            own.trace.append(BlockTrace(block=prefix, outcome=BlockOutcome.RELINQUISHED))
        elif context.explicit_limits:
            own.count += 1
    elif is_enabled_pool or context.explicit_limits:
        own.count += 1


def _is_empty(context: AllocationContext, unusable: RelinquishedBlock) -> bool:
    return context.claimant.cooldown.expire(unusable.block.value).is_empty


def _selects(context: AllocationContext, pool: Record[IPPool]) -> bool:
    try:
        return is_selected(pool, context.labels or {})
    except ConfigurationError:
        return True  # it is not known which nodes it selects, so the block is kept


# --- other blocks ---------------------------------------------------------------------------------------------------


def acquire_nearby(
    allocation: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]], pending: Iterable[BlockCandidate]
) -> NeedMore | None:
    """Take what is missing from new and ownerless blocks among the first ones of the node's order.

    ``pending`` come first: blocks that the claimant has an affinity to, and that are not stored (yet, or any more).
    """
    if not allocation.context.settings.may_auto_allocate_blocks:
        return None
    needed = acquire_each(allocation, pending)
    if needed is not None or allocation.room <= 0 or not allocation.missing:
        return needed
    return claim_free(allocation, nearby_blocks(allocation.context, wanted.family, pools))


def nearby_blocks(
    context: AllocationContext, family: Family, pools: Sequence[Record[IPPool]]
) -> tuple[PoolPrefix, ...]:
    """The first blocks of the node's order that the claimant has no affinity to."""
    own = {entry.prefix for entry in context.own_affinities[family]}
    in_order = ((pool, prefix) for pool in pools for prefix in blocks_in_order(context, pool) if prefix not in own)
    return tuple(islice(in_order, PROBE_COUNT))


def claim_free(allocation: FamilyAllocation, blocks: Sequence[PoolPrefix]) -> NeedMore | None:
    """Read some blocks one by one, and acquire those of them that are new or have no owner."""
    context, snapshot = allocation.context, allocation.context.snapshot
    queries: list[Query] = [block_query(prefix) for _, prefix in blocks]
    if not all(map(snapshot.has, queries)):
        queries.extend(overlap_queries((prefix for _, prefix in blocks), allocation.missing))
    needed = tuple(query for query in queries if not snapshot.has(query))
    if needed:
        return NeedMore(needed)
    found = (
        context.claimant.find_candidate(Purpose.AUTOMATIC, pool, prefix, snapshot.find(query))
        for pool, prefix in blocks
        if not snapshot.malformed(query := block_query(prefix))
    )
    free = (candidate for candidate in found if candidate and candidate.acquisition is not Acquisition.TAKEN_OVER)
    return acquire_each(allocation, free)


def acquire_each(
    allocation: FamilyAllocation, candidates: Iterable[BlockCandidate], find: OverlapFinder = find_overlap
) -> NeedMore | None:
    """Take what is missing from blocks that the claimant comes to own by it, as far as a limit allows."""
    snapshot, owner = allocation.context.snapshot, allocation.context.claimant.owner
    has_malformed = bool(allocation.context.malformed)
    find_other = find_overlap if has_malformed else find  # a list does not say where its damaged blocks are
    for candidate in candidates:
        if not allocation.missing or allocation.room <= 0:
            return None
        if candidate.block.prefix in allocation.seen:
            continue
        sound = not has_malformed or is_sound(snapshot, owner, candidate.block.prefix)
        if isinstance(sound, NeedMore):
            return sound
        is_new = candidate.acquisition is Acquisition.NEW
        overlap = find_other(snapshot, candidate.block.prefix) if sound and is_new else None
        if isinstance(overlap, NeedMore):
            return overlap
        if sound and overlap is None:
            allocation.acquire(candidate)
            continue
        allocation.seen.add(candidate.block.prefix)
        outcome = BlockOutcome.UNREADABLE if overlap is None else BlockOutcome.OVERLAPPED
        allocation.note(candidate.block.prefix, outcome, str(overlap or ""))
    return None


def blocks_in_order(context: AllocationContext, pool: Record[IPPool]) -> Iterator[Prefix]:
    """Every block of a pool in the order in which this node tries them."""
    spec = pool.value.spec
    return block_order(start_position(context, pool), spec.prefix, spec.block_length, context.reserved)


def start_position(context: AllocationContext, pool: Record[IPPool]) -> int:
    """The position in a pool at which this node starts."""
    spec = pool.value.spec
    return context.order(context.request.node, spec.prefix, spec.prefix.subprefix_count(spec.block_length))
