"""What creating and deleting a pool needs besides storing and deleting the record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from attrs import evolve

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, LATEST_COMMIT_S, Transaction
from netplug_core.flows.ipam.affinities import delete_unused_blocks, relinquish_pool
from netplug_core.flows.ipam.check import find_loss
from netplug_core.flows.resources.outcome import BlocksLost, DeletionCancelled, ResourceOutdated
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.model.block import BLOCK, Block, blocks_path
from netplug_core.ipam.model.ranges import raise_if_within
from netplug_core.ipam.reporting.utilization import utilization
from netplug_core.records import (
    ABSENT,
    Decision,
    Delete,
    Get,
    List,
    Malformed,
    NeedMore,
    Record,
    RequireUnchanged,
    Snapshot,
    Update,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.kinds import Resource
from netplug_core.resources.unprogrammed import find_unrouted
from netplug_core.resources.validation import validate_pool_overlaps
from netplug_core.settings.model import KUBERNETES_DATASTORE

__all__ = [
    "POOLS", "conditions_of_creation", "confirm_creation", "held_warnings", "prepare_creation",
    "prepare_deletion", "require_disabled",
]  # fmt: skip

POOLS = List(IPPOOL)
"""What a decision about a pool reads first."""


def conditions_of_creation(
    snapshot: Snapshot, pool: IPPool, damage: Malformed | None = None
) -> tuple[RequireUnchanged[IPPool], ...] | NeedMore:
    """The conditions under which a new pool is stored. Blocks that an earlier pool left are checked too.

    ``damage`` is what is wrong with the record in whose place it is stored; None if there is none.

    Raises:
        InvalidResource: another pool overlaps it, or its range has blocks of another size.
        Malformed: another pool or a block of the range cannot be understood, so it is not known whether they overlap.
    """
    blocks = _blocks_of_family(pool)
    if not snapshot.has(blocks):
        return NeedMore((blocks,))
    for other in snapshot.malformed(POOLS):
        if damage is None or str(other) != str(damage):  # errors are compared by their texts: each read makes new ones
            raise other
    others = (record.value for record in snapshot.readable(POOLS))
    raise_if_within(snapshot.malformed(blocks), pool.spec.prefix)
    validate_pool_overlaps(pool, others, (record.value.prefix for record in snapshot.readable(blocks)))
    # Two overlapping pools have different keys. This condition makes the second creation decide again.
    return (RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL)),)


def prepare_creation(store: Datastore, pool: IPPool, *, pace: Pace) -> tuple[str, ...]:
    """Delete what an earlier pool left in the range and is not used: blocks without an owner and without addresses.

    The result are warnings about a pool that is not stored yet.

    Raises:
        BlocksLost: workloads have addresses of the range and there is no block, and the datastore is not locked.
    """
    query, information = Get(pool.key), Get(CLUSTER_INFORMATION_KEY)
    is_kubernetes = store.description.name == KUBERNETES_DATASTORE
    queries = (query, information, POOLS) if is_kubernetes else (query,)
    snapshot = store.read(queries, deadline=pace.deadline.capped(CALL_TIMEOUT_S))
    if snapshot.state(query) is not ABSENT:
        return ()
    if is_kubernetes and not any(record.value.is_locked for record in snapshot.readable(information)):
        _refuse_after_loss(store, pool, pace)
    delete_unused_blocks(store, pool.spec.prefix, pace=pace)
    if not is_kubernetes:
        return ()
    return tuple(_family_warnings(pool, [record.value for record in snapshot.readable(POOLS)]))


def _family_warnings(pool: IPPool, others: Iterable[IPPool]) -> Iterator[str]:
    """What a first pool of a second family does to a cluster whose nodes are installed by pools."""
    families = {other.spec.prefix.family for other in find_unrouted(others)}
    family = pool.spec.prefix.family
    if families and family not in families and find_unrouted([pool]):
        yield (
            f"{pool.key}: the first pool of {family}: with an Installation, new pods get an address of {family} too "
            "from now on, and the pods of netplug-node are replaced on every node"
        )


def _refuse_after_loss(store: Datastore, pool: IPPool, pace: Pace) -> None:
    """Definitions of Kubernetes are deleted with everything that is stored. A locked datastore gives no address."""
    if loss := find_loss(store, within=pool.spec.prefix, deadline=pace.deadline):
        raise BlocksLost(str(pool.key), str(pool.spec.prefix), loss)


def confirm_creation(store: Datastore, pool: IPPool, *, pace: Pace) -> None:
    """Withdraw a new pool if another one was created in its range at the same time; the later of the two withdraws.

    An atomic store refuses the second. An ordered store stores both, so that each looks again after its own creation.
    The later one withdraws at once. The earlier one looks again after one call's time. If the other pool is still
    there, that had ended before this one was stored, and so this one withdraws.

    Raises:
        InvalidResource: the pool overlaps the other one, and is deleted.
        ContentionExhausted, Unavailable: try again later.
    """
    if store.description.atomicity is Atomicity.ATOMIC:
        return
    others = _find_overlapping(store, pool, pace)
    if len(others) > 1 and _is_earliest(pool, others):
        pace.clock.sleep(CALL_TIMEOUT_S)
        others = _find_overlapping(store, pool, pace)
    others = [other for other in others if other.key != pool.key]
    if others:
        Transaction(store, pace).run([Get(pool.key)], partial(_decide_withdrawal, pool))
        validate_pool_overlaps(pool, others)


def _find_overlapping(store: Datastore, pool: IPPool, pace: Pace) -> list[IPPool]:
    """The stored pools that overlap a pool; also that pool itself, with the creation time that the store gave it."""
    stored = store.read((POOLS,), deadline=pace.deadline.capped(CALL_TIMEOUT_S)).list(POOLS)
    return [record.value for record in stored if record.value.spec.prefix.overlaps(pool.spec.prefix)]


def _is_earliest(pool: IPPool, pools: Iterable[IPPool]) -> bool:
    return min(pools, key=_age).key == pool.key


def _age(pool: IPPool) -> tuple[int, str]:
    """What orders pools by their creation."""
    return (pool.metadata.creation_time_ns or 0, pool.metadata.name)


def _decide_withdrawal(pool: IPPool, snapshot: Snapshot) -> Decision[None]:
    stored = snapshot.find(pool.key)
    is_ours = stored is not None and stored.value.spec.prefix == pool.spec.prefix
    return Decision((Delete(stored.key, stored.revision),) if stored is not None and is_ours else (), None)


def prepare_deletion(store: Datastore, pool: Record[IPPool], *, revision: str, pace: Pace) -> None:
    """Disable a pool, wait until no assignment can use it any more, and relinquish its blocks.

    ``revision`` is the resource version that the pool must have; empty for any. Blocks in use remain without an owner
    until their last address is released. Blocks that are not used are deleted.

    Raises:
        DeletionCancelled: the pool was enabled again meanwhile.
        ResourceOutdated: the pool has another resource version.
        ContentionExhausted, Unavailable: try again later; the next call continues where this one stopped.
    """
    if not _disable(store, pool, revision, pace):
        return
    prefix = pool.value.spec.prefix
    # An atomic store refuses every assignment that read the pool as enabled. An ordered store does not.
    if store.description.atomicity is Atomicity.ORDERED:
        pace.clock.sleep(min(LATEST_COMMIT_S, pace.deadline.remaining_s))
    # Looked at again after the last commit: while it ran, an unfinished request may have claimed another block.
    while relinquish_pool(store, prefix, Emptiness.NOT_REQUIRED, pace=pace).relinquished:
        require_disabled(store.read((Get(pool.key),), deadline=pace.deadline.capped(CALL_TIMEOUT_S)).find(pool.key))
    delete_unused_blocks(store, prefix, pace=pace)


def require_disabled(stored: Record[IPPool] | Record[Resource] | None) -> None:
    """Refuse to go on with the deletion of a pool that was enabled again; any other resource may be deleted.

    Raises:
        DeletionCancelled: the pool is enabled.
    """
    if stored is not None and isinstance(stored.value, IPPool) and not stored.value.spec.is_disabled:
        raise DeletionCancelled(str(stored.key), "", "was enabled again meanwhile; it is not deleted")


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
        Malformed: a block of the pool cannot be understood.
        Unavailable: the store does not answer.
    """
    query = _blocks_of_family(pool)
    snapshot = store.read([query], deadline=deadline.capped(CALL_TIMEOUT_S))
    raise_if_within(snapshot.malformed(query), pool.spec.prefix)
    usage = utilization([pool], (record.value for record in snapshot.readable(query)))[0]
    held = usage.in_use - usage.cooling
    if not held:
        return ()
    return (f"{pool.key}: addresses of it that are still held: {held}; their workloads keep them",)


def _blocks_of_family(pool: IPPool) -> List[Block]:
    return List(BLOCK, blocks_path(pool.spec.prefix.family))
