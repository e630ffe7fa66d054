"""The kind KubeControllersConfiguration: one object, ``default``, with the settings of the controllers.

A controller without a block in ``controllers`` is off. Durations are texts as Go writes them, so that they stay as a
person wrote them. No program of this release reads the object.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.records import Key, Kind
from netplug_core.resources.log_severity import LogSeverity
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.switch import Switch

__all__ = [
    "KUBE_CONTROLLERS_CONFIGURATION", "KUBE_CONTROLLERS_CONFIGURATION_KEY", "AssignedServices", "ControllerSettings",
    "Controllers", "HostEndpointSettings", "HostEndpointTemplate", "KubeControllersConfiguration",
    "KubeControllersSpec", "KubeControllersStatus", "LoadBalancerController",
    "NodeController",
]  # fmt: skip


class AssignedServices(enum.Enum):
    """Which Services of the type LoadBalancer get an address."""

    ALL = "AllServices"
    REQUESTED = "RequestedServicesOnly"


@frozen(kw_only=True)
class HostEndpointTemplate:
    """A further host endpoint for each node that a selector selects, with its own labels.

    It has the addresses within some CIDRs, or those of interfaces whose name matches a regular expression.
    """

    generate_name: str = ""
    interface_cidrs: tuple[Prefix, ...] = ()
    interface_pattern: str = ""
    node_selector: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class HostEndpointSettings:
    """Whether each node has host endpoints by itself, and which."""

    auto_create: Switch = Switch.DISABLED
    create_default: Switch = Switch.ENABLED
    templates: tuple[HostEndpointTemplate, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeController:
    """The controller of nodes. ``leak_grace_period`` is how long an address looks leaked before it is freed."""

    reconciler_period: str = ""
    sync_labels: Switch | None = None
    leak_grace_period: str = "15m"
    host_endpoint: HostEndpointSettings = HostEndpointSettings()
    unknown_json: str = ""


@frozen(kw_only=True)
class ControllerSettings:
    """Any other controller: how often it compares everything."""

    reconciler_period: str = ""
    unknown_json: str = ""


@frozen(kw_only=True)
class LoadBalancerController:
    """The controller that assigns addresses to Services."""

    assign_ips: AssignedServices = AssignedServices.ALL
    unknown_json: str = ""


@frozen(kw_only=True)
class Controllers:
    """Which controllers run; None: it does not."""

    node: NodeController | None = None
    policy: ControllerSettings | None = None
    workload_endpoint: ControllerSettings | None = None
    service_account: ControllerSettings | None = None
    namespace: ControllerSettings | None = None
    load_balancer: LoadBalancerController | None = None
    unknown_json: str = ""


@frozen(kw_only=True)
class KubeControllersSpec:
    """The settings. ``metrics_port`` 0: no metrics are served. ``compaction_period`` concerns etcd."""

    log_severity: LogSeverity | None = None
    health_checks: Switch | None = None
    metrics_port: int = 9094
    compaction_period: str = ""
    controllers: Controllers = Controllers()
    unknown_json: str = ""


@frozen(kw_only=True)
class KubeControllersStatus:
    """What the controllers run with, and the environment variables that they took a setting from."""

    running: KubeControllersSpec | None = None
    environment: tuple[tuple[str, str], ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class KubeControllersConfiguration:
    """The cluster's one configuration of the controllers as it is stored."""

    metadata: Metadata
    spec: KubeControllersSpec = KubeControllersSpec()
    status: KubeControllersStatus = KubeControllersStatus()
    unknown_json: str = ""


KUBE_CONTROLLERS_CONFIGURATION: Kind[KubeControllersConfiguration] = Kind("KubeControllersConfiguration", ("name",))
KUBE_CONTROLLERS_CONFIGURATION_KEY: Key[KubeControllersConfiguration] = KUBE_CONTROLLERS_CONFIGURATION.key("default")
