"""The file of an allocation report: one JSON object, with each address and each leaked handle on a line of its own.

``netplugctl ipam check`` writes it, ``ipam release --from-report`` reads it, and so do people's own programs. Sequence
numbers are whole numbers of up to 64 bits: a program that reads them as floating point changes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TypeVar

from attrs import frozen

from netplug_core.decoding.codecs import (
    ADDRESS,
    BOOLEAN,
    NONEMPTY_TEXT,
    NONNEGATIVE_INTEGER,
    TEXT,
    Codec,
    JSONType,
    Refused,
    WrongType,
)
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, document_error, fields_of
from netplug_core.errors import ConfigurationError, excerpt, quote
from netplug_core.ipam.gc.model import AllocationRef
from netplug_core.ipam.reporting.usage import (
    AllocationReport,
    HandleRef,
    LeakList,
    ReportedAllocation,
    ReportHeader,
    UseState,
)

__all__ = ["UnusableReport", "decode_report", "encode_report"]

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
    members = _DECODER.decode(found, _ReportMembers, source)
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


_DECODER = Decoder(
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
