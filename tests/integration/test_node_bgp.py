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
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.ippool import AllowedUse, Encapsulation
from netplug_core.resources.kinds import key_of
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration, NodeConfigurationSpec
from netplug_core.resources.workloadendpoint import IPNAT, WORKLOAD_ENDPOINT
from tests.harness.bird import find_bird
from tests.harness.node import PodNamespace
from tests.harness.node_cluster import Cluster, ClusterNode, open_cluster
from tests.harness.resources import resource_of
from tests.harness.routes import make_pool
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.waiting import wait_until
from tests.harness.wire import open_wire

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


def has_route(node: ClusterNode, address: Address, device: str) -> bool:
    shown = node.node.run("ip", f"-{address.family.value}", "route", "show", "proto", "78", "metric", "10")
    return f"{address} dev {device}" in shown


def bird_pid(node: ClusterNode) -> str:
    return node.node.run("cat", f"{FOLDER}/bird.pid").strip()


def put(cluster: Cluster, kind: str, name: str, /, **spec: object) -> None:
    """Store a resource of a user."""
    resource = resource_of(kind, name, spec)
    cluster.put(key_of(resource), resource)


def test_rt10_rt18_pods_reach_each_other_over_bgp_by_their_own_addresses(cluster: Cluster) -> None:
    start(cluster)
    first, second, _third = cluster.nodes
    blocks = [block.prefix for block in cluster.store.blocks() if block.owner == f"host:{first.name}"]
    assert len(blocks) == 2
    for block in blocks:
        route = learned(second)[block]
        assert route["gateway"] == first.port.address(str(block))
        assert route["prefsrc"] == second.port.address(str(block))
    ways = [
        (one, other)
        for sender, receiver in ((first, second), (second, first))
        for one, other in pairs(sender, receiver)
    ]
    with open_wire(second.node, "lan0") as wire:
        assert cluster.unreached() == []
        assert set(ways) <= {(one.source, one.destination) for one in wire.seen() if one.outer is None}


def pairs(sender: ClusterNode, receiver: ClusterNode) -> list[tuple[Address, Address]]:
    """The addresses of packets from the pod of a node to that of another one, in each family."""
    (own,), (others,) = sender.pods.values(), receiver.pods.values()
    return [(Address.parse(one), Address.parse(other)) for one, other in zip(own, others, strict=True)]


CHOSEN = {Family.IPV4: "10.65.99.7", Family.IPV6: "fd65::99:7"}
FLOATING = {Family.IPV4: "10.65.99.8", Family.IPV6: "fd65::99:8"}
WITH_VXLAN = {Family.IPV4: "10.66.0.0/16", Family.IPV6: "fd66::/64"}
SILENT = "10.66.99.7", "198.51.100.7", "fd66::99:7", "2001:db8:51::7"
"""Addresses of a pool with VXLAN, and of none."""


def test_rt15_rt37_an_address_past_assignment_and_a_floating_one_are_announced_while_their_pod_is_there(
    cluster: Cluster,
) -> None:
    spec = NodeConfigurationSpec(floating_ips=Switch.ENABLED)
    cluster.put(NODE_CONFIGURATION.key("default"), NodeConfiguration(metadata=Metadata(name="default"), spec=spec))
    for prefix in WITH_VXLAN.values():
        wrapped = make_pool(prefix, vxlan=Encapsulation.ALWAYS, uses=(AllowedUse.TUNNEL,))
        cluster.put(wrapped.key, wrapped)
    start(cluster)
    first, *others = cluster.nodes
    ((pod, _held),) = first.pods.items()
    name, web = next((name, one) for name, one in cluster.store.endpoints().items() if one.spec.node == first.name)
    end = web.spec.interface_name
    chosen = [Address.parse(text) for text in (*CHOSEN.values(), *SILENT)]
    for address in chosen:
        have_past_assignment(first, pod, address, end)
    nats = (IPNAT(internal=held, external=Address.parse(FLOATING[held.family])) for held in web.spec.addresses)
    key = WORKLOAD_ENDPOINT.key(*name.split("/"))
    cluster.put(key, evolve(web, spec=evolve(web.spec, ip_nats=tuple(nats))))
    announced = [Address.parse(text) for text in (*CHOSEN.values(), *FLOATING.values())]
    for node in others:
        (there,) = node.pods
        for target in announced:
            wait_until(partial(has_learned, node, target.host_prefix), f"{node.name} has learned {target}")
            wait_until(partial(node.node.can_ping, str(target)), f"{node.name} reaches {target}")
            wait_until(partial(node.node.can_ping, str(target), inside=there.name), f"its pod reaches {target}")
        assert [text for text in SILENT if text in all_routes(node)] == []
    assert all(first.node.can_ping(text) for text in SILENT), "they work from their own node"
    for address in chosen:
        first.node.run("ip", "route", "delete", str(address.host_prefix), "dev", end, "metric", "10")
    for address in chosen:
        wait_until(partial(has_route, first, address, end), "a route to a pod that somebody deleted is there again")
    first.detach(pod)
    for target in announced:
        wait_until(
            partial(has_withdrawn, others[0], target.host_prefix), f"{target} of the pod that is gone is withdrawn"
        )
    assert [address for address in chosen if has_route(first, address, end)] == []


def have_past_assignment(node: ClusterNode, pod: PodNamespace, address: Address, end: str) -> None:
    """What an ADD does for ipAddrsNoIpam: the pod has the address, and a route of the plugin leads there."""
    options = ("nodad",) if address.family is Family.IPV6 else ()
    node.node.run("ip", "address", "add", str(address.host_prefix), "dev", "eth0", *options, inside=pod.name)
    node.node.run("ip", "route", "add", str(address.host_prefix), "dev", end, "metric", "10", "proto", "78")


def all_routes(node: ClusterNode) -> str:
    """Those of all tables."""
    shown = (node.node.run("ip", family, "route", "show", "table", "all") for family in ("-4", "-6"))
    return "\n".join(shown)


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


OTHER_BIRD = """
router id 10.240.0.1;
protocol device { }
protocol static foreign4 { ipv4; route 203.0.113.0/24 blackhole; }
protocol static foreign6 { ipv6; route 2001:db8:113::/48 blackhole; }
protocol kernel { persist; ipv4 { export all; }; }
protocol kernel { persist; ipv6 { export all; }; }
protocol bgp site { local 10.240.0.1 as 65001; neighbor 10.240.0.99 as 65001; passive; ipv4 { import all; }; }
"""


def test_rt32_another_bird_on_the_host_is_left_alone_and_named_until_it_is_gone(cluster: Cluster) -> None:
    first = cluster.nodes[0]
    file = first.node.write_file("other.conf", OTHER_BIRD)
    other = first.node.start_process(find_bird(), "-f", "-c", file, "-s", "/run/other.ctl")
    wait_until(lambda: len(learned(first)) == 2, "the other BIRD has made its routes")
    routes = learned(first)
    for prefix in (V4, V6):
        cluster.put_pool(prefix)
    process, *_ = [node.start() for node in cluster.nodes]
    for node in cluster.nodes:
        node.attach()
    wait_until(lambda: is_named(process.socket, "another program listens on port 179"), "the other BIRD is named")
    assert learned(first) == routes
    other.kill()
    other.wait()
    wait_until(lambda: is_named(process.socket, "the main table has 2 routes of the protocol bird"), "its routes are")
    assert learned(first) == routes
    for family in ("-4", "-6"):
        first.node.run("ip", family, "route", "flush", "proto", "bird")  # as is advised
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")


def is_named(socket: str, text: str) -> bool:
    """Whether the status names a problem."""
    network = ask_node(socket).network
    return network is not None and any(text in one for one in network.problems)


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
