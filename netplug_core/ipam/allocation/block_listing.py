"""What is stored of a family: its blocks, the affinities to them, and the blocks that a new one would overlap.

Decisions that borrow or report a shortfall read all blocks, full ones by their keys alone. A release of an address that
no pool leads to reads all with what they hold. Blocks of different sizes never overlap: a block is created only where
no stored block covers it or lies in it. Blocks of another size are left over from a pool that was deleted, or belong to
another pool. Pools that overlap are judged by ``pools``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.model.block import BLOCK, FULL, Block, block_key, block_query, blocks_path
from netplug_core.ipam.model.handle import AFFINITY, affinity_key, claimed_block, claiming_owner
from netplug_core.records import PAGE_SIZE, Get, List, Malformed, NeedMore, Query, Record, Snapshot

__all__ = [
    "ListedBlocks", "all_blocks", "find_overlap", "is_sound", "list_blocks", "list_claims", "overlap_queries",
]  # fmt: skip

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
