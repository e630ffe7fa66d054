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

__all__ = ["Crossing", "Host", "Matrix", "find_crossings", "probe"]

PATIENCE_S = 3.0
_AGAIN_S = 0.25
_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_ANYWHERE = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104 - inside the lab's namespaces
_NO_ANSWER = "no answer"


@frozen(kw_only=True)
class Host:
    """Somebody with addresses in a namespace."""

    name: str
    netns: str
    addresses: tuple[Address, ...]


@frozen
class Crossing:
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
class Matrix:
    """What was found out: every crossing, and why some of them failed."""

    names: tuple[str, ...]
    crossings: tuple[Crossing, ...]
    problems: tuple[tuple[Crossing, str], ...] = ()

    def families(self) -> dict[tuple[str, str], tuple[Family, ...]]:
        """For each source and target, the families over which packets came back; no entry where none did."""
        failed = frozenset(crossing for crossing, _ in self.problems)
        found: dict[tuple[str, str], tuple[Family, ...]] = {}
        for way in self.crossings:
            if way not in failed:
                pair = way.source, way.target
                found[pair] = (*found.get(pair, ()), way.family)
        return found


def find_crossings(hosts: Sequence[Host]) -> tuple[Crossing, ...]:
    """Every way from each host to each other one."""
    return tuple(
        Crossing(source.name, target.name, address)
        for source in hosts
        for target in hosts
        if source.name != target.name
        for address in target.addresses
    )


def probe(hosts: Sequence[Host], namespaces: Namespaces, clock: Clock, *, patience_s: float = PATIENCE_S) -> Matrix:
    """Try every crossing, each until something comes back or patience ends.

    Raises:
        DataplaneError: a namespace cannot be entered.
    """
    crossings = find_crossings(hosts)
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        sockets = _Sockets(stack, selector)
        for host in hosts:
            with namespaces.enter(host.netns):
                sockets.open_for(host)
        trial = _Trial(crossings, sockets)
        deadline = Deadline.after(clock, patience_s)
        while trial.is_open and not deadline.has_passed:
            trial.ask()
            _exchange(trial, selector, deadline.capped(_AGAIN_S))
    names = tuple(host.name for host in hosts)
    return Matrix(names=names, crossings=crossings, problems=tuple(trial.problems()))


class _Role(enum.Enum):
    ASKS = enum.auto()
    ANSWERS = enum.auto()


@define
class _Sockets:
    """For each host and family a socket that asks, and for each address one that answers (or why there is none)."""

    stack: ExitStack
    selector: selectors.BaseSelector
    askers: dict[tuple[str, Family], socket.socket] = Factory(dict)
    ports: dict[Address, int] = Factory(dict)
    problems: dict[Address, str] = Factory(dict)

    def open_for(self, host: Host) -> None:
        """To be called inside the host's namespace."""
        for family in sorted({address.family for address in host.addresses}):
            self.askers[host.name, family] = self._open(family, _ANYWHERE[family], _Role.ASKS)
        for address in host.addresses:
            try:
                answerer = self._open(address.family, str(address), _Role.ANSWERS)
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
class _Trial:
    """The crossings that nothing came back from yet, each under the token that its packets carry."""

    crossings: tuple[Crossing, ...]
    sockets: _Sockets
    _open: dict[bytes, Crossing] = Factory(dict)
    _refused: dict[Crossing, str] = Factory(dict)

    def __attrs_post_init__(self) -> None:
        self._open = {os.urandom(16): crossing for crossing in self.crossings}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def ask(self) -> None:
        for token, crossing in self._open.items():
            port = self.sockets.ports.get(crossing.address)
            if port is None:
                self._refused[crossing] = self.sockets.problems.get(crossing.address, _NO_ANSWER)
                continue
            try:
                self.sockets.askers[crossing.source, crossing.family].sendto(token, (str(crossing.address), port))
            except OSError as error:
                self._refused[crossing] = error.strerror or str(error)
            else:
                self._refused.pop(crossing, None)

    def note(self, token: bytes, sender: str) -> None:
        crossing = self._open.get(token)
        # From another address it is somebody else's answer.
        if crossing is not None and Address.parse(sender) == crossing.address:
            del self._open[token]

    def problems(self) -> Iterator[tuple[Crossing, str]]:
        left = frozenset(self._open.values())
        for crossing in self.crossings:
            if crossing in left:
                yield crossing, self._refused.get(crossing, _NO_ANSWER)


def _exchange(trial: _Trial, selector: selectors.BaseSelector, until: Deadline) -> None:
    """Answer what is asked and note what is answered, for as long as something is open and time is left."""
    while trial.is_open and not until.has_passed:
        for key, _ in selector.select(until.remaining_s):
            ready = key.fileobj
            assert isinstance(ready, socket.socket)  # noqa: S101 - only sockets were registered
            _serve(ready, key.data, trial)


def _serve(ready: socket.socket, role: object, trial: _Trial) -> None:
    try:
        token, sender = ready.recvfrom(64)
        if role is _Role.ASKS:
            trial.note(token, sender[0])
        else:
            ready.sendto(token, sender)
    except OSError:
        pass  # an answer that cannot be sent is one that does not come: the crossing stays open
