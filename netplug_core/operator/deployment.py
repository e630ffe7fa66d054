"""The operator itself as objects of a cluster: namespace, account, rights, and the Deployment of its pod. Pure.

Published as a manifest (``make manifests``); the chart of the operator has the same objects. Each right is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from netplug_core.decoding.tables import find_member, find_text
from netplug_core.installation.components import COMPONENT_NAME
from netplug_core.installation.controllers import deployment_of
from netplug_core.installation.daemonset import endpoint_override, field_variable, health_probe
from netplug_core.installation.settings import DEFAULT_IMAGE_PATH, DEFAULT_REGISTRY, NODE_IMAGE
from netplug_core.operator.report import COMPONENT_REFS
from netplug_core.operator.state import (
    CONTROLLERS_LEASE_REF,
    LEASE,
    STATIC_BUDGET_REF,
    Json,
    ObjectRef,
    Shipped,
    installed_refs,
    ref_of,
)
from netplug_core.operator.status import Component, component_ref
from netplug_core.operator.takeover import OVERRIDE_REF, static_refs
from netplug_core.resources.installation import INSTALLATION_NAME, OPERATOR_GROUP

__all__ = [
    "HEALTH_PORT", "OPERATOR_LABEL", "OPERATOR_NAMESPACE", "default_image", "given_rules", "lease_rules",
    "operator_rules", "own_rules", "render_operator",
]  # fmt: skip


# --- its rights -------------------------------------------------------------------------------------------------------


_READ: Final = ("get", "list", "watch")
_POOLS: Final = "ippools"
_KEPT_GROUPS: Final = ("admissionregistration.k8s.io", "apiextensions.k8s.io")
_POOL_WRITES: Final = {
    _POOLS: ("create", "delete", "get", "list", "update", "watch"),
    "ipamblocks": ("delete", "get", "list", "update"),
    "blockaffinities": ("delete", "get", "list", "update"),
}
"""What it takes to make, change and delete a pool with its blocks, by the name of the resource."""


def operator_rules(shipped: Shipped, *, manages_definitions: bool) -> list[Json]:
    """The rules for the whole cluster."""
    return [*own_rules(shipped, manages_definitions=manages_definitions), *given_rules(shipped)]


def own_rules(shipped: Shipped, *, manages_definitions: bool) -> list[Json]:
    """The rules that its own requests need, but for the Lease."""
    definitions = [*shipped.protection, *shipped.operator_definitions]
    definitions += [found for mode in shipped.definitions.values() for found in mode.values()]
    refs = [
        *installed_refs(shipped),
        *(ref for ref in static_refs(shipped) if ref != STATIC_BUDGET_REF),
        OVERRIDE_REF,
        *(map(ref_of, definitions) if manages_definitions else ()),
    ]
    return [
        *_object_rules(refs),
        _rule([OPERATOR_GROUP], ["installations"], _READ),
        _rule([OPERATOR_GROUP], ["installations", "installations/status"], ["patch"], [INSTALLATION_NAME]),
        *_component_rules(),
        *_status_rules(),
        *_conversion_rules(),
        *_pool_rules(shipped),
        _rule([""], ["events"], ["create", "get", "update"]),
    ]


def given_rules(shipped: Shipped) -> Iterator[Json]:
    """The rules of the roles that the operator makes."""
    for account in shipped.accounts:
        rules = find_member(account, "rules")
        yield from rules if isinstance(rules, list) else ()


def lease_rules() -> list[Json]:
    """The rules for the namespace of the Leases: its own, and that of the controllers, which it takes away."""
    group, resource = _group_of(LEASE), LEASE.plural
    return [
        _rule([group], [resource], ["create"]),
        _rule([group], [resource], ["get", "update"], [LEASE.name]),
        _rule([group], [resource], ["delete", "get"], [CONTROLLERS_LEASE_REF.name]),
    ]


def _object_rules(refs: Iterable[ObjectRef]) -> Iterator[Json]:
    """Rules for the objects that the operator applies: of their kinds it reads all, and changes those alone.

    Definitions, and what protects them, are never deleted.
    """
    names = dict[tuple[str, str], set[str]]()
    for ref in refs:
        names.setdefault((_group_of(ref), ref.plural), set()).add(ref.name)
    for group in sorted({group for group, _ in names}):
        yield _rule([group], sorted(plural for of, plural in names if of == group), ["create", *_READ])
    for (group, plural), found in sorted(names.items()):
        verbs = ["patch"] if group in _KEPT_GROUPS else ["delete", "patch"]
        yield _rule([group], [plural], verbs, sorted(found))


def _component_rules() -> Iterator[Json]:
    """Rules for the kinds of which only the status is written."""
    plurals = sorted(ref.plural for ref in COMPONENT_REFS.values())
    yield _rule([OPERATOR_GROUP], plurals, _READ)
    yield _rule([OPERATOR_GROUP], [f"{plural}/status" for plural in plurals], ["patch"], [COMPONENT_NAME])


def _status_rules() -> Iterator[Json]:
    """Rules for the objects that say how a component is."""
    refs = [component_ref(component) for component in Component]
    plural, names = refs[0].plural, sorted(ref.name for ref in refs)
    yield _rule([OPERATOR_GROUP], [plural], ["create"])
    yield _rule([OPERATOR_GROUP], [plural], ["delete", "get", "patch"], names)
    yield _rule([OPERATOR_GROUP], [f"{plural}/status"], ["patch"], names)


def _conversion_rules() -> Iterator[Json]:
    """Rules for the conversion of a static manifest, besides its objects; a node shows the provider, too."""
    yield _rule([OPERATOR_GROUP], ["installations"], ["update"], [INSTALLATION_NAME])
    yield _rule([""], ["nodes"], ["list", "patch"])
    # Only a static manifest has one; it goes with the controllers of the manifest.
    yield _rule([_group_of(STATIC_BUDGET_REF)], [STATIC_BUDGET_REF.plural], ["delete", "get"], [STATIC_BUDGET_REF.name])


def _pool_rules(shipped: Shipped) -> Iterator[Json]:
    groups = sorted({find_text(mode[_POOLS], "spec", "group") for mode in shipped.definitions.values()})
    return (_rule(groups, [plural], verbs) for plural, verbs in _POOL_WRITES.items())


def _group_of(ref: ObjectRef) -> str:
    """The API group of an object; that of the core is the empty text."""
    return ref.api_version.rpartition("/")[0]


def _rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Json:
    rule: dict[str, object] = {"apiGroups": [*groups], "resources": [*resources]}
    if names:
        rule["resourceNames"] = [*names]
    return {**rule, "verbs": [*verbs]}


# --- its objects ------------------------------------------------------------------------------------------------------


OPERATOR_NAMESPACE: Final = "netplug-operator"
"""Its own: that of what it installs goes with the Installation."""

HEALTH_PORT: Final = 9471

OPERATOR_LABEL: Final = "netplug-operator"
"""The text of the label ``k8s-app`` of its pods."""

_NAME: Final = OPERATOR_LABEL
_LEASE_ROLE: Final = "netplug-operator-lease"
_RBAC: Final = "rbac.authorization.k8s.io"

_HAS_LOOKED_S: Final = 15


def default_image(version: str) -> str:
    """The image of a release, which has the operator too."""
    return f"{DEFAULT_REGISTRY}{DEFAULT_IMAGE_PATH}/{NODE_IMAGE}:v{version}"


def render_operator(shipped: Shipped, *, image: str, manages_definitions: bool = True) -> Iterator[Json]:
    """The objects in the order in which they are applied."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}  # the pod is in the network of its node
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE, "labels": labels}}
    metadata = {"name": _NAME, "namespace": OPERATOR_NAMESPACE}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    yield _role(_NAME, operator_rules(shipped, manages_definitions=manages_definitions))
    yield _role(_LEASE_ROLE, lease_rules())
    yield _binding("ClusterRoleBinding", {"name": _NAME}, _NAME)
    yield _binding("RoleBinding", {"name": _NAME, "namespace": LEASE.namespace}, _LEASE_ROLE)
    container = _container(image, manages_definitions=manages_definitions)
    yield deployment_of(_NAME, OPERATOR_NAMESPACE, container, port=HEALTH_PORT)


def _container(image: str, *, manages_definitions: bool) -> Json:
    return {
        "name": _NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["netplug-operator"],
        "args": [f"--manage-crds={str(manages_definitions).lower()}", f"--health-port={HEALTH_PORT}"],
        "env": [field_variable("NAMESPACE", "metadata.namespace"), field_variable("POD_NAME", "metadata.name")],
        **endpoint_override(),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        # Nor does this one ask before the operator has looked at the cluster once.
        "readinessProbe": {
            **health_probe("/readyz", HEALTH_PORT),
            "initialDelaySeconds": _HAS_LOOKED_S,
            "periodSeconds": 10,
        },
    }


def _role(name: str, rules: list[Json]) -> Json:
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def _binding(kind: str, metadata: Mapping[str, str], role: str) -> Json:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": _NAME, "namespace": OPERATOR_NAMESPACE}],
    }
