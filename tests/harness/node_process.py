"""The node process on a test's node, and a client of it that speaks ``netplug_core.cni.wire`` without falling back."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from attrs import define, field, frozen

from netplug_backends.host.executables import EXECUTABLES
from netplug_core.cni.wire import TAKEN, WireReply, WireRequest, encode_request, parse_reply
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace, check_reply
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

__all__ = [
    "NO_VARIABLES",
    "ROOT",
    "ClientRuntime",
    "NodeProcess",
    "NodeProcessRuntime",
    "ask",
    "connect",
    "listens",
    "receive_all",
    "start_node_process",
    "wait_until_listening",
]

NO_VARIABLES: Mapping[str, str] = {}
ROOT = str(Path(__file__).parents[2])


@define
class NodeProcess:
    """A running ``netplug-node``. ``log`` is the file that its standard error goes to."""

    child: subprocess.Popen[str]
    socket: str
    log: str

    @property
    def lines(self) -> str:
        """What it has written."""
        return Path(self.log).read_text()

    @property
    def descriptors(self) -> int:
        """How many files, sockets and the like it has open."""
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    @property
    def connections(self) -> int:
        """How many connections it has accepted and not closed."""
        # An accepted socket is in the network namespace of its client. State 03 is connected.
        listed = Path("/proc/self/net/unix").read_text().splitlines()
        return sum(line.split()[5] == "03" and line.endswith(f" {self.socket}") for line in listed)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The numbers of its threads."""
        return tuple(os.listdir(f"/proc/{self.child.pid}/task"))

    @property
    def threads(self) -> int:
        """How many threads it has."""
        return len(self.tasks)

    @property
    def memory_kib(self) -> int:
        """The memory that it occupies."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.child.send_signal(number)

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        return self.child.wait(EMERGENCY_STOP_S)


def start_node_process(
    node: NetnsNode,
    *options: str,
    name: str = "node",
    program: tuple[str, ...] = ("-m", "netplug_cli.wiring.node"),
    environ: Mapping[str, str] = NO_VARIABLES,
) -> NodeProcess:
    """Start a node process on a node, with further variables; it listens when this returns.

    ``program`` is what Python runs.
    """
    folder = node.file(name)
    os.makedirs(folder, exist_ok=True)
    path, log = f"{folder}/node.sock", f"{folder}/node.log"
    command = f'exec "$@" 2>>{log}'
    variables = [f"{name}={text}" for name, text in environ.items()]
    argv = ("env", *variables, sys.executable, *program, "--socket", path, *options)
    child = node.start_process("sh", "-c", f"cd {ROOT} && {command}", "sh", *argv)
    return wait_until_listening(NodeProcess(child, path, log))


def wait_until_listening(process: NodeProcess) -> NodeProcess:
    """The process, once it listens."""
    wait_until(lambda: listens(process.socket) or process.child.poll() is not None, "the node process listens")
    assert process.child.poll() is None, process.lines
    return process


def listens(path: str) -> bool:
    """Whether a process accepts connections at a path."""
    try:
        connect(path).close()
    except OSError:
        return False
    return True


def connect(path: str) -> socket.socket:
    """A connection to a node process."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(EMERGENCY_STOP_S)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def receive_all(connection: socket.socket) -> bytes:
    """Everything until the other end closes; a connection that is reset ends there."""
    received = b""
    try:
        while chunk := connection.recv(1 << 16):
            received += chunk
    except ConnectionError:
        pass
    return received


def ask(
    path: str, request: WireRequest, *, namespace: str = "", patience_s: float = EMERGENCY_STOP_S
) -> WireReply | None:
    """The reply to a request; None if there was none, or it broke off."""
    data = encode_request(request, patience_s=patience_s)
    with closing(connect(path)) as connection:
        if namespace:
            descriptor = os.open(namespace, os.O_RDONLY)
            try:
                socket.send_fds(connection, [data[:1]], [descriptor])
            finally:
                os.close(descriptor)
            data = data[1:]
        connection.sendall(data)
        received = receive_all(connection)
    assert received[:1] in (b"", TAKEN)
    return parse_reply(received)


@frozen
class ClientRuntime(CNIRuntime):
    """A runtime whose executables ask the node process."""

    socket: str

    def make_environ(self, command: str, pod: PodNamespace | None, **changes: str | None) -> dict[str, str]:
        """As :meth:`CNIRuntime.make_environ`, with the path of the socket."""
        return {**CNIRuntime.make_environ(self, command, pod, **changes), "NETPLUG_NODE_SOCKET": self.socket}


@frozen
class NodeProcessRuntime(CNIRuntime):
    """A runtime whose executables ask the node process and never serve themselves.

    ``passes_namespace``: whether the client passes the network namespace as a descriptor. That of a path in
    ``hidden_namespaces``, which the node process cannot find, is passed in any case.
    """

    socket: str
    passes_namespace: bool = False
    hidden_namespaces: Mapping[str, str] = field(factory=dict)

    def call(
        self,
        command: str,
        conf: NetConfDict | str,
        pod: PodNamespace | None = None,
        *,
        plugin: str = "netplug",
        **variables: str | None,
    ) -> PluginReply:
        """As :meth:`CNIRuntime.call`; another plugin than ours is executed."""
        if plugin not in EXECUTABLES:
            return CNIRuntime.call(self, command, conf, pod, plugin=plugin, **variables)
        environ = self.make_environ(command, pod, **variables)
        found = ask(self.socket, self.make_request(environ, conf, plugin), namespace=self._namespace(environ))
        assert found is not None, "the reply broke off"
        reply = PluginReply(found.exit_status, found.stdout.decode(), found.stderr.decode())
        check_reply(reply, is_ours=True)
        return reply

    def make_request(self, environ: Mapping[str, str], conf: NetConfDict | str, plugin: str = "netplug") -> WireRequest:
        """The request of a call."""
        text = conf if isinstance(conf, str) else json.dumps(conf)
        return WireRequest(program=plugin, environ=environ, stdin=text.encode())

    def _namespace(self, environ: Mapping[str, str]) -> str:
        """The path at which this process finds the namespace of the node; empty if it passes none."""
        named = environ.get("CNI_NETNS", "")
        pod = self.hidden_namespaces.get(named, named if self.passes_namespace else "")
        path = f"/proc/{self.node.pid}/root{pod}"
        return path if pod.startswith("/run/netns/") and os.path.isfile(path) else ""
