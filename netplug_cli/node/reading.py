"""One request, read as it comes: ``server`` calls ``read`` whenever the connection has something to read."""

from __future__ import annotations

import errno
import os
import socket
import struct

from attrs import define, field, frozen

from netplug_core.cni.dispatch import Plugin
from netplug_core.cni.wire import HEADER_LENGTH, RequestHeader, WireRequest, parse_body, parse_header
from netplug_core.errors import DecodeError

__all__ = ["ReadRequest", "RequestReading"]

_CHUNK = 1 << 16
_DESCRIPTOR = struct.calcsize("i")
_MAX_DESCRIPTORS = 1
_EXECUTABLES = frozenset(plugin.value for plugin in Plugin)


@frozen(kw_only=True)
class ReadRequest:
    """A whole request. ``namespace`` is the descriptor that came with it; its owner closes it."""

    request: WireRequest
    patience_s: float
    namespace: int | None


@define
class RequestReading:
    """A connection whose request has not come as a whole; ``ends_at`` is when it is closed (monotonic seconds)."""

    connection: socket.socket
    ends_at: float
    _data: bytearray = field(factory=bytearray, init=False, repr=False)
    _header: RequestHeader | None = field(default=None, init=False)
    _descriptors: list[int] = field(factory=list, init=False)

    @property
    def has_begun(self) -> bool:
        """Whether anything has come."""
        return bool(self._data)

    def read(self) -> ReadRequest | None:
        """Read what has come; the request once it is whole. After an error the caller closes the connection.

        Raises:
            DecodeError: it is no request.
            EOFError: the client has closed the connection.
            OSError: the connection is broken.
        """
        while missing := self._missing():
            try:
                data, ancillary, flags, _address = self.connection.recvmsg(
                    min(missing, _CHUNK), socket.CMSG_LEN(_DESCRIPTOR), socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return None
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    self._descriptors += [number for (number,) in struct.iter_unpack("i", content)]
            if flags & socket.MSG_CTRUNC:
                # Without the descriptor the call would open a path that may be another one here.
                raise OSError(errno.EMFILE, "no descriptor is left for the one that came with the request")
            if not data:
                raise EOFError("the client has closed the connection")
            self._data += data
        return self._finish()

    def close(self) -> None:
        """Close the connection, and a descriptor that came over it."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self.connection.close()

    def _missing(self) -> int:
        """How many bytes are still to come."""
        if self._header is None:
            if len(self._data) < HEADER_LENGTH:
                return HEADER_LENGTH - len(self._data)
            self._header = parse_header(bytes(self._data))
        return HEADER_LENGTH + self._header.body_length - len(self._data)

    def _finish(self) -> ReadRequest:
        assert self._header is not None  # noqa: S101  it is there before the first byte of the body
        request = parse_body(bytes(memoryview(self._data)[HEADER_LENGTH:]))
        if request.program not in _EXECUTABLES:
            raise DecodeError(
                "the request", f"is for {request.program[:40]!r}, which is none of {sorted(_EXECUTABLES)}"
            )
        if len(self._descriptors) > _MAX_DESCRIPTORS:
            raise DecodeError("the request", f"came with {len(self._descriptors)} descriptors, one at most is expected")
        namespace = self._descriptors.pop() if self._descriptors else None
        return ReadRequest(request=request, patience_s=self._header.patience_s, namespace=namespace)
