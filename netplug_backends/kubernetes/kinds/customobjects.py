"""The keeper of custom objects: one object a record, compared by uid and resourceVersion on every write.

``layout`` says how they are spelled, ``datastore`` calls. A write is one request; only what it met where it was
refused is read afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiReply, ApiRequest, Json, path_segment
from netplug_backends.kubernetes.client.objects import (
    ConditionFailed,
    ObjectVersion,
    QueryResult,
    describe_request,
    error_of_reply,
    event_object,
    find_object,
    find_precondition,
    get_object,
    is_valid_path,
    list_objects,
    metadata_of,
    parse_revision,
    require_key,
    revision_of,
)
from netplug_backends.kubernetes.layout import KIND_MAPPINGS, CrdMode, KindMapping, is_deleted
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Record,
    Revision,
    Update,
    WatchEvent,
)

__all__ = ["CustomObjectStore"]

_CONFLICT = 409
_PRESERVED_METADATA = ("annotations", "finalizers", "labels", "ownerReferences")
_MAX_CACHED = 4096
_RETRY_DELAYS_S = (0.0, 0.0, 0.2)  # before each try to make what something may be in the way of


class CustomObjectStore:
    """All custom objects of one group."""

    def __init__(self, client: ApiClient, mode: CrdMode) -> None:
        self._client = client
        self._mode = mode
        self._metadata = _MetadataCache()

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """The record of one key; see :class:`~netplug_backends.kubernetes.client.objects.Keeper`."""
        record = self._find_record(query.key, deadline)
        return QueryResult((record,), record.revision) if record else QueryResult(())

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All records of a list, in path order."""
        sort = KIND_MAPPINGS[query.kind.name]
        is_one = len(query.within) == len(query.kind.segments)
        if is_one and not is_valid_path(self._path(sort, query.kind.key(*query.within))):
            return QueryResult(())
        selection = {name: str(value) for name, value in sort.list_parameters(query.within).items()}
        items, number = list_objects(self._client, ApiRequest("GET", self._path(sort), selection), deadline=deadline)
        records = [self._decode(query.kind, item) for item in items if not is_deleted(sort, item)]
        # Labels may be somebody else's, and hashes of two hosts may be equal.
        inside = [record for record in records if record.key.path[: len(query.within)] == query.within]
        return QueryResult(tuple(sorted(inside, key=lambda record: record.key.path)), Revision(number))

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Store a value where nothing is."""
        sort = KIND_MAPPINGS[write.key.kind.name]
        body = self._body(sort, write.key, write.value)
        request = ApiRequest("POST", self._path(sort), body=body)
        finalizers = ""
        for pause_s in _RETRY_DELAYS_S:
            self._client.sleep(pause_s, deadline)
            reply = self._client.send(request, deadline=deadline)
            if reply.is_success:
                return self._created_revision(write.key, request, reply)
            if reply.status != _CONFLICT:
                raise error_of_reply(self._client, request, reply)
            finalizers = self._finish_deletion(write.key, deadline)
        if not finalizers:
            raise ConditionFailed(None)  # others make it and take it away all the time
        problem = f"{sort.name(write.key.path)} was deleted, and finalizers hold it: {finalizers}"
        raise Unavailable(describe_request(self._client, request), problem)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Replace the value that has the revision."""
        sort = KIND_MAPPINGS[write.key.kind.name]
        version = self._precondition(write.key, revision, deadline)
        body = self._body(sort, write.key, write.value)
        if not sort.has_own_metadata:
            kept = self._metadata.find(write.key, revision)
            if kept is None:
                self._require_revision(write.key, revision, deadline)
                kept = self._metadata.find(write.key, revision) or {}
            body["metadata"] = _merge_metadata(kept, metadata_of(body))
        body["metadata"] = {**metadata_of(body), "uid": version.uid, "resourceVersion": version.resource_version}
        request = ApiRequest("PUT", self._path(sort, write.key), body=body)
        reply = self._client.send(request, deadline=deadline)
        if reply.is_success:
            return self._created_revision(write.key, request, reply)
        raise self._write_error(write.key, request, reply, deadline)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Remove the value that has the revision."""
        request = self._delete_request(write.key, self._precondition(write.key, revision, deadline))
        reply = self._client.send(request, deadline=deadline)
        if not reply.is_success:
            raise self._write_error(write.key, request, reply, deadline)
        # Either a status says that it is gone, or here it is as it waits for those whose finalizers it has.
        if (reply.object.get("kind"), reply.object.get("status")) != ("Status", "Success"):
            get_object(self._client, request, reply)
        return revision

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """The one collection of the kind."""
        return ((ApiRequest("GET", self._path(KIND_MAPPINGS[kind.name])), parse_revision(revision).resource_version),)

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object]:
        """What an event of the collection means."""
        found, sort = event_object(event), KIND_MAPPINGS[kind.name]
        key, value = sort.decode(self._mode, kind, found)
        is_over = event.get("type") == "DELETED" or is_deleted(sort, found)
        return WatchEvent(key, None if is_over else value, revision_of(found))

    # --- one object ------------------------------------------------------------------------------------------------

    def _path(self, mapping: KindMapping, key: Key[object] | None = None) -> str:
        path = f"/apis/{self._mode.value}/{mapping.plural[self._mode]}"
        return path if key is None else f"{path}/{path_segment(mapping.name(key.path))}"

    def _body(self, mapping: KindMapping, key: Key[object], value: object) -> dict[str, object]:
        body = mapping.encode(self._mode, key, value)
        body["metadata"] = {**metadata_of(body), "name": mapping.name(key.path)}
        return {**body, "apiVersion": self._mode.value, "kind": mapping.object_kind[self._mode]}

    def _find_object(self, key: Key[object], deadline: Deadline) -> Json | None:
        return find_object(self._client, self._path(KIND_MAPPINGS[key.kind.name], key), deadline=deadline)

    def _find_record(self, key: Key[object], deadline: Deadline) -> Record[object] | None:
        """What is stored now, and does not count as gone."""
        found = self._find_object(key, deadline)
        return (
            None
            if found is None or is_deleted(KIND_MAPPINGS[key.kind.name], found)
            else self._decode_for_key(key, found)
        )

    def _finish_deletion(self, key: Key[object], deadline: Deadline) -> str:
        """Give what is in the way the second step of its deletion, if that is what it waits for; its finalizers.

        Raises:
            ConditionFailed: it is there to stay.
        """
        found = self._find_object(key, deadline)
        if found is None:
            return ""
        if not is_deleted(KIND_MAPPINGS[key.kind.name], found):
            raise ConditionFailed(self._decode_for_key(key, found))
        if not metadata_of(found).get("deletionTimestamp"):
            self._client.send(self._delete_request(key, parse_revision(revision_of(found))), deadline=deadline)
        finalizers = metadata_of(found).get("finalizers")
        return ", ".join(map(str, finalizers)) if isinstance(finalizers, list) else ""

    def _decode_for_key(self, key: Key[object], found: Json) -> Record[object]:
        return require_key(key, self._decode(key.kind, found))

    def _precondition(self, key: Key[object], revision: Revision, deadline: Deadline) -> ObjectVersion:
        """What a write names; one that could name nothing is refused before it is sent."""
        version = find_precondition(revision)
        if version is None or not is_valid_path(self._path(KIND_MAPPINGS[key.kind.name], key)):
            raise ConditionFailed(self._find_record(key, deadline))
        return version

    def _delete_request(self, key: Key[object], version: ObjectVersion) -> ApiRequest:
        conditions = {"uid": version.uid, "resourceVersion": version.resource_version}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        return ApiRequest("DELETE", self._path(KIND_MAPPINGS[key.kind.name], key), body=options)

    def _require_revision(self, key: Key[object], revision: Revision, deadline: Deadline) -> None:
        current = self._find_record(key, deadline)
        if current is None or current.revision != revision:
            raise ConditionFailed(current)

    def _write_error(self, key: Key[object], request: ApiRequest, reply: ApiReply, deadline: Deadline) -> Exception:
        if not reply.is_missing and reply.status != _CONFLICT:
            return error_of_reply(self._client, request, reply)
        return ConditionFailed(self._find_record(key, deadline))

    def _decode(self, kind: Kind[object], found: Json) -> Record[object]:
        sort = KIND_MAPPINGS[kind.name]
        key, value = sort.decode(self._mode, kind, found)
        record = Record(key, value, revision_of(found))
        if not sort.has_own_metadata:
            self._metadata.put(key, record.revision, metadata_of(found))
        return record

    def _created_revision(self, key: Key[object], request: ApiRequest, reply: ApiReply) -> Revision:
        made = get_object(self._client, request, reply)
        revision = revision_of(made)
        if not KIND_MAPPINGS[key.kind.name].has_own_metadata:
            self._metadata.put(key, revision, metadata_of(made))
        return revision


class _MetadataCache:
    """What stands beside records in their objects' metadata, as it was last seen: others' labels, owners, finalizers.

    Values do not hold it, and replacing an object would drop it. What is not remembered is read again.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[Key[object], tuple[Revision, Json]] = OrderedDict()
        self._lock = Lock()

    def put(self, key: Key[object], revision: Revision, metadata: Json) -> None:
        kept = {name: metadata[name] for name in _PRESERVED_METADATA if metadata.get(name)}
        with self._lock:
            self._entries[key] = (revision, kept)
            self._entries.move_to_end(key)
            if len(self._entries) > _MAX_CACHED:
                self._entries.popitem(last=False)

    def find(self, key: Key[object], revision: Revision) -> Json | None:
        with self._lock:
            known, kept = self._entries.get(key, (None, {}))
        return kept if known == revision else None


def _merge_metadata(kept: Json, ours: Json) -> Json:
    """Metadata with our labels among the others'."""
    labels = {**_labels(kept), **_labels(ours)}
    return {**kept, **ours, **({"labels": labels} if labels else {})}


def _labels(metadata: Json) -> Json:
    labels = metadata.get("labels")
    return labels if isinstance(labels, Mapping) else {}
