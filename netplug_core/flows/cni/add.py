"""ADD: one interface, its addresses and its endpoint, or nothing at all.

Everything is checked before anything is changed. Addresses and endpoint are committed before the dataplane is
programmed, and released if it fails; the dataplane itself removes what it could not finish. Called by
``netplug_cli.cni``.
"""

from __future__ import annotations

from contextlib import ExitStack

from netplug_core.clock import Deadline
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIInterface, CNIResult, CNIRoute, IPConfig, find_previous_result
from netplug_core.dataplane.plan import AttachmentPlan, plan
from netplug_core.dataplane.protocol import InterfacePresence, LinkExists
from netplug_core.errors import NamespaceNotFound
from netplug_core.flows.cni.assignment import assign, release_after_failure
from netplug_core.flows.cni.call import AttachmentCall, assign_request_of, link_of, open_call, require_nodename_file
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import Assignment, ReleaseRequest
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.netconf.unsupported import require_supported
from netplug_core.workload.endpoint import NewObjectMetadata, build_endpoint, endpoint_delete, endpoint_upsert

__all__ = ["DATAPLANE_S", "add"]

DATAPLANE_S = 30.0
"""The most time that the dataplane has for one attachment."""


def add(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> CNIResult:
    """Attach the container and return its interfaces, addresses and routes.

    Raises:
        NetplugError: it could not be attached; everything that this call made has been removed.
    """
    require_supported(netconf, world.log)
    require_nodename_file(world, netconf)
    call = open_call(world, request, netconf)
    workload, lock = call.workload, netconf.ipam_lock_file
    link, assign_request = link_of(world, call), assign_request_of(request, netconf, workload)
    previous = find_previous_result(request)
    _refuse_present(world, call)
    metadata = NewObjectMetadata(uid=world.host.new_uid(), creation_time_ns=world.clock.now_ns())
    with ExitStack() as undo:
        # An assignment that fails releases by itself what it has written.
        assignment = assign(world, assign_request, endpoint_upsert(workload, metadata), lock=lock)
        undo.callback(
            release_after_failure, world, ReleaseRequest(handle=workload.handle), endpoint_delete(workload), lock=lock
        )
        world.log(Level.INFO, "addresses assigned", **call.fields, addresses=_format_addresses(assignment))
        attachment = plan(build_endpoint(workload, assignment, metadata), link)
        # No inverse here: the interface that made it fail may belong to another attachment.
        world.dataplane.apply(attachment, deadline=Deadline.after(world.clock, DATAPLANE_S))
        undo.pop_all()
    world.log(Level.INFO, "container attached", **call.fields)
    result = _result(call, attachment, assignment)
    return result if previous is None else previous.chained_with(result)


def _refuse_present(world: CNIWorld, call: AttachmentCall) -> None:
    """Refuse an interface that exists already (CNI specification, "ADD"); it is left as it is."""
    presence = world.dataplane.find(call.link)
    if presence is InterfacePresence.NAMESPACE_GONE:
        raise NamespaceNotFound(f"CNI_NETNS {call.link.namespace!r} is not a network namespace")
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
