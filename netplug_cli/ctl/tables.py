"""Values as lines of aligned columns: which columns each kind has, narrow and wide. Prints nothing itself."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import assert_never

from netplug_core.resources.clusterinformation import ClusterInformation
from netplug_core.resources.ipamconfiguration import IPAMConfiguration
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.ipreservation import IPReservation
from netplug_core.resources.kinds import Resource, ResourceKind
from netplug_core.resources.metadata import Labels
from netplug_core.resources.node import Node
from netplug_core.resources.profile import Profile
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = ["Width", "columns", "resource_table"]

Cells = dict[str, str]

_NARROWEST = 5
_GAP = 3
_LONGEST = 80
_MORE = "..."

_CLUSTER = ("NAME", "CLUSTERGUID", "CLUSTERTYPE", "NETPLUGVERSION", "DATASTOREREADY")
_ENDPOINT = ("WORKLOAD", "NODE", "NETWORKS", "INTERFACE")
_CONFIGURATION = ("NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS")
_POOL_MODES = ("NAT", "IPIPMODE", "VXLANMODE", "DISABLED", "DISABLEBGPEXPORT")


class Width(enum.Enum):
    """How much of each resource a table shows."""

    NARROW = "ps"
    WIDE = "wide"


_HEADERS: dict[str, dict[Width, tuple[str, ...]]] = {
    "IPPool": {
        Width.NARROW: ("NAME", "CIDR", "SELECTOR"),
        Width.WIDE: ("NAME", "CIDR", *_POOL_MODES, "SELECTOR", "ASSIGNMENTMODE"),
    },
    "IPReservation": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "CIDRS")},
    "IPAMConfiguration": {Width.NARROW: _CONFIGURATION, Width.WIDE: (*_CONFIGURATION, "MAXBLOCKSPERHOST")},
    "Node": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "ORCHESTRATORS", "LABELS")},
    "Profile": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "LABELS")},
    "WorkloadEndpoint": {
        Width.NARROW: _ENDPOINT,
        Width.WIDE: ("NAME", *_ENDPOINT, "PROFILES", "NATS"),
    },
    "ClusterInformation": {Width.NARROW: _CLUSTER, Width.WIDE: _CLUSTER},
}


def resource_table(
    row: ResourceKind, resources: Iterable[Resource], width: Width, *, first: Sequence[str] = ()
) -> list[str]:
    """The table of some resources of one kind; ``first`` are more columns to put in front."""
    headers = (*first, *_HEADERS[row.name][width])
    found = (_cells(resource) for resource in resources)
    return columns(headers, ([cells[header] for header in headers] for cells in found))


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table: every cell padded, the last one too."""
    lines = [tuple(headers), *map(tuple, rows)]
    widths = [max(_NARROWEST, _GAP + max(map(len, cells))) for cells in zip(*lines, strict=True)]
    return ["".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]


def _cells(resource: Resource) -> Cells:
    match resource:
        case IPPool():
            own = _pool_cells(resource)
        case IPReservation(spec=spec):
            own = {"CIDRS": _cut(",".join(map(str, spec.reserved)))}
        case IPAMConfiguration():
            own = _configuration_cells(resource)
        case Node():
            own = _node_cells(resource)
        case Profile():
            own = {"LABELS": _pairs(resource.spec.labels_to_apply)}
        case WorkloadEndpoint():
            own = _endpoint_cells(resource)
        case ClusterInformation():
            own = _cluster_cells(resource)
        case _:
            assert_never(resource)
    return {"NAMESPACE": resource.metadata.namespace, "NAME": resource.metadata.name} | own


def _pool_cells(pool: IPPool) -> Cells:
    spec = pool.spec
    return {
        "CIDR": str(spec.prefix),
        "NAT": _flag(spec.has_outgoing_nat),
        "IPIPMODE": spec.ipip_mode.value,
        "VXLANMODE": spec.vxlan_mode.value,
        "DISABLED": _flag(spec.is_disabled),
        "DISABLEBGPEXPORT": _flag(spec.is_bgp_export_disabled),
        "SELECTOR": spec.node_selector,
        "ASSIGNMENTMODE": spec.assignment_mode.value,
    }


def _configuration_cells(configuration: IPAMConfiguration) -> Cells:
    spec = configuration.spec
    return {
        "STRICTAFFINITY": _flag(spec.is_affinity_strict),
        "AUTOALLOCATEBLOCKS": _flag(spec.claims_blocks),
        "MAXBLOCKSPERHOST": str(spec.max_blocks),
    }


def _node_cells(node: Node) -> Cells:
    return {
        "ORCHESTRATORS": ",".join(f"{name.orchestrator}:{name.name}" for name in node.spec.orchestrator_names),
        "LABELS": _pairs(node.metadata.labels),
    }


def _endpoint_cells(endpoint: WorkloadEndpoint) -> Cells:
    spec = endpoint.spec
    return {
        "WORKLOAD": spec.pod or spec.workload or spec.container_id,
        "NODE": spec.node,
        "NETWORKS": ",".join(str(address.host_prefix) for address in spec.addresses),
        "INTERFACE": spec.interface_name,
        "PROFILES": ",".join(spec.profiles),
        "NATS": ",".join(f"{mapping.internal}:{mapping.external}" for mapping in spec.address_mappings),
    }


def _cluster_cells(cluster: ClusterInformation) -> Cells:
    ready = cluster.spec.is_datastore_ready
    return {
        "CLUSTERGUID": cluster.spec.cluster_guid,
        "CLUSTERTYPE": cluster.spec.cluster_type,
        "NETPLUGVERSION": cluster.spec.version,
        "DATASTOREREADY": "" if ready is None else _flag(ready),
    }


def _pairs(labels: Labels) -> str:
    return ",".join(f"{key}={value}" for key, value in labels)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - len(_MORE)]}{_MORE}"


def _flag(value: object) -> str:
    return "true" if value else "false"
