"""A dictionary that behaves as a datastore must; the state machine of the suite compares a store with it."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field, frozen

from netplug_core.records import (
    ABSENT,
    AlreadyExists,
    CommitError,
    Conflict,
    Create,
    Delete,
    Key,
    Kind,
    NotFound,
    Require,
    RequireUnchanged,
    Revision,
    Update,
    Write,
    Written,
)

__all__ = ["DatastoreModel", "ModelEvent", "ReadPoint"]


@frozen
class ReadPoint:
    """A read: how many changes there had been before it, and the store's revision of each kind."""

    event_count: int
    revisions: dict[Kind[object], Revision]


@frozen
class ModelEvent:
    """One change: the new value, or None for a deletion."""

    key: Key[object]
    value: object | None


@define
class DatastoreModel:
    """What the store must hold, and all changes so far.

    Revisions are those that the store made, None where no answer has shown them yet. ``written_at`` is the number of
    changes when the key was last written.
    """

    is_atomic: bool
    values: dict[Key[object], object] = field(factory=dict)
    revisions: dict[Key[object], Revision | None] = field(factory=dict)
    written_at: dict[Key[object], int] = field(factory=dict)
    events: list[ModelEvent] = field(factory=list)

    def apply(self, writes: Sequence[Write]) -> None:
        """Make the changes of a commit."""
        if self.is_atomic:
            self._apply_folded(writes)
            return
        for write in writes:
            if isinstance(write, Create | Update):
                self._change(write.key, write.value)
            elif isinstance(write, Delete):
                self._change(write.key, None)

    def _apply_folded(self, writes: Sequence[Write]) -> None:
        final: dict[Key[object], object | None] = {}
        for write in writes:
            if isinstance(write, Create | Update | Delete):
                final.pop(write.key, None)
                final[write.key] = None if isinstance(write, Delete) else write.value
        for key, value in final.items():
            if value is not None or key in self.values:
                self._change(key, value)

    def _change(self, key: Key[object], value: object | None) -> None:
        self.events.append(ModelEvent(key, value))
        self.values.pop(key, None)
        self.revisions.pop(key, None)
        self.written_at.pop(key, None)
        if value is not None:
            self.values[key] = value
            self.revisions[key] = None
            self.written_at[key] = len(self.events)

    def find_refusal(self, write: Write) -> type[CommitError] | None:
        """What the write must be refused with, judged on what is stored now."""
        if isinstance(write, RequireUnchanged) or (isinstance(write, Require) and not self.is_atomic):
            return None
        if isinstance(write, Create):
            return AlreadyExists if write.key in self.values else None
        if isinstance(write.revision, Written) or self.revisions.get(write.key, ABSENT) == write.revision:
            return None
        return Conflict if write.key in self.values else NotFound

    def is_kind_changed(self, kind: Kind[object], since: int) -> bool:
        """Whether a stored record of the kind was written after so many changes."""
        return any(key.kind == kind and at > since for key, at in self.written_at.items())

    def may_kind_be_changed(self, kind: Kind[object], since: int) -> bool:
        """The same, with records that are deleted again: a store may remember them or not."""
        return any(event.key.kind == kind and event.value is not None for event in self.events[since:])
