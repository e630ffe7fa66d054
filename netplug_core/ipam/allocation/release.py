"""Decisions that free addresses: all of a handle, or single ones; and who holds an address.

A release writes whole blocks first and the handle last, so that a crash in between leaves what the next release
finishes. A change of the owners that are stored with an address is a compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, ConfigurationError
from netplug_core.ipam.allocation.acquire import all_blocks, find_overlap
from netplug_core.ipam.allocation.context import RELEASES_PER_DECISION
from netplug_core.ipam.allocation.pools import Cooldown, find_configuration
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem, ReleaseRequest
from netplug_core.ipam.model import (
    Affinity,
    AffinityState,
    Allocation,
    Block,
    Handle,
    Pairs,
    affinity_key,
    block_key,
    block_query,
    handle_key,
    host_owner,
)
from netplug_core.ipam.outcome import HandleMismatch, SequenceMismatch
from netplug_core.records import (
    ABSENT,
    Create,
    Decision,
    Delete,
    Get,
    List,
    Malformed,
    NeedMore,
    Query,
    Record,
    Require,
    Revision,
    Snapshot,
    Update,
    Write,
)
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL

__all__ = [
    "NO_REVISION", "AddressHolder", "OwnerChange", "OwnerMismatch", "PartRelease", "allocations", "blocks_of",
    "decide_owner", "decide_release", "decide_release_addresses", "find_holder_of", "held", "owner_queries",
    "release_addresses_queries", "release_queries",
]  # fmt: skip


# --- of a handle ------------------------------------------------------------------------------------------------------


V = TypeVar("V")


@frozen(kw_only=True)
class PartRelease:
    """What one commit of a release frees. The next one goes on behind the block ``last``; None if this was the last.

    ``damaged``: a block of the handle cannot be read, so what the handle holds there stays held, and the handle stays.
    """

    addresses: tuple[Address, ...]
    last: Prefix | None = None
    damaged: Malformed | None = None


def release_queries(request: ReleaseRequest) -> tuple[Query, ...]:
    """What to read before the first ``decide_release``."""
    return (Get(IPAM_CONFIGURATION_KEY), Get(handle_key(request.handle)))


def decide_release(
    snapshot: Snapshot, request: ReleaseRequest, now_ns: int, after: Prefix | None = None
) -> Decision[PartRelease] | NeedMore:
    """Free the addresses that the handle holds in its first blocks behind ``after``: as many blocks as a commit takes.

    The handle goes with the last of them, unless it holds addresses in a block that cannot be read. A handle that does
    not exist has none. A decision that frees nothing
    needs a read: an endpoint that goes with it would confirm nothing of a handle that is out of date.
    """
    handle = snapshot.find(query := Get(handle_key(request.handle)))
    if handle is None:
        return Decision((), PartRelease(addresses=()), needs_read=True, depends_on=(query,))
    found = _find_blocks(snapshot, request, blocks := _next_blocks(handle.value, after))
    if isinstance(found, NeedMore):
        return found
    configuration = find_configuration(snapshot)
    cooldown = Cooldown.configured(configuration, now_ns)
    conditions: list[Write] = [Require(IPAM_CONFIGURATION_KEY, configuration.revision if configuration else ABSENT)]
    writes: list[Write] = []
    left, is_short = handle.value, False
    released: list[Address] = []
    damaged = tuple(record for record in found if isinstance(record, Malformed))
    for (prefix, count), record in zip(blocks, found, strict=True):
        if isinstance(record, Malformed):
            continue
        ours = record.value.held_by(request.handle) if record else ()
        going = tuple(held for held in ours if request.sequence in (None, held.sequence))
        is_overcounted = len(ours) < count  # after a crash, or where a cached block is older than the handle
        if record is not None and (going or is_overcounted):
            writes.append(cooldown.release(record, going))
        elif record is None:
            writes.extend(_creation(snapshot, request, prefix, now_ns))
        elif len(ours) != count:  # the count is corrected to a block that may be cached, and older than the handle
            conditions.append(Require(record.key, record.revision))
        is_short |= is_overcounted
        released.extend(held.address for held in going)
        left = left.with_count(prefix, len(ours) - len(going))
    if left != handle.value:
        writes.append(_handle_write(handle, left))
    elif not left.blocks:
        writes.append(Delete(handle.key, handle.revision))
    last = blocks[-1][0] if blocks and blocks[-1] != handle.value.blocks[-1] else None
    result = PartRelease(addresses=tuple(released), last=last, damaged=damaged[0] if damaged else None)
    return Decision((*conditions, *writes) if writes else (), result, needs_read=is_short or not writes)


def _next_blocks(handle: Handle, after: Prefix | None) -> tuple[tuple[Prefix, int], ...]:
    """As many blocks as a commit takes."""
    following = handle.blocks if after is None else (pair for pair in handle.blocks if pair[0] > after)
    return tuple(islice(following, RELEASES_PER_DECISION))


def _find_blocks(
    snapshot: Snapshot, request: ReleaseRequest, blocks: tuple[tuple[Prefix, int], ...]
) -> tuple[Record[Block] | Malformed | None, ...] | NeedMore:
    """Some blocks, each None if it is not stored; or what to read first, also for the creation of those.

    A block that cannot be read, or may be about to be created under an affinity that cannot be, is its error.
    """
    unread: list[Query] = []
    found = [_find_or_note(snapshot, block_query(prefix), unread) for prefix, _count in blocks]
    if not unread and request.node and None in found:
        owner = host_owner(request.node)
        for place, (prefix, _count) in enumerate(blocks):
            if found[place] is None:
                affinity = _find_or_note(snapshot, Get(affinity_key(owner, prefix)), unread)
                if isinstance(affinity, Malformed):
                    found[place] = affinity
                    continue
                overlap = _find_overlap(snapshot, prefix) if _is_pending(affinity) else None
                unread.extend(overlap.queries if isinstance(overlap, NeedMore) else ())
    return NeedMore(tuple(unread)) if unread else tuple(found)


def _find_or_note(snapshot: Snapshot, query: Get[V], unread: list[Query]) -> Record[V] | Malformed | None:
    try:
        return snapshot.find_or_note(query, unread)
    except Malformed as error:
        return error


def _creation(snapshot: Snapshot, request: ReleaseRequest, prefix: Prefix, now_ns: int) -> tuple[Write, ...]:
    """The creation of a block that the node was about to create when it was killed: its own late creation then fails.

    Only a pending affinity leads to such a block. The node uses the block at its next request, or the collector deletes
    it. Nothing is created over a block of another size.
    """
    owner = host_owner(request.node)
    affinity = snapshot.find(affinity_key(owner, prefix)) if request.node else None
    if not _is_pending(affinity) or _find_overlap(snapshot, prefix) is not None:
        return ()
    return (Create(block_key(prefix), Block.new(prefix, owner=owner, now_ns=now_ns)),)


def _is_pending(affinity: Record[Affinity] | None) -> bool:
    return affinity is not None and affinity.value.state is AffinityState.PENDING


def _find_overlap(snapshot: Snapshot, prefix: Prefix) -> Prefix | NeedMore | None:
    return find_overlap(snapshot, prefix)


def _handle_write(handle: Record[Handle], left: Handle) -> Write:
    """The handle with what it still holds; it is deleted with its last address."""
    return Update(handle.key, left, handle.revision) if left.blocks else Delete(handle.key, handle.revision)


def held(snapshot: Snapshot, handle_id: str) -> tuple[Address, ...] | NeedMore:
    """The addresses that a handle holds, or the blocks to read first."""
    found = allocations(snapshot, handle_id)
    return found if isinstance(found, NeedMore) else tuple(allocation.address for allocation in found)


def allocations(snapshot: Snapshot, handle_id: str) -> tuple[Allocation, ...] | NeedMore:
    """The allocations of a handle, or the blocks to read first."""
    handle = snapshot.find(handle_key(handle_id))
    blocks = handle.value.blocks if handle else ()
    unread: list[Query] = []
    records = [snapshot.find_or_note(block_query(prefix), unread) for prefix, _count in blocks]
    if unread:
        return NeedMore(tuple(unread))
    return tuple(found for record in records if record for found in record.value.held_by(handle_id))


# --- of single addresses ----------------------------------------------------------------------------------------------


_POOLS = List(IPPOOL)


def release_addresses_queries() -> tuple[Query, ...]:
    """What ``decide_release_addresses`` reads first."""
    return (_POOLS, Get(IPAM_CONFIGURATION_KEY))


def decide_release_addresses(
    snapshot: Snapshot, items: Sequence[ReleaseItem], now_ns: int
) -> Decision[AddressesReleased] | NeedMore:
    """Release the addresses that are assigned as the items describe. Each address is in the result once."""
    blocks = blocks_of(snapshot, tuple(item.address for item in items))
    if isinstance(blocks, NeedMore):
        return blocks
    released: list[Allocation] = []
    free_already: set[Address] = set()
    refused: list[AllocationError] = []
    changes: list[tuple[Record[Block], tuple[Allocation, ...]]] = []
    for record, of_block in _by_block(items, blocks):
        if record is None:
            free_already.update(item.address for item in of_block)
            continue
        found = [(item, record.value.find(item.address)) for item in of_block]
        mismatches = [problem for item, held in found if held and (problem := _mismatch(item, held))]
        if mismatches:
            refused.extend(mismatches)
            continue
        released_now = {held.ordinal: held for _item, held in found if held and not held.is_cooling}
        free_already.update(item.address for item, held in found if held is None or held.is_cooling)
        if released_now:
            changes.append((record, tuple(released_now.values())))
            released.extend(released_now.values())
    handles = sorted({held.attribute.handle for held in released if held.attribute.handle is not None})
    needed = tuple(query for query in (Get(handle_key(handle)) for handle in handles) if not snapshot.has(query))
    if needed:
        return NeedMore(needed)
    writes = (*_block_writes(snapshot, changes, now_ns), *_handle_writes(snapshot, handles, changes))
    result = AddressesReleased(
        released=tuple(sorted(held.address for held in released)),
        free_already=tuple(sorted(free_already)),
        refused=tuple(refused),
    )
    return Decision(writes, result)


def _mismatch(item: ReleaseItem, held: Allocation) -> AllocationError | None:
    if held.is_cooling:
        return None
    if item.sequence is not None and item.sequence != held.sequence:
        return SequenceMismatch(item.address, item.sequence, held.sequence)
    if item.handle is not None and item.handle != held.attribute.handle:
        return HandleMismatch(item.address, item.handle, held.attribute.handle)
    return None


def _block_writes(
    snapshot: Snapshot, changes: Iterable[tuple[Record[Block], tuple[Allocation, ...]]], now_ns: int
) -> tuple[Write, ...]:
    cooldown = Cooldown.of(snapshot, now_ns)
    return tuple(cooldown.release(record, allocations) for record, allocations in changes)


def _handle_writes(
    snapshot: Snapshot, handles: Iterable[str], changes: Iterable[tuple[Record[Block], tuple[Allocation, ...]]]
) -> tuple[Write, ...]:
    """Each handle with its new counts; a handle that holds nothing any more is deleted."""
    changes = tuple(changes)
    writes: list[Write] = []
    for handle_id in handles:
        handle = snapshot.find(handle_key(handle_id))
        if handle is None:
            continue
        changed = handle.value
        for record, allocations in changes:
            count = sum(held.attribute.handle == handle_id for held in allocations)
            changed = changed.with_count(record.value.prefix, len(record.value.held_by(handle_id)) - count)
        if changed.blocks:
            writes.append(Update(handle.key, changed, handle.revision))
        else:
            writes.append(Delete(handle.key, handle.revision))
    return tuple(writes)


# --- which blocks -----------------------------------------------------------------------------------------------------


def _by_block(
    items: Sequence[ReleaseItem], blocks: Mapping[Address, Record[Block] | None]
) -> list[tuple[Record[Block] | None, list[ReleaseItem]]]:
    """The items of each block, in the order of their first addresses; items without a block are one group."""
    grouped: dict[Prefix | None, tuple[Record[Block] | None, list[ReleaseItem]]] = {}
    for item in sorted(set(items), key=lambda item: (item.address, item.handle or "", item.sequence or 0)):
        record = blocks[item.address]
        grouped.setdefault(record.value.prefix if record else None, (record, []))[1].append(item)
    return list(grouped.values())


def blocks_of(snapshot: Snapshot, addresses: Sequence[Address]) -> Mapping[Address, Record[Block] | None] | NeedMore:
    """The block of each address, None if there is none; or what has to be read first."""
    pools = [record.value.spec for record in snapshot.readable(_POOLS)]
    found: dict[Address, Record[Block] | None] = {}
    needed: list[Query] = []
    for address in dict.fromkeys(addresses):
        possible = [Prefix.at(address, pool.block_length) for pool in pools if pool.prefix.contains(address)]
        unread = [query for query in (Get(block_key(prefix)) for prefix in possible) if not snapshot.has(query)]
        needed.extend(unread)
        if not unread:
            records = (snapshot.find(block_key(prefix)) for prefix in possible)
            found[address] = next((record for record in records if record is not None), None)
    if needed:
        return NeedMore(tuple(dict.fromkeys(needed)))
    for family in Family:
        left = [address for address, record in found.items() if address.family is family and record is None]
        everything = all_blocks(snapshot, family) if left else {}
        if isinstance(everything, NeedMore):
            return everything
        for address in left:
            found[address] = next((block for prefix, block in everything.items() if prefix.contains(address)), None)
    return found


# --- who holds an address ---------------------------------------------------------------------------------------------


NO_REVISION = Revision("")
"""The revision of a block that does not exist."""


@frozen(kw_only=True)
class AddressHolder:
    """What is stored about an address: its block and its allocation, each None if there is none.

    ``revision`` is that of the block; ``NO_REVISION`` without a block.
    """

    address: Address
    block: Block | None = None
    revision: Revision = NO_REVISION
    allocation: Allocation | None = None

    @property
    def is_cooling(self) -> bool:
        """Whether it was released, and its cooldown has not expired."""
        return self.allocation is not None and self.allocation.is_cooling


@frozen(kw_only=True)
class OwnerChange:
    """The new owner of an address, and its new alternate owner; None leaves one as it is.

    ``handle`` must hold the address. ``expected`` and ``expected_alternate``, if given, must be stored now.
    """

    address: Address
    handle: str
    owner: Pairs | None = None
    alternate: Pairs | None = None
    expected: Pairs | None = None
    expected_alternate: Pairs | None = None


@frozen
class OwnerMismatch(ConfigurationError):
    """The stored owner of an address is not the one that the change expects."""

    def __str__(self) -> str:
        return f"{self.where} is owned by {self.value}, not by {self.accepted}: nothing is changed"


def owner_queries() -> tuple[Query, ...]:
    """What to read before ``find_holder_of`` and ``decide_owner``."""
    return release_addresses_queries()


def find_holder_of(snapshot: Snapshot, address: Address) -> AddressHolder | NeedMore:
    """The holder of an address, in any pool and in blocks outside all pools."""
    blocks = blocks_of(snapshot, (address,))
    if isinstance(blocks, NeedMore):
        return blocks
    record = blocks[address]
    if record is None:
        return AddressHolder(address=address)
    block = record.value
    return AddressHolder(address=address, block=block, revision=record.revision, allocation=block.find(address))


def decide_owner(snapshot: Snapshot, change: OwnerChange) -> Decision[AddressHolder] | NeedMore:
    """Change the stored owners of an address; nothing is written if they do not change."""
    if change.owner is None and change.alternate is None:
        where = f"the owner of {change.address}"
        return Decision((), ConfigurationError(where, None, "name a new owner or a new alternate owner"))
    found = find_holder_of(snapshot, change.address)
    if isinstance(found, NeedMore):
        return found
    held, block = found.allocation, found.block
    if held is None or block is None or held.attribute.handle != change.handle:
        return Decision((), HandleMismatch(change.address, change.handle, held.attribute.handle if held else None))
    attribute = held.attribute
    for expected, stored in ((change.expected, attribute.owner), (change.expected_alternate, attribute.alternate)):
        if expected is not None and expected != stored:
            return Decision((), OwnerMismatch(str(change.address), dict(stored), str(dict(expected))))
    wanted = evolve(
        attribute,
        owner=attribute.owner if change.owner is None else change.owner,
        alternate=attribute.alternate if change.alternate is None else change.alternate,
    )
    if wanted == attribute:
        return Decision((), found)
    changed = block.with_attribute(held.ordinal, wanted)
    result = evolve(found, block=changed, allocation=changed.find(change.address))
    # After a lost reply, a change with expectations would find its own write and refuse it.
    repeatable = change.expected is None and change.expected_alternate is None
    return Decision((Update(block.key, changed, found.revision),), result, is_repeatable=repeatable)
