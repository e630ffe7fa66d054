"""What a list of conditional writes means: its conditions, its changes, its errors, and the snapshot after it.

Backends use the first three. An atomic store folds a commit into conditions, which it checks on the state before the
commit, and one change per key. An ordered store applies the writes one by one. Both raise the errors that are made
here, so a caller sees no difference between stores. ``view`` and ``batch`` use :func:`apply_writes`. The values that
a commit is folded into are not frozen: one is made for every write, and a frozen one takes three times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias, assert_never

from attrs import define, evolve

from netplug_core.errors import InvariantBroken
from netplug_core.records import (
    ABSENT,
    Absent,
    AlreadyExists,
    CommitError,
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    NotFound,
    ReadResult,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    Write,
    Written,
)

__all__ = [
    "Condition", "KeyCondition", "KindCondition", "Mutation", "WriteSet", "apply_writes", "condition_error",
    "fold_writes", "requirement_revision",
]  # fmt: skip


@define
class KeyCondition:
    """The state that the key of the write at ``index`` must have before the commit."""

    index: int
    key: Key[object]
    expected: Revision | Absent


@define
class KindCondition:
    """Nothing of a kind was created or changed after a revision: the condition of the write at ``index``."""

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

    ``conditions`` are in the order of the writes. ``mutations`` has one change for each changed key.
    ``revision_sources`` has the source of each write's revision: the position of a mutation, the revision that a
    requirement names, or None for writes that cancel each other (a create and the delete of the same record).
    """

    conditions: tuple[Condition, ...]
    mutations: tuple[Mutation, ...]
    revision_sources: tuple[int | Revision | None, ...]

    def revisions(self, mutation_revisions: Sequence[Revision], store_revision: Revision) -> tuple[Revision, ...]:
        """One revision for each write, given those of the mutations and the store's own."""
        return tuple(
            [
                store_revision if source is None else mutation_revisions[source] if isinstance(source, int) else source
                for source in self.revision_sources
            ]
        )


_KeyWrites: TypeAlias = tuple[tuple[int, ...], object | None]
"""The positions of a commit's writes to one key, and the value after the last one."""

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
        # Last in the dict again: mutations are in the order of the last write to each key.
        changes[write.key] = ((*indexes, index), None if isinstance(write, Delete) else write.value)
        sources.append(None)
    return WriteSet(tuple(conditions), _mutations(writes, changes, sources), tuple(sources))


def _mutations(
    writes: Sequence[Write], changes: Mapping[Key[object], _KeyWrites], sources: list[int | Revision | None]
) -> tuple[Mutation, ...]:
    """The change that a commit makes to each key; none if it creates and deletes the record. Fills in ``sources``."""
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
    """The revision that a commit returns for a requirement: the one it names; an empty text for ``ABSENT``."""
    return Revision("") if isinstance(write.revision, Absent) else write.revision


# --- the snapshot after a commit --------------------------------------------------------------------------------------


def apply_writes(
    snapshot: Snapshot,
    writes: Sequence[Write],
    revisions: Sequence[Revision] = (),
    *,
    uncached: AbstractSet[Kind[object]] = frozenset(),
    uncached_absent: AbstractSet[Kind[object]] = frozenset(),
) -> Snapshot:
    """The snapshot as it will be when the writes are committed, lists included.

    ``revisions`` are those that the commit returns, one for each write; without them, written records have an empty
    revision. Written keys are known afterwards, also those that the snapshot had not read. The revisions of kinds
    stay the same. Writes of ``uncached`` kinds are passed over, and deleted records of ``uncached_absent`` are unknown
    afterwards. A page is left out if its list gains or loses a record, because it may then end elsewhere, and a list
    if it has only the key of a record that changes.
    """
    created: set[Key[object]] = set()
    changes: dict[Key[object], Record[object] | None] = {}
    for write, revision in zip(writes, revisions or [Revision("")] * len(writes), strict=True):
        if isinstance(write, (Require, RequireUnchanged)) or write.key.kind in uncached:
            continue
        if isinstance(write, Create) and write.key not in changes:
            created.add(write.key)
        changes[write.key] = None if isinstance(write, Delete) else Record(write.key, write.value, revision)
    kinds = {key.kind.name for key in changes}
    results = dict(snapshot.results)  # a copy hashes no query again; most of them stay as they are
    for query in [query for query in results if isinstance(query, List) and query.kind.name in kinds]:
        result = results[query]
        in_list = {key: record for key, record in changes.items() if query.covers(key)}
        has_other_end = any((key in created) is (record is not None) for key, record in in_list.items())
        if (query.limit and has_other_end) or not in_list.keys().isdisjoint(result.keys):
            del results[query]
        elif in_list:
            results[query] = _change_list(result, in_list, is_page=query.limit > 0)
    for key, record in changes.items():
        if record is None and key.kind in uncached_absent:
            results.pop(Get(key), None)
        else:
            results[Get(key)] = ReadResult((record,) if record else ())
    return Snapshot(results, snapshot.revisions)


def _change_list(
    result: ReadResult, changes: Mapping[Key[object], Record[object] | None], *, is_page: bool
) -> ReadResult:
    """The list after some changes; a page gets no new records."""
    kept = [changes.get(record.key, record) for record in result.records]
    if not is_page:
        present = {record.key for record in result.records}
        kept.extend(record for key, record in changes.items() if key not in present)
    records = [record for record in kept if record is not None]
    in_order = tuple(records if is_page else sorted(records, key=_path))
    return evolve(result, records=in_order)


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path
