"""A block: one fixed-size slice of a pool, and the unit of compare-and-swap.

``decide`` and ``release`` call it; it knows nothing of pools, affinities' records or time. A block is a value:
every change returns the block to store, with its sequence number moved on by one.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.records import Key, Kind

__all__ = ["BLOCK", "Allocation", "Attribute", "Block", "block_key", "blocks_path"]

Pairs = tuple[tuple[str, str], ...]


@frozen(kw_only=True)
class Attribute:
    """Who holds an address; several ordinals of a block may share one entry.

    ``owner`` and ``alternate`` are sorted pairs such as ``("node", "node-a")``; ``released_ns`` marks an address
    that cools down and is held by nobody; ``carried`` is what a newer release stored beside them, as JSON text.
    """

    handle: str | None = None
    owner: Pairs = ()
    alternate: Pairs = ()
    released_ns: int | None = None
    carried: str = ""

    def owner_value(self, name: str) -> str:
        """The owner's value of that name; empty when it has none."""
        return next((value for key, value in self.owner if key == name), "")


@frozen(kw_only=True)
class Allocation:
    """One held address of a block."""

    address: Address
    ordinal: Ordinal
    attribute: Attribute


@frozen(kw_only=True)
class Block:
    """The state of one block.

    ``owner`` is the affine node as ``host:<node>`` (or ``virtual:<name>``), empty for none. ``allocations`` has, for
    each ordinal, an index into ``attributes``, or None where the address is free; ``free`` holds the free ordinals,
    the longest-free first. ``sequence`` grows with every stored change and begins with the wall clock, so that a
    block that is deleted and made again never repeats a number; ``sequences`` remembers, for each held ordinal, the
    number before the change that took it.
    """

    prefix: Prefix
    owner: str = ""
    claim_time_ns: int | None = None
    allocations: tuple[int | None, ...]
    free: tuple[Ordinal, ...]
    attributes: tuple[Attribute, ...] = ()
    sequence: int
    sequences: tuple[tuple[Ordinal, int], ...] = ()
    carried: str = ""

    @classmethod
    def new(cls, prefix: Prefix, *, owner: str, now_ns: int) -> Block:
        """An empty block that ``owner`` claims now."""
        return cls(
            prefix=prefix,
            owner=owner,
            claim_time_ns=now_ns - now_ns % 1_000_000_000,  # stored as text of whole seconds
            allocations=(None,) * prefix.size,
            free=tuple(Ordinal(n) for n in range(prefix.size)),
            sequence=now_ns,
        )

    @property
    def key(self) -> Key[Block]:
        """Where the block is stored."""
        return block_key(self.prefix)

    @property
    def is_empty(self) -> bool:
        """Whether nothing in it is held, not even by an address that cools down."""
        return len(self.free) == len(self.allocations)

    def held(self) -> tuple[Allocation, ...]:
        """Every held address, the lowest first."""
        return tuple(
            Allocation(address=self.prefix.nth(ordinal), ordinal=Ordinal(ordinal), attribute=self.attributes[index])
            for ordinal, index in enumerate(self.allocations)
            if index is not None
        )

    def held_by(self, handle: str) -> tuple[Allocation, ...]:
        """The addresses that a handle holds here, the lowest first."""
        if not any(attribute.handle == handle for attribute in self.attributes):
            return ()
        return tuple(held for held in self.held() if held.attribute.handle == handle)

    def available(self, count: int, may_serve: Callable[[Address], bool]) -> tuple[Ordinal, ...]:
        """Up to ``count`` free ordinals that may serve, the longest-free first."""
        found: list[Ordinal] = []
        for ordinal in self.free:
            if len(found) == count:
                break
            if may_serve(self.prefix.nth(ordinal)):
                found.append(ordinal)
        return tuple(found)

    def assign(self, ordinals: tuple[Ordinal, ...], attribute: Attribute) -> Block:
        """The block with these free ordinals held under one attribute."""
        attributes, index = self.attributes, len(self.attributes)
        if attribute in attributes:
            index = attributes.index(attribute)
        else:
            attributes = (*attributes, attribute)
        taken = frozenset(ordinals)
        allocations = list(self.allocations)
        for ordinal in ordinals:
            allocations[ordinal] = index
        return evolve(
            self,
            allocations=tuple(allocations),
            free=tuple(ordinal for ordinal in self.free if ordinal not in taken),
            attributes=attributes,
            sequence=self.sequence + 1,
            sequences=tuple(sorted((*self.sequences, *((ordinal, self.sequence) for ordinal in ordinals)))),
        )

    def release(self, ordinals: frozenset[Ordinal]) -> Block:
        """The block with these held ordinals free again, queued behind those that are free already."""
        allocations = [None if n in ordinals else index for n, index in enumerate(self.allocations)]
        kept = sorted({index for index in allocations if index is not None})
        renumbered = {old: new for new, old in enumerate(kept)}
        return evolve(
            self,
            allocations=tuple(None if index is None else renumbered[index] for index in allocations),
            free=(*self.free, *sorted(ordinals)),
            attributes=tuple(self.attributes[index] for index in kept),
            sequence=self.sequence + 1,
            sequences=tuple(pair for pair in self.sequences if pair[0] not in ordinals),
        )

    def touched(self) -> Block:
        """The same block stored once more: its new revision makes a half-done release of it fail."""
        return evolve(self, sequence=self.sequence + 1)

    def problem(self) -> str:
        """What is wrong with its shape; empty when it is sound."""
        size, indexes = len(self.allocations), {index for index in self.allocations if index is not None}
        if size != self.prefix.size:
            return f"{size} allocations for {self.prefix.size} addresses"
        if not indexes <= set(range(len(self.attributes))):
            return "an allocation names an attribute that does not exist"
        if len(indexes) != len(self.attributes):
            return "an attribute is used by no allocation"
        expected = {n for n, index in enumerate(self.allocations) if index is None}
        if len(set(self.free)) != len(self.free) or set(self.free) != expected:
            return "the queue of free ordinals does not hold each free ordinal once"
        return ""


BLOCK: Kind[Block] = Kind("IPAMBlock", ("family", "cidr"))


def blocks_path(family: Family) -> tuple[str, ...]:
    """What the keys of a family's blocks begin with."""
    return (f"ipv{family.value}",)


def block_key(prefix: Prefix) -> Key[Block]:
    """The key of the block with that prefix."""
    return BLOCK.key(*blocks_path(prefix.family), str(prefix))
