"""The custom resource definitions and the RBAC objects that a cluster needs, made from this package's tables.

With them, and what the core renders, whole manifests for a cluster without an operator.

``make manifests`` writes them to ``netplug_cli/manifests``; a test compares those files with this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netplug_backends.kubernetes.client.messages import Json
from netplug_backends.kubernetes.kinds.schemas import SCHEMAS
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.installation.components import component_schema
from netplug_core.installation.methods import Method
from netplug_core.installation.node_daemonset import NODE_ACCOUNT
from netplug_core.installation.render import SYSTEM_NAMESPACE
from netplug_core.installation.schema import installation_schema
from netplug_core.installation.static_manifest import STATIC_NAMESPACE, render_static
from netplug_core.operator.component_status import STATUS_CONDITIONS, STATUS_KIND, component_status_schema
from netplug_core.operator.conditions import CONDITIONS
from netplug_core.resources.components import ComponentKind
from netplug_core.resources.installation import INSTALLATION_API_VERSION, INSTALLATION_KIND

__all__ = [
    "definitions", "etcd_plugin_role", "flannel_role", "node_role", "operator_definitions", "plugin_role",
    "static_manifest",
]  # fmt: skip

_PLUGIN_ACCOUNT = "netplug-cni-plugin"

_RBAC = "rbac.authorization.k8s.io"

# The columns that `kubectl get` shows for a kind beside its name: title, type and path.
_COLUMNS = {
    "BGPConfiguration": (
        ("Mesh", "boolean", ".spec.nodeToNodeMeshEnabled"),
        ("AS", "integer", ".spec.asNumber"),
    ),
    "BGPPeer": (("Peer", "string", ".spec.peerIP"), ("AS", "integer", ".spec.asNumber")),
    "BlockAffinity": (("Node", "string", ".spec.node"), ("State", "string", ".spec.state")),
    "ClusterInformation": (("Version", "string", ".spec.netplugVersion"), ("Ready", "boolean", ".spec.datastoreReady")),
    "HostEndpoint": (("Node", "string", ".spec.node"), ("Interface", "string", ".spec.interfaceName")),
    "IPAMBlock": (("CIDR", "string", ".spec.cidr"), ("Affinity", "string", ".spec.affinity")),
    "IPPool": (("CIDR", "string", ".spec.cidr"), ("Selector", "string", ".spec.nodeSelector")),
}  # fmt: skip


def definitions(mode: CrdMode) -> Iterator[tuple[str, Json]]:
    """The custom resource definitions of an API group, each with its plural."""
    group, _, version = mode.value.partition("/")
    for name, mapping in sorted(KIND_MAPPINGS.items()):
        plural, kind = mapping.plural[mode], mapping.object_kind[mode]
        served: dict[str, object] = {
            "name": version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": SCHEMAS[name](mode)},
        }
        columns = _COLUMNS.get(name)
        if columns:
            age = ("Age", "date", ".metadata.creationTimestamp")
            served["additionalPrinterColumns"] = [
                {"name": title, "type": type_, "jsonPath": path} for title, type_, path in (*columns, age)
            ]
        yield plural, _definition(group, plural, kind, served)


def operator_definitions() -> Iterator[tuple[str, Json]]:
    """The custom resource definitions of the operator's API group, each with its plural."""
    yield _operator_definition("installations", INSTALLATION_KIND, installation_schema(), CONDITIONS)
    yield _operator_definition("netplugstatuses", STATUS_KIND, component_status_schema(), STATUS_CONDITIONS)
    for kind in ComponentKind:
        yield _operator_definition(f"{kind.value.lower()}s", kind.value, component_schema(kind), CONDITIONS)


def _operator_definition(plural: str, kind: str, schema: Json, conditions: Iterable[str]) -> tuple[str, Json]:
    group, _, version = INSTALLATION_API_VERSION.partition("/")
    served: dict[str, object] = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            *map(_condition_column, conditions),
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
    return plural, _definition(group, plural, kind, served)


def _condition_column(condition: str) -> Json:
    path = f'.status.conditions[?(@.type=="{condition}")].status'
    return {"name": condition, "type": "string", "jsonPath": path}


def _definition(group: str, plural: str, kind: str, served: Json) -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": {"app.kubernetes.io/part-of": "netplug"}},
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "categories": ["netplug"],
            },
            "scope": "Cluster",
            "versions": [served],
        },
    }


def static_manifest(method: Method, *, version: str) -> Iterator[Json]:
    """Everything that a static manifest installs, in the order in which it is applied."""
    if method.has_etcd:
        yield from etcd_plugin_role(STATIC_NAMESPACE)
    else:
        yield from (definition for _plural, definition in definitions(CrdMode.V1))
        yield from plugin_role(STATIC_NAMESPACE)
    yield from node_role(STATIC_NAMESPACE, stores_release=not method.has_etcd)
    if method is Method.KDD_FLANNEL:
        yield from flannel_role(STATIC_NAMESPACE)
    yield from render_static(method, version=version)


def plugin_role(namespace: str = SYSTEM_NAMESPACE) -> tuple[Json, ...]:
    """The CNI plugin's account with the rights that it needs; one role fits both API groups."""
    return (
        _account(_PLUGIN_ACCOUNT, namespace),
        *_cluster_role(_PLUGIN_ACCOUNT, _PLUGIN_ACCOUNT, namespace, _plugin_rules()),
    )


def etcd_plugin_role(namespace: str) -> tuple[Json, ...]:
    """The same with an etcd as the datastore: it only looks up what a pod, its namespace and its node say."""
    rules = [_rule([""], ["namespaces", "nodes", "pods"], ["get"])]
    return (_account(_PLUGIN_ACCOUNT, namespace), *_cluster_role(_PLUGIN_ACCOUNT, _PLUGIN_ACCOUNT, namespace, rules))


def node_role(namespace: str = SYSTEM_NAMESPACE, *, stores_release: bool = True) -> tuple[Json, ...]:
    """The node process's account with its own rights: to renew the token of the plugin, and to store the release.

    Everything else it does with the plugin's account, whose kubeconfig is on the host. Where the datastore is an etcd,
    the release is stored there.
    """
    rules = [_rule(_groups(), _plurals("ClusterInformation"), ["create", "get", "update"])]
    rule = {**_rule([""], ["serviceaccounts/token"], ["create"]), "resourceNames": [_PLUGIN_ACCOUNT]}
    metadata, api = {"name": NODE_ACCOUNT, "namespace": namespace}, f"{_RBAC}/v1"
    return (
        _account(NODE_ACCOUNT, namespace),
        {"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": api,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": NODE_ACCOUNT},
            "subjects": [_subject(NODE_ACCOUNT, namespace)],
        },
        *(_cluster_role(NODE_ACCOUNT, NODE_ACCOUNT, namespace, rules) if stores_release else ()),
    )


def flannel_role(namespace: str) -> tuple[Json, ...]:
    """What flannel needs of the API server, in the pods of the nodes: it follows them and notes their addresses."""
    rules = [_rule([""], ["nodes"], ["get", "list", "watch"]), _rule([""], ["nodes/status"], ["patch"])]
    return _cluster_role("netplug-flannel", NODE_ACCOUNT, namespace, rules)


def _account(name: str, namespace: str) -> Json:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def _subject(account: str, namespace: str) -> Json:
    return {"kind": "ServiceAccount", "name": account, "namespace": namespace}


def _cluster_role(name: str, account: str, namespace: str, rules: list[Json]) -> tuple[Json, Json]:
    api = f"{_RBAC}/v1"
    return (
        {"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": api,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [_subject(account, namespace)],
        },
    )


def _plugin_rules() -> list[Json]:
    return [
        _rule([""], ["namespaces"], ["get", "list", "watch"]),  # the node process follows their annotations
        _rule([""], ["nodes"], ["get"]),
        # Spec 4 and 5. The list is for endpoint names that were cut; the node process watches the pods of its node.
        _rule([""], ["pods"], ["get", "list", "watch"]),
        _rule([""], ["pods/status"], ["patch"]),  # the endpoint is stored in the pod's annotations
        _rule(_groups(), _plurals("BlockAffinity", "IPAMBlock"), ["create", "delete", "get", "list", "update"]),
        _rule(_groups(), _plurals("IPAMHandle"), ["create", "delete", "get", "update"]),
        # The node process, whose account it is too, follows what people change.
        _rule(_groups(), _plurals("ClusterInformation", "IPAMConfiguration"), ["get", "list", "watch"]),
        _rule(_groups(), _plurals("IPPool", "IPReservation"), ["list", "watch"]),
    ]


def _groups() -> list[str]:
    return sorted(mode.group for mode in CrdMode)


def _plurals(*names: str) -> list[str]:
    return sorted({KIND_MAPPINGS[name].plural[mode] for name in names for mode in CrdMode})


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Json:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}
