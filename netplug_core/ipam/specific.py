"""One address that was asked for by name. ``decide`` calls ``serve_specific``.

Selectors, assignmentMode, reservations and block limits do not count for it; that the pool is enabled, the stated use
and strict affinity do.
"""

from __future__ import annotations

from collections.abc import Sequence

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.ipam.affinity import AffinityState, affinity_key
from netplug_core.ipam.block import Block, block_key
from netplug_core.ipam.desk import Desk, Hold, Means, edges
from netplug_core.ipam.pools import pool_of_address
from netplug_core.ipam.refusals import AddressCooling, AddressTaken, StrictAffinity
from netplug_core.ipam.request import AssignedAddress, Reach, Specific
from netplug_core.ipam.supply import Supply, keep
from netplug_core.ipam.trace import BlockOutcome, BlockSeen, Rule, RuleSeen
from netplug_core.records import Get, NeedMore, Record
from netplug_core.resources.ippool import IPPool

__all__ = ["serve_specific"]


def serve_specific(desk: Desk, wanted: Specific) -> Supply | NeedMore:
    """A hold on the one address, what the handle has of it already, or why it cannot be had."""
    held = keep(desk, wanted.family)
    kept = tuple(assigned for assigned in held if assigned.address == wanted.address)
    if kept:
        return Supply(kept=kept)
    pool = _pool(desk, wanted, held)
    if isinstance(pool, NetplugError):
        return Supply(refusal=pool)
    prefix = Prefix.at(wanted.address, pool.value.spec.block_length)
    needed = (Get(block_key(prefix)), Get(affinity_key(desk.request.claimant, prefix)))
    if not all(desk.snapshot.has(query) for query in needed):
        return NeedMore(needed)
    hold = _hold(desk, pool, prefix)
    refusal = _refusal(desk, wanted, hold)
    if refusal is not None:
        return Supply(refusal=refusal)
    ordinal = Ordinal(prefix.offset(wanted.address))
    return Supply(holds=(hold.taking((ordinal,)),), trace=(BlockSeen(block=prefix, outcome=hold.outcome),))


def _pool(desk: Desk, wanted: Specific, held: Sequence[AssignedAddress]) -> Record[IPPool] | NetplugError:
    """The pool that the address is of, or what speaks against it before its block is looked at."""
    most = desk.request.max_per_handle
    if most is not None and len(held) >= most:
        others = ", ".join(str(assigned.address) for assigned in held) or "none"
        return ConfigurationError("the maximum per handle", most, f"the handle holds {others} already")
    pool = pool_of_address(desk.pools, wanted, desk.request.use)
    if isinstance(pool, NetplugError):
        return pool
    prefix = pool.value.spec.prefix
    if desk.request.reach is Reach.ON_LINK and wanted.address in edges(prefix):
        rule = f"on a link the first two addresses of {prefix} and the last one can be nobody's"
        return ConfigurationError("the requested IP address", str(wanted.address), rule)
    return pool


def _hold(desk: Desk, pool: Record[IPPool], prefix: Prefix) -> Hold:
    """The block as it is or will be: claimed where there is none, adopted or borrowed from where it is not ours."""
    claimant = desk.request.claimant
    affinity = desk.snapshot.find(affinity_key(claimant, prefix))
    record = desk.snapshot.find(block_key(prefix))
    if record is None:
        return Hold(pool=pool, block=desk.new_block(prefix), revision=None, means=Means.CLAIM, affinity=affinity)
    block, means = desk.rested(record.value), Means.BORROW
    if block.owner == claimant:
        is_settled = affinity is not None and affinity.value.state is AffinityState.CONFIRMED
        block, means = (block, Means.SETTLED) if is_settled else (block.touched(), Means.CONFIRM)
    elif not block.owner and desk.rules.is_affinity_strict:
        block, means = block.claimed(claimant, desk.now_ns), Means.ADOPT
    return Hold(pool=pool, block=block, revision=record.revision, means=means, affinity=affinity)


def _refusal(desk: Desk, wanted: Specific, hold: Hold) -> NetplugError | None:
    block: Block = hold.block
    taken = block.find(wanted.address)
    if taken is not None and taken.is_cooling:
        return AddressCooling(wanted.address, block.prefix, desk.rules.cooldown_s)
    if taken is not None:
        return AddressTaken(wanted.address, block.prefix, taken.attribute.handle)
    if hold.means is Means.BORROW and desk.rules.is_affinity_strict:
        seen = BlockSeen(block=block.prefix, outcome=BlockOutcome.FOREIGN, detail=block.owner)
        return StrictAffinity(wanted.address, seen, RuleSeen(rule=Rule.STRICT_AFFINITY))
    return None
