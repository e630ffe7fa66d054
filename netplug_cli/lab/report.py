"""What ``lab status`` prints: the parts of a lab, and who reaches whom, tested with packets."""

from __future__ import annotations

import enum
import os
import selectors
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click
from attrs import Factory, define, frozen

from netplug_cli.formatting import format_columns, print_error
from netplug_cli.lab.model import (
    NODE_ADDRESSES,
    NODE_NETNS,
    SOCKET_FAMILIES,
    Lab,
    LabFolder,
    Namespaces,
    OwnServers,
    store_environment,
)
from netplug_cli.lab.processes import list_ended
from netplug_cli.lab.world import LabWorld
from netplug_core.addressing import Address, Family
from netplug_core.clock import Clock, Deadline

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "ConsoleProgress", "LabStatus", "ProbePath", "ProbePeer", "ReachabilityMatrix", "access_lines", "inspect_lab",
    "list_probe_paths", "make_progress", "matrix_lines", "pod_lines", "probe", "problem_lines",
]  # fmt: skip


# --- reachability ----------------------------------------------------------------------------------------------------


TIMEOUT_S = 3.0
_RESEND_INTERVAL_S = 0.25
_WILDCARD_ADDRESS = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104 - inside the lab's namespaces
_NO_REPLY = "no answer"


@frozen(kw_only=True)
class ProbePeer:
    """A node or pod: a namespace with addresses."""

    name: str
    netns: str
    addresses: tuple[Address, ...]


@frozen
class ProbePath:
    """A path that packets take there and back: from a peer to one address of another peer."""

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
    """The result: every path, and the reason of each failure."""

    names: tuple[str, ...]
    paths: tuple[ProbePath, ...]
    failures: tuple[tuple[ProbePath, str], ...] = ()

    def reached_families(self) -> dict[tuple[str, str], tuple[Family, ...]]:
        """For each source and target, the families over which packets came back; no entry where none did."""
        failed = frozenset(path for path, _ in self.failures)
        found: dict[tuple[str, str], tuple[Family, ...]] = {}
        for path in self.paths:
            if path not in failed:
                pair = path.source, path.target
                found[pair] = (*found.get(pair, ()), path.family)
        return found


def list_probe_paths(peers: Sequence[ProbePeer]) -> tuple[ProbePath, ...]:
    """Every path from each peer to each other peer."""
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
    """Probe every path until its reply comes or the time is over.

    Raises:
        DataplaneError: a namespace cannot be entered.
    """
    paths = list_probe_paths(peers)
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        sockets = _Sockets(stack, selector)
        for peer in peers:
            with namespaces.enter(peer.netns):
                sockets.open_for(peer)
        probe_round = _ProbeRound(paths, sockets)
        deadline = Deadline.after(clock, timeout_s)
        while probe_round.is_pending and not deadline.has_passed:
            probe_round.send_requests()
            _serve_until(probe_round, selector, deadline.capped(_RESEND_INTERVAL_S))
    names = tuple(peer.name for peer in peers)
    return ReachabilityMatrix(names=names, paths=paths, failures=tuple(probe_round.failures()))


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

    def open_for(self, peer: ProbePeer) -> None:
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


@define
class _ProbeRound:
    """The paths without a reply so far, each under the token of its packets."""

    paths: tuple[ProbePath, ...]
    sockets: _Sockets
    _pending: dict[bytes, ProbePath] = Factory(dict)
    _errors: dict[ProbePath, str] = Factory(dict)

    def __attrs_post_init__(self) -> None:
        self._pending = {os.urandom(16): path for path in self.paths}

    @property
    def is_pending(self) -> bool:
        return bool(self._pending)

    def send_requests(self) -> None:
        for token, path in self._pending.items():
            port = self.sockets.ports.get(path.address)
            if port is None:
                self._errors[path] = self.sockets.problems.get(path.address, _NO_REPLY)
                continue
            try:
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

    def failures(self) -> Iterator[tuple[ProbePath, str]]:
        left = frozenset(self._pending.values())
        for path in self.paths:
            if path in left:
                yield path, self._errors.get(path, _NO_REPLY)


def _serve_until(probe_round: _ProbeRound, selector: selectors.BaseSelector, until: Deadline) -> None:
    """Serve requests and record replies until every path has its reply or the time is over."""
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
        pass  # without its reply, the path stays pending


# --- report ----------------------------------------------------------------------------------------------------------


# --- status ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class LabStatus:
    """The state of a lab. ``missing`` are sentences about missing parts; ``matrix`` covers the others."""

    missing: tuple[str, ...]
    matrix: ReachabilityMatrix


def inspect_lab(world: LabWorld, folder: LabFolder, lab: Lab) -> LabStatus:
    """Find out which parts of a lab exist, and who reaches whom.

    Raises:
        DataplaneError: a namespace cannot be entered.
    """
    pinned = frozenset(world.namespaces.find_below(folder.netns_dir))
    peers = (
        ProbePeer(name=NODE_NETNS, netns=folder.netns(NODE_NETNS), addresses=NODE_ADDRESSES),
        *(ProbePeer(name=pod.name, netns=folder.netns(pod.name), addresses=pod.addresses) for pod in lab.pods),
    )
    missing = [f"{peer.name}: its namespace is gone" for peer in peers if peer.netns not in pinned]
    missing += [f"{pod.name}: it was never attached" for pod in lab.pods if not pod.is_attached]
    missing += [f"{name}: it is not running any more" for name in list_ended(folder)]
    present = [peer for peer in peers if peer.netns in pinned]
    return LabStatus(missing=tuple(missing), matrix=probe(present, world.namespaces, world.session.clock))


# --- report ----------------------------------------------------------------------------------------------------------


_SELF = "-"
_NONE = "none"


@define
class ConsoleProgress:
    """Progress as lines; on a terminal with a spinner beside the current activity."""

    _console: Console | None = None

    def info(self, text: str) -> None:
        """A line on standard output."""
        if self._console is not None:
            # Through the console, which moves the spinner out of the way.
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        try:
            click.echo(text)
        except BrokenPipeError:
            # The reader has closed the pipe. The lab is made, or removed, to the end all the same.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def warn(self, text: str) -> None:
        """Print a line on standard error."""
        print_error(text)

    @contextmanager
    def activity(self, text: str) -> Iterator[None]:
        """Show an activity on a terminal; print nothing elsewhere."""
        if self._console is None:
            yield
            return
        with self._console.status(text):
            yield


def make_progress(stream_is_terminal: bool) -> ConsoleProgress:  # noqa: FBT001 - the only parameter
    """Progress for a terminal, or for a file or a pipe."""
    if not stream_is_terminal:
        return ConsoleProgress()
    from rich.console import Console

    return ConsoleProgress(Console())


def pod_lines(lab: Lab, folder: LabFolder) -> list[str]:
    """The table of the pods: addresses, host interface and namespace."""
    rows = (
        (pod.name, ", ".join(map(str, pod.addresses)) or _NONE, pod.host_interface or _NONE, folder.netns(pod.name))
        for pod in lab.pods
    )
    return format_columns(("POD", "ADDRESSES", "HOST INTERFACE", "NAMESPACE"), rows)


def matrix_lines(matrix: ReachabilityMatrix) -> list[str]:
    """The table of who reaches whom; a cell has the families over which replies came."""
    reached = matrix.reached_families()

    def cell(source: str, target: str) -> str:
        if source == target:
            return _SELF
        return "+".join(map(str, reached.get((source, target), ()))) or _NONE

    rows = ((source, *(cell(source, target) for target in matrix.names)) for source in matrix.names)
    return format_columns(("FROM / TO", *matrix.names), rows)


def problem_lines(status: LabStatus) -> list[str]:
    """The problems of a lab, a sentence each."""
    failures = (f"{path}: {reason}" for path, reason in status.matrix.failures)
    return [*status.missing, *failures]


def access_lines(lab: Lab, folder: LabFolder) -> list[str]:
    """Commands to look around in a lab by hand."""
    inside = isinstance(lab.store, OwnServers)
    store = " ".join(f"{name}={value}" for name, value in store_environment(lab.store, folder).items())
    prefix = f"nsenter --net={folder.netns(NODE_NETNS)} env " if inside else ""
    first, last = lab.pods[0], lab.pods[-1]
    address = last.addresses[-1] if last.addresses else ""
    return [
        f"  nsenter --net={folder.netns(first.name)} ping -c 1 {address}",
        f"  {prefix}{store} netplugctl get ippools",
        f"  less {folder.log_file}",
    ]
