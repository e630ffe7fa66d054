"""One address that is asked for by name. ``decide`` calls ``allocate_specific``.

Selectors, assignmentMode, reservations and block limits do not count for it. That the pool is enabled, the stated use
and strict affinity do.
"""

from __future__ import annotations

from collections.abc import Sequence

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.ipam.allocation.acquire import find_overlap
from netplug_core.ipam.allocation.context import AllocationContext, FamilyOutcome, held_addresses, link_reserved
from netplug_core.ipam.allocation.ownership import Purpose
from netplug_core.ipam.allocation.pools import pool_of_address
from netplug_core.ipam.allocation.request import AssignedAddress, LinkLayer, Specific
from netplug_core.ipam.model import Block, affinity_key, block_key
from netplug_core.ipam.outcome import (
    AddressCooling,
    AddressTaken,
    AllocationRule,
    BlockOutcome,
    BlockTrace,
    BlockUnusable,
    RuleTrace,
    StrictAffinity,
)
from netplug_core.records import Get, NeedMore, Record
from netplug_core.resources.ippool import IPPool

__all__ = ["allocate_specific"]


def allocate_specific(context: AllocationContext, wanted: Specific) -> FamilyOutcome | NeedMore:
    """The block to take the one address from, the address if the handle holds it already, or why it cannot be had."""
    held = held_addresses(context, wanted.family)
    same = tuple(assigned for assigned in held if assigned.address == wanted.address)
    if same:
        return FamilyOutcome(held=same)
    pool = _pool(context, wanted, held)
    if isinstance(pool, NetplugError):
        return FamilyOutcome(refusal=pool)
    snapshot, prefix = context.snapshot, Prefix.at(wanted.address, pool.value.spec.block_length)
    needed = (Get(block_key(prefix)), Get(affinity_key(context.claimant.owner, prefix)))
    if not all(snapshot.has(query) for query in needed):
        return NeedMore(needed)
    record = snapshot.find(block_key(prefix))
    refusal = _taken(context, wanted, record.value) if record else _not_in_new_block(context, wanted, prefix)
    if refusal is not None:
        return refusal if isinstance(refusal, NeedMore) else FamilyOutcome(refusal=refusal)
    purpose = Purpose.SPECIFIC_STRICT if context.settings.is_affinity_strict else Purpose.SPECIFIC
    affinity = snapshot.find(affinity_key(context.claimant.owner, prefix))
    candidate = context.claimant.find_candidate(purpose, pool, prefix, record, affinity)
    if candidate is None:
        owner = record.value.owner if record else ""
        entry = BlockTrace(block=prefix, outcome=BlockOutcome.NOT_AFFINE, detail=owner)
        rule = RuleTrace(rule=AllocationRule.STRICT_AFFINITY)
        return FamilyOutcome(refusal=StrictAffinity(wanted.address, entry, rule))
    taken = candidate.with_ordinals((Ordinal(prefix.offset(wanted.address)),))
    return FamilyOutcome(candidates=(taken,), trace=(BlockTrace(block=prefix, outcome=taken.outcome),))


def _taken(context: AllocationContext, wanted: Specific, stored: Block) -> NetplugError | None:
    """Why an address of a block is not free; None if it is."""
    block = context.claimant.cooldown.expire(stored)
    allocation = block.find(wanted.address)
    if allocation is None:
        if not block.is_at_size_limit:
            return None
        return BlockUnusable(wanted.address, BlockTrace(block=block.prefix, outcome=BlockOutcome.TOO_LARGE))
    if allocation.is_cooling:
        return AddressCooling(wanted.address, block.prefix, context.settings.cooldown_s)
    attribute = allocation.attribute
    return AddressTaken(wanted.address, block.prefix, attribute.handle, attribute.owner)


def _not_in_new_block(context: AllocationContext, wanted: Specific, prefix: Prefix) -> NetplugError | NeedMore | None:
    """Why the block of an address cannot be created, or why its host reserves the address; None if neither is so."""
    overlap = find_overlap(context.snapshot, prefix)
    if overlap is None:
        return _taken(context, wanted, context.claimant.new_block(prefix))
    if isinstance(overlap, NeedMore):
        return overlap
    entry = BlockTrace(block=prefix, outcome=BlockOutcome.OVERLAPPED, detail=str(overlap))
    return BlockUnusable(wanted.address, entry)


def _pool(
    context: AllocationContext, wanted: Specific, held: Sequence[AssignedAddress]
) -> Record[IPPool] | NetplugError:
    """The pool that the address lies in, or why the address is refused before its block is looked at."""
    maximum = context.request.max_per_handle
    if maximum is not None and len(held) >= maximum:
        others = ", ".join(str(assigned.address) for assigned in held) or "none"
        return ConfigurationError("the maximum per handle", maximum, f"the handle holds {others} already")
    pool = pool_of_address(context.pools, wanted, context.request.use)
    if isinstance(pool, NetplugError):
        return pool
    prefix = pool.value.spec.prefix
    if context.request.link_layer is LinkLayer.L2 and wanted.address in link_reserved(prefix):
        rule = f"on a link the first two addresses of {prefix} and the last one can be nobody's"
        return ConfigurationError("the requested IP address", str(wanted.address), rule)
    return pool
