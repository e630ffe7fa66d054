"""What happens to the routes of nodes while blocks move, nodes come in a burst and go, and the datastore is away."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest

from netplug_cli.ctl.commands.node import ask_node
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.model import Affinity, AffinityState, Block, affinity_key, block_key
from netplug_core.keys import Key
from netplug_core.names import HOST_INTERFACE_PREFIX, POLICY_TABLE
from netplug_core.records import Create, Delete, Get, Update, Write
from netplug_core.resources.ippool import Encapsulation
from netplug_core.resources.node import node_key
from tests.harness.bird import find_bird
from tests.harness.monitor import Monitor
from tests.harness.node import NetnsNode
from tests.harness.node_cluster import Cluster, open_cluster
from tests.harness.routes import make_node, make_pool
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.servers.port_forward import OutageMode
from tests.harness.waiting import deadline_in, wait_until

pytestmark = [pytest.mark.netns, pytest.mark.etcd]

V4, V6 = "10.65.0.0/16", "fd65::/64"
MOVING = Prefix.parse("10.65.200.0/26"), Prefix.parse("fd65::c800/122")
T = TypeVar("T")
BURST, PER_COMMIT = 1_000, 40


@pytest.fixture
def cluster(tmp_path: Path, bin_dir: str, etcd: EtcdCluster) -> Iterator[Cluster]:
    """Three nodes."""
    with open_cluster(tmp_path, bin_dir, etcd, 3) as cluster:
        yield cluster


def start(cluster: Cluster) -> None:
    """Pools of both families with VXLAN, node processes, and a pod on each node."""
    for prefix in (V4, V6):
        cluster.put_pool(prefix, Encapsulation.ALWAYS)
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        node.attach()
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")


def commit(cluster: Cluster, writes: Iterable[Write]) -> None:
    with cluster.store.open() as store:
        store.commit(list(writes), deadline=deadline_in())


def batched(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Items in parts that one commit takes."""
    rest = iter(items)
    while part := tuple(islice(rest, PER_COMMIT)):
        yield part


def owned(prefix: Prefix, node: str) -> tuple[tuple[Key[object], object], ...]:
    """The records of a block that a node has, with its affinity."""
    owner = f"host:{node}"
    block = Block.new(prefix, owner=owner, now_ns=0)
    return (block_key(prefix), block), (affinity_key(owner, prefix), Affinity(state=AffinityState.CONFIRMED))


def move(cluster: Cluster, prefix: Prefix, former: str, latter: str) -> None:
    """Let another node have a block, in one commit, as the end of a release and a claim is seen by a watch."""
    ((key, block), (affinity, confirmed)) = owned(prefix, latter)
    gone: Key[object] = affinity_key(f"host:{former}", prefix)
    with cluster.store.open() as store:
        found = store.read([Get(key), Get(gone)], deadline=deadline_in())
        revisions = [record.revision for record in (found.find(key), found.find(gone)) if record is not None]
        writes: list[Write] = [
            Update(key, block, revisions[0]),
            Create(affinity, confirmed),
            Delete(gone, revisions[1]),
        ]
        store.commit(writes, deadline=deadline_in())


def family_of(prefix: Prefix) -> str:
    return "-4" if prefix.family is Family.IPV4 else "-6"


def way_to(node: NetnsNode, prefix: Prefix) -> str:
    """The route of a node to a block, without the number of its nexthop; empty if there is none."""
    return re.sub(r"nhid \d+ ", "", node.run("ip", family_of(prefix), "route", "show", str(prefix))).strip()


def leads_elsewhere(node: NetnsNode, prefix: Prefix, former: str) -> bool:
    return way_to(node, prefix) not in {"", former}


def has_blackhole(node: NetnsNode, prefix: Prefix) -> bool:
    return "blackhole" in way_to(node, prefix)


@pytest.mark.parametrize("prefix", MOVING, ids=lambda prefix: str(prefix.family))
def test_rt14_the_route_to_a_block_that_moves_is_replaced_and_never_missing(cluster: Cluster, prefix: Prefix) -> None:
    start(cluster)
    first, second, third = cluster.nodes
    commit(cluster, (Create(key, value) for key, value in owned(prefix, first.name)))
    wait_until(lambda: way_to(third.node, prefix) != "", "the route to the block is there")
    before = way_to(third.node, prefix)
    with Monitor(third.node, containing=str(prefix)) as events:
        for former, latter in ((first, second), (second, first)):
            known = way_to(third.node, prefix)
            move(cluster, prefix, former.name, latter.name)
            wait_until(partial(leads_elsewhere, third.node, prefix, known), "the route leads to the other node")
        lines = events.seen()
    assert way_to(third.node, prefix) == before
    assert len(lines) >= 2
    assert [line for line in lines if line.startswith("Deleted")] == []


@pytest.mark.parametrize("mode", [Encapsulation.ALWAYS, Encapsulation.NEVER], ids=str)
def test_rt17_rt18_a_pod_in_a_block_of_one_address_is_reached_and_no_blackhole_takes_its_place(
    cluster: Cluster, mode: Encapsulation
) -> None:
    if mode is Encapsulation.NEVER:
        find_bird()  # it makes these routes
    for text, length in ((V4, 32), (V6, 128)):
        pool = make_pool(text, vxlan=mode, block_length=length)
        cluster.put(pool.key, pool)
    for node in cluster.nodes:
        node.start()
    for node in cluster.nodes:
        node.attach()
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")
    for node, _pod, addresses in cluster.pods_of():
        for text in addresses:
            prefix = Address.parse(text).host_prefix
            wait_until(partial(has_blackhole, node.node, prefix), "the block has its blackhole")
            assert " dev netp" in node.node.run("ip", "route", "get", text)
    assert cluster.unreached() == []


def test_rt22_nothing_is_deleted_while_the_store_is_away_at_the_start(cluster: Cluster) -> None:
    start(cluster)
    first, _second, third = cluster.nodes
    before = programmed(first.node)
    assert first.process is not None
    first.process.child.terminate()
    first.process.wait()
    for pod in tuple(third.pods):
        third.detach(pod)
    assert third.process is not None
    third.process.child.terminate()
    third.process.wait()
    with first.forward.outage(OutageMode.REFUSED):
        process = first.start()
        wait_until(lambda: "cannot be followed" in process.lines, "the store is missed")
        assert programmed(first.node) == before
        cluster.put(node_key(third.name), None)
        assert programmed(first.node) == before
    wait_until(lambda: all("10.240.0.3" not in line for line in programmed(first.node)), "what changed is followed")
    assert cluster.unreached() == []


@pytest.mark.night
def test_rt23_a_burst_of_nodes_is_programmed_and_their_end_changes_nothing_else(cluster: Cluster) -> None:
    start(cluster)
    first = cluster.nodes[0].node
    before = programmed(first)
    records = [record for number in range(BURST) for record in records_of(number)]
    for part in batched(records):
        commit(cluster, (Create(key, value) for key, value in part))
    wait_until(lambda: len(programmed(first)) == len(before) + 6 * BURST, "all of them are programmed")
    with cluster.store.open() as store:
        for keys in batched(key for key, _value in records):
            found = store.read([Get(key) for key in keys], deadline=deadline_in())
            revisions = [(key, found.find(key)) for key in keys]
            writes = [Delete(key, record.revision) for key, record in revisions if record is not None]
            store.commit(writes, deadline=deadline_in())
    wait_until(lambda: programmed(first) == before, "all of them are gone, and nothing else")
    assert cluster.unreached() == []


def test_a_route_that_the_kernel_refuses_is_named_and_the_others_are_in_force(cluster: Cluster) -> None:
    """The first node has routes to two nodes of its subnet and none to the third: that one is no gateway."""
    for prefix in (V4, V6):
        cluster.put_pool(prefix, Encapsulation.CROSS_SUBNET)
    first = cluster.nodes[0]
    for command in NO_SUBNET:
        first.node.run("ip", *command.split())
    for block in MOVING:
        commit(cluster, (Create(key, value) for key, value in owned(block, "twin")))
    cluster.put(node_key("twin"), make_node("twin", "10.240.0.77/24", "fd24::77/64"))
    process = first.start(IP=f"{first.port.ipv4}/24", IP6=f"{first.port.ipv6}/64")
    for node in cluster.nodes[1:]:
        node.start()
    for node in cluster.nodes:
        node.attach()
    wait_until(lambda: cluster.unreached() == [], "the routes that are possible are in force")
    for block in MOVING:
        wait_until(partial(is_named_refused, process.socket, block), f"the route to {block} is named")
        assert way_to(first.node, block) == ""
    wait_until(partial(has_no_obstacle, process.socket), "such a route keeps no node unready")
    first.node.run("ip", "route", "add", "10.240.0.77/32", "dev", "lan0")
    first.node.run("ip", "-6", "route", "add", "fd24::77/128", "dev", "lan0")
    for block in MOVING:
        wait_until(partial(leads_elsewhere, first.node, block, ""), "it is made once the kernel takes it")


NO_SUBNET = (
    "address delete 10.240.0.1/24 dev lan0",
    "address add 10.240.0.1/32 dev lan0",
    "route add 10.240.0.2/32 dev lan0",
    "route add 10.240.0.3/32 dev lan0",
    "-6 address delete fd24::1/64 dev lan0",
    "-6 address add fd24::1/128 dev lan0 nodad",
    "-6 route add fd24::2/128 dev lan0",
    "-6 route add fd24::3/128 dev lan0",
)


def has_no_obstacle(socket: str) -> bool:
    network = ask_node(socket).network
    return network is not None and network.obstacle == ""


def is_named_refused(socket: str, prefix: Prefix) -> bool:
    network = ask_node(socket).network
    refused = () if network is None else (one for one in network.problems if "refuses" in one)
    return any(str(prefix) in one for one in refused)


def test_rt19_rt40_an_uninstallation_leaves_nothing_of_ours_and_all_of_others(cluster: Cluster) -> None:
    """What others have is there all the time: after the start, after a repair, and when the process has ended."""
    first = cluster.nodes[0].node
    for command in FOREIGN:
        first.run("ip", *command.split())
    first.run("nft", "add", "table", "inet", "other")
    before = shown(first)
    start(cluster)
    assert missing(first, before) == []
    made = programmed(first)
    first.run("ip", "link", "set", "vxlan.netplug", "down")
    wait_until(lambda: programmed(first) == made, "what was lost is there again")
    assert missing(first, before) == []
    process = cluster.nodes[0].process
    assert process is not None
    process.child.terminate()
    process.wait()
    assert missing(first, before) == []
    for pod in tuple(cluster.nodes[0].pods):
        cluster.nodes[0].detach(pod)
    said = first.run(*removal_of(first))
    assert "routes, tunnels and neighbours of other nodes" in said
    assert all(f"removed: {first.file(name)}" in said for name in ("nodename.machine", "nodename", "mtu"))
    assert shown(first) == before
    assert first.run(*removal_of(first)) == "", "twice is success"


def test_the_table_of_policy_goes_with_the_last_pod(cluster: Cluster) -> None:
    """An uninstallation does not open pods that are still attached."""
    first = cluster.nodes[0].node
    before = shown(first)
    first.run("nft", "add", "table", "inet", POLICY_TABLE)
    first.run("ip", "link", "add", f"{HOST_INTERFACE_PREFIX}pod", "type", "veth", "peer", "name", "pod")
    said = first.run(*removal_of(first))
    assert f"the table inet {POLICY_TABLE} of policy stays while pods are attached" in said
    assert f"table inet {POLICY_TABLE}" in first.run("nft", "list", "tables")
    first.run("ip", "link", "delete", "pod")
    assert f"removed: the table inet {POLICY_TABLE} of policy" in first.run(*removal_of(first))
    assert shown(first) == before


def removal_of(node: NetnsNode) -> tuple[str, ...]:
    """The command that takes the network off a node."""
    environ = {"NODENAME_FILE": node.file("nodename"), "NETPLUG_BGP_DIR": node.file("bird")}
    script = f"from netplug_cli.wiring.node_network import remove_network; remove_network({environ!r}, print)"
    return sys.executable, "-c", script


FOREIGN = (
    "link add vxlan77 type vxlan id 77 dstport 4799 dev lan0",
    "route add 198.51.100.0/24 dev lan0 proto static",
    "route add 203.0.113.0/24 dev lan0 proto dhcp",
    "-6 route add 2001:db8:77::/48 dev lan0 proto static",
    "neigh add 10.240.0.77 lladdr 02:00:00:00:00:77 dev lan0 nud permanent",
    "-6 neigh add fd24::77 lladdr 02:00:00:00:00:77 dev lan0 nud permanent",
)


def shown(node: NetnsNode) -> list[str]:
    """Links, routes of all tables, permanent neighbours, nexthops and the packet filter."""
    return [
        node.run("ip", "-br", "link"),
        node.run("ip", "-N", "-4", "route", "show", "table", "all"),
        node.run("ip", "-N", "-6", "route", "show", "table", "all"),
        node.run("ip", "neigh", "show", "nud", "permanent"),
        node.run("ip", "-N", "nexthop", "show"),
        node.run("bridge", "fdb", "show"),
        node.run("nft", "list", "ruleset"),
    ]


def missing(node: NetnsNode, before: list[str]) -> list[str]:
    """Lines of what was shown that are not shown any more."""
    now = set("\n".join(shown(node)).splitlines())
    return [line for line in "\n".join(before).splitlines() if line not in now]


def records_of(number: int) -> tuple[tuple[Key[object], object], ...]:
    """A node with a tunnel address and a block in each family."""
    name = f"burst-{number:04}"
    block = Prefix(Family.IPV4, (10 << 24 | 65 << 16 | 128 << 8) + (number << 4), 28)
    block_v6 = Prefix(Family.IPV6, Address.parse("fd65::1:0:0").value + (number << 6), 122)
    node = make_node(
        name,
        f"10.241.{number >> 8}.{number & 255}/16",
        f"fd24:1::{number:x}/64",
        tunnel=str(block.first),
        tunnel_v6=str(block_v6.first),
    )
    return (node_key(name), node), *owned(block, name), *owned(block_v6, name)


def programmed(node: NetnsNode) -> list[str]:
    """Routes between nodes, FDB entries and neighbours, without the numbers of nexthops."""
    script = """
ip -4 route show proto 78 metric 20; ip -6 route show proto 78 metric 20
for device in vxlan.netplug vxlan6.netplug; do
    bridge fdb show dev $device | grep dst
    ip -4 neigh show dev $device nud permanent; ip -6 neigh show dev $device nud permanent
done
"""
    found = node.run_unchecked("sh", "-c", script).stdout
    return sorted(re.sub(r"nhid \d+ ", "", line).strip() for line in found.splitlines())
