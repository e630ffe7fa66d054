"""Resources as JSON-like mappings: how they are read, written and changed. Only here fields have their spelling.

Backends call it with what they stored, ``netplugctl`` with what a user wrote. Decoding fills in defaults, and encoding
writes the important ones. Whether a value that can be read is also allowed is decided in ``validation``.

``netplug_cli.ctl.documents`` reads documents, and ``flows.resources`` acts on the manifests. ``flows`` applies changes
to what is stored, and after a lost reply to the result again: each leaves its own result unchanged. Nothing here reads
or writes a datastore.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final, Protocol, TypeVar

from attrs import evolve, field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import (
    TEXT,
)
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    MalformedField,
    UnknownField,
    document_error,
    find_object,
    json_object,
    member,
    path_in_document,
    unreadable_json,
)
from netplug_core.names import API_VERSION
from netplug_core.records import Key, Kind
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPRESERVATION, IPReservation, IPReservationSpec, read_stored_entry
from netplug_core.resources.kinds import Resource, ResourceKind, ResourceScope, get_kind, kind_of

__all__ = [
    "Manifest", "Mark", "apply_merge_patch", "from_mapping", "manifest_from_mapping", "marks_of",
    "read_resource_version", "readable_part", "strip_cluster_fields", "to_mapping", "with_marks", "with_parts",
    "without_unknown",
]  # fmt: skip


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


# --- as a user wrote it ----------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Manifest:
    """A resource that a user wants.

    ``revision`` is the resource version that the document names, empty for none; ``source`` names the document, and
    ``find_place`` the place of a member in it, by its path, such as ``spec.cidr``.
    """

    resource: Resource
    revision: str = ""
    source: str = ""
    find_place: Callable[[str], str] | None = field(default=None, eq=False, repr=False)

    def within(self, namespace: str) -> Manifest:
        """The manifest in a namespace, if its kind has namespaces and the document names none."""
        metadata = self.resource.metadata
        if metadata.namespace or kind_of(self.resource).scope is ResourceScope.CLUSTER:
            return self
        return evolve(self, resource=evolve(self.resource, metadata=evolve(metadata, namespace=namespace)))

    def place_of(self, path: str) -> str:
        """Where a member stands, as an error shows it: the name of the document if more is not known."""
        return self.find_place(path) if self.find_place else self.source


def manifest_from_mapping(mapping: Mapping[str, object], *, source: str) -> Manifest:
    """The manifest that a user wrote as one JSON object.

    Raises:
        ConfigurationError: it is no resource; see ``codec.from_mapping``.
    """
    resource = from_mapping(mapping, origin=DocumentOrigin.USER, source=source)
    return Manifest(resource=resource, revision=read_resource_version(mapping, source=source), source=source)


# --- changes ---------------------------------------------------------------------------------------------------------

_PATCH = "patch"
_PATCHABLE_FIELDS = ("metadata", "spec")
_PATCHABLE_METADATA = ("annotations", "labels")


class _Change(Protocol):
    def __call__(self, **parts: object) -> Resource: ...


class Mark(enum.Enum):
    """What people put onto a resource by name and text; the value is the member of its metadata."""

    LABEL = "labels"
    ANNOTATION = "annotations"

    @property
    def word(self) -> str:
        """The word for one of them."""
        return self.name.lower()


def marks_of(resource: Resource, mark: Mark) -> dict[str, str]:
    """The labels or the annotations of a resource."""
    metadata = resource.metadata
    return dict(metadata.labels if mark is Mark.LABEL else metadata.annotations)


def with_marks(resource: Resource, mark: Mark, changes: Mapping[str, str | None]) -> Resource:
    """The resource with other labels or annotations: each name gets its text; None removes it, if it is there."""
    texts = {**marks_of(resource, mark), **changes}
    pairs = tuple(sorted((name, text) for name, text in texts.items() if text is not None))
    metadata = resource.metadata
    changed = evolve(metadata, labels=pairs) if mark is Mark.LABEL else evolve(metadata, annotations=pairs)
    return _with_metadata(resource, changed)


def apply_merge_patch(resource: Resource, patch: Mapping[str, object]) -> Resource:
    """The resource with a merge patch applied: members replace members, null removes one, lists are replaced whole.

    A user may change only labels, annotations and the spec.

    Raises:
        ConfigurationError: the patch has other members, or the result is not a valid resource.
    """
    _refuse_unknown_fields(patch, _PATCHABLE_FIELDS, "$")
    metadata = patch.get("metadata")
    if isinstance(metadata, Mapping):
        _refuse_unknown_fields(metadata, _PATCHABLE_METADATA, "$.metadata")
    merged = _merge(to_mapping(without_unknown(resource)), patch)
    return from_mapping(merged, origin=DocumentOrigin.USER, source=_PATCH)


def without_unknown(resource: Resource) -> Resource:
    """The resource without members that only a newer release knows, which are not fields of a user's document.

    The flow that stores a document restores them. A field that could not be read stays, so that it is not lost unseen.
    """
    metadata, spec = evolve(resource.metadata, unknown_json=""), resource.spec
    return with_parts(
        resource, metadata=metadata, spec=evolve(spec, unknown_json=unreadable_json(spec)), unknown_json=""
    )


def with_parts(resource: Resource, **parts: object) -> Resource:
    """The resource with other parts; a spec is that of its own kind, which no type checker sees of a union."""
    change: _Change = partial(evolve, resource)
    return change(**parts)


def strip_cluster_fields(resource: Resource) -> Resource:
    """The resource without what belongs to one cluster: namespace, uid and creation time."""
    metadata = evolve(resource.metadata, namespace="", uid="", creation_time_ns=None)
    return _with_metadata(resource, metadata)


def _with_metadata(resource: Resource, metadata: Metadata) -> Resource:
    return evolve(resource, metadata=metadata)


def _refuse_unknown_fields(members: Mapping[str, object], known: tuple[str, ...], at: str) -> None:
    others = [str(name) for name in members if name not in known]
    if others:
        raise UnknownField(f"{_PATCH} {at}", ", ".join(others), ", ".join(known))


def _merge(target: object, patch: Mapping[str, object]) -> Mapping[str, object]:
    out = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = _merge(out.get(name), value) if isinstance(value, Mapping) else value
    return out
