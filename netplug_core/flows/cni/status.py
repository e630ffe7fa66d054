"""STATUS, GC, and the flag ``-t`` of the executables: the calls that concern no single attachment.

GC treats a stale attachment as DEL does. ``-t`` asks whether what a configuration names answers; installers call it
before they write the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from netplug_core.addressing import Family
from netplug_core.clock import Deadline
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import render_message
from netplug_core.dataplane.protocol import Forwarding
from netplug_core.errors import (
    AllocationError,
    ConfigurationError,
    DatastoreError,
    ErrorCode,
    LimitedConnectivity,
    NetplugError,
    Unavailable,
    UnhealthyStatus,
)
from netplug_core.flows.cni.call import (
    detach_found,
    dns_of,
    mtu_of,
    node_of,
    require_mtu,
    require_nodename_file,
    require_supported,
    wanted_of,
)
from netplug_core.flows.cni.pods import require_ready_gates
from netplug_core.flows.cni.release_records import keep_house, locations_of, replay_after_call, take_over
from netplug_core.flows.world import CNIWorld, ReplayTime
from netplug_core.ipam.allocation.request import AssignRequest, Shortfall
from netplug_core.log import Level
from netplug_core.netconf.model import BLOCK_IPAM, NetConf
from netplug_core.records import Get
from netplug_core.resources.clusterinformation import READINESS_GATE
from netplug_core.resources.ippool import AllowedUse
from netplug_core.resources.node import node_key
from netplug_core.workload import WorkloadIdentity

__all__ = ["GC_S", "PROBE_S", "STATUS_S", "collect", "gc", "require_connection", "status", "status_addresses"]


STATUS_S = 2.0
"""The most time that the datastore may take to answer."""


def status(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """Return if an ADD could be served.

    Raises:
        UnhealthyStatus: it could not; the reason is in the text.
        LimitedConnectivity: the kernel of the node or its settings let no workload be attached, or would keep it from
            what it should reach.
        ConfigurationError: the configuration itself cannot be served.
    """
    mtu_of(world, netconf)
    _require_dns(world, netconf)
    deadline = Deadline.after(world.clock, STATUS_S)
    with _as_unhealthy():
        families = _probe(world, request, netconf, deadline)
        if netconf.datastore.is_kubernetes:
            _require_node(world, node_of(world, netconf), deadline)
        if netconf.readiness_gates:
            require_ready_gates(world, netconf.readiness_gates)
    if netconf.policy_guard:
        _require_guard(world)
    _require_host(world, netconf, families)
    _require_connectivity(world, netconf)


def status_addresses(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> None:
    """STATUS of ``netplug-ipam``, which makes no interfaces and looks no pods up."""
    with _as_unhealthy():
        _probe(world, request, netconf, Deadline.after(world.clock, STATUS_S))


@contextmanager
def _as_unhealthy() -> Iterator[None]:
    try:
        yield
    except NetplugError as error:
        if not isinstance(error, (AllocationError, DatastoreError)) and not _is_of_plugin(error):
            raise
        raise UnhealthyStatus(render_message(error)) from error


def _is_of_plugin(error: NetplugError) -> bool:
    """Whether another plugin that keeps the addresses failed. Where it reports an error, its code is passed on."""
    return error.error_code in (ErrorCode.IPAM_PLUGIN_FAILED, ErrorCode.TRY_AGAIN) and error.reported_code == error.code


def _require_dns(world: CNIWorld, netconf: NetConf) -> None:
    """Require the file whose settings each result has: it is one of the host, and may come later."""
    try:
        dns_of(world, netconf)
    except ConfigurationError as error:
        raise UnhealthyStatus(render_message(error)) from error


def _probe(world: CNIWorld, request: CNIRequest, netconf: NetConf, deadline: Deadline) -> tuple[Family, ...]:
    """The families of the addresses that an ADD would get now, as far as they are known."""
    require_supported(world, netconf)
    node = node_of(world, netconf)
    # No container id begins with a dash, so nothing is held under this handle.
    handle = f"{request.network}.-status"
    require_nodename_file(world, netconf)
    assign_request = AssignRequest(
        handle=handle, node=node, wanted=wanted_of(netconf), use=AllowedUse.WORKLOAD, shortfall=Shortfall.REFUSE
    )
    return world.ipam.probe(assign_request, deadline=deadline)


def _require_guard(world: CNIWorld) -> None:
    """Require that an ADD can close the node for pods, if it would have to."""
    from netplug_core.flows.cni.pods import find_guard_problem  # for configurations with the guard only

    if problem := find_guard_problem(world):
        raise UnhealthyStatus(problem)


def _require_host(world: CNIWorld, netconf: NetConf, families: tuple[Family, ...]) -> None:
    """Require what each ADD needs of the kernel of this node; the sentences are those of ADD.

    Workloads that are there may have lost their connections for the same reason, so the code is 51.
    """
    try:
        require_mtu(world, netconf, families)
    except ConfigurationError as error:
        raise LimitedConnectivity(str(error)) from error
    forwarding = Forwarding.ENABLED if netconf.container_settings.allow_ip_forwarding else Forwarding.DISABLED
    if obstacles := world.dataplane.find_obstacles(families, forwarding):
        raise LimitedConnectivity("; ".join(obstacles))


def _require_node(world: CNIWorld, node: str, deadline: Deadline) -> None:
    """Require that the cluster has this node: where endpoints are pods, each pod has to be on a node of that name."""
    key = node_key(node)
    if world.datastore.read([Get(key)], deadline=deadline).find(key) is None:
        raise UnhealthyStatus(f"the cluster has no node {node!r}: nodename must be the name of one")


def _require_connectivity(world: CNIWorld, netconf: NetConf) -> None:
    """Require that the node forwards packets of the families that the configuration switches on.

    Another IPAM than the block IPAM has its own settings for families, so an ADD warns there and STATUS does not.
    """
    switches = ((Family.IPV4, netconf.ipam.assign_ipv4), (Family.IPV6, netconf.ipam.assign_ipv6))
    families = tuple(family for family, is_on in switches if is_on and netconf.ipam.type == BLOCK_IPAM)
    problems = world.dataplane.find_node_problems(families)
    limits = [str(problem) for problem in problems if problem.limits_workloads]
    if limits:
        raise LimitedConnectivity("; ".join(limits))


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
