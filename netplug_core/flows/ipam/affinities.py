"""Claims on blocks, by range, by node, by pool and by block: made ahead of time, and given up.

``netplugctl``, the controllers and the node process call it; the plugin never does. Work is cut into commits that every
store can take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.paging import read_pages
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction
from netplug_core.errors import NetplugError
from netplug_core.flows.readiness import READINESS_GATE
from netplug_core.ipam.allocation.block_order import BlockOrder
from netplug_core.ipam.allocation.claim import ClaimResult, claim_queries, decide_claim, pool_of_range
from netplug_core.ipam.allocation.context import POOLS
from netplug_core.ipam.allocation.decide import queries
from netplug_core.ipam.allocation.ensure import EnsuredBlocks, decide_ensure
from netplug_core.ipam.allocation.relinquish import Emptiness, RelinquishResult, decide_relinquish, relinquish_queries
from netplug_core.ipam.allocation.request import AssignRequest
from netplug_core.ipam.model.affinity import AFFINITY, Affinity, affinity_key, claimed_block, host_owner
from netplug_core.ipam.model.block import BLOCK, block_key, blocks_path
from netplug_core.records import Get, Key

__all__ = [
    "BATCH",
    "claim",
    "claims_of",
    "claims_within",
    "ensure_blocks",
    "relinquish",
    "relinquish_block",
    "relinquish_node",
    "relinquish_pool",
]

BATCH = 16
"""Blocks claimed or given up in one commit: it stays below what etcd takes at once."""


def claim(store: Datastore, claimant: str, wanted: Prefix, *, pace: Pace) -> ClaimResult:
    """Claim every block of a range for ``host:<node>`` or ``virtual:<name>``; those of others are reported.

    Raises:
        ConfigurationError: the range lies in no enabled pool, or is smaller than a block.
        ContentionExhausted, Unavailable: not now; what is claimed by then stays claimed.
    """
    pool = pool_of_range(store.read((POOLS,), deadline=pace.deadline.capped(CALL_TIMEOUT_S)), wanted)
    if isinstance(pool, NetplugError):
        raise pool
    length = pool.value.spec.block_length
    count = wanted.subprefix_count(length)
    claimed: list[Prefix] = []
    failed: list[Prefix] = []
    for first in range(0, count, BATCH):
        blocks = tuple(wanted.subprefix(position, length) for position in range(first, min(first + BATCH, count)))
        made = _claim(store, claimant, blocks, pace)
        claimed.extend(made.claimed)
        failed.extend(made.failed)
    return ClaimResult(claimed=tuple(claimed), failed=tuple(failed))


def _claim(store: Datastore, claimant: str, blocks: tuple[Prefix, ...], pace: Pace) -> ClaimResult:
    decision = Transaction(store, pace).run(
        claim_queries(claimant, blocks),
        lambda snapshot: decide_claim(snapshot, claimant, blocks, pace.clock.now_ns()),
    )
    return cast("ClaimResult", decision.result)


def ensure_blocks(store: Datastore, request: AssignRequest, *, order: BlockOrder, pace: Pace) -> EnsuredBlocks:
    """Make sure that the claimant has a block for each family, without taking an address; the same ones each time.

    Raises:
        AllocationError: no pool may serve, or no block can be had.
        ContentionExhausted, Unavailable: not now.
    """
    decision = Transaction(store, pace, READINESS_GATE).run(
        queries(request), lambda snapshot: decide_ensure(snapshot, request, pace.clock.now_ns(), order)
    )
    return cast("EnsuredBlocks", decision.result)


def relinquish(
    store: Datastore, claims: Sequence[Key[Affinity]], emptiness: Emptiness, *, pace: Pace
) -> RelinquishResult:
    """Give up claims, each with its block; a block in use stays without an owner, or is refused if it must be empty.

    Raises:
        ContentionExhausted, Unavailable: not now; what is given up by then stays so.
    """
    results: list[RelinquishResult] = []
    for first in range(0, len(claims), BATCH):
        batch = tuple(claims[first : first + BATCH])
        results.append(_relinquish(store, batch, emptiness, pace))
    return RelinquishResult(
        relinquished=tuple(key for result in results for key in result.relinquished),
        refused=tuple(refusal for result in results for refusal in result.refused),
    )


def _relinquish(
    store: Datastore, claims: tuple[Key[Affinity], ...], emptiness: Emptiness, pace: Pace
) -> RelinquishResult:  # fmt: skip
    decision = Transaction(store, pace).run(
        relinquish_queries(claims),
        lambda snapshot: decide_relinquish(snapshot, claims, emptiness, pace.clock.now_ns()),
    )
    return cast("RelinquishResult", decision.result)


def relinquish_node(store: Datastore, node: str, emptiness: Emptiness, *, pace: Pace) -> RelinquishResult:
    """Give up every claim of a node, in whatever pool; an unknown node has none. Addresses stay held."""
    return relinquish(store, claims_of(store, host_owner(node), deadline=pace.deadline), emptiness, pace=pace)


def relinquish_pool(store: Datastore, pool: Prefix, emptiness: Emptiness, *, pace: Pace) -> RelinquishResult:
    """Give up every claim in a pool's range, whoever made it."""
    return relinquish(store, claims_within(store, pool, deadline=pace.deadline), emptiness, pace=pace)


def relinquish_block(store: Datastore, block: Prefix, emptiness: Emptiness, *, pace: Pace) -> RelinquishResult:
    """Give up exactly one block, whoever owns it; one that is not there, or nobody's, is given up already."""
    found = store.read((Get(block_key(block)),), deadline=pace.deadline.capped(CALL_TIMEOUT_S)).find(block_key(block))
    owner = found.value.owner if found else ""
    return relinquish(store, (affinity_key(owner, block),) if owner else (), emptiness, pace=pace)


def claims_of(store: Datastore, owner: str, *, deadline: Deadline) -> tuple[Key[Affinity], ...]:
    """Every claim of ``host:<node>`` or ``virtual:<name>``."""
    kind, _, name = owner.partition(":")
    return tuple(record.key for record in read_pages(store, AFFINITY, (kind, name), deadline=deadline))


def claims_within(store: Datastore, pool: Prefix, *, deadline: Deadline) -> tuple[Key[Affinity], ...]:
    """Every claim in a range: of hosts and others, and those of blocks whose affinity was lost."""
    written = (
        record.key
        for record in read_pages(store, AFFINITY, deadline=deadline)
        if pool.covers(claimed_block(record.key))
    )
    owned = (
        affinity_key(record.value.owner, record.value.prefix)
        for record in read_pages(store, BLOCK, blocks_path(pool.family), deadline=deadline)
        if record.value.owner and pool.covers(record.value.prefix)
    )
    return tuple(dict.fromkeys((*written, *owned)))
