"""The decision of a release by address: for ``netplugctl``, the collector, and addresses without a handle.

The pool leads to the block of an address, also a disabled pool. If there is no such block, all blocks are searched: the
pool of the address may be gone, or may have been created again with another block size. An item may name the handle and
the sequence number of its address; if one does not match, nothing in that block is released. An address that is already
free counts as done, whatever the item names: a release that is repeated after a lost reply finds its addresses free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError
from netplug_core.ipam.allocation.block_listing import all_blocks
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.ipam.model.block import Allocation, Block, block_key
from netplug_core.ipam.model.handle import handle_key
from netplug_core.ipam.outcome.refusals import HandleMismatch, SequenceMismatch
from netplug_core.records import Decision, Delete, Get, List, NeedMore, Query, Record, Snapshot, Update, Write
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY
from netplug_core.resources.ippool import IPPOOL

__all__ = ["blocks_of", "decide_release_addresses", "release_addresses_queries"]

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
