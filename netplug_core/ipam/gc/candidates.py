"""What looks abandoned, and what the orchestrator answers when it is asked about it.

``detect`` makes candidates of a view, which may be out of date; a live lookup of the pod or node has to agree before
an address is freed. Attachments that a runtime names as valid are compared here too.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Protocol, TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.allocation.request import Attachment, ReleaseItem
from netplug_core.ipam.model import RESERVED_HANDLE, Allocation, Attribute, Block, owner_node
from netplug_core.names import DEFAULT_INTERFACE
from netplug_core.orchestrator.model import PodFacts, PodName

__all__ = [
    "AllocationOwner", "LeakReason", "LiveLookup", "LookupResult", "UndeterminedReason", "Verdict",
    "allocation_owners", "attachments", "judge", "owner_of_allocation",
]  # fmt: skip


# --- attachments of a runtime -----------------------------------------------------------------------------------------


def attachments(blocks: Iterable[Block], *, node: str, network: str) -> tuple[Attachment, ...]:
    """The attachments of one network that hold addresses through one node, sorted, with these addresses.

    They are read from the attributes stored with each address, never from the text of a handle. An address that was not
    assigned to a CNI attachment, such as a tunnel address, has no such attributes and is not included.
    """
    found: defaultdict[Attachment, list[ReleaseItem]] = defaultdict(list)
    for block in blocks:
        concerned = {
            held: held.handle
            for held in block.attributes
            if held.handle is not None
            and held.owner_value("node") == node
            and held.owner_value("network") == network
            and held.owner_value("container")
        }
        for attribute, handle in concerned.items():
            found[_attachment(attribute, handle)].extend(
                ReleaseItem(address=held.address, handle=handle, sequence=held.sequence)
                for held in block.held_by(handle)
                if held.attribute == attribute
            )
    return tuple(sorted(evolve(attachment, addresses=tuple(items)) for attachment, items in found.items()))


def _attachment(held: Attribute, handle: str) -> Attachment:
    return Attachment(
        container_id=held.owner_value("container"),
        interface=held.owner_value("interface"),
        handle=handle,
        namespace=held.owner_value("namespace"),
        pod=held.owner_value("pod"),
    )


# --- candidates -------------------------------------------------------------------------------------------------------


_TUNNEL_SUFFIX = "TunnelAddress"
"""The types of tunnel addresses end so: ``ipipTunnelAddress``, ``vxlanV6TunnelAddress``."""


class LeakReason(enum.Enum):
    """Why an allocation looks leaked."""

    POD_MISSING = "its pod does not exist"
    POD_FINISHED = "its pod has finished"
    POD_ELSEWHERE = "its pod runs on another node"
    POD_DIFFERS = "its pod has other addresses"
    NODE_GONE = "its node is gone"


class UndeterminedReason(enum.Enum):
    """Why it cannot be determined whether an allocation is in use. Such an allocation is never freed."""

    NO_HANDLE = "it has no handle"
    NO_OWNER = "its attributes name neither a pod nor a tunnel"
    HALF_A_POD = "its attributes have only one of pod and namespace"
    NO_ORCHESTRATOR = "there is no orchestrator that knows its pod or node"


Verdict: TypeAlias = LeakReason | UndeterminedReason | None
"""The result for one allocation; None: it is in use."""


@frozen(kw_only=True)
class AllocationOwner:
    """An assigned address and its owner, from the attributes stored with it.

    ``node`` is the node that requested it, else the owner of its block; empty if neither is known. ``pod`` and
    ``namespace`` may be empty. ``sequence`` is the sequence number of the assignment.
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
        """Whether it is the node's own address of a tunnel."""
        return self.type.endswith(_TUNNEL_SUFFIX)

    @property
    def pod_name(self) -> PodName | None:
        """The pod that owns it; None if the attributes do not name one."""
        return PodName(self.namespace, self.pod) if self.pod and self.namespace else None


def allocation_owners(block: Block) -> tuple[AllocationOwner, ...]:
    """The owners of all addresses of a block that are assigned, by address.

    Addresses that are cooling down and addresses reserved for the host are not included.
    """
    node = owner_node(block.owner)
    return tuple(
        owner_of_allocation(allocation, block.prefix, node)
        for allocation in block.held()
        if not allocation.is_cooling and allocation.attribute.handle != RESERVED_HANDLE
    )


def judge(owner: AllocationOwner, pods: Mapping[PodName, PodFacts | None], *, gone: Container[str]) -> Verdict:
    """Whether an allocation looks leaked, given the pods that exist and the nodes that are gone.

    A pod that is not in ``pods`` does not exist.
    """
    if owner.handle is None:
        return UndeterminedReason.NO_HANDLE
    if owner.is_tunnel:
        return LeakReason.NODE_GONE if owner.node in gone else None
    pod = owner.pod_name
    if pod is None:
        return UndeterminedReason.HALF_A_POD if owner.pod or owner.namespace else UndeterminedReason.NO_OWNER
    return _judge_by_pod(owner, pods.get(pod))


def _judge_by_pod(owner: AllocationOwner, pod: PodFacts | None) -> LeakReason | None:
    if pod is None:
        return LeakReason.POD_MISSING
    if pod.is_terminated:
        return LeakReason.POD_FINISHED
    if owner.address in pod.addresses:
        return None  # also under another node name: the node may have been renamed since the ADD
    if pod.node and owner.node and pod.node != owner.node:
        return LeakReason.POD_ELSEWHERE
    # A pod without addresses is starting, and this may be the address that it will report.
    is_reported = owner.interface in ("", DEFAULT_INTERFACE) and bool(pod.addresses)
    return LeakReason.POD_DIFFERS if is_reported else None


def owner_of_allocation(allocation: Allocation, block: Prefix, block_node: str) -> AllocationOwner:
    """The owner of one allocation in a block; ``block_node`` is the node that owns the block, empty for none."""
    attributes = dict(allocation.attribute.owner)
    return AllocationOwner(
        address=allocation.address,
        block=block,
        handle=allocation.attribute.handle,
        sequence=allocation.sequence,
        node=attributes.get("node", "") or block_node,
        pod=attributes.get("pod", ""),
        namespace=attributes.get("namespace", ""),
        type=attributes.get("type", ""),
        interface=attributes.get("interface", ""),
    )


# --- live lookups -----------------------------------------------------------------------------------------------------


class LiveLookup(Protocol):
    """Reads one pod or one node directly, without a cache.

    Raises:
        Unavailable, Unauthorized: no answer. The collector then frees nothing of that pod or node.
    """

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        """The pod as it is now; None when it does not exist.

        ``addresses`` has those that its node has reported and those that its annotations name.
        """
        ...

    def has_node(self, name: str, *, deadline: Deadline) -> bool:
        """Whether the orchestrator knows a node of that name, or one is registered."""
        ...


@frozen(kw_only=True)
class LookupResult:
    """The answers to some live lookups.

    ``pods`` has each pod that was looked up, None for one that does not exist. ``gone`` has the nodes that do not exist
    any more. ``unanswered`` has each pod and node for which the lookup failed, and the error.
    """

    pods: Mapping[PodName, PodFacts | None]
    gone: frozenset[str]
    unanswered: Mapping[PodName | str, str]

    def unanswered_text(self, subjects: Iterable[PodName | str]) -> str:
        """Which of some pods and nodes (by name) could not be looked up, and why; empty when all could."""
        failed = [subject for subject in subjects if subject in self.unanswered]
        return "; ".join(
            f"{_kind_of(subject)} {subject} could not be looked up: {self.unanswered[subject]}" for subject in failed
        )


def _kind_of(subject: PodName | str) -> str:
    return "pod" if isinstance(subject, PodName) else "node"
