"""A block: one fixed-size slice of a pool, and the unit of compare-and-swap.

``decide`` and ``release`` call it; it knows nothing of pools, affinities' records or time. A block is a value:
every change returns the block to store, with its sequence number moved on by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice
from typing import cast

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.clock import SECOND_NS, format_time
from netplug_core.ipam.model.attributes import Attribute, Attributes, Pairs
from netplug_core.records import Get, Key, Kind

__all__ = [
    "BLOCK",
    "RESERVED_HANDLE",
    "Allocation",
    "Attribute",
    "Attributes",
    "Block",
    "Pairs",
    "block_key",
    "block_query",
    "blocks_path",
    "cooldown_ends_ns",
]

RESERVED_HANDLE = "windows-reserved-ipam-handle"
"""Holds the ordinals that a host keeps back for itself; it belongs to no workload."""


@frozen(kw_only=True)
class Allocation:
    """One address of a block that is not free; ``sequence`` is the block's number from before it was taken."""

    address: Address
    ordinal: Ordinal
    attribute: Attribute
    sequence: int

    @property
    def is_cooling(self) -> bool:
        """Whether nobody holds it any more: it was released, and waits until it may be given again."""
        return self.attribute.released_ns is not None


@frozen(kw_only=True)
class Block:
    """The state of one block.

    ``owner`` is the affine node as ``host:<node>`` (or ``virtual:<name>``), empty for none. ``allocations`` has, for
    each ordinal, an index into ``attributes``, or None where the address is free; ``free`` holds the free ordinals,
    the longest-free first. ``sequence`` grows with every stored change and begins with the wall clock, so that a
    block that is deleted and made again never repeats a number; ``sequences`` has, for each ordinal that is not
    free, the number before the change that took it, and 0 for the others and where nobody wrote it down.
    """

    prefix: Prefix
    owner: str = ""
    claim_time_ns: int | None = None
    allocations: tuple[int | None, ...]
    free: tuple[Ordinal, ...]
    attributes: Attributes
    sequence: int
    sequences: tuple[int, ...]
    unknown_json: str = ""

    @classmethod
    def new(cls, prefix: Prefix, *, owner: str, now_ns: int, host_reserved: tuple[int, int] = (0, 0)) -> Block:
        """A block that ``owner`` claims now, empty but for the first and last ordinals that the host keeps back."""
        size = prefix.size
        first = min(host_reserved[0], size)
        last = min(host_reserved[1], size - first)
        is_whole = not (first or last)
        return cls(
            prefix=prefix,
            owner=owner,
            claim_time_ns=_whole_seconds(now_ns),
            allocations=(0,) * first + (None,) * (size - first - last) + (0,) * last,
            free=cast("tuple[Ordinal, ...]", tuple(range(first, size - last))),
            attributes=Attributes() if is_whole else Attributes.of((Attribute(handle=RESERVED_HANDLE),)),
            sequence=now_ns,
            sequences=(0,) * size,
        )

    @property
    def key(self) -> Key[Block]:
        """Where the block is stored."""
        return block_key(self.prefix)

    @property
    def is_empty(self) -> bool:
        """Whether nothing in it is held but what a host keeps back; an address that cools down counts as held."""
        handles = self.attributes.handles
        return handles.count(RESERVED_HANDLE) == len(handles) and not self.attributes.cooling()

    @property
    def used_count(self) -> int:
        """How many of its addresses are not free."""
        return len(self.allocations) - len(self.free)

    @property
    def cooling_count(self) -> int:
        """How many of its addresses were released and wait until they may be given again."""
        return sum(self.allocations.count(index) for index, _released_ns in self.attributes.cooling())

    def held(self) -> tuple[Allocation, ...]:
        """Every address that is not free, the lowest first; those that cool down or are kept back are among them."""
        return self._allocations(range(len(self.attributes)))

    def held_by(self, handle: str) -> tuple[Allocation, ...]:
        """The addresses that a handle holds here, the lowest first."""
        return self._allocations(self.attributes.held_by(handle))

    def find(self, address: Address) -> Allocation | None:
        """The allocation of an address of this block; None where the address is free."""
        ordinal = self.prefix.offset(address)
        index = self.allocations[ordinal]
        return None if index is None else self._allocation(ordinal, self.attributes[index])

    def find_free(self, count: int, may_serve: Callable[[Address], bool] | None) -> tuple[Ordinal, ...]:
        """Up to ``count`` free ordinals that may serve (None: all may), the longest-free first."""
        if may_serve is None:
            return self.free[:count]
        return tuple(islice((n for n in self.free if may_serve(self.prefix.nth(n))), count))

    def assign(self, ordinals: tuple[Ordinal, ...], attribute: Attribute) -> Block:
        """The block with these free ordinals held under one attribute."""
        if not ordinals:
            return self.touched()
        allocations, attributes = _pointed(self, ordinals, attribute)
        return evolve(
            self,
            allocations=tuple(allocations),
            free=_left(self.free, ordinals),
            attributes=attributes,
            sequence=self.sequence + 1,
            sequences=_numbered(self.sequences, ordinals, self.sequence),
        )

    def release(self, ordinals: frozenset[Ordinal], *, cooling_from_ns: int | None = None) -> Block:
        """The block without the holder of these held ordinals.

        They are free at once, queued behind those that are free already; or they cool down from a moment on, until
        ``collected`` frees them.
        """
        if cooling_from_ns is None:
            return _freed(self, ordinals, self.sequence + 1)
        cooling = Attribute(released_ns=_whole_seconds(cooling_from_ns))
        allocations, attributes = _pruned(*_pointed(self, ordinals, cooling))
        return evolve(
            self,
            allocations=allocations,
            attributes=attributes,
            sequence=self.sequence + 1,
            sequences=_numbered(self.sequences, ordinals, self.sequence),
        )

    def expire_cooldown(self, now_ns: int, cooldown_ns: int) -> Block:
        """The block with those addresses free that have cooled down; itself if nothing changes.

        Stamps are of somebody's clock: one of the future is set to now, but where there is no cooldown. The sequence
        number stays; the change that this comes with moves it on.
        """
        cooling = self.attributes.cooling()
        if not cooling:
            return self
        over = {
            index
            for index, released_ns in cooling
            if cooldown_ns <= 0 or cooldown_ends_ns(released_ns, cooldown_ns) <= now_ns
        }
        late = [index for index, released_ns in cooling if released_ns > now_ns and index not in over]
        if not (over or late):
            return self
        ordinals = frozenset(Ordinal(n) for n, index in enumerate(self.allocations) if index in over)
        return _freed(_stamped_now(self, late, now_ns), ordinals, self.sequence)

    def with_attribute(self, ordinal: Ordinal, attribute: Attribute) -> Block:
        """The block with this held ordinal under another attribute; others that shared the old one keep it."""
        allocations, attributes = _pruned(*_pointed(self, (ordinal,), attribute))
        return evolve(self, allocations=allocations, attributes=attributes, sequence=self.sequence + 1)

    def touched(self) -> Block:
        """The same block stored once more: its new revision makes a half-done release of it fail."""
        return evolve(self, sequence=self.sequence + 1)

    def claimed(self, owner: str, now_ns: int) -> Block:
        """The block claimed by an owner now."""
        return evolve(self, owner=owner, claim_time_ns=_whole_seconds(now_ns), sequence=self.sequence + 1)

    def relinquished(self) -> Block:
        """The block without an owner."""
        return evolve(self, owner="", claim_time_ns=None, sequence=self.sequence + 1)

    def taken_over(self, owner: str, now_ns: int, host_reserved: tuple[int, int] = (0, 0)) -> Block:
        """This empty block as its next owner's: what that host keeps back is held, all else is free.

        The queue stays as it is, so that an address that was given lately is not the next to be given.
        """
        new = Block.new(self.prefix, owner=owner, now_ns=now_ns, host_reserved=host_reserved)
        queue = dict.fromkeys((*self.free, *new.free))
        return evolve(
            new,
            free=tuple(ordinal for ordinal in queue if new.allocations[ordinal] is None),
            sequence=self.sequence + 1,
            unknown_json=self.unknown_json,
        )

    def problem(self, now_ns: int | None = None) -> str:
        """What is wrong with its shape, and with its stamps if it is told the time; empty when it is sound."""
        size, indexes = len(self.allocations), set(self.allocations) - {None}
        if size != self.prefix.size:
            return f"{size} allocations for {self.prefix.size} addresses"
        if not indexes <= set(range(len(self.attributes))):
            return "an allocation names an attribute that does not exist"
        if len(indexes) != len(self.attributes):
            return "an attribute is used by no allocation"
        if sorted(self.free) != [n for n, index in enumerate(self.allocations) if index is None]:
            return "the queue of free ordinals does not hold each free ordinal once"
        latest_ns = max((released_ns for _index, released_ns in self.attributes.cooling()), default=0)
        if now_ns is not None and latest_ns > now_ns:
            return f"an address was released in the future, at {format_time(latest_ns)}"
        return ""

    def _allocations(self, indexes: Iterable[int]) -> tuple[Allocation, ...]:
        entries = {index: self.attributes[index] for index in indexes}
        if not entries:
            return ()
        return tuple(
            self._allocation(ordinal, entries[index])
            for ordinal, index in enumerate(self.allocations)
            if index is not None and index in entries
        )

    def _allocation(self, ordinal: int, attribute: Attribute) -> Allocation:
        return Allocation(
            address=self.prefix.nth(ordinal),
            ordinal=Ordinal(ordinal),
            attribute=attribute,
            sequence=self.sequences[ordinal],
        )


def _pointed(block: Block, ordinals: Iterable[int], attribute: Attribute) -> tuple[list[int | None], Attributes]:
    """Who holds the block once these ordinals are under one attribute; some other may be left that none is under."""
    index, attributes = block.attributes.find(attribute), block.attributes
    if index is None:
        index, attributes = len(attributes), attributes.plus(attribute)
    allocations = list(block.allocations)
    for ordinal in ordinals:
        allocations[ordinal] = index
    return allocations, attributes


def _freed(block: Block, ordinals: frozenset[Ordinal], sequence: int) -> Block:
    """The block with held ordinals free, under that number."""
    allocations = list(block.allocations)
    for ordinal in ordinals:
        allocations[ordinal] = None
    pruned, attributes = _pruned(allocations, block.attributes)
    return evolve(
        block,
        allocations=pruned,
        free=(*block.free, *sorted(ordinals)),
        attributes=attributes,
        sequence=sequence,
        sequences=_numbered(block.sequences, ordinals, 0),
    )


def _pruned(allocations: list[int | None], attributes: Attributes) -> tuple[tuple[int | None, ...], Attributes]:
    """The same holders, without the attributes that no ordinal is under any more."""
    used = set(allocations)
    kept = [index for index in range(len(attributes)) if index in used]
    renumbered: dict[int | None, int | None] = {None: None, **{old: new for new, old in enumerate(kept)}}
    return tuple(map(renumbered.__getitem__, allocations)), attributes.only(kept)


def _stamped_now(block: Block, indexes: list[int], now_ns: int) -> Block:
    """The block with the stamps of some entries moved back to now; those that are equal by then become one."""
    stamp_ns = _whole_seconds(now_ns)
    entries = [
        evolve(entry, released_ns=stamp_ns) if index in indexes else entry
        for index, entry in enumerate(block.attributes)
    ]
    renumbered = {entry: index for index, entry in enumerate(dict.fromkeys(entries))}
    return evolve(
        block,
        allocations=tuple(None if index is None else renumbered[entries[index]] for index in block.allocations),
        attributes=Attributes.of(renumbered),
    )


def _left(free: tuple[Ordinal, ...], taken: tuple[Ordinal, ...]) -> tuple[Ordinal, ...]:
    """What stays in the queue; mostly its head was taken."""
    if free[: len(taken)] == taken:
        return free[len(taken) :]
    gone = frozenset(taken)
    return tuple(ordinal for ordinal in free if ordinal not in gone)


def _numbered(sequences: tuple[int, ...], ordinals: Iterable[Ordinal], number: int) -> tuple[int, ...]:
    numbers = list(sequences)
    for ordinal in ordinals:
        numbers[ordinal] = number
    return tuple(numbers)


def cooldown_ends_ns(released_ns: int, cooldown_ns: int) -> int:
    """When an address that was released then may be assigned again; at once without a cooldown.

    The stored release time is cut to whole seconds, so it is up to one second early: one more second has to pass.
    """
    return released_ns + cooldown_ns + SECOND_NS if cooldown_ns > 0 else released_ns


def _whole_seconds(time_ns: int) -> int:
    """As the text of a stored time has it."""
    return time_ns - time_ns % SECOND_NS


BLOCK: Kind[Block] = Kind("IPAMBlock", ("family", "cidr"))


def blocks_path(family: Family) -> tuple[str, ...]:
    """What the keys of a family's blocks begin with."""
    return (f"ipv{family.value}",)


def block_key(prefix: Prefix) -> Key[Block]:
    """The key of the block with that prefix."""
    return block_query(prefix).key


@lru_cache(maxsize=16_384)  # the same objects, again and again: what is found by identity is not compared
def block_query(prefix: Prefix) -> Get[Block]:
    """The question for the block with that prefix."""
    return Get(BLOCK.key(*blocks_path(prefix.family), str(prefix)))
