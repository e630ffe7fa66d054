"""A socket for those on the same machine, such as probes, and collectors of metrics."""

from __future__ import annotations

import os
import socket

__all__ = ["CannotListen", "listen_to_this_machine"]

_LOOPBACK = "127.0.0.1"


class CannotListen(Exception):
    """There is no socket to listen on; the text says why."""


def listen_to_this_machine(port: int) -> socket.socket:
    """A socket that listens at a TCP port of 127.0.0.1.

    Raises:
        CannotListen: the port is in use, or the system refuses.
    """
    try:
        return socket.create_server((_LOOPBACK, port))
    except OSError as error:
        # Its own text names the address too.
        raise CannotListen(f"{_LOOPBACK}:{port}: {os.strerror(error.errno or 0)}") from error
