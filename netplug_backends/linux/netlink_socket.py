"""A netlink socket: a batch of messages out, one outcome for each back.

``dataplane`` opens one in each namespace that it programs; a socket stays in the namespace it was opened in. Only the
last message of a batch asks to be acknowledged, yet each that fails is answered, and is told by its number. Only the
routing family is used: kernels without the others must work.
"""

from __future__ import annotations

import _socket
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from attrs import define, frozen

from netplug_backends.linux.netlink import NetlinkMessage, decode_attributes
from netplug_core.dataplane.protocol import DataplaneTimeout, KernelError

__all__ = ["NetlinkOutcome", "NetlinkSocket"]

_NETLINK_ROUTE = 0
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_HEADER = struct.Struct("=IHHII")
_ERROR_CODE = struct.Struct("=i")
_TIMEVAL = struct.Struct("@ll")
_ERROR, _DONE = 2, 3
_ACK = 0x4
_EXT_ACK_MESSAGE = 1
_BUFFER = 1 << 16
_RECEIVE_TIMEOUT_S = 5


@frozen
class NetlinkOutcome:
    """What became of one message: 0 or an error number, the kernel's words (often none), and what it replied."""

    message: NetlinkMessage
    error: int = 0
    error_text: str = ""
    replies: tuple[bytes, ...] = ()

    @property
    def reply(self) -> bytes:
        """The only reply to a request that has one."""
        return self.replies[0]

    def require_success(self, *tolerated: int) -> NetlinkOutcome:
        """This outcome, if it is a success or one of the errors that do not matter.

        Raises:
            KernelError: any other error.
        """
        if not self.error or self.error in tolerated:
            return self
        words = f" ({self.error_text})" if self.error_text else ""
        raise KernelError(self.message.operation, os.strerror(self.error) + words)


@define
class NetlinkSocket:
    """A socket of the routing family in the namespace that the thread was in when it was opened."""

    _socket: _socket.socket
    _sequence: int = 0

    @classmethod
    def open(cls) -> NetlinkSocket:
        """A new channel into the calling thread's namespace.

        Raises:
            KernelError: the kernel gives no socket.
        """
        try:
            opened = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _NETLINK_ROUTE)
        except OSError as error:
            raise KernelError("opening a netlink socket", os.strerror(error.errno or 0)) from error
        opened.setsockopt(_socket.SOL_SOCKET, _socket.SO_RCVTIMEO, _TIMEVAL.pack(_RECEIVE_TIMEOUT_S, 0))
        # Kernels that cannot explain their errors, or cannot leave out the request, are understood as well.
        for option in (_EXT_ACK, _CAP_ACK):
            with suppress(OSError):
                opened.setsockopt(_SOL_NETLINK, option, 1)
        return cls(opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send_one(self, message: NetlinkMessage) -> NetlinkOutcome:
        """Send one message and wait for what becomes of it."""
        return self.send((message,))[0]

    def send(self, messages: Sequence[NetlinkMessage]) -> tuple[NetlinkOutcome, ...]:
        """Send a batch and wait for what becomes of it; the kernel goes on after a message that fails.

        A listing must be the only message of its batch.

        Raises:
            DataplaneTimeout: the kernel was silent for five seconds (it answers before the sending returns).
            KernelError: the socket failed.
        """
        if not messages:
            return ()
        operation = messages[-1].operation
        first = self._sequence + 1
        self._sequence += len(messages)
        try:
            self._socket.send(_encode(messages, first))
            return self._collect(messages, first)
        except BlockingIOError:
            raise DataplaneTimeout(operation) from None
        except OSError as error:
            raise KernelError(operation, os.strerror(error.errno or 0)) from error

    def _collect(self, messages: Sequence[NetlinkMessage], first: int) -> tuple[NetlinkOutcome, ...]:
        answers = _PendingOutcomes([NetlinkOutcome(message) for message in messages], first)
        while not answers.are_complete:
            answers.add(self._socket.recv(_BUFFER))
        return tuple(answers.outcomes)


@define
class _PendingOutcomes:
    """Outcomes as they come in; ``first`` is the number of the first message."""

    outcomes: list[NetlinkOutcome]
    first: int
    are_complete: bool = False

    def add(self, datagram: bytes) -> None:
        offset = 0
        while offset + _HEADER.size <= len(datagram):
            length, kind, flags, number, _ = _HEADER.unpack_from(datagram, offset)
            position = number - self.first
            # What is left of an earlier batch that was given up has a lower number.
            if 0 <= position < len(self.outcomes):
                self._note(position, kind, flags, datagram[offset + _HEADER.size : offset + length])
            offset += max(length + 3 & ~3, _HEADER.size)

    def _note(self, position: int, type_: int, flags: int, body: bytes) -> None:
        noted = self.outcomes[position]
        if type_ in {_ERROR, _DONE}:
            (code,) = _ERROR_CODE.unpack_from(body)
            self.outcomes[position] = NetlinkOutcome(
                noted.message, -code, _extended_ack_text(flags, body), noted.replies
            )
            self.are_complete = position == len(self.outcomes) - 1
        else:
            self.outcomes[position] = NetlinkOutcome(noted.message, replies=(*noted.replies, body))


def _encode(messages: Sequence[NetlinkMessage], first: int) -> bytes:
    batch = bytearray()
    last = len(messages) - 1
    for position, message in enumerate(messages):
        flags = message.flags | (_ACK if position == last else 0)
        batch += _HEADER.pack(_HEADER.size + len(message.body), message.type, flags, first + position, 0)
        batch += message.body
    return bytes(batch)


def _extended_ack_text(flags: int, body: bytes) -> str:
    """What the kernel says about an error in words, behind the header of the request (or the whole request)."""
    has_words, left_out_request = flags & 0x200, flags & 0x100
    if not has_words:
        return ""
    length, *_ = _HEADER.unpack_from(body, _ERROR_CODE.size)
    skipped = _HEADER.size if left_out_request else length
    found = dict(decode_attributes(body[_ERROR_CODE.size + skipped :]))
    return found.get(_EXT_ACK_MESSAGE, b"").rstrip(b"\0").decode(errors="replace")
