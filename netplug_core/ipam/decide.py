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
from netplug_core.ipam.affinity import AFFINITY, affinities_query
from netplug_core.ipam.block import Attribute
from netplug_core.ipam.claims import give_up, secure
from netplug_core.ipam.desk import CONFIGURATION, POOLS, RESERVATIONS, Desk, Hold
from netplug_core.ipam.handle import Handle, handle_key, handle_query
from netplug_core.ipam.readiness import READINESS, locked, still_ready
from netplug_core.ipam.request import AssignedAddress, Assignment, AssignRequest, Automatic, Shortfall, Wanted
from netplug_core.ipam.search import BlockOrder
from netplug_core.ipam.supply import Supply, serve
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
    refusal = locked(snapshot)
    if refusal is not None:
        return Decision((), refusal)
    desk = Desk.open(snapshot, request, now_ns, order)
    if isinstance(desk, NeedMore):
        return desk
    supplies: list[Supply] = []
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
    return Decision(writes, assignment, trace, repeatable=repeatable, is_short=bool(assignment.shortfalls))


def _serve(desk: Desk, wanted: Wanted) -> Supply | NeedMore:
    if isinstance(wanted, Automatic):
        return serve(desk, wanted)
    from netplug_core.ipam.specific import serve_specific

    return serve_specific(desk, wanted)


def _refusal(request: AssignRequest, supplies: list[Supply]) -> NetplugError | None:
    """The reason to refuse the whole request: with ``REFUSE`` any shortfall, with ``RETURN`` what is not one."""
    refusals = [supply.refusal for supply in supplies if supply.refusal is not None]
    if not refusals:
        return None
    if request.shortfall is Shortfall.REFUSE:
        return refusals[0]
    from netplug_core.ipam.refusals import is_shortfall

    has_some = any(supply.kept or supply.holds for supply in supplies)
    return next((refusal for refusal in refusals if not is_shortfall(refusal, has_some=has_some)), None)


def _assignment(supplies: list[Supply]) -> Assignment:
    return Assignment(
        addresses=tuple(chain.from_iterable(_addresses(supply) for supply in supplies)),
        shortfalls=tuple(supply.refusal for supply in supplies if isinstance(supply.refusal, AllocationError)),
    )


def _addresses(supply: Supply) -> tuple[AssignedAddress, ...]:
    fresh = tuple(
        AssignedAddress(address=hold.block.prefix.nth(ordinal), prefix=hold.pool.value.spec.prefix)
        for hold in supply.holds
        for ordinal in hold.ordinals
    )
    # As they are found when the request is made once more, so that it writes no endpoint anew.
    return tuple(sorted((*supply.kept, *fresh), key=lambda assigned: assigned.address))


def _take_back(desk: Desk, supplies: list[Supply]) -> tuple[Write, ...]:
    """Undoes what an earlier try of this call wrote in vain: claims that others won, a handle that holds nothing."""
    writes: list[Write] = list(_stale(supplies))
    handle = desk.handle
    if handle is not None and not any(record.value.held_by(handle.key.name) for record in desk.held):
        writes.append(Delete(handle.key, handle.revision))
    return (still_ready(desk.snapshot), *writes) if writes else ()


def _stale(supplies: list[Supply]) -> Iterator[Write]:
    return (Delete(stale.key, stale.revision) for supply in supplies for stale in supply.stale)


def _writes(desk: Desk, supplies: list[Supply]) -> tuple[Write, ...]:
    """The commit, in an order of which every prefix heals: claims, then the handle, then the blocks."""
    holds = [hold for supply in supplies for hold in supply.holds]
    if not holds:
        return ()
    writes = conditions(desk, holds)
    if any(supply.has_limited_claims for supply in supplies):
        # Together with a claim that another call of this node makes meanwhile, it could be one too many.
        writes.append(RequireUnchanged(AFFINITY, desk.snapshot.revision(AFFINITY)))
    writes.extend(_stale(supplies))
    for given in chain.from_iterable(supply.given_up for supply in supplies):
        give_up(given.affinity, given.block, desk.rested(given.block.value), writes)
    revisions = [secure(hold, desk.request.claimant, writes) for hold in holds]
    attribute = Attribute(handle=desk.request.handle, owner=_owner(desk))
    if desk.request.handle is not None:
        writes.append(_handle_write(desk, desk.request.handle, holds))
    for hold, revision in zip(holds, revisions, strict=True):
        writes.append(Update(hold.block.key, hold.block.assign(hold.ordinals, attribute), revision))
    return tuple(writes)


def _owner(desk: Desk) -> tuple[tuple[str, str], ...]:
    request = desk.request
    node = (("node", request.node),) if request.node else ()
    return tuple(sorted((*request.owner, *node, ("timestamp", format_time(desk.now_ns)))))


def _handle_write(desk: Desk, handle_id: str, holds: Iterable[Hold]) -> Write:
    """The handle with what it will hold."""
    handle = desk.handle
    value = handle.value if handle else Handle()
    for hold in holds:
        held = len(hold.block.held_by(handle_id))
        value = value.with_count(hold.block.prefix, held + len(hold.ordinals))
    key = handle_key(handle_id)
    return Update(key, value, handle.revision) if handle else Create(key, value)


def conditions(desk: Desk, holds: Iterable[Hold]) -> list[Write]:
    """That nothing the decision leant on has changed: the lock, pools, reservations, configuration, node labels."""
    snapshot = desk.snapshot
    pools: dict[str, Record[object]] = {hold.pool.key.name: hold.pool for hold in holds}
    configuration, node = desk.configuration, desk.node
    writes: list[Write] = [
        still_ready(snapshot),
        RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL)),
        RequireUnchanged(IPRESERVATION, snapshot.revision(IPRESERVATION)),
        Require(IPAM_CONFIGURATION_KEY, configuration.revision if configuration else ABSENT),
        *(Require(record.key, record.revision) for record in pools.values()),
    ]
    if desk.is_node_known:
        writes.append(Require(node_key(desk.request.node), node.revision if node else ABSENT))
    return writes
