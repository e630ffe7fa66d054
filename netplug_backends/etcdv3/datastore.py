"""The datastore in an etcd cluster: a read is one transaction of range reads, a commit one of comparisons and writes.

Constructing does not connect, but refuses unusable settings. A record's revision is the store's revision of its last
change; a kind's revision is the store's revision at the moment of the read. A watch begins at such a revision.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Final

from attrs import define, evolve, field, frozen

from netplug_backends.etcdv3.client import (
    ClientClosed,
    EtcdClient,
    FutureRevision,
    MemberSource,
    NoSpaceLeft,
    RevisionUnavailable,
    StaticMembers,
)
from netplug_backends.etcdv3.layout import ETCD_JSON, LAYOUT, LEASE_PREFIX, NO_RECORDS, STORE_ID_KEY, Layout
from netplug_backends.etcdv3.operations import (
    Compare,
    DeleteKey,
    Interruption,
    KeyEvent,
    KeyRange,
    KeyValue,
    ModRevisionIs,
    NoneModifiedSince,
    Put,
    RangeRead,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
    WatchStart,
)
from netplug_backends.etcdv3.tls import Credentials
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Atomicity, CredentialsInUse, DatastoreDescription
from netplug_core.datastore.write_set import Condition, KeyCondition, Mutation, condition_error, fold_writes
from netplug_core.encoding.stored_json import ValueCodec
from netplug_core.errors import ConfigurationError, InvariantBroken, Unavailable
from netplug_core.names import InvalidName
from netplug_core.records import (
    MAX_COMMIT_WRITES,
    Absent,
    CommitError,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    Query,
    ReadResult,
    Record,
    Revision,
    Snapshot,
    WatchEvent,
    WatchExpired,
    Write,
)
from netplug_core.settings.model import DatastoreSettings, parse_endpoints, refuse_endpoints_beside_srv

__all__ = [
    "EtcdDatastore", "EtcdRevision", "EtcdWatcher", "client_from_settings", "datastore_from_settings",
    "find_etcd_revision", "get_etcd_revision",
]  # fmt: skip


# --- watch -----------------------------------------------------------------------------------------------------------


# --- revisions -------------------------------------------------------------------------------------------------------


_TEXT: Final = re.compile(r"([1-9][0-9]{0,17})(?:\.([1-9][0-9]{0,3}))?(@?)", re.ASCII)


@frozen(order=True)
class EtcdRevision:
    """A revision of the store; ``delivered`` counts the changes of it that a watch has delivered, 0 for all.

    ``is_legacy`` belongs to the record that has the revision: its key is a legacy key.
    """

    number: int
    delivered: int = 0
    is_legacy: bool = False

    @property
    def delivered_up_to(self) -> int:
        """The newest revision of which all changes were delivered."""
        return self.number - 1 if self.delivered else self.number

    @property
    def revision(self) -> Revision:
        """The revision as a text."""
        text = f"{self.number}.{self.delivered}" if self.delivered else str(self.number)
        return Revision(f"{text}@" if self.is_legacy else text)


def find_etcd_revision(revision: Revision) -> EtcdRevision | None:
    """The revision that a text encodes; None if it is not a revision of etcd's."""
    found = _TEXT.fullmatch(revision)
    return None if found is None else EtcdRevision(int(found[1]), int(found[2] or 0), is_legacy=bool(found[3]))


def get_etcd_revision(revision: Revision, *, where: object) -> EtcdRevision:
    """The revision that a text encodes, which ``where`` has.

    Raises:
        ConfigurationError: the text is not a revision of etcd's.
    """
    position = find_etcd_revision(revision)
    if position is None:
        raise ConfigurationError(f"{where}: resourceVersion", revision, "etcd's revisions are numbers from 1")
    return position


# --- watch -----------------------------------------------------------------------------------------------------------


_RETRY_DELAY_S = 0.1


@define
class _WatchedKind:
    """A kind, and the revision up to which its changes were delivered."""

    kind: Kind[object]
    revision: EtcdRevision

    def undelivered(self, events: Sequence[KeyEvent]) -> Iterator[tuple[KeyEvent, EtcdRevision]]:
        """Those of some changes that were not delivered yet, each with the revision after it."""
        count, number = 0, 0
        delivered = self.revision
        for change, next_change in zip_longest(events, events[1:]):
            count = count + 1 if change.mod_revision == number else 1
            number = change.mod_revision
            if number > delivered.number or count > delivered.delivered:
                is_last = next_change is None or next_change.mod_revision != number
                yield change, EtcdRevision(number, 0 if is_last else count)


@define(eq=False, repr=False)
class EtcdWatcher:
    """Watches one store."""

    _client: EtcdClient
    _layout: Layout = field(kw_only=True, alias="layout")
    _codec: ValueCodec = field(kw_only=True, alias="codec")

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> _EtcdWatch:
        """Changes after the revisions given, until the client is closed; see ``Datastore.watch``."""
        interruption = Interruption()
        return _EtcdWatch(self._changes(start, interruption, deadline), interruption)

    def _changes(
        self, start: Mapping[Kind[object], Revision], interruption: Interruption, deadline: Deadline
    ) -> Iterator[WatchEvent[object]]:
        closing = self._client.closing
        watched = [_WatchedKind(kind, _start_revision(revision)) for kind, revision in start.items()]
        while watched and not (deadline.has_passed or interruption.is_asked):
            starts = [
                WatchStart(self._layout.list_range(each.kind), each.revision.delivered_up_to + 1) for each in watched
            ]
            try:
                batches = self._client.watch(starts, interruption, deadline=deadline, closing=closing)
                yield from self._events(watched, batches)
            except ClientClosed:
                return
            except FutureRevision as error:
                raise WatchExpired(max(each.revision for each in watched).revision) from error
            except RevisionUnavailable as error:
                raise WatchExpired(min(each.revision for each in watched).revision) from error
            if not interruption.is_asked:
                # The connection was lost. Pause: the cause may affect the next member too.
                deadline.clock.sleep(min(_RETRY_DELAY_S, deadline.remaining_s))

    def _events(self, watched: Sequence[_WatchedKind], batches: Iterator[WatchBatch]) -> Iterator[WatchEvent[object]]:
        """The changes from one member, until the connection is lost."""
        for batch in batches:
            each = watched[batch.index]
            for change, position in each.undelivered(batch.events):
                key = self._layout.find_key(each.kind, change.key)
                if key is not None:
                    value = None if change.value is None else self._codec.decode(key, change.value)
                    each.revision = position
                    reached = evolve(position, is_legacy=self._layout.is_legacy(each.kind, change.key))
                    yield WatchEvent(key, value, reached.revision)


@frozen(eq=False)
class _EtcdWatch:
    """The changes of a watch, which another thread may end."""

    _events: Iterator[WatchEvent[object]]
    _interruption: Interruption

    def __iter__(self) -> Iterator[WatchEvent[object]]:
        return self

    def __next__(self) -> WatchEvent[object]:
        return next(self._events)

    def interrupt(self) -> None:
        """See :class:`~netplug_core.datastore.protocol.InterruptibleWatch`."""
        self._interruption.ask()


def _start_revision(revision: Revision) -> EtcdRevision:
    position = find_etcd_revision(revision)
    if position is None:
        raise WatchExpired(revision)
    return position


# --- datastore -------------------------------------------------------------------------------------------------------


_KEPT_KEYS, _KEPT_CHECKS = 1024, 256  # a full node has some 10 blocks, and 110 handles and endpoints
_COMMIT_ATTEMPTS = 4  # of a commit that replaces records which are marked as deleted


@define(eq=False, repr=False)
class EtcdDatastore:
    """All records of a cluster, in the etcd that ``client`` calls.

    ``layout`` has their keys, ``codec`` encodes values as bytes.
    """

    _client: EtcdClient
    _layout: Layout = field(default=LAYOUT, kw_only=True, alias="layout")
    _codec: ValueCodec = field(default=ETCD_JSON, kw_only=True, alias="codec")
    description: DatastoreDescription = field(init=False)
    # Commit after commit names the same blocks, and requires the same pools and settings in the same state.
    _key: Callable[[Key[object]], bytes] = field(init=False)
    _check_key: Callable[[Key[object], Revision | Absent], tuple[Compare, RangeRead]] = field(init=False)
    _check_kind: Callable[[Kind[object], Revision], tuple[Compare, RangeRead]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        location = self._client.location
        self.description = DatastoreDescription(name="etcdv3", atomicity=Atomicity.ATOMIC, location=location)
        self._key = lru_cache(_KEPT_KEYS)(self._layout.key)
        self._check_key = lru_cache(_KEPT_CHECKS)(partial(_check_key, self._layout))
        self._check_kind = lru_cache(_KEPT_CHECKS)(partial(_check_kind, self._layout))

    def close(self) -> None:
        """Close the connections, which ends calls and watches; a later call connects again."""
        self._client.close()

    def credentials_in_use(self) -> CredentialsInUse:
        """See :class:`~netplug_core.datastore.protocol.HasCredentials`."""
        return CredentialsInUse(
            access=self.description.name, location=self.description.location, certificate=self._client.certificate
        )

    def find_identity(self, *, deadline: Deadline) -> str:
        """The id under a key of its own, made once; see :class:`~netplug_core.datastore.protocol.HasIdentity`.

        The cluster's own id is of no use: clusters that are set up in the same way have the same one.
        """
        reading = RangeRead(key_range=KeyRange(STORE_ID_KEY))
        found = self._client.read([reading], deadline=deadline).results[0]
        if not found.key_values:
            made = Txn(
                compares=(ModRevisionIs(STORE_ID_KEY, 0),), success=(Put(STORE_ID_KEY, os.urandom(16).hex().encode()),)
            )
            self._client.write(made, deadline=deadline)
            found = self._client.read([reading], deadline=deadline).results[0]  # that of the first writer
        return found.key_values[0].value.decode("utf-8", "replace")

    def read_lease(self, name: str, *, deadline: Deadline) -> tuple[str, Revision] | None:
        """A lease; see :class:`~netplug_core.datastore.protocol.ShowsLeases`."""
        reading = RangeRead(key_range=KeyRange(LEASE_PREFIX + name.encode()))
        found = self._client.read([reading], deadline=deadline).results[0].key_values
        return None if not found else (found[0].value.decode(errors="replace"), Revision(str(found[0].mod_revision)))

    def write_lease(self, name: str, text: str, revision: Revision | None, *, deadline: Deadline) -> bool:
        """Store a lease if no other process has."""
        key = LEASE_PREFIX + name.encode()
        unchanged = ModRevisionIs(key, 0 if revision is None else int(revision))
        written = Txn(compares=(unchanged,), success=(Put(key, text.encode()),))
        return self._client.write(written, deadline=deadline).succeeded

    def present_revision(self, *, deadline: Deadline) -> int:
        """The revision of now; see :class:`~netplug_core.datastore.protocol.KeepsHistory`."""
        return self._client.read([RangeRead(key_range=KeyRange(STORE_ID_KEY))], deadline=deadline).revision

    def forget_history(self, before: int, *, deadline: Deadline) -> None:
        """Compact; what is compacted already stays so."""
        with suppress(RevisionUnavailable):
            self._client.compact(before, deadline=deadline)

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries at one revision; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        ranges = {query: self._range(query) for query in dict.fromkeys(queries)}
        results: dict[RangeRead, tuple[RangeResult, int]] = {}
        pending = [(each, each) for each in dict.fromkeys(ranges.values())]
        now = 0
        while pending:
            batch, pending = pending[:MAX_COMMIT_WRITES], pending[MAX_COMMIT_WRITES:]
            reply = self._client.read([range_ for _, range_ in batch], deadline=deadline)
            now = now or reply.revision
            for (wanted, range_), result in zip(batch, reply.results, strict=True):
                results[wanted] = (result, range_.revision or now)
            # etcd limits one transaction; the remaining ranges are read at the revision of the first batch.
            pending = [(wanted, each if each.revision else evolve(each, revision=now)) for wanted, each in pending]
        answers: dict[Query, ReadResult] = {}
        revisions: dict[Kind[object], Revision] = {}
        for query, wanted in ranges.items():
            kind, (found, at) = query.kind, results[wanted]
            answers[query] = self._answer(query, found, at)
            revisions[kind] = Revision(str(min(at, int(revisions.get(kind, at)))))
        return Snapshot(answers, revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        folded = fold_writes(writes)
        if not folded.conditions and not folded.mutations:
            return ()
        if max(len(folded.conditions), len(folded.mutations)) > MAX_COMMIT_WRITES:
            raise InvariantBroken(f"etcd takes {MAX_COMMIT_WRITES} writes in a commit, not {len(writes)}")
        legacy = _legacy_keys(folded.conditions)
        operations = tuple([self._operation(effect, is_legacy=effect.key in legacy) for effect in folded.mutations])
        checks = [self._check(condition) for condition in folded.conditions]
        compares, failure = tuple([compare for compare, _ in checks]), tuple([read for _, read in checks])
        attempts = _COMMIT_ATTEMPTS
        while True:
            txn = Txn(compares=compares, success=operations, failure=failure)
            reply = self._commit(txn, deadline)
            if reply.succeeded:
                break
            attempts -= 1
            compares = tuple(map(self._condition_given, folded.conditions, reply.results))
            if not attempts or compares == txn.compares:
                raise self._refusal(writes, zip(folded.conditions, txn.compares, reply.results, strict=True))
            failure = tuple(map(_read_on_failure, compares))
        plain = EtcdRevision(reply.revision).revision
        revisions = [plain] * len(folded.mutations)
        if legacy:
            of_legacy = EtcdRevision(reply.revision, is_legacy=True).revision
            revisions = [of_legacy if effect.key in legacy else plain for effect in folded.mutations]
        return folded.revisions(revisions, plain)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given; see :class:`~netplug_core.datastore.protocol.Datastore`."""
        watcher = EtcdWatcher(self._client, layout=self._layout, codec=self._codec)
        return watcher.watch(start, deadline=deadline)

    # --- reading ---------------------------------------------------------------------------------------------------

    def _range(self, query: Query) -> RangeRead:
        try:
            if isinstance(query, Get):
                return RangeRead(key_range=self._layout.read_range(query.key))
            key_range = self._layout.list_range(query.kind, query.within, query.name_prefix)
        except InvalidName:
            return RangeRead(key_range=NO_RECORDS)  # no record can have such a name
        if not query.after:
            return RangeRead(key_range=key_range, limit=query.limit)
        revision, _, last = query.after.partition(" ")
        return RangeRead(
            key_range=KeyRange(f"{last}\0".encode(), key_range.end), limit=query.limit, revision=int(revision)
        )

    def _answer(self, query: Query, found: RangeResult, revision: int) -> ReadResult:
        entries = found.key_values
        if entries and isinstance(query, Get):
            keys = (self._layout.key(query.key), self._layout.legacy_key(query.key))
            entries = tuple(entry for entry in entries if entry.key in keys)
        records: dict[tuple[str, ...], Record[object]] = {}
        malformed: list[Malformed] = []
        left_out: list[Key[object]] = []
        may_leave_out = isinstance(query, List) and query.keys_only_if is not None
        for entry in entries:
            key = self._find_left_out(query, entry) if may_leave_out else None
            if key is not None:
                left_out.append(key)
                continue
            record = self._find_record(query.kind, entry)
            if isinstance(record, Malformed):
                malformed.append(record)
            elif record is not None and (isinstance(query, Get) or query.covers(record.key)):
                records.setdefault(record.key.path, record)  # a legacy key comes after the key itself, which wins
        after = f"{revision} {entries[-1].key.decode()}" if found.has_more else ""
        in_order = tuple(map(records.__getitem__, sorted(records)))
        return ReadResult(in_order, after, tuple(malformed), keys=tuple(left_out), left=found.left)

    def _find_left_out(self, query: Query, entry: KeyValue) -> Key[object] | None:
        """The key of an entry that a list answers by its key alone; it is not decoded."""
        if not isinstance(query, List) or query.keys_only_if is None or self._layout.is_legacy(query.kind, entry.key):
            return None
        if not self._codec.holds(query.keys_only_if, entry.value):
            return None
        try:
            key = self._layout.find_key(query.kind, entry.key)
        except Malformed:
            return None
        return key if key is not None and query.covers(key) else None

    def _find_record(self, kind: Kind[object], key_value: KeyValue) -> Record[object] | Malformed | None:
        """The record of an etcd key, or what is wrong with it; None without one, or if it is marked as deleted."""
        number = key_value.mod_revision
        is_legacy = self._layout.is_legacy(kind, key_value.key)
        revision = EtcdRevision(number, is_legacy=True).revision if is_legacy else Revision(str(number))
        try:
            key = self._layout.find_key(kind, key_value.key)
            value = None if key is None else self._codec.decode(key, key_value.value)
        except Malformed as error:
            return evolve(error, revision=revision)
        return None if key is None or value is None else Record(key, value, revision)

    # --- writing ---------------------------------------------------------------------------------------------------

    def _commit(self, txn: Txn, deadline: Deadline) -> TxnResult:
        try:
            return self._client.write(txn, deadline=deadline)
        except NoSpaceLeft as error:
            if self._is_undone(txn, deadline):
                raise Unavailable(error.what, error.cause) from error
            raise

    def _is_undone(self, txn: Txn, deadline: Deadline) -> bool:
        """Whether a refused commit was certainly not applied; False also if that cannot be determined.

        Each write of a commit breaks one of its conditions. If all conditions hold, it was not applied.
        """
        try:
            found = self._client.read(txn.failure, deadline=deadline).results
        except Unavailable:
            return False
        return all(map(_holds, txn.compares, found))

    def _check(self, condition: Condition) -> tuple[Compare, RangeRead]:
        """The comparison of a condition, and the read that shows why it failed."""
        if isinstance(condition, KeyCondition):
            return self._check_key(condition.key, condition.expected)
        return self._check_kind(condition.kind, condition.revision)

    def _operation(self, effect: Mutation, *, is_legacy: bool) -> Put | DeleteKey:
        key = self._layout.legacy_key(effect.key) if is_legacy else self._key(effect.key)
        return DeleteKey(key) if effect.value is None else Put(key, self._codec.encode(effect.key, effect.value))

    def _condition_given(self, condition: Condition, found: RangeResult) -> Compare:
        """The comparison of a condition, given what was found: a record that is marked as deleted counts as absent."""
        compare, _ = self._check(condition)
        if not isinstance(condition, KeyCondition) or not isinstance(condition.expected, Absent):
            return compare
        kind, entries = condition.key.kind, found.key_values
        if not entries or any(self._find_record(kind, entry) is not None for entry in entries):
            return compare
        newest = max(entries, key=lambda entry: entry.mod_revision)
        if isinstance(compare, NoneModifiedSince):
            return NoneModifiedSince(compare.key_range, newest.mod_revision)
        return ModRevisionIs(newest.key, newest.mod_revision)

    def _refusal(
        self,
        writes: Sequence[Write],
        checked: Iterable[tuple[Condition, Compare, RangeResult]],
    ) -> CommitError:
        """The error for the first condition that does not hold, with the stored record from the same reply."""
        for condition, compare, found in checked:
            if not _holds(compare, found):
                return condition_error(writes[condition.index], condition.index, self._find_current(condition, found))
        raise InvariantBroken("etcd refused a commit whose conditions all hold")

    def _find_current(self, condition: Condition, found: RangeResult) -> Record[object] | None:
        """The record that is stored in place of the one that a condition names."""
        if not isinstance(condition, KeyCondition):
            return None
        records = (self._find_record(condition.key.kind, entry) for entry in found.key_values)
        return next((record for record in records if isinstance(record, Record)), None)


def _legacy_keys(conditions: Sequence[Condition]) -> set[Key[object]]:
    """The keys of records that have a legacy key in etcd, as their revisions say."""
    return {
        each.key
        for each in conditions
        if isinstance(each, KeyCondition) and isinstance(each.expected, str) and each.expected.endswith("@")
    }


def _check_key(layout: Layout, key: Key[object], expected: Revision | Absent) -> tuple[Compare, RangeRead]:
    """The comparison that a record is in a state, and the read that shows why it failed."""
    compare: Compare
    if isinstance(expected, Absent):
        keys = layout.read_range(key)
        compare = NoneModifiedSince(keys, 0) if keys.end else ModRevisionIs(keys.start, 0)
    else:
        position = get_etcd_revision(expected, where=key)
        compare = ModRevisionIs(layout.legacy_key(key) if position.is_legacy else layout.key(key), position.number)
    return compare, _read_on_failure(compare)


def _check_kind(layout: Layout, kind: Kind[object], revision: Revision) -> tuple[Compare, RangeRead]:
    """The comparison that nothing of a kind has changed, and the read that shows why it failed."""
    # Changes of a commit that a watch has delivered only in part count as newer.
    since = get_etcd_revision(revision, where=kind).delivered_up_to
    compare = NoneModifiedSince(layout.list_range(kind), since)
    return compare, _read_on_failure(compare)


def _read_on_failure(compare: Compare) -> RangeRead:
    """The range read that shows, in the same call, why a comparison failed."""
    if isinstance(compare, ModRevisionIs):
        return RangeRead(key_range=KeyRange(compare.key))
    # At 0 the range has the keys of one record; more than one of them may exist.
    limit = 1 if compare.revision else 0
    return RangeRead(key_range=compare.key_range, limit=limit, min_mod_revision=compare.revision + 1)


def _holds(compare: Compare, found: RangeResult) -> bool:
    if isinstance(compare, ModRevisionIs):
        return compare.mod_revision == (found.key_values[0].mod_revision if found.key_values else 0)
    return not found.key_values


# --- factory ---------------------------------------------------------------------------------------------------------


def datastore_from_settings(settings: DatastoreSettings, *, clock: Clock) -> EtcdDatastore:
    """The datastore that the settings name; errors as for ``client_from_settings``."""
    return EtcdDatastore(client_from_settings(settings, clock=clock))


def client_from_settings(settings: DatastoreSettings, *, clock: Clock) -> EtcdClient:
    """The client of the cluster that the settings name; nothing is sent yet.

    Raises:
        ConfigurationError: an endpoint, a domain, a key or a certificate is missing, unusable, or given twice.
    """
    credentials = Credentials(settings)
    return EtcdClient(_member_source(settings), credentials, clock=clock)


def _member_source(settings: DatastoreSettings) -> MemberSource:
    refuse_endpoints_beside_srv(settings.etcd_endpoints, settings.etcd_discovery_srv, "etcd_discovery_srv")
    if settings.etcd_discovery_srv:
        from netplug_backends.etcdv3.discovery import SrvMembers  # loads dnspython, which few clusters need

        return SrvMembers(settings.etcd_discovery_srv)
    return StaticMembers(parse_endpoints(settings.etcd_endpoints, settings.etcd_endpoints_source))
