"""What the operator acts through. ``netplug_cli.wiring.operator`` opens it."""

from __future__ import annotations

from typing import Protocol

from netplug_core.clock import Deadline
from netplug_core.installation.pools import PoolStep
from netplug_core.operator.state import ClusterMode, Json, ObjectRef
from netplug_core.resources.installation import KubernetesProvider
from netplug_core.resources.ippool import IPPool

__all__ = ["Cluster", "Pools"]


class Cluster(Protocol):
    """The objects of the cluster. Every method raises NetplugError if the server does not answer, or refuses."""

    def find(self, ref: ObjectRef, *, deadline: Deadline) -> Json | None:
        """An object; None if it, or its definition, does not exist."""
        ...

    def list_nodes(self, label: str, *, deadline: Deadline) -> tuple[Json, ...]:
        """The nodes with a label, whatever its value; all of them if it is empty."""
        ...

    def list_pods(self, namespace: str, label: str, *, deadline: Deadline) -> tuple[Json, ...]:
        """The pods of a namespace with a label, such as ``k8s-app=netplug-node``."""
        ...

    def find_modes(self, *, deadline: Deadline) -> frozenset[ClusterMode]:
        """The API groups for netplug's resources that the server offers."""
        ...

    def find_resources(self, mode: ClusterMode, *, deadline: Deadline) -> frozenset[str]:
        """The names under which the server lists the objects of a group."""
        ...

    def find_provider(self, *, deadline: Deadline) -> KubernetesProvider:
        """Which product the cluster is, as far as it shows."""
        ...

    def apply(self, wanted: Json, *, deadline: Deadline, subresource: str = "") -> Json:
        """Make some fields of an object as they are wanted; a ``uid`` is a condition."""
        ...

    def delete(self, ref: ObjectRef, uid: str, *, deadline: Deadline) -> None:
        """Delete the object with that uid; success if it is gone already."""
        ...

    def replace(self, wanted: Json, *, deadline: Deadline) -> Json | None:
        """Store an object whole: a new one, or the one with that ``resourceVersion``; None if it has another."""
        ...


class Pools(Protocol):
    """The pools of the cluster. Every method raises NetplugError if it cannot be done.

    A change may last longer than the Lease, because of the blocks of a pool. Two operators may then make changes at
    once; each write is refused if another one was faster.
    """

    def read(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[IPPool, ...]:
        """All pools."""
        ...

    def change(self, mode: ClusterMode, step: PoolStep) -> None:
        """Create, update or delete a pool, as it was last read."""
        ...

    def find_loss(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[str, bool]:
        """What is wrong where workloads have addresses and blocks are lost, and whether the operator has locked for it.

        The text is empty if nothing is.
        """
        ...

    def lock(self, mode: ClusterMode, *, is_locked: bool) -> None:
        """Lock the datastore because blocks are lost, or unlock it if it is locked for that."""
        ...
