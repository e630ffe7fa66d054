"""The status of a node process, as it says it of itself: JSON, at a socket of its own beside the one for calls.

The node process serves it, and ``netplugctl node status`` and ``node address`` show it.
"""

from __future__ import annotations

from functools import cache

from attrs import frozen

from netplug_core.decoding.codecs import BOOLEAN, INTEGER, NONEMPTY_STRING, NONNEGATIVE_INTEGER, STRING, TIME
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, document_error, fields_of

__all__ = [
    "STATUS_PATH", "AddressStatus", "CallFigures", "DifferenceStatus", "NetworkStatus", "NodeDatastore", "NodeStatus",
    "PeerStatus", "PolicyStatus", "RegistrationStatus", "RouteStatus", "decode_status", "encode_status",
    "status_socket_of",
]  # fmt: skip

STATUS_PATH = "/status"
"""Where the status is, as a path of HTTP."""


@frozen(kw_only=True)
class CallFigures:
    """Calls: so many ``served`` since the start, of which ``failed``, others ``refused`` as busy; and those of now."""

    served: int
    failed: int
    refused: int
    served_now: int
    waiting: int


@frozen(kw_only=True)
class NodeDatastore:
    """An open datastore. ``answered_s``: how many seconds ago it answered; None: it has not.

    ``failure`` is the class of the error of its last call, if that did not reach it.
    """

    name: str
    location: str
    answered_s: int | None = None
    failure: str = ""


@frozen(kw_only=True)
class AddressStatus:
    """The address of a node in a family, empty if it has none: where it is from, and what was considered."""

    family: str
    address: str = ""
    origin: str = ""
    trace: tuple[str, ...] = ()


@frozen(kw_only=True)
class RegistrationStatus:
    """How a node is registered. ``problems`` say what is wrong with its addresses."""

    node: str
    pod_mtu: int
    addresses: tuple[AddressStatus, ...] = ()
    problems: tuple[str, ...] = ()


@frozen(kw_only=True)
class RouteStatus:
    """A route to another node: the way that packets take, and why. Not ``is_programmed``: the kernel lacks it."""

    destination: str
    way: str
    reason: str
    is_programmed: bool = True


@frozen(kw_only=True)
class PeerStatus:
    """A BGP session: with whom, whether it is established, since when it is as it is, and the daemon's word for it."""

    peer: str
    address: str
    as_number: int
    is_established: bool
    since: str = ""
    state: str = ""


@frozen(kw_only=True)
class NetworkStatus:
    """How a node is connected with the others.

    ``nodes`` are known, this one included; ``tunnels`` are its devices with their addresses; ``peers`` those that it
    speaks BGP with. ``obstacle`` says why nothing is programmed yet; ``problems``, what keeps some nodes from being
    reached.
    """

    nodes: int = 0
    tunnels: tuple[str, ...] = ()
    routes: tuple[RouteStatus, ...] = ()
    peers: tuple[PeerStatus, ...] = ()
    obstacle: str = ""
    problems: tuple[str, ...] = ()


@frozen(kw_only=True)
class DifferenceStatus:
    """A part of the kernel's table of policy, and in what it is not as it is wanted."""

    part: str
    difference: str


@frozen(kw_only=True)
class PolicyStatus:
    """What a node enforces: so many endpoints and policies. ``programmed`` of the endpoints have all of theirs.

    ``members`` are those of the sets that rules name. ``closed`` are parts that the kernel refuses, so that they let
    nothing pass. ``differences`` are between the kernel and what was programmed last. ``obstacle`` says why not
    everything is programmed; ``problems``, what is not enforced as it stands.
    """

    endpoints: int = 0
    host_endpoints: int = 0
    policies: int = 0
    sets: int = 0
    members: int = 0
    programmed: int = 0
    closed: tuple[str, ...] = ()
    differences: tuple[DifferenceStatus, ...] = ()
    obstacle: str = ""
    problems: tuple[str, ...] = ()


@frozen(kw_only=True)
class NodeStatus:
    """What a node process is and does. ``problems``: why it is not ready.

    ``missing_plugins`` says which plugins the runtime of its host needs for each pod and does not find.

    ``release_records`` of its datastores wait, ``foreign_records`` of others, and ``damaged_records`` cannot be read.

    ``registration`` is None as long as the node is not registered; so is ``network``, and where another program makes
    the routes. ``policy`` is None where this process does not enforce any.
    """

    version: str
    pid: int
    started_ns: int
    socket: str
    problems: tuple[str, ...] = ()
    missing_plugins: tuple[str, ...] = ()
    workers: int
    queue_limit: int
    calls: CallFigures
    release_records: int
    foreign_records: int = 0
    damaged_records: int = 0
    datastores: tuple[NodeDatastore, ...] = ()
    registration: RegistrationStatus | None = None
    network: NetworkStatus | None = None
    policy: PolicyStatus | None = None


def status_socket_of(socket: str) -> str:
    """The path of the socket for the status, by that of the socket for calls."""
    return f"{socket}.status"


def encode_status(status: NodeStatus) -> dict[str, object]:
    """The JSON object of a status."""
    return _decoder().encode(status)


def decode_status(value: object, where: str) -> NodeStatus:
    """The status in a JSON object; what a newer release has added is ignored.

    Raises:
        NetplugError: it is none; ``where`` is in the text.
    """
    return _decoder().decode(value, NodeStatus, where)


@cache
def _decoder() -> Decoder:
    status = {
        **fields_of(NONEMPTY_STRING, version="version", socket="socket"),
        "pid": Field("pid", INTEGER),
        "started_ns": Field("started", TIME),
        "problems": Field("problems", ListOf(STRING), is_always_written=True),
        "missing_plugins": Field("missingPlugins", ListOf(STRING), is_always_written=True),
        **fields_of(
            NONNEGATIVE_INTEGER,
            workers="workers",
            queue_limit="queueLimit",
            release_records="releaseRecords",
            foreign_records="foreignReleaseRecords",
            damaged_records="damagedReleaseRecords",
        ),
        "calls": Field("calls", CallFigures),
        "datastores": Field("datastores", ListOf(NodeDatastore), is_always_written=True),
        "registration": Field("registration", RegistrationStatus),
        "network": Field("network", NetworkStatus),
        "policy": Field("policy", PolicyStatus),
    }
    calls = fields_of(
        NONNEGATIVE_INTEGER,
        served="served",
        failed="failed",
        refused="refused",
        served_now="servedNow",
        waiting="waiting",
    )
    datastore = {
        "name": Field("name", NONEMPTY_STRING),
        **fields_of(STRING, location="location", failure="failure"),
        "answered_s": Field("answeredSecondsAgo", NONNEGATIVE_INTEGER),
    }
    registration = {
        "node": Field("node", NONEMPTY_STRING),
        "pod_mtu": Field("podMTU", NONNEGATIVE_INTEGER),
        "addresses": Field("addresses", ListOf(AddressStatus), is_always_written=True),
        "problems": Field("problems", ListOf(STRING), is_always_written=True),
    }
    address = {
        "family": Field("family", NONEMPTY_STRING),
        **fields_of(STRING, address="address", origin="origin"),
        "trace": Field("trace", ListOf(STRING), is_always_written=True),
    }
    tables = (
        *_network_tables(),
        _policy_table(),
        Table(cls=DifferenceStatus, fields=fields_of(NONEMPTY_STRING, part="part", difference="difference")),
        Table(cls=NodeStatus, fields=status),
        Table(cls=RegistrationStatus, fields=registration),
        Table(cls=AddressStatus, fields=address),
        Table(cls=CallFigures, fields=calls),
        Table(cls=NodeDatastore, fields=datastore),
    )
    return Decoder(document_error, tables=tables)


def _policy_table() -> Table[PolicyStatus]:
    fields = {
        **fields_of(
            NONNEGATIVE_INTEGER,
            endpoints="endpoints",
            host_endpoints="hostEndpoints",
            policies="policies",
            sets="sets",
            members="members",
            programmed="programmed",
        ),
        "closed": Field("closed", ListOf(STRING)),
        "differences": Field("differences", ListOf(DifferenceStatus)),
        "obstacle": Field("obstacle", STRING),
        "problems": Field("problems", ListOf(STRING), is_always_written=True),
    }
    return Table(cls=PolicyStatus, fields=fields)


def _network_tables() -> tuple[Table[object], ...]:
    network = {
        "nodes": Field("nodes", NONNEGATIVE_INTEGER),
        "tunnels": Field("tunnels", ListOf(STRING), is_always_written=True),
        "routes": Field("routes", ListOf(RouteStatus), is_always_written=True),
        "peers": Field("peers", ListOf(PeerStatus)),
        "obstacle": Field("obstacle", STRING),
        "problems": Field("problems", ListOf(STRING), is_always_written=True),
    }
    route = {
        **fields_of(NONEMPTY_STRING, destination="destination", way="way"),
        "reason": Field("reason", STRING),
        "is_programmed": Field("programmed", BOOLEAN, is_always_written=True),
    }
    peer = {
        **fields_of(NONEMPTY_STRING, peer="peer", address="address"),
        "as_number": Field("asNumber", NONNEGATIVE_INTEGER),
        "is_established": Field("established", BOOLEAN, is_always_written=True),
        **fields_of(STRING, since="since", state="state"),
    }
    return (
        Table(cls=NetworkStatus, fields=network),
        Table(cls=RouteStatus, fields=route),
        Table(cls=PeerStatus, fields=peer),
    )
