"""The decision of an assignment: a snapshot and a request to writes, addresses and a trace.

``flows``, the block IPAM and the simulator run it through ``datastore.loop``. It is pure and idempotent on its own
output: it first looks at what the handle already holds, so a request that is decided again after a lost reply finds
its addresses and writes nothing. Addresses without a handle cannot be found again; such a decision says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from netplug_core.clock import format_time
from netplug_core.errors import AllocationError, NetplugError
from netplug_core.ipam.allocation.affinity_writes import claim_block, relinquish_block
from netplug_core.ipam.allocation.automatic import FamilyOutcome, allocate
from netplug_core.ipam.allocation.block_order import BlockOrder
from netplug_core.ipam.allocation.context import CONFIGURATION, POOLS, RESERVATIONS, AllocationContext, BlockCandidate
from netplug_core.ipam.allocation.readiness import READINESS, lock_refusal, ready_condition
from netplug_core.ipam.allocation.request import (
    AssignedAddress,
    Assignment,
    AssignRequest,
    Automatic,
    Shortfall,
    Wanted,
)
from netplug_core.ipam.model.affinity import AFFINITY, affinities_query
from netplug_core.ipam.model.block import Attribute
from netplug_core.ipam.model.handle import Handle, handle_key, handle_query
from netplug_core.records import (
    ABSENT,
    Create,
    Decision,
    Delete,
    NeedMore,
    Query,
    Record,
    Require,
    RequireUnchanged,
    Snapshot,
    Update,
    Write,
)
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.ipreservation import IPRESERVATION
from netplug_core.resources.node import node_key

__all__ = ["conditions", "decide", "queries"]

_RULES: tuple[Query, ...] = (READINESS, POOLS, RESERVATIONS, CONFIGURATION)


def queries(request: AssignRequest) -> tuple[Query, ...]:
    """What to read before the first ``decide``."""
    return (
        *_RULES,
        *(() if request.handle is None else (handle_query(request.handle),)),
        *(
            affinities_query(request.claimant, wanted.family)
            for wanted in request.wanted
            if isinstance(wanted, Automatic)
        ),
    )


def decide(
    snapshot: Snapshot, request: AssignRequest, now_ns: int, order: BlockOrder
) -> Decision[Assignment] | NeedMore:
    """Addresses for every family of the request, or the reason why not, or what else to read first."""
    refusal = lock_refusal(snapshot)
    if refusal is not None:
        return Decision((), refusal)
    desk = AllocationContext.open(snapshot, request, now_ns, order)
    if isinstance(desk, NeedMore):
        return desk
    supplies: list[FamilyOutcome] = []
    needed: list[Query] = []
    for wanted in request.wanted:
        served = _serve(desk, wanted)
        if isinstance(served, NeedMore):
            needed.extend(served.queries)
        else:
            supplies.append(served)
    if needed:
        return NeedMore(tuple(needed))
    trace = tuple(chain.from_iterable([supply.trace for supply in supplies]))
    refusal = _refusal(request, supplies)
    if refusal is not None:
        return Decision(_take_back(desk, supplies), refusal, trace)
    writes, assignment = _writes(desk, supplies) or _take_back(desk, supplies), _assignment(supplies)
    repeatable = request.handle is not None or not writes
    return Decision(writes, assignment, trace, is_repeatable=repeatable, is_partial=bool(assignment.shortfalls))


def _serve(desk: AllocationContext, wanted: Wanted) -> FamilyOutcome | NeedMore:
    if isinstance(wanted, Automatic):
        return allocate(desk, wanted)
    from netplug_core.ipam.allocation.specific import allocate_specific

    return allocate_specific(desk, wanted)


def _refusal(request: AssignRequest, supplies: list[FamilyOutcome]) -> NetplugError | None:
    """The reason to refuse the whole request: with ``REFUSE`` any shortfall, with ``RETURN`` what is not one."""
    refusals = [supply.refusal for supply in supplies if supply.refusal is not None]
    if not refusals:
        return None
    if request.shortfall is Shortfall.REFUSE:
        return refusals[0]
    from netplug_core.ipam.outcome.refusals import is_shortfall

    has_some = any(supply.held or supply.candidates for supply in supplies)
    return next((refusal for refusal in refusals if not is_shortfall(refusal, has_some=has_some)), None)


def _assignment(supplies: list[FamilyOutcome]) -> Assignment:
    return Assignment(
        addresses=tuple(chain.from_iterable(_addresses(supply) for supply in supplies)),
        shortfalls=tuple(supply.refusal for supply in supplies if isinstance(supply.refusal, AllocationError)),
    )


def _addresses(supply: FamilyOutcome) -> tuple[AssignedAddress, ...]:
    fresh = tuple(
        AssignedAddress(address=hold.block.prefix.nth(ordinal), prefix=hold.pool.value.spec.prefix)
        for hold in supply.candidates
        for ordinal in hold.ordinals
    )
    # As they are found when the request is made once more, so that it writes no endpoint anew.
    return tuple(sorted((*supply.held, *fresh), key=lambda assigned: assigned.address))


def _take_back(desk: AllocationContext, supplies: list[FamilyOutcome]) -> tuple[Write, ...]:
    """Undoes what an earlier try of this call wrote in vain: claims that others won, a handle that holds nothing."""
    writes: list[Write] = list(_stale(supplies))
    handle = desk.handle
    if handle is not None and not any(record.value.held_by(handle.key.name) for record in desk.handle_blocks):
        writes.append(Delete(handle.key, handle.revision))
    return (ready_condition(desk.snapshot), *writes) if writes else ()


def _stale(supplies: list[FamilyOutcome]) -> Iterator[Write]:
    return (Delete(stale.key, stale.revision) for supply in supplies for stale in supply.stale)


def _writes(desk: AllocationContext, supplies: list[FamilyOutcome]) -> tuple[Write, ...]:
    """The commit, in an order of which every prefix heals: claims, then the handle, then the blocks."""
    holds = [hold for supply in supplies for hold in supply.candidates]
    if not holds:
        return ()
    writes = conditions(desk, holds)
    if any(supply.has_limited_claims for supply in supplies):
        # Together with a claim that another call of this node makes meanwhile, it could be one too many.
        writes.append(RequireUnchanged(AFFINITY, desk.snapshot.revision(AFFINITY)))
    writes.extend(_stale(supplies))
    for given in chain.from_iterable(supply.relinquished for supply in supplies):
        relinquish_block(given.affinity, given.block, desk.expire_cooldown(given.block.value), writes)
    revisions = [claim_block(hold, desk.request.claimant, writes) for hold in holds]
    attribute = Attribute(handle=desk.request.handle, owner=_owner(desk))
    if desk.request.handle is not None:
        writes.append(_handle_write(desk, desk.request.handle, holds))
    for hold, revision in zip(holds, revisions, strict=True):
        writes.append(Update(hold.block.key, hold.block.assign(hold.ordinals, attribute), revision))
    return tuple(writes)


def _owner(desk: AllocationContext) -> tuple[tuple[str, str], ...]:
    request = desk.request
    node = (("node", request.node),) if request.node else ()
    return tuple(sorted((*request.owner, *node, ("timestamp", format_time(desk.now_ns)))))


def _handle_write(desk: AllocationContext, handle_id: str, holds: Iterable[BlockCandidate]) -> Write:
    """The handle with what it will hold."""
    handle = desk.handle
    value = handle.value if handle else Handle()
    for hold in holds:
        held = len(hold.block.held_by(handle_id))
        value = value.with_count(hold.block.prefix, held + len(hold.ordinals))
    key = handle_key(handle_id)
    return Update(key, value, handle.revision) if handle else Create(key, value)


def conditions(desk: AllocationContext, holds: Iterable[BlockCandidate]) -> list[Write]:
    """That nothing the decision leant on has changed: the lock, pools, reservations, configuration, node labels."""
    snapshot = desk.snapshot
    pools: dict[str, Record[object]] = {hold.pool.key.name: hold.pool for hold in holds}
    configuration, node = desk.configuration, desk.node
    writes: list[Write] = [
        ready_condition(snapshot),
        RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL)),
        RequireUnchanged(IPRESERVATION, snapshot.revision(IPRESERVATION)),
        Require(IPAM_CONFIGURATION_KEY, configuration.revision if configuration else ABSENT),
        *(Require(record.key, record.revision) for record in pools.values()),
    ]
    if desk.has_read_node:
        writes.append(Require(node_key(desk.request.node), node.revision if node else ABSENT))
    return writes
