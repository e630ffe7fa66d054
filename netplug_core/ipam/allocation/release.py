"""The decision to release a handle: its addresses become free, at once or when their cooldown has expired.

It reads the handle, its blocks and the configuration, never pools or nodes, which may be gone. Each release corrects
its own handle, whatever an earlier crash left in it.
"""

from __future__ import annotations

from netplug_core.addressing import Address
from netplug_core.ipam.allocation.cooldown import Cooldown
from netplug_core.ipam.allocation.request import Released, ReleaseRequest
from netplug_core.ipam.model.block import Allocation, block_key
from netplug_core.ipam.model.handle import Handle, handle_key
from netplug_core.records import (
    ABSENT,
    Decision,
    Delete,
    Get,
    NeedMore,
    Query,
    Record,
    Require,
    Snapshot,
    Update,
    Write,
)
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY

__all__ = ["allocations", "decide_release", "held", "release_queries"]


def release_queries(request: ReleaseRequest) -> tuple[Query, ...]:
    """What to read before the first ``decide_release``."""
    return (Get(IPAM_CONFIGURATION_KEY), Get(handle_key(request.handle)))


def decide_release(snapshot: Snapshot, request: ReleaseRequest, now_ns: int) -> Decision[Released] | NeedMore:
    """Free every address of the handle; a handle that does not exist has none."""
    found = held(snapshot, request.handle)
    if isinstance(found, NeedMore):
        return found
    handle = snapshot.find(handle_key(request.handle))
    if handle is None:
        return Decision((), Released(addresses=()))
    configuration = snapshot.find(IPAM_CONFIGURATION_KEY)
    cooldown = Cooldown.configured(configuration, now_ns)
    conditions: list[Write] = [Require(IPAM_CONFIGURATION_KEY, configuration.revision if configuration else ABSENT)]
    writes: list[Write] = []
    left, released, is_short = handle.value, list[Address](), False
    for prefix, count in handle.value.blocks:
        record = snapshot.find(block_key(prefix))
        ours = record.value.held_by(request.handle) if record else ()
        going = tuple(held for held in ours if request.sequence in (None, held.sequence))
        if record is not None and going:
            writes.append(cooldown.release(record, going))
        is_short |= len(ours) < count  # after a crash, or where a cached block is older than the handle
        released.extend(held.address for held in going)
        left = left.with_count(prefix, len(ours) - len(going))
    if left != handle.value:
        writes.append(_handle_write(handle, left))
    elif not left.blocks:
        writes.append(Delete(handle.key, handle.revision))
    result = Released(addresses=tuple(released))
    return Decision((*conditions, *writes) if writes else (), result, is_partial=is_short)


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
    missing = tuple(query for query in (Get(block_key(prefix)) for prefix, _ in blocks) if not snapshot.has(query))
    if missing:
        return NeedMore(missing)
    records = (snapshot.find(block_key(prefix)) for prefix, _count in blocks)
    return tuple(found for record in records if record for found in record.value.held_by(handle_id))
