"""The files of the tool as text, a JSON document a line: an exported datastore, and the report of ``ipam check``.

The first line names the export, the last one counts its records, so that an export that was cut is recognised. A record
is the JSON that stores of bytes keep. ``flows.resources`` reads and writes the records.

``netplugctl ipam check`` writes its report, ``ipam release --from-report`` reads it, and so do people's own programs.
Sequence numbers are whole numbers of up to 64 bits: a program that reads them as floating point changes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from attrs import frozen

from netplug_core.decoding.codecs import (
    ADDRESS,
    BOOLEAN,
    NONEMPTY_TEXT,
    NONNEGATIVE_INTEGER,
    OBJECT,
    TEXT,
    TIME,
    Codec,
    JSONType,
    Refused,
    WrongType,
)
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    Field,
    ListOf,
    Table,
    document_error,
    fields_of,
    find_member,
)
from netplug_core.encoding.stored_json import STORED_JSON
from netplug_core.errors import ConfigurationError, excerpt, narrow, quote
from netplug_core.ipam.gc.candidates import AllocationRef
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.ipam.reporting.usage import (
    AllocationReport,
    HandleRef,
    LeakList,
    ReportedAllocation,
    ReportHeader,
    UseState,
)
from netplug_core.records import Key, Kind, Malformed
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION, CLUSTER_INFORMATION_KEY, ClusterInformation
from netplug_core.resources.kinds import KINDS, key_of, resource_of
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = [
    "EXPORTED_KINDS", "Export", "ExportHeader", "ExportedRecord", "UnusableExport", "UnusableReport", "decode_export",
    "decode_report", "encode_export", "encode_report",
]  # fmt: skip


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


# --- an allocation report --------------------------------------------------------------------------------------------

T = TypeVar("T")


_ENTRY_MEMBERS = ("ip", "handle", "sequenceNumber", "inUse", "coolingDown")


class UnusableReport(ConfigurationError):
    """A file that is no report; ``accepted`` is what is wrong."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {self.accepted}"


def encode_report(report: AllocationReport) -> Iterator[str]:
    """The lines of a report, with their ends."""
    header = report.header
    members = {
        "version": header.version,
        "clusterGUID": header.cluster_guid,
        "datastoreLocked": header.is_locked,
        "clusterInformationRevision": header.revision,
        "clusterType": header.cluster_type,
    }
    yield "{\n"
    for name, value in members.items():
        yield f'  "{name}": {json.dumps(value)},\n'
    entries = (
        f"{json.dumps(str(each.allocation.address))}: [{json.dumps(_allocation_json(each))}]"
        for each in report.allocations
    )
    yield from _lines('"allocations": {', entries, "},")
    handles = (
        json.dumps({"id": handle.id, "uid": handle.uid, "revision": handle.revision})
        for handle in report.leaked_handles
    )
    yield from _lines('"leakedHandles": [', handles, "]")
    yield "}\n"


def decode_report(text: str, source: str) -> LeakList:
    """What a report calls leaked; ``source`` names the file in errors.

    Raises:
        ConfigurationError: it is no report, or a member cannot be read.
    """
    try:
        found = json.loads(text, object_hook=_without_unread)
    except (ValueError, RecursionError) as error:
        raise UnusableReport(source, None, f"no report of ipam check, or a damaged one: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnusableReport(source, None, f"no report of ipam check: an object is expected, found {quote(found)}")
    members = _REPORT_DECODER.decode(found, _ReportMembers, source)
    return LeakList(
        source=source,
        header=ReportHeader(
            version=members.version,
            cluster_guid=members.cluster_guid,
            is_locked=members.is_locked,
            revision=members.revision,
            cluster_type=members.cluster_type,
        ),
        addresses=members.leaks,
        handles=frozenset(members.handles),
    )


def _lines(opening: str, entries: Iterator[str], closing: str) -> Iterator[str]:
    """An array or an object over several lines."""
    separator = ""
    yield f"  {opening}"
    for entry in entries:
        yield f"{separator}\n    {entry}"
        separator = ","
    yield f"\n  {closing}\n" if separator else f"{closing}\n"


def _allocation_json(reported: ReportedAllocation) -> Mapping[str, object]:
    allocation, use = reported.allocation, reported.use
    attribute = allocation.attribute
    return {
        "ip": str(allocation.address),
        "handle": attribute.handle or "",
        "sequenceNumber": allocation.sequence,
        "pod": attribute.owner_value("pod"),
        "namespace": attribute.owner_value("namespace"),
        "node": attribute.owner_value("node"),
        "type": attribute.owner_value("type"),
        "creationTimestamp": attribute.owner_value("timestamp"),
        "inUse": use.state in (UseState.USED, UseState.UNDETERMINED),
        "borrowed": reported.is_borrowed,
        "coolingDown": use.state is UseState.COOLING,
        "owners": [use.text] if use.state in (UseState.USED, UseState.UNDETERMINED) else [],
    }


@frozen(kw_only=True)
class _ReportMembers:
    version: str = ""
    cluster_guid: str
    is_locked: bool = False
    revision: str
    cluster_type: str = ""
    leaks: frozenset[AllocationRef]
    handles: tuple[HandleRef, ...]


def _without_unread(members: dict[str, object]) -> dict[str, object]:
    """An object as it is kept while a report is read: a million entries would take twice the memory as they are."""
    return {name: members[name] for name in _ENTRY_MEMBERS if name in members} if "ip" in members else members


def _decode_allocations(value: object) -> object:
    """The leaked assignments of all addresses."""
    if not isinstance(value, Mapping):
        raise WrongType(JSONType.OBJECT)
    leaks: set[AllocationRef] = set()
    for text, entries in value.items():
        if not isinstance(entries, list):
            raise WrongType(JSONType.ARRAY, path=f"[{quote(text)}]", value=entries)
        for position, entry in enumerate(entries):
            try:
                leak = _find_leak(entry, text)
            except Refused as refused:
                refused.locate(f"[{quote(text)}][{position}]", entry)
                raise
            if leak is not None:
                leaks.add(leak)
    return frozenset(leaks)


def _find_leak(entry: object, text: str) -> AllocationRef | None:
    """The assignment that an entry of an address describes; None if it is in use, or cools down."""
    if not isinstance(entry, Mapping):
        raise WrongType(JSONType.OBJECT)
    address = _member(entry, "ip", ADDRESS)
    if str(address) != text:
        raise Refused(f"the address {quote(text)}, under which the entry is", value=str(address), path=".ip")
    handle = _member(entry, "handle", TEXT)
    sequence = _member(entry, "sequenceNumber", NONNEGATIVE_INTEGER)
    is_kept = [_member(entry, name, BOOLEAN) for name in ("inUse", "coolingDown")]
    return None if any(is_kept) else AllocationRef(address, handle, sequence)


def _member(entry: Mapping[str, object], name: str, codec: Codec[T]) -> T:
    value = entry.get(name)
    try:
        return codec.decode(value)
    except Refused as refused:
        refused.locate(f".{name}", value)
        raise
    except ValueError as error:
        raise Refused(str(error), value=value, path=f".{name}") from None


_REPORT_DECODER = Decoder(
    document_error,
    tables=(
        Table(
            cls=HandleRef,
            fields=fields_of(NONEMPTY_TEXT, id="id", revision="revision") | fields_of(TEXT, uid="uid"),
        ),
        Table(
            cls=_ReportMembers,
            fields={
                **fields_of(TEXT, version="version", cluster_guid="clusterGUID", cluster_type="clusterType"),
                "is_locked": Field("datastoreLocked", BOOLEAN),
                "revision": Field("clusterInformationRevision", TEXT),
                "leaks": Field("allocations", Codec(_decode_allocations)),
                "handles": Field("leakedHandles", ListOf(HandleRef)),
            },
        ),
    ),
)
