"""Nodes of one cluster on this machine: a switch between them, one etcd, and node processes if a test starts them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import product
from pathlib import Path

from attrs import define, field

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_core.keys import Key
from netplug_core.records import Create, Delete, Get, Record, Update, Write
from netplug_core.resources.ippool import Encapsulation, IPPool
from netplug_core.resources.node import Node, node_key
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PodNamespace, StoreInspector, open_node
from tests.harness.node_process import NodeProcess, start_node_process
from tests.harness.routes import make_pool
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.port_forward import PortForward, forward_port
from tests.harness.switch import NodePort, open_switch, plug_in
from tests.harness.waiting import deadline_in

__all__ = ["Cluster", "ClusterNode", "open_cluster"]


@define
class ClusterNode:
    """A node of the cluster; ``pods`` are attached, with their addresses. ``forward`` is its way to the datastore."""

    name: str
    node: NetnsNode
    runtime: CNIRuntime
    port: NodePort
    endpoints: str
    forward: PortForward
    pods: dict[PodNamespace, tuple[str, ...]] = field(factory=dict)
    process: NodeProcess | None = None

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

    def start(self, **variables: str) -> NodeProcess:
        """Start its node process."""
        usual = {
            "DATASTORE_TYPE": "etcdv3",
            "ETCD_ENDPOINTS": self.endpoints,
            "NODENAME": self.name,
            "NODENAME_FILE": self.node.file("nodename"),
            "MTU_FILE": self.node.file("mtu"),
            "ENDPOINT_STATUS_DIR": self.node.file("endpoint-status"),
            "IP_AUTODETECTION_METHOD": "interface=lan0",
            "IP6_AUTODETECTION_METHOD": "interface=lan0",
            "IP6": "autodetect",
        }
        self.process = start_node_process(self.node, environ=usual | variables)
        return self.process

    def attach(self, **changes: object) -> None:
        """A new pod, with a configuration that is perhaps another one."""
        pod, conf = self.node.make_pod(), self.conf(**changes)
        self.pods[pod] = self.runtime.add(conf, pod, CNI_CONTAINERID=self.container(pod)).addresses

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

    nodes: tuple[ClusterNode, ...]
    store: StoreInspector

    def put(self, key: Key[object], value: object | None) -> None:
        """Store a value, whatever is there; None: delete it."""
        with self.store.open() as store:
            found: Record[object] | None = store.read([Get(key)], deadline=deadline_in()).find(key)
            write: Write | None = Create(key, value) if value is not None else None
            if found is not None:
                write = Delete(key, found.revision) if value is None else Update(key, value, found.revision)
            store.commit([] if write is None else [write], deadline=deadline_in())

    def put_pool(self, prefix: str, mode: Encapsulation = Encapsulation.NEVER) -> IPPool:
        """A pool whose packets are wrapped in VXLAN as the mode says."""
        pool = make_pool(prefix, vxlan=mode)
        self.put(pool.key, pool)
        return pool

    def find_node(self, name: str) -> Node | None:
        """What is stored of a node."""
        with self.store.open() as store:
            found = store.read([Get(node_key(name))], deadline=deadline_in()).find(node_key(name))
        return None if found is None else found.value

    def pods_of(self, *nodes: ClusterNode) -> list[tuple[ClusterNode, PodNamespace, tuple[str, ...]]]:
        """The pods of some nodes, or of all of them."""
        return [(node, pod, addresses) for node in nodes or self.nodes for pod, addresses in node.pods.items()]

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


@contextmanager
def open_cluster(folder: Path, bin_dir: str, etcd: EtcdCluster, count: int = 2) -> Iterator[Cluster]:
    """So many nodes without node processes, and an empty store."""
    store = StoreInspector(lambda: closing(EtcdDatastore(make_client(etcd, clock=SystemClock()))))
    nodes: list[ClusterNode] = []
    delete_all_entries(etcd)
    with ExitStack() as stack:
        switch = stack.enter_context(open_switch())
        for number in range(1, count + 1):
            own = folder / f"node-{number}"
            own.mkdir()
            node = stack.enter_context(open_node(str(own)))
            forward = stack.enter_context(forward_port(node, etcd.members[0].port))
            port = plug_in(node, switch, number)
            runtime = CNIRuntime(node, bin_dir)
            nodes.append(ClusterNode(f"node-{number}", node, runtime, port, etcd.endpoints[0], forward))
        yield Cluster(tuple(nodes), store)
