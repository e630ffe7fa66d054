"""The static manifests: which methods of installation there are, and the objects of each."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from attrs import frozen

from netplug_core.errors import ConfigurationError
from netplug_core.installation.controllers import (
    KUBERNETES_CONTROLLERS,
    READ_ONLY_USER,
    disruption_budget,
    render_controllers,
)
from netplug_core.installation.daemonset import (
    POLICY_VARIABLES,
    daemonset_of,
    fixed_variables,
    host_volume,
    host_volumes,
    import_container,
    install_container,
    key_variable,
    node_container,
)
from netplug_core.installation.document import read_installation
from netplug_core.installation.settings import NODE_IMAGE, ClusterFacts, ResolvedInstallation, image_reference, resolve
from netplug_core.resources.installation import INSTALLATION_API_VERSION, INSTALLATION_KIND, INSTALLATION_NAME

__all__ = [
    "ENDPOINTS_KEY", "ETCD_PLACEHOLDER", "FLANNEL_KEY", "STATIC_CONFIG_MAP", "STATIC_NAMESPACE", "TEMPLATE_KEY",
    "TLS_FOLDER", "TLS_KEYS", "Method", "configure", "default_settings", "render_static", "static_template",
]  # fmt: skip


# --- methods ---------------------------------------------------------------------------------------------------------


TEMPLATE_KEY: Final = "cni_network_config"
ENDPOINTS_KEY: Final = "etcd_endpoints"
FLANNEL_KEY: Final = "net-conf.json"
TLS_KEYS: Final = ("etcd_ca", "etcd_cert", "etcd_key")
"""The keys with the paths of certificates; a path ends like its key, with a hyphen."""

ETCD_PLACEHOLDER: Final = "http://<ETCD_IP>:<ETCD_PORT>"
"""What the published manifests have in place of the endpoints of an etcd."""

TLS_FOLDER: Final = "/etc/cni/net.d/netplug-tls"
"""Where the installer puts the certificates on a host. Other containers have them there too."""

_ENDPOINT: Final = re.compile(r"https?://(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}", re.ASCII)
_MAX_MTU: Final = 65_535


class Method(enum.Enum):
    """A static manifest, by its name."""

    KDD = "manifest-kdd"
    KDD_FLANNEL = "manifest-kdd-flannel"
    KDD_POLICY_ONLY = "manifest-kdd-policy-only"
    ETCD = "manifest-etcd"
    ETCD_FLANNEL = "manifest-etcd-flannel"

    @property
    def has_etcd(self) -> bool:
        """Whether the datastore is etcd, and not the orchestrator's API."""
        return self in (Method.ETCD, Method.ETCD_FLANNEL)

    @property
    def has_flannel(self) -> bool:
        """Whether flannel connects the nodes."""
        return self in (Method.KDD_FLANNEL, Method.ETCD_FLANNEL)

    @property
    def has_own_network(self) -> bool:
        """Whether addresses are those of netplug's own IPAM."""
        return self in (Method.KDD, Method.ETCD)


@frozen
class _Setting:
    """``accepted`` says which values are; ``is_accepted`` decides."""

    accepted: str
    is_accepted: Callable[[str], bool]


def default_settings(method: Method) -> dict[str, str]:
    """The settings of a published manifest; without the template of the conflist, which is no setting."""
    settings = {"veth_mtu": "0"}
    if method.has_own_network:
        settings["netplug_backend"] = "bird"
    if method.has_etcd:
        settings |= {ENDPOINTS_KEY: ETCD_PLACEHOLDER, **dict.fromkeys(TLS_KEYS, "")}
    if method.has_flannel:
        network = {"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}
        settings |= {"flannel_iface": "", "masquerade": "true", FLANNEL_KEY: json.dumps(network)}
    return settings


def configure(method: Method, changes: Mapping[str, str]) -> dict[str, str]:
    """The settings with some changes, checked for use in a cluster.

    Raises:
        ConfigurationError: a setting is unknown or not accepted, the endpoints of etcd are missing, or of the three
            certificates some are named and others not.
    """
    settings = default_settings(method)
    for name in changes:
        if name not in settings:
            raise ConfigurationError(
                f"{method.value} --set {name}", changes[name], f"there is no such setting; {', '.join(settings)}"
            )
    settings |= changes
    for name, text in settings.items():
        setting = _SETTINGS[name]
        if not setting.is_accepted(text):
            raise ConfigurationError(f"{method.value} --set {name}", text, setting.accepted)
    if method.has_etcd and len({bool(settings[name]) for name in TLS_KEYS}) > 1:
        missing = next(name for name in TLS_KEYS if not settings[name])
        raise ConfigurationError(f"{method.value} --set {missing}", "", f"set all of {', '.join(TLS_KEYS)}, or none")
    return settings


def _is_mtu(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= _MAX_MTU


def _is_endpoint_list(text: str) -> bool:
    return all(_ENDPOINT.fullmatch(one.strip()) for one in text.split(","))


def _is_flannel_network(text: str) -> bool:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "Network" in found and "Backend" in found


def _path_setting(key: str) -> _Setting:
    path = f"{TLS_FOLDER}/{key.replace('_', '-')}"
    return _Setting(f"empty, or {path}", lambda text: text in ("", path))


_SETTINGS: Final[Mapping[str, _Setting]] = {
    "veth_mtu": _Setting(f"a number of bytes up to {_MAX_MTU}; 0 takes that of the node", _is_mtu),
    "netplug_backend": _Setting("bird or vxlan", lambda text: text in ("bird", "vxlan")),
    ENDPOINTS_KEY: _Setting("URLs with commas between, such as https://10.0.0.1:2379", _is_endpoint_list),
    **{key: _path_setting(key) for key in TLS_KEYS},
    "flannel_iface": _Setting("the name of an interface, or nothing", lambda text: not re.search(r"[\s/]", text)),
    "masquerade": _Setting("true or false", lambda text: text in ("true", "false")),
    FLANNEL_KEY: _Setting("a JSON object with Network and Backend, as flannel reads it", _is_flannel_network),
}  # fmt: skip


# --- static manifest -------------------------------------------------------------------------------------------------


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
_READ_ONLY_BY_GROUP: Final = 0o440  # the user of the controllers owns no file
_ETCD_CONTROLLERS: Final = "policy,namespace,serviceaccount,workloadendpoint,node"
_TLS_ASSETS: Final = "/netplug-secrets"

Json = Mapping[str, object]


def render_static(method: Method, *, version: str) -> Iterator[Json]:
    """The objects of a method in the order in which they are applied. ``version`` is the release of the images."""
    data = {**default_settings(method), TEMPLATE_KEY: static_template(method)}
    yield _namespaced("v1", "ConfigMap", STATIC_CONFIG_MAP, data=data)
    if method.has_etcd:
        yield _namespaced("v1", "Secret", _SECRET, type="Opaque")
    yield _daemonset(method, version)
    yield _controllers(method, version)
    yield disruption_budget(STATIC_NAMESPACE)
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
    node, guard = {"nodename": "__KUBERNETES_NODE_NAME__"}, {"policy_guard": True}
    etcd = {  # without datastore_type, whose default is etcdv3
        ENDPOINTS_KEY: "__ETCD_ENDPOINTS__",
        **{f"etcd_{part}_file": f"__ETCD_{part.upper()}_FILE__" for part in ("key", "cert", "ca_cert")},
    }
    if method is Method.ETCD_FLANNEL:
        # The plugin of flannel adds IPAM and MTU.
        return {
            "type": "flannel",
            "delegate": {**head, "include_default_routes": True, **etcd, **guard, **node, **access},
        }
    datastore = etcd if method.has_etcd else {"datastore_type": "kubernetes"}
    mtu = _POLICY_ONLY_MTU if method is Method.KDD_POLICY_ONLY else _MTU_MARK
    ipam = {"type": "netplug-ipam"} if method.has_own_network else {"type": "host-local", "subnet": "usePodCidr"}
    return {**head, **datastore, **guard, **node, "mtu": mtu, "ipam": ipam, **access}


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


def _controllers(method: Method, version: str) -> Json:
    """The controllers. Where the datastore is an etcd they copy what policy needs, and read the certificates."""
    resolved = _resolved()
    image = {
        "image": image_reference(resolved, NODE_IMAGE, version),
        "imagePullPolicy": resolved.image_pull_policy.value,
    }
    if not method.has_etcd:
        variables = fixed_variables({**KUBERNETES_CONTROLLERS, "ENABLED_CONTROLLERS": "node"})
        return render_controllers(image, variables, namespace=STATIC_NAMESPACE, pod={})
    fixed = fixed_variables({"DATASTORE_TYPE": "etcdv3", "ENABLED_CONTROLLERS": _ETCD_CONTROLLERS})
    groups = {"runAsNonRoot": True, "runAsUser": READ_ONLY_USER, "runAsGroup": READ_ONLY_USER}
    security = {**groups, "fsGroup": READ_ONLY_USER, "seccompProfile": {"type": "RuntimeDefault"}}
    return render_controllers(
        image,
        [*fixed, *_etcd_settings()],
        namespace=STATIC_NAMESPACE,
        mounts=_certificate_mounts(method, TLS_FOLDER),
        pod={"securityContext": security, "volumes": _certificate_volumes(method, _READ_ONLY_BY_GROUP)},
    )


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
        **POLICY_VARIABLES,  # with an etcd, profiles and policies come from the controllers
    }
    if method.has_own_network:
        variables["IP"] = "autodetect"  # not only while the node has none: it follows what becomes of the host
    else:
        variables["NETPLUG_NETWORKING_BACKEND"] = "none"
        if not method.has_etcd:
            variables["USE_POD_CIDR"] = "true"
    return variables


def _node_settings(method: Method) -> list[Json]:
    variables = []
    if method.has_own_network:
        variables.append(_setting("NETPLUG_NETWORKING_BACKEND", "netplug_backend"))
    return [*variables, *_etcd_settings()] if method.has_etcd else variables


def _etcd_settings() -> list[Json]:
    names = ("ETCD_CA_CERT_FILE", "ETCD_CERT_FILE", "ETCD_KEY_FILE")
    return [_setting("ETCD_ENDPOINTS", ENDPOINTS_KEY), *map(_setting, names, TLS_KEYS)]


def _installer_settings(method: Method) -> list[Json]:
    variables = [_setting("CNI_NETWORK_CONFIG", TEMPLATE_KEY), _setting("CNI_MTU", "veth_mtu")]
    return [*variables, _setting("ETCD_ENDPOINTS", ENDPOINTS_KEY)] if method.has_etcd else variables


def _certificate_mounts(method: Method, path: str) -> list[Json]:
    return [{"name": "etcd-certs", "mountPath": path}] if method.has_etcd else []


def _certificate_volumes(method: Method, mode: int = _READ_ONLY_BY_OWNER) -> list[Json]:
    if not method.has_etcd:
        return []
    return [{"name": "etcd-certs", "secret": {"secretName": _SECRET, "defaultMode": mode}}]


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
