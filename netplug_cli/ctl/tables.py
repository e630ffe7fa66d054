"""The tables of resources: which columns each kind has, narrow and wide."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import assert_never

from netplug_cli.formatting import format_bool, truncate
from netplug_core.resources.bgpconfiguration import BGPConfiguration
from netplug_core.resources.bgppeer import BGPPeer
from netplug_core.resources.clusterinformation import ClusterInformation
from netplug_core.resources.hostendpoint import HostEndpoint
from netplug_core.resources.ipamconfiguration import IPAMConfiguration
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.ipreservation import IPReservation
from netplug_core.resources.kinds import NetworkResource, Resource, ResourceKind, ResourceScope
from netplug_core.resources.kubecontrollersconfiguration import KubeControllersConfiguration
from netplug_core.resources.metadata import Labels
from netplug_core.resources.node import Node
from netplug_core.resources.nodeconfiguration import NodeConfiguration
from netplug_core.resources.profile import Profile
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = ["Width", "column_names", "table_headers", "table_row"]

Cells = dict[str, str]

_MAX_CELL_LENGTH = 80

_CLUSTER_COLUMNS = ("NAME", "CLUSTERGUID", "CLUSTERTYPE", "NETPLUGVERSION", "DATASTOREREADY")
_ENDPOINT_COLUMNS = ("WORKLOAD", "NODE", "NETWORKS", "INTERFACE")
_CONFIGURATION_COLUMNS = ("NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS")
_POOL_MODE_COLUMNS = ("NAT", "IPIPMODE", "VXLANMODE", "DISABLED", "DISABLEBGPEXPORT")

_BGP_COLUMNS = ("NAME", "LOGSEVERITY", "MESHENABLED", "ASNUMBER")
_PEER_COLUMNS = ("NAME", "PEERIP", "NODE", "ASN")


class Width(enum.Enum):
    """How much of each resource a table shows."""

    NARROW = "ps"
    WIDE = "wide"


_HEADERS: dict[str, dict[Width, tuple[str, ...]]] = {
    "IPPool": {
        Width.NARROW: ("NAME", "CIDR", "SELECTOR"),
        Width.WIDE: ("NAME", "CIDR", *_POOL_MODE_COLUMNS, "SELECTOR", "ASSIGNMENTMODE"),
    },
    "IPReservation": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "CIDRS")},
    "IPAMConfiguration": {
        Width.NARROW: _CONFIGURATION_COLUMNS,
        Width.WIDE: (*_CONFIGURATION_COLUMNS, "MAXBLOCKSPERHOST"),
    },
    "Node": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "ORCHESTRATORS", "LABELS")},
    "Profile": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "LABELS")},
    "WorkloadEndpoint": {Width.NARROW: _ENDPOINT_COLUMNS, Width.WIDE: ("NAME", *_ENDPOINT_COLUMNS, "PROFILES", "NATS")},
    "KubeControllersConfiguration": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME",)},
    "ClusterInformation": {Width.NARROW: _CLUSTER_COLUMNS, Width.WIDE: _CLUSTER_COLUMNS},
    "NodeConfiguration": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME",)},
    "HostEndpoint": {Width.NARROW: ("NAME", "NODE"), Width.WIDE: ("NAME", "NODE", "INTERFACE", "IPS", "PROFILES")},
    "BGPConfiguration": {Width.NARROW: _BGP_COLUMNS, Width.WIDE: _BGP_COLUMNS},
    "BGPPeer": {Width.NARROW: _PEER_COLUMNS, Width.WIDE: (*_PEER_COLUMNS, "NEXTHOPMODE", "MAXRESTARTTIME")},
}


def table_headers(kind: ResourceKind, width: Width) -> tuple[str, ...]:
    """The columns of the table of a kind."""
    return _HEADERS[kind.name][width]


def column_names(kind: ResourceKind) -> tuple[str, ...]:
    """Every column of the tables of a kind, narrow and wide."""
    namespace = ("NAMESPACE",) if kind.scope is ResourceScope.NAMESPACED else ()
    tables = (table_headers(kind, width) for width in Width)
    return tuple(dict.fromkeys((*namespace, *(name for headers in tables for name in headers))))


def table_row(resource: Resource, headers: Iterable[str]) -> tuple[str, ...]:
    """The cells of a resource below some columns of its kind, NAMESPACE among them."""
    cells = _cells(resource)
    return tuple(cells[header] for header in headers)


def _cells(resource: Resource) -> Cells:
    match resource:
        case IPPool():
            own = _pool_cells(resource)
        case IPReservation(spec=spec):
            own = {"CIDRS": truncate(",".join(map(str, spec.reserved)), _MAX_CELL_LENGTH)}
        case IPAMConfiguration():
            own = _configuration_cells(resource)
        case Node():
            own = _node_cells(resource)
        case Profile():
            own = {"LABELS": _format_labels(resource.spec.labels_to_apply)}
        case WorkloadEndpoint():
            own = _endpoint_cells(resource)
        case ClusterInformation():
            own = _cluster_cells(resource)
        case KubeControllersConfiguration():
            own = {}
        case HostEndpoint() | BGPConfiguration() | BGPPeer() | NodeConfiguration():
            own = _network_cells(resource)
        case _:
            assert_never(resource)
    return {"NAMESPACE": resource.metadata.namespace, "NAME": resource.metadata.name} | own


def _pool_cells(pool: IPPool) -> Cells:
    spec = pool.spec
    return {
        "CIDR": str(spec.prefix),
        "NAT": format_bool(spec.has_outgoing_nat),
        "IPIPMODE": spec.ipip_mode.value,
        "VXLANMODE": spec.vxlan_mode.value,
        "DISABLED": format_bool(spec.is_disabled),
        "DISABLEBGPEXPORT": format_bool(spec.is_bgp_export_disabled),
        "SELECTOR": spec.node_selector,
        "ASSIGNMENTMODE": spec.assignment_mode.value,
    }


def _configuration_cells(configuration: IPAMConfiguration) -> Cells:
    spec = configuration.spec
    return {
        "STRICTAFFINITY": format_bool(spec.is_affinity_strict),
        "AUTOALLOCATEBLOCKS": format_bool(spec.may_auto_allocate_blocks),
        "MAXBLOCKSPERHOST": str(spec.max_blocks_per_host),
    }


def _node_cells(node: Node) -> Cells:
    return {
        "ORCHESTRATORS": ",".join(
            f"{name.orchestrator}:{name.node_name}" for name in node.spec.orchestrator_references
        ),
        "LABELS": _format_labels(node.metadata.labels),
    }


def _endpoint_cells(endpoint: WorkloadEndpoint) -> Cells:
    spec = endpoint.spec
    return {
        "WORKLOAD": spec.pod or spec.workload or spec.container_id or endpoint.metadata.name,
        "NODE": spec.node,
        "NETWORKS": ",".join(str(address.host_prefix) for address in spec.addresses),
        "INTERFACE": spec.interface_name,
        "PROFILES": ",".join(spec.profiles),
        "NATS": ",".join(f"{mapping.internal}:{mapping.external}" for mapping in spec.ip_nats),
    }


def _network_cells(resource: NetworkResource) -> Cells:
    match resource:
        case HostEndpoint():
            return _host_endpoint_cells(resource)
        case BGPConfiguration():
            return _bgp_configuration_cells(resource)
        case BGPPeer():
            return _bgp_peer_cells(resource)
        case NodeConfiguration():
            return {}
        case _:
            assert_never(resource)


def _host_endpoint_cells(endpoint: HostEndpoint) -> Cells:
    spec = endpoint.spec
    return {
        "NODE": spec.node,
        "INTERFACE": spec.interface_name,
        "IPS": ",".join(map(str, spec.expected_ips)),
        "PROFILES": ",".join(spec.profiles),
    }


def _bgp_configuration_cells(configuration: BGPConfiguration) -> Cells:
    spec = configuration.spec
    return {
        "LOGSEVERITY": "" if spec.log_severity is None else spec.log_severity.value,
        "MESHENABLED": "" if spec.has_node_mesh is None else format_bool(spec.has_node_mesh),
        "ASNUMBER": "" if spec.as_number is None else str(spec.as_number),
    }


def _bgp_peer_cells(peer: BGPPeer) -> Cells:
    spec = peer.spec
    return {
        "PEERIP": spec.peer_ip or spec.peer_selector,
        "NODE": spec.node or spec.node_selector or "(global)",
        "ASN": "" if spec.as_number is None else str(spec.as_number),
        "NEXTHOPMODE": "" if spec.next_hop_mode is None else spec.next_hop_mode.value,
        "MAXRESTARTTIME": spec.max_restart_time,
    }


def _cluster_cells(cluster: ClusterInformation) -> Cells:
    ready = cluster.spec.is_datastore_ready
    return {
        "CLUSTERGUID": cluster.spec.cluster_guid,
        "CLUSTERTYPE": cluster.spec.cluster_type,
        "NETPLUGVERSION": cluster.spec.version,
        "DATASTOREREADY": "" if ready is None else format_bool(ready),
    }


def _format_labels(labels: Labels) -> str:
    return ",".join(f"{key}={value}" for key, value in labels)
