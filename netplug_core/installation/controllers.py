"""The pod of ``netplug-controllers`` on a Kubernetes cluster. Pure.

It is in the network of its node: when pods get no addresses any more, it is what frees some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from netplug_core.installation.daemonset import SYSTEM_NAMESPACE, endpoint_override, field_variable, health_probe

__all__ = ["CONTROLLERS_NAME", "CONTROLLERS_PORT", "LEASE_NAMESPACE", "render_controllers"]

Json = Mapping[str, object]

CONTROLLERS_NAME: Final = "netplug-kube-controllers"
"""The name of its account, its rights, its Deployment and its Lease."""

CONTROLLERS_PORT: Final = 9094
"""Where it answers probes and shows its metrics, at 127.0.0.1."""

LEASE_NAMESPACE: Final = "kube-system"
"""Where the Lease is: a namespace that every cluster has."""

_GRACE_S: Final = 45  # a stop lets the write that has begun finish, and then gives the Lease up
_LISTENS_S: Final = 3
_READ_ONLY_USER: Final = 65532
"""The user of the image, who owns no file in it."""


def render_controllers(image: str, *, namespace: str = SYSTEM_NAMESPACE) -> Json:
    """The Deployment, for the Kubernetes datastore."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": CONTROLLERS_NAME, "namespace": namespace, "labels": _labels()},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _labels()},
            # On a node a second pod would find the port of the first one in use.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": _labels()},
                "spec": {**_pod_settings(), "containers": [_container(image)]},
            },
        },
    }


def _pod_settings() -> Json:
    return {
        "hostNetwork": True,
        "dnsPolicy": "Default",  # the DNS of the cluster needs the network of pods
        "serviceAccountName": CONTROLLERS_NAME,
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


def _container(image: str) -> Json:
    return {
        "name": CONTROLLERS_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["netplug-controllers"],
        "args": [f"--health-port={CONTROLLERS_PORT}"],
        "env": [{"name": "DATASTORE_TYPE", "value": "kubernetes"}, field_variable("POD_NAME", "metadata.name")],
        **endpoint_override(),
        # Declared, so that no two pods come to the same node.
        "ports": [{"name": "health", "containerPort": CONTROLLERS_PORT, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}},
        "startupProbe": {
            **health_probe("/livez", CONTROLLERS_PORT),
            "initialDelaySeconds": _LISTENS_S,
            "periodSeconds": 2,
            "failureThreshold": 60,
        },
        "readinessProbe": {**health_probe("/readyz", CONTROLLERS_PORT), "periodSeconds": 10},
        "livenessProbe": {**health_probe("/livez", CONTROLLERS_PORT), "periodSeconds": 10, "failureThreshold": 6},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _labels() -> Json:
    """A new mapping each time: YAML would print the second one as a reference to the first."""
    return {"k8s-app": CONTROLLERS_NAME}
