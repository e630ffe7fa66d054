"""ADD: one interface, its addresses and its endpoint, or nothing at all.

Everything is checked before anything is changed. Addresses and endpoint are committed before the dataplane is
programmed, and released if it fails; the dataplane itself removes what it could not finish. From before the commit
until the interface stands, a DEL of the same attachment is kept away. Called by ``netplug_cli.cni``.

A runtime whose DEL fails before it reaches netplug, as where a chained plugin is missing, makes one sandbox after the
other for a pod. So the addresses of the container that the pod's endpoint named before are released if its interface
is gone.

A call that resumes another, whose process died, finishes what that one began: the addresses are those of its handle,
and an interface of this attachment is completed. Any other call refuses an interface that exists.

``netplug-ipam`` assigns addresses for other main plugins (``ptp``, ``bridge``), which put the address on a shared link.
So its result has the pool's prefix length, the address after the network address as gateway and a default route, and
the first two addresses of a pool and its last are never assigned. No endpoint is stored.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIInterface, CNIResult, CNIRoute, IPConfig, find_previous_result
from netplug_core.dataplane.plan import AttachmentPlan, plan
from netplug_core.dataplane.protocol import InterfacePresence, Link, LinkExists
from netplug_core.errors import AllocationError, ConfigurationError, ErrorCode, NamespaceNotFound, NetplugError, quote
from netplug_core.flows.cni.call import (
    RELEASE_S,
    AddressRequest,
    AttachmentCall,
    assign,
    assign_request_of,
    attachment_lock,
    dns_of,
    link_between,
    link_of,
    node_of,
    open_call,
    release,
    release_after_failure,
    remove_interface,
    requested_of,
    require_mtu,
    require_nodename_file,
    require_supported,
    routes_of,
    wanted_of,
    workload_of,
)
from netplug_core.flows.cni.pods import address_request_of_pod, release_former_containers, wait_for_gates
from netplug_core.flows.cni.release_records import finish_own, has_own, release_request_of, replay_after_call
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import NO_DNS, AssignedAddress, Assignment, LinkLayer
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.locks import ADD_LOCK_S, AttachmentBusy
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.records import NeedMore, Snapshot, Write
from netplug_core.workload import (
    NO_OPTIONS,
    EndpointOptions,
    NewObjectMetadata,
    WorkloadIdentity,
    build_endpoint,
    endpoint_delete,
    endpoint_upsert,
    find_former_container,
)

__all__ = ["DATAPLANE_S", "DeletedMeanwhile", "add", "assign_addresses"]

DATAPLANE_S = 30.0
"""The most time that the dataplane has for one attachment."""

_MAIN_PLUGIN = "netplug"


@frozen
class DeletedMeanwhile(NetplugError, error_code=ErrorCode.TRY_AGAIN):
    """The attachment was deleted while it was made, by a DEL that did not wait for it (code 11)."""

    container_id: str
    interface: str

    def __str__(self) -> str:
        return (
            f"the attachment of the interface {quote(self.interface)} of container {quote(self.container_id)} was"
            " deleted while it was made, and is removed again"
        )


def add(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> CNIResult:
    """Attach the container and return its interfaces, addresses and routes.

    Raises:
        NetplugError: it could not be attached; everything that this call made has been removed.
        AttachmentBusy: another call is at work on the attachment; nothing is changed.
    """
    require_supported(world, netconf)
    require_nodename_file(world, netconf)
    call = open_call(request, netconf, node_of(world, netconf))
    link, previous, dns = link_of(world, call), find_previous_result(request), dns_of(world, netconf)
    _wait_for_gates(world, netconf)
    wanted = _address_request(world, request, call)
    require_mtu(world, netconf, {one.family for one in wanted.assign.wanted})
    if netconf.policy_guard:
        _close_node(world, call)
    with attachment_lock(world, call.workload, wait_s=ADD_LOCK_S) as is_exclusive:
        finish_own(world, netconf, call.workload, has_interface=True)
        result = _attach(world, call, link, wanted, is_exclusive=is_exclusive)
    if dns != NO_DNS:
        result = evolve(result, dns=dns)
    world.log(Level.INFO, "container attached", **call.fields)
    attached_at = world.clock.monotonic()
    replay_after_call(world, netconf)
    if netconf.policy_setup_timeout_s:
        _hold_back(world, call, result, attached_at)
    return result if previous is None else previous.chained_with(result)


def _wait_for_gates(world: CNIWorld, netconf: NetConf) -> None:
    """Return when the readiness gates are ready, before anything is read or changed."""
    if netconf.readiness_gates:
        wait_for_gates(world, netconf.readiness_gates)


def _close_node(world: CNIWorld, call: AttachmentCall) -> None:
    """Let no pod pass anything before its policy is programmed, from before its link is made."""
    from netplug_core.flows.cni.pods import close_node  # for configurations with the guard only

    close_node(world, call)


def _hold_back(world: CNIWorld, call: AttachmentCall, result: CNIResult, attached_at: float) -> None:
    """Hold the pod's start back until its policy is programmed.

    Raises:
        DeletedMeanwhile: a DEL came while it waited.
    """
    from netplug_core.flows.cni.pods import hold_back  # few configurations wait for policy

    if hold_back(world, call, tuple(ip.address for ip in result.ips), since=attached_at):
        return
    workload = call.workload
    with suppress(AttachmentBusy), attachment_lock(world, workload, wait_s=ADD_LOCK_S):
        # No other call is at work. What a later ADD of the attachment has made stays, and so does its address.
        if not world.dataplane.has_host_end(call.link):
            _take_back(
                world, call, endpoint_delete(workload, world.datastore.description.endpoints), has_interface=True
            )
    raise DeletedMeanwhile(workload.container_id, workload.interface)


def _address_request(world: CNIWorld, request: CNIRequest, call: AttachmentCall) -> AddressRequest:
    """What the call asks for. Annotations are looked at if there is a pod, and a way to its annotations.

    Raises:
        ConfigurationError: the configuration is for pods, and the container belongs to none.
    """
    netconf = call.netconf
    if netconf.feature_control.ip_addrs_no_ipam and not call.workload.is_pod:
        feature = "network configuration.feature_control.ip_addrs_no_ipam"
        accepted = "requested feature is not supported for this runtime: ip_addrs_no_ipam; CNI_ARGS must name a pod"
        raise ConfigurationError(feature, value=True, accepted=accepted)
    requested = requested_of(request, netconf, has_interface=True)
    if not call.workload.is_pod or (world.open_orchestrator is None and netconf.pod_annotations is None):
        return AddressRequest(
            assign=assign_request_of(call.workload, wanted_of(netconf, requested)),
            options=_options_of_container(call, requested.mac),
        )

    return address_request_of_pod(world, call, requested)


def _options_of_container(call: AttachmentCall, mac: str) -> EndpointOptions:
    """The MAC that is asked for, and the labels that the configuration has for a container without a pod."""
    labels = () if call.workload.is_pod else call.netconf.labels
    if not labels and not mac:
        return NO_OPTIONS
    return EndpointOptions(mac=mac, labels=tuple((label.name, label.value) for label in labels))


def _attach(
    world: CNIWorld, call: AttachmentCall, link: Link, wanted: AddressRequest, *, is_exclusive: bool
) -> CNIResult:
    """Assign, commit and program, while no other call works on the attachment if ``is_exclusive``."""
    workload = call.workload
    is_begun = _is_begun(world, call)
    storage = world.datastore.description.endpoints
    metadata = NewObjectMetadata(uid=world.host.new_uid(), creation_time_ns=world.clock.now_ns())
    former = set[str]()
    upsert = _noting_former(workload, endpoint_upsert(workload, metadata, storage, wanted.options), former)
    deletion = endpoint_delete(workload, storage)
    if call.is_resumed and call.netconf.ipam.is_delegated:
        # An IPAM plugin may refuse a second ADD of one interface, or return other addresses.
        remove_interface(world, link)
        release(world, release_request_of(workload), deletion)
        is_begun = False
    with ExitStack() as undo:
        # An assignment that fails releases by itself what it has written.
        assignment = _assign(world, call, wanted, upsert)
        undo.callback(_take_back, world, call, deletion, has_interface=is_begun)
        world.log(Level.INFO, "addresses assigned", **call.fields, addresses=_format_addresses(assignment))
        for container_id in sorted(former):
            _release_former(world, call, evolve(workload, container_id=container_id, pod_uid=""))
        require_mtu(world, call.netconf, {one.address.family for one in assignment.addresses})
        if assignment.routes:
            link = evolve(link, routes=routes_of(call.netconf, assignment.routes))
        attachment = plan(build_endpoint(workload, assignment, metadata, wanted.options), link)
        # No inverse here: the dataplane has its own in place before it makes anything.
        world.dataplane.apply(attachment, deadline=Deadline.after(world.clock, DATAPLANE_S))
        undo.pop_all()
    try:
        _require_wanted(world, call, assignment, is_exclusive=is_exclusive)
    except BaseException:
        _take_back(world, call, deletion, has_interface=True)
        raise
    return _result(attachment, assignment)


def _noting_former(workload: WorkloadIdentity, upsert: EndpointWrites, former: set[str]) -> EndpointWrites:
    """The endpoint's writes; ``former`` gets the container that the endpoint names when they are decided.

    After a lost reply the endpoint names this call's container already, so the names of all attempts count.
    """
    if not upsert.queries:
        return upsert

    def writes(snapshot: Snapshot, assignment: Assignment | None) -> tuple[Write, ...] | NeedMore | NetplugError:
        former.update(filter(None, (find_former_container(snapshot, workload),)))
        return upsert.writes(snapshot, assignment)

    return evolve(upsert, writes=writes)


def _release_former(world: CNIWorld, call: AttachmentCall, former: WorkloadIdentity) -> None:
    """Release what a former container of the pod holds, if its host end is not on this host: no DEL has come for it.

    Another plugin frees its addresses itself. While another call works on the former attachment, that call does what
    is to be done. An error does not concern the call's own container, so it is only logged.
    """
    if call.netconf.ipam.is_delegated:
        return
    try:
        with attachment_lock(world, former, wait_s=0):
            if world.dataplane.has_host_end(link_between(former, "")):
                return
            freed = release(world, release_request_of(former), NO_ENDPOINT).addresses
    except AttachmentBusy:
        return
    except NetplugError as error:
        text = "addresses of a former container of the pod could not be released"
        world.log(Level.WARNING, text, **call.fields, former=former.container_id, cause=str(error))
        return
    if freed:
        text = "a former container of the pod, whose interface is gone, still held addresses; they are released"
        addresses = ",".join(map(str, freed))
        world.log(Level.WARNING, text, **call.fields, former=former.container_id, addresses=addresses)


def _take_back(world: CNIWorld, call: AttachmentCall, deletion: EndpointWrites, *, has_interface: bool) -> None:
    """Remove the interface, if it is there, and release the addresses. If it stays, they stay held, as in a DEL."""
    if has_interface:
        remove_interface(world, call.link)
    release_after_failure(world, release_request_of(call.workload), deletion)


def _require_wanted(world: CNIWorld, call: AttachmentCall, assignment: Assignment, *, is_exclusive: bool) -> None:
    """Require that no DEL of the attachment came meanwhile, and left a record or, without the lock, its work."""
    if has_own(world, call.netconf, call.workload):
        raise DeletedMeanwhile(call.workload.container_id, call.workload.interface)
    if not is_exclusive:
        _require_still_held(world, call, assignment)


def _assign(world: CNIWorld, call: AttachmentCall, wanted: AddressRequest, upsert: EndpointWrites) -> Assignment:
    """Assign the addresses. Those that an annotation names go from a former container of the pod to the new one."""
    try:
        return assign(world, wanted.assign, upsert)
    except AllocationError as error:
        if not wanted.names_addresses or error.error_code is not ErrorCode.ADDRESS_TAKEN:
            raise

        if not release_former_containers(world, call):
            raise
    return assign(world, wanted.assign, upsert)


def _require_still_held(world: CNIWorld, call: AttachmentCall, assignment: Assignment) -> None:
    """Require that no DEL released the addresses since they were assigned, which only the attachment's lock prevents.

    A DEL that releases them after this looks for the interface once more, and finds it.
    """
    held = world.ipam.held(call.workload.handle, deadline=Deadline.after(world.clock, RELEASE_S))
    if held is not None and not {assigned.address for assigned in assignment.addresses} <= set(held.addresses):
        raise DeletedMeanwhile(call.workload.container_id, call.workload.interface)


def assign_addresses(world: CNIWorld, request: CNIRequest, netconf: NetConf) -> CNIResult:
    """ADD of ``netplug-ipam``: assign addresses for the main plugin; a repeated call returns the same ones."""
    require_supported(world, netconf)
    require_nodename_file(world, netconf)
    workload = workload_of(request, node_of(world, netconf))
    link_layer = LinkLayer.L3 if request.netconf_mapping.get("type") == _MAIN_PLUGIN else LinkLayer.L2
    wanted = wanted_of(netconf, requested_of(request, netconf, has_interface=False))
    assign_request = assign_request_of(workload, wanted, link_layer)
    with attachment_lock(world, workload, wait_s=ADD_LOCK_S):
        finish_own(world, netconf, workload, has_interface=False)
        assignment = assign(world, assign_request, NO_ENDPOINT)
        if has_own(world, netconf, workload):
            release_after_failure(world, release_request_of(workload), NO_ENDPOINT)
            raise DeletedMeanwhile(workload.container_id, workload.interface)
    world.log(Level.INFO, "addresses assigned", container=workload.container_id, network=workload.network)
    replay_after_call(world, netconf)
    return CNIResult(ips=_ips(assignment, link_layer), routes=_routes(assignment))


def _is_begun(world: CNIWorld, call: AttachmentCall) -> bool:
    """Whether the attachment's interface is there, made by the call that this one resumes.

    Any other interface of the name is refused (CNI specification, "ADD"), and left as it is.
    """
    presence = world.dataplane.find(call.link)
    if presence is InterfacePresence.NAMESPACE_GONE:
        raise NamespaceNotFound(f"CNI_NETNS {quote(call.link.namespace)} is not a network namespace")
    if presence is InterfacePresence.ABSENT:
        return False
    if presence is InterfacePresence.OWN and call.is_resumed:
        return True
    raise LinkExists(call.link.name, call.link.namespace)


def _format_addresses(assignment: Assignment) -> str:
    return ",".join(str(assigned.address) for assigned in assignment.addresses)


def _result(attachment: AttachmentPlan, assignment: Assignment) -> CNIResult:
    """The result of this plugin alone. Gateways of another IPAM plugin are repeated: its CHECK may compare them."""
    link, container = attachment.link, attachment.container
    gateways = {assigned.address: assigned.gateway for assigned in assignment.addresses}
    return CNIResult(
        interfaces=(
            CNIInterface(name=link.host_name),
            CNIInterface(name=link.name, mac=container.mac, mtu=link.mtu, sandbox=link.namespace),
        ),
        ips=tuple(
            [
                IPConfig(
                    address=planned.address,
                    length=planned.length,
                    gateway=gateways.get(planned.address),
                    interface=1,
                )
                for planned in container.addresses
            ]
        ),
        routes=tuple(
            [CNIRoute(destination=route.destination, gateway=route.gateway) for route in attachment.container_routes]
        ),
        dns=assignment.dns,
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
