"""The store of pods and namespaces as the orchestrator interface knows them. Read only."""

from __future__ import annotations

from collections.abc import Callable

from netplug_backends.kubernetes.client.apiclient import ApiClient
from netplug_backends.kubernetes.client.messages import ApiRequest, Json
from netplug_backends.kubernetes.client.objects import (
    event_object,
    find_object,
    is_valid_path,
    list_objects,
    metadata_of,
    parse_revision,
    revision_of,
)
from netplug_backends.kubernetes.kinds.pod_and_node_facts import namespace_facts, pod_facts
from netplug_backends.kubernetes.kinds.store import (
    NOTHING_FOUND,
    QueryResult,
    decode_each,
    event_of_record,
    list_result,
    not_supported,
    record_result,
)
from netplug_backends.kubernetes.names import NAMESPACES_PATH, PODS_PATH, namespace_path, namespaced_path, pod_path
from netplug_core.clock import Deadline
from netplug_core.orchestrator.model import POD
from netplug_core.records import Create, Delete, Get, Kind, List, Record, Revision, Update, WatchEvent

__all__ = ["FactStore"]

_REASON = "pods and namespaces are the cluster's own"


class FactStore:
    """A cluster's pods, or its namespaces."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """One of them; see :class:`~netplug_backends.kubernetes.kinds.store.KindStore`."""
        kind, path = query.key.kind, query.key.path
        found = find_object(self._client, pod_path(*path) if kind == POD else namespace_path(*path), deadline=deadline)
        return record_result(None if found is None else _record(kind, found))

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All of them, or the pods of a namespace."""
        is_part = query.kind == POD and query.within
        path = namespaced_path(query.within[0], "pods") if is_part else _collection(query.kind)
        if not is_valid_path(path):
            return NOTHING_FOUND
        items, resource_version = list_objects(self._client, ApiRequest("GET", path), deadline=deadline)
        return list_result(query, decode_each(items, lambda item: _record(query.kind, item)), resource_version)

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused."""
        del deadline
        raise not_supported(write, _REASON)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise not_supported(write, _REASON)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise not_supported(write, _REASON)

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """All of them."""
        return ((ApiRequest("GET", _collection(kind)), parse_revision(revision).resource_version),)

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object]:
        """The change that an event about one of them means."""
        return event_of_record(event, _record(kind, event_object(event)))


def _collection(kind: Kind[object]) -> str:
    return PODS_PATH if kind == POD else NAMESPACES_PATH


def _record(kind: Kind[object], found: Json) -> Record[object]:
    decode: Callable[[Json], object] = pod_facts if kind == POD else namespace_facts
    metadata = metadata_of(found)
    return Record(
        kind.key(*(str(metadata.get(segment) or "") for segment in kind.segments)), decode(found), revision_of(found)
    )
