"""The kind IPAMConfiguration: one object, ``default``, with the rules of block assignment for the whole cluster."""

from __future__ import annotations

from attrs import field, frozen

from netplug_core.decoding.codecs import BOOLEAN, NONNEGATIVE_INTEGER, TEXT
from netplug_core.decoding.tables import json_object, member
from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import ENVELOPE, Metadata

__all__ = ["IPAM_CONFIGURATION", "IPAM_CONFIGURATION_KEY", "IPAMConfiguration", "IPAMConfigurationSpec"]


@frozen(kw_only=True)
class IPAMConfigurationSpec:
    """The rules of the allocator; the defaults hold if there is no object.

    ``is_affinity_strict`` forbids borrowing, ``may_auto_allocate_blocks`` is whether an assignment may claim blocks,
    and ``max_blocks_per_host`` limits the blocks of a node (0: the user sets no limit). A released address is not
    assigned again for ``cooldown_s`` seconds. ``vm_address_persistence`` is stored, and this release ignores it.
    """

    # fmt: off
    is_affinity_strict: bool = field(default=False, metadata=member("strictAffinity", BOOLEAN,
        "A node uses only the blocks that it has claimed.", is_always_written=True))
    may_auto_allocate_blocks: bool = field(default=True, metadata=member("autoAllocateBlocks", BOOLEAN,
        "An assignment may claim blocks; true unless given.", is_always_written=True))
    max_blocks_per_host: int = field(default=0, metadata=member("maxBlocksPerHost", NONNEGATIVE_INTEGER,
        "How many blocks a node may have; 0 for no limit of yours.", is_always_written=True))
    cooldown_s: int = field(default=0, metadata=member("ipCooldownSeconds", NONNEGATIVE_INTEGER,
        "How long a released address rests.", is_always_written=True))
    vm_address_persistence: str = field(default="", metadata=member("kubeVirtVMAddressPersistence", TEXT,
        "Kept as it is written.", limits={"enum": ["", "Enabled", "Disabled"]}))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class IPAMConfiguration:
    """The cluster's one configuration of block assignment as it is stored. Only users create it."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: IPAMConfigurationSpec = field(default=IPAMConfigurationSpec(), metadata=member("spec", IPAMConfigurationSpec,
        "The rules; what is left out has its default.", is_always_written=True))
    # fmt: on
    unknown_json: str = ""


IPAM_CONFIGURATION: Kind[IPAMConfiguration] = Kind("IPAMConfiguration", ("name",))
IPAM_CONFIGURATION_KEY: Key[IPAMConfiguration] = IPAM_CONFIGURATION.key("default")
