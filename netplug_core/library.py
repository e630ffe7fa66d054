"""``netplug_core.open``, from a URL to an open network, and what that offers: pools and addresses of one datastore.

Backends and the host are found by their entry points, so that this module imports none of them. Everything here is a
call of a flow or of the IPAM with checked arguments. What it does not offer, ``store`` and ``ipam`` do.

Every refusal is an ``InvalidArgument`` that names the argument, its value and what is accepted.

A backend trusts its callers, which are type-checked. A program may not be, so a wrong type is refused here by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from enum import Enum
from types import TracebackType
from typing import Final, NoReturn, TypedDict, TypeVar, Unpack

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore, DatastoreDescription
from netplug_core.datastore.transaction import Transaction
from netplug_core.encoding.stored_json import STORED_JSON
from netplug_core.errors import InvalidArgument, require_count, require_tuple, require_type
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.flows.resources.write import create
from netplug_core.hookspecs import HostServices, IPAMContext
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest, Shortfall, Specific, Wanted
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE, Affinity, Block, Handle, Pairs
from netplug_core.ipam.protocol import IPAM, NO_ENDPOINT
from netplug_core.names import prefix_to_name
from netplug_core.records import (
    Create,
    Decision,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    NeedMore,
    Query,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    WatchEvent,
    Write,
)
from netplug_core.registry import Registry, UnknownBackend
from netplug_core.resources.codec import Manifest
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, AllowedUse, AssignmentMode, IPPool, IPPoolSpec
from netplug_core.resources.kinds import KINDS
from netplug_core.settings.apiconfig import InvalidURL, datastore_settings_from_url
from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "LIBRARY_OWNER", "Arguments", "AssignOptions", "CheckedDatastore", "Network", "OpenOptions", "PoolOptions",
    "check_handle", "is_key_text", "open", "pool_from_arguments", "request_from_arguments",
]  # fmt: skip


# --- the typed datastore ---------------------------------------------------------------------------------------------

_VALUE_TYPES: Final[Mapping[str, type]] = {
    **{row.name: row.value_type for row in KINDS},
    AFFINITY.name: Affinity,
    BLOCK.name: Block,
    HANDLE.name: Handle,
}
_DEADLINE = "a Deadline is expected, such as net.deadline()"


@frozen
class CheckedDatastore:
    """A datastore that refuses arguments of wrong types with InvalidArgument; everything else is the backend's."""

    backend: Datastore

    @property
    def description(self) -> DatastoreDescription:
        """What this store is."""
        return self.backend.description

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries; see :meth:`Datastore.read`."""
        for query in _member_types("read(queries)", queries):
            _check_query(query)
        require_type("read(deadline)", deadline, Deadline, _DEADLINE)
        return self.backend.read(queries, deadline=deadline)

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes; see :meth:`Datastore.commit`."""
        for write in _member_types("commit(writes)", writes):
            _check_write(write)
        require_type("commit(deadline)", deadline, Deadline, _DEADLINE)
        return self.backend.commit(writes, deadline=deadline)

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> Iterator[WatchEvent[object]]:
        """Every change of some kinds; see :meth:`Datastore.watch`."""
        require_type("watch(start)", start, Mapping, "a mapping of kinds to revisions is expected")
        for kind in start:
            require_type("watch(start)", kind, Kind, "a Kind is expected, such as IPPOOL")
        require_type("watch(deadline)", deadline, Deadline, _DEADLINE)
        return self.backend.watch(start, deadline=deadline)


def _member_types(where: str, values: object) -> Sequence[object]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise InvalidArgument(where, values, "a list is expected")
    return values


def _check_query(query: object) -> None:
    match query:
        case Get():
            require_type("Get(key)", query.key, Key, "a Key is expected, such as pool.key")
        case List():
            require_type("List(kind)", query.kind, Kind, "a Kind is expected, such as IPPOOL")
        case _:
            raise InvalidArgument("read(queries)", query, "a Get or a List is expected")


def _check_write(write: object) -> None:
    match write:
        case Create() | Update():
            _check_key(write)
            _check_value(write)
        case Delete() | Require():
            _check_key(write)
        case RequireUnchanged():
            require_type("RequireUnchanged(kind)", write.kind, Kind, "a Kind is expected, such as IPPOOL")
        case _:
            raise InvalidArgument("commit(writes)", write, "a Create, Update, Delete or requirement is expected")


def _check_key(write: Create[object] | Update[object] | Delete[object] | Require[object]) -> None:
    where = f"{type(write).__name__}(key)"
    require_type(where, write.key, Key, "a Key is expected, such as pool.key")
    require_tuple(where, write.key.path, str, "a Key of texts is expected, such as pool.key")


def _check_value(write: Create[object] | Update[object]) -> None:
    expected = _VALUE_TYPES.get(write.key.kind.name)
    if expected is None:  # a kind that is not netplug's
        return
    where = f"{type(write).__name__}(value)"
    require_type(where, write.value, expected, f"{_a(expected)} is expected")
    try:
        STORED_JSON.decode(write.key, STORED_JSON.encode(write.key, write.value))
    except (AttributeError, TypeError, ValueError, Malformed) as error:  # one of its fields has another type
        accepted = f"{_a(expected)} with fields of the right types is expected: {error}"
        raise InvalidArgument(where, write.value, accepted) from error


def _a(value_type: type) -> str:
    name = value_type.__name__
    return f"an {name}" if name[0] in "AEIO" else f"a {name}"


# --- what callers pass -----------------------------------------------------------------------------------------------

LIBRARY_OWNER = "virtual:library"
"""Whose blocks an assignment takes addresses from if it names no node."""

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@frozen
class Arguments:
    """The keyword arguments of one function."""

    function: str
    values: Mapping[str, object]

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Raises InvalidArgument for an argument that the function does not have."""
        for name, value in self.values.items():
            if name not in known:
                raise InvalidArgument(
                    self.where(name), value, f"there is no such argument; there are {', '.join(known)}"
                )

    def where(self, name: str) -> str:
        """How an error names an argument."""
        return f"{self.function}({name})"

    def get(self, name: str, check: Callable[[str, object], T], default: T) -> T:
        """The checked value of an argument; None is refused like any other wrong value."""
        return check(self.where(name), self.values[name]) if name in self.values else default


def pool_from_arguments(cidr: object, options: Mapping[str, object], known: Collection[str]) -> IPPool:
    """The pool that ``create_pool`` is to create. Its blocks are as large as the family's default, or as the pool."""
    given = Arguments("create_pool", options)
    given.refuse_unknown(known)
    prefix = _check_prefix(given.where("cidr"), cidr)
    spec = IPPoolSpec(
        prefix=prefix,
        block_length=_block_length(given, prefix),
        is_disabled=given.get("is_disabled", _check_flag, default=False),
        allowed_uses=given.get("allowed_uses", _check_uses, (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)),
        node_selector=given.get("node_selector", _check_text, "all()"),
        namespace_selector=given.get("namespace_selector", _check_text, ""),
        assignment_mode=given.get("assignment_mode", _member_of(AssignmentMode), AssignmentMode.AUTOMATIC),
    )
    return IPPool(metadata=Metadata(name=given.get("name", _check_text, prefix_to_name(prefix))), spec=spec)


def _block_length(given: Arguments, prefix: Prefix) -> int:
    length = given.get("block_length", _check_count, max(prefix.length, prefix.family.default_block_length))
    shortest, longest = prefix.family.block_lengths
    shortest = max(shortest, min(prefix.length, longest))
    if not shortest <= length <= longest:
        accepted = f"a prefix length from {shortest} to {longest} is expected for blocks of {prefix}"
        raise InvalidArgument(given.where("block_length"), length, accepted)
    return length


def request_from_arguments(
    handle: object, options: Mapping[str, object], known: Collection[str], *, default_node: str
) -> AssignRequest:
    """The request that ``assign`` is to make."""
    given = Arguments("assign", options)
    given.refuse_unknown(known)
    node = given.get("node", _check_node_name, default_node)
    return AssignRequest(
        handle=check_handle(given.function, handle),
        node=node,
        affine_to="" if node else LIBRARY_OWNER,
        wanted=_wanted(given),
        owner=given.get("owner", _check_pairs, ()),
        namespace_labels=given.get("namespace_labels", _check_pairs, ()),
        use=given.get("use", _member_of(AllowedUse), AllowedUse.WORKLOAD),
        shortfall=given.get("shortfall", _member_of(Shortfall), Shortfall.REFUSE),
    )


def check_handle(function: str, handle: object) -> str:
    """The handle that a function was called with.

    Raises:
        InvalidArgument: it is not a text, it is empty, or it has a control character.
    """
    if not isinstance(handle, str) or not handle or not is_key_text(handle):
        accepted = "a text of printable characters is expected, such as job-1"
        raise InvalidArgument(f"{function}(handle)", handle, accepted)
    return handle


def is_key_text(text: str) -> bool:
    """Whether every store can have a text in a key: it has no control character, and UTF-8 can encode it."""
    return text.isprintable()


def _wanted(given: Arguments) -> tuple[Wanted, ...]:
    any_pool: tuple[str, ...] = ()
    address, pools = given.get("address", _check_address, None), given.get("pools", _check_pools, any_pool)
    wanted: list[Wanted] = []
    for family, name in ((Family.IPV4, "ipv4"), (Family.IPV6, "ipv6")):
        count = given.get(name, _check_count, 0)
        if address is not None and address.family is family:
            if count:
                raise InvalidArgument(given.where(name), count, f"leave it out: address is {address}, of this family")
            wanted.append(Specific(address=address, pools=pools))
        elif count:
            wanted.append(Automatic(family=family, count=count, pools=pools))
    if not wanted:
        raise InvalidArgument(given.function, (), "one of ipv4, ipv6 and address is expected")
    if pools and len(wanted) > 1:
        accepted = "with pools, addresses of one family are expected: call once for each family"
        raise InvalidArgument(given.where("pools"), pools, accepted)
    return tuple(wanted)


# --- one argument ----------------------------------------------------------------------------------------------------


def _check_prefix(where: str, value: object) -> Prefix:
    if isinstance(value, Prefix):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return Prefix.parse(value)
        with suppress(ValueError):
            enclosing = Prefix.enclosing(value)
            raise InvalidArgument(where, value, f"it has host bits set; {enclosing} is the prefix that holds it")
    raise InvalidArgument(where, value, "a Prefix or a text such as 10.0.0.0/24 is expected")


def _check_address(where: str, value: object) -> Address | None:
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return Address.parse(value)
    raise InvalidArgument(where, value, "an Address or a text such as 10.0.0.7 is expected")


def _check_count(where: str, value: object) -> int:
    require_count(where, value)
    return value if isinstance(value, int) else 0


def _check_flag(where: str, value: object) -> bool:
    require_type(where, value, bool, "True or False is expected")
    return bool(value)


def _check_text(where: str, value: object) -> str:
    require_type(where, value, str, "a text is expected")
    return str(value)


def _check_node_name(where: str, value: object) -> str:
    if not isinstance(value, str) or not value or not is_key_text(value):
        accepted = "the name of a node is expected, of printable characters; leave it out for none"
        raise InvalidArgument(where, value, accepted)
    return value


def _check_pools(where: str, value: object) -> tuple[str, ...]:
    accepted = "a list of pools' names or prefixes is expected"
    if isinstance(value, str | bytes | Prefix) or not isinstance(value, Collection):
        raise InvalidArgument(where, value, accepted)
    for pool in value:
        if not isinstance(pool, str | Prefix | IPPool):
            raise InvalidArgument(where, pool, accepted)
    return tuple(pool.metadata.name if isinstance(pool, IPPool) else str(pool) for pool in value)


def _check_uses(where: str, value: object) -> tuple[AllowedUse, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Collection) or not value:
        raise InvalidArgument(where, value, f"a list is expected, of {_members(AllowedUse)}")
    return tuple(_member_of(AllowedUse)(where, use) for use in value)


def _check_pairs(where: str, value: object) -> Pairs:
    accepted = "a mapping of texts to texts is expected"
    require_type(where, value, Mapping, accepted)
    pairs = dict(value) if isinstance(value, Mapping) else {}
    if not all(isinstance(text, str) for pair in pairs.items() for text in pair):
        raise InvalidArgument(where, value, accepted)
    return tuple(sorted(pairs.items()))


def _member_of(enumeration: type[E]) -> Callable[[str, object], E]:
    def check(where: str, value: object) -> E:
        if isinstance(value, enumeration):
            return value
        raise InvalidArgument(where, value, f"one of {_members(enumeration)} is expected")

    return check


def _members(enumeration: type[Enum]) -> str:
    return ", ".join(map(str, enumeration))


# --- network ---------------------------------------------------------------------------------------------------------


R = TypeVar("R")


class PoolOptions(TypedDict, total=False):
    """What may be said of a new pool.

    ``name``: the default is made of the prefix, ``10-0-0-0-24``. ``block_length``: the prefix length of its blocks;
    the default is 26 (IPv6: 122), or the whole pool where that is smaller. ``allowed_uses``: the default is workloads
    and tunnels. ``node_selector`` and ``namespace_selector``: which nodes and namespaces it serves; the default is all.
    ``assignment_mode``: ``AssignmentMode.MANUAL`` serves only requests that name the pool. ``is_disabled``: it serves
    nothing.
    """

    name: str
    block_length: int
    allowed_uses: Collection[AllowedUse]
    node_selector: str
    namespace_selector: str
    assignment_mode: AssignmentMode
    is_disabled: bool


class AssignOptions(TypedDict, total=False):
    """What may be asked of an assignment.

    ``ipv4``, ``ipv6``: how many addresses the handle shall hold in all, at least one. ``address``: one address, and no
    other of its family. ``pools``: names or prefixes in the order to try them, of one family; the default is every
    pool that may serve. ``node``: whose blocks to take from; the default is the node of the network. ``use``: the
    default is ``AllowedUse.WORKLOAD``. ``owner``: names and values that are stored with each address. ``shortfall``:
    ``Shortfall.RETURN`` gives what there is where less can be had; the default raises. ``namespace_labels``: what
    pools select namespaces by.
    """

    ipv4: int
    ipv6: int
    address: str | Address
    pools: Collection[str | Prefix | IPPool]
    node: str
    use: AllowedUse
    owner: Mapping[str, str]
    shortfall: Shortfall
    namespace_labels: Mapping[str, str]


@frozen(kw_only=True)
class Network:
    """The pools and addresses of one open datastore. Any number of threads may use it.

    Each call takes at most ``timeout_s`` seconds. ``store`` is the typed datastore, ``ipam`` the address assignment
    with all that it offers. ``node`` is the node of this program, empty for none: addresses then come from blocks that
    all programs without a node share (``virtual:library``), and pools that select nodes by label do not serve.

    Every method raises InvalidArgument for an argument of a wrong type or value, Unavailable or ContentionExhausted
    for a datastore that does not answer in time.
    """

    store: CheckedDatastore
    ipam: IPAM
    host: HostServices
    node: str = ""
    timeout_s: float = 10.0

    def create_pool(self, cidr: str | Prefix, **options: Unpack[PoolOptions]) -> IPPool:
        """Store a new pool and return it; see :class:`PoolOptions`.

        Raises:
            ConfigurationError: there is a pool of that name or range, or the pool breaks another rule. The text names
                the field, its value and the rule.
        """
        pool = pool_from_arguments(cidr, options, PoolOptions.__annotations__)
        ensure_initialized(self.store, pace=self.pace(), new_uid=self.host.new_uid)
        create(self.store, Manifest(resource=pool), pace=self.pace(), new_uid=self.host.new_uid)
        return pool

    def pools(self) -> tuple[IPPool, ...]:
        """All pools, sorted by name."""
        query = List(IPPOOL)
        return tuple(record.value for record in self.store.read([query], deadline=self.deadline()).list(query))

    def assign(self, handle: str, **options: Unpack[AssignOptions]) -> tuple[Address, ...]:
        """Hold addresses under a handle and return them, IPv4 first; see :class:`AssignOptions`.

        What the handle holds already counts, so repeating a call changes nothing and returns the same addresses.

        Raises:
            AllocationError: they cannot be had, and nothing new is held. Its text says why, its ``identifier`` in a
                word.
        """
        request = request_from_arguments(handle, options, AssignOptions.__annotations__, default_node=self.node)
        assignment = self.ipam.assign(request, NO_ENDPOINT, deadline=self.deadline())
        return tuple(assigned.address for assigned in assignment.addresses)

    def release(self, handle: str) -> tuple[Address, ...]:
        """Free everything that a handle holds and return it; none for an unknown handle."""
        request = ReleaseRequest(handle=check_handle("release", handle))
        return self.ipam.release(request, NO_ENDPOINT, deadline=self.deadline()).addresses

    def held(self, handle: str) -> tuple[Address, ...]:
        """The addresses that a handle holds now; none for an unknown handle."""
        found = self.ipam.held(check_handle("held", handle), deadline=self.deadline())
        return () if found is None else found.addresses

    def run(self, queries: Sequence[Query], decide: Callable[[Snapshot], Decision[R] | NeedMore]) -> Decision[R]:
        """Change records of ``store``: read, decide and commit, and begin again if another writer was faster.

        ``decide`` is called with the answers to the queries, and again after a conflict or a lost reply. So it looks
        first whether its work is done.

        Raises:
            NetplugError: the error that is the result of the decision.
            OutcomeUnknown: the reply to the last attempt was lost.
        """

        def checked(snapshot: Snapshot) -> Decision[R] | NeedMore:
            decision = decide(snapshot)
            accepted = "a function is expected that returns a Decision or NeedMore"
            require_type("run(decide)", decision, Decision | NeedMore, accepted)
            return decision

        return Transaction(self.store, self.pace()).run(queries, checked)

    def deadline(self, seconds: float | None = None) -> Deadline:
        """The deadline of a call that begins now, for ``store`` and ``ipam``; the default is ``timeout_s``."""
        return Deadline.after(self.host.clock, self.timeout_s if seconds is None else seconds)

    def pace(self) -> Pace:
        """How long a change may take from now, and how to wait between its attempts."""
        return Pace(clock=self.host.clock, deadline=self.deadline(), chance=self.host.chance)


# --- opening ---------------------------------------------------------------------------------------------------------


class OpenOptions(TypedDict, total=False):
    """What ``open`` takes besides the URL.

    ``node``: the node of this program, whose blocks its addresses come from; the default is none. ``timeout_s``: how
    many seconds one call may take; the default is 10. ``host``: replaces clock, chance and identifiers of the machine,
    for tests.
    """

    node: str
    timeout_s: float
    host: HostServices | None


def open(  # noqa: A001  as its users write it: netplug_core.open
    url: str | DatastoreSettings, **options: Unpack[OpenOptions]
) -> AbstractContextManager[Network]:
    """The network in a datastore, open for as long as the context lasts: use it in a ``with`` block.

    ``url`` names the datastore: ``memory:`` (empty, and gone with the process), ``sqlite:///path/of/file``,
    ``etcd://host:2379``, ``kubernetes:``, or the name of an installed backend and a colon; or it is settings that were
    read elsewhere. :class:`OpenOptions` has the other arguments.

    Raises:
        InvalidURL: it is not the URL of a datastore; no password is shown.
        ConfigurationError: a package is missing, or the backend cannot use its settings.
        InvalidArgument: an argument of a wrong type or value, or one that does not exist.
    """
    given = Arguments("open", options)
    given.refuse_unknown(OpenOptions.__annotations__)
    settings = _settings(url)
    node, timeout_s = given.get("node", _check_node, ""), given.get("timeout_s", _check_timeout, 10.0)
    return _Opening(_open(url, settings, (node, timeout_s), given.get("host", _check_host, None)))


@frozen
class _Opening(AbstractContextManager[Network]):
    """A network that is opened on entry to a ``with`` block. Its error says so to a program that forgets the block."""

    context: AbstractContextManager[Network]

    def __enter__(self) -> Network:
        return self.context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self.context.__exit__(kind, error, traceback)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"what netplug_core.open() returns has no attribute {name!r}: use it in a with block, "
            "such as: with netplug_core.open(url) as net: net.pools()"
        )


def _settings(url: object) -> DatastoreSettings:
    if isinstance(url, DatastoreSettings):
        return url
    if not isinstance(url, str):
        raise InvalidArgument("open(url)", url, "a URL such as memory: is expected, or DatastoreSettings")
    return datastore_settings_from_url(url)


def _check_node(where: str, node: object) -> str:
    if not isinstance(node, str) or not is_key_text(node):
        raise InvalidArgument(where, node, "the name of a node is expected, of printable characters, or an empty text")
    return node


def _check_timeout(where: str, seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidArgument(where, seconds, "a number of seconds greater than 0 is expected")
    return seconds


def _check_host(where: str, host: object) -> HostServices | None:
    if host is None or isinstance(host, HostServices):
        return host
    raise InvalidArgument(where, host, "a HostServices is expected")


@contextmanager
def _open(
    url: str | DatastoreSettings, settings: DatastoreSettings, options: tuple[str, float], host: HostServices | None
) -> Iterator[Network]:
    node, timeout_s = options
    registry = Registry()
    with ExitStack() as stack:
        services = stack.enter_context(registry.open_host()) if host is None else host
        try:
            opening = registry.open_datastore(settings.type, settings, services.clock)
        except UnknownBackend as error:
            if not isinstance(url, str):
                raise
            raise InvalidURL.of(url, f"no datastore is called {settings.type!r}", error.accepted) from None
        backend = stack.enter_context(opening)
        context = IPAMContext(datastore=backend, clock=services.clock, chance=services.chance)
        ipam = stack.enter_context(registry.open_ipam("netplug-ipam", context))
        yield Network(store=CheckedDatastore(backend), ipam=ipam, host=services, node=node, timeout_s=timeout_s)
