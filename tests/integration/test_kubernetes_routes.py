"""Two nodes on a real API server: node processes with the documented rights carry the packets of their pods."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from attrs import define

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Address, Prefix
from netplug_core.datastore.protocol import Datastore
from netplug_core.records import Create
from netplug_core.resources.ippool import Encapsulation
from tests.harness.annotations import prefixed
from tests.harness.bird import find_bird
from tests.harness.node import CNIRuntime, NetnsNode, PodNamespace, open_node
from tests.harness.node_process import start_node_process
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
from tests.harness.servers.node_account import install_node_account
from tests.harness.servers.port_forward import forward_port
from tests.harness.switch import open_switch, plug_in
from tests.harness.waiting import deadline_in, wait_until

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

NAMESPACE = "routes"
POOLS = "10.30.0.0/16", "fd30::/48"
RANGES = [[{"subnet": "usePodCidr"}], [{"subnet": "usePodCidrIPv6"}]]
BLOCKS = {"type": "netplug-ipam", "assign_ipv6": "true"}
CHOSEN = "10.30.99.7", "fd30:0:0:99::7"


@define
class ClusterNode:
    """A node of the cluster with one pod."""

    number: int
    node: NetnsNode
    runtime: CNIRuntime
    server: ApiServer
    pod: PodNamespace | None = None
    addresses: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"routed-{self.number}"

    @property
    def cidrs(self) -> tuple[str, str]:
        return f"10.30.{self.number}.0/24", f"fd30:0:0:{self.number}::/64"

    def start(self, **variables: str) -> None:
        """Its node process, with its own account."""
        usual = {
            "DATASTORE_TYPE": "kubernetes",
            "KUBECONFIG": self.server.write_kubeconfig(install_node_account(self.server), name="node"),
            "NODENAME": self.name,
            "NODENAME_FILE": self.node.file("nodename"),
            "MTU_FILE": self.node.file("mtu"),
            "ENDPOINT_STATUS_DIR": self.node.file("endpoint-status"),
            "IP_AUTODETECTION_METHOD": "interface=lan0",
            "IP6_AUTODETECTION_METHOD": "interface=lan0",
            "IP6": "autodetect",
        }
        start_node_process(self.node, environ=usual | variables)

    def attach(self, ipam: Mapping[str, object], **annotations: str) -> None:
        """A pod with annotations (short names)."""
        conf = self.runtime.make_netconf(
            nodename=self.name,
            datastore_type="kubernetes",
            sqlite_path=None,
            kubernetes={"kubeconfig": self.server.write_kubeconfig(install_role(self.server), name="plugin")},
            feature_control={"ip_addrs_no_ipam": True},
            ipam={"dataDir": self.node.file("networks"), **ipam} if ipam["type"] == "host-local" else ipam,
        )
        self.pod, name = self.node.make_pod(), f"web-{self.number}"
        make_pod(self.server, NAMESPACE, name, node=self.name, annotations=prefixed(annotations))
        args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={name}"
        self.addresses = self.runtime.add(conf, self.pod, CNI_ARGS=args, CNI_CONTAINERID=name).addresses


@pytest.fixture
def nodes(tmp_path: Path, bin_dir: str, api_server: ApiServer) -> Iterator[tuple[ClusterNode, ...]]:
    """Two nodes with pod CIDRs of both families."""
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    make_namespace(api_server, NAMESPACE)
    install_role(api_server)
    found = []
    with ExitStack() as stack:
        switch = stack.enter_context(open_switch())
        for number in (1, 2):
            folder = tmp_path / str(number)
            folder.mkdir()
            node = stack.enter_context(open_node(str(folder)))
            stack.enter_context(forward_port(node, api_server.port))
            plug_in(node, switch, number)
            made = ClusterNode(number, node, CNIRuntime(node, bin_dir), api_server)
            make_node(api_server, made.name)
            path, spec = f"/api/v1/nodes/{made.name}", {"podCIDR": made.cidrs[0], "podCIDRs": list(made.cidrs)}
            api_server.request("PATCH", path, {"spec": spec}, content_type="application/merge-patch+json")
            found.append(made)
        yield tuple(found)
    for each in found:
        api_server.request("DELETE", f"/api/v1/nodes/{each.name}")
    api_server.delete_collection(f"/api/v1/namespaces/{NAMESPACE}/pods")


def put_pools(store: Datastore, mode: Encapsulation) -> None:
    pools = [make_pool(prefix, vxlan=mode) for prefix in POOLS]
    store.commit([Create(pool.key, pool) for pool in pools], deadline=deadline_in())


def start(nodes: tuple[ClusterNode, ...], server: ApiServer, mode: Encapsulation, **variables: str) -> None:
    """Pools and node processes."""
    if mode is Encapsulation.NEVER:
        find_bird()  # it makes these routes
    with open_store(server, CrdMode.V1) as store:
        put_pools(store, mode)
    for node in nodes:
        node.start(**variables)


def expect_reached(*nodes: ClusterNode) -> None:
    """Wait until each pod reaches all addresses of each."""
    for one, other in product(nodes, nodes):
        for address in other.addresses:
            wait_until(partial(reaches, one, address), f"the pod of {one.name} reaches {address}")


@pytest.mark.parametrize("mode", [Encapsulation.ALWAYS, Encapsulation.NEVER], ids=str)
def test_pods_with_addresses_of_pod_cidrs_reach_each_other(
    nodes: tuple[ClusterNode, ...], api_server: ApiServer, mode: Encapsulation
) -> None:
    start(nodes, api_server, mode, USE_POD_CIDR="true")
    for node in nodes:
        node.attach({"type": "host-local", "ranges": RANGES})
        for cidr in node.cidrs:
            assert any(Address.parse(text) in Prefix.parse(cidr) for text in node.addresses)
            wait_until(partial(has_blackhole, node, cidr), f"packets to free addresses of {cidr} end on its node")
    expect_reached(*nodes)


def test_rt15_an_address_that_an_annotation_chooses_past_assignment_is_reached_from_other_nodes(
    nodes: tuple[ClusterNode, ...], api_server: ApiServer
) -> None:
    first, second = nodes
    start(nodes, api_server, Encapsulation.NEVER)
    first.attach(BLOCKS, ipAddrsNoIpam=json.dumps(CHOSEN))
    second.attach(BLOCKS)
    assert first.addresses == CHOSEN
    expect_reached(first, second)


def has_blackhole(node: ClusterNode, cidr: str) -> bool:
    return "blackhole" in node.node.run("ip", "-6" if ":" in cidr else "-4", "route", "show", cidr)


def reaches(node: ClusterNode, address: str) -> bool:
    assert node.pod is not None
    return node.node.can_ping(address, inside=node.pod.name)
