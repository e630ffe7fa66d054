"""An Installation with nothing left open: each setting is the user's, or the default that fits the cluster.

The user's document is never changed. A step fills in only what is not set, and reads what earlier steps decided.
A value that ``rules`` refuses may be replaced by its default here, so that every document can be resolved.
Source: spec 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from attrs import frozen

from netplug_core.addressing import Family
from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.facts import ClusterFacts
from netplug_core.installation.pool_defaults import ResolvedPool, default_pools
from netplug_core.installation.selection import CNIType, IPAMType, Selection, select
from netplug_core.resources.installation import (
    AddressDetection,
    CNIFeatures,
    ContainerResources,
    ImagePullPolicy,
    ImagePullSecret,
    InstallationSpec,
    InstallMode,
    KubernetesProvider,
    LinuxDataplane,
    LogSettings,
    LogSeverity,
    MultiInterfaceMode,
    NodeUpdate,
    PodInterfaceType,
    SpecVersion,
    Switch,
    Sysctl,
)

__all__ = ["MEBIBYTE", "ResolvedInstallation", "ResolvedLog", "find_size", "resolve"]

MEBIBYTE: Final = 2**20
_SUFFIXES: Final = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SIZE: Final = re.compile(rf"([0-9]{{1,18}}(?:\.[0-9]{{1,9}})?)({'|'.join(_SUFFIXES)})", re.ASCII)

_CNI_OF_PROVIDER: Final[Mapping[KubernetesProvider, CNIType]] = {
    KubernetesProvider.AKS: CNIType.AZURE_VNET,
    KubernetesProvider.EKS: CNIType.AMAZON_VPC,
    KubernetesProvider.GKE: CNIType.GKE,
}
_IPAM_OF_CNI: Final[Mapping[CNIType, IPAMType]] = {
    CNIType.AZURE_VNET: IPAMType.AZURE_VNET,
    CNIType.AMAZON_VPC: IPAMType.AMAZON_VPC,
    CNIType.GKE: IPAMType.HOST_LOCAL,
    CNIType.NETPLUG: IPAMType.NETPLUG,
}
_BIN_DIRS: Final[Mapping[KubernetesProvider, str]] = {
    KubernetesProvider.GKE: "/home/kubernetes/bin",
    KubernetesProvider.OPENSHIFT: "/var/lib/cni/bin",
}
_CONF_DIRS: Final[Mapping[KubernetesProvider, str]] = {
    KubernetesProvider.OPENSHIFT: "/var/run/multus/cni/net.d",
}
_DETECTIONS: Final[Mapping[KubernetesProvider, AddressDetection]] = {
    KubernetesProvider.DOCKER_ENTERPRISE: AddressDetection(skip_interface="^br-.*"),
    KubernetesProvider.EKS: AddressDetection(can_reach="8.8.8.8"),
}
_NODE_RESOURCES: Final = ContainerResources(requests=(("cpu", "100m"), ("memory", "96Mi")))
_FIRST_FOUND: Final = AddressDetection(is_first_found=True)


@frozen(kw_only=True)
class ResolvedLog:
    """The plugin's log; the size is in MiB."""

    severity: LogSeverity
    max_size_mib: int
    max_age_days: int
    max_count: int


@frozen(kw_only=True)
class ResolvedInstallation:
    """Every setting that something is rendered from. None: it does not concern this CNI plugin, or is not needed.

    ``pools`` are those that the cluster shall have; ``lists_pools`` is whether the user lists them, if only none.
    An ``mtu`` of 0 is found out by each node.
    """

    provider: KubernetesProvider
    cni: CNIType
    ipam: IPAMType
    spec_version: SpecVersion | None
    bin_dir: str
    conf_dir: str
    install_mode: InstallMode
    dataplane: LinuxDataplane
    bgp: Switch
    mtu: int
    ipv4_detection: AddressDetection | None
    ipv6_detection: AddressDetection | None
    policy_setup_timeout_s: int
    host_ports: Switch | None
    container_ip_forwarding: Switch
    multi_interface_mode: MultiInterfaceMode | None
    pod_interface_type: PodInterfaceType
    sysctls: tuple[Sysctl, ...]
    features: CNIFeatures
    readiness_gates: tuple[str, ...]
    log: ResolvedLog
    pools: tuple[ResolvedPool, ...]
    lists_pools: bool
    registry: str
    image_path: str
    image_prefix: str
    image_pull_policy: ImagePullPolicy
    image_pull_secrets: tuple[ImagePullSecret, ...]
    control_plane_replicas: int
    node_update: NodeUpdate
    node_resources: ContainerResources

    @property
    def is_netplug(self) -> bool:
        """Whether pods are connected by netplug's own plugin, so that it is installed."""
        return self.cni is CNIType.NETPLUG


def resolve(document: InstallationDocument, facts: ClusterFacts) -> ResolvedInstallation:
    """The settings of a document without selection problems, for a cluster."""
    spec, selection = document.installation.spec, select(document)
    network, provider = spec.network, _provider(spec, facts)
    cni, ipam = _plugins(selection, provider, facts)
    is_netplug, dataplane = cni is CNIType.NETPLUG, network.linux_dataplane or LinuxDataplane.IPTABLES
    bin_dir, conf_dir, install_mode = _host_folders(selection, provider)
    return ResolvedInstallation(
        provider=provider,
        cni=cni,
        ipam=ipam,
        spec_version=selection.spec_version.value or (SpecVersion.AUTO if is_netplug else None),
        bin_dir=bin_dir,
        conf_dir=conf_dir,
        install_mode=install_mode,
        dataplane=dataplane,
        bgp=network.bgp or _default_bgp(cni, provider),
        mtu=network.mtu or 0,
        ipv4_detection=network.ipv4_detection or _default_ipv4_detection(dataplane, provider, facts),
        ipv6_detection=network.ipv6_detection or (_FIRST_FOUND if _has_pool_of(Family.IPV6, facts) else None),
        policy_setup_timeout_s=network.policy_setup_timeout_s or 0,
        host_ports=network.host_ports or (Switch.ENABLED if is_netplug else None),
        container_ip_forwarding=network.container_ip_forwarding or Switch.DISABLED,
        multi_interface_mode=network.multi_interface_mode or (MultiInterfaceMode.NONE if is_netplug else None),
        pod_interface_type=network.pod_interface_type or PodInterfaceType.VETH,
        sysctls=network.sysctls,
        features=network.features,
        readiness_gates=network.readiness_gates,
        log=_resolve_log(spec.logging.cni),
        pools=default_pools(network.pools, facts=facts, cni=cni, ipam=ipam, provider=provider),
        lists_pools=network.pools is not None,
        registry=_with_slash(_unless_default(spec.registry)),
        image_path=_unless_default(spec.image_path),
        image_prefix=_unless_default(spec.image_prefix),
        image_pull_policy=spec.image_pull_policy or ImagePullPolicy.IF_NOT_PRESENT,
        image_pull_secrets=spec.image_pull_secrets,
        control_plane_replicas=_default_replicas(spec),
        node_update=spec.node_update or NodeUpdate(),
        node_resources=spec.node_resources or _NODE_RESOURCES,
    )


def find_size(text: str) -> int | None:
    """The bytes that a text such as ``100Mi`` says, rounded down; None if it has no binary suffix."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    return int(Fraction(found[1]) * 1024 ** (_SUFFIXES.index(found[2]) + 1))


def _provider(spec: InstallationSpec, facts: ClusterFacts) -> KubernetesProvider:
    """The declared provider; the empty text declares none. Then it is the one that defaults were chosen for first."""
    if spec.provider is None or spec.provider is KubernetesProvider.OTHER:
        return facts.provider if facts.recorded_provider is None else facts.recorded_provider
    return spec.provider


def _plugins(selection: Selection, provider: KubernetesProvider, facts: ClusterFacts) -> tuple[CNIType, IPAMType]:
    """The CNI plugin, and its IPAM."""
    cni = selection.cni.value or _default_cni(provider, facts)
    return cni, selection.ipam.value or _IPAM_OF_CNI[cni]


def _default_cni(provider: KubernetesProvider, facts: ClusterFacts) -> CNIType:
    if facts.recorded_cni is not None:
        return facts.recorded_cni
    if facts.has_aws_node:
        return CNIType.AMAZON_VPC
    return _CNI_OF_PROVIDER.get(provider, CNIType.NETPLUG)


def _host_folders(selection: Selection, provider: KubernetesProvider) -> tuple[str, str, InstallMode]:
    """The folders of the host for programs and for configurations, and what is installed there."""
    return (
        selection.bin_dir.value or _BIN_DIRS.get(provider, "/opt/cni/bin"),
        selection.conf_dir.value or _CONF_DIRS.get(provider, "/etc/cni/net.d"),
        selection.install_mode.value or InstallMode.ALL,
    )


def _default_bgp(cni: CNIType, provider: KubernetesProvider) -> Switch:
    is_on = cni is CNIType.NETPLUG and provider is not KubernetesProvider.EKS
    return Switch.ENABLED if is_on else Switch.DISABLED


def _default_ipv4_detection(
    dataplane: LinuxDataplane, provider: KubernetesProvider, facts: ClusterFacts
) -> AddressDetection | None:
    if dataplane is LinuxDataplane.BPF or _has_pool_of(Family.IPV4, facts):
        return _DETECTIONS.get(provider, _FIRST_FOUND)
    return None


def _has_pool_of(family: Family, facts: ClusterFacts) -> bool:
    return any(pool.spec.prefix.family is family and not pool.spec.is_disabled for pool in facts.pools)


def _resolve_log(log: LogSettings) -> ResolvedLog:
    return ResolvedLog(
        severity=log.severity or LogSeverity.INFO,
        max_size_mib=(find_size(log.max_size) or 100 * MEBIBYTE) // MEBIBYTE,
        max_age_days=log.max_age_days or 30,
        max_count=log.max_count or 10,
    )


def _default_replicas(spec: InstallationSpec) -> int:
    return 2 if spec.control_plane_replicas is None else spec.control_plane_replicas


def _with_slash(registry: str) -> str:
    return registry and f"{registry.rstrip('/')}/"


def _unless_default(text: str) -> str:
    return "" if text == "UseDefault" else text
