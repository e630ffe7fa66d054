"""The cluster that netplug is installed in, as values, and the interface that reads and changes it.

Backends implement it. ``cluster_rules`` judges an Installation for a cluster, ``cluster_status`` judges what runs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Protocol

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from netplug_core.resources.installation import KubernetesProvider

__all__ = [
    "ApplyEffect", "Cluster", "ClusterInventory", "ClusterNode", "ClusterState", "DaemonSetState", "FieldConflict",
    "InstallationState", "OperatorState", "Ownership", "PodState", "Writing",
]  # fmt: skip

Json = Mapping[str, object]


class ApplyEffect(enum.Enum):
    """What applying an object did to it."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


class Ownership(enum.Enum):
    """What happens to fields that another manager has set to another value."""

    RESPECTED = "respected"
    TAKEN = "taken"


class Writing(enum.Enum):
    """Whether the API server stores what it accepts."""

    STORED = "stored"
    TRIED = "tried"


class FieldConflict(ConfigurationError):
    """Fields of an object belong to another manager. ``where`` is the object, ``value`` names fields and owners."""

    def __str__(self) -> str:
        return f"{self.value}; {self.accepted}"


@frozen(kw_only=True)
class ClusterNode:
    """A node: its addresses, and the prefixes that the platform has given it for its pods."""

    name: str
    addresses: tuple[Address, ...] = ()
    pod_prefixes: tuple[Prefix, ...] = ()


@frozen(kw_only=True)
class ClusterInventory:
    """What a cluster has that an Installation has to fit.

    ``crd_mode`` is ``v1`` or ``v3``, empty if there are no definitions yet. ``has_pools`` is whether pools can be read;
    after an installation that was interrupted they may not. ``service_prefixes`` are empty if they cannot be known.
    ``platform_prefixes`` are the pod CIDRs that it was set up with. ``operated_object`` is the name of an object that
    shows that an operator installs netplug, empty if there is none. ``daemonsets`` are the namespaces in which netplug
    has a DaemonSet.
    """

    crd_mode: str = ""
    has_pools: bool = False
    nodes: tuple[ClusterNode, ...] = ()
    service_count: int = 0
    service_prefixes: tuple[Prefix, ...] = ()
    platform_prefixes: tuple[Prefix, ...] = ()
    provider: KubernetesProvider = KubernetesProvider.OTHER
    has_aws_node: bool = False
    operated_object: str = ""
    daemonsets: tuple[str, ...] = ()


@frozen(kw_only=True)
class PodState:
    """A pod of a node. ``problem`` is what keeps a container from running; empty if it only takes its time."""

    name: str
    node: str
    is_ready: bool = False
    problem: str = ""


@frozen(kw_only=True)
class DaemonSetState:
    """A DaemonSet of netplug. ``is_observed`` is whether the counts are those of its latest change.

    ``assigns_addresses`` is whether the pods' addresses come from pools; ``datastore`` is the type of their datastore.
    """

    namespace: str
    is_observed: bool
    desired: int
    updated: int
    assigns_addresses: bool
    datastore: str


@frozen(kw_only=True)
class InstallationState:
    """The conditions of an Installation: each with its type, its status, and its message.

    ``generation`` counts the changes of its settings, ``observed_generation`` is that of which the conditions speak.
    """

    name: str
    conditions: tuple[tuple[str, str, str], ...] = ()
    generation: int = 0
    observed_generation: int = 0
    is_being_deleted: bool = False


@frozen(kw_only=True)
class OperatorState:
    """What shows whether an operator runs.

    ``holder`` is the process that has the Lease, empty if none has, and ``renewed`` when it has renewed it, as a text
    of the API. ``is_renewed`` is whether that goes on. ``pods`` are those of the operator, in their ``namespace``.
    """

    holder: str = ""
    renewed: str = ""
    is_renewed: bool = True
    pods: tuple[PodState, ...] = ()
    namespace: str = ""

    @property
    def pod(self) -> str:
        """The name of the pod that has the Lease: the name of a process has more behind it."""
        return self.holder.partition("_")[0]

    @property
    def is_acting(self) -> bool:
        """Whether an operator acts upon the Installation."""
        return bool(self.holder) and self.is_renewed


_NO_OPERATOR = OperatorState()


@frozen(kw_only=True)
class ClusterState:
    """What of netplug is in a cluster. ``definitions`` are names of CRDs, and whether they are established.

    ``nodes`` are the names of those that run Linux; ``pods`` are those of the DaemonSets.
    """

    crd_mode: str = ""
    definitions: tuple[tuple[str, bool], ...] = ()
    daemonsets: tuple[DaemonSetState, ...] = ()
    pods: tuple[PodState, ...] = ()
    nodes: tuple[str, ...] = ()
    installations: tuple[InstallationState, ...] = ()
    operator: OperatorState = _NO_OPERATOR


class Cluster(Protocol):
    """The API server of a cluster."""

    def apply(self, wanted: Json, *, ownership: Ownership, writing: Writing, deadline: Deadline) -> ApplyEffect:
        """Give an object the fields that are wanted; others stay.

        Raises:
            FieldConflict: fields belong to another manager, and ownership is respected.
            ConfigurationError: the server does not accept the object.
            Unavailable: the server does not answer, or a right is missing.
        """
        ...

    def find_resources(self, crd_mode: str, *, deadline: Deadline) -> frozenset[str]:
        """The names under which netplug's objects can be listed; errors are those of ``read_state``."""
        ...

    def remove_installation(self, *, deadline: Deadline) -> tuple[str, ...]:
        """Delete the Installations and the components, unless that has begun; which of them are still there.

        An operator removes what it has installed before it lets an Installation go. Errors are those of ``read_state``.
        """
        ...

    def find_service_prefixes(self, *, deadline: Deadline) -> tuple[Prefix, ...]:
        """The prefixes of the addresses of services, none if they are not known; errors are those of ``read_state``."""
        ...

    def read_inventory(self, *, deadline: Deadline) -> ClusterInventory:
        """What an Installation has to fit; errors are those of ``read_state``."""
        ...

    def read_operator(self, *, deadline: Deadline) -> OperatorState:
        """What shows whether an operator runs; errors are those of ``read_state``."""
        ...

    def read_state(self, *, deadline: Deadline) -> ClusterState:
        """What of netplug is there.

        Raises:
            Unavailable: the server does not answer, or a right is missing.
        """
        ...
