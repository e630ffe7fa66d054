"""The decision to give up affinities to blocks: of a node or a pool that is removed, or of empty blocks.

Workloads keep their addresses in such blocks: a block with addresses stays, without an owner, and is deleted with its
last address. An affinity that names no block, or a block of another owner, is deleted too.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.ownership import is_owned, relinquish_block
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.model.affinity import Affinity, claimed_block
from netplug_core.ipam.model.block import Block, block_key
from netplug_core.ipam.outcome.refusals import BlockNotEmpty
from netplug_core.records import Decision, Delete, Get, Key, NeedMore, Query, Snapshot, Write
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY

__all__ = [
    "Emptiness", "RelinquishResult", "decide_deletion", "decide_relinquish", "deletion_queries", "is_unused",
    "relinquish_queries",
]  # fmt: skip


class Emptiness(enum.Enum):
    """Whether a block has to be empty to be given up."""

    REQUIRED = "required"
    NOT_REQUIRED = "not required"


@frozen(kw_only=True)
class RelinquishResult:
    """Which affinities do not exist any more, and which were refused because their blocks are in use."""

    relinquished: tuple[Key[Affinity], ...] = ()
    refused: tuple[BlockNotEmpty, ...] = ()


def relinquish_queries(affinities: Sequence[Key[Affinity]]) -> tuple[Query, ...]:
    """What to read before ``decide_relinquish``."""
    blocks = (Get(block_key(claimed_block(key))) for key in affinities)
    return (Get(IPAM_CONFIGURATION_KEY), *(Get(key) for key in affinities), *blocks)


def decide_relinquish(
    snapshot: Snapshot, affinities: Sequence[Key[Affinity]], emptiness: Emptiness, now_ns: int
) -> Decision[RelinquishResult] | NeedMore:
    """Give up some affinities; one that does not exist counts as given up."""
    missing = tuple(query for query in relinquish_queries(affinities) if not snapshot.has(query))
    if missing:
        return NeedMore(missing)
    cooldown = Cooldown.of(snapshot, now_ns)
    writes: list[Write] = []
    relinquished: list[Key[Affinity]] = []
    refused: list[BlockNotEmpty] = []
    for key in affinities:
        affinity, stored = snapshot.find(key), snapshot.find(block_key(claimed_block(key)))
        if stored is not None and is_owned(stored.value, key):
            block = cooldown.expire(stored.value)
            if emptiness is Emptiness.REQUIRED and not block.is_empty:
                refused.append(BlockNotEmpty(block.prefix, block.owner, block.used_count))
                continue
            relinquish_block(affinity, stored, block, writes)
        elif affinity is not None:
            writes.append(Delete(affinity.key, affinity.revision))
        relinquished.append(key)
    return Decision(tuple(writes), RelinquishResult(relinquished=tuple(relinquished), refused=tuple(refused)))


def is_unused(block: Block, cooldown: Cooldown) -> bool:
    """Whether a block has no owner and no address, not even one that is still cooling down."""
    return not block.owner and cooldown.expire(block).is_empty


def deletion_queries(blocks: Sequence[Prefix]) -> tuple[Query, ...]:
    """What to read before ``decide_deletion``."""
    return (Get(IPAM_CONFIGURATION_KEY), *(Get(block_key(block)) for block in blocks))


def decide_deletion(snapshot: Snapshot, blocks: Sequence[Prefix], now_ns: int) -> Decision[None]:
    """Delete those of some blocks that are still unused."""
    cooldown = Cooldown.of(snapshot, now_ns)
    found = (snapshot.find(block_key(block)) for block in blocks)
    unused = (record for record in found if record is not None and is_unused(record.value, cooldown))
    return Decision(tuple(Delete(record.key, record.revision) for record in unused), None)
