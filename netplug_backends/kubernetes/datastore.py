"""The datastore on an API server: an ordered store, one request per write.

``kinds.customobjects`` stores the custom objects. WorkloadEndpoints, Nodes and Profiles are views of the cluster's own
objects. The first call finds out which API group the custom objects are in.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from attrs import define, evolve, field

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiRequest, RightMissing
from netplug_backends.kubernetes.client.objects import (
    StreamState,
    WatchedCollection,
    WatchPositions,
    event_object,
    find_crd_mode,
    find_object,
    list_objects,
    metadata_of,
    parse_revision,
    revision_of,
)
from netplug_backends.kubernetes.kinds.customobjects import ConditionFailed, CustomObjectStore, KindStore, QueryResult
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import NAMESPACES_PATH, PODS_PATH, CrdMode
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import (
    Atomicity,
    CredentialsInUse,
    DatastoreDescription,
    EndpointStorage,
    ReadReport,
    RefusesWrites,
)
from netplug_core.datastore.write_set import condition_error, fold_writes, requirement_revision
from netplug_core.errors import DatastoreError, Unauthorized, Unavailable
from netplug_core.ipam.allocation.context import ADDRESSES_PER_COMMIT
from netplug_core.records import (
    Create,
    Get,
    Kind,
    List,
    Malformed,
    NotSupported,
    OutcomeUnknown,
    Query,
    ReadResult,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    ValueCondition,
    WatchEvent,
    WatchExpired,
    Write,
    Written,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.settings.model import DEFAULT_ANNOTATION_PREFIX

__all__ = ["KubernetesDatastore"]

# Keys of one kind that a read asks for one by one. A bulk change reads at most one for each of its addresses.
# What a new block may overlap can be more.
_MAX_SINGLE_READS = 2 * ADDRESSES_PER_COMMIT
_IPAM_KINDS = ("BlockAffinity", "IPAMBlock", "IPAMConfiguration", "IPAMHandle")
_LASTING_NAMESPACE = "kube-system"  # every cluster has it as long as it exists
_LEASES_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{_LASTING_NAMESPACE}/leases"
_FACT_KINDS = ("KubernetesNetworkPolicy", "KubernetesNode", "Namespace", "Pod", "ServiceAccount")
_VIEW_KINDS = (*_FACT_KINDS, "Node", "Profile", "WorkloadEndpoint")


@define(eq=False, repr=False)
class KubernetesDatastore:
    """The records of a cluster.

    ``mode`` is the API group of the custom objects; None: the one that the cluster serves. If ``uses_pod_cidr`` is
    set, another IPAM assigns addresses, and the allocator's records are not supported. The names of pods' annotations
    begin with ``annotation_prefix``.
    """

    _client: ApiClient
    _mode: CrdMode | None = field(default=None, kw_only=True, alias="mode")
    _uses_pod_cidr: bool = field(default=False, kw_only=True, alias="uses_pod_cidr")
    annotation_prefix: str = field(default=DEFAULT_ANNOTATION_PREFIX, kw_only=True)
    _custom_objects: CustomObjectStore | None = field(default=None, init=False)
    _view_stores: dict[str, KindStore] = field(factory=dict, init=False)

    @property
    def description(self) -> DatastoreDescription:
        """The description of this store. It does not evaluate ``Require`` and ``RequireUnchanged``."""
        return DatastoreDescription(
            name="kubernetes",
            atomicity=Atomicity.ORDERED,
            location=self._client.location,
            endpoints=EndpointStorage.PODS,
            lists_whole=True,
        )

    def credentials_in_use(self) -> CredentialsInUse | None:
        """See :class:`~netplug_core.datastore.protocol.HasCredentials`."""
        return self._client.credentials_in_use()

    def report_reads(self, report: ReadReport | None) -> None:
        """Call this from now on for each page; see :class:`~netplug_core.datastore.protocol.ReportsReads`."""
        self._client.report = report

    def find_identity(self, *, deadline: Deadline) -> str:
        """The uid of ``kube-system``; see :class:`~netplug_core.datastore.protocol.HasIdentity`.

        Without the right to read it: a hash of the server and of its authority. A server that has just started knows no
        rights yet, and so refuses everything: then it cannot be asked.
        """
        try:
            found = find_object(self._client, f"{NAMESPACES_PATH}/{_LASTING_NAMESPACE}", deadline=deadline)
        except RightMissing:
            self.read((Get(CLUSTER_INFORMATION_KEY),), deadline=deadline)  # what each account of ours may
            found = None
        return str(metadata_of(found)["uid"]) if found else self._client.server_digest(deadline=deadline)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries, one after the other; see :class:`~netplug_core.datastore.protocol.Datastore`.

        A list is answered in one page, whatever its limit: the server's pages are not in path order. Many keys of
        a kind are answered from one list, and so are those beside a list by the beginning of a name; of blocks this is
        a list of names, and the few that are asked for are read. A pod that is read by its key brings its endpoint,
        whose view it is, as a further answer. If only a few keys of a kind are read and none exists,
        the kind's revision is empty and no watch can start from it.
        """
        answers: dict[Query, ReadResult] = {}
        revisions: dict[Kind[object], Revision] = {}
        for source in _sources(queries):
            listed = self._answer_source(source, queries, deadline)
            revisions.setdefault(source.kind, listed.revision)
            found = listed.found
            by_key = {record.key: record for record in found.records}
            for query in queries:
                if isinstance(query, List):
                    if query.name_prefix and _is_within(query, source):
                        records = tuple(record for record in found.records if query.covers(record.key))
                        keys = tuple(key for key in found.keys if query.covers(key))
                        answers[query] = evolve(found, records=records, keys=keys)
                elif source.covers(query.key) and not found.malformed and query.key not in found.keys:
                    # A list does not say under which key a damaged record is stored.
                    answers[query] = ReadResult((by_key[query.key],) if query.key in by_key else ())
        # Lists first: a list has the kind's revision, and no record read before it may be newer than that.
        unanswered = (query for query in dict.fromkeys(queries) if query not in answers)
        for query in sorted(unanswered, key=lambda query: isinstance(query, Get)):
            result = self._answer(query, deadline)
            answers[query] = result.found
            revisions.setdefault(query.kind, result.revision)
            if query.kind.name == "Pod" and isinstance(query, Get):
                answers.update(self._endpoints_of(result.found))
        return Snapshot(answers, revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes one by one; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        fold_writes(writes)  # refuses an inconsistent list before any write is applied
        for index, write in enumerate(writes):
            if isinstance(write, Create) and write.key.kind.name in _VIEW_KINDS:
                # Only the cluster creates these: refuse now, before there is anything to compensate.
                self._apply(write, index, (), deadline)
        revisions: list[Revision] = []
        for index, write in enumerate(writes):
            revisions.append(self._apply(write, index, revisions, deadline))
        return tuple(revisions)

    def find_refusal(self, write: Write) -> DatastoreError | None:
        """See :class:`~netplug_core.datastore.protocol.RefusesWrites`: kinds that the cluster itself keeps."""
        if isinstance(write, (Require, RequireUnchanged)) or write.key.kind.name in KIND_MAPPINGS:
            return None
        store = self._view_store(write.key.kind)
        return store.find_refusal(write) if isinstance(store, RefusesWrites) else None

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given; see :class:`~netplug_core.datastore.protocol.Datastore`.

        What it returns is a :class:`~netplug_core.datastore.protocol.LiveWatch`.
        """
        state = StreamState()
        return _Watch(self._changes(start, state, deadline), state)

    def watch_endpoints(self, node: str, *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """See :class:`~netplug_core.datastore.protocol.ShowsNodeEndpoints`."""
        state, kind = StreamState(), WORKLOAD_ENDPOINT
        request = ApiRequest("GET", PODS_PATH, {"fieldSelector": f"spec.nodeName={node}"})
        collections = [WatchedCollection(kind, request, "", Revision(""))]
        return _Watch(self._collection_changes(collections, {kind: WatchPositions([""])}, state, deadline), state)

    def read_lease(self, name: str, *, deadline: Deadline) -> tuple[str, Revision] | None:
        """The ``spec`` of a Lease of the cluster; see :class:`~netplug_core.datastore.protocol.ShowsLeases`."""
        found = find_object(self._client, f"{_LEASES_PATH}/{name}", deadline=deadline)
        if found is None:
            return None
        return json.dumps(found.get("spec")), Revision(str(metadata_of(found)["resourceVersion"]))

    def _changes(
        self, start: Mapping[Kind[object], Revision], state: StreamState, deadline: Deadline
    ) -> Iterator[WatchEvent[object]]:
        collections: list[WatchedCollection] = []
        positions: dict[Kind[object], WatchPositions] = {}
        for kind, revision in start.items():
            watched = self._kind_store(kind, deadline).watched_collections(kind, revision)
            versions = [resource_version for _, resource_version in watched]
            known = [version for version in versions if version]
            if not known or not all(version.isascii() and version.isdigit() for version in known):
                raise WatchExpired(revision)
            positions[kind] = WatchPositions(versions)
            collections += (WatchedCollection(kind, *each, revision, index) for index, each in enumerate(watched))
        yield from self._collection_changes(collections, positions, state, deadline)

    def _collection_changes(
        self,
        collections: list[WatchedCollection],
        positions: Mapping[Kind[object], WatchPositions],
        state: StreamState,
        deadline: Deadline,
    ) -> Iterator[WatchEvent[object]]:
        """What is in the collections that have no resourceVersion, then the changes of all."""
        for collection in tuple(collections):
            if not collection.resource_version:
                yield from self._list_as_changes(collection, collections, positions[collection.kind], deadline)
        for collection, event in state.watch_events(self._client, collections, deadline=deadline):
            change = self._kind_store(collection.kind, deadline).decode_event(collection.kind, event)
            if change is not None:
                resource_version = parse_revision(revision_of(event_object(event))).resource_version
                yield positions[collection.kind].advance(collection.position, change, resource_version)

    def _list_as_changes(
        self,
        collection: WatchedCollection,
        collections: list[WatchedCollection],
        positions: WatchPositions,
        deadline: Deadline,
    ) -> Iterator[WatchEvent[object]]:
        """Everything in a collection that has no resourceVersion to watch from; the watch then starts after the list.

        Until the list is complete, the positions stay empty: a watch that continues from them lists again.
        """
        items, resource_version = list_objects(self._client, collection.request, deadline=deadline)
        kind_store = self._kind_store(collection.kind, deadline)
        for item in items:
            change = kind_store.decode_event(collection.kind, {"type": "ADDED", "object": item})
            if change is not None:
                yield positions.advance(collection.position, change, "")
        collections[collections.index(collection)] = evolve(collection, resource_version=resource_version)
        positions.resource_versions[collection.position] = resource_version

    def _apply(self, write: Write, index: int, earlier: Sequence[Revision], deadline: Deadline) -> Revision:
        """One write of a commit, after earlier ones whose revisions are given."""
        try:
            return self._write(write, earlier, deadline)
        except ConditionFailed as failed:
            raise condition_error(write, index, failed.current, applied=len(earlier)) from None
        except OutcomeUnknown as error:
            raise evolve(error, applied=len(earlier)) from error
        except Unauthorized:
            raise  # another attempt would be refused too; callers compensate the earlier writes
        except Unavailable as error:
            if not earlier:
                raise
            raise OutcomeUnknown(error.what, error.cause, len(earlier)) from error

    # --- one query, one write --------------------------------------------------------------------------------------

    def _answer(self, query: Query, deadline: Deadline) -> QueryResult:
        kind_store = self._kind_store(query.kind, deadline)
        if isinstance(query, List):
            return kind_store.find_all(query, deadline=deadline)
        try:
            return kind_store.find(query, deadline=deadline)
        except Malformed as error:
            return QueryResult(ReadResult.of((error,)))

    def _endpoints_of(self, pods: ReadResult) -> dict[Query, ReadResult]:
        """The endpoints of pods that were read, each as its own query would find it."""
        from netplug_backends.kubernetes.kinds.workloadendpoints import pod_endpoint_record

        found = (pod_endpoint_record(record, self.annotation_prefix) for record in pods.records)
        return {Get(record.key): ReadResult((record,)) for record in found if record is not None}

    def _answer_source(self, source: List[object], queries: Sequence[Query], deadline: Deadline) -> QueryResult:
        if not _has_telling_names(source.kind):
            return self._answer(source, deadline)
        store = self._custom_object_store_of(source.kind, deadline)
        asked = [
            query
            for query in dict.fromkeys(queries)
            if (source.covers(query.key) if isinstance(query, Get) else query.name_prefix and _is_within(query, source))
        ]
        return store.find_by_names(source, asked, _MAX_SINGLE_READS, deadline=deadline)

    def _write(self, write: Write, earlier: Sequence[Revision], deadline: Deadline) -> Revision:
        if isinstance(write, Require | RequireUnchanged):
            return requirement_revision(write)
        kind_store = self._kind_store(write.key.kind, deadline)
        if isinstance(write, Create):
            return kind_store.create(write, deadline=deadline)
        revision = earlier[write.revision.index] if isinstance(write.revision, Written) else write.revision
        if isinstance(write, Update):
            return kind_store.update(write, revision, deadline=deadline)
        return kind_store.delete(write, revision, deadline=deadline)

    def _kind_store(self, kind: Kind[object], deadline: Deadline) -> KindStore:
        if kind.name in KIND_MAPPINGS:
            return self._custom_object_store_of(kind, deadline)
        return self._view_store(kind)

    def _view_store(self, kind: Kind[object]) -> KindStore:
        view = self._view_stores.get(kind.name)
        if view is None:
            view = self._view_stores[kind.name] = self._new_view_store(kind)
        return view

    def _new_view_store(self, kind: Kind[object]) -> KindStore:
        if kind.name == "WorkloadEndpoint":
            from netplug_backends.kubernetes.kinds.workloadendpoints import WorkloadEndpointStore

            return WorkloadEndpointStore(self._client, self.annotation_prefix)
        if kind.name == "Node":
            from netplug_backends.kubernetes.kinds.nodes import NodeStore, PodAddressSource

            return NodeStore(self._client, PodAddressSource.POD_CIDR if self._uses_pod_cidr else PodAddressSource.POOLS)
        if kind.name in _FACT_KINDS:
            from netplug_backends.kubernetes.kinds.profiles import FactStore

            return FactStore(self._client)
        if kind.name == "Profile":
            from netplug_backends.kubernetes.kinds.profiles import ProfileStore

            return ProfileStore(self._client)
        raise NotSupported("storing", kind, f"this release stores {', '.join(sorted((*KIND_MAPPINGS, *_VIEW_KINDS)))}")

    def _custom_object_store_of(self, kind: Kind[object], deadline: Deadline) -> CustomObjectStore:
        if self._uses_pod_cidr and kind.name in _IPAM_KINDS:
            raise NotSupported("storing", kind, "addresses come from the nodes' pod CIDRs (USE_POD_CIDR)")
        custom = self._custom_objects
        if custom is None:
            mode = self._mode or find_crd_mode(self._client, deadline=deadline)
            custom = CustomObjectStore(self._client, mode or CrdMode.V1)
            if mode is not None:  # while no definitions are installed, the next call looks again
                self._custom_objects = custom
        return custom


class _Watch:
    """A watch as its reader sees it."""

    def __init__(self, changes: Iterator[WatchEvent[object]], state: StreamState) -> None:
        self._changes = changes
        self.close = state.close
        self.current_until_s = state.current_until_s

    def __iter__(self) -> Iterator[WatchEvent[object]]:
        return self

    def __next__(self) -> WatchEvent[object]:
        return next(self._changes)


def _sources(queries: Sequence[Query]) -> tuple[List[object], ...]:
    """The lists that answer several queries: many keys of a kind, and names that begin alike with the keys beside."""
    counts = Counter(query.kind for query in dict.fromkeys(queries) if isinstance(query, Get))
    parts = [query for query in queries if isinstance(query, List) and query.name_prefix]
    conditions = {part.kind: part.keys_only_if for part in parts}
    conditions = {kind: condition for kind, condition in conditions.items() if _agree(kind, condition, parts)}
    many = [
        List(kind, keys_only_if=conditions.get(kind)) for kind, count in counts.items() if count > _MAX_SINGLE_READS
    ]
    others = [
        List(part.kind, () if _has_telling_names(part.kind) else part.within, keys_only_if=conditions.get(part.kind))
        for part in parts
        if not any(_is_within(part, whole) for whole in many)
    ]
    return tuple(dict.fromkeys([*many, *others]))


def _agree(kind: Kind[object], condition: ValueCondition | None, parts: Sequence[List[object]]) -> bool:
    """Whether all lists of a kind may leave out the same values."""
    return all(part.keys_only_if == condition for part in parts if part.kind == kind)


def _has_telling_names(kind: Kind[object]) -> bool:
    """Whether the names of a kind's objects say which of them a query for names that begin alike may mean."""
    mapping = KIND_MAPPINGS.get(kind.name)
    return mapping is not None and mapping.name_start("") is not None


def _is_within(part: List[object], whole: List[object]) -> bool:
    return part.kind == whole.kind and part.within[: len(whole.within)] == whole.within
