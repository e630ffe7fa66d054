"""The kind Installation: its values and its members.

Only what a document says: None is a setting that it leaves out. ``netplug_core.installation`` reads documents, fills in
the defaults, and judges and renders the result. It is no kind of the datastore, so it is not in ``kinds``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from netplug_core.decoding.codecs import (
    BOOLEAN,
    HTTP_URL,
    INTEGER,
    NONEMPTY_TEXT,
    TEXT,
    TEXT_MAP,
    Codec,
    JSONType,
    Refused,
    WrongType,
)
from netplug_core.decoding.tables import ListOf, json_object, member
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.ippool import AllowedUse, AssignmentMode

__all__ = [
    "INSTALLATION_API_VERSION", "INSTALLATION_KIND", "INSTALLATION_NAME", "MAX_INSTALLATION_POOLS", "OPERATOR_GROUP",
    "OVERLAY_NAME", "AddressDetection", "CNIFeatures", "CNISettings", "ContainerResources", "IPAMSettings",
    "ImagePullPolicy", "ImagePullSecret", "InstallMode", "Installation", "InstallationPool", "InstallationSpec",
    "KubernetesAddress", "KubernetesProvider", "LinuxDataplane", "LogSettings", "LogSeverity", "Logging",
    "MultiInterfaceMode", "NetworkSettings", "NodeUpdate", "PodInterfaceType", "PoolEncapsulation", "RollingUpdate",
    "SpecVersion", "Switch", "Sysctl",
]  # fmt: skip


# --- values of members ------------------------------------------------------------------------------------------------


_MIN_INT32, _MAX_INT32 = -(2**31), 2**31 - 1


def _read_count_or_share(value: object) -> int | str:
    """A number of nodes, or a share of them. Source: the API of Kubernetes, RollingUpdateDaemonSet."""
    accepted = "a whole number of at least 0, or a percentage up to 100% as text"
    if isinstance(value, str) and _PERCENTAGE.fullmatch(value):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(accepted)
    if not 0 <= value <= _MAX_INT32:
        raise Refused(accepted)
    return value


def _read_int32(value: object) -> int:
    number = INTEGER.decode(value)
    if not _MIN_INT32 <= number <= _MAX_INT32:
        raise Refused("a whole number of 32 bits")
    return number


def _read_text_or_number(value: object) -> str:
    """A text; a number is its decimal text, as in the pods of Kubernetes."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return NONEMPTY_TEXT.decode(str(value) if is_number else value)


def _read_quantities(value: object) -> tuple[tuple[str, str], ...]:
    """Amounts of resources. Source: the API of Kubernetes, Quantity, whose JSON is a text or a number."""
    quantities: list[tuple[str, str]] = []
    if not isinstance(value, Mapping):
        raise WrongType(JSONType.OBJECT)
    for name, amount in value.items():
        text = amount if isinstance(amount, bool | str) else str(amount)
        if not isinstance(name, str) or not isinstance(text, str) or not _QUANTITY.fullmatch(text):
            raise Refused("a quantity such as 100m, 1 or 96Mi", value=amount, path=f"[{name}]")
        quantities.append((name, text))
    return tuple(sorted(quantities))


_PERCENTAGE: Final = re.compile(r"(?:100|[0-9]{1,2})%", re.ASCII)
_QUANTITY: Final = re.compile(
    r"([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})([kMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?", re.ASCII
)
_QUANTITIES: Final = Codec(
    _read_quantities,
    TEXT_MAP.encode,
    schema={
        "type": "object",
        "additionalProperties": {"x-kubernetes-int-or-string": True, "pattern": f"^{_QUANTITY.pattern}$"},
    },
)
_TEXT_OR_NUMBER: Final = Codec(_read_text_or_number, schema={"x-kubernetes-int-or-string": True})
_URL: Final = Codec(HTTP_URL.decode, schema={"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#]"})
# An API server before Kubernetes 1.36 judges no number by its format alone.
_INT32: Final = Codec(
    _read_int32, schema={"type": "integer", "format": "int32", "minimum": _MIN_INT32, "maximum": _MAX_INT32}
)
_COUNT_OR_SHARE: Final = Codec(
    _read_count_or_share,
    schema={"x-kubernetes-int-or-string": True, "minimum": 0, "pattern": f"^{_PERCENTAGE.pattern}$"},
)


# --- the Installation -------------------------------------------------------------------------------------------------


OPERATOR_GROUP = f"operator.{RESOURCE_DOMAIN}"
INSTALLATION_API_VERSION = f"{OPERATOR_GROUP}/v1"
INSTALLATION_KIND = "Installation"
INSTALLATION_NAME = "default"
OVERLAY_NAME = "overlay"
"""The name of a second object, whose settings replace those of ``default``."""

MAX_INSTALLATION_POOLS = 25
_MAX_FOLDER_LENGTH: Final = 1024


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

    # fmt: off
    cidr: str = field(default="", metadata=member("cidr", TEXT, "the addresses of the pool", "required",
        "`cidr` of the IPPool"))
    name: str = field(default="", metadata=member("name", TEXT, "the name of the IPPool",
        "default-ipv4-ippool, default-ipv6-ippool; made of the CIDR if there are more", "name of the IPPool"))
    encapsulation: PoolEncapsulation | None = field(default=None, metadata=member("encapsulation", PoolEncapsulation,
        "how packets between nodes are wrapped",
        "VXLAN, or what the pool has already; None with another CNI plugin and for LoadBalancer",
        "`ipipMode`, `vxlanMode` of the IPPool"))
    nat_outgoing: Switch | None = field(default=None, metadata=member("natOutgoing", Switch,
        "whether packets to addresses outside of all pools get the node's address", "IPv4 Enabled, IPv6 Disabled",
        "`natOutgoing` of the IPPool"))
    node_selector: str | None = field(default=None, metadata=member("nodeSelector", TEXT,
        "the nodes that assign from the pool", "all()", "`nodeSelector` of the IPPool"))
    block_size: int | None = field(default=None, metadata=member("blockSize", _INT32,
        "the prefix length of the pool's blocks", "IPv4 26, IPv6 122", "`blockSize` of the IPPool"))
    is_bgp_export_disabled: bool = field(default=False, metadata=member("disableBGPExport", BOOLEAN,
        "whether routes to the pool are kept from BGP peers", "false", "`disableBGPExport` of the IPPool"))
    is_new_allocation_disabled: bool = field(default=False, metadata=member("disableNewAllocations", BOOLEAN,
        "whether the pool assigns no further addresses", "false", "`disabled` of the IPPool"))
    allowed_uses: tuple[AllowedUse, ...] = field(default=(), metadata=member("allowedUses", ListOf(AllowedUse),
        "what its addresses are for; LoadBalancer stands alone", "Workload, Tunnel", "`allowedUses` of the IPPool"))
    assignment_mode: AssignmentMode | None = field(default=None, metadata=member("assignmentMode", AssignmentMode,
        "whether the pool serves pods that do not name it", "Automatic", "`assignmentMode` of the IPPool"))
    # fmt: on


@frozen(kw_only=True)
class AddressDetection:
    """How a node finds its own address; at most one method."""

    # fmt: off
    is_first_found: bool = field(default=False, metadata=member("firstFound", BOOLEAN,
        "a method of finding the node's address: the first usable address", "false", "`first-found`"))
    kubernetes: KubernetesAddress | None = field(default=None, metadata=member("kubernetes", KubernetesAddress,
        "a method of finding the node's address: that of the Node object", "unset", "`kubernetes-internal-ip`"))
    interface: str = field(default="", metadata=member("interface", TEXT,
        "a method of finding the node's address: interfaces that match a regular expression", "unset", "`interface=…`"))
    skip_interface: str = field(default="", metadata=member("skipInterface", TEXT,
        "a method of finding the node's address: interfaces that do not match one", "unset", "`skip-interface=…`"))
    can_reach: str = field(default="", metadata=member("canReach", TEXT,
        "a method of finding the node's address: the one that reaches a host", "unset", "`can-reach=…`"))
    cidrs: tuple[str, ...] = field(default=(), metadata=member("cidrs", ListOf(TEXT),
        "a method of finding the node's address: one within these CIDRs", "unset", "`cidr=…`"))
    # fmt: on


@frozen(kw_only=True)
class IPAMSettings:
    """Which IPAM assigns addresses; ``plugin`` is another spelling of ``type``. Letter case is ignored."""

    # fmt: off
    type: str = field(default="", metadata=member("type", TEXT,
        "who assigns addresses; HostLocal assigns from the node's pod CIDRs",
        "by CNI plugin: Netplug, or HostLocal with GKE, or its own", "`ipam` in the conflist"))
    plugin: str = field(default="", metadata=member("plugin", TEXT, "another spelling of `type`", "",
        "`ipam` in the conflist"))
    # fmt: on


@frozen(kw_only=True)
class CNISettings:
    """The CNI plugin and its IPAM; a document may spell them at two places. The letter case of ``type`` is ignored."""

    # fmt: off
    type: str = field(default="", metadata=member("type", TEXT,
        "the CNI plugin that connects pods; letter case is ignored",
        "by provider: AKS AzureVNET, EKS AmazonVPC, GKE GKE; otherwise Netplug", "whether a conflist is installed"))
    ipam: IPAMSettings = field(default=IPAMSettings(), metadata=member("ipam", IPAMSettings, "the IPAM"))
    spec_version: SpecVersion | None = field(default=None, metadata=member("specVersion", SpecVersion,
        "the version of the CNI specification; Auto is 1.0.0; only with the CNI plugin Netplug", "Auto",
        "`cniVersion` in the conflist"))
    bin_dir: str = field(default="", metadata=member("binDir", TEXT, "the folder of CNI plugins on the nodes",
        "/opt/cni/bin; GKE /home/kubernetes/bin; OpenShift /var/lib/cni/bin", "volume `cni-bin-dir`, `CNI_BIN_DIR`",
        limits={"maxLength": _MAX_FOLDER_LENGTH}))
    conf_dir: str = field(default="", metadata=member("confDir", TEXT, "the folder of CNI configurations on the nodes",
        "/etc/cni/net.d; OpenShift /var/run/multus/cni/net.d", "volume `cni-net-dir`, `CNI_NET_DIR`",
        limits={"maxLength": _MAX_FOLDER_LENGTH}))
    install_mode: InstallMode | None = field(default=None, metadata=member("installMode", InstallMode,
        "whether bandwidth, host-local, loopback, portmap and tuning are installed too", "All", "an init container"))
    # fmt: on


@frozen(kw_only=True)
class Sysctl:
    """One kernel parameter of a pod's network namespace."""

    # fmt: off
    key: str = field(metadata=member("key", NONEMPTY_TEXT, "net.ipv4.tcp_keepalive_intvl, _probes or _time", "required",
        "the plugin `tuning`"))
    value: str = field(metadata=member("value", _TEXT_OR_NUMBER, "the parameter's value", "required",
        "the plugin `tuning`"))
    # fmt: on


@frozen(kw_only=True)
class CNIFeatures:
    """Annotations by which a pod can reach what is not its own; None and disabled are off."""

    # fmt: off
    ip_addrs_no_ipam: Switch | None = field(default=None, metadata=member("ipAddrsNoIpam", Switch,
        "whether pods may name addresses that no address assignment holds", "Disabled",
        "`feature_control.ip_addrs_no_ipam` in the conflist"))
    floating_ips: Switch | None = field(default=None, metadata=member("floatingIPs", Switch,
        "whether pods may have floating IPs", "Disabled", "`feature_control.floating_ips` in the conflist"))
    allowed_source_prefixes: Switch | None = field(default=None, metadata=member("allowedSourcePrefixes", Switch,
        "whether pods may send from other addresses than their own", "Disabled",
        "`feature_control.allowed_source_prefixes` in the conflist"))
    # fmt: on


@frozen(kw_only=True)
class NetworkSettings:
    """``spec.netplugNetwork``. ``pools`` is None if the document does not list any, not even an empty list."""

    # fmt: off
    cni: CNISettings = field(default=CNISettings(), metadata=member("cni", CNISettings, "the CNI plugin and its IPAM"))
    pools: tuple[InstallationPool, ...] | None = field(default=None, metadata=member("ipPools",
        ListOf(InstallationPool), "the pools of the cluster, at most 25; an empty list leaves them to others",
        "on a new cluster the platform's pod CIDRs, or 192.168.0.0/16 with the IPAM Netplug",
        "IPPools; the address families of the conflist", limits={"maxItems": MAX_INSTALLATION_POOLS}))
    policy_setup_timeout_s: int | None = field(default=None, metadata=member("linuxPolicySetupTimeoutSeconds", _INT32,
        "holds back the start of a pod until its policy is programmed, at most so many seconds", "0",
        "`policy_setup_timeout_seconds` in the conflist"))
    bgp: Switch | None = field(default=None, metadata=member("bgp", Switch,
        "whether nodes exchange routes by BGP; only with the CNI plugin Netplug",
        "Enabled with the CNI plugin Netplug, except on EKS; otherwise Disabled",
        "`NETPLUG_NETWORKING_BACKEND` of the node"))
    mtu: int | None = field(default=None, metadata=member("mtu", _INT32,
        "the MTU of pods' interfaces; 0: each node finds out", "0", "`mtu` in the conflist; tunnels of the node"))
    ipv4_detection: AddressDetection | None = field(default=None, metadata=member("nodeAddressAutodetectionV4",
        AddressDetection, "how a node finds its IPv4 address: one method",
        "with an enabled IPv4 pool in the cluster or BPF: firstFound; DockerEnterprise skipInterface ^br-.*; "
        "EKS canReach 8.8.8.8", "`IP`, `IP_AUTODETECTION_METHOD` of the node"))
    ipv6_detection: AddressDetection | None = field(default=None, metadata=member("nodeAddressAutodetectionV6",
        AddressDetection, "how a node finds its IPv6 address: one method",
        "with an enabled IPv6 pool in the cluster: firstFound", "`IP6`, `IP6_AUTODETECTION_METHOD` of the node"))
    host_ports: Switch | None = field(default=None, metadata=member("hostPorts", Switch,
        "whether pods may have host ports; only with the CNI plugin Netplug", "Enabled",
        "the plugin `portmap` in the conflist"))
    container_ip_forwarding: Switch | None = field(default=None, metadata=member("containerIPForwarding", Switch,
        "whether containers may forward packets; only with the CNI plugin Netplug", "Disabled",
        "`container_settings` in the conflist"))
    linux_dataplane: LinuxDataplane | None = field(default=None, metadata=member("linuxDataplane", LinuxDataplane,
        "who programs the packet filter of the nodes", "Iptables", "with VPP `dataplane_options` in the conflist"))
    multi_interface_mode: MultiInterfaceMode | None = field(default=None, metadata=member("multiInterfaceMode",
        MultiInterfaceMode, "who gives pods further interfaces; only with the CNI plugin Netplug", "None",
        "nothing in this release"))
    pod_interface_type: PodInterfaceType | None = field(default=None, metadata=member("linuxPodInterfaceType",
        PodInterfaceType, "the kind of pods' interfaces; only with the CNI plugin Netplug", "Veth",
        "with Netkit `device_type` in the conflist"))
    sysctls: tuple[Sysctl, ...] = field(default=(), metadata=member("sysctl", ListOf(Sysctl),
        "kernel parameters of pods", "none", "the plugin `tuning` in the conflist"))
    features: CNIFeatures = field(default=CNIFeatures(), metadata=member("cniFeatures", CNIFeatures,
        "annotations by which a pod can reach what is not its own", "", "`feature_control` in the conflist"))
    readiness_gates: tuple[str, ...] = field(default=(), metadata=member("readinessGates", ListOf(_URL),
        "URLs that must answer before a pod gets its addresses", "none", "`readiness_gates` in the conflist"))
    # fmt: on


@frozen(kw_only=True)
class LogSettings:
    """``spec.logging.cni``: the plugin's log. ``max_size`` is a text such as ``100Mi``."""

    # fmt: off
    severity: LogSeverity | None = field(default=None, metadata=member("logSeverity", LogSeverity,
        "lines below this level are not written", "Info", "`log_level` in the conflist"))
    max_size: str = field(default="", metadata=member("logFileMaxSize", TEXT,
        "size at which the file is rotated, with a binary suffix; at least 1Mi", "100Mi",
        "`log_file_max_size` in the conflist, in MiB"))
    max_age_days: int | None = field(default=None, metadata=member("logFileMaxAgeDays", _INT32,
        "days after which a rotated file is removed", "30", "`log_file_max_age` in the conflist"))
    max_count: int | None = field(default=None, metadata=member("logFileMaxCount", _INT32,
        "how many rotated files are kept", "10", "`log_file_max_count` in the conflist"))
    # fmt: on


@frozen(kw_only=True)
class Logging:
    """``spec.logging``: what writes logs."""

    cni: LogSettings = field(default=LogSettings(), metadata=member("cni", LogSettings, "the log of the CNI plugin"))


@frozen(kw_only=True)
class ImagePullSecret:
    """A Secret with the credentials of a registry."""

    name: str = field(metadata=member("name", NONEMPTY_TEXT, "the name of the Secret", "required", "pods of netplug"))


@frozen(kw_only=True)
class RollingUpdate:
    """How many nodes are updated at a time; a number, or a percentage as text."""

    # fmt: off
    max_unavailable: int | str = field(default=1, metadata=member("maxUnavailable", _COUNT_OR_SHARE,
        "nodes that may be without the pod; a number or a percentage", "1", "the DaemonSet"))
    max_surge: int | str = field(default=0, metadata=member("maxSurge", _COUNT_OR_SHARE,
        "nodes that may have two pods; a number or a percentage", "0", "the DaemonSet"))
    # fmt: on


@frozen(kw_only=True)
class NodeUpdate:
    """How the node process is updated; Kubernetes' strategy of a DaemonSet."""

    # fmt: off
    type: str = field(default="RollingUpdate", metadata=member("type", TEXT, "only RollingUpdate", "RollingUpdate",
        "the DaemonSet"))
    rolling_update: RollingUpdate = field(default=RollingUpdate(), metadata=member("rollingUpdate", RollingUpdate,
        "how many nodes at a time", "", "the DaemonSet"))
    # fmt: on


@frozen(kw_only=True)
class ContainerResources:
    """What a container gets of its node; the quantities are texts such as ``100m``."""

    # fmt: off
    requests: tuple[tuple[str, str], ...] = field(default=(), metadata=member("requests", _QUANTITIES,
        "what is kept for it, such as cpu: 100m", "", "the DaemonSet"))
    limits: tuple[tuple[str, str], ...] = field(default=(), metadata=member("limits", _QUANTITIES,
        "the most that it gets, such as memory: 512Mi", "", "the DaemonSet"))
    # fmt: on


@frozen(kw_only=True)
class InstallationSpec:
    """What the document asks for."""

    # fmt: off
    network: NetworkSettings = field(default=NetworkSettings(), metadata=member("netplugNetwork", NetworkSettings,
        "the pods' network"))
    cni: CNISettings = field(default=CNISettings(), metadata=member("cni", CNISettings,
        "another spelling of `netplugNetwork.cni`"))
    logging: Logging = field(default=Logging(), metadata=member("logging", Logging, "what is logged"))
    provider: KubernetesProvider | None = field(default=None, metadata=member("kubernetesProvider", KubernetesProvider,
        "which product the cluster is; empty for any other", "detected",
        "folders, defaults, `CLUSTER_TYPE` of the node"))
    registry: str = field(default="", metadata=member("registry", TEXT,
        "the registry of images, such as registry.example.com:5000/; UseDefault is the default", "UseDefault",
        "image references"))
    image_path: str = field(default="", metadata=member("imagePath", TEXT, "the path of images in the registry",
        "UseDefault", "image references"))
    image_prefix: str = field(default="", metadata=member("imagePrefix", TEXT,
        "what stands before the name of each image", "UseDefault", "image references"))
    image_pull_secrets: tuple[ImagePullSecret, ...] = field(default=(), metadata=member("imagePullSecrets",
        ListOf(ImagePullSecret), "Secrets with the credentials of the registry", "none", "pods of netplug"))
    image_pull_policy: ImagePullPolicy | None = field(default=None, metadata=member("imagePullPolicy", ImagePullPolicy,
        "when images are pulled", "IfNotPresent", "containers of netplug"))
    control_plane_replicas: int | None = field(default=None, metadata=member("controlPlaneReplicas", _INT32,
        "how many pods each Deployment has", "2", "Deployments"))
    control_plane_node_selector: tuple[tuple[str, str], ...] = field(default=(), metadata=member(
        "controlPlaneNodeSelector", TEXT_MAP,
        "the labels of nodes that run the Deployments; kubernetes.io/os can only be linux", "none", "Deployments"))
    flex_volume_path: str = field(default="", metadata=member("flexVolumePath", TEXT,
        "an absolute path, or None; for manifests of others", "unset", "nothing"))
    kubelet_volume_plugin_path: str = field(default="", metadata=member("kubeletVolumePluginPath", TEXT,
        "an absolute path, or None; for manifests of others", "unset", "nothing"))
    node_update: NodeUpdate | None = field(default=None, metadata=member("nodeUpdateStrategy", NodeUpdate,
        "how the pods on the nodes are updated", "", "the DaemonSet"))
    node_resources: ContainerResources | None = field(default=None, metadata=member("nodeResources", ContainerResources,
        "what the node process gets of its node", "requests cpu 100m, memory 96Mi", "the DaemonSet"))
    # fmt: on


@json_object(ignored=("kind", "apiVersion"), ignored_from_users=("status",))
@frozen(kw_only=True)
class Installation:
    """An Installation as it was written."""

    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: InstallationSpec = field(default=InstallationSpec(), metadata=member("spec", InstallationSpec))
