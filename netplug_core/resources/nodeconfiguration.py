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
from netplug_core.names import HOST_INTERFACE_PREFIX, is_resource_name
from netplug_core.records import Kind
from netplug_core.resources.fields import (
    CIDR,
    DURATION,
    ENVELOPE,
    IP_ADDRESS,
    PORT,
    PORT_RANGE,
    FieldError,
    LogSeverity,
    Metadata,
    PortRange,
    Switch,
    integer_between,
    validate_regular_expression,
)
from netplug_core.resources.hostendpoint import PortProtocol

__all__ = [
    "NODE_CONFIGURATION", "DenyAction", "EndpointToHostAction", "FailsafePort", "NodeConfiguration",
    "NodeConfigurationSpec", "OutgoingExclusions", "SourceSpoofing", "effective_settings", "interface_prefixes",
    "validate_node_configuration",
]  # fmt: skip


# --- the value --------------------------------------------------------------------------------------------------------


class EndpointToHostAction(enum.Enum):
    """What happens to packets of a workload to its own host that its policies allow."""

    DROP = "Drop"
    RETURN = "Return"
    ACCEPT = "Accept"


class SourceSpoofing(enum.Enum):
    """From which addresses a workload may send: its own, or also those of its ``allowedSourcePrefixes``."""

    DISABLED = "Disabled"
    ANY = "Any"


class DenyAction(enum.Enum):
    """How a packet is denied: without an answer, or with a TCP reset or an ICMP error."""

    DROP = "Drop"
    REJECT = "Reject"


class OutgoingExclusions(enum.Enum):
    """Which destinations packets of a pool with NAT reach with the pod's own address."""

    POOLS = "IPPoolsOnly"
    POOLS_AND_NODES = "IPPoolsAndHostIPs"


_INTERFACE_NAMES_PATTERN: Final = "[A-Za-z0-9_.:-]{1,15}|[A-Za-z0-9_.:-]{0,14}[+*]"
_INTERFACE_PREFIX: Final = "[A-Za-z0-9_-]{1,15}"
_INTERFACE_PREFIXES_PATTERN: Final = f"{_INTERFACE_PREFIX}(,{_INTERFACE_PREFIX})*"
_LOG_PREFIX_PATTERN: Final = "([ -$&-~]|%[knpt%]){1,64}"
_LOG_RATE_PATTERN: Final = "[1-9][0-9]{0,3}/(second|minute|hour|day)"
_FEATURE: Final = "[A-Za-z0-9]{1,64}=(true|false)"
_FEATURES_PATTERN: Final = f"{_FEATURE}(,{_FEATURE})*"
_BURST: Final = integer_between(1, 9999)
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
    feature_overrides: str = field(default="", metadata=member("featureDetectOverride", TEXT,
        "what the kernel can do, whatever its version says: ChecksumOffloadBroken=true or =false; others are ignored",
        limits={"pattern": f"^({_FEATURES_PATTERN})?$"}))
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
        "what happens to packets of a workload to its host that its policies allow: Drop if not given, Accept, or "
        "Return, which is the same as Accept"))
    failsafe_inbound: tuple[FailsafePort, ...] | None = field(default=None, metadata=member("failsafeInboundHostPorts",
        ListOf(FailsafePort), "ports of the host that no policy closes; an empty list is none; if not given: TCP 22, "
        "179, 2379, 2380, 6443, 6666 and 6667, UDP 68"))
    failsafe_outbound: tuple[FailsafePort, ...] | None = field(default=None, metadata=member(
        "failsafeOutboundHostPorts", ListOf(FailsafePort),
        "ports that no policy keeps the host from reaching; an empty list is none; if not given: TCP 179, 2379, 2380, "
        "6443, 6666 and 6667, UDP 53 and 67"))
    source_spoofing: SourceSpoofing | None = field(default=None, metadata=member("workloadSourceSpoofing",
        SourceSpoofing, "whether workloads may send from the prefixes of their annotation allowedSourcePrefixes (Any), "
        "or from their own addresses alone, which is what holds if not given"))
    deny_action: DenyAction | None = field(default=None, metadata=member("denyAction", DenyAction,
        "whether a packet that policy denies is dropped, which is what holds if not given, or answered with a TCP "
        "reset or an ICMP error"))
    is_invalid_evaluated: bool | None = field(default=None, metadata=member("disableConntrackInvalidCheck", BOOLEAN,
        "whether packets that connection tracking calls invalid are judged like new ones; if not, they are dropped"))
    allows_vxlan: bool | None = field(default=None, metadata=member("allowVXLANPacketsFromWorkloads", BOOLEAN,
        "whether workloads may send VXLAN packets; if not, their UDP packets to vxlanPort are dropped, since what is "
        "within would pass unjudged"))
    allows_ipip: bool | None = field(default=None, metadata=member("allowIPIPPacketsFromWorkloads", BOOLEAN,
        "whether workloads may send IPIP packets; if not, they are dropped"))
    log_prefix: str = field(default="", metadata=member("logPrefix", TEXT,
        "what the lines of rules with action Log begin with: netplug-packet if not given; %k, %n, %p and %t stand for "
        "the kind of the policy, its name, its namespace and name, and its tier",
        limits={"pattern": f"^({_LOG_PREFIX_PATTERN})?$"}))
    log_rate_limit: str = field(default="", metadata=member("logActionRateLimit", TEXT,
        "how many lines such rules write at most, such as 10/second; if not given, one for each packet",
        limits={"pattern": f"^({_LOG_RATE_PATTERN})?$"}))
    log_burst: int | None = field(default=None, metadata=member("logActionRateLimitBurst", _BURST,
        "how many lines may come at once before the limit holds: 5 if not given"))
    policy_refresh_interval: str = field(default="", metadata=member("policyRefreshInterval", DURATION,
        "how often the rules in the kernel are compared with what they should be: 180s if not given, 0 for never"))
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


def configuration_names(node: str) -> tuple[str, str]:
    """The names of the configurations that count for a node: its own, and that of all nodes."""
    return f"{_OF_NODE}{node}", _DEFAULT


def effective_settings(configurations: Iterable[NodeConfiguration], node: str) -> NodeConfigurationSpec:
    """The settings of a node: those of ``node.<name>``, and what that leaves open as ``default`` has it."""
    by_name = {each.metadata.name: each.spec for each in configurations}
    own, default = (by_name.get(name, NodeConfigurationSpec()) for name in configuration_names(node))
    usual = NodeConfigurationSpec()
    given = {
        each.name: value
        for each in fields(NodeConfigurationSpec)
        if (value := getattr(own, each.name)) != getattr(usual, each.name)
    }
    return evolve(default, **given)


def interface_prefixes(configurations: Iterable[NodeConfiguration], node: str) -> tuple[str, ...]:
    """What the names of workloads' interfaces begin with on a node."""
    given = effective_settings(configurations, node).interface_prefix
    return tuple(given.split(",")) if given else (HOST_INTERFACE_PREFIX,)


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
    if spec.log_prefix and not re.fullmatch(_LOG_PREFIX_PATTERN, spec.log_prefix):
        rule = "must be at most 64 printable ASCII characters, with '%' only in %k, %n, %p, %t and %%"
        yield FieldError("spec.logPrefix", spec.log_prefix, rule)
    if spec.log_rate_limit and not re.fullmatch(_LOG_RATE_PATTERN, spec.log_rate_limit):
        rule = "must be a number from 1 to 9999 and '/second', '/minute', '/hour' or '/day'"
        yield FieldError("spec.logActionRateLimit", spec.log_rate_limit, rule)
    if spec.feature_overrides and not re.fullmatch(_FEATURES_PATTERN, spec.feature_overrides):
        rule = "must be like ChecksumOffloadBroken=true, or several such with ',' between"
        yield FieldError("spec.featureDetectOverride", spec.feature_overrides, rule)
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
