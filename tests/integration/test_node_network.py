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

from netplug_core.addressing import Family
from netplug_core.resources.ippool import Encapsulation
from netplug_core.resources.node import node_key
from tests.harness.bird import find_bird
from tests.harness.monitor import Monitor
from tests.harness.node import NetnsNode
from tests.harness.node_cluster import Cluster, ClusterNode, open_cluster
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
    start(cluster, mode)
    expected = set() if mode is Encapsulation.NEVER else {"vxlan.netplug", "vxlan6.netplug"}
    for node in cluster.nodes:
        wait_until(partial(has_devices, node.node, expected), "the tunnel devices are there")


def test_rt21_a_process_that_dies_and_comes_back_costs_no_packet_and_changes_nothing(cluster: Cluster) -> None:
    start(cluster, Encapsulation.ALWAYS)
    first, second = cluster.nodes[:2]
    before = programmed(first.node)
    (pod,), (addresses,) = first.pods, second.pods.values()
    pings = [first.node.start_process("ping", "-n", "-i", "0.05", each, inside=pod.name) for each in addresses]
    assert first.process is not None
    tentative = ("ip", "-6", "address", "show", "tentative")
    wait_until(lambda: not first.node.run(*tentative).strip(), "the kernel has checked its own addresses")
    with Monitor(first.node, objects=("link", "address", "route", "nexthop")) as events:
        first.process.signal(signal.SIGKILL)
        first.process.wait()
        assert programmed(first.node) == before, "what a dead process has programmed stays"
        process = first.start()
        wait_until(lambda: is_ready(process), "the new process is ready")
        assert events.seen() == [], "the new process writes nothing"
    assert programmed(first.node) == before
    for ping in pings:
        ping.send_signal(signal.SIGINT)
        assert ping.stdout is not None
        assert " 0% packet loss" in ping.stdout.read()


def test_rt20_what_a_foreign_hand_changes_is_repaired(cluster: Cluster) -> None:
    start(cluster, Encapsulation.ALWAYS)
    node = cluster.nodes[0].node
    before = programmed(node)
    some_route = "$(ip $family route show proto 78 metric 20 | head -1 | cut -d' ' -f1)"
    for script in (
        "ip link set vxlan.netplug down",
        "ip link set vxlan6.netplug down",
        "ip link set vxlan.netplug down; ip link set vxlan.netplug up",
        "ip link delete vxlan6.netplug",
        f"for family in -4 -6; do ip $family route delete {some_route} metric 20; done",
        f"family=-4; ip route replace {some_route} via 10.240.0.77 dev lan0 proto 78 metric 20",
        f"family=-6; ip -6 route replace {some_route} via fd24::77 dev lan0 proto 78 metric 20",
        "ip nexthop flush proto 78",
    ):
        node.run("sh", "-ec", script)
        wait_until(lambda: programmed(node) == before, f"repaired: {script}")
    assert cluster.unreached() == []


@pytest.mark.night  # nothing notifies of it: the kernel is read every 90 seconds
def test_rt20_an_entry_of_a_tunnel_that_is_deleted_comes_back(cluster: Cluster) -> None:
    start(cluster, Encapsulation.ALWAYS)
    node = cluster.nodes[0].node
    before = programmed(node)
    for device in ("vxlan.netplug", "vxlan6.netplug"):
        node.run(
            "sh", "-ec", f"bridge fdb show dev {device} | while read mac _; do bridge fdb del $mac dev {device}; done"
        )
        node.run("ip", "neigh", "flush", "dev", device, "nud", "permanent")
        node.run("ip", "-6", "neigh", "flush", "dev", device, "nud", "permanent")
    assert programmed(node) != before
    wait_until(lambda: programmed(node) == before, "the entries are there again")
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
    """What was programmed before the node came is programmed when it has gone, and nothing else."""
    *others, third = cluster.nodes
    for prefix in (V4, V6):
        cluster.put_pool(prefix, Encapsulation.ALWAYS)
    for node in others:
        node.start()
    for node in others:
        node.attach()
    wait_until(lambda: cluster.unreached() == [], "pods of the first nodes reach each other")
    wait_until(
        lambda: all(has_tunnel_addresses(cluster, node, expected=True) for node in others),
        "their tunnels have addresses",
    )
    before = [programmed(node.node) for node in others]
    process = third.start()
    third.attach()
    wait_until(lambda: cluster.unreached() == [], "the pod of the new node is reached")
    assert all(programmed(node.node) != known for node, known in zip(others, before, strict=True))
    for pod in tuple(third.pods):
        third.detach(pod)
    process.signal(signal.SIGTERM)
    process.wait()
    cluster.put(node_key(third.name), None)
    wait_until(lambda: [programmed(node.node) for node in others] == before, "nothing of the node is left")
    assert cluster.unreached() == []


def test_rt8_a_pool_changes_its_encapsulation_while_pods_run(cluster: Cluster) -> None:
    """The nodes have tunnel addresses just as long as a pool needs them."""
    start(cluster, Encapsulation.ALWAYS)
    for mode in (Encapsulation.CROSS_SUBNET, Encapsulation.NEVER, Encapsulation.ALWAYS):
        for prefix in (V4, V6):
            cluster.put_pool(prefix, mode)
        is_wrapped = mode is not Encapsulation.NEVER
        expected = {"vxlan.netplug", "vxlan6.netplug"} if is_wrapped else set()
        for node in cluster.nodes:
            wait_until(partial(has_devices, node.node, expected), f"the tunnel devices are those of {mode}")
            wait_until(partial(has_tunnel_addresses, cluster, node, is_wrapped), f"its Node is that of {mode}")
        wait_until(lambda: cluster.unreached() == [], f"all pods reach each other with {mode}")


def has_tunnel_addresses(cluster: Cluster, node: ClusterNode, expected: bool) -> bool:  # noqa: FBT001  bound by partial
    """Whether the Node has an address for the tunnel of each family, which it holds, one each; or nothing of both."""
    stored, held = cluster.find_node(node.name), cluster.store.held()
    assert stored is not None
    for family, handle in ((Family.IPV4, "vxlan-tunnel-addr"), (Family.IPV6, "vxlan-v6-tunnel-addr")):
        address = stored.find_vxlan_address(family)
        if (address is not None) is not expected:
            return False
        if held.get(f"{handle}-{node.name}", ()) != (() if address is None else (str(address),)):
            return False
    return True


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
    return sorted(re.sub(r"nhid \d+ ", "", line).strip() for line in found.splitlines())


def is_ready(process: NodeProcess) -> bool:
    """Whether a node process says that it is ready."""
    asked = subprocess.run(
        [sys.executable, "-m", "netplug_cli.wiring.ctl", "node", "status", "-o", "json", "--socket", process.socket],
        capture_output=True,
        text=True,
        check=False,
    )
    return bool(asked.stdout) and json.loads(asked.stdout)["problems"] == []
