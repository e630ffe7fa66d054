"""The CNI commands of ``netplug-ipam``, an IPAM plugin for other main plugins (``ptp``, ``bridge``).

Those plugins put the address on a shared link. So the result has the pool's prefix length, the address after the
network address as gateway and a default route, and the first and last address of a pool are never assigned. No endpoint
is stored.
"""

from __future__ import annotations

from netplug_core.addressing import Prefix
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIResult, CNIRoute, IPConfig
from netplug_core.flows.cni.assignment import assign, release
from netplug_core.flows.cni.call import assign_request_of, node_of, require_nodename_file, workload_of
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import AssignedAddress, Assignment, LinkLayer, ReleaseRequest
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.netconf.unsupported import require_supported

__all__ = ["assign_addresses", "release_addresses"]

_MAIN_PLUGIN = "netplug"


def assign_addresses(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> CNIResult:
    """ADD: assign addresses for the main plugin; a repeated call returns the same ones."""
    require_supported(netconf, world.log)
    require_nodename_file(world, netconf)
    workload = workload_of(request, node_of(world, netconf))
    link_layer = LinkLayer.L3 if request.netconf_mapping.get("type") == _MAIN_PLUGIN else LinkLayer.L2
    assign_request = assign_request_of(request, netconf, workload, link_layer)
    assignment = assign(world, assign_request, NO_ENDPOINT, lock=netconf.ipam_lock_file)
    world.log(Level.INFO, "addresses assigned", container=workload.container_id, network=workload.network)
    return CNIResult(ips=_ips(assignment, link_layer), routes=_routes(assignment))


def release_addresses(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """DEL: release whatever the attachment holds; nothing held is success."""
    workload = workload_of(request, node_of(world, netconf))
    release(world, ReleaseRequest(handle=workload.handle), NO_ENDPOINT, lock=netconf.ipam_lock_file)


def _ips(assignment: Assignment, link_layer: LinkLayer) -> tuple[IPConfig, ...]:
    if link_layer is LinkLayer.L3:
        return tuple(
            IPConfig(address=assigned.address, length=assigned.address.family.width)
            for assigned in assignment.addresses
        )
    return tuple(_on_link(assigned) for assigned in assignment.addresses)


def _on_link(assigned: AssignedAddress) -> IPConfig:
    return IPConfig(address=assigned.address, length=assigned.prefix.length, gateway=assigned.prefix.nth(1))


def _routes(assignment: Assignment) -> tuple[CNIRoute, ...]:
    """The default route of each family, its gateway left to the main plugin."""
    families = dict.fromkeys(assigned.address.family for assigned in assignment.addresses)
    return tuple(CNIRoute(destination=Prefix(family, 0, 0)) for family in families)
