"""What address assignment stores: blocks, affinities and handles, with their invariants.

A block is one fixed-size slice of a pool, and the unit of compare-and-swap. It does not know pools, affinities or the
time. It is a value: every change returns the block to store, with its sequence number increased by one. The attributes
of an allocation, which say who holds it, are written into the block.

A handle is the key under which a workload's addresses are released together. It counts, for each block, how many
addresses it holds there. It is written before the block and removed after it, so after a crash a count may be too
high, never too low. Every assignment and every release corrects its own handle. An affinity is the claim of a node, or
of another owner, on a block. The decisions of ``ipam.allocation`` use all three.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.clock import SECOND_NS, format_time
from netplug_core.records import Get, Key, Kind, List, Malformed, ValueCondition

__all__ = [
    "AFFINITY", "BLOCK", "FULL", "HANDLE", "LARGE_BLOCK", "MAX_STORED_SIZE", "RESERVED_HANDLE", "Affinity",
    "AffinityState", "Allocation", "Attribute", "Attributes", "Block", "Handle", "Pairs", "Row", "affinities_path",
    "affinities_query", "affinity_key", "block_key", "block_query", "blocks_path", "claimed_block", "claiming_owner",
    "cooldown_ends_ns", "current_affinities_query", "handle_key", "handle_query", "host_owner", "is_within",
    "owner_node", "raise_if_within", "row",
]  # fmt: skip


# --- block -----------------------------------------------------------------------------------------------------------


# --- attributes ------------------------------------------------------------------------------------------------------


Pairs = tuple[tuple[str, str], ...]


@frozen(kw_only=True)
class Attribute:
    """Who holds an address; several ordinals of a block may share one entry.

    ``owner`` and ``alternate`` are sorted pairs such as ``("node", "node-a")``; ``released_ns`` marks an address
    in cooldown, which no handle holds. ``unknown_json`` is what a newer release stored beside them, as JSON text.
    """

    handle: str | None = None
    owner: Pairs = ()
    alternate: Pairs = ()
    released_ns: int | None = None
    unknown_json: str = ""

    def owner_value(self, name: str) -> str:
        """The owner's value of that name; empty when it has none."""
        return next((value for key, value in self.owner if key == name), "")


Row = tuple[str | None, tuple[str, ...], tuple[str, ...], Attribute | None]
"""One entry as columns: handle, names and values of the owner, and the whole entry if these do not say all."""


@frozen
class Attributes:
    """The attribute entries of a block, by index: a sequence of :class:`Attribute`.

    ``handles`` has each entry's handle, ``names`` and ``values`` its owner. Pairs of text take five times as much
    memory as values beside names, because entries with the same names share one tuple. ``whole`` has the entry itself
    if these columns do not say all of it, as for an address in cooldown, and None otherwise.
    """

    handles: tuple[str | None, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    whole: tuple[Attribute | None, ...] = ()

    @classmethod
    def of(cls, attributes: Iterable[Attribute]) -> Attributes:
        """These entries in this order."""
        return cls(*zip(*map(row, attributes), strict=True))

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[Attribute]:
        return map(self.__getitem__, range(len(self.handles)))

    def __getitem__(self, index: int) -> Attribute:
        whole = self.whole[index]
        if whole is not None:
            return whole
        return Attribute(
            handle=self.handles[index], owner=tuple(zip(self.names[index], self.values[index], strict=True))
        )

    def find(self, attribute: Attribute) -> int | None:
        """The index of the entry that is equal to this one."""
        if attribute.handle not in self.handles:  # the usual answer, without a loop
            return None
        return next((index for index, entry in self._with_handle(attribute.handle) if entry == attribute), None)

    def held_by(self, handle: str) -> tuple[int, ...]:
        """The indexes of a handle's entries."""
        if handle not in self.handles:  # likewise
            return ()
        return tuple(index for index, entry in self._with_handle(handle) if entry.released_ns is None)

    def cooling(self) -> tuple[tuple[int, int], ...]:
        """The indexes of the entries in cooldown, each with its release time."""
        if self.whole.count(None) == len(self.whole):  # likewise
            return ()
        return tuple(
            (index, entry.released_ns)
            for index, entry in enumerate(self.whole)
            if entry is not None and entry.released_ns is not None
        )

    def plus(self, attribute: Attribute) -> Attributes:
        """These entries and one more at the end."""
        handle, names, values, whole = row(attribute)
        if self.names and self.names[-1] == names:
            names = self.names[-1]
        return Attributes((*self.handles, handle), (*self.names, names), (*self.values, values), (*self.whole, whole))

    def only(self, indexes: Sequence[int]) -> Attributes:
        """The entries with these indexes, in this order."""
        return Attributes(
            tuple(map(self.handles.__getitem__, indexes)),
            tuple(map(self.names.__getitem__, indexes)),
            tuple(map(self.values.__getitem__, indexes)),
            tuple(map(self.whole.__getitem__, indexes)),
        )

    def _with_handle(self, handle: str | None) -> Iterator[tuple[int, Attribute]]:
        return ((index, self[index]) for index, other in enumerate(self.handles) if other == handle)


def row(attribute: Attribute) -> Row:
    """An entry as columns."""
    is_plain = not attribute.alternate and attribute.released_ns is None and not attribute.unknown_json
    names, values = zip(*attribute.owner, strict=True) if attribute.owner else ((), ())
    return attribute.handle, names, values, None if is_plain else attribute


# --- block -----------------------------------------------------------------------------------------------------------


# --- ranges ----------------------------------------------------------------------------------------------------------


def is_within(key: Key[object], range_: Prefix) -> bool:
    """Whether the block that the key of a block or an affinity names has addresses of a range.

    A key that names no block has none: nothing is ever assigned from it.
    """
    try:
        return Prefix.parse(key.name).overlaps(range_)
    except ValueError:
        return False


def raise_if_within(errors: Iterable[Malformed], range_: Prefix) -> None:
    """Refuse to go on if a block or an affinity that may lie within a range cannot be understood.

    Raises:
        Malformed: the first one.
    """
    for error in errors:
        if error.subject is None or is_within(error.subject, range_):
            raise error


# --- block -----------------------------------------------------------------------------------------------------------


LARGE_BLOCK = 512
"""A block of more addresses may outgrow what a store accepts in one request."""

MAX_STORED_SIZE = 1_200_000
"""The estimated size, in bytes, at which a block takes no more addresses: etcd accepts requests of 1.5 MiB by default.

The rest is for the addresses of one more request, its handle and its endpoint, and for what Kubernetes adds."""

_ORDINAL_SIZE = 45  # bytes: the ordinal in allocations or in the queue, and its sequence number
_ATTRIBUTE_SIZE = 70  # the names of its members, and a time

RESERVED_HANDLE = "windows-reserved-ipam-handle"
"""The handle of ordinals that a host reserves for itself; it belongs to no workload."""


@frozen(kw_only=True)
class Allocation:
    """One address of a block that is not free; ``sequence`` is the block's number before the address was assigned."""

    address: Address
    ordinal: Ordinal
    attribute: Attribute
    sequence: int

    @property
    def is_cooling(self) -> bool:
        """Whether it was released and its cooldown has not expired: no handle holds it."""
        return self.attribute.released_ns is not None


@frozen(kw_only=True)
class Block:
    """The state of one block.

    ``owner`` is the affine node as ``host:<node>`` (or ``virtual:<name>``), empty for none. ``allocations`` has, for
    each ordinal, an index into ``attributes``, or None where the address is free. ``free`` has the free ordinals, the
    longest-free first. ``sequence`` increases with every stored change. It starts at the wall clock, so that a block
    that is deleted and created again never repeats a number. ``sequences`` has, for each ordinal that is not free, the
    number before the change that assigned it; 0 for the others, and where it was not stored. ``unknown_json`` is what
    a newer release stored beside these fields.
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
        """A block that ``owner`` claims now; only the first and last ordinals that the host reserves are not free."""
        size = prefix.size
        first = min(host_reserved[0], size)
        last = min(host_reserved[1], size - first)
        return cls(
            prefix=prefix,
            owner=owner,
            claim_time_ns=_whole_seconds(now_ns),
            allocations=(0,) * first + (None,) * (size - first - last) + (0,) * last,
            free=tuple(map(Ordinal, range(first, size - last))),
            attributes=Attributes.of((Attribute(handle=RESERVED_HANDLE),) if first or last else ()),
            sequence=now_ns,
            sequences=(0,) * size,
        )

    @property
    def key(self) -> Key[Block]:
        """Where the block is stored."""
        return block_key(self.prefix)

    @property
    def is_empty(self) -> bool:
        """Whether no address is held except those reserved by the host; an address in cooldown counts as held."""
        return {RESERVED_HANDLE}.issuperset(self.attributes.handles) and not self.attributes.cooling()

    @property
    def is_full(self) -> bool:
        """Whether a workload holds every address: none is free, in cooldown or reserved by a host."""
        return not (self.free or self.attributes.cooling() or RESERVED_HANDLE in self.attributes.handles)

    @property
    def used_count(self) -> int:
        """How many of its addresses are not free."""
        return len(self.allocations) - len(self.free)

    @property
    def is_at_size_limit(self) -> bool:
        """Whether its stored form nears what a store accepts, so that it can take no more addresses."""
        return len(self.allocations) > LARGE_BLOCK and self.stored_size() > MAX_STORED_SIZE

    def stored_size(self) -> int:
        """About how many bytes its stored form has; a little more rather than less."""
        attributes = self.attributes
        members = chain(attributes.names, attributes.values)
        texts = chain(filter(None, attributes.handles), chain.from_iterable(members))
        count = 6 * sum(map(len, attributes.names))  # quotes, colons and commas
        size = len(json.dumps("".join(texts), ensure_ascii=False).encode(errors="replace")) + count
        whole = (entry for entry in attributes.whole if entry is not None)
        size += sum(len(entry.unknown_json) + 6 * sum(map(len, chain(*entry.alternate))) for entry in whole)
        return size + len(self.unknown_json) + _ATTRIBUTE_SIZE * len(attributes) + _ORDINAL_SIZE * len(self.allocations)

    @property
    def cooling_count(self) -> int:
        """How many of its addresses were released and are in cooldown."""
        return sum(self.allocations.count(index) for index, _released_ns in self.attributes.cooling())

    def held(self) -> tuple[Allocation, ...]:
        """Every address that is not free, the lowest first, with those in cooldown and those that the host reserves."""
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
        """Up to ``count`` free ordinals that may be assigned (None: all may), the longest-free first."""
        if may_serve is None:
            return self.free[:count]
        return tuple(islice((n for n in self.free if may_serve(self.prefix.nth(n))), count))

    def assign(self, ordinals: tuple[Ordinal, ...], attribute: Attribute) -> Block:
        """The block with these free ordinals assigned under one attribute."""
        if not ordinals:
            return self.touched()
        allocations, attributes = _pointed(self, ordinals, attribute)
        return Block(  # quicker than evolve, which looks at every field by its name
            prefix=self.prefix,
            owner=self.owner,
            claim_time_ns=self.claim_time_ns,
            allocations=tuple(allocations),
            free=_left(self.free, ordinals),
            attributes=attributes,
            sequence=self.sequence + 1,
            sequences=_numbered(self.sequences, ordinals, self.sequence),
            unknown_json=self.unknown_json,
        )

    def release(self, ordinals: frozenset[Ordinal], *, cooling_from_ns: int | None = None) -> Block:
        """The block with these held ordinals released.

        Without a cooldown they are free at once, behind those that are free already. Else they are in cooldown from
        ``cooling_from_ns`` until ``expire_cooldown`` frees them.
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
        """The block with those addresses free whose cooldown has expired; the same object if nothing changes.

        A release time in the future comes from another host's clock: it counts as now. The sequence number stays the
        same; the change that is stored with this increases it.
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
        """The block with another attribute for this held ordinal; other ordinals keep the old one."""
        allocations, attributes = _pruned(*_pointed(self, (ordinal,), attribute))
        return evolve(self, allocations=allocations, attributes=attributes, sequence=self.sequence + 1)

    def touched(self) -> Block:
        """The same block to be stored again: its new revision makes an unfinished release of it fail."""
        return evolve(self, sequence=self.sequence + 1)

    def claimed(self, owner: str, now_ns: int) -> Block:
        """The block claimed by an owner now."""
        return evolve(self, owner=owner, claim_time_ns=_whole_seconds(now_ns), sequence=self.sequence + 1)

    def relinquished(self) -> Block:
        """The block without an owner."""
        return evolve(self, owner="", claim_time_ns=None, sequence=self.sequence + 1)

    def taken_over(self, owner: str, now_ns: int, host_reserved: tuple[int, int] = (0, 0)) -> Block:
        """This empty block for its next owner: the addresses that the new host reserves are held, all others free.

        The order of the free ordinals stays, so that a recently released address is not assigned next.
        """
        new = Block.new(self.prefix, owner=owner, now_ns=now_ns, host_reserved=host_reserved)
        queue = dict.fromkeys((*self.free, *new.free))
        return evolve(
            new,
            free=tuple(ordinal for ordinal in queue if new.allocations[ordinal] is None),
            sequence=self.sequence + 1,
            unknown_json=self.unknown_json,
        )

    @property
    def has_unused_attributes(self) -> bool:
        """Whether each allocation names an attribute, and some attribute is named by none."""
        return set(self.allocations) - {None} < set(range(len(self.attributes)))

    def pruned(self) -> Block:
        """The block without attributes that no allocation uses."""
        allocations, attributes = _pruned(list(self.allocations), self.attributes)
        return evolve(self, allocations=allocations, attributes=attributes)

    def problem(self, now_ns: int | None = None) -> str:
        """What is inconsistent in the block, and with ``now_ns`` also in its release times; empty if nothing is."""
        size, indexes = len(self.allocations), set(self.allocations) - {None}
        if size != self.prefix.size:
            return f"allocations: {size} entries for {self.prefix.size} addresses"
        unknown = indexes - set(range(len(self.attributes)))
        if unknown:
            ordinal = next(n for n, index in enumerate(self.allocations) if index in unknown)
            index = self.allocations[ordinal]
            return f"allocations[{ordinal}]: {index} is none of the {len(self.attributes)} attributes"
        if len(indexes) != len(self.attributes):
            unused = next(index for index in range(len(self.attributes)) if index not in indexes)
            return f"attributes[{unused}]: it is used by no allocation"
        expected = [n for n, index in enumerate(self.allocations) if index is None]
        if sorted(self.free) != expected:
            return _queue_problem(self.free, frozenset(expected))
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


def _queue_problem(queue: tuple[Ordinal, ...], expected: frozenset[int]) -> str:
    """What is wrong with a queue of free ordinals that does not hold each expected ordinal once."""
    seen: set[int] = set()
    for place, ordinal in enumerate(queue):
        if ordinal not in expected:
            return f"unallocated[{place}]: {ordinal} is not free, or is no ordinal of the block"
        if ordinal in seen:
            return f"unallocated[{place}]: {ordinal} stands there twice"
        seen.add(ordinal)
    return f"unallocated: {min(expected - seen)} is free and is not listed"


def _pointed(block: Block, ordinals: Iterable[int], attribute: Attribute) -> tuple[list[int | None], Attributes]:
    """Allocations and attributes with these ordinals under one attribute; an attribute may be left unused."""
    index, attributes = block.attributes.find(attribute), block.attributes
    if index is None:
        index, attributes = len(attributes), attributes.plus(attribute)
    allocations = list(block.allocations)
    for ordinal in ordinals:
        allocations[ordinal] = index
    return allocations, attributes


def _freed(block: Block, ordinals: frozenset[Ordinal], sequence: int) -> Block:
    """The block with held ordinals free, and this sequence number."""
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
    """The same allocations, without attributes that no ordinal uses."""
    used = set(allocations)
    kept = [index for index in range(len(attributes)) if index in used]
    renumbered: dict[int | None, int | None] = {None: None, **{old: new for new, old in enumerate(kept)}}
    return tuple(map(renumbered.__getitem__, allocations)), attributes.only(kept)


def _stamped_now(block: Block, indexes: list[int], now_ns: int) -> Block:
    """The block with the release times of some entries set to now; entries that become equal are merged."""
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
    """The free ordinals without those taken; mostly the first ones are taken."""
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
    """A time as it is stored, in whole seconds."""
    return time_ns - time_ns % SECOND_NS


BLOCK: Kind[Block] = Kind("IPAMBlock", ("family", "cidr"), is_large=True)
FULL = ValueCondition("full", lambda value: isinstance(value, Block) and value.is_full)


def blocks_path(family: Family) -> tuple[str, ...]:
    """The first segments of the keys of a family's blocks."""
    return (f"ipv{family.value}",)


def block_key(prefix: Prefix) -> Key[Block]:
    """The key of the block with that prefix."""
    return block_query(prefix).key


@lru_cache(maxsize=16_384)  # equal queries are the same object, so that a lookup need not compare them
def block_query(prefix: Prefix) -> Get[Block]:
    """The query for the block with that prefix."""
    return Get(BLOCK.key(*blocks_path(prefix.family), str(prefix)))


# --- handle ----------------------------------------------------------------------------------------------------------


# --- affinity --------------------------------------------------------------------------------------------------------


class AffinityState(enum.Enum):
    """How far claiming or relinquishing a block has come."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    PENDING_DELETION = "pendingDeletion"


@frozen(kw_only=True)
class Affinity:
    """One node's claim on one block; node and block are in its key."""

    state: AffinityState
    unknown_json: str = ""


AFFINITY: Kind[Affinity] = Kind("BlockAffinity", ("type", "name", "family", "cidr"))


def host_owner(node: str) -> str:
    """How a block names the node that owns it."""
    return f"host:{node}"


def owner_node(owner: str) -> str:
    """The name of the node that is an owner; empty without an owner, or if the owner is not a node."""
    kind, _, name = owner.partition(":")
    return name if kind == "host" else ""


def affinities_path(owner: str, family: Family) -> tuple[str, ...]:
    """The first segments of the keys of an owner's affinities of a family."""
    kind, _, name = owner.partition(":")
    return (kind, name, f"ipv{family.value}")


@lru_cache(maxsize=16_384)  # equal queries are the same object, so that a lookup need not compare them
def affinities_query(owner: str, family: Family) -> List[Affinity]:
    """The query for all affinities of an owner to blocks of a family; a cache of the store may answer it."""
    return List(AFFINITY, affinities_path(owner, family), may_be_cached=True)


@lru_cache(maxsize=1024)
def current_affinities_query(owner: str, family: Family) -> List[Affinity]:
    """The same query, answered without a cache."""
    return List(AFFINITY, affinities_path(owner, family))


def affinity_key(owner: str, prefix: Prefix) -> Key[Affinity]:
    """The key of an owner's affinity to the block with that prefix."""
    return AFFINITY.key(*affinities_path(owner, prefix.family), str(prefix))


def claiming_owner(key: Key[Affinity]) -> str:
    """The owner of an affinity, as blocks name it."""
    kind, name, *_rest = key.path
    return f"{kind}:{name}"


def claimed_block(key: Key[Affinity]) -> Prefix:
    """The prefix of the block that an affinity names.

    Raises:
        Malformed: the key names no prefix.
    """
    try:
        return _parsed(key.name)
    except ValueError as error:
        raise Malformed(str(key), str(error)) from None


@lru_cache(maxsize=16_384)  # a node parses its few keys for every address; a simulation has thousands of nodes
def _parsed(text: str) -> Prefix:
    return Prefix.parse(text)


# --- handle ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Handle:
    """How many addresses are held in which blocks: pairs sorted by block, each count above 0.

    ``sequence`` grows with a write that changes no count (``touched``).
    """

    blocks: tuple[tuple[Prefix, int], ...] = ()
    sequence: int = 0
    unknown_json: str = ""

    def with_count(self, prefix: Prefix, count: int) -> Handle:
        """This handle with that count for one block; 0 forgets the block."""
        blocks = [pair for pair in self.blocks if pair[0] != prefix]
        if count:
            blocks.append((prefix, count))
        return Handle(blocks=tuple(sorted(blocks)), sequence=self.sequence, unknown_json=self.unknown_json)

    def touched(self) -> Handle:
        """The same handle to be stored again: its new revision makes an unfinished deletion of it fail.

        An API server keeps the revision of a record that does not change.
        """
        return evolve(self, sequence=self.sequence + 1)

    def count(self, prefix: Prefix) -> int:
        """How many addresses it holds in a block; 0 for a block it does not know."""
        return next((count for known, count in self.blocks if known == prefix), 0)


HANDLE: Kind[Handle] = Kind("IPAMHandle", ("id",))


def handle_key(handle_id: str) -> Key[Handle]:
    """The key of the handle with that id."""
    return handle_query(handle_id).key


@lru_cache(maxsize=256)  # equal queries are the same object, so that a lookup need not compare them
def handle_query(handle_id: str) -> Get[Handle]:
    """The query for the handle with that id."""
    return Get(HANDLE.key(handle_id))
