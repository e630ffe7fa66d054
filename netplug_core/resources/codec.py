"""Resources as JSON-like mappings: the only place that knows how their fields are spelled.

Backends call it with what they stored, ``netplugctl`` with what a person wrote. Defaults are filled in on the way in
and stand in what goes out. It says whether a value can be *read*; whether it may be *wanted* is ``validation``'s.

One cattrs converter, made when the first resource passes. It has an explicit hook for each class, and generates none:
an ADD decodes four kinds once each, and compiling a function for a class costs a hundred times what running one does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from netplug_core.clock import format_time
from netplug_core.decoding.reader import (
    DocumentOrigin,
    JSONDict,
    MalformedField,
    ObjectReader,
    UnknownField,
    as_boolean,
    as_nonempty_string,
    as_string,
    as_time,
    decode_unknown_json,
    omit_empty,
)
from netplug_core.names import API_VERSION
from netplug_core.records import Kind
from netplug_core.resources.clusterinformation import ClusterInformation, ClusterInformationSpec
from netplug_core.resources.codec_ipam import (
    read_configuration,
    read_reservation,
    write_configuration,
    write_reservation,
)
from netplug_core.resources.codec_ippool import read_pool, write_pool
from netplug_core.resources.codec_workloadendpoint import read_endpoint, write_endpoint
from netplug_core.resources.ipamconfiguration import IPAMConfiguration
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.ipreservation import IPReservation
from netplug_core.resources.kinds import Resource, get_kind, kind_of
from netplug_core.resources.metadata import Metadata, OwnerReference
from netplug_core.resources.node import Node, NodeSpec, OrchestratorReference
from netplug_core.resources.profile import Profile
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = [
    "DocumentOrigin",
    "MalformedField",
    "UnknownField",
    "from_mapping",
    "to_mapping",
]


T = TypeVar("T")


def to_mapping(resource: Resource, *, revision: str = "") -> dict[str, object]:
    """The JSON object that stands for a resource.

    With a ``revision`` it is what people are shown, without one what is stored: a stored value never holds its own.
    """
    row = kind_of(resource)
    out: JSONDict = {"kind": row.name, "apiVersion": API_VERSION}
    out |= _converter().unstructure(resource)
    if revision:
        out["metadata"] = _write_metadata(resource.metadata) | {"resourceVersion": revision}
    return out


def from_mapping(
    mapping: Mapping[str, object], *, origin: DocumentOrigin, source: str = "", kind: Kind[object] | None = None
) -> Resource:
    """The resource that a JSON object stands for, defaults filled in.

    ``source`` names the document in errors. ``kind`` is the one that it has to be; without it any will do.

    Raises:
        ConfigurationError: it stands for none; the error names the document, the field, what is there and what
            was expected.
    """
    fields = ObjectReader(mapping, origin=origin, source=source)
    value = fields.optional("kind", as_string, "")
    row = get_kind(value, where=fields.path_of("kind"))
    accepted = row.name if kind is None else kind.name
    if value != accepted:
        raise fields.malformed_field("kind", repr(accepted), value)
    if fields.optional("apiVersion", as_string, "") != API_VERSION:
        raise fields.malformed_field("apiVersion", repr(API_VERSION), mapping.get("apiVersion"))
    return _converter().structure(fields, row.value_type)


@cache
def _converter() -> BaseConverter:
    from cattrs import BaseConverter

    converter = BaseConverter()
    _register(converter, Metadata, _read_metadata, _write_metadata)
    _register(converter, IPPool, partial(read_pool, converter), partial(write_pool, converter))
    _register(converter, IPReservation, partial(read_reservation, converter), partial(write_reservation, converter))
    _register(
        converter, IPAMConfiguration, partial(read_configuration, converter), partial(write_configuration, converter)
    )
    _register(converter, Node, partial(_read_node, converter), partial(_write_node, converter))
    _register(converter, Profile, partial(_read_profile, converter), partial(_write_profile, converter))
    _register(converter, WorkloadEndpoint, partial(read_endpoint, converter), partial(write_endpoint, converter))
    _register(converter, ClusterInformation, partial(_read_cluster, converter), partial(_write_cluster, converter))
    return converter


def _register(
    converter: BaseConverter, cls: type[T], read: Callable[[ObjectReader], T], write: Callable[[T], JSONDict]
) -> None:
    converter.register_structure_hook(cls, lambda fields, _: read(fields))
    converter.register_unstructure_hook(cls, write)


# --- metadata ------------------------------------------------------------------------------------------------------


def _read_metadata(fields: ObjectReader) -> Metadata:
    # What a store says of its own copy; no part of the resource.
    fields.ignore("resourceVersion", "selfLink", "generation", "managedFields", "deletionGracePeriodSeconds")
    return Metadata(
        name=fields.required("name", as_nonempty_string),
        namespace=fields.optional("namespace", as_string, ""),
        generate_name=fields.optional("generateName", as_string, ""),
        uid=fields.optional("uid", as_string, ""),
        creation_time_ns=fields.optional("creationTimestamp", as_time, None),
        deletion_time_ns=fields.optional("deletionTimestamp", as_time, None),
        labels=fields.string_map("labels"),
        annotations=fields.string_map("annotations"),
        finalizers=fields.list_of("finalizers", as_string),
        # These are Kubernetes' objects, whose members are Kubernetes' to add.
        owner_references=fields.object_list(
            "ownerReferences", lambda owner: _read_owner(owner.keeping_unknown_fields())
        ),
        unknown_json=fields.finish_unknown_json(),
    )


def _write_metadata(metadata: Metadata) -> JSONDict:
    out = omit_empty(
        name=metadata.name,
        namespace=metadata.namespace,
        generateName=metadata.generate_name,
        uid=metadata.uid,
        labels=dict(metadata.labels),
        annotations=dict(metadata.annotations),
        finalizers=list(metadata.finalizers),
        ownerReferences=[_write_owner(owner) for owner in metadata.owner_references],
    )
    if metadata.creation_time_ns is not None:
        out["creationTimestamp"] = format_time(metadata.creation_time_ns)
    if metadata.deletion_time_ns is not None:
        out["deletionTimestamp"] = format_time(metadata.deletion_time_ns)
    return decode_unknown_json(metadata.unknown_json) | out


def _read_owner(fields: ObjectReader) -> OwnerReference:
    return OwnerReference(
        api_version=fields.required("apiVersion", as_string),
        kind=fields.required("kind", as_string),
        name=fields.required("name", as_string),
        uid=fields.required("uid", as_string),
        unknown_json=fields.finish_unknown_json(),
    )


def _write_owner(owner: OwnerReference) -> JSONDict:
    out: JSONDict = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    return decode_unknown_json(owner.unknown_json) | out


# --- Node ----------------------------------------------------------------------------------------------------------


def _read_node(converter: BaseConverter, fields: ObjectReader) -> Node:
    metadata = converter.structure(fields.optional_object("metadata"), Metadata)
    spec = fields.optional_object("spec")
    if fields.origin is DocumentOrigin.USER:
        fields.ignore("status")  # not a person's to write; one hands it in only because ``get`` printed it
    return Node(
        metadata=metadata,
        spec=NodeSpec(
            orchestrator_references=spec.object_list("orchRefs", _read_orchestrator_reference),
            unknown_json=spec.finish_unknown_json(),
        ),
        unknown_json=fields.finish_unknown_json(),
    )


def _read_orchestrator_reference(fields: ObjectReader) -> OrchestratorReference:
    return OrchestratorReference(
        orchestrator=fields.required("orchestrator", as_string),
        node_name=fields.optional("nodeName", as_string, ""),
        unknown_json=fields.finish_unknown_json(),
    )


def _write_node(converter: BaseConverter, node: Node) -> JSONDict:
    names = [
        decode_unknown_json(name.unknown_json) | {"nodeName": name.node_name, "orchestrator": name.orchestrator}
        for name in node.spec.orchestrator_references
    ]
    spec = decode_unknown_json(node.spec.unknown_json) | omit_empty(orchRefs=names)
    return decode_unknown_json(node.unknown_json) | {"metadata": converter.unstructure(node.metadata), "spec": spec}


# --- Profile: no ADD meets one, so its codec is loaded with the first ------------------------------------------------


def _read_profile(converter: BaseConverter, fields: ObjectReader) -> Profile:
    from netplug_core.resources.codec_profile import read_profile

    return read_profile(converter, fields)


def _write_profile(converter: BaseConverter, profile: Profile) -> JSONDict:
    from netplug_core.resources.codec_profile import write_profile

    return write_profile(converter, profile)


# --- ClusterInformation --------------------------------------------------------------------------------------------


def _read_cluster(converter: BaseConverter, fields: ObjectReader) -> ClusterInformation:
    metadata = converter.structure(fields.optional_object("metadata"), Metadata)
    spec = fields.optional_object("spec")
    return ClusterInformation(
        metadata=metadata,
        spec=ClusterInformationSpec(
            cluster_guid=spec.optional("clusterGUID", as_string, ""),
            cluster_type=spec.optional("clusterType", as_string, ""),
            version=spec.optional("netplugVersion", as_string, ""),
            is_datastore_ready=spec.optional("datastoreReady", as_boolean, None),
            unknown_json=spec.finish_unknown_json(),
        ),
        unknown_json=fields.finish_unknown_json(),
    )


def _write_cluster(converter: BaseConverter, cluster: ClusterInformation) -> JSONDict:
    spec = omit_empty(
        clusterGUID=cluster.spec.cluster_guid,
        clusterType=cluster.spec.cluster_type,
        netplugVersion=cluster.spec.version,
    )
    if cluster.spec.is_datastore_ready is not None:
        spec["datastoreReady"] = cluster.spec.is_datastore_ready
    spec = decode_unknown_json(cluster.spec.unknown_json) | spec
    return decode_unknown_json(cluster.unknown_json) | {
        "metadata": converter.unstructure(cluster.metadata),
        "spec": spec,
    }
