"""What is refused of an Installation, and what is seldom meant: in any cluster, and in one that exists.

``check`` judges a document alone and as what it becomes, ``check_in_cluster`` also by what the cluster has. ``V`` and a
number in a docstring name a rule of the list that the tests use. The rules of pools are in ``pools``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.dataplane.plan import find_mtu_problem
from netplug_core.installation.cluster import ClusterInventory
from netplug_core.installation.daemonset import NODE_ACCOUNT
from netplug_core.installation.document import (
    CNIType,
    InstallationDocument,
    InvalidInstallation,
    IPAMType,
    ProblemClass,
    find_selection_problems,
    select,
)
from netplug_core.installation.pools import (
    PoolAction,
    find_encapsulation_problems,
    find_entry_problems,
    find_pool_problems,
    plan_pools,
)
from netplug_core.installation.settings import (
    MEBIBYTE,
    POOLS_PATH,
    ClusterFacts,
    NetworkingBackend,
    ResolvedInstallation,
    ResolvedPool,
    find_prefix,
    find_service_overlaps,
    find_size,
    resolve,
)
from netplug_core.resources.fields import find_label_problems, validate_regular_expression
from netplug_core.resources.installation import (
    AddressDetection,
    KubernetesProvider,
    LinuxDataplane,
    PodInterfaceType,
    RollingUpdate,
    Switch,
)
from netplug_core.resources.ippool import IPPool
from netplug_core.workload import redact_url

__all__ = [
    "SYSCTLS", "CheckedInstallation", "check", "check_in_cluster", "facts_of", "find_cluster_problems",
    "find_document_problems", "find_obstacle",
]  # fmt: skip


# --- the rules --------------------------------------------------------------------------------------------------------


SYSCTLS: Final = tuple(f"net.ipv4.tcp_keepalive_{name}" for name in ("intvl", "probes", "time"))
_NETWORK: Final = "spec.netplugNetwork"
_MAX_MTU: Final = 65535
_IPAMS: Final = {
    CNIType.NETPLUG: (IPAMType.NETPLUG, IPAMType.HOST_LOCAL),
    CNIType.GKE: (IPAMType.HOST_LOCAL,),
    CNIType.AMAZON_VPC: (IPAMType.AMAZON_VPC,),
    CNIType.AZURE_VNET: (IPAMType.AZURE_VNET,),
}
_PROVIDERS: Final = {
    CNIType.GKE: KubernetesProvider.GKE,
    CNIType.AMAZON_VPC: KubernetesProvider.EKS,
    CNIType.AZURE_VNET: KubernetesProvider.AKS,
}
_FOLDER: Final = re.compile(r"/[^\x00-\x20\x7f:,]*[^\x00-\x20\x7f:,/][^\x00-\x20\x7f:,]*")
_WORD: Final = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_REGISTRY: Final = re.compile(rf"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?(?:/{_WORD})*/?", re.ASCII)
_IMAGE_PATH: Final = re.compile(rf"/?{_WORD}(?:/{_WORD})*/?", re.ASCII)
_IMAGE_PREFIX: Final = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*[._-]*", re.ASCII)
"""Parts of a reference of an image. Source: the OCI distribution specification, 1.1."""

_LINUX_ONLY: Final = (("kubernetes.io/os", "linux"),)

Problems = Iterator[InvalidInstallation]


def find_document_problems(document: InstallationDocument) -> Problems:
    """What is wrong in any cluster, with any CNI plugin."""
    for rule in _DOCUMENT_RULES:
        yield from rule(document)


def find_cluster_problems(
    document: InstallationDocument, resolved: ResolvedInstallation, facts: ClusterFacts
) -> Problems:
    """What is wrong with what the document becomes in a cluster."""
    yield from _provider_problems(document, facts)
    for rule in _RESOLVED_RULES:
        yield from rule(document, resolved)


# --- the document alone ----------------------------------------------------------------------------------------------


def _log_problems(document: InstallationDocument) -> Problems:
    """V6."""
    log, path = document.installation.spec.logging.cni, "spec.logging.cni"
    for name, number in (("logFileMaxAgeDays", log.max_age_days), ("logFileMaxCount", log.max_count)):
        if number is not None and number <= 0:
            yield _problem(document, f"{path}.{name}", number, "more than 0 is expected", ProblemClass.OUT_OF_RANGE)
    size = find_size(log.max_size)
    if log.max_size and size is None:
        accepted = "a size with a binary suffix is expected, such as 100Mi"
        yield _problem(document, f"{path}.logFileMaxSize", log.max_size, accepted, ProblemClass.FORMAT)
    elif size is not None and size < MEBIBYTE:
        accepted = "at least 1Mi is expected: the plugin counts in MiB"
        yield _problem(document, f"{path}.logFileMaxSize", log.max_size, accepted, ProblemClass.OUT_OF_RANGE)


def _detection_problems(document: InstallationDocument) -> Problems:
    """V13 and V14."""
    network = document.installation.spec.network
    for name, detection in (
        ("nodeAddressAutodetectionV4", network.ipv4_detection),
        ("nodeAddressAutodetectionV6", network.ipv6_detection),
    ):
        if detection is None:
            continue
        path, methods = f"{_NETWORK}.{name}", _methods(detection)
        if len(methods) > 1:
            fields = tuple(f"{path}.{method}" for method in methods)
            accepted = "one method is expected"
            yield InvalidInstallation(document.where, ", ".join(methods), accepted, ProblemClass.CONFLICT, fields)
        for name_of_method, text in (("interface", detection.interface), ("skipInterface", detection.skip_interface)):
            for problem in validate_regular_expression(f"{path}.{name_of_method}", text):
                yield _problem(document, problem.field, text, problem.reason, ProblemClass.FORMAT)
        for index, text in enumerate(detection.cidrs):
            if find_prefix(text) is None:
                yield _problem(document, f"{path}.cidrs[{index}]", text, "a CIDR is expected", ProblemClass.FORMAT)


def _methods(detection: AddressDetection) -> list[str]:
    is_set = {
        "firstFound": detection.is_first_found,
        "kubernetes": detection.kubernetes is not None,
        "interface": bool(detection.interface),
        "skipInterface": bool(detection.skip_interface),
        "canReach": bool(detection.can_reach),
        "cidrs": bool(detection.cidrs),
    }
    return [name for name, is_method in is_set.items() if is_method]


def _sysctl_problems(document: InstallationDocument) -> Problems:
    """V16."""
    keys = [sysctl.key for sysctl in document.installation.spec.network.sysctls]
    for index, key in enumerate(keys):
        path = f"{_NETWORK}.sysctl[{index}].key"
        if key not in SYSCTLS:
            yield _problem(document, path, key, f"one of {', '.join(SYSCTLS)}", ProblemClass.UNSUPPORTED)
        elif key in keys[:index]:
            yield _problem(document, path, key, "each key once", ProblemClass.DUPLICATE)


def _number_problems(document: InstallationDocument) -> Problems:
    """V17, the number of replicas of V20, and the MTU."""
    spec = document.installation.spec
    timeout_s, mtu, replicas = spec.network.policy_setup_timeout_s, spec.network.mtu, spec.control_plane_replicas
    if timeout_s is not None and timeout_s < 0:
        path = f"{_NETWORK}.linuxPolicySetupTimeoutSeconds"
        yield _problem(document, path, timeout_s, "0 or more seconds are expected", ProblemClass.OUT_OF_RANGE)
    if mtu is not None and not 0 <= mtu <= _MAX_MTU:
        yield _problem(document, f"{_NETWORK}.mtu", mtu, f"0 to {_MAX_MTU} bytes", ProblemClass.OUT_OF_RANGE)
    if replicas is not None and replicas <= 0:
        accepted = "at least 1 is expected"
        yield _problem(document, "spec.controlPlaneReplicas", replicas, accepted, ProblemClass.OUT_OF_RANGE)


def _text_problems(document: InstallationDocument) -> Problems:
    """V19, and where the images are."""
    spec = document.installation.spec
    for name, path in (
        ("flexVolumePath", spec.flex_volume_path),
        ("kubeletVolumePluginPath", spec.kubelet_volume_plugin_path),
    ):
        if path and path != "None" and not path.startswith("/"):
            accepted = "an absolute path or None is expected"
            yield _problem(document, f"spec.{name}", path, accepted, ProblemClass.FORMAT)
    for name, text, pattern, accepted in (
        ("registry", spec.registry, _REGISTRY, "a registry such as registry.example.com:5000/ is expected"),
        ("imagePath", spec.image_path, _IMAGE_PATH, "a path such as team/netplug is expected"),
        ("imagePrefix", spec.image_prefix, _IMAGE_PREFIX, "the first part of a name such as mirror- is expected"),
    ):
        if text and text != "UseDefault" and not pattern.fullmatch(text):
            yield _problem(document, f"spec.{name}", text, f"{accepted}, or UseDefault", ProblemClass.FORMAT)


def _workload_problems(document: InstallationDocument) -> Problems:
    """V20."""
    spec = document.installation.spec
    if spec.node_update is not None and spec.node_update.type != "RollingUpdate":
        path, found = "spec.nodeUpdateStrategy.type", spec.node_update.type
        yield _problem(document, path, found, "RollingUpdate is expected", ProblemClass.UNSUPPORTED)
    if spec.node_update is not None:
        yield from _rolling_update_problems(document, spec.node_update.rolling_update)
    for problem in find_label_problems("spec.controlPlaneNodeSelector", spec.control_plane_node_selector):
        yield _problem(document, problem.field, problem.value, problem.reason, ProblemClass.FORMAT)
    for key, value in spec.control_plane_node_selector:
        if key == _LINUX_ONLY[0][0] and value != _LINUX_ONLY[0][1]:
            path = f"spec.controlPlaneNodeSelector[{key}]"
            yield _problem(document, path, value, "linux is expected", ProblemClass.UNSUPPORTED)


def _rolling_update_problems(document: InstallationDocument, update: RollingUpdate) -> Problems:
    """An API server refuses a DaemonSet that may stop no pod and start none beside it, or both at once."""
    stops, starts = (amount not in _NOBODY for amount in (update.max_unavailable, update.max_surge))
    if stops == starts:
        path = "spec.nodeUpdateStrategy.rollingUpdate"
        fields = (f"{path}.maxUnavailable", f"{path}.maxSurge")
        accepted = "exactly one of them has to be more than 0; maxUnavailable is 1 if it is left out"
        found = f"{update.max_unavailable} and {update.max_surge}"
        yield InvalidInstallation(document.where, found, accepted, ProblemClass.CONFLICT, fields)


_NOBODY: Final = (0, "0%", "00%")

_DOCUMENT_RULES: Final[tuple[Callable[[InstallationDocument], Problems], ...]] = (
    _log_problems,
    _detection_problems,
    _sysctl_problems,
    _number_problems,
    _text_problems,
    _workload_problems,
)


# --- what it becomes -------------------------------------------------------------------------------------------------


def _provider_problems(document: InstallationDocument, facts: ClusterFacts) -> Problems:
    declared, detected = document.installation.spec.provider, facts.provider
    if declared not in (None, detected, KubernetesProvider.OTHER) and detected is not KubernetesProvider.OTHER:
        accepted = f"the cluster is {detected.value}"
        yield _problem(document, "spec.kubernetesProvider", declared.value, accepted, ProblemClass.CONFLICT)


def _plugin_problems(document: InstallationDocument, resolved: ResolvedInstallation) -> Problems:
    """V2 to V4, and the folders."""
    selection, provider = select(document), _PROVIDERS.get(resolved.cni)
    if selection.spec_version.value is not None and not resolved.is_netplug:
        accepted = f"leave it out with the CNI plugin {resolved.cni.value}"
        yield _problem(document, selection.spec_version.path, selection.spec_version.value.value, accepted)
    if resolved.ipam not in _IPAMS[resolved.cni]:
        choices = " or ".join(choice.value for choice in _IPAMS[resolved.cni])
        accepted = f"the CNI plugin {resolved.cni.value} needs the IPAM {choices}"
        yield _problem(document, selection.ipam.path, resolved.ipam.value, accepted)
    if provider is not None and resolved.provider not in (provider, KubernetesProvider.OTHER):
        accepted = f"the CNI plugin {resolved.cni.value} is the one of {provider.value}; the provider is "
        accepted += resolved.provider.value
        yield _problem(document, selection.cni.path, resolved.cni.value, accepted)
    for path, folder in ((selection.bin_dir.path, resolved.bin_dir), (selection.conf_dir.path, resolved.conf_dir)):
        if not _FOLDER.fullmatch(folder) or ".." in folder.split("/"):
            accepted = "an absolute path is expected, of printable characters and without .."
            yield _problem(document, path, folder, accepted, ProblemClass.FORMAT)


def _mtu_problems(document: InstallationDocument, resolved: ResolvedInstallation) -> Problems:
    """The MTU of pods beside the families of the pools: ADD says the same."""
    mtu, families = document.installation.spec.network.mtu or 0, {one.pool.spec.prefix.family for one in resolved.pools}
    if resolved.is_netplug and (problem := find_mtu_problem(mtu, families)):
        yield _problem(document, f"{_NETWORK}.mtu", mtu, problem, ProblemClass.OUT_OF_RANGE)


def _bpf_problems(document: InstallationDocument, resolved: ResolvedInstallation) -> Problems:
    """V7."""
    if resolved.dataplane is not LinuxDataplane.BPF:
        return
    families = {one.pool.spec.prefix.family for one in resolved.pools}
    for family, detection in ((Family.IPV4, resolved.ipv4_detection), (Family.IPV6, resolved.ipv6_detection)):
        if family in families and (detection is None or not _methods(detection)):
            path = f"{_NETWORK}.nodeAddressAutodetectionV{family.value}"
            accepted = f"the dataplane BPF with an {family} pool needs a method"
            yield _problem(document, path, None, accepted, ProblemClass.REQUIRED)


def _dataplane_problems(document: InstallationDocument, resolved: ResolvedInstallation) -> Problems:
    """V12 and V18."""
    network = document.installation.spec.network
    if resolved.dataplane is not LinuxDataplane.VPP:
        return
    if not resolved.is_netplug:
        yield _problem(document, select(document).cni.path, resolved.cni.value, "the dataplane VPP needs Netplug")
        return
    for name, value in (("bgp", resolved.bgp), ("hostPorts", resolved.host_ports)):
        if value is Switch.DISABLED:
            yield _problem(document, f"{_NETWORK}.{name}", value.value, "the dataplane VPP needs Enabled")
    if network.policy_setup_timeout_s is not None:
        path = f"{_NETWORK}.linuxPolicySetupTimeoutSeconds"
        yield _problem(document, path, network.policy_setup_timeout_s, "leave it out with the dataplane VPP")


def _foreign_plugin_problems(document: InstallationDocument, resolved: ResolvedInstallation) -> Problems:
    """V11 about BGP, and V15."""
    if resolved.is_netplug:
        return
    network, accepted = document.installation.spec.network, f"leave it out with the CNI plugin {resolved.cni.value}"
    for name, value in (("bgp", network.bgp), ("hostPorts", network.host_ports)):
        if value is Switch.ENABLED:
            yield _problem(document, f"{_NETWORK}.{name}", value.value, accepted)
    for name, setting in (
        ("multiInterfaceMode", network.multi_interface_mode),
        ("containerIPForwarding", network.container_ip_forwarding),
        ("linuxPodInterfaceType", network.pod_interface_type),
        ("cniFeatures.ipAddrsNoIpam", network.features.ip_addrs_no_ipam),
        ("cniFeatures.floatingIPs", network.features.floating_ips),
        ("cniFeatures.allowedSourcePrefixes", network.features.allowed_source_prefixes),
    ):
        if setting is not None:
            yield _problem(document, f"{_NETWORK}.{name}", setting.value, accepted)
    for url in network.readiness_gates[:1]:
        yield _problem(document, f"{_NETWORK}.readinessGates[0]", redact_url(url), accepted)


_RESOLVED_RULES: Final[tuple[Callable[[InstallationDocument, ResolvedInstallation], Problems], ...]] = (
    _plugin_problems,
    _mtu_problems,
    _bpf_problems,
    _dataplane_problems,
    _foreign_plugin_problems,
)


def _problem(
    document: InstallationDocument,
    path: str,
    value: object,
    accepted: str,
    problem_class: ProblemClass = ProblemClass.INCOMPATIBLE,
) -> InvalidInstallation:
    return InvalidInstallation(document.where, value, accepted, problem_class, (path,))


# --- all rules together -----------------------------------------------------------------------------------------------


_LONG_HOLD_BACK_S: Final = 220
"""A runtime usually cancels an ADD after about four minutes."""

_NEW_CLUSTER: Final = ClusterFacts()


@frozen(kw_only=True)
class CheckedInstallation:
    """The result. ``resolved`` is None if the CNI plugin or its IPAM is not known; it is for use without problems."""

    document: InstallationDocument
    resolved: ResolvedInstallation | None
    problems: tuple[InvalidInstallation, ...]
    warnings: tuple[str, ...]


def check(document: InstallationDocument, facts: ClusterFacts = _NEW_CLUSTER) -> CheckedInstallation:
    """Judge a document by every rule; all problems are in the result: what cannot be read, then by the rules."""
    problems = [
        *find_selection_problems(document),
        *find_document_problems(document),
        *find_entry_problems(document),
    ]
    warnings = list(_document_warnings(document))
    resolved = None
    if not any(find_selection_problems(document)):
        resolved = resolve(document, facts)
        problems += find_cluster_problems(document, resolved, facts)
        problems += find_encapsulation_problems(document, resolved)
        problems += find_pool_problems(document, resolved, facts)
        warnings += _inert_settings(document, resolved, facts)
        warnings += find_service_overlaps(_pools_afterwards(resolved, facts), facts.service_prefixes)
    if document.unreadable:
        warnings = []  # of a part of what was meant
    problems = [*document.unreadable, *(one for one in problems if not _follows_from_unreadable(document, one))]
    return CheckedInstallation(document=document, resolved=resolved, problems=tuple(problems), warnings=tuple(warnings))


def _follows_from_unreadable(document: InstallationDocument, problem: InvalidInstallation) -> bool:
    """Whether a field counts as left out because it could not be read, or its entry has another position now."""
    unread = [re.sub(r"\[[0-9]+\]$", "", path) for one in document.unreadable for path in one.paths]
    return any(path == one or path.startswith((f"{one}.", f"{one}[")) for path in problem.paths for one in unread)


def _document_warnings(document: InstallationDocument) -> Iterator[str]:
    network = document.installation.spec.network
    for member in document.respelled:
        yield f"{document.where}: {member.path}: an API server drops a field with this letter case"
    timeout_s = network.policy_setup_timeout_s or 0
    path = f"{document.where}: spec.netplugNetwork.linuxPolicySetupTimeoutSeconds"
    if timeout_s > _LONG_HOLD_BACK_S:
        yield f"{path}: more than {_LONG_HOLD_BACK_S} s; a runtime usually cancels the call of a pod after four minutes"
    for index, pool in enumerate(network.pools or ()):
        prefix = find_prefix(pool.cidr)
        if prefix is not None and str(prefix) != pool.cidr:
            yield f"{document.where}: {POOLS_PATH}[{index}].cidr: {pool.cidr} is taken as {prefix}"


def _inert_settings(
    document: InstallationDocument, resolved: ResolvedInstallation, facts: ClusterFacts
) -> Iterator[str]:
    """What is accepted and rendered although nothing acts upon it, in the pools of the cluster too."""
    planned = [
        *([f"linuxDataplane {resolved.dataplane.value}"] if resolved.dataplane in _PLANNED_DATAPLANES else []),
        *(["linuxPodInterfaceType Netkit"] if resolved.pod_interface_type is PodInterfaceType.NETKIT else []),
    ]
    if planned:
        yield f"{document.where}: nothing in this release programs {', '.join(planned)}"
    if resolved.backend is NetworkingBackend.NONE:
        pools = _pools_afterwards(resolved, facts)
        asked = dict.fromkeys(setting for pool in pools for setting in pool.spec.network_settings)
        if asked:
            who = "IPAM HostLocal and bgp Disabled" if resolved.is_netplug else f"the CNI plugin {resolved.cni.value}"
            yield (
                f"{document.where}: with {who} another program connects the nodes, so that {', '.join(asked)} of pools "
                "have no effect"
            )


def _pools_afterwards(resolved: ResolvedInstallation, facts: ClusterFacts) -> tuple[IPPool, ...]:
    """The pools that the cluster will have and that are not disabled: those that it has count as much as new ones."""
    wanted = {one.pool.spec.prefix: one.pool for one in resolved.pools}
    pools = {pool.spec.prefix: pool for pool in facts.pools} | wanted
    return tuple(pool for pool in pools.values() if not pool.spec.is_disabled)


_PLANNED_DATAPLANES: Final = (LinuxDataplane.BPF, LinuxDataplane.VPP)


# --- in a cluster that exists -----------------------------------------------------------------------------------------


_MANY_NODES: Final = 100
_MANY_SERVICES: Final = 4000
_MAX_NAMES: Final = 3


def facts_of(inventory: ClusterInventory, pools: tuple[IPPool, ...]) -> ClusterFacts:
    """The facts that defaults depend on. ``pools`` are those of the cluster."""
    return ClusterFacts(
        provider=inventory.provider,
        has_aws_node=inventory.has_aws_node,
        pools=pools,
        platform_prefixes=inventory.platform_prefixes,
    )


def find_obstacle(inventory: ClusterInventory, namespace: str, definitions: str = "") -> str:
    """Why netplug must not be installed into a namespace; empty if nothing is in the way.

    ``definitions`` is the version of the CRDs that come with it, such as ``v1``; empty if there are none.
    """
    if inventory.operated_object:
        return (
            f"{inventory.operated_object} is in the cluster: the operator installs netplug here; "
            "change the Installation in the cluster, or delete it first"
        )
    other = next((place for place in inventory.daemonsets if place != namespace), "")
    if other:
        return (
            f"DaemonSet {other}/{NODE_ACCOUNT} is in the cluster: netplug is installed another way; "
            "apply that again, or delete what it has installed first"
        )
    if definitions and inventory.crd_mode not in ("", definitions):
        return f"the cluster has the CRDs {inventory.crd_mode}, with its data; this would bring {definitions}"
    return ""


def check_in_cluster(
    document: InstallationDocument, facts: ClusterFacts, inventory: ClusterInventory
) -> CheckedInstallation:
    """Judge a document by every rule, and by what the cluster has; ``facts`` are those of ``facts_of``."""
    checked = check(document, facts)
    if checked.resolved is None:
        return checked
    problems = _find_problems(document, checked.resolved, facts, inventory)
    warnings = _find_warnings(document, checked.resolved, inventory)
    return evolve(checked, problems=(*checked.problems, *problems), warnings=(*checked.warnings, *warnings))


def _find_problems(
    document: InstallationDocument, resolved: ResolvedInstallation, facts: ClusterFacts, inventory: ClusterInventory
) -> Iterator[InvalidInstallation]:
    """Pools that belong to others, and CIDRs that are in use already."""
    for step in plan_pools(resolved, facts):
        if step.action in (PoolAction.REFUSE, PoolAction.WAIT):
            name, path = step.pool.metadata.name, (POOLS_PATH,)
            yield InvalidInstallation(document.where, name, step.reason, ProblemClass.CONFLICT, path)
    for one in resolved.pools:
        for found, what in _uses_of(one.pool.spec.prefix, facts, inventory):
            value = f"{one.pool.spec.prefix} and {found}"
            accepted = f"a CIDR that does not overlap {what}"
            path = (f"{one.path}.cidr" if one.path else POOLS_PATH,)
            yield InvalidInstallation(document.where, value, accepted, ProblemClass.CONFLICT, path)


def _find_warnings(
    document: InstallationDocument, resolved: ResolvedInstallation, inventory: ClusterInventory
) -> Iterator[str]:
    """What is accepted, and does not work well in this cluster."""
    node_count, service_count = len(inventory.nodes), inventory.service_count
    is_large = node_count >= _MANY_NODES and service_count >= _MANY_SERVICES
    if resolved.host_ports is Switch.ENABLED and is_large:
        yield (
            f"{document.where}: spec.netplugNetwork.hostPorts: with {node_count} nodes and {service_count} services"
            " a node drains slowly; Disabled leaves out the plugin portmap"
        )
    if resolved.ipam is IPAMType.HOST_LOCAL:
        yield from _host_local_warnings(document, resolved, inventory)


def _uses_of(prefix: Prefix, facts: ClusterFacts, inventory: ClusterInventory) -> Iterator[tuple[str, str]]:
    """What has addresses of a pool that the cluster shall have: the text of its addresses, and what it is."""
    for service in inventory.service_prefixes:
        if prefix.overlaps(service):
            yield str(service), "the addresses of services"
    for node in inventory.nodes:
        for address in node.addresses:
            if prefix.contains(address):
                yield str(address), f"the addresses of nodes; this one is the node {node.name}'s"
    for pool in facts.pools:
        if pool.spec.prefix != prefix and prefix.overlaps(pool.spec.prefix):
            yield str(pool.spec.prefix), f"the pool {pool.metadata.name}"


def _host_local_warnings(
    document: InstallationDocument, resolved: ResolvedInstallation, inventory: ClusterInventory
) -> Iterator[str]:
    """The addresses of pods are those that the platform has given their node."""
    path = f"{document.where}: spec.cni.ipam"
    families = {one.pool.spec.prefix.family for one in resolved.pools} or {Family.IPV4}
    for family in sorted(families):
        without = [node.name for node in inventory.nodes if all(one.family != family for one in node.pod_prefixes)]
        if without:
            yield f"{path}: {_names(without)} no {family} pod CIDR; pods there get no address with the IPAM HostLocal"
    outside = [node.name for node in inventory.nodes if _is_outside(node.pod_prefixes, resolved.pools)]
    if outside:
        yield f"{path}: {_names(outside)} a pod CIDR outside of every pool"


def _is_outside(prefixes: tuple[Prefix, ...], pools: tuple[ResolvedPool, ...]) -> bool:
    return bool(pools) and any(all(prefix not in one.pool.spec.prefix for one in pools) for prefix in prefixes)


def _names(nodes: list[str]) -> str:
    """The nodes as the subject of a sentence, with its verb."""
    shown = ", ".join(nodes[:_MAX_NAMES])
    if len(nodes) == 1:
        return f"the node {shown} has"
    further = f" and {len(nodes) - _MAX_NAMES} more" if len(nodes) > _MAX_NAMES else ""
    return f"the nodes {shown}{further} have"
