"""What a user may ask of the BGP kinds. ``validation`` calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from netplug_core.addressing import Address, Family
from netplug_core.names import is_resource_name
from netplug_core.resources.bgpconfiguration import BGPConfiguration, BGPPassword
from netplug_core.resources.bgppeer import BGPPeer, BGPPeerSpec
from netplug_core.resources.field_codecs import MAX_PORT
from netplug_core.resources.field_errors import FieldError, validate_selector, validate_word

__all__ = ["COMMUNITY_PATTERN", "DEFAULT_ONLY", "IGNORED_INTERFACE_PATTERN", "SECRET_KEY_PATTERN",
    "validate_bgp_configuration", "validate_bgp_peer"]  # fmt: skip

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
