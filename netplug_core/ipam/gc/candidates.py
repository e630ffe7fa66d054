"""What looks abandoned, what the orchestrator answers when it is asked about it, and the other values of the collector.

``detect`` makes candidates of a view, which may be out of date; a live lookup of the pod or node has to agree before
an address is freed. Attachments that a runtime names as valid are compared here too.

The values are what ``detect`` and ``reclaim`` take and return: input, history between scans, actions and a report. The
text of an action says what is done and why; logs use it.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Generic, Protocol, TypeAlias, TypeVar

from attrs import evolve, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.allocation.context import ACTIONS_PER_COMMIT
from netplug_core.ipam.allocation.request import Attachment, ReleaseItem
from netplug_core.ipam.model import (
    RESERVED_HANDLE,
    Affinity,
    Allocation,
    Attribute,
    Block,
    Handle,
    claimed_block,
    claiming_owner,
    owner_node,
)
from netplug_core.names import DEFAULT_INTERFACE
from netplug_core.orchestrator.model import ClusterView, PodFacts, PodName
from netplug_core.records import Key, Malformed, Record, Revision
from netplug_core.resources.ippool import IPPool

__all__ = [
    "AllocationOwner", "AllocationRef", "Candidate", "CollectionReport", "CollectorSettings", "DeleteBlock",
    "ExpireCooldown", "FailedAction", "FreeCondition", "FreeHandle", "GCAction", "GoneNode", "IdleReason",
    "Inconsistencies", "Leak", "LeakReason", "LiveLookup", "LookupResult", "RecordRef", "RelinquishAffinity",
    "RelinquishReason", "RepairHandle", "ScanHistory", "ScanResult", "ScanTime", "StoreView", "Undetermined",
    "UndeterminedReason", "Verdict", "WaitingNode", "allocation_owners", "attachments", "judge", "owner_of_allocation",
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


# --- values ----------------------------------------------------------------------------------------------------------

V_co = TypeVar("V_co", covariant=True)

# --- input -----------------------------------------------------------------------------------------------------


class IdleReason(enum.Enum):
    """Why the collector does nothing."""

    INCOMPLETE = "not everything has been read yet"
    LOCKED = "ClusterInformation default: spec.datastoreReady is false"


@frozen(kw_only=True)
class StoreView:
    """The contents of the store and the state of the cluster. It may be out of date.

    ``handles`` may lack those that count what the blocks hold. ``cooldown_ns`` is the configured cooldown. ``cluster``
    is None if there is no orchestrator: then it is not known which addresses are in use. If ``idle`` is set, the
    collector does nothing with this view. ``unreadable`` are errors for records that cannot be decoded.
    """

    blocks: tuple[Record[Block], ...] = ()
    handles: tuple[Record[Handle], ...] = ()
    affinities: tuple[Record[Affinity], ...] = ()
    pools: tuple[Record[IPPool], ...] = ()
    cooldown_ns: int = 0
    cluster: ClusterView | None = None
    idle: IdleReason | None = None
    unreadable: tuple[Malformed, ...] = ()


@frozen(kw_only=True)
class CollectorSettings:
    """How long the collector waits, and how much it does in one tick.

    ``grace_s`` is the grace period: how long a candidate must look abandoned, in every scan, before it is acted on.
    With 0, only gone nodes and expired cooldowns are acted on. ``max_actions`` limits the actions of each kind in one
    tick, ``batch_size`` those of one commit, and ``tick_s`` the duration of a tick.
    """

    grace_s: float = 900.0
    max_actions: int = 1000
    batch_size: int = ACTIONS_PER_COMMIT
    tick_s: float = 120.0


@frozen(kw_only=True)
class ScanTime:
    """The time of a scan: by the wall clock, for stored timestamps, and by a monotonic clock, for the grace period."""

    wall_ns: int
    elapsed_ms: int


# --- history -----------------------------------------------------------------------------------------------


@frozen
class AllocationRef:
    """One assignment of an address. The next assignment has another sequence number, so it is another candidate."""

    address: Address
    handle: str
    sequence: int


@frozen
class RecordRef(Generic[V_co]):
    """A record at one revision. Once it is written again, it is another candidate."""

    key: Key[V_co]
    revision: Revision

    @classmethod
    def of(cls, record: Record[V_co]) -> RecordRef[V_co]:
        """The reference to a record as it was read."""
        return cls(record.key, record.revision)


Candidate: TypeAlias = AllocationRef | RecordRef[object]
"""What looks abandoned: an assignment, or a record at the revision at which it looks so."""


@frozen(kw_only=True)
class ScanHistory:
    """What one tick passes to the next: since when each candidate looks abandoned, and how often each action failed.

    It contains only what was in the last view, so its size is bounded by the store.
    """

    since: tuple[tuple[Candidate, int], ...] = ()
    failures: tuple[tuple[str, int], ...] = ()

    def without(self, candidates: Iterable[Candidate]) -> ScanHistory:
        """This history without some candidates. If they are found again, their grace period starts again."""
        dropped = frozenset(candidates)
        return ScanHistory(since=tuple(pair for pair in self.since if pair[0] not in dropped), failures=self.failures)


# --- actions -------------------------------------------------------------------------------------------------


class FreeCondition(enum.Enum):
    """The condition under which a leaked address may be freed."""

    GRACE = "unused for the grace period"
    NODE_GONE = "its node is gone"


@frozen(kw_only=True)
class Leak:
    """An address that looks leaked. ``condition`` is None while it may not be freed yet."""

    owner: AllocationOwner
    reason: LeakReason
    condition: FreeCondition | None

    def __str__(self) -> str:
        owner = self.owner
        name = f"pod {owner.pod_name}" if owner.pod_name else owner.type
        return f"{owner.address} of {name} on node {owner.node or 'unknown'} ({self.reason.value})"


@frozen(kw_only=True)
class FreeHandle:
    """Free all addresses of a handle. All of them are leaked."""

    handle: str
    leaks: tuple[Leak, ...]

    @property
    def subject(self) -> str:
        """What the action is about."""
        return f"handle {self.handle}"

    @property
    def candidates(self) -> tuple[AllocationRef, ...]:
        """The assignments that are leaked."""
        return tuple(AllocationRef(leak.owner.address, self.handle, leak.owner.sequence) for leak in self.leaks)

    def __str__(self) -> str:
        return f"free the addresses of handle {self.handle}: {'; '.join(str(leak) for leak in self.leaks)}"


@frozen(kw_only=True)
class RepairHandle:
    """Correct the counts of a handle, or delete it if its blocks hold nothing for it.

    ``blocks`` are those that the handle names and those that name the handle.
    """

    record: RecordRef[Handle]
    blocks: tuple[Prefix, ...]

    @property
    def subject(self) -> str:
        """What the action is about."""
        return f"handle {self.record.key.name}"

    def __str__(self) -> str:
        return f"repair handle {self.record.key.name}: its counts differ from its blocks"


@frozen(kw_only=True)
class ExpireCooldown:
    """Free the addresses of a block whose cooldown has expired."""

    record: RecordRef[Block]

    @property
    def subject(self) -> str:
        """What the action is about."""
        return f"expired cooldowns of block {self.record.key.name}"

    def __str__(self) -> str:
        return f"free the addresses of block {self.record.key.name} whose cooldown has expired"


@frozen(kw_only=True)
class DeleteBlock:
    """Delete an empty block without an affinity. ``affinity`` is the key of its owner's; None if it has no owner."""

    record: RecordRef[Block]
    affinity: Key[Affinity] | None

    @property
    def subject(self) -> str:
        """What the action is about."""
        return f"block {self.record.key.name}"

    def __str__(self) -> str:
        return f"delete block {self.record.key.name}: it is empty and has no affinity"


class RelinquishReason(enum.Enum):
    """Why an affinity is relinquished."""

    NO_BLOCK = "there is no such block"
    FOREIGN = "the block has another owner"
    UNUSED = "the block is empty, and the node has others"
    NODE_GONE = "the node is gone"


@frozen(kw_only=True)
class RelinquishAffinity:
    """Relinquish an affinity, together with its block if that is empty. A block that is not empty stays as it is.

    ``revision`` must not have changed since the scan. It is the revision of the block for ``UNUSED``, and of the
    affinity for ``NO_BLOCK`` and ``FOREIGN``. It is None for a node that is gone, which changes nothing any more.
    """

    affinity: Key[Affinity]
    reason: RelinquishReason
    revision: Revision | None = None

    @property
    def subject(self) -> str:
        """What the action is about."""
        return str(self.affinity)

    def __str__(self) -> str:
        owner, block = claiming_owner(self.affinity), claimed_block(self.affinity)
        return f"relinquish the affinity of {owner} for block {block}: {self.reason.value}"


GCAction: TypeAlias = FreeHandle | RepairHandle | ExpireCooldown | DeleteBlock | RelinquishAffinity


@frozen(kw_only=True)
class GoneNode:
    """A node that does not exist any more, and its affinities that can be relinquished.

    They are relinquished once the handles in ``awaits`` are freed. ``kept_by`` are addresses that may be in use;
    because of them, other affinities of the node are kept for now.
    """

    node: str
    affinities: tuple[RelinquishAffinity, ...] = ()
    awaits: frozenset[str] = frozenset()
    kept_by: tuple[Address, ...] = ()


# --- results ---------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Undetermined:
    """An address that is not freed because it cannot be determined whether it is in use."""

    owner: AllocationOwner
    reason: UndeterminedReason

    def __str__(self) -> str:
        return f"{self.owner.address} (handle {self.owner.handle}): {self.reason.value}"


@frozen(kw_only=True)
class ScanResult:
    """What a scan found. The actions of each kind are due, the most urgent first.

    ``candidates`` look leaked, but may not be freed yet, or not without the other addresses of their handle.
    ``unreadable`` are records that cannot be decoded, and affinities whose keys name no block; they are left alone.
    """

    history: ScanHistory
    leaks: tuple[FreeHandle, ...] = ()
    cooldowns: tuple[ExpireCooldown, ...] = ()
    affinities: tuple[RelinquishAffinity, ...] = ()
    blocks: tuple[DeleteBlock, ...] = ()
    handles: tuple[RepairHandle, ...] = ()
    gone: tuple[GoneNode, ...] = ()
    candidates: tuple[Leak, ...] = ()
    undetermined: tuple[Undetermined, ...] = ()
    unreadable: tuple[Malformed, ...] = ()


@frozen(kw_only=True)
class Inconsistencies:
    """The records that do not fit together, as the actions that repair them; ``unreadable`` have keys of no block."""

    handles: tuple[RepairHandle, ...]
    affinities: tuple[RelinquishAffinity, ...]
    blocks: tuple[DeleteBlock, ...]
    unreadable: tuple[Malformed, ...]


@frozen(kw_only=True)
class FailedAction:
    """An action that failed, or that could not be confirmed. The next tick tries it again, after the others."""

    action: GCAction
    cause: str

    def __str__(self) -> str:
        return f"could not {self.action}: {self.cause}"


@frozen(kw_only=True)
class WaitingNode:
    """A gone node whose affinities are kept because of addresses that may be in use."""

    node: str
    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        return f"node {self.node} is gone; its affinities are kept because of {', '.join(map(str, self.addresses))}"


@frozen(kw_only=True)
class CollectionReport:
    """The result of one tick.

    ``skipped`` actions concern records that were changed after the view was read; the next scan sees them again.
    ``in_use`` handles look leaked in the view and are in use according to live lookups. ``postponed`` counts actions
    that were due, but exceed the limits of one tick. ``pending`` are records that look abandoned, and wait for the
    grace period.
    """

    idle: IdleReason | None = None
    done: tuple[GCAction, ...] = ()
    skipped: tuple[GCAction, ...] = ()
    failures: tuple[FailedAction, ...] = ()
    in_use: tuple[FreeHandle, ...] = ()
    candidates: tuple[Leak, ...] = ()
    undetermined: tuple[Undetermined, ...] = ()
    unreadable: tuple[Malformed, ...] = ()
    waiting: tuple[WaitingNode, ...] = ()
    pending: tuple[RecordRef[object], ...] = ()
    postponed: int = 0

    @property
    def freed(self) -> tuple[Leak, ...]:
        """The leaked addresses that were freed, with the reasons."""
        return tuple(leak for action in self.done if isinstance(action, FreeHandle) for leak in action.leaks)

    @property
    def is_settled(self) -> bool:
        """Whether everything that was due is done. If not, the next tick should follow soon."""
        return not (self.idle or self.failures or self.postponed)

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to report: no action, no failure, no candidate."""
        return self.is_settled and not (self.done or self.skipped or self.in_use or self.candidates)
