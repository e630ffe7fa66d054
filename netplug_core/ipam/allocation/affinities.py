"""Claims and releases of blocks as such, whatever addresses they hold: by hand, for a range, or one for each family.

The writes of a claim and of a release are those of ``ownership``. A node that advertises its blocks asks for one at its
start (``ensure``).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import chain

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.ipam.allocation.acquire import OwnBlocks, find_overlap, find_own_blocks, overlap_queries
from netplug_core.ipam.allocation.context import (
    CONFIGURATION,
    POOLS,
    AllocationContext,
    FamilyAllocation,
    RelinquishedBlock,
)
from netplug_core.ipam.allocation.decide import acquire_missing, conditions, give_up
from netplug_core.ipam.allocation.ownership import (
    Acquisition,
    BlockCandidate,
    Claimant,
    Purpose,
    claim_block,
    is_owned,
    relinquish_block,
)
from netplug_core.ipam.allocation.pools import BlockOrder, Cooldown, Pools, choose, pool_state
from netplug_core.ipam.allocation.request import AssignRequest, Automatic
from netplug_core.ipam.model import AFFINITY, Affinity, Block, affinity_key, block_key, claimed_block
from netplug_core.ipam.outcome import BlockNotEmpty, PoolOutcome
from netplug_core.records import (
    Decision,
    Delete,
    Get,
    Key,
    Malformed,
    NeedMore,
    Query,
    Record,
    Require,
    RequireUnchanged,
    Snapshot,
    Write,
)
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL, IPPool

__all__ = [
    "ClaimResult", "Emptiness", "EnsuredBlocks", "RelinquishResult", "claim_queries", "decide_claim",
    "decide_deletion", "decide_ensure", "decide_relinquish", "deletion_queries", "is_unused", "pool_of_range",
    "relinquish_queries",
]  # fmt: skip


# --- claims -----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ClaimResult:
    """Which blocks the claimant owns now, which another owner has, and records of others that cannot be read."""

    claimed: tuple[Prefix, ...] = ()
    failed: tuple[Prefix, ...] = ()
    damaged: tuple[Malformed, ...] = ()


def pool_of_range(snapshot: Snapshot, wanted: Prefix) -> Record[IPPool] | ConfigurationError:
    """The enabled pool that a range lies in; the range has one of its blocks at least.

    One that overlaps an older pool gives no blocks: those of the older one have another size, and nothing holds two
    such apart that are created at one time.
    """
    where, pools = "the range to claim", snapshot.readable(POOLS)
    overlapping = None
    for record in pools:
        spec = record.value.spec
        if not spec.prefix.covers(wanted):
            continue
        state = pool_state(pools, record)
        if state.outcome is PoolOutcome.OVERLAPS:
            rule = f"The pool {record.key.name} overlaps the older pool {state.detail}."
            overlapping = ConfigurationError(where, str(wanted), rule)
        if state.outcome is not PoolOutcome.SERVES:
            continue
        if wanted.length <= spec.block_length:
            return record
        rule = f"The requested CIDR ({wanted}) is smaller than the minimum. Blocks are /{spec.block_length}"
        return ConfigurationError(where, str(wanted), rule)
    if overlapping is not None:
        return overlapping
    for damaged in snapshot.malformed(POOLS):
        raise damaged  # it may be the one
    return ConfigurationError(where, str(wanted), f"The requested CIDR ({wanted}) is not within any configured pools.")


def claim_queries(owner: str, blocks: Sequence[Prefix]) -> tuple[Query, ...]:
    """What to read before ``decide_claim``."""
    # An affinity to a block of others is deleted, so each is read before its block: it may be good by then.
    keys = ((Get(affinity_key(owner, block)), Get(block_key(block))) for block in blocks)
    overlaps = overlap_queries(blocks, sum(block.size for block in blocks))
    return (POOLS, CONFIGURATION, *chain.from_iterable(keys), *overlaps)


def decide_claim(
    snapshot: Snapshot, owner: str, blocks: Sequence[Prefix], now_ns: int
) -> Decision[ClaimResult] | NeedMore:
    """Claim blocks of one pool for an owner, ``host:<node>`` or ``virtual:<name>``."""
    pool = pool_of_range(snapshot, blocks[0])
    if isinstance(pool, ConfigurationError):
        return Decision((), pool)
    new = (prefix for prefix in blocks if snapshot.find(block_key(prefix)) is None)
    overlaps = {prefix: find_overlap(snapshot, prefix) for prefix in new}
    needed = chain.from_iterable(found.queries for found in overlaps.values() if isinstance(found, NeedMore))
    if unread := tuple(dict.fromkeys(needed)):
        return NeedMore(unread)
    claimant = Claimant(owner=owner, cooldown=Cooldown.of(snapshot, now_ns))
    writes: list[Write] = []
    claimed: list[Prefix] = []
    failed: list[Prefix] = []
    for prefix in blocks:
        record, affinity = snapshot.find(block_key(prefix)), snapshot.find(affinity_key(owner, prefix))
        candidate = claimant.find_candidate(Purpose.CLAIM, pool, prefix, record, affinity)
        if candidate is not None and overlaps.get(prefix) is None:
            claimed.append(prefix)
            claim_block(candidate, owner, writes)
            continue
        failed.append(prefix)
        writes.extend([Delete(affinity.key, affinity.revision)] if affinity else [])
    if writes:
        unchanged = RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL))
        decision = Decision(tuple(writes), ClaimResult(claimed=tuple(claimed), failed=tuple(failed)))
        return decision.with_writes((unchanged, Require(pool.key, pool.revision)))
    return Decision((), ClaimResult(claimed=tuple(claimed), failed=tuple(failed)))


# --- releases ---------------------------------------------------------------------------------------------------------


class Emptiness(enum.Enum):
    """Whether a block has to be empty to be given up."""

    REQUIRED = "required"
    NOT_REQUIRED = "not required"


@frozen(kw_only=True)
class RelinquishResult:
    """Which affinities do not exist any more, and which were refused because their blocks are in use."""

    relinquished: tuple[Key[Affinity], ...] = ()
    refused: tuple[BlockNotEmpty, ...] = ()


def relinquish_queries(affinities: Sequence[Key[Affinity]]) -> tuple[Query, ...]:
    """What to read before ``decide_relinquish``."""
    blocks = (Get(block_key(claimed_block(key))) for key in affinities)
    return (Get(IPAM_CONFIGURATION_KEY), *(Get(key) for key in affinities), *blocks)


def decide_relinquish(
    snapshot: Snapshot, affinities: Sequence[Key[Affinity]], emptiness: Emptiness, now_ns: int
) -> Decision[RelinquishResult] | NeedMore:
    """Give up some affinities; one that does not exist counts as given up."""
    missing = tuple(query for query in relinquish_queries(affinities) if not snapshot.has(query))
    if missing:
        return NeedMore(missing)
    cooldown = Cooldown.of(snapshot, now_ns)
    writes: list[Write] = []
    relinquished: list[Key[Affinity]] = []
    refused: list[BlockNotEmpty] = []
    for key in affinities:
        affinity, stored = snapshot.find(key), snapshot.find(block_key(claimed_block(key)))
        if stored is not None and is_owned(stored.value, key):
            block = cooldown.expire(stored.value)
            if emptiness is Emptiness.REQUIRED and not block.is_empty:
                refused.append(BlockNotEmpty(block.prefix, block.owner, block.used_count))
                continue
            relinquish_block(affinity, stored, block, writes)
        elif affinity is not None:
            writes.append(Delete(affinity.key, affinity.revision))
        relinquished.append(key)
    return Decision(tuple(writes), RelinquishResult(relinquished=tuple(relinquished), refused=tuple(refused)))


def is_unused(block: Block, cooldown: Cooldown) -> bool:
    """Whether a block has no owner and no address, not even one that is still cooling down."""
    return not block.owner and cooldown.expire(block).is_empty


def deletion_queries(blocks: Sequence[Prefix]) -> tuple[Query, ...]:
    """What to read before ``decide_deletion``."""
    return (Get(IPAM_CONFIGURATION_KEY), *(Get(block_key(block)) for block in blocks))


def decide_deletion(snapshot: Snapshot, blocks: Sequence[Prefix], now_ns: int) -> Decision[None]:
    """Delete those of some blocks that are still unused."""
    cooldown = Cooldown.of(snapshot, now_ns)
    found = (snapshot.find(block_key(block)) for block in blocks)
    unused = (record for record in found if record is not None and is_unused(record.value, cooldown))
    return Decision(tuple(Delete(record.key, record.revision) for record in unused), None)


# --- one block for each family ----------------------------------------------------------------------------------------


@frozen(kw_only=True)
class EnsuredBlocks:
    """One block for each family that was asked for, in the order of the request."""

    blocks: tuple[Prefix, ...]


def decide_ensure(
    snapshot: Snapshot, request: AssignRequest, now_ns: int, order: BlockOrder
) -> Decision[EnsuredBlocks] | NeedMore:
    """A block of the claimant in a pool that may serve, for each family: its first one, or one that it acquires.

    The request's counts are ignored, and no address is taken. A request for a specific address ensures no block.
    """
    context = AllocationContext.open(snapshot, request, now_ns, order)
    if isinstance(context, NeedMore):
        return context
    candidates: list[BlockCandidate] = []
    relinquished: list[RelinquishedBlock] = []
    needed: list[Query] = []
    for wanted in request.wanted:
        if not isinstance(wanted, Automatic):
            continue
        choice = choose(context.pools, context.request, wanted, context.labels)
        if isinstance(choice, NetplugError):
            return Decision((), choice)
        own = find_own_blocks(context, wanted.family, choice.pools)
        relinquished.extend(own.relinquished)
        found = _block(context, wanted, choice.pools, own)
        if isinstance(found, NetplugError):
            return Decision(_releases(context, relinquished), found)
        if isinstance(found, NeedMore):
            needed.extend(found.queries)
        else:
            candidates.append(found)
    if needed:
        return NeedMore(tuple(needed))
    writes = conditions(context, candidates)
    if context.explicit_limits and candidates:  # a concurrent claim could exceed the limit
        writes.append(RequireUnchanged(AFFINITY, snapshot.revision(AFFINITY)))
    before = len(writes)
    give_up(context, relinquished, writes)
    for candidate in candidates:
        claim_block(candidate, context.claimant.owner, writes)
    result = EnsuredBlocks(blocks=tuple(candidate.block.prefix for candidate in candidates))
    return Decision(tuple(writes) if len(writes) > before else (), result)


def _releases(context: AllocationContext, relinquished: list[RelinquishedBlock]) -> tuple[Write, ...]:
    """The writes by which the claimant gives up blocks, so that the next try has their room."""
    writes: list[Write] = []
    give_up(context, relinquished, writes)
    return tuple(writes)


def _block(
    context: AllocationContext, wanted: Automatic, pools: Pools, own: OwnBlocks
) -> BlockCandidate | NeedMore | NetplugError:
    is_own = bool(own.usable) and own.usable[0].acquisition is Acquisition.OWN
    if not is_own and (outdated := context.reread_affinities(wanted.family)):
        return outdated
    if own.usable:
        return own.usable[0]
    # Find a block with one free address; the address itself is not taken.
    room = context.block_limit - own.count
    allocation = FamilyAllocation(context=context, wanted=1, missing=1, room=room, may_borrow=False, stale=own.stale)
    refusal = acquire_missing(allocation, evolve(wanted, count=1), pools, own.pending)
    return allocation.candidates[0] if refusal is None else refusal
