"""The writes by which a block comes into somebody's hands, and out of them.

The affinity is written before the block and removed after it, so whatever crashes in between leaves an affinity behind
that leads to the block. Each list is in an order of which every prefix is healed by the claimant's next request:

    claim     affinity pending, block created, affinity confirmed
    adopt     affinity pending, ownerless block gets an owner, affinity confirmed
    reclaim   rival's affinity pending deletion, ours pending, block changes hands, ours confirmed, rival's deleted
    give up   affinity pending deletion, block deleted (or, when it holds addresses, without an owner), affinity deleted
"""

from __future__ import annotations

from attrs import evolve

from netplug_core.ipam.allocation.context import Acquisition, BlockCandidate
from netplug_core.ipam.model.affinity import Affinity, AffinityState, affinity_key
from netplug_core.ipam.model.block import Block
from netplug_core.records import Create, Delete, Record, Revision, Update, Write, Written

__all__ = ["claim_block", "relinquish_block"]


def claim_block(hold: BlockCandidate, claimant: str, writes: list[Write]) -> Revision | Written:
    """Add what makes a hold's block one that may give addresses; the revision that taking them is conditioned on."""
    if hold.acquisition in (Acquisition.OWN, Acquisition.BORROWED) and hold.revision is not None:
        return hold.revision
    rival = _mark_previous(hold, writes)
    key = affinity_key(claimant, hold.block.prefix)
    base, claim = _pending(hold, claimant, writes)
    at = Written(len(writes))
    block = hold.block
    writes.append(Create(block.key, block) if hold.revision is None else Update(block.key, block, hold.revision))
    writes.append(Update(key, evolve(base, state=AffinityState.CONFIRMED), claim))
    if rival is not None and hold.previous_affinity is not None:
        writes.append(Delete(hold.previous_affinity.key, rival))
    return at


def _pending(hold: BlockCandidate, claimant: str, writes: list[Write]) -> tuple[Affinity, Revision | Written]:
    """The claim, pending, and the revision it has then."""
    if hold.affinity is None:
        affinity = Affinity(state=AffinityState.PENDING)
        writes.append(Create(affinity_key(claimant, hold.block.prefix), affinity))
        return affinity, Written(len(writes) - 1)
    affinity = hold.affinity.value
    if affinity.state is AffinityState.PENDING:
        return affinity, hold.affinity.revision
    writes.append(Update(hold.affinity.key, evolve(affinity, state=AffinityState.PENDING), hold.affinity.revision))
    return affinity, Written(len(writes) - 1)


def _mark_previous(hold: BlockCandidate, writes: list[Write]) -> Revision | Written | None:
    """Say in the rival's affinity that its block goes; the revision it has then, None where no rival has one."""
    if hold.acquisition is not Acquisition.TAKEN_OVER:
        return None
    if hold.previous_affinity is None:  # the owner's affinity was lost; the block's own revision stands for both
        return None
    return _mark_for_deletion(hold.previous_affinity, writes)


def _mark_for_deletion(affinity: Record[Affinity], writes: list[Write]) -> Revision | Written:
    """Mark a claim as going."""
    if affinity.value.state is AffinityState.PENDING_DELETION:
        return affinity.revision
    gone = evolve(affinity.value, state=AffinityState.PENDING_DELETION)
    writes.append(Update(affinity.key, gone, affinity.revision))
    return Written(len(writes) - 1)


def relinquish_block(
    affinity: Record[Affinity] | None, stored: Record[Block], block: Block, writes: list[Write]
) -> None:
    """Add what ends a claim on a block of its owner; ``block`` is the stored one with what has cooled down free.

    An owner whose affinity was lost gives up the block alone.
    """
    mark = None if affinity is None else _mark_for_deletion(affinity, writes)
    if block.is_empty:
        writes.append(Delete(stored.key, stored.revision))
    else:
        writes.append(Update(stored.key, block.relinquished(), stored.revision))
    if affinity is not None and mark is not None:
        writes.append(Delete(affinity.key, mark))
