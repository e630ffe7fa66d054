"""The pods, namespaces and nodes of an orchestrator, as values, and the interface that looks them up. Read only.

``registry`` opens an orchestrator by name (``netplug_core.hookspecs``, ``netplug_open_orchestrator``). Its backend
makes these values of the orchestrator's own objects. An ADD looks up its pod and namespace, for their annotations; the
collector (``netplug_core.ipam.gc``) compares allocations with them. A datastore whose endpoints are views of pods shows
pods and namespaces as records too (``POD``, ``NAMESPACE``), which a process that stays can cache.
"""

from __future__ import annotations

import enum
from typing import Protocol

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.records import Kind
from netplug_core.resources.fields import Labels

__all__ = [
    "KUBERNETES_NODE", "NAMESPACE", "POD", "SERVICE_ACCOUNT", "ClusterView", "ContainerPort", "NamespaceFacts",
    "NodeFacts", "Orchestrator", "PodFacts", "PodName", "PodNetwork", "PodPhase", "ServiceAccountFacts",
]  # fmt: skip


# --- model -----------------------------------------------------------------------------------------------------------


_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


class PodPhase(enum.Enum):
    """The phase of a pod. In ``SUCCEEDED`` and ``FAILED`` none of its containers will run again."""

    PENDING = "Pending"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PodNetwork(enum.Enum):
    """Whether a pod has a network of its own or uses its node's."""

    OWN = "own"
    HOST = "host"


@frozen(kw_only=True)
class ContainerPort:
    """A port that a container of the pod declares; ``protocol`` is TCP, UDP or SCTP, numbers of 0 mean not set."""

    name: str = ""
    protocol: str = "TCP"
    port: int
    host_port: int = 0
    host_ip: str = ""


@frozen(order=True)
class PodName:
    """The name of a pod, with its namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@frozen(kw_only=True)
class PodFacts:
    """One pod. ``node`` is empty until it is scheduled; ``addresses`` are those that its node has reported."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    labels: Labels = ()
    annotations: Labels = ()
    service_account: str = ""
    network: PodNetwork = PodNetwork.OWN
    phase: PodPhase = PodPhase.PENDING
    ports: tuple[ContainerPort, ...] = ()
    addresses: tuple[Address, ...] = ()
    generate_name: str = ""
    creation_time_ns: int | None = None
    deletion_time_ns: int | None = None

    @property
    def pod_name(self) -> PodName:
        """Its name, with its namespace."""
        return PodName(self.namespace, self.name)

    @property
    def runtime_uid(self) -> str:
        """The uid by which the runtime knows it: of a static pod that of its own file, which its mirror names."""
        return self.find_annotation(_MIRROR_ANNOTATION) or self.uid

    @property
    def is_terminated(self) -> bool:
        """Whether none of its containers will run again: it has completed, has failed or was evicted."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    def find_annotation(self, name: str) -> str | None:
        """The text of an annotation; None when the pod has no annotation of that name."""
        return dict(self.annotations).get(name)


@frozen(kw_only=True)
class NamespaceFacts:
    """One namespace."""

    name: str
    uid: str
    labels: Labels = ()
    annotations: Labels = ()


@frozen(kw_only=True)
class ServiceAccountFacts:
    """One service account."""

    namespace: str
    name: str
    uid: str
    labels: Labels = ()


POD: Kind[PodFacts] = Kind("Pod", ("namespace", "name"))
"""The pods of a datastore that shows them. They are read only."""

NAMESPACE: Kind[NamespaceFacts] = Kind("Namespace", ("name",))
"""Its namespaces, read only too."""

SERVICE_ACCOUNT: Kind[ServiceAccountFacts] = Kind("ServiceAccount", ("namespace", "name"))
"""Its service accounts, read only too."""


@frozen(kw_only=True)
class NodeFacts:
    """One node. ``pod_cidrs`` are the ranges that the orchestrator has assigned to its pods.

    ``internal_addresses`` are those by which the other nodes of the cluster reach it, as the orchestrator says.
    """

    name: str
    uid: str
    labels: Labels = ()
    annotations: Labels = ()
    pod_cidrs: tuple[Prefix, ...] = ()
    internal_addresses: tuple[Address, ...] = ()


KUBERNETES_NODE: Kind[NodeFacts] = Kind("KubernetesNode", ("name",))
"""Its nodes as the cluster has them, read only too: without the labels that are netplug's own."""


@frozen(kw_only=True)
class ClusterView:
    """All pods, and the names of all nodes that the orchestrator knows or that are registered.

    It is assembled from watches and may be out of date.
    """

    pods: tuple[PodFacts, ...] = ()
    nodes: frozenset[str] = frozenset()


# --- protocol --------------------------------------------------------------------------------------------------------


class Orchestrator(Protocol):
    """Looks up pods, namespaces and nodes. Every call ends by its deadline.

    Raises:
        Unauthorized: the credentials are not accepted, or a right is missing; the error names it.
        Unavailable: it does not answer.
        Malformed: the object that it returned cannot be decoded.
    """

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod of that name; None when there is none."""
        ...

    def find_namespace(self, name: str, *, deadline: Deadline) -> NamespaceFacts | None:
        """The namespace of that name; None when there is none."""
        ...

    def find_node(self, name: str, *, deadline: Deadline) -> NodeFacts | None:
        """The node of that name; None when there is none."""
        ...
