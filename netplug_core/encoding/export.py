"""An exported datastore as text: one JSON document a line.

The first line names the export, the last one counts its records, so that an export that was cut is recognised. A record
is the JSON that stores of bytes keep. ``flows.resources`` reads and writes the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import frozen

from netplug_core.decoding.codecs import NONEMPTY_TEXT, NONNEGATIVE_INTEGER, OBJECT, TEXT, TIME
from netplug_core.decoding.tables import Decoder, DocumentOrigin, Field, ListOf, Table, document_error, find_member
from netplug_core.encoding.stored_json import STORED_JSON
from netplug_core.errors import ConfigurationError, narrow, quote
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.records import Key, Kind, Malformed
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION, CLUSTER_INFORMATION_KEY, ClusterInformation
from netplug_core.resources.kinds import KINDS, key_of, resource_of
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = [
    "EXPORTED_KINDS",
    "Export",
    "ExportHeader",
    "ExportedRecord",
    "UnusableExport",
    "decode_export",
    "encode_export",
]

_OTHERS = (CLUSTER_INFORMATION, WORKLOAD_ENDPOINT)

EXPORTED_KINDS: Final[tuple[Kind[object], ...]] = (
    *(row.kind for row in KINDS if row.kind not in _OTHERS),
    AFFINITY,
    HANDLE,
    BLOCK,
    WORKLOAD_ENDPOINT,
)
"""The kinds of an export, in the order in which they are stored: what leads to a record comes before it."""

_HEADER, _END = "DatastoreExport", "DatastoreExportEnd"
_BY_NAME = {kind.name: kind for kind in EXPORTED_KINDS}


class UnusableExport(ConfigurationError):
    """A line of an export that cannot be used; ``where`` is its place, ``accepted`` what is wrong."""

    def __str__(self) -> str:
        return f"{self.where}: {self.accepted}; nothing was done"


@frozen(kw_only=True)
class ExportHeader:
    """What an export is of: its own ``id``, the release that wrote it, when, and the identity of the cluster."""

    id: str
    release: str
    time_ns: int
    cluster: ClusterInformation


@frozen(kw_only=True)
class ExportedRecord:
    """One record without its revision, which belongs to its store."""

    key: Key[object]
    value: object


@frozen(kw_only=True)
class Export:
    """A whole export, its records in the order of ``EXPORTED_KINDS``."""

    header: ExportHeader
    records: tuple[ExportedRecord, ...]


def encode_export(export: Export) -> Iterator[str]:
    """The lines of an export, without line ends."""
    header = export.header
    out = _DECODER.encode(
        _HeaderLine(
            kind=_HEADER,
            id=header.id,
            release=header.release,
            time_ns=header.time_ns,
            cluster=_to_json(CLUSTER_INFORMATION_KEY, header.cluster),
        )
    )
    yield json.dumps(out)
    for record in export.records:
        value = _to_json(record.key, record.value)
        yield json.dumps({"kind": record.key.kind.name, "path": list(record.key.path), "value": value})
    yield json.dumps({"kind": _END, "records": len(export.records)})


def decode_export(lines: Iterable[str], source: str) -> Export:
    """The export of some lines; ``source`` names the file in errors.

    Raises:
        ConfigurationError: it is no export, a line cannot be understood, or the export was cut.
    """
    numbered = ((f"{source}#{number}", line) for number, line in enumerate(lines, start=1) if line.strip())
    place, first = next(numbered, (source, ""))
    if not first:
        raise UnusableExport(source, None, "it is empty, and an export of datastore migrate export is expected")
    header = _decode_header(place, first)
    records: dict[Key[object], ExportedRecord] = {}
    for place, line in numbered:
        mapping = _parse(line, place)
        if find_member(mapping, "kind") == _END:
            _require_end(_DECODER.decode(mapping, _EndLine, place), len(records), next(numbered, None), place)
            order: dict[Kind[object], int] = {kind: number for number, kind in enumerate(EXPORTED_KINDS)}
            return Export(header=header, records=tuple(sorted(records.values(), key=lambda each: order[each.key.kind])))
        record = _decode_record(_DECODER.decode(mapping, _RecordLine, place), place)
        if record.key in records:
            raise UnusableExport(place, None, f"{record.key} is there twice")
        records[record.key] = record
    raise UnusableExport(place, None, "it has no end, so it was cut; export again")


def _decode_header(place: str, line: str) -> ExportHeader:
    mapping = _parse(line, place)
    if find_member(mapping, "kind") != _HEADER:
        raise UnusableExport(place, None, f"kind is {quote(mapping.get('kind'))}, and {_HEADER} is expected")
    found = _DECODER.decode(mapping, _HeaderLine, place)
    cluster = narrow(_from_json(CLUSTER_INFORMATION_KEY, found.cluster, place), ClusterInformation)
    return ExportHeader(id=found.id, release=found.release, time_ns=found.time_ns, cluster=cluster)


def _decode_record(line: _RecordLine, place: str) -> ExportedRecord:
    kind = _BY_NAME.get(line.kind)
    if kind is None:
        raise UnusableExport(place, None, f"kind {quote(line.kind)} is none of {', '.join(_BY_NAME)}")
    if len(line.path) != len(kind.segments):
        raise UnusableExport(place, None, f"a path of {', '.join(kind.segments)} is expected, found {quote(line.path)}")
    key = kind.key(*line.path)
    value = _from_json(key, line.value, place)
    if kind in _RESOURCES:
        named = key_of(resource_of(value))
        if named != key:
            raise UnusableExport(place, None, f"the value is of {named}, and the path of {key}")
    return ExportedRecord(key=key, value=value)


def _require_end(end: _EndLine, count: int, following: object, place: str) -> None:
    if end.records != count:
        raise UnusableExport(place, None, f"{end.records} records are announced, and there are {count}")
    if following is not None:
        raise UnusableExport(place, None, "another line follows the end")


def _parse(line: str, place: str) -> Mapping[str, object]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnusableExport(place, None, f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnusableExport(place, None, f"an object is expected, found {quote(found)}")
    return found


def _to_json(key: Key[object], value: object) -> Mapping[str, object]:
    members: Mapping[str, object] = json.loads(STORED_JSON.encode(key, value))
    return members


def _from_json(key: Key[object], mapping: Mapping[str, object], place: str) -> object:
    try:
        value = STORED_JSON.decode(key, json.dumps(mapping).encode())
    except Malformed as error:
        raise UnusableExport(place, None, str(error)) from None
    if value is None:
        raise UnusableExport(place, None, f"{key} is marked as deleted")
    return value


@frozen(kw_only=True)
class _HeaderLine:
    kind: str
    id: str
    release: str
    time_ns: int
    cluster: Mapping[str, object]


@frozen(kw_only=True)
class _RecordLine:
    kind: str
    path: tuple[str, ...]
    value: Mapping[str, object]


@frozen(kw_only=True)
class _EndLine:
    kind: str
    records: int


_RESOURCES = frozenset(row.kind for row in KINDS)
_KIND = Field("kind", TEXT, is_required=True)
_DECODER = Decoder(
    document_error,
    DocumentOrigin.USER,
    tables=(
        Table(
            cls=_HeaderLine,
            fields={
                "kind": _KIND,
                "id": Field("id", NONEMPTY_TEXT, is_required=True),
                "release": Field("release", TEXT, is_required=True),
                "time_ns": Field("time", TIME, is_required=True),
                "cluster": Field("clusterInformation", OBJECT, is_required=True),
            },
        ),
        Table(
            cls=_RecordLine,
            fields={
                "kind": _KIND,
                "path": Field("path", ListOf(TEXT), is_required=True),
                "value": Field("value", OBJECT, is_required=True),
            },
        ),
        Table(cls=_EndLine, fields={"kind": _KIND, "records": Field("records", NONNEGATIVE_INTEGER, is_required=True)}),
    ),
)
