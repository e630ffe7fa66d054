"""The kind NodeConfiguration: the settings of the node process, in the cluster and on single nodes.

The object ``default`` is for every node; ``node.`` and the name of a node is for that one. No program of this release
reads them.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.records import Kind
from netplug_core.resources.hostendpoint import PortProtocol
from netplug_core.resources.log_severity import LogSeverity
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.switch import Switch

__all__ = ["NODE_CONFIGURATION", "EndpointToHostAction", "FailsafePort", "NodeConfiguration", "NodeConfigurationSpec"]


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
