"""Node processes program NAT, guards and floating addresses by what is stored in their cluster, and keep them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.ippool import Encapsulation
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration, NodeConfigurationSpec
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from tests.harness.nat_scene import endpoint
from tests.harness.node import NetnsNode
from tests.harness.node_cluster import Cluster, open_cluster
from tests.harness.routes import make_pool
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.etcd]

V4, V6 = "10.65.0.0/16", "fd65::/64"


@pytest.fixture
def cluster(tmp_path: Path, bin_dir: str, etcd: EtcdCluster) -> Iterator[Cluster]:
    """Two nodes with pools in VXLAN, whose packets are translated when they leave, and a pod each."""
    with open_cluster(tmp_path, bin_dir, etcd, 2) as cluster:
        for prefix in (V4, V6):
            put_pool(cluster, prefix, nat=True)
        for node in cluster.nodes:
            node.start()
            node.attach()
        yield cluster


def put_pool(cluster: Cluster, prefix: str, *, nat: bool) -> None:
    pool = make_pool(prefix, vxlan=Encapsulation.ALWAYS)
    cluster.put(pool.key, evolve(pool, spec=evolve(pool.spec, has_outgoing_nat=nat)))


def elements(node: NetnsNode, name: str) -> set[str]:
    """What a set of the node's table has in it; nothing if there is no such set."""
    listed = node.run_unchecked("nft", "list", "set", "inet", "netplug_net", name).stdout
    listed = listed or node.run_unchecked("nft", "list", "map", "inet", "netplug_net", name).stdout
    found = re.search(r"elements = \{([^}]*)\}", listed)
    return set() if found is None else {each.strip() for each in found.group(1).split(",")}


def wait_for(node: NetnsNode, name: str, *expected: str) -> None:
    """Wait until a set has exactly these elements."""
    wait_until(lambda: elements(node, name) == set(expected), f"{name} has {expected}")


def table(node: NetnsNode) -> str:
    return node.run_unchecked("nft", "list", "table", "inet", "netplug_net").stdout


def test_rt20_nat_and_guards_follow_the_cluster_and_come_back(cluster: Cluster) -> None:
    first, second = cluster.nodes
    for node in cluster.nodes:
        wait_for(node.node, "nat_pools4", V4)
        wait_for(node.node, "pools6", V6)
        wait_for(node.node, "nodes4", first.port.ipv4, second.port.ipv4)
        wait_for(node.node, "nodes6", first.port.ipv6, second.port.ipv6)
    wait_until(lambda: cluster.unreached() == [], "pods reach each other")
    before = table(first.node)
    first.node.run("nft", "flush", "ruleset")
    wait_until(lambda: table(first.node) == before, "the whole table is there again")
    wait_until(lambda: cluster.unreached() == [], "pods reach each other again")
    put_pool(cluster, V6, nat=False)
    wait_for(first.node, "nat_pools6")
    wait_for(first.node, "nat_pools4", V4)


def test_floating_addresses_follow_the_workloads_of_the_node(cluster: Cluster) -> None:
    spec = NodeConfigurationSpec(floating_ips=Switch.ENABLED)
    cluster.put(NODE_CONFIGURATION.key("default"), NodeConfiguration(metadata=Metadata(name="default"), spec=spec))
    first, second = cluster.nodes
    web = endpoint("10.65.0.77", "203.0.113.1")
    key = WORKLOAD_ENDPOINT.key("default", web.metadata.name)
    cluster.put(key, evolve(web, spec=evolve(web.spec, node=first.name)))
    wait_for(first.node, "floating4", "203.0.113.1 : 10.65.0.77")
    assert elements(second.node, "floating4") == set()
    cluster.put(key, evolve(web, spec=evolve(web.spec, node=second.name)))
    wait_for(second.node, "floating4", "203.0.113.1 : 10.65.0.77")
    wait_for(first.node, "floating4")
    cluster.put(key, None)
    wait_for(second.node, "floating4")
