"""The settings that a static manifest has: those of its pod and those of its conflist, and what has no counterpart.

``conversion`` makes an Installation of them. A setting that cannot be carried over stops the conversion, and is named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, field, frozen

from netplug_core.addressing import Family
from netplug_core.decoding.tables import find_member, find_object
from netplug_core.installation.cluster import IncompatibleCluster
from netplug_core.installation.daemonset import (
    ENDPOINT_CONFIG_MAP,
    ENDPOINT_STATUS_DIR,
    HELPER_PLUGINS,
    IMPORTER,
    LOG_FILE,
    NETWORK_NAME,
    NODE_ACCOUNT,
)
from netplug_core.installation.installer import (
    DEFAULT_CONF_NAME,
    FILE_NAME,
    HostFacts,
    fill_conflist,
    read_installer_settings,
)
from netplug_core.installation.rules import SYSCTLS
from netplug_core.installation.settings import DEFAULT_IMAGE_PATH, DEFAULT_REGISTRY, NODE_IMAGE
from netplug_core.names import API_VERSION
from netplug_core.resources.installation import (
    CNIFeatures,
    CNISettings,
    InstallationSpec,
    IPAMSettings,
    Logging,
    LogSettings,
    LogSeverity,
    NetworkSettings,
    PodInterfaceType,
    SpecVersion,
    Switch,
    Sysctl,
)

__all__ = [
    "CONFLIST", "STATIC_DAEMONSET", "StaticConflist", "StaticObjects", "StaticPod", "find_conflist_problems",
    "find_pod_problems", "read_conflist_settings", "read_static_conflist", "read_static_pod", "shown",
]  # fmt: skip


# --- static pod ------------------------------------------------------------------------------------------------------


STATIC_DAEMONSET: Final = f"DaemonSet kube-system/{NODE_ACCOUNT}"
"""The DaemonSet of a static manifest, as messages name it."""

_INSTALLER: Final = "install-cni"
_CONTROLLERS: Final = "Deployment kube-system/netplug-kube-controllers"
_ADDON_LABEL: Final = "addonmanager.kubernetes.io/mode"
_ANNOTATIONS: Final = frozenset(
    {
        "deprecated.daemonset.template.generation",
        "kubectl.kubernetes.io/last-applied-configuration",
        "kubectl.kubernetes.io/restartedAt",
        "kubernetes.io/change-cause",
    }
)
_IMAGE: Final = re.compile(
    rf"(?P<registry>(?:[^/]*[.:][^/]*|localhost)/)?(?:(?P<path>.+)/)(?P<prefix>[^/:@]*){NODE_IMAGE}(?:[:@].*)?"
)
_SECRET: Final = re.compile("token|password|secret|key", re.IGNORECASE)

_MOVE_DATA: Final = (
    "the operator works with the Kubernetes API only; move the data first (netplugctl datastore migrate)"
)
_REMOVE: Final = "an Installation has no such setting; remove it, wait for the pods, and try again"
_AS_PUBLISHED: Final = "set it as the published manifest has it"

_ASSERTED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "CNI_CONF_NAME": ((DEFAULT_CONF_NAME,), f"the operator installs {DEFAULT_CONF_NAME}; use that name"),
    "DATASTORE_TYPE": (("kubernetes",), _MOVE_DATA),
    "NETPLUG_CNI_SERVICE_ACCOUNT": (("netplug-cni-plugin",), _AS_PUBLISHED),
    "NETPLUG_MANAGE_CNI": (("true",), "the node process of an operator renews the token; set it to true"),
    "REQUIRE_MTU_FILE": (("false",), _REMOVE),
    "SKIP_TLS_VERIFY": (("false",), "the operator's pods verify the API server; remove it"),
    "TEST_FILE_PERMISSION": (("0600", "600", "0o600"), _REMOVE),
    "UPDATE_CNI_BINARIES": (("true",), "the operator's installer updates the programs; remove it"),
}
"""Variables that have to be as they are in the manifests: the texts that are accepted, and what to do."""

_FIELDS: Final[Mapping[str, str]] = {
    "KUBERNETES_NODE_NAME": "spec.nodeName",
    "NAMESPACE": "metadata.namespace",
    "NODENAME": "spec.nodeName",
}
"""Variables that have to be fields of the pod."""

_IGNORED: Final = frozenset(
    {
        "CLUSTER_TYPE",  # says who has installed it
        "CNI_OLD_CONF_NAME",  # what an earlier upgrade has removed
        "NETPLUG_ENDPOINT_TO_HOST_ACTION",  # the operator's node process always has both
        "NETPLUG_POLICY",
        "NO_DEFAULT_POOLS",  # nothing makes pools but the operator
        "SLEEP",  # an init container of the operator ends
        "USE_POD_CIDR",  # follows from the IPAM
        "WAIT_FOR_DATASTORE",
    }
)
_TEMPLATE: Final = frozenset(
    {"CNI_MTU", "CNI_NETWORK_CONFIG", "LOG_FILE_MAX_AGE", "LOG_FILE_MAX_COUNT", "LOG_FILE_MAX_SIZE", "LOG_FILE_PATH",
     "LOG_LEVEL"}
)  # fmt: skip
"""Variables that are the template of the conflist or its placeholders: what they make of it is taken over."""

_TAKEN: Final = frozenset(
    {
        *_TEMPLATE, "CNI_BIN_DIR", "CNI_NET_DIR", "IP", "IP6", "IP6_AUTODETECTION_METHOD", "IP_AUTODETECTION_METHOD",
        "KUBECONFIG", "NETPLUG_API_GROUP", "NETPLUG_IPINIPMTU", "NETPLUG_NETWORKING_BACKEND", "NETPLUG_VXLANMTU",
        "SKIP_CNI_BINARIES",
    }
)  # fmt: skip
_FIXES: Final[Mapping[str, str]] = {
    "CNI_NETWORK_CONFIG_FILE": "put the template into the key cni_network_config of the ConfigMap netplug-config",
    "KUBERNETES_SERVICE_HOST": f"put it into the ConfigMap {ENDPOINT_CONFIG_MAP} of kube-system",
    "KUBERNETES_SERVICE_PORT": f"put it into the ConfigMap {ENDPOINT_CONFIG_MAP} of kube-system",
}

Json = Mapping[str, object]
Problems = Iterator[IncompatibleCluster]


@frozen(kw_only=True)
class StaticObjects:
    """The objects of a static manifest that settings are in; None if an object does not exist."""

    daemonset: Json
    config_map: Json | None = None
    controllers: Json | None = None


@frozen(kw_only=True)
class StaticPod:
    """What is read of the DaemonSet. ``variables`` are the fixed ones of both containers, without empty ones."""

    variables: Mapping[str, str]
    bin_dir: str
    conf_dir: str
    registry: str
    image_path: str
    image_prefix: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    requests: tuple[tuple[str, str], ...]
    limits: tuple[tuple[str, str], ...]
    max_unavailable: int | str
    max_surge: int | str


def read_static_pod(objects: StaticObjects) -> StaticPod:
    """What a DaemonSet without problems says; of one with problems, what can be read."""
    node = _container(objects.daemonset, NODE_ACCOUNT)
    found = _IMAGE.fullmatch(_text(node, "image"))
    image = {} if found is None else found.groupdict(default="")
    pod = _pod(objects.daemonset)
    update = find_member(objects.daemonset, "spec", "updateStrategy", "rollingUpdate")
    limits = update if isinstance(update, Mapping) else {}
    return StaticPod(
        variables=_variables(objects),
        bin_dir=_host_path(pod, "cni-bin-dir"),
        conf_dir=_host_path(pod, "cni-net-dir"),
        registry=_unless(image.get("registry", ""), DEFAULT_REGISTRY),
        image_path=_unless(image.get("path", ""), DEFAULT_IMAGE_PATH),
        image_prefix=image.get("prefix", ""),
        pull_policy=_text(node, "imagePullPolicy"),
        pull_secrets=tuple(_text(one, "name") for one in _items(pod, "imagePullSecrets")),
        requests=_texts(node, "resources", "requests"),
        limits=_texts(node, "resources", "limits"),
        max_unavailable=_number_or_text(limits.get("maxUnavailable"), 1),
        max_surge=_number_or_text(limits.get("maxSurge"), 0),
    )


def find_pod_problems(objects: StaticObjects, api_group: str) -> Problems:
    """What an Installation cannot take over. ``api_group`` is as in ``render_conflist``."""
    yield from _object_problems(objects.daemonset)
    yield from _scheduling_problems(objects.daemonset)
    yield from _container_problems(objects.daemonset)
    yield from _setting_problems(objects.daemonset)
    for container in _containers(objects.daemonset):
        yield from _variable_problems(container, objects.config_map, api_group)
    yield from _path_problems(objects)
    if objects.controllers is not None:
        yield from _controller_problems(objects.controllers, objects.config_map)


def shown(name: str, value: object) -> object:
    """The value of a setting as a message may show it; not if its name says that it may be a secret."""
    return "…" if _SECRET.search(name) else value


# --- problems --------------------------------------------------------------------------------------------------------


def _object_problems(daemonset: Json) -> Problems:
    mode = find_member(daemonset, "metadata", "labels", _ADDON_LABEL)
    if mode is not None:
        fix = "the addon manager would make it again; take it out of that folder first, and remove the label"
        yield _problem(f"metadata.labels[{_ADDON_LABEL}]", mode, fix)
    for path in (("metadata",), ("spec", "template", "metadata")):
        for name, value in _texts(daemonset, *path, "annotations"):
            if name not in _ANNOTATIONS:
                yield _problem(f"{'.'.join(path)}.annotations[{name}]", value, "remove it if it may go")
    kind = find_member(daemonset, "spec", "updateStrategy", "type")
    if kind not in (None, "RollingUpdate"):
        yield _problem("spec.updateStrategy.type", kind, "the operator updates by RollingUpdate; set it")


def _scheduling_problems(daemonset: Json) -> Problems:
    pod, everywhere = _pod(daemonset), "the operator's pods run on every Linux node"
    if find_member(pod, "affinity"):
        yield _problem("affinity", find_member(pod, "affinity"), f"{everywhere}; remove it")
    selector = find_member(pod, "nodeSelector")
    if selector not in (None, {}, {"kubernetes.io/os": "linux"}):
        yield _problem("nodeSelector", selector, f"{everywhere}; set kubernetes.io/os: linux only")
    tolerations = _items(pod, "tolerations")
    if {"operator": "Exists"} not in tolerations:
        yield _problem("tolerations", list(tolerations), f"{everywhere}; add operator: Exists")


def _container_problems(daemonset: Json) -> Problems:
    names = [_text(container, "name") for container in _containers(daemonset)]
    for name in names:
        if "flannel" in name:
            yield _problem(
                "containers", name, "netplug with flannel cannot be converted; the nodes need another network"
            )
        elif name not in (NODE_ACCOUNT, _INSTALLER):
            yield _problem("containers", name, _REMOVE)
    for name in (NODE_ACCOUNT, _INSTALLER):
        if name not in names:
            yield _problem("containers", None, f"a container {name} is expected, as the published manifest has it")
    for volume in _items(_pod(daemonset), "volumes"):
        if _text(volume, "name") not in ("host-root", "cni-bin-dir", "cni-net-dir"):
            yield _problem("volumes", _text(volume, "name"), _REMOVE)


def _setting_problems(daemonset: Json) -> Problems:
    args = find_member(_container(daemonset, NODE_ACCOUNT), "args")
    if args not in (None, ["--host-root=/host", "--metrics-port=9470"]):
        yield _problem("args", args, _AS_PUBLISHED)
    for container in _containers(daemonset):
        if not _IMAGE.fullmatch(_text(container, "image")):
            fix = f"the operator needs an image REGISTRY/PATH/PREFIX{NODE_IMAGE}; push it under such a name"
            yield _problem(f"{_text(container, 'name')}.image", _text(container, "image"), fix)
    if find_member(_container(daemonset, _INSTALLER), "resources"):
        found = find_member(_container(daemonset, _INSTALLER), "resources")
        yield _problem(f"{_INSTALLER}.resources", found, _REMOVE)


def _variable_problems(container: Json, config_map: Json | None, api_group: str) -> Problems:
    where = _text(container, "name")
    for source in _items(container, "envFrom"):
        if _text(source, "configMapRef", "name") != ENDPOINT_CONFIG_MAP:
            yield _problem(f"{where}.envFrom", source, _REMOVE)
    for variable in _items(container, "env"):
        name, text, path = _text(variable, "name"), _value(variable, config_map), _field_path(variable)
        label = f"{where}.env.{name}"
        if name in _FIELDS:
            if path != _FIELDS[name]:
                yield _problem(label, text if text is not None else path, f"the field {_FIELDS[name]} is expected")
        elif text is None:
            yield _problem(label, find_member(variable, "valueFrom"), "a text, or a key of netplug-config, is expected")
        elif text:
            yield from _text_problems(label, name, text, api_group)


def _text_problems(label: str, name: str, text: str, api_group: str) -> Problems:
    accepted, fix = _ASSERTED.get(name, ((text,), ""))
    groups = (API_VERSION,) if api_group else ("crd.projectnetplug.org/v1",)
    if text not in accepted:
        yield _problem(label, shown(name, text), fix)
    elif name == "NETPLUG_API_GROUP" and text not in groups:
        yield _problem(label, text, f"the cluster has {groups[0]}")
    elif name == "NETPLUG_NETWORKING_BACKEND" and text not in ("bird", "vxlan", "none"):
        yield _problem(label, text, "bird, vxlan or none is expected")
    elif name == "SKIP_CNI_BINARIES" and set(text.split(",")) != set(HELPER_PLUGINS):
        yield _problem(label, text, f"all of {','.join(HELPER_PLUGINS)}, or none, can be left out")
    elif name.startswith("ETCD_"):
        yield _problem(label, shown(name, text), _MOVE_DATA)
    elif name not in _ASSERTED and name not in _IGNORED and name not in _TAKEN:
        yield _problem(label, shown(name, text), _FIXES.get(name, _REMOVE))


def _path_problems(objects: StaticObjects) -> Problems:
    pod = _pod(objects.daemonset)
    programs, folder = _host_path(pod, "cni-bin-dir"), _host_path(pod, "cni-net-dir")
    expected_of = (
        ("CNI_BIN_DIR", "cni-bin-dir", programs),
        ("CNI_NET_DIR", "cni-net-dir", folder),
        ("KUBECONFIG", "cni-net-dir", f"{folder}/{FILE_NAME}"),
    )
    if _host_path(pod, "host-root") != "/":
        yield _problem("volumes.host-root", _host_path(pod, "host-root"), _AS_PUBLISHED)
    for container in _containers(objects.daemonset):
        variables = _fixed(container, objects.config_map)
        for name, volume, expected in expected_of:
            if variables.get(name, expected) != expected:
                fix = f"{expected} is expected, because of the volume {volume}"
                yield _problem(f"{_text(container, 'name')}.env.{name}", variables[name], fix)


def _controller_problems(deployment: Json, config_map: Json | None) -> Problems:
    for container in _items(find_member(deployment, "spec", "template", "spec"), "containers"):
        variables = _fixed(container, config_map)
        for name, accepted in (
            ("ENABLED_CONTROLLERS", ("node", "node,loadbalancer")),
            ("AUTO_HOST_ENDPOINTS", ("disabled",)),
        ):
            text = variables.get(name, "")
            if text and text not in accepted:
                fix = f"{' or '.join(accepted)} is expected: nothing else can be taken over"
                yield IncompatibleCluster(_CONTROLLERS, text, fix, f"{_text(container, 'name')}.env.{name}")


def _problem(field: str, value: object, fix: str) -> IncompatibleCluster:
    return IncompatibleCluster(STATIC_DAEMONSET, value, fix, field)


# --- reading ---------------------------------------------------------------------------------------------------------


def _variables(objects: StaticObjects) -> dict[str, str]:
    found: dict[str, str] = {}
    for container in _containers(objects.daemonset):
        found |= _fixed(container, objects.config_map)
    return found


def _fixed(container: Json, config_map: Json | None) -> dict[str, str]:
    """The variables of a container that have a text."""
    pairs = ((_text(one, "name"), _value(one, config_map)) for one in _items(container, "env"))
    return {name: text for name, text in pairs if text}


def _value(variable: Json, config_map: Json | None) -> str | None:
    """The text of a variable; None if it is not fixed. One without a value is empty."""
    if find_member(variable, "valueFrom") is None:
        return _text(variable, "value")
    name, key = (_text(variable, "valueFrom", "configMapKeyRef", member) for member in ("name", "key"))
    if config_map is None or not key or name != _text(config_map, "metadata", "name"):
        return None
    found = find_member(config_map, "data", key)
    return found if isinstance(found, str) else None


def _field_path(variable: Json) -> str:
    return _text(variable, "valueFrom", "fieldRef", "fieldPath")


def _pod(daemonset: Json) -> Json:
    return find_object(daemonset, "spec", "template", "spec")


def _containers(daemonset: Json) -> list[Json]:
    """All but the one that imports what another IPAM held: the operator's nodes were set up before."""
    pod = _pod(daemonset)
    every = (*_items(pod, "initContainers"), *_items(pod, "containers"))
    return [one for one in every if _text(one, "name") != IMPORTER]


def _container(daemonset: Json, name: str) -> Json:
    return next((one for one in _containers(daemonset) if _text(one, "name") == name), {})


def _host_path(pod: Json, name: str) -> str:
    volume = next((one for one in _items(pod, "volumes") if _text(one, "name") == name), {})
    return _text(volume, "hostPath", "path")


def _items(found: object, *path: str) -> Sequence[Json]:
    value = find_member(found, *path) if isinstance(found, Mapping) else None
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else ()


def _texts(found: Json, *path: str) -> tuple[tuple[str, str], ...]:
    value = find_member(found, *path)
    pairs = value.items() if isinstance(value, Mapping) else ()
    return tuple(sorted((str(name), str(text)) for name, text in pairs))


def _text(found: Json, *path: str) -> str:
    value = find_member(found, *path)
    return value if isinstance(value, str) else ""


def _number_or_text(value: object, otherwise: int) -> int | str:
    return value if isinstance(value, int | str) else otherwise


def _unless(text: str, default: str) -> str:
    return "" if text == default else text


# --- static conflist -------------------------------------------------------------------------------------------------


CONFLIST: Final = "ConfigMap kube-system/netplug-config, cni_network_config"
"""The conflist of a static manifest, as messages name it."""

_NODE: Final = "node-of-the-pod"
"""Stands for the name of the node, which differs from node to node."""

_PORTMAP: Final = {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}}
_LEVELS: Final = {
    "error": LogSeverity.ERROR,
    "warning": LogSeverity.WARN,
    "info": LogSeverity.INFO,
    "debug": LogSeverity.DEBUG,
}
_SUBNETS: Final = {"usePodCidr": Family.IPV4, "usePodCidrIPv6": Family.IPV6}
_FEATURES: Final = ("ip_addrs_no_ipam", "floating_ips", "allowed_source_prefixes")
_REMOVE_KEY: Final = "an Installation has no such setting; remove it, restart the pods, and try again"
_BY_POOL: Final = "choose pools by their nodeSelector, or by an annotation of namespaces, and remove it"
_KEY_FIXES: Final = {"ipam.ipv4_pools": _BY_POOL, "ipam.ipv6_pools": _BY_POOL, "ipam.subnet": _BY_POOL}

_MEMBERS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "log_level": str,
    "log_file_max_size": int,
    "log_file_max_age": int,
    "log_file_max_count": int,
    "mtu": int,
    "policy_setup_timeout_seconds": int,
    "policy_guard": bool,  # the operator's plugin always has it
    "nodename_file_optional": bool,  # the operator's plugin always needs the file
    "container_settings.allow_ip_forwarding": bool,
    "readiness_gates": list,
    "ipam.type": str,
    "ipam.assign_ipv4": str,
    "ipam.assign_ipv6": str,
    **{f"feature_control.{name}": bool for name in _FEATURES},
}
"""Members that are taken over, or do not matter, and their types."""


@frozen(kw_only=True)
class StaticConflist:
    """A conflist with its values. ``members`` are those of the first plugin, by their paths with dots."""

    name: object
    cni_version: object
    members: Mapping[str, object] = field(hash=False)
    others: tuple[Json, ...] = field(hash=False)
    conf_dir: str

    @property
    def families(self) -> frozenset[Family]:
        """The families of addresses that pods get from pools."""
        four, six = (self.members.get(f"ipam.assign_ipv{family.value}") for family in Family)
        return frozenset({Family.IPV4} if four != "false" else ()) | ({Family.IPV6} if six == "true" else frozenset())


def read_static_conflist(variables: Mapping[str, str]) -> StaticConflist:
    """The conflist that the installer makes with its variables.

    Raises:
        ConfigurationError: a variable, or the template, is not accepted by the installer.
    """
    settings = evolve(read_installer_settings(variables), node_name=_NODE)
    filled = fill_conflist(settings.template, CONFLIST, settings, HostFacts(host_name=_NODE))
    found: object = json.loads(filled.text)
    whole = found if isinstance(found, Mapping) else {}
    plugins = [one for one in _list(whole.get("plugins")) if isinstance(one, Mapping)]
    return StaticConflist(
        name=whole.get("name"),
        cni_version=whole.get("cniVersion"),
        members=dict(_leaves(plugins[0] if plugins else {}, "")),
        others=tuple(plugins[1:]),
        conf_dir=settings.net_dir,
    )


def find_conflist_problems(conflist: StaticConflist, api_group: str, pool_families: frozenset[Family]) -> Problems:
    """What an Installation cannot take over. ``pool_families`` are those of the pools that serve pods."""
    if conflist.name != NETWORK_NAME:
        yield _conflist_problem(
            "name", conflist.name, f"the operator's network is {NETWORK_NAME}; addresses are held under it"
        )
    if conflist.cni_version not in {version.value for version in SpecVersion}:
        yield _conflist_problem("cniVersion", conflist.cni_version, "0.3.1, 0.4.0 or 1.0.0 is expected")
    asserted = _asserted(conflist.conf_dir, api_group)
    for path, value in conflist.members.items():
        if path in asserted:
            accepted, fix = asserted[path]
            if value not in accepted:
                yield _conflist_problem(path, shown(path, value), fix)
        elif path in _MEMBERS:
            if not isinstance(value, _MEMBERS[path]) or (_MEMBERS[path] is int and isinstance(value, bool)):
                yield _conflist_problem(path, value, "a value of another type is expected")
        elif not _is_host_local_range(conflist, path):
            yield _conflist_problem(path, shown(path, value), _KEY_FIXES.get(path, _REMOVE_KEY))
    yield from _value_problems(conflist)
    yield from _ipam_problems(conflist, pool_families)
    yield from _chain_problems(conflist)


def read_conflist_settings(conflist: StaticConflist) -> InstallationSpec:
    """What a conflist without problems says, in the fields of an Installation. An MTU of 0 is left out."""
    found = conflist.members
    size, age, count = (_number(found.get(f"log_file_max_{name}")) for name in ("size", "age", "count"))
    severity = _LEVELS.get(str(found.get("log_level", "info")).lower())
    log = LogSettings(
        severity=None if severity is LogSeverity.INFO else severity,
        max_size=f"{size}Mi" if size else "",
        max_age_days=age or None,
        max_count=count or None,
    )
    version = next((one for one in SpecVersion if one.value == conflist.cni_version), None)
    ipam = "HostLocal" if found.get("ipam.type") == "host-local" else "Netplug"
    forwarding = found.get("container_settings.allow_ip_forwarding") is True
    network = NetworkSettings(
        cni=CNISettings(
            type="Netplug",
            ipam=IPAMSettings(type=ipam),
            spec_version=None if version is SpecVersion.V1_0_0 else version,
        ),
        policy_setup_timeout_s=_number(found.get("policy_setup_timeout_seconds")) or None,
        mtu=_number(found.get("mtu")) or None,
        host_ports=Switch.ENABLED if _PORTMAP in conflist.others else Switch.DISABLED,
        container_ip_forwarding=Switch.ENABLED if forwarding else None,
        pod_interface_type=PodInterfaceType.NETKIT if found.get("device_type") == "netkit" else None,
        sysctls=tuple(
            Sysctl(key=key, value=str(value)) for one in conflist.others for key, value in _sysctls(one).items()
        ),
        features=CNIFeatures(
            **{name: Switch.ENABLED for name in _FEATURES if found.get(f"feature_control.{name}") is True}
        ),
        readiness_gates=tuple(map(str, _list(found.get("readiness_gates")))),
    )
    return InstallationSpec(network=network, logging=Logging(cni=log))


# --- problems --------------------------------------------------------------------------------------------------------


def _asserted(conf_dir: str, api_group: str) -> dict[str, tuple[tuple[object, ...], str]]:
    """Members that have to be as the operator renders them: what is accepted, and what to do."""
    groups = (API_VERSION,) if api_group else ("", "crd.projectnetplug.org/v1")
    kubeconfig = f"{conf_dir}/{FILE_NAME}"
    return {
        "type": (("netplug",), "netplug is expected; a cluster with flannel's plugin cannot be converted"),
        "datastore_type": (
            ("kubernetes",),
            "the operator works with the Kubernetes API only; move the data first (netplugctl datastore migrate)",
        ),
        "netplug_api_group": (groups, f"the cluster has {groups[-1]}"),
        "nodename": ((_NODE,), "__KUBERNETES_NODE_NAME__ is expected"),
        "policy.type": (("k8s",), "k8s is expected"),
        "kubernetes.kubeconfig": ((kubeconfig,), "__KUBECONFIG_FILEPATH__ is expected"),
        "log_file_path": ((LOG_FILE,), f"the operator's log is {LOG_FILE}; set that"),
        "endpoint_status_dir": ((ENDPOINT_STATUS_DIR,), f"{ENDPOINT_STATUS_DIR} is expected"),
        "device_type": (("", "veth", "netkit"), "veth or netkit is expected"),
    }


def _value_problems(conflist: StaticConflist) -> Problems:
    if "datastore_type" not in conflist.members:
        fix = "without it the datastore is an etcd, and the operator works with the Kubernetes API only"
        yield _conflist_problem("datastore_type", None, f"{fix}; move the data first (netplugctl datastore migrate)")
    level = conflist.members.get("log_level", "info")
    if str(level).lower() not in _LEVELS:
        yield _conflist_problem("log_level", level, "ERROR, WARNING, INFO or DEBUG is expected")
    for family in Family:
        path = f"ipam.assign_ipv{family.value}"
        if conflist.members.get(path, "") not in ("", "true", "false"):
            yield _conflist_problem(path, conflist.members[path], "true or false, as a text, is expected")


def _ipam_problems(conflist: StaticConflist, pool_families: frozenset[Family]) -> Problems:
    kind = conflist.members.get("ipam.type")
    if kind == "host-local":
        names, wanted = _subnets(conflist.members), pool_families or {Family.IPV4}
        if [_SUBNETS.get(str(name)) for name in names] != [family for family in Family if family in wanted]:
            fix = "the operator renders usePodCidr with an IPv4 pool, and usePodCidrIPv6 with an IPv6 pool"
            yield _conflist_problem("ipam", names, fix)
    elif kind == "netplug-ipam":
        for family in sorted(pool_families - conflist.families, key=lambda family: family.value):
            fix = f"the cluster has an {family} pool, from which the operator's plugin assigns; disable it, or set true"
            yield _conflist_problem(f"ipam.assign_ipv{family.value}", "false", fix)
        for family in sorted(conflist.families - pool_families, key=lambda family: family.value):
            path = f"ipam.assign_ipv{family.value}"
            if pool_families and conflist.members.get(path) == "true":
                yield _conflist_problem(
                    path, "true", f"the cluster has no {family} pool that serves pods; create one, or set false"
                )
    else:
        yield _conflist_problem("ipam.type", kind, "netplug-ipam or host-local is expected")


def _chain_problems(conflist: StaticConflist) -> Problems:
    for position, plugin in enumerate(conflist.others, 1):
        where, kind = f"plugins[{position}]", plugin.get("type")
        if kind == "tuning":
            extra = sorted({*plugin} - {"type", "sysctl"} | ({*_sysctls(plugin)} - {*SYSCTLS}))
            if extra:
                yield _conflist_problem(where, ", ".join(extra), f"of tuning, {', '.join(SYSCTLS)} can be taken over")
        elif plugin != _PORTMAP:
            fix = "portmap with snat and portMappings, and tuning, can be taken over; remove it"
            yield _conflist_problem(where, kind if kind != "portmap" else plugin, fix)


def _is_host_local_range(conflist: StaticConflist, path: str) -> bool:
    return conflist.members.get("ipam.type") == "host-local" and path in ("ipam.subnet", "ipam.ranges")


def _conflist_problem(path: str, value: object, fix: str) -> IncompatibleCluster:
    return IncompatibleCluster(CONFLIST, value, fix, path)


# --- reading ---------------------------------------------------------------------------------------------------------


def _leaves(members: Json, above: str) -> Iterator[tuple[str, object]]:
    """Each value that is no object, by its path; an empty object sets nothing."""
    for name, value in members.items():
        path = f"{above}.{name}".removeprefix(".")
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        else:
            yield path, value


def _subnets(members: Mapping[str, object]) -> list[object]:
    """The subnets of host-local in their order: one, or one of each range."""
    if "ipam.subnet" in members:
        return [members["ipam.subnet"]]
    ranges = _list(members.get("ipam.ranges"))
    return [find_member(one, "subnet") for group in ranges for one in _list(group) if isinstance(one, Mapping)]


def _sysctls(plugin: Json) -> Json:
    found = plugin.get("sysctl") if plugin.get("type") == "tuning" else None
    return found if isinstance(found, Mapping) else {}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
