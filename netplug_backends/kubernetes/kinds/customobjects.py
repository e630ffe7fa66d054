"""Stores records as custom objects, and the interface that the store of every kind has.

One object per record, compared by uid and resourceVersion on every write. ``layout`` encodes the records; ``datastore``
calls this store. A write is one request. Only after a refused write is the stored object read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Protocol

from attrs import define, evolve, field, frozen

from netplug_backends.kubernetes.client.apiclient import METADATA_TYPE, ApiClient, ApiReply, ApiRequest, Json
from netplug_backends.kubernetes.client.objects import (
    ANY_VERSION,
    ObjectVersion,
    convert_objects,
    error_of_reply,
    event_object,
    find_object,
    find_precondition,
    get_object,
    is_valid_path,
    metadata_of,
    parse_revision,
    revision_of,
)
from netplug_backends.kubernetes.layout import KIND_MAPPINGS, KindMapping, is_deleted
from netplug_backends.kubernetes.names import CrdMode, path_segment
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    NotSupported,
    Query,
    ReadResult,
    Record,
    Revision,
    Update,
    WatchEvent,
)

__all__ = [
    "CONFLICT", "NOTHING_FOUND", "ConditionFailed", "CustomObjectStore", "KindStore", "QueryResult", "event_of_record",
    "get_precondition", "list_records", "list_result", "not_supported", "record_result", "require_key", "write_error",
]  # fmt: skip


# --- store -----------------------------------------------------------------------------------------------------------


CONFLICT = 409
UNKNOWN_REVISION = Revision("")
"""The revision of a kind that is not known: no watch can start from it."""


@frozen
class QueryResult:
    """What a query found, and the revision of the kind from which a watch can start."""

    found: ReadResult
    revision: Revision = UNKNOWN_REVISION


NOTHING_FOUND = QueryResult(ReadResult(()))
"""The result of a query that finds nothing, and no revision of its kind."""


@frozen
class ConditionFailed(Exception):  # the datastore turns it into an error of the taxonomy
    """The condition of a write does not hold; ``current`` is the stored record."""

    current: Record[object] | None


class KindStore(Protocol):
    """Stores the records of one or more kinds. Errors are those of ``ApiClient.send``.

    Raises:
        ConditionFailed: the condition of a write does not hold.
        NotSupported: records of this kind cannot be written so.
    """

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """The record of one key."""
        ...

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All records of a list, in path order."""
        ...

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Store a value under a key that has none."""
        ...

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Replace the value that has the revision."""
        ...

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Remove the value that has the revision."""
        ...

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """The collections whose events concern the kind, each with the resourceVersion to watch from.

        If it is empty for some, those are listed first. If it is empty for all, no watch can start.
        """
        ...

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object] | None:
        """The change that an event of such a collection means; None if it does not concern the kind."""
        ...


def require_key(key: Key[object], record: Record[object]) -> Record[object]:
    """The record, which was requested by its key.

    Raises:
        Malformed: the object with the record's name holds another record.
    """
    if record.key != key:
        raise Malformed(str(key), f"the object of its name says that it is {record.key}")
    return record


def _decode_or_damage(item: Json, decode: Callable[[Json], Record[object] | None]) -> Record[object] | Malformed | None:
    """The record in an object, or what is wrong with it; None if it holds none."""
    try:
        return decode(item)
    except Malformed as error:
        return evolve(error, revision=revision_of(item))


def list_records(
    client: ApiClient, request: ApiRequest, decode: Callable[[Json], Record[object] | None], *, deadline: Deadline
) -> tuple[list[Record[object] | Malformed], str]:
    """The records in a collection, what is wrong with objects that hold none, and its resourceVersion."""
    found, resource_version = convert_objects(
        client, request, lambda item: _decode_or_damage(item, decode), deadline=deadline
    )
    return [each for each in found if each is not None], resource_version


def record_result(record: Record[object] | None) -> QueryResult:
    """The result of a query for one key."""
    return QueryResult(ReadResult((record,)), record.revision) if record else NOTHING_FOUND


def list_result(
    query: List[object], found: Iterable[Record[object] | Malformed | Key[object]], revision: str
) -> QueryResult:
    """The result of a list: the records whose paths begin as the query says, in path order."""
    result = ReadResult.of(found)
    matching = (record for record in result.records if query.covers(record.key))
    in_order = tuple(sorted(matching, key=lambda record: record.key.path))
    keys = tuple(filter(query.covers, result.keys))
    return QueryResult(evolve(result, records=in_order, keys=keys), Revision(revision))


def event_of_record(event: Json, record: Record[object]) -> WatchEvent[object]:
    """The change that an event means whose object is that record."""
    return WatchEvent(record.key, None if event.get("type") == "DELETED" else record.value, record.revision)


def get_precondition(revision: Revision, find_current: Callable[[], Record[object] | None]) -> ObjectVersion:
    """The precondition of a write under that revision.

    Raises:
        ConditionFailed: no object can have the revision, so nothing is sent.
    """
    version = find_precondition(revision)
    if version is None:
        raise ConditionFailed(find_current())
    return version


def write_error(
    client: ApiClient,
    exchange: tuple[ApiRequest, ApiReply],
    find_current: Callable[[], Record[object] | None],
    *,
    conflict_statuses: Collection[int] = (CONFLICT,),
) -> Exception:
    """The error for a refused write: ``ConditionFailed`` if its precondition may explain the refusal."""
    request, reply = exchange
    if not reply.is_missing and reply.status not in conflict_statuses:
        return error_of_reply(client, request, reply)
    return ConditionFailed(find_current())


def not_supported(write: Create[object] | Update[object] | Delete[object], reason: str) -> NotSupported:
    """The error for a write to a kind that the cluster itself maintains."""
    return NotSupported(type(write).__name__, write.key.kind, reason)


# --- customobjects ---------------------------------------------------------------------------------------------------


_PRESERVED_METADATA = ("annotations", "finalizers", "labels", "ownerReferences")
_MAX_CACHED = 4096
_FEW_OF = 8  # a list of so many objects costs the server more than a request for one
_RETRY_DELAYS_S = (0.0, 0.0, 0.2)  # before each attempt of a create


class CustomObjectStore:
    """All custom objects of one API group."""

    def __init__(self, client: ApiClient, mode: CrdMode) -> None:
        self._client = client
        self._mode = mode
        self._metadata = _MetadataCache()

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """The record of one key; see :class:`~netplug_backends.kubernetes.kinds.customobjects.KindStore`."""
        return record_result(self._find_record(query.key, deadline))

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All records of a list, in path order."""
        mapping = KIND_MAPPINGS[query.kind.name]
        is_one = len(query.within) == len(query.kind.segments)
        if not is_valid_path(self._path(mapping, query.within, is_one=is_one)):
            return NOTHING_FOUND
        parameters = {name: str(value) for name, value in mapping.list_parameters(query.within).items()}
        if query.may_be_cached:
            parameters["resourceVersion"] = ANY_VERSION
        request = ApiRequest("GET", self._path(mapping, query.within), parameters)
        found, resource_version = convert_objects(
            self._client, request, lambda item: self._convert(query, mapping, item), deadline=deadline
        )
        # Another program may have set the labels, and the hashes of two hosts may be equal.
        present = (each for each in found if each is not None)
        result = list_result(query, present, resource_version)
        return evolve(result, found=evolve(result.found, is_cached=query.may_be_cached))

    def find_by_names(
        self, whole: List[object], queries: Sequence[Query], most: int, *, deadline: Deadline
    ) -> QueryResult:
        """What some queries for single records, or for names that begin alike, may find of a whole list.

        The names of all objects are listed, and then the objects that the queries may mean are read one by one, as they
        are then. If these are more than ``most``, and not few beside all, the whole list is read.
        """
        mapping = KIND_MAPPINGS[whole.kind.name]
        single = set(_names(mapping, queries))
        starts = tuple(mapping.name_start(query.name_prefix) or "" for query in queries if isinstance(query, List))
        request = ApiRequest("GET", self._path(mapping), accept=METADATA_TYPE)
        names, resource_version = convert_objects(
            self._client, request, lambda item: str(metadata_of(item).get("name") or ""), deadline=deadline
        )
        wanted = [name for name in names if name in single or name.startswith(starts)]
        if len(wanted) > max(most, len(names) // _FEW_OF):
            return self.find_all(whole, deadline=deadline)
        paths = (f"{self._path(mapping)}/{path_segment(name)}" for name in wanted)
        objects = (find_object(self._client, path, deadline=deadline) for path in paths)
        whole = evolve(whole, keys_only_if=None)
        found = (self._convert(whole, mapping, each) for each in objects if each is not None)
        return list_result(whole, (each for each in found if each is not None), resource_version)

    def _convert(
        self, query: List[object], mapping: KindMapping, item: Json
    ) -> Record[object] | Malformed | Key[object] | None:
        """What a list shows of an object: its record, what is wrong with it, or the key alone."""
        if is_deleted(mapping, item):
            return None
        condition = query.keys_only_if
        key = None if condition is None else mapping.find_key(query.kind, item, condition)
        return key or _decode_or_damage(item, lambda item: self._decode(query.kind, item))

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Store a value under a key that has none."""
        mapping = KIND_MAPPINGS[write.key.kind.name]
        body = self._body(mapping, write.key, write.value)
        request = ApiRequest("POST", self._path(mapping, write.key.path), body=body)
        finalizers = ""
        for pause_s in _RETRY_DELAYS_S:
            self._client.sleep(pause_s, deadline)
            reply = self._client.send(request, deadline=deadline)
            if reply.is_success:
                return self._written_revision(write.key, request, reply)
            if reply.status != CONFLICT:
                raise error_of_reply(self._client, request, reply)
            finalizers = self._finish_deletion(write.key, deadline)
        if not finalizers:
            raise ConditionFailed(None)  # others create and delete it again and again
        problem = f"{mapping.name(write.key.path)} was deleted, and finalizers hold it: {finalizers}"
        raise Unavailable(self._client.describe(request), problem)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Replace the value that has the revision."""
        mapping = KIND_MAPPINGS[write.key.kind.name]
        version = self._precondition(write.key, revision, deadline)
        body = self._body(mapping, write.key, write.value)
        if not mapping.has_own_metadata:
            kept = self._metadata.find(write.key, revision)
            if kept is None:
                self._require_revision(write.key, revision, deadline)
                kept = self._metadata.find(write.key, revision) or {}
            body["metadata"] = _merge_metadata(kept, metadata_of(body))
        body["metadata"] = {**metadata_of(body), "uid": version.uid, "resourceVersion": version.resource_version}
        request = ApiRequest("PUT", self._path(mapping, write.key.path, is_one=True), body=body)
        reply = self._client.send(request, deadline=deadline)
        if reply.is_success:
            return self._written_revision(write.key, request, reply)
        raise self._write_error(write.key, request, reply, deadline)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Remove the value that has the revision."""
        request = self._delete_request(write.key, self._precondition(write.key, revision, deadline))
        reply = self._client.send(request, deadline=deadline)
        if not reply.is_success:
            raise self._write_error(write.key, request, reply, deadline)
        # The answer is a status if the object is gone, or the object if it waits for finalizers.
        if (reply.object.get("kind"), reply.object.get("status")) != ("Status", "Success"):
            get_object(self._client, request, reply)
        return revision

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """The one collection of the kind."""
        return ((ApiRequest("GET", self._path(KIND_MAPPINGS[kind.name])), parse_revision(revision).resource_version),)

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object]:
        """The change that an event of the collection means."""
        found, mapping = event_object(event), KIND_MAPPINGS[kind.name]
        key, value = mapping.decode(self._mode, kind, found)
        is_gone = event.get("type") == "DELETED" or is_deleted(mapping, found)
        return WatchEvent(key, None if is_gone else value, revision_of(found))

    # --- one object ------------------------------------------------------------------------------------------------

    def _path(self, mapping: KindMapping, path: tuple[str, ...] = (), *, is_one: bool = False) -> str:
        """The path of the object for a record's path, or of the collection that the object is in."""
        namespace = f"/namespaces/{path_segment(path[0])}" if mapping.is_namespaced and path else ""
        collection = f"/apis/{self._mode.value}{namespace}/{mapping.plural[self._mode]}"
        return f"{collection}/{path_segment(mapping.name(path))}" if is_one else collection

    def _object_path(self, key: Key[object]) -> str:
        return self._path(KIND_MAPPINGS[key.kind.name], key.path, is_one=True)

    def _body(self, mapping: KindMapping, key: Key[object], value: object) -> dict[str, object]:
        body = mapping.encode(self._mode, key, value)
        body["metadata"] = {**metadata_of(body), "name": mapping.name(key.path)}
        return {**body, "apiVersion": self._mode.value, "kind": mapping.object_kind[self._mode]}

    def _current(self, key: Key[object], deadline: Deadline) -> Callable[[], Record[object] | None]:
        return lambda: self._find_record(key, deadline)

    def _find_object(self, key: Key[object], deadline: Deadline) -> Json | None:
        return find_object(self._client, self._object_path(key), deadline=deadline)

    def _find_record(self, key: Key[object], deadline: Deadline) -> Record[object] | None:
        """The record that is stored now; None if its object counts as deleted."""
        found = self._find_object(key, deadline)
        if found is None or is_deleted(KIND_MAPPINGS[key.kind.name], found):
            return None
        return self._decode_for_key(key, found)

    def _finish_deletion(self, key: Key[object], deadline: Deadline) -> str:
        """Delete the object with the key's name if it is only marked as deleted; the finalizers it waits for.

        Raises:
            ConditionFailed: the object holds a record that is not deleted.
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
        try:
            return require_key(key, self._decode(key.kind, found))
        except Malformed as error:
            raise evolve(error, revision=revision_of(found)) from error

    def _precondition(self, key: Key[object], revision: Revision, deadline: Deadline) -> ObjectVersion:
        if not is_valid_path(self._object_path(key)):
            raise ConditionFailed(None)
        return get_precondition(revision, self._current(key, deadline))

    def _delete_request(self, key: Key[object], version: ObjectVersion) -> ApiRequest:
        conditions = {"uid": version.uid, "resourceVersion": version.resource_version}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        return ApiRequest("DELETE", self._object_path(key), body=options)

    def _require_revision(self, key: Key[object], revision: Revision, deadline: Deadline) -> None:
        current = self._find_record(key, deadline)
        if current is None or current.revision != revision:
            raise ConditionFailed(current)

    def _write_error(self, key: Key[object], request: ApiRequest, reply: ApiReply, deadline: Deadline) -> Exception:
        return write_error(self._client, (request, reply), self._current(key, deadline))

    def _decode(self, kind: Kind[object], found: Json) -> Record[object]:
        mapping = KIND_MAPPINGS[kind.name]
        key, value = mapping.decode(self._mode, kind, found)
        record = Record(key, value, revision_of(found))
        if not mapping.has_own_metadata:
            self._metadata.put(key, record.revision, metadata_of(found))
        return record

    def _written_revision(self, key: Key[object], request: ApiRequest, reply: ApiReply) -> Revision:
        written = get_object(self._client, request, reply)
        revision = revision_of(written)
        if not KIND_MAPPINGS[key.kind.name].has_own_metadata:
            self._metadata.put(key, revision, metadata_of(written))
        return revision


@define(eq=False, repr=False)
class _MetadataCache:
    """The metadata that other programs wrote to records' objects, as last read: labels, owners, finalizers.

    The records' values do not contain it, and an update would remove it. An entry that is missing is read again.
    """

    _entries: OrderedDict[Key[object], tuple[Revision, Json]] = field(factory=OrderedDict, init=False)
    _lock: Lock = field(factory=Lock, init=False)

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


def _names(mapping: KindMapping, queries: Iterable[Query]) -> Iterator[str]:
    """The names of the objects that queries for single records ask for; no object has a key that has no name."""
    for query in queries:
        if isinstance(query, Get):
            with suppress(Malformed):
                yield mapping.name(query.key.path)


def _merge_metadata(kept: Json, ours: Json) -> Json:
    """The preserved metadata with our labels added."""
    labels = {**_labels(kept), **_labels(ours)}
    return {**kept, **ours, **({"labels": labels} if labels else {})}


def _labels(metadata: Json) -> Json:
    labels = metadata.get("labels")
    return labels if isinstance(labels, Mapping) else {}
