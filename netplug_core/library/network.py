"""Pools and addresses of one datastore, for programs: what ``netplug_core.open`` returns.

Everything here is a call of a flow or of the IPAM with checked arguments. What it does not offer, ``store`` and
``ipam`` do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypedDict, TypeVar, Unpack

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import require_type
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.flows.resources.write import create
from netplug_core.hookspecs import HostServices
from netplug_core.ipam.allocation.request import ReleaseRequest, Shortfall
from netplug_core.ipam.protocol import IPAM, NO_ENDPOINT
from netplug_core.library.arguments import check_handle, pool_from_arguments, request_from_arguments
from netplug_core.library.checked_datastore import CheckedDatastore
from netplug_core.records import Decision, List, NeedMore, Query, Snapshot
from netplug_core.resources.ippool import IPPOOL, AllowedUse, AssignmentMode, IPPool
from netplug_core.resources.manifest import Manifest

__all__ = ["AssignOptions", "Network", "PoolOptions"]

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
