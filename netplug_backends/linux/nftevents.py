"""Transactions of the kernel's packet filter: how many there were, which were ours, and what others did in theirs.

The kernel numbers the transactions of a network namespace: each makes a *generation*. It notifies of each object that a
transaction has changed, and at the end of the generation, with the thread and the program whose transaction it was.
Neither says whether it was ours: the number of the thread is one of the whole machine, which a process in a container
does not know, and a program that we run has a name like any other of its kind. So a generation is ours if it is the
only one between the two numbers that are asked for right before and after a transaction of ours. If there are several,
another program was at work in the same instant, and all of them count as its own.

Source: the kernel's ``linux/netfilter/nf_tables.h`` and ``net/netfilter/nf_tables_api.c``.
"""

from __future__ import annotations

import errno
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Lock
from types import TracebackType
from typing import Final, Self, TypeAlias

from attrs import define, field

from netplug_backends.linux.netlink import (
    NO_NFTABLES,
    NetlinkMessage,
    NetlinkNotifications,
    NetlinkProtocol,
    NetlinkSocket,
    decode_attributes,
    iterate_attributes,
)
from netplug_core.clock import Deadline
from netplug_core.dataplane.packetfilter import ForeignChange, ForeignChanges
from netplug_core.dataplane.protocol import OWN_NAMESPACE, KernelError

__all__ = [
    "CountGenerations", "GenerationCounter", "GenerationReader", "NftablesEvents", "OwnGenerations", "find_generation",
]  # fmt: skip

_NFGENMSG = struct.Struct("!BBH")
_HEADER = struct.Struct("=IHHII")
_SUBSYSTEM, _REQUEST = 10 << 8, 0x1
_NEW_GENERATION, _GET_GENERATION = _SUBSYSTEM | 15, _SUBSYSTEM | 16
_GENERATION, _PROGRAM = 1, 3
_TABLE = 1  # the same for tables, chains, rules, sets, elements and objects
_INET = 1
_GROUP: Final = 7
_NUMBERS: Final = 1 << 32

_BUFFER_BYTES: Final = 1 << 22
_MOST_KNOWN: Final = 4096  # of our own generations, where none is waited for


CountGenerations: TypeAlias = Callable[[str], int]
"""Says how many transactions a network namespace has had; the text is what is done, for the error."""


@define(eq=False)
class GenerationCounter:
    """Counts the transactions of the network namespace of the first call, with one socket for all calls."""

    _kernel: NetlinkSocket | None = field(default=None, init=False)

    def __call__(self, operation: str) -> int:
        """Count them.

        Raises:
            KernelError: the kernel has no nftables, or this process may not use it.
        """
        if self._kernel is None:
            self._kernel = NetlinkSocket.open(NetlinkProtocol.NETFILTER)
        message = NetlinkMessage(_GET_GENERATION, _REQUEST, _NFGENMSG.pack(0, 0, 0), lambda: operation)
        outcome = self._kernel.send_one(message)
        if outcome.error == errno.EINVAL:
            raise KernelError(operation, NO_NFTABLES)
        attributes = decode_attributes(outcome.require_success().reply, _NFGENMSG.size)
        return int.from_bytes(attributes[_GENERATION], "big")

    def close(self) -> None:
        """Close the socket."""
        if self._kernel is not None:
            self._kernel.__exit__(None, None, None)
            self._kernel = None


def find_generation(operation: str) -> int:
    """Count the transactions of the calling thread's network namespace, with a socket of its own.

    Raises:
        KernelError: the kernel has no nftables, or this process may not use it.
    """
    with closing(GenerationCounter()) as counter:
        return counter(operation)


# --- which are ours ---------------------------------------------------------------------------------------------------


@define(eq=False)
class OwnGenerations:
    """The generations that transactions of this process have made, in whatever namespace. Any thread may use it."""

    _known: deque[tuple[int, int]] = field(factory=lambda: deque(maxlen=_MOST_KNOWN), init=False)
    _lock: Lock = field(factory=Lock, init=False)

    @contextmanager
    def noted(self, count: CountGenerations, operation: str) -> Iterator[None]:
        """Run one transaction at a time, in the calling thread's namespace, and note its generation.

        Raises:
            KernelError: the kernel has no nftables, or this process may not use it; nothing was run.
        """
        with self._lock:
            before = count(operation)
            yield
            if (count(operation) - before) % _NUMBERS == 1:
                self._known.append((_namespace(), (before + 1) % _NUMBERS))

    def has(self, namespace: int, generation: int) -> bool:
        """Whether a generation is ours. A transaction that is under way has to end before this can be said."""
        with self._lock:
            return (namespace, generation) in self._known


def _namespace() -> int:
    return os.stat(OWN_NAMESPACE).st_ino


# --- what others do ---------------------------------------------------------------------------------------------------


@define(eq=False)
class GenerationReader:
    """Puts together what the kernel notifies of one after the other: what has changed, and then whose it was."""

    _tables: set[str] = field(factory=set, init=False)

    def read(self, datagram: bytes) -> Iterator[tuple[int, ForeignChange]]:
        """The generations that end in a datagram, with the name of the program and the tables of the family inet."""
        offset = 0
        while offset + _HEADER.size <= len(datagram):
            length, kind, *_ = _HEADER.unpack_from(datagram, offset)
            body = datagram[offset + _HEADER.size : offset + length]
            if kind == _NEW_GENERATION:
                attributes = decode_attributes(body, _NFGENMSG.size)
                program = attributes.get(_PROGRAM, b"").rstrip(b"\0").decode(errors="replace")
                yield (
                    int.from_bytes(attributes.get(_GENERATION, b""), "big"),
                    ForeignChange(program, frozenset(self._tables)),
                )
                self._tables.clear()
            elif kind & 0xFF00 == _SUBSYSTEM and body[:1] == bytes((_INET,)):
                self._note_table(body)
            offset += max(length + 3 & ~3, _HEADER.size)

    def forget(self) -> None:
        """Something is missing: what was read of a generation is not all of it."""
        self._tables.clear()

    def _note_table(self, body: bytes) -> None:
        for kind, payload in iterate_attributes(body, _NFGENMSG.size):
            if kind == _TABLE:
                self._tables.add(payload.rstrip(b"\0").decode(errors="replace"))
                return


@define(eq=False)
class NftablesEvents:
    """The :class:`~netplug_core.dataplane.packetfilter.RulesetEvents` of the network namespace in which it was opened.

    One thread waits. It is left, as a context, once that thread waits no more.
    """

    _notifications: NetlinkNotifications
    _own: OwnGenerations
    _namespace: int
    _reader: GenerationReader = field(factory=GenerationReader, init=False)
    _found: list[ForeignChange] = field(factory=list, init=False)
    _were_lost: bool = field(default=False, init=False)

    @classmethod
    def open(cls, own: OwnGenerations) -> NftablesEvents:
        """The notifications of the calling thread's network namespace, from now on, but for generations of our own.

        Raises:
            KernelError: the kernel refuses a socket.
        """
        opened = NetlinkNotifications.open(NetlinkProtocol.NETFILTER, (_GROUP,), buffer_bytes=_BUFFER_BYTES)
        return cls(opened, own, _namespace())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._notifications.__exit__(kind, error, trace)

    def wait(self, *, deadline: Deadline) -> ForeignChanges | None:
        """Wait for a generation of another program."""
        if not self._notifications.wait(self._receive, deadline=deadline):
            return None
        found = ForeignChanges(changes=tuple(self._found), were_lost=self._were_lost)
        self._found.clear()
        self._were_lost = False
        return found

    def set_buffer(self, size: int) -> None:
        """Let the kernel keep that many bytes of notifications; more are lost, which is said."""
        self._notifications.set_buffer(size)

    def close(self) -> None:
        """End the wait, and each later one."""
        self._notifications.close()

    def _receive(self) -> bool:
        """Take all notifications there are; whether another program has done something."""
        for datagram in self._notifications.receive():
            if datagram is None:
                self._reader.forget()
                self._were_lost = True
                continue
            for generation, change in self._reader.read(datagram):
                if not self._own.has(self._namespace, generation):
                    self._found.append(change)
        return self._were_lost or bool(self._found)
