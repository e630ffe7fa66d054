"""The collector's values: what it looks at, what it remembers, what it is about to do, and what it did.

``survey`` turns a view and a memory into findings, ``confirmation`` weighs them against a witness, ``reclaim`` decides
the writes, and ``flows.collect`` does it all once. Each action says in its text what is done and why: logs and
reports are made of it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Generic, TypeAlias, TypeVar

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.ipam.gc.candidates import AllocationOwner, LeakReason, UndeterminedReason
from netplug_core.ipam.model.affinity import Affinity, claimed_block, claiming_owner
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.model.handle import Handle
from netplug_core.orchestrator.model import ClusterView
from netplug_core.records import Key, Malformed, Record, Revision
from netplug_core.resources.ippool import IPPool

__all__ = [
    "AllocationRef",
    "Candidate",
    "CollectionReport",
    "CollectorSettings",
    "DeleteBlock",
    "ExpireCooldown",
    "FailedAction",
    "FreeCondition",
    "FreeHandle",
    "GCAction",
    "GoneNode",
    "IdleReason",
    "Leak",
    "RecordRef",
    "RelinquishAffinity",
    "RelinquishReason",
    "RepairHandle",
    "ScanHistory",
    "ScanResult",
    "ScanTime",
    "StoreView",
    "Undetermined",
    "WaitingNode",
]

V_co = TypeVar("V_co", covariant=True)

# --- what goes in -----------------------------------------------------------------------------------------------------


class IdleReason(enum.Enum):
    """Why the collector does nothing at all."""

    INCOMPLETE = "not everything has been read yet"
    LOCKED = "ClusterInformation default: spec.datastoreReady is false"


@frozen(kw_only=True)
class StoreView:
    """The store and the cluster as they are known, perhaps a little behind.

    ``cooldown_ns`` is the configured one. ``cluster`` is None where no orchestrator stands behind the store: nothing
    is known then about who still uses an address.
    """

    blocks: tuple[Record[Block], ...] = ()
    handles: tuple[Record[Handle], ...] = ()
    affinities: tuple[Record[Affinity], ...] = ()
    pools: tuple[Record[IPPool], ...] = ()
    cooldown_ns: int = 0
    cluster: ClusterView | None = None
    idle: IdleReason | None = None


@frozen(kw_only=True)
class CollectorSettings:
    """How patient the collector is, and how much it does at once.

    ``grace_s``: how long a thing must look abandoned, without a break, before it is taken for that; 0 switches off
    everything that waits, and leaves what gone nodes held and what has cooled down. ``most`` bounds the actions of
    each sort in one tick, ``batch`` those of one commit, ``longest_s`` the tick as a whole.
    """

    grace_s: float = 900.0
    max_actions: int = 1000
    batch_size: int = 16
    tick_s: float = 120.0


@frozen(kw_only=True)
class ScanTime:
    """Now: on the wall clock, which stored stamps are compared with, and on one that never jumps, for patience."""

    wall_ns: int
    elapsed_ms: int


# --- what is remembered -----------------------------------------------------------------------------------------------


@frozen
class AllocationRef:
    """An address as a handle took it; taken anew, it has another number and is another suspect."""

    address: Address
    handle: str
    sequence: int


@frozen
class RecordRef(Generic[V_co]):
    """A record in one of its states; written once more, it is another suspect."""

    key: Key[V_co]
    revision: Revision

    @classmethod
    def of(cls, record: Record[V_co]) -> RecordRef[V_co]:
        """A record as it was read."""
        return cls(record.key, record.revision)


Candidate: TypeAlias = AllocationRef | RecordRef[object]
"""What looks abandoned, in exactly the state in which it does."""


@frozen(kw_only=True)
class ScanHistory:
    """What one tick hands to the next: since when each suspect looks abandoned, and how often an action failed.

    It names only what the last view still had, so it never outgrows the store.
    """

    since: tuple[tuple[Candidate, int], ...] = ()
    failures: tuple[tuple[str, int], ...] = ()

    def without(self, suspects: Iterable[Candidate]) -> ScanHistory:
        """This memory without some suspects: their time starts anew if they are seen again."""
        dropped = frozenset(suspects)
        return ScanHistory(since=tuple(pair for pair in self.since if pair[0] not in dropped), failures=self.failures)


# --- what may be done -------------------------------------------------------------------------------------------------


class FreeCondition(enum.Enum):
    """What allows an unused address to be freed."""

    GRACE = "unused for the grace period"
    NODE_GONE = "its node is gone"


@frozen(kw_only=True)
class Leak:
    """An address that nobody uses; ``basis`` is None while that does not yet allow to free it."""

    owner: AllocationOwner
    reason: LeakReason
    condition: FreeCondition | None

    def __str__(self) -> str:
        held = self.owner
        who = f"pod {held.pod_name}" if held.pod_name else held.type
        return f"{held.address} of {who} on node {held.node or 'unknown'} ({self.reason.value})"


@frozen(kw_only=True)
class FreeHandle:
    """Free every address that a handle holds: all of them are leaked."""

    handle: str
    leaks: tuple[Leak, ...]

    @property
    def subject(self) -> str:
        """What the action is about."""
        return f"handle {self.handle}"

    @property
    def candidates(self) -> tuple[AllocationRef, ...]:
        """The addresses as they were seen."""
        return tuple(AllocationRef(leak.owner.address, self.handle, leak.owner.sequence) for leak in self.leaks)

    def __str__(self) -> str:
        return f"free what handle {self.handle} holds: {'; '.join(str(leak) for leak in self.leaks)}"


@frozen(kw_only=True)
class RepairHandle:
    """Make a handle count what its blocks hold, or delete it if that is nothing.

    ``blocks`` are those that it names and those that name it.
    """

    record: RecordRef[Handle]
    blocks: tuple[Prefix, ...]

    @property
    def subject(self) -> str:
        """What the action is about."""
        return f"handle {self.record.key.name}"

    def __str__(self) -> str:
        return f"mend handle {self.record.key.name}: it does not count what its blocks hold"


@frozen(kw_only=True)
class ExpireCooldown:
    """Make the addresses of a block free that have cooled down."""

    record: RecordRef[Block]

    @property
    def subject(self) -> str:
        """What the action is about."""
        return f"cooled addresses of block {self.record.key.name}"

    def __str__(self) -> str:
        return f"free the addresses of block {self.record.key.name} that have cooled down"


@frozen(kw_only=True)
class DeleteBlock:
    """Delete an empty block that nobody claims; ``claim`` is what its owner would claim it with, if it has one."""

    record: RecordRef[Block]
    affinity: Key[Affinity] | None

    @property
    def subject(self) -> str:
        """What the action is about."""
        return f"block {self.record.key.name}"

    def __str__(self) -> str:
        return f"delete block {self.record.key.name}: it is empty, and nobody claims it"


class RelinquishReason(enum.Enum):
    """Why a claim on a block is given up."""

    NO_BLOCK = "there is no such block"
    FOREIGN = "the block is not the claimant's"
    UNUSED = "the block is empty, and the node has others"
    NODE_GONE = "the node is gone"


@frozen(kw_only=True)
class RelinquishAffinity:
    """Give up a claim, and its block with it if that is empty; a block that is not empty stays as it is.

    ``revision`` is what the reason was seen in, and must still have: the block of an ``UNUSED`` claim, the claim itself
    where it leads to no block of the claimant's. None for a node that is gone: nobody goes on with its claims.
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
        return f"give up the claim of {owner} on {block}: {self.reason.value}"


GCAction: TypeAlias = FreeHandle | RepairHandle | ExpireCooldown | DeleteBlock | RelinquishAffinity


@frozen(kw_only=True)
class GoneNode:
    """A node that does not exist any more, and the claims that it left.

    They can be given up once the handles it ``awaits`` are freed; ``kept_by`` are addresses that are not about to be,
    because of which some claims, or all, stay for now.
    """

    node: str
    affinities: tuple[RelinquishAffinity, ...] = ()
    awaits: frozenset[str] = frozenset()
    kept_by: tuple[Address, ...] = ()


# --- what comes out ---------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Undetermined:
    """An address that is not freed because nobody can say whether it is used."""

    owner: AllocationOwner
    reason: UndeterminedReason

    def __str__(self) -> str:
        return f"{self.owner.address} (handle {self.owner.handle}): {self.reason.value}"


@frozen(kw_only=True)
class ScanResult:
    """What a survey found: everything due, the most urgent first, and what is not.

    ``candidates`` look leaked but may not be freed yet, or not without the rest of their handle; ``unreadable`` are
    claims that were left alone because their keys name no block.
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
class FailedAction:
    """An action that could not be done, or not decided; it is tried again, after those that did not fail."""

    action: GCAction
    cause: str

    def __str__(self) -> str:
        return f"could not {self.action}: {self.cause}"


@frozen(kw_only=True)
class WaitingNode:
    """A gone node that keeps claims because of addresses that may still be used."""

    node: str
    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        return f"node {self.node} is gone and keeps claims because of {', '.join(map(str, self.addresses))}"


@frozen(kw_only=True)
class CollectionReport:
    """What one tick did, and what it left.

    ``passed_over`` had changed since the view, so it is looked at again; ``spared`` looked leaked in the view, and the
    witness saw it used; ``postponed`` counts what was due beyond the bounds of one tick.
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
    postponed: int = 0

    @property
    def freed(self) -> tuple[Leak, ...]:
        """The leaked addresses that were freed, and why."""
        return tuple(leak for action in self.done if isinstance(action, FreeHandle) for leak in action.leaks)

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was due is left; otherwise the next tick should follow soon."""
        return not (self.idle or self.failures or self.postponed)

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing that a person should know."""
        return self.is_settled and not (self.done or self.skipped or self.in_use or self.candidates)
