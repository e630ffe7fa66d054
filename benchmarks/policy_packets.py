"""A packet that passes a node with the table of policy, of 10 and of 1,000 pods, beside no table.

Packets of 64 bytes are put on the pod's end of one link, and leave by another one: so many by one system call that its
time is that of the kernel. They are of a connection that both sides have used. The kernel forwards them before the call
returns; a burst of which it has not forwarded all by then is left out. Beside them: packets for another host, which the
kernel drops at once, show what the sending takes; one rule that asks for the state of the connection shows what the
kernel's tracking of connections takes, which no policy can do without. The layouts, each in a namespace, take turns.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from attrs import evolve, frozen

from benchmarks.policy_programming import node_state
from netplug_backends.linux.netns import entered_namespace, in_new_namespace
from netplug_backends.linux.nftables import NftablesRuleset
from netplug_core.dataplane.filter import POLICY_TABLE, render_state
from netplug_core.dataplane.phases import find_phases
from netplug_core.policy.model import PolicyState

__all__ = ["measure"]

_FEW, _MANY = 10, 1_000
_SENDING, _NO_TABLE, _TRACKING = "sending alone", "no table", "connections tracked"


def _text(pods: int) -> str:
    return f"{pods} pods"


_LAYOUTS: dict[str, int | str] = {
    _NO_TABLE: "",
    _TRACKING: "table ip x { chain f { type filter hook forward priority 10; ct state established accept; }; }",
    _text(_FEW): _FEW,
    _text(_MANY): _MANY,
}
"""The pods of a node, or other rules in their place."""

_LAYOUT_GOAL, _PODS_GOAL = 1.35, 1.1
_PACKETS = 1_000
_BURSTS_A_ROUND = 10
_OURS, _THEIRS, _NOBODY = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:ff"
_PORTS = 4000, 5000


def measure(rounds: int) -> None:
    """Measure that many rounds of bursts and print.

    Raises:
        SystemExit: there is no right to make a namespace, or packets do not pass.
    """
    with ExitStack() as stack:
        lanes = {text: stack.enter_context(_lane(rules)) for text, rules in _LAYOUTS.items()}
        taken: dict[str, list[float]] = {}
        for _ in range(rounds * _BURSTS_A_ROUND):
            for text, lane in lanes.items():
                taken.setdefault(text, []).extend(lane.send(lane.to_pod))
            taken.setdefault(_SENDING, []).extend(lanes[_NO_TABLE].send(lanes[_NO_TABLE].to_nobody))
    print(f"{rounds * _BURSTS_A_ROUND} bursts of {_PACKETS} packets; ns for each packet\n")
    print(f"{'':28}{'median':>9}{'fastest':>9}  bursts that count")
    for text, found in taken.items():
        if not found:
            raise SystemExit(f"no burst has passed at once: {text}")
        print(f"{text:28}{median(found):9.0f}{min(found):9.0f}  {len(found):6}")
    for text, reference, goal in (
        (_text(_FEW), _NO_TABLE, f"N1: <= {_LAYOUT_GOAL:g}"),
        (_text(_MANY), _text(_FEW), f"N1: <= {_PODS_GOAL:g}"),
        (_text(_FEW), _TRACKING, ""),
    ):
        middle, fastest = (find(taken[text]) / find(taken[reference]) for find in (median, min))
        print(f"{f'{text} / {reference}':28}{middle:9.2f}{fastest:9.2f}  {goal}".rstrip())


# --- a node with two pods ---------------------------------------------------------------------------------------------


@frozen
class _Lane:
    """A node that forwards between two links. ``to_pod`` and ``to_nobody`` are bursts that its socket can send."""

    namespace: str
    sender: socket.socket
    leaves_by: str
    to_pod: ctypes.Array[_Message]
    to_nobody: ctypes.Array[_Message]

    def send(self, burst: ctypes.Array[_Message]) -> tuple[float, ...]:
        """Nanoseconds for each packet; nothing if not all were forwarded before the call returned."""
        expected = _PACKETS if burst is self.to_pod else 0
        with entered_namespace(self.namespace):
            before = _count_left(self.leaves_by)
            began = time.perf_counter_ns()
            sent = _LIBC.sendmmsg(self.sender.fileno(), burst, _PACKETS, 0)
            took = time.perf_counter_ns() - began
            has_passed = sent == _PACKETS and _count_left(self.leaves_by) - before == expected
        return (took / _PACKETS,) if has_passed else ()


def _count_left(interface: str) -> int:
    """How many packets have left by an interface."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    fields = next(line.partition(":")[2].split() for line in lines if line.strip().startswith(f"{interface}:"))
    return int(fields[9])


@contextmanager
def _lane(rules: int | str) -> Iterator[_Lane]:
    state = _open_state(rules if isinstance(rules, int) else 2)
    ends = [each.interface for each in state.endpoints[:2]]
    first, second = addresses = [str(each.addresses[0]) for each in state.endpoints[:2]]
    frames = _frame(first, second, _PORTS), _frame(second, first, (_PORTS[1], _PORTS[0]))
    try:
        descriptor, sender = in_new_namespace(
            partial(_make_node, state if isinstance(rules, int) else rules, ends, addresses, frames)
        )
    except OSError as error:
        raise SystemExit(f"a network namespace cannot be made: {error}") from error
    with sender:
        try:
            nobody = bytes.fromhex(_NOBODY.replace(":", "")) + frames[0][6:]
            yield _Lane(f"/proc/self/fd/{descriptor}", sender, ends[1], _burst(frames[0]), _burst(nobody))
        finally:
            os.close(descriptor)


def _open_state(pods: int) -> PolicyState:
    """That of a node with so many pods, of which the first two let everything pass, by their profile."""
    state = node_state(pods)
    profiles = tuple(evolve(each, ingress=each.egress) for each in state.profiles)
    first = tuple(evolve(each, ingress=()) for each in state.endpoints[:2])
    return evolve(state, profiles=profiles, endpoints=(*first, *state.endpoints[2:]))


def _make_node(
    state: PolicyState | str, ends: list[str], addresses: list[str], frames: tuple[bytes, bytes]
) -> tuple[int, socket.socket]:
    """Links, routes, rules, and one packet each way; a descriptor of the namespace, and who sends."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    for end, peer, address in zip(ends, ("pod0", "pod1"), addresses, strict=True):
        _run("ip", "link", "add", end, "address", _OURS, "type", "veth", "peer", "name", peer, "address", _THEIRS)
        for each in (end, peer):
            _run("ip", "link", "set", each, "up")
        _run("ip", "route", "add", f"{address}/32", "dev", end)
        # The pod's end gets what is not for it, so that this namespace drops there what has passed.
        _run("ip", "neigh", "add", address, "lladdr", _NOBODY, "dev", end)
    if isinstance(state, str):
        subprocess.run(("nft", "-f", "-"), input=state, text=True, check=True)
    else:
        ruleset = NftablesRuleset()
        for change in find_phases(render_state(state), ruleset.read(POLICY_TABLE)):
            ruleset.apply(change)
    before = [_count_left(each) for each in ends]
    there, back = (_packet_socket(each) for each in ("pod0", "pod1"))
    deadline = time.monotonic() + 10
    with back:
        # A link passes nothing until the kernel has noticed that it is up, so the packets are sent again and again.
        while any(_count_left(end) < number + 2 for end, number in zip(ends, before, strict=True)):
            if time.monotonic() > deadline:
                raise SystemExit("a packet of a pod does not pass the node")
            there.send(frames[0])
            back.send(frames[1])
            time.sleep(0.01)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY), there


def _packet_socket(interface: str) -> socket.socket:
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)  # of no protocol: it receives nothing
    found.bind((interface, 0))
    return found


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


# --- packets ----------------------------------------------------------------------------------------------------------


def _frame(source: str, destination: str, ports: tuple[int, int]) -> bytes:
    """A packet of UDP with 64 bytes, for the node's end of a link."""
    payload = bytes(64 - 14 - 20 - 8)
    udp = struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload  # without a checksum
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0,
        socket.inet_aton(source), socket.inet_aton(destination),
    )  # fmt: skip
    total = sum(struct.unpack("!10H", header))
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    header = header[:10] + struct.pack("!H", checksum) + header[12:]
    macs = bytes.fromhex((_OURS + _THEIRS).replace(":", ""))
    return macs + struct.pack("!H", 0x0800) + header + udp


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """``struct msghdr``: a message of one part, without an address."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("parts", ctypes.POINTER(_Vector)),
        ("part_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    _fields_ = (("header", _Header), ("sent", ctypes.c_uint))


_LIBC = ctypes.CDLL(None, use_errno=True)


def _burst(frame: bytes) -> ctypes.Array[_Message]:
    vector = _Vector(frame, len(frame))
    messages = (_Message * _PACKETS)()
    for each in messages:
        each.header.parts, each.header.part_count = ctypes.pointer(vector), 1
    return messages
