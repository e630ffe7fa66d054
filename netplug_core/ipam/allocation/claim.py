"""The decision to claim given blocks without taking an address, as a node or a load balancer does in advance.

``ownership`` says what each block becomes (``Purpose.CLAIM``). A block of another owner stays as it is, and the
claimant's affinity to it is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.block_listing import find_overlap, overlap_queries
from netplug_core.ipam.allocation.context import CONFIGURATION, POOLS
from netplug_core.ipam.allocation.ownership import Claimant, Purpose, claim_block
from netplug_core.ipam.allocation.pools import Cooldown, is_enabled
from netplug_core.ipam.model.affinity import affinity_key
from netplug_core.ipam.model.block import block_key
from netplug_core.records import (
    Decision,
    Delete,
    Get,
    NeedMore,
    Query,
    Record,
    Require,
    RequireUnchanged,
    Snapshot,
    Write,
)
from netplug_core.resources.ippool import IPPOOL, IPPool

__all__ = ["ClaimResult", "claim_queries", "decide_claim", "pool_of_range"]


@frozen(kw_only=True)
class ClaimResult:
    """Which blocks the claimant owns now, and which another owner has."""

    claimed: tuple[Prefix, ...] = ()
    failed: tuple[Prefix, ...] = ()


def pool_of_range(snapshot: Snapshot, wanted: Prefix) -> Record[IPPool] | ConfigurationError:
    """The enabled pool that a range lies in; the range has one of its blocks at least."""
    where = "the range to claim"
    for record in snapshot.readable(POOLS):
        spec = record.value.spec
        if not spec.prefix.covers(wanted) or not is_enabled(record.value):
            continue
        if wanted.length <= spec.block_length:
            return record
        rule = f"The requested CIDR ({wanted}) is smaller than the minimum. Blocks are /{spec.block_length}"
        return ConfigurationError(where, str(wanted), rule)
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
