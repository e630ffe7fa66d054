"""The decision of a release address by address: for people, the collector, and holders without a handle.

Which pool an address is of does not matter much: disabled pools count, and where no pool leads to its block all blocks
are searched. An item may describe its address by handle and sequence number; if one does not fit, nothing of that block
is touched. An address that is free already is done, whatever the item says of it: that is what a release whose reply
was lost looks like when it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError
from netplug_core.ipam.allocation.block_listing import all_blocks
from netplug_core.ipam.allocation.cooldown import Cooldown
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
    """What to read before the first ``decide_release_addresses``."""
    return (_POOLS, Get(IPAM_CONFIGURATION_KEY))


def decide_release_addresses(
    snapshot: Snapshot, items: Sequence[ReleaseItem], now_ns: int
) -> Decision[AddressesReleased] | NeedMore:
    """Free the addresses that are held as described; one answer for each address, however often it is named."""
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
        going = {held.ordinal: held for _item, held in found if held and not held.is_cooling}
        free_already.update(item.address for item, held in found if held is None or held.is_cooling)
        if going:
            changes.append((record, tuple(going.values())))
            released.extend(going.values())
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
    cooling = Cooldown.of(snapshot, now_ns)
    return tuple(cooling.release(record, going) for record, going in changes)


def _handle_writes(
    snapshot: Snapshot, handles: Iterable[str], changes: Iterable[tuple[Record[Block], tuple[Allocation, ...]]]
) -> tuple[Write, ...]:
    """Each handle with what it still holds in the changed blocks; one that holds nothing any more goes."""
    changes = tuple(changes)
    writes: list[Write] = []
    for handle_id in handles:
        handle = snapshot.find(handle_key(handle_id))
        if handle is None:
            continue
        left = handle.value
        for record, going in changes:
            gone = sum(held.attribute.handle == handle_id for held in going)
            left = left.with_count(record.value.prefix, len(record.value.held_by(handle_id)) - gone)
        if left.blocks:
            writes.append(Update(handle.key, left, handle.revision))
        else:
            writes.append(Delete(handle.key, handle.revision))
    return tuple(writes)


# --- which blocks -----------------------------------------------------------------------------------------------------


def _by_block(
    items: Sequence[ReleaseItem], blocks: Mapping[Address, Record[Block] | None]
) -> list[tuple[Record[Block] | None, list[ReleaseItem]]]:
    """The items of each block, blocks in order of their first address; those in no block come first."""
    grouped: dict[Prefix | None, tuple[Record[Block] | None, list[ReleaseItem]]] = {}
    for item in sorted(set(items), key=lambda item: (item.address, item.handle or "", item.sequence or 0)):
        record = blocks[item.address]
        grouped.setdefault(record.value.prefix if record else None, (record, []))[1].append(item)
    return list(grouped.values())


def blocks_of(snapshot: Snapshot, addresses: Sequence[Address]) -> Mapping[Address, Record[Block] | None] | NeedMore:
    """The block that each address lies in, None where there is none; or what to read first."""
    pools = [record.value.spec for record in snapshot.list(_POOLS)]
    found: dict[Address, Record[Block] | None] = {}
    covered: set[Address] = set()
    needed: list[Query] = []
    for address in dict.fromkeys(addresses):
        guesses = [Prefix.at(address, pool.block_length) for pool in pools if pool.prefix.contains(address)]
        unread = [query for query in (Get(block_key(guess)) for guess in guesses) if not snapshot.has(query)]
        needed.extend(unread)
        covered.update([address] if guesses else [])
        if not unread:
            records = (snapshot.find(block_key(guess)) for guess in guesses)
            found[address] = next((record for record in records if record is not None), None)
    if needed:
        return NeedMore(tuple(dict.fromkeys(needed)))
    for family in Family:
        lost = [address for address in found if address.family is family and address not in covered]
        everything = all_blocks(snapshot, family) if lost else {}
        if isinstance(everything, NeedMore):
            return everything
        for address in lost:
            found[address] = next((block for prefix, block in everything.items() if prefix.contains(address)), None)
    return found
