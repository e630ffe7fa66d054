"""The workload of a call, and every name that follows from it. A flow makes it once for a call."""

from __future__ import annotations

from attrs import Factory, field, frozen

from netplug_core.ipam.model.block import Pairs
from netplug_core.names import (
    KUBERNETES_ORCHESTRATOR,
    HostInterfaceAlias,
    WorkloadEndpointIdentifiers,
    container_mac,
    former_host_interface_name,
    handle_id,
    host_interface_alias,
    host_interface_name,
    orchestrator_of,
    workload_endpoint_name,
)
from netplug_core.records import Key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = ["DEFAULT_NAMESPACE", "WorkloadIdentity"]

DEFAULT_NAMESPACE = "default"
"""The namespace of the endpoints of containers that no orchestrator named."""


def _orchestrator(of: WorkloadIdentity) -> str:
    return orchestrator_of(pod_namespace=of.pod_namespace, pod=of.pod)


def _namespace(of: WorkloadIdentity) -> str:
    return of.pod_namespace if of.is_pod else DEFAULT_NAMESPACE


def _handle(of: WorkloadIdentity) -> str:
    return handle_id(of.network, of.container_id, of.interface)


def _host_interface(of: WorkloadIdentity) -> str:
    return host_interface_name(
        pod_namespace=of.pod_namespace, pod=of.pod, container_id=of.container_id, ifname=of.interface
    )


def _host_interface_alias(of: WorkloadIdentity) -> HostInterfaceAlias:
    return host_interface_alias(
        network=of.network,
        container_id=of.container_id,
        ifname=of.interface,
        pod_namespace=of.pod_namespace,
        pod=of.pod,
    )


def _mac(of: WorkloadIdentity) -> str:
    return container_mac(of.handle)


def _endpoint_key(of: WorkloadIdentity) -> Key[WorkloadEndpoint]:
    name = workload_endpoint_name(
        WorkloadEndpointIdentifiers(
            node=of.node,
            orchestrator=of.orchestrator,
            pod=of.pod if of.is_pod else "",
            container_id=of.container_id,
            endpoint=of.interface,
        )
    )
    return WORKLOAD_ENDPOINT.key(of.namespace, name)


@frozen(kw_only=True)
class WorkloadIdentity:
    """One interface of one container on one network, with every name that follows from it, worked out once.

    ``pod`` and ``pod_namespace`` are empty unless the runtime named both; texts are as the runtime gave them.
    ``pod_uid`` is empty unless the runtime named it.
    ``orchestrator`` is ``k8s`` for a pod and ``cni`` for a container that no orchestrator named; ``namespace`` is that
    of the endpoint. The addresses are held under ``handle``; ``host_interface`` is the name of the host end, and
    ``host_interface_alias`` says whose it is. ``mac`` is the hardware address of the container's end, and
    ``endpoint_key`` is where the endpoint is stored.

    Raises:
        InvalidName: the endpoint has no name, because the node, the container or the interface is empty.
    """

    node: str
    network: str
    container_id: str
    interface: str
    pod: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""
    orchestrator: str = field(init=False, eq=False, default=Factory(_orchestrator, takes_self=True))
    namespace: str = field(init=False, eq=False, default=Factory(_namespace, takes_self=True))
    handle: str = field(init=False, eq=False, default=Factory(_handle, takes_self=True))
    host_interface: str = field(init=False, eq=False, default=Factory(_host_interface, takes_self=True))
    host_interface_alias: HostInterfaceAlias = field(
        init=False, eq=False, default=Factory(_host_interface_alias, takes_self=True)
    )
    mac: str = field(init=False, eq=False, default=Factory(_mac, takes_self=True))
    endpoint_key: Key[WorkloadEndpoint] = field(init=False, eq=False, default=Factory(_endpoint_key, takes_self=True))

    @property
    def former_host_interface(self) -> str:
        """The name of the host end if a version of netplug that wrote no aliases made it."""
        return former_host_interface_name(
            pod_namespace=self.pod_namespace, pod=self.pod, container_id=self.container_id, ifname=self.interface
        )

    @property
    def is_pod(self) -> bool:
        """Whether the runtime named a pod."""
        return self.orchestrator == KUBERNETES_ORCHESTRATOR

    @property
    def allocation_attributes(self) -> Pairs:
        """What is stored with the addresses, besides the node and the time: GC and DEL compare these."""
        pairs = [("container", self.container_id), ("interface", self.interface), ("network", self.network)]
        if self.is_pod:
            pairs += [("namespace", self.pod_namespace), ("pod", self.pod)]
        return tuple(sorted(pairs))
