"""The datastore in an etcd cluster: each read one transaction of ranges, each commit one of comparisons and writes.

Constructing connects to nobody. The revision of a record is the store's revision of its last change; the revision of
a kind is the store's own at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import evolve

from netplug_backends.etcdv3.calls import Entry, Found, KeyIs, NothingNewer, Put, Range, Remove, Span, Txn
from netplug_backends.etcdv3.client import EtcdClient
from netplug_backends.etcdv3.layout import ETCD_JSON, LAYOUT, Layout
from netplug_backends.etcdv3.revisions import get_position
from netplug_backends.etcdv3.watching import Watcher
from netplug_core.clock import Deadline
from netplug_core.datastore.commits import Condition, Effect, KeyCondition, fold, refusal
from netplug_core.datastore.encoding import ValueCodec
from netplug_core.datastore.interface import Atomicity, DatastoreDescription
from netplug_core.errors import InvariantBroken
from netplug_core.records import (
    Absent,
    Answer,
    Change,
    CommitError,
    Get,
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
        """Give up the connections; a later call would make new ones."""
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
                kind, at = _kind_of(query), range_.revision or now
                answers[query] = self._answer(query, found, at)
                revisions[kind] = Revision(str(min(at, int(revisions.get(kind, at)))))
            # More than etcd answers at once: the rest as it was at the moment of the first.
            asked = [(query, range_ if range_.revision else evolve(range_, revision=now)) for query, range_ in asked]
        return Snapshot(answers, revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes; see :class:`~netplug_core.datastore.interface.Datastore`."""
        folded = fold(writes)
        conditions = [self._condition(condition) for condition in folded.conditions]
        txn = Txn(
            compares=tuple(conditions),
            then=tuple(map(self._operation, folded.effects)),
            otherwise=tuple(map(_question, conditions)),
        )
        if not conditions and not folded.effects:
            return ()
        if max(len(txn.compares), len(txn.then)) > OPERATIONS:
            raise InvariantBroken(f"etcd takes {OPERATIONS} writes in a commit, not {len(writes)}")
        reply = self._client.write(txn, deadline=deadline)
        if not reply.succeeded:
            raise self._refusal(writes, folded.conditions, zip(conditions, reply.found, strict=True))
        now = Revision(str(reply.revision))
        return folded.revisions([now] * len(folded.effects), now)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[Change[object]]:
        """Changes after the revisions given; see :class:`~netplug_core.datastore.interface.Datastore`."""
        watcher = Watcher(self._client, layout=self._layout, codec=self._codec)
        return watcher.watch(start, deadline=deadline)

    # --- reading ---------------------------------------------------------------------------------------------------

    def _range(self, query: Query) -> Range:
        if isinstance(query, Get):
            return Range(span=Span(self._layout.key(query.key)))
        span = self._layout.span(query.kind, query.within)
        if not query.after:
            return Range(span=span, limit=query.limit)
        revision, _, last = query.after.partition(" ")
        return Range(span=Span(f"{last}\0".encode(), span.end), limit=query.limit, revision=int(revision))

    def _answer(self, query: Query, found: Found, revision: int) -> Answer:
        kind = _kind_of(query)
        records = [record for entry in found.entries if (record := self._find_record(kind, entry)) is not None]
        after = f"{revision} {found.entries[-1].key.decode()}" if found.has_more else ""
        return Answer(tuple(sorted(records, key=_path)), after)

    def _find_record(self, kind: Kind[object], entry: Entry) -> Record[object] | None:
        """The record of an entry; None when it is something that netplug keeps no record of."""
        key = self._layout.find_key(kind, entry.key)
        if key is None:
            return None
        return Record(key, self._codec.decode(key, entry.value), Revision(str(entry.revision)))

    # --- writing ---------------------------------------------------------------------------------------------------

    def _condition(self, condition: Condition) -> KeyIs | NothingNewer:
        if isinstance(condition, KeyCondition):
            expected = condition.expected
            number = 0 if isinstance(expected, Absent) else get_position(expected, where=condition.key).number
            return KeyIs(self._layout.key(condition.key), number)
        # What was changed in a commit that was told only in part counts as newer.
        since = get_position(condition.revision, where=condition.kind).whole
        return NothingNewer(self._layout.span(condition.kind), since)

    def _operation(self, effect: Effect) -> Put | Remove:
        key = self._layout.key(effect.key)
        return Remove(key) if effect.value is None else Put(key, self._codec.encode(effect.key, effect.value))

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


def _question(compare: KeyIs | NothingNewer) -> Range:
    """What is asked in the same call in case that a comparison fails."""
    if isinstance(compare, KeyIs):
        return Range(span=Span(compare.key))
    return Range(span=compare.span, limit=1, since=compare.revision + 1)


def _holds(compare: KeyIs | NothingNewer, found: Found) -> bool:
    if isinstance(compare, KeyIs):
        return compare.revision == (found.entries[0].revision if found.entries else 0)
    return not found.entries


def _kind_of(query: Query) -> Kind[object]:
    return query.key.kind if isinstance(query, Get) else query.kind


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path
