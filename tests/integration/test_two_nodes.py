"""Two nodes on one machine, a switch between them, and one etcd: with plain routes between the nodes, all pods talk.

Nothing distributes routes yet, so the test adds one for each block, as an operator of a small network would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import product
from pathlib import Path

import pytest
from attrs import define, field

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PodNamespace, StoreInspector, open_node
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.port_forward import forward_port
from tests.harness.switch import NodePort, open_switch, plug_in
from tests.harness.waiting import is_eventually

pytestmark = [pytest.mark.netns, pytest.mark.etcd]


@define
class ClusterNode:
    """A node of the cluster; ``pods`` are attached, with their addresses."""

    name: str
    node: NetnsNode
    runtime: CNIRuntime
    port: NodePort
    endpoints: str
    pods: dict[PodNamespace, tuple[str, ...]] = field(factory=dict)

    def conf(self, **changes: object) -> NetConfDict:
        """The configuration of this node: both families, and the cluster's etcd."""
        usual: dict[str, object] = {
            "nodename": self.name,
            "datastore_type": "etcdv3",
            "etcd_endpoints": self.endpoints,
            "sqlite_path": None,
            "ipam": {"type": "netplug-ipam", "assign_ipv6": "true"},
        }
        return self.runtime.make_netconf(**usual | changes)

    def attach(self) -> None:
        """A new pod."""
        pod = self.node.make_pod()
        self.pods[pod] = self.runtime.add(self.conf(), pod, CNI_CONTAINERID=self.container(pod)).addresses

    def detach(self, pod: PodNamespace) -> None:
        """Detach a pod."""
        self.runtime.delete(self.conf(), pod, CNI_CONTAINERID=self.container(pod))
        del self.pods[pod]

    def container(self, pod: PodNamespace) -> str:
        """Container ids are unique in the cluster; the names of namespaces are not."""
        return f"{self.name}-{pod.name}"


@define
class Cluster:
    """The nodes and their datastore."""

    nodes: tuple[ClusterNode, ClusterNode]
    store: StoreInspector

    def add_routes(self) -> None:
        """On each node, a route to each block of the other one."""
        for block in self.store.blocks():
            (owner,) = [node for node in self.nodes if block.owner == f"host:{node.name}"]
            for other in self.nodes:
                if other is not owner:
                    prefix = str(block.prefix)
                    other.node.run("ip", "route", "replace", prefix, "via", owner.port.address(prefix))

    def unreached(self) -> list[str]:
        """Every way from pod to pod on which no answer comes."""
        pods = [(node, pod, addresses) for node in self.nodes for pod, addresses in node.pods.items()]
        return [
            f"{node.name} {pod.name} to {address}"
            for (node, pod, _own), (_node, _pod, addresses) in product(pods, pods)
            for address in addresses
            if not node.node.can_ping(address, inside=pod.name)
        ]


@pytest.fixture
def cluster(tmp_path: Path, bin_dir: str, etcd: EtcdCluster) -> Iterator[Cluster]:
    """Two nodes, and pools of both families."""
    store = StoreInspector(lambda: closing(EtcdDatastore(make_client(etcd, clock=SystemClock()))))
    nodes: list[ClusterNode] = []
    delete_all_entries(etcd)
    with ExitStack() as stack:
        switch = stack.enter_context(open_switch())
        for number in (1, 2):
            folder = tmp_path / f"node-{number}"
            folder.mkdir()
            node = stack.enter_context(open_node(str(folder)))
            stack.enter_context(forward_port(node, etcd.members[0].port))
            port = plug_in(node, switch, number)
            nodes.append(ClusterNode(f"node-{number}", node, CNIRuntime(node, bin_dir), port, etcd.endpoints[0]))
        store.add_pool("main", "10.65.0.0/16")
        store.add_pool("six", "fd65::/64")
        yield Cluster((nodes[0], nodes[1]), store)


def test_pods_of_both_nodes_reach_each_other(cluster: Cluster) -> None:
    first, second = cluster.nodes
    before = [node.node.leftovers() for node in cluster.nodes]
    for node in (first, second, first, second):
        node.attach()
    assert len({block.owner for block in cluster.store.blocks()}) == 2, "each node has blocks of its own"

    ways = cluster.unreached()
    assert len(ways) == 16, "without routes no pod reaches a pod of the other node, and every one those of its own"
    cluster.add_routes()
    assert is_eventually(lambda: cluster.unreached() == [])

    for node in cluster.nodes:
        for prefix in [str(block.prefix) for block in cluster.store.blocks()]:
            node.node.run_unchecked("ip", "route", "delete", prefix, "proto", "boot")
        for pod in tuple(node.pods):
            node.detach(pod)
    assert cluster.store.is_empty
    assert all(block.is_empty for block in cluster.store.blocks())
    assert [node.node.leftovers() for node in cluster.nodes] == before


def test_a_node_that_does_not_forward_says_so_until_it_does(cluster: Cluster) -> None:
    """What new users met: pods of other nodes are not reached, and nothing says why."""
    first, second = cluster.nodes
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        second.node.set_setting(path, "0")
    status = second.runtime.call("STATUS", second.conf(cniVersion="1.1.0"))
    assert status.code == 51
    assert "run: sysctl -w net.ipv4.ip_forward=1; net.ipv6" in status.text
    pod = second.node.make_pod()
    added = second.runtime.add(second.conf(), pod, CNI_CONTAINERID=second.container(pod))
    second.pods[pod] = added.addresses
    for name in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
        assert f"{name} is 0 on this node" in added.stderr
    first.attach()
    cluster.add_routes()
    assert len(cluster.unreached()) == 4

    for command in status.text.split("run: ")[1:]:
        second.node.run(*command.partition(";")[0].split())
    assert is_eventually(lambda: cluster.unreached() == [])
    assert second.runtime.call("STATUS", second.conf(cniVersion="1.1.0")).is_success_without_output
