"""Accepts connections and reads their requests, all in the thread that calls ``run``.

A client that is slow occupies no worker: its request is read here as it comes, and the connection is closed if that
takes too long. Only so many requests are read at once; further connections wait until they are accepted.
"""

from __future__ import annotations

import os
import selectors
import socket
import time

from attrs import define, field

from netplug_cli.node.calls import ACKNOWLEDGE_S, CallQueue, NodeProcessBusy, PendingCall, RefuseCall, serve_call
from netplug_cli.node.peer import peer_of
from netplug_cli.node.reading import ReadRequest, RequestReading
from netplug_core.errors import DecodeError
from netplug_core.log import Level, Log

__all__ = ["MAX_READING", "READ_S", "Server"]

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
