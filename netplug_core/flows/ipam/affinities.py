"""Claiming blocks ahead of time, and relinquishing affinities: by range, by node, by pool, by block.

``netplugctl``, the controllers and the node process call it; the plugin does not. Bulk changes take several commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction, read_pages
from netplug_core.errors import NetplugError
from netplug_core.flows.ipam.service import read_within
from netplug_core.ipam.allocation.affinities import (
    ClaimResult,
    Emptiness,
    EnsuredBlocks,
    RelinquishResult,
    claim_queries,
    decide_claim,
    decide_deletion,
    decide_ensure,
    decide_relinquish,
    deletion_queries,
    is_unused,
    pool_of_range,
    relinquish_queries,
)
from netplug_core.ipam.allocation.context import BLOCKS_PER_COMMIT, POOLS, batches
from netplug_core.ipam.allocation.decide import queries
from netplug_core.ipam.allocation.pools import BlockOrder, Cooldown
from netplug_core.ipam.allocation.request import AssignRequest
from netplug_core.ipam.model import AFFINITY, BLOCK, Affinity, affinity_key, block_key, claimed_block, host_owner
from netplug_core.records import Decision, Get, Key, Malformed, Snapshot
from netplug_core.resources.clusterinformation import READINESS_GATE
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY

__all__ = [
    "affinities_of", "affinities_within", "claim", "delete_if_unused", "delete_unused_blocks", "ensure_blocks",
    "relinquish", "relinquish_block", "relinquish_node", "relinquish_pool",
]  # fmt: skip


def claim(store: Datastore, claimant: str, wanted: Prefix, *, pace: Pace) -> ClaimResult:
    """Claim every block of a range for ``host:<node>`` or ``virtual:<name>``. Blocks of other owners are reported.

    So are blocks of which a record cannot be read; the others are claimed.

    Raises:
        ConfigurationError: the range is in no enabled pool, or is smaller than a block.
        ContentionExhausted, Unavailable: try again later; some blocks may be claimed already.
    """
    pool = pool_of_range(store.read((POOLS,), deadline=pace.deadline.capped(CALL_TIMEOUT_S)), wanted)
    if isinstance(pool, NetplugError):
        raise pool
    length = pool.value.spec.block_length
    positions = range(wanted.subprefix_count(length))
    results = [
        result
        for batch in batches(positions, BLOCKS_PER_COMMIT)
        for result in _claim(store, claimant, tuple(wanted.subprefix(position, length) for position in batch), pace)
    ]
    return ClaimResult(
        claimed=tuple(block for result in results for block in result.claimed),
        failed=tuple(block for result in results for block in result.failed),
        damaged=tuple(error for result in results for error in result.damaged),
    )


def _claim(store: Datastore, claimant: str, blocks: tuple[Prefix, ...], pace: Pace) -> Iterator[ClaimResult]:
    """Claim some blocks in one commit; if a record of one is damaged, each of them alone."""
    try:
        decision = Transaction(store, pace).run(
            claim_queries(claimant, blocks),
            lambda snapshot: decide_claim(snapshot, claimant, blocks, pace.clock.now_ns()),
        )
    except Malformed as error:
        if len(blocks) == 1:
            yield ClaimResult(damaged=(error,))
            return
        for block in blocks:
            yield from _claim(store, claimant, (block,), pace)
    else:
        yield decision.get_result()


def ensure_blocks(store: Datastore, request: AssignRequest, *, order: BlockOrder, pace: Pace) -> EnsuredBlocks:
    """Make sure that the claimant owns a block of each family, without assigning an address. May be repeated.

    Raises:
        AllocationError: no pool may serve, or no block is available.
        ContentionExhausted, Unavailable: try again later.
    """
    decision = Transaction(store, pace, READINESS_GATE).run(
        queries(request), lambda snapshot: decide_ensure(snapshot, request, pace.clock.now_ns(), order)
    )
    return decision.get_result()


def relinquish(
    store: Datastore, affinities: Sequence[Key[Affinity]], emptiness: Emptiness, *, pace: Pace
) -> RelinquishResult:
    """Relinquish affinities together with their blocks.

    A block in use remains without an owner; if ``emptiness`` requires empty blocks, it is refused.

    Raises:
        ContentionExhausted, Unavailable: try again later; some affinities may be relinquished already.
    """
    results = [_relinquish(store, tuple(batch), emptiness, pace) for batch in batches(affinities, BLOCKS_PER_COMMIT)]
    return RelinquishResult(
        relinquished=tuple(key for result in results for key in result.relinquished),
        refused=tuple(refusal for result in results for refusal in result.refused),
    )


def _relinquish(
    store: Datastore, affinities: tuple[Key[Affinity], ...], emptiness: Emptiness, pace: Pace
) -> RelinquishResult:  # fmt: skip
    decision = Transaction(store, pace).run(
        relinquish_queries(affinities),
        lambda snapshot: decide_relinquish(snapshot, affinities, emptiness, pace.clock.now_ns()),
    )
    return decision.get_result()


def relinquish_node(store: Datastore, node: str, emptiness: Emptiness, *, pace: Pace) -> RelinquishResult:
    """Relinquish every affinity of a node, in all pools; an unknown node has none. Addresses stay assigned."""
    return relinquish(store, affinities_of(store, host_owner(node), deadline=pace.deadline), emptiness, pace=pace)


def relinquish_pool(store: Datastore, pool: Prefix, emptiness: Emptiness, *, pace: Pace) -> RelinquishResult:
    """Relinquish every affinity in the range of a pool, of all owners."""
    return relinquish(store, affinities_within(store, pool, deadline=pace.deadline), emptiness, pace=pace)


def delete_unused_blocks(store: Datastore, pool: Prefix, *, pace: Pace) -> None:
    """Delete the blocks in the range of a pool that have no owner and no address.

    A block lost its owner with its pool, while an address in it was held or cooled down. Such blocks would keep the
    range from another block size.

    Raises:
        Malformed: a block of the range cannot be understood.
        ContentionExhausted, Unavailable: try again later.
    """
    cooldown = Cooldown.of(
        store.read((Get(IPAM_CONFIGURATION_KEY),), deadline=pace.deadline.capped(CALL_TIMEOUT_S)), pace.clock.now_ns()
    )
    stored = (record.value for record in read_within(store, BLOCK, pool, deadline=pace.deadline))
    delete_if_unused(store, [block.prefix for block in stored if is_unused(block, cooldown)], pace=pace)


def delete_if_unused(store: Datastore, blocks: Sequence[Prefix], *, pace: Pace) -> None:
    """Delete those of some blocks that have no owner and no address."""
    for batch in batches(blocks, BLOCKS_PER_COMMIT):
        Transaction(store, pace).run(deletion_queries(batch), partial(_decide_deletion, batch, pace))


def _decide_deletion(blocks: Sequence[Prefix], pace: Pace, snapshot: Snapshot) -> Decision[None]:
    return decide_deletion(snapshot, blocks, pace.clock.now_ns())


def relinquish_block(store: Datastore, block: Prefix, emptiness: Emptiness, *, pace: Pace) -> RelinquishResult:
    """Relinquish one block, of any owner. Nothing is done if there is no such block, or it has no owner."""
    found = store.read((Get(block_key(block)),), deadline=pace.deadline.capped(CALL_TIMEOUT_S)).find(block_key(block))
    owner = found.value.owner if found else ""
    return relinquish(store, (affinity_key(owner, block),) if owner else (), emptiness, pace=pace)


def affinities_of(store: Datastore, owner: str, *, deadline: Deadline) -> tuple[Key[Affinity], ...]:
    """Every affinity of ``host:<node>`` or ``virtual:<name>``."""
    kind, _, name = owner.partition(":")
    return tuple(record.key for record in read_pages(store, AFFINITY, (kind, name), deadline=deadline))


def affinities_within(store: Datastore, pool: Prefix, *, deadline: Deadline) -> tuple[Key[Affinity], ...]:
    """Every affinity in a range, of all owners, also the missing affinities of blocks that have an owner.

    Raises:
        Malformed: an affinity or a block of the range cannot be understood.
        Unavailable: the store does not answer.
    """
    stored = (
        record.key
        for record in read_within(store, AFFINITY, pool, deadline=deadline)
        if pool.covers(claimed_block(record.key))
    )
    owned = (
        affinity_key(record.value.owner, record.value.prefix)
        for record in read_within(store, BLOCK, pool, deadline=deadline)
        if record.value.owner and pool.covers(record.value.prefix)
    )
    return tuple(dict.fromkeys((*stored, *owned)))
