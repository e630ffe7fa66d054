"""Ports of loopback for the servers of tests, and for tests that need a port without a listener.

A port that is found by binding and closing a socket may be taken before the server binds it: by another
worker of pytest-xdist, or by any connection of this machine. These ports lie below the range from which the
kernel takes ports for connections, and each one is reserved until this process ends.
"""

from __future__ import annotations

import os
import socket

__all__ = ["reserve_port", "reserve_ports"]

_FIRST, _COUNT = 20_000, 12_000


def reserve_port() -> int:
    """A port of 127.0.0.1 without a listener, which no other process gets from here."""
    for number in range(_COUNT):
        port = _FIRST + (os.getpid() * 37 + number) % _COUNT
        if _is_reserved_now(port) and _is_free(port):
            return port
    raise AssertionError("no port of the range is free")


def reserve_ports(count: int) -> list[int]:
    """So many of them."""
    return [reserve_port() for _ in range(count)]


def _is_reserved_now(port: int) -> bool:
    """Whether this call reserves the port: the name of an abstract socket belongs to one process of the machine."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0netplug-tests-port-{port}")
    except OSError:
        reservation.close()
        return False
    reservation.detach()  # it stays open until the process ends
    return True


def _is_free(port: int) -> bool:
    """Whether no other program, which does not reserve its ports here, listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
