"""The decision to claim given blocks without taking an address: what a node or a load balancer does ahead of time.

Blocks that are not there are made, those without an owner adopted, those of the claimant confirmed; another's block is
left alone, and a claim of ours on it is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.affinity_writes import claim_block
from netplug_core.ipam.allocation.context import POOLS, Acquisition, BlockCandidate
from netplug_core.ipam.model.affinity import AffinityState, affinity_key
from netplug_core.ipam.model.block import Block, block_key
from netplug_core.records import (
    Decision,
    Delete,
    Get,
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
    """Which blocks are the claimant's, and which are somebody else's."""

    claimed: tuple[Prefix, ...] = ()
    failed: tuple[Prefix, ...] = ()


def pool_of_range(snapshot: Snapshot, wanted: Prefix) -> Record[IPPool] | ConfigurationError:
    """The enabled pool that a range lies in; the range has one of its blocks at least."""
    where = "the range to claim"
    for record in snapshot.list(POOLS):
        pool, spec = record.value, record.value.spec
        if (
            not spec.prefix.covers(wanted)
            or spec.is_disabled
            or pool.is_terminating
            or pool.not_allocatable_condition is not None
        ):
            continue
        if wanted.length <= spec.block_length:
            return record
        rule = f"The requested CIDR ({wanted}) is smaller than the minimum. Blocks are /{spec.block_length}"
        return ConfigurationError(where, str(wanted), rule)
    return ConfigurationError(where, str(wanted), f"The requested CIDR ({wanted}) is not within any configured pools.")


def claim_queries(claimant: str, blocks: Sequence[Prefix]) -> tuple[Query, ...]:
    """What to read before ``decide_claim``."""
    keys = ((Get(block_key(block)), Get(affinity_key(claimant, block))) for block in blocks)
    return (POOLS, *(query for pair in keys for query in pair))


def decide_claim(snapshot: Snapshot, claimant: str, blocks: Sequence[Prefix], now_ns: int) -> Decision[ClaimResult]:
    """Claim blocks that lie in one pool, for ``host:<node>`` or ``virtual:<name>``."""
    pool = pool_of_range(snapshot, blocks[0])
    if isinstance(pool, ConfigurationError):
        return Decision((), pool)
    writes: list[Write] = []
    claimed: list[Prefix] = []
    failed: list[Prefix] = []
    for prefix in blocks:
        hold = _candidate(snapshot, claimant, pool, prefix, now_ns)
        if hold is not None:
            claimed.append(prefix)
            claim_block(hold, claimant, writes)
            continue
        failed.append(prefix)
        stale = snapshot.find(affinity_key(claimant, prefix))
        writes.extend([Delete(stale.key, stale.revision)] if stale else [])
    if writes:
        unchanged = RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL))
        decision = Decision(tuple(writes), ClaimResult(claimed=tuple(claimed), failed=tuple(failed)))
        return decision.with_writes((unchanged, Require(pool.key, pool.revision)))
    return Decision((), ClaimResult(claimed=tuple(claimed), failed=tuple(failed)))


def _candidate(
    snapshot: Snapshot, claimant: str, pool: Record[IPPool], prefix: Prefix, now_ns: int
) -> BlockCandidate | None:  # fmt: skip
    """How a block becomes the claimant's; None for somebody else's."""
    record, affinity = snapshot.find(block_key(prefix)), snapshot.find(affinity_key(claimant, prefix))
    if record is None:
        new = Block.new(prefix, owner=claimant, now_ns=now_ns)
        return BlockCandidate(pool=pool, block=new, revision=None, acquisition=Acquisition.NEW, affinity=affinity)
    block = record.value
    if block.owner == claimant:
        is_settled = affinity is not None and affinity.value.state is AffinityState.CONFIRMED
        block, means = (block, Acquisition.OWN) if is_settled else (block.touched(), Acquisition.UNCONFIRMED)
    elif not block.owner:
        block, means = block.claimed(claimant, now_ns), Acquisition.ADOPTED
    else:
        return None
    return BlockCandidate(pool=pool, block=block, revision=record.revision, acquisition=means, affinity=affinity)
