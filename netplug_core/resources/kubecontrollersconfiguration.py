"""The kind KubeControllersConfiguration: its value and its members."""

from __future__ import annotations

import enum

from attrs import field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import TEXT, TEXT_MAP
from netplug_core.decoding.tables import ListOf, json_object, member
from netplug_core.records import Key, Kind
from netplug_core.resources.fields import CIDR, DURATION, ENVELOPE, PORT_OR_NONE, LogSeverity, Metadata, Switch

__all__ = [
    "KUBE_CONTROLLERS_CONFIGURATION", "KUBE_CONTROLLERS_CONFIGURATION_KEY", "AssignedServices", "ControllerSettings",
    "Controllers", "HostEndpointSettings", "HostEndpointTemplate", "KubeControllersConfiguration",
    "KubeControllersSpec", "KubeControllersStatus", "LoadBalancerController", "NodeController",
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

    # fmt: off
    generate_name: str = field(default="", metadata=member("generateName", TEXT,
        "a part of their names, one for each template"))
    interface_cidrs: tuple[Prefix, ...] = field(default=(), metadata=member("interfaceCIDRs", ListOf(CIDR),
        "they have the addresses of the node within these", limits={"maxItems": 1024}))
    interface_pattern: str = field(default="", metadata=member("interfacePattern", TEXT,
        "a regular expression: those of these interfaces"))
    node_selector: str = field(default="", metadata=member("nodeSelector", TEXT, "the nodes that have one"))
    labels: tuple[tuple[str, str], ...] = field(default=(), metadata=member("labels", TEXT_MAP,
        "labels that they have beside those of the node"))
    annotations: tuple[tuple[str, str], ...] = field(default=(), metadata=member("annotations", TEXT_MAP,
        "annotations that they have"))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class HostEndpointSettings:
    """Whether each node has host endpoints by itself, and which."""

    # fmt: off
    auto_create: Switch = field(default=Switch.DISABLED, metadata=member("autoCreate", Switch, "whether they are made",
        is_always_written=True))
    create_default: Switch = field(default=Switch.ENABLED, metadata=member("createDefaultHostEndpoint", Switch,
        "whether one stands for all interfaces of the node"))
    templates: tuple[HostEndpointTemplate, ...] = field(default=(), metadata=member("templates",
        ListOf(HostEndpointTemplate), "further ones", limits={"maxItems": 32}))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeController:
    """The controller of nodes. ``leak_grace_period`` is how long an address looks leaked before it is freed."""

    # fmt: off
    reconciler_period: str = field(default="", metadata=member("reconcilerPeriod", DURATION,
        "how often it compares everything"))
    sync_labels: Switch | None = field(default=None, metadata=member("syncLabels", Switch,
        "whether labels of Kubernetes' nodes are copied to those of an etcd"))
    leak_grace_period: str = field(default="15m", metadata=member("leakGracePeriod", DURATION,
        "how long an address looks leaked before it is freed; 0 for never", is_unset_if_empty=True,
        is_always_written=True))
    host_endpoint: HostEndpointSettings = field(default=HostEndpointSettings(), metadata=member("hostEndpoint",
        HostEndpointSettings, "host endpoints that nodes have by themselves", is_always_written=True))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class ControllerSettings:
    """Any other controller: how often it compares everything."""

    # fmt: off
    reconciler_period: str = field(default="", metadata=member("reconcilerPeriod", DURATION,
        "how often it compares everything"))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class LoadBalancerController:
    """The controller that assigns addresses to Services."""

    # fmt: off
    assign_ips: AssignedServices = field(default=AssignedServices.ALL, metadata=member("assignIPs", AssignedServices,
        "which Services get an address", is_always_written=True))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class Controllers:
    """Which controllers run; None: it does not."""

    # fmt: off
    node: NodeController | None = field(default=None, metadata=member("node", NodeController,
        "nodes that are gone, labels of nodes, host endpoints, leaked addresses"))
    load_balancer: LoadBalancerController | None = field(default=None, metadata=member("loadBalancer",
        LoadBalancerController, "addresses of Services"))
    policy: ControllerSettings | None = field(default=None, metadata=member("policy", ControllerSettings,
        "policies of Kubernetes; with an etcd"))
    workload_endpoint: ControllerSettings | None = field(default=None, metadata=member("workloadEndpoint",
        ControllerSettings, "labels of endpoints; with an etcd"))
    service_account: ControllerSettings | None = field(default=None, metadata=member("serviceAccount",
        ControllerSettings, "a profile for each service account; with an etcd"))
    namespace: ControllerSettings | None = field(default=None, metadata=member("namespace", ControllerSettings,
        "a profile for each namespace; with an etcd"))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class KubeControllersSpec:
    """The settings. ``metrics_port`` 0: no metrics are served. ``compaction_period`` concerns etcd."""

    # fmt: off
    log_severity: LogSeverity | None = field(default=None, metadata=member("logSeverityScreen", LogSeverity,
        "the level below which the controllers write no lines"))
    health_checks: Switch | None = field(default=None, metadata=member("healthChecks", Switch,
        "whether they answer probes"))
    metrics_port: int = field(default=9094, metadata=member("prometheusMetricsPort", PORT_OR_NONE,
        "the port of their metrics; 0 for none", is_always_written=True))
    compaction_period: str = field(default="", metadata=member("etcdV3CompactionPeriod", DURATION,
        "how often the history of an etcd is compacted; 0 for never"))
    controllers: Controllers = field(default=Controllers(), metadata=member("controllers", Controllers,
        "which controllers run; one without a block is off"))
    # fmt: on
    unknown_json: str = ""


@frozen(kw_only=True)
class KubeControllersStatus:
    """What the controllers run with, and the environment variables that they took a setting from."""

    # fmt: off
    running: KubeControllersSpec | None = field(default=None, metadata=member("runningConfig", KubeControllersSpec,
        "The settings that are in force."))
    environment: tuple[tuple[str, str], ...] = field(default=(), metadata=member("environmentVars", TEXT_MAP,
        "The variables that a setting was taken from."))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class KubeControllersConfiguration:
    """The cluster's one configuration of the controllers as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: KubeControllersSpec = field(default=KubeControllersSpec(), metadata=member("spec", KubeControllersSpec,
        is_always_written=True))
    status: KubeControllersStatus = field(default=KubeControllersStatus(), metadata=member("status",
        KubeControllersStatus, "What the controllers run with.", is_users=False))
    # fmt: on
    unknown_json: str = ""


KUBE_CONTROLLERS_CONFIGURATION: Kind[KubeControllersConfiguration] = Kind("KubeControllersConfiguration", ("name",))
KUBE_CONTROLLERS_CONFIGURATION_KEY: Key[KubeControllersConfiguration] = KUBE_CONTROLLERS_CONFIGURATION.key("default")
