"""The admission policies that come with the definitions of v3, where ``kubectl`` writes what the API server stores.

In v1 mode ``netplugctl`` writes, which fills in the defaults itself. Pure; ``make manifests`` writes the objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from netplug_backends.kubernetes.client.messages import Json
from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION
from netplug_core.resources.ippool import IPPOOL, AllowedUse, AssignmentMode, Encapsulation

__all__ = ["ADMISSION_GROUP", "MUTATING_KIND", "MUTATING_VERSIONS", "admission_objects"]

ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
MUTATING_KIND: Final = "MutatingAdmissionPolicy"
MUTATING_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
"""The versions of the API that may have mutating policies, the best first. Kubernetes has v1 since 1.36."""

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
