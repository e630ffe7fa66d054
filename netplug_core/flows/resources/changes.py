"""What ``netplugctl`` does to resources: create, apply, replace, edit, delete, find, list, validate.

Callers hand in values that ``resources.codec`` made. Every change is a decision over what is stored, run by the one
loop. Kinds that netplug keeps itself can only be read here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from attrs import evolve, frozen

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.resources import pools
from netplug_core.flows.resources.outcome import (
    Effect,
    KindNotWritable,
    Outcome,
    ResourceExists,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.records import Create, Decision, Delete, Get, Key, List, NeedMore, Query, Record, Snapshot, Update
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION, IPAMConfiguration
from netplug_core.resources.ippool import IPPOOL, IPPool, IPPoolSpec, IPPoolStatus
from netplug_core.resources.ipreservation import IPRESERVATION, IPReservation
from netplug_core.resources.kinds import Resource, ResourceKind, key_of
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.node import NODE, Node
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, PROFILE, Profile
from netplug_core.resources.validation import (
    FieldError,
    InvalidResource,
    pool_warnings,
    validate_pool_update,
    validate_resource,
)

__all__ = ["apply", "create", "delete", "edit", "find", "list_all", "replace", "validate"]

_Writable: TypeAlias = IPPool | IPReservation | IPAMConfiguration | Node | Profile
_WRITABLE = (IPPOOL, IPRESERVATION, IPAM_CONFIGURATION, NODE, PROFILE)


def create(store: Datastore, manifest: Manifest, *, pace: Pace, new_uid: Callable[[], str]) -> Outcome:
    """Store a new resource. Its status and its deletion time are not a person's to say and are left out.

    Raises:
        InvalidResource: it breaks rules, alone or beside what there is.
        KindNotWritable: people do not write its kind.
        ResourceExists: there is one of that name.
        Unavailable: the store does not answer.
    """
    wish = _Change.of(manifest, "Create", pace, uid=new_uid())
    if manifest.revision:
        rule = "field must not be set for a Create request"
        raise InvalidResource.from_field_errors(
            str(wish.key), [FieldError("Metadata.ResourceVersion", manifest.revision, rule)]
        )

    def decide(snapshot: Snapshot) -> Decision[Effect] | NeedMore:
        stored = snapshot.find(wish.key)
        if stored is None:
            return _decide_creation(snapshot, wish)
        if wish.is_made(stored):
            return Decision((), Effect.CREATED)
        return Decision((), ResourceExists(str(wish.key), wish.key.name, "choose another name, or apply"))

    return _commit(store, wish, decide, pace)


def apply(store: Datastore, manifest: Manifest, *, pace: Pace, new_uid: Callable[[], str]) -> Outcome:
    """Store a new resource, or give a stored one the labels, the annotations and the spec of a manifest.

    What the stored one has beyond that stays: identity, times, finalizers, owners, status, and whatever a newer
    release put there. Where nothing differs nothing is written.

    Raises:
        InvalidResource: it breaks rules, alone, beside what there is, or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        ResourceMissing: the manifest names a resource version, and nothing is stored.
        ResourceOutdated: it names another one than the latest.
        Unavailable: the store does not answer.
    """
    wish = _Change.of(manifest, "Apply", pace, uid=new_uid())

    def decide(snapshot: Snapshot) -> Decision[Effect] | NeedMore:
        stored = snapshot.find(wish.key)
        if stored is None:
            return Decision((), ResourceMissing.of(wish.key)) if manifest.revision else _decide_creation(snapshot, wish)
        if wish.is_made(stored):
            return Decision((), Effect.CREATED)
        return _decide_replacement(stored, wish.asked, wish.revision)

    return _commit(store, wish, decide, pace)


def replace(store: Datastore, manifest: Manifest, *, pace: Pace) -> Outcome:
    """Give a stored resource the labels, the annotations and the spec of a manifest, as :func:`apply` does.

    Raises:
        InvalidResource: it breaks rules, alone or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        ResourceMissing: nothing is stored.
        ResourceOutdated: the manifest names another resource version than the latest.
        Unavailable: the store does not answer.
    """
    wish = _Change.of(manifest, "Update", pace, uid="")

    def decide(snapshot: Snapshot) -> Decision[Effect]:
        stored = snapshot.find(wish.key)
        if stored is None:
            return Decision((), ResourceMissing.of(wish.key))
        return _decide_replacement(stored, wish.asked, wish.revision)

    return _commit(store, wish, decide, pace)


def edit(store: Datastore, key: Key[Resource], change: Callable[[Resource], Resource], *, pace: Pace) -> Outcome:
    """Give a stored resource the labels, the annotations and the spec that ``change`` makes of it.

    ``change`` sees what is stored at the moment of writing, and sees it again whenever somebody else was faster: what
    it leaves alone is nobody's to lose. It may refuse by raising.

    Raises:
        InvalidResource: what would come of it breaks rules, alone or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        ResourceMissing: nothing is stored there.
        Unavailable: the store does not answer.
    """
    _require_writable(key, "Update")

    def decide(snapshot: Snapshot) -> Decision[Effect]:
        stored = snapshot.find(key)
        if stored is None:
            return Decision((), ResourceMissing.of(key))
        wanted = cast("_Writable", change(stored.value))
        validate_resource(wanted)
        return _decide_replacement(stored, wanted, revision="")

    return Outcome(key=key, effect=cast("Effect", Transaction(store, pace).run([Get(key)], decide).result))


def validate(manifest: Manifest) -> Outcome:
    """Hold a manifest against every rule that needs no store.

    Raises:
        InvalidResource: it breaks some; all of them are named.
    """
    resource = manifest.resource
    validate_resource(resource)
    warnings = pool_warnings(resource) if isinstance(resource, IPPool) else ()
    return Outcome(key=key_of(resource), effect=Effect.VALID, warnings=warnings)


def delete(store: Datastore, key: Key[Resource], *, revision: str = "", pace: Pace) -> Outcome:
    """Remove a resource; of a pool, and of a node, the claims on blocks go first.

    Workloads keep the addresses that they have; a warning says how many they are of a pool. ``revision`` is the
    resource version that it has to have; empty for any.

    Raises:
        KindNotWritable: people do not write its kind.
        ResourceMissing: nothing is stored there.
        ResourceOutdated: it has another resource version.
        ContentionExhausted, Unavailable: not now.
    """
    _require_writable(key, "Delete")
    (seen,) = find(store, [key], deadline=pace.deadline)
    if seen is None:
        raise ResourceMissing.of(key)
    if revision and revision != seen.revision:
        raise ResourceOutdated(str(key), revision, seen.revision)
    warnings = _before_deletion(store, seen, revision, pace)
    # It was the right one of a pool, and disabling the pool has made another.
    version = "" if isinstance(seen.value, IPPool) else revision

    def decide(snapshot: Snapshot) -> Decision[Effect]:
        stored = snapshot.find(key)
        # It was there when this call began. Gone, or another one in its place: this one is deleted, maybe by a try
        # of ours whose reply was lost.
        if stored is None or stored.value.metadata.uid != seen.value.metadata.uid:
            return Decision((), Effect.DELETED)
        if version and version != stored.revision:
            return Decision((), ResourceOutdated(str(key), version, stored.revision))
        return Decision((Delete(key, stored.revision),), Effect.DELETED)

    Transaction(store, pace).run([Get(key)], decide)
    return Outcome(key=key, effect=Effect.DELETED, warnings=warnings)


def find(store: Datastore, keys: Sequence[Key[Resource]], *, deadline: Deadline) -> tuple[Record[Resource] | None, ...]:
    """What there is under some keys, in their order; None where nothing is.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(key) for key in keys], deadline=deadline.capped(CALL_TIMEOUT_S))
    return tuple(DEFAULT_ALLOW_PROFILE if key == DEFAULT_ALLOW_PROFILE.key else snapshot.find(key) for key in keys)


def list_all(
    store: Datastore, row: ResourceKind, *, namespace: str = "", deadline: Deadline
) -> tuple[Record[Resource], ...]:
    """Everything of a kind, sorted by name; of a namespaced kind only one namespace's when one is given.

    Raises:
        Unavailable: the store does not answer.
    """
    query = List(row.kind, (namespace,) if namespace else ())
    stored = store.read([query], deadline=deadline.capped(CALL_TIMEOUT_S)).list(query)
    if row.kind != PROFILE:
        return stored
    others = (record for record in stored if record.key != DEFAULT_ALLOW_PROFILE.key)
    return tuple(sorted((DEFAULT_ALLOW_PROFILE, *others), key=lambda record: record.key.path))


# --- what is wished, and what is decided about it --------------------------------------------------------------------


@frozen(kw_only=True)
class _Change:
    """A resource as somebody asked for it, and as it is stored if there is none yet."""

    asked: _Writable
    newborn: _Writable
    revision: str

    @classmethod
    def of(cls, manifest: Manifest, operation: str, pace: Pace, *, uid: str) -> _Change:
        """What a manifest asks for, held against the rules that need nothing else; ``uid`` is for one without."""
        _require_writable(key_of(manifest.resource), operation)
        asked = cast("_Writable", manifest.resource)
        validate_resource(asked)
        metadata = asked.metadata
        born_ns = pace.clock.now_ns() if metadata.creation_time_ns is None else metadata.creation_time_ns
        newborn = evolve(
            asked,
            metadata=evolve(metadata, uid=metadata.uid or uid, creation_time_ns=born_ns, deletion_time_ns=None),
        )
        if isinstance(newborn, IPPool):
            newborn = evolve(newborn, status=IPPoolStatus())
        return cls(asked=asked, newborn=newborn, revision=manifest.revision)

    @property
    def key(self) -> Key[Resource]:
        """Where it is stored."""
        return key_of(self.asked)

    @property
    def is_marked(self) -> bool:
        """Whether its identity was made by this call, so that finding it stored means that this call stored it."""
        return not self.asked.metadata.uid

    def is_made(self, stored: Record[Resource]) -> bool:
        """Whether this call stored it, in an earlier try whose reply was lost."""
        return self.is_marked and stored.value.metadata.uid == self.newborn.metadata.uid


def _require_writable(key: Key[Resource], operation: str) -> None:
    if key.kind not in _WRITABLE or key == DEFAULT_ALLOW_PROFILE.key:
        is_ours = key.kind in (CLUSTER_INFORMATION, PROFILE)
        kept_by = "netplug itself" if is_ours else "the node that runs the workload"
        raise KindNotWritable(str(key), operation, f"it is kept by {kept_by}")


def _before_deletion(store: Datastore, seen: Record[Resource], revision: str, pace: Pace) -> tuple[str, ...]:
    """Give up what others would otherwise keep of a resource that goes; what should be known about that."""
    resource = seen.value
    if isinstance(resource, Node):
        relinquish_node(store, seen.key.name, Emptiness.NOT_REQUIRED, pace=pace)
    if not isinstance(resource, IPPool):
        return ()
    warnings = pools.held_warnings(store, resource, deadline=pace.deadline)
    pools.drain_pool(store, Record(resource.key, resource, seen.revision), revision=revision, pace=pace)
    return warnings


def _commit(
    store: Datastore, wish: _Change, decide: Callable[[Snapshot], Decision[Effect] | NeedMore], pace: Pace
) -> Outcome:
    queries: tuple[Query, ...] = (Get(wish.key),)
    warnings: tuple[str, ...] = ()
    if isinstance(wish.asked, IPPool):
        queries = (pools.POOLS,)
        warnings = pool_warnings(wish.asked)
    decision = Transaction(store, pace).run(queries, decide)
    return Outcome(key=wish.key, effect=cast("Effect", decision.result), warnings=warnings)


def _decide_creation(snapshot: Snapshot, wish: _Change) -> Decision[Effect] | NeedMore:
    create_it = Create(wish.key, wish.newborn)
    if not isinstance(wish.newborn, IPPool):
        return Decision((create_it,), Effect.CREATED, is_repeatable=wish.is_marked)
    conditions = pools.conditions_of_creation(snapshot, wish.newborn)
    if isinstance(conditions, NeedMore):
        return conditions
    return Decision((*conditions, create_it), Effect.CREATED, is_repeatable=wish.is_marked)


def _decide_replacement(stored: Record[Resource], asked: _Writable, revision: str) -> Decision[Effect]:
    if revision and revision != stored.revision:
        return Decision((), ResourceOutdated(str(stored.key), revision, stored.revision))
    before = stored.value
    if isinstance(asked, IPPool) and isinstance(before, IPPool):
        validate_pool_update(before, asked)
    metadata = evolve(before.metadata, labels=asked.metadata.labels, annotations=asked.metadata.annotations)
    spec = evolve(asked.spec, unknown_json=before.spec.unknown_json)
    # Every kind has these members, which is more than a type checker sees in a union: a pool stands for them all.
    wanted = evolve(cast("IPPool", before), metadata=metadata, spec=cast("IPPoolSpec", spec))
    if wanted == before:
        return Decision((), Effect.UNCHANGED)
    # Tried again after a lost reply, a manifest with a resource version would take its own write for another's.
    return Decision((Update(stored.key, wanted, stored.revision),), Effect.UPDATED, is_repeatable=not revision)
