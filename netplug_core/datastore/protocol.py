"""The interface of every datastore, and a datastore that stands in front of another one.

Backends implement ``Datastore`` and what goes beside it; flows and transactions call it. ``ObservedDatastore`` passes
every read and commit on, and classes below it count the calls, print them or measure them. ``FRESH_S`` and
``CALL_TIMEOUT_S`` are the two times from which every other limit is derived. ``CachePolicy`` says what a view keeps.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, runtime_checkable

from attrs import define, field, frozen

from netplug_core.clock import Deadline
from netplug_core.errors import DatastoreError
from netplug_core.records import (
    Get,
    Kind,
    List,
    Query,
    ReadResult,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    WatchEvent,
    Write,
)

__all__ = [
    "ALL_EXPIRE", "CALL_TIMEOUT_S", "FRESH_S", "LIST_TIMEOUT_S", "Atomicity", "CachePolicy", "CommitCall",
    "CredentialsInUse", "Datastore", "DatastoreCall", "DatastoreDescription", "EndpointStorage", "HasCredentials",
    "HasIdentity", "HoldsLeases", "InterruptibleWatch", "KeepsHistory", "LiveWatch", "NonExpiring", "ObservedDatastore",
    "ReadCall", "ReadReport", "RefusesWrites", "ReportsReads", "ShowsLeases", "ShowsNodeEndpoints",
]  # fmt: skip


# --- what a store offers ----------------------------------------------------------------------------------------------


CALL_TIMEOUT_S = 5.0
"""The longest time that one call to a store may take."""

LIST_TIMEOUT_S = 600.0
"""The longest time in which all records of a kind are read: a large cluster has some 100,000 of one."""

FRESH_S = 5.0
"""How long what is known of an ordered store counts: from the moment when it was asked for, or its watch last spoke."""


class Atomicity(enum.Enum):
    """What a failing commit leaves behind.

    An ``ATOMIC`` store applies all writes or none. An ``ORDERED`` one applies a prefix, says how long it is, and does
    not evaluate ``Require`` and ``RequireUnchanged``; callers order writes so that every prefix is a state that the
    next operation heals.
    """

    ATOMIC = "atomic"
    ORDERED = "ordered"


class EndpointStorage(enum.Enum):
    """Where a store keeps workload endpoints.

    ``RECORDS``: each endpoint is a record. ``PODS``: an endpoint is a view of its pod. A pod can hold one, that of its
    first interface (``eth0``), and the endpoint's uid is the one by which the runtime knows the pod.
    """

    RECORDS = "records"
    PODS = "pods"


@frozen(kw_only=True)
class DatastoreDescription:
    """A store's registered name, how its commits fail, and where it keeps its records (a text for users).

    ``lists_whole``: it answers a list whole, whatever the limit, by many requests each of which has its own time limit.
    """

    name: str
    atomicity: Atomicity
    location: str
    endpoints: EndpointStorage = EndpointStorage.RECORDS
    lists_whole: bool = False


@frozen(kw_only=True)
class CredentialsInUse:
    """What a client identifies itself with: to ``access`` (a backend's name) at ``location``, as texts for users.

    ``certificate`` has the client's certificate (PEM), ``token`` its token; empty: it has none. ``expires_ns``: when
    they expire, if their issuer said so (nanoseconds since 1970-01-01 UTC).
    """

    access: str
    location: str
    certificate: bytes = b""
    token: str = field(default="", repr=False)
    expires_ns: int | None = None


@runtime_checkable
class HasCredentials(Protocol):
    """A datastore or an orchestrator whose client has credentials that may expire."""

    def credentials_in_use(self) -> CredentialsInUse | None:
        """Those of the last call; None before the first one. Nothing is sent.

        Raises:
            ConfigurationError: their file cannot be read.
        """
        ...


ReadReport: TypeAlias = Callable[[int, int], None]
"""Called while a list is read: with how many of its records are found, and how many follow; 0 if that is not known."""


@runtime_checkable
class ReportsReads(Protocol):
    """A datastore that answers a long list as a whole, and can say meanwhile how far it is."""

    def report_reads(self, report: ReadReport | None) -> None:
        """Call this from now on while lists are read; None: nothing any more. One thread reads at a time."""
        ...


@runtime_checkable
class HasIdentity(Protocol):
    """A datastore that differs from every other one by a text of its own, however it is reached."""

    def find_identity(self, *, deadline: Deadline) -> str | None:
        """A text that this store alone has, the same at each opening; None if it has none.

        The same records have it over any address, before and after members of a cluster are added. The first call may
        make it and store it; where several do so at once, all get the one that is stored.

        Raises:
            Unavailable, Unauthorized: the store cannot be asked.
        """
        ...


@runtime_checkable
class ShowsLeases(Protocol):
    """A datastore that shows, beside its records, which of several processes acts. A lease is a text by a name."""

    def read_lease(self, name: str, *, deadline: Deadline) -> tuple[str, Revision] | None:
        """The text and its revision; None if there is none.

        Raises:
            Unavailable, Unauthorized: the store cannot be asked.
        """
        ...


@runtime_checkable
class HoldsLeases(ShowsLeases, Protocol):
    """A datastore in which processes decide by leases which of them acts."""

    def write_lease(self, name: str, text: str, revision: Revision | None, *, deadline: Deadline) -> bool:
        """Store a text if that revision is still the present one; None: if there is none. Whether it is stored.

        Raises:
            OutcomeUnknown: the reply was lost.
            Unavailable, Unauthorized: nothing is stored.
        """
        ...


@runtime_checkable
class KeepsHistory(Protocol):
    """A datastore that keeps what its records were, until it has to forget it."""

    def present_revision(self, *, deadline: Deadline) -> int:
        """The revision of now; they count up.

        Raises:
            Unavailable, Unauthorized: the store cannot be asked.
        """
        ...

    def forget_history(self, before: int, *, deadline: Deadline) -> None:
        """Forget everything before a revision. A watch that is further behind has to list again.

        Raises:
            Unavailable, Unauthorized: the store cannot be asked, or refuses.
        """
        ...


@runtime_checkable
class InterruptibleWatch(Protocol):
    """A watch that another thread can end while one waits for its next change."""

    def interrupt(self) -> None:
        """End the watch as its deadline does, whether it has begun or not."""
        ...


@runtime_checkable
class LiveWatch(Protocol):
    """A watch that says how far it has come; the watch of an ordered store may be one.

    A stream that is open and says nothing proves nothing: what lies between may swallow its bytes. An answer to another
    request does not prove anything about it either.
    """

    def current_until_s(self, kind: Kind[object]) -> float | None:
        """When the store last spoke of a kind (monotonic seconds); its reader has applied all that was said until then.

        None: it has not yet, or nothing but what may be older than other changes that are still on their way.
        """
        ...

    def close(self) -> None:
        """End the watch, also while another thread waits for its next change."""
        ...


@runtime_checkable
class ShowsNodeEndpoints(Protocol):
    """A datastore whose endpoints are views of pods, and which can watch those of one node."""

    def watch_endpoints(self, node: str, *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Every endpoint of a node as it is now, then each change, until the deadline; see ``Datastore.watch``.

        What it returns is a :class:`LiveWatch`.
        """
        ...


@runtime_checkable
class RefusesWrites(Protocol):
    """A datastore that never makes some writes, because the cluster keeps the kind by itself."""

    def find_refusal(self, write: Write) -> DatastoreError | None:
        """The error of a write that is refused whatever is stored; None for any other. Nothing is sent."""
        ...


class Datastore(Protocol):
    """A store of typed records. Threads may share it.

    Every call ends by its deadline. Errors are those of ``records`` and ``Unavailable`` or ``Unauthorized``, already
    translated from whatever client the backend uses.
    """

    @property
    def description(self) -> DatastoreDescription:
        """What this store is."""
        ...

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries, from one moment and in one round trip where the store can.

        Lists come in path order. The snapshot's revision of a kind is the store's at that moment. A record that cannot
        be understood is in the ``malformed`` of its answer, and does not keep the others from being read. A list that
        may be cached (``List.may_be_cached``) may show an earlier moment; its answer says so (``is_cached``).

        Raises:
            NotSupported: the store does not keep this kind.
            Unavailable: the store did not answer in time.
        """
        ...

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes, in order; the answer has one revision for each.

        Every store accepts ``MAX_COMMIT_WRITES`` writes; one that takes no more refuses a larger commit whole.

        All conditions are judged on the state before the commit, except that ``Written(i)`` stands for the revision
        that write *i* makes; several writes to one key are folded into one. The revision of a ``Require`` is the one
        it named (the key's, or an empty text for ``ABSENT``), that of a ``RequireUnchanged`` likewise. An update that
        changes nothing may keep the record's revision. In an atomic store, the revision of a record that the commit
        creates is that of its kind too.

        Raises:
            Conflict, AlreadyExists, NotFound: a condition does not hold; the error names the write.
            OutcomeUnknown: the reply was lost; the writes may be applied.
            Unavailable: nothing was sent.
            Unauthorized, RequestError, ConfigurationError, NotSupported: a write is not allowed, or makes no sense;
                an ordered store has made those before it.
        """
        ...

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Every change of the kinds in ``start`` after their revisions, exactly once, in order per key.

        The iterator waits for changes and ends when the deadline passes; a later watch goes on from the revision of
        the last change seen.

        Raises:
            WatchExpired: changes after a revision are no longer kept.
        """
        ...


# --- a store in front of another one ----------------------------------------------------------------------------------


@frozen
class ReadCall:
    """A read, by its queries."""

    queries: Sequence[Query]


@frozen
class CommitCall:
    """A commit, by its writes."""

    writes: Sequence[Write]


DatastoreCall: TypeAlias = ReadCall | CommitCall
"""A call of a datastore. Watches are not observed: they last as long as their reader likes."""


@define
class ObservedDatastore(ABC):
    """A :class:`~netplug_core.datastore.protocol.Datastore` in front of another."""

    datastore: Datastore

    @abstractmethod
    def observe(self, call: DatastoreCall) -> AbstractContextManager[None]:
        """What is entered before a call and left after it, with its error if it failed."""

    @property
    def description(self) -> DatastoreDescription:
        """The other store's description."""
        return self.datastore.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """The other store's answers."""
        with self.observe(ReadCall(queries)):
            return self.datastore.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """The other store's revisions."""
        with self.observe(CommitCall(writes)):
            return self.datastore.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """The other store's changes."""
        return self.datastore.watch(start, deadline=deadline)

    def find_identity(self, *, deadline: Deadline) -> str | None:
        """The other store's identity, if it is a :class:`~netplug_core.datastore.protocol.HasIdentity`."""
        return self.datastore.find_identity(deadline=deadline) if isinstance(self.datastore, HasIdentity) else None

    def report_reads(self, report: ReadReport | None) -> None:
        """Let the other store report, if it is a :class:`~netplug_core.datastore.protocol.ReportsReads`."""
        if isinstance(self.datastore, ReportsReads):
            self.datastore.report_reads(report)

    def find_refusal(self, write: Write) -> DatastoreError | None:
        """The other store's refusal, if it is a :class:`~netplug_core.datastore.protocol.RefusesWrites`."""
        return self.datastore.find_refusal(write) if isinstance(self.datastore, RefusesWrites) else None


# --- what may be kept of a store --------------------------------------------------------------------------------------


@frozen
class NonExpiring:
    """What a cache of a store that checks no requirements may use at any age.

    ``records``: kinds whose single records are used only where the commit writes these records themselves, under their
    revisions. ``lists``: kinds of whose lists only those are kept that a cache of the store may answer too. They are
    marked so (``is_cached``), and a rule that depends on such a list reads it again. ``views``: those of the kinds of
    ``records`` that others change all the time. A decision that does not write such a record is made from a read.
    """

    records: frozenset[Kind[object]] = frozenset()
    lists: frozenset[Kind[object]] = frozenset()
    views: frozenset[Kind[object]] = frozenset()

    @property
    def kinds(self) -> frozenset[Kind[object]]:
        """All of these kinds. Of them nothing else is kept."""
        return self.records | self.lists

    def may_rely_on(self, writes: Sequence[Write]) -> bool:
        """Whether a decision from a view with these writes requires only what the store checks, or is not old."""
        kinds = self.kinds
        return not kinds or not any(_required_kind(write) in kinds for write in writes)

    def keeps(self, query: Query) -> bool:
        """Whether an answer is kept, at any age or for a short time."""
        if query.kind in self.records:
            return isinstance(query, Get)
        return query.kind not in self.lists or (isinstance(query, List) and query.may_be_cached)


ALL_EXPIRE = NonExpiring()
"""A cache that may use everything for a short time only."""


@frozen(kw_only=True)
class CachePolicy:
    """What a cache keeps: nothing of the kinds in ``uncached``, and of ``uncached_absent`` only records that exist.

    ``max_age_s`` limits the age of what is not in ``non_expiring``; None: nothing ages, because the store checks what a
    decision rests on.
    """

    uncached: AbstractSet[Kind[object]] = frozenset()
    uncached_absent: AbstractSet[Kind[object]] = frozenset()
    max_age_s: float | None = None
    non_expiring: NonExpiring = ALL_EXPIRE

    def does_age(self, kind: Kind[object]) -> bool:
        """Whether what is known of a kind counts for a limited time."""
        return self.max_age_s is not None and kind not in self.non_expiring.kinds

    def keeps(self, query: Query, result: ReadResult) -> bool:
        """Whether an answer is kept.

        Pages are not: their other pages would be of another moment. Lists by the beginning of a name are not: who
        creates a record beside others has to see those of this moment. Answers with malformed records are not either,
        so that a repair is seen by the next call.
        """
        is_absence = isinstance(query, Get) and not result.records
        return (
            query.kind not in self.uncached
            and not _is_part(query)
            and not result.malformed
            and not (is_absence and query.kind in self.uncached_absent)
            and self.non_expiring.keeps(query)
        )


def _is_part(query: Query) -> bool:
    """Whether the answer may leave records of the list out, or must be of this moment."""
    return isinstance(query, List) and (query.limit > 0 or query.name_prefix != "" or query.keys_only_if is not None)


def _required_kind(write: Write) -> Kind[object] | None:
    if isinstance(write, RequireUnchanged):
        return write.kind
    return write.key.kind if isinstance(write, Require) else None
