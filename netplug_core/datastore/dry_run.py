"""A datastore for dry runs: it reads from another one, and keeps what is written to itself.

A flow on it reads, validates and decides as in a real run, and finds its own writes again; the other store gets reads
only. ``netplugctl`` runs its commands on it for ``--dry-run``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from attrs import define, evolve, field

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import (
    Atomicity,
    Datastore,
    DatastoreDescription,
    ReadReport,
    RefusesWrites,
    ReportsReads,
)
from netplug_core.datastore.write_set import Condition, KindCondition, Mutation, condition_error, fold_writes
from netplug_core.records import (
    Get,
    Key,
    Kind,
    List,
    NotSupported,
    Query,
    ReadResult,
    Record,
    Revision,
    Snapshot,
    WatchEvent,
    Write,
)

__all__ = ["DryRunDatastore"]

_OWN_CHANGES = "+"


@define(eq=False)
class DryRunDatastore:
    """See :class:`~netplug_core.datastore.protocol.Datastore`; for one thread.

    Commits are atomic, whatever the other store does, because it has no other writer. Changes that others make to the
    other store meanwhile are seen by the next read; ``RequireUnchanged`` notices only the writes of the dry run. A page
    of a list shows these too, even if they are newer than the page before. There is nothing to watch.
    """

    inner: Datastore
    _changed: dict[Key[object], Record[object] | None] = field(factory=dict, init=False)
    _newest: dict[str, int] = field(factory=dict, init=False)  # of each kind: the newest change that left a record
    _number: int = field(default=0, init=False)

    @property
    def description(self) -> DatastoreDescription:
        """That of the other store, but for its commits."""
        return evolve(self.inner.description, atomicity=Atomicity.ATOMIC)

    def report_reads(self, report: ReadReport | None) -> None:
        """Let the other store report, if it is a :class:`~netplug_core.datastore.protocol.ReportsReads`."""
        if isinstance(self.inner, ReportsReads):
            self.inner.report_reads(report)

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """The answers of the other store, with what was written here."""
        asked = {query: _without_own_mark(query) for query in queries}
        found = self.inner.read(tuple(dict.fromkeys(asked.values())), deadline=deadline)
        results = {query: self._answer(query, found.results[inner]) for query, inner in asked.items()}
        revisions = {kind: self._revision_of_kind(revision) for kind, revision in found.revisions.items()}
        return Snapshot(results, revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Judge the writes as the other store does, and keep them here."""
        folded = fold_writes(writes)
        if isinstance(self.inner, RefusesWrites):
            for write in writes:
                refusal = self.inner.find_refusal(write)
                if refusal is not None:
                    raise refusal
        keys = (condition.key for condition in folded.conditions if not isinstance(condition, KindCondition))
        snapshot = self.read(tuple(map(Get, dict.fromkeys(keys))), deadline=deadline)
        for condition in folded.conditions:
            self._check_condition(writes[condition.index], condition, snapshot)
        made = [self._change(mutation) for mutation in folded.mutations]
        return folded.revisions(made, self._revision())

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Refused: nothing changes in a dry run."""
        del deadline
        raise NotSupported("watching", next(iter(start)), "nothing changes in a dry run")

    # --- what was written here -------------------------------------------------------------------------------------

    def _check_condition(self, write: Write, condition: Condition, snapshot: Snapshot) -> None:
        if isinstance(condition, KindCondition):
            if _own_changes(condition.revision) < self._newest.get(condition.kind.name, 0):
                raise condition_error(write, condition.index, None)
            return
        query = Get(condition.key)
        if snapshot.state(query) != condition.expected:
            raise condition_error(write, condition.index, next(iter(snapshot.readable(query)), None))

    def _change(self, mutation: Mutation) -> Revision:
        self._number += 1
        key, value, revision = mutation.key, mutation.value, self._revision()
        self._changed[key] = None if value is None else Record(key, value, revision)
        if value is not None:
            self._newest[key.kind.name] = self._number
        return revision

    def _revision(self) -> Revision:
        return Revision(f"dry-run{_OWN_CHANGES}{self._number}")

    def _revision_of_kind(self, revision: Revision) -> Revision:
        """The revision of a kind in the other store, with the number of the changes here."""
        return Revision(f"{revision}{_OWN_CHANGES}{self._number}")

    def _answer(self, query: Query, found: ReadResult) -> ReadResult:
        if isinstance(query, Get):
            if query.key not in self._changed:
                return found
            record = self._changed[query.key]
            return ReadResult(() if record is None else (record,))
        begin = _mark_of(query)[1]
        end = _end_of(found, begin)
        changed = (
            record
            for key, record in self._changed.items()
            if query.covers(key) and key.path > begin and (key.path <= end or not found.after)
        )
        kept = (record for record in found.records if record.key not in self._changed)
        in_order = sorted((*kept, *(record for record in changed if record is not None)), key=_path)
        names = {str(key) for key in self._changed}
        return evolve(
            found,
            records=tuple(in_order),
            after=json.dumps([found.after, *end]) if found.after else "",
            malformed=tuple(error for error in found.malformed if error.key not in names),
            keys=tuple(key for key in found.keys if key not in self._changed),
        )


def _own_changes(revision: Revision) -> int:
    """How many changes a revision of a kind knows of; none that was not made here knows of any."""
    number = revision.rpartition(_OWN_CHANGES)[2]
    return int(number) if number.isascii() and number.isdigit() else -1


def _mark_of(query: List[object]) -> tuple[str, tuple[str, ...]]:
    """Where a page begins: what the other store continues from, and a path that no path of the page comes before."""
    if not query.after:
        return "", ()
    after, *begin = json.loads(query.after)
    return after, tuple(begin)


def _without_own_mark(query: Query) -> Query:
    return query if isinstance(query, Get) else evolve(query, after=_mark_of(query)[0])


def _end_of(found: ReadResult, begin: tuple[str, ...]) -> tuple[str, ...]:
    """The last path of a page. Pages of a store whose order is another one never go back before ``begin``."""
    return max((begin, *(record.key.path for record in found.records), *(key.path for key in found.keys)))


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path
