"""What the blocks say that each handle holds, to compare it with what the handle says.

Blocks are right: a handle only leads to them. A crash may leave a count too high, or a handle of nothing. A count that
is too high hides no address: the next assignment or release under the handle corrects it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attrs import define, frozen

from netplug_core.addressing import Prefix
from netplug_core.ipam.model.block import RESERVED_HANDLE, Block
from netplug_core.ipam.model.handle import Handle
from netplug_core.records import Record

__all__ = ["HandleCounts", "HandleTally"]


@frozen(kw_only=True)
class HandleCounts:
    """For each handle its blocks in order, each with the number of addresses that it holds there.

    ``addresses`` is the number of assigned addresses, also of those without a handle. Addresses that cool down and
    those that a host reserves are in neither.
    """

    by_handle: dict[str, tuple[tuple[Prefix, int], ...]]
    addresses: int

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> HandleCounts:
        """The counts of some blocks."""
        by_handle: dict[str, tuple[tuple[Prefix, int], ...]] = {}
        addresses = 0
        for block in sorted(blocks, key=lambda block: block.prefix):
            counts = _count_by_handle(block)
            addresses += counts.total()
            pairs = {count: ((block.prefix, count),) for count in set(counts.values())}
            for handle, count in counts.items():
                if handle is not None:
                    by_handle[handle] = by_handle.get(handle, ()) + pairs[count]
        return cls(by_handle=by_handle, addresses=addresses)

    def is_right(self, record: Record[Handle]) -> bool:
        """Whether a stored handle holds something, and counts it as the blocks do."""
        name = record.key.name
        return name == RESERVED_HANDLE or self.by_handle.get(name) == record.value.blocks

    def is_high(self, record: Record[Handle]) -> bool:
        """Whether a stored handle holds something, leads to all of it, and counts too much."""
        held = self.by_handle.get(record.key.name, ())
        is_enough = all(record.value.count(block) >= count for block, count in held)
        return bool(held) and is_enough and not self.is_right(record)

    def blocks_of(self, handle: str) -> frozenset[Prefix]:
        """The blocks that name a handle."""
        return frozenset(block for block, _count in self.by_handle.get(handle, ()))


@define(kw_only=True)
class HandleTally:
    """Stored handles, compared one by one, so that not all of them are kept.

    ``wrong`` are those that differ from the blocks, ``missing`` the names of those that the blocks name and that have
    not been seen, and ``count`` is how many have been.
    """

    counts: HandleCounts
    wrong: list[Record[Handle]]
    missing: set[str]
    count: int = 0

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> HandleTally:
        """The tally of no handle yet."""
        counts = HandleCounts.of(blocks)
        return cls(counts=counts, wrong=[], missing=set(counts.by_handle))

    def add(self, record: Record[Handle]) -> None:
        """Compare a stored handle."""
        self.count += 1
        self.missing.discard(record.key.name)
        if not self.counts.is_right(record):
            self.wrong.append(record)


def _count_by_handle(block: Block) -> Counter[str | None]:
    uses = Counter(block.allocations)
    cooling = {index for index, _released_ns in block.attributes.cooling()}
    counts: Counter[str | None] = Counter()
    for index, handle in enumerate(block.attributes.handles):
        if uses[index] and handle != RESERVED_HANDLE and index not in cooling:
            counts[handle] += uses[index]
    return counts
