"""Watches the resources of a kind: those that are stored, then every change, also across interruptions.

``netplugctl get --watch`` calls it. What is watched is compared with what was known, so after an interruption, or after
changes that the store no longer keeps, the resources are listed again and only the differences are reported.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from math import inf
from typing import TypeAlias, cast

from attrs import Factory, define, field, frozen

from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.resources.read import is_selected, with_defaults
from netplug_core.records import Key, Kind, List, Malformed, Record, Revision, WatchEvent, WatchExpired
from netplug_core.resources.kinds import Resource, ResourceKind
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE
from netplug_core.selectors.grammar import Everything, Selector

__all__ = ["EventType", "ResourceEvent", "ResourceEvents", "Selection", "WatchProblem", "WatchResumed", "watch"]

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
    records: dict[Key[Resource], Record[Resource]] = Factory(dict)
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
            subject = cast("Key[Resource] | None", error.subject)
            if subject is not None and subject in before:  # still there, and shown as it was
                self.records[subject] = before[subject]
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
            if self.selection.covers(event.key) and event.key != DEFAULT_ALLOW_PROFILE.key:
                found = self._apply(cast("WatchEvent[Resource]", event))
                if found is not None:
                    yield found

    def _apply(self, event: WatchEvent[Resource]) -> ResourceEvent | None:
        before = self.records.pop(event.key, None)
        if event.value is None or not is_selected(event.value, self.selection.selector):
            return ResourceEvent(EventType.DELETED, before) if before else None
        record = self.records[event.key] = Record(event.key, event.value, event.revision)
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
