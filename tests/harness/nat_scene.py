"""A node with two workloads, another node with one, and a machine outside, to see which addresses packets have.

The node's packet filter is programmed by the controller of the node process, from facts that a test gives it. The other
node, its workload and the machine outside are addresses of one namespace, ``world``.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final

from attrs import define, field, frozen

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.conntrack import LinuxConnections
from netplug_backends.linux.netns import entered_namespace
from netplug_backends.linux.nftables import NftablesRuleset
from netplug_cli.node.packet_filter import PacketFilter
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.reconcile.nat import NatFacts
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.ippool import AllowedUse, IPPool, IPPoolSpec
from netplug_core.resources.nodeconfiguration import NodeConfigurationSpec
from netplug_core.resources.workloadendpoint import IPNAT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.node import PEER_NAMESPACE, NetnsNode, PodNamespace
from tests.harness.node_server import Lines
from tests.harness.waiting import wait_until

__all__ = ["ADDRESSES", "Addresses", "NatScene", "endpoint", "open_scene", "pool"]


@frozen(kw_only=True)
class Addresses:
    """Who has which address in one family."""

    node: str
    second: str
    other_node: str
    other_pod: str
    outside: str
    elsewhere: str
    web: str
    client: str
    floating: str
    floatings: str
    tunnel: str
    pods: str
    other_pods: str
    outsides: str


ADDRESSES: Final[Mapping[Family, Addresses]] = {
    Family.IPV4: Addresses(
        node="192.0.2.1", second="192.0.2.77", other_node="192.0.2.3", other_pod="10.66.0.5",
        outside="198.51.100.9", elsewhere="198.51.100.10", web="10.65.0.5", client="10.65.0.6",
        floating="203.0.113.1", tunnel="10.65.255.1", pods="10.65.0.0/16", other_pods="10.66.0.0/16",
        outsides="198.51.100.0/24", floatings="203.0.113.0/24",
    ),
    Family.IPV6: Addresses(
        node="2001:db8::1", second="2001:db8::77", other_node="2001:db8::3", other_pod="fd66::5",
        outside="2001:db8:9::9", elsewhere="2001:db8:9::10", web="fd65::5", client="fd65::6",
        floating="2001:db8:5::1", tunnel="fd65:0:0:1::1", pods="fd65::/48", other_pods="fd66::/48",
        outsides="2001:db8:9::/64", floatings="2001:db8:5::/64",
    ),
}  # fmt: skip

LOST_S: Final = 30.0
"""A packet that has not come by then is lost."""

_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_ANY = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}
_HOST_ADDRESS_V4, _HOST_ADDRESS_V6 = "169.254.1.1", "fe80::1"


def pool(text: str, *uses: AllowedUse, nat: bool = False, is_disabled: bool = False) -> IPPool:
    """A pool with that prefix."""
    allowed = uses or (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)
    prefix = Prefix.parse(text)
    spec = IPPoolSpec(prefix=prefix, has_outgoing_nat=nat, allowed_uses=allowed, is_disabled=is_disabled)
    return IPPool(metadata=Metadata(name="p"), spec=spec)


def endpoint(internal: str, external: str) -> WorkloadEndpoint:
    """A workload with a floating address."""
    own = Address.parse(internal)
    spec = WorkloadEndpointSpec(
        orchestrator="k8s",
        node="n1",
        endpoint="eth0",
        addresses=(own,),
        ip_nats=(IPNAT(internal=own, external=Address.parse(external)),),
    )
    return WorkloadEndpoint(metadata=Metadata(name=internal.replace(":", "-"), namespace="default"), spec=spec)


@define
class NatScene:
    """The scene in one family; ``facts`` are what the controller finds."""

    node: NetnsNode
    family: Family
    web: PodNamespace
    client: PodNamespace
    facts: NatFacts = field(factory=NatFacts)
    log: Lines = field(factory=Lines)
    _filter: PacketFilter = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._filter = PacketFilter(
            ruleset=NftablesRuleset(),
            connections=LinuxConnections(),
            log=self.log,
            find_facts=lambda _deadline: self.facts,
        )

    @property
    def addresses(self) -> Addresses:
        """Who has which address."""
        return ADDRESSES[self.family]

    def program(
        self,
        *pools: IPPool,
        settings: NodeConfigurationSpec | None = None,
        endpoints: tuple[WorkloadEndpoint, ...] = (),
    ) -> None:
        """Let the controller make one pass with these facts; no problem is found."""
        self.facts = NatFacts(
            pools=pools,
            settings=settings or NodeConfigurationSpec(),
            node_addresses=frozenset(map(Address.parse, (self.addresses.node, self.addresses.other_node))),
            endpoints=endpoints,
        )
        with self.inside():
            outcome = self._filter.controller().reconcile(SystemClock(), lambda: True)
        assert (outcome.problems, outcome.is_failed) == ((), False)

    def program_floating(self, internal: str, *pools: IPPool) -> None:
        """One pass with the floating address at a workload."""
        settings = NodeConfigurationSpec(floating_ips=Switch.ENABLED)
        self.program(*pools, settings=settings, endpoints=(endpoint(internal, self.addresses.floating),))

    @contextmanager
    def inside(self, namespace: str = "") -> Iterator[None]:
        """Be in the node's namespace, or in one of its others."""
        path = f"/proc/{self.node.pid}/root/run/netns/{namespace}" if namespace else f"/proc/{self.node.pid}/ns/net"
        with entered_namespace(path):
            yield

    @contextmanager
    def socket_at(self, namespace: str, address: str = "", port: int = 0) -> Iterator[socket.socket]:
        """A UDP socket in a namespace, perhaps with an address of it."""
        with self.inside(namespace):
            made = socket.socket(_AF[self.family], socket.SOCK_DGRAM)
        with closing(made):
            made.settimeout(LOST_S)
            made.bind((address or _ANY[self.family], port))
            yield made

    def seen_source(self, sender: str, to: str, receiver: str, *, source: str = "", at: str = "") -> tuple[str, int]:
        """The source that a receiver sees of a packet to an address, from which the sender gets the answer.

        ``at`` is the receiver's own address, if it is not the one that the packet is sent to.
        """
        with self.socket_at(receiver, at or to) as server, self.socket_at(sender, source) as client:
            client.sendto(b"request", (to, server.getsockname()[1]))
            _, peer = server.recvfrom(100)
            server.sendto(b"answer", peer)
            _, answered = client.recvfrom(100)
            assert answered[0] == to
            return str(peer[0]), int(peer[1])

    def source_of_web(self, to: str, receiver: str = PEER_NAMESPACE) -> str:
        """The source that is seen of a packet from the workload ``web``."""
        return self.seen_source(self.web.name, to, receiver)[0]


@contextmanager
def open_scene(node: NetnsNode, family: Family) -> Iterator[NatScene]:
    """The scene on a node."""
    web, client = node.make_pods(2)
    for number, pod in ((5, web), (6, client)):
        _plug_in(node, pod, number)
    both = [ADDRESSES[each] for each in Family]
    world = [f"address add {one.other_node}/{'64' if ':' in one.node else '24'} dev up0 {_nodad(one)}" for one in both]
    world += [f"address add {each} dev lo" for one in both for each in (one.other_pod, one.outside, one.elsewhere)]
    here = [f"route add {one.other_pods} via {one.other_node}" for one in both]
    here += [
        f"address add {ADDRESSES[Family.IPV4].second}/24 dev up0"
    ]  # for IPv6, the kernel would take the newest one
    node.run("ip", "-n", PEER_NAMESPACE, "-batch", "-", stdin="\n".join(world))
    node.run("ip", "-batch", "-", stdin="\n".join(here))
    wait_until(node.has_local_routes, "the addresses are there")
    yield NatScene(node, family, web, client)


def _nodad(one: Addresses) -> str:
    return "nodad" if ":" in one.node else ""


def _plug_in(node: NetnsNode, pod: PodNamespace, number: int) -> None:
    """Connect a workload as the plugin does: point to point, by addresses of the host end that nobody else has."""
    name = f"netp{number}"
    node.run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pod.name)
    lines = f"""
link set {name} addrgenmode none up
address add {_HOST_ADDRESS_V6}/64 dev {name} nodad
route add 10.65.0.{number} dev {name} metric 10
route add fd65::{number} dev {name} metric 10
"""
    node.run("ip", "-batch", "-", stdin=lines)
    node.set_setting(f"ipv4/conf/{name}/proxy_arp", "1")
    node.set_setting(f"ipv4/neigh/{name}/proxy_delay", "0")
    inside = f"""
link set eth0 addrgenmode none up
address add 10.65.0.{number}/32 dev eth0
address add fd65::{number}/128 dev eth0 nodad
address add fe80::{number}/64 dev eth0 nodad
route add {_HOST_ADDRESS_V4} dev eth0
route add default via {_HOST_ADDRESS_V4} dev eth0
route add default via {_HOST_ADDRESS_V6} dev eth0
"""
    node.run("ip", "-n", pod.name, "-batch", "-", stdin=inside)
