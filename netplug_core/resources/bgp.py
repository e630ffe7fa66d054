"""The kinds BGPConfiguration, BGPPeer and BGPFilter: their values, their members, and what a user may ask of them."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Final

from attrs import field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.decoding.codecs import BOOLEAN, TEXT, limited
from netplug_core.decoding.tables import ListOf, json_object, member
from netplug_core.names import is_resource_name
from netplug_core.records import Kind
from netplug_core.resources.fields import (
    AS_NUMBER,
    CIDR,
    DURATION,
    ENVELOPE,
    IP_ADDRESS,
    MAX_PORT,
    NAME_LIMITS,
    NAME_PATTERN,
    PORT,
    WORD_PATTERN,
    FieldError,
    LogSeverity,
    Metadata,
    integer_between,
    validate_selector,
    validate_word,
)

__all__ = [
    "BGP_CONFIGURATION", "BGP_FILTER", "BGP_PEER", "DEFAULT_ONLY", "AddCommunity", "AdvertisedPrefix",
    "BGPConfiguration", "BGPConfigurationSpec", "BGPFilter", "BGPFilterRule", "BGPFilterSpec", "BGPPassword",
    "BGPPeer", "BGPPeerSpec", "BindMode", "ClusterRoutingMode", "Community", "CommunityMatch", "FilterAction",
    "FilterOperation", "MatchOperator", "NextHopMode", "PeerType", "PrefixLengths", "PrependASPath", "ReversePeering",
    "RouteSource", "SecretKeyReference", "ServiceRange", "SetPriority", "SourceAddress", "find_community",
    "find_peer_address", "validate_bgp_configuration", "validate_bgp_filter", "validate_bgp_peer",
]  # fmt: skip


# --- values of members ------------------------------------------------------------------------------------------------


_COMMUNITY_PATTERN: Final = "[0-9]{1,5}:[0-9]{1,5}|[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}"
"""The form of a community's value (RFC 1997, RFC 8092), without the bounds of its numbers."""

_IGNORED_INTERFACE_PATTERN: Final = "[A-Za-z0-9_.*-]{1,15}"
_SECRET_KEY_PATTERN: Final = "[A-Za-z0-9_.-]{1,253}"  # noqa: S105  # no password

_INTERFACE_GLOB_PATTERN: Final = _IGNORED_INTERFACE_PATTERN

_MAX_BYTE: Final = 255
_IPV6_WIDTH: Final = 128
_MAX_OPERATIONS: Final = 10
_MAX_PREPENDED: Final = 10
_PRIORITY: Final = integer_between(1, 2**31 - 2)


# --- BGPConfiguration -------------------------------------------------------------------------------------------------


class BindMode(enum.Enum):
    """Which addresses the BGP process of a node listens on: all of them, or that of the node."""

    ALL = "None"
    NODE_IP = "NodeIP"


class ClusterRoutingMode(enum.Enum):
    """Who makes the routes to the blocks of pools without encapsulation: BGP, or the node process itself."""

    BGP = "BGP"
    NODE = "Node"


@frozen(kw_only=True)
class SecretKeyReference:
    """A member of a Secret, in the namespace of the node process."""

    name: str = field(metadata=member("name", TEXT, "the Secret", limits=NAME_LIMITS))
    key: str = field(metadata=member("key", TEXT, "the member", limits={"pattern": f"^{_SECRET_KEY_PATTERN}$"}))
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPPassword:
    """Where the password of a session is kept. Resources never hold it."""

    # fmt: off
    secret: SecretKeyReference = field(metadata=member("secretKeyRef", SecretKeyReference,
        "the member of a Secret that holds it"))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class ServiceRange:
    """A range of Services' addresses that is advertised."""

    prefix: Prefix = field(metadata=member("cidr", CIDR, "one range"))
    unknown_json: str = ""


@frozen(kw_only=True)
class Community:
    """A BGP community by a name of the cluster's own."""

    # fmt: off
    name: str = field(metadata=member("name", TEXT, "the name", limits={"pattern": f"^{WORD_PATTERN}$"}))
    value: str = field(metadata=member("value", TEXT,
        "two numbers of 16 bits (65001:100), or three of 32 bits (65001:100:3)",
        limits={"pattern": f"^({_COMMUNITY_PATTERN})$"}))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class AdvertisedPrefix:
    """The communities, by name or value, with which routes within a prefix are advertised."""

    # fmt: off
    prefix: Prefix = field(metadata=member("cidr", CIDR, "the prefix"))
    communities: tuple[str, ...] = field(default=(), metadata=member("communities",
        ListOf(limited(TEXT, pattern=f"^{WORD_PATTERN}$|^({_COMMUNITY_PATTERN})$")), "names of communities, or values"))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPConfigurationSpec:
    """The settings; what is not given has the default of the program that reads it.

    Sessions between all nodes (the mesh), the number of the AS, and the addresses of Services are the whole cluster's,
    so they are settings of ``default`` alone.
    """

    # fmt: off
    log_severity: LogSeverity | None = field(default=None, metadata=member("logSeverityScreen", LogSeverity,
        "the level below which the BGP process writes no lines"))
    has_node_mesh: bool | None = field(default=None, metadata=member("nodeToNodeMeshEnabled", BOOLEAN,
        "whether every node has a session with every other one; default only"))
    as_number: int | None = field(default=None, metadata=member("asNumber", AS_NUMBER,
        "the number of the AS of nodes that name none; default only"))
    cluster_routing_mode: ClusterRoutingMode | None = field(default=None, metadata=member("clusterRoutingMode",
        ClusterRoutingMode, "who makes the routes of pools without encapsulation: BGP, or Node, the node process, "
        "which reaches the nodes of its own subnet only; default only"))
    listen_port: int | None = field(default=None, metadata=member("listenPort", PORT,
        "the port that the BGP process listens on"))
    bind_mode: BindMode | None = field(default=None, metadata=member("bindMode", BindMode,
        "whether it listens on all addresses of the node (None), or on the node's own (NodeIP)"))
    mesh_password: BGPPassword | None = field(default=None, metadata=member("nodeMeshPassword", BGPPassword,
        "the password of the sessions between nodes; default only"))
    mesh_max_restart_time: str = field(default="", metadata=member("nodeMeshMaxRestartTime", DURATION,
        "how long routes are kept while a session between nodes restarts; default only"))
    service_cluster_ips: tuple[ServiceRange, ...] = field(default=(), metadata=member("serviceClusterIPs",
        ListOf(ServiceRange), "ranges of Services' cluster addresses that are advertised; default only"))
    service_external_ips: tuple[ServiceRange, ...] = field(default=(), metadata=member("serviceExternalIPs",
        ListOf(ServiceRange), "ranges of Services' external addresses that are advertised; default only"))
    service_load_balancer_ips: tuple[ServiceRange, ...] = field(default=(), metadata=member("serviceLoadBalancerIPs",
        ListOf(ServiceRange), "ranges of load balancers' addresses that are advertised; default only"))
    communities: tuple[Community, ...] = field(default=(), metadata=member("communities", ListOf(Community),
        "communities by name"))
    advertised: tuple[AdvertisedPrefix, ...] = field(default=(), metadata=member("prefixAdvertisements",
        ListOf(AdvertisedPrefix), "communities of the routes within some prefixes"))
    ignored_interfaces: tuple[str, ...] = field(default=(), metadata=member("ignoredInterfaces",
        ListOf(limited(TEXT, pattern=f"^{_IGNORED_INTERFACE_PATTERN}$")),
        "interfaces whose routes are not read; * stands for any characters"))
    # fmt: on
    unknown_json: str = ""

    @property
    def has_service_ranges(self) -> bool:
        """Whether ranges of Services' addresses are given."""
        return bool(self.service_cluster_ips or self.service_external_ips or self.service_load_balancer_ips)


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class BGPConfiguration:
    """A configuration as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: BGPConfigurationSpec = field(default=BGPConfigurationSpec(), metadata=member("spec", BGPConfigurationSpec,
        is_always_written=True))
    # fmt: on
    unknown_json: str = ""


BGP_CONFIGURATION: Kind[BGPConfiguration] = Kind("BGPConfiguration", ("name",))


# --- BGPPeer ----------------------------------------------------------------------------------------------------------


class NextHopMode(enum.Enum):
    """The next hop of routes that are passed on: as usual in BGP, the node itself, or as they came."""

    AUTO = "Auto"
    SELF = "Self"
    KEEP = "Keep"


class ReversePeering(enum.Enum):
    """Whether nodes that are peers have the session too, or need a peer of their own that says so."""

    AUTO = "Auto"
    MANUAL = "Manual"


class SourceAddress(enum.Enum):
    """The address from which the session is opened: the node's BGP address, or what the kernel chooses."""

    NODE_IP = "UseNodeIP"
    ANY = "None"


@frozen(kw_only=True)
class BGPPeerSpec:
    """The nodes (one, those of a selector, or all) and their peer: an address, or the nodes of a selector.

    ``peer_ip`` may have a port, as ``192.0.2.1:179`` or ``[2001:db8::1]:179``; ``as_number`` belongs to it.
    ``reachable_by`` is the gateway to it. ``ttl_security`` is the distance to the peer, in hops.
    ``local_workload_selector`` stands for workloads of the node as peers.
    """

    # fmt: off
    node: str = field(default="", metadata=member("node", TEXT,
        "the node that has the session; with neither this nor nodeSelector, every node",
        limits={**NAME_LIMITS, "pattern": f"^({NAME_PATTERN})?$"}))
    node_selector: str = field(default="", metadata=member("nodeSelector", TEXT, "the nodes that have the session"))
    peer_ip: str = field(default="", metadata=member("peerIP", TEXT, "the address of the peer, with or without a port"))
    peer_selector: str = field(default="", metadata=member("peerSelector", TEXT, "the nodes that are the peers"))
    local_workload_selector: str = field(default="", metadata=member("localWorkloadSelector", TEXT,
        "the workloads of the node that are the peers; not yet supported"))
    as_number: int | None = field(default=None, metadata=member("asNumber", AS_NUMBER,
        "the number of the peer's AS; with peerIP or localWorkloadSelector"))
    local_as_number: int | None = field(default=None, metadata=member("localASNumber", AS_NUMBER,
        "the number of the node's own AS in this session; that of the node unless given"))
    password: BGPPassword | None = field(default=None, metadata=member("password", BGPPassword,
        "the password of the session"))
    source_address: SourceAddress | None = field(default=None, metadata=member("sourceAddress", SourceAddress,
        "the address from which the session is opened: UseNodeIP, or None for the kernel's choice"))
    next_hop_mode: NextHopMode | None = field(default=None, metadata=member("nextHopMode", NextHopMode,
        "the next hop of routes that are passed on: as usual (Auto), the node (Self), or unchanged (Keep)"))
    keeps_original_next_hop: bool | None = field(default=None, metadata=member("keepOriginalNextHop", BOOLEAN,
        "the older spelling of nextHopMode Keep"))
    reachable_by: Address | None = field(default=None, metadata=member("reachableBy", IP_ADDRESS,
        "the gateway to the peer; with peerIP"))
    max_restart_time: str = field(default="", metadata=member("maxRestartTime", DURATION,
        "how long routes are kept while the session restarts"))
    keepalive_time: str = field(default="", metadata=member("keepaliveTime", DURATION,
        "the time between two messages that say that the node is there"))
    allowed_local_as_numbers: int | None = field(default=None, metadata=member("numAllowedLocalASNumbers",
        integer_between(0, _MAX_BYTE), "how often the own AS may be in the path of a route"))
    ttl_security: int | None = field(default=None, metadata=member("ttlSecurity", integer_between(1, _MAX_BYTE),
        "the distance to the peer in hops; packets from further away are dropped"))
    reverse_peering: ReversePeering | None = field(default=None, metadata=member("reversePeering", ReversePeering,
        "whether nodes of peerSelector have the session too (Auto), or need a peer of their own (Manual)"))
    filters: tuple[str, ...] = field(default=(), metadata=member("filters", ListOf(limited(TEXT, **NAME_LIMITS)),
        "the BGPFilters that routes pass, in this order"))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class BGPPeer:
    """A peer as it is stored."""

    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: BGPPeerSpec = field(default=BGPPeerSpec(), metadata=member("spec", BGPPeerSpec, is_always_written=True))
    unknown_json: str = ""


BGP_PEER: Kind[BGPPeer] = Kind("BGPPeer", ("name",))


# --- BGPFilter --------------------------------------------------------------------------------------------------------


class MatchOperator(enum.Enum):
    """How the prefix of a route is compared with that of a rule: it is the same one, or lies within."""

    EQUAL = "Equal"
    NOT_EQUAL = "NotEqual"
    IN = "In"
    NOT_IN = "NotIn"


class RouteSource(enum.Enum):
    """Where the routes come from that a rule is about."""

    REMOTE_PEERS = "RemotePeers"


class PeerType(enum.Enum):
    """Whether the peer is in another AS, or in that of the node."""

    EXTERNAL = "eBGP"
    INTERNAL = "iBGP"


class FilterAction(enum.Enum):
    """What happens to a route that a rule matches; no later rule sees it."""

    ACCEPT = "Accept"
    REJECT = "Reject"


@frozen(kw_only=True)
class PrefixLengths:
    """The lengths that the prefix of a route may have. Both are included."""

    minimum: int | None = field(default=None, metadata=member("min", integer_between(0, _IPV6_WIDTH), "the shortest"))
    maximum: int | None = field(default=None, metadata=member("max", integer_between(0, _IPV6_WIDTH), "the longest"))
    unknown_json: str = ""


@frozen(kw_only=True)
class CommunityMatch:
    """A community that a route has."""

    # fmt: off
    values: tuple[str, ...] = field(default=(), metadata=member("values", ListOf(limited(TEXT,
        pattern=f"^({_COMMUNITY_PATTERN})$")), "the community, as 65001:100 or 65001:100:3",
        limits={"minItems": 1, "maxItems": 1}))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class AddCommunity:
    """A community that the route gets beside those it has."""

    value: str = field(metadata=member("value", TEXT, "the value", limits={"pattern": f"^({_COMMUNITY_PATTERN})$"}))
    unknown_json: str = ""


@frozen(kw_only=True)
class PrependASPath:
    """Numbers that stand in front of the AS path afterwards, in this order."""

    # fmt: off
    numbers: tuple[int, ...] = field(default=(), metadata=member("prefix", ListOf(AS_NUMBER), "the numbers",
        limits={"minItems": 1, "maxItems": _MAX_PREPENDED}))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class SetPriority:
    """The priority of the route; of two routes to one prefix the lower number is used."""

    value: int = field(metadata=member("value", _PRIORITY, "the priority"))
    unknown_json: str = ""


@frozen(kw_only=True)
class FilterOperation:
    """One change of a route that is accepted: exactly one of these."""

    # fmt: off
    add_community: AddCommunity | None = field(default=None, metadata=member("addCommunity", AddCommunity,
        "a community that it gets"))
    prepend_as_path: PrependASPath | None = field(default=None, metadata=member("prependASPath", PrependASPath,
        "numbers in front of its AS path"))
    set_priority: SetPriority | None = field(default=None, metadata=member("setPriority", SetPriority,
        "its priority"))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPFilterRule:
    """One rule. A route has to match everything that is given; without anything it matches every route.

    ``prefix`` and ``match_operator`` are given together.
    """

    # fmt: off
    prefix: Prefix | None = field(default=None, metadata=member("cidr", CIDR, "the prefix; with matchOperator"))
    match_operator: MatchOperator | None = field(default=None, metadata=member("matchOperator", MatchOperator,
        "how the prefix of a route is compared with cidr"))
    prefix_lengths: PrefixLengths | None = field(default=None, metadata=member("prefixLength", PrefixLengths,
        "the lengths of prefixes, with cidr"))
    source: RouteSource | None = field(default=None, metadata=member("source", RouteSource,
        "RemotePeers: only routes that peers have announced; of rules for export only"))
    interface: str = field(default="", metadata=member("interface", TEXT,
        "the interface that the route leads to; * stands for any characters",
        limits={"pattern": f"^({_INTERFACE_GLOB_PATTERN})?$"}))
    peer_type: PeerType | None = field(default=None, metadata=member("peerType", PeerType,
        "only with peers of another AS (eBGP), or of the same one (iBGP)"))
    communities: CommunityMatch | None = field(default=None, metadata=member("communities", CommunityMatch,
        "a community that the route has"))
    as_path_prefix: tuple[int, ...] = field(default=(), metadata=member("asPathPrefix", ListOf(AS_NUMBER),
        "what the AS path begins with"))
    priority: int | None = field(default=None, metadata=member("priority", _PRIORITY, "the priority of the route"))
    action: FilterAction = field(metadata=member("action", FilterAction, "what happens to the route"))
    operations: tuple[FilterOperation, ...] = field(default=(), metadata=member("operations", ListOf(FilterOperation),
        "changes of the route, with Accept", limits={"maxItems": _MAX_OPERATIONS}))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPFilterSpec:
    """The rules of each family and direction, in order. The first that matches decides, and without one the defaults.

    Routes of the node itself and routes that peers announced can be exported, and no others.
    """

    # fmt: off
    export_v4: tuple[BGPFilterRule, ...] = field(default=(), metadata=member("exportV4", ListOf(BGPFilterRule),
        "rules for IPv4 routes to the peer"))
    import_v4: tuple[BGPFilterRule, ...] = field(default=(), metadata=member("importV4", ListOf(BGPFilterRule),
        "rules for IPv4 routes from the peer"))
    export_v6: tuple[BGPFilterRule, ...] = field(default=(), metadata=member("exportV6", ListOf(BGPFilterRule),
        "rules for IPv6 routes to the peer"))
    import_v6: tuple[BGPFilterRule, ...] = field(default=(), metadata=member("importV6", ListOf(BGPFilterRule),
        "rules for IPv6 routes from the peer"))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class BGPFilter:
    """A filter as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: BGPFilterSpec = field(default=BGPFilterSpec(), metadata=member("spec", BGPFilterSpec,
        is_always_written=True))
    # fmt: on
    unknown_json: str = ""

    def rules_for(self, family: Family) -> tuple[tuple[BGPFilterRule, ...], tuple[BGPFilterRule, ...]]:
        """The rules of a family: those for import, and those for export."""
        spec = self.spec
        return (spec.import_v4, spec.export_v4) if family is Family.IPV4 else (spec.import_v6, spec.export_v6)


BGP_FILTER: Kind[BGPFilter] = Kind("BGPFilter", ("name",))


# --- rules ------------------------------------------------------------------------------------------------------------


DEFAULT_ONLY: Final = {
    "nodeToNodeMeshEnabled": "NodeToNodeMeshEnabled",
    "asNumber": "ASNumber",
    "nodeMeshPassword": "NodeMeshPassword",  # no password
    "nodeMeshMaxRestartTime": "NodeMeshMaxRestartTime",
    "clusterRoutingMode": "ClusterRoutingMode",
    "serviceClusterIPs": "ServiceClusterIPs",
    "serviceExternalIPs": "ServiceExternalIPs",
    "serviceLoadBalancerIPs": "ServiceLoadBalancerIPs",
}
"""The members that only ``default`` may have, and their names in errors."""

_PEER_WITH_PORT: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[0-9.]+)):(?P<port>[0-9]{1,5})")
_COMMUNITY_FORMS: Final = "two numbers up to 65535 as 65001:100, or three up to 4294967295 as 65001:100:3"
_DEFAULT: Final = "default"
_ALL_INTERFACES: Final = "*"
_MAX_NUMBER: Final = {2: 2**16 - 1, 3: 2**32 - 1}  # of a community of so many


def validate_bgp_configuration(configuration: BGPConfiguration) -> Iterator[FieldError]:
    """What is wrong with a BGP configuration by itself."""
    spec = configuration.spec
    given = dict(_cluster_settings(configuration))
    if configuration.metadata.name != _DEFAULT:
        for name, text in given.items():
            rule = f"Cannot set {DEFAULT_ONLY[name]} on a non default BGP Configuration."
            yield FieldError(f"spec.{name}", text, rule)
    if spec.has_node_mesh is False:
        for name in ("nodeMeshPassword", "nodeMeshMaxRestartTime"):
            if name in given:
                yield FieldError(f"spec.{name}", given[name], "needs nodeToNodeMeshEnabled true, its default")
    yield from _validate_password("spec.nodeMeshPassword", spec.mesh_password)
    yield from _validate_communities(configuration)
    for index, name in enumerate(spec.ignored_interfaces):
        if not re.fullmatch(_IGNORED_INTERFACE_PATTERN, name) or name == _ALL_INTERFACES:
            rule = "must be at most 15 letters, digits, '_', '.', '-' and '*', and not '*' alone"
            yield FieldError(f"spec.ignoredInterfaces[{index}]", name, rule)


def _cluster_settings(configuration: BGPConfiguration) -> Iterator[tuple[str, str]]:
    """The members that are given of those that are the whole cluster's, as texts."""
    spec = configuration.spec
    if spec.has_node_mesh is not None:
        yield "nodeToNodeMeshEnabled", str(spec.has_node_mesh).lower()
    if spec.as_number is not None:
        yield "asNumber", str(spec.as_number)
    if spec.mesh_password is not None:
        yield "nodeMeshPassword", f"{spec.mesh_password.secret.name}/{spec.mesh_password.secret.key}"
    if spec.mesh_max_restart_time:
        yield "nodeMeshMaxRestartTime", spec.mesh_max_restart_time
    if spec.cluster_routing_mode is not None:
        yield "clusterRoutingMode", spec.cluster_routing_mode.value
    for name, ranges in (
        ("serviceClusterIPs", spec.service_cluster_ips),
        ("serviceExternalIPs", spec.service_external_ips),
        ("serviceLoadBalancerIPs", spec.service_load_balancer_ips),
    ):
        if ranges:
            yield name, ", ".join(str(one.prefix) for one in ranges)


def _validate_password(place: str, password: BGPPassword | None) -> Iterator[FieldError]:
    if password is None:
        return
    secret, place = password.secret, f"{place}.secretKeyRef"
    if not is_resource_name(secret.name):
        yield FieldError(f"{place}.name", secret.name, "must be the name of a Secret")
    if not re.fullmatch(_SECRET_KEY_PATTERN, secret.key):
        yield FieldError(f"{place}.key", secret.key, "must be 1 to 253 letters, digits, '_', '.' and '-'")


def _validate_communities(configuration: BGPConfiguration) -> Iterator[FieldError]:
    names = set[str]()
    for index, community in enumerate(configuration.spec.communities):
        place = f"spec.communities[{index}]"
        yield from validate_word(f"{place}.name", community.name)
        if community.name in names:
            yield FieldError(f"{place}.name", community.name, "another community has it too")
        if not _is_community(community.value):
            yield FieldError(f"{place}.value", community.value, f"must be {_COMMUNITY_FORMS}")
        names.add(community.name)
    for index, advertised in enumerate(configuration.spec.advertised):
        for number, text in enumerate(advertised.communities):
            if text not in names and not _is_community(text):
                place = f"spec.prefixAdvertisements[{index}].communities[{number}]"
                yield FieldError(place, text, f"must be a name of spec.communities, or {_COMMUNITY_FORMS}")


def _is_community(text: str) -> bool:
    return find_community(text) is not None


def find_community(text: str) -> tuple[int, ...] | None:
    """The two or three numbers of the value of a community; None if it is none."""
    if not re.fullmatch(_COMMUNITY_PATTERN, text):
        return None
    numbers = tuple(int(number) for number in text.split(":"))
    return numbers if max(numbers) <= _MAX_NUMBER[len(numbers)] else None


# --- peers ------------------------------------------------------------------------------------------------------------


def validate_bgp_peer(peer: BGPPeer) -> Iterator[FieldError]:
    """What is wrong with a peer by itself."""
    spec = peer.spec
    if spec.node and not is_resource_name(spec.node):
        yield FieldError("spec.node", spec.node, "must be the name of a node")
    if spec.node and spec.node_selector:
        yield FieldError("spec.nodeSelector", spec.node_selector, "cannot be used with node")
    yield from _validate_remote(spec)
    for place, selector in (
        ("spec.nodeSelector", spec.node_selector),
        ("spec.peerSelector", spec.peer_selector),
        ("spec.localWorkloadSelector", spec.local_workload_selector),
    ):
        yield from validate_selector(place, selector)
    yield from _validate_password("spec.password", spec.password)
    if spec.keeps_original_next_hop and spec.next_hop_mode is not None and spec.next_hop_mode is not NextHopMode.KEEP:
        yield FieldError(
            "spec.keepOriginalNextHop", "true", f"cannot be used with nextHopMode {spec.next_hop_mode.value}"
        )
    for index, name in enumerate(spec.filters):
        if not is_resource_name(name):
            yield FieldError(f"spec.filters[{index}]", name, "must be the name of a BGPFilter")


def _validate_remote(spec: BGPPeerSpec) -> Iterator[FieldError]:
    """The peer is an address or workloads, with an AS, or it is nodes, which have an AS of their own."""
    remote = find_peer_address(spec.peer_ip)
    given = [
        (name, text)
        for name, text in (
            ("peerIP", spec.peer_ip),
            ("peerSelector", spec.peer_selector),
            ("localWorkloadSelector", spec.local_workload_selector),
        )
        if text
    ]
    if not given:
        yield FieldError("spec.peerIP", "", "must be given, or peerSelector")
    for name, text in given[1:]:
        yield FieldError(f"spec.{name}", text, f"cannot be used with {given[0][0]}")
    if spec.peer_ip and remote is None:
        rule = "must be an IP address, which may have a port: 192.0.2.1:179 or [2001:db8::1]:179"
        yield FieldError("spec.peerIP", spec.peer_ip, rule)
    if given and given[0][0] != "peerSelector" and spec.as_number is None:
        yield FieldError("spec.asNumber", "", f"must be given with {given[0][0]}")
    if given and given[0][0] == "peerSelector" and spec.as_number is not None:
        rule = "cannot be used with peerSelector: the selected nodes have their own"
        yield FieldError("spec.asNumber", spec.as_number, rule)
    if spec.reachable_by is not None and (remote is None or remote[0].family is not spec.reachable_by.family):
        yield FieldError("spec.reachableBy", spec.reachable_by, "needs peerIP, and must be of its family")


def find_peer_address(text: str) -> tuple[Address, int | None] | None:
    """The address of a peer, and its port if one is given; None if the text is no address."""
    with_port = _PEER_WITH_PORT.fullmatch(text)
    port = None if with_port is None else int(with_port["port"])
    if port is not None and not 1 <= port <= MAX_PORT:
        return None
    try:
        address = Address.parse(text if with_port is None else with_port["six"] or with_port["four"])
    except ValueError:
        return None
    is_bracketed = with_port is not None and with_port["six"] is not None
    return None if is_bracketed and address.family is Family.IPV4 else (address, port)


# --- filters ----------------------------------------------------------------------------------------------------------


def validate_bgp_filter(bgp_filter: BGPFilter) -> Iterator[FieldError]:
    """What is wrong with a filter by itself."""
    spec = bgp_filter.spec
    for name, family, rules in (
        ("exportV4", Family.IPV4, spec.export_v4),
        ("importV4", Family.IPV4, spec.import_v4),
        ("exportV6", Family.IPV6, spec.export_v6),
        ("importV6", Family.IPV6, spec.import_v6),
    ):
        for index, rule in enumerate(rules):
            place = f"spec.{name}[{index}]"
            yield from _validate_prefix_match(place, rule, family)
            yield from _validate_further_matches(place, rule, is_import=name.startswith("import"))
            yield from _validate_operations(place, rule)


def _validate_prefix_match(place: str, rule: BGPFilterRule, family: Family) -> Iterator[FieldError]:
    if rule.prefix is None and rule.match_operator is not None:
        yield FieldError(f"{place}.matchOperator", rule.match_operator.value, "needs cidr")
    if rule.prefix is not None and rule.match_operator is None:
        yield FieldError(f"{place}.cidr", rule.prefix, "needs matchOperator")
    if rule.prefix is not None and rule.prefix.family is not family:
        yield FieldError(f"{place}.cidr", rule.prefix, f"must be a prefix of {family}")
    lengths = rule.prefix_lengths
    if lengths is None:
        return
    if rule.prefix is None:
        yield FieldError(f"{place}.prefixLength", "", "needs cidr")
    for name, length in (("min", lengths.minimum), ("max", lengths.maximum)):
        if length is not None and length > family.width:
            yield FieldError(f"{place}.prefixLength.{name}", length, f"must be at most {family.width}")
    if lengths.minimum is not None and lengths.maximum is not None and lengths.minimum > lengths.maximum:
        yield FieldError(f"{place}.prefixLength.min", lengths.minimum, "must not be above max")


def _validate_further_matches(place: str, rule: BGPFilterRule, *, is_import: bool) -> Iterator[FieldError]:
    if is_import and rule.source is not None:
        text = "cannot be used in a rule for import: every route that is imported comes from a peer"
        yield FieldError(f"{place}.source", rule.source.value, text)
    if rule.interface and not re.fullmatch(_INTERFACE_GLOB_PATTERN, rule.interface):
        text = "must be at most 15 letters, digits, '_', '.', '-' and '*'"
        yield FieldError(f"{place}.interface", rule.interface, text)
    if rule.communities is not None:
        values = rule.communities.values
        if len(values) != 1:
            yield FieldError(f"{place}.communities.values", ", ".join(values), "must be one community")
        for index, value in enumerate(values):
            if not _is_community(value):
                yield FieldError(f"{place}.communities.values[{index}]", value, f"must be {_COMMUNITY_FORMS}")


def _validate_operations(place: str, rule: BGPFilterRule) -> Iterator[FieldError]:
    if rule.operations and rule.action is not FilterAction.ACCEPT:
        yield FieldError(f"{place}.operations", rule.action.value, "cannot be used with action Reject")
    if len(rule.operations) > _MAX_OPERATIONS:
        yield FieldError(f"{place}.operations", len(rule.operations), f"must be at most {_MAX_OPERATIONS}")
    for index, operation in enumerate(rule.operations):
        here = f"{place}.operations[{index}]"
        given = [operation.add_community, operation.prepend_as_path, operation.set_priority]
        if sum(one is not None for one in given) != 1:
            yield FieldError(here, "", "must have exactly one of addCommunity, prependASPath and setPriority")
        if operation.add_community is not None and not _is_community(operation.add_community.value):
            value = operation.add_community.value
            yield FieldError(f"{here}.addCommunity.value", value, f"must be {_COMMUNITY_FORMS}")
        if operation.prepend_as_path is not None and not 1 <= len(operation.prepend_as_path.numbers) <= _MAX_PREPENDED:
            text = f"must be 1 to {_MAX_PREPENDED} numbers"
            yield FieldError(f"{here}.prependASPath.prefix", len(operation.prepend_as_path.numbers), text)
