"""In how many pieces a request leaves."""

from __future__ import annotations

import socket

from netplug_backends.connections import DeadlineSocket
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.credentials import ApiAccess
from netplug_backends.kubernetes.client.transport import ApiConnection
from netplug_core.clock import Deadline
from tests.harness.waiting import EMERGENCY_STOP_S


class CountingSocket(socket.socket):
    """A socket that is not connected, and keeps what is sent, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def sendall(self, data: bytes, *_flags: int) -> None:  # type: ignore[override]
        self.pieces.append(data)


def test_head_and_body_leave_in_one_piece() -> None:
    """A relay that waits for the answer to the first of two would delay the second."""
    deadline = Deadline.after(SystemClock(), EMERGENCY_STOP_S)
    with CountingSocket() as plain:
        connection = ApiConnection(ApiAccess(server="http://127.0.0.1:1"), DeadlineSocket(plain, deadline))
        connection.send("PUT", "/api/v1/pods", {"X-Number": "1"}, b'{"a": 1}', deadline)
    (piece,) = plain.pieces
    assert piece.startswith(b"PUT /api/v1/pods HTTP/1.1\r\n")
    assert piece.endswith(b'\r\n\r\n{"a": 1}')
