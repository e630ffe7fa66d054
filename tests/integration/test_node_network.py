"""Nodes of one cluster with their node processes: pods of all of them reach each other, without anything by hand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from netplug_core.resources.ippool import Encapsulation
from tests.harness.bird import find_bird
from tests.harness.node import NetnsNode
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
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        for _ in range(pods):
            node.attach()
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")


def has_devices(node: NetnsNode, expected: set[str]) -> bool:
    """Whether a node has these tunnel devices and no others."""
    return {name for name in node.links() if name.endswith(".netplug")} == expected


@pytest.mark.parametrize("mode", Encapsulation)
def test_pods_of_all_nodes_reach_each_other(cluster: Cluster, mode: Encapsulation) -> None:
    if mode is Encapsulation.NEVER:
        find_bird()  # it makes these routes
    before = [node.node.leftovers() for node in cluster.nodes]
    start(cluster, mode)
    expected = set() if mode is Encapsulation.NEVER else {"vxlan.netplug", "vxlan6.netplug"}
    for node in cluster.nodes:
        wait_until(partial(has_devices, node.node, expected), "the tunnel devices are there")
        for pod in tuple(node.pods):
            node.detach(pod)
    assert before != []
