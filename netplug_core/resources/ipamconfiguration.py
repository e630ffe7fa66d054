"""The kind IPAMConfiguration: one object, ``default``, with the rules of block assignment for the whole cluster."""

from __future__ import annotations

from attrs import frozen

from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import Metadata

__all__ = ["IPAM_CONFIGURATION", "IPAM_CONFIGURATION_KEY", "IPAMConfiguration", "IPAMConfigurationSpec"]


@frozen(kw_only=True)
class IPAMConfigurationSpec:
    """What the user asked of the allocator; the defaults are what holds while there is no object.

    ``is_affinity_strict`` forbids borrowing, ``may_auto_allocate_blocks`` is whether an assignment may claim blocks,
    and
    ``max_blocks`` bounds how many a node may have, 0 for no bound of the user's. A released address rests for
    ``cooldown_s`` before anybody is given it. ``vm_address_persistence`` is kept as it is written, and nothing acts
    on it.
    """

    is_affinity_strict: bool = False
    may_auto_allocate_blocks: bool = True
    max_blocks_per_host: int = 0
    cooldown_s: int = 0
    vm_address_persistence: str = ""
    unknown_json: str = ""


@frozen(kw_only=True)
class IPAMConfiguration:
    """The cluster's one configuration of block assignment as it is stored. Nothing creates it but a person."""

    metadata: Metadata
    spec: IPAMConfigurationSpec = IPAMConfigurationSpec()
    unknown_json: str = ""


IPAM_CONFIGURATION: Kind[IPAMConfiguration] = Kind("IPAMConfiguration", ("name",))
IPAM_CONFIGURATION_KEY: Key[IPAMConfiguration] = IPAM_CONFIGURATION.key("default")
