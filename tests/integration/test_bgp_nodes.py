"""Nodes that speak BGP with each other and with a router, each with a BIRD and a kernel table of its own."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.bgp import TUNNELLED_TABLE, BgpPlan, BgpRefused, ForeignBgpDaemon
from tests.harness.bird import (
    BirdCluster,
    BirdNode,
    Router,
    block_of,
    find_bird,
    is_running,
    open_bird_nodes,
    route_events,
)
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.netns

PASSWORD = {"secretKeyRef": {"name": "bgp", "key": "password"}}
FOREIGN = {Family.IPV4: Prefix.parse("203.0.113.0/24"), Family.IPV6: Prefix.parse("2001:db8:113::/48")}
POOLS = {Family.IPV4: "10.91.0.0/16", Family.IPV6: "fd91::/48"}
MORE = {Family.IPV4: Prefix.parse("10.91.128.0/26"), Family.IPV6: Prefix.parse("fd91::8000/122")}
"""A block of that pool that no node has by its number."""
OTHER = {Family.IPV4: Prefix.parse("198.51.100.0/24"), Family.IPV6: Prefix.parse("2001:db8:51::/48")}
LENGTHS = {Family.IPV4: 24, Family.IPV6: 64}
SILENT = {Family.IPV4: Prefix.parse("10.92.0.0/16"), Family.IPV6: Prefix.parse("fd92::/48")}

both_families = pytest.mark.parametrize("family", Family, ids=str)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def make_cluster(stack: ExitStack, count: int) -> BirdCluster:
    """So many nodes with a pool of each family; nothing is applied yet."""
    cluster = BirdCluster(stack.enter_context(open_bird_nodes(count)))
    cluster.put("IPPool", "four", cidr="10.91.0.0/16")
    cluster.put("IPPool", "six", cidr="fd91::/48")
    return cluster


def others(cluster: BirdCluster, node: BirdNode) -> set[Prefix]:
    """The blocks of the other nodes, of both families."""
    return {block_of(one, family) for one in cluster.nodes if one is not node for family in Family}


def connect(cluster: BirdCluster) -> None:
    """Let every node announce its blocks, and wait until each has a route to all others."""
    for node in cluster.nodes:
        for family in Family:
            node.announce(block_of(node, family))
    cluster.apply()
    cluster.await_sessions()
    for node in cluster.nodes:
        cluster.await_learned(node, others(cluster, node))


# --- the mesh and restarts --------------------------------------------------------------------------------------------


def test_rt24_a_mesh_of_eight_has_all_routes_and_a_killed_daemon_is_not_noticed(stack: ExitStack) -> None:
    cluster = make_cluster(stack, 8)
    connect(cluster)
    first, second, *rest = cluster.nodes
    for family in Family:
        route = second.routes()[block_of(first, family)]
        assert route["gateway"] == str(first.address(family))
        assert route["prefsrc"] == str(second.address(family)), "packets of the node itself have its address"
        assert route["metric"] == 32
    watches = [stack.enter_context(route_events(node)) for node in (second, *rest[:2])]
    first.send_signal(signal.SIGKILL)
    cluster.apply(first)
    cluster.await_sessions()
    assert [watch.seen() for watch in watches] == [[]] * len(watches)
    assert first.learned() == others(cluster, first)


@pytest.mark.parametrize("count", [2, 3])
def test_rt25_a_daemon_that_is_replaced_is_not_noticed_and_one_that_is_terminated_is(
    stack: ExitStack, count: int
) -> None:
    cluster = make_cluster(stack, count)
    connect(cluster)
    first, second = cluster.nodes[:2]
    watch = stack.enter_context(route_events(second))
    first.pause()
    assert first.learned() == others(cluster, first), "its own routes stay"
    cluster.apply(first)
    cluster.await_sessions()
    assert watch.seen() == []
    first.send_signal(signal.SIGTERM)
    cluster.await_learned(second, others(cluster, second) - {block_of(first, family) for family in Family})
    assert len([line for line in watch.seen() if line.startswith("Deleted")]) == len(Family)


def test_rt21_the_daemon_outlives_who_started_it_and_takes_no_signal_of_its_group(stack: ExitStack) -> None:
    node, other = stack.enter_context(open_bird_nodes(2))
    cluster = BirdCluster((node, other))
    cluster.put("IPPool", "four", cidr="10.91.0.0/16")
    cluster.apply(node)
    pid = node.pid()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert fields[3] == str(pid), "it leads a session of its own"
    assert is_running(pid)


def test_rt26_a_reflector_passes_routes_on_and_is_no_next_hop(stack: ExitStack) -> None:
    cluster = make_cluster(stack, 4)
    cluster.cluster_ids[11] = "224.0.0.1"
    cluster.put("BGPConfiguration", "default", nodeToNodeMeshEnabled=False)
    cluster.put("BGPPeer", "reflectors", peerSelector="has(reflector)", nodeSelector="all()")
    connect(cluster)
    assert [len(node.status().sessions) for node in cluster.nodes] == [6, 2, 2, 2]
    second, third = cluster.nodes[1:3]
    for family in Family:
        assert third.routes()[block_of(second, family)]["gateway"] == str(second.address(family))


@both_families
def test_an_address_that_goes_takes_no_other_one_of_its_prefix_with_it(stack: ExitStack, family: Family) -> None:
    """The default route of a node leads elsewhere: what it is taken for is lost."""
    cluster = make_cluster(stack, 2)
    connect(cluster)
    first, second = cluster.nodes
    further = Address(family, int(second.address(family)) + 100)
    held, options = f"{further}/{LENGTHS[family]}", ("nodad",) if family is Family.IPV6 else ()
    second.node.run("ip", "address", "add", held, "dev", "lan0", *options)
    wait_until(lambda: str(further) in said(second, "show interfaces"), "BIRD knows the address")
    cluster.more_addresses[second.number] = further
    with route_events(second) as events:
        cluster.apply(second)
        wait_until(lambda: said(second, "show protocols").count("interfaces_") == 1, "the former protocol has ended")
        assert events.seen() == [], "to look at the interfaces anew costs no route"
    second.node.run("ip", "address", "delete", held, "dev", "lan0")
    wait_until(lambda: str(further) not in said(second, "show interfaces"), "BIRD knows the address no more")
    del cluster.more_addresses[second.number]
    cluster.apply(second)
    first.announce(MORE[family])
    cluster.await_learned(second, {*others(cluster, second), MORE[family]})
    expected = {one: str(first.address(one.family)) for one in (*others(cluster, second), MORE[family])}
    wait_until(
        lambda: {one: each["gateway"] for one, each in second.routes().items()} == expected, "no route leads elsewhere"
    )


def said(node: BirdNode, command: str) -> str:
    """What its BIRD answers."""
    return node.node.run(f"{find_bird()}c", "-s", f"{node.folder}/bird.ctl", *command.split())


# --- a router ---------------------------------------------------------------------------------------------------------


def router_of(node: BirdNode, *peers: BirdNode, family: Family, port: int = 1790, password: str = "") -> str:
    """The configuration of a router in AS 65001, which announces one prefix in sessions of a family."""
    secret, channel = f'password "{password}";' if password else "", f"ipv{family.value}"
    sessions = "".join(
        f"""
protocol bgp peer{peer.number} {{
  local {node.address(family)} port {port} as 65001;
  neighbor {peer.address(family)} as 64512;
  multihop; connect delay time 1; connect retry time 1; error wait time 1, 2; {secret}
  {channel} {{ import all; export where proto = "own"; }};
}}"""
        for peer in peers
    )
    return f"""
router id {node.address(Family.IPV4)};
protocol device {{ }}
protocol direct {{ {channel}; }}
protocol static own {{ {channel}; route {FOREIGN[family]} blackhole; }}
{sessions}
"""


def with_router(stack: ExitStack, count: int, family: Family, *, password: str = "") -> tuple[BirdCluster, Router]:
    """A cluster whose nodes have a session with a router on port 1790, and no other one."""
    *nodes, last = stack.enter_context(open_bird_nodes(count + 1))
    cluster = BirdCluster(tuple(nodes))
    cluster.put("IPPool", "pool", cidr=POOLS[family])
    cluster.put("BGPConfiguration", "default", nodeToNodeMeshEnabled=False)
    router = Router(last)
    router.start(router_of(last, *nodes, family=family, password=password))
    for node in nodes:
        node.announce(block_of(node, family))
    return cluster, router


def address_of(router: Router, family: Family) -> str:
    """Where the nodes find the router."""
    address = router.at.address(family)
    return f"[{address}]:1790" if family is Family.IPV6 else f"{address}:1790"


def peer_with(cluster: BirdCluster, router: Router, family: Family, **spec: object) -> None:
    """Let every node have the session with the router."""
    cluster.put("BGPPeer", "router", peerIP=address_of(router, family), asNumber=65001, **spec)
    cluster.apply()
    cluster.await_sessions()


@both_families
def test_rt27_a_router_of_another_as_learns_our_blocks_and_we_its_routes(stack: ExitStack, family: Family) -> None:
    cluster, router = with_router(stack, 2, family)
    peer_with(cluster, router, family)
    for node in cluster.nodes:
        cluster.await_learned(node, [FOREIGN[family]])
        assert node.routes()[FOREIGN[family]]["gateway"] == str(router.at.address(family))
    assert router.destinations() == {str(block_of(node, family)) for node in cluster.nodes}
    assert set(re.findall(r"BGP.as_path: (.*)", router.routes())) == {"64512"}


def test_a_router_of_another_as_than_the_peer_has_is_named(stack: ExitStack) -> None:
    cluster, router = with_router(stack, 1, Family.IPV4)
    (node,) = cluster.nodes
    cluster.put("BGPPeer", "router", peerIP=address_of(router, Family.IPV4), asNumber=65002)
    cluster.apply()
    wait_until(lambda: [one.has_wrong_as for one in node.status().sessions] == [True], "BIRD says what is wrong")


@both_families
def test_rt16_rt30_what_is_not_to_be_exported_is_not_and_what_is_arrives_without_a_reload(
    stack: ExitStack, family: Family
) -> None:
    cluster, router = with_router(stack, 1, family)
    cluster.put("IPPool", "silent", cidr=str(SILENT[family]), disableBGPExport=True)
    peer_with(cluster, router, family)
    (node,) = cluster.nodes
    configured = node.status().configured_at
    node.announce(Prefix.at(SILENT[family].first, MORE[family].length))
    node.announce(MORE[family])
    expected = {str(block_of(node, family)), str(MORE[family])}
    wait_for(lambda: router.destinations() >= expected)
    assert router.destinations() == expected
    assert node.status().configured_at == configured


def wait_for(is_so: Callable[[], object]) -> None:
    wait_until(lambda: bool(is_so()), "the router has learned")


@both_families
def test_rt28_a_filter_rejects_and_adds_communities_and_without_it_nothing_is_exported(
    stack: ExitStack, family: Family
) -> None:
    cluster, router = with_router(stack, 1, family)
    (node,) = cluster.nodes
    node.announce(MORE[family])
    reject = {"action": "Reject", "cidr": str(block_of(node, family)), "matchOperator": "In"}
    operations = [
        {"addCommunity": {"value": "64512:7"}},
        {"addCommunity": {"value": "64512:7:9"}},
        {"prependASPath": {"prefix": [64513, 64514]}},
    ]
    rules = [reject, {"action": "Accept", "operations": operations}]
    spec = {f"exportV{family.value}": rules, f"importV{family.value}": [{"action": "Reject"}]}
    cluster.put("BGPFilter", "edge", **spec)
    advertised = [{"cidr": POOLS[family], "communities": ["64512:8"]}]
    cluster.put("BGPConfiguration", "default", nodeToNodeMeshEnabled=False, prefixAdvertisements=advertised)
    peer_with(cluster, router, family, filters=["edge"])
    wait_for(lambda: router.destinations() == {str(MORE[family])})
    text = router.routes()
    assert set(re.findall(r"\((\d+),(\d+)\)", text)) == {("64512", "7"), ("64512", "8")}
    assert "(64512, 7, 9)" in text
    assert re.findall(r"BGP.as_path: (.*)", text) == ["64512 64513 64514"]
    assert node.learned() == frozenset(), "what the router announces is rejected"
    cluster.filters = ()
    (problem,) = cluster.plan(node).problems
    assert problem.cause == "there is no BGPFilter edge that can be used"
    cluster.apply()
    wait_for(lambda: router.destinations() == set())
    assert all(one.is_established for one in node.status().sessions)


@both_families
def test_rt29_a_password_changes_on_both_sides_and_is_in_no_log(stack: ExitStack, family: Family) -> None:
    cluster, router = with_router(stack, 1, family, password="first")  # noqa: S106  # no password
    (node,) = cluster.nodes
    cluster.passwords["bgp", "password"] = "first"
    peer_with(cluster, router, family, password=PASSWORD)
    cluster.await_learned(node, [FOREIGN[family]])
    cluster.passwords["bgp", "password"] = "second"
    cluster.apply()
    router.start_again(router_of(router.at, node, family=family, password="second"))  # noqa: S106  # no password
    cluster.await_sessions()
    cluster.await_learned(node, [FOREIGN[family]])
    configuration, log = Path(f"{node.folder}/bird.conf"), Path(f"{node.folder}/bird.log")
    assert configuration.stat().st_mode & 0o777 == 0o600
    assert "second" in configuration.read_text()
    assert not {"first", "second"} & set(re.findall(r"\w+", log.read_text()))
    cluster.passwords["bgp", "password"] = 'a"b'
    (problem,) = cluster.plan(node).problems
    assert "the member password of the Secret bgp is not accepted" in problem.cause


def test_rt31_a_refused_configuration_leaves_the_sessions_up(stack: ExitStack) -> None:
    cluster, router = with_router(stack, 1, Family.IPV4)
    peer_with(cluster, router, Family.IPV4)
    (node,) = cluster.nodes
    before = node.status()
    plan = cluster.plan(node).outcome
    assert isinstance(plan, BgpPlan)
    missing = evolve(plan.sessions[0], filters=("filter_that_is_not_there",))
    with pytest.raises(BgpRefused) as caught:
        node.apply(evolve(plan, sessions=(missing,)))
    assert re.fullmatch(r"bird.conf:\d+:\d+ syntax error, .*", caught.value.text)
    assert node.status() == before


@both_families
def test_rt32_another_bird_on_the_host_is_left_alone(stack: ExitStack, family: Family) -> None:
    cluster, router = with_router(stack, 2, family)
    host, peer = cluster.nodes
    foreign = Router(host)
    kernel = f"protocol kernel {{ ipv{family.value} {{ import none; export all; }}; metric 32; persist; }}\n"
    foreign.start(router_of(host, peer, family=family, port=179) + kernel)
    cluster.put("BGPPeer", "router", peerIP=address_of(router, family), asNumber=65001)
    wait_for(host.learned)
    routes = host.routes()
    with pytest.raises(ForeignBgpDaemon) as caught:
        cluster.apply(host)
    assert "another program listens on port 179" in str(caught.value)
    assert "listenPort" in str(caught.value)
    host.send_signal(signal.SIGKILL)
    with pytest.raises(ForeignBgpDaemon, match="routes of the protocol bird"):
        cluster.apply(host)
    assert host.routes() == routes


def test_rt32_a_bird_that_neither_listens_nor_has_routes_is_found_too(stack: ExitStack) -> None:
    cluster, router = with_router(stack, 1, Family.IPV4)
    (host,) = cluster.nodes
    cluster.put("BGPPeer", "router", peerIP=address_of(router, Family.IPV4), asNumber=65001)
    Router(host).start(router_of(host, family=Family.IPV4))
    with pytest.raises(ForeignBgpDaemon, match=f"another BIRD runs here, process {host.pid()}; stop it"):
        cluster.apply(host)
    assert is_running(host.pid())


# --- pools and addresses ----------------------------------------------------------------------------------------------


def test_routes_within_an_ipip_pool_go_to_a_table_of_their_own(stack: ExitStack) -> None:
    cluster = make_cluster(stack, 2)
    cluster.put("IPPool", "four", cidr="10.91.0.0/16", ipipMode="Always")
    first, second = cluster.nodes
    for family in Family:
        first.announce(block_of(first, family))
    cluster.apply()
    cluster.await_sessions()
    cluster.await_learned(second, [block_of(first, Family.IPV6)])
    shown = second.node.run("ip", "route", "show", "table", str(TUNNELLED_TABLE))
    assert shown.split()[:3] == [str(block_of(first, Family.IPV4)), "via", str(first.address(Family.IPV4))]
    status = second.find_status()
    assert status is not None
    assert status.tunnelled == ((block_of(first, Family.IPV4), first.address(Family.IPV4)),)
    first.withdraw(block_of(first, Family.IPV4))
    wait_until(lambda: has_no_tunnelled(second), "it is withdrawn")


def has_no_tunnelled(node: BirdNode) -> bool:
    status = node.find_status()
    return status is not None and status.tunnelled == ()


def test_a_route_to_an_own_block_that_others_announce_is_not_made(stack: ExitStack) -> None:
    cluster = make_cluster(stack, 2)
    first, second = cluster.nodes
    contested = block_of(first, Family.IPV4)
    connect(cluster)
    second.announce(contested)
    second.announce(Prefix.parse(f"{contested.nth(5)}/32"))
    cluster.await_learned(first, {*others(cluster, first), Prefix.parse(f"{contested.nth(5)}/32")})


@both_families
def test_routes_of_the_kernel_are_announced_to_nobody(stack: ExitStack, family: Family) -> None:
    cluster, router = with_router(stack, 1, family)
    (node,) = cluster.nodes
    gateway = router.at.address(family)
    for route in (f"{OTHER[family]} via {gateway}", f"default via {gateway}", f"blackhole {MORE[family]} protocol 78"):
        node.node.run("ip", f"-{family.value}", "route", "replace", *route.split())
    cluster.put("BGPFilter", "all", **{f"exportV{family.value}": [{"action": "Accept"}]})
    peer_with(cluster, router, family, filters=["all"])
    wait_for(lambda: router.destinations() == {str(block_of(node, family))})


def test_bind_mode_node_ip_listens_at_the_address_of_the_node_alone(stack: ExitStack) -> None:
    cluster = make_cluster(stack, 2)
    cluster.put("BGPConfiguration", "default", bindMode="NodeIP", listenPort=1791)
    connect(cluster)
    (first, _second) = cluster.nodes
    listening = first.node.run("ss", "-Hltn", "sport", "=", ":1791").split()
    assert {listening[3], listening[8]} == {
        f"{first.address(Family.IPV4)}:1791",
        f"[{first.address(Family.IPV6)}]:1791",
    }
