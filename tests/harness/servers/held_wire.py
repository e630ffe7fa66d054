"""A wire to a member of etcd that can keep what a client sends, also after the client is dead, and deliver it later."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

from attrs import define, field

__all__ = ["HeldWire", "open_held_wire"]

_FRAME_HEADER = 9  # length (3 bytes), type, flags, stream (4 bytes); RFC 9113, section 4.1
_WITH_END = (0, 1)  # DATA and HEADERS; other frames use the flag otherwise
_END_STREAM = 1
_POLL_S = 0.02


@define
class HeldWire:
    """A port of loopback that leads to another one. While ``is_holding``, requests stay on the way."""

    port: int
    listener: socket.socket = field(factory=lambda: socket.create_server(("127.0.0.1", 0)))
    is_holding: bool = False
    is_open: bool = True
    _held: dict[int, bytes] = field(factory=dict)
    _answers: dict[int, bytes] = field(factory=dict)

    @property
    def url(self) -> str:
        """Where a client reaches it."""
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    @property
    def has_request(self) -> bool:
        """Whether a whole request is on the way."""
        return any(map(_ends_stream, tuple(self._held.values())))

    @property
    def has_answer(self) -> bool:
        """Whether the member has answered a request that was held."""
        return any(map(_ends_stream, tuple(self._answers.values())))

    def serve(self) -> None:
        """Take connections until the listener is shut down."""
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                member = socket.create_connection(("127.0.0.1", self.port))
                Thread(target=self._serve_connection, args=(client, member), daemon=True).start()

    def _serve_connection(self, client: socket.socket, member: socket.socket) -> None:
        """Pass on what comes. The member is not told that the client is dead."""
        name, sources = client.fileno(), [client, member]
        with client, member, suppress(OSError):
            while self.is_open:
                for source in select.select(sources, (), (), _POLL_S)[0]:
                    data = _receive(source)
                    if not data:
                        sources.remove(source)
                    elif source is member:
                        self._pass_answer(name, data, client)
                    elif self.is_holding:
                        self._held[name] = self._held.get(name, b"") + data
                    else:
                        member.sendall(data)
                if not self.is_holding and name in self._held:
                    self._answers[name] = b""
                    member.sendall(self._held.pop(name))

    def _pass_answer(self, name: int, data: bytes, client: socket.socket) -> None:
        if name in self._answers:
            self._answers[name] += data
        with suppress(OSError):  # it is dead
            client.sendall(data)


@contextmanager
def open_held_wire(port: int) -> Iterator[HeldWire]:
    """A wire to a port of loopback."""
    wire = HeldWire(port)
    Thread(target=wire.serve, daemon=True).start()
    try:
        yield wire
    finally:
        wire.is_open = False
        with suppress(OSError):
            wire.listener.shutdown(socket.SHUT_RDWR)
        wire.listener.close()


def _receive(source: socket.socket) -> bytes:
    """What has come; nothing if the other side is gone."""
    try:
        return source.recv(65536)
    except ConnectionError:
        return b""


def _ends_stream(frames: bytes) -> bool:
    """Whether some frames have the last one of a request or of an answer."""
    while len(frames) >= _FRAME_HEADER:
        end = _FRAME_HEADER + int.from_bytes(frames[:3])
        if frames[3] in _WITH_END and frames[4] & _END_STREAM and len(frames) >= end:
            return True
        frames = frames[end:]
    return False
