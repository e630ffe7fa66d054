"""The custom resource definitions and the RBAC objects that a cluster needs, made from this package's tables.

``make manifests`` writes them to ``netplug_cli/manifests``; a test compares those files with this module.
"""

from __future__ import annotations

from collections.abc import Iterator

from netplug_backends.kubernetes.client.messages import Json
from netplug_backends.kubernetes.kinds.schemas import SCHEMAS
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.installation.node_daemonset import NODE_ACCOUNT
from netplug_core.installation.schema import installation_schema
from netplug_core.resources.installation import INSTALLATION_API_VERSION, INSTALLATION_KIND

__all__ = ["SYSTEM_NAMESPACE", "definitions", "node_role", "operator_definitions", "plugin_role"]

SYSTEM_NAMESPACE = "netplug-system"
"""The namespace of netplug's own accounts and pods."""

_ACCOUNT = "netplug-cni-plugin"

_RBAC = "rbac.authorization.k8s.io"

# The columns that `kubectl get` shows for a kind beside its name: title, type and path.
_COLUMNS = {
    "BlockAffinity": (("Node", "string", ".spec.node"), ("State", "string", ".spec.state")),
    "ClusterInformation": (("Version", "string", ".spec.netplugVersion"), ("Ready", "boolean", ".spec.datastoreReady")),
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
    group, _, version = INSTALLATION_API_VERSION.partition("/")
    served: dict[str, object] = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": installation_schema()},
        "subresources": {"status": {}},
    }
    yield "installations", _definition(group, "installations", INSTALLATION_KIND, served)


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


def plugin_role() -> tuple[Json, ...]:
    """The CNI plugin's account with the rights that it needs; one role fits both API groups."""
    account: Json = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": SYSTEM_NAMESPACE}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _ACCOUNT}
    named, api = {"name": _ACCOUNT}, f"{_RBAC}/v1"
    metadata = {"name": _ACCOUNT, "namespace": SYSTEM_NAMESPACE}
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": api, "kind": "ClusterRole", "metadata": named, "rules": _plugin_rules()},
        _binding(api, named, reference, account),
    )


def node_role() -> tuple[Json, ...]:
    """The node process's account with its one right: to renew the token of the plugin.

    Everything else it does with the plugin's account, whose kubeconfig is on the host.
    """
    account: Json = {"kind": "ServiceAccount", "name": NODE_ACCOUNT, "namespace": SYSTEM_NAMESPACE}
    metadata, api = {"name": NODE_ACCOUNT, "namespace": SYSTEM_NAMESPACE}, f"{_RBAC}/v1"
    rule = {**_rule([""], ["serviceaccounts/token"], ["create"]), "resourceNames": [_ACCOUNT]}
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": api,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": NODE_ACCOUNT},
            "subjects": [account],
        },
    )


def _binding(api: str, named: Json, reference: Json, account: Json) -> Json:
    return {
        "apiVersion": api,
        "kind": "ClusterRoleBinding",
        "metadata": named,
        "roleRef": reference,
        "subjects": [account],
    }


def _plugin_rules() -> list[Json]:
    return [
        _rule([""], ["namespaces"], ["get", "list", "watch"]),  # the node process follows their annotations
        _rule([""], ["nodes"], ["get"]),
        _rule([""], ["pods"], ["get", "list"]),  # spec 4 and 5; the list is for endpoint names that were cut
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
