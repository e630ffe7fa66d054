"""Who reaches whom in a lab, found out with packets: each asks each over UDP, and counts what comes back.

No other program is needed, and no process stays behind: a socket belongs to the namespace it was opened in, so this
process can speak for all of them.
"""

from __future__ import annotations

import enum
import os
import selectors
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from attrs import Factory, define, frozen

from netplug_cli.lab.namespaces import Namespaces
from netplug_core.addressing import Address, Family
from netplug_core.clock import Clock, Deadline

__all__ = ["ProbePath", "ProbePeer", "ReachabilityMatrix", "list_probe_paths", "probe"]

TIMEOUT_S = 3.0
_RESEND_INTERVAL_S = 0.25
_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_WILDCARD_ADDRESS = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104 - inside the lab's namespaces
_NO_REPLY = "no answer"


@frozen(kw_only=True)
class ProbePeer:
    """Somebody with addresses in a namespace."""

    name: str
    netns: str
    addresses: tuple[Address, ...]


@frozen
class ProbePath:
    """A way that packets should find there and back: from a host to one address of another."""

    source: str
    target: str
    address: Address

    @property
    def family(self) -> Family:
        """The family of the packets."""
        return self.address.family

    def __str__(self) -> str:
        return f"{self.source} to {self.target} over {self.family} ({self.address})"


@frozen(kw_only=True)
class ReachabilityMatrix:
    """What was found out: every crossing, and why some of them failed."""

    names: tuple[str, ...]
    paths: tuple[ProbePath, ...]
    failures: tuple[tuple[ProbePath, str], ...] = ()

    def reached_families(self) -> dict[tuple[str, str], tuple[Family, ...]]:
        """For each source and target, the families over which packets came back; no entry where none did."""
        failed = frozenset(crossing for crossing, _ in self.failures)
        found: dict[tuple[str, str], tuple[Family, ...]] = {}
        for way in self.paths:
            if way not in failed:
                pair = way.source, way.target
                found[pair] = (*found.get(pair, ()), way.family)
        return found


def list_probe_paths(peers: Sequence[ProbePeer]) -> tuple[ProbePath, ...]:
    """Every way from each host to each other one."""
    return tuple(
        ProbePath(source.name, target.name, address)
        for source in peers
        for target in peers
        if source.name != target.name
        for address in target.addresses
    )


def probe(
    peers: Sequence[ProbePeer], namespaces: Namespaces, clock: Clock, *, timeout_s: float = TIMEOUT_S
) -> ReachabilityMatrix:
    """Try every crossing, each until something comes back or patience ends.

    Raises:
        DataplaneError: a namespace cannot be entered.
    """
    crossings = list_probe_paths(peers)
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        sockets = _Sockets(stack, selector)
        for host in peers:
            with namespaces.enter(host.netns):
                sockets.open_for(host)
        trial = _ProbeRound(crossings, sockets)
        deadline = Deadline.after(clock, timeout_s)
        while trial.is_pending and not deadline.has_passed:
            trial.send_requests()
            _serve_until(trial, selector, deadline.capped(_RESEND_INTERVAL_S))
    names = tuple(host.name for host in peers)
    return ReachabilityMatrix(names=names, paths=crossings, failures=tuple(trial.failures()))


class _Role(enum.Enum):
    CLIENT = enum.auto()
    SERVER = enum.auto()


@define
class _Sockets:
    """For each host and family a socket that asks, and for each address one that answers (or why there is none)."""

    stack: ExitStack
    selector: selectors.BaseSelector
    clients: dict[tuple[str, Family], socket.socket] = Factory(dict)
    ports: dict[Address, int] = Factory(dict)
    problems: dict[Address, str] = Factory(dict)

    def open_for(self, peer: ProbePeer) -> None:
        """To be called inside the host's namespace."""
        for family in sorted({address.family for address in peer.addresses}):
            self.clients[peer.name, family] = self._open(family, _WILDCARD_ADDRESS[family], _Role.CLIENT)
        for address in peer.addresses:
            try:
                answerer = self._open(address.family, str(address), _Role.SERVER)
            except OSError as error:
                self.problems[address] = f"its own host has not got it: {error.strerror}"
            else:
                self.ports[address] = answerer.getsockname()[1]

    def _open(self, family: Family, address: str, role: _Role) -> socket.socket:
        opened = self.stack.enter_context(socket.socket(_AF[family], socket.SOCK_DGRAM))
        opened.settimeout(0)
        opened.bind((address, 0))
        self.selector.register(opened, selectors.EVENT_READ, role)
        return opened


@define
class _ProbeRound:
    """The crossings that nothing came back from yet, each under the token that its packets carry."""

    paths: tuple[ProbePath, ...]
    sockets: _Sockets
    _pending: dict[bytes, ProbePath] = Factory(dict)
    _errors: dict[ProbePath, str] = Factory(dict)

    def __attrs_post_init__(self) -> None:
        self._pending = {os.urandom(16): crossing for crossing in self.paths}

    @property
    def is_pending(self) -> bool:
        return bool(self._pending)

    def send_requests(self) -> None:
        for token, crossing in self._pending.items():
            port = self.sockets.ports.get(crossing.address)
            if port is None:
                self._errors[crossing] = self.sockets.problems.get(crossing.address, _NO_REPLY)
                continue
            try:
                self.sockets.clients[crossing.source, crossing.family].sendto(token, (str(crossing.address), port))
            except OSError as error:
                self._errors[crossing] = error.strerror or str(error)
            else:
                self._errors.pop(crossing, None)

    def record_reply(self, token: bytes, sender: str) -> None:
        crossing = self._pending.get(token)
        # From another address it is somebody else's answer.
        if crossing is not None and Address.parse(sender) == crossing.address:
            del self._pending[token]

    def failures(self) -> Iterator[tuple[ProbePath, str]]:
        left = frozenset(self._pending.values())
        for crossing in self.paths:
            if crossing in left:
                yield crossing, self._errors.get(crossing, _NO_REPLY)


def _serve_until(probe_round: _ProbeRound, selector: selectors.BaseSelector, until: Deadline) -> None:
    """Answer what is asked and note what is answered, for as long as something is open and time is left."""
    while probe_round.is_pending and not until.has_passed:
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
        pass  # an answer that cannot be sent is one that does not come: the crossing stays open
