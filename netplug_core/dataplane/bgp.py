"""The interface of who speaks BGP for a node, and what it is to do, in values.

``netplug_core.reconcile.peers`` makes a :class:`BgpPlan` of nodes, pools and BGP resources; a :class:`BgpDaemon` makes
its daemon do that. What the node announces is no part of a plan: the daemon reads it from the kernel's table
:data:`~netplug_core.dataplane.routing.ADVERTISED_TABLE`, so that a new block changes no configuration.
``netplug_core.testing.bgp_checks`` tests every implementation.
"""

from __future__ import annotations

import enum
from typing import Final, Protocol, TypeAlias

from attrs import field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import NetplugError, excerpt
from netplug_core.resources.bgp import BindMode, ClusterRoutingMode, FilterAction, MatchOperator, PeerType
from netplug_core.resources.fields import LogSeverity

__all__ = [
    "BGP_PORT", "LEARNED_METRIC", "NO_BGP", "TUNNELLED_TABLE", "AddedCommunity", "BgpDaemon", "BgpPlan", "BgpRefused",
    "BgpSession", "BgpStatus", "BgpUse", "Communities", "FilterRule", "ForeignBgpDaemon", "NextHop", "Operation",
    "Prepended", "Priority", "RouteFilter", "SessionStatus",
]  # fmt: skip

BGP_PORT: Final = 179

LEARNED_METRIC: Final = 32
"""The metric of the routes that a daemon puts into the main table: after those that the node process writes (20)."""

TUNNELLED_TABLE: Final = 7802
"""Where the daemon puts routes within IPIP pools: the node process writes those that lead through the tunnel."""


# --- filters ----------------------------------------------------------------------------------------------------------


Communities: TypeAlias = tuple[tuple[int, ...], ...]
"""Communities, each of two or of three numbers."""


@frozen
class AddedCommunity:
    """The route gets a community."""

    community: tuple[int, ...]


@frozen
class Prepended:
    """These numbers stand in front of the AS path, in this order."""

    numbers: tuple[int, ...]


@frozen
class Priority:
    """The route gets a priority; the lower number is preferred."""

    value: int


Operation: TypeAlias = AddedCommunity | Prepended | Priority


@frozen(kw_only=True)
class FilterRule:
    """One rule. A route has to match everything that is given. ``is_from_peers``: only what peers have announced.

    ``prefix`` and ``operator`` are given together, or neither is. ``lengths`` are the shortest and the longest length
    that the prefix of a matching route may have.
    """

    action: FilterAction
    prefix: Prefix | None = None
    operator: MatchOperator = MatchOperator.IN
    lengths: tuple[int, int] | None = None
    is_from_peers: bool = False
    interface: str = ""
    peer_type: PeerType | None = None
    community: tuple[int, ...] = ()
    as_path_prefix: tuple[int, ...] = ()
    priority: int | None = None
    operations: tuple[Operation, ...] = ()


@frozen(kw_only=True)
class RouteFilter:
    """The rules of a filter for one family, in order. ``name`` has letters, digits and ``_`` only."""

    name: str
    family: Family
    imported: tuple[FilterRule, ...] = ()
    exported: tuple[FilterRule, ...] = ()


# --- sessions ---------------------------------------------------------------------------------------------------------


class NextHop(enum.Enum):
    """The next hop of routes that are announced.

    - ``AUTO``: as usual in BGP: within an AS as it came, to another one the node
    - ``SELF``: always the node
    - ``SELF_FOR_EXTERNAL``: the node for routes of other ASes, others as they came
    - ``KEEP``: always as it came
    """

    AUTO = "auto"
    SELF = "self"
    SELF_FOR_EXTERNAL = "self for external"
    KEEP = "keep"


@frozen(kw_only=True)
class BgpSession:
    """A session with one peer, for the family of its address. ``name`` has letters, digits and ``_`` only.

    - ``peer``: what people call it: the name of a node, or of the BGPPeer
    - ``source``: the node's address of the session; None: the kernel chooses
    - ``is_passive``: the other end connects
    - ``is_closed``: no route is taken from the peer, and none given: a filter that it names is not there
    - ``is_reflector_client``: routes of the own AS are passed on to the peer, and the peer's to others
    - ``ttl_hops``: the distance of the peer, if packets from further away are to be dropped
    - ``gateway``: the peer is reached through it
    - ``restart_s``: how long the peer keeps our routes while we restart
    """

    name: str
    peer: str
    address: Address
    port: int
    local_as: int
    peer_as: int
    source: Address | None = None
    is_passive: bool = False
    is_closed: bool = False
    is_reflector_client: bool = False
    password: str = field(default="", repr=False)
    hold_s: int = 90
    keepalive_s: int | None = None
    restart_s: int = 120
    ttl_hops: int | None = None
    allowed_local_as: int = 0
    next_hop: NextHop = NextHop.AUTO
    filters: tuple[str, ...] = ()
    gateway: Address | None = None

    @property
    def family(self) -> Family:
        """The family of the routes that are exchanged."""
        return self.address.family

    @property
    def is_internal(self) -> bool:
        """Whether both ends are in one AS."""
        return self.local_as == self.peer_as


@frozen(kw_only=True)
class BgpPlan:
    """What the daemon of a node does. Tuples are sorted, so that equal states are equal plans.

    - ``addresses``: those of the node, at most one of each family; own packets to learned routes have them as source
    - ``interface_addresses``: all of its interfaces; where they have changed, the daemon looks at its interfaces anew
    - ``cluster_id``: of a route reflector; None: the node is none
    - ``node_written``: pools whose routes the node process writes; what is learned within them stays out of the kernel
    - ``tunnelled``: those of them whose learned routes go into :data:`TUNNELLED_TABLE`
    - ``pools``: all pools; routes learned within them are passed on to other ASes
    - ``unexported``: prefixes within which nothing is announced
    - ``communities``: what routes within prefixes are announced with
    """

    node: str
    router_id: Address
    addresses: tuple[Address, ...] = ()
    interface_addresses: tuple[Address, ...] = ()
    listen_port: int = BGP_PORT
    bind_mode: BindMode = BindMode.ALL
    log_severity: LogSeverity = LogSeverity.INFO
    cluster_id: Address | None = None
    sessions: tuple[BgpSession, ...] = ()
    filters: tuple[RouteFilter, ...] = ()
    pools: tuple[Prefix, ...] = ()
    node_written: tuple[Prefix, ...] = ()
    tunnelled: tuple[Prefix, ...] = ()
    unexported: tuple[Prefix, ...] = ()
    communities: tuple[tuple[Prefix, Communities], ...] = ()
    ignored_interfaces: tuple[str, ...] = ()

    def find_address(self, family: Family) -> Address | None:
        """The address of the node in a family."""
        return next((one for one in self.addresses if one.family is family), None)


# --- what routes follow from ----------------------------------------------------------------------------------------


@frozen(kw_only=True)
class BgpUse:
    """What BGP does for the routes of a node: whether its own are announced, and who makes those of plain pools."""

    is_enabled: bool = False
    mode: ClusterRoutingMode = ClusterRoutingMode.BGP

    @property
    def makes_plain_routes(self) -> bool:
        """Whether the daemon makes the routes to pools without encapsulation; if not, the node process does."""
        return self.is_enabled and self.mode is ClusterRoutingMode.BGP


NO_BGP: Final = BgpUse()


# --- the daemon -------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class SessionStatus:
    """How a session does. ``state`` and ``error`` are the daemon's words; ``error`` is the last one, empty without.

    ``has_wrong_as``: one end is in another AS than the other one expects.
    """

    name: str
    is_established: bool
    state: str = ""
    since: str = ""
    error: str = ""
    has_wrong_as: bool = False


@frozen(kw_only=True)
class BgpStatus:
    """What a running daemon says. ``is_recovering``: it restarts, and waits for what its peers announce.

    ``configured_at`` is the time, as the daemon writes it, since when its configuration has been what it is.
    ``tunnelled`` are the prefixes in :data:`TUNNELLED_TABLE` with the next hops that were announced: the routes of the
    kernel there have the gateways by which the daemon would reach them.
    """

    version: str
    configured_at: str
    is_recovering: bool = False
    sessions: tuple[SessionStatus, ...] = ()
    tunnelled: tuple[tuple[Prefix, Address], ...] = ()


@frozen
class BgpRefused(NetplugError):
    """The daemon does not take a configuration; it goes on with the one it has. ``text`` is its own."""

    text: str

    def __str__(self) -> str:
        return f"the BGP daemon refuses its configuration: {excerpt(self.text)}"


@frozen
class ForeignBgpDaemon(NetplugError):
    """Another daemon speaks BGP on this machine, or has left routes; it and they are left alone."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"BGP is not started beside another daemon: {self.found}; {self.advice}"


class BgpDaemon(Protocol):
    """The daemon that speaks BGP for the node. One thread calls it."""

    def find_status(self, *, deadline: Deadline) -> BgpStatus | None:
        """What the daemon says; None: it does not run.

        Raises:
            Unavailable: it does not answer.
        """
        ...

    def apply(self, plan: BgpPlan, *, deadline: Deadline) -> bool:
        """Let the daemon do what the plan says; start it if it does not run. Return whether it did anything else.

        Sessions that are the same in both plans go on. It lasts when this process ends.

        Raises:
            BgpRefused: nothing is changed.
            ForeignBgpDaemon: the daemon does not run, and another one does, or has left its routes.
            ConfigurationError: there is no daemon on this machine.
            Unavailable: the daemon does not answer.
        """
        ...

    def pause(self, *, deadline: Deadline) -> None:
        """End the daemon so that the routes stay, here and at its peers, for as long as the sessions say.

        That it does not run is no error.

        Raises:
            Unavailable: it does not answer.
        """
        ...

    def stop(self, *, deadline: Deadline) -> None:
        """Withdraw everything, here and at the peers, and end the daemon; nothing of it is left.

        That it does not run is no error.

        Raises:
            Unavailable: it does not answer.
        """
        ...
