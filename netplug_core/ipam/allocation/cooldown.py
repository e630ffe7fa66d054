"""How addresses become free: at once, or when the configured cooldown has expired. No other module frees addresses."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define

from netplug_core.clock import SECOND_NS
from netplug_core.ipam.model.block import Allocation, Block
from netplug_core.records import Delete, Get, Malformed, Record, Snapshot, Update, Write
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY, IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.metadata import Metadata

__all__ = ["Cooldown", "find_configuration"]

_CONFIGURATION = Get(IPAM_CONFIGURATION_KEY)
_CAUTIOUS = IPAMConfiguration(
    metadata=Metadata(name="default"), spec=IPAMConfigurationSpec(is_affinity_strict=True, cooldown_s=1 << 31)
)
"""What counts while the settings cannot be read and were never known: nothing is borrowed, and what is released rests
(for 68 years)."""


def find_configuration(snapshot: Snapshot) -> Record[IPAMConfiguration] | None:
    """The stored configuration, which does not stop every node if it cannot be understood.

    Then it counts as it was last known, else as cautious settings.
    """
    try:
        return snapshot.find(_CONFIGURATION)
    except Malformed as error:
        known = error.counts_as
        value = known if isinstance(known, IPAMConfiguration) else _CAUTIOUS
        return Record(IPAM_CONFIGURATION_KEY, value, error.revision)


@define  # not frozen: each decision makes one, and a frozen object takes three times as long to make
class Cooldown:
    """The configured cooldown, and the time now."""

    cooldown_ns: int
    now_ns: int

    @classmethod
    def of(cls, snapshot: Snapshot, now_ns: int) -> Cooldown:
        """The cooldown of the configuration in a snapshot."""
        return cls.configured(find_configuration(snapshot), now_ns)

    @classmethod
    def configured(cls, configuration: Record[IPAMConfiguration] | None, now_ns: int) -> Cooldown:
        """The cooldown of the stored configuration; 0 where there is none."""
        cooldown_s = configuration.value.spec.cooldown_s if configuration else 0
        return cls(cooldown_s * SECOND_NS, now_ns)

    def expire(self, block: Block) -> Block:
        """The block, with those addresses free whose cooldown has expired."""
        return block.expire_cooldown(self.now_ns, self.cooldown_ns)

    def release(self, record: Record[Block], held: Iterable[Allocation]) -> Write:
        """The write that frees some held addresses of a block. Without any it only stores the block once more.

        A block without an owner is deleted with its last address. An empty block with an owner stays: its node's next
        assignment or the collector relinquishes it.
        """
        ordinals = frozenset(allocation.ordinal for allocation in held)
        cooling_from_ns = self.now_ns if self.cooldown_ns > 0 else None
        block = self.expire(record.value).release(ordinals, cooling_from_ns=cooling_from_ns)
        if block.is_empty and not block.owner:
            return Delete(record.key, record.revision)
        return Update(record.key, block, record.revision)
