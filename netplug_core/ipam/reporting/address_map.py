"""The address space as a map: pools, their blocks with their owners, and what is in no block, for ``ipam map``.

``usage`` says which block is in which pool. Here each address is counted once, by its use, and the blocks of a
large pool are put together, so that a map has a bounded number of rows. ``netplugctl`` draws it.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.model import RESERVED_HANDLE, Attribute, Block
from netplug_core.ipam.reporting.usage import BlockUsage, PoolUsage, borrowing_node
from netplug_core.resources.ippool import IPPool

__all__ = [
    "MAX_LISTED_ADDRESSES", "AddressUse", "MapBlock", "MapGap", "MapGroup", "MapPool", "MapRow", "UseCounts",
    "make_address_map",
]  # fmt: skip

MAX_LISTED_ADDRESSES = 64
"""The largest block whose addresses are listed one by one: that of a pool that sets no block size."""


class AddressUse(enum.Enum):
    """What an address is used for; each address has one use. The value is what follows a count.

    An address that is held is never ``RESERVED``, even if a reservation contains it.
    """

    USED = "in use"
    BORROWED = "borrowed"
    COOLING = "cooling down"
    RESERVED = "reserved"
    FREE = "free"
    UNCLAIMED = "unclaimed"


_USES = tuple(AddressUse)


@frozen
class UseCounts:
    """How many addresses have each use, in the order of the uses."""

    numbers: tuple[int, ...] = (0,) * len(_USES)

    @classmethod
    def of(cls, counts: Mapping[AddressUse, int]) -> UseCounts:
        """These counts; 0 for a use that is not named."""
        return cls(tuple(counts.get(use, 0) for use in _USES))

    @classmethod
    def sum(cls, counts: Iterable[UseCounts]) -> UseCounts:
        """The counts of several ranges together."""
        return cls(tuple(map(sum, zip(cls().numbers, *(each.numbers for each in counts), strict=True))))

    @property
    def total(self) -> int:
        """How many addresses are counted."""
        return sum(self.numbers)

    @property
    def present(self) -> tuple[tuple[AddressUse, int], ...]:
        """The uses that some address has, each with its count."""
        return tuple((use, number) for use, number in zip(_USES, self.numbers, strict=True) if number)


@frozen(kw_only=True)
class MapBlock:
    """A block. ``owner`` is as it is stored, empty for none.

    ``addresses`` has the use of each address, the lowest first; empty for a block of more than
    ``MAX_LISTED_ADDRESSES``. ``borrowers`` are the nodes that borrow addresses of it, those with the most first.
    """

    prefix: Prefix
    owner: str
    counts: UseCounts
    addresses: tuple[AddressUse, ...] = ()
    borrowers: tuple[tuple[str, int], ...] = ()


@frozen(kw_only=True)
class MapGroup:
    """Several blocks in the range of one prefix, and the addresses of the range that are in no block.

    ``counts`` are of the blocks, ``outside`` of the other addresses. ``owners`` are those of the blocks, each with the
    number of its blocks, those with the most first.
    """

    prefix: Prefix
    block_count: int
    owners: tuple[tuple[str, int], ...]
    counts: UseCounts
    outside: UseCounts


@frozen(kw_only=True)
class MapGap:
    """Addresses of a pool, one behind the other, that are in no block."""

    first: Address
    last: Address
    counts: UseCounts


MapRow: TypeAlias = MapBlock | MapGroup | MapGap
"""A part of a pool."""


@frozen(kw_only=True)
class MapPool:
    """A pool and its rows by address, which have every address of it.

    If ``pool`` is None, the blocks are those of ``family`` that are in no pool, and there are no rows between them.
    ``counts`` are of all rows. ``owner_count`` says how many owners the blocks have.
    """

    pool: IPPool | None
    family: Family
    block_count: int
    owner_count: int
    counts: UseCounts
    rows: tuple[MapRow, ...]

    @property
    def group_count(self) -> int:
        """How many rows are of several blocks."""
        return sum(isinstance(row, MapGroup) for row in self.rows)


def make_address_map(usages: Iterable[PoolUsage], reserved: Reserved, *, max_rows: int) -> tuple[MapPool, ...]:
    """The map of some pools, in their order; blocks in no pool are put together by family.

    At most ``max_rows`` rows of a pool have blocks. If it has more blocks, the blocks of neighbouring addresses share a
    row, by the longest prefixes that suffice.
    """
    return tuple(
        _make_pool(usage.pool, family, blocks, reserved, max_rows)
        for usage in usages
        for family, blocks in _by_family(usage)
    )


def _by_family(usage: PoolUsage) -> Iterator[tuple[Family, tuple[BlockUsage, ...]]]:
    if usage.pool is not None:
        yield usage.prefix.family, usage.blocks
        return
    for family, blocks in groupby(usage.blocks, key=lambda each: each.block.prefix.family):
        yield family, tuple(blocks)


def _make_pool(
    pool: IPPool | None, family: Family, usages: Sequence[BlockUsage], reserved: Reserved, max_rows: int
) -> MapPool:
    length = _group_length([usage.block.prefix for usage in usages], pool.spec.prefix.length if pool else 0, max_rows)
    groups = groupby(usages, key=lambda usage: _group_of(usage.block.prefix, length))
    with_blocks = [_block_row(prefix, tuple(members), reserved, pool) for prefix, members in groups]
    rows = tuple(_with_gaps(pool.spec.prefix, with_blocks, reserved)) if pool else tuple(with_blocks)
    return MapPool(
        pool=pool,
        family=family,
        block_count=len(usages),
        owner_count=len({usage.block.owner for usage in usages} - {""}),
        counts=UseCounts.sum(counts for row in rows for counts in _counts_of(row)),
        rows=rows,
    )


def _group_length(prefixes: Sequence[Prefix], shortest: int, max_rows: int) -> int:
    """The longest length of prefixes that have the blocks in at most so many groups."""
    lengths = range(shortest, max((prefix.length for prefix in prefixes), default=shortest) + 1)
    fitting = bisect_right(lengths, max_rows, key=lambda length: len({_group_of(each, length) for each in prefixes}))
    return lengths[max(fitting, 1) - 1]


def _group_of(prefix: Prefix, length: int) -> Prefix:
    return Prefix.at(prefix.first, min(length, prefix.length))


def _block_row(
    prefix: Prefix, usages: tuple[BlockUsage, ...], reserved: Reserved, pool: IPPool | None
) -> MapBlock | MapGroup:
    uses = [(usage.block, tuple(_uses(usage, reserved))) for usage in usages]
    counts = UseCounts.of(Counter(use for _block, listed in uses for use in listed))
    if len(uses) > 1:
        return MapGroup(
            prefix=prefix,
            block_count=len(uses),
            owners=_most_first(Counter(usage.block.owner for usage in usages)),
            counts=counts,
            outside=_outside(prefix, usages, reserved) if pool else UseCounts(),
        )
    ((block, listed),) = uses
    return MapBlock(
        prefix=block.prefix,
        owner=block.owner,
        counts=counts,
        addresses=listed if len(listed) <= MAX_LISTED_ADDRESSES else (),
        borrowers=_borrowers(block),
    )


def _uses(usage: BlockUsage, reserved: Reserved) -> Iterator[AddressUse]:
    """The use of each address of a block."""
    block = usage.block
    by_index = [_use_of(block, attribute) for attribute in block.attributes]
    for ordinal, index in enumerate(block.allocations):
        if index is not None:
            yield by_index[index]
        elif usage.reserved and reserved.contains(block.prefix.nth(ordinal)):
            yield AddressUse.RESERVED
        else:
            yield AddressUse.FREE


def _use_of(block: Block, attribute: Attribute) -> AddressUse:
    if attribute.released_ns is not None:
        return AddressUse.COOLING
    if attribute.handle == RESERVED_HANDLE:
        return AddressUse.RESERVED
    return AddressUse.BORROWED if borrowing_node(block, attribute) else AddressUse.USED


def _borrowers(block: Block) -> tuple[tuple[str, int], ...]:
    by_index = [borrowing_node(block, attribute) for attribute in block.attributes]
    return _most_first(Counter(by_index[index] for index in block.allocations if index is not None and by_index[index]))


def _most_first(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _outside(prefix: Prefix, usages: Iterable[BlockUsage], reserved: Reserved) -> UseCounts:
    """The addresses of a prefix that are in none of its blocks."""
    of_blocks = [(usage.capacity, usage.reserved) for usage in usages]
    size = prefix.size - sum(capacity for capacity, _reserved in of_blocks)
    return _unclaimed(size, reserved.count(prefix) - sum(count for _capacity, count in of_blocks))


def _unclaimed(size: int, reserved: int) -> UseCounts:
    return UseCounts.of({AddressUse.UNCLAIMED: size - reserved, AddressUse.RESERVED: reserved})


def _with_gaps(prefix: Prefix, rows: Iterable[MapBlock | MapGroup], reserved: Reserved) -> Iterator[MapRow]:
    """The rows of a pool, and the gaps around them."""
    position = prefix.base
    for row in rows:
        if row.prefix.base > position:
            yield _gap(prefix.family, position, row.prefix.base - 1, reserved)
        yield row
        position = row.prefix.base + row.prefix.size
    if position < prefix.base + prefix.size:
        yield _gap(prefix.family, position, prefix.base + prefix.size - 1, reserved)


def _gap(family: Family, first: int, last: int, reserved: Reserved) -> MapGap:
    ends = Address(family, first), Address(family, last)
    counts = _unclaimed(last - first + 1, reserved.count_between(*ends))
    return MapGap(first=ends[0], last=ends[1], counts=counts)


def _counts_of(row: MapRow) -> tuple[UseCounts, ...]:
    return (row.counts, row.outside) if isinstance(row, MapGroup) else (row.counts,)
