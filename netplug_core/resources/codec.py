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
from netplug_core.resources.fields import (
    Fields,
    Json,
    MalformedField,
    Origin,
    UnknownField,
    as_flag,
    as_name,
    as_text,
    as_time,
    carried_members,
    present,
)
from netplug_core.resources.ipamconfiguration import IPAMConfiguration
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.ipreservation import IPReservation
from netplug_core.resources.kinds import Resource, get_kind, kind_of
from netplug_core.resources.metadata import Metadata, OwnerReference
from netplug_core.resources.node import Node, NodeSpec, OrchestratorName
from netplug_core.resources.profile import Profile
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

if TYPE_CHECKING:
    from cattrs import BaseConverter

__all__ = [
    "API_VERSION",
    "MalformedField",
    "Origin",
    "UnknownField",
    "from_mapping",
    "to_mapping",
]

API_VERSION = "projectnetplug.org/v3"

T = TypeVar("T")


def to_mapping(resource: Resource, *, revision: str = "") -> dict[str, object]:
    """The JSON object that stands for a resource.

    With a ``revision`` it is what people are shown, without one what is stored: a stored value never holds its own.
    """
    row = kind_of(resource)
    out: Json = {"kind": row.name, "apiVersion": API_VERSION}
    out |= _converter().unstructure(resource)
    if revision:
        out["metadata"] = _write_metadata(resource.metadata) | {"resourceVersion": revision}
    return out


def from_mapping(
    mapping: Mapping[str, object], *, origin: Origin, source: str = "", kind: Kind[object] | None = None
) -> Resource:
    """The resource that a JSON object stands for, defaults filled in.

    ``source`` names the document in errors. ``kind`` is the one that it has to be; without it any will do.

    Raises:
        ConfigurationError: it stands for none; the error names the document, the field, what is there and what
            was expected.
    """
    fields = Fields(mapping, origin=origin, source=source)
    value = fields.take("kind", as_text, "")
    row = get_kind(value, where=fields.where("kind"))
    accepted = row.name if kind is None else kind.name
    if value != accepted:
        raise fields.refusal("kind", repr(accepted), value)
    if fields.take("apiVersion", as_text, "") != API_VERSION:
        raise fields.refusal("apiVersion", repr(API_VERSION), mapping.get("apiVersion"))
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


def _register(converter: BaseConverter, cls: type[T], read: Callable[[Fields], T], write: Callable[[T], Json]) -> None:
    converter.register_structure_hook(cls, lambda fields, _: read(fields))
    converter.register_unstructure_hook(cls, write)


# --- metadata ------------------------------------------------------------------------------------------------------


def _read_metadata(fields: Fields) -> Metadata:
    # What a store says of its own copy; no part of the resource.
    fields.drop("resourceVersion", "selfLink", "generation", "managedFields", "deletionGracePeriodSeconds")
    return Metadata(
        name=fields.need("name", as_name),
        namespace=fields.take("namespace", as_text, ""),
        generate_name=fields.take("generateName", as_text, ""),
        uid=fields.take("uid", as_text, ""),
        creation_time_ns=fields.take("creationTimestamp", as_time, None),
        deletion_time_ns=fields.take("deletionTimestamp", as_time, None),
        labels=fields.take_texts("labels"),
        annotations=fields.take_texts("annotations"),
        finalizers=fields.take_each("finalizers", as_text),
        # These are Kubernetes' objects, whose members are Kubernetes' to add.
        owner_references=fields.take_objects("ownerReferences", lambda owner: _read_owner(owner.lenient())),
        carried=fields.finish(),
    )


def _write_metadata(metadata: Metadata) -> Json:
    out = present(
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
    return carried_members(metadata.carried) | out


def _read_owner(fields: Fields) -> OwnerReference:
    return OwnerReference(
        api_version=fields.need("apiVersion", as_text),
        kind=fields.need("kind", as_text),
        name=fields.need("name", as_text),
        uid=fields.need("uid", as_text),
        carried=fields.finish(),
    )


def _write_owner(owner: OwnerReference) -> Json:
    out: Json = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    return carried_members(owner.carried) | out


# --- Node ----------------------------------------------------------------------------------------------------------


def _read_node(converter: BaseConverter, fields: Fields) -> Node:
    metadata = converter.structure(fields.take_object("metadata"), Metadata)
    spec = fields.take_object("spec")
    if fields.origin is Origin.PERSON:
        fields.drop("status")  # not a person's to write; one hands it in only because ``get`` printed it
    return Node(
        metadata=metadata,
        spec=NodeSpec(orchestrator_names=spec.take_objects("orchRefs", _read_orchestrator_name), carried=spec.finish()),
        carried=fields.finish(),
    )


def _read_orchestrator_name(fields: Fields) -> OrchestratorName:
    return OrchestratorName(
        orchestrator=fields.need("orchestrator", as_text),
        name=fields.take("nodeName", as_text, ""),
        carried=fields.finish(),
    )


def _write_node(converter: BaseConverter, node: Node) -> Json:
    names = [
        carried_members(name.carried) | {"nodeName": name.name, "orchestrator": name.orchestrator}
        for name in node.spec.orchestrator_names
    ]
    spec = carried_members(node.spec.carried) | present(orchRefs=names)
    return carried_members(node.carried) | {"metadata": converter.unstructure(node.metadata), "spec": spec}


# --- Profile: no ADD meets one, so its codec is loaded with the first ------------------------------------------------


def _read_profile(converter: BaseConverter, fields: Fields) -> Profile:
    from netplug_core.resources.codec_profile import read_profile

    return read_profile(converter, fields)


def _write_profile(converter: BaseConverter, profile: Profile) -> Json:
    from netplug_core.resources.codec_profile import write_profile

    return write_profile(converter, profile)


# --- ClusterInformation --------------------------------------------------------------------------------------------


def _read_cluster(converter: BaseConverter, fields: Fields) -> ClusterInformation:
    metadata = converter.structure(fields.take_object("metadata"), Metadata)
    spec = fields.take_object("spec")
    return ClusterInformation(
        metadata=metadata,
        spec=ClusterInformationSpec(
            cluster_guid=spec.take("clusterGUID", as_text, ""),
            cluster_type=spec.take("clusterType", as_text, ""),
            version=spec.take("netplugVersion", as_text, ""),
            is_datastore_ready=spec.take("datastoreReady", as_flag, None),
            carried=spec.finish(),
        ),
        carried=fields.finish(),
    )


def _write_cluster(converter: BaseConverter, cluster: ClusterInformation) -> Json:
    spec = present(
        clusterGUID=cluster.spec.cluster_guid,
        clusterType=cluster.spec.cluster_type,
        netplugVersion=cluster.spec.version,
    )
    if cluster.spec.is_datastore_ready is not None:
        spec["datastoreReady"] = cluster.spec.is_datastore_ready
    spec = carried_members(cluster.spec.carried) | spec
    return carried_members(cluster.carried) | {"metadata": converter.unstructure(cluster.metadata), "spec": spec}
