"""The kinds IPPool (a prefix, and who may use it), IPReservation (what only requests for it get), IPAMConfiguration."""

from __future__ import annotations

import enum
import json
from typing import Final

from attrs import Factory, field, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.decoding.codecs import BOOLEAN, NONNEGATIVE_INTEGER, PREFIX, TEXT, Codec, Refused
from netplug_core.decoding.tables import ListOf, items_of, json_object, member
from netplug_core.errors import require_count, require_type
from netplug_core.records import Key, Kind
from netplug_core.resources.fields import ENVELOPE, Metadata

__all__ = [
    "IPAM_CONFIGURATION", "IPAM_CONFIGURATION_KEY", "IPPOOL", "IPRESERVATION", "AllowedUse", "AssignmentMode",
    "Encapsulation", "IPAMConfiguration", "IPAMConfigurationSpec", "IPPool", "IPPoolSpec", "IPPoolStatus",
    "IPReservation", "IPReservationSpec", "PoolCondition", "ippool_key", "ipreservation_key",
]  # fmt: skip


class AllowedUse(enum.Enum):
    """What addresses of a pool may be given to."""

    WORKLOAD = "Workload"
    TUNNEL = "Tunnel"
    LOAD_BALANCER = "LoadBalancer"


class AssignmentMode(enum.Enum):
    """Whether a pool serves requests that do not name it."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class Encapsulation(enum.Enum):
    """When packets to a pool's addresses are wrapped on their way between nodes."""

    NEVER = "Never"
    ALWAYS = "Always"
    CROSS_SUBNET = "CrossSubnet"


def _read_pool_cidr(value: object) -> Prefix:
    prefix = _read_stored_pool_cidr(value)
    if Address.parse(str(value).partition("/")[0]) != prefix.first:
        raise Refused("a CIDR", reason=f"IPPool CIDR is not strictly masked; {prefix} is the one that holds it")
    return prefix


def _read_stored_pool_cidr(value: object) -> Prefix:
    """A stored pool is already in use as what it means, so host bits are cleared; only a user can be asked."""
    text = "" if value is None else TEXT.decode(value)
    if not text:
        raise Refused("a CIDR", reason="IPPool CIDR must be specified", value=None)
    try:
        return Prefix.enclosing(text)
    except ValueError:
        raise Refused("a CIDR", reason="IPPool CIDR must be a valid subnet") from None


MAX_CIDR_LENGTH: Final = 43

_POOL_CIDR: Final = Codec(
    _read_pool_cidr, str, _read_stored_pool_cidr, {"type": "string", "maxLength": MAX_CIDR_LENGTH}
)


@json_object(ignored_if_stored=("ipip", "nat-outgoing"))
@frozen(kw_only=True)
class IPPoolSpec:
    """What the user asked of a pool, defaults filled in.

    ``block_length`` is the prefix length of the pool's blocks (``blockSize`` on the wire). Selectors are kept as
    text; the empty namespace selector selects every namespace.
    """

    # fmt: off
    prefix: Prefix = field(metadata=member("cidr", _POOL_CIDR, "The range of the pool's addresses."))
    block_length: int = field(default=Factory(lambda self: self._default_block_length(), takes_self=True),
        metadata=member("blockSize", NONNEGATIVE_INTEGER,
        "Prefix length of the blocks that nodes claim; 26 and 122 unless given.",
        is_unset_if_empty=True, is_always_written=True))
    ipip_mode: Encapsulation = field(default=Encapsulation.NEVER, metadata=member("ipipMode", Encapsulation,
        "When packets to it are wrapped in IP.", is_always_written=True))
    vxlan_mode: Encapsulation = field(default=Encapsulation.NEVER, metadata=member("vxlanMode", Encapsulation,
        "When packets to it are wrapped in VXLAN.", is_always_written=True))
    has_outgoing_nat: bool = field(default=False, metadata=member("natOutgoing", BOOLEAN,
        "Packets that leave the pools are masqueraded.", is_always_written=True))
    node_selector: str = field(default="all()", metadata=member("nodeSelector", TEXT,
        "Which nodes may assign from it; all() unless given.", is_unset_if_empty=True, is_always_written=True))
    allowed_uses: tuple[AllowedUse, ...] = field(default=(AllowedUse.WORKLOAD, AllowedUse.TUNNEL), metadata=member(
        "allowedUses", ListOf(AllowedUse), "What its addresses may be given to.", limits={"maxItems": len(AllowedUse)},
        is_unset_if_empty=True, is_always_written=True))
    assignment_mode: AssignmentMode = field(default=AssignmentMode.AUTOMATIC, metadata=member("assignmentMode",
        AssignmentMode, "Whether it serves requests that do not name it.", is_always_written=True))
    namespace_selector: str = field(default="", metadata=member("namespaceSelector", TEXT,
        "Whose pods it serves; all unless given."))
    is_disabled: bool = field(default=False, metadata=member("disabled", BOOLEAN, "Nobody is given an address of it."))
    is_bgp_export_disabled: bool = field(default=False, metadata=member("disableBGPExport", BOOLEAN,
        "Its routes are not announced."))
    # fmt: on
    unknown_json: str = ""

    @property
    def serves_workloads(self) -> bool:
        """Whether it may give addresses to pods: it is enabled, and pods are among its uses."""
        return not self.is_disabled and AllowedUse.WORKLOAD in self.allowed_uses

    @property
    def is_wrapped(self) -> bool:
        """Whether packets between nodes are encapsulated, at least those to other subnets."""
        return (self.ipip_mode, self.vxlan_mode) != (Encapsulation.NEVER, Encapsulation.NEVER)

    @property
    def network_settings(self) -> tuple[str, ...]:
        """What it asks of the network between nodes, as a resource spells it."""
        modes = (("ipipMode", self.ipip_mode), ("vxlanMode", self.vxlan_mode))
        return (
            *(["natOutgoing"] if self.has_outgoing_nat else []),
            *(f"{name} {mode.value}" for name, mode in modes if mode is not Encapsulation.NEVER),
        )

    def _default_block_length(self) -> int:
        _require_prefix(self.prefix)
        return self.prefix.family.default_block_length

    def __attrs_post_init__(self) -> None:
        _require_prefix(self.prefix)
        require_count("IPPoolSpec.block_length", self.block_length, minimum=0)


def _require_prefix(prefix: object) -> None:
    require_type("IPPoolSpec.prefix", prefix, Prefix, "a Prefix is expected; Prefix.parse makes one")


@frozen(kw_only=True)
class PoolCondition:
    """One condition of a pool's status, such as ``Allocatable``."""

    type: str = field(metadata=member("type", TEXT, "what the condition is about, such as Allocatable"))
    status: str = field(metadata=member("status", TEXT, "True, False or Unknown"))
    reason: str = field(default="", metadata=member("reason", TEXT, "the cause in one word"))
    message: str = field(default="", metadata=member("message", TEXT, "the cause for a person"))
    unknown_json: str = ""


@frozen(kw_only=True)
class IPPoolStatus:
    """What the controllers found out about a pool."""

    # fmt: off
    conditions: tuple[PoolCondition, ...] = field(default=(), metadata=member("conditions", ListOf(PoolCondition),
        "Conditions, such as Allocatable."))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class IPPool:
    """A pool as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: IPPoolSpec = field(metadata=member("spec", IPPoolSpec, "What is asked of the pool.", is_always_written=True))
    status: IPPoolStatus = field(default=IPPoolStatus(), metadata=member("status", IPPoolStatus,
        "What controllers found out about it.", is_users=False))
    # fmt: on
    unknown_json: str = ""

    @classmethod
    def for_prefix(cls, prefix: Prefix, *, name: str) -> IPPool:
        """A pool over a prefix, with every default. A prefix smaller than the default block is one block.

        Raises:
            InvalidArgument: not a prefix.
        """
        require_type("IPPool.for_prefix", prefix, Prefix, "a Prefix is expected; Prefix.parse(text) makes one")
        spec = IPPoolSpec(prefix=prefix, block_length=max(prefix.length, prefix.family.default_block_length))
        return cls(metadata=Metadata(name=name), spec=spec)

    @property
    def key(self) -> Key[IPPool]:
        """Where the pool is stored."""
        return ippool_key(self.metadata.name)

    @property
    def is_terminating(self) -> bool:
        """Whether its deletion has begun."""
        return self.metadata.deletion_time_ns is not None

    @property
    def not_allocatable_condition(self) -> PoolCondition | None:
        """The condition that says no address may be taken from it; None when nothing does."""
        for condition in self.status.conditions:
            if condition.type == "Allocatable" and condition.status == "False":
                return condition
        return None


IPPOOL: Kind[IPPool] = Kind("IPPool", ("name",))
"""The kind of pools: what a list or a watch of them asks for."""


def ippool_key(name: str) -> Key[IPPool]:
    """The key of the pool with that name."""
    return IPPOOL.key(name)


# --- IPReservation ---------------------------------------------------------------------------------------------------


def read_stored_entry(value: object) -> Prefix | str:
    """An entry of a reservation, host bits cleared. One that cannot be read is kept as JSON text."""
    try:
        return Prefix.enclosing(TEXT.decode(value))
    except ValueError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _write_entry(entry: object) -> object:
    return json.loads(entry) if isinstance(entry, str) else str(entry)


MAX_RESERVED: Final = 1024
_RESERVED: Final[Codec[Prefix | str]] = Codec(PREFIX.decode, _write_entry, read_stored_entry, {"type": "string"})


def _split_reserved(values: dict[str, object], _: object) -> dict[str, object]:
    reserved, unparsed = items_of(values, "reserved", Prefix), items_of(values, "reserved", str)
    return {**values, "reserved": reserved, "unparsed": unparsed}


@json_object(finish=_split_reserved)
@frozen(kw_only=True)
class IPReservationSpec:
    """The reserved prefixes, as they were listed; a bare address is one of a single address.

    ``unparsed`` holds the stored entries that cannot be read, each as canonical JSON text. They reserve nothing, and
    are written back unchanged.
    """

    reserved: tuple[Prefix, ...] = field(
        default=(),
        metadata=member(
            "reservedCIDRs",
            ListOf(_RESERVED),
            "Addresses and ranges.",
            limits={"maxItems": MAX_RESERVED},
            is_always_written=True,
            written="entries",
        ),
    )
    unparsed: tuple[str, ...] = ()
    unknown_json: str = ""

    @property
    def entries(self) -> tuple[Prefix | str, ...]:
        """Every entry of the list: the prefixes, and the texts that cannot be read."""
        return (*self.reserved, *self.unparsed)


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class IPReservation:
    """A reservation as it is stored. It limits automatic assignment; a held address stays held."""

    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: IPReservationSpec = field(
        default=IPReservationSpec(),
        metadata=member("spec", IPReservationSpec, "What is reserved.", is_always_written=True),
    )
    unknown_json: str = ""


IPRESERVATION: Kind[IPReservation] = Kind("IPReservation", ("name",))


def ipreservation_key(name: str) -> Key[IPReservation]:
    """The key of the reservation with that name."""
    return IPRESERVATION.key(name)


# --- IPAMConfiguration -----------------------------------------------------------------------------------------------


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
