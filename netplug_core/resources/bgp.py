"""The kinds BGPConfiguration and BGPPeer: their values, their members, and what a user may ask of them."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.decoding.codecs import BOOLEAN, TEXT, Codec, enum_codec
from netplug_core.decoding.tables import Field, ListOf, Table, fields_of
from netplug_core.names import is_resource_name
from netplug_core.records import Kind
from netplug_core.resources.fields import (
    CIDR,
    DURATION,
    IP_ADDRESS,
    MAX_PORT,
    PORT,
    FieldError,
    LogSeverity,
    integer_between,
    validate_selector,
    validate_word,
)
from netplug_core.resources.metadata import Metadata

__all__ = [
    "BGP_CONFIGURATION", "BGP_CONFIGURATION_TEXTS", "BGP_PEER", "BGP_PEER_TEXTS", "BGP_TABLES", "COMMUNITY_PATTERN",
    "DEFAULT_ONLY", "IGNORED_INTERFACE_PATTERN", "SECRET_KEY_PATTERN", "AdvertisedPrefix", "BGPConfiguration",
    "BGPConfigurationSpec", "BGPPassword", "BGPPeer", "BGPPeerSpec", "BindMode", "Community", "NextHopMode",
    "SecretKeyReference", "ServiceRange", "SourceAddress", "validate_bgp_configuration", "validate_bgp_peer",
]  # fmt: skip


# --- BGPConfiguration -------------------------------------------------------------------------------------------------


class BindMode(enum.Enum):
    """Which addresses the BGP process of a node listens on: all of them, or that of the node."""

    ALL = "None"
    NODE_IP = "NodeIP"


@frozen(kw_only=True)
class SecretKeyReference:
    """A member of a Secret, in the namespace of the node process."""

    name: str
    key: str
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPPassword:
    """Where the password of a session is kept. Resources never hold it."""

    secret: SecretKeyReference
    unknown_json: str = ""


@frozen(kw_only=True)
class ServiceRange:
    """A range of Services' addresses that is advertised."""

    prefix: Prefix
    unknown_json: str = ""


@frozen(kw_only=True)
class Community:
    """A BGP community by a name of the cluster's own."""

    name: str
    value: str
    unknown_json: str = ""


@frozen(kw_only=True)
class AdvertisedPrefix:
    """The communities, by name or value, with which routes within a prefix are advertised."""

    prefix: Prefix
    communities: tuple[str, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPConfigurationSpec:
    """The settings; what is not given has the default of the program that reads it.

    Sessions between all nodes (the mesh), the number of the AS, and the addresses of Services are the whole cluster's,
    so they are settings of ``default`` alone.
    """

    log_severity: LogSeverity | None = None
    has_node_mesh: bool | None = None
    as_number: int | None = None
    listen_port: int | None = None
    bind_mode: BindMode | None = None
    mesh_password: BGPPassword | None = None
    mesh_max_restart_time: str = ""
    service_cluster_ips: tuple[ServiceRange, ...] = ()
    service_external_ips: tuple[ServiceRange, ...] = ()
    service_load_balancer_ips: tuple[ServiceRange, ...] = ()
    communities: tuple[Community, ...] = ()
    advertised: tuple[AdvertisedPrefix, ...] = ()
    ignored_interfaces: tuple[str, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPConfiguration:
    """A configuration as it is stored."""

    metadata: Metadata
    spec: BGPConfigurationSpec = BGPConfigurationSpec()
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

    node: str = ""
    node_selector: str = ""
    peer_ip: str = ""
    peer_selector: str = ""
    as_number: int | None = None
    password: BGPPassword | None = None
    source_address: SourceAddress | None = None
    next_hop_mode: NextHopMode | None = None
    reachable_by: Address | None = None
    max_restart_time: str = ""
    allowed_local_as_numbers: int | None = None
    ttl_security: int | None = None
    unknown_json: str = ""


@frozen(kw_only=True)
class BGPPeer:
    """A peer as it is stored."""

    metadata: Metadata
    spec: BGPPeerSpec = BGPPeerSpec()
    unknown_json: str = ""


BGP_PEER: Kind[BGPPeer] = Kind("BGPPeer", ("name",))


# --- members ----------------------------------------------------------------------------------------------------------


_MAX_AS_NUMBER: Final = 2**32 - 1
_HALF_BITS: Final = 16
_DOTTED: Final = re.compile(r"([0-9]{1,5})\.([0-9]{1,5})")
_PLAIN: Final = re.compile(r"[0-9]{1,10}")

BGP_CONFIGURATION_TEXTS: Final[Mapping[str, str]] = {
    "logSeverityScreen": "the level below which the BGP process writes no lines",
    "nodeToNodeMeshEnabled": "whether every node has a session with every other one; default only",
    "asNumber": "the number of the AS of nodes that name none; default only",
    "listenPort": "the port that the BGP process listens on",
    "bindMode": "whether it listens on all addresses of the node (None), or on the node's own (NodeIP)",
    "nodeMeshPassword": "the password of the sessions between nodes; default only",
    "nodeMeshPassword.secretKeyRef": "the member of a Secret that holds it",
    "nodeMeshPassword.secretKeyRef.name": "the Secret",
    "nodeMeshPassword.secretKeyRef.key": "the member",
    "nodeMeshMaxRestartTime": "how long routes are kept while a session between nodes restarts; default only",
    "serviceClusterIPs": "ranges of Services' cluster addresses that are advertised; default only",
    "serviceClusterIPs[].cidr": "one range",
    "serviceExternalIPs": "ranges of Services' external addresses that are advertised; default only",
    "serviceExternalIPs[].cidr": "one range",
    "serviceLoadBalancerIPs": "ranges of load balancers' addresses that are advertised; default only",
    "serviceLoadBalancerIPs[].cidr": "one range",
    "communities": "communities by name",
    "communities[].name": "the name",
    "communities[].value": "two numbers of 16 bits (65001:100), or three of 32 bits (65001:100:3)",
    "prefixAdvertisements": "communities of the routes within some prefixes",
    "prefixAdvertisements[].cidr": "the prefix",
    "prefixAdvertisements[].communities": "names of communities, or values",
    "ignoredInterfaces": "interfaces whose routes are not read; * stands for any characters",
}
"""What each field of a BGPConfiguration's ``spec`` is for, by its path; ``[]`` stands behind a list."""


BGP_PEER_TEXTS: Final[Mapping[str, str]] = {
    "node": "the node that has the session; with neither this nor nodeSelector, every node",
    "nodeSelector": "the nodes that have the session",
    "peerIP": "the address of the peer, with or without a port",
    "peerSelector": "the nodes that are the peers",
    "asNumber": "the number of the peer's AS; with peerIP",
    "password": "the password of the session",
    "password.secretKeyRef": "the member of a Secret that holds it",
    "password.secretKeyRef.name": "the Secret",
    "password.secretKeyRef.key": "the member",
    "sourceAddress": "the address from which the session is opened: UseNodeIP, or None for the kernel's choice",
    "nextHopMode": "the next hop of routes that are passed on: as usual (Auto), the node (Self), or unchanged (Keep)",
    "reachableBy": "the gateway to the peer; with peerIP",
    "maxRestartTime": "how long routes are kept while the session restarts",
    "numAllowedLocalASNumbers": "how often the own AS may be in the path of a route",
    "ttlSecurity": "the distance to the peer in hops; packets from further away are dropped",
}
"""What each field of a BGPPeer's ``spec`` is for, by its path; ``[]`` stands behind a list."""


def _read_as_number(value: object) -> int:
    """A number, or a text: the number, or its halves of 16 bits with a dot between (RFC 5396)."""
    number = 0
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and _PLAIN.fullmatch(value):
        number = int(value)
    elif isinstance(value, str) and (halves := _DOTTED.fullmatch(value)):
        high, low = map(int, halves.groups())
        number = (high << _HALF_BITS) + low if low >> _HALF_BITS == 0 else 0
    if not 1 <= number <= _MAX_AS_NUMBER:
        raise ValueError(f"an AS number from 1 to {_MAX_AS_NUMBER}, or a text such as '1.10'")
    return number


_AS_NUMBER: Final = Codec(
    _read_as_number, schema={"type": "integer", "format": "int64", "minimum": 1, "maximum": _MAX_AS_NUMBER}
)
_MAX_BYTE: Final = 255

BGP_TABLES: Final[tuple[Table[object], ...]] = (
    Table(
        cls=BGPConfigurationSpec,
        fields={
            "log_severity": Field("logSeverityScreen", enum_codec(LogSeverity)),
            "has_node_mesh": Field("nodeToNodeMeshEnabled", BOOLEAN),
            "as_number": Field("asNumber", _AS_NUMBER),
            "listen_port": Field("listenPort", PORT),
            "bind_mode": Field("bindMode", enum_codec(BindMode)),
            "mesh_password": Field("nodeMeshPassword", BGPPassword),
            "mesh_max_restart_time": Field("nodeMeshMaxRestartTime", DURATION),
            **fields_of(
                ListOf(ServiceRange),
                service_cluster_ips="serviceClusterIPs",
                service_external_ips="serviceExternalIPs",
                service_load_balancer_ips="serviceLoadBalancerIPs",
            ),
            "communities": Field("communities", ListOf(Community)),
            "advertised": Field("prefixAdvertisements", ListOf(AdvertisedPrefix)),
            "ignored_interfaces": Field("ignoredInterfaces", ListOf(TEXT)),
        },
    ),
    Table(
        cls=BGPPeerSpec,
        fields={
            **fields_of(TEXT, node="node", node_selector="nodeSelector"),
            **fields_of(TEXT, peer_ip="peerIP", peer_selector="peerSelector"),
            "as_number": Field("asNumber", _AS_NUMBER),
            "password": Field("password", BGPPassword),
            "source_address": Field("sourceAddress", enum_codec(SourceAddress)),
            "next_hop_mode": Field("nextHopMode", enum_codec(NextHopMode)),
            "reachable_by": Field("reachableBy", IP_ADDRESS),
            "max_restart_time": Field("maxRestartTime", DURATION),
            "allowed_local_as_numbers": Field("numAllowedLocalASNumbers", integer_between(0, _MAX_BYTE)),
            "ttl_security": Field("ttlSecurity", integer_between(1, _MAX_BYTE)),
        },
    ),
    Table(cls=BGPPassword, fields={"secret": Field("secretKeyRef", SecretKeyReference)}),
    Table(cls=SecretKeyReference, fields=fields_of(TEXT, name="name", key="key")),
    Table(cls=ServiceRange, fields={"prefix": Field("cidr", CIDR)}),
    Table(cls=Community, fields=fields_of(TEXT, name="name", value="value")),
    Table(
        cls=AdvertisedPrefix,
        fields={"prefix": Field("cidr", CIDR), "communities": Field("communities", ListOf(TEXT))},
    ),
)


# --- rules ------------------------------------------------------------------------------------------------------------


COMMUNITY_PATTERN: Final = "[0-9]{1,5}:[0-9]{1,5}|[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}"
"""The form of a community's value (RFC 1997, RFC 8092), without the bounds of its numbers."""

IGNORED_INTERFACE_PATTERN: Final = "[A-Za-z0-9_.*-]{1,15}"
SECRET_KEY_PATTERN: Final = "[A-Za-z0-9_.-]{1,253}"  # noqa: S105  # no password

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
        for member, text in given.items():
            rule = f"Cannot set {DEFAULT_ONLY[member]} on a non default BGP Configuration."
            yield FieldError(f"spec.{member}", text, rule)
    if spec.has_node_mesh is False:
        for member in ("nodeMeshPassword", "nodeMeshMaxRestartTime"):
            if member in given:
                yield FieldError(f"spec.{member}", given[member], "needs nodeToNodeMeshEnabled true, its default")
    yield from _validate_password("spec.nodeMeshPassword", spec.mesh_password)
    yield from _validate_communities(configuration)
    for index, name in enumerate(spec.ignored_interfaces):
        if not re.fullmatch(IGNORED_INTERFACE_PATTERN, name) or name == _ALL_INTERFACES:
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
    for member, ranges in (
        ("serviceClusterIPs", spec.service_cluster_ips),
        ("serviceExternalIPs", spec.service_external_ips),
        ("serviceLoadBalancerIPs", spec.service_load_balancer_ips),
    ):
        if ranges:
            yield member, ", ".join(str(one.prefix) for one in ranges)


def _validate_password(field: str, password: BGPPassword | None) -> Iterator[FieldError]:
    if password is None:
        return
    secret, place = password.secret, f"{field}.secretKeyRef"
    if not is_resource_name(secret.name):
        yield FieldError(f"{place}.name", secret.name, "must be the name of a Secret")
    if not re.fullmatch(SECRET_KEY_PATTERN, secret.key):
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
    if not re.fullmatch(COMMUNITY_PATTERN, text):
        return False
    numbers = [int(number) for number in text.split(":")]
    return max(numbers) <= _MAX_NUMBER[len(numbers)]


# --- peers -----------------------------------------------------------------------------------------------------------


def validate_bgp_peer(peer: BGPPeer) -> Iterator[FieldError]:
    """What is wrong with a peer by itself."""
    spec = peer.spec
    if spec.node and not is_resource_name(spec.node):
        yield FieldError("spec.node", spec.node, "must be the name of a node")
    if spec.node and spec.node_selector:
        yield FieldError("spec.nodeSelector", spec.node_selector, "cannot be used with node")
    yield from _validate_remote(spec)
    for field, selector in (("spec.nodeSelector", spec.node_selector), ("spec.peerSelector", spec.peer_selector)):
        yield from validate_selector(field, selector)
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
