"""Repairs of records that lead to blocks: handles and affinities that are missing or damaged are made from the blocks.

Each repair reads its records again, and writes only if they are still as they were judged. A repair that has nothing to
write any more counts as done, so that it may be decided again after a lost reply.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from netplug_core.ipam.allocation.commit_sizes import BLOCKS_PER_RESTORED_HANDLE
from netplug_core.ipam.allocation.ownership import is_owned
from netplug_core.ipam.model.affinity import Affinity, AffinityState, claiming_owner
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.model.handle import Handle
from netplug_core.records import (
    ABSENT,
    Absent,
    Create,
    Delete,
    Get,
    Key,
    Query,
    Record,
    Require,
    Revision,
    Snapshot,
    Update,
    Write,
)

__all__ = ["DeleteDamaged", "RestoreAffinity", "RestoreHandle"]


@frozen(kw_only=True)
class RestoreHandle:
    """Store a handle that is missing or damaged, as its blocks hold addresses for it.

    Of very many blocks only as many count as a commit takes. The next check finds that the handle lacks the others.
    """

    key: Key[Handle]
    blocks: tuple[Key[Block], ...]

    def __str__(self) -> str:
        return f"restore handle {self.key.name} from its blocks: it is missing or damaged"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(self.key), *map(Get, self._first_blocks))

    @property
    def _first_blocks(self) -> tuple[Key[Block], ...]:
        return self.blocks[:BLOCKS_PER_RESTORED_HANDLE]

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...]:
        """The writes; empty if the handle is stored by now, or holds nothing any more."""
        if snapshot.readable(Get(self.key)):
            return ()
        found = [record for block in self._first_blocks if (record := snapshot.find(block)) is not None]
        counts = ((record.value.prefix, len(record.value.held_by(self.key.name))) for record in found)
        handle = Handle(blocks=tuple(sorted((prefix, count) for prefix, count in counts if count)))
        if not handle.blocks:
            return ()
        stored = snapshot.state(Get(self.key))
        return (*_unchanged(found), _put(self.key, handle, stored))


@frozen(kw_only=True)
class RestoreAffinity:
    """Store the affinity of a block's owner that is missing or damaged. The owner's next assignment confirms it."""

    key: Key[Affinity]
    block: Key[Block]

    def __str__(self) -> str:
        owner = claiming_owner(self.key)
        return f"restore the affinity of {owner} for block {self.block.name}: it is missing or damaged"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(self.key), Get(self.block))

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...] | None:
        """The writes; empty if it is done already, None if the block has another owner by now."""
        if snapshot.readable(Get(self.key)):
            return ()
        block = snapshot.find(self.block)
        if block is None or not is_owned(block.value, self.key):
            return None
        stored = snapshot.state(Get(self.key))
        return (*_unchanged((block,)), _put(self.key, Affinity(state=AffinityState.PENDING), stored))


@frozen(kw_only=True)
class DeleteDamaged:
    """Delete a damaged handle that holds nothing, or a damaged affinity that owns no block."""

    key: Key[object]
    revision: Revision

    def __str__(self) -> str:
        return f"delete {self.key}: it is damaged, and no block needs it"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(self.key),)

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...] | None:
        """The writes; empty if it is done already, None if the record has changed."""
        state = snapshot.state(Get(self.key))
        if state is ABSENT:
            return ()
        is_damaged = bool(snapshot.malformed(Get(self.key)))
        return (Delete(self.key, self.revision),) if is_damaged and state == self.revision else None


def _unchanged(blocks: Iterable[Record[Block]]) -> tuple[Write, ...]:
    return tuple(Require(block.key, block.revision) for block in blocks)


def _put(key: Key[object], value: object, stored: Revision | Absent) -> Write:
    return Create(key, value) if isinstance(stored, Absent) else Update(key, value, stored)
