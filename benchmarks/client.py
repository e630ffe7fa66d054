"""One call of each client to a server that only replies, beside a Python that starts and ends."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import ProcessSeries, format_report, run
from netplug_backends.host.executables import Client, install
from netplug_core.cni.wire import HEADER_LENGTH, TAKEN, WireReply, encode_reply, parse_header

_GOAL = 1.15
_REPLY = TAKEN + encode_reply(WireReply(exit_status=0, stdout=b"{}\n", stderr=b""))


def measure(rounds: int) -> None:
    """Measure that many rounds and print.

    Raises:
        SystemExit: this machine cannot build the static client.
    """
    if shutil.which("cc") is None:
        raise SystemExit("a C compiler is missing: apt-get install gcc libc6-dev")
    with tempfile.TemporaryDirectory() as folder, _server(f"{folder}/node.sock") as path:
        commands: dict[str, tuple[str, ...]] = {"python -IS -c pass": (sys.executable, "-IS", "-c", "pass")}
        for client in (Client.PYTHON, Client.STATIC):
            install(f"{folder}/{client.value}", lambda _line: None, client)
            commands[f"{client.value} client"] = (f"{folder}/{client.value}/netplug",)
        series = [ProcessSeries(name, "") for name in commands]
        environ = {"CNI_COMMAND": "ADD", "NETPLUG_NODE_SOCKET": path, "PATH": os.environ["PATH"]}
        for _ in range(rounds):
            for row, command in zip(series, commands.values(), strict=True):
                row.samples.append(run(command, b'{"name": "net1"}', environ))
    failed = sum(sample.status != 0 for row in series for sample in row.samples)
    print(format_report(series))
    bare, python, _static = series
    print(f"P2: CPU of the Python client {python.cpu_ms() / bare.cpu_ms():.2f} (goal {_GOAL}); {failed} failed")


@contextmanager
def _server(path: str) -> Iterator[str]:
    """A server at a path that replies to every request at once."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            Path(path).unlink()


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, connection.makefile("rb") as file:
            file.read(parse_header(file.read(HEADER_LENGTH)).body_length)
            connection.sendall(_REPLY)
