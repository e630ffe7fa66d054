"""The kind IPAMConfiguration: one object, ``default``, with the rules of block assignment for the whole cluster."""

from __future__ import annotations

from attrs import frozen

from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import Metadata

__all__ = ["IPAM_CONFIGURATION", "IPAM_CONFIGURATION_KEY", "IPAMConfiguration", "IPAMConfigurationSpec"]


@frozen(kw_only=True)
class IPAMConfigurationSpec:
    """The rules of the allocator; the defaults hold if there is no object.

    ``is_affinity_strict`` forbids borrowing, ``may_auto_allocate_blocks`` is whether an assignment may claim blocks,
    and ``max_blocks_per_host`` limits the blocks of a node (0: the user sets no limit). A released address is not
    assigned again for ``cooldown_s`` seconds. ``vm_address_persistence`` is stored, and this release ignores it.
    """

    is_affinity_strict: bool = False
    may_auto_allocate_blocks: bool = True
    max_blocks_per_host: int = 0
    cooldown_s: int = 0
    vm_address_persistence: str = ""
    unknown_json: str = ""


@frozen(kw_only=True)
class IPAMConfiguration:
    """The cluster's one configuration of block assignment as it is stored. Only users create it."""

    metadata: Metadata
    spec: IPAMConfigurationSpec = IPAMConfigurationSpec()
    unknown_json: str = ""


IPAM_CONFIGURATION: Kind[IPAMConfiguration] = Kind("IPAMConfiguration", ("name",))
IPAM_CONFIGURATION_KEY: Key[IPAMConfiguration] = IPAM_CONFIGURATION.key("default")
