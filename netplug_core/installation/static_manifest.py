"""What a static manifest installs, besides definitions, accounts and rights: settings, template and pods. Pure.

The pods are those of an Installation without settings, in the namespace of the cluster's own components. ``make
manifests`` writes the result, with ``netplug_backends.kubernetes.manifests``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from netplug_core.installation.containers import host_volume, key_variable
from netplug_core.installation.defaults import ResolvedInstallation, resolve
from netplug_core.installation.document import read_installation
from netplug_core.installation.facts import ClusterFacts
from netplug_core.installation.images import NODE_IMAGE, image_reference
from netplug_core.installation.methods import (
    ENDPOINTS_KEY,
    FLANNEL_KEY,
    TEMPLATE_KEY,
    TLS_FOLDER,
    TLS_KEYS,
    Method,
    default_settings,
)
from netplug_core.installation.node_daemonset import (
    daemonset_of,
    host_volumes,
    import_container,
    install_container,
    node_container,
)
from netplug_core.resources.installation import INSTALLATION_API_VERSION, INSTALLATION_KIND, INSTALLATION_NAME

__all__ = ["STATIC_CONFIG_MAP", "STATIC_NAMESPACE", "render_static", "static_template"]

STATIC_NAMESPACE: Final = "kube-system"
STATIC_CONFIG_MAP: Final = "netplug-config"

_SECRET: Final = "netplug-etcd-secrets"  # noqa: S105  # the name of one
_MTU_MARK: Final = "MTU"
_POLICY_ONLY_MTU: Final = 1500
_JOB: Final = "netplug-configure-flannel"
_FLANNEL_IMAGE: Final = "docker.io/flannel/flannel:v0.24.4"
_ETCD_IMAGE: Final = "quay.io/coreos/etcd:v3.5.1"
_FLANNEL_KEY_IN_ETCD: Final = "/coreos.com/network/config"
_READ_ONLY_BY_OWNER: Final = 0o400
_TLS_ASSETS: Final = "/netplug-secrets"

Json = Mapping[str, object]


def render_static(method: Method, *, version: str) -> Iterator[Json]:
    """The objects of a method in the order in which they are applied. ``version`` is the release of the images."""
    data = {**default_settings(method), TEMPLATE_KEY: static_template(method)}
    yield _namespaced("v1", "ConfigMap", STATIC_CONFIG_MAP, data=data)
    if method.has_etcd:
        yield _namespaced("v1", "Secret", _SECRET, type="Opaque")
    yield _daemonset(method, version)
    if method is Method.ETCD_FLANNEL:
        yield _network_job()


def static_template(method: Method) -> str:
    """The conflist as the installer gets it: indented, so that a person can edit it, with its placeholders."""
    name = "netplug-flannel" if method is Method.ETCD_FLANNEL else "k8s-pod-network"
    plugins = [_first_plugin(method), {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}}]
    text = json.dumps({"name": name, "cniVersion": "1.0.0", "plugins": plugins}, indent=2)
    return text.replace(f'"{_MTU_MARK}"', "__CNI_MTU__") + "\n"


def _first_plugin(method: Method) -> Json:
    access = {"policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"}}
    head = {"type": "netplug", "log_level": "INFO", "log_file_path": "/var/log/netplug/cni/cni.log"}
    node = {"nodename": "__KUBERNETES_NODE_NAME__"}
    etcd = {  # without datastore_type, whose default is etcdv3
        ENDPOINTS_KEY: "__ETCD_ENDPOINTS__",
        **{f"etcd_{part}_file": f"__ETCD_{part.upper()}_FILE__" for part in ("key", "cert", "ca_cert")},
    }
    if method is Method.ETCD_FLANNEL:
        # The plugin of flannel adds IPAM and MTU.
        return {"type": "flannel", "delegate": {**head, "include_default_routes": True, **etcd, **node, **access}}
    datastore = etcd if method.has_etcd else {"datastore_type": "kubernetes"}
    mtu = _POLICY_ONLY_MTU if method is Method.KDD_POLICY_ONLY else _MTU_MARK
    ipam = {"type": "netplug-ipam"} if method.has_own_network else {"type": "host-local", "subnet": "usePodCidr"}
    return {**head, **datastore, **node, "mtu": mtu, "ipam": ipam, **access}


def _daemonset(method: Method, version: str) -> Json:
    resolved = _resolved()
    image = {
        "image": image_reference(resolved, NODE_IMAGE, version),
        "imagePullPolicy": resolved.image_pull_policy.value,
    }
    node = node_container(resolved, image, _node_environment(method), _node_settings(method))
    installer = install_container(
        resolved,
        image,
        _installer_settings(method),
        stays=method.has_etcd,
        mounts=_certificate_mounts(method, _TLS_ASSETS),
    )
    further = [_flannel_container(method)] if method.has_flannel else []
    importer = [import_container(resolved, image)] if method is Method.KDD else []
    volumes = [*host_volumes(resolved), *_certificate_volumes(method), *_flannel_volumes(method)]
    # With etcd the installer stays: nothing else keeps the certificates on the host fresh.
    pod: dict[str, object] = (
        {"containers": [node, installer, *further]}
        if method.has_etcd
        else {"initContainers": [installer, *importer], "containers": [node, *further]}
    )
    return daemonset_of(resolved, {**pod, "volumes": volumes}, namespace=STATIC_NAMESPACE, annotations={})


def _resolved() -> ResolvedInstallation:
    """An Installation without settings, with the defaults of a new cluster."""
    head = {"apiVersion": INSTALLATION_API_VERSION, "kind": INSTALLATION_KIND}
    return resolve(read_installation({**head, "metadata": {"name": INSTALLATION_NAME}}), ClusterFacts())


def _node_environment(method: Method) -> dict[str, str]:
    """The variables of the node process with a fixed value."""
    variables = {
        "CLUSTER_TYPE": "k8s",
        "DATASTORE_TYPE": "etcdv3" if method.has_etcd else "kubernetes",
        "NETPLUG_MANAGE_CNI": str(not method.has_etcd).lower(),  # an installer that stays renews the token itself
        "WAIT_FOR_DATASTORE": "true",
    }
    if not method.has_own_network:
        variables["NETPLUG_NETWORKING_BACKEND"] = "none"
        if not method.has_etcd:
            variables["USE_POD_CIDR"] = "true"
    return variables


def _node_settings(method: Method) -> list[Json]:
    variables = []
    if method.has_own_network:
        variables.append(_setting("NETPLUG_NETWORKING_BACKEND", "netplug_backend"))
    if method.has_etcd:
        names = ("ETCD_CA_CERT_FILE", "ETCD_CERT_FILE", "ETCD_KEY_FILE")
        variables.append(_setting("ETCD_ENDPOINTS", ENDPOINTS_KEY))
        variables += map(_setting, names, TLS_KEYS)
    return variables


def _installer_settings(method: Method) -> list[Json]:
    variables = [_setting("CNI_NETWORK_CONFIG", TEMPLATE_KEY), _setting("CNI_MTU", "veth_mtu")]
    return [*variables, _setting("ETCD_ENDPOINTS", ENDPOINTS_KEY)] if method.has_etcd else variables


def _certificate_mounts(method: Method, path: str) -> list[Json]:
    return [{"name": "etcd-certs", "mountPath": path}] if method.has_etcd else []


def _certificate_volumes(method: Method) -> list[Json]:
    if not method.has_etcd:
        return []
    return [{"name": "etcd-certs", "secret": {"secretName": _SECRET, "defaultMode": _READ_ONLY_BY_OWNER}}]


def _flannel_container(method: Method) -> Json:
    mounts = [
        {"name": "run-flannel", "mountPath": "/run/flannel"},
        {"name": "xtables", "mountPath": "/run/xtables.lock"},
    ]
    variables = [_setting("FLANNELD_IFACE", "flannel_iface"), _setting("FLANNELD_IP_MASQ", "masquerade")]
    if method.has_etcd:
        names = ("FLANNELD_ETCD_CAFILE", "FLANNELD_ETCD_CERTFILE", "FLANNELD_ETCD_KEYFILE")
        variables += [_setting("FLANNELD_ETCD_ENDPOINTS", ENDPOINTS_KEY), *map(_setting, names, TLS_KEYS)]
    else:
        variables.append({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
        mounts.append({"name": "flannel-config", "mountPath": "/etc/kube-flannel"})
    return {
        "name": "flannel",
        "image": _FLANNEL_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/bin/flanneld"],
        "args": [] if method.has_etcd else ["--kube-subnet-mgr"],
        "env": variables,
        "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}},
        "volumeMounts": [*mounts, *_certificate_mounts(method, TLS_FOLDER)],
    }


def _flannel_volumes(method: Method) -> list[Json]:
    if not method.has_flannel:
        return []
    volumes = [
        host_volume("run-flannel", "/run/flannel", "DirectoryOrCreate"),
        host_volume("xtables", "/run/xtables.lock", "FileOrCreate"),
    ]
    if method.has_etcd:
        return volumes
    items = [{"key": FLANNEL_KEY, "path": FLANNEL_KEY}]
    return [*volumes, {"name": "flannel-config", "configMap": {"name": STATIC_CONFIG_MAP, "items": items}}]


def _network_job() -> Json:
    """The Job that stores the network of flannel in etcd, where flannel reads it."""
    names = ("ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY")
    container = {
        "name": "configure-flannel",
        "image": _ETCD_IMAGE,
        "command": ["etcdctl", "put", _FLANNEL_KEY_IN_ETCD, "$(FLANNEL_NETWORK)"],
        "env": [
            {"name": "ETCDCTL_API", "value": "3"},
            _setting("ETCDCTL_ENDPOINTS", ENDPOINTS_KEY),
            *map(_setting, names, TLS_KEYS),
            _setting("FLANNEL_NETWORK", FLANNEL_KEY),
        ],
        "volumeMounts": _certificate_mounts(Method.ETCD_FLANNEL, TLS_FOLDER),
    }
    pod = {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "restartPolicy": "OnFailure",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": _certificate_volumes(Method.ETCD_FLANNEL),
    }
    # Without labels of its own, a Job gets those that the server has given its pods, when it is applied a second time.
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": _JOB, "namespace": STATIC_NAMESPACE, "labels": {"k8s-app": _JOB}},
        "spec": {"template": {"spec": pod}},
    }


def _setting(variable: str, key: str) -> Json:
    """A variable with the text of a setting."""
    return key_variable(variable, STATIC_CONFIG_MAP, key)


def _namespaced(api_version: str, kind: str, name: str, **members: object) -> Json:
    metadata = {"name": name, "namespace": STATIC_NAMESPACE}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **members}
