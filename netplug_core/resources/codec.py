"""Resources as JSON-like mappings: the only place that knows how their fields are spelled.

Backends call it with what they stored, ``netplugctl`` with what a user wrote. Decoding fills in defaults, and encoding
writes the important ones. Whether a value that can be read is also allowed is decided in ``validation``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeVar, cast

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.decoding.codecs import (
    ADDRESS,
    BOOLEAN,
    NONEMPTY_TEXT,
    NONNEGATIVE_INTEGER,
    PREFIX,
    TEXT,
    TEXT_MAP,
    TIME,
    Codec,
    Refused,
    enum_codec,
)
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    Field,
    ListOf,
    MalformedField,
    Table,
    document_error,
    fields_of,
    path_in_document,
)
from netplug_core.names import API_VERSION
from netplug_core.records import Key, Kind
from netplug_core.resources.bgp import BGP_TABLES, BGPConfiguration, BGPConfigurationSpec, BGPPeer, BGPPeerSpec
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.hostendpoint import HOST_ENDPOINT_TABLES, HostEndpoint, HostEndpointSpec
from netplug_core.resources.ipamconfiguration import IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.ippool import (
    AllowedUse,
    AssignmentMode,
    Encapsulation,
    IPPool,
    IPPoolSpec,
    IPPoolStatus,
    PoolCondition,
)
from netplug_core.resources.ipreservation import IPRESERVATION, IPReservation, IPReservationSpec
from netplug_core.resources.kinds import Resource, get_kind, kind_of
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_TABLES,
    KubeControllersConfiguration,
    KubeControllersSpec,
    KubeControllersStatus,
)
from netplug_core.resources.metadata import Metadata, OwnerReference
from netplug_core.resources.node import Node, NodeSpec, OrchestratorReference
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION_TABLES, NodeConfiguration, NodeConfigurationSpec
from netplug_core.resources.profile import Profile, ProfileRule, ProfileSpec, RuleAction
from netplug_core.resources.workloadendpoint import IPNAT, EndpointPort, WorkloadEndpoint, WorkloadEndpointSpec

__all__ = ["METADATA_TABLES", "from_mapping", "read_resource_version", "readable_part", "to_mapping"]

T = TypeVar("T")


def to_mapping(resource: Resource, *, revision: str = "") -> dict[str, object]:
    """The JSON object that stands for a resource.

    A ``revision`` is shown as the resource version. What is stored never contains its own revision.
    """
    out = {"kind": kind_of(resource).name, "apiVersion": API_VERSION} | _decoder(DocumentOrigin.DATASTORE).encode(
        resource
    )
    if revision:
        cast("dict[str, object]", out["metadata"])["resourceVersion"] = revision
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
    header = decoder.decode(mapping, _Header, source)
    row = get_kind(header.kind, where=path_in_document(source, ".kind"))
    accepted = row.name if kind is None else kind.name
    if header.kind != accepted:
        raise MalformedField(path_in_document(source, ".kind"), header.kind, repr(accepted))
    if header.api_version != API_VERSION:
        raise MalformedField(path_in_document(source, ".apiVersion"), header.api_version or None, repr(API_VERSION))
    return decoder.decode(mapping, row.value_type, source)


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
        entries = (_read_stored_entry(found) for found in _ADDRESS_TEXT.findall(text))
        reserved = tuple(entry for entry in entries if isinstance(entry, Prefix))
        return IPReservation(metadata=metadata, spec=IPReservationSpec(reserved=reserved)) if reserved else None
    if key.kind == CLUSTER_INFORMATION and _LOCKED_TEXT.search(text):
        return ClusterInformation(metadata=metadata, spec=ClusterInformationSpec(is_datastore_ready=False))
    return None


_ADDRESS_TEXT: Final = re.compile(r'"([0-9A-Fa-f.:]{2,45}(?:/[0-9]{1,3})?)"')
_LOCKED_TEXT: Final = re.compile(r'"datastoreReady"\s*:\s*false')


@frozen(kw_only=True)
class _Header:
    """What is read of a document before its kind is known."""

    kind: str = ""
    api_version: str = ""


@frozen(kw_only=True)
class _Version:
    """What a document says that is no part of the resource."""

    resource_version: str = ""


@cache
def _decoder(origin: DocumentOrigin) -> Decoder:
    return Decoder(_TABLES, document_error, origin)


# --- codecs of single fields --------------------------------------------------------------------------------------


def _read_pool_cidr(value: object) -> Prefix:
    prefix = _read_stored_pool_cidr(value)
    if Address.parse(str(value).partition("/")[0]) != prefix.first:
        raise Refused("a CIDR", reason=f"IPPool CIDR is not strictly masked; {prefix} is the one that holds it")
    return prefix


def _read_stored_pool_cidr(value: object) -> Prefix:
    """A stored pool is already in use as what it means, so host bits are cleared; only a user can be asked."""
    text = "" if value is None else cast("str", TEXT.decode(value))
    if not text:
        raise Refused("a CIDR", reason="IPPool CIDR must be specified", value=None)
    try:
        return Prefix.enclosing(text)
    except ValueError:
        raise Refused("a CIDR", reason="IPPool CIDR must be a valid subnet") from None


def _read_stored_entry(value: object) -> Prefix | str:
    """An entry of a reservation, host bits cleared. One that cannot be read is kept as JSON text."""
    try:
        return Prefix.enclosing(cast("str", TEXT.decode(value)))
    except ValueError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _write_entry(entry: object) -> object:
    return json.loads(entry) if isinstance(entry, str) else str(entry)


def _read_host_prefix(value: object) -> Address:
    try:
        prefix = Prefix.parse(cast("str", TEXT.decode(value)))
    except ValueError:
        prefix = None
    if prefix is None or prefix.size != 1:
        raise ValueError("one address, as a /32 or a /128")
    return prefix.first


_POOL_CIDR: Final = Codec(_read_pool_cidr, str, _read_stored_pool_cidr)
_RESERVED: Final = Codec(PREFIX.decode, _write_entry, _read_stored_entry)
_HOST_PREFIX: Final = Codec(_read_host_prefix, lambda address: str(cast("Address", address).host_prefix))


def _split_reserved(values: dict[str, object], _: object) -> dict[str, object]:
    entries = cast("tuple[Prefix | str, ...]", values.pop("entries", ()))
    reserved = tuple(entry for entry in entries if isinstance(entry, Prefix))
    unparsed = tuple(entry for entry in entries if isinstance(entry, str))
    return {**values, "reserved": reserved, "unparsed": unparsed}


# --- tables ---------------------------------------------------------------------------------------------------------


def _resource(
    cls: type[T], spec: type, *, status: Mapping[str, Field] | None = None, ignored_from_users: tuple[str, ...] = ()
) -> Table[T]:
    """The table of a kind: every kind has metadata and a spec."""
    fields = {"metadata": Field("metadata", Metadata), "spec": Field("spec", spec, is_always_written=True)}
    fields |= dict(status or {})
    return Table(cls=cls, fields=fields, ignored=("kind", "apiVersion"), ignored_from_users=ignored_from_users)


METADATA_TABLES: Final[tuple[Table[object], ...]] = (
    Table(
        cls=Metadata,
        fields={
            "name": Field("name", NONEMPTY_TEXT),
            **fields_of(TEXT, namespace="namespace", generate_name="generateName", uid="uid"),
            **fields_of(TIME, creation_time_ns="creationTimestamp", deletion_time_ns="deletionTimestamp"),
            **fields_of(TEXT_MAP, labels="labels", annotations="annotations"),
            "finalizers": Field("finalizers", ListOf(TEXT)),
            "owner_references": Field("ownerReferences", ListOf(OwnerReference)),
        },
        # What a store says about its own copy.
        ignored=("resourceVersion", "selfLink", "generation", "managedFields", "deletionGracePeriodSeconds"),
    ),
    Table(
        cls=OwnerReference,
        fields=fields_of(TEXT, api_version="apiVersion", kind="kind", name="name", uid="uid"),
        keeps_unknown=True,  # Kubernetes defines the members of these objects.
    ),
)
"""The metadata that documents of every kind have."""

_ENCAPSULATION = enum_codec(Encapsulation)
_TABLES: Final[tuple[Table[object], ...]] = (
    Table(cls=_Header, fields={"kind": Field("kind", TEXT), "api_version": Field("apiVersion", TEXT)}, is_partial=True),
    Table(cls=_Version, fields={"resource_version": Field(("metadata", "resourceVersion"), TEXT)}, is_partial=True),
    *METADATA_TABLES,
    # A user does not write a status. It is in a user's document only because ``get`` printed it.
    _resource(IPPool, IPPoolSpec, status={"status": Field("status", IPPoolStatus, is_users=False)}),
    Table(
        cls=IPPoolSpec,
        fields={
            "prefix": Field("cidr", _POOL_CIDR),
            "block_length": Field("blockSize", NONNEGATIVE_INTEGER, is_unset_if_empty=True, is_always_written=True),
            "ipip_mode": Field("ipipMode", _ENCAPSULATION, is_always_written=True),
            "vxlan_mode": Field("vxlanMode", _ENCAPSULATION, is_always_written=True),
            "has_outgoing_nat": Field("natOutgoing", BOOLEAN, is_always_written=True),
            "node_selector": Field("nodeSelector", TEXT, is_unset_if_empty=True, is_always_written=True),
            "allowed_uses": Field(
                "allowedUses", ListOf(enum_codec(AllowedUse)), is_unset_if_empty=True, is_always_written=True
            ),
            "assignment_mode": Field("assignmentMode", enum_codec(AssignmentMode), is_always_written=True),
            "namespace_selector": Field("namespaceSelector", TEXT),
            "is_disabled": Field("disabled", BOOLEAN),
            "is_bgp_export_disabled": Field("disableBGPExport", BOOLEAN),
        },
        ignored_if_stored=("ipip", "nat-outgoing"),  # fields of the first API version; nothing reads them any more
    ),
    Table(cls=IPPoolStatus, fields={"conditions": Field("conditions", ListOf(PoolCondition))}),
    Table(cls=PoolCondition, fields=fields_of(TEXT, type="type", status="status", reason="reason", message="message")),
    _resource(IPReservation, IPReservationSpec),
    Table(
        cls=IPReservationSpec,
        fields={"entries": Field("reservedCIDRs", ListOf(_RESERVED), is_always_written=True)},
        finish=_split_reserved,
    ),
    _resource(IPAMConfiguration, IPAMConfigurationSpec),
    Table(
        cls=IPAMConfigurationSpec,
        fields={
            "is_affinity_strict": Field("strictAffinity", BOOLEAN, is_always_written=True),
            "may_auto_allocate_blocks": Field("autoAllocateBlocks", BOOLEAN, is_always_written=True),
            "max_blocks_per_host": Field("maxBlocksPerHost", NONNEGATIVE_INTEGER, is_always_written=True),
            "cooldown_s": Field("ipCooldownSeconds", NONNEGATIVE_INTEGER, is_always_written=True),
            "vm_address_persistence": Field("kubeVirtVMAddressPersistence", TEXT),
        },
    ),
    _resource(Node, NodeSpec, ignored_from_users=("status",)),
    Table(cls=NodeSpec, fields={"orchestrator_references": Field("orchRefs", ListOf(OrchestratorReference))}),
    Table(
        cls=OrchestratorReference,
        fields={
            "node_name": Field("nodeName", TEXT, is_always_written=True),
            "orchestrator": Field("orchestrator", TEXT),
        },
    ),
    _resource(Profile, ProfileSpec),
    Table(
        cls=ProfileSpec,
        fields={
            "labels_to_apply": Field("labelsToApply", TEXT_MAP),
            "ingress": Field("ingress", ListOf(ProfileRule)),
            "egress": Field("egress", ListOf(ProfileRule)),
        },
    ),
    # The policy language defines what a rule matches; this release keeps it as it is written.
    Table(cls=ProfileRule, fields={"action": Field("action", enum_codec(RuleAction))}, keeps_unknown=True),
    _resource(WorkloadEndpoint, WorkloadEndpointSpec),
    Table(
        cls=WorkloadEndpointSpec,
        fields={
            **fields_of(
                TEXT, orchestrator="orchestrator", node="node", endpoint="endpoint", container_id="containerID"
            ),
            **fields_of(TEXT, pod="pod", workload="workload", service_account="serviceAccountName"),
            "addresses": Field("ipNetworks", ListOf(_HOST_PREFIX)),
            "ip_nats": Field("ipNATs", ListOf(IPNAT)),
            "profiles": Field("profiles", ListOf(TEXT)),
            **fields_of(TEXT, interface_name="interfaceName", mac="mac"),
            "ports": Field("ports", ListOf(EndpointPort)),
            "allowed_source_prefixes": Field("allowSpoofedSourcePrefixes", ListOf(TEXT)),
        },
    ),
    Table(cls=IPNAT, fields={"internal": Field("internalIP", ADDRESS), "external": Field("externalIP", ADDRESS)}),
    Table(
        cls=EndpointPort,
        fields={
            "protocol": Field("protocol", TEXT),
            "port": Field("port", NONNEGATIVE_INTEGER),
            "name": Field("name", TEXT),
            "host_port": Field("hostPort", NONNEGATIVE_INTEGER, is_always_written=True),
            "host_ip": Field("hostIP", TEXT, is_always_written=True),
        },
    ),
    _resource(ClusterInformation, ClusterInformationSpec),
    Table(
        cls=ClusterInformationSpec,
        fields={
            **fields_of(TEXT, cluster_guid="clusterGUID", cluster_type="clusterType", version="netplugVersion"),
            "is_datastore_ready": Field("datastoreReady", BOOLEAN),
        },
    ),
    _resource(
        KubeControllersConfiguration,
        KubeControllersSpec,
        status={"status": Field("status", KubeControllersStatus, is_users=False)},
    ),
    *KUBE_CONTROLLERS_TABLES,
    _resource(HostEndpoint, HostEndpointSpec),
    *HOST_ENDPOINT_TABLES,
    _resource(BGPConfiguration, BGPConfigurationSpec),
    _resource(BGPPeer, BGPPeerSpec),
    *BGP_TABLES,
    _resource(NodeConfiguration, NodeConfigurationSpec),
    *NODE_CONFIGURATION_TABLES,
)
