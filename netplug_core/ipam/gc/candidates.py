"""Who holds addresses, and whether the holder still uses them: the collector's judgement of one address.

It compares the attributes stored with an address with what an orchestrator says of the pod and the node they name;
nothing is read out of a handle's text. ``survey`` judges by the view, ``confirmed`` by the witness, with one rule.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Mapping
from typing import TypeAlias

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.model.affinity import owner_node
from netplug_core.ipam.model.block import RESERVED_HANDLE, Attribute, Block
from netplug_core.orchestrator.model import PodFacts, PodName

__all__ = ["AllocationOwner", "LeakReason", "UndeterminedReason", "Verdict", "allocation_owners", "judge"]

# The pod's status names the addresses of this interface; of any further one only the pod itself is known.
_REPORTED_INTERFACE = "eth0"
_TUNNEL_TYPES = "TunnelAddress"  # ipipTunnelAddress, vxlanV6TunnelAddress and their kin end like this


class LeakReason(enum.Enum):
    """Why nobody uses an address that is held."""

    POD_MISSING = "its pod does not exist"
    POD_FINISHED = "its pod has finished"
    POD_ELSEWHERE = "its pod runs on another node"
    POD_DIFFERS = "its pod has other addresses"
    NODE_GONE = "its node is gone"


class UndeterminedReason(enum.Enum):
    """Why nobody can say whether an address is used; such an address is never freed."""

    NO_HANDLE = "it has no handle"
    NO_OWNER = "its attributes name neither a pod nor a tunnel"
    HALF_A_POD = "its attributes have only one of pod and namespace"
    NO_ORCHESTRATOR = "there is no orchestrator that knows its pod or node"


Verdict: TypeAlias = LeakReason | UndeterminedReason | None
"""What a rule says of a held address; None: it is used."""


@frozen(kw_only=True)
class AllocationOwner:
    """An address that is held, and who holds it, as its attributes say.

    ``node`` is the one that asked for it, else the owner of its block; empty where neither is known. ``pod`` and
    ``namespace`` may be empty. ``sequence`` is the number that the block remembers for it.
    """

    address: Address
    block: Prefix
    handle: str | None
    sequence: int
    node: str
    pod: str = ""
    namespace: str = ""
    type: str = ""
    interface: str = ""

    @property
    def is_tunnel(self) -> bool:
        """Whether the node itself holds it, as an end of a tunnel."""
        return self.type.endswith(_TUNNEL_TYPES)

    @property
    def pod_name(self) -> PodName | None:
        """The pod that holds it; None where the attributes do not name one."""
        return PodName(self.namespace, self.pod) if self.pod and self.namespace else None


def allocation_owners(block: Block) -> tuple[AllocationOwner, ...]:
    """What is held in a block, by address: neither what cools down nor what its host keeps back."""
    node = owner_node(block.owner)
    return tuple(
        _allocation_owner(held.attribute, (held.address, block.prefix, held.sequence), node)
        for held in block.held()
        if not held.is_cooling and held.attribute.handle != RESERVED_HANDLE
    )


def judge(holding: AllocationOwner, pods: Mapping[PodName, PodFacts | None], *, gone: Container[str]) -> Verdict:
    """Whether an address is used, by what is known of pods and of the nodes that are gone.

    A pod that is not among ``pods`` does not exist.
    """
    if holding.handle is None:
        return UndeterminedReason.NO_HANDLE
    if holding.is_tunnel:
        return LeakReason.NODE_GONE if holding.node in gone else None
    pod = holding.pod_name
    if pod is None:
        return UndeterminedReason.HALF_A_POD if holding.pod or holding.namespace else UndeterminedReason.NO_OWNER
    return _judge_by_pod(holding, pods.get(pod))


def _judge_by_pod(holding: AllocationOwner, pod: PodFacts | None) -> LeakReason | None:
    if pod is None:
        return LeakReason.POD_MISSING
    if pod.is_terminated:
        return LeakReason.POD_FINISHED
    if pod.node and holding.node and pod.node != holding.node:
        return LeakReason.POD_ELSEWHERE
    # A pod without addresses is starting: this may well be the one it is about to report.
    is_reported = holding.interface in ("", _REPORTED_INTERFACE) and bool(pod.addresses)
    return LeakReason.POD_DIFFERS if is_reported and holding.address not in pod.addresses else None


def _allocation_owner(attribute: Attribute, place: tuple[Address, Prefix, int], node: str) -> AllocationOwner:
    owner = dict(attribute.owner)
    address, block, sequence = place
    return AllocationOwner(
        address=address,
        block=block,
        handle=attribute.handle,
        sequence=sequence,
        node=owner.get("node", "") or node,
        pod=owner.get("pod", ""),
        namespace=owner.get("namespace", ""),
        type=owner.get("type", ""),
        interface=owner.get("interface", ""),
    )
