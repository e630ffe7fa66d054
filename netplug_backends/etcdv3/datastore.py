"""The datastore in an etcd cluster: each read one transaction of ranges, each commit one of comparisons and writes.

Constructing connects to nobody. The revision of a record is the store's revision of its last change; the revision of
a kind is the store's own at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import evolve

from netplug_backends.etcdv3.calls import Entry, Found, KeyIs, NothingNewer, Put, Range, Remove, Reply, Span, Txn
from netplug_backends.etcdv3.client import EtcdClient, StoreIsFull
from netplug_backends.etcdv3.layout import ETCD_JSON, LAYOUT, Layout
from netplug_backends.etcdv3.revisions import Position, get_position
from netplug_backends.etcdv3.watching import Watcher
from netplug_core.clock import Deadline
from netplug_core.datastore.commits import Condition, Effect, KeyCondition, fold, refusal
from netplug_core.datastore.encoding import ValueCodec
from netplug_core.datastore.interface import Atomicity, DatastoreDescription
from netplug_core.errors import InvariantBroken, Unavailable
from netplug_core.records import (
    Absent,
    Answer,
    Change,
    CommitError,
    Get,
    Key,
    Kind,
    Query,
    Record,
    Revision,
    Snapshot,
    Write,
)

__all__ = ["OPERATIONS", "EtcdDatastore"]

OPERATIONS = 128
"""What etcd takes in one transaction unless it is told otherwise: so many comparisons, and so many writes."""


class EtcdDatastore:
    """All records of a cluster, in the etcd that ``client`` calls.

    ``layout`` says where they stand, ``codec`` turns values into bytes.
    """

    def __init__(self, client: EtcdClient, *, layout: Layout = LAYOUT, codec: ValueCodec = ETCD_JSON) -> None:
        self.description = DatastoreDescription(name="etcdv3", atomicity=Atomicity.ATOMIC, location=client.location)
        self._client = client
        self._layout = layout
        self._codec = codec

    def close(self) -> None:
        """Give up the connections, and with them what is called and watched; a later call would make new ones."""
        self._client.close()

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries from one moment; see :class:`~netplug_core.datastore.interface.Datastore`."""
        answers: dict[Query, Answer] = {}
        revisions: dict[Kind[object], Revision] = {}
        asked = [(query, self._range(query)) for query in dict.fromkeys(queries)]
        now = 0
        while asked:
            part, asked = asked[:OPERATIONS], asked[OPERATIONS:]
            reply = self._client.read([range_ for _, range_ in part], deadline=deadline)
            now = now or reply.revision
            for (query, range_), found in zip(part, reply.found, strict=True):
                kind, at = query.kind, range_.revision or now
                answers[query] = self._answer(query, found, at)
                revisions[kind] = Revision(str(min(at, int(revisions.get(kind, at)))))
            # More than etcd answers at once: the rest as it was at the moment of the first.
            asked = [(query, range_ if range_.revision else evolve(range_, revision=now)) for query, range_ in asked]
        return Snapshot(answers, revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes; see :class:`~netplug_core.datastore.interface.Datastore`."""
        folded = fold(writes)
        conditions = [self._condition(condition) for condition in folded.conditions]
        old = _of_old(folded.conditions)
        txn = Txn(
            compares=tuple(conditions),
            then=tuple(self._operation(effect, is_old=effect.key in old) for effect in folded.effects),
            otherwise=tuple(map(_question, conditions)),
        )
        if not conditions and not folded.effects:
            return ()
        if max(len(txn.compares), len(txn.then)) > OPERATIONS:
            raise InvariantBroken(f"etcd takes {OPERATIONS} writes in a commit, not {len(writes)}")
        reply = self._written(txn, deadline)
        if not reply.succeeded:
            raise self._refusal(writes, folded.conditions, zip(conditions, reply.found, strict=True))
        made = [Position(reply.revision, is_old=effect.key in old).revision for effect in folded.effects]
        return folded.revisions(made, Position(reply.revision).revision)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        """Changes after the revisions given; see :class:`~netplug_core.datastore.interface.Datastore`."""
        watcher = Watcher(self._client, layout=self._layout, codec=self._codec)
        return watcher.watch(start, deadline=deadline)

    # --- reading ---------------------------------------------------------------------------------------------------

    def _range(self, query: Query) -> Range:
        if isinstance(query, Get):
            return Range(span=self._layout.places(query.key))
        span = self._layout.span(query.kind, query.within)
        if not query.after:
            return Range(span=span, limit=query.limit)
        revision, _, last = query.after.partition(" ")
        return Range(span=Span(f"{last}\0".encode(), span.end), limit=query.limit, revision=int(revision))

    def _answer(self, query: Query, found: Found, revision: int) -> Answer:
        entries = found.entries
        if isinstance(query, Get):
            places = (self._layout.key(query.key), self._layout.old_key(query.key))
            entries = tuple(entry for entry in entries if entry.key in places)
        records: dict[Key[object], Record[object]] = {}
        for entry in entries:
            record = self._find_record(query.kind, entry)
            if record is not None:
                records.setdefault(record.key, record)  # one of old comes behind the one in its place
        after = f"{revision} {entries[-1].key.decode()}" if found.has_more else ""
        return Answer(tuple(sorted(records.values(), key=_path)), after)

    def _find_record(self, kind: Kind[object], entry: Entry) -> Record[object] | None:
        """The record of an entry; None when it is something that netplug keeps no record of."""
        key = self._layout.find_key(kind, entry.key)
        if key is None:
            return None
        revision = Position(entry.revision, is_old=self._layout.is_old(kind, entry.key)).revision
        return Record(key, self._codec.decode(key, entry.value), revision)

    # --- writing ---------------------------------------------------------------------------------------------------

    def _written(self, txn: Txn, deadline: Deadline) -> Reply:
        try:
            return self._client.write(txn, deadline=deadline)
        except StoreIsFull as error:
            if self._is_undone(txn, deadline):
                raise Unavailable(error.what, error.cause) from error
            raise

    def _is_undone(self, txn: Txn, deadline: Deadline) -> bool:
        """Whether nothing is there of a commit that was answered; False also where that cannot be found out.

        Each of its effects breaks a condition of its own: where all of them hold, it was not made.
        """
        try:
            found = self._client.read(txn.otherwise, deadline=deadline).found
        except Unavailable:
            return False
        return all(map(_holds, txn.compares, found))

    def _condition(self, condition: Condition) -> KeyIs | NothingNewer:
        if isinstance(condition, KeyCondition):
            expected = condition.expected
            if isinstance(expected, Absent):
                places = self._layout.places(condition.key)
                return NothingNewer(places, 0) if places.end else KeyIs(places.start, 0)
            position = get_position(expected, where=condition.key)
            return KeyIs(self._place(condition.key, is_old=position.is_old), position.number)
        # What was changed in a commit that was told only in part counts as newer.
        since = get_position(condition.revision, where=condition.kind).whole
        return NothingNewer(self._layout.span(condition.kind), since)

    def _operation(self, effect: Effect, *, is_old: bool) -> Put | Remove:
        key = self._place(effect.key, is_old=is_old)
        return Remove(key) if effect.value is None else Put(key, self._codec.encode(effect.key, effect.value))

    def _place(self, key: Key[object], *, is_old: bool) -> bytes:
        return self._layout.old_key(key) if is_old else self._layout.key(key)

    def _refusal(
        self,
        writes: Sequence[Write],
        conditions: Sequence[Condition],
        judged: Iterable[tuple[KeyIs | NothingNewer, Found]],
    ) -> CommitError:
        """What the first condition that did not hold means; the same reply has brought what is stored there."""
        for condition, (compare, found) in zip(conditions, judged, strict=True):
            if _holds(compare, found):
                continue
            current = None
            if isinstance(condition, KeyCondition) and found.entries:
                current = self._find_record(condition.key.kind, found.entries[0])
            return refusal(writes[condition.index], condition.index, current)
        raise InvariantBroken("etcd refused a commit whose conditions all hold")


def _of_old(conditions: Sequence[Condition]) -> set[Key[object]]:
    """The keys whose records were read at keys of old, as the revisions say that they are to be found at."""
    named = (each for each in conditions if isinstance(each, KeyCondition))
    return {each.key for each in named if isinstance(each.expected, str) and each.expected.endswith("@")}


def _question(compare: KeyIs | NothingNewer) -> Range:
    """What is asked in the same call in case that a comparison fails."""
    if isinstance(compare, KeyIs):
        return Range(span=Span(compare.key))
    return Range(span=compare.span, limit=1, since=compare.revision + 1)


def _holds(compare: KeyIs | NothingNewer, found: Found) -> bool:
    if isinstance(compare, KeyIs):
        return compare.revision == (found.entries[0].revision if found.entries else 0)
    return not found.entries


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path
