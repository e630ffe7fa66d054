"""The pods of the nodes: the DaemonSet of the node process, and of the container that installs the plugin. Pure.

Nothing of it depends on what is in the cluster, so that it is the same for an operator, a chart and a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from netplug_core.installation.containers import (
    endpoint_override,
    field_variable,
    fixed_variables,
    health_probe,
    host_volume,
    key_variable,
)
from netplug_core.installation.defaults import ResolvedInstallation
from netplug_core.installation.images import NODE_IMAGE, image_reference
from netplug_core.installation.installer_settings import DEFAULT_CONF_NAME
from netplug_core.installation.kubeconfig import FILE_NAME
from netplug_core.ipam.hostlocal.settings import DEFAULT_DATA_FOLDER
from netplug_core.resources.installation import (
    OPERATOR_GROUP,
    ContainerResources,
    InstallMode,
    KubernetesProvider,
    NodeUpdate,
)

__all__ = [
    "CONFIG_HASH", "CONFIG_MAP", "CONFIG_MAP_KEY", "HELPER_PLUGINS", "IMPORTER", "NODE_ACCOUNT", "daemonset_of",
    "host_volumes", "import_container", "install_container", "node_container", "render_daemonset",
]  # fmt: skip

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

Json = Mapping[str, object]


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
