"""What a pod cannot do to the node and to other pods, with real packets from inside the pod.

The attacker has CAP_NET_RAW and CAP_NET_ADMIN in its own namespace: it sends any frame. Each test shows first that its
packet arrives (or has its effect) where the protection is switched off, so a packet that does not arrive was stopped.
What is still open is a test that is expected to fail, with what will close it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from attrs import frozen

from netplug_core.names import HOST_MAC
from tests.harness.frames import arp_reply, icmp_redirect, icmpv6_redirect, router_advertisement, udp_frame
from tests.harness.node import GATEWAY_ADDRESS, NODE_ADDRESS, PEER_NAMESPACE, CNIRuntime, NetnsNode, PodNamespace
from tests.harness.node_process import start_node_process
from tests.harness.waiting import is_eventually, wait_until

pytestmark = pytest.mark.netns

PORT = 7777
GATEWAY_IPV6 = "2001:db8::2"
HOST_LINK_LOCAL = "fe80::ecee:eeff:feee:eeee"
POD_LINK_LOCAL = "fe80::bad"
HAS_RULE = 'iifname "netp*" ip daddr 127.0.0.0/8 drop'
NO_OTHER_RIGHTS = ("setpriv", "--bounding-set=-all,+net_raw,+net_admin")

SENDER = """
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
for frame in sys.argv[1:]:
    link.send(bytes.fromhex(frame))
"""

RECEIVER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.socket(family, socket.SOCK_DGRAM)
server.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    print(server.recv(100).decode(), flush=True)
"""

SNIFFER = """
import socket
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.bind(("eth0", 3))
print("ready", flush=True)
while True:
    frame, (_, _, kind, *_) = link.recvfrom(2000)
    for word in (b"secret", b"end"):
        if word in frame and kind != socket.PACKET_OUTGOING:
            print(word.decode(), flush=True)
"""

UDP_CLIENT = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
socket.socket(family, socket.SOCK_DGRAM).sendto(sys.argv[3].encode(), (sys.argv[1], int(sys.argv[2])))
"""


@frozen
class Pod:
    """An attached pod."""

    node: NetnsNode
    namespace: PodNamespace
    ipv4: str
    ipv6: str
    mac: str
    host_end: str

    def send(self, *frames: bytes) -> None:
        """Send frames as they are, with no rights beyond those of such a pod."""
        hexadecimal = [frame.hex() for frame in frames]
        self.node.run(*NO_OTHER_RIGHTS, sys.executable, "-ISc", SENDER, *hexadecimal, inside=self.namespace.name)

    def udp(self, source: str, target: str, payload: str) -> bytes:
        """A datagram to the tests' port, with any source."""
        return udp_frame(macs=(self.mac, HOST_MAC), addresses=(source, target), port=PORT, payload=payload)

    def set_on_host(self, setting: str, value: str) -> None:
        """Change a setting of the host end, and that of all interfaces, of which the larger one counts."""
        family, _, name = setting.partition("/")
        for interface in (self.host_end, "all"):
            self.node.set_setting(f"{family}/conf/{interface}/{name}", value)


def attach(node: NetnsNode, runtime: CNIRuntime) -> Pod:
    """A new pod with an address of each family."""
    pod = node.make_pod()
    added = runtime.add(runtime.make_netconf(ipam={"type": "netplug-ipam", "assign_ipv6": "true"}), pod)
    ipv4, ipv6 = added.addresses
    interfaces = added.result["interfaces"]
    assert isinstance(interfaces, list)
    return Pod(node, pod, ipv4, ipv6, interfaces[1]["mac"], interfaces[0]["name"])


@pytest.fixture
def victim(node: NetnsNode, runtime: CNIRuntime) -> Pod:
    return attach(node, runtime)


@pytest.fixture
def attacker(node: NetnsNode, runtime: CNIRuntime) -> Pod:
    return attach(node, runtime)


def receive(node: NetnsNode, address: str, *, inside: str = "") -> subprocess.Popen[str]:
    """A process that prints the text of each datagram to the tests' port."""
    return _ready(node.start_process(sys.executable, "-ISc", RECEIVER, address, str(PORT), inside=inside))


def sniff(node: NetnsNode, pod: Pod) -> subprocess.Popen[str]:
    """A process that prints the test's words in the frames that reach a pod."""
    return _ready(node.start_process(sys.executable, "-ISc", SNIFFER, inside=pod.namespace.name))


def _ready(child: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert next_line(child) == "ready"
    return child


def next_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def send_udp(node: NetnsNode, address: str, text: str, *, inside: str = "") -> None:
    """A datagram as a program sends it."""
    node.run(sys.executable, "-ISc", UDP_CLIENT, address, str(PORT), text, inside=inside)


def assert_only_victim_receives(node: NetnsNode, victim: Pod, attacker: Pod) -> None:
    """What another machine sends to the victim reaches it, and not the attacker."""
    receiver, sniffer = receive(node, victim.ipv4, inside=victim.namespace.name), sniff(node, attacker)
    send_udp(node, victim.ipv4, "secret", inside=PEER_NAMESPACE)
    assert next_line(receiver) == "secret"
    send_udp(node, attacker.ipv4, "end", inside=PEER_NAMESPACE)
    assert next_line(sniffer) == "end"
    for child in (receiver, sniffer):
        child.kill()
        child.wait()


# --- source addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["another machine", "the node", "a pod"])
def test_another_pods_ipv4_address_is_no_source(
    node: NetnsNode, runtime: CNIRuntime, victim: Pod, attacker: Pod, target: str
) -> None:
    other = attach(node, runtime) if target == "a pod" else None
    address, inside = {
        "another machine": (GATEWAY_ADDRESS, PEER_NAMESPACE),
        "the node": (NODE_ADDRESS, ""),
        "a pod": (other.ipv4, other.namespace.name) if other else ("", ""),
    }[target]
    receiver = receive(node, address, inside=inside)
    forged, own = attacker.udp(victim.ipv4, address, "forged"), attacker.udp(attacker.ipv4, address, "own")
    attacker.send(forged, forged, own)
    assert next_line(receiver) == "own"
    attacker.set_on_host("ipv4/rp_filter", "2")
    attacker.send(forged, forged, own)
    assert next_line(receiver) == "own"
    attacker.set_on_host("ipv4/rp_filter", "0")
    attacker.send(forged)
    assert next_line(receiver) == "forged"


def test_an_address_of_nobody_is_no_source(node: NetnsNode, attacker: Pod) -> None:
    receiver = receive(node, GATEWAY_ADDRESS, inside=PEER_NAMESPACE)
    own = attacker.udp(attacker.ipv4, GATEWAY_ADDRESS, "own")
    for source in (NODE_ADDRESS, GATEWAY_ADDRESS, "127.0.0.1", "0.0.0.0", "198.51.100.7"):
        attacker.send(attacker.udp(source, GATEWAY_ADDRESS, "forged"), own)
        assert next_line(receiver) == "own"


@pytest.mark.xfail(strict=True, reason="IPv6 has no reverse path filter: policy drops it, and is off here")
def test_another_pods_ipv6_address_is_no_source(node: NetnsNode, victim: Pod, attacker: Pod) -> None:
    receiver = receive(node, GATEWAY_IPV6, inside=PEER_NAMESPACE)
    own = attacker.udp(attacker.ipv6, GATEWAY_IPV6, "own")
    attacker.send(attacker.udp(victim.ipv6, GATEWAY_IPV6, "forged"), own)
    assert next_line(receiver) == "own"


def test_a_second_interface_answers_over_itself(node: NetnsNode, runtime: CNIRuntime, victim: Pod) -> None:
    """Over the first interface, its answers would have an address that is not that interface's."""
    conf = runtime.make_netconf(cniVersion="1.1.0", ipam={"type": "netplug-ipam", "assign_ipv6": "true"})
    added = runtime.add(conf, victim.namespace, CNI_IFNAME="net1")
    for address in (victim.ipv4, victim.ipv6, *added.addresses):
        assert node.can_ping(address, inside=PEER_NAMESPACE)
        assert node.can_ping(address)
    assert runtime.check(conf, victim.namespace, added, CNI_IFNAME="net1").is_success_without_output
    rule = ("ip", "rule", "del", "from", added.addresses[0])
    node.run(*rule, inside=victim.namespace.name)
    assert not node.can_ping(added.addresses[0], inside=PEER_NAMESPACE)
    reply = runtime.check(conf, victim.namespace, added, CNI_IFNAME="net1")
    assert (reply.code, f"from {added.addresses[0]} lookup" in reply.text) == (130, True)
    runtime.delete(conf, victim.namespace, CNI_IFNAME="net1")
    assert added.addresses[1] not in node.run("ip", "-6", "rule", "show", inside=victim.namespace.name)
    assert node.can_ping(victim.ipv4, inside=PEER_NAMESPACE)


# --- the node's loopback -------------------------------------------------------------------------------------------


def loopback_is_reached(node: NetnsNode, pod: Pod) -> bool:
    """Whether a datagram to 127.0.0.1 from inside a pod reaches what listens there on the node."""
    receiver = receive(node, "127.0.0.1")
    pod.send(*[pod.udp(pod.ipv4, "127.0.0.1", "from the pod")] * 2)
    # This goes the same way after them, and is delivered in any case.
    assert node.can_ping(NODE_ADDRESS, inside=pod.namespace.name)
    send_udp(node, "127.0.0.1", "from the node")
    found = next_line(receiver)
    receiver.kill()
    receiver.wait()
    return found == "from the pod"


@pytest.mark.alone
def test_the_nodes_loopback_is_closed_for_a_pod_without_a_mapped_port(node: NetnsNode, attacker: Pod) -> None:
    assert not loopback_is_reached(node, attacker)
    node.set_setting(f"ipv4/conf/{attacker.host_end}/route_localnet", "1")
    assert loopback_is_reached(node, attacker)


def map_port(runtime: CNIRuntime, pod: Pod) -> None:
    """What portmap does behind netplug for a pod with a host port."""
    mapping = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
    previous: dict[str, object] = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": pod.host_end}, {"name": "eth0", "sandbox": pod.namespace.path}],
        "ips": [{"address": f"{pod.ipv4}/32", "interface": 1}],
    }
    conf: dict[str, object] = {
        "cniVersion": "1.0.0",
        "name": "net1",
        "type": "portmap",
        "snat": True,
        "capabilities": {"portMappings": True},
        "runtimeConfig": {"portMappings": [mapping]},
        "prevResult": previous,
    }
    runtime.add(conf, pod.namespace, plugin="portmap")


@pytest.mark.alone  # another node process would program the rule again
def test_the_nodes_loopback_is_closed_for_a_pod_with_a_mapped_port(
    node: NetnsNode, runtime: CNIRuntime, attacker: Pod
) -> None:
    """By the rule of the node process, which stays when that has ended; without it, the loopback is open."""
    process = start_node_process(node, name="filtering")
    wait_until(lambda: HAS_RULE in node.run("nft", "list", "ruleset"), "the rule is there")
    process.child.terminate()
    assert process.wait() == 0
    map_port(runtime, attacker)
    assert not loopback_is_reached(node, attacker)
    node.run("nft", "delete", "table", "inet", "netplug_net")
    assert loopback_is_reached(node, attacker)


def test_a_mapped_port_opens_the_loopback_for_no_other_pod(
    node: NetnsNode, runtime: CNIRuntime, victim: Pod, attacker: Pod
) -> None:
    map_port(runtime, victim)
    assert not loopback_is_reached(node, attacker)


# --- hardware addresses --------------------------------------------------------------------------------------------


def test_another_pods_mac_moves_no_traffic(node: NetnsNode, victim: Pod, attacker: Pod) -> None:
    """Neither in frames, nor as the MAC of the attacker's own interface."""
    stolen = udp_frame(
        macs=(victim.mac, HOST_MAC), addresses=(attacker.ipv4, GATEWAY_ADDRESS), port=PORT, payload="hello"
    )
    attacker.send(stolen, stolen)
    assert_only_victim_receives(node, victim, attacker)
    node.run(*NO_OTHER_RIGHTS, "ip", "link", "set", "eth0", "address", victim.mac, inside=attacker.namespace.name)
    assert node.can_ping(GATEWAY_ADDRESS, inside=attacker.namespace.name)
    assert_only_victim_receives(node, victim, attacker)


def test_a_forged_arp_reply_moves_no_traffic(node: NetnsNode, victim: Pod, attacker: Pod) -> None:
    """For another pod's address, for the node's and for the next hop; to the host end and to everybody."""
    everybody = "ff:ff:ff:ff:ff:ff"
    for address in (victim.ipv4, NODE_ADDRESS, "169.254.1.1"):
        for to in (HOST_MAC, everybody):
            owner = (address, attacker.mac)
            attacker.send(arp_reply(macs=(attacker.mac, to), owner=owner, asker=(NODE_ADDRESS, HOST_MAC)))
            attacker.send(arp_reply(macs=(attacker.mac, to), owner=owner, asker=owner))
    assert node.can_ping(GATEWAY_ADDRESS, inside=victim.namespace.name)
    assert_only_victim_receives(node, victim, attacker)
    assert f"dev {victim.host_end} " in node.run("ip", "route", "get", victim.ipv4)


# --- routes of the node --------------------------------------------------------------------------------------------


def ipv6_of_node(node: NetnsNode) -> tuple[list[dict[str, object]], str]:
    """Routes and addresses, without what counts down."""
    shown = node.run("ip", "-6", "-o", "address", "show")
    return node.routes(family=6), "".join(sorted(line.partition(" valid_lft")[0] for line in shown.splitlines()))


def test_a_router_advertisement_moves_no_route(node: NetnsNode, attacker: Pod) -> None:
    macs = (attacker.mac, "33:33:00:00:00:01")
    advertisement = router_advertisement(macs=macs, source=POD_LINK_LOCAL)
    before = ipv6_of_node(node)
    attacker.send(advertisement, advertisement)
    assert node.can_ping(GATEWAY_IPV6, inside=attacker.namespace.name)
    assert ipv6_of_node(node) == before
    node.set_setting(f"ipv6/conf/{attacker.host_end}/accept_ra", "2")
    attacker.send(advertisement)
    assert is_eventually(lambda: "2001:db8:bad::" in str(ipv6_of_node(node)))


def test_a_router_advertisement_of_a_pod_without_ipv6_moves_no_route(node: NetnsNode, runtime: CNIRuntime) -> None:
    pod = node.make_pod()
    added = runtime.add(runtime.make_netconf(), pod)
    interfaces = added.result["interfaces"]
    assert isinstance(interfaces, list)
    attacker = Pod(node, pod, added.addresses[0], "", interfaces[1]["mac"], interfaces[0]["name"])
    before = ipv6_of_node(node)
    attacker.send(router_advertisement(macs=(attacker.mac, "33:33:00:00:00:01"), source=POD_LINK_LOCAL))
    assert node.can_ping(GATEWAY_ADDRESS, inside=pod.name)
    assert ipv6_of_node(node) == before


def test_a_redirect_moves_no_route(node: NetnsNode, victim: Pod, attacker: Pod) -> None:
    """Of either family, from the pod itself and in the name of the node's own gateway."""
    macs = (attacker.mac, HOST_MAC)
    # The attacker's link-local address is a neighbour, so that the gateway of the redirect is known.
    assert node.can_ping(f"{HOST_LINK_LOCAL}%eth0", inside=attacker.namespace.name)
    destinations = (victim.ipv4, "198.51.100.7", victim.ipv6, "2001:db8:1::7")
    before = [node.run("ip", "route", "get", address) for address in destinations]
    for address in destinations:
        if ":" in address:
            for source in (POD_LINK_LOCAL, "fe80::2"):
                addresses = (source, HOST_LINK_LOCAL)
                attacker.send(
                    icmpv6_redirect(macs=macs, addresses=addresses, destination=address, gateway=POD_LINK_LOCAL)
                )
        else:
            for source in (attacker.ipv4, GATEWAY_ADDRESS):
                addresses = (source, NODE_ADDRESS)
                attacker.send(icmp_redirect(macs=macs, addresses=addresses, destination=address, gateway=attacker.ipv4))
    assert node.can_ping(GATEWAY_ADDRESS, inside=attacker.namespace.name)
    assert node.can_ping(GATEWAY_IPV6, inside=attacker.namespace.name)
    assert [node.run("ip", "route", "get", address) for address in destinations] == before
    assert_only_victim_receives(node, victim, attacker)
