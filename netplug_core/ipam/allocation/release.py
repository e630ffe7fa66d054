"""The decision to release a handle: its addresses become free, at once or when their cooldown has expired.

It reads the handle, its blocks and the configuration, never pools or nodes, which may be gone. Each release corrects
its own handle, whatever an earlier crash left in it.

A handle that counts more than its blocks hold is left by an assignment that was killed. On an ordered store the write
that assigns the addresses may still arrive. So each such block is stored once more before the handle goes: the late
write then finds another revision and fails.
"""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.allocation.context import RELEASES_PER_DECISION
from netplug_core.ipam.allocation.pools import Cooldown, find_configuration
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.ipam.model.affinity import Affinity, AffinityState, affinity_key, host_owner
from netplug_core.ipam.model.block import Allocation, Block, block_key, block_query
from netplug_core.ipam.model.handle import Handle, handle_key
from netplug_core.records import (
    ABSENT,
    Create,
    Decision,
    Delete,
    Get,
    Malformed,
    NeedMore,
    Query,
    Record,
    Require,
    Snapshot,
    Update,
    Write,
)
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY

__all__ = ["PartRelease", "allocations", "decide_release", "held", "release_queries"]

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
        return Decision((), PartRelease(addresses=()), needs_read=True, rests_on=(query,))
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
    from netplug_core.ipam.allocation.block_listing import find_overlap  # most releases create no block

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
