"""Who is at the other end of a Unix socket, as the kernel says."""

from __future__ import annotations

import socket
import struct

from attrs import frozen

__all__ = ["Peer", "peer_of"]

_UCRED = struct.Struct("3i")  # struct ucred: process, user, group


@frozen
class Peer:
    """The process and the effective user that made the connection."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """The other end of a connection.

    Raises:
        OSError: the kernel does not say.
    """
    pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid)
