"""A server in place of the node process, which reads requests and sends what a test wants."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import Factory, define, frozen

from netplug_core.cni.wire import HEADER_LENGTH, TAKEN, WireReply, encode_reply, parse_header
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

__all__ = ["ReceivedRequest", "Script", "ScriptedServer", "answering", "opened_server", "sending", "taking"]

Script = Callable[[socket.socket], None]
"""Serves one connection; it is closed afterwards."""


@frozen
class ReceivedRequest:
    """A request as it came, and which files the descriptors were that came with it, by device and inode."""

    data: bytes
    files: tuple[tuple[int, int], ...]


@define(eq=False)
class ScriptedServer:
    """Listens at a path, and serves every connection by its script, one after the other."""

    path: str
    script: Script
    reads_request: bool = True
    requests: list[ReceivedRequest] = Factory(list)
    connections: int = 0
    served: int = 0
    failures: list[str] = Factory(list)

    def run(self, listener: socket.socket) -> None:
        """Serve until the listener is shut down."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.settimeout(EMERGENCY_STOP_S)
                if self.reads_request:
                    self.requests.append(read_request(connection))
                try:
                    self.script(connection)
                except OSError as error:
                    self.failures.append(type(error).__name__)
            self.served += 1

    def wait_for_the_end(self) -> None:
        """Return when every connection has been served."""
        wait_until(lambda: self.served == self.connections > 0, "the connection is served")


@contextmanager
def opened_server(path: str, script: Script, *, reads_request: bool = True) -> Iterator[ScriptedServer]:
    """A server at a path until the block ends."""
    server = ScriptedServer(path, script, reads_request)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=server.run, args=(listener,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(EMERGENCY_STOP_S)
            os.unlink(path)


def read_request(connection: socket.socket) -> ReceivedRequest:
    """A whole request with its descriptors, or what comes before the client goes."""
    data, files, length = b"", [], HEADER_LENGTH
    while len(data) < length:
        part, descriptors, _flags, _address = socket.recv_fds(connection, length - len(data), 4)
        for descriptor in descriptors:
            found = os.fstat(descriptor)
            files.append((found.st_dev, found.st_ino))
            os.close(descriptor)
        if not part:
            break
        data += part
        if len(data) == HEADER_LENGTH == length:
            length += parse_header(data).body_length
    return ReceivedRequest(data, tuple(files))


# --- scripts -------------------------------------------------------------------------------------------------------


def sending(*parts: bytes) -> Script:
    """Send these texts, and close the connection."""

    def send(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)

    return send


def answering(exit_status: int = 0, stdout: bytes = b"", stderr: bytes = b"") -> Script:
    """Take the request and reply."""
    return sending(TAKEN, encode_reply(WireReply(exit_status=exit_status, stdout=stdout, stderr=stderr)))


def taking(*, sends: bytes, late: bytes = b"") -> Script:
    """Send something and wait until the client has gone; then try to send more, which fails."""

    def take(connection: socket.socket) -> None:
        connection.sendall(sends)
        poll = select.poll()
        poll.register(connection, select.POLLRDHUP)
        poll.poll(EMERGENCY_STOP_S * 1000)
        connection.sendall(late)

    return take
