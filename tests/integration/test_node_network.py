"""Nodes of one cluster with their node processes: pods of all of them reach each other, without anything by hand."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from netplug_core.resources.ippool import Encapsulation
from netplug_core.resources.node import node_key
from tests.harness.bird import find_bird
from tests.harness.node import NetnsNode
from tests.harness.node_cluster import Cluster, open_cluster
from tests.harness.node_process import NodeProcess
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


def test_a_process_that_dies_and_comes_back_costs_no_packet_and_changes_nothing(cluster: Cluster) -> None:
    start(cluster, Encapsulation.ALWAYS)
    first, second = cluster.nodes[:2]
    before = programmed(first.node)
    (pod,), (addresses,) = first.pods, second.pods.values()
    pings = [first.node.start_process("ping", "-n", "-i", "0.05", each, inside=pod.name) for each in addresses]
    assert first.process is not None
    first.process.signal(signal.SIGKILL)
    first.process.wait()
    assert programmed(first.node) == before, "what a dead process has programmed stays"
    process = first.start()
    wait_until(lambda: is_ready(process), "the new process is ready")
    assert programmed(first.node) == before
    for ping in pings:
        ping.send_signal(signal.SIGINT)
        assert ping.stdout is not None
        assert " 0% packet loss" in ping.stdout.read()


def test_what_a_foreign_hand_changes_is_repaired(cluster: Cluster) -> None:
    start(cluster, Encapsulation.ALWAYS)
    node = cluster.nodes[0].node
    before = programmed(node)
    for script in (
        "ip link set vxlan.netplug down",
        "ip link set vxlan.netplug down; ip link set vxlan.netplug up",
        "ip link delete vxlan6.netplug",
        "ip route delete $(ip route show proto 78 metric 20 | head -1 | cut -d' ' -f1) metric 20",
        "ip nexthop flush proto 78",
    ):
        node.run("sh", "-ec", script)
        wait_until(lambda: programmed(node) == before, f"repaired: {script}")
    assert cluster.unreached() == []


def test_foreign_routes_and_devices_stay_and_a_device_of_our_name_is_named(cluster: Cluster) -> None:
    node = cluster.nodes[0].node
    node.run("ip", "link", "add", "vxlan6.netplug", "type", "vxlan", "id", "77", "dstport", "4790", "dev", "lan0")
    node.run("ip", "route", "add", "203.0.113.0/24", "via", "10.240.0.9", "proto", "static")
    cluster.put_pool(V4, Encapsulation.ALWAYS)
    cluster.put_pool(V6, Encapsulation.ALWAYS)
    process = cluster.nodes[0].start()
    wait_until(lambda: "a device of another program is where a tunnel is to be" in process.lines, "it is named")
    wait_until(lambda: has_devices(node, {"vxlan.netplug", "vxlan6.netplug"}), "the other tunnel is made")
    assert "id 77" in node.run("ip", "-d", "link", "show", "vxlan6.netplug")
    assert "203.0.113.0/24 via 10.240.0.9" in node.run("ip", "route", "show", "proto", "static")


def test_a_node_that_is_deleted_takes_its_entries_with_it(cluster: Cluster) -> None:
    start(cluster, Encapsulation.ALWAYS)
    first, *_, third = cluster.nodes
    assert third.process is not None
    for pod in tuple(third.pods):
        third.detach(pod)
    third.process.signal(signal.SIGTERM)
    third.process.wait()
    cluster.put(node_key(third.name), None)
    wait_until(lambda: "dst 10.240.0.3" not in first.node.run("bridge", "fdb", "show", "dev", "vxlan.netplug"), "gone")
    assert cluster.unreached() == []


def test_a_pool_changes_its_encapsulation_while_pods_run(cluster: Cluster) -> None:
    start(cluster, Encapsulation.ALWAYS)
    for mode in (Encapsulation.CROSS_SUBNET, Encapsulation.NEVER, Encapsulation.ALWAYS):
        for prefix in (V4, V6):
            cluster.put_pool(prefix, mode)
        expected = set() if mode is Encapsulation.NEVER else {"vxlan.netplug", "vxlan6.netplug"}
        for node in cluster.nodes:
            wait_until(partial(has_devices, node.node, expected), f"the tunnel devices are those of {mode}")
        wait_until(lambda: cluster.unreached() == [], f"all pods reach each other with {mode}")


def programmed(node: NetnsNode) -> list[str]:
    """All that is programmed for other nodes, without numbers that may differ."""
    script = """
ip -4 route show proto 78 metric 20; ip -6 route show proto 78 metric 20
ip -4 route show proto 78 type blackhole; ip -6 route show proto 78 type blackhole
for device in vxlan.netplug vxlan6.netplug; do
    bridge fdb show dev $device | grep dst
    ip -4 neigh show dev $device nud permanent; ip -6 neigh show dev $device nud permanent
    ip -o addr show dev $device scope global | sed 's/^[0-9]*//'
done
"""
    found = node.run_unchecked("sh", "-c", script).stdout
    return sorted(re.sub(r"nhid \\d+ ", "", line).strip() for line in found.splitlines())


def is_ready(process: NodeProcess) -> bool:
    """Whether a node process says that it is ready."""
    asked = subprocess.run(
        [sys.executable, "-m", "netplug_cli.wiring.ctl", "node", "status", "-o", "json", "--socket", process.socket],
        capture_output=True,
        text=True,
        check=False,
    )
    return bool(asked.stdout) and json.loads(asked.stdout)["problems"] == []
