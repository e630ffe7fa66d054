"""Two nodes on one machine, a switch between them, and one etcd: with plain routes between the nodes, all pods talk.

No node process runs here, so the test adds a route for each block, as an operator of a small network would.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.node_cluster import Cluster, open_cluster
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.waiting import is_eventually

pytestmark = [pytest.mark.netns, pytest.mark.etcd]


@pytest.fixture
def cluster(tmp_path: Path, bin_dir: str, etcd: EtcdCluster) -> Iterator[Cluster]:
    """Two nodes, and pools of both families."""
    with open_cluster(tmp_path, bin_dir, etcd) as cluster:
        cluster.store.add_pool("main", "10.65.0.0/16")
        cluster.store.add_pool("six", "fd65::/64")
        yield cluster


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
