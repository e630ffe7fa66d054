"""What runs on every node: the DaemonSet, its CNI configuration list, and everything that is installed, in order.

The text is the same for the same settings, byte for byte: its hash decides whether the pods of the nodes are replaced.
Placeholders such as ``__KUBECONFIG_FILEPATH__`` are filled in on the node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from attrs import asdict, evolve, frozen

from netplug_core.addressing import Family
from netplug_core.installation.document import InstallationDocument, IPAMType
from netplug_core.installation.installer import DEFAULT_CONF_NAME, FILE_NAME
from netplug_core.installation.pools import PoolAPI, PoolStep, plan_pools, pools_afterwards
from netplug_core.installation.settings import NODE_IMAGE, ClusterFacts, ResolvedInstallation, image_reference, resolve
from netplug_core.ipam.hostlocal.settings import DEFAULT_DATA_FOLDER
from netplug_core.names import DEFAULT_NETWORK
from netplug_core.resources.installation import (
    OPERATOR_GROUP,
    AddressDetection,
    ContainerResources,
    InstallMode,
    KubernetesProvider,
    LinuxDataplane,
    LogSeverity,
    NodeUpdate,
    PodInterfaceType,
    SpecVersion,
    Switch,
)
from netplug_core.resources.ippool import IPPool

__all__ = [
    "CONFIG_HASH", "CONFIG_MAP", "CONFIG_MAP_KEY", "ENDPOINT_CONFIG_MAP", "ENDPOINT_STATUS_DIR", "HELPER_PLUGINS",
    "IMPORTER", "LOG_FILE", "NETWORK_NAME", "NODE_ACCOUNT", "POLICY_VARIABLES", "SYSTEM_NAMESPACE", "APIEndpoint",
    "RenderedInstallation", "daemonset_of", "endpoint_override", "field_variable", "fixed_variables", "health_probe",
    "host_volume", "host_volumes", "import_container", "install_container", "key_variable", "node_container", "render",
    "render_conflist", "render_daemonset", "render_environment",
]  # fmt: skip


# --- the CNI configuration list --------------------------------------------------------------------------------------

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


# --- containers ------------------------------------------------------------------------------------------------------


ENDPOINT_CONFIG_MAP: Final = "kubernetes-services-endpoint"
"""The ConfigMap that says where the API server is, beside the pods that read it."""

Json = Mapping[str, object]


def fixed_variables(variables: Mapping[str, str]) -> list[Json]:
    """Variables with a fixed value, sorted by their names."""
    return [{"name": name, "value": value} for name, value in sorted(variables.items())]


def field_variable(name: str, path: str) -> Json:
    """A variable with a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def key_variable(name: str, config_map: str, key: str) -> Json:
    """A variable with the text of a key of a ConfigMap."""
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}


def endpoint_override() -> Json:
    """Where the API server is, if the Service of it cannot be reached from the nodes."""
    return {"envFrom": [{"configMapRef": {"name": ENDPOINT_CONFIG_MAP, "optional": True}}]}


def host_volume(name: str, path: str, kind: str) -> Json:
    """A volume that is a folder or a file of the host."""
    return {"name": name, "hostPath": {"path": path, "type": kind}}


def health_probe(path: str, port: int) -> Json:
    """A question to a port of 127.0.0.1, which is the node's: the pods are in its network."""
    return {"httpGet": {"host": "127.0.0.1", "port": port, "path": path}, "timeoutSeconds": 5}


# --- environment -----------------------------------------------------------------------------------------------------


POLICY_VARIABLES: Final[Mapping[str, str]] = {
    "NETPLUG_POLICY": "Enabled",
    "NETPLUG_ENDPOINT_TO_HOST_ACTION": "Accept",
}
"""The node process enforces policy, and pods reach their own node as their policies say."""

_MTU_VARIABLES: Final = ("NETPLUG_IPINIPMTU", "NETPLUG_VXLANMTU")
_SUFFIXES: Final = {Family.IPV4: "", Family.IPV6: "6"}


def render_environment(resolved: ResolvedInstallation, *, api_group: str = "") -> Mapping[str, str]:
    """The variables with a fixed value, sorted by name; ``NODENAME`` and ``NAMESPACE`` are the pod's own.

    ``api_group`` is as in ``render_conflist``.
    """
    variables = {
        "DATASTORE_TYPE": "kubernetes",
        "WAIT_FOR_DATASTORE": "true",
        "NO_DEFAULT_POOLS": "true",
        "CLUSTER_TYPE": ",".join(_cluster_type(resolved)),
        "NETPLUG_MANAGE_CNI": str(resolved.is_netplug).lower(),
        "NETPLUG_NETWORKING_BACKEND": resolved.backend.value,
    }
    if resolved.ipam is IPAMType.HOST_LOCAL:
        variables["USE_POD_CIDR"] = "true"
    if resolved.mtu:
        variables |= dict.fromkeys(_MTU_VARIABLES, str(resolved.mtu))
    if api_group:
        variables["NETPLUG_API_GROUP"] = api_group
    if resolved.enforces_policy:
        variables |= POLICY_VARIABLES
    if resolved.policy_setup_timeout_s:
        variables["NETPLUG_ENDPOINT_STATUS_PATH_PREFIX"] = "/var/run/netplug"
    for family, detection in ((Family.IPV4, resolved.ipv4_detection), (Family.IPV6, resolved.ipv6_detection)):
        variables |= _detection_variables(_SUFFIXES[family], detection)
    return dict(sorted(variables.items()))


def _cluster_type(resolved: ResolvedInstallation) -> list[str]:
    is_known = resolved.provider is not KubernetesProvider.OTHER
    provider = [resolved.provider.value.lower()] if is_known else []
    return ["k8s", "operator", *provider, *(["bgp"] if resolved.bgp is Switch.ENABLED else [])]


def _detection_variables(suffix: str, detection: AddressDetection | None) -> dict[str, str]:
    method = "" if detection is None else _method(detection)
    if not method:
        return {f"IP{suffix}": "none"}
    return {f"IP{suffix}": "autodetect", f"IP{suffix}_AUTODETECTION_METHOD": method}


def _method(detection: AddressDetection) -> str:
    """The one method that is set; empty if none is."""
    methods = {
        "first-found": detection.is_first_found,
        "kubernetes-internal-ip": detection.kubernetes is not None,
        f"interface={detection.interface}": detection.interface,
        f"skip-interface={detection.skip_interface}": detection.skip_interface,
        f"can-reach={detection.can_reach}": detection.can_reach,
        f"cidr={','.join(detection.cidrs)}": detection.cidrs,
    }
    return next((text for text, is_set in methods.items() if is_set), "")


# --- node daemonset --------------------------------------------------------------------------------------------------


CONFIG_MAP: Final = "cni-config"
CONFIG_MAP_KEY: Final = "config"
NODE_ACCOUNT: Final = "netplug-node"
"""The name of the account, and of the DaemonSet."""

IMPORTER: Final = "upgrade-ipam"
"""The name of the container that imports the addresses of host-local."""

CONFIG_HASH: Final = f"hash.{OPERATOR_GROUP}/cni-config"
"""The annotation that changes with the conflist, so that the pods are replaced then."""

_HOST_ROOT: Final = "/host"
_HEALTH_PORT: Final = 9470
HELPER_PLUGINS: Final = ("bandwidth", "flannel", "host-local", "loopback", "portmap", "tuning")

# A stop lets the calls that have begun finish, which may take 30 s.
_GRACE_S: Final = 35

_VIRTUAL_NODES: Final = {
    KubernetesProvider.AKS: ("type", "virtual-kubelet"),
    KubernetesProvider.EKS: ("eks.amazonaws.com/compute-type", "fargate"),
}


def render_daemonset(
    resolved: ResolvedInstallation,
    *,
    namespace: str,
    version: str,
    conflist: str,
    environment: Mapping[str, str],
    api_group: str = "",
) -> Json:
    """The DaemonSet of a conflist. ``environment`` are the variables that ``environment`` renders."""
    annotations = {CONFIG_HASH: sha256(conflist.encode()).hexdigest()}
    image = {
        "image": image_reference(resolved, NODE_IMAGE, version),
        "imagePullPolicy": resolved.image_pull_policy.value,
    }
    template = key_variable("CNI_NETWORK_CONFIG", CONFIG_MAP, CONFIG_MAP_KEY)
    pod = {
        "initContainers": [install_container(resolved, image, [template], api_group=api_group)],
        "containers": [node_container(resolved, image, environment)],
        "volumes": host_volumes(resolved),
    }
    return daemonset_of(resolved, pod, namespace=namespace, annotations=annotations)


def daemonset_of(resolved: ResolvedInstallation, pod: Json, *, namespace: str, annotations: Mapping[str, str]) -> Json:
    """The DaemonSet whose pods have the containers and volumes of ``pod``. ``annotations`` are those of the pods."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NODE_ACCOUNT, "namespace": namespace, "labels": _labels()},
        "spec": {
            "selector": {"matchLabels": _labels()},
            "updateStrategy": _update_strategy(resolved.node_update),
            "template": {
                "metadata": {"labels": _labels(), **({"annotations": annotations} if annotations else {})},
                "spec": {**_pod_settings(resolved), **pod},
            },
        },
    }


def _update_strategy(update: NodeUpdate) -> Json:
    rolling = update.rolling_update
    limits = {"maxUnavailable": rolling.max_unavailable, "maxSurge": rolling.max_surge}
    return {"type": update.type, "rollingUpdate": limits}


def _labels() -> Json:
    """A new mapping each time: YAML would print the second one as a reference to the first."""
    return {"k8s-app": NODE_ACCOUNT}


def _pod_settings(resolved: ResolvedInstallation) -> Json:
    """What the pods need to run on every node, before there is a network of pods."""
    settings: dict[str, object] = {
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "serviceAccountName": NODE_ACCOUNT,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": _GRACE_S,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
    }
    if resolved.image_pull_secrets:
        settings["imagePullSecrets"] = [{"name": secret.name} for secret in resolved.image_pull_secrets]
    virtual = _VIRTUAL_NODES.get(resolved.provider)
    if virtual is not None:
        label, value = virtual
        expression = {"key": label, "operator": "NotIn", "values": [value]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        settings["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return settings


def node_container(
    resolved: ResolvedInstallation, image: Json, environment: Mapping[str, str], further: Sequence[Json] = ()
) -> Json:
    """The node process. It works in the host's file system, so paths of its variables are those of the host.

    ``environment`` are variables with a fixed value, ``further`` are others.
    """
    variables = {
        **environment,
        "CNI_BIN_DIR": resolved.bin_dir,
        "CNI_NET_DIR": resolved.conf_dir,
        "KUBECONFIG": f"{resolved.conf_dir}/{FILE_NAME}",
    }
    return {
        "name": NODE_ACCOUNT,
        **image,
        "command": ["netplug-node"],
        "args": [f"--host-root={_HOST_ROOT}", f"--metrics-port={_HEALTH_PORT}"],
        "env": [
            *fixed_variables(variables),
            *further,
            field_variable("NODENAME", "spec.nodeName"),
            field_variable("NAMESPACE", "metadata.namespace"),
        ],
        **endpoint_override(),
        "securityContext": _as_root(),
        "resources": _resources(resolved.node_resources),
        "startupProbe": {**health_probe("/livez", _HEALTH_PORT), "periodSeconds": 2, "failureThreshold": 150},
        "readinessProbe": {**health_probe("/readyz", _HEALTH_PORT), "periodSeconds": 10},
        "livenessProbe": {**health_probe("/livez", _HEALTH_PORT), "periodSeconds": 10, "failureThreshold": 6},
        "volumeMounts": [{"name": "host-root", "mountPath": _HOST_ROOT}],
    }


def _resources(resources: ContainerResources) -> Json:
    amounts = {"requests": dict(resources.requests), "limits": dict(resources.limits)}
    return {name: one for name, one in amounts.items() if one}


def install_container(
    resolved: ResolvedInstallation,
    image: Json,
    further: Sequence[Json],
    *,
    api_group: str = "",
    stays: bool = False,
    mounts: Sequence[Json] = (),
) -> Json:
    """The installer of the plugin, its kubeconfig and its configuration, whose template is among ``further``.

    It ends when they are on the host, or ``stays`` to keep certificates fresh. ``mounts`` come after its own.
    """
    variables = {"CNI_CONF_NAME": DEFAULT_CONF_NAME, "CNI_NET_DIR": resolved.conf_dir, "SLEEP": str(stays).lower()}
    if resolved.install_mode is InstallMode.NETPLUG_ONLY:
        variables["SKIP_CNI_BINARIES"] = ",".join(HELPER_PLUGINS)
    if api_group:
        variables["NETPLUG_API_GROUP"] = api_group
    return {
        "name": "install-cni",
        **image,
        "command": ["netplug-install"],
        "env": [
            *fixed_variables(variables),
            *further,
            field_variable("KUBERNETES_NODE_NAME", "spec.nodeName"),
        ],
        **endpoint_override(),
        "securityContext": _as_root(),  # with SELinux no other container may write to a folder of the host
        "volumeMounts": [
            {"name": "cni-bin-dir", "mountPath": f"{_HOST_ROOT}/opt/cni/bin"},
            {"name": "cni-net-dir", "mountPath": f"{_HOST_ROOT}/etc/cni/net.d"},
            *mounts,
        ],
    }


def import_container(resolved: ResolvedInstallation, image: Json) -> Json:
    """The container that gives the addresses that host-local holds on a node to netplug-ipam, after the installer.

    It acts as the plugin, whose kubeconfig the installer has written.
    """
    kubeconfig = f"{_HOST_ROOT}{resolved.conf_dir}/{FILE_NAME}"
    return {
        "name": IMPORTER,
        **image,
        "command": ["netplugctl", "ipam", "import-host-local"],
        "args": [f"--data-dir={_HOST_ROOT}{DEFAULT_DATA_FOLDER}"],
        "env": [
            *fixed_variables({"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": kubeconfig}),
            field_variable("KUBERNETES_NODE_NAME", "spec.nodeName"),
        ],
        "securityContext": _as_root(),
        "volumeMounts": [{"name": "host-root", "mountPath": _HOST_ROOT}],
    }


def _as_root() -> Json:
    """The image's own user is not root, whose files and namespaces those of the host are."""
    return {"privileged": True, "runAsUser": 0, "runAsGroup": 0}


def host_volumes(resolved: ResolvedInstallation) -> list[Json]:
    """The volumes of the node process and of the installer."""
    return [
        host_volume("host-root", "/", "Directory"),
        host_volume("cni-bin-dir", resolved.bin_dir, "DirectoryOrCreate"),
        host_volume("cni-net-dir", resolved.conf_dir, "DirectoryOrCreate"),
    ]


# --- render ----------------------------------------------------------------------------------------------------------


SYSTEM_NAMESPACE: Final = "netplug-system"
"""The namespace of netplug's own accounts and pods."""


@frozen(kw_only=True)
class RenderedInstallation:
    """The result. ``pools`` are those of the cluster once the ``steps`` are done.

    A ``conflist`` of None has its reason in ``no_conflist_reason``, which is empty otherwise. Then nothing is installed
    on the nodes either. ``image`` is that of all pods.
    """

    steps: tuple[PoolStep, ...]
    pools: tuple[IPPool, ...]
    conflist: str | None
    no_conflist_reason: str
    environment: Mapping[str, str]
    daemonset: Mapping[str, object] | None
    resolved: ResolvedInstallation
    image: str

    @property
    def namespace(self) -> Mapping[str, object]:
        """The namespace of everything that has one. Its pods may be privileged (Pod Security Admission)."""
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE, "labels": labels}}

    @property
    def config_map(self) -> Mapping[str, object] | None:
        """The object that the container on every node takes the conflist from."""
        if self.conflist is None:
            return None
        metadata = {"name": CONFIG_MAP, "namespace": SYSTEM_NAMESPACE}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {CONFIG_MAP_KEY: self.conflist}}


def render(
    document: InstallationDocument,
    facts: ClusterFacts,
    *,
    version: str,
    api_group: str = "",
    endpoint: APIEndpoint | None = None,
    pool_api: PoolAPI = PoolAPI.AVAILABLE,
) -> RenderedInstallation:
    """What a document installs. Conflist and environment are those for the pools that the steps lead to.

    ``version`` is the release whose images are installed, such as ``3.33.0``.
    """
    steps = plan_pools(resolve(document, facts), facts, pool_api)
    pools = pools_afterwards(facts, steps)
    later = evolve(facts, pools=pools)
    resolved = resolve(document, later)
    conflist = render_conflist(resolved, later, api_group=api_group, endpoint=endpoint)
    environment = render_environment(resolved, api_group=api_group)
    return RenderedInstallation(
        steps=steps,
        pools=pools,
        conflist=conflist,
        no_conflist_reason=_why_none(resolved) if conflist is None else "",
        environment=environment,
        daemonset=None
        if conflist is None
        else render_daemonset(
            resolved,
            namespace=SYSTEM_NAMESPACE,
            version=version,
            conflist=conflist,
            environment=environment,
            api_group=api_group,
        ),
        resolved=resolved,
        image=image_reference(resolved, NODE_IMAGE, version),
    )


def _why_none(resolved: ResolvedInstallation) -> str:
    if not resolved.is_netplug:
        return f"the CNI plugin is {resolved.cni.value}"
    return "the IPAM Netplug needs a pool that serves pods, and the Installation creates none"
