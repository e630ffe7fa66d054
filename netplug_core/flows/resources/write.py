"""Writes of resources: create, apply, replace, edit and label; what each would change, and checks without a datastore.

``netplugctl`` calls them. A manifest is validated alone, then against its neighbours, and is written conditionally:
what another writer changed meanwhile is never overwritten.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from attrs import evolve, frozen

from netplug_core.addressing import PrefixIndex
from netplug_core.clock import Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction, read_pages
from netplug_core.decoding.tables import carried_json
from netplug_core.errors import ConfigurationError, NetplugError, excerpt, quote
from netplug_core.flows.resources.outcome import (
    Effect,
    KindNotWritable,
    LabelKept,
    Outcome,
    ResourceExists,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.flows.resources.read import find
from netplug_core.records import (
    ABSENT,
    Create,
    Decision,
    Get,
    Key,
    Malformed,
    NeedMore,
    Query,
    Record,
    Snapshot,
    Update,
    Write,
)
from netplug_core.resources.bgp import BGP_CONFIGURATION, BGP_FILTER, BGP_PEER
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.resources.codec import Manifest, Mark, marks_of, with_marks, with_parts
from netplug_core.resources.fields import Metadata
from netplug_core.resources.hostendpoint import HOST_ENDPOINT
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION,
    IPAM_CONFIGURATION_KEY,
    IPPOOL,
    IPRESERVATION,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolStatus,
)
from netplug_core.resources.kinds import Resource, key_of, resource_of
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION,
)
from netplug_core.resources.networkpolicy import GLOBAL_NETWORK_POLICY, GLOBAL_NETWORK_SET, NETWORK_POLICY, NETWORK_SET
from netplug_core.resources.node import NODE
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration, interface_prefixes
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, PROFILE
from netplug_core.resources.validation import (
    FieldError,
    InvalidResource,
    resource_warnings,
    validate_pool_overlaps,
    validate_pool_update,
    validate_resource,
)
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = [
    "MarkEffect",
    "MarkPresent",
    "Overwriting",
    "Preview",
    "ResourceChange",
    "apply",
    "change_marks",
    "commit_change",
    "configure_ipam",
    "create",
    "decide_creation",
    "decide_repair",
    "decide_replacement",
    "edit",
    "preview",
    "replace",
    "require_interfaces_kept",
    "require_writable",
    "validate",
]  # fmt: skip


# --- one change -------------------------------------------------------------------------------------------------------


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
    BGP_FILTER,
    NODE_CONFIGURATION,
    NETWORK_POLICY,
    GLOBAL_NETWORK_POLICY,
    NETWORK_SET,
    GLOBAL_NETWORK_SET,
)


@frozen(kw_only=True)
class ResourceChange:
    """A resource as a manifest has it (``wanted``), and as it is stored if there is none yet (``created``).

    ``revision`` is the resource version of the manifest; empty for any.
    """

    wanted: Resource
    created: Resource
    revision: str

    @classmethod
    def of(cls, manifest: Manifest, operation: str, pace: Pace, *, uid: str) -> ResourceChange:
        """The change that a manifest asks for; ``uid`` is for a resource that has none.

        Raises:
            InvalidResource: the resource breaks rules that concern it alone.
            KindNotWritable: people do not write its kind.
        """
        require_writable(key_of(manifest.resource), operation)
        wanted = manifest.resource
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
    require_interfaces_kept(store, change.key, change.wanted, pace)
    neighbours, pool = PoolNeighbours() if run is None else run, change.created
    warnings: tuple[str, ...] = ()
    if isinstance(pool, IPPool):
        found = store.read((query,), deadline=pace.deadline.capped(CALL_TIMEOUT_S))
        if found.state(query) is ABSENT:
            warnings = neighbours.prepare(store, pool, pace=pace)
    transaction = Transaction(store, pace)
    effect = transaction.run((query,), lambda snapshot: decide(snapshot, neighbours)).get_result()
    if isinstance(pool, IPPool) and effect is Effect.CREATED:
        neighbours.note_creation(store, pool, next(reversed(transaction.revisions), None), pace=pace)
        if run is None:
            neighbours.require_confirmed(store, pace=pace)
    return Outcome(key=change.key, effect=effect, warnings=(*resource_warnings(change.created), *warnings))


def require_interfaces_kept(store: Datastore, key: Key[Resource], wanted: Resource | None, pace: Pace) -> None:
    """Refuse a configuration of nodes under which interfaces of workloads would not be known as such any more.

    ``wanted`` None: the configuration is deleted.

    Raises:
        InvalidResource: workloads have interfaces whose names begin as configured now, and not as they would be.
    """
    if key.kind != NODE_CONFIGURATION:
        return
    damaged: list[Malformed] = []  # what cannot be read says nothing of prefixes
    stored = read_pages(store, NODE_CONFIGURATION, deadline=pace.deadline, malformed=damaged)
    before = {record.key.name: record.value for record in stored}
    after = {name: one for name, one in before.items() if name != key.name}
    if isinstance(wanted, NodeConfiguration):
        after[key.name] = wanted
    if _prefixes(before) == _prefixes(after):
        return
    endpoints = read_pages(store, WORKLOAD_ENDPOINT, deadline=pace.deadline, malformed=damaged)
    lost = [record.value for record in endpoints if _is_lost(record.value, before.values(), after.values())]
    if lost:
        rule = (
            f"{len(lost)} interfaces of workloads have names that would not begin so any more, such as "
            f"{lost[0].spec.interface_name} of {key_of(lost[0])}: keep their prefix too, or remove the workloads first"
        )
        prefix = _prefixes(after).get(key.name, "")
        raise InvalidResource.from_field_errors(str(key), [FieldError("spec.interfacePrefix", prefix, rule)])


def _is_lost(
    endpoint: WorkloadEndpoint, before: Iterable[NodeConfiguration], after: Iterable[NodeConfiguration]
) -> bool:
    name, node = endpoint.spec.interface_name, endpoint.spec.node
    return name.startswith(interface_prefixes(before, node)) and not name.startswith(interface_prefixes(after, node))


def _prefixes(configurations: Mapping[str, NodeConfiguration]) -> Mapping[str, str]:
    """The prefixes that are given, by the name of the configuration that gives them."""
    given = {name: one.spec.interface_prefix for name, one in configurations.items()}
    return {name: prefix for name, prefix in given.items() if prefix}


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


def decide_replacement(stored: Record[Resource], wanted: Resource, revision: str) -> Decision[Effect]:
    """Give a stored resource the labels, the annotations and the spec of another; ``revision`` is empty for any."""
    if revision and revision != stored.revision:
        return Decision((), ResourceOutdated(str(stored.key), revision, stored.revision))
    before = stored.value
    if isinstance(wanted, IPPool) and isinstance(before, IPPool):
        validate_pool_update(before, wanted)
    metadata = evolve(before.metadata, labels=wanted.metadata.labels, annotations=wanted.metadata.annotations)
    spec = evolve(wanted.spec, unknown_json=carried_json(before.spec, wanted.spec))
    after = with_parts(before, metadata=metadata, spec=spec)
    if after == before:
        return Decision((), Effect.UNCHANGED)
    # After a lost reply, a manifest with a resource version would take its own write for another person's.
    return Decision((Update(stored.key, after, stored.revision),), Effect.UPDATED, is_repeatable=not revision)


# --- apply ------------------------------------------------------------------------------------------------------------


def apply(
    store: Datastore,
    manifest: Manifest,
    *,
    pace: Pace,
    new_uid: Callable[[], str],
    run: PoolNeighbours | None = None,
) -> Outcome:
    """Store a new resource, or give the stored one the labels, the annotations and the spec of a manifest.

    Everything else of the stored resource stays: identity, times, finalizers, owners, status, and fields of a newer
    release. If nothing differs, nothing is written. A damaged resource is replaced whole.

    ``run`` has what a run of many resources has read of their neighbours; it confirms their creation in the end.

    Raises:
        InvalidResource: it breaks rules, alone, beside what is stored, or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        ResourceMissing: the manifest names a resource version, and nothing is stored.
        ResourceOutdated: the manifest names another resource version than the latest.
        Unavailable: the store does not answer.
    """
    change = ResourceChange.of(manifest, "Apply", pace, uid=new_uid())

    def decide(snapshot: Snapshot, neighbours: PoolNeighbours) -> Decision[Effect] | NeedMore:
        repair = decide_repair(snapshot, change, neighbours)
        if repair is not None:
            return repair
        stored = snapshot.find(change.key)
        if stored is None:
            missing = ResourceMissing.of(change.key)
            return Decision((), missing) if change.revision else decide_creation(snapshot, change, neighbours)
        if change.is_stored_as(stored):
            return Decision((), Effect.CREATED)
        return decide_replacement(stored, change.wanted, change.revision)

    return commit_change(store, change, decide, pace, run)


# --- create -----------------------------------------------------------------------------------------------------------


def create(
    store: Datastore,
    manifest: Manifest,
    *,
    pace: Pace,
    new_uid: Callable[[], str],
    run: PoolNeighbours | None = None,
) -> Outcome:
    """Store a new resource. People do not set its status and its deletion time, so they are left out.

    ``run`` has what a run of many resources has read of their neighbours; it confirms their creation in the end.

    Raises:
        InvalidResource: it breaks rules, alone or beside what is stored.
        KindNotWritable: people do not write its kind.
        ResourceExists: there is one of that name.
        Unavailable: the store does not answer.
    """
    change = ResourceChange.of(manifest, "Create", pace, uid=new_uid())
    if manifest.revision:
        rule = "field must not be set for a Create request"
        raise InvalidResource.from_field_errors(
            str(change.key), [FieldError("Metadata.ResourceVersion", manifest.revision, rule)]
        )

    def decide(snapshot: Snapshot, neighbours: PoolNeighbours) -> Decision[Effect] | NeedMore:
        stored = snapshot.find(change.key)
        if stored is None:
            return decide_creation(snapshot, change, neighbours)
        if change.is_stored_as(stored):
            return Decision((), Effect.CREATED)
        return Decision((), ResourceExists(str(change.key), change.key.name, "choose another name, or apply"))

    return commit_change(store, change, decide, pace, run)


# --- edit -------------------------------------------------------------------------------------------------------------


def edit(store: Datastore, key: Key[Resource], change: Callable[[Resource], Resource], *, pace: Pace) -> Outcome:
    """Give a stored resource the labels, the annotations and the spec that ``change`` makes of it.

    ``change`` gets what is stored at the moment of writing, and gets it again after a conflict, so concurrent changes
    of other parts are kept. It may refuse by raising.

    Raises:
        InvalidResource: the changed resource breaks rules, alone or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        LabelKept: it removes a label of a node that only the orchestrator removes.
        ResourceMissing: nothing is stored under the key.
        Unavailable: the store does not answer.
    """
    require_writable(key, "Update")
    removed: list[str] = []

    def decide(snapshot: Snapshot) -> Decision[Effect]:
        stored = snapshot.find(key)
        if stored is None:
            return Decision((), ResourceMissing.of(key))
        wanted = change(stored.value)
        validate_resource(wanted)
        require_interfaces_kept(store, key, wanted, pace)
        kept = dict(wanted.metadata.labels)
        removed[:] = [name for name, _ in stored.value.metadata.labels if name not in kept]
        return decide_replacement(stored, wanted, revision="")

    effect = Transaction(store, pace).run([Get(key)], decide).get_result()
    if removed and key.kind == NODE:
        _require_removed(store, key, removed, pace)
    return Outcome(key=key, effect=effect)


def _require_removed(store: Datastore, key: Key[Resource], labels: Iterable[str], pace: Pace) -> None:
    """Require that a node does not have some labels: where nodes are the orchestrator's own, it may keep them."""
    (record,) = find(store, [key], deadline=pace.deadline)
    kept = dict(record.value.metadata.labels) if record else {}
    for name in labels:
        if name in kept:
            raise LabelKept(str(key), name, "it is the orchestrator's own label of the node; remove it there")


# --- marks ------------------------------------------------------------------------------------------------------------


class MarkEffect(enum.Enum):
    """The effect on a label or an annotation."""

    SET = "set"
    UPDATED = "updated"
    REMOVED = "removed"
    ABSENT = "absent"


class Overwriting(enum.Enum):
    """Whether the text of an existing label or annotation may be changed."""

    ALLOWED = "allowed"
    REFUSED = "refused"


class MarkPresent(ConfigurationError):
    """A label or an annotation that exists with another text; ``value`` is its name."""

    def __str__(self) -> str:
        return f"key {excerpt(self.value)} is already present on {excerpt(self.where)}: {self.accepted}"


def change_marks(
    store: Datastore,
    key: Key[Resource],
    mark: Mark,
    changes: Mapping[str, str | None],
    *,
    overwriting: Overwriting,
    pace: Pace,
) -> dict[str, MarkEffect]:
    """Set and remove labels or annotations of a stored resource, all at once; the effect on each of them.

    ``changes`` has the text of each name, None to remove it.

    Raises:
        MarkPresent: it has one of them with another text, and overwriting is refused; nothing is changed.
        InvalidResource, KindNotWritable, ResourceMissing, Unavailable: as for ``edit``.
    """
    # What exists when this call begins and is gone later was removed, perhaps by an attempt whose reply was lost.
    (record,) = find(store, [key], deadline=pace.deadline)
    if record is None:
        raise ResourceMissing.of(key)
    before = marks_of(record.value, mark)

    def change(resource: Resource) -> Resource:
        current = marks_of(resource, mark)
        for name, text in changes.items():
            if text is not None and current.get(name, text) != text and overwriting is Overwriting.REFUSED:
                accepted = f"its text is {quote(current[name])}; --overwrite gives it another"
                raise MarkPresent(str(key), name, accepted)
        return with_marks(resource, mark, changes)

    edit(store, key, change, pace=pace)
    return {name: _effect_on(name in before, text) for name, text in changes.items()}


def _effect_on(was_there: bool, text: str | None) -> MarkEffect:  # noqa: FBT001 - of a private function of two
    if text is None:
        return MarkEffect.REMOVED if was_there else MarkEffect.ABSENT
    return MarkEffect.UPDATED if was_there else MarkEffect.SET


# --- replace ----------------------------------------------------------------------------------------------------------


def replace(
    store: Datastore,
    manifest: Manifest,
    *,
    pace: Pace,
    new_uid: Callable[[], str],
    run: PoolNeighbours | None = None,
) -> Outcome:
    """Give a stored resource the labels, the annotations and the spec of a manifest, as ``apply`` does.

    A damaged resource is replaced whole, with a new identity.

    ``run`` has what a run of many resources has read of their neighbours.

    Raises:
        InvalidResource: it breaks rules, alone or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        ResourceMissing: nothing is stored.
        ResourceOutdated: the manifest names another resource version than the latest.
        Unavailable: the store does not answer.
    """
    change = ResourceChange.of(manifest, "Update", pace, uid=new_uid())

    def decide(snapshot: Snapshot, neighbours: PoolNeighbours) -> Decision[Effect] | NeedMore:
        repair = decide_repair(snapshot, change, neighbours)
        if repair is not None:
            return repair
        stored = snapshot.find(change.key)
        if stored is None:
            return Decision((), ResourceMissing.of(change.key))
        return decide_replacement(stored, change.wanted, change.revision)

    return commit_change(store, change, decide, pace, run)


# --- what would change ------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Preview:
    """A resource as it is stored and as it would be.

    ``before`` is None if nothing is stored, or a damaged record. A new resource (``after``) is shown without the
    identity and the creation time that it would get.
    """

    key: Key[Resource]
    before: Resource | None
    after: Resource
    is_damaged: bool = False


def preview(store: Datastore, manifest: Manifest, *, pace: Pace, run: PoolNeighbours | None = None) -> Preview:
    """What ``apply`` would do with a manifest, judged by what is stored now.

    ``run`` has what was read for the manifests before; None: this is the only one.

    Raises:
        InvalidResource, KindNotWritable, ResourceMissing, ResourceOutdated: ``apply`` would refuse it.
        Unavailable: the store does not answer.
    """
    change = ResourceChange.of(manifest, "Apply", pace, uid="")
    wanted: tuple[Query, ...] = (Get(change.key),)
    neighbours = PoolNeighbours() if run is None else run
    snapshot = Snapshot.empty()
    while True:
        snapshot = snapshot.merged(store.read(wanted, deadline=pace.deadline.capped(CALL_TIMEOUT_S)))
        decision = _decide(snapshot, change, neighbours)
        if isinstance(decision, Decision):
            neighbours.settle()
            return _preview_of(decision, snapshot, change)
        wanted = decision.queries


def _decide(snapshot: Snapshot, change: ResourceChange, neighbours: PoolNeighbours) -> Decision[Effect] | NeedMore:
    repair = decide_repair(snapshot, change, neighbours)
    if repair is not None:
        return repair
    stored = snapshot.find(change.key)
    if stored is not None:
        return decide_replacement(stored, change.wanted, change.revision)
    if change.revision:
        return Decision((), ResourceMissing.of(change.key))
    return decide_creation(snapshot, change, neighbours)


def _preview_of(decision: Decision[Effect], snapshot: Snapshot, change: ResourceChange) -> Preview:
    if isinstance(decision.result, NetplugError):
        raise decision.result
    is_damaged = decision.result is Effect.REPAIRED
    stored = None if is_damaged else snapshot.find(change.key)
    if stored is None:
        return Preview(key=change.key, before=None, after=change.wanted, is_damaged=is_damaged)
    updates = [write.value for write in decision.writes if isinstance(write, Update)]
    return Preview(key=change.key, before=stored.value, after=resource_of((*updates, stored.value)[0]))


# --- without a datastore ----------------------------------------------------------------------------------------------


def validate(manifest: Manifest, earlier: PrefixIndex[IPPool] | None = None) -> Outcome:
    """Check a manifest against every rule that concerns the resource alone, and a pool against the ``earlier`` ones.

    The pool is one of them for the next call.

    Raises:
        InvalidResource: it breaks some rules; all of them are named.
    """
    resource, others = manifest.resource, list[IPPool]()
    if isinstance(resource, IPPool) and earlier is not None:
        others = earlier.overlapping(resource.spec.prefix)
        earlier.add(resource.spec.prefix, resource)
    validate_resource(resource)
    if isinstance(resource, IPPool):
        validate_pool_overlaps(resource, others)
    return Outcome(key=key_of(resource), effect=Effect.VALID, warnings=resource_warnings(resource))


# --- the configuration of IPAM --------------------------------------------------------------------------------------


def configure_ipam(
    store: Datastore,
    change: Callable[[IPAMConfigurationSpec], IPAMConfigurationSpec],
    *,
    pace: Pace,
    new_uid: Callable[[], str],
) -> IPAMConfigurationSpec:
    """Change the IPAM configuration by a function of it; other fields keep concurrent changes.

    Raises:
        InvalidResource: the changed configuration breaks rules.
        Unavailable: the store does not answer.
    """
    metadata = Metadata(name=IPAM_CONFIGURATION_KEY.name, uid=new_uid(), creation_time_ns=pace.clock.now_ns())

    def decide(snapshot: Snapshot) -> Decision[IPAMConfigurationSpec]:
        stored = snapshot.find(IPAM_CONFIGURATION_KEY)
        before = stored.value if stored else IPAMConfiguration(metadata=metadata)
        wanted = evolve(before, spec=change(before.spec))
        validate_resource(wanted)
        if stored is None:
            return Decision((Create(IPAM_CONFIGURATION_KEY, wanted),), wanted.spec)
        if wanted == before:
            return Decision((), wanted.spec)
        return Decision((Update(IPAM_CONFIGURATION_KEY, wanted, stored.revision),), wanted.spec)

    return Transaction(store, pace).run([Get(IPAM_CONFIGURATION_KEY)], decide).get_result()
