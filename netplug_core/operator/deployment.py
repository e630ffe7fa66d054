"""The operator itself as objects of a cluster: namespace, account, rights, and the Deployment of its pod. Pure.

Published as a manifest (``make manifests``); the chart of the operator has the same objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from netplug_core.installation.containers import endpoint_override, field_variable, health_probe
from netplug_core.installation.images import DEFAULT_IMAGE_PATH, DEFAULT_REGISTRY, NODE_IMAGE
from netplug_core.operator.cluster import Shipped
from netplug_core.operator.lease import LEASE
from netplug_core.operator.objects import Json
from netplug_core.operator.rights import lease_rules, operator_rules

__all__ = ["HEALTH_PORT", "OPERATOR_LABEL", "OPERATOR_NAMESPACE", "default_image", "render_operator"]

OPERATOR_NAMESPACE: Final = "netplug-operator"
"""Its own: that of what it installs goes with the Installation."""

HEALTH_PORT: Final = 9471

OPERATOR_LABEL: Final = "netplug-operator"
"""The text of the label ``k8s-app`` of its pods."""

_NAME: Final = OPERATOR_LABEL
_LEASE_ROLE: Final = "netplug-operator-lease"
_RBAC: Final = "rbac.authorization.k8s.io"

# A stop lets the action that has begun finish, and then gives the Lease up.
_GRACE_S: Final = 45

_LISTENS_S: Final = 3
_HAS_LOOKED_S: Final = 15

_READ_ONLY_USER: Final = 65532
"""The user of the image, who owns no file in it."""


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
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**metadata, "labels": _labels()},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _labels()},
            # On a node a second pod would find the ports of the first one in use.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": _labels()},
                "spec": {**_pod_settings(), "containers": [_container(image, manages_definitions=manages_definitions)]},
            },
        },
    }


def _pod_settings() -> Json:
    """What the pod needs to run before nodes are ready: the operator is what makes them so.

    From a node that does not answer it moves, after the time that the cluster gives every pod.
    """
    return {
        "hostNetwork": True,
        "dnsPolicy": "Default",  # the DNS of the cluster needs the network of pods
        "serviceAccountName": _NAME,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": _GRACE_S,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"operator": "Exists", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _READ_ONLY_USER,
            "runAsGroup": _READ_ONLY_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _container(image: str, *, manages_definitions: bool) -> Json:
    return {
        "name": _NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["netplug-operator"],
        "args": [f"--manage-crds={str(manages_definitions).lower()}", f"--health-port={HEALTH_PORT}"],
        "env": [field_variable("NAMESPACE", "metadata.namespace"), field_variable("POD_NAME", "metadata.name")],
        **endpoint_override(),
        # Declared, so that no two pods come to the same node.
        "ports": [{"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        # A probe that fails is an Event. So none asks before the process listens, or has looked at the cluster once.
        "startupProbe": {
            **health_probe("/livez", HEALTH_PORT),
            "initialDelaySeconds": _LISTENS_S,
            "periodSeconds": 2,
            "failureThreshold": 60,
        },
        "readinessProbe": {
            **health_probe("/readyz", HEALTH_PORT),
            "initialDelaySeconds": _HAS_LOOKED_S,
            "periodSeconds": 10,
        },
        "livenessProbe": {**health_probe("/livez", HEALTH_PORT), "periodSeconds": 10, "failureThreshold": 6},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
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


def _labels() -> Json:
    """A new mapping each time: YAML would print the second one as a reference to the first."""
    return {"k8s-app": _NAME}
