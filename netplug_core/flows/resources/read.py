"""Reads of resources: one, a list page by page, and a watch across interruptions.

What is watched is compared with what was known; so after an interruption, or after changes that the store no longer
keeps, the resources are listed again and only real changes are reported.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import TypeAlias

from attrs import Factory, define, field, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import read_pages
from netplug_core.errors import NetplugError, Unavailable, find_similar
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.records import Get, Key, Kind, List, Malformed, Record, Revision, WatchEvent, WatchExpired
from netplug_core.resources.kinds import Resource, ResourceKind, find_kind, resource_of
from netplug_core.selectors import Everything, Selector, matches

__all__ = [
    "EventType", "ResourceEvent", "ResourceEvents", "Selection", "WatchProblem", "WatchResumed",
    "find", "is_selected", "list_all", "list_in_pages",
    "watch", "with_defaults", "with_similar_name",
]  # fmt: skip


# --- one and many -----------------------------------------------------------------------------------------------------


_PROFILE = "Profile"


def find(store: Datastore, keys: Sequence[Key[Resource]], *, deadline: Deadline) -> tuple[Record[Resource] | None, ...]:
    """The resources under some keys, in the order of the keys; None where nothing is stored.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(key) for key in keys], deadline=deadline.capped(CALL_TIMEOUT_S))
    return tuple(_find_default(key) or snapshot.find(key) for key in keys)


def list_all(
    store: Datastore,
    kind: ResourceKind,
    *,
    namespace: str = "",
    selector: Selector = Everything.ALL,
    deadline: Deadline,
) -> tuple[Record[Resource], ...]:
    """All resources of a kind, sorted by name; with ``namespace``, only those of that namespace.

    ``selector``: only those that it selects by the labels in their metadata.

    Raises:
        Unavailable: the store does not answer.
    """
    query = List(kind.kind, (namespace,) if namespace else ())
    found = with_defaults(kind, store.read([query], deadline=deadline.capped(CALL_TIMEOUT_S)).list(query))
    return tuple(record for record in found if is_selected(record.value, selector))


def list_in_pages(
    store: Datastore,
    kind: ResourceKind,
    *,
    namespace: str = "",
    selector: Selector = Everything.ALL,
    deadline: Deadline,
) -> Iterator[Record[Resource]]:
    """The same resources as of :func:`list_all`, for a reader who needs a part at a time.

    A page is read when its first resource is needed, so of a quarter of a million few are in memory at once.

    Raises:
        Unavailable: the store does not answer.
    """
    stored: Iterable[Record[Resource]]
    stored = read_pages(store, kind.kind, (namespace,) if namespace else (), deadline=deadline)
    if kind.name == _PROFILE:
        stored = with_defaults(kind, stored)
    return (record for record in stored if is_selected(record.value, selector))


_MAX_NAMES_COMPARED = 5_000


def with_similar_name(store: Datastore, error: ResourceMissing, *, deadline: Deadline) -> ResourceMissing:
    """The error about a missing resource with the name of a stored one that was probably meant.

    Among very many only the first ones are compared. The error stays as it is where they cannot be read.
    """
    key = error.key
    row = find_kind(key.kind.name)
    if row is None:
        return error
    try:
        stored = list_in_pages(store, row, namespace="".join(key.path[:-1]), deadline=deadline)
        names = [record.key.name for record in islice(stored, _MAX_NAMES_COMPARED)]
    except NetplugError:
        return error
    return ResourceMissing.of(key, find_similar(key.name, names))


def is_selected(resource: Resource, selector: Selector) -> bool:
    """Whether a selector selects a resource, by the labels in its metadata."""
    return matches(selector, dict(resource.metadata.labels))


def with_defaults(kind: ResourceKind, stored: Iterable[Record[Resource]]) -> tuple[Record[Resource], ...]:
    """The stored resources of a kind, in path order, with those that are there in every store."""
    if kind.name != _PROFILE:
        return tuple(stored)
    default = _default_profile()
    others = (record for record in stored if record.key != default.key)
    return tuple(sorted((default, *others), key=lambda record: record.key.path))


def _find_default(key: Key[object]) -> Record[Resource] | None:
    """The resource under a key, if it is there in every store."""
    return _default_profile() if key.kind.name == _PROFILE and key == _default_profile().key else None


def _default_profile() -> Record[Resource]:
    from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE  # with all rules of policies, which pools lack

    return DEFAULT_ALLOW_PROFILE


# --- a watch ----------------------------------------------------------------------------------------------------------


_TURN_S = 300.0
"""How long one watch of the store lasts; the next one goes on where it ended."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 10.0


class EventType(enum.Enum):
    """What happened to a resource, in the words of Kubernetes."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@frozen
class ResourceEvent:
    """A resource after a change; a deleted one as it was last known."""

    type: EventType
    record: Record[Resource]


@frozen
class ResourceEvents:
    """Changes that were learned at once; first all resources that are stored, which may be none."""

    events: tuple[ResourceEvent, ...]


@frozen
class WatchProblem:
    """Why changes may be missing for a while: the store does not answer, or a record cannot be understood."""

    error: NetplugError


@frozen
class WatchResumed:
    """The store answers again, and all changes of the meantime are reported."""


WatchItem: TypeAlias = ResourceEvents | WatchProblem | WatchResumed


@frozen(kw_only=True)
class Selection:
    """The resources of a kind to watch.

    ``keys`` None: all of them, in one ``namespace`` or in every one if that is empty. Of these, those whose labels the
    ``selector`` selects: a resource that begins to be selected is added, and one that ceases to be is deleted.
    """

    kind: ResourceKind
    keys: frozenset[Key[Resource]] | None = None
    namespace: str = ""
    selector: Selector = Everything.ALL

    def covers(self, key: Key[object]) -> bool:
        """Whether a resource of the kind is among them."""
        if self.keys is not None:
            return key in self.keys
        return not self.namespace or key.path[0] == self.namespace


def watch(store: Datastore, selection: Selection, *, clock: Clock, chance: Callable[[], float]) -> Iterator[WatchItem]:
    """What is stored of a selection, then each change, for as long as the caller reads.

    Raises:
        Malformed: a record cannot be understood at the beginning; later it is a problem, and the watch goes on.
        Unavailable: the store does not answer at the beginning; later it is asked again.
        NotSupported: the store does not keep this kind.
    """
    known = _Known(store, selection, clock)
    yield ResourceEvents(known.list_first())
    pace = Pace(
        clock=clock,
        deadline=Deadline(clock, inf),
        chance=chance,
        first_s=_FIRST_WAIT_S,
        longest_s=_LONGEST_WAIT_S,
    )
    failed, reported = 0, ""
    while True:
        try:
            if failed:
                yield from known.list_again()
                if reported:
                    reported = ""
                    yield WatchResumed()
            for event in known.follow():
                failed = 0
                yield ResourceEvents((event,))
            failed = 0
        except (Malformed, WatchExpired):  # the list says what is damaged, and has what the watch no longer has
            failed += 1
        except Unavailable as error:
            failed += 1
            if str(error) != reported:
                reported = str(error)
                yield WatchProblem(error)
        if failed:
            pace.wait(failed)


@define
class _Known:
    """What was last reported of each resource, and the revision from which the store is watched."""

    store: Datastore
    selection: Selection
    clock: Clock
    records: dict[Key[object], Record[Resource]] = Factory(dict)
    position: Revision = field(default=Revision(""))
    _damaged: set[str] = Factory(set)

    def list_first(self) -> tuple[ResourceEvent, ...]:
        """All resources that are stored."""
        for error in self._read():
            raise error
        return tuple(ResourceEvent(EventType.ADDED, record) for record in self.records.values())

    def list_again(self) -> Iterator[WatchItem]:
        """The differences to what was known; each damaged record is reported once."""
        before = self.records
        for error in self._read():
            kept = None if error.subject is None else before.get(error.subject)
            if kept is not None:  # still there, and shown as it was
                self.records[kept.key] = kept
            if str(error) not in self._damaged:
                self._damaged.add(str(error))
                yield WatchProblem(error)
        gone = tuple(record for key, record in before.items() if key not in self.records)
        events = (
            *(ResourceEvent(EventType.DELETED, record) for record in gone),
            *(event for record in self.records.values() if (event := _compare(before.get(record.key), record))),
        )
        if events:
            yield ResourceEvents(events)

    def follow(self) -> Iterator[ResourceEvent]:
        """Each change, as it is reported by the store, until a turn is over."""
        start: dict[Kind[object], Revision] = {self.selection.kind.kind: self.position}
        for event in self.store.watch(start, deadline=Deadline.after(self.clock, _TURN_S)):
            self.position = event.revision
            if self.selection.covers(event.key) and _find_default(event.key) is None:
                found = self._apply(event)
                if found is not None:
                    yield found

    def _apply(self, event: WatchEvent[object]) -> ResourceEvent | None:
        before = self.records.pop(event.key, None)
        value = None if event.value is None else resource_of(event.value)
        if value is None or not is_selected(value, self.selection.selector):
            return ResourceEvent(EventType.DELETED, before) if before else None
        key = self.selection.kind.kind.key(*event.key.path)
        record = self.records[key] = Record(key, value, event.revision)
        return _compare(before, record)

    def _read(self) -> tuple[Malformed, ...]:
        """List the selection; what cannot be understood."""
        query = List(self.selection.kind.kind, (self.selection.namespace,) if self.selection.namespace else ())
        snapshot = self.store.read([query], deadline=Deadline.after(self.clock, CALL_TIMEOUT_S))
        selection, found = self.selection, with_defaults(self.selection.kind, snapshot.readable(query))
        selected = (record for record in found if is_selected(record.value, selection.selector))
        self.records = {record.key: record for record in selected if selection.covers(record.key)}
        self.position = snapshot.revision(query.kind)
        return tuple(
            error
            for error in snapshot.malformed(query)
            if error.subject is None or self.selection.covers(error.subject)
        )


def _compare(before: Record[Resource] | None, after: Record[Resource]) -> ResourceEvent | None:
    """The event that leads from one state to the other; None if nothing of the resource differs."""
    if before is None:
        return ResourceEvent(EventType.ADDED, after)
    return None if before.value == after.value else ResourceEvent(EventType.MODIFIED, after)
