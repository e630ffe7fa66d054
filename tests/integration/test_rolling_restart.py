"""What running pods lose while what connects their nodes is restarted, pools change the mode, and nodes come and go.

``ping`` sends a thousand packets a second during the restarts. It runs by night: on a machine that does other work,
pauses of ``ping`` would count.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from netplug_cli.ctl.commands.node import NoNodeProcess, ask_node
from netplug_core.addressing import Family
from netplug_core.resources.ippool import Encapsulation
from netplug_core.resources.node import node_key
from tests.harness.bird import find_bird
from tests.harness.node_cluster import Cluster, ClusterNode, open_cluster
from tests.harness.node_process import NodeProcess
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.switch import NodePort
from tests.harness.waiting import wait_until
from tests.integration.test_route_changes import programmed, removal_of, shown

pytestmark = [pytest.mark.netns, pytest.mark.etcd]

V4, V6 = "10.65.0.0/16", "fd65::/64"
BIRD_PID = "/run/netplug/bird/bird.pid"
PER_FAMILY = 500
SLOW = 100
LONGEST_LOSS_S = 2.0
LONGEST_LOSS_OF_A_NEW_ADDRESS_S = 5.0


@pytest.fixture
def cluster(tmp_path: Path, bin_dir: str, etcd: EtcdCluster) -> Iterator[Cluster]:
    """Three nodes."""
    find_bird()
    with open_cluster(tmp_path, bin_dir, etcd, 3) as cluster:
        yield cluster


def start(cluster: Cluster, mode: Encapsulation, *nodes: ClusterNode) -> None:
    """Pools, and node processes and a pod on some nodes, or on all of them."""
    for prefix in (V4, V6):
        cluster.put_pool(prefix, mode)
    for node in nodes or cluster.nodes:
        node.start(IP="autodetect")
    for node in nodes or cluster.nodes:
        node.attach()
    wait_until(lambda: cluster.unreached() == [], "all pods reach each other")


@contextmanager
def pinging(cluster: Cluster, per_second: int) -> Iterator[list[tuple[int, int]]]:
    """While the context lasts, the first node's pod pings that of the second in both families.

    Afterwards the list has what was sent and what came back, of each.
    """
    first, second = cluster.nodes[:2]
    (pod,), (addresses,) = first.pods, second.pods.values()
    command = "ping", "-n", "-q", "-i", str(1 / per_second)
    pings = [first.node.start_process(*command, address, inside=pod.name) for address in addresses]
    found: list[tuple[int, int]] = []
    try:
        yield found
    finally:
        for ping in pings:
            ping.send_signal(signal.SIGINT)
        found.extend(map(counts, pings))


def counts(ping: subprocess.Popen[str]) -> tuple[int, int]:
    assert ping.stdout is not None
    matched = re.search(r"(\d+) packets transmitted, (\d+) received", ping.stdout.read())
    assert matched is not None
    return int(matched[1]), int(matched[2])


def is_connected(process: NodeProcess, peers: int) -> bool:
    """Whether a node process is ready, with this many sessions of BGP that are established."""
    try:
        status = ask_node(process.socket)
    except NoNodeProcess:  # it is starting
        return False
    network = status.network
    established = [] if network is None else [one for one in network.peers if one.is_established]
    return status.problems == () and len(established) == peers


def has_other_bird(node: ClusterNode, pid: str) -> bool:
    found = node.node.run_unchecked("cat", BIRD_PID).stdout.strip()
    return found not in {"", pid}


def restart(node: ClusterNode, number: signal.Signals, peers: int) -> None:
    """End the node process and BIRD, as a pod that is replaced does, and wait until both are back."""
    process, pid = node.process, node.node.run("cat", BIRD_PID).strip()
    assert process is not None
    process.signal(number)
    process.wait()
    node.node.run("kill", "-9", pid)
    process = node.start()
    wait_until(partial(has_other_bird, node, pid), "another BIRD runs")
    wait_until(partial(is_connected, process, peers), "the node process is ready, with its sessions")


@pytest.mark.parametrize("mode", [Encapsulation.NEVER, Encapsulation.ALWAYS])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_rolling_restart_loses_no_packet_of_a_thousand_a_second(
    cluster: Cluster, mode: Encapsulation, number: signal.Signals
) -> None:
    start(cluster, mode)
    for node in cluster.nodes:
        assert node.process is not None
        wait_until(partial(is_connected, node.process, 0 if mode is Encapsulation.ALWAYS else 4), "it is ready")
    with pinging(cluster, PER_FAMILY) as results:
        for node in cluster.nodes:
            if mode is Encapsulation.NEVER:
                restart(node, number, 4)
            else:
                restart_process(node, number)
    # The last packet may be on its way when ping is told to end.
    assert [sent - received for sent, received in results if sent - received > 1] == []
    assert all(sent > PER_FAMILY for sent, _received in results), "the restarts took more than a second"


def restart_process(node: ClusterNode, number: signal.Signals) -> None:
    process = node.process
    assert process is not None
    process.signal(number)
    process.wait()
    wait_until(partial(is_connected, node.start(), 0), "the node process is ready")


MODES: Sequence[Encapsulation] = (
    Encapsulation.CROSS_SUBNET,
    Encapsulation.NEVER,
    Encapsulation.ALWAYS,
    Encapsulation.NEVER,
    Encapsulation.CROSS_SUBNET,
)


def test_a_pool_that_changes_its_mode_costs_less_than_two_seconds(cluster: Cluster) -> None:
    start(cluster, Encapsulation.ALWAYS)
    lost: dict[str, float] = {}
    for number, mode in enumerate(MODES):
        with pinging(cluster, SLOW) as results:
            for prefix in (V4, V6):
                cluster.put_pool(prefix, mode)
            for node in cluster.nodes:
                wait_until(
                    partial(has_devices, node, mode is not Encapsulation.NEVER), f"the devices are those of {mode}"
                )
            wait_until(lambda: cluster.unreached() == [], f"all pods reach each other with {mode}")
        lost[f"{number} {mode.value}"] = max(sent - received for sent, received in results) / SLOW
    assert {step: seconds for step, seconds in lost.items() if seconds > LONGEST_LOSS_S} == {}, lost


def has_devices(node: ClusterNode, expected: bool) -> bool:  # noqa: FBT001  bound by partial
    return any(name.endswith(".netplug") for name in node.node.links()) is expected


# --- nodes that come, change and go -----------------------------------------------------------------------------------

with_and_without_vxlan = pytest.mark.parametrize("mode", [Encapsulation.ALWAYS, Encapsulation.NEVER], ids=str)


def lost_s(results: Sequence[tuple[int, int]]) -> float:
    """How long packets were lost, of the family that lost more."""
    return max(sent - received for sent, received in results) / SLOW


@with_and_without_vxlan
def test_a_node_that_is_added_drained_and_deleted_costs_the_others_less_than_two_seconds(
    cluster: Cluster, mode: Encapsulation
) -> None:
    """On the others is nothing left of it, and on itself nothing of netplug once that is removed."""
    first, second, third = cluster.nodes
    untouched = shown(third.node)
    start(cluster, mode, first, second)
    for node in (first, second):
        assert node.process is not None
        wait_until(partial(is_connected, node.process, 0 if mode is Encapsulation.ALWAYS else 2), "it is ready")
    before = [routes_and_tunnels(node) for node in (first, second)]
    with pinging(cluster, SLOW) as results:
        process = third.start()
        third.attach()
        wait_until(lambda: cluster.unreached() == [], "the pod of the new node is reached")
        for pod in tuple(third.pods):
            third.detach(pod)
            first.attach()
        wait_until(lambda: cluster.unreached() == [], "what is in place of its pods is reached")
        process.signal(signal.SIGTERM)
        process.wait()
        third.node.run(*removal_of(third.node))
        cluster.put(node_key(third.name), None)
        wait_until(lambda: [routes_and_tunnels(node) for node in (first, second)] == before, "nothing of it is left")
    assert shown(third.node) == untouched
    assert lost_s(results) <= LONGEST_LOSS_S, results


@with_and_without_vxlan
@pytest.mark.parametrize("is_added_first", [False, True])
def test_rt5_a_node_that_gets_another_address_is_reached_at_it_within_five_seconds(
    cluster: Cluster, mode: Encapsulation, *, is_added_first: bool
) -> None:
    first, second, _third = cluster.nodes
    start(cluster, mode)
    second.node.set_setting("ipv4/conf/lan0/promote_secondaries", "1")  # otherwise the other address goes too
    with pinging(cluster, SLOW) as results:
        former, second.port = second.port, NodePort("10.240.0.22", "fd24::22")
        changes = [
            *(("add", address) for address in (f"{second.port.ipv4}/24", f"{second.port.ipv6}/64")),
            *(("delete", address) for address in (f"{former.ipv4}/24", f"{former.ipv6}/64")),
        ]
        for verb, address in changes if is_added_first else changes[::-1]:
            options = ("nodad",) if ":" in address else ()
            second.node.run("ip", "address", verb, address, "dev", "lan0", *options)
        wait_until(partial(has_addresses, cluster, second), "the other addresses are registered")
        wait_until(lambda: cluster.unreached() == [], "all pods reach each other")
    assert lost_s(results) <= LONGEST_LOSS_OF_A_NEW_ADDRESS_S, results
    assert {former.ipv4, former.ipv6}.isdisjoint(" ".join(routes_and_tunnels(first)).split())


def has_addresses(cluster: Cluster, node: ClusterNode) -> bool:
    """Whether its Node has the addresses of its port."""
    stored = cluster.find_node(node.name)
    assert stored is not None
    found = [stored.find_address(family) for family in Family]
    return [str(each.address) for each in found if each is not None] == [node.port.ipv4, node.port.ipv6]


def routes_and_tunnels(node: ClusterNode) -> list[str]:
    """What is programmed for other nodes, by the node process and by BIRD."""
    learned = (node.node.run("ip", family, "route", "show", "proto", "bird") for family in ("-4", "-6"))
    lines = (line.strip() for text in learned for line in text.splitlines())
    return sorted((*programmed(node.node), *lines))
