"""The decision to give up claims on blocks: of a node that goes, of a pool that goes, of blocks that stand empty.

Whoever still holds an address of such a block keeps it: the block stays, without an owner, and goes with its last
address. A claim that leads to no block, or to somebody else's, is deleted: nothing else would ever take it away.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from attrs import frozen

from netplug_core.ipam.allocation.affinity_writes import relinquish_block
from netplug_core.ipam.allocation.cooldown import Cooldown
from netplug_core.ipam.model.affinity import Affinity, claimed_block, claiming_owner
from netplug_core.ipam.model.block import block_key
from netplug_core.ipam.outcome.refusals import BlockNotEmpty
from netplug_core.records import Decision, Delete, Get, Key, NeedMore, Query, Snapshot, Write
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY

__all__ = ["Emptiness", "RelinquishResult", "decide_relinquish", "relinquish_queries"]


class Emptiness(enum.Enum):
    """Whether a block has to be empty to be given up."""

    REQUIRED = "required"
    NOT_REQUIRED = "not required"


@frozen(kw_only=True)
class RelinquishResult:
    """Which claims are gone, and which are not because their blocks are in use."""

    relinquished: tuple[Key[Affinity], ...] = ()
    refused: tuple[BlockNotEmpty, ...] = ()


def relinquish_queries(claims: Sequence[Key[Affinity]]) -> tuple[Query, ...]:
    """What to read before ``decide_relinquish``."""
    blocks = (Get(block_key(claimed_block(key))) for key in claims)
    return (Get(IPAM_CONFIGURATION_KEY), *(Get(key) for key in claims), *blocks)


def decide_relinquish(
    snapshot: Snapshot, claims: Sequence[Key[Affinity]], emptiness: Emptiness, now_ns: int
) -> Decision[RelinquishResult] | NeedMore:
    """Give up some claims; one that is not there is gone already."""
    missing = tuple(query for query in relinquish_queries(claims) if not snapshot.has(query))
    if missing:
        return NeedMore(missing)
    cooling = Cooldown.of(snapshot, now_ns)
    writes: list[Write] = []
    gone: list[Key[Affinity]] = []
    refused: list[BlockNotEmpty] = []
    for key in claims:
        affinity, stored = snapshot.find(key), snapshot.find(block_key(claimed_block(key)))
        if stored is not None and stored.value.owner == claiming_owner(key):
            block = cooling.expire(stored.value)
            if emptiness is Emptiness.REQUIRED and not block.is_empty:
                refused.append(BlockNotEmpty(block.prefix, block.owner, block.used_count))
                continue
            relinquish_block(affinity, stored, block, writes)
        elif affinity is not None:
            writes.append(Delete(affinity.key, affinity.revision))
        gone.append(key)
    return Decision(tuple(writes), RelinquishResult(relinquished=tuple(gone), refused=tuple(refused)))
