"""The datastore on an API server: an ordered store, one request a write.

Custom objects are kept by ``objects``; WorkloadEndpoints, Nodes and Profiles are what the cluster says of its own.
Which group the custom objects are in is found out once, by the first call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiRequest
from netplug_backends.kubernetes.client.objects import (
    ConditionFailed,
    KindStore,
    QueryResult,
    error_of_reply,
    event_object,
    list_objects,
    parse_revision,
    revision_of,
    unusable_reply,
)
from netplug_backends.kubernetes.client.watch import WatchedCollection, WatchPositions, watch_events
from netplug_backends.kubernetes.kinds.customobjects import CustomObjectStore
from netplug_backends.kubernetes.layout import KIND_MAPPINGS, CrdMode
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity, DatastoreDescription
from netplug_core.datastore.write_set import condition_error, fold_writes, requirement_revision
from netplug_core.errors import Unauthorized, Unavailable
from netplug_core.records import (
    Create,
    Get,
    Kind,
    NotSupported,
    OutcomeUnknown,
    Query,
    ReadResult,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    WatchExpired,
    Write,
    Written,
)
from netplug_core.settings.model import DEFAULT_ANNOTATION_PREFIX

__all__ = ["KubernetesDatastore", "find_crd_mode"]

_IPAM_KINDS = ("BlockAffinity", "IPAMBlock", "IPAMConfiguration", "IPAMHandle")
_VIEW_KINDS = ("Node", "Profile", "WorkloadEndpoint")


class KubernetesDatastore:
    """The records of a cluster.

    ``mode`` is the group of the custom objects, None to take the one that the cluster has. Where ``uses_pod_cidr``,
    addresses are not netplug's to assign, and the allocator's records are not kept. ``annotation_prefix`` is what the
    annotations of pods begin with.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        mode: CrdMode | None = None,
        uses_pod_cidr: bool = False,
        annotation_prefix: str = DEFAULT_ANNOTATION_PREFIX,
    ) -> None:
        self._client = client
        self._mode = mode
        self._uses_pod_cidr = uses_pod_cidr
        self.annotation_prefix = annotation_prefix
        self._custom_objects: CustomObjectStore | None = None
        self._view_stores: dict[str, KindStore] = {}

    @property
    def description(self) -> DatastoreDescription:
        """What this store is. It does not evaluate ``Require`` and ``RequireUnchanged``."""
        return DatastoreDescription(name="kubernetes", atomicity=Atomicity.ORDERED, location=self._client.location)

    def close(self) -> None:
        """Give up the connections."""
        self._client.close()

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries, one after the other; see :class:`~netplug_core.datastore.protocol.Datastore`.

        A list is answered whole, whatever its limit: the server's pages are not in path order. A kind of which only
        single keys were read, and none was there, has an empty revision: no watch can start from it.
        """
        answers: dict[Query, ReadResult] = {}
        revisions: dict[Kind[object], Revision] = {}
        # Lists come first: they know their kind's revision, and what is read first must not be newer than it says.
        for query in sorted(dict.fromkeys(queries), key=lambda query: isinstance(query, Get)):
            found = self._answer(query, deadline)
            answers[query] = ReadResult(found.records)
            revisions.setdefault(query.kind, found.revision)
        return Snapshot(answers, revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes one by one; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        fold_writes(writes)  # refuses a list that makes no sense before any of it is applied
        for index, write in enumerate(writes):
            if isinstance(write, Create) and write.key.kind.name in _VIEW_KINDS:
                # The orchestrator alone makes these: a refusal, and now nothing has to be taken back after it.
                self._apply(write, index, (), deadline)
        made: list[Revision] = []
        for index, write in enumerate(writes):
            made.append(self._apply(write, index, made, deadline))
        return tuple(made)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        sources: list[WatchedCollection] = []
        reached: dict[Kind[object], WatchPositions] = {}
        for kind, revision in start.items():
            found = self._kind_store(kind, deadline).watched_collections(kind, revision)
            if not any(number for _, number in found):
                raise WatchExpired(revision)
            reached[kind] = WatchPositions([number for _, number in found])
            sources += (WatchedCollection(kind, *one, revision, place) for place, one in enumerate(found))
        for source in tuple(sources):
            if not source.resource_version:
                yield from self._list_as_changes(source, sources, reached[source.kind], deadline)
        for source, event in watch_events(self._client, sources, deadline=deadline):
            change = self._kind_store(source.kind, deadline).decode_event(source.kind, event)
            if change is not None:
                number = parse_revision(revision_of(event_object(event))).resource_version
                yield reached[source.kind].advance(source.position, change, number)

    def _list_as_changes(
        self,
        collection: WatchedCollection,
        collections: list[WatchedCollection],
        positions: WatchPositions,
        deadline: Deadline,
    ) -> Iterator[WatchEvent[object]]:
        """Everything in a collection, for a watch that is to begin with its beginning and goes on from there.

        One that stops before the end of it has not begun.
        """
        items, number = list_objects(self._client, collection.request, deadline=deadline)
        for item in items:
            change = self._kind_store(collection.kind, deadline).decode_event(
                collection.kind, {"type": "ADDED", "object": item}
            )
            if change is not None:
                yield positions.advance(collection.position, change, "")
        collections[collections.index(collection)] = evolve(collection, resource_version=number)
        positions.resource_versions[collection.position] = number

    def _apply(self, write: Write, index: int, made: Sequence[Revision], deadline: Deadline) -> Revision:
        """One write of a commit, after those that made some revisions."""
        try:
            return self._write(write, made, deadline)
        except ConditionFailed as failed:
            raise condition_error(write, index, failed.current, applied=len(made)) from None
        except OutcomeUnknown as error:
            raise evolve(error, applied=len(made)) from error
        except Unauthorized:
            raise  # it stays refused however often it is tried; callers take back what came before
        except Unavailable as error:
            if not made:
                raise
            raise OutcomeUnknown(error.what, error.cause, len(made)) from error

    # --- one query, one write --------------------------------------------------------------------------------------

    def _answer(self, query: Query, deadline: Deadline) -> QueryResult:
        keeper = self._kind_store(query.kind, deadline)
        if isinstance(query, Get):
            return keeper.find(query, deadline=deadline)
        return keeper.find_all(query, deadline=deadline)

    def _write(self, write: Write, made: Sequence[Revision], deadline: Deadline) -> Revision:
        if isinstance(write, Require | RequireUnchanged):
            return requirement_revision(write)
        keeper = self._kind_store(write.key.kind, deadline)
        if isinstance(write, Create):
            return keeper.create(write, deadline=deadline)
        revision = made[write.revision.index] if isinstance(write.revision, Written) else write.revision
        if isinstance(write, Update):
            return keeper.update(write, revision, deadline=deadline)
        return keeper.delete(write, revision, deadline=deadline)

    def _kind_store(self, kind: Kind[object], deadline: Deadline) -> KindStore:
        if self._uses_pod_cidr and kind.name in _IPAM_KINDS:
            raise NotSupported("storing", kind, "addresses come from the nodes' pod CIDRs (USE_POD_CIDR)")
        if kind.name in KIND_MAPPINGS:
            return self._custom_object_store(deadline)
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
        if kind.name == "Profile":
            from netplug_backends.kubernetes.kinds.profiles import ProfileStore

            return ProfileStore(self._client)
        raise NotSupported("storing", kind, f"this release stores {', '.join(sorted((*KIND_MAPPINGS, *_VIEW_KINDS)))}")

    def _custom_object_store(self, deadline: Deadline) -> CustomObjectStore:
        custom = self._custom_objects
        if custom is None:
            mode = self._mode or find_crd_mode(self._client, deadline=deadline)
            custom = CustomObjectStore(self._client, mode or CrdMode.V1)
            if mode is not None:  # as long as nothing is installed, whoever comes next looks again
                self._custom_objects = custom
        return custom


def find_crd_mode(client: ApiClient, *, deadline: Deadline) -> CrdMode | None:
    """The group of custom objects that a cluster has: v3 only where there is no v1, None where there is neither.

    Both are there where a server in front of the v1 objects offers them as v3.
    """
    request = ApiRequest("GET", "/apis")
    reply = client.send(request, deadline=deadline)
    if not reply.is_success:
        raise error_of_reply(client, request, reply)
    groups = reply.object.get("groups", "")
    if not isinstance(groups, list | None):
        raise unusable_reply(client, request, "list of groups")
    names = {group.get("name") for group in groups or () if isinstance(group, Mapping)}
    return next((mode for mode in (CrdMode.V1, CrdMode.V3) if mode.group in names), None)
