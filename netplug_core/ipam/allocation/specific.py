"""One address that was asked for by name. ``decide`` calls ``allocate_specific``.

Selectors, assignmentMode, reservations and block limits do not count for it; that the pool is enabled, the stated use
and strict affinity do.
"""

from __future__ import annotations

from collections.abc import Sequence

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.ipam.allocation.automatic import FamilyOutcome, held_addresses
from netplug_core.ipam.allocation.context import Acquisition, AllocationContext, BlockCandidate, link_reserved
from netplug_core.ipam.allocation.pools import pool_of_address
from netplug_core.ipam.allocation.request import AssignedAddress, LinkLayer, Specific
from netplug_core.ipam.model.affinity import AffinityState, affinity_key
from netplug_core.ipam.model.block import Block, block_key
from netplug_core.ipam.outcome.refusals import AddressCooling, AddressTaken, StrictAffinity
from netplug_core.ipam.outcome.trace import AllocationRule, BlockOutcome, BlockTrace, RuleTrace
from netplug_core.records import Get, NeedMore, Record
from netplug_core.resources.ippool import IPPool

__all__ = ["allocate_specific"]


def allocate_specific(desk: AllocationContext, wanted: Specific) -> FamilyOutcome | NeedMore:
    """A hold on the one address, what the handle has of it already, or why it cannot be had."""
    held = held_addresses(desk, wanted.family)
    kept = tuple(assigned for assigned in held if assigned.address == wanted.address)
    if kept:
        return FamilyOutcome(held=kept)
    pool = _pool(desk, wanted, held)
    if isinstance(pool, NetplugError):
        return FamilyOutcome(refusal=pool)
    prefix = Prefix.at(wanted.address, pool.value.spec.block_length)
    needed = (Get(block_key(prefix)), Get(affinity_key(desk.request.claimant, prefix)))
    if not all(desk.snapshot.has(query) for query in needed):
        return NeedMore(needed)
    hold = _candidate(desk, pool, prefix)
    refusal = _refusal(desk, wanted, hold)
    if refusal is not None:
        return FamilyOutcome(refusal=refusal)
    ordinal = Ordinal(prefix.offset(wanted.address))
    return FamilyOutcome(
        candidates=(hold.with_ordinals((ordinal,)),), trace=(BlockTrace(block=prefix, outcome=hold.outcome),)
    )


def _pool(desk: AllocationContext, wanted: Specific, held: Sequence[AssignedAddress]) -> Record[IPPool] | NetplugError:
    """The pool that the address is of, or what speaks against it before its block is looked at."""
    most = desk.request.max_per_handle
    if most is not None and len(held) >= most:
        others = ", ".join(str(assigned.address) for assigned in held) or "none"
        return ConfigurationError("the maximum per handle", most, f"the handle holds {others} already")
    pool = pool_of_address(desk.pools, wanted, desk.request.use)
    if isinstance(pool, NetplugError):
        return pool
    prefix = pool.value.spec.prefix
    if desk.request.link_layer is LinkLayer.L2 and wanted.address in link_reserved(prefix):
        rule = f"on a link the first two addresses of {prefix} and the last one can be nobody's"
        return ConfigurationError("the requested IP address", str(wanted.address), rule)
    return pool


def _candidate(desk: AllocationContext, pool: Record[IPPool], prefix: Prefix) -> BlockCandidate:
    """The block as it is or will be: claimed where there is none, adopted or borrowed from where it is not ours."""
    claimant = desk.request.claimant
    affinity = desk.snapshot.find(affinity_key(claimant, prefix))
    record = desk.snapshot.find(block_key(prefix))
    if record is None:
        return BlockCandidate(
            pool=pool, block=desk.new_block(prefix), revision=None, acquisition=Acquisition.NEW, affinity=affinity
        )
    block, means = desk.expire_cooldown(record.value), Acquisition.BORROWED
    if block.owner == claimant:
        is_settled = affinity is not None and affinity.value.state is AffinityState.CONFIRMED
        block, means = (block, Acquisition.OWN) if is_settled else (block.touched(), Acquisition.UNCONFIRMED)
    elif not block.owner and desk.rules.is_affinity_strict:
        block, means = block.claimed(claimant, desk.now_ns), Acquisition.ADOPTED
    return BlockCandidate(pool=pool, block=block, revision=record.revision, acquisition=means, affinity=affinity)


def _refusal(desk: AllocationContext, wanted: Specific, hold: BlockCandidate) -> NetplugError | None:
    block: Block = hold.block
    taken = block.find(wanted.address)
    if taken is not None and taken.is_cooling:
        return AddressCooling(wanted.address, block.prefix, desk.rules.cooldown_s)
    if taken is not None:
        return AddressTaken(wanted.address, block.prefix, taken.attribute.handle)
    if hold.acquisition is Acquisition.BORROWED and desk.rules.is_affinity_strict:
        seen = BlockTrace(block=block.prefix, outcome=BlockOutcome.NOT_AFFINE, detail=block.owner)
        return StrictAffinity(wanted.address, seen, RuleTrace(rule=AllocationRule.STRICT_AFFINITY))
    return None
