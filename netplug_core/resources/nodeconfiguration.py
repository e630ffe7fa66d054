"""The kind NodeConfiguration: its value, its members, and what a user may ask of it."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.decoding.codecs import BOOLEAN, TEXT, enum_codec
from netplug_core.decoding.tables import Field, ListOf, Table, fields_of
from netplug_core.names import is_resource_name
from netplug_core.records import Kind
from netplug_core.resources.fields import (
    CIDR,
    DURATION,
    IP_ADDRESS,
    PORT,
    SWITCH,
    FieldError,
    LogSeverity,
    Switch,
    integer_between,
    validate_regular_expression,
)
from netplug_core.resources.hostendpoint import PortProtocol
from netplug_core.resources.metadata import Metadata

__all__ = [
    "INTERFACE_PREFIXES_PATTERN", "NODE_CONFIGURATION", "NODE_CONFIGURATION_TABLES", "NODE_CONFIGURATION_TEXTS",
    "EndpointToHostAction", "FailsafePort", "NodeConfiguration", "NodeConfigurationSpec",
    "validate_node_configuration",
]  # fmt: skip


# --- the value --------------------------------------------------------------------------------------------------------


class EndpointToHostAction(enum.Enum):
    """What happens to packets of a workload to its own host that no policy decides about."""

    DROP = "Drop"
    RETURN = "Return"
    ACCEPT = "Accept"


@frozen(kw_only=True)
class FailsafePort:
    """A port that no policy of host endpoints closes; ``net`` is whose, None for everybody's."""

    protocol: PortProtocol
    port: int
    net: Prefix | None = None
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeConfigurationSpec:
    """The settings; what is not given has the default of the program that reads it.

    Durations are texts as Go writes them, so that they stay as a person wrote them. An MTU of 0 is detected. Failsafe
    ports that are not given are not the same as an empty list of them, which is none.
    """

    log_severity: LogSeverity | None = None
    interface_prefix: str = ""
    mtu_interface_pattern: str = ""
    is_ipip_enabled: bool | None = None
    ipip_mtu: int | None = None
    is_vxlan_enabled: bool | None = None
    vxlan_mtu: int | None = None
    vxlan_mtu_v6: int | None = None
    vxlan_port: int | None = None
    vxlan_vni: int | None = None
    nat_outgoing_address: Address | None = None
    route_source: Address | None = None
    route_source_v6: Address | None = None
    endpoint_to_host_action: EndpointToHostAction | None = None
    failsafe_inbound: tuple[FailsafePort, ...] | None = None
    failsafe_outbound: tuple[FailsafePort, ...] | None = None
    floating_ips: Switch | None = None
    has_ipv6: bool | None = None
    is_health_enabled: bool | None = None
    health_host: str = ""
    health_port: int | None = None
    has_metrics: bool | None = None
    metrics_host: str = ""
    metrics_port: int | None = None
    route_refresh_interval: str = ""
    reporting_interval: str = ""
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeConfiguration:
    """A configuration as it is stored."""

    metadata: Metadata
    spec: NodeConfigurationSpec = NodeConfigurationSpec()
    unknown_json: str = ""


NODE_CONFIGURATION: Kind[NodeConfiguration] = Kind("NodeConfiguration", ("name",))


# --- members ----------------------------------------------------------------------------------------------------------


NODE_CONFIGURATION_TEXTS: Final[Mapping[str, str]] = {
    "logSeverityScreen": "the level below which the node process writes no lines",
    "interfacePrefix": "what the names of workloads' interfaces on the host begin with; several with commas between",
    "mtuIfacePattern": "a regular expression: the interfaces from which MTUs are detected",
    "ipipEnabled": "whether there is an IPIP tunnel; if not given, as the pools ask",
    "ipipMTU": "the MTU of the IPIP tunnel; 0: detected",
    "vxlanEnabled": "whether there is a VXLAN tunnel; if not given, as the pools ask",
    "vxlanMTU": "the MTU of the VXLAN tunnel for IPv4; 0: detected",
    "vxlanMTUV6": "the MTU of the VXLAN tunnel for IPv6; 0: detected",
    "vxlanPort": "the UDP port of VXLAN",
    "vxlanVNI": "the network identifier of VXLAN",
    "natOutgoingAddress": "the IPv4 address that packets leave the pools with; if not given, that of the interface",
    "deviceRouteSourceAddress": "the IPv4 source address of routes to workloads",
    "deviceRouteSourceAddressIPv6": "the IPv6 source address of routes to workloads",
    "defaultEndpointToHostAction": "what happens to packets of a workload to its host that no policy decides about",
    "failsafeInboundHostPorts": "ports of the host that no policy closes; an empty list is none",
    "failsafeInboundHostPorts[].protocol": "the protocol",
    "failsafeInboundHostPorts[].port": "the number",
    "failsafeInboundHostPorts[].net": "for whom; everybody unless given",
    "failsafeOutboundHostPorts": "ports that no policy keeps the host from reaching; an empty list is none",
    "failsafeOutboundHostPorts[].protocol": "the protocol",
    "failsafeOutboundHostPorts[].port": "the number",
    "failsafeOutboundHostPorts[].net": "of whom; everybody unless given",
    "floatingIPs": "whether floating addresses of workloads are programmed",
    "ipv6Support": "whether IPv6 is programmed",
    "healthEnabled": "whether the node process answers probes",
    "healthHost": "the address or host name on which it answers them",
    "healthPort": "the port on which it answers them",
    "prometheusMetricsEnabled": "whether it serves metrics",
    "prometheusMetricsHost": "the address or host name on which it serves them",
    "prometheusMetricsPort": "the port on which it serves them",
    "routeRefreshInterval": "how often routes are compared with what they should be; 0 for never",
    "reportingInterval": "how often it reports its status; 0 for never",
}
"""What each field of ``spec`` is for, by its path; ``[]`` stands behind a list."""

_MTU: Final = integer_between(0, 65_535)
_VNI: Final = integer_between(1, 2**24 - 1)

NODE_CONFIGURATION_TABLES: Final[tuple[Table[object], ...]] = (
    Table(
        cls=NodeConfigurationSpec,
        fields={
            "log_severity": Field("logSeverityScreen", enum_codec(LogSeverity)),
            **fields_of(TEXT, interface_prefix="interfacePrefix", mtu_interface_pattern="mtuIfacePattern"),
            "is_ipip_enabled": Field("ipipEnabled", BOOLEAN),
            "ipip_mtu": Field("ipipMTU", _MTU),
            "is_vxlan_enabled": Field("vxlanEnabled", BOOLEAN),
            **fields_of(_MTU, vxlan_mtu="vxlanMTU", vxlan_mtu_v6="vxlanMTUV6"),
            "vxlan_port": Field("vxlanPort", PORT),
            "vxlan_vni": Field("vxlanVNI", _VNI),
            **fields_of(
                IP_ADDRESS,
                nat_outgoing_address="natOutgoingAddress",
                route_source="deviceRouteSourceAddress",
                route_source_v6="deviceRouteSourceAddressIPv6",
            ),
            "endpoint_to_host_action": Field("defaultEndpointToHostAction", enum_codec(EndpointToHostAction)),
            **fields_of(
                ListOf(FailsafePort),
                failsafe_inbound="failsafeInboundHostPorts",
                failsafe_outbound="failsafeOutboundHostPorts",
            ),
            "floating_ips": Field("floatingIPs", SWITCH),
            **fields_of(BOOLEAN, has_ipv6="ipv6Support", is_health_enabled="healthEnabled"),
            "health_host": Field("healthHost", TEXT),
            "health_port": Field("healthPort", PORT),
            "has_metrics": Field("prometheusMetricsEnabled", BOOLEAN),
            "metrics_host": Field("prometheusMetricsHost", TEXT),
            "metrics_port": Field("prometheusMetricsPort", PORT),
            **fields_of(
                DURATION, route_refresh_interval="routeRefreshInterval", reporting_interval="reportingInterval"
            ),
        },
    ),
    Table(
        cls=FailsafePort,
        fields={
            "protocol": Field("protocol", enum_codec(PortProtocol)),
            "port": Field("port", PORT),
            "net": Field("net", CIDR),
        },
    ),
)


# --- rules ------------------------------------------------------------------------------------------------------------


_INTERFACE_PREFIX: Final = "[A-Za-z0-9_-]{1,15}"
INTERFACE_PREFIXES_PATTERN: Final = f"{_INTERFACE_PREFIX}(,{_INTERFACE_PREFIX})*"


def validate_node_configuration(configuration: NodeConfiguration) -> Iterator[FieldError]:
    """What is wrong with the configuration of a node by itself."""
    spec = configuration.spec
    if spec.interface_prefix and not re.fullmatch(INTERFACE_PREFIXES_PATTERN, spec.interface_prefix):
        rule = "must be 1 to 15 letters, digits, '_' and '-', or several such prefixes with ',' between"
        yield FieldError("spec.interfacePrefix", spec.interface_prefix, rule)
    yield from validate_regular_expression("spec.mtuIfacePattern", spec.mtu_interface_pattern)
    for member, address, family in (
        ("natOutgoingAddress", spec.nat_outgoing_address, Family.IPV4),
        ("deviceRouteSourceAddress", spec.route_source, Family.IPV4),
        ("deviceRouteSourceAddressIPv6", spec.route_source_v6, Family.IPV6),
    ):
        if address is not None and address.family is not family:
            yield FieldError(f"spec.{member}", address, f"must be an address of {family}")
    for member, host in (("healthHost", spec.health_host), ("prometheusMetricsHost", spec.metrics_host)):
        if host and not _is_host(host):
            yield FieldError(f"spec.{member}", host, "must be an IP address, or the name of a host")


def _is_host(text: str) -> bool:
    try:
        Address.parse(text)
    except ValueError:
        return is_resource_name(text)
    return True
