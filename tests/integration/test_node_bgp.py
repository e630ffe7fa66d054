"""Node processes that speak BGP: pods of all nodes reach each other over pools without encapsulation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from netplug_cli.ctl.commands.node import ask_node
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.resources.fields import Switch
from netplug_core.resources.kinds import key_of
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration, NodeConfigurationSpec
from netplug_core.resources.workloadendpoint import IPNAT, WORKLOAD_ENDPOINT
from tests.harness.bird import find_bird
from tests.harness.node_cluster import Cluster, ClusterNode, open_cluster
from tests.harness.resources import resource_of
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.etcd]

V4, V6 = "10.65.0.0/16", "fd65::/64"
FOLDER = "/run/netplug/bird"


@pytest.fixture
def cluster(tmp_path: Path, bin_dir: str, etcd: EtcdCluster) -> Iterator[Cluster]:
    """Three nodes."""
    find_bird()
    with open_cluster(tmp_path, bin_dir, etcd, 3) as cluster:
        yield cluster


def start(cluster: Cluster) -> None:
    """Plain pools of both families, node processes, and a pod on each node."""
    for prefix in (V4, V6):
        cluster.put_pool(prefix)
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        node.attach()
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")


def learned(node: ClusterNode) -> dict[Prefix, dict[str, object]]:
    """The routes of its main table that BIRD has made."""
    found: dict[Prefix, dict[str, object]] = {}
    for family in ("-4", "-6"):
        text = node.node.run("ip", "-j", family, "route", "show", "proto", "bird")
        found |= {Prefix.parse(one["dst"]): one for one in json.loads(text or "[]")}
    return found


def has_learned(node: ClusterNode, prefix: Prefix) -> bool:
    return prefix in learned(node)


def translates_nothing_to(node: ClusterNode, address: str) -> bool:
    return address not in node.node.run("nft", "list", "table", "inet", "netplug_net")


def has_withdrawn(node: ClusterNode, prefix: Prefix) -> bool:
    return prefix not in learned(node)


def has_route(node: ClusterNode, address: str, device: str) -> bool:
    return f"{address} dev {device}" in node.node.run("ip", "route", "show", "proto", "78", "metric", "10")


def bird_pid(node: ClusterNode) -> str:
    return node.node.run("cat", f"{FOLDER}/bird.pid").strip()


def put(cluster: Cluster, kind: str, name: str, /, **spec: object) -> None:
    """Store a resource of a user."""
    resource = resource_of(kind, name, spec)
    cluster.put(key_of(resource), resource)


def test_rt10_rt18_pods_reach_each_other_over_bgp(cluster: Cluster) -> None:
    start(cluster)
    first, second, _third = cluster.nodes
    blocks = [block.prefix for block in cluster.store.blocks() if block.owner == f"host:{first.name}"]
    assert len(blocks) == 2
    for block in blocks:
        route = learned(second)[block]
        assert route["gateway"] == first.port.address(str(block))
        assert route["prefsrc"] == second.port.address(str(block))


def test_rt15_rt37_an_address_past_assignment_and_a_floating_one_are_announced_while_their_pod_is_there(
    cluster: Cluster,
) -> None:
    spec = NodeConfigurationSpec(floating_ips=Switch.ENABLED)
    cluster.put(NODE_CONFIGURATION.key("default"), NodeConfiguration(metadata=Metadata(name="default"), spec=spec))
    start(cluster)
    first, second, third = cluster.nodes
    chosen, floating = "10.65.99.7", "10.65.99.8"
    (pod,) = first.pods
    name, web = next((name, one) for name, one in cluster.store.endpoints().items() if one.spec.node == first.name)
    end, held = web.spec.interface_name, next(one for one in web.spec.addresses if one.family is Family.IPV4)
    # As an ADD does for ipAddrsNoIpam: the pod has the address, and a route of the plugin leads there.
    first.node.run("ip", "address", "add", f"{chosen}/32", "dev", "eth0", inside=pod.name)
    first.node.run("ip", "route", "add", f"{chosen}/32", "dev", end, "metric", "10", "proto", "78")
    nat = IPNAT(internal=held, external=Address.parse(floating))
    key = WORKLOAD_ENDPOINT.key(*name.split("/"))
    cluster.put(key, evolve(web, spec=evolve(web.spec, ip_nats=(nat,))))
    for node in (second, third):
        for target in (chosen, floating):
            prefix = Prefix.parse(f"{target}/32")
            wait_until(partial(has_learned, node, prefix), f"{node.name} has learned {prefix}")
            wait_until(partial(node.node.can_ping, target), f"{node.name} reaches {target}")
    first.node.run("ip", "route", "delete", f"{chosen}/32", "dev", end, "metric", "10")
    wait_until(lambda: has_route(first, chosen, end), "a route to a pod that somebody deleted is there again")
    first.detach(pod)
    for target in (chosen, floating):
        prefix = Prefix.parse(f"{target}/32")
        wait_until(partial(has_withdrawn, second, prefix), f"{prefix} of the pod that is gone is withdrawn")
    assert not has_route(first, chosen, end)


def test_rt38_a_floating_address_outside_of_pools_is_not_announced_and_without_the_feature_there_is_none(
    cluster: Cluster,
) -> None:
    def enable(switch: Switch) -> None:
        spec = NodeConfigurationSpec(floating_ips=switch)
        value = NodeConfiguration(metadata=Metadata(name="default"), spec=spec)
        cluster.put(NODE_CONFIGURATION.key("default"), value)

    enable(Switch.ENABLED)
    start(cluster)
    first, second, _third = cluster.nodes
    name, web = next((name, one) for name, one in cluster.store.endpoints().items() if one.spec.node == first.name)
    floating = {
        Family.IPV4: ("10.65.99.8", "203.0.113.8"),
        Family.IPV6: ("fd65::99:8", "2001:db8:99::8"),
    }  # in a pool, and in none
    pairs = ((held, text) for held in web.spec.addresses for text in floating[held.family])
    nats = tuple(IPNAT(internal=held, external=Address.parse(text)) for held, text in pairs)
    key = WORKLOAD_ENDPOINT.key(*name.split("/"))
    cluster.put(key, evolve(web, spec=evolve(web.spec, ip_nats=nats)))
    for inside, outside in floating.values():
        prefix = Address.parse(inside).host_prefix
        wait_until(partial(has_learned, second, prefix), f"{prefix} of a pool is announced")
        wait_until(partial(first.node.can_ping, outside), f"{outside} leads to the pod on its own node")
        announced = first.node.run("ip", "-6" if ":" in inside else "-4", "route", "show", "table", "7801")
        assert inside in announced
        assert outside not in announced
        assert Address.parse(outside).host_prefix not in learned(second)
    enable(Switch.DISABLED)
    for inside, outside in floating.values():
        wait_until(partial(has_withdrawn, second, Address.parse(inside).host_prefix), f"{inside} is withdrawn")
        wait_until(partial(translates_nothing_to, first, outside), "nothing is translated")


def test_rt21_rt24_processes_that_are_killed_change_nothing(cluster: Cluster) -> None:
    start(cluster)
    first, second, _third = cluster.nodes
    routes, pid = learned(second), bird_pid(first)
    assert first.process is not None
    first.process.child.kill()
    first.process.wait()
    assert bird_pid(first) == pid
    first.node.run("test", "-d", f"/proc/{pid}")
    first.node.run("kill", "-9", pid)
    assert learned(second) == routes
    first.start()
    wait_until(lambda: bird_pid(first) != pid, "another BIRD runs")
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")
    assert learned(second) == routes


def test_in_mode_node_the_node_processes_make_the_routes(cluster: Cluster) -> None:
    put(cluster, "BGPConfiguration", "default", clusterRoutingMode="Node")
    start(cluster)
    assert [learned(node) for node in cluster.nodes] == [{}, {}, {}]
    put(cluster, "BGPConfiguration", "default", clusterRoutingMode="BGP")
    wait_until(lambda: all(len(learned(node)) == 4 for node in cluster.nodes), "BIRD has made the routes")
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")
    put(cluster, "BGPConfiguration", "default", clusterRoutingMode="Node")
    wait_until(lambda: not any(map(learned, cluster.nodes)), "BIRD has taken its routes back")
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")


def test_the_tool_shows_the_sessions(cluster: Cluster) -> None:
    start(cluster)
    first = cluster.nodes[0]
    assert first.process is not None
    socket = first.process.socket
    expected = [("node-2", True), ("node-3", True)] * 2  # in both families
    wait_until(lambda: sessions(socket) == expected, "all sessions are established")
    wait_until(lambda: ask_node(socket).problems == (), "the node process is ready")


def sessions(socket: str) -> list[tuple[str, bool]]:
    """The sessions that the status shows, and whether they are established."""
    network = ask_node(socket).network
    return [] if network is None else [(one.peer, one.is_established) for one in network.peers]
