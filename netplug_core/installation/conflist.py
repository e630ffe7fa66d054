"""The CNI configuration list that an installation puts on every node.

The text is the same for the same settings, byte for byte: its hash decides whether the pods of the nodes are replaced.
Placeholders such as ``__KUBECONFIG_FILEPATH__`` are filled in on the node.
"""

from __future__ import annotations

import json
from typing import Final

from attrs import asdict, frozen

from netplug_core.addressing import Family
from netplug_core.installation.document import IPAMType
from netplug_core.installation.settings import ClusterFacts, ResolvedInstallation
from netplug_core.names import DEFAULT_NETWORK
from netplug_core.resources.installation import (
    KubernetesProvider,
    LinuxDataplane,
    LogSeverity,
    PodInterfaceType,
    SpecVersion,
    Switch,
)

__all__ = ["ENDPOINT_STATUS_DIR", "LOG_FILE", "NETWORK_NAME", "APIEndpoint", "render_conflist"]

NETWORK_NAME: Final = DEFAULT_NETWORK
LOG_FILE: Final = "/var/log/netplug/cni/cni.log"
ENDPOINT_STATUS_DIR: Final = "/var/run/netplug/endpoint-status"
_LEVELS: Final = {
    LogSeverity.ERROR: "ERROR",
    LogSeverity.WARN: "WARNING",
    LogSeverity.INFO: "INFO",
    LogSeverity.DEBUG: "DEBUG",
}
_VERSIONS: Final = {version: version.value for version in SpecVersion} | {None: "1.0.0", SpecVersion.AUTO: "1.0.0"}
_POD_CIDRS: Final = {Family.IPV4: "usePodCidr", Family.IPV6: "usePodCidrIPv6"}
_VPP_SOCKET: Final = "unix:///var/run/netplug/cni-server.sock"

Members = dict[str, object]


@frozen
class APIEndpoint:
    """Where nodes reach the API server, if it is not where the kubeconfig says."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Its URL; the address of an IPv6 host is in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"


def render_conflist(
    resolved: ResolvedInstallation, facts: ClusterFacts, *, api_group: str = "", endpoint: APIEndpoint | None = None
) -> str | None:
    """The text of the list; None while there is nothing to install.

    That is so with another CNI plugin, and with the IPAM Netplug until a pool of the cluster serves pods.
    ``api_group`` is the API group of netplug's objects if they are native; empty with the group of their backing.
    """
    families = {pool.spec.prefix.family for pool in facts.pools if pool.spec.serves_workloads}
    if not resolved.is_netplug or (resolved.ipam is IPAMType.NETPLUG and not families):
        return None
    plugins = [_plugin(resolved, families, api_group, endpoint)]
    if resolved.host_ports is Switch.ENABLED:
        plugins.append({"type": "portmap", "snat": True, "capabilities": {"portMappings": True}})
    if resolved.sysctls:
        plugins.append({"type": "tuning", "sysctl": {sysctl.key: sysctl.value for sysctl in resolved.sysctls}})
    return _dump({"name": NETWORK_NAME, "cniVersion": _VERSIONS[resolved.spec_version], "plugins": plugins})


def _plugin(
    resolved: ResolvedInstallation, families: set[Family], api_group: str, endpoint: APIEndpoint | None
) -> Members:
    access: Members = {"kubeconfig": "__KUBECONFIG_FILEPATH__"}
    if endpoint is not None:
        access["k8s_api_root"] = endpoint.url
    return {
        "type": "netplug",
        "datastore_type": "kubernetes",
        "netplug_api_group": api_group,
        "kubernetes": access,
        "ipam": _ipam(resolved, families),
        "policy": {"type": "k8s"},
        **({"policy_guard": True} if resolved.enforces_policy else {}),
        "policy_setup_timeout_seconds": resolved.policy_setup_timeout_s,
        "endpoint_status_dir": ENDPOINT_STATUS_DIR,
        "container_settings": {"allow_ip_forwarding": resolved.container_ip_forwarding is Switch.ENABLED},
        "mtu": resolved.mtu,
        "nodename_file_optional": resolved.provider is KubernetesProvider.DOCKER_ENTERPRISE,
        **_log(resolved),
        **_links(resolved),
        **_features(resolved),
    }


def _ipam(resolved: ResolvedInstallation, families: set[Family]) -> Members:
    if resolved.ipam is IPAMType.NETPLUG:
        wanted = {f"assign_ipv{family.value}": str(family in families).lower() for family in Family}
        return {"type": "netplug-ipam", **wanted}
    subnets = [{"subnet": _POD_CIDRS[family]} for family in Family if family in (families or {Family.IPV4})]
    if len(subnets) == 1:
        return {"type": "host-local", **subnets[0]}
    return {"type": "host-local", "ranges": [[subnet] for subnet in subnets]}


def _log(resolved: ResolvedInstallation) -> Members:
    return {
        "log_level": _LEVELS[resolved.log.severity],
        "log_file_path": LOG_FILE,
        "log_file_max_size": resolved.log.max_size_mib,
        "log_file_max_age": resolved.log.max_age_days,
        "log_file_max_count": resolved.log.max_count,
    }


def _links(resolved: ResolvedInstallation) -> Members:
    members: Members = {}
    if resolved.pod_interface_type is PodInterfaceType.NETKIT:
        members["device_type"] = "netkit"
    if resolved.dataplane is LinuxDataplane.VPP:
        members["dataplane_options"] = {"type": "grpc", "socket": _VPP_SOCKET}
    return members


def _features(resolved: ResolvedInstallation) -> Members:
    """What is off, or missing, unless an Installation sets it."""
    members: Members = {}
    enabled = {
        name: True for name, switch in asdict(resolved.features, recurse=False).items() if switch is Switch.ENABLED
    }
    if enabled:
        members["feature_control"] = enabled
    if resolved.readiness_gates:
        members["readiness_gates"] = list(resolved.readiness_gates)
    return members


def _dump(value: object) -> str:
    """JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
