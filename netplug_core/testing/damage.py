"""A datastore whose stored records can be damaged, as by another program or a failing disk.

Tests wrap a datastore in :class:`DamagedDatastore`. A damaged record is read from the bytes that are put in its place.
A write that replaces or deletes the record removes the damage with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import define, evolve, field

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, DatastoreDescription
from netplug_core.encoding.stored_json import STORED_JSON, ValueCodec
from netplug_core.records import (
    Get,
    Key,
    Kind,
    List,
    Malformed,
    Query,
    ReadResult,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    WatchEvent,
    Write,
)

__all__ = ["DamagedDatastore"]


@define
class DamagedDatastore:
    """A datastore around another one; ``damage`` has the bytes of records that differ from what was stored."""

    inner: Datastore
    codec: ValueCodec = STORED_JSON
    damage: dict[Key[object], bytes] = field(factory=dict)

    @property
    def description(self) -> DatastoreDescription:
        """The description of the inner store."""
        return self.inner.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries; what is damaged is decoded anew, also where a list would answer it by its key alone."""
        kinds = {query.kind for query in queries if isinstance(query, List) and query.keys_only_if is not None}
        damaged = tuple(Get(key) for key in self.damage if key.kind in kinds)
        found = self.inner.read(tuple(dict.fromkeys((*queries, *damaged))), deadline=deadline)
        by_key = {record.key: record for query in damaged for record in found.readable(query)}
        results = {query: self._damaged(found.results[query], by_key) for query in queries}
        return Snapshot(results, found.revisions)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes; a record that is written is sound again."""
        revisions = self.inner.commit(writes, deadline=deadline)
        for write in writes:
            if not isinstance(write, (Require, RequireUnchanged)):
                self.damage.pop(write.key, None)
        return revisions

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Changes after the revisions given: damage is none."""
        return self.inner.watch(start, deadline=deadline)

    def _damaged(self, result: ReadResult, by_key: Mapping[Key[object], Record[object]]) -> ReadResult:
        if self.damage.keys().isdisjoint((*(record.key for record in result.records), *result.keys)):
            return result
        named = (by_key[key] for key in result.keys if key in self.damage)
        stored = sorted((*result.records, *named), key=lambda record: record.key.path)
        decoded = (each for record in stored if (each := self._decode(record)) is not None)
        keys = (key for key in result.keys if key not in self.damage)
        made = ReadResult.of((*result.malformed, *decoded, *keys), result.after)
        return evolve(made, is_cached=result.is_cached)

    def _decode(self, record: Record[object]) -> Record[object] | Malformed | None:
        data = self.damage.get(record.key)
        try:
            value = record.value if data is None else self.codec.decode(record.key, data)
        except Malformed as error:
            return evolve(error, revision=record.revision)
        return None if value is None else evolve(record, value=value)
