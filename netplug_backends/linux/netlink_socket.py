"""A netlink socket: sends a batch of messages and returns one outcome for each.

``dataplane`` opens one in each namespace that it programs, ``nftables`` one for the packet filter; a socket stays in
its namespace. Only the last message of a batch requests an acknowledgement. The kernel also reports every message that
fails, by its sequence number. A plan uses the routing protocol only, because kernels may lack the others.
"""

from __future__ import annotations

import _socket
import enum
import os
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from attrs import define, field, frozen

from netplug_backends.linux.netlink import NetlinkMessage, decode_attributes
from netplug_core.dataplane.protocol import DataplaneTimeout, KernelError

__all__ = ["NetlinkOutcome", "NetlinkProtocol", "NetlinkSocket"]

_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_HEADER = struct.Struct("=IHHII")
_BOUNDARY = struct.Struct("=IHHII2xH")
_BEGIN, _END = 0x10, 0x11
_REQUEST = 0x1
_ERROR_CODE = struct.Struct("=i")
_TIMEVAL = struct.Struct("@ll")
_ERROR, _DONE = 2, 3
_ACK, _CAPPED, _ACK_TLVS = 0x4, 0x100, 0x200
_EXT_ACK_MESSAGE = 1
_SUCCESS = (0, "")
_BUFFER = 1 << 16
_RECEIVE_TIMEOUT_S = 5


class NetlinkProtocol(enum.IntEnum):
    """What a socket is for; the numbers are those of the kernel."""

    ROUTE = 0
    NETFILTER = 12


@frozen
class NetlinkOutcome:
    """The outcome of one message: 0 or an error number, the kernel's text (often empty), and the replies."""

    message: NetlinkMessage
    error: int = 0
    error_text: str = ""
    replies: tuple[bytes, ...] = ()

    @property
    def reply(self) -> bytes:
        """The only reply to a request that has one."""
        return self.replies[0]

    def require_success(self, *tolerated: int) -> NetlinkOutcome:
        """This outcome, if it is a success or has a tolerated error.

        Raises:
            KernelError: any other error.
        """
        if not self.error or self.error in tolerated:
            return self
        text = f" ({self.error_text})" if self.error_text else ""
        raise KernelError(self.message.describe(), os.strerror(self.error) + text)


@define
class NetlinkSocket:
    """A socket, in the namespace in which it was opened."""

    _socket: _socket.socket
    _sequence: int = 0

    @classmethod
    def open(cls, protocol: NetlinkProtocol = NetlinkProtocol.ROUTE) -> NetlinkSocket:
        """A new socket in the calling thread's namespace.

        Raises:
            KernelError: the kernel refuses the socket.
        """
        try:
            raw_socket = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, protocol)
        except OSError as error:
            raise KernelError("opening a netlink socket", os.strerror(error.errno or 0)) from error
        raw_socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, _TIMEVAL.pack(_RECEIVE_TIMEOUT_S, 0))
        # Older kernels do not have these options: extended error texts, and errors without a copy of the request.
        for option in (_EXT_ACK, _CAP_ACK):
            try:
                raw_socket.setsockopt(_SOL_NETLINK, option, 1)
            except OSError:
                continue
        return cls(raw_socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send_one(self, message: NetlinkMessage) -> NetlinkOutcome:
        """Send one message and wait for its outcome."""
        return self.send((message,))[0]

    def send(self, messages: Sequence[NetlinkMessage], *, subsystem: int | None = None) -> tuple[NetlinkOutcome, ...]:
        """Send a batch and wait for the outcomes; the kernel continues after a message that fails.

        A listing must be the only message of its batch. With ``subsystem``, a number of netfilter's, the batch is one
        transaction: if a message fails, none has an effect.

        Raises:
            DataplaneTimeout: the kernel did not answer within five seconds (normally it answers at once).
            KernelError: the socket failed.
        """
        if not messages:
            return ()
        first = self._sequence + 1
        self._sequence += len(messages)
        data = _encode(messages, first) if subsystem is None else _transaction(messages, first, subsystem)
        try:
            self._socket.send(data)
            return self._collect(messages, first)
        except BlockingIOError:
            raise DataplaneTimeout(messages[-1].describe()) from None
        except OSError as error:
            raise KernelError(messages[-1].describe(), os.strerror(error.errno or 0)) from error

    def _collect(self, messages: Sequence[NetlinkMessage], first: int) -> tuple[NetlinkOutcome, ...]:
        pending = _PendingOutcomes(len(messages), first)
        while not pending.are_complete:
            pending.add(self._socket.recv(_BUFFER))
        return pending.outcomes(messages)


@define
class _PendingOutcomes:
    """Outcomes that arrive for ``count`` messages; ``first`` is the sequence number of the first one.

    By the positions of the messages: the error number and the kernel's text, and the replies.
    """

    count: int
    first: int
    errors: dict[int, tuple[int, str]] = field(factory=dict)
    replies: dict[int, tuple[bytes, ...]] = field(factory=dict)
    are_complete: bool = False

    def add(self, datagram: bytes) -> None:
        offset = 0
        while offset + _HEADER.size <= len(datagram):
            length, kind, flags, number, _ = _HEADER.unpack_from(datagram, offset)
            position = number - self.first
            # A late answer to an earlier batch has a lower number.
            if 0 <= position < self.count:
                self._note(position, kind, flags, datagram[offset + _HEADER.size : offset + length])
            offset += max(length + 3 & ~3, _HEADER.size)

    def outcomes(self, messages: Sequence[NetlinkMessage]) -> tuple[NetlinkOutcome, ...]:
        """One outcome for each message. No answer is a success: only the last one was asked for an acknowledgement."""
        return tuple(
            [
                NetlinkOutcome(message, *self.errors.get(position, _SUCCESS), self.replies.get(position, ()))
                for position, message in enumerate(messages)
            ]
        )

    def _note(self, position: int, type_: int, flags: int, body: bytes) -> None:
        if type_ in {_ERROR, _DONE}:
            (code,) = _ERROR_CODE.unpack_from(body)
            self.errors[position] = (-code, _extended_ack_text(flags, body) if flags & _ACK_TLVS else "")
            self.are_complete = position == self.count - 1
        else:
            self.replies[position] = (*self.replies.get(position, ()), body)


def _encode(messages: Sequence[NetlinkMessage], first: int) -> bytes:
    batch = bytearray()
    last = len(messages) - 1
    for position, message in enumerate(messages):
        flags = message.flags | (_ACK if position == last else 0)
        batch += _HEADER.pack(_HEADER.size + len(message.body), message.type, flags, first + position, 0)
        batch += message.body
    return bytes(batch)


def _transaction(messages: Sequence[NetlinkMessage], first: int, subsystem: int) -> bytes:
    """The batch between its boundaries. They have the last number: what the kernel says about them is the end of it."""
    last = first + len(messages) - 1
    begin, end = (
        _BOUNDARY.pack(_BOUNDARY.size, kind, _REQUEST, last, 0, _socket.htons(subsystem)) for kind in (_BEGIN, _END)
    )
    return begin + _encode(messages, first) + end


def _extended_ack_text(flags: int, body: bytes) -> str:
    """The kernel's text about an error, which follows the header of the request (or the whole request)."""
    length, *_ = _HEADER.unpack_from(body, _ERROR_CODE.size)
    found = decode_attributes(body, _ERROR_CODE.size + (_HEADER.size if flags & _CAPPED else length))
    return found.get(_EXT_ACK_MESSAGE, b"").rstrip(b"\0").decode(errors="replace")
