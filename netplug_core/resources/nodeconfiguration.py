"""The kind NodeConfiguration: its value, its members, and what a user may ask of it."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import evolve, field, fields, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.decoding.codecs import BOOLEAN, TEXT
from netplug_core.decoding.tables import ListOf, json_object, member
from netplug_core.names import is_resource_name
from netplug_core.records import Kind
from netplug_core.resources.fields import (
    CIDR,
    DURATION,
    IP_ADDRESS,
    PORT,
    PORT_RANGE,
    FieldError,
    LogSeverity,
    PortRange,
    Switch,
    integer_between,
    validate_regular_expression,
)
from netplug_core.resources.hostendpoint import PortProtocol
from netplug_core.resources.metadata import ENVELOPE, Metadata

__all__ = [
    "NODE_CONFIGURATION", "EndpointToHostAction", "FailsafePort", "NodeConfiguration", "NodeConfigurationSpec",
    "OutgoingExclusions",
    "effective_settings", "validate_node_configuration",
]  # fmt: skip


# --- the value --------------------------------------------------------------------------------------------------------


class EndpointToHostAction(enum.Enum):
    """What happens to packets of a workload to its own host that no policy decides about."""

    DROP = "Drop"
    RETURN = "Return"
    ACCEPT = "Accept"


class OutgoingExclusions(enum.Enum):
    """Which destinations packets of a pool with NAT reach with the pod's own address."""

    POOLS = "IPPoolsOnly"
    POOLS_AND_NODES = "IPPoolsAndHostIPs"


_INTERFACE_NAMES_PATTERN: Final = "[A-Za-z0-9_.:-]{1,15}|[A-Za-z0-9_.:-]{0,14}[+*]"
_INTERFACE_PREFIX: Final = "[A-Za-z0-9_-]{1,15}"
_INTERFACE_PREFIXES_PATTERN: Final = f"{_INTERFACE_PREFIX}(,{_INTERFACE_PREFIX})*"
_MTU: Final = integer_between(0, 65_535)
_VNI: Final = integer_between(1, 2**24 - 1)


@frozen(kw_only=True)
class FailsafePort:
    """A port that no policy of host endpoints closes; ``net`` is whose, None for everybody's."""

    # fmt: off
    protocol: PortProtocol = field(metadata=member("protocol", PortProtocol, "the protocol"))
    port: int = field(metadata=member("port", PORT, "the number"))
    net: Prefix | None = field(default=None, metadata=member("net", CIDR,
        "the network at the other end; any unless given"))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeConfigurationSpec:
    """The settings; what is not given has the default of the program that reads it.

    Durations are texts as Go writes them, so that they stay as a person wrote them. An MTU of 0 is detected. Failsafe
    ports that are not given are not the same as an empty list of them, which is none.
    """

    # fmt: off
    log_severity: LogSeverity | None = field(default=None, metadata=member("logSeverityScreen", LogSeverity,
        "the level below which the node process writes no lines"))
    interface_prefix: str = field(default="", metadata=member("interfacePrefix", TEXT,
        "what the names of workloads' interfaces on the host begin with; several with commas between",
        limits={"pattern": f"^({_INTERFACE_PREFIXES_PATTERN})?$"}))
    mtu_interface_pattern: str = field(default="", metadata=member("mtuIfacePattern", TEXT,
        "a regular expression: the interfaces from which MTUs are detected"))
    is_ipip_enabled: bool | None = field(default=None, metadata=member("ipipEnabled", BOOLEAN,
        "whether there is an IPIP tunnel; if not given, as the pools ask"))
    ipip_mtu: int | None = field(default=None, metadata=member("ipipMTU", _MTU,
        "the MTU of the IPIP tunnel; 0: detected"))
    is_vxlan_enabled: bool | None = field(default=None, metadata=member("vxlanEnabled", BOOLEAN,
        "whether there is a VXLAN tunnel; if not given, as the pools ask"))
    vxlan_mtu: int | None = field(default=None, metadata=member("vxlanMTU", _MTU,
        "the MTU of the VXLAN tunnel for IPv4; 0: detected"))
    vxlan_mtu_v6: int | None = field(default=None, metadata=member("vxlanMTUV6", _MTU,
        "the MTU of the VXLAN tunnel for IPv6; 0: detected"))
    vxlan_port: int | None = field(default=None, metadata=member("vxlanPort", PORT, "the UDP port of VXLAN"))
    vxlan_vni: int | None = field(default=None, metadata=member("vxlanVNI", _VNI, "the network identifier of VXLAN"))
    nat_outgoing_address: Address | None = field(default=None, metadata=member("natOutgoingAddress", IP_ADDRESS,
        "the IPv4 address that packets leave the pools with; if not given, that of the interface",
        limits={"format": "ipv4"}))
    nat_outgoing_exclusions: OutgoingExclusions | None = field(default=None, metadata=member("natOutgoingExclusions",
        OutgoingExclusions, "which destinations packets reach with the address of their pod: those in pools, which is "
        "what holds if not given, or also the addresses of nodes"))
    nat_port_range: PortRange | None = field(default=None, metadata=member("natPortRange", PORT_RANGE,
        "the source ports of TCP and UDP packets that leave the pools; if not given, any"))
    nat_outgoing_interfaces: str = field(default="", metadata=member("natOutgoingInterfaceFilter", TEXT,
        "only packets that leave by this interface get another address; a last '+' or '*' stands for any ending",
        limits={"pattern": f"^({_INTERFACE_NAMES_PATTERN})?$"}))
    external_nodes: tuple[Prefix, ...] = field(default=(), metadata=member("externalNodesCIDRList", ListOf(CIDR),
        "machines beside the nodes that may send packets into the tunnels"))
    route_source: Address | None = field(default=None, metadata=member("deviceRouteSourceAddress", IP_ADDRESS,
        "the IPv4 source address of routes to workloads", limits={"format": "ipv4"}))
    route_source_v6: Address | None = field(default=None, metadata=member("deviceRouteSourceAddressIPv6", IP_ADDRESS,
        "the IPv6 source address of routes to workloads", limits={"format": "ipv6"}))
    endpoint_to_host_action: EndpointToHostAction | None = field(default=None, metadata=member(
        "defaultEndpointToHostAction", EndpointToHostAction,
        "what happens to packets of a workload to its host that no policy decides about"))
    failsafe_inbound: tuple[FailsafePort, ...] | None = field(default=None, metadata=member("failsafeInboundHostPorts",
        ListOf(FailsafePort), "ports of the host that no policy closes; an empty list is none"))
    failsafe_outbound: tuple[FailsafePort, ...] | None = field(default=None, metadata=member(
        "failsafeOutboundHostPorts", ListOf(FailsafePort),
        "ports that no policy keeps the host from reaching; an empty list is none"))
    floating_ips: Switch | None = field(default=None, metadata=member("floatingIPs", Switch,
        "whether floating addresses of workloads are programmed"))
    has_ipv6: bool | None = field(default=None, metadata=member("ipv6Support", BOOLEAN, "whether IPv6 is programmed"))
    is_health_enabled: bool | None = field(default=None, metadata=member("healthEnabled", BOOLEAN,
        "whether the node process answers probes"))
    health_host: str = field(default="", metadata=member("healthHost", TEXT,
        "the address or host name on which it answers them"))
    health_port: int | None = field(default=None, metadata=member("healthPort", PORT,
        "the port on which it answers them"))
    has_metrics: bool | None = field(default=None, metadata=member("prometheusMetricsEnabled", BOOLEAN,
        "whether it serves metrics"))
    metrics_host: str = field(default="", metadata=member("prometheusMetricsHost", TEXT,
        "the address or host name on which it serves them"))
    metrics_port: int | None = field(default=None, metadata=member("prometheusMetricsPort", PORT,
        "the port on which it serves them"))
    route_refresh_interval: str = field(default="", metadata=member("routeRefreshInterval", DURATION,
        "how often routes are compared with what they should be; 0 for never"))
    reporting_interval: str = field(default="", metadata=member("reportingInterval", DURATION,
        "how often it reports its status; 0 for never"))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class NodeConfiguration:
    """A configuration as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: NodeConfigurationSpec = field(default=NodeConfigurationSpec(), metadata=member("spec", NodeConfigurationSpec,
        is_always_written=True))
    # fmt: on
    unknown_json: str = ""


NODE_CONFIGURATION: Kind[NodeConfiguration] = Kind("NodeConfiguration", ("name",))

_DEFAULT: Final = "default"
_OF_NODE: Final = "node."


def effective_settings(configurations: Iterable[NodeConfiguration], node: str) -> NodeConfigurationSpec:
    """The settings of a node: those of ``node.<name>``, and what that leaves open as ``default`` has it."""
    by_name = {each.metadata.name: each.spec for each in configurations}
    default = by_name.get(_DEFAULT, NodeConfigurationSpec())
    own = by_name.get(f"{_OF_NODE}{node}", NodeConfigurationSpec())
    usual = NodeConfigurationSpec()
    given = {
        each.name: value
        for each in fields(NodeConfigurationSpec)
        if (value := getattr(own, each.name)) != getattr(usual, each.name)
    }
    return evolve(default, **given)


# --- rules ------------------------------------------------------------------------------------------------------------


def validate_node_configuration(configuration: NodeConfiguration) -> Iterator[FieldError]:
    """What is wrong with the configuration of a node by itself."""
    spec = configuration.spec
    if spec.interface_prefix and not re.fullmatch(_INTERFACE_PREFIXES_PATTERN, spec.interface_prefix):
        rule = "must be 1 to 15 letters, digits, '_' and '-', or several such prefixes with ',' between"
        yield FieldError("spec.interfacePrefix", spec.interface_prefix, rule)
    if spec.nat_outgoing_interfaces and not re.fullmatch(_INTERFACE_NAMES_PATTERN, spec.nat_outgoing_interfaces):
        rule = "must be the name of an interface, or the beginning of names and '+' or '*'"
        yield FieldError("spec.natOutgoingInterfaceFilter", spec.nat_outgoing_interfaces, rule)
    yield from validate_regular_expression("spec.mtuIfacePattern", spec.mtu_interface_pattern)
    for name, address, family in (
        ("natOutgoingAddress", spec.nat_outgoing_address, Family.IPV4),
        ("deviceRouteSourceAddress", spec.route_source, Family.IPV4),
        ("deviceRouteSourceAddressIPv6", spec.route_source_v6, Family.IPV6),
    ):
        if address is not None and address.family is not family:
            yield FieldError(f"spec.{name}", address, f"must be an address of {family}")
    for name, host in (("healthHost", spec.health_host), ("prometheusMetricsHost", spec.metrics_host)):
        if host and not _is_host(host):
            yield FieldError(f"spec.{name}", host, "must be an IP address, or the name of a host")


def _is_host(text: str) -> bool:
    try:
        Address.parse(text)
    except ValueError:
        return is_resource_name(text)
    return True
