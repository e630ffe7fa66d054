"""The pod of an ADD: what its facts and annotations ask for, and what holds it back: readiness gates and policy.

``add`` and ``status`` import it where there is a pod or policy to look at. The gates are waited for before the work of
an ADD. **The guard** is the table of policy without any endpoint: no pod passes anything until the node process has
programmed its policy. So pods that start before that process after a boot are closed, and not open. An ADD makes it
before its link; where pods run without a table, it would cut their connections, and is left to the node process.

**Holding back** means that the ADD answers when the policy of its pod is programmed. No lock is held during either
wait, and no turn of a queue: what is waited for is the work of others.
"""

from __future__ import annotations

from attrs import evolve

from netplug_core.addressing import Address, Family
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import KernelError
from netplug_core.errors import RequestError
from netplug_core.flows.cni.call import (
    AddressRequest,
    AttachmentCall,
    FoundPod,
    assign_request_of,
    detach_found,
    wanted_of,
)
from netplug_core.flows.world import CNIWorld
from netplug_core.ipam.allocation.request import Wanted
from netplug_core.log import Level
from netplug_core.names import DEFAULT_INTERFACE, STORED_ANNOTATIONS
from netplug_core.netconf.model import BLOCK_IPAM, Requested
from netplug_core.netconf.precedence import (
    FLOATING_IPS,
    OF_NAMESPACES,
    AnnotatedPod,
    PodAnnotations,
    ResolvedAddresses,
    parse_annotations,
    require_allowed,
    resolve_addresses,
)
from netplug_core.orchestrator.model import PodName
from netplug_core.workload import (
    BOOT_ID_FILE,
    GATES_S,
    PROBE_INTERVAL_S,
    PROBE_S,
    EndpointOptions,
    EndpointStatus,
    Gate,
    GateNotReady,
    ProbeResult,
    find_difference,
    find_replaced,
    gates_of,
    has_endpoint,
    pod_details,
    status_file_of,
)

__all__ = [
    "ATTACHMENTS_S", "LOOKUP_S", "LOOK_EVERY_S", "address_request_of_pod", "annotated_address_request", "close_node",
    "find_guard_problem", "hold_back", "release_former_containers", "require_ready_gates", "wait_for_gates",
]  # fmt: skip


# --- pods ------------------------------------------------------------------------------------------------------------


# --- the pod ----------------------------------------------------------------------------------------------------------


LOOKUP_S = 5.0
"""The most time that the lookup of a pod, or of a namespace, may take."""


def address_request_of_pod(world: CNIWorld, call: AttachmentCall, requested: Requested) -> AddressRequest:
    """What an ADD asks for with the annotations and labels that are found, and with what the caller asks for.

    Raises:
        RequestError: the pod or its namespace does not exist, or another pod has the name now.
        Unavailable: the orchestrator does not answer, or a right is missing.
        ConfigurationError: an annotation is not accepted.
    """
    found = _look_up(world, call)
    start = f"{call.netconf.datastore.annotation_prefix}/"
    names = {name for name, _text in (*found.annotations, *found.namespace_annotations) if name.startswith(start)}
    if names - {start + name for name in STORED_ANNOTATIONS}:
        return annotated_address_request(world, call, found, requested)
    plain = assign_request_of(call.workload, wanted_of(call.netconf, requested))
    return AddressRequest(
        assign=evolve(plain, namespace_labels=found.namespace_labels),
        options=EndpointOptions(mac=requested.mac, pod=found.details),
    )


def _look_up(world: CNIWorld, call: AttachmentCall) -> FoundPod:
    workload = call.workload
    if world.open_orchestrator is None:
        return FoundPod(annotations=tuple(sorted((call.netconf.pod_annotations or {}).items())))
    name = PodName(workload.pod_namespace, workload.pod)
    with world.open_orchestrator() as orchestrator:
        pod = orchestrator.find_pod(name.namespace, name.name, deadline=Deadline.after(world.clock, LOOKUP_S))
        if pod is None:
            text = f"pod {name}, which K8S_POD_NAMESPACE and K8S_POD_NAME of CNI_ARGS name, does not exist"
            raise RequestError(text)
        if (replaced := find_replaced(workload, pod.runtime_uid)) is not None:
            raise replaced
        namespace = orchestrator.find_namespace(name.namespace, deadline=Deadline.after(world.clock, LOOKUP_S))
    if namespace is None:
        raise RequestError(f"the namespace {name.namespace}, which K8S_POD_NAMESPACE names, does not exist")
    details = pod_details(pod)
    return FoundPod(
        annotations=pod.annotations,
        namespace_annotations=namespace.annotations,
        namespace_labels=namespace.labels,
        details=details if call.netconf.policy_type else evolve(details, profiles=()),
    )


# --- what annotations ask for -----------------------------------------------------------------------------------------


ATTACHMENTS_S = 20.0
"""The most time that a look through all blocks may take."""


def annotated_address_request(
    world: CNIWorld, call: AttachmentCall, found: FoundPod, requested: Requested
) -> AddressRequest:
    """What an ADD asks for with the annotations of its pod, which win over what the caller asks for.

    Raises:
        ConfigurationError: an annotation is not accepted.
    """
    pod = AnnotatedPod(
        name=PodName(call.workload.pod_namespace, call.workload.pod),
        prefix=call.netconf.datastore.annotation_prefix,
        annotations=found.annotations,
        namespace_annotations=found.namespace_annotations,
    )
    annotations = parse_annotations(pod)
    require_allowed(pod, annotations, call.netconf)
    names = ", ".join(name for name, _text in annotations.texts)
    world.log(Level.INFO, "annotations of the pod and its namespace count", **call.fields, annotations=names)
    if annotations.unused:
        _warn(world, call, "annotations of the namespace are not used: only a pod can have them", annotations.unused)
    annotations = _for_interface(world, call, annotations)
    resolved = resolve_addresses(pod, annotations, call.netconf.ipam, requested.addresses)
    wanted, unmanaged = _wanted(world, call, annotations, resolved)
    options = EndpointOptions(
        mac=annotations.mac or requested.mac,
        unmanaged=unmanaged,
        floating_ips=annotations.floating_ips,
        allowed_source_prefixes=tuple(map(str, annotations.allowed_source_prefixes)),
        pod=found.details,
    )
    if call.netconf.ipam.type == BLOCK_IPAM:  # the ranges of another IPAM are not known here
        _require_families(pod, annotations, {one.family for one in (*wanted, *unmanaged)})
    _log_limits(world, call, options)
    assign_request = evolve(assign_request_of(call.workload, wanted), namespace_labels=found.namespace_labels)
    return AddressRequest(assign=assign_request, options=options, names_addresses=bool(annotations.addresses))


def release_former_containers(world: CNIWorld, call: AttachmentCall) -> bool:
    """Release what former containers of the same pod hold on this node; return whether there was anything.

    A pod has one container with a network at a time. If the DEL of the former one has not come yet, it still holds the
    addresses that the pod's annotation names.
    """
    own = call.workload
    found = world.ipam.attachments(
        node=own.node, network=own.network, deadline=Deadline.after(world.clock, ATTACHMENTS_S)
    )
    former = [
        attachment
        for attachment in found
        if (attachment.namespace, attachment.pod, attachment.interface) == (own.pod_namespace, own.pod, own.interface)
        and attachment.container_id != own.container_id
    ]
    for attachment in former:
        text = "a former container of the pod still held addresses; they are released"
        world.log(Level.WARNING, text, **call.fields, former=attachment.container_id)
        detach_found(world, evolve(own, container_id=attachment.container_id, pod_uid=""), attachment)
    return bool(former)


def _for_interface(world: CNIWorld, call: AttachmentCall, annotations: PodAnnotations) -> PodAnnotations:
    """The annotations that concern the call's interface: all for the first one, pools and families for the others."""
    if call.link.name == DEFAULT_INTERFACE:
        return annotations
    others = tuple(name for name, _text in annotations.texts if name not in OF_NAMESPACES)
    if others:
        _warn(world, call, f"annotations of the pod are not used: they concern {DEFAULT_INTERFACE}", others)
    return PodAnnotations(pools=annotations.pools, families=annotations.families, texts=annotations.texts)


def _wanted(
    world: CNIWorld, call: AttachmentCall, annotations: PodAnnotations, resolved: ResolvedAddresses
) -> tuple[tuple[Wanted, ...], tuple[Address, ...]]:
    """The addresses to assign, and those that no IPAM assigns."""
    if resolved.unmanaged or resolved.specific:
        return resolved.specific, resolved.unmanaged
    wanted = wanted_of(evolve(call.netconf, ipam=resolved.ipam))
    families = {one.family for one in wanted}
    unused = tuple(f"{family} pools" for family, _pools in annotations.pools if family not in families)
    if unused:
        _warn(world, call, "pools of the annotations are not used: their address family is off", unused)
    return wanted, ()


def _require_families(pod: AnnotatedPod, annotations: PodAnnotations, families: set[Family]) -> None:
    """Require that the pod gets an address of the family of each floating IP."""
    for floating in annotations.floating_ips:
        if floating.family not in families:
            accepted = f"{floating} has no {floating.family} address of the pod to stand for; leave it out"
            raise pod.refusal(FLOATING_IPS, annotations.find_text(FLOATING_IPS), accepted)


def _log_limits(world: CNIWorld, call: AttachmentCall, options: EndpointOptions) -> None:
    """Log what the annotations ask for and an ADD does not do, or not alone."""
    if options.floating_ips:
        _warn(
            world,
            call,
            "floating IPs are programmed only where NodeConfiguration has floatingIPs Enabled",
            options.floating_ips,
        )
    if options.allowed_source_prefixes:
        text = "the pod may send from any IPv4 address where no policy is enforced: only policy filters its prefixes"
        _warn(world, call, text, options.allowed_source_prefixes)


def _warn(world: CNIWorld, call: AttachmentCall, text: str, items: tuple[object, ...]) -> None:
    world.log(Level.WARNING, text, **call.fields, about=", ".join(map(str, items)))


# --- gates ------------------------------------------------------------------------------------------------------------


def wait_for_gates(world: CNIWorld, urls: tuple[str, ...]) -> None:
    """Return when every readiness gate has been ready, one after the other in their order.

    Raises:
        GateNotReady: one was not, until the deadline that they share.
    """
    deadline = Deadline.after(world.clock, GATES_S)
    for gate in gates_of(urls):
        _wait_for_gate(world, gate, deadline)


def _wait_for_gate(world: CNIWorld, gate: Gate, deadline: Deadline) -> None:
    result = ProbeResult(problem="it was not asked, because the time was up")
    while not deadline.has_passed:
        next_probe = deadline.capped(PROBE_INTERVAL_S)
        result = world.host.probe(gate.url, deadline=deadline.capped(PROBE_S))
        if result.is_ready:
            return
        left = f"{deadline.remaining_s:.1f} s"
        world.log(Level.ERROR, "waiting for a readiness gate", gate=gate, answer=result, left=left)
        world.clock.sleep(next_probe.remaining_s)
    raise GateNotReady(str(gate), f"it is not ready within {GATES_S:g} s; its last answer: {result}")


def require_ready_gates(world: CNIWorld, urls: tuple[str, ...]) -> None:
    """Return if every readiness gate is ready now.

    Raises:
        GateNotReady: one is not.
    """
    deadline = Deadline.after(world.clock, PROBE_S)
    for gate in gates_of(urls):
        result = world.host.probe(gate.url, deadline=deadline)
        if not result.is_ready:
            raise GateNotReady(str(gate), f"it is not ready; its answer: {result}")


# --- policy ----------------------------------------------------------------------------------------------------------


LOOK_EVERY_S = 0.5
"""How often an ADD looks whether its attachment is still there, and at a file where the kernel reports no changes."""

_LONGEST_HOLD_BACK_S = 10.0**9  # a number in JSON may be larger than any clock


# --- the guard --------------------------------------------------------------------------------------------------------


def close_node(world: CNIWorld, call: AttachmentCall) -> None:
    """Make the guard if the kernel has no table of policy, and no pod is there whose connections it would cut.

    Raises:
        KernelError: it cannot be made; nothing is changed.
    """
    guard = world.open_guard()
    if guard.has_table():
        return
    if guard.has_workload_links():
        # The table may have been made, and the first link after it, between the two looks.
        if not guard.has_table():
            text = "policy is not enforced: pods run on this node without its table, so no guard is made"
            world.log(Level.WARNING, text, **call.fields)
        return
    from netplug_core.dataplane.filter import guard_table  # all rules of policy: needed once a boot

    guard.create(guard_table())
    world.log(Level.INFO, "no pod passes anything until its policy is programmed", **call.fields)


def find_guard_problem(world: CNIWorld) -> str:
    """Why an ADD could not make the guard that it needs now; empty if it could, or if it needs none."""
    guard = world.open_guard()
    try:
        is_needed = not guard.has_table() and not guard.has_workload_links()
    except KernelError as error:
        return str(error)
    return guard.find_problem() if is_needed else ""


# --- holding back -----------------------------------------------------------------------------------------------------


def hold_back(world: CNIWorld, call: AttachmentCall, addresses: tuple[Address, ...], *, since: float) -> bool:
    """Return when policy is programmed for the attachment, or the configured time is up, which is a warning.

    ``since`` is when the attachment was committed (monotonic seconds). False: the attachment was deleted meanwhile.

    Nothing is waited for without an endpoint, which policy is programmed for, nor for a container that is no pod's.
    """
    workload, seconds = call.workload, min(call.netconf.policy_setup_timeout_s, _LONGEST_HOLD_BACK_S)
    if not workload.is_pod or not has_endpoint(workload, world.datastore.description.endpoints):
        return True
    folder = call.netconf.endpoint_status_dir
    path = f"{folder}/{status_file_of(workload)}"
    boot_id = (world.host.find_text(BOOT_ID_FILE) or "").strip()
    expected = EndpointStatus.expected_by(workload, addresses, boot_id=boot_id)
    deadline = Deadline(world.clock, since + seconds)
    has_waited = False
    with world.while_waiting(), world.host.watch_folder(folder) as changes:
        while reason := _find_obstacle(world, path, expected):
            if not _is_attached(world, call):
                return False
            if deadline.has_passed:
                text = "policy is not programmed in time: the pod starts all the same"
                world.log(Level.WARNING, text, **call.fields, path=path, cause=reason, waited=f"{seconds:g} s")
                return True
            if not has_waited:
                world.log(Level.INFO, "waiting for policy", **call.fields, path=path, cause=reason)
                has_waited = True
            changes.wait(deadline.capped(LOOK_EVERY_S).remaining_s)
    world.log(Level.INFO, "policy is programmed", **call.fields)
    return True


def _find_obstacle(world: CNIWorld, path: str, expected: EndpointStatus) -> str:
    """Why a status file does not end the wait; empty if it does."""
    try:
        text = world.host.find_text(path)
    except (OSError, ValueError) as error:  # ValueError: no file can have that path
        return str(error)
    return "there is no such file" if text is None else find_difference(text, expected)


def _is_attached(world: CNIWorld, call: AttachmentCall) -> bool:
    """Whether the host has the attachment's end, which a DEL removes first; also if the kernel would not say."""
    try:
        return world.dataplane.has_host_end(call.link)
    except KernelError:
        return True
