"""What an assignment works with: one reading of the store, the request and the moment, each looked up once.

``decide`` opens a desk; ``supply``, ``places`` and ``specific`` fill baskets at it. Nothing is decided here but whether
a block has an address that may be given.

What lives within one decision and is not part of its answer is not frozen when the program runs, here and in
``supply``: to make a frozen object takes three times as long, and an address takes a dozen of them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from attrs import Factory, define, evolve, field

from netplug_core.addressing import Address, Family, Ordinal, Prefix
from netplug_core.ipam.allocation.block_order import BlockOrder
from netplug_core.ipam.allocation.pools import Pools, selects_some
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, LinkLayer
from netplug_core.ipam.allocation.reservations import NOTHING_RESERVED, Reserved
from netplug_core.ipam.model.affinity import Affinity, affinities_query, claimed_block
from netplug_core.ipam.model.block import Block, block_query
from netplug_core.ipam.model.handle import Handle, handle_query
from netplug_core.ipam.outcome.trace import BlockOutcome, BlockTrace
from netplug_core.records import Get, List, NeedMore, Query, Record, Revision, Snapshot, TraceEntry
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY, IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.ipreservation import IPRESERVATION
from netplug_core.resources.node import Node, node_key

__all__ = [
    "CONFIGURATION",
    "DEFAULT_BLOCK_LIMIT",
    "POOLS",
    "RESERVATIONS",
    "Acquisition",
    "AllocationContext",
    "BlockCandidate",
    "FamilyAllocation",
    "OwnAffinity",
    "link_reserved",
]

DEFAULT_BLOCK_LIMIT = 20
"""Blocks a node may own where nothing says otherwise; it stops claiming then, and borrows."""

POOLS = List(IPPOOL)
RESERVATIONS = List(IPRESERVATION)
CONFIGURATION = Get(IPAM_CONFIGURATION_KEY)

_DEFAULTS = IPAMConfigurationSpec()
_SECOND_NS = 1_000_000_000


class Acquisition(enum.Enum):
    """What has to be written before addresses of a block are taken: how it becomes one that may give them."""

    OWN = "ours, and our affinity says so"
    UNCONFIRMED = "ours, and our affinity does not say so"
    NEW = "not there yet"
    ADOPTED = "nobody's"
    TAKEN_OVER = "another's, and empty for long"
    BORROWED = "another's, and stays so"


_OUTCOMES = {
    Acquisition.OWN: BlockOutcome.TAKEN_FROM,
    Acquisition.UNCONFIRMED: BlockOutcome.CLAIMED,
    Acquisition.NEW: BlockOutcome.CLAIMED,
    Acquisition.ADOPTED: BlockOutcome.ADOPTED,
    Acquisition.TAKEN_OVER: BlockOutcome.TAKEN_OVER,
    Acquisition.BORROWED: BlockOutcome.BORROWED_FROM,
}


@define(kw_only=True)
class BlockCandidate:
    """Free ordinals of one block, to be taken.

    ``block`` is the state to take them from: as stored, or as it will be once it is ours. ``revision`` is None for a
    block that has to be created; ``affinity`` is our claim as read, None where there is none; ``rival`` is the claim
    of the owner that a block is taken over from.
    """

    pool: Record[IPPool]
    block: Block
    revision: Revision | None
    acquisition: Acquisition
    affinity: Record[Affinity] | None = None
    previous_affinity: Record[Affinity] | None = None
    ordinals: tuple[Ordinal, ...] = ()

    @property
    def outcome(self) -> BlockOutcome:
        """What the trace says of a block that is used so."""
        return _OUTCOMES[self.acquisition]

    def with_ordinals(self, ordinals: tuple[Ordinal, ...]) -> BlockCandidate:
        """This hold with the ordinals that are to be taken."""
        return BlockCandidate(
            pool=self.pool,
            block=self.block,
            revision=self.revision,
            acquisition=self.acquisition,
            affinity=self.affinity,
            previous_affinity=self.previous_affinity,
            ordinals=ordinals,
        )


@define(kw_only=True)
class OwnAffinity:
    """One of the claimant's affinities, and the block that it leads to; None where there is none (yet, or any more)."""

    affinity: Record[Affinity]
    prefix: Prefix
    block: Record[Block] | None


@define(kw_only=True)
class AllocationContext:
    """One decision's inputs.

    ``claims`` are the claimant's, by family; ``held`` are the blocks that the handle names, as far as they are there.
    ``node`` was read (``is_node_known``) only where a pool selects nodes by their labels; a node that is not there has
    none.
    """

    snapshot: Snapshot
    request: AssignRequest
    now_ns: int
    order: BlockOrder
    pools: Pools
    configuration: Record[IPAMConfiguration] | None
    reserved: Reserved
    handle: Record[Handle] | None
    handle_blocks: tuple[Record[Block], ...]
    own_affinities: Mapping[Family, tuple[OwnAffinity, ...]]
    has_read_node: bool
    node: Record[Node] | None

    @classmethod
    def open(
        cls, snapshot: Snapshot, request: AssignRequest, now_ns: int, order: BlockOrder
    ) -> AllocationContext | NeedMore:
        """The desk for a request, from a snapshot that has the answers to ``decide.queries``, or what is missing.

        That is what only a first read could name: the blocks of the handle and of the affinities, the node's labels.
        """
        pools, unread = snapshot.list(POOLS), list[Query]()
        handle = snapshot.find(handle_query(request.handle)) if request.handle is not None else None
        named = (_block(snapshot, prefix, unread) for prefix, _count in handle.value.blocks) if handle else ()
        held = tuple(record for record in named if record is not None)
        claims = {
            wanted.family: _own_affinities(snapshot, request.claimant, wanted.family, unread)
            for wanted in request.wanted
            if isinstance(wanted, Automatic)
        }
        is_node_known = bool(request.node) and any(selects_some(pools, family) for family in claims)
        if is_node_known and not snapshot.has(Get(node_key(request.node))):
            unread.append(Get(node_key(request.node)))
        if unread:
            return NeedMore(tuple(dict.fromkeys(unread)))
        reservations = snapshot.list(RESERVATIONS)
        return cls(
            snapshot=snapshot,
            request=request,
            now_ns=now_ns,
            order=order,
            pools=pools,
            configuration=snapshot.find(CONFIGURATION),
            reserved=Reserved.of(prefix for record in reservations for prefix in record.value.spec.reserved)
            if reservations
            else NOTHING_RESERVED,
            handle=handle,
            handle_blocks=held,
            own_affinities=claims,
            has_read_node=is_node_known,
            node=snapshot.find(node_key(request.node)) if is_node_known else None,
        )

    @property
    def rules(self) -> IPAMConfigurationSpec:
        """The configuration, or its defaults where nobody configured anything."""
        return self.configuration.value.spec if self.configuration else _DEFAULTS

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's labels."""
        return dict(self.node.value.metadata.labels) if self.node else {}

    @property
    def limit(self) -> int:
        """How many blocks of a family the claimant may own."""
        return min(self.limits, default=DEFAULT_BLOCK_LIMIT)

    @property
    def limits(self) -> tuple[int, ...]:
        """The limits that somebody set: the configuration's and the request's."""
        of_request = () if self.request.block_limit is None else (self.request.block_limit,)
        return (*((self.rules.max_blocks_per_host,) if self.rules.max_blocks_per_host else ()), *of_request)

    def expire_cooldown(self, block: Block) -> Block:
        """A block in which addresses that have cooled down are free."""
        return block.expire_cooldown(self.now_ns, self.rules.cooldown_s * _SECOND_NS)

    def new_block(self, prefix: Prefix) -> Block:
        """An empty block that the claimant makes now."""
        return Block.new(
            prefix, owner=self.request.claimant, now_ns=self.now_ns, host_reserved=self.request.host_reserved
        )

    def servable(self, pool: Prefix, block: Block, count: int) -> tuple[Ordinal, ...]:
        """Up to so many free ordinals of a pool's block that may be given, the longest-free first."""
        return block.find_free(count, self.may_serve(pool, block.prefix))

    def may_serve(self, pool: Prefix, block: Prefix) -> Callable[[Address], bool] | None:
        """Whether an address of a block may be given at all; None where every one may."""
        reserved = self.reserved
        is_routed = self.request.link_layer is LinkLayer.L3
        if is_routed and (reserved.is_empty or not reserved.overlaps(block)):
            return None
        excluded = () if is_routed else link_reserved(pool)
        return lambda address: address not in excluded and not reserved.contains(address)


def link_reserved(pool: Prefix) -> tuple[Address, ...]:
    """The addresses of a pool that nobody may have on a shared link: network, gateway and broadcast address."""
    return (pool.first, pool.nth(1 % pool.size), pool.last)


def _own_affinities(snapshot: Snapshot, claimant: str, family: Family, unread: list[Query]) -> tuple[OwnAffinity, ...]:
    claims: list[OwnAffinity] = []
    for affinity in snapshot.list(affinities_query(claimant, family)):
        prefix = claimed_block(affinity.key)
        claims.append(OwnAffinity(affinity=affinity, prefix=prefix, block=_block(snapshot, prefix, unread)))
    return tuple(claims)


def _block(snapshot: Snapshot, prefix: Prefix, unread: list[Query]) -> Record[Block] | None:
    query = block_query(prefix)
    if not snapshot.has(query):
        unread.append(query)
        return None
    return snapshot.find(query)


@define(kw_only=True)
class FamilyAllocation:
    """What one family is filled with: the holds so far, and what was noted on the way.

    It lives within one decision. Of ``wanted`` addresses ``missing`` are still to be found; ``room`` is how many
    blocks may still become the claimant's, and ``may_borrow`` whether blocks of others will do. ``stale`` are claims of
    ours on blocks that are not ours: one of a block that becomes ours after all goes along with it.
    """

    context: AllocationContext
    wanted: int
    missing: int
    room: int
    may_borrow: bool
    stale: dict[Prefix, Record[Affinity]]
    candidates: list[BlockCandidate] = field(default=Factory(list))
    trace: list[TraceEntry] = field(default=Factory(list))
    seen: set[Prefix] = field(default=Factory(set))

    def take_from(self, hold: BlockCandidate) -> None:
        """Take from a block what is missing and what it may give; note what became of it."""
        prefix, pool = hold.block.prefix, hold.pool.value.spec.prefix
        reserved = self.context.reserved
        self.seen.add(prefix)
        if not reserved.is_empty and reserved.covers(prefix):
            self.record(prefix, BlockOutcome.RESERVED)
            return
        ordinals = self.context.servable(pool, hold.block, self.missing)
        if not ordinals:
            self.record(prefix, BlockOutcome.FULL)
            return
        self.candidates.append(hold.with_ordinals(ordinals))
        self.missing -= len(ordinals)
        self.record(prefix, hold.outcome)

    def take_and_claim(self, hold: BlockCandidate) -> None:
        """The same with a block that becomes the claimant's by it; a block that gives nothing is not claimed."""
        before, prefix = len(self.candidates), hold.block.prefix
        stale = self.stale.get(prefix)
        self.take_from(hold if stale is None else evolve(hold, affinity=stale))
        if len(self.candidates) > before:
            self.room -= 1
            self.stale.pop(prefix, None)

    def record(self, block: Prefix, outcome: BlockOutcome, detail: str = "") -> None:
        """Remember what became of a block."""
        self.trace.append(BlockTrace(block=block, outcome=outcome, detail=detail))
