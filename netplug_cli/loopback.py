"""A socket for those on the same machine, such as probes, and collectors of metrics."""

from __future__ import annotations

import argparse
import os
import socket

__all__ = ["CannotListen", "listen_to_this_machine", "port_argument"]

_LOOPBACK = "127.0.0.1"
_MAX_PORT = 65_535


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


def port_argument(text: str) -> int:
    """The port that an argument of an executable names, for ``argparse``.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; a number from 1 to {_MAX_PORT} is")
    return number
