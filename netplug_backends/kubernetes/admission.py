"""The admission policies: one that keeps the definitions, and those that come with the definitions of v3.

With v3 ``kubectl`` writes what the API server stores. In v1 mode ``netplugctl`` writes, which fills in the defaults
itself. Pure; ``make manifests`` writes the objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from netplug_backends.kubernetes.client.messages import Json
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.resources.installation import OPERATOR_GROUP
from netplug_core.resources.ippool import IPPOOL, AllowedUse, AssignmentMode, Encapsulation

__all__ = [
    "ADMISSION_GROUP", "ALLOW_DELETION", "MUTATING_KIND", "MUTATING_VERSIONS", "admission_objects",
    "protection_objects",
]  # fmt: skip

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
