"""The socket's requests: read as they come by one thread, served by a few others.

A client that is slow occupies no worker: its request is read here as it comes, and the connection is closed if that
takes too long. Only so many requests are read at once; further connections wait until they are accepted. The kernel
says who sends a request.
"""

from __future__ import annotations

import errno
import itertools
import os
import selectors
import socket
import struct
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Thread

from attrs import define, field, frozen

from netplug_cli.node.calls import (
    ACKNOWLEDGE_S,
    AnswerCall,
    CallQueue,
    NodeProcessBusy,
    PendingCall,
    RefuseCall,
    serve_call,
)
from netplug_core.cni.dispatch import Plugin
from netplug_core.cni.wire import HEADER_LENGTH, RequestHeader, WireRequest, parse_body, parse_header
from netplug_core.errors import DecodeError
from netplug_core.log import Level, Log

__all__ = [
    "MAX_READING", "MAX_STAND_INS", "READ_S", "Peer", "ReadRequest", "RequestReading", "Server", "Workers", "peer_of",
]  # fmt: skip


# --- peer ------------------------------------------------------------------------------------------------------------


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


# --- reading ---------------------------------------------------------------------------------------------------------


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


# --- workers ---------------------------------------------------------------------------------------------------------


MAX_STAND_INS = 256
"""For how many calls that only wait for others further threads are started."""


@define
class Workers:
    """``count`` threads that serve the calls of a queue, and one more for each call that only waits for others."""

    count: int
    queue: CallQueue
    answer: AnswerCall
    log: Log
    _threads: dict[int, Thread] = field(factory=dict, init=False)
    _began_at: dict[int, float] = field(factory=dict, init=False)
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)
    _stand_ins: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False, repr=False, eq=False)

    @property
    def began_at(self) -> tuple[float, ...]:
        """When each call that is being served was taken (monotonic seconds)."""
        with self._lock:
            return tuple(self._began_at.values())

    @property
    def are_alive(self) -> bool:
        """Whether every thread runs."""
        with self._lock:
            return all(thread.is_alive() for thread in self._threads.values())

    def start(self) -> None:
        """Begin to serve."""
        for _ in range(self.count):
            self._start_one()

    def stop(self, seconds: float) -> int:
        """Close the queue and wait for the calls that have begun; return how many have not ended in that time."""
        self.queue.close()
        end = time.monotonic() + seconds
        with self._lock:
            threads = tuple(self._threads.values())
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        return sum(thread.is_alive() for thread in threads)

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Let a further thread serve in place of the caller, whose call only waits for others meanwhile.

        The first thread that ends its call after that ends, too. Beyond a number no thread is started.
        """
        with self._lock:
            is_started = self._stand_ins < MAX_STAND_INS
            self._stand_ins += is_started
        if not is_started:
            yield
            return
        try:
            self._start_one()
            yield
        finally:
            with self._lock:
                self._stand_ins -= 1

    def _start_one(self) -> None:
        with self._lock:
            number = next(self._numbers)
            # A daemon: a call that hangs must not keep the process from ending.
            thread = Thread(target=self._serve, args=(number,), name=f"worker {number}", daemon=True)
            thread.start()  # it waits for the lock before it changes anything here
            self._threads[number] = thread

    def _serve(self, number: int) -> None:
        while (call := self.queue.take()) is not None:
            began = time.monotonic()
            with self._lock:
                self._began_at[number] = began
            try:
                serve_call(call, self.answer, now=began, log=self.log)
            except BaseException:  # noqa: BLE001  the client finds its reply broken off; the next call is served
                self.log(Level.ERROR, f"a call could not be answered\n{traceback.format_exc()}")
            finally:
                is_surplus = self._end_call(number)
            if is_surplus:
                return

    def _end_call(self, number: int) -> bool:
        """Note that a thread has ended its call; whether it is one too many, and ends."""
        with self._lock:
            del self._began_at[number]
            is_surplus = len(self._threads) > self.count + self._stand_ins
            if is_surplus:
                del self._threads[number]
            return is_surplus


# --- server ----------------------------------------------------------------------------------------------------------


READ_S = 5.0
"""The longest that a client may take to send its request."""

MAX_READING = 128
"""How many requests are read at once."""

_LOOK_S = 1.0  # between two looks at calls that wait
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0  # for descriptors or memory; a client waits for 10 s


@define
class _Exhaustion:
    """Whether connections can be accepted; while descriptors or memory are short, that is tried after a pause.

    It is over when nothing failed for ``settled_s``: where descriptors come and go, that is one line and not hundreds.
    """

    log: Log
    settled_s: float
    again_at: float = 0.0
    _cause: str = ""
    _began_at: float = 0.0
    _failed_at: float = 0.0
    _pause_s: float = _FIRST_PAUSE_S

    def fail(self, error: OSError) -> None:
        """One could not be accepted."""
        now = time.monotonic()
        self._began_at = self._began_at if self._cause else now
        if str(error) != self._cause:
            self._cause = str(error)
            self.log(Level.ERROR, "no connection can be accepted", cause=self._cause)
        self._failed_at, self.again_at = now, now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def succeed(self) -> None:
        """One was accepted."""
        self._pause_s = _FIRST_PAUSE_S
        if self._cause and time.monotonic() - self._failed_at >= self.settled_s:
            seconds = round(self._failed_at - self._began_at, 1)
            self.log(Level.INFO, "connections are accepted again", after_s=seconds)
            self._cause = ""


@define(kw_only=True)
class Server:
    """Puts the requests that come over a socket into a queue; ``refuse`` answers those for which there is no room.

    Only processes of ``uid`` are served. While there are no descriptors for further connections, clients wait to be
    accepted, and those that are connected are served. ``is_serving``: between the beginning and the end of ``run``.
    ``busy_since``: when it began what it is doing (monotonic seconds); None while it waits for clients.
    """

    listening: socket.socket
    queue: CallQueue
    refuse: RefuseCall
    log: Log
    uid: int = field(factory=os.geteuid)
    read_s: float = READ_S
    max_reading: int = MAX_READING
    acknowledge_s: float = ACKNOWLEDGE_S
    settled_s: float = 5.0
    is_serving: bool = field(default=False, init=False)
    busy_since: float | None = field(default=None, init=False)
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector, init=False, repr=False)
    _readings: dict[int, RequestReading] = field(factory=dict, init=False)  # the one that began first comes first
    _is_accepting: bool = field(default=False, init=False)
    _exhaustion: _Exhaustion = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._exhaustion = _Exhaustion(self.log, self.settled_s)

    def run(self, wakeup: socket.socket) -> None:
        """Serve until ``wakeup`` is readable. Then requests that have not come as a whole are given up."""
        try:
            self._selector.register(wakeup, selectors.EVENT_READ)
            self.is_serving = True
            while True:
                self._set_accepting(self._may_accept())
                self.busy_since = None
                ready = self._selector.select(self._timeout())
                self.busy_since = time.monotonic()
                for key, _events in ready:
                    if key.fileobj is wakeup:
                        return
                    if isinstance(key.data, RequestReading):
                        self._read(key.data)
                    else:
                        self._accept_all()
                self._close_late()
                self.queue.acknowledge(time.monotonic() - self.acknowledge_s)
        finally:
            self.is_serving = False
            for reading in tuple(self._readings.values()):
                self._close(reading)
            self._selector.close()

    def _may_accept(self) -> bool:
        return len(self._readings) < self.max_reading and time.monotonic() >= self._exhaustion.again_at

    def _set_accepting(self, is_accepting: bool) -> None:  # noqa: FBT001
        if is_accepting and not self._is_accepting:
            self._selector.register(self.listening, selectors.EVENT_READ)
        elif self._is_accepting and not is_accepting:
            self._selector.unregister(self.listening)
        self._is_accepting = is_accepting

    def _timeout(self) -> float | None:
        first = next(iter(self._readings.values()), None)
        timeouts = [_LOOK_S] if len(self.queue) else []
        if first is not None:
            timeouts.append(max(0.0, first.ends_at - time.monotonic()))
        if len(self._readings) < self.max_reading and not self._is_accepting:
            timeouts.append(max(0.0, self._exhaustion.again_at - time.monotonic()))
        return min(timeouts, default=None)

    def _accept_all(self) -> None:
        while len(self._readings) < self.max_reading:
            try:
                connection, _address = self.listening.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:
                self._exhaustion.fail(error)
                return
            self._exhaustion.succeed()
            if self._is_allowed(connection):
                self._begin(connection)
            else:
                connection.close()

    def _is_allowed(self, connection: socket.socket) -> bool:
        try:
            peer = peer_of(connection)
        except OSError:
            return False
        if peer.uid != self.uid:
            self.log(Level.WARNING, "a process of another user is not served", user=peer.uid, process=peer.pid)
        return peer.uid == self.uid

    def _begin(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        reading = RequestReading(connection, time.monotonic() + self.read_s)
        self._readings[connection.fileno()] = reading
        self._selector.register(connection, selectors.EVENT_READ, reading)
        self._read(reading)

    def _read(self, reading: RequestReading) -> None:
        try:
            found = reading.read()
        except EOFError as error:
            if reading.has_begun:
                self._give_up(reading, str(error))
            else:
                self._close(reading)  # it looked whether there is a process
        except (DecodeError, OSError) as error:
            self._give_up(reading, str(error))
        else:
            if found is not None:
                self._forget(reading)
                self._queue(reading.connection, found)

    def _queue(self, connection: socket.socket, found: ReadRequest) -> None:
        now = time.monotonic()
        call = PendingCall(
            connection=connection,
            request=found.request,
            came_at=now,
            gives_up_at=now + found.patience_s,
            namespace=found.namespace,
        )
        if not self.queue.put(call):
            busy = NodeProcessBusy(waiting=len(self.queue))
            self.log(Level.WARNING, "a call is refused", cause=str(busy))
            serve_call(call, lambda request, _namespace: self.refuse(request, busy), now=now, log=self.log)

    def _close_late(self) -> None:
        now = time.monotonic()
        for reading in tuple(self._readings.values()):
            if reading.ends_at > now:
                return
            self._give_up(reading, f"it did not come within {self.read_s:g} s")

    def _give_up(self, reading: RequestReading, cause: str) -> None:
        self.log(Level.WARNING, "a request cannot be served", cause=cause)
        self._close(reading)

    def _close(self, reading: RequestReading) -> None:
        self._forget(reading)
        reading.close()

    def _forget(self, reading: RequestReading) -> None:
        self._selector.unregister(reading.connection)
        del self._readings[reading.connection.fileno()]
