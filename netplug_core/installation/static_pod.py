"""The DaemonSet of a static manifest, perhaps edited by its users: what an Installation can take over of it. Pure.

Every variable of its containers, and every other setting that people edit, is taken over (``read_static_pod``), has to
be as the manifest has it, or does not matter. Everything else is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from netplug_core.decoding.tables import find_member, find_object
from netplug_core.installation.containers import ENDPOINT_CONFIG_MAP
from netplug_core.installation.images import DEFAULT_IMAGE_PATH, DEFAULT_REGISTRY, NODE_IMAGE
from netplug_core.installation.incompatible import IncompatibleCluster
from netplug_core.installation.installer_settings import DEFAULT_CONF_NAME
from netplug_core.installation.kubeconfig import FILE_NAME
from netplug_core.installation.node_daemonset import HELPER_PLUGINS, IMPORTER, NODE_ACCOUNT
from netplug_core.names import API_VERSION

__all__ = ["STATIC_DAEMONSET", "StaticObjects", "StaticPod", "find_pod_problems", "read_static_pod", "shown"]

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
        *_TEMPLATE, "CNI_NET_DIR", "IP", "IP6", "IP6_AUTODETECTION_METHOD", "IP_AUTODETECTION_METHOD", "KUBECONFIG",
        "NETPLUG_API_GROUP", "NETPLUG_IPINIPMTU", "NETPLUG_NETWORKING_BACKEND", "NETPLUG_VXLANMTU", "SKIP_CNI_BINARIES",
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
    folder = _host_path(pod, "cni-net-dir")
    if _host_path(pod, "host-root") != "/":
        yield _problem("volumes.host-root", _host_path(pod, "host-root"), _AS_PUBLISHED)
    for container in _containers(objects.daemonset):
        variables = _fixed(container, objects.config_map)
        for name, expected in (("CNI_NET_DIR", folder), ("KUBECONFIG", f"{folder}/{FILE_NAME}")):
            if variables.get(name, expected) != expected:
                fix = f"{expected} is expected, because of the volume cni-net-dir"
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
