"""The settings of an Installation with nothing left open: the defaults, which depend on facts of the cluster.

``resolve`` fills them in, the pools and the places of the images among them. The user's document is never rewritten.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from fractions import Fraction
from typing import Final

from attrs import frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.installation.document import CNIType, InstallationDocument, IPAMType, Selection, select
from netplug_core.resources.fields import Metadata
from netplug_core.resources.installation import (
    AddressDetection,
    CNIFeatures,
    ContainerResources,
    ImagePullPolicy,
    ImagePullSecret,
    InstallationPool,
    InstallationSpec,
    InstallMode,
    KubernetesProvider,
    LinuxDataplane,
    LogSettings,
    LogSeverity,
    MultiInterfaceMode,
    NodeUpdate,
    PodInterfaceType,
    PoolEncapsulation,
    SpecVersion,
    Switch,
    Sysctl,
)
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, Encapsulation, IPPool, IPPoolSpec

__all__ = [
    "DEFAULT_IMAGE_PATH", "DEFAULT_REGISTRY", "MEBIBYTE", "NODE_IMAGE", "POOLS_PATH", "SELECT_ALL", "ClusterFacts",
    "NetworkingBackend", "ResolvedInstallation", "ResolvedLog", "ResolvedPool", "default_pools", "encapsulation_of",
    "find_prefix", "find_service_overlaps", "find_size", "image_reference", "resolve",
]  # fmt: skip


# --- facts -----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ClusterFacts:
    """The facts that defaults and rules depend on; without arguments, a new cluster of which nothing is known.

    ``provider`` is the detected one. ``recorded_provider`` was detected when defaults were chosen first, and
    ``recorded_cni`` is what was chosen: they go before every default. ``pools`` are the pools of the cluster.
    ``platform_prefixes`` are the pod CIDRs that the platform was set up with, in its order.
    ``service_prefixes`` are those of services, as far as an operator knows them.
    """

    provider: KubernetesProvider = KubernetesProvider.OTHER
    recorded_provider: KubernetesProvider | None = None
    has_aws_node: bool = False
    recorded_cni: CNIType | None = None
    pools: tuple[IPPool, ...] = ()
    platform_prefixes: tuple[Prefix, ...] = ()
    service_prefixes: tuple[Prefix, ...] = ()


# --- pool defaults ---------------------------------------------------------------------------------------------------


POOLS_PATH: Final = "spec.netplugNetwork.ipPools"
SELECT_ALL: Final = "all()"
_DEFAULT_NAMES: Final = {family: f"default-ipv{family.value}-ippool" for family in Family}
_MODES: Final = {
    PoolEncapsulation.IPIP: (Encapsulation.ALWAYS, Encapsulation.NEVER),
    PoolEncapsulation.IPIP_CROSS_SUBNET: (Encapsulation.CROSS_SUBNET, Encapsulation.NEVER),
    PoolEncapsulation.VXLAN: (Encapsulation.NEVER, Encapsulation.ALWAYS),
    PoolEncapsulation.VXLAN_CROSS_SUBNET: (Encapsulation.NEVER, Encapsulation.CROSS_SUBNET),
    PoolEncapsulation.NONE: (Encapsulation.NEVER, Encapsulation.NEVER),
}


@frozen(kw_only=True)
class ResolvedPool:
    """A pool that the cluster shall have. ``path`` is its entry in the document; empty if it is a default."""

    path: str
    pool: IPPool
    encapsulation: PoolEncapsulation


def default_pools(
    listed: tuple[InstallationPool, ...] | None,
    *,
    facts: ClusterFacts,
    cni: CNIType,
    ipam: IPAMType,
    provider: KubernetesProvider,
) -> tuple[ResolvedPool, ...]:
    """The pools of the list, or those of a new cluster that lists none. Entries without a usable CIDR are left out.

    With pools in the cluster and no list, the pools are the business of others.
    """
    if listed is not None:
        entries = [(f"{POOLS_PATH}[{index}]", pool) for index, pool in enumerate(listed)]
    elif facts.pools:
        entries = []
    else:
        entries = [("", pool) for pool in _pools_of_new_cluster(facts, ipam, provider)]
    readable = [(path, pool, prefix) for path, pool in entries if (prefix := find_prefix(pool.cidr)) is not None]
    families = [prefix.family for _path, _pool, prefix in readable]
    is_plain = len(set(families)) == len(families)  # one pool, or one of each family
    resolved = []
    for path, pool, prefix in readable:
        name = pool.name or _default_name(prefix, facts, is_plain=is_plain)
        existing = next((one for one in facts.pools if one.spec.prefix == prefix), None)
        resolved.append(_resolve_pool(path, pool, name, cni, existing))
    return tuple(resolved)


def encapsulation_of(spec: IPPoolSpec) -> PoolEncapsulation | None:
    """How an Installation spells the encapsulation of a pool; None if it cannot."""
    modes = (spec.ipip_mode, spec.vxlan_mode)
    return next((one for one, of_pool in _MODES.items() if of_pool == modes), None)


def find_prefix(text: str) -> Prefix | None:
    """The prefix of a CIDR, host bits cleared; None if the text is no CIDR."""
    if "/" not in text:
        return None
    try:
        return Prefix.enclosing(text)
    except ValueError:
        return None


def find_service_overlaps(pools: Iterable[IPPool], services: Iterable[Prefix]) -> Iterator[str]:
    """Pools with addresses of services, as sentences: a packet to such a pod goes to a service, if to anything."""
    ranges = tuple(services)
    for pool in pools:
        for service in ranges:
            if pool.spec.prefix.overlaps(service):
                what = f"it has addresses of the cluster's services ({service}), so that pods with them are not reached"
                yield f"IPPool({pool.metadata.name}): spec.cidr: {pool.spec.prefix}: {what}; choose another range"


def _pools_of_new_cluster(
    facts: ClusterFacts, ipam: IPAMType, provider: KubernetesProvider
) -> tuple[InstallationPool, ...]:
    if facts.platform_prefixes:
        prefixes = tuple(dict.fromkeys(facts.platform_prefixes))
        firsts = {prefix.family: prefix for prefix in reversed(prefixes)}
        names = {prefix: _DEFAULT_NAMES[family] for family, prefix in firsts.items()}
        return tuple(InstallationPool(cidr=str(prefix), name=names.get(prefix, "")) for prefix in prefixes)
    if ipam is not IPAMType.NETPLUG:
        return ()
    if provider is KubernetesProvider.EKS:
        return (InstallationPool(cidr="172.16.0.0/16"),)
    return (InstallationPool(cidr="192.168.0.0/16"),)


def _default_name(prefix: Prefix, facts: ClusterFacts, *, is_plain: bool) -> str:
    for pool in facts.pools:
        if pool.spec.prefix == prefix:
            return pool.metadata.name
    if is_plain:
        return _DEFAULT_NAMES[prefix.family]
    network = ipaddress.ip_address(str(prefix.first)).exploded.replace(":", ".")
    return f"{network}-{prefix.length}"


def _resolve_pool(path: str, pool: InstallationPool, name: str, cni: CNIType, existing: IPPool | None) -> ResolvedPool:
    """The pool of an entry with a usable CIDR. ``existing`` is the pool of the cluster with this CIDR."""
    prefix = Prefix.enclosing(pool.cidr)
    uses = pool.allowed_uses or (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)
    encapsulation = pool.encapsulation or _default_encapsulation(uses, cni, existing)
    ipip, vxlan = _MODES[encapsulation]
    nat = pool.nat_outgoing or (Switch.ENABLED if prefix.family is Family.IPV4 else Switch.DISABLED)
    spec = IPPoolSpec(
        prefix=prefix,
        block_length=_block_length(pool, prefix.family),
        is_disabled=pool.is_new_allocation_disabled,
        allowed_uses=uses,
        node_selector=SELECT_ALL if pool.node_selector is None else pool.node_selector,
        assignment_mode=pool.assignment_mode or AssignmentMode.AUTOMATIC,
        ipip_mode=ipip,
        vxlan_mode=vxlan,
        has_outgoing_nat=nat is Switch.ENABLED,
        is_bgp_export_disabled=pool.is_bgp_export_disabled,
    )
    return ResolvedPool(path=path, pool=IPPool(metadata=Metadata(name=name), spec=spec), encapsulation=encapsulation)


def _default_encapsulation(uses: tuple[AllowedUse, ...], cni: CNIType, existing: IPPool | None) -> PoolEncapsulation:
    """VXLAN, which needs nothing of the network between the nodes, unless packets are another's business.

    A pool that exists keeps what it has: a new release must not change how packets travel in a cluster that runs. No
    packet is wrapped for an address of a load balancer: those pools cannot have an encapsulation.
    """
    if cni is not CNIType.NETPLUG or AllowedUse.LOAD_BALANCER in uses:
        return PoolEncapsulation.NONE
    kept = None if existing is None else encapsulation_of(existing.spec)
    return kept or PoolEncapsulation.VXLAN


def _block_length(pool: InstallationPool, family: Family) -> int:
    """A number that is no prefix length is refused by the rules; its pool has the default."""
    if pool.block_size is None or not 0 <= pool.block_size <= family.width:
        return family.default_block_length
    return pool.block_size


# --- defaults --------------------------------------------------------------------------------------------------------


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


class NetworkingBackend(Enum):
    """How the nodes are connected: the node process makes the routes, with or without BGP, or another program does."""

    BIRD = "bird"
    VXLAN = "vxlan"
    NONE = "none"


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
    backend: NetworkingBackend
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

    @property
    def enforces_policy(self) -> bool:
        """Whether the node process enforces policy: on the links of netplug's own plugin, and in the kernel."""
        return self.is_netplug and self.dataplane is not LinuxDataplane.VPP


def resolve(document: InstallationDocument, facts: ClusterFacts) -> ResolvedInstallation:
    """The settings of a document without selection problems, for a cluster."""
    spec, selection = document.installation.spec, select(document)
    network, provider = spec.network, _provider(spec, facts)
    cni, ipam = _plugins(selection, provider, facts)
    is_netplug, dataplane = cni is CNIType.NETPLUG, network.linux_dataplane or LinuxDataplane.IPTABLES
    bin_dir, conf_dir, install_mode = _host_folders(selection, provider)
    bgp = network.bgp or _default_bgp(cni, provider)
    pools = default_pools(network.pools, facts=facts, cni=cni, ipam=ipam, provider=provider)
    return ResolvedInstallation(
        provider=provider,
        cni=cni,
        ipam=ipam,
        spec_version=selection.spec_version.value or (SpecVersion.AUTO if is_netplug else None),
        bin_dir=bin_dir,
        conf_dir=conf_dir,
        install_mode=install_mode,
        dataplane=dataplane,
        bgp=bgp,
        backend=_backend(cni, ipam, bgp, (*facts.pools, *(one.pool for one in pools))),
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
        pools=pools,
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


def _backend(cni: CNIType, ipam: IPAMType, bgp: Switch, pools: Iterable[IPPool]) -> NetworkingBackend:
    """With HostLocal the platform may route the pod CIDRs of nodes itself, unless a pool asks for an encapsulation."""
    if bgp is Switch.ENABLED:
        return NetworkingBackend.BIRD
    is_asked_for = ipam is IPAMType.NETPLUG or any(pool.spec.is_wrapped for pool in pools)
    return NetworkingBackend.VXLAN if cni is CNIType.NETPLUG and is_asked_for else NetworkingBackend.NONE


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


# --- images ----------------------------------------------------------------------------------------------------------


DEFAULT_REGISTRY: Final = "docker.io/"
DEFAULT_IMAGE_PATH: Final = "netplug"
NODE_IMAGE: Final = "node"
"""The image with the node process and the installer of the plugin."""


def image_reference(resolved: ResolvedInstallation, image: str, version: str) -> str:
    """The reference of an image of a release, such as ``docker.io/netplug/node:v3.33.0``."""
    registry, path = resolved.registry or DEFAULT_REGISTRY, resolved.image_path or DEFAULT_IMAGE_PATH
    return f"{registry}{path.strip('/')}/{resolved.image_prefix}{image}:v{version}"
