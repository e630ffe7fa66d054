"""How packets of pods pass between nodes: as they are on the wire, to whom, and which addresses lead to nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.model import Block
from netplug_core.resources.ippool import AllowedUse, Encapsulation
from tests.harness.bird import find_bird
from tests.harness.node import NetnsNode
from tests.harness.node_cluster import Cluster, ClusterNode, open_cluster
from tests.harness.routes import make_pool
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.switch import NodePort
from tests.harness.waiting import wait_until
from tests.harness.wire import open_wire

pytestmark = [pytest.mark.netns, pytest.mark.etcd]

POOLS = {Family.IPV4: "10.65.0.0/16", Family.IPV6: "fd65::/64"}
Outer = tuple[Address, Address] | None

with_and_without_vxlan = pytest.mark.parametrize("mode", [Encapsulation.ALWAYS, Encapsulation.NEVER], ids=str)


@pytest.fixture
def cluster(tmp_path: Path, bin_dir: str, etcd: EtcdCluster) -> Iterator[Cluster]:
    """Three nodes."""
    with open_cluster(tmp_path, bin_dir, etcd, 3) as cluster:
        yield cluster


def start(cluster: Cluster, mode: Encapsulation) -> None:
    """Pools of both families, and node processes that follow the addresses of their nodes."""
    if mode is Encapsulation.NEVER:
        find_bird()  # it makes these routes
    for prefix in POOLS.values():
        cluster.put_pool(prefix, mode)
    for node in cluster.nodes:
        node.start(IP="autodetect")


def attach_pods(cluster: Cluster) -> None:
    """A pod on each node."""
    for node in cluster.nodes:
        node.attach()
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")


def pod_addresses(node: ClusterNode) -> dict[Family, Address]:
    """Those of its only pod."""
    ((first, second),) = node.pods.values()
    return {one.family: one for one in map(Address.parse, (first, second))}


# --- on the wire ------------------------------------------------------------------------------------------------------


def outers(sender: ClusterNode, receiver: ClusterNode) -> set[Outer]:
    """In which packets those of a pod to another one, and the answers, are at the node; None: they are not wrapped."""
    found: set[Outer] = set()
    (pod,), own, other = sender.pods, pod_addresses(sender), pod_addresses(receiver)
    with open_wire(sender.node, "lan0") as wire:
        for family in Family:
            sender.node.can_ping(str(other[family]), inside=pod.name)
            pairs = (own[family], other[family]), (other[family], own[family])
            seen = [one for one in wire.seen() if (one.source, one.destination) in pairs]
            if {(one.source, one.destination) for one in seen} == set(pairs):
                found.update(one.outer for one in seen)
    return found


def wrapped(sender: ClusterNode, receiver: ClusterNode) -> set[Outer]:
    """The addresses of the packets of VXLAN between two nodes, there and back, in both families."""
    pairs = [(sender.port.ipv4, receiver.port.ipv4), (sender.port.ipv6, receiver.port.ipv6)]
    parsed = [(Address.parse(one), Address.parse(other)) for one, other in pairs]
    return {*parsed, *((other, one) for one, other in parsed)}


def are(sender: ClusterNode, receiver: ClusterNode, expected: set[Outer]) -> bool:
    return outers(sender, receiver) == expected


def test_rt11_rt18_only_the_packets_that_a_pool_asks_for_are_wrapped(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    start(cluster, Encapsulation.ALWAYS)
    attach_pods(cluster)
    for other in (second, third):
        assert outers(first, other) == wrapped(first, other)
    for prefix in POOLS.values():
        cluster.put_pool(prefix, Encapsulation.CROSS_SUBNET)
    for other in (second, third):
        wait_until(partial(are, first, other, {None}), "nothing is wrapped within a subnet")
    move_behind_a_router(third, first, second)
    wait_until(lambda: cluster.unreached() == [], "the node is reached behind the router")
    for one in (first, second):
        assert outers(one, third) == wrapped(one, third)
    assert outers(third, first) == wrapped(third, first)
    assert outers(first, second) == {None}


def move_behind_a_router(node: ClusterNode, *others: ClusterNode) -> None:
    """Let a node have addresses of other subnets, which are behind a router where its port was."""
    node.port = NodePort("10.241.0.3", "fd25::3")
    here, there = "lan0", "router"
    node.node.run("sh", "-ec", f"ip netns add {there}; ip link set {here} netns {there}")
    _batch(node.node, "-n", there, lines=(
        "link set lo up",
        "link set lan0 addrgenmode none up",
        "address add 10.240.0.254/24 dev lan0",
        "address add fd24::254/64 dev lan0 nodad",
        "address add fe80::fe/64 dev lan0 nodad",
        f"link add far0 type veth peer name {here} netns {node.node.pid}",
        "link set far0 addrgenmode none up",
        "address add 10.241.0.1/24 dev far0",
        "address add fd25::1/64 dev far0 nodad",
        "address add fe80::1/64 dev far0 nodad",
    ))  # fmt: skip
    for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        node.node.run("sh", "-c", f"echo 1 > /proc/sys/net/{setting}", inside=there)
    _batch(node.node, lines=(
        f"link set {here} addrgenmode none up",
        f"address add {node.port.ipv4}/24 dev {here}",
        f"address add {node.port.ipv6}/64 dev {here} nodad",
        f"address add fe80::3/64 dev {here} nodad",
        "route add 10.240.0.0/24 via 10.241.0.1",
        "route add fd24::/64 via fd25::1",
    ))  # fmt: skip
    for other in others:
        lines = "route add 10.241.0.0/24 via 10.240.0.254", "route add fd25::/64 via fd24::254"
        _batch(other.node, lines=lines)


def _batch(node: NetnsNode, *options: str, lines: tuple[str, ...]) -> None:
    node.run("ip", *options, "-batch", "-", stdin="\n".join(lines))


OF_ONE_FAMILY = {
    Family.IPV4: {"IP": "autodetect", "IP6": "none"},
    Family.IPV6: {"IP": "none", "IP6": "autodetect"},
}
"""Variables of node processes."""


@with_and_without_vxlan
@pytest.mark.parametrize("family", Family, ids=str)
def test_pods_of_nodes_of_one_family_reach_each_other(cluster: Cluster, mode: Encapsulation, family: Family) -> None:
    if mode is Encapsulation.NEVER:
        find_bird()
    cluster.put_pool(POOLS[family], mode)
    for node in cluster.nodes:
        node.start(**OF_ONE_FAMILY[family])
    asked = {str(one): str(one is family).lower() for one in Family}
    ipam = {"type": "netplug-ipam", "assign_ipv4": asked["IPv4"], "assign_ipv6": asked["IPv6"]}
    for node in cluster.nodes:
        node.attach(ipam=ipam)
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")
    for node in cluster.nodes:
        stored = cluster.find_node(node.name)
        assert stored is not None
        assert [one for one in Family if stored.find_address(one) is not None] == [family]
        assert [len(addresses) for addresses in node.pods.values()] == [1]


# --- addresses of nobody, and borrowed ones ---------------------------------------------------------------------------


def own_block(cluster: Cluster, node: ClusterNode, family: Family) -> Block:
    """The block that the address of its first pod is of."""
    address = next(one for one in map(Address.parse, next(iter(node.pods.values()))) if one.family is family)
    return next(block for block in cluster.store.blocks() if address in block.prefix)


@with_and_without_vxlan
def test_rt12_rt18_packets_to_a_free_address_end_at_the_node_of_its_block(
    cluster: Cluster, mode: Encapsulation
) -> None:
    start(cluster, mode)
    attach_pods(cluster)
    first, second, _third = cluster.nodes
    (pod,) = second.pods
    for family in Family:
        block = own_block(cluster, first, family)
        free = next(block.prefix.nth(n) for n in reversed(range(block.prefix.size)) if block.allocations[n] is None)
        assert first.node.run_unchecked("ip", "route", "get", str(free)).returncode != 0
        with open_wire(first.node) as wire:
            assert not second.node.can_ping(str(free), inside=pod.name)
            assert second.node.can_ping(str(pod_addresses(first)[family]), inside=pod.name)
            seen = [one for one in wire.seen() if one.destination == free]
        assert seen != [], "the packet has come to the node"
        assert [one for one in seen if one.is_sent] == []


BLOCK_LENGTHS = {Family.IPV4: 30, Family.IPV6: 126}
TWO_BLOCKS = {Family.IPV4: "10.65.0.0/29", Family.IPV6: "fd65::/125"}
FOR_TUNNELS = {Family.IPV4: "10.66.0.0/24", Family.IPV6: "fd66::/120"}


@with_and_without_vxlan
def test_rt13_rt18_a_borrowed_address_is_reached_where_it_is(cluster: Cluster, mode: Encapsulation) -> None:
    """The first node has no free address left in its block, and there are two blocks, of four addresses each."""
    for family in Family:
        small = make_pool(
            TWO_BLOCKS[family], vxlan=mode, uses=(AllowedUse.WORKLOAD,), block_length=BLOCK_LENGTHS[family]
        )
        cluster.put(small.key, small)
        if mode is not Encapsulation.NEVER:
            tunnels = make_pool(FOR_TUNNELS[family], vxlan=mode, uses=(AllowedUse.TUNNEL,))
            cluster.put(tunnels.key, tunnels)
    if mode is Encapsulation.NEVER:
        find_bird()
    for node in cluster.nodes:
        node.start()
    first, second, third = cluster.nodes
    for node in (first, second, *(first,) * 4, third):
        node.attach()
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")
    borrowed = tuple(map(Address.parse, list(first.pods.values())[-1]))
    for address in borrowed:
        (block,) = (one for one in cluster.store.blocks() if address in one.prefix)
        assert block.owner == f"host:{second.name}"
        own = own_block(cluster, first, address.family)
        assert " dev netp" in first.node.run("ip", "route", "get", str(address))
        to_first = gateway(third.node, own.prefix)
        assert to_first != gateway(third.node, block.prefix)
        assert gateway(third.node, address.host_prefix) == to_first
        assert gateway(second.node, address.host_prefix) == gateway(second.node, own.prefix)


def gateway(node: NetnsNode, prefix: Prefix) -> str:
    """The gateway and the interface of the route to exactly this prefix."""
    shown = node.run("ip", f"-{prefix.family.value}", "route", "show", str(prefix))
    found = re.search(r" via (\S+ dev \S+)", shown)
    return "" if found is None else found[1]
