"""The kind IPPool: a prefix, and who may use it."""

from __future__ import annotations

import enum

from attrs import Factory, field, frozen

from netplug_core.addressing import Prefix
from netplug_core.errors import require_count, require_type
from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import Metadata

__all__ = [
    "IPPOOL", "AllowedUse", "AssignmentMode", "Encapsulation", "IPPool", "IPPoolSpec", "IPPoolStatus", "PoolCondition",
    "ippool_key",
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


@frozen(kw_only=True)
class IPPoolSpec:
    """What the user asked of a pool, defaults filled in.

    ``block_length`` is the prefix length of the pool's blocks (``blockSize`` on the wire). Selectors are kept as
    text; the empty namespace selector selects every namespace.
    """

    prefix: Prefix
    block_length: int = field(default=Factory(lambda self: self._default_block_length(), takes_self=True))
    is_disabled: bool = False
    allowed_uses: tuple[AllowedUse, ...] = (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)
    node_selector: str = "all()"
    namespace_selector: str = ""
    assignment_mode: AssignmentMode = AssignmentMode.AUTOMATIC
    ipip_mode: Encapsulation = Encapsulation.NEVER
    vxlan_mode: Encapsulation = Encapsulation.NEVER
    has_outgoing_nat: bool = False
    is_bgp_export_disabled: bool = False
    unknown_json: str = ""

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

    type: str
    status: str
    reason: str = ""
    message: str = ""
    unknown_json: str = ""


@frozen(kw_only=True)
class IPPoolStatus:
    """What the controllers found out about a pool."""

    conditions: tuple[PoolCondition, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class IPPool:
    """A pool as it is stored."""

    metadata: Metadata
    spec: IPPoolSpec
    status: IPPoolStatus = IPPoolStatus()
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
