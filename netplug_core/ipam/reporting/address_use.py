"""Whether an assigned address is in use, for the report of ``netplugctl ipam check``.

Endpoints answer first, then pods, where the datastore shows them. What neither knows is undetermined, and is never
called leaked: another main plugin stores no endpoint for the containers that it attaches.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from attrs import evolve, field, frozen

from netplug_core.addressing import Address
from netplug_core.ipam.gc.candidates import (
    AllocationOwner,
    LeakReason,
    UndeterminedReason,
    judge,
    owner_of_allocation,
)
from netplug_core.ipam.model.affinity import owner_node
from netplug_core.ipam.model.block import Allocation, Block
from netplug_core.orchestrator.model import ClusterView, PodFacts, PodName
from netplug_core.records import Key
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = ["AddressUse", "AddressUsers", "UseState", "use_of"]

_NO_ENDPOINT = "no workload endpoint has it"


class UseState(enum.Enum):
    """Whether an address is used."""

    USED = "used"
    LEAKED = "leaked"
    COOLING = "cooling"
    UNDETERMINED = "undetermined"


@frozen(kw_only=True)
class AddressUse:
    """The state of an address, and as a text who has it, why it is leaked, or why that cannot be determined."""

    state: UseState
    text: str


@frozen(kw_only=True)
class AddressUsers:
    """Who uses addresses: workload endpoints, and the pods and nodes of the cluster.

    ``cluster`` is None if the datastore shows no pods.
    """

    endpoints: Mapping[Address, Key[WorkloadEndpoint]]
    cluster: ClusterView | None = None
    pods: Mapping[PodName, PodFacts | None] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        pods = {pod.pod_name: pod for pod in self.cluster.pods} if self.cluster else {}
        object.__setattr__(self, "pods", pods)


def use_of(allocation: Allocation, block: Block, users: AddressUsers) -> AddressUse:
    """Whether an address of a block is used. It is not one that its host reserves for itself."""
    if allocation.is_cooling:
        return AddressUse(state=UseState.COOLING, text="")
    endpoint = users.endpoints.get(allocation.address)
    if endpoint is not None:
        return AddressUse(state=UseState.USED, text=str(endpoint))
    owner = owner_of_allocation(allocation, block.prefix, owner_node(block.owner))
    by_cluster = _use_in_cluster(owner, users)
    if by_cluster is not None:
        return by_cluster
    unknown = _undetermined_text(allocation, owner, block.owner)
    if unknown:
        return AddressUse(state=UseState.UNDETERMINED, text=unknown)
    return AddressUse(state=UseState.LEAKED, text=_NO_ENDPOINT)


def _use_in_cluster(owner: AllocationOwner, users: AddressUsers) -> AddressUse | None:
    """What pods and nodes say of an address; None if they do not know it. Its handle does not matter to them."""
    cluster = users.cluster
    if cluster is None or not (owner.pod_name or (owner.is_tunnel and owner.node)):
        return None
    gone = frozenset({owner.node} - cluster.nodes)
    verdict = judge(evolve(owner, handle=owner.handle or ""), users.pods, gone=gone)
    if isinstance(verdict, LeakReason):
        return AddressUse(state=UseState.LEAKED, text=verdict.value)
    user = f"node {owner.node}" if owner.is_tunnel else f"pod {owner.pod_name}"
    return AddressUse(state=UseState.USED, text=user)


def _undetermined_text(allocation: Allocation, owner: AllocationOwner, block_owner: str) -> str:
    """Why it cannot be known whether an address without an endpoint is in use; empty if it is leaked."""
    container, service = (allocation.attribute.owner_value(name) for name in ("container", "service"))
    if container:
        return f"container {container} has no endpoint, as one that another main plugin attached"
    if service:
        return f"service {service} is not looked up"
    if block_owner and not owner_node(block_owner):
        return f"its block is no node's but {block_owner}'s, as that of a program or of services"
    if owner.pod_name is None and (owner.pod or owner.namespace):
        return UndeterminedReason.HALF_A_POD.value
    if owner.is_tunnel:
        return f"it is not known whether node {owner.node or 'unknown'} exists"
    return ""
