"""What is missing beside an API server of the tests while nodes move: the controllers of DaemonSets, and kubelets.

A pod that runs leaves a token of its account on its node, as the installer of the plugin does; the tests ask the server
whether that token still has the plugin's rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from attrs import define, field

from netplug_backends.kubernetes.installing.manifests import static_manifest
from netplug_core.installation.static import Method
from netplug_core.operator.takeover import MIGRATION_LABEL
from tests.harness.operator_process import OPERATOR_PATHS, OperatorCluster, text_at
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import account_token, apply_object, make_node

__all__ = ["NAMESPACES", "STATIC_PATHS", "StaticNodes", "apply_static_manifest", "is_converted"]

NAMESPACES = ("kube-system", "netplug-system")
_LABEL = "k8s-app=netplug-node"

STATIC_PATHS = {
    "daemonset": "/apis/apps/v1/namespaces/kube-system/daemonsets/netplug-node",
    "controllers": "/apis/apps/v1/namespaces/kube-system/deployments/netplug-kube-controllers",
    "disruption budget": "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets/netplug-kube-controllers",
    "config map": "/api/v1/namespaces/kube-system/configmaps/netplug-config",
    "plugin account": "/api/v1/namespaces/kube-system/serviceaccounts/netplug-cni-plugin",
    "node account": "/api/v1/namespaces/kube-system/serviceaccounts/netplug-node",
    "node role": "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/netplug-node",
    "node binding": "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/netplug-node",
}
"""Where the objects of a static manifest are that an operator deletes."""


def apply_static_manifest(
    server: ApiServer, edited: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda one: one
) -> None:
    """Install a published manifest of an earlier release, as its user has edited it, without the definitions."""
    for one in static_manifest(Method.KDD, version="3.33.0"):
        if one["kind"] != "CustomResourceDefinition":
            apply_object(server, edited(one))


def is_converted(cluster: OperatorCluster, nodes: StaticNodes) -> bool:
    """Let each node take a step; whether the manifest's objects have gone, and the operator's are there."""
    nodes.step()
    labels = [cluster.find(f"/api/v1/nodes/{name}") for name in nodes.names]
    return (
        not any(map(cluster.find, STATIC_PATHS.values()))
        and all(map(cluster.find, OPERATOR_PATHS.values()))
        and not any(text_at(node, "metadata", "labels", MIGRATION_LABEL) for node in labels)
    )


@define
class StaticNodes:
    """Nodes of a server, with pods of both DaemonSets. ``tokens`` are those on the nodes."""

    server: ApiServer
    names: tuple[str, ...]
    tokens: dict[str, str] = field(factory=dict)
    fewest_ready: int = field(default=0, init=False)

    def make(self) -> None:
        """Make the nodes, each with its pod of the static manifest."""
        for name in self.names:
            make_node(self.server, name, labels={"kubernetes.io/os": "linux"})
        for _ in range(3):
            self.step()
        self.fewest_ready = len(self.names)

    def step(self) -> None:
        """Let each controller and each kubelet look once, and check the rights on each node."""
        for namespace in NAMESPACES:
            self._control(namespace)
            self._run(namespace)
        self.fewest_ready = min(self.fewest_ready, len(self.ready()))
        refused = [name for name, token in self.tokens.items() if not self._has_rights(token)]
        assert refused == [], "the plugin of a node has lost its rights"

    def ready(self) -> set[str]:
        """The nodes with a ready pod."""
        return {pod["spec"]["nodeName"] for namespace in NAMESPACES for pod in self._pods(namespace) if _is_ready(pod)}

    def namespaces(self) -> set[str]:
        """The namespaces of the pods."""
        return {namespace for namespace in NAMESPACES if list(self._pods(namespace))}

    def remove(self) -> None:
        """Delete what is left."""
        for namespace in NAMESPACES:
            self.server.request(
                "DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0&labelSelector={_LABEL}"
            )
        for name in self.names:
            with _if_it_exists():
                self.server.request("DELETE", f"/api/v1/nodes/{name}")

    # --- inside ----------------------------------------------------------------------------------------------------

    def _control(self, namespace: str) -> None:
        daemonset = self._find(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/netplug-node")
        pods = {pod["spec"]["nodeName"]: pod for pod in self._pods(namespace)}
        wanted = set() if daemonset is None else self._matching(daemonset["spec"]["template"]["spec"]["nodeSelector"])
        for name, pod in pods.items():
            if name not in wanted:
                self.server.request("DELETE", f"{_path(pod)}?gracePeriodSeconds=0")
        if daemonset is None:
            return
        revision = str(daemonset["metadata"]["generation"])
        replaced = daemonset["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        for name in sorted(wanted):
            old = name in pods and pods[name]["metadata"]["annotations"]["revision"] != revision
            if old and replaced and len(self.ready()) >= len(self.names):  # one at a time
                self.server.request("DELETE", f"{_path(pods[name])}?gracePeriodSeconds=0")
            elif name not in pods:
                self._create_pod(namespace, name, revision)
        self._write_status(namespace, wanted, revision, is_replaced=replaced)

    def _create_pod(self, namespace: str, name: str, revision: str) -> None:
        metadata = {
            "name": f"netplug-node-{name}",
            "labels": {"k8s-app": "netplug-node"},
            "annotations": {"revision": revision},
        }
        spec = {"nodeName": name, "containers": [{"name": "main", "image": "none"}], "hostNetwork": True}
        self.server.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})

    def _write_status(self, namespace: str, wanted: set[str], revision: str, *, is_replaced: bool) -> None:
        pods = [pod for pod in self._pods(namespace) if pod["spec"]["nodeName"] in wanted]
        updated = [pod for pod in pods if pod["metadata"]["annotations"]["revision"] == revision or not is_replaced]
        available = sum(map(_is_ready, pods))
        status = {
            "observedGeneration": int(revision), "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(pods), "updatedNumberScheduled": len(updated), "numberMisscheduled": 0,
            "numberAvailable": available, "numberReady": available,
        }  # fmt: skip
        path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/netplug-node/status"
        with _if_it_exists():  # the operator may delete it at any moment
            self.server.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")

    def _run(self, namespace: str) -> None:
        """Pods that are not ready become so."""
        for pod in self._pods(namespace):
            if not _is_ready(pod):
                self.tokens[pod["spec"]["nodeName"]] = account_token(self.server, namespace, "netplug-cni-plugin")
                status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
                self.server.request(
                    "PATCH", f"{_path(pod)}/status", status, content_type="application/merge-patch+json"
                )

    def _has_rights(self, token: str) -> bool:
        """Whether the server knows the token, and its account may list pools, as the plugin does."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        user = cast(
            "dict[str, Any]", self.server.create("/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
        )
        if not user.get("authenticated"):
            return False
        attributes = {"group": "crd.projectnetplug.org", "resource": "ippools", "verb": "list"}
        found = {"user": user["user"]["username"], "groups": user["user"]["groups"], "resourceAttributes": attributes}
        access = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": found}
        answer = self.server.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", access)["status"]
        return bool(cast("dict[str, Any]", answer)["allowed"])

    def _matching(self, selector: Mapping[str, str]) -> set[str]:
        nodes = cast("list[dict[str, Any]]", self.server.get("/api/v1/nodes")["items"])
        mine = (node["metadata"] for node in nodes if node["metadata"]["name"] in self.names)
        return {one["name"] for one in mine if selector.items() <= one.get("labels", {}).items()}

    def _pods(self, namespace: str) -> Iterator[dict[str, Any]]:
        found = self.server.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={_LABEL}")
        yield from cast("list[dict[str, Any]]", found["items"])

    def _find(self, path: str) -> dict[str, Any] | None:
        try:
            return cast("dict[str, Any]", self.server.get(path))
        except RequestRefused as error:
            if error.code != 404:
                raise
            return None


@contextmanager
def _if_it_exists() -> Iterator[None]:
    """Go on if the object does not exist."""
    try:
        yield
    except RequestRefused as error:
        if error.code != 404:
            raise


def _path(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
