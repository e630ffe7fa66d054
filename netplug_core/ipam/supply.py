"""Where the addresses of one family come from: those already held, the node's own blocks, then new claims.

``decide`` calls ``unread`` and ``serve`` and turns the supplies of all families into one commit. Work is bounded by
the blocks the node owns plus a few probes, until a shortfall is to be reported: that takes a look at every block of
the family, page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from attrs import evolve, frozen

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.errors import NetplugError
from netplug_core.ipam.affinity import AFFINITY, Affinity, AffinityState, affinities_path, claimed_block, host_owner
from netplug_core.ipam.block import BLOCK, Block, block_key, blocks_path
from netplug_core.ipam.handle import handle_key
from netplug_core.ipam.pools import Pools, choose
from netplug_core.ipam.request import AssignedAddress, AssignRequest, Reach, Wanted
from netplug_core.ipam.search import BlockOrder, block_order
from netplug_core.ipam.trace import BlockOutcome, BlockSeen, PoolFull, PoolsExhausted
from netplug_core.records import Get, Key, List, NeedMore, Query, Record, Remark, Revision, Snapshot
from netplug_core.resources.ippool import IPPOOL, IPPool

__all__ = ["BLOCK_LIMIT", "Hold", "Supply", "serve", "unread"]

BLOCK_LIMIT = 20
"""Blocks a node may own where nothing says otherwise; it stops claiming then."""

PROBES = 8
"""Candidate blocks that are looked at one by one before all blocks are listed."""

PAGE = 1000
"""Blocks listed in one read."""


@frozen(kw_only=True)
class Hold:
    """Free ordinals of one block, to be taken.

    ``revision`` is None for a block that has to be created; ``affinity`` is this node's claim as read, None where
    there is none.
    """

    pool: Record[IPPool]
    block: Block
    revision: Revision | None
    affinity: Record[Affinity] | None
    ordinals: tuple[Ordinal, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether the block is there and ours, and the affinity says so."""
        is_confirmed = self.affinity is not None and self.affinity.value.state is AffinityState.CONFIRMED
        return is_confirmed and self.revision is not None


@frozen(kw_only=True)
class Supply:
    """What one family gets: addresses the handle holds already, holds to take, and claims that turned out stale."""

    kept: tuple[AssignedAddress, ...] = ()
    holds: tuple[Hold, ...] = ()
    stale: tuple[Record[Affinity], ...] = ()
    trace: tuple[Remark, ...] = ()
    refusal: NetplugError | None = None


@frozen
class _Desk:
    """What serving one family works with."""

    snapshot: Snapshot
    request: AssignRequest
    wanted: Wanted
    now_ns: int
    order: BlockOrder

    @property
    def owner(self) -> str:
        return host_owner(self.request.node)

    def affinities(self) -> tuple[Record[Affinity], ...]:
        return self.snapshot.list(List(AFFINITY, affinities_path(self.owner, self.wanted.family)))


def unread(snapshot: Snapshot, request: AssignRequest) -> tuple[Query, ...]:
    """Queries for the blocks that only a first read could name: the handle's, and those of this node's affinities."""
    owner, keys = host_owner(request.node), list[Key[Block]]()
    handle = snapshot.find(handle_key(request.handle))
    if handle is not None:
        keys.extend(block_key(prefix) for prefix, _count in handle.value.blocks)
    for wanted in request.wanted:
        affinities = snapshot.list(List(AFFINITY, affinities_path(owner, wanted.family)))
        keys.extend(block_key(claimed_block(record.key)) for record in affinities)
    return tuple(query for query in dict.fromkeys(Get(key) for key in keys) if not snapshot.has(query))


def serve(
    snapshot: Snapshot, request: AssignRequest, wanted: Wanted, moment: tuple[int, BlockOrder]
) -> Supply | NeedMore:
    """What one family of the request gets; ``moment`` is the time and the block order."""
    desk = _Desk(snapshot, request, wanted, *moment)
    pools = snapshot.list(List(IPPOOL))
    kept = _kept(desk, pools)
    if len(kept) >= wanted.count:
        return Supply(kept=kept)
    choice = choose(pools, request, wanted)
    if isinstance(choice, NetplugError):
        return Supply(kept=kept, refusal=choice)
    missing = wanted.count - len(kept)
    own = _own(desk, choice.pools)
    holds, trace = _take(own.usable, missing, desk.request)
    missing -= sum(len(hold.ordinals) for hold in holds)
    if missing:
        room = BLOCK_LIMIT - own.count
        claimed = _claim(desk, choice.pools, missing, room)
        if isinstance(claimed, NeedMore):
            return claimed
        holds, trace = (*holds, *claimed.holds), (*trace, *claimed.trace)
        missing -= sum(len(hold.ordinals) for hold in claimed.holds)
    trace = (*choice.seen, *own.trace, *trace)
    refusal = None
    if missing:
        refusal = PoolsExhausted(wanted.family, wanted.count - missing, wanted.count, trace)
    return Supply(kept=kept, holds=holds, stale=own.stale, trace=trace, refusal=refusal)


def _kept(desk: _Desk, pools: Pools) -> tuple[AssignedAddress, ...]:
    """Addresses of the family that the handle holds already, at most as many as wanted."""
    handle = desk.snapshot.find(handle_key(desk.request.handle))
    kept: list[AssignedAddress] = []
    for prefix, _count in handle.value.blocks if handle else ():
        record = desk.snapshot.find(block_key(prefix)) if prefix.family is desk.wanted.family else None
        ours = record.value.held_by(desk.request.handle) if record else ()
        kept.extend(AssignedAddress(address=held.address, prefix=_range(pools, prefix)) for held in ours)
    return tuple(kept[: desk.wanted.count])


def _range(pools: Pools, block: Prefix) -> Prefix:
    pool = next((pool for pool in pools if pool.value.spec.prefix.covers(block)), None)
    return pool.value.spec.prefix if pool else block


# --- the node's own blocks -----------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Own:
    usable: tuple[Hold, ...]
    stale: tuple[Record[Affinity], ...]
    trace: tuple[Remark, ...]
    count: int


def _own(desk: _Desk, pools: Pools) -> _Own:
    """The node's blocks in pools that may serve, and its claims on blocks that belong to somebody else by now."""
    usable: list[Hold] = []
    stale: list[Record[Affinity]] = []
    trace: list[Remark] = []
    count = 0
    for affinity in desk.affinities():
        prefix = claimed_block(affinity.key)
        record = desk.snapshot.find(block_key(prefix))
        if record is not None and record.value.owner != desk.owner:
            stale.append(affinity)
            trace.append(BlockSeen(block=prefix, outcome=BlockOutcome.STALE))
            continue
        count += 1  # whatever pool it is in: alternating requests must not exceed the limit
        pool = _pool_of(prefix, pools)
        if pool is not None:
            block = record.value if record else Block.new(prefix, owner=desk.owner, now_ns=desk.now_ns)
            revision = record.revision if record else None
            usable.append(Hold(pool=pool, block=block, revision=revision, affinity=affinity))
    return _Own(usable=tuple(usable), stale=tuple(stale), trace=tuple(trace), count=count)


def _pool_of(block: Prefix, pools: Pools) -> Record[IPPool] | None:
    for pool in pools:
        if pool.value.spec.prefix.covers(block) and pool.value.spec.block_length == block.length:
            return pool
    return None


def _take(holds: Iterable[Hold], missing: int, request: AssignRequest) -> tuple[tuple[Hold, ...], tuple[Remark, ...]]:
    """Fill holds with free ordinals until nothing is missing."""
    taken: list[Hold] = []
    trace: list[Remark] = []
    for hold in holds:
        ordinals = hold.block.available(missing, _may_serve(hold.pool.value.spec.prefix, request.reach))
        outcome = BlockOutcome.FULL
        if ordinals:
            outcome = BlockOutcome.TAKEN_FROM if hold.is_settled else BlockOutcome.CLAIMED
            taken.append(evolve(hold, ordinals=ordinals))
            missing -= len(ordinals)
        trace.append(BlockSeen(block=hold.block.prefix, outcome=outcome))
        if not missing:
            break
    return tuple(taken), tuple(trace)


def _may_serve(pool: Prefix, reach: Reach) -> Callable[[Address], bool]:
    if reach is Reach.ROUTED:
        return lambda _address: True
    kept_back = (pool.first, pool.nth(1 % pool.size), pool.last)
    return lambda address: address not in kept_back


# --- new claims ----------------------------------------------------------------------------------------------------

_Place = tuple[Record[IPPool], Prefix]


@frozen(kw_only=True)
class _Claimed:
    holds: tuple[Hold, ...]
    trace: tuple[Remark, ...]


def _claim(desk: _Desk, pools: Pools, missing: int, room: int) -> _Claimed | NeedMore:
    """Blocks nobody has, in this node's order: first by probing a few, then with every block in hand."""
    if room > 0:
        probed = tuple(islice(_places(desk, pools), PROBES))
        probes = (Get(block_key(prefix)) for _pool, prefix in probed)
        unknown = tuple(probe for probe in probes if not desk.snapshot.has(probe))
        if unknown:
            return NeedMore(unknown)
        found = {prefix: desk.snapshot.find(block_key(prefix)) for _pool, prefix in probed}
        holds, trace = _take(islice(_free(desk, probed, found), room), missing, desk.request)
        if sum(len(hold.ordinals) for hold in holds) == missing:
            return _Claimed(holds=holds, trace=trace)
    return _claim_from_all(desk, pools, missing, room)


def _claim_from_all(desk: _Desk, pools: Pools, missing: int, room: int) -> _Claimed | NeedMore:
    """The same with every block of the family read, page by page; what was met is noted if it is not enough."""
    blocks: dict[Prefix, Record[Block]] = {}
    after = ""
    while True:
        query = List(BLOCK, blocks_path(desk.wanted.family), limit=PAGE, after=after)
        if not desk.snapshot.has(query):
            return NeedMore((query,))
        blocks.update((record.value.prefix, record) for record in desk.snapshot.list(query))
        after = desk.snapshot.after(query)
        if not after:
            break
    free = _free(desk, _places(desk, pools), blocks)
    holds, trace = _take(islice(free, max(room, 0)), missing, desk.request)
    if sum(len(hold.ordinals) for hold in holds) == missing:
        return _Claimed(holds=holds, trace=trace)
    full = (_full(pool, blocks, desk.owner) for pool in pools)
    limit = (
        BlockSeen(block=hold.block.prefix, outcome=BlockOutcome.LIMIT, detail=f"limit {BLOCK_LIMIT}")
        for hold in islice(free, 1)
    )
    return _Claimed(holds=holds, trace=(*trace, *full, *limit))


def _places(desk: _Desk, pools: Pools) -> Iterator[_Place]:
    """Where a block may stand, in this node's order; its own blocks, which were looked at already, are left out."""
    own = {claimed_block(affinity.key) for affinity in desk.affinities()}
    for pool in pools:
        spec = pool.value.spec
        start = desk.order(desk.request.node, spec.prefix, spec.prefix.part_count(spec.block_length))
        for prefix in block_order(start, spec.prefix, spec.block_length):
            if prefix not in own:
                yield pool, prefix


def _free(desk: _Desk, places: Iterable[_Place], blocks: Mapping[Prefix, Record[Block] | None]) -> Iterator[Hold]:
    """The blocks of some places that nobody has and that could serve; one whose affinity alone was lost is ours."""
    for pool, prefix in places:
        record = blocks.get(prefix)
        if record is None:
            block = Block.new(prefix, owner=desk.owner, now_ns=desk.now_ns)
            hold = Hold(pool=pool, block=block, revision=None, affinity=None)
        elif record.value.owner == desk.owner:
            hold = Hold(pool=pool, block=record.value, revision=record.revision, affinity=None)
        else:
            continue
        if hold.block.available(1, _may_serve(pool.value.spec.prefix, desk.request.reach)):
            yield hold


def _full(pool: Record[IPPool], blocks: dict[Prefix, Record[Block]], owner: str) -> PoolFull:
    spec = pool.value.spec
    inside = [record.value for prefix, record in blocks.items() if spec.prefix.covers(prefix)]
    return PoolFull(
        pool=pool.key.name,
        prefix=spec.prefix,
        used=sum(len(block.allocations) - len(block.free) for block in inside),
        free_elsewhere=sum(len(block.free) for block in inside if block.owner != owner),
    )
