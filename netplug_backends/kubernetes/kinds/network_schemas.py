"""The OpenAPI schemas of the kinds that describe the network of nodes, made from the tables that decode them.

As in ``schemas``, the rules are those of the core, as far as the API's expression language can express them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from netplug_backends.kubernetes.kinds.schema_parts import (
    MAX_CIDR_LENGTH,
    NAME_IS_DEFAULT_OR_OF_NODE,
    NO_HOST_BITS,
    resource,
    selector,
    validations,
)
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.decoding.schema import Schema, collect_fields, table_schema
from netplug_core.decoding.tables import Table
from netplug_core.names import MAX_NAME_LENGTH
from netplug_core.resources.bgp_rules import (
    COMMUNITY_PATTERN,
    DEFAULT_ONLY,
    IGNORED_INTERFACE_PATTERN,
    SECRET_KEY_PATTERN,
)
from netplug_core.resources.bgp_tables import BGP_CONFIGURATION_TEXTS, BGP_PEER_TEXTS, BGP_TABLES
from netplug_core.resources.bgpconfiguration import BGPConfigurationSpec
from netplug_core.resources.bgppeer import BGPPeerSpec
from netplug_core.resources.field_errors import WORD_PATTERN
from netplug_core.resources.hostendpoint import HostEndpointSpec
from netplug_core.resources.hostendpoint_rules import INTERFACE_PATTERN
from netplug_core.resources.hostendpoint_tables import HOST_ENDPOINT_TABLES, HOST_ENDPOINT_TEXTS
from netplug_core.resources.nodeconfiguration import NodeConfigurationSpec
from netplug_core.resources.nodeconfiguration_rules import INTERFACE_PREFIXES_PATTERN
from netplug_core.resources.nodeconfiguration_tables import NODE_CONFIGURATION_TABLES, NODE_CONFIGURATION_TEXTS

__all__ = ["bgp_configuration_schema", "bgp_peer_schema", "host_endpoint_schema", "node_configuration_schema"]

_MAX_ITEMS: Final = 256
_MAX_ADDRESS_LENGTH: Final = 39
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = rf"{_LABEL}(\.{_LABEL})*"
_RESOURCE_NAME: Final[Schema] = {"maxLength": MAX_NAME_LENGTH, "pattern": f"^{_NAME}$"}
_WORD: Final = f"^{WORD_PATTERN}$"
_ADDRESS: Final[Schema] = {
    "maxLength": _MAX_ADDRESS_LENGTH,
    **validations(("isIP(self)", "an IP address is expected")),
}
_IS_IPV4_WITH_PORT: Final = "self.matches('^[0-9.]+:[0-9]{1,5}$') && isIP(self.substring(0, self.indexOf(':')))"
_IS_IPV6_WITH_PORT: Final = r"self.matches('^\\[[^\\]]+\\]:[0-9]{1,5}$') && isIP(self.substring(1, self.indexOf(']')))"
_PEER: Final[Schema] = {
    "maxLength": len("[]:65535") + _MAX_ADDRESS_LENGTH,
    **validations(
        (
            f"self == '' || isIP(self) || ({_IS_IPV4_WITH_PORT}) || ({_IS_IPV6_WITH_PORT})",
            "an IP address is expected, which may have a port",
        )
    ),
}
_CIDR: Final[Schema] = {
    "maxLength": MAX_CIDR_LENGTH,
    "x-kubernetes-validations": [NO_HOST_BITS],
}


def _fields_of(cls: type, tables: tuple[Table[object], ...], texts: Mapping[str, str]) -> dict[str, Schema]:
    """The schema of each field of a spec, by its path; the spec itself has the empty path. Lists have a bound."""
    spec = table_schema(cls, tables, texts.__getitem__)
    fields = {"": spec} | collect_fields(spec)
    for schema in fields.values():
        if schema.get("type") == "array":
            schema["maxItems"] = _MAX_ITEMS
    return fields


def _items(schema: Schema) -> Schema:
    return cast("Schema", schema["items"])


def _is_given(field: str) -> str:
    """Whether a text or a list of the object is given, and not empty."""
    return f"has(self.{field}) && self.{field}.size() > 0"


def host_endpoint_schema(mode: CrdMode) -> Schema:
    """The schema of a HostEndpoint."""
    del mode
    fields = _fields_of(HostEndpointSpec, HOST_ENDPOINT_TABLES, HOST_ENDPOINT_TEXTS)
    spec = fields[""]
    spec["required"] = ["node"]
    spec |= validations(
        (
            f"({_is_given('interfaceName')}) || ({_is_given('expectedIPs')})",
            "interfaceName or expectedIPs must be given",
        ),
        (f"!({_is_given('ports')}) || ({_is_given('expectedIPs')})", "ports need expectedIPs"),
    )
    fields["node"] |= _RESOURCE_NAME
    fields["interfaceName"]["pattern"] = f"^({INTERFACE_PATTERN})?$"
    fields["ports[].name"]["pattern"] = _WORD
    for name, more in (("expectedIPs", _ADDRESS), ("profiles", _RESOURCE_NAME)):
        items = _items(fields[name])
        items |= more
    return resource("An interface of a node, or all of them. No program of this release reads it.", spec)


def bgp_configuration_schema(mode: CrdMode) -> Schema:
    """The schema of a BGPConfiguration."""
    del mode
    fields = _fields_of(BGPConfigurationSpec, BGP_TABLES, BGP_CONFIGURATION_TEXTS)
    spec = fields[""]
    spec |= validations(
        *(
            (
                f"!has(self.{member}) || !has(self.nodeToNodeMeshEnabled) || self.nodeToNodeMeshEnabled",
                f"{member} needs nodeToNodeMeshEnabled true",
            )
            for member in ("nodeMeshPassword", "nodeMeshMaxRestartTime")
        )
    )
    _complete_password(fields, "nodeMeshPassword")
    for path, schema in fields.items():
        if path.endswith("[].cidr"):
            schema.update(_CIDR)
    fields["communities"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    fields["communities[].name"]["pattern"] = _WORD
    fields["communities[].value"]["pattern"] = f"^({COMMUNITY_PATTERN})$"
    for name, pattern in (
        ("prefixAdvertisements[].communities", f"{_WORD}|^({COMMUNITY_PATTERN})$"),
        ("ignoredInterfaces", f"^{IGNORED_INTERFACE_PATTERN}$"),
    ):
        _items(fields[name])["pattern"] = pattern
    rules = (
        (f"self.metadata.name == 'default' || !has(self.spec.{member})", f"Cannot set {title} on a non default one")
        for member, title in DEFAULT_ONLY.items()
    )
    what = "How nodes exchange routes by BGP. No program of this release reads it."
    return resource(what, spec, rules=[NAME_IS_DEFAULT_OR_OF_NODE, *rules])


def _complete_password(fields: Mapping[str, Schema], field: str) -> None:
    """Add the bounds of the reference to a Secret."""
    place = f"{field}.secretKeyRef"
    fields[f"{place}.name"].update(_RESOURCE_NAME)
    fields[f"{place}.key"]["pattern"] = f"^{SECRET_KEY_PATTERN}$"


def bgp_peer_schema(mode: CrdMode) -> Schema:
    """The schema of a BGPPeer."""
    del mode
    fields = _fields_of(BGPPeerSpec, BGP_TABLES, BGP_PEER_TEXTS)
    spec = fields[""]
    has_address, has_selector = _is_given("peerIP"), _is_given("peerSelector")
    spec |= validations(
        (f"!({_is_given('node')}) || !({_is_given('nodeSelector')})", "nodeSelector cannot be used with node"),
        (f"({has_address}) || ({has_selector})", "peerIP or peerSelector must be given"),
        (f"!({has_address}) || !({has_selector})", "peerSelector cannot be used with peerIP"),
        (f"({has_address}) == has(self.asNumber)", "asNumber must be given with peerIP, and cannot be without"),
        (f"!has(self.reachableBy) || ({has_address})", "reachableBy needs peerIP"),
    )
    _complete_password(fields, "password")
    fields["node"].update({**_RESOURCE_NAME, "pattern": f"^({_NAME})?$"})
    fields["peerIP"].update(_PEER)
    fields["reachableBy"].update(_ADDRESS)
    for name in ("nodeSelector", "peerSelector"):
        fields[name].update(selector(str(fields[name].get("description", ""))))
    return resource("With whom nodes exchange routes by BGP. No program of this release reads it.", spec)


def node_configuration_schema(mode: CrdMode) -> Schema:
    """The schema of a NodeConfiguration."""
    del mode
    fields = _fields_of(NodeConfigurationSpec, NODE_CONFIGURATION_TABLES, NODE_CONFIGURATION_TEXTS)
    fields["interfacePrefix"]["pattern"] = f"^({INTERFACE_PREFIXES_PATTERN})?$"
    for name, format_ in (
        ("natOutgoingAddress", "ipv4"),
        ("deviceRouteSourceAddress", "ipv4"),
        ("deviceRouteSourceAddressIPv6", "ipv6"),
    ):
        fields[name]["format"] = format_
    for name in ("failsafeInboundHostPorts[].net", "failsafeOutboundHostPorts[].net"):
        fields[name].update(_CIDR)
    for name in ("healthHost", "prometheusMetricsHost"):
        is_host = (f"self == '' || isIP(self) || self.matches(r'^{_NAME}$')", "an address or a host name is expected")
        fields[name].update({"maxLength": MAX_NAME_LENGTH, **validations(is_host)})
    what = "The settings of the node process. No program of this release reads them."
    return resource(what, fields[""], rules=[NAME_IS_DEFAULT_OR_OF_NODE])
