"""The pod of an ADD: it and its namespace are looked up once, and what they ask for is decided.

``add`` calls it, before it assigns anything, where annotations can be read. A pod without annotations of ours needs no
rule about them.
"""

from __future__ import annotations

from attrs import evolve

from netplug_core.clock import Deadline
from netplug_core.errors import RequestError
from netplug_core.flows.cni.call import AddressRequest, AttachmentCall, FoundPod, assign_request_of, wanted_of
from netplug_core.flows.world import CNIWorld
from netplug_core.names import STORED_ANNOTATIONS
from netplug_core.netconf.model import Requested
from netplug_core.orchestrator.model import PodName
from netplug_core.workload.endpoint import EndpointOptions, find_replaced
from netplug_core.workload.pod import pod_details

__all__ = ["LOOKUP_S", "address_request_of_pod"]

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
        from netplug_core.flows.cni.annotated import annotated_address_request  # most pods do without

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
