"""A node whose plugin looks pods up at an API server, wherever it stores addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from attrs import define

from tests.harness.annotations import prefixed
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_role, make_namespace, make_pod
from tests.harness.servers.port_forward import forward_port

__all__ = ["NAMESPACE", "PodCluster", "cni_args", "on_every_pod_datastore", "open_pod_cluster"]

NAMESPACE = "annotated"
_MERGE_PATCH = "application/merge-patch+json"

on_every_pod_datastore = pytest.mark.parametrize(
    "plugin_datastore",
    ["sqlite", pytest.param("etcdv3", marks=pytest.mark.etcd), "kubernetes"],
    indirect=True,
)
"""For a test that is to run on every datastore, and needs the API server in any case."""


@define
class PodCluster:
    """A node whose plugin reads annotations of an API server, wherever it stores addresses."""

    node: NetnsNode
    runtime: CNIRuntime
    server: ApiServer
    datastore: PluginDatastore
    kubeconfig: str

    def conf(self, **changes: object) -> NetConfDict:
        access = {"kubernetes": {"kubeconfig": self.kubeconfig}}
        return self.runtime.make_netconf(**{**self.datastore.netconf_keys, **access, **changes})

    def make_pod(self, **texts: str) -> PodNamespace:
        """A pod with these annotations (short names)."""
        pod = self.node.make_pod()
        make_pod(self.server, NAMESPACE, pod.name, node="node-1", annotations=prefixed(texts))
        return pod

    def annotate(self, path: str, **texts: str) -> None:
        """Change annotations of an object."""
        body = {"metadata": {"annotations": prefixed(texts)}}
        self.server.request("PATCH", path, body, content_type=_MERGE_PATCH)

    def annotate_namespace(self, **texts: str) -> None:
        self.annotate(f"/api/v1/namespaces/{NAMESPACE}", **texts)

    def add(self, pod: PodNamespace, **changes: object) -> PluginReply:
        return self.runtime.add(self.conf(**changes), pod, CNI_ARGS=cni_args(pod))

    def delete(self, pod: PodNamespace) -> None:
        self.runtime.delete(self.conf(), pod, CNI_ARGS=cni_args(pod))

    def refusal(self, pod: PodNamespace, **changes: object) -> PluginReply:
        """An ADD that is refused and leaves nothing."""
        reply = self.runtime.call("ADD", self.conf(**changes), pod, CNI_ARGS=cni_args(pod))
        assert reply.status == 1
        self.assert_nothing_left()
        return reply

    def assert_nothing_left(self) -> None:
        assert self.datastore.store.held() == {}
        assert self.datastore.store.handles() == set()
        assert set(self.node.links()) == {"lo", "up0"}


def cni_args(pod: PodNamespace) -> str:
    return f"IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={pod.name}"


@contextmanager
def open_pod_cluster(
    node: NetnsNode, runtime: CNIRuntime, server: ApiServer, datastore: PluginDatastore
) -> Iterator[PodCluster]:
    """The cluster, with an empty namespace of pods."""
    make_namespace(server, NAMESPACE)
    server.delete_collection(f"/api/v1/namespaces/{NAMESPACE}/pods")
    kubeconfig = server.write_kubeconfig(install_role(server), name="annotated")
    with ExitStack() as stack:
        if datastore.name != "kubernetes":
            stack.enter_context(forward_port(node, server.port))
        found = PodCluster(node, runtime, server, datastore, kubeconfig)
        yield found
        found.annotate_namespace(ipv4pools="")
