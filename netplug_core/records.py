"""The values that stores and rules exchange: typed keys, queries, snapshots, conditional writes and decisions.

A rule is a pure function from a :class:`Snapshot` to a :class:`Decision`; a store answers queries with snapshots and
applies writes under their conditions. Each kind is declared beside its value; a backend maps kinds to its own layout.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar, cast

from attrs import define, evolve, field, frozen

from netplug_core.errors import DatastoreError, ErrorCode, InvariantBroken, NetplugError, Unavailable
from netplug_core.keys import PAGE_SIZE, Get, Key, Kind, List, Query, Record, Revision, ValueCondition

__all__ = [
    "ABSENT", "MAX_COMMIT_WRITES", "PAGE_SIZE", "Absent", "AlreadyExists", "CommitError", "Conflict", "Create",
    "Decision", "Delete", "Get", "Key", "Kind", "List", "Malformed", "NeedMore", "NotFound", "NotSupported",
    "OutcomeUnknown", "Query", "ReadResult", "Record", "Require", "RequireUnchanged", "Revision", "Snapshot",
    "TraceEntry", "Unreadable", "Update", "ValueCondition", "WatchEvent", "WatchExpired", "Write", "WriteGate",
    "Written",
]  # fmt: skip

MAX_COMMIT_WRITES = 128
"""How many writes every store accepts in one commit, with a condition for each: what etcd accepts by default."""

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)  # a key of pools is a key of something: what carries keys only reads them
R_co = TypeVar("R_co", covariant=True)


@frozen
class ReadResult:
    """What a store found for one query.

    ``after`` continues a page; empty when nothing follows. ``malformed`` has an error for each record that is stored
    and cannot be understood. ``is_cached``: a cache of the store answered, so the latest changes may be missing.
    ``keys`` are those of records that a list answers by their keys alone (``List.keys_only_if``). ``left`` is how many
    follow a page, where the store says so; nothing but what a person sees may depend on it.
    """

    records: tuple[Record[object], ...]
    after: str = ""
    malformed: tuple[Malformed, ...] = ()
    is_cached: bool = False
    keys: tuple[Key[object], ...] = ()
    left: int = 0

    def records_for(self, query: Get[V] | List[V]) -> tuple[Record[V], ...]:
        """The records, of an answer to that query, or to one that covers it: they are of its kind."""
        del query
        return cast("tuple[Record[V], ...]", self.records)  # a store answers with the kind that was asked for

    @classmethod
    def of(cls, found: Iterable[Record[object] | Malformed | Key[object]], after: str = "") -> ReadResult:
        """The answer with what was found, in this order."""
        found = tuple(found)
        malformed = tuple(each for each in found if isinstance(each, Malformed))
        keys = tuple(each for each in found if isinstance(each, Key))
        return cls(tuple(each for each in found if isinstance(each, Record)), after, malformed, keys=keys)


@frozen(eq=False)
class Snapshot:
    """The answers to some queries, read at one moment (or, after ``merged``, at a few).

    ``revisions``: one for each kind asked for, the oldest; ``RequireUnchanged`` and a watch start from it. ``find`` and
    ``list`` raise for a malformed record. A rule that can do without it asks ``malformed`` first, then ``readable``.
    """

    results: Mapping[Query, ReadResult]
    revisions: Mapping[Kind[object], Revision]

    @classmethod
    def empty(cls) -> Snapshot:
        """A snapshot of no queries."""
        return cls({}, {})

    def has(self, query: Get[V] | List[V]) -> bool:
        """Whether the query was read; if not, a rule returns :class:`NeedMore`."""
        return query in self.results

    def find_or_note(self, query: Get[V], unread: list[Query]) -> Record[V] | None:
        """The record of a query that was read; if it was not, None, and the query is added to ``unread``.

        Raises:
            Malformed: it is stored and cannot be understood.
        """
        answer = self.results.get(query)
        if answer is None:
            unread.append(query)
            return None
        if answer.records:
            return answer.records_for(query)[0]
        _raise_first(answer.malformed)
        return None

    def find(self, sought: Key[V] | Get[V]) -> Record[V] | None:
        """The record of a key that was read, by itself or in a list; None when nothing is there.

        Raises:
            InvariantBroken: it was not read, so nothing is known about it.
            Malformed: it is stored and cannot be understood.
        """
        asked = sought if isinstance(sought, Get) else Get(sought)
        answer = self.results.get(asked)
        if answer is not None:
            if answer.records:
                return answer.records_for(asked)[0]
            _raise_first(answer.malformed)
            return None
        key = asked.key
        for query, listed in self.results.items():
            if isinstance(query, List) and query.covers(key) and not listed.is_cached:
                for record in listed.records_for(asked):
                    if record.key == key:
                        return record
                if not (query.limit or listed.keys):
                    _raise_first(listed.malformed)  # one of them may be it
                    return None
        raise InvariantBroken(f"{key} was not read")

    def list(self, query: List[V]) -> tuple[Record[V], ...]:
        """The records of a list, in path order.

        Raises:
            InvariantBroken: it was not read.
            Malformed: one of them cannot be understood.
        """
        answer = self._get_result(query)
        _raise_first(answer.malformed)
        return answer.records_for(query)

    def readable(self, query: Get[V] | List[V]) -> tuple[Record[V], ...]:
        """The records that a query found, in path order, without those that cannot be understood.

        Raises:
            InvariantBroken: it was not read.
        """
        return self._get_result(query).records_for(query)

    def keys(self, query: List[V]) -> tuple[Key[V], ...]:
        """The keys of the records that a list, which was read, answered by their keys alone."""
        return cast("tuple[Key[V], ...]", self._get_result(query).keys)  # they too are of the kind that was asked for

    def malformed(self, query: Get[V] | List[V]) -> tuple[Malformed, ...]:
        """What is wrong with the records that a query found and that cannot be understood.

        Raises:
            InvariantBroken: it was not read.
        """
        return self._get_result(query).malformed

    def state(self, query: Get[V]) -> Revision | Absent:
        """The revision of a record that was read by itself, understood or not; ``ABSENT`` if nothing is there."""
        answer = self._get_result(query)
        stored: tuple[Record[object] | Malformed, ...] = (*answer.records, *answer.malformed)
        return stored[0].revision if stored else ABSENT

    def after(self, query: List[V]) -> str:
        """What the next page continues from; empty when this one was the last."""
        return self._get_result(query).after

    def revision(self, kind: Kind[V]) -> Revision:
        """The revision of a kind: the oldest one that it was read at."""
        return self.revisions[kind]

    def merged(self, other: Snapshot) -> Snapshot:
        """This snapshot with the answers of a later read added; its own revisions of kinds stay."""
        return Snapshot({**self.results, **other.results}, {**other.revisions, **self.revisions})

    def _get_result(self, query: Get[V] | List[V]) -> ReadResult:
        answer = self.results.get(query)
        if answer is None:
            asked = query.key if isinstance(query, Get) else f"the list of {query.kind} within {query.within!r}"
            raise InvariantBroken(f"{asked} was not read")
        return answer


def _raise_first(malformed: tuple[Malformed, ...]) -> None:
    for error in malformed:
        raise error


class Absent(enum.Enum):
    """The state of a key at which nothing is stored."""

    ABSENT = "absent"
    __hash__ = object.__hash__  # without a call of the function that enum has


ABSENT: Final = Absent.ABSENT


@frozen
class Written:
    """The revision that an earlier write of the same commit makes: its position in the list, from 0."""

    index: int


@frozen
class Create(Generic[V_co]):
    """Store a value where nothing is."""

    key: Key[V_co]
    value: V_co


@frozen
class Update(Generic[V_co]):
    """Replace the value that has this revision."""

    key: Key[V_co]
    value: V_co
    revision: Revision | Written


@frozen
class Delete(Generic[V_co]):
    """Remove the value that has this revision."""

    key: Key[V_co]
    revision: Revision | Written


@frozen
class Require(Generic[V_co]):
    """Apply the commit only if the key still has this revision, or nothing is there."""

    key: Key[V_co]
    revision: Revision | Absent


@frozen
class RequireUnchanged(Generic[V_co]):
    """Apply the commit only if nothing of the kind was created or changed after this revision.

    Deletions do not count: a key that matters is required by itself.
    """

    kind: Kind[V_co]
    revision: Revision


Write: TypeAlias = Create[object] | Update[object] | Delete[object] | Require[object] | RequireUnchanged[object]


@frozen
class WatchEvent(Generic[V_co]):
    """One event of a watch: the key's value after the change, or None when it was deleted.

    A watch from ``revision`` sees everything after it.
    """

    key: Key[V_co]
    value: V_co | None
    revision: Revision


@frozen
class NotSupported(DatastoreError, error_code=ErrorCode.NOT_STORED):
    """The store does not serve this operation on this kind (code 141)."""

    operation: str
    kind: Kind[object]
    reason: str

    def __str__(self) -> str:
        return f"{self.operation} of {self.kind} is not supported: {self.reason}"


@frozen
class Malformed(DatastoreError, error_code=ErrorCode.MALFORMED_RECORD):
    """A stored record cannot be understood; nothing is guessed from it (code 140).

    ``problem`` names the field and its value. ``revision`` is that of the record, as far as the store knows it, so that
    a commit can require that it stays so. ``subject`` is the key as a value; None if that cannot be understood either.
    ``counts_as`` is a value of the kind that holds what still counts of it: what can be read, or what was last known.
    A rule uses it only where to ignore the record would allow more, and never writes it; None if nothing is known.
    """

    key: str
    problem: str
    revision: Revision = field(default=Revision(""), eq=False)
    subject: Key[object] | None = field(default=None, eq=False)
    counts_as: object | None = field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        return f"the stored record {self.key} is malformed: {self.problem}"


class Unreadable(enum.Enum):
    """What stands for the value of a record that is stored and cannot be read, if none was known before."""

    UNREADABLE = "unreadable"


@frozen
class WatchExpired(DatastoreError):
    """The revision a watch was to start from is no longer kept: list again, then watch from there."""

    revision: Revision

    def __str__(self) -> str:
        return f"changes after revision {self.revision} are no longer kept; list again"


@frozen
class CommitError(DatastoreError):
    """A commit that was refused at one of its writes; the first ``applied`` writes are known to be applied.

    ``subject`` is its key (of :class:`RequireUnchanged` its kind), ``index`` its position, ``current`` what is there.
    """

    subject: Key[object] | Kind[object]
    index: int = 0
    current: Record[object] | None = None
    applied: int = 0


@frozen
class Conflict(CommitError):
    """The condition of an update, a delete or a requirement does not hold."""

    def __str__(self) -> str:
        return f"{self.subject} was changed by another writer"


@frozen
class NotFound(CommitError):
    """Nothing is stored at a key that had to exist."""

    def __str__(self) -> str:
        return f"{self.subject} does not exist"


@frozen
class AlreadyExists(CommitError):
    """A record exists at a key that had to be free."""

    def __str__(self) -> str:
        return f"{self.subject} already exists"


@frozen
class OutcomeUnknown(Unavailable):
    """The reply to a commit was lost: it may have been applied. Read before compensating.

    ``applied`` counts the writes known to be applied; more may be.
    """

    applied: int = 0


@define  # not frozen, as Decision
class TraceEntry:
    """Base of the entries of a decision's trace; the entries are defined beside their rules."""


@define  # not frozen: each call makes some, and a frozen object takes three times as long to make
class Decision(Generic[R_co]):
    """What a rule makes of a snapshot: writes to commit and the result that holds once they are.

    A refusal is a decision too: its result is the error, its writes take back what an earlier try of the call left.
    ``is_repeatable`` is false if deciding again after a lost reply would do the work twice. ``needs_read``: it may not
    rest on a cache alone, as its result is less than was requested, or it deletes a record for what another one says.
    But if ``depends_on`` is given, it is enough to have read that: the rest is its gate, and what its writes prove.
    ``passed_over`` are the entries of the trace about records that could not be read or judged.
    """

    writes: tuple[Write, ...]
    result: R_co | NetplugError
    trace: tuple[TraceEntry, ...] = ()
    is_repeatable: bool = True
    needs_read: bool = False
    depends_on: tuple[Query, ...] = ()
    passed_over: tuple[TraceEntry, ...] = ()

    def get_result(self) -> R_co:
        """The result, if it is no refusal.

        Raises:
            NetplugError: the refusal.
        """
        if isinstance(self.result, NetplugError):
            raise self.result
        return self.result

    def with_writes(self, before: Iterable[Write] = (), after: Iterable[Write] = ()) -> Decision[R_co]:
        """This decision with more writes around its own; ``Written`` positions are moved along."""
        head, last = tuple(before), tuple(after)
        if not head and not last:
            return self
        own = _shift_written(self.writes, len(head)) if head else self.writes
        writes = (*head, *own, *(_shift_written(last, len(head) + len(own)) if last else ()))
        return Decision(
            writes, self.result, self.trace, self.is_repeatable, self.needs_read, self.depends_on, self.passed_over
        )


@frozen
class NeedMore:
    """A rule cannot decide before these queries are read too."""

    queries: tuple[Query, ...]


@frozen
class WriteGate:
    """A record that may forbid all writes, such as the ready flag of a cluster.

    ``query`` reads the record. ``check`` returns the error to raise, or, while writing is allowed, the write that makes
    a commit fail if the record has changed since the snapshot.
    """

    query: Query
    check: Callable[[Snapshot], NetplugError | Write]


def _shift_written(writes: tuple[Write, ...], by: int) -> tuple[Write, ...]:
    return tuple(
        [
            evolve(write, revision=Written(write.revision.index + by))
            if isinstance(write, (Update, Delete)) and isinstance(write.revision, Written)
            else write
            for write in writes
        ]
    )
