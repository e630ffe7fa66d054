"""The node process enforces the NetworkPolicies that users make in a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from attrs import define, field

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family, Prefix
from netplug_core.records import Create
from netplug_core.resources.ippool import IPPool
from tests.harness.nat_scene import NatScene
from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.harness.node_process import NodeProcess, start_node_process
from tests.harness.policy_scene import PolicyScene
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    install_role,
    make_namespace,
    make_node,
    make_pod,
    open_store,
)
from tests.harness.servers.port_forward import forward_port
from tests.harness.waiting import EMERGENCY_STOP_S, deadline_in, wait_until

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

_NODE = "policy-node"
_POLICIES = "/apis/networking.k8s.io/v1"
_NUMBERS = count()


@define
class Shop:
    """A node with pods of namespaces of its own, and its node process."""

    server: ApiServer
    runtime: CNIRuntime
    process: NodeProcess
    namespace: str
    pods: dict[str, tuple[PodNamespace, tuple[str, ...]]] = field(factory=dict)

    def attach(self, name: str, namespace: str = "", **labels: str) -> None:
        """A pod with labels, and its interface. The call returns once policy is programmed for it."""
        namespace = namespace or self.namespace
        make_pod(self.server, namespace, name, node=_NODE, labels=labels)
        kubeconfig = self.server.write_kubeconfig(install_role(self.server), name="plugin")
        conf = self.runtime.make_netconf(
            datastore_type="kubernetes",
            sqlite_path=None,
            kubernetes={"kubeconfig": kubeconfig},
            nodename=_NODE,
            policy={"type": "k8s"},
            policy_setup_timeout_seconds=int(EMERGENCY_STOP_S),
            endpoint_status_dir=self.runtime.node.file("endpoint-status"),
            ipam={"type": "netplug-ipam", "assign_ipv6": "true"},
        )
        pod = self.runtime.node.make_pod()
        args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}"
        added = self.runtime.add(conf, pod, CNI_ARGS=args)
        assert "not programmed in time" not in added.stderr
        self.pods[name] = pod, added.addresses

    def apply(self, name: str, spec: dict[str, object]) -> None:
        """A policy of the namespace."""
        path = f"{_POLICIES}/namespaces/{self.namespace}/networkpolicies"
        self.server.request(
            "PATCH",
            f"{path}/{name}?fieldManager=tests&force=true",
            {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec},
            content_type="application/apply-patch+yaml",
        )

    def reaches(self, sender: str, receiver: str) -> list[bool]:
        """Whether packets pass from a pod to another, in each family."""
        (source, _), (target, addresses) = self.pods[sender], self.pods[receiver]
        found: list[bool] = []
        for address in addresses:
            family = Family.IPV6 if ":" in address else Family.IPV4
            scene = PolicyScene(NatScene(self.runtime.node, family, source, target))
            found.append(scene.passes(source.name, address, target.name))
        return found

    def wait_for(self, **expected: bool) -> None:
        """Wait until ways, as ``web_db``, are open or closed in both families."""
        for way, is_open in expected.items():
            self._wait_for_way(*way.split("_"), is_open=is_open)

    def _wait_for_way(self, sender: str, receiver: str, *, is_open: bool) -> None:
        wait_until(lambda: self.reaches(sender, receiver) == [is_open] * 2, f"{sender} to {receiver} is {is_open}")


@pytest.fixture
def shop(api_server: ApiServer, runtime: CNIRuntime, node: NetnsNode) -> Iterator[Shop]:
    """With pools of both families."""
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    make_node(api_server, _NODE)
    namespace = make_namespace(api_server, f"shop-{next(_NUMBERS)}")
    with open_store(api_server, CrdMode.V1) as store:
        for name, prefix in (("four", "10.68.0.0/24"), ("six", "fd68::/64")):
            pool = IPPool.for_prefix(Prefix.parse(prefix), name=name)
            store.commit([Create(pool.key, pool)], deadline=deadline_in())
    with forward_port(node, api_server.port):
        process = start_node_process(
            node,
            environ={
                "DATASTORE_TYPE": "kubernetes",
                "KUBECONFIG": api_server.write_kubeconfig(name="node"),
                "NODENAME": _NODE,
                "NODENAME_FILE": node.file("nodename"),
                "MTU_FILE": node.file("mtu"),
                "ENDPOINT_STATUS_DIR": node.file("endpoint-status"),
                "NETPLUG_NETWORKING_BACKEND": "none",
                "NETPLUG_POLICY": "Enabled",
            },
        )
        wait_until(lambda: "policy is programmed" in process.lines, f"policy is programmed: {process.lines}")
        yield Shop(api_server, runtime, process, namespace)
        api_server.delete_collection(f"{_POLICIES}/namespaces/{namespace}/networkpolicies")


def test_policies_of_the_cluster_are_enforced(shop: Shop) -> None:
    """P-1, P-2, P-3, P-11, P-12."""
    other = make_namespace(shop.server, f"{shop.namespace}-other")
    shop.attach("web", app="web")
    shop.attach("db", app="db")
    shop.attach("far", other, app="far")
    shop.wait_for(web_db=True, far_db=True, db_web=True)
    isolated: dict[str, object] = {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"]}
    shop.apply("db", isolated)
    shop.wait_for(web_db=False, far_db=False, db_web=True)
    peers = [{"podSelector": {"matchLabels": {"app": "web"}}}, {"namespaceSelector": {"matchLabels": {"team": "y"}}}]
    shop.apply("db", {**isolated, "ingress": [{"from": peers}]})
    shop.wait_for(web_db=True, far_db=False)
    labels = {"metadata": {"labels": {"team": "y"}}}
    shop.server.request("PATCH", f"/api/v1/namespaces/{other}", labels, content_type="application/merge-patch+json")
    shop.wait_for(far_db=True)
    labels = {"metadata": {"labels": {"app": "other"}}}
    shop.server.request(
        "PATCH", f"/api/v1/namespaces/{shop.namespace}/pods/web", labels, content_type="application/merge-patch+json"
    )
    shop.wait_for(web_db=False)
