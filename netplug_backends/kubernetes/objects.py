"""The keeper of custom objects: one object a record, compared by uid and resourceVersion on every write.

``layout`` says how they are spelled, ``datastore`` calls. A write is one request; only what it met where it was
refused is read afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock

from netplug_backends.kubernetes.client import Client, Json, Reply, Request, segment
from netplug_backends.kubernetes.keeper import (
    ConditionFailed,
    Found,
    Version,
    answered,
    asked,
    can_exist,
    condition_of,
    failure,
    found_at,
    listed,
    metadata_of,
    object_of,
    of_key,
    revision_of,
    version_of,
)
from netplug_backends.kubernetes.layout import SORTS, Mode, Sort, is_gone
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.records import (
    Change,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Record,
    Revision,
    Update,
)

__all__ = ["Objects"]

_CONFLICT = 409
_KEPT = ("annotations", "finalizers", "labels", "ownerReferences")
_MOST_REMEMBERED = 4096
_PAUSES_S = (0.0, 0.0, 0.2)  # before each try to make what something may be in the way of


class Objects:
    """All custom objects of one group."""

    def __init__(self, client: Client, mode: Mode) -> None:
        self._client = client
        self._mode = mode
        self._metadata = _Remembered()

    def find(self, query: Get[object], *, deadline: Deadline) -> Found:
        """The record of one key; see :class:`~netplug_backends.kubernetes.keeper.Keeper`."""
        record = self._current(query.key, deadline)
        return Found((record,), record.revision) if record else Found(())

    def find_all(self, query: List[object], *, deadline: Deadline) -> Found:
        """All records of a list, in path order."""
        sort = SORTS[query.kind.name]
        is_one = len(query.within) == len(query.kind.segments)
        if is_one and not can_exist(self._path(sort, query.kind.key(*query.within))):
            return Found(())
        selection = {name: str(value) for name, value in sort.selection(query.within).items()}
        items, number = listed(self._client, Request("GET", self._path(sort), selection), deadline=deadline)
        records = [self._record(query.kind, item) for item in items if not is_gone(sort, item)]
        # Labels may be somebody else's, and hashes of two hosts may be equal.
        inside = [record for record in records if record.key.path[: len(query.within)] == query.within]
        return Found(tuple(sorted(inside, key=lambda record: record.key.path)), Revision(number))

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Store a value where nothing is."""
        sort = SORTS[write.key.kind.name]
        body = self._body(sort, write.key, write.value)
        request = Request("POST", self._path(sort), body=body)
        finalizers = ""
        for pause_s in _PAUSES_S:
            self._client.wait(pause_s, deadline)
            reply = self._client.ask(request, deadline=deadline)
            if reply.is_success:
                return self._made(write.key, request, reply)
            if reply.status != _CONFLICT:
                raise failure(self._client, request, reply)
            finalizers = self._cleared(write.key, deadline)
        if not finalizers:
            raise ConditionFailed(None)  # others make it and take it away all the time
        problem = f"{sort.name(write.key.path)} was deleted, and finalizers hold it: {finalizers}"
        raise Unavailable(asked(self._client, request), problem)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Replace the value that has the revision."""
        sort = SORTS[write.key.kind.name]
        version = self._condition(write.key, revision, deadline)
        body = self._body(sort, write.key, write.value)
        if not sort.has_own_metadata:
            kept = self._metadata.find(write.key, revision)
            if kept is None:
                self._expect(write.key, revision, deadline)
                kept = self._metadata.find(write.key, revision) or {}
            body["metadata"] = _joined(kept, metadata_of(body))
        body["metadata"] = {**metadata_of(body), "uid": version.uid, "resourceVersion": version.number}
        request = Request("PUT", self._path(sort, write.key), body=body)
        reply = self._client.ask(request, deadline=deadline)
        if reply.is_success:
            return self._made(write.key, request, reply)
        raise self._refused(write.key, request, reply, deadline)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Remove the value that has the revision."""
        request = self._deletion(write.key, self._condition(write.key, revision, deadline))
        reply = self._client.ask(request, deadline=deadline)
        if not reply.is_success:
            raise self._refused(write.key, request, reply, deadline)
        # Either a status says that it is gone, or here it is as it waits for those whose finalizers it has.
        if (reply.object.get("kind"), reply.object.get("status")) != ("Status", "Success"):
            answered(self._client, request, reply)
        return revision

    def sources(self, kind: Kind[object], revision: Revision) -> tuple[tuple[Request, str], ...]:
        """The one collection of the kind."""
        return ((Request("GET", self._path(SORTS[kind.name])), version_of(revision).number),)

    def change(self, kind: Kind[object], event: Json) -> Change[object]:
        """What an event of the collection means."""
        found, sort = object_of(event), SORTS[kind.name]
        key, value = sort.decode(self._mode, kind, found)
        is_over = event.get("type") == "DELETED" or is_gone(sort, found)
        return Change(key, None if is_over else value, revision_of(found))

    # --- one object ------------------------------------------------------------------------------------------------

    def _path(self, sort: Sort, key: Key[object] | None = None) -> str:
        path = f"/apis/{self._mode.value}/{sort.plural[self._mode]}"
        return path if key is None else f"{path}/{segment(sort.name(key.path))}"

    def _body(self, sort: Sort, key: Key[object], value: object) -> dict[str, object]:
        body = sort.encode(self._mode, key, value)
        body["metadata"] = {**metadata_of(body), "name": sort.name(key.path)}
        return {**body, "apiVersion": self._mode.value, "kind": sort.object_kind[self._mode]}

    def _found(self, key: Key[object], deadline: Deadline) -> Json | None:
        return found_at(self._client, self._path(SORTS[key.kind.name], key), deadline=deadline)

    def _current(self, key: Key[object], deadline: Deadline) -> Record[object] | None:
        """What is stored now, and does not count as gone."""
        found = self._found(key, deadline)
        return None if found is None or is_gone(SORTS[key.kind.name], found) else self._record_of(key, found)

    def _cleared(self, key: Key[object], deadline: Deadline) -> str:
        """Give what is in the way the second step of its deletion, if that is what it waits for; its finalizers.

        Raises:
            ConditionFailed: it is there to stay.
        """
        found = self._found(key, deadline)
        if found is None:
            return ""
        if not is_gone(SORTS[key.kind.name], found):
            raise ConditionFailed(self._record_of(key, found))
        if not metadata_of(found).get("deletionTimestamp"):
            self._client.ask(self._deletion(key, version_of(revision_of(found))), deadline=deadline)
        finalizers = metadata_of(found).get("finalizers")
        return ", ".join(map(str, finalizers)) if isinstance(finalizers, list) else ""

    def _record_of(self, key: Key[object], found: Json) -> Record[object]:
        return of_key(key, self._record(key.kind, found))

    def _condition(self, key: Key[object], revision: Revision, deadline: Deadline) -> Version:
        """What a write names; one that could name nothing is refused before it is sent."""
        version = condition_of(revision)
        if version is None or not can_exist(self._path(SORTS[key.kind.name], key)):
            raise ConditionFailed(self._current(key, deadline))
        return version

    def _deletion(self, key: Key[object], version: Version) -> Request:
        conditions = {"uid": version.uid, "resourceVersion": version.number}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        return Request("DELETE", self._path(SORTS[key.kind.name], key), body=options)

    def _expect(self, key: Key[object], revision: Revision, deadline: Deadline) -> None:
        current = self._current(key, deadline)
        if current is None or current.revision != revision:
            raise ConditionFailed(current)

    def _refused(self, key: Key[object], request: Request, reply: Reply, deadline: Deadline) -> Exception:
        if not reply.is_missing and reply.status != _CONFLICT:
            return failure(self._client, request, reply)
        return ConditionFailed(self._current(key, deadline))

    def _record(self, kind: Kind[object], found: Json) -> Record[object]:
        sort = SORTS[kind.name]
        key, value = sort.decode(self._mode, kind, found)
        record = Record(key, value, revision_of(found))
        if not sort.has_own_metadata:
            self._metadata.learn(key, record.revision, metadata_of(found))
        return record

    def _made(self, key: Key[object], request: Request, reply: Reply) -> Revision:
        made = answered(self._client, request, reply)
        revision = revision_of(made)
        if not SORTS[key.kind.name].has_own_metadata:
            self._metadata.learn(key, revision, metadata_of(made))
        return revision


class _Remembered:
    """What stands beside records in their objects' metadata, as it was last seen: others' labels, owners, finalizers.

    Values do not hold it, and replacing an object would drop it. What is not remembered is read again.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Key[object], tuple[Revision, Json]] = OrderedDict()
        self._lock = Lock()

    def learn(self, key: Key[object], revision: Revision, metadata: Json) -> None:
        kept = {name: metadata[name] for name in _KEPT if metadata.get(name)}
        with self._lock:
            self._kept[key] = (revision, kept)
            self._kept.move_to_end(key)
            if len(self._kept) > _MOST_REMEMBERED:
                self._kept.popitem(last=False)

    def find(self, key: Key[object], revision: Revision) -> Json | None:
        with self._lock:
            known, kept = self._kept.get(key, (None, {}))
        return kept if known == revision else None


def _joined(kept: Json, ours: Json) -> Json:
    """Metadata with our labels among the others'."""
    labels = {**_labels(kept), **_labels(ours)}
    return {**kept, **ours, **({"labels": labels} if labels else {})}


def _labels(metadata: Json) -> Json:
    labels = metadata.get("labels")
    return labels if isinstance(labels, Mapping) else {}
