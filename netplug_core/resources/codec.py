"""Resources as JSON-like mappings: the only place that knows how their fields are spelled.

Backends call it with what they stored, ``netplugctl`` with what a user wrote. Decoding fills in defaults, and encoding
writes the important ones. Whether a value that can be read is also allowed is decided in ``validation``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeVar

from attrs import field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import (
    TEXT,
)
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    MalformedField,
    document_error,
    find_object,
    json_object,
    member,
    path_in_document,
)
from netplug_core.names import API_VERSION
from netplug_core.records import Key, Kind
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.ipreservation import IPRESERVATION, IPReservation, IPReservationSpec, read_stored_entry
from netplug_core.resources.kinds import Resource, ResourceKind, get_kind, kind_of
from netplug_core.resources.metadata import Metadata

__all__ = ["from_mapping", "read_resource_version", "readable_part", "to_mapping"]

T = TypeVar("T")


def to_mapping(resource: Resource, *, revision: str = "") -> dict[str, object]:
    """The JSON object that stands for a resource.

    A ``revision`` is shown as the resource version. What is stored never contains its own revision.
    """
    out = {"kind": kind_of(resource).name, "apiVersion": API_VERSION} | _decoder(DocumentOrigin.DATASTORE).encode(
        resource
    )
    if revision:
        out["metadata"] = {**find_object(out, "metadata"), "resourceVersion": revision}
    return out


def from_mapping(
    mapping: Mapping[str, object], *, origin: DocumentOrigin, source: str = "", kind: Kind[object] | None = None
) -> Resource:
    """The resource that a JSON object stands for, defaults filled in.

    ``source`` names the document in errors. ``kind`` is the kind that it must have; without it any kind is accepted.

    Raises:
        ConfigurationError: it is no such resource; the error names the document, the field, what is there and what
            was expected.
    """
    decoder = _decoder(origin)
    if kind is not None and mapping.get("kind") == kind.name and mapping.get("apiVersion") == API_VERSION:
        row = get_kind(kind.name)  # as every store has it
    else:
        row = _require_kind(mapping, decoder, source, kind)
    return decoder.decode(mapping, row.value_type, source)


def _require_kind(
    mapping: Mapping[str, object], decoder: Decoder, source: str, kind: Kind[object] | None
) -> ResourceKind:
    """The kind of a document, by its header."""
    header = decoder.decode(mapping, _Header, source)
    row = get_kind(header.kind, where=path_in_document(source, ".kind"))
    accepted = row.name if kind is None else kind.name
    if header.kind != accepted:
        raise MalformedField(path_in_document(source, ".kind"), header.kind, repr(accepted))
    if header.api_version != API_VERSION:
        where, found = path_in_document(source, ".apiVersion"), header.api_version
        raise MalformedField(where, found or None, repr(API_VERSION), _GROUPS.get(found.partition("/")[0], ""))
    return row


def read_resource_version(mapping: Mapping[str, object], *, source: str) -> str:
    """The resource version that a document names; empty if it names none."""
    return _decoder(DocumentOrigin.USER).decode(mapping, _Version, source).resource_version


def readable_part(key: Key[object], text: str) -> Resource | None:
    """What still counts of a stored resource that cannot be understood as a whole; None if nothing does.

    ``text`` is its JSON, which may be damaged. Of a reservation every address and CIDR in it counts, since one too many
    is better than one too few; of a cluster's information that it is locked. Other kinds are used whole, or not at all.
    """
    metadata = Metadata(name=key.name)
    if key.kind == IPRESERVATION:
        entries = (read_stored_entry(found) for found in _ADDRESS_TEXT.findall(text))
        reserved = tuple(entry for entry in entries if isinstance(entry, Prefix))
        return IPReservation(metadata=metadata, spec=IPReservationSpec(reserved=reserved)) if reserved else None
    if key.kind == CLUSTER_INFORMATION and _LOCKED_TEXT.search(text):
        return ClusterInformation(metadata=metadata, spec=ClusterInformationSpec(is_datastore_ready=False))
    return None


_CALICO: Final = f"that is Calico's; kinds that netplug has too have the same fields, with apiVersion: {API_VERSION}"
_KUBERNETES: Final = f"that is a kind of Kubernetes, which kubectl applies; netplug's own has apiVersion: {API_VERSION}"
_GROUPS: Final = {
    "projectcalico.org": _CALICO,
    "crd.projectcalico.org": _CALICO,
    "networking.k8s.io": _KUBERNETES,
}
"""What an error adds where the document is of a group that people come from."""

_ADDRESS_TEXT: Final = re.compile(r'"([0-9A-Fa-f.:]{2,45}(?:/[0-9]{1,3})?)"')
_LOCKED_TEXT: Final = re.compile(r'"datastoreReady"\s*:\s*false')


@json_object(is_partial=True)
@frozen(kw_only=True)
class _Header:
    """What is read of a document before its kind is known."""

    kind: str = field(default="", metadata=member("kind", TEXT))
    api_version: str = field(default="", metadata=member("apiVersion", TEXT))


@json_object(is_partial=True)
@frozen(kw_only=True)
class _Version:
    """What a document says that is no part of the resource."""

    resource_version: str = field(default="", metadata=member(("metadata", "resourceVersion"), TEXT))


@cache
def _decoder(origin: DocumentOrigin) -> Decoder:
    return Decoder(document_error, origin)
