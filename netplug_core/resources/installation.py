"""The kinds of an installation: Installation, and the components APIServer, FlowLogAPI and FlowLogViewer beside it.

Only what a document says: None is a setting that it leaves out. ``netplug_core.installation`` reads documents, fills in
the defaults, and judges and renders the result. They are no kinds of the datastore, so they are not in ``kinds``.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

from attrs import frozen

from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.resources.fields import Switch
from netplug_core.resources.ippool import AllowedUse, AssignmentMode
from netplug_core.resources.metadata import Metadata

__all__ = [
    "COMPONENT_NAME", "INSTALLATION_API_VERSION", "INSTALLATION_KIND", "INSTALLATION_NAME", "MAX_INSTALLATION_POOLS",
    "MAX_TOLERATIONS", "OPERATOR_GROUP", "OVERLAY_NAME", "APIServerSpec", "AddressDetection", "CNIFeatures",
    "CNISettings", "Component", "ComponentDeployment", "ComponentKind", "ComponentSpec", "ContainerResources",
    "FlowLogAPISpec", "FlowLogViewerSpec", "IPAMSettings", "ImagePullPolicy", "ImagePullSecret", "InstallMode",
    "Installation", "InstallationPool", "InstallationSpec", "KubernetesAddress", "KubernetesProvider",
    "LinuxDataplane", "LogSettings", "LogSeverity", "Logging", "MultiInterfaceMode", "NetworkSettings", "NodeUpdate",
    "PodInterfaceType", "PoolEncapsulation", "RollingUpdate", "SpecVersion", "Switch", "Sysctl", "TaintEffect",
    "Toleration", "TolerationOperator",
]  # fmt: skip


# --- the Installation -------------------------------------------------------------------------------------------------


OPERATOR_GROUP = f"operator.{RESOURCE_DOMAIN}"
INSTALLATION_API_VERSION = f"{OPERATOR_GROUP}/v1"
INSTALLATION_KIND = "Installation"
INSTALLATION_NAME = "default"
OVERLAY_NAME = "overlay"
"""The name of a second object, whose settings replace those of ``default``."""

MAX_INSTALLATION_POOLS = 25


class PoolEncapsulation(enum.Enum):
    """How packets to a pool's addresses are wrapped, as an Installation spells it."""

    IPIP = "IPIP"
    VXLAN = "VXLAN"
    IPIP_CROSS_SUBNET = "IPIPCrossSubnet"
    VXLAN_CROSS_SUBNET = "VXLANCrossSubnet"
    NONE = "None"


class LinuxDataplane(enum.Enum):
    """Who programs the packet filter of a node."""

    IPTABLES = "Iptables"
    NFTABLES = "Nftables"
    BPF = "BPF"
    VPP = "VPP"


class MultiInterfaceMode(enum.Enum):
    """Who gives pods further interfaces."""

    NONE = "None"
    MULTUS = "Multus"


class PodInterfaceType(enum.Enum):
    """The kind of a pod's interface."""

    VETH = "Veth"
    NETKIT = "Netkit"


class SpecVersion(enum.Enum):
    """The version of the CNI specification that the configuration names."""

    AUTO = "Auto"
    V0_3_1 = "0.3.1"
    V0_4_0 = "0.4.0"
    V1_0_0 = "1.0.0"


class InstallMode(enum.Enum):
    """Whether the well-known helper plugins are installed too."""

    ALL = "All"
    NETPLUG_ONLY = "NetplugOnly"


class LogSeverity(enum.Enum):
    """The level below which the plugin writes no lines."""

    ERROR = "Error"
    WARN = "Warn"
    INFO = "Info"
    DEBUG = "Debug"


class KubernetesProvider(enum.Enum):
    """Which product the cluster is; the empty text is any other."""

    OTHER = ""
    EKS = "EKS"
    GKE = "GKE"
    AKS = "AKS"
    OPENSHIFT = "OpenShift"
    RKE2 = "RKE2"
    DOCKER_ENTERPRISE = "DockerEnterprise"
    TKG = "TKG"
    KIND = "Kind"


class KubernetesAddress(enum.Enum):
    """Which address of the Node object is the node's."""

    NODE_INTERNAL_IP = "NodeInternalIP"


class ImagePullPolicy(enum.Enum):
    """When the runtime pulls an image."""

    IF_NOT_PRESENT = "IfNotPresent"
    ALWAYS = "Always"


@frozen(kw_only=True)
class InstallationPool:
    """One pool of the list. The CIDR is text: the rules judge it, and name the pool by it."""

    cidr: str = ""
    name: str = ""
    encapsulation: PoolEncapsulation | None = None
    nat_outgoing: Switch | None = None
    node_selector: str | None = None
    block_size: int | None = None
    is_bgp_export_disabled: bool = False
    is_new_allocation_disabled: bool = False
    allowed_uses: tuple[AllowedUse, ...] = ()
    assignment_mode: AssignmentMode | None = None


@frozen(kw_only=True)
class AddressDetection:
    """How a node finds its own address; at most one method."""

    is_first_found: bool = False
    kubernetes: KubernetesAddress | None = None
    interface: str = ""
    skip_interface: str = ""
    can_reach: str = ""
    cidrs: tuple[str, ...] = ()


@frozen(kw_only=True)
class IPAMSettings:
    """Which IPAM assigns addresses; ``plugin`` is another spelling of ``type``. Letter case is ignored."""

    type: str = ""
    plugin: str = ""


@frozen(kw_only=True)
class CNISettings:
    """The CNI plugin and its IPAM; a document may spell them at two places. The letter case of ``type`` is ignored."""

    type: str = ""
    ipam: IPAMSettings = IPAMSettings()
    spec_version: SpecVersion | None = None
    bin_dir: str = ""
    conf_dir: str = ""
    install_mode: InstallMode | None = None


@frozen(kw_only=True)
class Sysctl:
    """One kernel parameter of a pod's network namespace."""

    key: str
    value: str


@frozen(kw_only=True)
class CNIFeatures:
    """Annotations by which a pod can reach what is not its own; None and disabled are off (spec 2.4)."""

    ip_addrs_no_ipam: Switch | None = None
    floating_ips: Switch | None = None
    allowed_source_prefixes: Switch | None = None


@frozen(kw_only=True)
class NetworkSettings:
    """``spec.netplugNetwork``. ``pools`` is None if the document does not list any, not even an empty list."""

    cni: CNISettings = CNISettings()
    pools: tuple[InstallationPool, ...] | None = None
    policy_setup_timeout_s: int | None = None
    bgp: Switch | None = None
    mtu: int | None = None
    ipv4_detection: AddressDetection | None = None
    ipv6_detection: AddressDetection | None = None
    host_ports: Switch | None = None
    container_ip_forwarding: Switch | None = None
    linux_dataplane: LinuxDataplane | None = None
    multi_interface_mode: MultiInterfaceMode | None = None
    pod_interface_type: PodInterfaceType | None = None
    sysctls: tuple[Sysctl, ...] = ()
    features: CNIFeatures = CNIFeatures()
    readiness_gates: tuple[str, ...] = ()


@frozen(kw_only=True)
class LogSettings:
    """``spec.logging.cni``: the plugin's log. ``max_size`` is a text such as ``100Mi``."""

    severity: LogSeverity | None = None
    max_size: str = ""
    max_age_days: int | None = None
    max_count: int | None = None


@frozen(kw_only=True)
class Logging:
    """``spec.logging``: what writes logs."""

    cni: LogSettings = LogSettings()


@frozen(kw_only=True)
class ImagePullSecret:
    """A Secret with the credentials of a registry."""

    name: str


@frozen(kw_only=True)
class RollingUpdate:
    """How many nodes are updated at a time; a number, or a percentage as text."""

    max_unavailable: int | str = 1
    max_surge: int | str = 0


@frozen(kw_only=True)
class NodeUpdate:
    """How the node process is updated; Kubernetes' strategy of a DaemonSet."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


@frozen(kw_only=True)
class ContainerResources:
    """What a container gets of its node; the quantities are texts such as ``100m``."""

    requests: tuple[tuple[str, str], ...] = ()
    limits: tuple[tuple[str, str], ...] = ()


@frozen(kw_only=True)
class InstallationSpec:
    """What the document asks for."""

    network: NetworkSettings = NetworkSettings()
    cni: CNISettings = CNISettings()
    logging: Logging = Logging()
    provider: KubernetesProvider | None = None
    registry: str = ""
    image_path: str = ""
    image_prefix: str = ""
    image_pull_secrets: tuple[ImagePullSecret, ...] = ()
    image_pull_policy: ImagePullPolicy | None = None
    control_plane_replicas: int | None = None
    control_plane_node_selector: tuple[tuple[str, str], ...] = ()
    flex_volume_path: str = ""
    kubelet_volume_plugin_path: str = ""
    node_update: NodeUpdate | None = None
    node_resources: ContainerResources | None = None


@frozen(kw_only=True)
class Installation:
    """An Installation as it was written."""

    metadata: Metadata
    spec: InstallationSpec = InstallationSpec()


# --- the components ---------------------------------------------------------------------------------------------------


COMPONENT_NAME: Final = "default"
MAX_TOLERATIONS: Final = 32


class ComponentKind(enum.Enum):
    """A kind, by its name in documents."""

    API_SERVER = "APIServer"
    FLOW_LOG_API = "FlowLogAPI"
    FLOW_LOG_VIEWER = "FlowLogViewer"


class TolerationOperator(enum.Enum):
    """How a toleration compares its key."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TaintEffect(enum.Enum):
    """What a taint of a node does to pods."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@frozen(kw_only=True)
class Toleration:
    """Taints of nodes that a pod may run in spite of, as Kubernetes has them. Without an effect: every effect."""

    key: str = ""
    operator: TolerationOperator | None = None
    value: str = ""
    effect: TaintEffect | None = None
    toleration_s: int | None = None


@frozen(kw_only=True)
class ComponentDeployment:
    """On which nodes the pods of a component may run."""

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@frozen(kw_only=True)
class APIServerSpec:
    """``spec`` of the server that offers ``projectnetplug.org/v3`` in front of the v1 definitions."""

    deployment: ComponentDeployment = ComponentDeployment()


@frozen(kw_only=True)
class FlowLogAPISpec:
    """``spec`` of the server that collects flow logs from the nodes."""

    deployment: ComponentDeployment = ComponentDeployment()
    metrics_port: int | None = None


@frozen(kw_only=True)
class FlowLogViewerSpec:
    """``spec`` of the viewer of flow logs. With ``notifications`` it asks a server of the project for news."""

    deployment: ComponentDeployment = ComponentDeployment()
    notifications: Switch | None = None


ComponentSpec: TypeAlias = APIServerSpec | FlowLogAPISpec | FlowLogViewerSpec


@frozen(kw_only=True)
class Component:
    """A component as it was written."""

    kind: ComponentKind
    metadata: Metadata
    spec: ComponentSpec
