"""ADD: one interface, its addresses and its endpoint, or nothing at all.

Everything is judged before anything is made. Addresses and endpoint are committed before the dataplane is touched, and
given back if that fails; the dataplane takes back by itself what it could not finish. Called by ``netplug_cli.cni``
(and later the node process).
"""

from __future__ import annotations

from contextlib import ExitStack

from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIInterface, CNIResult, CNIRoute, IPConfig, find_previous_result
from netplug_core.dataplane.plan import AttachmentPlan, plan
from netplug_core.dataplane.protocol import InterfacePresence, LinkExists
from netplug_core.errors import NamespaceNotFound
from netplug_core.flows.cni.assignment import assign, take_back
from netplug_core.flows.cni.call import AttachmentCall, link_of, open_call, require_nodename_file, wanted_of
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, ReleaseRequest, Shortfall
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.netconf.unsupported import require_supported
from netplug_core.resources.ippool import AllowedUse
from netplug_core.workload.endpoint import NewObjectMetadata, build_endpoint, endpoint_delete, endpoint_upsert

__all__ = ["DATAPLANE_S", "add"]

DATAPLANE_S = 30.0
"""The longest the dataplane may work on one attachment."""


def add(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> CNIResult:
    """Attach the container and say what it got.

    Raises:
        NetplugError: it could not be attached; nothing that this call made was left behind.
    """
    require_supported(netconf, world.log)
    require_nodename_file(world, netconf)
    call = open_call(world, request, netconf)
    link, wish, previous = (
        link_of(world, call),
        _assign_request(call, request.args.address),
        find_previous_result(request),
    )
    _refuse_present(world, call)
    birth = NewObjectMetadata(uid=world.host.new_uid(), creation_time_ns=world.clock.now_ns())
    lock = netconf.ipam_lock_file
    with ExitStack() as undo:
        mine, gone = endpoint_upsert(call.workload, birth), endpoint_delete(call.workload)
        assignment = assign(world, wish, mine, lock=lock)  # which takes back itself what it could not finish
        undo.callback(take_back, world, ReleaseRequest(handle=call.workload.handle), gone, lock=lock)
        world.log(Level.INFO, "addresses assigned", **call.fields, addresses=_texts(assignment))
        attachment = plan(build_endpoint(call.workload, assignment, birth), link)
        # Its inverse is no business of ours: an interface that made it fail may be somebody else's.
        world.dataplane.apply(attachment, deadline=Deadline.after(world.clock, DATAPLANE_S))
        undo.pop_all()
    world.log(Level.INFO, "container attached", **call.fields)
    own = _result(call, attachment, assignment)
    return own if previous is None else previous.chained_with(own)


def _refuse_present(world: CNIWorld, call: AttachmentCall) -> None:
    """Nothing may be there yet (CNI specification, "ADD"); what is there stays unharmed."""
    presence = world.dataplane.find(call.link)
    if presence is InterfacePresence.NAMESPACE_GONE:
        raise NamespaceNotFound(f"CNI_NETNS {call.link.namespace!r} is not a network namespace")
    if presence is InterfacePresence.PRESENT:
        raise LinkExists(call.link.name, call.link.namespace)


def _assign_request(call: AttachmentCall, address: Address | None) -> AssignRequest:
    return AssignRequest(
        handle=call.workload.handle,
        node=call.workload.node,
        wanted=wanted_of(call.netconf, address),
        owner=call.workload.allocation_attributes,
        use=AllowedUse.WORKLOAD,
        shortfall=Shortfall.REFUSE,
    )


def _texts(assignment: Assignment) -> str:
    return ",".join(str(assigned.address) for assigned in assignment.addresses)


def _result(call: AttachmentCall, attachment: AttachmentPlan, assignment: Assignment) -> CNIResult:
    """Our interfaces, addresses and routes."""
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
