"""Nodes of one real API server whose pods have addresses of the nodes' pod CIDRs: they reach each other, both families.

No block and no handle is stored. The node processes have the rights that ``docs/node.md`` gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from attrs import define, field

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.records import Create, Get, Update, Write
from netplug_core.resources.ippool import Encapsulation
from tests.harness.bird import find_bird
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PodNamespace, open_node
from tests.harness.node_process import NodeProcess, start_node_process
from tests.harness.routes import make_pool
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
from tests.harness.servers.node_account import NAMESPACE as SYSTEM
from tests.harness.servers.node_account import install_node_account
from tests.harness.servers.port_forward import forward_port
from tests.harness.switch import open_switch, plug_in
from tests.harness.waiting import deadline_in, wait_until

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

NAMESPACE = "pod-cidrs"
RANGES = [[{"subnet": "usePodCidr"}], [{"subnet": "usePodCidrIPv6"}]]
POOLS = "10.72.0.0/16", "fd72::/48"
CIDRS = {
    "cidr-node-1": ("10.72.1.0/24", "fd72:0:0:1::/64"),
    "cidr-node-2": ("10.72.2.0/23", "fd72:0:0:2::/64"),
}
"""The second node has a prefix of another length: blocks of pools have one length, pod CIDRs need not."""


@define
class CidrNode:
    """A node with its pods."""

    name: str
    node: NetnsNode
    runtime: CNIRuntime
    server: ApiServer
    pods: dict[PodNamespace, tuple[str, ...]] = field(factory=dict)

    def conf(self) -> NetConfDict:
        kubeconfig = self.server.write_kubeconfig(install_role(self.server), name="plugin")
        return self.runtime.make_netconf(
            nodename=self.name,
            datastore_type="kubernetes",
            sqlite_path=None,
            kubernetes={"kubeconfig": kubeconfig},
            ipam={"type": "host-local", "dataDir": self.node.file("networks"), "ranges": RANGES},
        )

    def start(self, kubeconfig: str) -> NodeProcess:
        environ = {
            "DATASTORE_TYPE": "kubernetes",
            "KUBECONFIG": kubeconfig,
            "USE_POD_CIDR": "true",
            "NODENAME": self.name,
            "NODENAME_FILE": self.node.file("nodename"),
            "MTU_FILE": self.node.file("mtu"),
            "NO_DEFAULT_POOLS": "true",
            "IP_AUTODETECTION_METHOD": "interface=lan0",
            "IP6_AUTODETECTION_METHOD": "interface=lan0",
            "IP6": "autodetect",
        }
        return start_node_process(self.node, environ=environ)

    def attach(self) -> None:
        pod = self.node.make_pod()
        make_pod(self.server, NAMESPACE, f"{self.name}-{pod.name}", node=self.name)
        args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={self.name}-{pod.name}"
        self.pods[pod] = self.runtime.add(self.conf(), pod, CNI_ARGS=args).addresses


def put_pools(server: ApiServer, mode: Encapsulation) -> None:
    with open_store(server, CrdMode.V1) as store:
        for prefix in POOLS:
            pool = make_pool(prefix, vxlan=mode)
            found = store.read([Get(pool.key)], deadline=deadline_in()).find(pool.key)
            write: Write = Create(pool.key, pool) if found is None else Update(pool.key, pool, found.revision)
            store.commit([write], deadline=deadline_in())


@pytest.fixture
def nodes(tmp_path: Path, bin_dir: str, api_server: ApiServer) -> Iterator[tuple[CidrNode, ...]]:
    """Two nodes on a switch, each with two pods."""
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    for name in (NAMESPACE, SYSTEM):
        make_namespace(api_server, name)
    api_server.delete_collection(f"/api/v1/namespaces/{NAMESPACE}/pods")
    nodes: list[CidrNode] = []
    with ExitStack() as stack:
        switch = stack.enter_context(open_switch())
        for number, (name, cidrs) in enumerate(CIDRS.items(), start=1):
            make_node(api_server, name)
            spec = {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)}
            path, merge = f"/api/v1/nodes/{name}", "application/merge-patch+json"
            api_server.request("PATCH", path, {"spec": spec}, content_type=merge)
            stack.callback(api_server.request, "DELETE", path)
            folder = tmp_path / name
            folder.mkdir()
            node = stack.enter_context(open_node(str(folder)))
            stack.enter_context(forward_port(node, api_server.port))
            plug_in(node, switch, number)
            nodes.append(CidrNode(name, node, CNIRuntime(node, bin_dir), api_server))
        yield tuple(nodes)


def unreached(nodes: tuple[CidrNode, ...]) -> list[str]:
    """Every way from pod to pod, and from node to pod, on which no answer comes."""
    pods = [(each, pod) for each in nodes for pod in each.pods]
    sources = [*pods, *((each, None) for each in nodes)]
    return [
        f"{source.name} {'itself' if inside is None else inside.name} to {address}"
        for (source, inside), (target, pod) in product(sources, pods)
        for address in target.pods[pod]
        if not source.node.can_ping(address, inside="" if inside is None else inside.name)
    ]


def has(node: CidrNode, text: str, *command: str) -> bool:
    return text in node.node.run("ip", *command)


def test_pods_reach_each_other_by_the_pod_cidrs_of_their_nodes(
    nodes: tuple[CidrNode, ...], api_server: ApiServer
) -> None:
    find_bird()  # it makes the routes of pools without encapsulation
    kubeconfig = api_server.write_kubeconfig(install_node_account(api_server), name="node")
    put_pools(api_server, Encapsulation.ALWAYS)
    processes = [each.start(kubeconfig) for each in nodes]
    for each in nodes:
        for _ in range(2):
            each.attach()
    wait_until(lambda: unreached(nodes) == [], "pods reach each other through VXLAN")
    first, second = nodes
    for cidr in CIDRS[second.name]:
        assert has(first, f"{cidr} nhid", "-6" if ":" in cidr else "-4", "route", "show", "proto", "78")
    for cidr in CIDRS[first.name]:
        assert has(first, f"blackhole {cidr}", "-6" if ":" in cidr else "-4", "route", "show", "proto", "78")
    assert has(first, "10.72.1.1/32", "address", "show", "dev", "vxlan.netplug")
    assert has(first, "fd72:0:0:1::1/128", "address", "show", "dev", "vxlan6.netplug")
    put_pools(api_server, Encapsulation.NEVER)
    for each in nodes:
        gone = partial(lambda node: "vxlan" not in node.run("ip", "link", "show"), each.node)
        wait_until(gone, "the tunnels are gone")
    wait_until(lambda: unreached(nodes) == [], "pods reach each other by BGP")
    assert has(first, "10.72.2.0/23 via 10.240.0.2", "route", "show", "proto", "bird")
    for kind in ("ipamblocks", "blockaffinities", "ipamhandles"):
        listed = api_server.get(f"/apis/crd.projectnetplug.org/v1/{kind}")
        assert listed["items"] == [], "nothing of the allocator is stored"
    for process in processes:
        assert "cannot be followed" not in process.lines
