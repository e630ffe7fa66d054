"""Asks the node process of this machine for its status."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from http.client import HTTPConnection, HTTPException

from attrs import frozen

from netplug_cli.node_status import STATUS_PATH, NodeStatus, decode_status, status_socket_of
from netplug_core.errors import NetplugError

__all__ = ["ANSWER_S", "NoNodeProcess", "OddNodeProcess", "ask_node"]

ANSWER_S = 10.0
"""The longest wait; the node process asks its datastores meanwhile, for at most 2 s."""

_MAX_LENGTH = 1 << 20


@frozen
class NoNodeProcess(NetplugError):
    """Nothing answers at the path of a node process's socket."""

    path: str
    cause: str

    def __str__(self) -> str:
        alone = "netplug and netplug-ipam serve each call by themselves where none answers"
        return f"no node process answers at {self.path}: {self.cause}; {alone}"


@frozen
class OddNodeProcess(NetplugError):
    """What answers is no node process, or one of another release."""

    path: str
    cause: str

    def __str__(self) -> str:
        return f"what answers at {self.path} is no node process that this release understands: {self.cause}"


class _Connection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask_node(path: str) -> NodeStatus:
    """The status of the node process whose socket for calls is at a path.

    Raises:
        NoNodeProcess: none answers.
        OddNodeProcess: the answer is no status.
    """
    at = status_socket_of(path)
    try:
        with closing(_Connection(at)) as connection:
            connection.request("GET", STATUS_PATH)
            with connection.getresponse() as reply:
                status, text = reply.status, reply.read(_MAX_LENGTH)
    except HTTPException as error:
        raise OddNodeProcess(at, f"{type(error).__name__} {error}".strip()) from error
    except OSError as error:
        raise NoNodeProcess(path, error.strerror or str(error)) from error
    if status != 200:  # noqa: PLR2004  OK, of HTTP
        raise OddNodeProcess(at, f"the HTTP status is {status}")
    try:
        return decode_status(json.loads(text), STATUS_PATH)
    except (ValueError, RecursionError):
        raise OddNodeProcess(at, "its status is no JSON") from None
    except NetplugError as error:
        raise OddNodeProcess(at, str(error)) from error
