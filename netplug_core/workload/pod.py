"""What a pod says about its endpoint: labels, ports, service account and profiles.

An ADD stores this where endpoints are records. Where they are views of pods, the backend shows it. So the endpoint of a
pod says the same in every datastore.
"""

from __future__ import annotations

from attrs import frozen

from netplug_core.orchestrator.model import ContainerPort, PodFacts
from netplug_core.resources.metadata import Labels
from netplug_core.resources.profile import pod_profiles
from netplug_core.resources.workloadendpoint import EndpointPort

__all__ = ["PodDetails", "pod_details"]

_PROTOCOLS = ("TCP", "UDP", "SCTP")


@frozen(kw_only=True)
class PodDetails:
    """The part of an endpoint that is copied from its pod.

    ``profiles`` are those of the pod's namespace and service account.
    """

    labels: Labels = ()
    generate_name: str = ""
    service_account: str = ""
    ports: tuple[EndpointPort, ...] = ()
    profiles: tuple[str, ...] = ()


def pod_details(pod: PodFacts) -> PodDetails:
    """The part of a pod's endpoint that is copied from it.

    A port counts if it has a name or is a port of the host too, and if policy can match its protocol.
    """
    return PodDetails(
        labels=pod.labels,
        generate_name=pod.generate_name,
        service_account=pod.service_account,
        ports=tuple(_endpoint_port(port) for port in pod.ports if _counts(port)),
        profiles=pod_profiles(pod.namespace, pod.service_account),
    )


def _counts(port: ContainerPort) -> bool:
    is_meant = port.port != 0 and bool(port.name or port.host_port)
    return is_meant and port.protocol.upper() in _PROTOCOLS


def _endpoint_port(port: ContainerPort) -> EndpointPort:
    return EndpointPort(
        name=port.name,
        protocol=port.protocol.upper(),
        port=port.port,
        host_port=port.host_port,
        host_ip=port.host_ip,
    )
