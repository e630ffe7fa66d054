"""Who a call is about, and every name that follows from it. ``flows`` builds it once for a call; pure."""

from __future__ import annotations

from attrs import frozen

from netplug_core.ipam.model.block import Pairs
from netplug_core.names import (
    WorkloadEndpointIdentifiers,
    container_mac,
    handle_id,
    host_interface_name,
    workload_endpoint_name,
)
from netplug_core.records import Key
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, workload_endpoint_key

__all__ = ["DEFAULT_NAMESPACE", "WorkloadIdentity"]

DEFAULT_NAMESPACE = "default"
"""Where the endpoints of containers are kept that no orchestrator named."""


@frozen(kw_only=True)
class WorkloadIdentity:
    """One interface of one container on one network.

    ``pod`` and ``pod_namespace`` are empty unless the runtime named both; texts are verbatim, as the runtime gave them.
    """

    node: str
    network: str
    container_id: str
    interface: str
    pod: str = ""
    pod_namespace: str = ""

    @property
    def orchestrator(self) -> str:
        """``k8s`` for a pod, ``cni`` for a container that no orchestrator named."""
        return "k8s" if self.pod and self.pod_namespace else "cni"

    @property
    def namespace(self) -> str:
        """The namespace of its endpoint."""
        return self.pod_namespace if self.orchestrator == "k8s" else DEFAULT_NAMESPACE

    @property
    def handle(self) -> str:
        """The id that its addresses are held under."""
        return handle_id(self.network, self.container_id, self.interface)

    @property
    def host_interface(self) -> str:
        """The name of the host end of its interface."""
        return host_interface_name(
            pod_namespace=self.pod_namespace, pod=self.pod, container_id=self.container_id, ifname=self.interface
        )

    @property
    def mac(self) -> str:
        """The hardware address of its interface."""
        return container_mac(self.handle)

    @property
    def endpoint_key(self) -> Key[WorkloadEndpoint]:
        """Where its endpoint is stored."""
        is_pod = self.orchestrator == "k8s"
        name = workload_endpoint_name(
            WorkloadEndpointIdentifiers(
                node=self.node,
                orchestrator=self.orchestrator,
                pod=self.pod if is_pod else "",
                container_id=self.container_id,
                endpoint=self.interface,
            )
        )
        return workload_endpoint_key(self.namespace, name)

    @property
    def allocation_attributes(self) -> Pairs:
        """What is stored with its addresses, besides the node and the time: GC and DEL compare these."""
        pairs = [("container", self.container_id), ("interface", self.interface), ("network", self.network)]
        if self.orchestrator == "k8s":
            pairs += [("namespace", self.pod_namespace), ("pod", self.pod)]
        return tuple(sorted(pairs))
