"""``node``: the node process of this machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

import click
from attrs import evolve, frozen

from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import REPORT_OUTPUT, Cell, Column, Report, print_report, text_cell
from netplug_cli.formatting import format_columns, format_duration
from netplug_cli.node_status import (
    STATUS_PATH,
    AddressStatus,
    NetworkStatus,
    NodeDatastore,
    NodeStatus,
    PeerStatus,
    PolicyStatus,
    RegistrationStatus,
    RouteStatus,
    decode_status,
    encode_status,
    status_socket_of,
)
from netplug_core.addressing import Prefix
from netplug_core.clock import SECOND_NS, format_time
from netplug_core.cni.node_socket import DEFAULT_SOCKET, SOCKET_VARIABLE
from netplug_core.decoding.tables import find_object
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.reconcile.registration import describe_registered
from netplug_core.records import Get, List
from netplug_core.resources.node import NODE, node_key

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session

__all__ = [
    "ANSWER_S", "NoNodeProcess", "NoPolicy", "NoRoutes", "NotRegistered", "OddNodeProcess", "ask_node", "node",
]  # fmt: skip


# --- node client -----------------------------------------------------------------------------------------------------


ANSWER_S = 10.0
"""The longest wait; the node process asks its datastores meanwhile, for at most 2 s."""

_MAX_LENGTH = 16 << 20  # the routes to thousands of nodes
_MAX_PROBLEMS = 5


@frozen
class NoNodeProcess(NetplugError):
    """Nothing answers at the path of a node process's socket."""

    path: str
    cause: str

    def __str__(self) -> str:
        alone = "netplug and netplug-ipam serve each call by themselves where none answers"
        return f"no node process answers at {self.path}: {self.cause}; {alone}"


@frozen
class OddNodeProcess(NetplugError):
    """What answers is no node process, or one of another release."""

    path: str
    cause: str

    def __str__(self) -> str:
        return f"what answers at {self.path} is no node process that this release understands: {self.cause}"


@frozen
class NotRegistered(NetplugError):
    """The node process has registered no node: its log says why."""

    path: str

    def __str__(self) -> str:
        return f"the node process at {self.path} has registered no addresses; its log says why"


@frozen
class NoRoutes(NetplugError):
    """The node process makes no routes: its node is not registered, or another program makes them."""

    path: str

    def __str__(self) -> str:
        return (
            f"the node process at {self.path} makes no routes: its node is not registered yet, or "
            "NETPLUG_NETWORKING_BACKEND is none"
        )


@frozen
class NoPolicy(NetplugError):
    """The node process enforces no policy."""

    path: str

    def __str__(self) -> str:
        return f"the node process at {self.path} enforces no policy: NETPLUG_POLICY is not Enabled in its environment"


class _Connection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask_node(path: str) -> NodeStatus:
    """The status of the node process whose socket for calls is at a path.

    Raises:
        NoNodeProcess: none answers.
        OddNodeProcess: the answer is no status.
    """
    at = status_socket_of(path)
    try:
        with closing(_Connection(at)) as connection:
            connection.request("GET", STATUS_PATH)
            with connection.getresponse() as reply:
                status, text = reply.status, reply.read(_MAX_LENGTH)
    except HTTPException as error:
        raise OddNodeProcess(at, f"{type(error).__name__} {error}".strip()) from error
    except OSError as error:
        raise NoNodeProcess(path, error.strerror or str(error)) from error
    if status != 200:  # noqa: PLR2004  OK, of HTTP
        raise OddNodeProcess(at, f"the HTTP status is {status}")
    try:
        return decode_status(json.loads(text), STATUS_PATH)
    except (ValueError, RecursionError):
        raise OddNodeProcess(at, "its status is no JSON") from None
    except NetplugError as error:
        raise OddNodeProcess(at, str(error)) from error


# --- node ------------------------------------------------------------------------------------------------------------


@click.group()
def node() -> None:
    """Show the node process of this machine."""


_SOCKET = click.option(
    "--socket", metavar="PATH", help=f"Its socket for calls. Default: {SOCKET_VARIABLE}, otherwise {DEFAULT_SOCKET}."
)
_NAMED_VALUES = (Column("NAME", "name"), Column("VALUE", "value"))
_DIFFERENCE_COLUMNS = (Column("PART", "part"), Column("DIFFERENCE", "difference"))
_ROUTE_COLUMNS = (
    Column("DESTINATION", "destination"), Column("WAY", "way"), Column("BECAUSE", "reason"),
    Column("PROGRAMMED", "programmed"),
)  # fmt: skip


@node.command("status")
@_SOCKET
@REPORT_OUTPUT
@click.pass_context
def show_status(context: click.Context, socket: str | None, output: str) -> int:
    """Show whether the node process runs, and what it does.

    The exit status is 1 if it does not run or is not ready, if some nodes cannot be reached, if the kernel refuses a
    part of policy, or if no pod can start because the host lacks a plugin.
    """
    session = session_of(context)
    status = ask_node(socket or session.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)
    rows = _status_rows(status, session.clock.now_ns())
    lines = tuple(_status_lines(status, rows))
    print_report(_report_of(encode_status(status), rows, lines), output)
    is_connected = status.network is None or not status.network.problems
    is_connected = is_connected and not (status.policy is not None and status.policy.closed)
    return 0 if is_connected and not status.problems and not status.missing_plugins else 1


@node.command("address")
@click.argument("name", metavar="[NODE]", required=False)
@_SOCKET
@REPORT_OUTPUT
@click.pass_context
def show_address(context: click.Context, name: str | None, socket: str | None, output: str) -> int:
    """Show which addresses this node has registered, and how they were chosen.

    With NODE, show what that node has registered, as the datastore has it: its addresses, those of its interfaces, and
    other nodes with the same ones. How they were chosen is known on that node alone.

    The exit status is 1 if the node is not registered, or if something is wrong with its addresses.
    """
    session = session_of(context)
    if name is not None:
        return _show_registered(session, name, output)
    path = socket or session.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
    status = ask_node(path)
    if status.registration is None:
        raise NotRegistered(path)
    found = status.registration
    rows = [(address.family, _address_text(address)) for address in found.addresses]
    print_report(_report_of(_member(status, "registration"), rows, tuple(_address_lines(found))), output)
    return 1 if status.registration.problems else 0


def _show_registered(session: Session, name: str, output: str) -> int:
    """What the datastore has of a node."""
    everything = List(NODE)
    with session.open_datastore() as store:
        snapshot = store.read([Get(node_key(name)), everything], deadline=session.deadline())
    stored = snapshot.find(node_key(name))
    if stored is None:
        raise click.ClickException(f"no node {name!r} is registered in the datastore")
    addresses, problems = describe_registered(stored.value, (one.value for one in snapshot.readable(everything)))
    texts = tuple(f"{each.message}: {each.cause}" for each in problems)
    rows = [("Node", name), *(("Problem", each) for each in texts)]
    lines = [f"{row + ':':12} {value}" for row, value in rows]
    for each in addresses:
        held = "none" if each.address is None else str(each.address)
        rows.append((str(each.family), held))
        lines += (f"{each.family}:".ljust(12) + f" {held}", *(f"  {step}" for step in each.trace))
    lines.append(f"How they were chosen is known on {name}: netplugctl node address shows it there.")
    found = [
        {"family": str(each.family), "address": str(each.address or ""), "trace": list(map(str, each.trace))}
        for each in addresses
    ]
    facts = {"node": name, "addresses": found, "problems": list(texts)}
    print_report(_report_of(facts, rows, tuple(lines)), output)
    return 1 if problems else 0


@node.command("routes")
@click.option("--why", metavar="PREFIX", help="Only routes that cover this prefix or address, or lie within it.")
@_SOCKET
@REPORT_OUTPUT
@click.pass_context
def show_routes(context: click.Context, why: str | None, socket: str | None, output: str) -> int:
    """Show the routes of this node to pods of other nodes, and what each follows from.

    The exit status is 1 if no route is programmed yet, if one of those shown is not, or if some nodes cannot be
    reached.
    """
    session = session_of(context)
    path = socket or session.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
    status = ask_node(path)
    network = status.network
    if network is None:
        raise NoRoutes(path)
    wanted = None if why is None else _parse_prefix(why)
    routes = [each for each in network.routes if wanted is None or Prefix.parse(each.destination).overlaps(wanted)]
    facts = _member(evolve(status, network=evolve(network, routes=tuple(routes))), "network")
    cells = tuple(map(_route_row, routes))
    lines = tuple(_route_lines(routes, network))
    print_report(Report(_ROUTE_COLUMNS, cells, name="", facts=facts, shown=lines), output)
    is_whole = not network.obstacle and not network.problems and all(each.is_programmed for each in routes)
    return 0 if is_whole else 1


@node.group("policy")
def policy() -> None:
    """Look at the policies that the node process enforces."""


@policy.command("check")
@_SOCKET
@REPORT_OUTPUT
@click.pass_context
def check_policy(context: click.Context, socket: str | None, output: str) -> int:
    """Compare the kernel's table of policy with what the node process has programmed.

    The exit status is 1 if they differ, if the kernel refuses a part of policy, or if not everything is programmed.
    """
    session = session_of(context)
    path = socket or session.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
    status = ask_node(path)
    found = status.policy
    if found is None:
        raise NoPolicy(path)
    lines = tuple(_difference_lines(found))
    cells = tuple((text_cell(each.part), text_cell(each.difference)) for each in found.differences)
    print_report(Report(_DIFFERENCE_COLUMNS, cells, name="", facts=_member(status, "policy"), shown=lines), output)
    return 1 if found.obstacle or found.closed or found.differences else 0


def _difference_lines(policy: PolicyStatus) -> Iterator[str]:
    if policy.obstacle:
        yield f"Problem: {policy.obstacle}"
    yield from (f"Problem: the kernel refuses {each}: it lets nothing pass" for each in policy.closed)
    if policy.differences:
        rows = ((each.part, each.difference) for each in policy.differences)
        yield from format_columns(("PART", "DIFFERENCE"), rows)
    elif not policy.obstacle:
        yield f"The kernel has what is wanted: {policy.policies} policies for {policy.endpoints} workload endpoints."


def _report_of(facts: Mapping[str, object], rows: Sequence[tuple[str, str]], lines: tuple[str, ...]) -> Report:
    """What is known of the node: as it was answered in JSON and YAML, as names and values in CSV."""
    cells = tuple((text_cell(name.removesuffix(":")), text_cell(value)) for name, value in rows)
    return Report(_NAMED_VALUES, cells, name="", facts=facts, shown=lines)


def _member(status: NodeStatus, name: str) -> Mapping[str, object]:
    return find_object(encode_status(status), name)


def _route_row(route: RouteStatus) -> tuple[Cell, ...]:
    programmed = Cell(route.is_programmed, "" if route.is_programmed else "not yet")
    return text_cell(route.destination), text_cell(route.way), text_cell(route.reason), programmed


def _parse_prefix(text: str) -> Prefix:
    try:
        return Prefix.parse(text)
    except ValueError as error:
        raise ConfigurationError("--why", text, f"an address or a CIDR is expected: {error}") from None


def _route_lines(routes: Sequence[RouteStatus], network: NetworkStatus) -> Iterator[str]:
    if network.obstacle:
        yield f"Problem: {network.obstacle}"
    yield from (f"Problem: {each}" for each in network.problems)
    rows = [(each.destination, each.way, each.reason, "" if each.is_programmed else "not yet") for each in routes]
    if rows:
        yield from format_columns(("DESTINATION", "WAY", "BECAUSE", "PROGRAMMED"), rows)


def _address_lines(registration: RegistrationStatus) -> Iterator[str]:
    yield f"Node:        {registration.node}"
    yield f"MTU of pods: {registration.pod_mtu}"
    for problem in registration.problems:
        yield f"Problem:     {problem}"
    for address in registration.addresses:
        yield f"{address.family + ':':12} {_address_text(address)}"
        yield from (f"  {step}" for step in address.trace)


def _address_text(address: AddressStatus) -> str:
    return f"{address.address} ({address.origin})" if address.address else "none"


def _status_rows(status: NodeStatus, now_ns: int) -> list[tuple[str, str]]:
    calls, age_s = status.calls, max(0, now_ns - status.started_ns) / SECOND_NS
    return [
        ("Version:", status.version),
        ("PID:", str(status.pid)),
        ("Socket:", status.socket),
        ("Started:", f"{format_time(status.started_ns)}, {format_duration(age_s)} ago"),
        ("Ready:", f"no: {'; '.join(status.problems)}" if status.problems else "yes"),
        ("Calls:", f"{calls.served} served, {calls.failed} of them failed; {calls.refused} refused as busy"),
        ("Now:", f"{calls.served_now} of {status.workers} workers serve, {calls.waiting} of {status.queue_limit} wait"),
        ("Release records:", _records_text(status)),
        *_network_rows(status.network),
        *_policy_rows(status.policy),
        *(("Missing plugin:", text) for text in status.missing_plugins),
    ]


def _status_lines(status: NodeStatus, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max(len(name) for name, _value in rows) + 1
    yield from (f"{name:{width}}{value}" for name, value in rows)
    if status.network is not None and status.network.peers:
        yield ""
        headers = ("PEER", "ADDRESS", "AS", "ESTABLISHED", "SINCE", "STATE")
        yield from format_columns(headers, map(_peer_cells, status.network.peers))
    if status.datastores:
        yield ""
        yield from format_columns(("DATASTORE", "LOCATION", "ANSWERED"), map(_datastore_cells, status.datastores))


def _network_rows(network: NetworkStatus | None) -> Iterator[tuple[str, str]]:
    if network is None or network.obstacle:
        return  # an obstacle is why it is not ready
    tunnels = f"; {', '.join(network.tunnels)}" if network.tunnels else ""
    missing = sum(not each.is_programmed for each in network.routes)
    lacking = f", {missing} of them not programmed" if missing else ""
    yield "Network:", f"{network.nodes} nodes, {len(network.routes)} routes{lacking}{tunnels}"
    shown = network.problems[:_MAX_PROBLEMS]
    yield from (("Problem:", each) for each in shown)
    if len(network.problems) > len(shown):
        yield "Problem:", f"{len(network.problems) - len(shown)} more; netplugctl node routes shows all"


def _policy_rows(policy: PolicyStatus | None) -> Iterator[tuple[str, str]]:
    if policy is None or policy.obstacle:
        return  # an obstacle is why it is not ready
    hosts = f" and {policy.host_endpoints} host endpoints" if policy.host_endpoints else ""
    programmed = f"{policy.programmed} of them programmed"
    yield "Policy:", f"{policy.policies} policies for {policy.endpoints} workload endpoints, {programmed}{hosts}"
    shown = policy.problems[:_MAX_PROBLEMS]
    yield from (("Problem:", each) for each in shown)
    if len(policy.problems) > len(shown):
        yield "Problem:", f"{len(policy.problems) - len(shown)} more; netplugctl node status -o yaml shows all"


def _peer_cells(peer: PeerStatus) -> tuple[str, ...]:
    established = "yes" if peer.is_established else "no"
    return peer.peer, peer.address, str(peer.as_number), established, peer.since, peer.state


def _records_text(status: NodeStatus) -> str:
    text = f"{status.release_records} wait"
    if status.foreign_records:
        text += f"; {status.foreign_records} of other datastores"
    if status.damaged_records:
        text += f"; {status.damaged_records} damaged"
    return text


def _datastore_cells(datastore: NodeDatastore) -> tuple[str, ...]:
    answered = "never" if datastore.answered_s is None else f"{format_duration(datastore.answered_s)} ago"
    return datastore.name, datastore.location, f"{answered}; {datastore.failure}" if datastore.failure else answered
