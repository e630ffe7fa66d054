"""A cluster in memory with a static manifest, the controllers of its DaemonSets, and the kubelets of its nodes.

Each step is one thing that one of them does, so that a test can put them in any order. What a pod does on its node is
here too: the container that installs the plugin leaves the credentials of its account there, and the node process
renews them as long as it runs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from attrs import define, field

from netplug_backends.kubernetes.installing.manifests import static_manifest
from netplug_core.installation.static import Method
from netplug_core.operator.state import DAEMONSET_REF, STATIC_DAEMONSET_REF, ObjectRef, ref_of
from tests.harness.operator_cluster import MemoryCluster, MemoryPools, Object

__all__ = ["BINDING_REF", "StaticCluster", "node_ref"]

BINDING_REF = ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "netplug-cni-plugin")
_NAMESPACES = {STATIC_DAEMONSET_REF: "kube-system", DAEMONSET_REF: "netplug-system"}


def node_ref(name: str) -> ObjectRef:
    return ObjectRef("v1", "Node", name)


@define
class _Pod:
    """A pod of a DaemonSet on a node; ``revision`` is the template that it was made of."""

    owner: ObjectRef
    node: str
    revision: str
    is_ready: bool = False
    is_ending: bool = False

    def as_object(self) -> Object:
        metadata: Object = {"name": f"{self.owner.namespace}-{self.node}"}
        if self.is_ending:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        conditions = [{"type": "Ready", "status": str(self.is_ready)}]
        return {"metadata": metadata, "spec": {"nodeName": self.node}, "status": {"conditions": conditions}}


@define
class StaticCluster:
    """``credentials`` has the namespace of the account whose token is on a node, ``dead`` nodes without a kubelet."""

    cluster: MemoryCluster = field(factory=MemoryCluster)
    pods: list[_Pod] = field(factory=list)
    credentials: dict[str, str] = field(factory=dict)
    dead: set[str] = field(factory=set)

    @classmethod
    def of(cls, *nodes: str, method: Method = Method.KDD) -> StaticCluster:
        """A cluster in which each node has its pod."""
        made = cls()
        for one in static_manifest(method, version="1.2.3"):
            stored = copy.deepcopy(dict(one))
            ref = ref_of(stored)
            if ref.kind == "CustomResourceDefinition":
                continue  # the operator's are trimmed
            cast("Object", stored["metadata"])["uid"] = f"static-{ref}"
            made.cluster.objects[ref] = stored
        for node in nodes:
            made.add_node(node)
        made.come_to_rest()
        return made

    # --- what happens ----------------------------------------------------------------------------------------------

    def add_node(self, name: str) -> None:
        labels = {"kubernetes.io/os": "linux"}
        metadata = {"name": name, "uid": f"node-{name}", "labels": labels}
        self.cluster.objects[node_ref(name)] = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}

    def remove_node(self, name: str) -> None:
        self.cluster.objects.pop(node_ref(name), None)
        self.pods = [pod for pod in self.pods if pod.node != name]
        self.credentials.pop(name, None)
        self.dead.discard(name)
        self._publish()

    def control(self, ref: ObjectRef) -> None:
        """The controller of a DaemonSet looks once: it makes and ends pods, and writes the status."""
        self._collect()
        daemonset = self.cluster.objects.get(ref)
        if daemonset is not None:
            self._control(ref, daemonset)
        self._publish()

    def kubelet(self, node: str) -> None:
        """The kubelet of a node looks once: a pod that ends is gone, another one gets ready."""
        if node in self.dead:
            return
        for pod in [pod for pod in self.pods if pod.node == node]:
            if pod.is_ending:
                self.pods.remove(pod)
            elif not pod.is_ready:
                pod.is_ready = True
                self.credentials[node] = _NAMESPACES[pod.owner]
        self._publish()

    def renew(self, node: str) -> None:
        """A node process renews the token, also while it ends."""
        if node in self.dead:
            return
        for pod in self.pods:
            if pod.node == node and pod.is_ready:
                self.credentials[node] = _NAMESPACES[pod.owner]

    def come_to_rest(self) -> None:
        """Controllers and kubelets look until nothing changes."""
        for _ in range(50):
            before = self._picture()
            for ref in _NAMESPACES:
                self.control(ref)
            for node in self.nodes:
                self.kubelet(node)
            if self._picture() == before:
                return
        raise AssertionError("the pods do not come to rest")

    # --- what is asked ---------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[str]:
        return sorted(ref.name for ref in self.cluster.objects if ref.kind == "Node")

    def without_rights(self) -> list[str]:
        """The nodes whose plugin the API server would refuse, as ``node: reason``."""
        binding = self.cluster.objects.get(BINDING_REF, {})
        subjects = {one["namespace"] for one in cast("list[dict[str, str]]", binding.get("subjects", []))}
        found = []
        for node, namespace in sorted(self.credentials.items()):
            account = ObjectRef("v1", "ServiceAccount", "netplug-cni-plugin", namespace)
            if namespace not in subjects:
                found.append(f"{node}: {namespace} is not bound")
            if account not in self.cluster.objects:
                found.append(f"{node}: the account of {namespace} is gone")
        return found

    def served(self) -> list[str]:
        """The nodes with a ready pod."""
        return sorted(
            {pod.node for pod in self.pods if pod.is_ready and not pod.is_ending and pod.node not in self.dead}
        )

    def doubly_served(self) -> list[str]:
        """The nodes on which two node processes run."""
        running = [pod.node for pod in self.pods]
        return sorted({node for node in running if running.count(node) > 1})

    def make_pools(self) -> MemoryPools:
        return MemoryPools(self.cluster)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _control(self, ref: ObjectRef, daemonset: Object) -> None:
        spec = cast("dict[str, Any]", daemonset["spec"])
        template, selector = spec["template"], spec["template"]["spec"].get("nodeSelector", {})
        revision, wanted = repr(template), {node for node in self.nodes if self._matches(node, selector)}
        own = [pod for pod in self.pods if pod.owner == ref]
        for pod in own:
            if pod.node not in wanted:
                pod.is_ending = True
        for node in sorted(wanted - {pod.node for pod in own}):
            self.pods.append(_Pod(ref, node, revision))
        kept = [pod for pod in own if pod.node in wanted]
        if spec.get("updateStrategy", {}).get("type", "RollingUpdate") == "RollingUpdate":
            unavailable = sum(not pod.is_ready or pod.is_ending for pod in kept) + len(wanted) - len(kept)
            old = [pod for pod in kept if pod.revision != revision and not pod.is_ending]
            for pod in [pod for pod in old if pod.is_ready][: max(0, 1 - unavailable)]:
                pod.is_ending = True
            for pod in [pod for pod in old if not pod.is_ready]:
                pod.is_ending = True
        current = [pod for pod in self.pods if pod.owner == ref and pod.node in wanted and not pod.is_ending]
        daemonset["status"] = {
            "observedGeneration": cast("dict[str, Any]", daemonset["metadata"]).get("generation", 0),
            "desiredNumberScheduled": len(wanted),
            "updatedNumberScheduled": sum(pod.revision == revision for pod in current),
            "numberAvailable": sum(pod.is_ready and pod.node not in self.dead for pod in current),
        }

    def _matches(self, node: str, selector: Mapping[str, str]) -> bool:
        metadata = cast("dict[str, Any]", self.cluster.objects[node_ref(node)]["metadata"])
        return bool(selector.items() <= metadata["labels"].items())

    def _collect(self) -> None:
        """The garbage collector: pods of a DaemonSet that is gone end."""
        for pod in self.pods:
            if pod.owner not in self.cluster.objects:
                pod.is_ending = True

    def _publish(self) -> None:
        def of(ref: ObjectRef) -> tuple[Object, ...]:
            return tuple(pod.as_object() for pod in self.pods if pod.owner == ref)

        self.cluster.pods, self.cluster.static_pods = of(DAEMONSET_REF), of(STATIC_DAEMONSET_REF)

    def _picture(self) -> object:
        statuses = [copy.deepcopy(self.cluster.objects.get(ref, {}).get("status")) for ref in _NAMESPACES]
        return copy.deepcopy(self.pods), statuses, dict(self.credentials)
