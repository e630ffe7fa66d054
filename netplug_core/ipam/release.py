"""The decision of a release: everything a handle holds becomes free.

It reads the handle, its blocks and the ready flag, never pools or nodes: those may be gone. Each release puts its own
handle right, whatever an earlier crash left in it.
"""

from __future__ import annotations

from netplug_core.addressing import Address
from netplug_core.ipam.block import block_key
from netplug_core.ipam.decide import locked, still_ready
from netplug_core.ipam.handle import handle_key
from netplug_core.ipam.request import Released, ReleaseRequest
from netplug_core.records import Decision, Delete, Get, NeedMore, Query, Snapshot, Update, Write
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY

__all__ = ["decide_release", "held", "release_queries"]


def release_queries(request: ReleaseRequest) -> tuple[Query, ...]:
    """What to read before the first ``decide_release``."""
    return (Get(CLUSTER_INFORMATION_KEY), Get(handle_key(request.handle)))


def decide_release(snapshot: Snapshot, request: ReleaseRequest) -> Decision[Released] | NeedMore:
    """Free every address of the handle; a handle that is not there is a release of nothing."""
    refusal = locked(snapshot)
    if refusal is not None:
        return Decision((), refusal)
    found = held(snapshot, request.handle)
    if isinstance(found, NeedMore):
        return found
    handle = snapshot.find(handle_key(request.handle))
    writes: list[Write] = []
    for prefix, _count in handle.value.blocks if handle else ():
        record = snapshot.find(block_key(prefix))
        ours = record.value.held_by(request.handle) if record else ()
        if record is None or not ours:
            continue
        block = record.value.release(frozenset(allocation.ordinal for allocation in ours))
        # A block without an owner goes with its last address; an owned one is given up by its node or the collector.
        if block.is_empty and not block.owner:
            writes.append(Delete(record.key, record.revision))
        else:
            writes.append(Update(record.key, block, record.revision))
    if handle is not None:
        writes = [still_ready(snapshot), *writes, Delete(handle.key, handle.revision)]
    return Decision(tuple(writes), Released(addresses=found))


def held(snapshot: Snapshot, handle_id: str) -> tuple[Address, ...] | NeedMore:
    """The addresses that a handle holds, or the blocks to read first."""
    handle = snapshot.find(handle_key(handle_id))
    blocks = handle.value.blocks if handle else ()
    missing = tuple(query for query in (Get(block_key(prefix)) for prefix, _ in blocks) if not snapshot.has(query))
    if missing:
        return NeedMore(missing)
    found: list[Address] = []
    for prefix, _count in blocks:
        record = snapshot.find(block_key(prefix))
        found.extend(allocation.address for allocation in (record.value.held_by(handle_id) if record else ()))
    return tuple(found)
