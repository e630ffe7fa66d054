"""Sends packets of UDP to some ports of an address, one after the other and as fast as it can, until it is ended.

It is run as a program: with the source, the destination, and the ports. A line says that it has begun.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Sequence

_SOURCE_PORT = 9000
_BATCH = 32  # packets in one system call, which is what the time goes into


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("name_size", ctypes.c_uint), ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )  # fmt: skip


class _Message(ctypes.Structure):
    _fields_ = (("header", _Header), ("sent", ctypes.c_uint))


def flood(source: str, destination: str, ports: Sequence[int]) -> None:
    """Send for ever; a packet that the kernel does not take is not sent again."""
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.bind((source, _SOURCE_PORT))
    names = [_encode(family, destination, port) for port in ports]
    vector = _Vector(b"flood", 5)
    messages = (_Message * _BATCH)()
    for number in range(_BATCH):
        name = names[number % len(names)]
        messages[number].header = _Header(name, len(name), ctypes.pointer(vector), 1, None, 0, 0)
    send = ctypes.CDLL(None).sendmmsg
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    while os.getppid() != 1:
        send(sender.fileno(), messages, _BATCH, 0)


def _encode(family: socket.AddressFamily, address: str, port: int) -> bytes:
    """A socket address as the kernel takes it."""
    packed, number = socket.inet_pton(family, address), port.to_bytes(2, "big")
    head = int(family).to_bytes(2, sys.byteorder) + number
    return head + (packed + bytes(8) if family == socket.AF_INET else bytes(4) + packed + bytes(4))


if __name__ == "__main__":
    flood(sys.argv[1], sys.argv[2], [int(port) for port in sys.argv[3:]])
