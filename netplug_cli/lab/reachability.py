"""Who reaches whom in a lab: a UDP packet from each peer to each address of the others, and back.

``report`` shows what is found here.
"""

from __future__ import annotations

import enum
import os
import selectors
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from attrs import Factory, define, frozen

from netplug_cli.lab.model import SOCKET_FAMILIES, Namespaces
from netplug_core.addressing import Address, Family
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.connectivity import Path, PathResult, Peer

__all__ = ["ProbePeer", "probe"]

_TIMEOUT_S = 3.0
_RESEND_INTERVAL_S = 0.25
_WILDCARD_ADDRESS = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104 - inside the lab's namespaces
_PATIENCE_S, _MAX_MISSES = 0.05, 10
_NO_REPLY = "no answer"


@frozen(kw_only=True)
class ProbePeer:
    """A node or pod, and the file of its namespace."""

    peer: Peer
    netns: str


def probe(
    peers: Sequence[ProbePeer],
    paths: Sequence[Path],
    namespaces: Namespaces,
    clock: Clock,
    *,
    timeout_s: float = _TIMEOUT_S,
) -> tuple[PathResult, ...]:
    """Probe paths between peers until the reply of each comes or the time is over; the results have their order.

    Raises:
        DataplaneError: a namespace cannot be entered.
    """
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        sockets = _Sockets(stack, selector)
        for each in peers:
            with namespaces.enter(each.netns):
                sockets.open_for(each.peer)
        probe_round = _ProbeRound(paths=tuple(paths), sockets=sockets, clock=clock)
        deadline = Deadline.after(clock, timeout_s)
        probe_round.send_one_by_one(selector, deadline)
        while probe_round.pending and not deadline.has_passed:
            _serve_until(lambda: not probe_round.pending, selector, probe_round, deadline.capped(_RESEND_INTERVAL_S))
            for token in probe_round.pending:
                probe_round.send(token)
    return tuple(probe_round.results())


class _Role(enum.Enum):
    CLIENT = enum.auto()
    SERVER = enum.auto()


@define
class _Sockets:
    """A client socket for each peer and family, and a server socket for each address, or the error of opening it."""

    stack: ExitStack
    selector: selectors.BaseSelector
    clients: dict[tuple[str, Family], socket.socket] = Factory(dict)
    ports: dict[Address, int] = Factory(dict)
    problems: dict[Address, str] = Factory(dict)

    def open_for(self, peer: Peer) -> None:
        """Open the sockets of a peer; the calling thread is in its namespace."""
        for family in sorted({address.family for address in peer.addresses}):
            self.clients[peer.name, family] = self._open(family, _WILDCARD_ADDRESS[family], _Role.CLIENT)
        for address in peer.addresses:
            try:
                server = self._open(address.family, str(address), _Role.SERVER)
            except OSError as error:
                self.problems[address] = f"its own host has not got it: {error.strerror}"
            else:
                self.ports[address] = server.getsockname()[1]

    def _open(self, family: Family, address: str, role: _Role) -> socket.socket:
        opened = self.stack.enter_context(socket.socket(SOCKET_FAMILIES[family], socket.SOCK_DGRAM))
        opened.settimeout(0)
        opened.bind((address, 0))
        self.selector.register(opened, selectors.EVENT_READ, role)
        return opened


@define(kw_only=True)
class _ProbeRound:
    """The paths without a reply so far, each under the token of its packets, and when the last one was sent."""

    paths: tuple[Path, ...]
    sockets: _Sockets
    clock: Clock
    _pending: dict[bytes, Path] = Factory(dict)
    _errors: dict[Path, str] = Factory(dict)
    _sent: dict[Path, float] = Factory(dict)
    _times_ms: dict[Path, float] = Factory(dict)

    def __attrs_post_init__(self) -> None:
        self._pending = {os.urandom(16): path for path in self.paths}

    @property
    def pending(self) -> tuple[bytes, ...]:
        return tuple(self._pending)

    def send_one_by_one(self, selector: selectors.BaseSelector, deadline: Deadline) -> None:
        """Send each request once the one before is answered, so that its time is its own; not if many are not."""
        misses = 0
        for token in self.pending:
            self.send(token)
            patience = deadline.capped(_PATIENCE_S if misses < _MAX_MISSES else 0.0)
            _serve_until(partial(self._is_answered, token), selector, self, patience)
            misses += token in self._pending

    def _is_answered(self, token: bytes) -> bool:
        return token not in self._pending

    def send(self, token: bytes) -> None:
        path = self._pending[token]
        port = self.sockets.ports.get(path.address)
        if port is None:  # nothing can answer there, however often it is asked
            self._errors[path] = self.sockets.problems.get(path.address, _NO_REPLY)
            del self._pending[token]
            return
        try:
            self._sent[path] = self.clock.monotonic()
            self.sockets.clients[path.source, path.family].sendto(token, (str(path.address), port))
        except OSError as error:
            self._errors[path] = error.strerror or str(error)
        else:
            self._errors.pop(path, None)

    def record_reply(self, token: bytes, sender: str) -> None:
        path = self._pending.get(token)
        # A reply from another address does not prove that this path works.
        if path is not None and Address.parse(sender) == path.address:
            del self._pending[token]
            self._times_ms[path] = (self.clock.monotonic() - self._sent[path]) * 1e3

    def results(self) -> Iterator[PathResult]:
        for path in self.paths:
            time_ms = self._times_ms.get(path)
            failure = "" if time_ms is not None else self._errors.get(path, _NO_REPLY)
            yield PathResult(path=path, failure=failure, time_ms=time_ms)


def _serve_until(
    is_done: Callable[[], bool], selector: selectors.BaseSelector, probe_round: _ProbeRound, until: Deadline
) -> None:
    """Serve requests and record replies until all is done or the time is over."""
    while not is_done() and not until.has_passed:
        for key, _ in selector.select(until.remaining_s):
            ready = key.fileobj
            assert isinstance(ready, socket.socket)  # noqa: S101 - only sockets were registered
            _serve(ready, key.data, probe_round)


def _serve(ready: socket.socket, role: object, probe_round: _ProbeRound) -> None:
    try:
        token, sender = ready.recvfrom(64)
        if role is _Role.CLIENT:
            probe_round.record_reply(token, sender[0])
        else:
            ready.sendto(token, sender)
    except OSError:
        pass  # without its reply, the path stays pending
