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
from netplug_core.cni.result import AssignedAddress, Interface, Result, Route, find_previous
from netplug_core.dataplane.interface import LinkExists, Presence
from netplug_core.dataplane.plan import AttachmentPlan, plan
from netplug_core.errors import NamespaceMissing
from netplug_core.flows.assign import assign, give_back
from netplug_core.flows.context import Call, link_of, open_call, require_nodename_file, wanted_of
from netplug_core.flows.world import World
from netplug_core.ipam.request import Assignment, AssignRequest, ReleaseRequest, Shortfall
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.netconf.support import require_supported
from netplug_core.resources.ippool import AllowedUse
from netplug_core.workload.endpoint import Birth, build, removed, settled

__all__ = ["DATAPLANE_S", "add"]

DATAPLANE_S = 30.0
"""The longest the dataplane may work on one attachment."""


def add(world: World, request: CNIRequest, netconf: NetConf) -> Result:
    """Attach the container and say what it got.

    Raises:
        NetplugError: it could not be attached; nothing that this call made was left behind.
    """
    require_supported(netconf, world.log)
    require_nodename_file(world, netconf)
    call = open_call(world, request, netconf)
    link, wish, previous = link_of(world, call), _wish(call, request.args.address), find_previous(request)
    _refuse_present(world, call)
    birth = Birth(uid=world.host.new_uid(), time_ns=world.clock.now_ns())
    lock = netconf.ipam_lock_file
    with ExitStack() as undo:
        mine, gone = settled(call.workload, birth), removed(call.workload)
        assignment = assign(world, wish, mine, lock=lock)  # which takes back itself what it could not finish
        undo.callback(give_back, world, ReleaseRequest(handle=call.workload.handle), gone, lock=lock)
        world.log(Level.INFO, "addresses assigned", **call.fields, addresses=_texts(assignment))
        attachment = plan(build(call.workload, assignment, birth), link)
        # Its inverse is no business of ours: an interface that made it fail may be somebody else's.
        world.dataplane.apply(attachment, deadline=Deadline.after(world.clock, DATAPLANE_S))
        undo.pop_all()
    world.log(Level.INFO, "container attached", **call.fields)
    own = _result(call, attachment, assignment)
    return own if previous is None else previous.followed_by(own)


def _refuse_present(world: World, call: Call) -> None:
    """Nothing may be there yet (CNI specification, "ADD"); what is there stays unharmed."""
    presence = world.dataplane.find(call.link)
    if presence is Presence.NAMESPACE_GONE:
        raise NamespaceMissing(f"CNI_NETNS {call.link.namespace!r} is not a network namespace")
    if presence is Presence.PRESENT:
        raise LinkExists(call.link.name, call.link.namespace)


def _wish(call: Call, address: Address | None) -> AssignRequest:
    return AssignRequest(
        handle=call.workload.handle,
        node=call.workload.node,
        wanted=wanted_of(call.netconf, address),
        owner=call.workload.owner,
        use=AllowedUse.WORKLOAD,
        shortfall=Shortfall.REFUSE,
    )


def _texts(assignment: Assignment) -> str:
    return ",".join(str(assigned.address) for assigned in assignment.addresses)


def _result(call: Call, attachment: AttachmentPlan, assignment: Assignment) -> Result:
    """Our interfaces, addresses and routes."""
    link = attachment.link
    return Result(
        interfaces=(
            Interface(name=link.host_name),
            Interface(name=link.name, mac=call.workload.mac, mtu=link.mtu, sandbox=link.namespace),
        ),
        ips=tuple(
            AssignedAddress(address=assigned.address, length=assigned.address.family.width, interface=1)
            for assigned in assignment.addresses
        ),
        routes=tuple(
            Route(destination=route.destination, gateway=route.gateway) for route in attachment.container_routes
        ),
    )
