"""A node whose process enforces the NetworkPolicies that users make in a real API server, with pods on it.

The records are in the API server, or in an etcd, to which real controllers copy what policy needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from attrs import define, field

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.installing.manifests import controllers_role
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family, Prefix
from netplug_core.datastore.protocol import Datastore
from netplug_core.records import Create
from netplug_core.resources.ippool import IPPool
from tests.harness.controllers_process import open_controllers
from tests.harness.nat_scene import NatScene
from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace
from tests.harness.node_process import NodeProcess, start_node_process
from tests.harness.policy_scene import PORT, PolicyScene
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    apply_object,
    delete_custom_objects,
    install_definitions,
    install_node_role,
    install_role,
    make_namespace,
    make_node,
    make_pod,
    open_store,
)
from tests.harness.servers.port_forward import forward_port
from tests.harness.waiting import EMERGENCY_STOP_S, deadline_in, wait_until

__all__ = ["Shop", "open_shop"]

_NODE = "policy-node"
_POLICIES = "/apis/networking.k8s.io/v1"
_NUMBERS = count()
_POOLS = (("four", "10.68.0.0/24"), ("six", "fd68::/64"))


@define
class Shop:
    """A node with pods of namespaces of its own, and its node process."""

    server: ApiServer
    runtime: CNIRuntime
    process: NodeProcess
    namespace: str
    netconf: Mapping[str, object]
    node_name: str
    pods: dict[str, tuple[PodNamespace, tuple[str, ...]]] = field(factory=dict)

    def attach(self, name: str, namespace: str = "", ports: Mapping[str, int] | None = None, **labels: str) -> None:
        """A pod with labels, and its interface. The call returns once policy is programmed for it.

        ``ports`` are named ports of UDP.
        """
        namespace = namespace or self.namespace
        make_pod(self.server, namespace, name, node=self.node_name, ports=ports, labels=labels)
        kubeconfig = self.server.write_kubeconfig(install_role(self.server), name="plugin")
        usual: dict[str, object] = {
            "sqlite_path": None,
            "kubernetes": {"kubeconfig": kubeconfig},
            "nodename": self.node_name,
            "policy": {"type": "k8s"},
            "policy_setup_timeout_seconds": int(EMERGENCY_STOP_S),
            "endpoint_status_dir": self.runtime.node.file("endpoint-status"),
            "ipam": {"type": "netplug-ipam", "assign_ipv6": "true"},
        }
        conf = self.runtime.make_netconf(**usual | dict(self.netconf))
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

    def reaches(self, sender: str, receiver: str, port: int = PORT) -> list[bool]:
        """Whether packets pass from a pod to another, in each family."""
        (source, _), (target, addresses) = self.pods[sender], self.pods[receiver]
        found: list[bool] = []
        for address in addresses:
            family = Family.IPV6 if ":" in address else Family.IPV4
            scene = PolicyScene(NatScene(self.runtime.node, family, source, target))
            found.append(scene.passes(source.name, address, target.name, port=port))
        return found

    def relabel(self, path: str, **labels: str | None) -> None:
        """Change labels of a namespace, or of a pod of the namespace."""
        change = {"metadata": {"labels": labels}}
        self.server.request("PATCH", path, change, content_type="application/merge-patch+json")

    def pod_path(self, name: str) -> str:
        """Where a pod of the namespace is."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    def wait_for_ports(self, sender: str, receiver: str, **expected: bool) -> None:
        """Wait until ports, as ``p80``, are open or closed in both families."""
        for name, is_open in expected.items():
            reaches = partial(self.reaches, sender, receiver, int(name.removeprefix("p")))
            wait_until(partial(_is_equal, reaches, [is_open] * 2), f"{name} is {is_open}")

    def wait_for_families(self, sender: str, receiver: str, expected: list[bool]) -> None:
        """Wait until a way is open or closed in each family."""
        wait_until(lambda: self.reaches(sender, receiver) == expected, f"{sender} to {receiver} is {expected}")

    def wait_for(self, **expected: bool) -> None:
        """Wait until ways, as ``web_db``, are open or closed in both families."""
        for way, is_open in expected.items():
            self._wait_for_way(*way.split("_"), is_open=is_open)

    def _wait_for_way(self, sender: str, receiver: str, *, is_open: bool) -> None:
        self.wait_for_families(sender, receiver, [is_open] * 2)


def _is_equal(find: Callable[[], list[bool]], expected: list[bool]) -> bool:
    return find() == expected


@contextmanager
def open_shop(
    server: ApiServer,
    runtime: CNIRuntime,
    folder: Path,
    etcd: EtcdCluster | None = None,
    *,
    uses_pod_cidrs: bool = False,
) -> Iterator[Shop]:
    """With pools of both families. ``etcd``: the records are there, and controllers keep what policy needs.

    The node process has the rights of its account in a manifest, and no other ones. ``uses_pod_cidrs``: no pools, and
    pods have addresses of the pod CIDRs of their node, which host-local gives.
    """
    node_name = make_node(server, f"{_NODE}-cidrs" if uses_pod_cidrs else _NODE)
    if uses_pod_cidrs:
        spec = {"podCIDR": _POOLS[0][1], "podCIDRs": [prefix for _, prefix in _POOLS]}
        merge = "application/merge-patch+json"
        server.request("PATCH", f"/api/v1/nodes/{node_name}", {"spec": spec}, content_type=merge)
    namespace = make_namespace(server, f"shop-{next(_NUMBERS)}")
    node = runtime.node
    with ExitStack() as stack:
        stack.enter_context(forward_port(node, server.port))
        store = _open_kubernetes(stack, server) if etcd is None else _open_etcd(stack, node, etcd)
        netconf: dict[str, object] = {"datastore_type": "kubernetes", "policy_guard": True}
        environ = {"DATASTORE_TYPE": "kubernetes"}
        if etcd is not None:
            endpoints = ",".join(etcd.endpoints)
            netconf |= {"datastore_type": "etcdv3", "etcd_endpoints": endpoints}
            environ = {"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": endpoints}
            _start_controllers(stack, server, folder, environ)
        if uses_pod_cidrs:
            ranges = [[{"subnet": "usePodCidr"}], [{"subnet": "usePodCidrIPv6"}]]
            ipam = {"type": "host-local", "dataDir": node.file("networks"), "ranges": ranges}
            environ, netconf = environ | {"USE_POD_CIDR": str(etcd is None).lower()}, netconf | {"ipam": ipam}
        for name, prefix in () if uses_pod_cidrs else _POOLS:
            pool = IPPool.for_prefix(Prefix.parse(prefix), name=name)
            store.commit([Create(pool.key, pool)], deadline=deadline_in())
        token = install_node_role(server, stores_release=etcd is None)
        process = start_node_process(
            node,
            environ={
                **environ,
                "KUBECONFIG": server.write_kubeconfig(token, name="node"),
                "NODENAME": node_name,
                "NODENAME_FILE": node.file("nodename"),
                "MTU_FILE": node.file("mtu"),
                "ENDPOINT_STATUS_DIR": node.file("endpoint-status"),
                "NETPLUG_NETWORKING_BACKEND": "none",
                "NETPLUG_POLICY": "Enabled",
                "NETPLUG_ENDPOINT_TO_HOST_ACTION": "Accept",
            },
        )
        wait_until(lambda: "policy is programmed" in process.lines, f"policy is programmed: {process.lines}")
        yield Shop(server, runtime, process, namespace, netconf, node_name)
        server.delete_collection(f"{_POLICIES}/namespaces/{namespace}/networkpolicies")


def _open_kubernetes(stack: ExitStack, server: ApiServer) -> Datastore:
    """The cluster's own datastore, without records."""
    install_definitions(server, CrdMode.V1)
    delete_custom_objects(server, CrdMode.V1)
    return stack.enter_context(open_store(server, CrdMode.V1))


def _open_etcd(stack: ExitStack, node: NetnsNode, etcd: EtcdCluster) -> Datastore:
    """An etcd without records, which the node reaches."""
    delete_all_entries(etcd)
    stack.callback(delete_all_entries, etcd)
    for member in etcd.members:
        stack.enter_context(forward_port(node, member.port))
    client = EtcdDatastore(make_client(etcd, clock=SystemClock()))
    stack.callback(client.close)
    return client


def _start_controllers(stack: ExitStack, server: ApiServer, folder: Path, environ: Mapping[str, str]) -> None:
    """Controllers beside an etcd, with the rights of their account in a manifest alone."""
    make_namespace(server, "kube-system")
    account, role, binding, *lease = controllers_role("kube-system", copies=True)
    for one in lease:
        apply_object(server, one)
    token = install_role(server, objects=(account, role, binding))
    kubeconfig = server.write_kubeconfig(token, name="controllers")
    controllers = stack.enter_context(open_controllers(folder, {**environ, "KUBECONFIG": kubeconfig}, server))
    process = controllers.start()
    wait_until(lambda: process.ask("/readyz") == (200, "ok\n"), "the controllers are ready")
