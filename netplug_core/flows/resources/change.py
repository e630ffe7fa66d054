"""What the verbs that change resources have in common. ``create``, ``apply``, ``replace`` and ``edit`` call it.

A change is a decision over what is stored, run by the transaction. Kinds that netplug itself writes are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

from attrs import evolve, frozen

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction
from netplug_core.flows.resources.outcome import Effect, KindNotWritable, Outcome, ResourceOutdated
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.records import ABSENT, Create, Decision, Get, Key, NeedMore, Record, Snapshot, Update, Write
from netplug_core.resources.bgpconfiguration import BGP_CONFIGURATION
from netplug_core.resources.bgppeer import BGP_PEER
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.resources.hostendpoint import HOST_ENDPOINT
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION, IPAMConfiguration
from netplug_core.resources.ippool import IPPOOL, IPPool, IPPoolSpec, IPPoolStatus
from netplug_core.resources.ipreservation import IPRESERVATION, IPReservation
from netplug_core.resources.kinds import NetworkResource, Resource, key_of
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION,
    KubeControllersConfiguration,
)
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.node import NODE, Node
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, PROFILE, Profile
from netplug_core.resources.validation import resource_warnings, validate_pool_update, validate_resource

__all__ = [
    "ResourceChange", "Writable", "commit_change", "decide_creation", "decide_repair", "decide_replacement",
    "require_writable",
]  # fmt: skip

Writable: TypeAlias = (
    IPPool | IPReservation | IPAMConfiguration | Node | Profile | KubeControllersConfiguration | NetworkResource
)
"""The resources that people may write."""

_WRITABLE_KINDS = (
    IPPOOL,
    IPRESERVATION,
    IPAM_CONFIGURATION,
    NODE,
    PROFILE,
    KUBE_CONTROLLERS_CONFIGURATION,
    HOST_ENDPOINT,
    BGP_CONFIGURATION,
    BGP_PEER,
    NODE_CONFIGURATION,
)


@frozen(kw_only=True)
class ResourceChange:
    """A resource as a manifest has it (``wanted``), and as it is stored if there is none yet (``created``).

    ``revision`` is the resource version of the manifest; empty for any.
    """

    wanted: Writable
    created: Writable
    revision: str

    @classmethod
    def of(cls, manifest: Manifest, operation: str, pace: Pace, *, uid: str) -> ResourceChange:
        """The change that a manifest asks for; ``uid`` is for a resource that has none.

        Raises:
            InvalidResource: the resource breaks rules that concern it alone.
            KindNotWritable: people do not write its kind.
        """
        require_writable(key_of(manifest.resource), operation)
        wanted = cast("Writable", manifest.resource)
        validate_resource(wanted)
        metadata = wanted.metadata
        created_ns = pace.clock.now_ns() if metadata.creation_time_ns is None else metadata.creation_time_ns
        created = evolve(
            wanted,
            metadata=evolve(
                metadata, uid=metadata.uid or uid, creation_time_ns=created_ns, deletion_time_ns=None, attempt=uid
            ),
        )
        if isinstance(created, IPPool):
            created = evolve(created, status=IPPoolStatus())
        return cls(wanted=wanted, created=created, revision=manifest.revision)

    @property
    def key(self) -> Key[Resource]:
        """Where it is stored."""
        return key_of(self.wanted)

    @property
    def has_own_uid(self) -> bool:
        """Whether this call made the uid, so that a stored resource with it was stored by this call."""
        return not self.wanted.metadata.uid

    def is_stored_as(self, stored: Record[Resource]) -> bool:
        """Whether an earlier attempt of this call, whose reply was lost, created the stored resource."""
        ours, theirs = self.created.metadata, stored.value.metadata
        return self.has_own_uid and (theirs.uid == ours.uid or (bool(ours.attempt) and theirs.attempt == ours.attempt))


def require_writable(key: Key[Resource], operation: str) -> None:
    """Refuse a kind that people do not write.

    Raises:
        KindNotWritable: netplug or a node writes it.
    """
    if key.kind not in _WRITABLE_KINDS or key == DEFAULT_ALLOW_PROFILE.key:
        is_ours = key.kind in (CLUSTER_INFORMATION, PROFILE)
        owner = "netplug itself" if is_ours else "the node that runs the workload"
        raise KindNotWritable(str(key), operation, f"it is kept by {owner}")


def commit_change(
    store: Datastore,
    change: ResourceChange,
    decide: Callable[[Snapshot, PoolNeighbours], Decision[Effect] | NeedMore],
    pace: Pace,
    run: PoolNeighbours | None = None,
) -> Outcome:
    """Decide over the stored resource, beside its neighbours if it is a pool, and commit.

    ``run`` has what was read for the changes before, and confirms new pools in the end; None: this is the only change.
    """
    query = Get(change.key)  # by itself, so that damage to others is not taken for its own
    neighbours, pool = PoolNeighbours() if run is None else run, change.created
    warnings: tuple[str, ...] = ()
    if isinstance(pool, IPPool):
        found = store.read((query,), deadline=pace.deadline.capped(CALL_TIMEOUT_S))
        if found.state(query) is ABSENT:
            warnings = neighbours.prepare(store, pool, pace=pace)
    transaction = Transaction(store, pace)
    effect = cast("Effect", transaction.run((query,), lambda snapshot: decide(snapshot, neighbours)).result)
    if isinstance(pool, IPPool) and effect is Effect.CREATED:
        neighbours.note_creation(store, pool, next(reversed(transaction.revisions), None), pace=pace)
        if run is None:
            neighbours.require_confirmed(store, pace=pace)
    return Outcome(key=change.key, effect=effect, warnings=(*resource_warnings(change.created), *warnings))


def decide_creation(
    snapshot: Snapshot, change: ResourceChange, neighbours: PoolNeighbours
) -> Decision[Effect] | NeedMore:
    """Create the resource; of a pool, with the conditions that its neighbours require."""
    create = Create(change.key, change.created)
    if not isinstance(change.created, IPPool):
        return Decision((create,), Effect.CREATED, is_repeatable=change.has_own_uid)
    conditions = neighbours.conditions(snapshot, change.created)
    if isinstance(conditions, NeedMore):
        return conditions
    return Decision((*conditions, create), Effect.CREATED, is_repeatable=change.has_own_uid)


def decide_repair(
    snapshot: Snapshot, change: ResourceChange, neighbours: PoolNeighbours
) -> Decision[Effect] | NeedMore | None:
    """Store the resource in the place of a damaged record; None if the stored one is not damaged, or there is none.

    Nothing of the damaged record is kept. A pool has to fit its neighbours and the stored blocks, as a new one has.
    """
    found = snapshot.malformed(Get(change.key))
    if not found:
        return None
    damage = found[0]
    if change.revision and change.revision != damage.revision:
        return Decision((), ResourceOutdated(str(change.key), change.revision, damage.revision))
    conditions: tuple[Write, ...] = ()
    if isinstance(change.created, IPPool):
        fitting = neighbours.conditions(snapshot, change.created, damage)
        if isinstance(fitting, NeedMore):
            return fitting
        conditions = fitting
    return Decision((*conditions, Update(change.key, change.created, damage.revision)), Effect.REPAIRED)


def decide_replacement(stored: Record[Resource], wanted: Writable, revision: str) -> Decision[Effect]:
    """Give a stored resource the labels, the annotations and the spec of another; ``revision`` is empty for any."""
    if revision and revision != stored.revision:
        return Decision((), ResourceOutdated(str(stored.key), revision, stored.revision))
    before = stored.value
    if isinstance(wanted, IPPool) and isinstance(before, IPPool):
        validate_pool_update(before, wanted)
    metadata = evolve(before.metadata, labels=wanted.metadata.labels, annotations=wanted.metadata.annotations)
    spec = evolve(wanted.spec, unknown_json=before.spec.unknown_json)
    # Every kind has these members, but a type checker cannot see that in a union. So a pool stands for all of them.
    after = evolve(cast("IPPool", before), metadata=metadata, spec=cast("IPPoolSpec", spec))
    if after == before:
        return Decision((), Effect.UNCHANGED)
    # After a lost reply, a manifest with a resource version would take its own write for another person's.
    return Decision((Update(stored.key, after, stored.revision),), Effect.UPDATED, is_repeatable=not revision)
