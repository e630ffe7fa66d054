"""Routes through IPIP, end to end: the engine's routes in two kernels, and a stand-in for the device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import define

from netplug_backends.linux.netns import entered_namespace
from netplug_backends.linux.routing import LinuxRouting
from netplug_core.addressing import Address, Prefix
from netplug_core.dataplane.routing import IPIP_DEVICE, Nexthop, Put, Route
from netplug_core.reconcile.route_inputs import BlockRoutes
from netplug_core.resources.ippool import Encapsulation
from tests.harness import ipip_standin
from tests.harness.node import NetnsNode, open_node
from tests.harness.routes import engine_of, interface, make_node, make_pool
from tests.harness.switch import open_switch, plug_in
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.netns

POOL = make_pool("10.65.0.0/16", ipip=Encapsulation.ALWAYS)
NODES = {number: make_node(f"n{number}", f"10.240.0.{number}/24", ipip=f"10.65.{number}.1") for number in (11, 12)}
BLOCKS = {f"10.65.{number}.0/26": BlockRoutes(f"n{number}") for number in NODES}
PAYLOAD = 1480 - 28  # of the largest ping through a device whose MTU leaves room for one more header


@define
class IPIPNode:
    """A node whose device is the stand-in."""

    number: int
    node: NetnsNode

    @property
    def pod(self) -> str:
        return f"10.65.{self.number}.7"

    @property
    def chosen(self) -> str:
        """An address of the pool past assignment: in no block, and announced by BGP."""
        return f"10.65.99.{self.number}"

    def start(self) -> None:
        """Let it have the device with its tunnel address, an address of a pod, and the routes of the engine."""
        child = self.node.start_process(sys.executable, ipip_standin.__file__, IPIP_DEVICE)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        self.node.run("ip", "link", "set", IPIP_DEVICE, "mtu", "1480", "up")
        self.node.run("ip", "address", "add", f"10.65.{self.number}.1/32", "dev", IPIP_DEVICE)
        for address in (self.pod, self.chosen):
            self.node.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        engine = engine_of(
            f"n{self.number}",
            nodes=tuple(NODES.values()),
            pools=(POOL,),
            blocks=BLOCKS,
            interfaces=(interface("lan0", f"10.240.0.{self.number}/24"),),
        )
        others = [number for number in NODES if number != self.number]
        next_hops = {f"10.65.99.{number}/32": f"10.240.0.{number}" for number in others}
        learned = {Prefix.parse(prefix): Address.parse(text) for prefix, text in next_hops.items()}
        engine.inputs.set_learned(learned)
        entries = [each for each in engine.desired() if isinstance(each, Nexthop | Route)]
        with entered_namespace(f"/proc/{self.node.pid}/ns/net"), LinuxRouting.open() as kernel:
            assert kernel.apply([Put(each) for each in entries]) == ()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[IPIPNode, IPIPNode]]:
    with ExitStack() as stack:
        switch = stack.enter_context(open_switch())
        made = []
        for number in NODES:
            folder = tmp_path / str(number)
            folder.mkdir()
            node = stack.enter_context(open_node(str(folder)))
            plug_in(node, switch, number)
            made.append(IPIPNode(number, node))
        first, second = made
        first.start()
        second.start()
        yield first, second


def test_pods_reach_each_other_through_ipip_and_the_largest_packet_passes(
    nodes: tuple[IPIPNode, IPIPNode],
) -> None:
    first, second = nodes
    sniffed = first.node.start_process(sys.executable, "-c", SNIFF, str(Address.parse("10.240.0.12")), second.pod)
    assert sniffed.stdout is not None
    assert sniffed.stdout.readline() == "ready\n"
    wait_until(lambda: first.node.can_ping(second.pod), "the pod of the other node answers")
    assert sniffed.stdout.readline() == "10.65.11.1 10.65.12.7\n", "the source is the address of the tunnel"
    size = ("ping", "-n", "-c", "1", "-W", "5", "-M", "do", "-s")
    first.node.run(*size, str(PAYLOAD), second.pod)
    assert first.node.run_unchecked(*size, str(PAYLOAD + 1), second.pod).returncode != 0


def test_rt15_an_address_past_assignment_is_reached_through_ipip(nodes: tuple[IPIPNode, IPIPNode]) -> None:
    first, second = nodes
    wait_until(lambda: first.node.can_ping(second.chosen), "the address of the other node answers")
    assert f"dev {IPIP_DEVICE}" in first.node.run("ip", "route", "get", second.chosen)


# Prints destination and source of the first packet that a node has wrapped: of an answer.
SNIFF = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as every:
    every.bind(("lan0", 0x0800))
    every.settimeout(60)
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    while True:
        packet = every.recv(65535)
        if packet[9] == 4 and packet[12:16] == socket.inet_aton(sys.argv[1]):
            inner = packet[20:]
            print(socket.inet_ntoa(inner[16:20]), socket.inet_ntoa(inner[12:16]), flush=True)
            break
"""
