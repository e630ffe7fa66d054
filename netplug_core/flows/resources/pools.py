"""What creating and deleting a pool needs besides storing and deleting the record."""

from __future__ import annotations

from attrs import evolve

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction
from netplug_core.flows.ipam.affinities import relinquish_pool
from netplug_core.flows.resources.outcome import ResourceOutdated
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.model.block import BLOCK, Block, blocks_path
from netplug_core.ipam.reporting.utilization import utilization
from netplug_core.records import Decision, Get, List, NeedMore, Record, RequireUnchanged, Snapshot, Update
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.validation import validate_pool_overlaps

__all__ = ["POOLS", "conditions_of_creation", "drain_pool", "held_warnings"]

POOLS = List(IPPOOL)
"""What a decision about a pool reads first."""

_STALENESS_S = 0.5
"""How long an assignment on an ordered store may still use a pool that it read as enabled."""


def conditions_of_creation(snapshot: Snapshot, pool: IPPool) -> tuple[RequireUnchanged[IPPool], ...] | NeedMore:
    """The conditions under which a new pool is stored. Blocks that an earlier pool left are checked too.

    Raises:
        InvalidResource: another pool overlaps it, or its range has blocks of another size.
    """
    blocks = _blocks_of_family(pool)
    if not snapshot.has(blocks):
        return NeedMore((blocks,))
    others = (record.value for record in snapshot.list(POOLS))
    validate_pool_overlaps(pool, others, (record.value.prefix for record in snapshot.list(blocks)))
    # Two overlapping pools have different keys. This condition makes the second creation decide again.
    return (RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL)),)


def drain_pool(store: Datastore, pool: Record[IPPool], *, revision: str, pace: Pace) -> None:
    """Disable a pool, wait until no assignment can use it any more, and relinquish its blocks.

    ``revision`` is the resource version that the pool must have; empty for any. Blocks in use remain without an owner
    until their last address is released.

    Raises:
        ResourceOutdated: the pool has another resource version.
        ContentionExhausted, Unavailable: try again later; the next call continues where this one stopped.
    """
    if not _disable(store, pool, revision, pace):
        return
    # An atomic store refuses every assignment that read the pool as enabled. An ordered store does not.
    if store.description.atomicity is Atomicity.ORDERED:
        pace.clock.sleep(_STALENESS_S)
    relinquish_pool(store, pool.value.spec.prefix, Emptiness.NOT_REQUIRED, pace=pace)


def _disable(store: Datastore, pool: Record[IPPool], revision: str, pace: Pace) -> bool:
    """Disable the pool; False if it was deleted, or replaced by another pool of the same name."""

    def decide(snapshot: Snapshot) -> Decision[bool]:
        stored = snapshot.find(pool.key)
        if stored is None or stored.value.metadata.uid != pool.value.metadata.uid:
            return Decision((), result=False)
        if revision and revision != stored.revision:
            return Decision((), ResourceOutdated(str(pool.key), revision, stored.revision))
        if stored.value.spec.is_disabled:
            return Decision((), result=True)
        disabled = evolve(stored.value, spec=evolve(stored.value.spec, is_disabled=True))
        # With a revision, a repetition after a lost reply would find the revision of its own write and refuse.
        return Decision((Update(pool.key, disabled, stored.revision),), result=True, is_repeatable=not revision)

    return Transaction(store, pace).run([Get(pool.key)], decide).result is True


def held_warnings(store: Datastore, pool: IPPool, *, deadline: Deadline) -> tuple[str, ...]:
    """Warnings for the person who deletes a pool: how many of its addresses are held.

    Raises:
        Unavailable: the store does not answer.
    """
    query = _blocks_of_family(pool)
    snapshot = store.read([query], deadline=deadline.capped(CALL_TIMEOUT_S))
    usage = utilization([pool], (record.value for record in snapshot.list(query)))[0]
    held = usage.in_use - usage.cooling
    if not held:
        return ()
    return (f"{pool.key}: addresses of it that are still held: {held}; their workloads keep them",)


def _blocks_of_family(pool: IPPool) -> List[Block]:
    return List(BLOCK, blocks_path(pool.spec.prefix.family))
