"""The decision of an assignment: a snapshot and a request to writes, addresses and a trace.

``flows`` and the block IPAM run it through ``datastore.loop``; the simulator will run the same function. It is pure
and idempotent on its own output: it first looks at what the handle already holds, so a request that is decided again
after a lost reply finds its addresses and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.clock import format_time
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.ipam.affinity import AFFINITY, Affinity, AffinityState, affinities_path, affinity_key, host_owner
from netplug_core.ipam.block import Attribute, Block, block_key
from netplug_core.ipam.handle import Handle, handle_key
from netplug_core.ipam.request import AssignedAddress, Assignment, AssignRequest, Shortfall
from netplug_core.ipam.search import BlockOrder
from netplug_core.ipam.supply import Hold, Supply, serve, unread
from netplug_core.ipam.trace import PoolsExhausted
from netplug_core.records import (
    ABSENT,
    Create,
    Decision,
    Delete,
    Get,
    List,
    NeedMore,
    Query,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    Write,
    Written,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ippool import IPPOOL

__all__ = ["decide", "locked", "queries", "still_ready"]


def queries(request: AssignRequest) -> tuple[Query, ...]:
    """What to read before the first ``decide``."""
    owner = host_owner(request.node)
    return (
        Get(CLUSTER_INFORMATION_KEY),
        List(IPPOOL),
        Get(handle_key(request.handle)),
        *(List(AFFINITY, affinities_path(owner, wanted.family)) for wanted in request.wanted),
    )


def decide(
    snapshot: Snapshot, request: AssignRequest, now_ns: int, order: BlockOrder
) -> Decision[Assignment] | NeedMore:
    """Addresses for every family of the request, or the reason why not, or what else to read first."""
    refusal = locked(snapshot)
    if refusal is not None:
        return Decision((), refusal)
    missing = unread(snapshot, request)
    if missing:
        return NeedMore(missing)
    supplies: list[Supply] = []
    needed: list[Query] = []
    for wanted in request.wanted:
        served = serve(snapshot, request, wanted, (now_ns, order))
        if isinstance(served, NeedMore):
            needed.extend(served.queries)
        else:
            supplies.append(served)
    if needed:
        return NeedMore(tuple(needed))
    trace = tuple(chain.from_iterable(supply.trace for supply in supplies))
    for supply in supplies:
        if supply.refusal is not None and not _is_tolerated(supply.refusal, request):
            return Decision(_take_back(snapshot, request, supplies), supply.refusal, trace)
    writes = _writes(snapshot, request, supplies, now_ns) or _take_back(snapshot, request, supplies)
    return Decision(writes, _assignment(supplies), trace)


def locked(snapshot: Snapshot) -> NetplugError | None:
    """Why nothing may be written now: the cluster's ready flag says so; None when it does not."""
    information = snapshot.find(CLUSTER_INFORMATION_KEY)
    if information is None or not information.value.is_locked:
        return None
    return Unavailable("ClusterInformation default", "spec.datastoreReady is false: pod networking is locked")


def still_ready(snapshot: Snapshot) -> Write:
    """The condition that nothing was locked since the snapshot; it belongs to every commit that writes."""
    information = snapshot.find(CLUSTER_INFORMATION_KEY)
    return Require(CLUSTER_INFORMATION_KEY, information.revision if information else ABSENT)


def _assignment(supplies: list[Supply]) -> Assignment:
    return Assignment(addresses=tuple(chain.from_iterable(_addresses(supply) for supply in supplies)))


def _addresses(supply: Supply) -> tuple[AssignedAddress, ...]:
    fresh = tuple(
        AssignedAddress(address=hold.block.prefix.nth(ordinal), prefix=hold.pool.value.spec.prefix)
        for hold in supply.holds
        for ordinal in hold.ordinals
    )
    return (*supply.kept, *fresh)


def _is_tolerated(refusal: NetplugError, request: AssignRequest) -> bool:
    """Whether less than asked is an answer: only a shortfall is, and only where the request says so."""
    return isinstance(refusal, PoolsExhausted) and request.shortfall is Shortfall.RETURN


def _take_back(snapshot: Snapshot, request: AssignRequest, supplies: list[Supply]) -> tuple[Write, ...]:
    """Undoes what an earlier try of this call wrote in vain: claims that others won, a handle that holds nothing."""
    writes: list[Write] = list(_stale(supplies))
    handle = snapshot.find(handle_key(request.handle))
    if handle is not None and not any(_holds(snapshot, prefix, handle.key.name) for prefix, _ in handle.value.blocks):
        writes.append(Delete(handle.key, handle.revision))
    return (still_ready(snapshot), *writes) if writes else ()


def _stale(supplies: list[Supply]) -> Iterator[Write]:
    return (Delete(stale.key, stale.revision) for supply in supplies for stale in supply.stale)


def _holds(snapshot: Snapshot, prefix: Prefix, handle: str) -> bool:
    record = snapshot.find(block_key(prefix))
    return record is not None and bool(record.value.held_by(handle))


def _writes(snapshot: Snapshot, request: AssignRequest, supplies: list[Supply], now_ns: int) -> tuple[Write, ...]:
    """The commit, in an order of which every prefix heals: claims, then the handle, then the blocks."""
    holds = [hold for supply in supplies for hold in supply.holds]
    if not holds:
        return ()
    writes: list[Write] = list(_conditions(snapshot, holds))
    writes.extend(_stale(supplies))
    revisions = [_secure(hold, request, writes) for hold in holds]
    handle = snapshot.find(handle_key(request.handle))
    value = handle.value if handle else Handle()
    attribute = Attribute(handle=request.handle, owner=_owner(request, now_ns))
    updates: list[Write] = []
    for hold, (block, revision) in zip(holds, revisions, strict=True):
        held = len(block.held_by(request.handle))
        value = value.with_count(block.prefix, held + len(hold.ordinals))
        updates.append(Update(block.key, block.assign(hold.ordinals, attribute), revision))
    key = handle_key(request.handle)
    writes.append(Update(key, value, handle.revision) if handle else Create(key, value))
    return (*writes, *updates)


def _owner(request: AssignRequest, now_ns: int) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((*request.owner, ("node", request.node), ("timestamp", format_time(now_ns)))))


def _conditions(snapshot: Snapshot, holds: list[Hold]) -> tuple[Write, ...]:
    pools: dict[str, Record[object]] = {hold.pool.key.name: hold.pool for hold in holds}
    return (
        still_ready(snapshot),
        RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL)),
        *(Require(record.key, record.revision) for record in pools.values()),
    )


def _secure(hold: Hold, request: AssignRequest, writes: list[Write]) -> tuple[Block, Revision | Written]:
    """Make the block surely ours; return it with the revision that a change of it is conditioned on.

    Two phases, so that a crash between them leaves a claim that the next request of this node goes on with: the
    affinity as pending, then the block, then the affinity as confirmed. A block that is ours already but whose
    affinity does not say so is stored once more in between, which makes a half-done release of it fail.
    """
    if hold.is_settled and hold.revision is not None:
        return hold.block, hold.revision
    key, pending = affinity_key(host_owner(request.node), hold.block.prefix), Affinity(state=AffinityState.PENDING)
    claim: Revision | Written = Written(len(writes))
    if hold.affinity is None:
        writes.append(Create(key, pending))
    elif hold.affinity.value.state is AffinityState.PENDING:
        claim = hold.affinity.revision
    else:
        writes.append(Update(key, evolve(hold.affinity.value, state=AffinityState.PENDING), hold.affinity.revision))
    block = hold.block if hold.revision is None else hold.block.touched()
    at = Written(len(writes))
    writes.append(Create(block.key, block) if hold.revision is None else Update(block.key, block, hold.revision))
    base = hold.affinity.value if hold.affinity else pending
    writes.append(Update(key, evolve(base, state=AffinityState.CONFIRMED), claim))
    return block, at
