"""A wire between a client and one member of etcd that tests hold in their hands: it can go dead or lose replies."""

from __future__ import annotations

import enum
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import cast

__all__ = ["ProxyMode", "TCPProxy", "open_proxy"]

_REPLY_GRACE_S = 0.3  # for so long after its first word a member may go on with what it was sent


class ProxyMode(enum.Enum):
    """What the wire does."""

    FORWARD = "passes everything"
    DROP_DATA = "accepts, and passes nothing"
    DROP_REPLIES = "passes what the client sends, and breaks when the member answers"
    REFUSE = "breaks at once"


class TCPProxy:
    """A port of loopback that leads to another one."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.mode = ProxyMode.FORWARD
        self.refusals_left = 0
        """So many of the next connections are broken at once, in any mode."""
        self.is_open = True
        self._lock = Lock()
        self._connections: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[Thread] = []
        self._accepting = Thread(target=self._accept)
        self._accepting.start()

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"http://127.0.0.1:{self.port}"

    def close_connections(self) -> None:
        """Break every connection."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            _shut(connection)

    def close(self) -> None:
        """Break every connection and take no more."""
        self.is_open = False
        _shut((self._listener,))
        self._accepting.join()
        self._listener.close()
        self.close_connections()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while self.is_open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._refuses():
                    raise ConnectionRefusedError
                member = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                client.close()
                continue
            connection = (client, member)
            with self._lock:
                self._connections.append(connection)
            thread = Thread(target=self._serve, args=connection)
            self._threads.append(thread)
            thread.start()

    def _refuses(self) -> bool:
        is_counted = self.refusals_left > 0
        self.refusals_left -= is_counted
        return is_counted or self.mode is ProxyMode.REFUSE

    def _serve(self, client: socket.socket, member: socket.socket) -> None:
        """Pass on what comes from either side until one of them, or the wire, breaks."""
        breaks_at = float("inf")
        with client, member, selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, member)
            selector.register(member, selectors.EVENT_READ, client)
            with suppress(OSError, ValueError):
                while time.monotonic() < breaks_at:
                    for ready, _ in selector.select(_REPLY_GRACE_S):
                        source, target = cast("socket.socket", ready.fileobj), cast("socket.socket", ready.data)
                        data = source.recv(65536)
                        if not data:
                            return
                        if self.mode is ProxyMode.DROP_REPLIES and source is member:
                            breaks_at = min(breaks_at, time.monotonic() + _REPLY_GRACE_S)
                        elif self.mode is not ProxyMode.DROP_DATA:
                            target.sendall(data)


def _shut(sockets: tuple[socket.socket, ...]) -> None:
    """Break connections; the threads that serve them close the sockets."""
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def open_proxy(port: int) -> Iterator[TCPProxy]:
    """A wire to a port of loopback."""
    proxy = TCPProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
