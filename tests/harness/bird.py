"""Nodes with a BIRD each: namespaces on one switch, the tables of their kernels, and events of their routes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from attrs import define, field, frozen

from netplug_backends.bird.process import BirdDaemon
from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.addresses import BIRD_PROTOCOL, count_routes, remove_routes
from netplug_backends.linux.netns import entered_namespace
from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.bgp import LEARNED_METRIC, BgpPlan, BgpStatus
from netplug_core.dataplane.routing import ADVERTISED_TABLE
from netplug_core.log import Level
from netplug_core.reconcile.peers import PeerFacts, Peering, plan_peers
from netplug_core.resources.bgp import BGPConfiguration, BGPFilter, BGPPeer
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.node import Node, NodeBGP, NodeInterface, NodeSpec
from tests.harness.monitor import Monitor
from tests.harness.node import NetnsNode, open_node
from tests.harness.resources import resource_of
from tests.harness.switch import NodePort, open_switch, plug_in
from tests.harness.waiting import wait_until

__all__ = [
    "BirdCluster", "BirdHarness", "BirdNode", "Router", "ThereDaemon", "block_of", "find_bird", "is_running",
    "new_deadline", "open_bird_nodes", "route_events",
]  # fmt: skip

R = TypeVar("R", bound=IPPool | BGPConfiguration | BGPPeer | BGPFilter)
T = TypeVar("T")

_CALL_S = 20.0


def find_bird() -> str:
    """Debian's BIRD 2; the test is skipped when it is missing, which in CI is a failure."""
    found = shutil.which("bird") or shutil.which("bird", path="/usr/sbin:/usr/local/sbin")
    return found or pytest.skip("bird is missing: apt-get install bird2")


def ignore_lines(level: Level, message: str, /, **fields: object) -> None:
    """A log that nobody reads."""
    del level, message, fields


@define
class BirdNode:
    """A node with its own kernel tables, and a BIRD that runs there."""

    number: int
    node: NetnsNode
    port: NodePort
    daemon: BirdDaemon

    @property
    def folder(self) -> str:
        """Where the files of its BIRD are."""
        return self.daemon.folder

    def address(self, family: Family) -> Address:
        """Its address on the switch."""
        return Address.parse(self.port.ipv4 if family is Family.IPV4 else self.port.ipv6)

    def there(self, call: Callable[[], T]) -> T:
        """What a call returns that is made in the network namespace of the node."""
        with entered_namespace(f"/proc/{self.node.pid}/ns/net"):
            return call()

    def apply(self, plan: BgpPlan) -> bool:
        """Let its BIRD do what a plan says."""
        return self.there(lambda: self.daemon.apply(plan, deadline=new_deadline()))

    def find_status(self) -> BgpStatus | None:
        """What its BIRD says; the request also wakes it. None: it does not run."""
        return self.there(lambda: self.daemon.find_status(deadline=new_deadline()))

    def status(self) -> BgpStatus:
        """What its BIRD says, which runs."""
        status = self.find_status()
        assert status is not None, f"the BIRD of node {self.number} does not run"
        return status

    def pause(self) -> None:
        """End its BIRD so that its routes stay."""
        self.there(lambda: self.daemon.pause(deadline=new_deadline()))

    def pid(self) -> int:
        """The process of its BIRD, which writes its number once it is in the background."""
        file = Path(f"{self.folder}/bird.pid")
        wait_until(lambda: bool(file.read_text()), "BIRD has written its number")
        return int(file.read_text())

    def send_signal(self, number: signal.Signals) -> None:
        """Send its BIRD a signal, and wait until it has ended."""
        pid = self.pid()
        os.kill(pid, number)
        wait_until(lambda: not is_running(pid), f"BIRD {pid} has ended")

    def announce(self, prefix: Prefix) -> None:
        """Put a prefix into the table of what it announces."""
        self._advertised("replace", prefix)

    def withdraw(self, prefix: Prefix) -> None:
        """Take a prefix out of it."""
        self._advertised("delete", prefix)

    def _advertised(self, verb: str, prefix: Prefix) -> None:
        table = ("table", str(ADVERTISED_TABLE), "protocol", "78")
        self.node.run("ip", f"-{prefix.family.value}", "route", verb, "blackhole", str(prefix), *table)

    def announce_many(self, prefixes: Iterable[Prefix]) -> None:
        """Put many prefixes into it at once."""
        lines = "".join(f"route add blackhole {one} table {ADVERTISED_TABLE} protocol 78\n" for one in prefixes)
        self.node.run("ip", "-batch", "-", stdin=lines)

    def routes(self) -> dict[Prefix, dict[str, object]]:
        """The routes of the protocol ``bird`` in its main table."""
        found: dict[Prefix, dict[str, object]] = {}
        for number in ("-4", "-6"):
            text = self.node.run("ip", "-j", number, "route", "show", "table", "main", "proto", "bird")
            found |= {Prefix.parse(one["dst"].replace("default", "0.0.0.0/0")): one for one in json.loads(text or "[]")}
        return found

    def learned(self) -> frozenset[Prefix]:
        """Their destinations."""
        return frozenset(self.routes())

    def close(self) -> None:
        """End its BIRD, if it runs."""
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(self.pid(), signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Whether a process is there that has not ended; one that nobody waits for counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def new_deadline() -> Deadline:
    """The deadline of a call that begins now."""
    return Deadline.after(SystemClock(), _CALL_S)


@contextmanager
def open_bird_nodes(count: int) -> Iterator[tuple[BirdNode, ...]]:
    """So many nodes, 11 and following, on one switch. Their BIRDs do not run yet; in the end they are killed."""
    find_bird()
    with ExitStack() as stack:
        switch = stack.enter_context(open_switch())
        nodes = []
        for number in range(11, 11 + count):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="netplug-bird-"))
            node = stack.enter_context(open_node(folder))
            daemon = BirdDaemon(
                folder=f"{folder}/bird",
                clock=SystemClock(),
                log=ignore_lines,
                count_routes=partial(count_routes, BIRD_PROTOCOL),
                remove_routes=partial(remove_routes, BIRD_PROTOCOL),
            )
            made = BirdNode(number, node, plug_in(node, switch, number), daemon)
            stack.callback(made.close)
            nodes.append(made)
        yield tuple(nodes)


# --- events -----------------------------------------------------------------------------------------------------------


def route_events(node: BirdNode) -> Monitor:
    """The events of routes of the protocol ``bird`` on a node."""
    return Monitor(node.node, containing="proto bird")


# --- the suite --------------------------------------------------------------------------------------------------------


@frozen
class ThereDaemon:
    """The BIRD of a node, called in its namespace."""

    at: BirdNode

    def find_status(self, *, deadline: Deadline) -> BgpStatus | None:
        return self.at.there(lambda: self.at.daemon.find_status(deadline=deadline))

    def apply(self, plan: BgpPlan, *, deadline: Deadline) -> bool:
        return self.at.there(lambda: self.at.daemon.apply(plan, deadline=deadline))

    def pause(self, *, deadline: Deadline) -> None:
        self.at.there(lambda: self.at.daemon.pause(deadline=deadline))

    def stop(self, *, deadline: Deadline) -> None:
        self.at.there(lambda: self.at.daemon.stop(deadline=deadline))


@define
class BirdHarness:
    """The harness of the conformance suite over two BIRDs."""

    nodes: tuple[BirdNode, ...]
    _listeners: ExitStack = field(factory=ExitStack, init=False)

    def daemon(self, node: int) -> ThereDaemon:
        return ThereDaemon(self.nodes[node])

    def address(self, node: int, family: Family) -> Address:
        return self.nodes[node].address(family)

    def deadline(self) -> Deadline:
        return new_deadline()

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        def is_so_now() -> bool:
            for one in self.daemon(0), self.daemon(1):  # a request wakes a BIRD
                one.find_status(deadline=new_deadline())
            return is_so()

        wait_until(is_so_now, what)

    def announce(self, node: int, prefix: Prefix) -> None:
        self.nodes[node].announce(prefix)

    def withdraw(self, node: int, prefix: Prefix) -> None:
        self.nodes[node].withdraw(prefix)

    def learned(self, node: int) -> frozenset[Prefix]:
        return self.nodes[node].learned()

    def kill(self, node: int) -> None:
        self.nodes[node].send_signal(signal.SIGKILL)

    def listen(self, node: int, port: int) -> None:
        def open_listener() -> socket.socket:
            return socket.create_server(("0.0.0.0", port))

        self._listeners.enter_context(self.nodes[node].there(open_listener))

    def leave_route(self, node: int, prefix: Prefix) -> None:
        where = ("dev", "lan0", "protocol", "bird", "metric", str(LEARNED_METRIC))
        self.nodes[node].node.run("ip", "route", "add", str(prefix), *where)

    def close(self) -> None:
        """Close what listens."""
        self._listeners.close()


# --- a cluster --------------------------------------------------------------------------------------------------------


@define
class BirdCluster:
    """Nodes ``n11`` and following, each of which does what is planned of the resources of the cluster."""

    nodes: tuple[BirdNode, ...]
    pools: tuple[IPPool, ...] = ()
    configurations: tuple[BGPConfiguration, ...] = ()
    peers: tuple[BGPPeer, ...] = ()
    filters: tuple[BGPFilter, ...] = ()
    passwords: dict[tuple[str, str], str] = field(factory=dict)
    cluster_ids: dict[int, str] = field(factory=dict)
    more_addresses: dict[int, Address] = field(factory=dict)
    """Of nodes that have a further address on the switch."""

    def put(self, kind: str, name: str, /, **spec: object) -> None:
        """Have a resource in place of the one with its name."""
        resource = resource_of(kind, name, spec)
        match resource:
            case IPPool():
                self.pools = _replaced(self.pools, resource)
            case BGPConfiguration():
                self.configurations = _replaced(self.configurations, resource)
            case BGPPeer():
                self.peers = _replaced(self.peers, resource)
            case BGPFilter():
                self.filters = _replaced(self.filters, resource)
            case _:
                raise AssertionError(f"{kind} is none of these")

    def plan(self, node: BirdNode) -> Peering:
        """What is planned for a node."""
        return plan_peers(
            PeerFacts(
                node=f"n{node.number}",
                nodes=tuple(map(self._registered, self.nodes)),
                pools=self.pools,
                configurations=self.configurations,
                peers=self.peers,
                filters=self.filters,
                passwords=self.passwords,
            )
        )

    def apply(self, *nodes: BirdNode) -> None:
        """Let nodes do what is planned for them; without any, all of them."""
        for node in nodes or self.nodes:
            plan = self.plan(node).outcome
            assert isinstance(plan, BgpPlan)
            node.apply(plan)

    def await_sessions(self) -> None:
        """Wait until every session of every node is established, and no BIRD recovers."""
        wait_until(lambda: all(map(_is_settled, self.nodes)), "all sessions are established")

    def await_learned(self, node: BirdNode, prefixes: Iterable[Prefix]) -> None:
        """Wait until a node has routes to exactly these prefixes."""
        expected = frozenset(prefixes)

        def has_learned() -> bool:
            for one in self.nodes:  # a request wakes a BIRD
                one.find_status()
            return node.learned() == expected

        wait_until(has_learned, f"n{node.number} has routes to {len(expected)} prefixes")

    def _registered(self, node: BirdNode) -> Node:
        bgp = NodeBGP(
            ipv4_address=InterfaceAddress(node.address(Family.IPV4), 24),
            ipv6_address=InterfaceAddress(node.address(Family.IPV6), 64),
            route_reflector_cluster_id=self.cluster_ids.get(node.number, ""),
        )
        labels = (("reflector", "yes"),) if node.number in self.cluster_ids else ()
        more = self.more_addresses.get(node.number)
        addresses = (*map(node.address, Family), *(() if more is None else (more,)))
        spec = NodeSpec(bgp=bgp, interfaces=(NodeInterface(name="lan0", addresses=addresses),))
        return Node(metadata=Metadata(name=f"n{node.number}", labels=labels), spec=spec)


def _replaced(known: tuple[R, ...], resource: R) -> tuple[R, ...]:
    name = resource.metadata.name
    return (*(one for one in known if one.metadata.name != name), resource)


def _is_settled(node: BirdNode) -> bool:
    status = node.find_status()
    return status is None or (not status.is_recovering and all(one.is_established for one in status.sessions))


def block_of(node: BirdNode, family: Family) -> Prefix:
    """The block that a node announces in a family."""
    number = node.number - 10
    text = f"10.91.{number}.0/26" if family is Family.IPV4 else f"fd91::{number}00/122"
    return Prefix.parse(text)


# --- a router ---------------------------------------------------------------------------------------------------------


@define
class Router:
    """A BIRD that is no node of ours: a router of the site, at the place of a node."""

    at: BirdNode

    def start(self, configuration: str) -> None:
        """Let it have a configuration, which is written by hand."""
        file = self.at.node.write_file("router.conf", configuration)
        folder = self.at.node.folder
        os.makedirs(self.at.folder, exist_ok=True)
        self.at.node.run(find_bird(), "-c", file, "-s", f"{folder}/router.ctl", "-P", f"{self.at.folder}/bird.pid")

    def start_again(self, configuration: str) -> None:
        """End it, and let it have another configuration."""
        self.at.send_signal(signal.SIGKILL)
        self.start(configuration)

    def ask(self, command: str) -> str:
        """What it answers to a command."""
        return self.at.node.run(f"{find_bird()}c", "-s", f"{self.at.node.folder}/router.ctl", *command.split())

    def routes(self) -> str:
        """All that it knows of the routes of its peers."""
        return self.ask("show route all where source = RTS_BGP")

    def destinations(self) -> set[str]:
        """The prefixes that its peers announce."""
        return set(re.findall(r"^(\S+/\d+) ", self.routes(), re.MULTILINE))
