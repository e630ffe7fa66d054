"""Nodes of one cluster with their node processes: pods of all of them reach each other, without anything by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_core.resources.ippool import Encapsulation
from tests.harness.node_cluster import Cluster, open_cluster
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.etcd]

V4, V6 = "10.65.0.0/16", "fd65::/64"


@pytest.fixture
def cluster(tmp_path: Path, bin_dir: str, etcd: EtcdCluster) -> Iterator[Cluster]:
    """Three nodes."""
    with open_cluster(tmp_path, bin_dir, etcd, 3) as cluster:
        yield cluster


def start(cluster: Cluster, mode: Encapsulation, pods: int = 1) -> None:
    """Pools of both families, node processes, and so many pods on each node."""
    for prefix in (V4, V6):
        cluster.put_pool(prefix, mode)
    cluster.register_by_hand()
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        for _ in range(pods):
            node.attach()
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")


@pytest.mark.parametrize("mode", Encapsulation)
def test_pods_of_all_nodes_reach_each_other(cluster: Cluster, mode: Encapsulation) -> None:
    before = [node.node.leftovers() for node in cluster.nodes]
    start(cluster, mode)
    for node in cluster.nodes:
        devices = {name for name in node.node.links() if name.startswith("vxlan")}
        assert devices == (set() if mode is Encapsulation.NEVER else {"vxlan.netplug", "vxlan6.netplug"})
        for pod in tuple(node.pods):
            node.detach(pod)
    assert before != []
