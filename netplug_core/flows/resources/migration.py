"""Moves all records of one datastore into another: an export of a locked one, and its import into an empty one.

An import first locks and marks its target, then creates each record that is not there yet, and at last compares the
whole target with the export. So one that was killed is run again, and ends as if it had not been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from attrs import evolve, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore, EndpointStorage
from netplug_core.datastore.transaction import Transaction, read_pages
from netplug_core.encoding.export import EXPORTED_KINDS, Export, ExportedRecord, ExportHeader
from netplug_core.errors import ConfigurationError, NotServed
from netplug_core.flows.ipam.check import settle_s
from netplug_core.flows.resources.cluster import IMPORT_MARK, ImportUnfinished, cluster_type_on, import_mark
from netplug_core.ipam.model import Affinity, Block, Handle
from netplug_core.records import Create, Decision, Get, Key, Kind, Record, Require, Snapshot, Update, Write
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY, ClusterInformation
from netplug_core.resources.fields import Metadata
from netplug_core.resources.kinds import resource_of
from netplug_core.resources.networkpolicy import COPIED_POLICY_PREFIX, NETWORK_POLICY
from netplug_core.resources.node import NODE, Node
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, PROFILE
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = [
    "DatastoreChanged", "DatastoreNotEmpty", "DatastoreNotLocked", "ImportPlan", "ImportRefused", "count_kinds",
    "export_datastore", "import_export", "plan_import",
]  # fmt: skip

_OF_CLUSTER: tuple[Kind[object], ...] = (NODE, PROFILE, WORKLOAD_ENDPOINT)
"""The kinds that a store on Kubernetes reads from the cluster's own objects."""

_RECORDS_PER_COMMIT = 16
_ADDRESSES_PER_COMMIT = 2048  # their blocks and handles stay well below the 1.5 MiB that etcd accepts in a request
_MAX_NAMED = 5

Values = Mapping[Key[object], object]


class DatastoreNotLocked(ConfigurationError):
    """An export of a datastore that may change meanwhile."""

    def __str__(self) -> str:
        return "the datastore is not locked: run datastore migrate lock first"


class DatastoreChanged(ConfigurationError):
    """A record that changed during an export; ``where`` is its key."""

    def __str__(self) -> str:
        return f"{self.where} was changed by another writer during the export; run it again"


class DatastoreNotEmpty(ConfigurationError):
    """The target of an import has records; ``value`` names the first ones."""

    def __str__(self) -> str:
        return f"the datastore is not empty ({self.value}): an import needs one without records; nothing was done"


class ImportRefused(ConfigurationError):
    """What keeps an import from going on; ``value`` is what was found, ``accepted`` what to do."""

    def __str__(self) -> str:
        return f"{self.value}; {self.accepted}"


@frozen(kw_only=True)
class ImportPlan:
    """What an import stores: ``records`` in their order, and whether an earlier run has begun it or ended it.

    ``left_out`` are records of kinds that the target reads from the cluster's own objects.
    """

    records: tuple[ExportedRecord, ...]
    left_out: tuple[ExportedRecord, ...] = ()
    is_begun: bool = False
    is_done: bool = False


def count_kinds(records: Iterable[ExportedRecord]) -> str:
    """How many records there are of each kind, in the order of the kinds."""
    counts = Counter(record.key.kind for record in records)
    return ", ".join(f"{counts[kind]} {kind}" for kind in EXPORTED_KINDS if counts[kind]) or "no records"


# --- export -----------------------------------------------------------------------------------------------------------


def export_datastore(store: Datastore, *, clock: Clock, deadline: Deadline, export_id: str, release: str) -> Export:
    """All records of a locked datastore, as they are stored at one moment.

    They are read page by page, and twice: what changed in between is an error. On an ordered store it first waits until
    every ADD that began before the lock has ended.

    Raises:
        DatastoreNotLocked: it is not locked, or an import into it is not finished.
        DatastoreChanged: another writer changed a record.
        Malformed: a record cannot be read; the error names the first.
        Unavailable: the store does not answer.
    """
    cluster = _require_locked(store, deadline)
    if wait_s := settle_s(store):
        clock.sleep(wait_s)
    first = _read_values(store, EXPORTED_KINDS, deadline)
    if changed := _first_difference(first, _read_values(store, EXPORTED_KINDS, deadline)):
        raise DatastoreChanged(str(changed), None, "")
    if _require_locked(store, deadline) != cluster:
        raise DatastoreChanged(str(CLUSTER_INFORMATION_KEY), None, "")
    header = ExportHeader(id=export_id, release=release, time_ns=clock.now_ns(), cluster=cluster)
    return Export(header=header, records=tuple(ExportedRecord(key=key, value=value) for key, value in first.items()))


def _require_locked(store: Datastore, deadline: Deadline) -> ClusterInformation:
    stored = _find_information(store, deadline)
    if stored is None or not stored.value.is_locked:
        raise DatastoreNotLocked("", None, "")
    if mark := import_mark(stored.value):
        raise ImportUnfinished("", mark, "run datastore migrate import with its file again")
    return stored.value


def _find_information(store: Datastore, deadline: Deadline) -> Record[ClusterInformation] | None:
    snapshot = store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=deadline.capped(CALL_TIMEOUT_S))
    return snapshot.find(CLUSTER_INFORMATION_KEY)


def _read_values(store: Datastore, kinds: Iterable[Kind[object]], deadline: Deadline) -> dict[Key[object], object]:
    """Every record of some kinds; endpoints of pods that have no address, and what every cluster has, are left out.

    A cluster with the definitions of an older release has no records of the kinds that came later.
    """
    values: dict[Key[object], object] = {}
    for kind in kinds:
        with suppress(NotServed):
            values.update(
                (record.key, record.value)
                for record in read_pages(store, kind, deadline=deadline)
                if record.key != DEFAULT_ALLOW_PROFILE.key and not _is_bare_pod(store, record.value)
            )
    return values


def _is_bare_pod(store: Datastore, value: object) -> bool:
    is_of_pods = store.description.endpoints is EndpointStorage.PODS
    return is_of_pods and isinstance(value, WorkloadEndpoint) and not value.spec.addresses


def _first_difference(first: Values, second: Values) -> Key[object] | None:
    keys = sorted({*first, *second})
    return next((key for key in keys if first.get(key) != second.get(key)), None)


# --- import -----------------------------------------------------------------------------------------------------------


def plan_import(store: Datastore, export: Export, *, deadline: Deadline) -> ImportPlan:
    """What an import would store. Nothing is written.

    Raises:
        DatastoreNotEmpty: the target has records, and not those of this export alone.
        ImportUnfinished: the import of another export is not finished.
        ImportRefused: the export cannot be stored there.
        Unavailable: the store does not answer.
    """
    if _shows_cluster(store):
        _require_same_names(export)
    plan = ImportPlan(
        records=tuple(record for record in export.records if not _is_of_cluster(store, record.key)),
        left_out=tuple(record for record in export.records if _is_of_cluster(store, record.key)),
    )
    information = _find_information(store, deadline)
    mark = import_mark(information.value) if information else ""
    if mark and mark != export.header.id:
        raise ImportUnfinished("", mark, "run it again with its file, or use an empty datastore")
    if mark:
        return evolve(plan, is_begun=True)
    found = _read_target(store, deadline)
    if found and information is not None and _is_of(information.value, export) and not _problems(plan, found):
        return evolve(plan, is_done=True)
    if found:
        names = [str(key) for key in sorted(found)]
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        raise DatastoreNotEmpty("", ", ".join(names[:_MAX_NAMED]) + more, "")
    return plan


def import_export(
    store: Datastore,
    export: Export,
    plan: ImportPlan,
    *,
    pace: Callable[[], Pace],
    deadline: Deadline,
    report: Callable[[int], None],
) -> None:
    """Store the records of a plan, and leave the datastore locked. ``report`` gets how many are stored so far.

    Raises:
        ImportRefused: another writer changed the target; what is stored stays, and the import can be run again.
        Unavailable: the store does not answer; run it again.
    """
    _mark_target(store, export, pace())
    done = 0
    for batch in _batches(plan.records):
        _store_batch(store, export.header.id, batch, pace())
        done += len(batch)
        report(done)
    problems = _problems(plan, _read_target(store, deadline))
    if problems:
        again = "another writer was at work in the datastore: remove what it wrote, and run the import again"
        raise ImportRefused("", "; ".join(problems[:_MAX_NAMED]), again)
    _remove_mark(store, export.header.id, pace())


def _require_same_names(export: Export) -> None:
    """Refuse a node that Kubernetes knows by another name: blocks and handles would name a node that is not there."""
    for record in export.records:
        if isinstance(record.value, Node):
            for reference in record.value.spec.orchestrator_references:
                if reference.node_name not in ("", record.key.name):
                    found = f"{record.key} is called {reference.node_name} in Kubernetes"
                    raise ImportRefused(
                        "", found, "an import into Kubernetes needs nodes with the names of the cluster"
                    )


def _read_target(store: Datastore, deadline: Deadline) -> Values:
    own = [kind for kind in EXPORTED_KINDS if not (_shows_cluster(store) and kind in _OF_CLUSTER)]
    return _read_values(store, own, deadline)


def _shows_cluster(store: Datastore) -> bool:
    return store.description.endpoints is EndpointStorage.PODS


def _is_of_cluster(store: Datastore, key: Key[object]) -> bool:
    """Whether a store shows what a record stands for by itself, such as the policy of Kubernetes that it copies."""
    is_copy = key.kind == NETWORK_POLICY and key.name.startswith(COPIED_POLICY_PREFIX)
    return _shows_cluster(store) and (is_copy or key.kind in _OF_CLUSTER)


def _is_of(information: ClusterInformation, export: Export) -> bool:
    return information.spec.cluster_guid == export.header.cluster.spec.cluster_guid


def _problems(plan: ImportPlan, found: Values) -> tuple[str, ...]:
    """What in the target is not of the export, or differs from it."""
    expected = {record.key: record.value for record in plan.records}
    return (
        *(f"{key} is missing" for key in expected if key not in found),
        *(
            f"{key} differs from the export"
            for key in expected
            if key in found and not _is_same(expected[key], found[key])
        ),
        *(f"{key} is not of the export" for key in sorted(found) if key not in expected),
    )


def _is_same(wanted: object, stored: object) -> bool:
    """Whether two values are the same but for what a store itself sets: identity, times and status of a resource."""
    return _comparable(wanted) == _comparable(stored)


def _comparable(value: object) -> object:
    if isinstance(value, (Affinity, Block, Handle)):
        return evolve(value, unknown_json="")
    resource = resource_of(value)
    metadata = resource.metadata
    return (metadata.name, metadata.namespace, metadata.labels, metadata.annotations, resource.spec)


def _mark_target(store: Datastore, export: Export, pace: Pace) -> None:
    """Lock the target under the identity of the exported cluster, and mark it with the export."""

    def decide(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(CLUSTER_INFORMATION_KEY)
        if stored is not None and import_mark(stored.value) == export.header.id and stored.value.is_locked:
            return Decision((), None)
        source = stored.value if stored else export.header.cluster
        identity = export.header.cluster.spec
        kind = cluster_type_on(store, identity.cluster_type)
        spec = evolve(identity, cluster_type=kind, is_datastore_ready=False, unknown_json=source.spec.unknown_json)
        marked = evolve(source, metadata=_marked(source.metadata, export.header.id), spec=spec)
        if stored is None:
            return Decision((Create(CLUSTER_INFORMATION_KEY, marked),), None)
        return Decision((Update(stored.key, marked, stored.revision),), None)

    Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide)


def _remove_mark(store: Datastore, export_id: str, pace: Pace) -> None:
    def decide(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(CLUSTER_INFORMATION_KEY)
        if stored is None or import_mark(stored.value) != export_id:
            return Decision((), None)
        plain = evolve(stored.value, metadata=_marked(stored.value.metadata, ""))
        return Decision((Update(stored.key, plain, stored.revision),), None)

    Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide)


def _marked(metadata: Metadata, mark: str) -> Metadata:
    others = {name: text for name, text in metadata.annotations if name != IMPORT_MARK}
    return evolve(metadata, annotations=tuple(sorted((others | ({IMPORT_MARK: mark} if mark else {})).items())))


def _batches(records: Sequence[ExportedRecord]) -> Iterator[tuple[ExportedRecord, ...]]:
    """The records in their order, as many at a time as one commit takes."""
    batch: list[ExportedRecord] = []
    weight = 0
    for record in records:
        own = _weight(record.value)
        if batch and (len(batch) == _RECORDS_PER_COMMIT or weight + own > _ADDRESSES_PER_COMMIT):
            yield tuple(batch)
            batch, weight = [], 0
        batch.append(record)
        weight += own
    if batch:
        yield tuple(batch)


def _weight(value: object) -> int:
    match value:
        case Block():
            return value.prefix.size
        case Handle():
            return len(value.blocks)
        case _:
            return 1


def _store_batch(store: Datastore, export_id: str, batch: Sequence[ExportedRecord], pace: Pace) -> None:
    """Create the records of a batch that are not stored, while the target is marked with the export."""
    queries = (Get(CLUSTER_INFORMATION_KEY), *(Get(record.key) for record in batch))

    def decide(snapshot: Snapshot) -> Decision[None]:
        information = snapshot.find(CLUSTER_INFORMATION_KEY)
        again = "another writer was at work in the datastore: run the import again"
        if information is None or import_mark(information.value) != export_id or not information.value.is_locked:
            return Decision((), ImportRefused("", "the datastore was unlocked during the import", again))
        writes: list[Write] = []
        for record in batch:
            stored = snapshot.find(Get(record.key))
            if stored is None:
                writes.append(Create(record.key, record.value))
            elif not _is_same(record.value, stored.value):
                return Decision((), ImportRefused("", f"{record.key} differs from the export", again))
        return Decision((Require(information.key, information.revision), *writes) if writes else (), None)

    Transaction(store, pace).run(queries, decide)
