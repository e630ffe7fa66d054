"""What ``lab status`` and ``connectivity test`` find in a lab: who reaches whom, and the lines that a person sees."""

from __future__ import annotations

import enum
import os
import selectors
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click
from attrs import Factory, define, frozen

from netplug_cli.formatting import format_columns, print_error
from netplug_cli.lab.model import (
    SOCKET_FAMILIES,
    Lab,
    LabFolder,
    LabNode,
    LabPod,
    Namespaces,
    OwnServers,
    Routing,
    store_environment,
)
from netplug_cli.lab.processes import list_ended
from netplug_cli.lab.world import LabWorld, Table
from netplug_cli.progress import show_progress
from netplug_core.addressing import Address, Family
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.connectivity import (
    Path,
    PathResult,
    Peer,
    PeerKind,
    find_gaps,
    list_paths,
    reached_families,
)
from netplug_core.errors import NetplugError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "ConsoleProgress", "LabStatus", "ProbePeer", "SilentProgress", "access_lines", "inspect_lab", "make_progress",
    "matrix_lines", "node_lines", "path_lines", "path_table", "pod_lines", "pod_table", "probe", "problem_lines",
    "result_problems", "status_table", "wait_until_connected",
]  # fmt: skip


# --- who reaches whom ------------------------------------------------------------------------------------------------

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


# --- status ----------------------------------------------------------------------------------------------------------


_CONNECTION_TIMEOUT_S, _POLL_S = 60.0, 0.1
_READY, _ENDED = "ready", "ended"


@frozen(kw_only=True)
class LabStatus:
    """The state of a lab. ``missing`` are sentences about missing parts; ``results`` cover the others.

    ``names`` are those of the nodes and pods that are there; ``processes`` says of each node how its process is.
    """

    missing: tuple[str, ...]
    names: tuple[str, ...] = ()
    results: tuple[PathResult, ...] = ()
    processes: tuple[tuple[str, str], ...] = ()


def inspect_lab(
    world: LabWorld, folder: LabFolder, lab: Lab, sources: Collection[PeerKind] = frozenset(PeerKind)
) -> LabStatus:
    """Find out which parts of a lab exist, and whom those of some kinds reach.

    Raises:
        DataplaneError: a namespace cannot be entered.
    """
    pinned = frozenset(world.namespaces.find_below(folder.netns_dir))
    peers = _list_peers(lab, folder)
    missing = [f"{each.peer.name}: its namespace is gone" for each in peers if each.netns not in pinned]
    missing += [f"{pod.name}: it was never attached" for pod in lab.pods if not pod.is_attached]
    ended = list_ended(folder)
    missing += [f"{name}: it is not running any more; its log is {folder.process_log(name)}" for name in ended]
    present = [each for each in peers if each.netns in pinned]
    paths = list_paths([each.peer for each in present], sources)
    return LabStatus(
        missing=tuple(missing),
        names=tuple(each.peer.name for each in present),
        results=probe(present, paths, world.namespaces, world.session.clock),
        processes=tuple((node.netns, _process_state(world, folder, node, ended)) for node in lab.nodes),
    )


def wait_until_connected(world: LabWorld, folder: LabFolder, lab: Lab) -> float | None:
    """Return when the pods of all nodes reach each other and the node processes are ready, after how many seconds.

    None: they do not, or are not.
    """
    clock, peers = world.session.clock, _list_peers(lab, folder)
    paths = list_paths([each.peer for each in peers], {PeerKind.POD})
    began, deadline = clock.monotonic(), Deadline.after(clock, _CONNECTION_TIMEOUT_S)
    results = probe(peers, paths, world.namespaces, clock, timeout_s=_CONNECTION_TIMEOUT_S)
    if any(each.failure for each in results):
        return None
    while any(_process_state(world, folder, node, list_ended(folder)) != _READY for node in lab.nodes):
        if deadline.has_passed:
            return None
        clock.sleep(_POLL_S)
    return clock.monotonic() - began


def _list_peers(lab: Lab, folder: LabFolder) -> list[ProbePeer]:
    nodes = (Peer(name=node.netns, kind=PeerKind.NODE, node=node.netns, addresses=node.addresses) for node in lab.nodes)
    pods = (Peer(name=pod.name, kind=PeerKind.POD, node=pod.node, addresses=pod.addresses) for pod in lab.pods)
    return [ProbePeer(peer=peer, netns=folder.netns(peer.name)) for peer in (*nodes, *pods)]


def _process_state(world: LabWorld, folder: LabFolder, node: LabNode, ended: Sequence[str]) -> str:
    """How the node process of a node is; ``ready``, or why it is not."""
    files = folder.node_files(node.netns)
    if files.process_name in ended:
        return _ENDED
    try:
        status = world.ask_node(files.node_socket)
    except NetplugError as error:
        return str(error)
    network = status.network
    problems = (*status.problems, *((network.obstacle, *network.problems) if network is not None else ()))
    return "; ".join(dict.fromkeys(filter(None, problems))) or _READY


# --- report ----------------------------------------------------------------------------------------------------------


_SELF = "-"
_NONE, _NO_TIME = "none", "-"
_MAX_FAILURES = 10


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

    @contextmanager
    def waiting(self, text: str, total: int, clock: Clock, deadline: Deadline) -> Iterator[Callable[[int], None]]:
        """Show on a terminal how many are done, and for how long the others are awaited."""
        with show_progress(text, total, clock, deadline) as progress:
            yield progress.update


class SilentProgress:
    """Progress where programs read the output: only warnings, on standard error."""

    def info(self, text: str) -> None:
        """Say nothing."""

    def warn(self, text: str) -> None:
        """Print a warning."""
        print_error(text)

    def activity(self, text: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the name is the interface's
        """Say nothing."""
        return nullcontext()

    def waiting(
        self,
        text: str,  # noqa: ARG002 - the names are the interface's
        total: int,  # noqa: ARG002
        clock: Clock,  # noqa: ARG002
        deadline: Deadline,  # noqa: ARG002
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Say nothing."""
        return nullcontext(lambda _done: None)


def make_progress(stream_is_terminal: bool) -> ConsoleProgress:  # noqa: FBT001 - the only parameter
    """Progress for a terminal, or for a file or a pipe."""
    if not stream_is_terminal:
        return ConsoleProgress()
    from rich.console import Console

    return ConsoleProgress(Console())


def node_lines(lab: Lab, folder: LabFolder, status: LabStatus) -> list[str]:
    """The table of several nodes: the names that they are registered under, addresses, processes and namespaces."""
    states = dict(status.processes)

    def short(node: LabNode) -> str:
        state = states.get(node.netns, _NONE)
        return state if state in {_READY, _ENDED, _NONE} else "not ready"

    rows = ((node.netns, node.name, _join(node.addresses), short(node), folder.netns(node.netns)) for node in lab.nodes)
    return format_columns(("NODE", "NAME", "ADDRESSES", "NODE PROCESS", "NAMESPACE"), rows)


def pod_lines(lab: Lab, folder: LabFolder) -> list[str]:
    """The table of the pods: addresses, host interface and namespace; of several nodes also which one each is on."""
    has_nodes = lab.network is not None

    def cells(pod: LabPod) -> tuple[str, ...]:
        where = (pod.node,) if has_nodes else ()
        return (pod.name, *where, _join(pod.addresses), pod.host_interface or _NONE, folder.netns(pod.name))

    headers = ("POD", *(("NODE",) if has_nodes else ()), "ADDRESSES", "HOST INTERFACE", "NAMESPACE")
    return format_columns(headers, map(cells, lab.pods))


def matrix_lines(status: LabStatus) -> list[str]:
    """The table of who reaches whom; a cell has the families over which replies came."""
    reached = reached_families(status.results)

    def cell(source: str, target: str) -> str:
        if source == target:
            return _SELF
        return "+".join(map(str, reached.get((source, target), ()))) or _NONE

    rows = ((source, *(cell(source, target) for target in status.names)) for source in status.names)
    return format_columns(("FROM / TO", *status.names), rows)


def problem_lines(lab: Lab, status: LabStatus) -> list[str]:
    """The problems of a lab, a sentence each: first what explains most, then single paths, at most so many."""
    explained: list[str] = []
    if lab.network is not None:
        if lab.network.routing is Routing.NONE and any(each.failure for each in status.results):
            explained.append("the lab was made with --routing none: nothing carries packets of pods between its nodes")
        explained += [f"{node}: {state}" for node, state in status.processes if state not in (_READY, _ENDED)]
        return [*status.missing, *explained, *result_problems(status.results)]
    return [*status.missing, *_failure_lines(status.results)]


def result_problems(results: Sequence[PathResult]) -> list[str]:
    """The problems of some paths: what explains most of them, then single ones, at most so many."""
    return [*find_gaps(results), *_failure_lines(results)]


def _failure_lines(results: Sequence[PathResult]) -> list[str]:
    failures = [f"{each.path}: {each.failure}" for each in results if each.failure]
    if len(failures) <= _MAX_FAILURES:
        return failures
    more = f"and {len(failures) - _MAX_FAILURES} more paths do not work: -o json has all of them"
    return [*failures[:_MAX_FAILURES], more]


def pod_table(lab: Lab, folder: LabFolder) -> Table:
    """The pods of a lab for programs, and where it is."""
    members = ("name", "node", "addresses", "namespace")
    rows = tuple((pod.name, pod.node, " ".join(map(str, pod.addresses)), folder.netns(pod.name)) for pod in lab.pods)
    return Table(members=members, rows=rows, name="pods", facts={"name": lab.name, "folder": folder.path})


def status_table(lab: Lab, folder: LabFolder, status: LabStatus, problems: Sequence[str]) -> Table:
    """The status for programs: a row for each path, and the parts of the lab as facts."""
    processes = dict(status.processes)
    nodes = [
        {
            "name": node.netns,
            "registeredAs": node.name,
            "addresses": [*map(str, node.addresses)],
            "process": processes.get(node.netns, ""),
            "namespace": folder.netns(node.netns),
        }
        for node in lab.nodes
    ]
    pods = [
        {
            "name": pod.name,
            "node": pod.node,
            "addresses": [*map(str, pod.addresses)],
            "hostInterface": pod.host_interface,
            "namespace": folder.netns(pod.name),
        }
        for pod in lab.pods
    ]
    facts = {
        "name": lab.name,
        "folder": folder.path,
        "routing": lab.network.routing.value if lab.network is not None else None,
        "nodes": nodes,
        "pods": pods,
        "problems": [*problems],
    }
    return path_table(status.results, facts)


def path_lines(results: Iterable[PathResult]) -> list[str]:
    """The table of paths, a row each."""
    rows = (
        (
            result.path.source,
            result.path.target,
            result.path.relation.value,
            str(result.path.family),
            result.failure or "ok",
            _NO_TIME if result.time_ms is None else f"{result.time_ms:.2f} ms",
        )
        for result in results
    )
    return format_columns(("FROM", "TO", "WHICH IS", "FAMILY", "RESULT", "TIME"), rows)


def path_table(results: Iterable[PathResult], facts: Mapping[str, object]) -> Table:
    """The same for programs, with the addresses, and with facts besides."""
    members = ("from", "to", "relation", "family", "address", "reached", "failure", "timeMs")
    return Table(members=members, rows=tuple(map(_path_row, results)), name="paths", facts=facts)


def _path_row(result: PathResult) -> tuple[str | float | bool | None, ...]:
    path = result.path
    return (
        path.source,
        path.target,
        path.relation.value,
        str(path.family),
        str(path.address),
        not result.failure,
        result.failure,
        None if result.time_ms is None else round(result.time_ms, 3),
    )


def access_lines(lab: Lab, folder: LabFolder) -> list[str]:
    """Commands to look around in a lab by hand."""
    inside = isinstance(lab.store, OwnServers)
    store = " ".join(f"{name}={value}" for name, value in store_environment(lab.store, folder).items())
    prefix = f"nsenter --net={folder.netns(lab.server_netns)} env " if inside else ""
    first, last = lab.pods[0], lab.pods[-1]
    address = last.addresses[-1] if last.addresses else ""
    files = folder.node_files(first.node)
    routes = [f"  netplugctl node routes --socket {files.node_socket}"] if lab.network is not None else []
    return [
        f"  nsenter --net={folder.netns(first.name)} ping -c 1 {address}",
        f"  {prefix}{store} netplugctl get ippools",
        *routes,
        f"  less {files.log_file}",
    ]


def _join(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or _NONE
