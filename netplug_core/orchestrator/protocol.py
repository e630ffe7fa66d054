"""What the orchestrator knows of pods, namespaces and nodes, and who is asked for it.

``registry`` opens one by name (``netplug_core.hookspecs``, ``netplug_open_orchestrator``); its backend reads the facts
where they are, and rules get them as values. No flow asks for any yet. Nothing here can be written.
"""

from __future__ import annotations

import enum
from typing import Protocol

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.resources.metadata import Labels

__all__ = ["ContainerPort", "NamespaceFacts", "NodeFacts", "Orchestrator", "PodFacts", "PodNetwork", "PodPhase"]


class PodPhase(enum.Enum):
    """How far a pod's life has come. In the last two none of its containers will run again."""

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
    def is_terminated(self) -> bool:
        """Whether none of its containers will run again."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    def find_annotation(self, name: str) -> str | None:
        """The text of an annotation; None when it has none of that name."""
        return dict(self.annotations).get(name)


@frozen(kw_only=True)
class NamespaceFacts:
    """One namespace."""

    name: str
    uid: str
    labels: Labels = ()
    annotations: Labels = ()


@frozen(kw_only=True)
class NodeFacts:
    """One node, with the ranges that the orchestrator set aside for its pods."""

    name: str
    uid: str
    labels: Labels = ()
    annotations: Labels = ()
    pod_cidrs: tuple[Prefix, ...] = ()


class Orchestrator(Protocol):
    """Answers questions about what is scheduled. Every call ends by its deadline.

    Raises:
        Unauthorized: it does not know us, or we lack a right, which the error names.
        Unavailable: it does not answer.
        Malformed: what it has cannot be understood.
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
