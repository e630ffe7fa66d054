"""What is abandoned in a view: leaked addresses, wrong handles, claims and blocks that serve nobody, gone nodes.

Only current state and the dates in the memory count. Nothing here asks or writes anything; ``confirmation`` weighs
the leaks and the gone nodes against a witness, ``reclaim`` looks at each record afresh before it is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeVar

from attrs import Factory, define, field, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.gc.candidates import (
    AllocationOwner,
    LeakReason,
    UndeterminedReason,
    Verdict,
    allocation_owners,
    judge,
)
from netplug_core.ipam.gc.model import (
    AllocationRef,
    Candidate,
    CollectorSettings,
    DeleteBlock,
    ExpireCooldown,
    FreeCondition,
    FreeHandle,
    GCAction,
    GoneNode,
    Leak,
    RecordRef,
    RelinquishAffinity,
    RelinquishReason,
    RepairHandle,
    ScanHistory,
    ScanResult,
    ScanTime,
    StoreView,
    Undetermined,
)
from netplug_core.ipam.model.affinity import Affinity, affinity_key, claimed_block, claiming_owner, owner_node
from netplug_core.ipam.model.block import RESERVED_HANDLE, Block
from netplug_core.orchestrator.model import ClusterView, PodFacts, PodName
from netplug_core.records import Key, Malformed, Record

__all__ = ["detect"]

A = TypeVar("A", bound=GCAction)


@define(kw_only=True)
class _GraceLedger:
    """Since when suspects look abandoned: those of before that are still suspect, and the new ones, from now on."""

    now_ms: int
    grace_ms: float
    previous: dict[Candidate, int]
    since: dict[Candidate, int] = field(default=Factory(dict))

    def first_seen(self, suspect: Candidate) -> int:
        """Since when it is suspect."""
        return self.since.setdefault(suspect, self.previous.get(suspect, self.now_ms))

    def is_due(self, suspect: Candidate) -> bool:
        """Whether it has been suspect for the grace period; never where nothing is judged by time."""
        return self.grace_ms > 0 and self.now_ms - self.first_seen(suspect) >= self.grace_ms


@frozen
class _ReadAffinity:
    """A claim whose key could be read."""

    record: Record[Affinity]
    block: Prefix

    @property
    def owner(self) -> str:
        return claiming_owner(self.record.key)

    @property
    def node(self) -> str:
        return owner_node(self.owner)


@frozen(kw_only=True)
class _Scan:
    """A view, looked up from the sides that the rules need."""

    view: StoreView
    now: ScanTime
    grace: _GraceLedger
    failures: dict[str, int]
    blocks: dict[Prefix, Record[Block]]
    affinities: dict[Key[Affinity], _ReadAffinity]
    unreadable: tuple[Malformed, ...]
    pods: dict[PodName, PodFacts | None]
    held: tuple[AllocationOwner, ...]
    gone: frozenset[str]

    @classmethod
    def open(cls, view: StoreView, memory: ScanHistory, settings: CollectorSettings, now: ScanTime) -> _Scan:
        held = tuple(holding for record in view.blocks for holding in allocation_owners(record.value))
        claims, unreadable = _read_affinities(view)
        return cls(
            view=view,
            now=now,
            grace=_GraceLedger(now_ms=now.elapsed_ms, grace_ms=settings.grace_s * 1000, previous=dict(memory.since)),
            failures=dict(memory.failures),
            blocks={record.value.prefix: record for record in view.blocks},
            affinities={claim.record.key: claim for claim in claims},
            unreadable=unreadable,
            pods={pod.pod_name: pod for pod in view.cluster.pods} if view.cluster else {},
            held=held,
            gone=_gone_names(view.cluster, held, claims),
        )

    def by_urgency(self, actions: Iterable[A], order: Callable[[A], tuple[object, ...]]) -> tuple[A, ...]:
        """Actions in an order, those that failed before behind the others: none can hold up the rest for ever."""
        return tuple(sorted(actions, key=lambda action: (self.failures.get(action.subject, 0), *order(action))))


def _read_affinities(view: StoreView) -> tuple[list[_ReadAffinity], tuple[Malformed, ...]]:
    """The claims of a view, and the complaints about those that name no block: one of them must not stop the rest."""
    claims: list[_ReadAffinity] = []
    unreadable: list[Malformed] = []
    for record in view.affinities:
        try:
            claims.append(_ReadAffinity(record, claimed_block(record.key)))
        except Malformed as error:
            unreadable.append(error)
    return claims, tuple(unreadable)


def detect(view: StoreView, memory: ScanHistory, settings: CollectorSettings, now: ScanTime) -> ScanResult:
    """Everything in a complete view that is abandoned, and the memory for the next survey."""
    desk = _Scan.open(view, memory, settings, now)
    verdicts = [(holding, _judge(desk, holding)) for holding in desk.held]
    leaks, candidates = _leaks(desk, verdicts)
    claims = (*_affinities_without_block(desk), *_unused_affinities(desk))
    blocks, handles, cooled = (
        tuple(_unclaimed_blocks(desk)),
        tuple(_wrong_handles(desk)),
        tuple(_expired_cooldowns(desk)),
    )
    gone = _gone_nodes(desk, frozenset(leak.handle for leak in leaks))
    actions: list[GCAction] = [*leaks, *claims, *blocks, *handles, *cooled]
    due = {action.subject for action in chain(actions, *(node.affinities for node in gone))}
    return ScanResult(
        history=ScanHistory(
            since=tuple(desk.grace.since.items()),
            failures=tuple((subject, count) for subject, count in desk.failures.items() if subject in due),
        ),
        leaks=desk.by_urgency(leaks, _by_age(desk)),
        cooldowns=desk.by_urgency(cooled, _by_subject),
        affinities=desk.by_urgency(claims, _by_subject),
        blocks=desk.by_urgency(blocks, _by_subject),
        handles=desk.by_urgency(handles, _by_subject),
        gone=gone,
        candidates=candidates,
        undetermined=tuple(
            Undetermined(owner=holding, reason=verdict)
            for holding, verdict in verdicts
            if isinstance(verdict, UndeterminedReason)
        ),
        unreadable=desk.unreadable,
    )


def _by_subject(action: GCAction) -> tuple[object, ...]:
    return (action.subject,)


# --- leaked addresses -------------------------------------------------------------------------------------------------


def _judge(desk: _Scan, holding: AllocationOwner) -> Verdict:
    if desk.view.cluster is None and holding.handle is not None:
        return UndeterminedReason.NO_ORCHESTRATOR
    return judge(holding, desk.pods, gone=desk.gone)


def _leaks(desk: _Scan, verdicts: list[tuple[AllocationOwner, Verdict]]) -> tuple[list[FreeHandle], tuple[Leak, ...]]:
    """The handles of which every address is leaked and may be freed, and the leaks of all others."""
    by_handle: defaultdict[str, list[Leak | None]] = defaultdict(list)
    for holding, verdict in verdicts:
        leak = _leak(desk, holding, verdict) if isinstance(verdict, LeakReason) else None
        by_handle[holding.handle or ""].append(leak)
    free: list[FreeHandle] = []
    candidates: list[Leak] = []
    for handle, found in by_handle.items():
        leaks = tuple(leak for leak in found if leak is not None)
        if len(leaks) == len(found) and all(leak.condition for leak in leaks):
            free.append(FreeHandle(handle=handle, leaks=leaks))
        else:
            candidates.extend(leaks)
    return free, tuple(candidates)


def _leak(desk: _Scan, holding: AllocationOwner, reason: LeakReason) -> Leak:
    is_ripe = desk.grace.is_due(_reference(holding))
    basis = FreeCondition.GRACE if is_ripe else FreeCondition.NODE_GONE if holding.node in desk.gone else None
    return Leak(owner=holding, reason=reason, condition=basis)


def _reference(holding: AllocationOwner) -> AllocationRef:
    return AllocationRef(holding.address, holding.handle or "", holding.sequence)


def _by_age(desk: _Scan) -> Callable[[FreeHandle], tuple[object, ...]]:
    """Pods before tunnels, then who leaks the longest."""
    since = desk.grace.since
    return lambda action: (
        any(leak.owner.is_tunnel for leak in action.leaks),
        min(since.get(suspect, desk.now.elapsed_ms) for suspect in action.candidates),
        action.handle,
    )


# --- handles ----------------------------------------------------------------------------------------------------------


def _wrong_handles(desk: _Scan) -> Iterator[RepairHandle]:
    """Handles that do not count what blocks hold: a crash may leave a count too high, or a handle of nothing."""
    counts: dict[str, dict[Prefix, int]] = {}
    for holding in desk.held:
        held = counts.setdefault(holding.handle or "", {})
        held[holding.block] = held.get(holding.block, 0) + 1
    for record in desk.view.handles:
        held = counts.get(record.key.name, {})
        is_right = held and tuple(sorted(held.items())) == record.value.blocks
        if is_right or record.key.name == RESERVED_HANDLE:
            continue
        seen = RecordRef.of(record)
        if desk.grace.is_due(seen):
            named = {prefix for prefix, _count in record.value.blocks}
            yield RepairHandle(record=seen, blocks=tuple(sorted(named | held.keys())))


# --- blocks and claims ------------------------------------------------------------------------------------------------


def _expired_cooldowns(desk: _Scan) -> Iterator[ExpireCooldown]:
    for record in desk.view.blocks:
        if record.value.expire_cooldown(desk.now.wall_ns, desk.view.cooldown_ns) is not record.value:
            yield ExpireCooldown(record=RecordRef.of(record))


def _affinities_without_block(desk: _Scan) -> Iterator[RelinquishAffinity]:
    """Claims that a crash left, before their block was made or after it was given up; a gone node's are not here."""
    for claim in desk.affinities.values():
        is_idle = not _is_theirs(desk, claim) and claim.node not in desk.gone
        if is_idle and desk.grace.is_due(RecordRef.of(claim.record)):
            reason = RelinquishReason.FOREIGN if claim.block in desk.blocks else RelinquishReason.NO_BLOCK
            yield RelinquishAffinity(affinity=claim.record.key, reason=reason, revision=claim.record.revision)


def _unclaimed_blocks(desk: _Scan) -> Iterator[DeleteBlock]:
    """Blocks that have been empty for the grace period, and that nobody has a claim on."""
    for record in desk.view.blocks:
        claim = _claim_of(record.value)
        if claim not in desk.affinities and record.value.is_empty and desk.grace.is_due(RecordRef.of(record)):
            yield DeleteBlock(record=RecordRef.of(record), affinity=claim)


def _unused_affinities(desk: _Scan) -> Iterator[RelinquishAffinity]:
    """The blocks that nodes can do without. A gone node's are not here; who is no node looks after its own."""
    owned: defaultdict[tuple[str, Family], list[Record[Block]]] = defaultdict(list)
    for record in desk.view.blocks:
        node = owner_node(record.value.owner)
        if node and node not in desk.gone and _claim_of(record.value) in desk.affinities:
            owned[node, record.value.prefix.family].append(record)
    for records in owned.values():
        yield from _spare_blocks(desk, records)


def _claim_of(block: Block) -> Key[Affinity] | None:
    """What a block's owner claims it with; None where it has no owner."""
    return affinity_key(block.owner, block.prefix) if block.owner else None


def _spare_blocks(desk: _Scan, records: list[Record[Block]]) -> Iterator[RelinquishAffinity]:
    """The empty blocks of one node and family that it can do without; one block stays, if it can one that may serve."""
    empty = [record for record in records if record.value.is_empty]
    ripe = [record for record in empty if desk.grace.is_due(RecordRef.of(record))]
    ripe.sort(key=lambda record: (not _may_serve(desk, record.value.prefix), record.value.prefix))
    for record in ripe[len(ripe) == len(records) :]:
        yield RelinquishAffinity(
            affinity=affinity_key(record.value.owner, record.value.prefix),
            reason=RelinquishReason.UNUSED,
            revision=record.revision,
        )


def _may_serve(desk: _Scan, block: Prefix) -> bool:
    """Whether addresses of a block may still be given: it lies in a pool that is neither disabled nor being removed."""
    return any(
        pool.value.spec.prefix.covers(block) and not pool.value.spec.is_disabled and not pool.value.is_terminating
        for pool in desk.view.pools
    )


# --- gone nodes -------------------------------------------------------------------------------------------------------


def _gone_names(
    cluster: ClusterView | None, held: tuple[AllocationOwner, ...], claims: list[_ReadAffinity]
) -> frozenset[str]:
    """The nodes that hold or claim something and do not exist. Without an orchestrator nobody can say that."""
    if cluster is None:
        return frozenset()
    named = {holding.node for holding in held} | {claim.node for claim in claims}
    return frozenset(named - cluster.nodes - {""})


def _gone_nodes(desk: _Scan, freed: frozenset[str]) -> tuple[GoneNode, ...]:
    """Gone nodes with claims: given up are those of blocks that are free of addresses which may still be used."""
    claims: defaultdict[str, list[_ReadAffinity]] = defaultdict(list)
    owners: dict[Prefix, str] = {}
    for claim in desk.affinities.values():
        if claim.node in desk.gone:
            claims[claim.node].append(claim)
            if _is_theirs(desk, claim):
                owners[claim.block] = claim.node
    concerned: defaultdict[str, list[AllocationOwner]] = defaultdict(list)
    for holding in desk.held:
        for node in {holding.node, owners.get(holding.block, "")} & claims.keys():
            concerned[node].append(holding)
    nodes = (_gone_node(desk, theirs, concerned[node], freed) for node, theirs in sorted(claims.items()))
    return tuple(sorted(nodes, key=lambda gone: _failed(desk, gone)))


def _gone_node(
    desk: _Scan, claims: list[_ReadAffinity], concerned: list[AllocationOwner], freed: frozenset[str]
) -> GoneNode:
    """A gone node's own addresses keep its blocks, wherever they are; those of others keep the block they are in.

    What keeps a block keeps its claim; claims that lead to no block of the node are of no use to anybody.
    """
    node = claims[0].node
    kept = [holding for holding in concerned if holding.handle not in freed]
    in_use = {holding.block for holding in kept}
    keeps_all = any(holding.node == node for holding in kept)
    return GoneNode(
        node=node,
        affinities=tuple(
            RelinquishAffinity(affinity=claim.record.key, reason=RelinquishReason.NODE_GONE)
            for claim in claims
            if not _is_theirs(desk, claim) or not (keeps_all or claim.block in in_use)
        ),
        awaits=freed & {holding.handle or "" for holding in concerned},
        kept_by=tuple(sorted(holding.address for holding in kept)),
    )


def _is_theirs(desk: _Scan, claim: _ReadAffinity) -> bool:
    """Whether a claim leads to a block of the claimant's."""
    block = desk.blocks.get(claim.block)
    return block is not None and block.value.owner == claim.owner


def _failed(desk: _Scan, gone: GoneNode) -> int:
    return max((desk.failures.get(claim.subject, 0) for claim in gone.affinities), default=0)
