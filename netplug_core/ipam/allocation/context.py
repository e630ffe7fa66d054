"""The inputs of one assignment, read once: ``decide`` opens an ``AllocationContext`` and every rule looks into it.

``FamilyAllocation`` collects what is taken for one address family, ``FamilyOutcome`` is what the family gets. Nothing
is decided here but which addresses of a block may be assigned at all.

These classes live within one decision, so they are not frozen: a frozen object takes three times as long to make, and
an assignment makes a dozen of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias, TypeVar

from attrs import Factory, define, evolve, field

from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.ownership import BlockCandidate, Claimant
from netplug_core.ipam.allocation.pools import (
    BlockOrder,
    Cooldown,
    Pools,
    Reserved,
    find_configuration,
    older_overlaps,
    selects_some,
    unread_entries,
)
from netplug_core.ipam.allocation.request import AssignedAddress, AssignRequest, Automatic, LinkLayer
from netplug_core.ipam.model import (
    Affinity,
    Block,
    Handle,
    affinities_query,
    block_query,
    claimed_block,
    current_affinities_query,
    handle_query,
)
from netplug_core.ipam.outcome import BlockOutcome, BlockTrace, left_out
from netplug_core.records import Get, List, Malformed, NeedMore, Query, Record, Snapshot, TraceEntry
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION_KEY,
    IPPOOL,
    IPRESERVATION,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPReservation,
)
from netplug_core.resources.node import Node, node_key

__all__ = [
    "ACTIONS_PER_COMMIT", "ADDRESSES_PER_COMMIT", "BLOCKS_FREED_PER_COMMIT", "BLOCKS_PER_COMMIT",
    "BLOCKS_PER_RESTORED_HANDLE", "CONFIGURATION", "DEFAULT_BLOCK_LIMIT", "POOLS", "RECORDS_PER_ASSIGNMENT",
    "RECORDS_PER_RELEASE", "RELEASES_PER_DECISION", "RESERVATIONS", "AllocationContext", "Draw", "FamilyAllocation",
    "FamilyOutcome", "OwnAffinity", "RelinquishedBlock", "batches", "first_drawn", "held_addresses", "link_reserved",
]  # fmt: skip


# --- commit sizes ----------------------------------------------------------------------------------------------------


T = TypeVar("T")

ADDRESSES_PER_COMMIT = 32
"""Addresses released in one commit. Each may need two writes: its block and its handle."""

BLOCKS_PER_COMMIT = 16
"""Blocks claimed or relinquished in one commit. Each may need three writes: the block and two affinities."""

ACTIONS_PER_COMMIT = 16
"""Actions of the garbage collector in one commit. Freeing a handle writes the handle and each block that it names."""

BLOCKS_FREED_PER_COMMIT = 32
"""Blocks in which one commit of the garbage collector frees addresses. Each is a write, beside those of the handles."""

RELEASES_PER_DECISION = 20
"""Affinities that an assignment gives up beside its own work, and blocks of a handle that one commit releases. Each may
need three writes: the block and two of its affinity. The next decision goes on with the rest."""

RECORDS_PER_ASSIGNMENT = 100
"""Blocks, affinities and pools that the commit of an assignment changes or requires, in both families. What takes
addresses comes first, with the blocks without whose release the claimant would exceed its limit; what is left is for
other affinities to give up. The rest of the commit is for the configuration, the node, the handle and the endpoint."""

RECORDS_PER_RELEASE = 2
"""A block that is given up, and the affinity to it."""

BLOCKS_PER_RESTORED_HANDLE = 100
"""Blocks from which one commit restores a handle: it requires that they are unchanged."""


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in their order, at most ``size`` at a time."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


# --- context ---------------------------------------------------------------------------------------------------------


DEFAULT_BLOCK_LIMIT = 20
"""Blocks of a family that a node may own where no limit is set: then it claims no more, and borrows."""

POOLS = List(IPPOOL)
RESERVATIONS = List(IPRESERVATION)
CONFIGURATION = Get(IPAM_CONFIGURATION_KEY)

_DEFAULTS = IPAMConfigurationSpec()


@define(kw_only=True)
class OwnAffinity:
    """One of the claimant's affinities, and the block that it names; None where no such block is stored.

    ``is_later``: a list of affinities was read a second time, and has this one, or this state of it, in addition. The
    block may have been read before.
    """

    affinity: Record[Affinity]
    prefix: Prefix
    block: Record[Block] | None
    is_later: bool = False


Draw: TypeAlias = Callable[[], float]
"""Draws a random number from 0 to 1, the same in every decision of one call."""


def first_drawn() -> float:
    """The draw where nothing is random."""
    return 0.0


@define(kw_only=True)
class AllocationContext:
    """What one decision knows.

    ``own_affinities`` are the claimant's, by family. ``handle_blocks`` are the blocks that the handle names, as far as
    they are stored. ``has_read_node``: the node is read only where a pool selects nodes by labels; ``node`` is None
    where it was not read or is not registered. ``reserved`` is None where there are no reservations.

    A record that cannot be understood is passed over: only the claimant's handle, and its blocks, must be sound.
    ``unreadable`` are blocks that the claimant has affinities to and that are damaged. ``draw`` chooses among
    the blocks of others. ``records_left`` is how many more blocks, affinities and pools the commit takes, and
    ``releases_left`` how many more of the claimant's own blocks it may give up.
    """

    snapshot: Snapshot
    request: AssignRequest
    claimant: Claimant
    order: BlockOrder
    pools: Pools
    configuration: Record[IPAMConfiguration] | None
    reserved: Reserved | None
    handle: Record[Handle] | None
    handle_blocks: tuple[Record[Block], ...]
    own_affinities: Mapping[Family, tuple[OwnAffinity, ...]]
    unreadable: tuple[Prefix, ...]
    has_read_node: bool
    node: Record[Node] | None
    draw: Draw
    records_left: int = RECORDS_PER_ASSIGNMENT
    releases_left: int = RELEASES_PER_DECISION

    @classmethod
    def open(
        cls, snapshot: Snapshot, request: AssignRequest, now_ns: int, order: BlockOrder, draw: Draw = first_drawn
    ) -> AllocationContext | NeedMore:
        """The context of a request, from a snapshot with the answers to ``decide.queries``; or what else to read.

        Only a first read names the rest: the blocks of the handle and of the affinities, and the node's labels.
        """
        pools = snapshot.readable(POOLS)
        unread: list[Query] = []
        unreadable: list[Prefix] = []
        handle = snapshot.find(handle_query(request.handle)) if request.handle is not None else None
        handle_blocks = _blocks_of(snapshot, handle, unread) if handle else ()
        owner = request.claimant
        own_affinities = {
            wanted.family: _own_affinities(snapshot, (owner, wanted.family), unread, unreadable)
            for wanted in request.wanted
            if isinstance(wanted, Automatic)
        }
        reads_node = bool(request.node) and selects_some(pools, own_affinities.keys())
        if reads_node and not snapshot.has(Get(node_key(request.node))):
            unread.append(Get(node_key(request.node)))
        if unread:
            return NeedMore(tuple(dict.fromkeys(unread)))
        cooldown = Cooldown.configured(configuration := find_configuration(snapshot), now_ns)
        return cls(
            snapshot=snapshot,
            request=request,
            claimant=Claimant(owner=owner, cooldown=cooldown, host_reserved=request.host_reserved),
            order=order,
            pools=pools,
            configuration=configuration,
            reserved=_reserved(snapshot),
            handle=handle,
            handle_blocks=handle_blocks,
            own_affinities=own_affinities,
            unreadable=tuple(unreadable),
            has_read_node=reads_node,
            node=_readable_node(snapshot, request) if reads_node else None,
            draw=draw,
        )

    @property
    def settings(self) -> IPAMConfigurationSpec:
        """The stored configuration, or the defaults where there is none."""
        return self.configuration.value.spec if self.configuration else _DEFAULTS

    @property
    def now_ns(self) -> int:
        """The time of the decision."""
        return self.claimant.cooldown.now_ns

    @property
    def labels(self) -> Mapping[str, str] | None:
        """The node's labels, none if it is not registered; None if its record cannot be read."""
        if self.has_read_node and self.snapshot.malformed(Get(node_key(self.request.node))):
            return None
        return dict(self.node.value.metadata.labels) if self.node else {}

    @property
    def malformed(self) -> tuple[Malformed, ...]:
        """What is wrong with the records that were read and cannot be understood."""
        return tuple([error for result in self.snapshot.results.values() for error in result.malformed])

    @property
    def passed_over(self) -> tuple[TraceEntry, ...]:
        """The records that were read and cannot be understood as a whole, and what was done instead."""
        damaged = left_out(self.snapshot) if self.malformed else ()
        unread = [unread_entries(each) for each in self.snapshot.readable(RESERVATIONS) if each.value.spec.unparsed]
        return (*damaged, *chain.from_iterable(unread))

    @property
    def knows_selection(self) -> bool:
        """Whether it is known which pools select the node: its pools and the node itself can be read."""
        return self.labels is not None and not self.snapshot.malformed(POOLS)

    @property
    def block_limit(self) -> int:
        """How many blocks of a family the claimant may own."""
        return min(self.explicit_limits, default=DEFAULT_BLOCK_LIMIT)

    @property
    def explicit_limits(self) -> tuple[int, ...]:
        """The limits that are set: the configuration's and the request's."""
        of_request = () if self.request.block_limit is None else (self.request.block_limit,)
        return (*((self.settings.max_blocks_per_host,) if self.settings.max_blocks_per_host else ()), *of_request)

    def reread_affinities(self, family: Family) -> NeedMore | None:
        """The query for the claimant's affinities without a cache; None unless a cache of the store answered it."""
        owner = self.request.claimant
        current = current_affinities_query(owner, family)
        is_cached = self.snapshot.results[affinities_query(owner, family)].is_cached
        return NeedMore((current,)) if is_cached and not self.snapshot.has(current) else None

    def find_assignable(self, pool: Prefix, block: Block, count: int) -> tuple[Ordinal, ...]:
        """Up to ``count`` free ordinals of a pool's block that may be assigned, the longest-free first.

        A block whose stored form nears what a store accepts has none.
        """
        if block.is_at_size_limit:
            return ()
        return block.find_free(count, self.may_assign(pool, block.prefix))

    def may_assign(self, pool: Prefix, block: Prefix) -> Callable[[Address], bool] | None:
        """Whether an address of a block may be assigned; None where every one may."""
        reserved = self.reserved
        is_routed = self.request.link_layer is LinkLayer.L3
        if is_routed and (reserved is None or not reserved.overlaps(block)):
            return None
        excluded = () if is_routed else link_reserved(pool)
        return lambda address: address not in excluded and not (reserved and reserved.contains(address))


def link_reserved(pool: Prefix) -> tuple[Address, ...]:
    """The addresses of a pool that are not assigned on a shared link: network, gateway and broadcast address."""
    return (pool.first, pool.nth(1 % pool.size), pool.last)


def _reserved(snapshot: Snapshot) -> Reserved | None:
    """What is reserved, also by a reservation of which only a part can be read."""
    reservations = [record.value for record in snapshot.readable(RESERVATIONS)]
    parts = [error.counts_as for error in snapshot.malformed(RESERVATIONS)]
    reservations.extend(part for part in parts if isinstance(part, IPReservation))
    if not reservations:
        return None
    return Reserved.of(prefix for reservation in reservations for prefix in reservation.spec.reserved)


def _blocks_of(snapshot: Snapshot, handle: Record[Handle], unread: list[Query]) -> tuple[Record[Block], ...]:
    blocks = [snapshot.find_or_note(block_query(prefix), unread) for prefix, _count in handle.value.blocks]
    return tuple([record for record in blocks if record is not None])


def _readable_node(snapshot: Snapshot, request: AssignRequest) -> Record[Node] | None:
    nodes = snapshot.readable(Get(node_key(request.node)))
    return nodes[0] if nodes else None


def _own_affinities(
    snapshot: Snapshot, of: tuple[str, Family], unread: list[Query], unreadable: list[Prefix]
) -> tuple[OwnAffinity, ...]:
    found: list[OwnAffinity] = []
    query, first = affinities_query(*of), None
    if snapshot.results[query].is_cached and snapshot.has(current := current_affinities_query(*of)):
        first = {record.key: record.revision for record in snapshot.readable(query)}
        query = current
    for affinity in snapshot.readable(query):
        try:
            prefix = claimed_block(affinity.key)
        except Malformed:
            continue
        try:
            block = snapshot.find_or_note(block_query(prefix), unread)
        except Malformed:
            unreadable.append(prefix)
        else:
            is_later = first is not None and first.get(affinity.key) != affinity.revision
            found.append(OwnAffinity(affinity=affinity, prefix=prefix, block=block, is_later=is_later))
    return tuple(found)


@define(kw_only=True)
class FamilyAllocation:
    """What is taken for one address family so far, and what became of each block that was looked at.

    Of ``wanted`` addresses ``missing`` are still to be found, and ``postponed`` are not looked for any more because the
    commit takes no more blocks. ``room`` is how many blocks the claimant may still come
    to own, ``may_borrow`` whether addresses of other nodes' blocks may be taken. ``stale`` are its affinities to blocks
    that it does not own; one of a block that it acquires after all is used for that block.

    ``relinquished`` are the claimant's blocks that may be given up; ``room`` does not count them. Where a limit is set,
    the commit must give up the first ``required`` of them: without that the claimant would own more than it may.
    """

    context: AllocationContext
    wanted: int
    missing: int
    room: int
    may_borrow: bool
    stale: dict[Prefix, Record[Affinity]]
    relinquished: Sequence[RelinquishedBlock] = ()
    required: int = 0
    postponed: int = 0
    candidates: list[BlockCandidate] = field(default=Factory(list))
    trace: list[TraceEntry] = field(default=Factory(list))
    seen: set[Prefix] = field(default=Factory(set))

    @property
    def is_at_limit(self) -> bool:
        """Whether a limit that is set allows no more blocks; the default limit ends claiming, not borrowing."""
        return self.room <= 0 and bool(self.context.explicit_limits)

    def take(self, candidate: BlockCandidate, further_records: int = 0) -> None:
        """Take from a block as much of what is missing as may be assigned.

        ``further_records`` are what the commit changes for it besides.
        """
        prefix, pool = candidate.block.prefix, candidate.pool.value.spec.prefix
        reserved = self.context.reserved
        self.seen.add(prefix)
        if reserved is not None and reserved.covers(prefix):
            self.note(prefix, BlockOutcome.RESERVED)
            return
        ordinals = self.context.find_assignable(pool, candidate.block, self.missing)
        if not ordinals:
            is_too_large = bool(candidate.block.free) and candidate.block.is_at_size_limit
            self.note(prefix, BlockOutcome.TOO_LARGE if is_too_large else BlockOutcome.FULL)
            return
        is_first_of_pool = all(other.pool.key != candidate.pool.key for other in self.candidates)
        records = candidate.record_count + is_first_of_pool + further_records
        if records > self.context.records_left:
            self.postponed, self.missing = self.missing, 0
            return
        self.context.records_left -= records
        self.candidates.append(candidate.with_ordinals(ordinals))
        self.missing -= len(ordinals)
        self.note(prefix, candidate.outcome)

    def acquire(self, candidate: BlockCandidate) -> None:
        """The same with a block that the claimant comes to own by it; a block that gives nothing is not acquired."""
        before, prefix = len(self.candidates), candidate.block.prefix
        stale = self.stale.get(prefix)
        required = self._required_after_one_more()
        self.take(
            candidate if stale is None else evolve(candidate, affinity=stale),
            (required - self.required) * RECORDS_PER_RELEASE,
        )
        if len(self.candidates) > before:
            self.room -= 1
            self.required = required
            self.stale.pop(prefix, None)

    def _required_after_one_more(self) -> int:
        if not self.context.explicit_limits:
            return 0
        return max(0, len(self.relinquished) - self.room + 1)

    def note(self, block: Prefix, outcome: BlockOutcome, detail: str = "") -> None:
        """Add to the trace what became of a block."""
        self.trace.append(BlockTrace(block=block, outcome=outcome, detail=detail))


@define(kw_only=True)
class RelinquishedBlock:
    """An empty block of the claimant that no pool gives it any more, and the affinity to it.

    Its pool is gone, is not enabled, or does not select the claimant's node.
    """

    affinity: Record[Affinity]
    block: Record[Block]


@define(kw_only=True)
class FamilyOutcome:
    """What one family gets: the addresses that the handle holds already, and candidates to take more from.

    ``stale`` are affinities to blocks of other owners, to be deleted; ``relinquished`` are blocks to be given up, the
    first ``required`` of them in the same commit as the candidates. ``refusal`` says why less than asked can be had.
    ``has_limited_claims``: candidates make blocks the claimant's while an explicit limit says how many it may own.
    """

    held: tuple[AssignedAddress, ...] = ()
    candidates: tuple[BlockCandidate, ...] = ()
    stale: tuple[Record[Affinity], ...] = ()
    relinquished: tuple[RelinquishedBlock, ...] = ()
    required: int = 0
    trace: tuple[TraceEntry, ...] = ()
    refusal: NetplugError | None = None
    has_limited_claims: bool = False


def held_addresses(context: AllocationContext, family: Family) -> tuple[AssignedAddress, ...]:
    """The addresses of a family that the handle holds already."""
    handle = context.request.handle
    if handle is None or not context.handle_blocks:
        return ()
    return tuple(
        AssignedAddress(address=held.address, prefix=_range(context.pools, record.value.prefix))
        for record in context.handle_blocks
        if record.value.prefix.family is family
        for held in record.value.held_by(handle)
    )


def _range(pools: Pools, block: Prefix) -> Prefix:
    """The prefix of the pool that covers a block; the block's own where the pool is gone.

    Of pools that overlap, the oldest gives the addresses.
    """
    overlaps = older_overlaps(pools)
    covering = [pool for pool in pools if pool.value.spec.prefix.covers(block)]
    covering.sort(key=lambda pool: pool.key.name in overlaps)
    return covering[0].value.spec.prefix if covering else block
