"""What ``netplugctl`` does to resources: create, apply, find, list, delete; and the cluster's first record.

Callers hand in values that ``resources.codec`` made. Every change is a decision over what is stored, run by the one
loop. This release changes pools; the other kinds are written by those who own them and can be read here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import cast

from attrs import evolve, frozen

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.interface import Datastore
from netplug_core.datastore.loop import CALL_S, run
from netplug_core.errors import ConfigurationError, NotYetSupported
from netplug_core.ipam.block import BLOCK, Block, blocks_path
from netplug_core.ipam.utilization import Utilization, utilization
from netplug_core.records import (
    Create,
    Decision,
    Delete,
    Get,
    Key,
    List,
    NeedMore,
    Record,
    RequireUnchanged,
    Snapshot,
    Update,
)
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION,
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.ippool import IPPOOL, IPPool, IPPoolStatus, ippool_key
from netplug_core.resources.kinds import Resource, ResourceKind, key_of
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.validation import (
    InvalidResource,
    Problem,
    check_pool,
    check_pool_change,
    check_pool_neighbours,
    pool_warnings,
)

__all__ = [
    "Effect",
    "KindNotWritable",
    "Outcome",
    "ResourceExists",
    "ResourceMissing",
    "ResourceOutdated",
    "apply",
    "create",
    "delete",
    "ensure_initialized",
    "find",
    "find_cluster_information",
    "list_all",
    "read_utilization",
]

_POOLS = List(IPPOOL)


class Effect(enum.Enum):
    """What became of a resource."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@frozen(kw_only=True)
class Outcome:
    """What was done, and what the person should know about it: ``warnings`` are sentences."""

    key: Key[Resource]
    effect: Effect
    warnings: tuple[str, ...] = ()


class ResourceExists(ConfigurationError):
    """A create of something that is stored already."""

    def __str__(self) -> str:
        return f"resource already exists: {self.where}; {self.accepted}"


class ResourceMissing(ConfigurationError):
    """A name under which nothing is stored."""

    def __str__(self) -> str:
        return f"resource does not exist: {self.where}"


class ResourceOutdated(ConfigurationError):
    """A document that names a resource version other than the stored one; ``accepted`` is the latest."""

    def __str__(self) -> str:
        return (
            f"update conflict: {self.where}: resource version '{self.value}' is out of date (latest: {self.accepted}). "
            "Update the resource YAML/JSON in order to make changes."
        )


class KindNotWritable(NotYetSupported):
    """A change of a kind that people cannot change, or not in this release; ``value`` is the operation."""

    def __str__(self) -> str:
        return f"operation {self.value} is not supported on {self.where}: {self.accepted}"


def create(store: Datastore, manifest: Manifest, *, pace: Pace, new_uid: Callable[[], str]) -> Outcome:
    """Store a new pool. Its status and its deletion time are not a person's to say and are left out.

    Raises:
        InvalidResource: it breaks rules, alone or beside the pools there are.
        KindNotWritable: not a pool.
        ResourceExists: there is one of that name.
        Unavailable: the store does not answer.
    """
    pool = _pool_of(manifest.resource, "Create")
    if manifest.revision:
        rule = "field must not be set for a Create request"
        raise InvalidResource.of(str(key_of(pool)), [Problem("Metadata.ResourceVersion", manifest.revision, rule)])
    check_pool(pool)
    wanted = _new_born(pool, pace.clock.now_ns(), new_uid())
    is_marked = wanted.metadata.uid != pool.metadata.uid

    def decide(snapshot: Snapshot) -> Decision[Effect] | NeedMore:
        stored = snapshot.find(ippool_key(pool.metadata.name))
        if stored is None:
            return _creation(snapshot, wanted, repeatable=is_marked)
        if is_marked and stored.value.metadata.uid == wanted.metadata.uid:
            return Decision((), Effect.CREATED)
        return Decision((), ResourceExists(str(key_of(pool)), pool.metadata.name, "choose another name, or apply"))

    return _done(run(store, [_POOLS, _blocks_beside(pool)], decide, pace=pace), pool)


def apply(store: Datastore, manifest: Manifest, *, pace: Pace, new_uid: Callable[[], str]) -> Outcome:
    """Store a new pool, or give a stored one the labels, the annotations and the spec of a manifest.

    What the stored one has beyond that stays: identity, times, finalizers, owners, status, and whatever a newer
    release put there. Where nothing differs nothing is written.

    Raises:
        InvalidResource: it breaks rules, alone, beside the pools there are, or by changing what cannot be changed.
        KindNotWritable: not a pool.
        ResourceMissing: the manifest names a resource version, and nothing is stored.
        ResourceOutdated: it names another one than the latest.
        Unavailable: the store does not answer.
    """
    pool = _pool_of(manifest.resource, "Apply")
    check_pool(pool)
    wanted = _new_born(pool, pace.clock.now_ns(), new_uid())
    is_marked = wanted.metadata.uid != pool.metadata.uid

    def decide(snapshot: Snapshot) -> Decision[Effect] | NeedMore:
        stored = snapshot.find(ippool_key(pool.metadata.name))
        if stored is None:
            if manifest.revision:
                return Decision((), _missing(key_of(pool)))
            return _creation(snapshot, wanted, repeatable=is_marked)
        if is_marked and stored.value.metadata.uid == wanted.metadata.uid:
            return Decision((), Effect.CREATED)
        return _replacement(stored, manifest, pool)

    return _done(run(store, [_POOLS], decide, pace=pace), pool)


def delete(store: Datastore, key: Key[Resource], *, revision: str = "", pace: Pace) -> Outcome:
    """Remove a pool; workloads keep the addresses that they have of it, and a warning says how many there are.

    ``revision`` is the resource version that it has to have; empty for any.

    Raises:
        KindNotWritable: not a pool.
        ResourceMissing: nothing is stored there.
        ResourceOutdated: it has another resource version.
        Unavailable: the store does not answer.
    """
    if key.kind != IPPOOL:
        raise _not_writable(key, "Delete")
    pools = ippool_key(key.name)
    (first,) = find(store, [key], deadline=pace.deadline)
    if first is None:
        raise _missing(key)
    seen = cast("IPPool", first.value)

    def decide(snapshot: Snapshot) -> Decision[Effect]:
        stored = snapshot.find(pools)
        # It was there when this call began. Gone, or another one in its place: this one is deleted, maybe by a try
        # of ours whose reply was lost.
        if stored is None or stored.value.metadata.uid != seen.metadata.uid:
            return Decision((), Effect.DELETED)
        if revision and revision != stored.revision:
            return Decision((), ResourceOutdated(str(key), revision, stored.revision))
        return Decision((Delete(pools, stored.revision),), Effect.DELETED)

    warnings = _held_warnings(store, seen, pace.deadline)
    run(store, [Get(pools)], decide, pace=pace)
    return Outcome(key=key, effect=Effect.DELETED, warnings=warnings)


def find(store: Datastore, keys: Sequence[Key[Resource]], *, deadline: Deadline) -> tuple[Record[Resource] | None, ...]:
    """What is stored under some keys, in their order; None where nothing is.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(key) for key in keys], deadline=deadline.capped(CALL_S))
    return tuple(snapshot.find(key) for key in keys)


def list_all(
    store: Datastore, row: ResourceKind, *, namespace: str = "", deadline: Deadline
) -> tuple[Record[Resource], ...]:
    """Everything of a kind, sorted by name; of a namespaced kind only one namespace's when one is given.

    Raises:
        Unavailable: the store does not answer.
    """
    query = List(row.kind, (namespace,) if namespace else ())
    return store.read([query], deadline=deadline.capped(CALL_S)).list(query)


def find_cluster_information(store: Datastore, *, deadline: Deadline) -> ClusterInformationSpec:
    """What the cluster says of itself; an empty one where nothing was ever stored.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=deadline.capped(CALL_S))
    stored = snapshot.find(CLUSTER_INFORMATION_KEY)
    return stored.value.spec if stored else ClusterInformationSpec()


def read_utilization(store: Datastore, *, deadline: Deadline) -> Utilization:
    """How full every pool is, and every block.

    Raises:
        Unavailable: the store does not answer.
    """
    blocks = List(BLOCK)
    snapshot = store.read([_POOLS, blocks], deadline=deadline.capped(CALL_S))
    pools = (record.value for record in snapshot.list(_POOLS))
    return utilization(pools, (record.value for record in snapshot.list(blocks)))


def ensure_initialized(
    store: Datastore, *, pace: Pace, new_uid: Callable[[], str], version: str = ""
) -> ClusterInformation:
    """Make sure that the cluster has an identity; what is set already is never overwritten.

    Only the owner of the cluster's version passes one; it is stored when it differs.

    Raises:
        Unavailable: the store does not answer.
    """
    uid, guid = new_uid(), new_uid().replace("-", "")
    metadata = Metadata(name=CLUSTER_INFORMATION_KEY.name, uid=uid, creation_time_ns=pace.clock.now_ns())

    def decide(snapshot: Snapshot) -> Decision[ClusterInformation]:
        stored = snapshot.find(CLUSTER_INFORMATION_KEY)
        spec = stored.value.spec if stored else ClusterInformationSpec()
        spec = evolve(
            spec,
            cluster_guid=spec.cluster_guid or guid,
            version=version or spec.version,
            # An explicit false is somebody's lock.
            is_datastore_ready=spec.is_datastore_ready is not False,
        )
        if stored is None:
            made = ClusterInformation(metadata=metadata, spec=spec)
            return Decision((Create(CLUSTER_INFORMATION_KEY, made),), made)
        wanted = evolve(stored.value, spec=spec)
        if wanted == stored.value:
            return Decision((), wanted)
        return Decision((Update(CLUSTER_INFORMATION_KEY, wanted, stored.revision),), wanted)

    return cast("ClusterInformation", run(store, [Get(CLUSTER_INFORMATION_KEY)], decide, pace=pace).result)


# --- decisions about one pool ----------------------------------------------------------------------------------------


def _blocks_beside(pool: IPPool) -> List[Block]:
    return List(BLOCK, blocks_path(pool.spec.prefix.family))


def _creation(snapshot: Snapshot, wanted: IPPool, *, repeatable: bool) -> Decision[Effect] | NeedMore:
    near = _blocks_beside(wanted)
    if not snapshot.has(near):
        return NeedMore((near,))
    others = (record.value for record in snapshot.list(_POOLS))
    check_pool_neighbours(wanted, others, (record.value.prefix for record in snapshot.list(near)))
    writes = (
        # Two creations that overlap know nothing of each other's key; this makes the second one look again.
        RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL)),
        Create(ippool_key(wanted.metadata.name), wanted),
    )
    return Decision(writes, Effect.CREATED, repeatable=repeatable)


def _replacement(stored: Record[IPPool], manifest: Manifest, pool: IPPool) -> Decision[Effect]:
    if manifest.revision and manifest.revision != stored.revision:
        return Decision((), ResourceOutdated(str(stored.key), manifest.revision, stored.revision))
    check_pool_change(stored.value, pool)
    metadata = evolve(stored.value.metadata, labels=pool.metadata.labels, annotations=pool.metadata.annotations)
    spec = evolve(pool.spec, carried=stored.value.spec.carried)
    wanted = evolve(stored.value, metadata=metadata, spec=spec)
    if wanted == stored.value:
        return Decision((), Effect.UNCHANGED)
    # Tried again after a lost reply, a manifest with a resource version would take its own write for another's.
    repeatable = not manifest.revision
    return Decision((Update(stored.key, wanted, stored.revision),), Effect.UPDATED, repeatable=repeatable)


def _new_born(pool: IPPool, now_ns: int, uid: str) -> IPPool:
    metadata = pool.metadata
    born_ns = now_ns if metadata.creation_time_ns is None else metadata.creation_time_ns
    metadata = evolve(metadata, uid=metadata.uid or uid, creation_time_ns=born_ns, deletion_time_ns=None)
    return evolve(pool, metadata=metadata, status=IPPoolStatus())


def _done(decision: Decision[Effect], pool: IPPool) -> Outcome:
    return Outcome(key=key_of(pool), effect=cast("Effect", decision.result), warnings=pool_warnings(pool))


def _pool_of(resource: Resource, operation: str) -> IPPool:
    if not isinstance(resource, IPPool):
        raise _not_writable(key_of(resource), operation)
    return resource


def _not_writable(key: Key[Resource], operation: str) -> KindNotWritable:
    later = f"this release changes IPPools; changing a {key.kind} comes later"
    reason = "it is kept by netplug itself" if key.kind == CLUSTER_INFORMATION else later
    return KindNotWritable(str(key), operation, reason)


def _missing(key: Key[Resource]) -> ResourceMissing:
    return ResourceMissing(str(key), key.name, "a name that exists")


def _held_warnings(store: Datastore, pool: IPPool, deadline: Deadline) -> tuple[str, ...]:
    query = _blocks_beside(pool)
    snapshot = store.read([query], deadline=deadline.capped(CALL_S))
    held = utilization([pool], (record.value for record in snapshot.list(query))).pools[0].in_use
    if not held:
        return ()
    return (f"{key_of(pool)}: addresses of it that are still held: {held}; their workloads keep them",)
