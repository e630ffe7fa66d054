"""``netplug_core.open``, from a URL to an open network, and what that offers: pools and addresses of one datastore.

Backends and the host are found by their entry points, so that this module imports none of them. Everything here is a
call of a flow or of the IPAM with checked arguments. What it does not offer, ``store`` and ``ipam`` do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import NoReturn, TypedDict, TypeVar, Unpack

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import InvalidArgument, require_type
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.flows.resources.write import create
from netplug_core.hookspecs import HostServices, IPAMContext
from netplug_core.ipam.allocation.request import ReleaseRequest, Shortfall
from netplug_core.ipam.protocol import IPAM, NO_ENDPOINT
from netplug_core.library.arguments import (
    Arguments,
    check_handle,
    is_key_text,
    pool_from_arguments,
    request_from_arguments,
)
from netplug_core.library.checked_datastore import CheckedDatastore
from netplug_core.records import Decision, List, NeedMore, Query, Snapshot
from netplug_core.registry import Registry, UnknownBackend
from netplug_core.resources.ippool import IPPOOL, AllowedUse, AssignmentMode, IPPool
from netplug_core.resources.manifest import Manifest
from netplug_core.settings.model import DatastoreSettings
from netplug_core.settings.url import InvalidURL, datastore_settings_from_url

__all__ = [
    "AssignOptions", "Network", "OpenOptions", "PoolOptions", "open",
]  # fmt: skip


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
