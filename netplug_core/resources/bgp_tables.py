"""The members of the BGP kinds; ``codec`` reads and writes them by these tables.

The definitions of the kinds are made from the same tables, with the texts of ``BGP_CONFIGURATION_TEXTS`` and
``BGP_PEER_TEXTS``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from netplug_core.decoding.codecs import BOOLEAN, TEXT, Codec, enum_codec
from netplug_core.decoding.tables import Field, ListOf, Table, fields_of
from netplug_core.resources.bgpconfiguration import (
    AdvertisedPrefix,
    BGPConfigurationSpec,
    BGPPassword,
    BindMode,
    Community,
    SecretKeyReference,
    ServiceRange,
)
from netplug_core.resources.bgppeer import BGPPeerSpec, NextHopMode, SourceAddress
from netplug_core.resources.field_codecs import CIDR, DURATION, IP_ADDRESS, PORT, integer_between
from netplug_core.resources.log_severity import LogSeverity

__all__ = ["BGP_CONFIGURATION_TEXTS", "BGP_PEER_TEXTS", "BGP_TABLES"]

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
