"""The writes by which an owner comes to own a block, and gives it up.

The affinity is written before the block and deleted after it, so a crash in between leaves an affinity that leads to
the block. Each list of writes is in an order of which every prefix is healed by the owner's next request:

    new          affinity pending, block created, affinity confirmed
    adopted      affinity pending, the block gets its owner, affinity confirmed
    taken over   previous affinity pending deletion, ours pending, the block changes its owner, ours confirmed,
                 previous affinity deleted
    relinquished affinity pending deletion, block deleted (one with addresses loses its owner), affinity deleted
"""

from __future__ import annotations

from attrs import evolve

from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate
from netplug_core.ipam.model.affinity import Affinity, AffinityState, affinity_key
from netplug_core.ipam.model.block import Block
from netplug_core.records import Create, Delete, Record, Revision, Update, Write, Written

__all__ = ["claim_block", "relinquish_block"]


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
