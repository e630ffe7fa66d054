"""The members of a NodeConfiguration; ``codec`` reads and writes them by these tables.

The definitions of the kind are made from the same tables, with the texts of ``NODE_CONFIGURATION_TEXTS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from netplug_core.decoding.codecs import BOOLEAN, TEXT, enum_codec
from netplug_core.decoding.tables import Field, ListOf, Table, fields_of
from netplug_core.resources.field_codecs import CIDR, DURATION, IP_ADDRESS, PORT, SWITCH, integer_between
from netplug_core.resources.hostendpoint import PortProtocol
from netplug_core.resources.log_severity import LogSeverity
from netplug_core.resources.nodeconfiguration import EndpointToHostAction, FailsafePort, NodeConfigurationSpec

__all__ = ["NODE_CONFIGURATION_TABLES", "NODE_CONFIGURATION_TEXTS"]

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
