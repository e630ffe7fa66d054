"""What a list of conditional writes means, for those who write a store: conditions, changes, refusals.

An atomic store folds a commit into the conditions to judge on the state before it and one change per key; an ordered
one takes the writes one by one. Both refuse with the errors made here, so that a caller cannot tell stores apart.
Nothing here touches a store. What a commit folds into lives no longer than the commit, and is not frozen: every write
makes such an object, and a frozen one takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, assert_never

from attrs import define

from netplug_core.errors import InvariantBroken
from netplug_core.records import (
    ABSENT,
    Absent,
    AlreadyExists,
    CommitError,
    Conflict,
    Create,
    Delete,
    Key,
    Kind,
    NotFound,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Update,
    Write,
    Written,
)

__all__ = [
    "Condition",
    "KeyCondition",
    "KindCondition",
    "Mutation",
    "WriteSet",
    "condition_error",
    "fold_writes",
    "requirement_revision",
]


@define
class KeyCondition:
    """The state in which a commit's write at ``index`` must find its key."""

    index: int
    key: Key[object]
    expected: Revision | Absent


@define
class KindCondition:
    """That nothing of a kind was created or changed after a revision, as the write at ``index`` requires."""

    index: int
    kind: Kind[object]
    revision: Revision


Condition: TypeAlias = KeyCondition | KindCondition


@define
class Mutation:
    """The one change that a commit makes to a key: its new value, or None where the key is removed."""

    key: Key[object]
    value: object | None


@define
class WriteSet:
    """A commit as an atomic store applies it.

    ``conditions`` stand in the order of the writes. ``effects`` has one change for each changed key. ``sources`` says
    for each write where its revision comes from: the position of an effect, the revision that a requirement named, or
    None for writes that cancel each other (a create and the delete of what it made).
    """

    conditions: tuple[Condition, ...]
    mutations: tuple[Mutation, ...]
    revision_sources: tuple[int | Revision | None, ...]

    def revisions(self, mutation_revisions: Sequence[Revision], store_revision: Revision) -> tuple[Revision, ...]:
        """One revision for each write, from those that the effects made; ``now`` is the store's own."""
        return tuple(
            store_revision if source is None else mutation_revisions[source] if isinstance(source, int) else source
            for source in self.revision_sources
        )


_KeyWrites: TypeAlias = tuple[tuple[int, ...], object | None]
"""The writes of a commit to one key, by their positions, and the value that the last one leaves."""

_NO_WRITES: _KeyWrites = ((), None)


def fold_writes(writes: Sequence[Write]) -> WriteSet:
    """The conditions of a commit, and its writes to one key folded into one change.

    Raises:
        InvariantBroken: a second write to a key does not go on from the one before it by ``Written``, or a
            ``Written`` names anything else. An ordered store could not apply such a list.
    """
    conditions: list[Condition] = []
    sources: list[int | Revision | None] = []
    changes: dict[Key[object], _KeyWrites] = {}
    for index, write in enumerate(writes):
        if isinstance(write, Require):
            conditions.append(KeyCondition(index, write.key, write.revision))
            sources.append(requirement_revision(write))
            continue
        if isinstance(write, RequireUnchanged):
            conditions.append(KindCondition(index, write.kind, write.revision))
            sources.append(write.revision)
            continue
        named = None
        if isinstance(write, Create):
            conditions.append(KeyCondition(index, write.key, ABSENT))
        elif isinstance(write.revision, Written):
            named = write.revision.index
        else:
            conditions.append(KeyCondition(index, write.key, write.revision))
        indexes, value = changes.pop(write.key, _NO_WRITES)
        before = indexes[-1] if indexes else None
        if before != named or (indexes and value is None):
            raise InvariantBroken(f"write {index} of a commit does not go on from write {before} to {write.key}")
        # Behind those written before it: effects stand in the order of the last writes.
        changes[write.key] = ((*indexes, index), None if isinstance(write, Delete) else write.value)
        sources.append(None)
    return WriteSet(tuple(conditions), _mutations(writes, changes, sources), tuple(sources))


def _mutations(
    writes: Sequence[Write], changes: Mapping[Key[object], _KeyWrites], sources: list[int | Revision | None]
) -> tuple[Mutation, ...]:
    """The change that a commit makes to each key, noted in the sources; a record made and deleted in it is none."""
    effects: list[Mutation] = []
    for key, (indexes, value) in changes.items():
        if value is None and isinstance(writes[indexes[0]], Create):
            continue
        for index in indexes:
            sources[index] = len(effects)
        effects.append(Mutation(key, value))
    return tuple(effects)


def condition_error(write: Write, index: int, current: Record[object] | None, *, applied: int = 0) -> CommitError:
    """The error of a write whose condition does not hold, given what is stored at its key now."""
    match write:
        case RequireUnchanged(kind):
            return Conflict(kind, index, None, applied)
        case Create(key):
            return AlreadyExists(key, index, current, applied)
        case Update(key) | Delete(key) | Require(key):
            error = NotFound if current is None else Conflict
            return error(key, index, current, applied)
        case _:
            assert_never(write)


def requirement_revision(write: Require[object] | RequireUnchanged[object]) -> Revision:
    """What a commit answers for a requirement: the revision it named; an empty text for ``ABSENT``."""
    return Revision("") if isinstance(write.revision, Absent) else write.revision
