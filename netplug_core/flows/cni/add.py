"""ADD: one interface, its addresses and its endpoint, or nothing at all.

Everything is checked before anything is changed. Addresses and endpoint are committed before the dataplane is
programmed, and released if it fails; the dataplane itself removes what it could not finish. Called by
``netplug_cli.cni``.

``netplug-ipam`` assigns addresses for other main plugins (``ptp``, ``bridge``), which put the address on a shared link.
So its result has the pool's prefix length, the address after the network address as gateway and a default route, and
the first and last address of a pool are never assigned. No endpoint is stored.
"""

from __future__ import annotations

from contextlib import ExitStack

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIInterface, CNIResult, CNIRoute, IPConfig, find_previous_result
from netplug_core.dataplane.plan import AttachmentPlan, plan
from netplug_core.dataplane.protocol import InterfacePresence, LinkExists
from netplug_core.errors import NamespaceNotFound, quote
from netplug_core.flows.cni.call import (
    AttachmentCall,
    assign,
    assign_request_of,
    link_of,
    node_of,
    open_call,
    release_after_failure,
    require_nodename_file,
    require_supported,
    workload_of,
)
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import AssignedAddress, Assignment, LinkLayer, ReleaseRequest
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.workload.endpoint import NewObjectMetadata, build_endpoint, endpoint_delete, endpoint_upsert

__all__ = ["DATAPLANE_S", "add", "assign_addresses"]

DATAPLANE_S = 30.0
"""The most time that the dataplane has for one attachment."""

_MAIN_PLUGIN = "netplug"


def add(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> CNIResult:
    """Attach the container and return its interfaces, addresses and routes.

    Raises:
        NetplugError: it could not be attached; everything that this call made has been removed.
    """
    require_supported(world, netconf)
    require_nodename_file(world, netconf)
    call = open_call(world, request, netconf)
    workload, lock = call.workload, netconf.ipam_lock_file
    link, assign_request = link_of(world, call), assign_request_of(request, netconf, workload)
    previous = find_previous_result(request)
    _refuse_present(world, call)
    storage = world.datastore.description.endpoints
    metadata = NewObjectMetadata(uid=world.host.new_uid(), creation_time_ns=world.clock.now_ns())
    upsert, deletion = endpoint_upsert(workload, metadata, storage), endpoint_delete(workload, storage)
    with ExitStack() as undo:
        # An assignment that fails releases by itself what it has written.
        assignment = assign(world, assign_request, upsert, lock=lock)
        undo.callback(release_after_failure, world, ReleaseRequest(handle=workload.handle), deletion, lock=lock)
        world.log(Level.INFO, "addresses assigned", **call.fields, addresses=_format_addresses(assignment))
        attachment = plan(build_endpoint(workload, assignment, metadata), link)
        # No inverse here: the interface that made it fail may belong to another attachment.
        world.dataplane.apply(attachment, deadline=Deadline.after(world.clock, DATAPLANE_S))
        undo.pop_all()
    world.log(Level.INFO, "container attached", **call.fields)
    result = _result(call, attachment, assignment)
    return result if previous is None else previous.chained_with(result)


def assign_addresses(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> CNIResult:
    """ADD of ``netplug-ipam``: assign addresses for the main plugin; a repeated call returns the same ones."""
    require_supported(world, netconf)
    require_nodename_file(world, netconf)
    workload = workload_of(request, node_of(world, netconf))
    link_layer = LinkLayer.L3 if request.netconf_mapping.get("type") == _MAIN_PLUGIN else LinkLayer.L2
    assign_request = assign_request_of(request, netconf, workload, link_layer)
    assignment = assign(world, assign_request, NO_ENDPOINT, lock=netconf.ipam_lock_file)
    world.log(Level.INFO, "addresses assigned", container=workload.container_id, network=workload.network)
    return CNIResult(ips=_ips(assignment, link_layer), routes=_routes(assignment))


def _refuse_present(world: CNIWorld, call: AttachmentCall) -> None:
    """Refuse an interface that exists already (CNI specification, "ADD"); it is left as it is."""
    presence = world.dataplane.find(call.link)
    if presence is InterfacePresence.NAMESPACE_GONE:
        raise NamespaceNotFound(f"CNI_NETNS {quote(call.link.namespace)} is not a network namespace")
    if presence is InterfacePresence.PRESENT:
        raise LinkExists(call.link.name, call.link.namespace)


def _format_addresses(assignment: Assignment) -> str:
    return ",".join(str(assigned.address) for assigned in assignment.addresses)


def _result(call: AttachmentCall, attachment: AttachmentPlan, assignment: Assignment) -> CNIResult:
    """The result of this plugin alone."""
    link = attachment.link
    return CNIResult(
        interfaces=(
            CNIInterface(name=link.host_name),
            CNIInterface(name=link.name, mac=call.workload.mac, mtu=link.mtu, sandbox=link.namespace),
        ),
        ips=tuple(
            IPConfig(address=assigned.address, length=assigned.address.family.width, interface=1)
            for assigned in assignment.addresses
        ),
        routes=tuple(
            CNIRoute(destination=route.destination, gateway=route.gateway) for route in attachment.container_routes
        ),
    )


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
