"""Lets the programs of a test's node reach a server outside it, at the same port of loopback.

The node has a loopback of its own. A process there takes connections and hands them on through a Unix socket, which
network namespaces do not separate.
"""

from __future__ import annotations

import enum
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from attrs import define

from tests.harness.node import NetnsNode
from tests.harness.waiting import is_eventually

__all__ = ["OutageMode", "PortForward", "forward_port"]

# Runs in the node: from a port there to a socket in the file system.
_FORWARDER_SCRIPT = """
import socket, sys, threading
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for end in (a, b):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
open(sys.argv[3], "w").close()
while True:
    inner, _ = listener.accept()
    outer = socket.socket(socket.AF_UNIX)
    outer.connect(sys.argv[2])
    for pair in ((inner, outer), (outer, inner)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


class OutageMode(enum.Enum):
    """How a server is away."""

    REFUSED = "nothing takes connections"
    SILENT = "connections are made, and nothing answers"
    DROPPED = "packets are lost on the way"


@define
class PortForward:
    """A port of a node that leads to a server, until it is broken."""

    node: NetnsNode
    port: int
    _process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Take connections."""
        ready = self.node.file(f"{self.port}.ready")
        with suppress(FileNotFoundError):
            os.remove(ready)
        self._process = self.node.start_process(
            sys.executable, "-c", _FORWARDER_SCRIPT, str(self.port), _socket_path(self.node, self.port), ready
        )
        assert is_eventually(lambda: os.path.exists(ready), within_s=10.0)

    @contextmanager
    def outage(self, mode: OutageMode) -> Iterator[None]:
        """The server is away until the context ends."""
        assert self._process is not None
        rule = ("-i", "lo", "-p", "tcp", "--dport", str(self.port), "-j", "DROP")
        match mode:
            case OutageMode.REFUSED:
                self._process.kill()
                self._process.wait()
                yield
                self.start()
            case OutageMode.SILENT:
                self._process.send_signal(signal.SIGSTOP)
                yield
                self._process.send_signal(signal.SIGCONT)
            case OutageMode.DROPPED:
                self.node.run("iptables", "-I", "INPUT", *rule)
                yield
                self.node.run("iptables", "-D", "INPUT", *rule)


@contextmanager
def forward_port(node: NetnsNode, port: int) -> Iterator[PortForward]:
    """The server answers inside the node at its own address, as long as the context lasts."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(_socket_path(node, port))
        listener.listen()
        threading.Thread(target=_serve, args=(listener, port), daemon=True).start()
        forward = PortForward(node, port)
        forward.start()
        yield forward
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _socket_path(node: NetnsNode, port: int) -> str:
    return node.file(f"{port}.sock")


def _serve(listener: socket.socket, port: int) -> None:
    while True:
        try:
            inner, _ = listener.accept()
        except OSError:
            return
        try:
            outer = socket.create_connection(("127.0.0.1", port))
        except OSError:  # the server is away: the client sees its connection closed
            inner.close()
            continue
        for pair in ((inner, outer), (outer, inner)):
            threading.Thread(target=_copy, args=pair, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()
