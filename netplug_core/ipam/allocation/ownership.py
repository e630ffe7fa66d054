"""What a block may become for a claimant: one table, read by every rule that takes addresses or claims blocks.

A row is who owns the block now, as the claimant sees it, a column is what it wants the block for. The entry says what
the block becomes, or that it may not be used. ``acquire``, ``borrow``, ``specific`` and ``affinities`` look here and
decide nothing of it themselves.

``claim_block`` and ``relinquish_block`` add the writes. The affinity is written before the block and deleted after it,
so a crash in between leaves an affinity that leads to the block. The writes are in an order of which every prefix is
healed by the owner's next request:

    new          affinity pending, block created, affinity confirmed
    adopted      affinity pending, the block gets its owner, affinity confirmed
    taken over   previous affinity pending deletion, ours pending, the block changes its owner, ours confirmed,
                 previous affinity deleted
    relinquished affinity pending deletion, block deleted (one with addresses loses its owner), affinity deleted
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from attrs import define, evolve

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import SECOND_NS
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.model import Affinity, AffinityState, Block, affinity_key, claiming_owner
from netplug_core.ipam.outcome import BlockOutcome
from netplug_core.records import Create, Delete, Key, Record, Revision, Update, Write, Written
from netplug_core.resources.ippool import IPPool

__all__ = [
    "TAKE_OVER_AGE_S", "Acquisition", "BlockCandidate", "Claimant", "Ownership", "Purpose", "claim_block",
    "find_ownership", "is_owned", "relinquish_block",
]  # fmt: skip

TAKE_OVER_AGE_S = 60
"""An empty block of another node may be taken over when it was claimed longer ago than this, in seconds."""


class Ownership(enum.Enum):
    """Who owns a block, as a claimant sees it."""

    MISSING = "is not stored"
    OWN = "is the claimant's, and its affinity is confirmed"
    UNCONFIRMED = "is the claimant's, and its affinity is missing or not confirmed"
    OWNERLESS = "has no owner"
    UNUSED = "is another owner's, empty, and was claimed more than TAKE_OVER_AGE_S ago"
    FOREIGN = "is another owner's"

    __hash__ = object.__hash__  # each member is one object; Enum's own is slow, and every block of a node is looked up


class Purpose(enum.Enum):
    """What a block is wanted for.

    ``SPECIFIC`` borrows a block without an owner and does not adopt it: an address that is asked for by name does not
    say where the node's blocks shall be, and no block limit counts for it. Under strict affinity
    (``SPECIFIC_STRICT``) nothing is borrowed, so there it is adopted. ``CLAIM`` never takes a block over: only want
    of addresses justifies to take another node's block away.
    """

    AUTOMATIC = "addresses that netplug chooses; the claimant may own one more block"
    BORROW = "addresses that netplug chooses; the claimant may own no more blocks"
    SPECIFIC = "one address by name"
    SPECIFIC_STRICT = "one address by name, with strict affinity"
    CLAIM = "the block itself, without taking an address"

    __hash__ = object.__hash__


class Acquisition(enum.Enum):
    """What a block becomes before addresses of it are taken."""

    OWN = "stays the claimant's"
    UNCONFIRMED = "stays the claimant's, and its affinity is confirmed"
    NEW = "is created for the claimant"
    ADOPTED = "gets the claimant as its owner; it had none"
    TAKEN_OVER = "changes its owner; the previous owner's affinity is deleted"
    BORROWED = "keeps its owner"

    __hash__ = object.__hash__


_OWNED = {Ownership.OWN: Acquisition.OWN, Ownership.UNCONFIRMED: Acquisition.UNCONFIRMED}
"""The claimant's own blocks may be used for every purpose."""

_TABLE: Mapping[Purpose, Mapping[Ownership, Acquisition]] = {
    Purpose.AUTOMATIC: {
        Ownership.MISSING: Acquisition.NEW,
        Ownership.OWNERLESS: Acquisition.ADOPTED,
        Ownership.UNUSED: Acquisition.TAKEN_OVER,
    },
    Purpose.BORROW: {
        Ownership.OWNERLESS: Acquisition.BORROWED,
        Ownership.UNUSED: Acquisition.BORROWED,
        Ownership.FOREIGN: Acquisition.BORROWED,
    },
    Purpose.SPECIFIC: {
        Ownership.MISSING: Acquisition.NEW,
        Ownership.OWNERLESS: Acquisition.BORROWED,
        Ownership.UNUSED: Acquisition.BORROWED,
        Ownership.FOREIGN: Acquisition.BORROWED,
    },
    Purpose.SPECIFIC_STRICT: {
        Ownership.MISSING: Acquisition.NEW,
        Ownership.OWNERLESS: Acquisition.ADOPTED,
    },
    Purpose.CLAIM: {
        Ownership.MISSING: Acquisition.NEW,
        Ownership.OWNERLESS: Acquisition.ADOPTED,
    },
}
"""What a block becomes; a standing that a purpose does not list may not be used for it."""

_OUTCOMES = {
    Acquisition.OWN: BlockOutcome.TAKEN_FROM,
    Acquisition.UNCONFIRMED: BlockOutcome.CLAIMED,
    Acquisition.NEW: BlockOutcome.CLAIMED,
    Acquisition.ADOPTED: BlockOutcome.ADOPTED,
    Acquisition.TAKEN_OVER: BlockOutcome.TAKEN_OVER,
    Acquisition.BORROWED: BlockOutcome.BORROWED_FROM,
}


def find_ownership(block: Block | None, owner: str, affinity: Record[Affinity] | None, now_ns: int) -> Ownership:
    """Who owns a block, as an owner (``host:<node>``) sees it; ``affinity`` is that owner's, as far as it was read.

    The block decides who owns it; an affinity alone owns nothing.
    """
    if block is None:
        return Ownership.MISSING
    if block.owner == owner:
        is_confirmed = affinity is not None and affinity.value.state is AffinityState.CONFIRMED
        return Ownership.OWN if is_confirmed else Ownership.UNCONFIRMED
    if not block.owner:
        return Ownership.OWNERLESS
    is_old = (block.claim_time_ns or 0) < now_ns - TAKE_OVER_AGE_S * SECOND_NS
    return Ownership.UNUSED if is_old and block.is_empty else Ownership.FOREIGN


def is_owned(block: Block | None, affinity: Key[Affinity]) -> bool:
    """Whether the block that an affinity names is that owner's.

    Only then does giving up the affinity change the block. Any other affinity is left over and can be deleted alone.
    """
    return block is not None and block.owner == claiming_owner(affinity)


@define(kw_only=True)  # not frozen: an assignment makes many, and a frozen object takes three times as long to make
class BlockCandidate:
    """A block that addresses can be taken from.

    ``block`` is the state to take them from: as stored, or as it will be once it is acquired. ``revision`` is None for
    a block that has to be created. ``affinity`` is the claimant's as read, None where there is none;
    ``previous_affinity`` is that of the owner from whom the block is taken over. ``ordinals`` are the addresses that
    are taken.
    """

    pool: Record[IPPool]
    block: Block
    revision: Revision | None
    acquisition: Acquisition
    affinity: Record[Affinity] | None = None
    previous_affinity: Record[Affinity] | None = None
    ordinals: tuple[Ordinal, ...] = ()

    @property
    def outcome(self) -> BlockOutcome:
        """What the trace says of a block that is used so."""
        return _OUTCOMES[self.acquisition]

    @property
    def record_count(self) -> int:
        """How many blocks and affinities the commit changes that takes from it."""
        if self.acquisition in (Acquisition.OWN, Acquisition.BORROWED):
            return 1
        return 2 if self.previous_affinity is None else 3

    def with_ordinals(self, ordinals: tuple[Ordinal, ...]) -> BlockCandidate:
        """This candidate with the ordinals that are taken."""
        return BlockCandidate(
            pool=self.pool,
            block=self.block,
            revision=self.revision,
            acquisition=self.acquisition,
            affinity=self.affinity,
            previous_affinity=self.previous_affinity,
            ordinals=ordinals,
        )


@define(kw_only=True)
class Claimant:
    """Who wants blocks, and when.

    ``owner`` is ``host:<node>`` or ``virtual:<name>``. ``host_reserved`` is how many of the first and the last
    addresses of each new block its host keeps for itself.
    """

    owner: str
    cooldown: Cooldown
    host_reserved: tuple[int, int] = (0, 0)

    def new_block(self, prefix: Prefix) -> Block:
        """An empty block that the claimant owns from now on."""
        return Block.new(prefix, owner=self.owner, now_ns=self.cooldown.now_ns, host_reserved=self.host_reserved)

    def find_candidate(
        self,
        purpose: Purpose,
        pool: Record[IPPool],
        prefix: Prefix,
        record: Record[Block] | None,
        affinity: Record[Affinity] | None = None,
    ) -> BlockCandidate | None:
        """The block with this prefix as a candidate; None where the table does not allow to use it for the purpose.

        ``record`` is the stored block and ``affinity`` the claimant's affinity, as far as it was read.
        """
        block = self.cooldown.expire(record.value) if record else None
        ownership = find_ownership(block, self.owner, affinity, self.cooldown.now_ns)
        acquisition = _OWNED.get(ownership) or _TABLE[purpose].get(ownership)
        if acquisition is None:
            return None
        return BlockCandidate(
            pool=pool,
            block=block if block and acquisition is Acquisition.OWN else self._acquired(acquisition, prefix, block),
            revision=record.revision if record else None,
            acquisition=acquisition,
            affinity=affinity,
        )

    def _acquired(self, acquisition: Acquisition, prefix: Prefix, block: Block | None) -> Block:
        now_ns = self.cooldown.now_ns
        if block is None:
            return self.new_block(prefix)
        match acquisition:
            case Acquisition.UNCONFIRMED:
                # Stored once more before its affinity is confirmed, so that an unfinished release of it fails.
                return block.touched()
            case Acquisition.ADOPTED:
                return block.claimed(self.owner, now_ns)
            case Acquisition.TAKEN_OVER:
                return block.taken_over(self.owner, now_ns, self.host_reserved)
            case _:
                return block


def claim_block(candidate: BlockCandidate, owner: str, writes: list[Write]) -> Revision | Written:
    """Add the writes that acquire a block; the revision that it has after them, for the write that takes addresses."""
    if candidate.acquisition in (Acquisition.OWN, Acquisition.BORROWED) and candidate.revision is not None:
        return candidate.revision
    previous = _mark_previous(candidate, writes)
    affinity, pending = _pending(candidate, owner, writes)
    block, block_revision = candidate.block, Written(len(writes))
    writes.append(
        Create(block.key, block) if candidate.revision is None else Update(block.key, block, candidate.revision)
    )
    writes.append(Update(affinity_key(owner, block.prefix), evolve(affinity, state=AffinityState.CONFIRMED), pending))
    if previous is not None and candidate.previous_affinity is not None:
        writes.append(Delete(candidate.previous_affinity.key, previous))
    return block_revision


def _pending(candidate: BlockCandidate, owner: str, writes: list[Write]) -> tuple[Affinity, Revision | Written]:
    """The owner's affinity and the revision at which it is pending."""
    if candidate.affinity is None:
        affinity = Affinity(state=AffinityState.PENDING)
        writes.append(Create(affinity_key(owner, candidate.block.prefix), affinity))
        return affinity, Written(len(writes) - 1)
    affinity = candidate.affinity.value
    return affinity, _with_state(candidate.affinity, AffinityState.PENDING, writes)


def _mark_previous(candidate: BlockCandidate, writes: list[Write]) -> Revision | Written | None:
    """Mark the previous owner's affinity for deletion; None if the block is not taken over, or that affinity is lost.

    Without that affinity the block's own revision is the only condition.
    """
    if candidate.acquisition is not Acquisition.TAKEN_OVER or candidate.previous_affinity is None:
        return None
    return _with_state(candidate.previous_affinity, AffinityState.PENDING_DELETION, writes)


def _with_state(affinity: Record[Affinity], state: AffinityState, writes: list[Write]) -> Revision | Written:
    """The revision at which an affinity has a state; a write is added unless it has it already."""
    if affinity.value.state is state:
        return affinity.revision
    writes.append(Update(affinity.key, evolve(affinity.value, state=state), affinity.revision))
    return Written(len(writes) - 1)


def relinquish_block(
    affinity: Record[Affinity] | None, stored: Record[Block], block: Block, writes: list[Write]
) -> None:
    """Add the writes by which an owner gives up a block; ``block`` is the stored one without expired cooldowns.

    If the owner's affinity is lost, only the block changes.
    """
    marked = None if affinity is None else _with_state(affinity, AffinityState.PENDING_DELETION, writes)
    if block.is_empty:
        writes.append(Delete(stored.key, stored.revision))
    else:
        writes.append(Update(stored.key, block.relinquished(), stored.revision))
    if affinity is not None and marked is not None:
        writes.append(Delete(affinity.key, marked))
