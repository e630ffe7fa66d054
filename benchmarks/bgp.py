"""BGP through BIRD beside FRR: a new block at another node, the start of two and of eight nodes, and memory.

Each node is a network namespace on one switch, with a daemon and kernel tables of its own. BIRD does what the node
process plans, and is asked every second how it does, as the node process asks it. FRR (zebra and bgpd) is configured by
hand for the same sessions; without it its columns are left out, and ratios to it are not shown.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Protocol

from attrs import define, field

from netplug_core.addressing import Family, Prefix
from tests.harness.bird import BirdCluster, BirdNode, open_bird_nodes

__all__ = ["measure"]

_FRR = Path("/usr/lib/frr")
_POLL_S = 1.0
_FAR_S = 60.0
_STARTS = 5
_ROUTES = 5_000
_RTMGRP_ROUTES = 0x40 | 0x400  # of IPv4 and IPv6
_POOL = "10.91.0.0/16"


class Speaker(Protocol):
    """The daemons of some nodes."""

    nodes: tuple[BirdNode, ...]

    def start(self) -> None:
        """Start those of all nodes; each announces its block."""
        ...

    def announce(self, node: BirdNode, prefix: Prefix) -> None:
        """Announce one more prefix."""
        ...

    def processes(self, node: BirdNode) -> tuple[int, ...]:
        """The daemons of a node."""
        ...


# --- BIRD -------------------------------------------------------------------------------------------------------------


@define
class Bird:
    """BIRD, as the node process has it."""

    nodes: tuple[BirdNode, ...]
    _cluster: BirdCluster = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._cluster = BirdCluster(self.nodes)
        self._cluster.put("IPPool", "four", cidr=_POOL)

    def start(self) -> None:
        for node in self.nodes:
            node.announce(_block(node))
        with ThreadPoolExecutor(len(self.nodes)) as pool:  # nodes are machines that start at once
            list(pool.map(self._cluster.apply, self.nodes))

    def announce(self, node: BirdNode, prefix: Prefix) -> None:
        node.announce(prefix)

    def processes(self, node: BirdNode) -> tuple[int, ...]:
        return (node.pid(),)


# --- FRR --------------------------------------------------------------------------------------------------------------


@define
class Frr:
    """zebra and bgpd, configured by hand."""

    nodes: tuple[BirdNode, ...]
    _stack: ExitStack

    def start(self) -> None:
        for node in self.nodes:
            run = "/run/frr"  # each node has a /run of its own
            others = [str(one.address(Family.IPV4)) for one in self.nodes if one is not node]
            neighbours = "".join(
                f" neighbor {one} remote-as 64512\n neighbor {one} timers connect 1\n"
                f" neighbor {one} advertisement-interval 0\n"
                for one in others
            )
            configuration = (
                f"router bgp 64512\n bgp router-id {node.address(Family.IPV4)}\n no bgp network import-check\n"
                f"{neighbours} address-family ipv4 unicast\n  network {_block(node)}\n exit-address-family\n"
            )
            write = f"mkdir -p {run}; cat > {run}/bgpd.conf; echo > {run}/zebra.conf; chown -R frr:frr {run}"
            node.node.run("sh", "-ec", write, stdin=configuration)
            for name in ("zebra", "bgpd"):
                command = ("-d", "--vty_socket", run, "-f", f"{run}/{name}.conf", "-i", f"{run}/{name}.pid")
                node.node.run(f"{_FRR}/{name}", *command)
            for pid in self.processes(node):
                self._stack.callback(_end, pid)

    def announce(self, node: BirdNode, prefix: Prefix) -> None:
        command = ("-c", "configure terminal", "-c", "router bgp 64512", "-c", "address-family ipv4 unicast")
        node.node.run("vtysh", "--vty_socket", "/run/frr", *command, "-c", f"network {prefix}")

    def processes(self, node: BirdNode) -> tuple[int, ...]:
        return tuple(int(node.node.run("cat", f"/run/frr/{name}.pid")) for name in ("zebra", "bgpd"))


def _end(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


# --- what is measured -------------------------------------------------------------------------------------------------


@contextmanager
def _opened(name: str, count: int) -> Iterator[Speaker]:
    with ExitStack() as stack:
        nodes = stack.enter_context(open_bird_nodes(count))
        yield Bird(nodes) if name == "BIRD" else Frr(nodes, stack)


def _block(node: BirdNode) -> Prefix:
    return Prefix.parse(f"10.91.{node.number}.0/26")


def _start_s(name: str, count: int) -> float:
    """From the start of the first daemon until every node has a route to every block."""
    with _opened(name, count) as speaker:
        nodes = speaker.nodes
        listeners = [_Listener(node) for node in nodes]
        began = time.perf_counter()
        speaker.start()
        waiting = set(range(count))
        look_at = time.perf_counter()
        while waiting:
            if time.perf_counter() >= look_at and isinstance(speaker, Bird):
                look_at += _POLL_S
                for node in nodes:
                    node.find_status()
            for number in tuple(waiting):
                if listeners[number].has_seen({_block(one) for one in nodes if one is not nodes[number]}):
                    waiting.discard(number)
            if time.perf_counter() - began > _FAR_S:
                raise SystemExit(f"{name}: {count} nodes did not have all routes after {_FAR_S:g} s")
            time.sleep(0.005)
        took_s = time.perf_counter() - began
        for listener in listeners:
            listener.close()
    return took_s


class _Listener:
    """The routes that a kernel notifies of."""

    def __init__(self, node: BirdNode) -> None:
        def opened() -> socket.socket:
            made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
            made.bind((0, _RTMGRP_ROUTES))
            return made

        self._socket = node.there(opened)
        self._seen = b""

    def has_seen(self, prefixes: set[Prefix]) -> bool:
        """Whether the kernel has notified of all of these, each with its address as the destination."""
        self._socket.settimeout(0)
        while True:
            try:
                self._seen += self._socket.recv(1 << 16)
            except BlockingIOError:
                return all(one.first.packed in self._seen for one in prefixes)

    def wait(self, prefix: Prefix) -> float:
        """When it has notified of a prefix."""
        self._socket.settimeout(_FAR_S)
        while prefix.first.packed not in self._socket.recv(1 << 16):
            pass
        return time.perf_counter()

    def close(self) -> None:
        self._socket.close()


def _announcements_ms(speaker: Speaker, rounds: int) -> list[float]:
    """From the command that announces a prefix until it is in the kernel of the other node."""
    here, there = speaker.nodes
    listener = _Listener(there)
    samples = []
    for number in range(rounds + 3):
        prefix = Prefix.parse(f"10.91.{200 + number // 4}.{number % 4 * 64}/26")
        began = time.perf_counter()
        speaker.announce(here, prefix)
        samples.append((listener.wait(prefix) - began) * 1e3)
    listener.close()
    return samples[3:]


def _memory_mb(speaker: Speaker, node: BirdNode) -> float:
    """The resident memory of the daemons of a node."""
    total = 0
    for pid in speaker.processes(node):
        status = Path(f"/proc/{pid}/status").read_text()
        total += int(status.partition("VmRSS:")[2].split()[0])
    return total / 1024


def _await(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _FAR_S
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(what)
        time.sleep(0.05)


def _await_routes(speaker: Speaker, count: int) -> None:
    def has_them() -> bool:
        for node in speaker.nodes:
            if isinstance(speaker, Bird):
                node.find_status()
        shown = [
            node.node.run("ip", "route", "show", "proto", "bird" if isinstance(speaker, Bird) else "bgp")
            for node in speaker.nodes
        ]
        return all(len(text.splitlines()) >= count for text in shown[1:])

    _await(has_them, f"{type(speaker).__name__}: not all routes arrived")


def _steady(names: list[str], rounds: int) -> tuple[dict[str, list[float]], dict[str, tuple[float, float]]]:
    """Announcements of all, interleaved, and memory without and with many routes."""
    announced: dict[str, list[float]] = {name: [] for name in names}
    memory: dict[str, tuple[float, float]] = {}
    with ExitStack() as stack:
        speakers = {name: stack.enter_context(_opened(name, 2)) for name in names}
        for speaker in speakers.values():
            speaker.start()
            _await_routes(speaker, 1)
        empty = {name: _memory_mb(speaker, speaker.nodes[1]) for name, speaker in speakers.items()}
        for name, speaker in speakers.items():
            announced[name] = _announcements_ms(speaker, rounds)
        for name, speaker in speakers.items():
            full = empty[name]
            if isinstance(speaker, Bird):
                first = speaker.nodes[0]
                first.announce_many(Prefix.parse(f"10.{100 + n // 256}.{n % 256}.0/26") for n in range(_ROUTES))
                _await_routes(speaker, _ROUTES)
                full = _memory_mb(speaker, speaker.nodes[1])
            memory[name] = (empty[name], full)
    return announced, memory


def measure(rounds: int) -> None:
    """Print the figures, and their ratios to FRR."""
    if os.geteuid():
        raise SystemExit("network namespaces need root")
    has_frr = (_FRR / "bgpd").exists() and shutil.which("vtysh") is not None
    names = ["BIRD", "FRR"] if has_frr else ["BIRD"]
    print("FRR is measured beside it" if has_frr else "FRR is missing (apt-get install frr): no ratios to it")
    starts: dict[tuple[str, int], list[float]] = {}
    for _round in range(min(rounds, _STARTS)):
        for count in (2, 8):
            for name in names:
                if name == "FRR" and count > 2:
                    continue
                starts.setdefault((name, count), []).append(_start_s(name, count))
    announced, memory = _steady(names, rounds)
    bird_two, bird_eight = (median(starts["BIRD", count]) for count in (2, 8))
    block_ms, (empty, full) = median(announced["BIRD"]), memory["BIRD"]
    print(f"BIRD: new block at the other node {block_ms:.1f} ms, two nodes {bird_two:.2f} s, eight {bird_eight:.2f} s,")
    print(f"  {empty:.1f} MB a node, {full:.1f} MB with {_ROUTES} routes")
    print(f"eight nodes / two: {bird_eight / bird_two:.2f} (R6: <= 1.3)")
    print(f"memory with {_ROUTES} routes / without: {full / empty:.2f} (R7: <= 1.2)")
    if has_frr:
        frr_ms, frr_two, frr_mb = median(announced["FRR"]), median(starts["FRR", 2]), memory["FRR"][0]
        print(f"FRR: new block {frr_ms:.1f} ms, two nodes {frr_two:.2f} s, {frr_mb:.1f} MB a node")
        print(f"new block / FRR: {block_ms / frr_ms:.3f} (R5: <= 0.1)")
        print(f"two nodes / FRR: {bird_two / frr_two:.2f} (R6: <= 1.0)")
        print(f"memory / FRR: {empty / frr_mb:.2f} (R7: <= 0.25)")
