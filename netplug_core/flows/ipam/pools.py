"""What creating and deleting a pool takes beyond storing and removing a record; ``resources`` calls it."""

from __future__ import annotations

from attrs import evolve

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, run
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
"""What has to be read before anything is decided about a pool."""

_STALENESS_S = 0.5


def conditions_of_creation(snapshot: Snapshot, pool: IPPool) -> tuple[RequireUnchanged[IPPool], ...] | NeedMore:
    """The conditions under which a new pool may be stored; what earlier pools left has to be known for them.

    Raises:
        InvalidResource: its range is taken, or has blocks of another size.
    """
    near = _blocks_beside(pool)
    if not snapshot.has(near):
        return NeedMore((near,))
    others = (record.value for record in snapshot.list(POOLS))
    validate_pool_overlaps(pool, others, (record.value.prefix for record in snapshot.list(near)))
    # Two creations that overlap know nothing of each other's key; this makes the second one look again.
    return (RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL)),)


def drain_pool(store: Datastore, pool: Record[IPPool], *, revision: str, pace: Pace) -> None:
    """Disable a pool, wait until nobody can still take an address because it once was enabled, and give up its blocks.

    ``revision`` is the resource version that it has to have; empty for any. Blocks in use stay, nobody's, until their
    last address is released.

    Raises:
        ResourceOutdated: it has another resource version.
        ContentionExhausted, Unavailable: not now; doing it again goes on where this ended.
    """
    if not _disable(store, pool, revision, pace):
        return
    # Where commits carry conditions, no assignment that read the enabled pool can be stored any more.
    if store.description.atomicity is Atomicity.ORDERED:
        pace.clock.sleep(_STALENESS_S)
    relinquish_pool(store, pool.value.spec.prefix, Emptiness.NOT_REQUIRED, pace=pace)


def _disable(store: Datastore, pool: Record[IPPool], revision: str, pace: Pace) -> bool:
    """Make it serve nobody; whether it was still there, and not another one in its place."""

    def decide(snapshot: Snapshot) -> Decision[bool]:
        stored = snapshot.find(pool.key)
        if stored is None or stored.value.metadata.uid != pool.value.metadata.uid:
            return Decision((), result=False)
        if revision and revision != stored.revision:
            return Decision((), ResourceOutdated(str(pool.key), revision, stored.revision))
        if stored.value.spec.is_disabled:
            return Decision((), result=True)
        disabled = evolve(stored.value, spec=evolve(stored.value.spec, is_disabled=True))
        # Tried again after a lost reply, a named version would take its own write for another's.
        return Decision((Update(pool.key, disabled, stored.revision),), result=True, is_repeatable=not revision)

    return run(store, [Get(pool.key)], decide, pace=pace).result is True


def held_warnings(store: Datastore, pool: IPPool, *, deadline: Deadline) -> tuple[str, ...]:
    """What should be known before a pool is deleted.

    Raises:
        Unavailable: the store does not answer.
    """
    query = _blocks_beside(pool)
    snapshot = store.read([query], deadline=deadline.capped(CALL_TIMEOUT_S))
    usage = utilization([pool], (record.value for record in snapshot.list(query)))[0]
    held = usage.in_use - usage.cooling
    if not held:
        return ()
    return (f"{pool.key}: addresses of it that are still held: {held}; their workloads keep them",)


def _blocks_beside(pool: IPPool) -> List[Block]:
    return List(BLOCK, blocks_path(pool.spec.prefix.family))
