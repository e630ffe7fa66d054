"""The decision of an assignment: from a snapshot and a request to writes, addresses and a trace.

``flows.ipam.service`` and the simulator run it through ``datastore.transaction``. It is pure, and idempotent on its own
output: it first looks at what the handle already holds, so a request that is decided again after a lost reply finds
its addresses and writes nothing. Addresses without a handle cannot be found again, so such a decision is not
repeatable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from attrs import define, evolve

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import format_time
from netplug_core.errors import AllocationError, NetplugError
from netplug_core.ipam.allocation.acquire import OwnBlocks, acquire_nearby, find_own_blocks
from netplug_core.ipam.allocation.borrow import acquire_elsewhere
from netplug_core.ipam.allocation.context import (
    CONFIGURATION,
    POOLS,
    RECORDS_PER_RELEASE,
    RELEASES_PER_DECISION,
    RESERVATIONS,
    AllocationContext,
    Draw,
    FamilyAllocation,
    FamilyOutcome,
    RelinquishedBlock,
    first_drawn,
    held_addresses,
)
from netplug_core.ipam.allocation.ownership import Acquisition, BlockCandidate, claim_block, relinquish_block
from netplug_core.ipam.allocation.pools import BlockOrder, choose
from netplug_core.ipam.allocation.request import (
    AssignedAddress,
    Assignment,
    AssignRequest,
    Automatic,
    Shortfall,
    Wanted,
)
from netplug_core.ipam.allocation.specific import allocate_specific
from netplug_core.ipam.model import AFFINITY, Attribute, Block, Handle, affinities_query, handle_key, handle_query
from netplug_core.ipam.outcome import (
    UNJUDGED,
    AddressShortfall,
    AllocationRule,
    CommitFull,
    NoPoolQualifies,
    NoPoolServes,
    PoolTrace,
    PoolUnknown,
    RecordTrace,
    RuleTrace,
    is_shortfall,
    naming,
)
from netplug_core.records import (
    ABSENT,
    Create,
    Decision,
    Delete,
    Get,
    NeedMore,
    Query,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    TraceEntry,
    Update,
    Write,
    Written,
)
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL, IPRESERVATION, IPPool, ippool_key
from netplug_core.resources.node import node_key

__all__ = ["acquire_missing", "conditions", "decide", "give_up", "queries"]

_RULES: tuple[Query, ...] = (POOLS, RESERVATIONS, CONFIGURATION)
_NEW_HANDLE = Handle()


def queries(request: AssignRequest) -> tuple[Query, ...]:
    """What to read before the first ``decide``."""
    of_handle = () if request.handle is None else (handle_query(request.handle),)
    owner = request.claimant
    affinities = [affinities_query(owner, wanted.family) for wanted in request.wanted if isinstance(wanted, Automatic)]
    return (*_RULES, *of_handle, *affinities)


def decide(
    snapshot: Snapshot, request: AssignRequest, now_ns: int, order: BlockOrder, draw: Draw = first_drawn
) -> Decision[Assignment] | NeedMore:
    """Addresses for every family of the request, or the reason why not, or what else to read first."""
    context = AllocationContext.open(snapshot, request, now_ns, order, draw)
    if isinstance(context, NeedMore):
        return context
    outcomes: list[FamilyOutcome] = []
    needed: list[Query] = []
    for wanted in request.wanted:
        outcome = _allocate(context, wanted)
        if isinstance(outcome, NeedMore):
            needed.extend(outcome.queries)
        else:
            outcomes.append(outcome)
    if needed:
        return NeedMore(tuple(needed))
    trace = (*context.passed_over, *chain.from_iterable([outcome.trace for outcome in outcomes]))
    passed_over = _passed_over(trace)
    refusal = _refusal(request, outcomes)
    if refusal is not None:
        named = _naming(context, refusal, passed_over) if passed_over else refusal
        return Decision(_take_back(context, outcomes), named, trace, passed_over=passed_over)
    writes, assignment = _writes(context, outcomes) or _take_back(context, outcomes), _assignment(outcomes)
    repeatable = request.handle is not None or not writes
    # A block that was remembered may be older than the affinity that it makes stale.
    needs_read = bool(assignment.shortfalls) or any(outcome.stale for outcome in outcomes)
    return Decision(writes, assignment, trace, is_repeatable=repeatable, needs_read=needs_read, passed_over=passed_over)


def _allocate(context: AllocationContext, wanted: Wanted) -> FamilyOutcome | NeedMore:
    if isinstance(wanted, Automatic):
        return _allocate_automatic(context, wanted)

    return allocate_specific(context, wanted)


def _allocate_automatic(context: AllocationContext, wanted: Automatic) -> FamilyOutcome | NeedMore:
    """What one family gets: what the handle holds, then from the claimant's own blocks, then from others."""
    held = held_addresses(context, wanted.family)
    total, entries = _total(context, wanted)
    if len(held) >= total:
        return FamilyOutcome(held=held[:total], trace=entries)
    choice = choose(context.pools, context.request, wanted, context.labels)
    if isinstance(choice, NetplugError):
        seen = _passed_over(choice.seen) if isinstance(choice, NoPoolServes | NoPoolQualifies) else ()
        return FamilyOutcome(held=held, trace=(*entries, *seen), refusal=_with_registration(context, choice))
    own = find_own_blocks(context, wanted.family, choice.pools)
    allocation = _open_allocation(context, own, total, total - len(held))
    for candidate in own.usable:
        allocation.take(candidate)
        if not allocation.missing:
            break
    if not _uses_own_blocks_only(allocation, own) and (outdated := context.reread_affinities(wanted.family)):
        return outdated
    refusal: NetplugError | None = None
    room = allocation.room
    if allocation.missing or allocation.postponed:
        outcome = acquire_missing(allocation, wanted, choice.pools, own.pending)
        if isinstance(outcome, NeedMore):
            return outcome
        refusal = outcome
    return FamilyOutcome(
        held=held,
        candidates=tuple(allocation.candidates),
        stale=tuple(allocation.stale.values()),
        relinquished=tuple(own.relinquished),
        required=allocation.required,
        trace=(*entries, *choice.seen, *own.trace, *allocation.trace),
        refusal=refusal,
        has_limited_claims=allocation.room < room and bool(context.explicit_limits),
    )


def _open_allocation(context: AllocationContext, own: OwnBlocks, wanted: int, missing: int) -> FamilyAllocation:
    return FamilyAllocation(
        context=context,
        wanted=wanted,
        missing=missing,
        room=context.block_limit - own.count,
        may_borrow=not context.settings.is_affinity_strict,
        stale=own.stale,
        relinquished=own.relinquished,
    )


def acquire_missing(
    allocation: FamilyAllocation, wanted: Automatic, pools: Sequence[Record[IPPool]], pending: Iterable[BlockCandidate]
) -> AllocationError | NeedMore | None:
    """Take what the claimant's own blocks lack from others; why that is not enough, or what to read first."""
    refusal: AllocationError | NeedMore | None = acquire_nearby(allocation, wanted, pools, pending)
    if refusal is None and allocation.missing:
        refusal = acquire_elsewhere(allocation, wanted, pools)
    if refusal is None and allocation.postponed:
        found = allocation.wanted - allocation.postponed
        return CommitFull(wanted.family, found, allocation.wanted, tuple(allocation.trace))
    return refusal


def _uses_own_blocks_only(allocation: FamilyAllocation, own: OwnBlocks) -> bool:
    """Whether addresses are taken from the claimant's own blocks, and nothing else changes or is refused.

    The revision of the block is then the condition for everything that depends on an affinity, so the affinities may
    be older than the block.
    """
    if allocation.missing or allocation.postponed or own.stale or own.relinquished:
        return False
    return all(candidate.acquisition is Acquisition.OWN for candidate in allocation.candidates)


def _with_registration(context: AllocationContext, refusal: NetplugError) -> NetplugError:
    """The refusal; where no pool selects the node, it also says whether the node is registered at all."""
    is_missing = context.has_read_node and context.node is None and context.labels is not None
    if isinstance(refusal, NoPoolServes) and is_missing:
        return evolve(refusal, is_registered=False)
    return refusal


def _passed_over(trace: Iterable[TraceEntry]) -> tuple[RecordTrace | PoolTrace, ...]:
    """What could not be read or judged. A block is among it by its record; its own entry says what became of it."""
    return tuple(
        [
            entry
            for entry in trace
            if isinstance(entry, RecordTrace) or (isinstance(entry, PoolTrace) and entry.outcome in UNJUDGED)
        ]
    )


def _naming(context: AllocationContext, refusal: NetplugError, passed_over: Sequence[TraceEntry]) -> NetplugError:
    """The refusal, which names what was passed over; where it is a named pool that cannot be read, its own error."""
    if isinstance(refusal, PoolUnknown):
        key = ippool_key(refusal.entry)
        damaged = (error for error in context.snapshot.malformed(POOLS) if error.subject == key)
        return next(damaged, naming(refusal, passed_over))
    return naming(refusal, passed_over)


def _total(context: AllocationContext, wanted: Automatic) -> tuple[int, tuple[TraceEntry, ...]]:
    maximum = context.request.max_per_handle
    if maximum is None or wanted.count <= maximum:
        return wanted.count, ()
    return maximum, (RuleTrace(rule=AllocationRule.MAX_PER_HANDLE, detail=str(maximum)),)


def _refusal(request: AssignRequest, outcomes: list[FamilyOutcome]) -> NetplugError | None:
    """The reason to refuse the whole request: with ``REFUSE`` any shortfall, with ``RETURN`` what is not one."""
    refusals = [outcome.refusal for outcome in outcomes if outcome.refusal is not None]
    if not refusals:
        return None

    if request.shortfall is Shortfall.REFUSE:
        first = refusals[0]
        return evolve(first, is_refused=True) if isinstance(first, AddressShortfall) else first
    has_some = any(outcome.held or outcome.candidates for outcome in outcomes)
    return next((refusal for refusal in refusals if not is_shortfall(refusal, has_some=has_some)), None)


def _assignment(outcomes: list[FamilyOutcome]) -> Assignment:
    addresses: list[AssignedAddress] = []
    for outcome in outcomes:
        fresh = [
            AssignedAddress(address=candidate.block.prefix.nth(ordinal), prefix=candidate.pool.value.spec.prefix)
            for candidate in outcome.candidates
            for ordinal in candidate.ordinals
        ]
        # Sorted, so that a retry of the request does not rewrite the endpoint.
        addresses.extend(sorted((*outcome.held, *fresh), key=lambda assigned: assigned.address))
    refusals = [outcome.refusal for outcome in outcomes if isinstance(outcome.refusal, AllocationError)]
    return Assignment(addresses=tuple(addresses), shortfalls=tuple(refusals))


def _take_back(context: AllocationContext, outcomes: list[FamilyOutcome]) -> tuple[Write, ...]:
    """Undo what an earlier attempt of this call left: affinities to blocks of others, a handle that counts too much.

    Blocks that no pool gives the claimant any more go too. A handle that holds nothing is deleted. A handle of many
    blocks is left to its release.
    """
    writes = _stale_deletes(outcomes)
    # A node at its limit would otherwise be refused for as long as it owns them.
    every = [given_up for outcome in outcomes for given_up in outcome.relinquished]
    give_up(context, every[: RELEASES_PER_DECISION - len(writes)], writes)
    handle, blocks = context.handle, context.handle_blocks
    if handle is None or len(blocks) > RELEASES_PER_DECISION:
        return tuple(writes)
    value = _settle_counts(context, writes, RELEASES_PER_DECISION)
    if not any(record.value.held_by(handle.key.name) for record in blocks):
        writes.append(Delete(handle.key, handle.revision))
    elif value != handle.value:
        writes.append(Update(handle.key, value, handle.revision))
    return tuple(writes)


def give_up(context: AllocationContext, relinquished: Iterable[RelinquishedBlock], writes: list[Write]) -> None:
    """Add the writes by which the claimant gives up empty blocks of its own."""
    for given_up in relinquished:
        block = context.claimant.cooldown.expire(given_up.block.value)
        relinquish_block(given_up.affinity, given_up.block, block, writes)


def _stale_deletes(outcomes: list[FamilyOutcome], limit: int = RELEASES_PER_DECISION) -> list[Write]:
    stale = [affinity for outcome in outcomes for affinity in outcome.stale]
    return [Delete(affinity.key, affinity.revision) for affinity in stale[:limit]]


def _writes(context: AllocationContext, outcomes: list[FamilyOutcome]) -> tuple[Write, ...]:
    """The commit. Affinities come before the handle, and the handle before the blocks: every prefix can be healed."""
    candidates = [candidate for outcome in outcomes for candidate in outcome.candidates]
    if not candidates:
        return ()
    writes = conditions(context, candidates)
    if any(outcome.has_limited_claims for outcome in outcomes):
        # A concurrent call of this node may claim a block too; both together could exceed the limit.
        writes.append(RequireUnchanged(AFFINITY, context.snapshot.revision(AFFINITY)))
    required = [given_up for outcome in outcomes for given_up in outcome.relinquished[: outcome.required]]
    optional = [given_up for outcome in outcomes for given_up in outcome.relinquished[outcome.required :]]
    limit = min(RELEASES_PER_DECISION - len(required), context.records_left // RECORDS_PER_RELEASE)
    stale = _stale_deletes(outcomes, limit)
    writes.extend(stale)
    optional = optional[: limit - len(stale)]
    give_up(context, (*required, *optional), writes)
    takes = [
        _Take(candidate.block, claim_block(candidate, context.claimant.owner, writes), candidate.ordinals)
        for candidate in candidates
    ]
    attribute = Attribute(handle=context.request.handle, owner=_owner(context))
    if context.request.handle is not None:
        room = context.records_left - RECORDS_PER_RELEASE * (len(stale) + len(optional))
        _write_handle(context, context.request.handle, takes, writes, room)
    for take in takes:
        writes.append(Update(take.block.key, take.block.assign(take.ordinals, attribute), take.revision))
    return tuple(writes)


def _owner(context: AllocationContext) -> tuple[tuple[str, str], ...]:
    request = context.request
    node = (("node", request.node),) if request.node else ()
    return tuple(sorted((*request.owner, *node, ("timestamp", format_time(context.now_ns)))))


@define  # not frozen: each assignment makes one, and a frozen object takes three times as long to make
class _Take:
    """What is taken from a block, as the commit will have stored it by then, and the revision that it has then."""

    block: Block
    revision: Revision | Written
    ordinals: tuple[Ordinal, ...]

    def touch(self, writes: list[Write]) -> None:
        """Store the block once more, unless the commit has written it already."""
        if not isinstance(self.revision, Written):
            self.block = self.block.touched()
            writes.append(Update(self.block.key, self.block, self.revision))
            self.revision = Written(len(writes) - 1)


def _write_handle(
    context: AllocationContext, handle_id: str, takes: Sequence[_Take], writes: list[Write], room: int
) -> None:
    """Add the write of the handle, with what it will hold: what is taken, and what its blocks hold already.

    So an attempt that wrote the handle and lost the race for the block is not counted again by the next one. The write
    always changes the handle, so that an unfinished deletion of it fails.
    """
    handle = context.handle
    known = handle.value if handle else _NEW_HANDLE
    value = _settle_counts(context, writes, room, except_of=frozenset(take.block.prefix for take in takes))
    for take in takes:
        prefix = take.block.prefix
        count = len(take.block.held_by(handle_id)) + len(take.ordinals)
        if count < known.count(prefix):
            take.touch(writes)
        value = value.with_count(prefix, count)
    key = handle_key(handle_id)
    if handle is None:
        writes.append(Create(key, value))
    else:
        writes.append(Update(key, value.touched() if value == known else value, handle.revision))


def _settle_counts(
    context: AllocationContext, writes: list[Write], room: int, *, except_of: frozenset[Prefix] = frozenset()
) -> Handle:
    """The handle with what its blocks hold, but for the blocks of ``except_of``; a new one where there is none.

    A count that is too high was left by an attempt that failed, or by an assignment that was killed, whose write to the
    block may still arrive. So the block is stored once more before its count goes down: the late write then finds
    another revision and fails. At most ``room`` blocks are. The count of a block that is not stored stays: the
    late write may create it.
    """
    if context.handle is None:
        return _NEW_HANDLE
    value = context.handle.value
    written = {write.key for write in writes if isinstance(write, (Create, Update, Delete))}
    for record in context.handle_blocks:
        prefix = record.value.prefix
        held, count = len(record.value.held_by(context.handle.key.name)), value.count(prefix)
        if held == count or prefix in except_of:
            continue
        if held < count and record.key not in written:
            if room <= 0:
                continue
            room -= 1
            writes.append(context.claimant.cooldown.release(record, ()))
        value = value.with_count(prefix, held)
    return value


def conditions(context: AllocationContext, candidates: Iterable[BlockCandidate]) -> list[Write]:
    """The conditions of the commit: nothing that the decision depends on has changed since it was read."""
    snapshot = context.snapshot
    pools: dict[str, Record[object]] = {candidate.pool.key.name: candidate.pool for candidate in candidates}
    configuration = context.configuration
    writes: list[Write] = [
        RequireUnchanged(IPPOOL, snapshot.revision(IPPOOL)),
        RequireUnchanged(IPRESERVATION, snapshot.revision(IPRESERVATION)),
        Require(IPAM_CONFIGURATION_KEY, configuration.revision if configuration else ABSENT),
        *[Require(record.key, record.revision) for record in pools.values()],
    ]
    if context.has_read_node:
        key = node_key(context.request.node)
        writes.append(Require(key, snapshot.state(Get(key))))
    return writes
