"""Definitions, accounts and policies that are shipped as manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from netplug_backends.kubernetes.client.apiclient import Json
from netplug_backends.kubernetes.kinds.schemas import SCHEMAS
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family
from netplug_core.installation.components import ComponentKind, component_schema, installation_schema
from netplug_core.installation.controllers import CONTROLLERS_NAME, LEASE_NAMESPACE
from netplug_core.installation.daemonset import NODE_ACCOUNT, SYSTEM_NAMESPACE
from netplug_core.installation.static import STATIC_NAMESPACE, Method, render_static
from netplug_core.operator.report import CONDITIONS
from netplug_core.operator.state import CONTROLLERS_LEASE_REF, ClusterMode, ObjectRef, Shipped
from netplug_core.operator.status import STATUS_CONDITIONS, STATUS_KIND, component_status_schema
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.resources.installation import INSTALLATION_API_VERSION, INSTALLATION_KIND, OPERATOR_GROUP
from netplug_core.resources.ippool import IPPOOL, AllowedUse, AssignmentMode, Encapsulation

__all__ = [
    "ADMISSION_GROUP", "ALLOW_DELETION", "MUTATING_KIND", "MUTATING_VERSIONS", "admission_objects", "controllers_role",
    "definitions", "etcd_plugin_role", "flannel_role", "lease_object", "node_role", "operator_definitions",
    "plugin_role", "protection_objects", "shipped_objects", "static_manifest",
]  # fmt: skip


# --- manifests -------------------------------------------------------------------------------------------------------


# --- manifests -------------------------------------------------------------------------------------------------------


_PLUGIN_ACCOUNT = "netplug-cni-plugin"
_COLLECTED = ("BlockAffinity", "IPAMBlock", "IPAMHandle")

_RBAC = "rbac.authorization.k8s.io"

# What the network of a node follows from, beside nodes.
_FOLLOWED = ("BGPConfiguration", "BGPFilter", "BGPPeer", "IPPool", "NodeConfiguration")

# What packets pass follows from, beside pods, namespaces, service accounts and the policies of Kubernetes.
_OF_POLICY = ("GlobalNetworkPolicy", "GlobalNetworkSet", "HostEndpoint", "NetworkPolicy", "NetworkSet")

# The columns that `kubectl get` shows for a kind beside its name: title, type and path.
_COLUMNS = {
    "BGPConfiguration": (
        ("Mesh", "boolean", ".spec.nodeToNodeMeshEnabled"),
        ("AS", "integer", ".spec.asNumber"),
    ),
    "BGPPeer": (("Peer", "string", ".spec.peerIP"), ("AS", "integer", ".spec.asNumber")),
    "BlockAffinity": (("Node", "string", ".spec.node"), ("State", "string", ".spec.state")),
    "ClusterInformation": (("Version", "string", ".spec.netplugVersion"), ("Ready", "boolean", ".spec.datastoreReady")),
    "GlobalNetworkPolicy": (("Order", "number", ".spec.order"), ("Selector", "string", ".spec.selector")),
    "HostEndpoint": (("Node", "string", ".spec.node"), ("Interface", "string", ".spec.interfaceName")),
    "IPAMBlock": (("CIDR", "string", ".spec.cidr"), ("Affinity", "string", ".spec.affinity")),
    "IPPool": (("CIDR", "string", ".spec.cidr"), ("Selector", "string", ".spec.nodeSelector")),
    "NetworkPolicy": (("Order", "number", ".spec.order"), ("Selector", "string", ".spec.selector")),
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
        yield plural, _definition(group, plural, kind, served, is_namespaced=mapping.is_namespaced)


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


def _definition(group: str, plural: str, kind: str, served: Json, *, is_namespaced: bool = False) -> Json:
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
            "scope": "Namespaced" if is_namespaced else "Cluster",
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
    yield from controllers_role(STATIC_NAMESPACE, copies=method.has_etcd)
    if method is Method.KDD_FLANNEL:
        yield from flannel_role(STATIC_NAMESPACE)
    yield from render_static(method, version=version)
    yield lease_object(CONTROLLERS_LEASE_REF)


def lease_object(ref: ObjectRef) -> Json:
    """A Lease without a holder, so that it goes with its manifest.

    It is the last object: as those before it go first, no process may then make it again.
    """
    metadata = {"name": ref.name, "namespace": ref.namespace}
    return {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata}


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
    """The node process's account with its own rights: the plugin's token, the release, the node's network, Events.

    Everything else it does with the plugin's account, whose kubeconfig is on the host. Where the datastore is an etcd,
    release and addresses are stored there.
    """
    rules = [_rule([""], ["events"], ["create", "get", "update"])]
    if stores_release:
        rules = [
            _rule(_groups(), _plurals("ClusterInformation"), ["create", "get", "update"]),
            *rules,
            # The addresses are annotations of the node; another node may have one of them already.
            _rule([""], ["nodes"], ["get", "list", "watch"]),
            _rule([""], ["nodes/status"], ["patch", "update"]),
            _rule([""], ["pods"], ["list", "watch"]),  # of the node itself: floating addresses are annotations of pods
            _rule(_groups(), _plurals(*_FOLLOWED), ["get", "list", "watch"]),
            _rule(_groups(), _plurals(*_OF_POLICY), ["get", "list", "watch"]),
            _rule([""], ["namespaces", "serviceaccounts"], ["get", "list", "watch"]),
            _rule(["networking.k8s.io"], ["networkpolicies"], ["get", "list", "watch"]),
            # Routes follow from the blocks of all nodes, and the addresses of the node's tunnels come from its own.
            _rule(
                _groups(),
                _plurals("BlockAffinity", "IPAMBlock"),
                ["create", "delete", "get", "list", "update", "watch"],
            ),
            _rule(_groups(), _plurals("IPAMHandle"), ["create", "delete", "get", "update"]),
            _rule(_groups(), _plurals("IPAMConfiguration", "IPReservation"), ["get", "list"]),
        ]
    token = {**_rule([""], ["serviceaccounts/token"], ["create"]), "resourceNames": [_PLUGIN_ACCOUNT]}
    passwords = _rule([""], ["secrets"], ["get"])  # of BGP sessions
    metadata, api = {"name": NODE_ACCOUNT, "namespace": namespace}, f"{_RBAC}/v1"
    return (
        _account(NODE_ACCOUNT, namespace),
        {"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": [token, passwords]},
        {
            "apiVersion": api,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": NODE_ACCOUNT},
            "subjects": [_subject(NODE_ACCOUNT, namespace)],
        },
        *_cluster_role(NODE_ACCOUNT, NODE_ACCOUNT, namespace, rules),
    )


def controllers_role(namespace: str = SYSTEM_NAMESPACE, *, copies: bool = False) -> tuple[Json, ...]:
    """The account of the controllers with the rights that they need on the Kubernetes datastore.

    With ``copies`` those beside an etcd, to which they copy, and which has everything else.
    """
    read = ["get", "list", "watch"]
    rules = [
        _rule([""], ["namespaces", "nodes", "pods", "serviceaccounts"], read),
        _rule(["networking.k8s.io"], ["networkpolicies"], read),
    ]
    if not copies:
        rules = _controllers_rules()
    group, name = "coordination.k8s.io", CONTROLLERS_NAME
    own = {**_rule([group], ["leases"], ["get", "update"]), "resourceNames": [name]}
    lease = [_rule([group], ["leases"], ["create"]), own]
    metadata, api = {"name": name, "namespace": LEASE_NAMESPACE}, f"{_RBAC}/v1"
    return (
        _account(name, namespace),
        *_cluster_role(name, name, namespace, rules),
        {"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": lease},
        {
            "apiVersion": api,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [_subject(name, namespace)],
        },
    )


def _controllers_rules() -> list[Json]:
    return [
        _rule([""], ["nodes"], ["get", "list", "watch"]),
        _rule([""], ["pods"], ["get", "list", "watch"]),
        _rule(_groups(), _plurals("HostEndpoint"), ["create", "delete", "list", "update", "watch"]),
        _rule(_groups(), _plurals("KubeControllersConfiguration"), ["create", "list", "update", "watch"]),
        _rule(_groups(), _plurals(*_COLLECTED), ["create", "delete", "get", "list", "update"]),
        _rule(_groups(), _plurals("IPPool"), ["list"]),
        _rule(_groups(), _plurals("ClusterInformation"), ["create", "get", "list", "update", "watch"]),
        _rule(_groups(), _plurals("IPAMConfiguration"), ["get"]),
    ]


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
        # The list is for endpoint names that were cut; the node process watches the pods of its node.
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


# --- admission -------------------------------------------------------------------------------------------------------


ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
MUTATING_KIND: Final = "MutatingAdmissionPolicy"
MUTATING_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
"""The versions of the API that may have mutating policies, the best first. Kubernetes has v1 since 1.36."""

ALLOW_DELETION: Final = "projectnetplug.org/allow-deletion"
"""The annotation of a definition that may be deleted, with every object of its kind; its text does not matter."""

_DEFINITIONS: Final = "netplug-definitions-kept"
_DEFAULTS: Final = "netplug-ippool-defaults"
_KEPT: Final = "netplug-clusterinformation-kept"
_LABELS: Final = {"app.kubernetes.io/part-of": "netplug"}


def admission_objects(version: str = MUTATING_VERSIONS[0]) -> Iterator[Json]:
    """The policies, each with its binding. ``version`` is that of the API for mutating policies."""
    yield _object(version, MUTATING_KIND, _DEFAULTS, _default_policy())
    yield _object(version, f"{MUTATING_KIND}Binding", _DEFAULTS, {"policyName": _DEFAULTS})
    yield _object("v1", "ValidatingAdmissionPolicy", _KEPT, _kept_policy())
    binding = {"policyName": _KEPT, "validationActions": ["Deny"]}
    yield _object("v1", "ValidatingAdmissionPolicyBinding", _KEPT, binding)


def protection_objects() -> Iterator[Json]:
    """The policy that refuses to delete definitions, with its binding.

    With a definition goes every object of its kind: pools, blocks and handles, while pods use their addresses. A file
    with everything of a release is deleted as easily as it is applied.
    """
    yield _object("v1", "ValidatingAdmissionPolicy", _DEFINITIONS, _definitions_policy())
    binding = {"policyName": _DEFINITIONS, "validationActions": ["Deny"]}
    yield _object("v1", "ValidatingAdmissionPolicyBinding", _DEFINITIONS, binding)


def _object(version: str, kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "labels": dict(_LABELS)}
    return {"apiVersion": f"{ADMISSION_GROUP}/{version}", "kind": kind, "metadata": metadata, "spec": spec}


def _default_policy() -> Json:
    """Writes the defaults of a pool. That of ``blockSize`` depends on the family, which a schema cannot say."""
    # A pool without a valid CIDR is left to the schema, which says what is wrong with it.
    has_cidr = "has(object.spec) && has(object.spec.cidr) && isCIDR(object.spec.cidr)"
    return {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": _matching(IPPOOL.name, "CREATE", "UPDATE"),
        "matchConditions": [{"name": "has-a-cidr", "expression": has_cidr}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _defaults()}}],  # a list cannot be applied
    }


def _definitions_policy() -> Json:
    groups = sorted({*(mode.group for mode in CrdMode), OPERATOR_GROUP})
    listed = ", ".join(f"'{group}'" for group in groups)
    rule = {
        "apiGroups": ["apiextensions.k8s.io"],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": ["customresourcedefinitions"],
        "scope": "*",  # the default: a list that differs from the stored one would be a conflict of managers
    }
    allowed = f"has(oldObject.metadata.annotations) && '{ALLOW_DELETION}' in oldObject.metadata.annotations"
    text = (
        "'with this definition every ' + oldObject.spec.names.kind + ' would be deleted; if that is meant: "
        f"kubectl annotate customresourcedefinition ' + oldObject.metadata.name + ' {ALLOW_DELETION}=true'"
    )
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "of-netplug", "expression": f"oldObject.spec.group in [{listed}]"}],
        "validations": [{"expression": allowed, "messageExpression": text, "reason": "Forbidden"}],
    }


def _kept_policy() -> Json:
    """Refuses to delete the ClusterInformation: a locked datastore would be unlocked, and the cluster's id is in it."""
    text = "the ClusterInformation has the identity of the cluster and locks its datastore; it is not deleted"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": _matching(CLUSTER_INFORMATION.name, "DELETE"),
        "validations": [{"expression": "false", "message": text, "reason": "Forbidden"}],
    }


def _matching(kind: str, *operations: str) -> Json:
    group, _, version = CrdMode.V3.value.partition("/")
    rule = {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": [KIND_MAPPINGS[kind].plural[CrdMode.V3]],
    }
    return {"resourceRules": [rule]}


def _defaults() -> str:
    v4, v6 = (family.default_block_length for family in Family)
    uses = ", ".join(f"'{use.value}'" for use in (AllowedUse.WORKLOAD, AllowedUse.TUNNEL))
    members = {
        "blockSize": ("0", f"(cidr(object.spec.cidr).ip().family() == {Family.IPV4.value} ? {v4} : {v6})"),
        "allowedUses": ("[]", f"[{uses}]"),
        "nodeSelector": ("''", "'all()'"),
        "ipipMode": ("''", f"'{Encapsulation.NEVER.value}'"),
        "vxlanMode": ("''", f"'{Encapsulation.NEVER.value}'"),
        "assignmentMode": ("''", f"'{AssignmentMode.AUTOMATIC.value}'"),
    }
    patches = (
        f"JSONPatch{{op: 'add', path: '/spec/{name}', value: has(object.spec.{name}) && object.spec.{name} != {empty} "
        f"? object.spec.{name} : {default}}}"
        for name, (empty, default) in members.items()
    )
    return f"[{', '.join(patches)}]"


# --- shipped ---------------------------------------------------------------------------------------------------------


def shipped_objects() -> Shipped:
    """Accounts with their rights, definitions, and what keeps these."""
    return Shipped(
        node_accounts=node_role(),
        controllers_accounts=controllers_role(),
        plugin_accounts=plugin_role(),
        definitions={mode: dict(definitions(CrdMode[mode.name])) for mode in ClusterMode},
        operator_definitions=tuple(definition for _, definition in operator_definitions()),
        protection=tuple(protection_objects()),
    )
