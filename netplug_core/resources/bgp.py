"""The kinds BGPConfiguration and BGPPeer: their values, their members, and what a user may ask of them."""

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
    IP_ADDRESS,
    MAX_PORT,
    NAME_LIMITS,
    NAME_PATTERN,
    PORT,
    WORD_PATTERN,
    FieldError,
    LogSeverity,
    integer_between,
    validate_selector,
    validate_word,
)
from netplug_core.resources.metadata import ENVELOPE, Metadata

__all__ = [
    "BGP_CONFIGURATION", "BGP_PEER", "DEFAULT_ONLY", "AdvertisedPrefix", "BGPConfiguration", "BGPConfigurationSpec",
    "BGPPassword", "BGPPeer", "BGPPeerSpec", "BindMode", "Community", "NextHopMode", "SecretKeyReference",
    "ServiceRange", "SourceAddress", "validate_bgp_configuration", "validate_bgp_peer",
]  # fmt: skip


# --- values of members ------------------------------------------------------------------------------------------------


_COMMUNITY_PATTERN: Final = "[0-9]{1,5}:[0-9]{1,5}|[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}"
"""The form of a community's value (RFC 1997, RFC 8092), without the bounds of its numbers."""

_IGNORED_INTERFACE_PATTERN: Final = "[A-Za-z0-9_.*-]{1,15}"
_SECRET_KEY_PATTERN: Final = "[A-Za-z0-9_.-]{1,253}"  # noqa: S105  # no password

_MAX_BYTE: Final = 255


# --- BGPConfiguration -------------------------------------------------------------------------------------------------


class BindMode(enum.Enum):
    """Which addresses the BGP process of a node listens on: all of them, or that of the node."""

    ALL = "None"
    NODE_IP = "NodeIP"


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


class SourceAddress(enum.Enum):
    """The address from which the session is opened: the node's BGP address, or what the kernel chooses."""

    NODE_IP = "UseNodeIP"
    ANY = "None"


@frozen(kw_only=True)
class BGPPeerSpec:
    """The nodes (one, those of a selector, or all) and their peer (an address, or the nodes of a selector).

    ``peer_ip`` may have a port, as ``192.0.2.1:179`` or ``[2001:db8::1]:179``; ``as_number`` belongs to it.
    ``reachable_by`` is the gateway to it. ``ttl_security`` is the distance to the peer, in hops.
    """

    # fmt: off
    node: str = field(default="", metadata=member("node", TEXT,
        "the node that has the session; with neither this nor nodeSelector, every node",
        limits={**NAME_LIMITS, "pattern": f"^({NAME_PATTERN})?$"}))
    node_selector: str = field(default="", metadata=member("nodeSelector", TEXT, "the nodes that have the session"))
    peer_ip: str = field(default="", metadata=member("peerIP", TEXT, "the address of the peer, with or without a port"))
    peer_selector: str = field(default="", metadata=member("peerSelector", TEXT, "the nodes that are the peers"))
    as_number: int | None = field(default=None, metadata=member("asNumber", AS_NUMBER,
        "the number of the peer's AS; with peerIP"))
    password: BGPPassword | None = field(default=None, metadata=member("password", BGPPassword,
        "the password of the session"))
    source_address: SourceAddress | None = field(default=None, metadata=member("sourceAddress", SourceAddress,
        "the address from which the session is opened: UseNodeIP, or None for the kernel's choice"))
    next_hop_mode: NextHopMode | None = field(default=None, metadata=member("nextHopMode", NextHopMode,
        "the next hop of routes that are passed on: as usual (Auto), the node (Self), or unchanged (Keep)"))
    reachable_by: Address | None = field(default=None, metadata=member("reachableBy", IP_ADDRESS,
        "the gateway to the peer; with peerIP"))
    max_restart_time: str = field(default="", metadata=member("maxRestartTime", DURATION,
        "how long routes are kept while the session restarts"))
    allowed_local_as_numbers: int | None = field(default=None, metadata=member("numAllowedLocalASNumbers",
        integer_between(0, _MAX_BYTE), "how often the own AS may be in the path of a route"))
    ttl_security: int | None = field(default=None, metadata=member("ttlSecurity", integer_between(1, _MAX_BYTE),
        "the distance to the peer in hops; packets from further away are dropped"))
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


# --- rules ------------------------------------------------------------------------------------------------------------


DEFAULT_ONLY: Final = {
    "nodeToNodeMeshEnabled": "NodeToNodeMeshEnabled",
    "asNumber": "ASNumber",
    "nodeMeshPassword": "NodeMeshPassword",  # no password
    "nodeMeshMaxRestartTime": "NodeMeshMaxRestartTime",
    "serviceClusterIPs": "ServiceClusterIPs",
    "serviceExternalIPs": "ServiceExternalIPs",
    "serviceLoadBalancerIPs": "ServiceLoadBalancerIPs",
}
"""The members that only ``default`` may have, and their names in errors."""

_PEER_WITH_PORT: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[0-9.]+)):(?P<port>[0-9]{1,5})")
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
    forms = "two numbers up to 65535 as 65001:100, or three up to 4294967295 as 65001:100:3"
    for index, community in enumerate(configuration.spec.communities):
        place = f"spec.communities[{index}]"
        yield from validate_word(f"{place}.name", community.name)
        if community.name in names:
            yield FieldError(f"{place}.name", community.name, "another community has it too")
        if not _is_community(community.value):
            yield FieldError(f"{place}.value", community.value, f"must be {forms}")
        names.add(community.name)
    for index, advertised in enumerate(configuration.spec.advertised):
        for number, text in enumerate(advertised.communities):
            if text not in names and not _is_community(text):
                place = f"spec.prefixAdvertisements[{index}].communities[{number}]"
                yield FieldError(place, text, f"must be a name of spec.communities, or {forms}")


def _is_community(text: str) -> bool:
    if not re.fullmatch(_COMMUNITY_PATTERN, text):
        return False
    numbers = [int(number) for number in text.split(":")]
    return max(numbers) <= _MAX_NUMBER[len(numbers)]


# --- peers ------------------------------------------------------------------------------------------------------------


def validate_bgp_peer(peer: BGPPeer) -> Iterator[FieldError]:
    """What is wrong with a peer by itself."""
    spec = peer.spec
    if spec.node and not is_resource_name(spec.node):
        yield FieldError("spec.node", spec.node, "must be the name of a node")
    if spec.node and spec.node_selector:
        yield FieldError("spec.nodeSelector", spec.node_selector, "cannot be used with node")
    yield from _validate_remote(spec)
    for place, selector in (("spec.nodeSelector", spec.node_selector), ("spec.peerSelector", spec.peer_selector)):
        yield from validate_selector(place, selector)
    yield from _validate_password("spec.password", spec.password)


def _validate_remote(spec: BGPPeerSpec) -> Iterator[FieldError]:
    """The peer is an address with its AS, or nodes, which have an AS of their own."""
    remote = _find_peer_address(spec.peer_ip)
    if not spec.peer_ip and not spec.peer_selector:
        yield FieldError("spec.peerIP", "", "must be given, or peerSelector")
    if spec.peer_ip and spec.peer_selector:
        yield FieldError("spec.peerSelector", spec.peer_selector, "cannot be used with peerIP")
    if spec.peer_ip and remote is None:
        rule = "must be an IP address, which may have a port: 192.0.2.1:179 or [2001:db8::1]:179"
        yield FieldError("spec.peerIP", spec.peer_ip, rule)
    if spec.peer_ip and spec.as_number is None:
        yield FieldError("spec.asNumber", "", "must be given with peerIP")
    if not spec.peer_ip and spec.peer_selector and spec.as_number is not None:
        rule = "cannot be used with peerSelector: the selected nodes have their own"
        yield FieldError("spec.asNumber", spec.as_number, rule)
    if spec.reachable_by is not None and (remote is None or remote.family is not spec.reachable_by.family):
        yield FieldError("spec.reachableBy", spec.reachable_by, "needs peerIP, and must be of its family")


def _find_peer_address(text: str) -> Address | None:
    """The address of a peer without its port; None if it is none."""
    with_port = _PEER_WITH_PORT.fullmatch(text)
    if with_port is not None and not 1 <= int(with_port["port"]) <= MAX_PORT:
        return None
    try:
        address = Address.parse(text if with_port is None else with_port["six"] or with_port["four"])
    except ValueError:
        return None
    is_bracketed = with_port is not None and with_port["six"] is not None
    return None if is_bracketed and address.family is Family.IPV4 else address
