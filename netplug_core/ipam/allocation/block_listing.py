"""The stored blocks that a decision looks for: all of a family, or those that a new block would overlap.

Decisions that borrow, report a shortfall or search without a pool read all blocks. Blocks of different sizes never
overlap: a block is created only where no stored block covers it or lies in it. Blocks of another size are left over
from a pool that was deleted, or belong to another pool. Pools that overlap are judged by ``pools``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.allocation.context import AllocationContext
from netplug_core.ipam.model.affinity import affinity_key
from netplug_core.ipam.model.block import BLOCK, Block, block_key, block_query, blocks_path
from netplug_core.records import PAGE_SIZE, Get, List, NeedMore, Query, Record, Snapshot

__all__ = ["all_blocks", "find_overlap", "is_sound", "overlap_queries"]

_LARGEST_BLOCK_BITS = 12  # of 4,096 addresses, the largest that a pool may have
_MAX_BITS_READ_SINGLY = 6  # a block of 64 addresses can have 126 smaller ones; of larger ones the list is shorter


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


def overlap_queries(new: Iterable[Prefix], wanted: int = 1) -> Iterator[Query]:
    """What to read before blocks are created: every block that would overlap the first ones, which have enough room.

    For a large block that is the first page of all blocks. Mostly no other read follows.
    """
    for prefix in new:
        if prefix.family.width - prefix.length > _MAX_BITS_READ_SINGLY:
            yield List(BLOCK, blocks_path(prefix.family), limit=PAGE_SIZE)
        else:
            yield from _blocks_over(prefix)
        wanted -= prefix.size
        if wanted <= 0:
            return


@lru_cache(maxsize=8)  # a claim asks for them when it reads and when it decides, and they are many
def _blocks_over(prefix: Prefix) -> tuple[Get[Block], ...]:
    width = prefix.family.width
    covering = (Prefix.at(prefix.first, length) for length in range(width - _LARGEST_BLOCK_BITS, prefix.length))
    inside = (
        prefix.subprefix(position, length)
        for length in range(prefix.length + 1, width + 1)
        for position in range(prefix.subprefix_count(length))
    )
    return tuple(block_query(other) for other in (*covering, *inside))


def find_overlap(snapshot: Snapshot, prefix: Prefix) -> Prefix | NeedMore | None:
    """A stored block of another size that overlaps a new one; None without one, or what to read first.

    A block that is read by its key counts also if its record cannot be understood; in a list of all blocks such records
    have no prefix.
    """
    if prefix.family.width - prefix.length <= _MAX_BITS_READ_SINGLY:
        queries = _blocks_over(prefix)
        unread = tuple(query for query in queries if not snapshot.has(query))
        if unread:
            return NeedMore(unread)
        stored = (query for query in queries if snapshot.readable(query) or snapshot.malformed(query))
        return next((Prefix.parse(query.key.name) for query in stored), None)
    blocks = all_blocks(snapshot, prefix.family)
    if isinstance(blocks, NeedMore):
        return blocks
    return next((other for other in blocks if other != prefix and other.overlaps(prefix)), None)


def is_sound(context: AllocationContext, prefix: Prefix) -> bool | NeedMore:
    """Whether neither a block that looks free nor the affinity to it is stored in a form that cannot be read.

    A list that has damaged records does not say where they are stored, so both are read by themselves.
    """
    queries = (Get(block_key(prefix)), Get(affinity_key(context.claimant.owner, prefix)))
    needed = tuple(query for query in queries if not context.snapshot.has(query))
    if needed:
        return NeedMore(needed)
    return not any(context.snapshot.malformed(query) for query in queries)
