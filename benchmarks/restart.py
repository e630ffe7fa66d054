"""A node process that starts again: how soon it answers, beside a process that only imports its libraries.

The socket is held for it, as systemd holds it, so a call that comes while nobody serves waits and is not refused. The
node has as many attachments as a node may have, in two blocks, on an etcd on the same machine. The first answer is that
to an ADD.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from statistics import median

from attrs import evolve

from benchmarks.measure import run
from benchmarks.scene import BURST, WARMUP, MeasuredPlugin, call, lab, lab_plugin, namespaces, run_inside
from netplug_backends.host.executables import Client, install
from netplug_backends.linux.pinned_namespaces import PinnedNamespaces
from netplug_cli.lab.model import StoreKind

_LIBRARIES = "attrs, cattrs, pluggy, json, grpc, google.protobuf.message, prometheus_client"
_START = f"export LISTEN_PID=$$ LISTEN_FDS=1 && exec {sys.executable} -m netplug_cli.wiring.node"
_GOAL = 1.6


def measure(rounds: int) -> None:
    """Measure that many restarts and print.

    Raises:
        SystemExit: something that it takes is missing, or a call failed.
    """
    if run_inside("restart", rounds):
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        plugin = lab_plugin(StoreKind.ETCD, stack.enter_context(lab(StoreKind.ETCD)))
        install(folder, lambda _line: None, Client.STATIC)
        path = f"{folder}/node.sock"
        own = evolve(plugin, executable=f"{folder}/netplug", variables={"NETPLUG_NODE_SOCKET": path})
        listening = stack.enter_context(closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)))
        listening.bind(path)
        listening.listen(BURST)
        attached = [f"c{number}" for number in range(BURST)]
        stack.enter_context(namespaces(attached))
        with _node_process(own.node, listening):
            for name in attached:
                _call(own, "ADD", name)
        first_s, imports_s = _restart(own, listening, rounds)
        with _node_process(own.node, listening):
            for name in attached:
                _call(own, "DEL", name)
    ratio = first_s / imports_s
    print(f"{rounds} restarts after {WARMUP} to warm up, {BURST} attachments in etcd; wall ms, medians\n")
    print(f"start of the node process to its first answer, an ADD  {first_s * 1e3:8.1f}  {ratio:5.2f}  goal <= {_GOAL}")
    print(f"start and end of a process that imports its libraries  {imports_s * 1e3:8.1f}  {1:5.2f}  {_LIBRARIES}")


def _restart(plugin: MeasuredPlugin, listening: socket.socket, rounds: int) -> tuple[float, float]:
    """The seconds until the first answer, and those of the imports, in turns."""
    first: list[float] = []
    imports: list[float] = []
    for number in range(WARMUP + rounds):
        with namespaces(["again"]):
            began = time.perf_counter()
            with _node_process(plugin.node, listening):
                _call(plugin, "ADD", "again")
                taken = time.perf_counter() - began
                _call(plugin, "DEL", "again")
        alone = run([sys.executable, "-c", f"import {_LIBRARIES}"], b"", {})
        if number >= WARMUP:
            first.append(taken)
            imports.append(alone.wall_s)
    return median(first), median(imports)


@contextmanager
def _node_process(node: str, listening: socket.socket) -> Iterator[None]:
    """A node process with the socket that is held for it."""
    descriptor = listening.fileno()
    with PinnedNamespaces().enter(node):
        process = subprocess.Popen(
            ["bash", "-c", f"{_START} 3<&{descriptor}"], pass_fds=[descriptor], stderr=subprocess.DEVNULL
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _call(plugin: MeasuredPlugin, verb: str, container: str) -> None:
    sample = call(plugin, verb, container)
    if sample.status:  # a benchmark of failures would be a lie
        raise SystemExit(f"{verb} failed: {sample.output}")


if __name__ == "__main__":
    measure(int(sys.argv[1]))
