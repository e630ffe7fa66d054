"""How addresses become free: at once, or after the configured time; the one place where a block loses addresses."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from netplug_core.ipam.model.block import Allocation, Block
from netplug_core.records import Delete, Record, Snapshot, Update, Write
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY

__all__ = ["Cooldown"]

_SECOND_NS = 1_000_000_000


@frozen
class Cooldown:
    """The time that released addresses rest, and the time it is now."""

    cooldown_ns: int
    now_ns: int

    @classmethod
    def of(cls, snapshot: Snapshot, now_ns: int) -> Cooldown:
        """What the configuration says; without one nothing rests."""
        configuration = snapshot.find(IPAM_CONFIGURATION_KEY)
        cooldown_s = configuration.value.spec.cooldown_s if configuration else 0
        return cls(cooldown_s * _SECOND_NS, now_ns)

    def expire(self, block: Block) -> Block:
        """The block with what has cooled down free."""
        return block.expire_cooldown(self.now_ns, self.cooldown_ns)

    def release(self, record: Record[Block], held: Iterable[Allocation]) -> Write:
        """The write that frees some held addresses of a block; a block without an owner goes with its last one.

        An owned block that has become empty is given up by its node or the collector.
        """
        ordinals = frozenset(allocation.ordinal for allocation in held)
        since = self.now_ns if self.cooldown_ns > 0 else None
        block = self.expire(record.value).release(ordinals, cooling_from_ns=since)
        if block.is_empty and not block.owner:
            return Delete(record.key, record.revision)
        return Update(record.key, block, record.revision)
