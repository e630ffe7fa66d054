"""The socket at which systemd takes notifications of a service."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from tests.harness.waiting import EMERGENCY_STOP_S

__all__ = ["Notified", "open_notified"]


@frozen
class Notified:
    """What was sent to an address."""

    address: str
    receiving: socket.socket

    def receive(self) -> list[str]:
        """The assignments of the next notification."""
        return self.receiving.recv(4096).decode().split("\n")

    def receive_until(self, assignment: str) -> list[str]:
        """The assignments of the next notification that has this one."""
        while assignment not in (received := self.receive()):
            pass
        return received


@contextmanager
def open_notified(address: str) -> Iterator[Notified]:
    """Take notifications for as long as the context lasts. An address that begins with @ is abstract."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.settimeout(EMERGENCY_STOP_S)
        receiving.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        yield Notified(address, receiving)
