"""Two nodes that close themselves, on which node processes enforce policy and join their pods by VXLAN."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from netplug_backends.linux.netns import entered_namespace
from netplug_core.addressing import Address, Family
from netplug_core.policy.model import UDP
from netplug_core.resources.ippool import Encapsulation
from tests.harness.node import NetnsNode
from tests.harness.node_cluster import Cluster, open_cluster
from tests.harness.node_process import NodeProcess
from tests.harness.policies import key_of, make_host
from tests.harness.policy_scene import received
from tests.harness.raw_packets import ip_packet, udp
from tests.harness.servers.etcd import EtcdCluster
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.etcd]

POOLS = ("10.65.0.0/16", "fd65::/64")
TUNNELS = {Family.IPV4: "vxlan.netplug", Family.IPV6: "vxlan6.netplug"}
ETHERTYPES = {Family.IPV4: 0x0800, Family.IPV6: 0x86DD}
FORGED = 20


@pytest.fixture
def cluster(tmp_path: Path, bin_dir: str, etcd: EtcdCluster) -> Iterator[Cluster]:
    """Two nodes with a pod each that answers the other, and a third machine, which is no node."""
    with open_cluster(tmp_path, bin_dir, etcd, 3) as opened:
        for prefix in POOLS:
            opened.put_pool(prefix, Encapsulation.ALWAYS)
        for node in opened.nodes[:2]:
            host = make_host(f"{node.name}-closed", node=node.name)
            opened.put(key_of(host), host)
            process = node.start(NETPLUG_POLICY="Enabled", NETPLUG_ENDPOINT_TO_HOST_ACTION="Accept")
            wait_until(partial(is_programmed, process), "policy is programmed")
        for node in opened.nodes[:2]:
            node.attach()
        yield opened


def is_programmed(process: NodeProcess) -> bool:
    return "policy is programmed" in process.lines


def test_the_tunnel_of_nodes_that_deny_everything_carries_their_packets_alone(cluster: Cluster) -> None:
    """P-71."""
    first, second = cluster.nodes[:2]
    wait_until(lambda: cluster.unreached() == [], "the pods reach each other")
    assert not second.node.can_ping(first.port.ipv4), "the nodes themselves are closed"
    (pod,), (addresses,) = first.pods, first.pods.values()
    (peers,) = second.pods.values()
    for family in Family:
        address, peer = (next(each for each in texts if family_of(each) is family) for texts in (addresses, peers))
        pair = Address.parse(peer), Address.parse(address)
        with socket_in(first.node, family, pod.name, (address, 4242)) as receiver:
            receiver.settimeout(0)
            assert received_of(cluster, pair, receiver) == {b"of a node"}


def received_of(cluster: Cluster, pair: tuple[Address, Address], receiver: socket.socket) -> set[bytes]:
    """What comes to a pod of the first node of packets that a stranger wraps, with its own address and a node's."""
    (first, second, outsider), family = cluster.nodes, pair[0].family
    to = first.port.address(str(pair[1])), 4789
    stranger, liar = wrapped(first.node, pair, b"of a stranger"), wrapped(first.node, pair, b"of a node")
    with socket_in(outsider.node, family) as sender:
        for _ in range(FORGED):
            sender.sendto(stranger, to)
    # The neighbour entry is there by now, so the other address is asked for by nobody.
    own = second.port.address(str(pair[1]))
    outsider.node.run("ip", "address", "add", f"{own}/{32 if family is Family.IPV4 else 128}", "dev", "lo")
    found = set[bytes]()
    with socket_in(outsider.node, family, at=(own, 0)) as sender:

        def has_come() -> bool:
            sender.sendto(liar, to)
            found.update(text for text, _ in received(receiver))
            return bool(found)

        wait_until(has_come, "what a node sends is unwrapped")
    return found


def family_of(text: str) -> Family:
    return Address.parse(text).family


@contextmanager
def socket_in(
    node: NetnsNode, family: Family, namespace: str = "", at: tuple[str, int] | None = None
) -> Iterator[socket.socket]:
    """A socket of UDP in the namespace of a node, or of one of its pods."""
    path = f"/proc/{node.pid}/root/run/netns/{namespace}" if namespace else f"/proc/{node.pid}/ns/net"
    with entered_namespace(path):
        made = socket.socket(socket.AF_INET if family is Family.IPV4 else socket.AF_INET6, socket.SOCK_DGRAM)
    with closing(made):
        if at is not None:
            made.bind(at)
        yield made


def wrapped(node: NetnsNode, pair: tuple[Address, Address], text: bytes) -> bytes:
    """A packet as VXLAN carries it to a node. Source: RFC 7348 section 5."""
    family = pair[0].family
    (link,) = json.loads(node.run("ip", "-j", "-d", "link", "show", TUNNELS[family]))
    number = link["linkinfo"]["info_data"]["id"]
    inner = ip_packet(pair, UDP, udp(pair, 4242, text))
    frame = bytes.fromhex(link["address"].replace(":", "")) + bytes.fromhex("020000000001")
    return struct.pack("!II", 0x08000000, number << 8) + frame + struct.pack("!H", ETHERTYPES[family]) + inner
