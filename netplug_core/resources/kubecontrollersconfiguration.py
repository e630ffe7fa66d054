"""The kind KubeControllersConfiguration: its value and its members.

The definitions of the kind are made from the same tables, with the texts of ``FIELD_TEXTS``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import TEXT, TEXT_MAP, enum_codec
from netplug_core.decoding.tables import Field, ListOf, Table, fields_of
from netplug_core.records import Key, Kind
from netplug_core.resources.fields import CIDR, DURATION, PORT_OR_NONE, SWITCH, LogSeverity, Switch
from netplug_core.resources.metadata import Metadata

__all__ = [
    "FIELD_TEXTS", "KUBE_CONTROLLERS_CONFIGURATION", "KUBE_CONTROLLERS_CONFIGURATION_KEY", "KUBE_CONTROLLERS_TABLES",
    "AssignedServices", "ControllerSettings", "Controllers", "HostEndpointSettings", "HostEndpointTemplate",
    "KubeControllersConfiguration", "KubeControllersSpec", "KubeControllersStatus", "LoadBalancerController",
    "NodeController",
]  # fmt: skip


# --- the value --------------------------------------------------------------------------------------------------------


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


# --- members ----------------------------------------------------------------------------------------------------------


_PERIOD: Final = "how often it compares everything"

FIELD_TEXTS: Final[Mapping[str, str]] = {
    "logSeverityScreen": "the level below which the controllers write no lines",
    "healthChecks": "whether they answer probes",
    "prometheusMetricsPort": "the port of their metrics; 0 for none",
    "etcdV3CompactionPeriod": "how often the history of an etcd is compacted; 0 for never",
    "controllers": "which controllers run; one without a block is off",
    "controllers.node": "nodes that are gone, labels of nodes, host endpoints, leaked addresses",
    "controllers.node.reconcilerPeriod": _PERIOD,
    "controllers.node.syncLabels": "whether labels of Kubernetes' nodes are copied to those of an etcd",
    "controllers.node.leakGracePeriod": "how long an address looks leaked before it is freed; 0 for never",
    "controllers.node.hostEndpoint": "host endpoints that nodes have by themselves",
    "controllers.node.hostEndpoint.autoCreate": "whether they are made",
    "controllers.node.hostEndpoint.createDefaultHostEndpoint": "whether one stands for all interfaces of the node",
    "controllers.node.hostEndpoint.templates": "further ones",
    "controllers.node.hostEndpoint.templates[].generateName": "a part of their names, one for each template",
    "controllers.node.hostEndpoint.templates[].interfaceCIDRs": "they have the addresses of the node within these",
    "controllers.node.hostEndpoint.templates[].interfacePattern": "a regular expression: those of these interfaces",
    "controllers.node.hostEndpoint.templates[].nodeSelector": "the nodes that have one",
    "controllers.node.hostEndpoint.templates[].labels": "labels that they have beside those of the node",
    "controllers.node.hostEndpoint.templates[].annotations": "annotations that they have",
    "controllers.policy": "policies of Kubernetes; with an etcd",
    "controllers.policy.reconcilerPeriod": _PERIOD,
    "controllers.workloadEndpoint": "labels of endpoints; with an etcd",
    "controllers.workloadEndpoint.reconcilerPeriod": _PERIOD,
    "controllers.serviceAccount": "a profile for each service account; with an etcd",
    "controllers.serviceAccount.reconcilerPeriod": _PERIOD,
    "controllers.namespace": "a profile for each namespace; with an etcd",
    "controllers.namespace.reconcilerPeriod": _PERIOD,
    "controllers.loadBalancer": "addresses of Services",
    "controllers.loadBalancer.assignIPs": "which Services get an address",
}
"""What each field of ``spec`` is for, by its path; ``[]`` stands behind a list."""


_OTHER: Final = ("policy", "workload_endpoint", "service_account", "namespace")
_OTHER_KEYS: Final = ("policy", "workloadEndpoint", "serviceAccount", "namespace")

KUBE_CONTROLLERS_TABLES: Final[tuple[Table[object], ...]] = (
    Table(
        cls=KubeControllersSpec,
        fields={
            "log_severity": Field("logSeverityScreen", enum_codec(LogSeverity)),
            "health_checks": Field("healthChecks", SWITCH),
            "metrics_port": Field("prometheusMetricsPort", PORT_OR_NONE, is_always_written=True),
            "compaction_period": Field("etcdV3CompactionPeriod", DURATION),
            "controllers": Field("controllers", Controllers),
        },
    ),
    Table(
        cls=Controllers,
        fields={
            "node": Field("node", NodeController),
            **{name: Field(key, ControllerSettings) for name, key in zip(_OTHER, _OTHER_KEYS, strict=True)},
            "load_balancer": Field("loadBalancer", LoadBalancerController),
        },
    ),
    Table(
        cls=NodeController,
        fields={
            "reconciler_period": Field("reconcilerPeriod", DURATION),
            "sync_labels": Field("syncLabels", SWITCH),
            "leak_grace_period": Field("leakGracePeriod", DURATION, is_unset_if_empty=True, is_always_written=True),
            "host_endpoint": Field("hostEndpoint", HostEndpointSettings, is_always_written=True),
        },
    ),
    Table(cls=ControllerSettings, fields=fields_of(DURATION, reconciler_period="reconcilerPeriod")),
    Table(
        cls=LoadBalancerController,
        fields={"assign_ips": Field("assignIPs", enum_codec(AssignedServices), is_always_written=True)},
    ),
    Table(
        cls=HostEndpointSettings,
        fields={
            "auto_create": Field("autoCreate", SWITCH, is_always_written=True),
            "create_default": Field("createDefaultHostEndpoint", SWITCH),
            "templates": Field("templates", ListOf(HostEndpointTemplate)),
        },
    ),
    Table(
        cls=HostEndpointTemplate,
        fields={
            "generate_name": Field("generateName", TEXT),
            "interface_cidrs": Field("interfaceCIDRs", ListOf(CIDR)),
            **fields_of(TEXT, interface_pattern="interfacePattern", node_selector="nodeSelector"),
            **fields_of(TEXT_MAP, labels="labels", annotations="annotations"),
        },
    ),
    Table(
        cls=KubeControllersStatus,
        fields={
            "running": Field("runningConfig", KubeControllersSpec),
            "environment": Field("environmentVars", TEXT_MAP),
        },
    ),
)
