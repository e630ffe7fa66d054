"""The stored blocks that a decision looks for: all of a family, or those that a new block would overlap.

Decisions that borrow, report a shortfall or search without a pool read all blocks. Blocks of different sizes never
overlap: a block is created only where no stored block covers it or lies in it. Blocks of another size are left over
from a pool that was deleted, or belong to another pool. Pools that overlap are judged by ``pools``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.model.block import BLOCK, Block, block_query, blocks_path
from netplug_core.records import PAGE_SIZE, Get, List, NeedMore, Query, Record, Snapshot

__all__ = ["all_blocks", "find_overlap", "overlap_queries"]

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


def overlap_queries(prefix: Prefix) -> tuple[Query, ...]:
    """What to read first: every block that would overlap a new one; for a large one, the first page of all blocks."""
    if prefix.family.width - prefix.length > _MAX_BITS_READ_SINGLY:
        return (List(BLOCK, blocks_path(prefix.family), limit=PAGE_SIZE),)
    return _blocks_over(prefix)


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
