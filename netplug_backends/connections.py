"""Connections to a server by a deadline: name, connection, TLS and every read and write share it.

No backend: the clients of HTTP servers use it. Without it a silent name server, or a server that sends one byte a
second, would hold up a call for as long as it likes.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field

from netplug_core.clock import Deadline

if TYPE_CHECKING:
    import ssl

    from _typeshed import WriteableBuffer

__all__ = ["DeadlineSocket", "ResolvedAddress", "connect_to", "resolve", "start_tls"]

ResolvedAddress: TypeAlias = "tuple[int, int, int, str, tuple[object, ...]]"  # as `getaddrinfo` returns it

_CHUNK = 65536
_MIN_TIMEOUT_S = 0.001


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket; no read waits beyond the deadline of the connection."""

    def __init__(self, socket_: DeadlineSocket) -> None:
        self._socket = socket_

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._socket.receive_into(buffer)


@define(eq=False, repr=False)
class DeadlineSocket:
    """The part of a socket that ``http.client`` uses; nothing waits beyond the deadline, which may be moved."""

    plain: socket.socket
    deadline: Deadline
    _corked: list[bytes] | None = field(default=None, init=False)

    def cork(self) -> None:
        """Hold back what is sent from now on, until ``uncork``."""
        self._corked = []

    def uncork(self) -> None:
        """Send what was held back as one piece.

        ``http.client`` sends head and body apart. A relay on the way that waits for the answer to the first piece, as
        TCP does without ``TCP_NODELAY``, would delay the second one by 40 ms.
        """
        corked, self._corked = self._corked, None
        self.sendall(b"".join(corked or ()))

    def sendall(self, data: bytes) -> None:
        """Send everything, unless it is held back."""
        if self._corked is not None:
            self._corked.append(data)
            return
        self.plain.settimeout(self._remaining_s())
        self.plain.sendall(data)

    def receive_into(self, buffer: WriteableBuffer) -> int:
        """Receive what there is; 0 at the end."""
        self.plain.settimeout(self._remaining_s())
        try:
            return self.plain.recv_into(buffer)
        except TimeoutError as error:
            if error.errno is None:  # our timeout, not the kernel's
                raise
            raise ConnectionAbortedError("the server is gone without a word") from error

    def makefile(self, _mode: str) -> io.BufferedReader:
        """A reader of what is received."""
        return io.BufferedReader(_DeadlineReader(self), _CHUNK)

    def close(self) -> None:
        """Do nothing: ``http.client`` calls it after the headers if the server will close, before the body is read."""

    def _remaining_s(self) -> float:
        remaining_s = self.deadline.remaining_s
        if not remaining_s:
            raise TimeoutError("the deadline passed")
        return remaining_s


def connect_to(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A TCP connection to a host, by name or address.

    Raises:
        OSError: it cannot be reached.
    """
    return _connect_to_any(resolve(host, port, deadline), deadline)


def start_tls(plain: socket.socket, context: ssl.SSLContext, name: str, deadline: Deadline) -> ssl.SSLSocket:
    """The connection with TLS on it, to the server of that name.

    Raises:
        OSError: there is no TLS, or the server is not the one of that name.
    """
    plain.settimeout(max(deadline.remaining_s, _MIN_TIMEOUT_S))
    return context.wrap_socket(plain, server_hostname=name)


def resolve(
    host: str,
    port: int,
    deadline: Deadline,
    *,
    family: int = socket.AF_UNSPEC,
    kind: socket.SocketKind = socket.SOCK_STREAM,
) -> Sequence[ResolvedAddress]:
    """The addresses of a host. The system's resolver has no timeout, so a thread calls it and may be abandoned.

    Raises:
        OSError: it has none, or no name server answered by the deadline.
    """
    answer: list[Sequence[ResolvedAddress] | OSError] = []

    def look_up() -> None:
        try:
            answer.append(socket.getaddrinfo(host, port, family=family, type=kind))
        except OSError as error:
            answer.append(error)
        except UnicodeError as error:
            answer.append(OSError(f"no host can have the name {host!r}: {error}"))

    if _is_address(host):
        look_up()
    else:
        thread = Thread(target=look_up, name=f"resolve {host}", daemon=True)
        thread.start()
        thread.join(deadline.remaining_s)
    found = answer[0] if answer else TimeoutError("no name server answered by the deadline")
    if isinstance(found, OSError):
        raise found
    return found


def _is_address(host: str) -> bool:
    return ":" in host or host.rpartition(".")[2].isdigit()


def _connect_to_any(addresses: Sequence[ResolvedAddress], deadline: Deadline) -> socket.socket:
    """A connection to the first address that accepts one; each attempt gets its share of the remaining time."""
    problem: OSError = TimeoutError("the deadline passed")
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        remaining_s = deadline.remaining_s
        if not remaining_s:
            break
        with ExitStack() as undo:
            plain = undo.enter_context(socket.socket(family, kind, protocol))
            plain.settimeout(remaining_s / (len(addresses) - position))
            try:
                plain.connect(address)
            except OSError as error:
                problem = error
            else:
                undo.pop_all()
                return plain
    raise problem
