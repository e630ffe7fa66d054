"""The pod of ``netplug-controllers`` on a Kubernetes cluster, and what the pod of the operator has as well. Pure.

An Installation has the controllers for the Kubernetes datastore, a static manifest those for its own.

Both are in the network of their node: when pods get no addresses, one of them frees some, and one makes nodes ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from netplug_core.installation.daemonset import (
    SYSTEM_NAMESPACE,
    RenderedInstallation,
    endpoint_override,
    field_variable,
    fixed_variables,
    health_probe,
)

__all__ = [
    "CONTROLLERS_NAME", "CONTROLLERS_PORT", "KUBERNETES_CONTROLLERS", "LEASE_NAMESPACE", "READ_ONLY_USER",
    "controllers_of", "deployment_of", "disruption_budget", "render_controllers",
]  # fmt: skip

Json = Mapping[str, object]

_NOTHING: Final[Json] = {}

CONTROLLERS_NAME: Final = "netplug-kube-controllers"
"""The name of its account, its rights, its Deployment and its Lease."""

CONTROLLERS_PORT: Final = 9094
"""Where it answers probes and shows its metrics, at 127.0.0.1."""

LEASE_NAMESPACE: Final = "kube-system"
"""Where the Lease is: a namespace that every cluster has."""

_GRACE_S: Final = 45  # a stop lets the action that has begun finish, and then gives the Lease up
_LISTENS_S: Final = 3
READ_ONLY_USER: Final = 65532
"""The user of the image, who owns no file in it."""

KUBERNETES_CONTROLLERS: Final = {"DATASTORE_TYPE": "kubernetes"}
"""The variables of the controllers for the Kubernetes datastore, where there is nothing to copy."""


def controllers_of(rendered: RenderedInstallation) -> Json | None:
    """The Deployment of an Installation; None where it installs nothing on the nodes."""
    if rendered.daemonset is None:
        return None
    resolved = rendered.resolved
    image = {"image": rendered.image, "imagePullPolicy": resolved.image_pull_policy.value}
    pod = {}
    if resolved.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret.name} for secret in resolved.image_pull_secrets]
    return render_controllers(image, fixed_variables(KUBERNETES_CONTROLLERS), pod=pod)


def render_controllers(
    image: Json, variables: Sequence[Json], *, namespace: str = SYSTEM_NAMESPACE, mounts: Sequence[Json] = (), pod: Json
) -> Json:
    """The Deployment. ``image`` says which one, and when it is fetched; ``pod`` is what its pod has besides."""
    container = {
        "name": CONTROLLERS_NAME,
        **image,
        "command": ["netplug-controllers"],
        "args": [f"--health-port={CONTROLLERS_PORT}"],
        "env": [*variables, field_variable("POD_NAME", "metadata.name")],
        **endpoint_override(),
        "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}},
        "readinessProbe": {**health_probe("/readyz", CONTROLLERS_PORT), "periodSeconds": 10},
        **({"volumeMounts": [*mounts]} if mounts else {}),
    }
    return deployment_of(CONTROLLERS_NAME, namespace, container, port=CONTROLLERS_PORT, pod=pod)


def disruption_budget(namespace: str) -> Json:
    """What lets a program that empties nodes evict the pod of the controllers.

    One that removes nodes to save them does not touch a node with a pod of kube-system that has no such object.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": CONTROLLERS_NAME, "namespace": namespace, "labels": _labels(CONTROLLERS_NAME)},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _labels(CONTROLLERS_NAME)}},
    }


def deployment_of(name: str, namespace: str, container: Json, *, port: int, pod: Json = _NOTHING) -> Json:
    """The Deployment of one pod that runs before nodes are ready, with the account and the label of its own name.

    From a node that does not answer it moves, after the time that the cluster gives every pod. ``port`` is that of its
    probes, at 127.0.0.1. ``pod`` is what the pod has besides.
    """
    running = {
        **container,
        # Declared, so that no two pods come to the same node.
        "ports": [{"name": "health", "containerPort": port, "protocol": "TCP"}],
        # A probe that fails is an Event. So none asks before the process listens.
        "startupProbe": {
            **health_probe("/livez", port),
            "initialDelaySeconds": _LISTENS_S,
            "periodSeconds": 2,
            "failureThreshold": 60,
        },
        "livenessProbe": {**health_probe("/livez", port), "periodSeconds": 10, "failureThreshold": 6},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": _labels(name)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _labels(name)},
            # On a node a second pod would find the port of the first one in use.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": _labels(name)},
                "spec": {**_pod_settings(name), **pod, "containers": [running]},
            },
        },
    }


def _pod_settings(account: str) -> Json:
    return {
        "hostNetwork": True,
        "dnsPolicy": "Default",  # the DNS of the cluster needs the network of pods
        "serviceAccountName": account,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": _GRACE_S,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"operator": "Exists", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": READ_ONLY_USER,
            "runAsGroup": READ_ONLY_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _labels(name: str) -> Json:
    """A new mapping each time: YAML would print the second one as a reference to the first."""
    return {"k8s-app": name}
