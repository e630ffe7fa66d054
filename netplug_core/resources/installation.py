"""The kind Installation: what a cluster's administrator says about how netplug is installed.

Only what the document says: None is a setting that it leaves out. ``netplug_core.installation`` reads the document,
fills in the defaults, and judges and renders the result. It is no kind of the datastore, so it is not in ``kinds``.
Source: spec 2.6.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.resources.ippool import AllowedUse, AssignmentMode
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.switch import Switch

__all__ = [
    "INSTALLATION_API_VERSION", "INSTALLATION_KIND", "INSTALLATION_NAME", "MAX_INSTALLATION_POOLS", "OPERATOR_GROUP",
    "OVERLAY_NAME", "AddressDetection", "CNIFeatures", "CNISettings", "ContainerResources", "IPAMSettings",
    "ImagePullPolicy", "ImagePullSecret", "InstallMode", "Installation", "InstallationPool", "InstallationSpec",
    "KubernetesAddress", "KubernetesProvider", "LinuxDataplane", "LogSettings", "LogSeverity", "Logging",
    "MultiInterfaceMode", "NetworkSettings", "NodeUpdate", "PodInterfaceType", "PoolEncapsulation", "RollingUpdate",
    "SpecVersion", "Switch", "Sysctl",
]  # fmt: skip

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
