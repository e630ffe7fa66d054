"""GC, and the flag ``-t`` of the executables: the two calls that concern no single attachment.

GC treats a stale attachment as DEL does. ``-t`` asks whether what a configuration names answers; installers call it
before they write the configuration.
"""

from __future__ import annotations

from netplug_core.clock import Deadline
from netplug_core.cni.request import CNIRequest
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.cni.call import detach_found, node_of
from netplug_core.flows.cni.release_records import keep_house, locations_of, replay_after_call, take_over
from netplug_core.flows.world import CNIWorld, ReplayTime
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.resources.clusterinformation import READINESS_GATE
from netplug_core.workload import WorkloadIdentity

__all__ = [
    "GC_S", "PROBE_S", "collect", "gc", "require_connection",
]  # fmt: skip


# --- GC ---------------------------------------------------------------------------------------------------------------


GC_S = 60.0
"""No attachment is begun later than this; one that has begun has the time of a DEL."""


def gc(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """Remove interface, addresses and endpoint of every attachment that the runtime does not list.

    Raises:
        Unavailable: some could not be released; all were tried while there was time.
    """
    _collect(world, request, netconf, has_interface=True)


def collect(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """GC of ``netplug-ipam``, which makes no interfaces and stores no endpoints."""
    _collect(world, request, netconf, has_interface=False)


def _collect(world: CNIWorld, request: CNIRequest, netconf: NetConf, *, has_interface: bool) -> None:
    if netconf.disables_gc:
        world.log(Level.INFO, "GC does nothing: disableGC is true", network=request.network)
        return
    if netconf.valid_attachments is None:
        # A missing list does not mean an empty one.
        world.log(Level.WARNING, "GC without a list of valid attachments: nothing is freed", network=request.network)
        return
    node, network = node_of(world, netconf), request.network
    deadline = Deadline.after(world.clock, GC_S)
    if world.replay_time is ReplayTime.AFTER_CALLS:
        take_over(world.records, world.log, deadline)
        replay_after_call(world, netconf, seconds=GC_S)
        keep_house(world.records, locations_of(netconf), world.clock, world.log)
    attachments = world.ipam.attachments(node=node, network=network, deadline=deadline)
    problems: list[str] = []
    valid = netconf.valid_attachments
    stale = [attachment for attachment in attachments if (attachment.container_id, attachment.interface) not in valid]
    for number, attachment in enumerate(stale):
        if deadline.has_passed:  # the store is slow or away: the next GC goes on
            problems.append(f"{len(stale) - number} more were not tried within {GC_S:g} s")
            break
        workload = WorkloadIdentity(
            node=node,
            network=network,
            container_id=attachment.container_id,
            interface=attachment.interface,
            pod=attachment.pod,
            pod_namespace=attachment.namespace,
        )
        try:
            freed = detach_found(world, workload, attachment, has_interface=has_interface).addresses
        except NetplugError as error:
            problems.append(f"{attachment.container_id}/{attachment.interface}: {error}")
        else:
            message = "leaked attachment released" if freed else "leaked attachment holds nothing any more"
            addresses = ",".join(map(str, freed))
            world.log(Level.INFO, message, container=attachment.container_id, node=node, addresses=addresses)
    try:
        world.ipam.forward(deadline=deadline)
    except NetplugError as error:
        problems.append(str(error))
    if problems:
        raise Unavailable("GC", "; ".join(problems))


# --- the flag -t ------------------------------------------------------------------------------------------------------


PROBE_S = 2.0
"""The most time that the datastore may take to answer, and then the API server."""


def require_connection(world: CNIWorld, netconf: NetConf) -> None:
    """Return if the datastore answers and is ready, and, if there is access to an API server, that one answers.

    Raises:
        NetplugError: one of them does not answer or refuses the credentials, or pod networking is locked.
    """
    snapshot = world.datastore.read([READINESS_GATE.query], deadline=Deadline.after(world.clock, PROBE_S))
    problem = READINESS_GATE.check(snapshot)
    if isinstance(problem, NetplugError):
        raise problem
    if world.open_orchestrator is not None and not netconf.datastore.is_kubernetes:
        node = netconf.datastore.kubernetes.node_name or node_of(world, netconf)
        with world.open_orchestrator() as orchestrator:
            orchestrator.find_node(node, deadline=Deadline.after(world.clock, PROBE_S))
