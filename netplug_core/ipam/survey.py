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
from netplug_core.ipam.affinity import Affinity, affinity_key, claimed_block, claiming_owner, owner_node
from netplug_core.ipam.block import RESERVED_HANDLE, Block
from netplug_core.ipam.collection import (
    Action,
    Basis,
    ClaimEnd,
    DeleteBlock,
    Findings,
    FreeCooled,
    FreeHandle,
    GiveUp,
    GoneNode,
    Leak,
    Memory,
    MendHandle,
    Moment,
    Seen,
    Settings,
    Suspect,
    Taken,
    Unjudged,
    View,
)
from netplug_core.ipam.holdings import Doubt, Holding, LeakReason, Verdict, holdings, judge
from netplug_core.ipam.witness import Cluster, KnownPod, PodName
from netplug_core.records import Key, Malformed, Record

__all__ = ["survey"]

A = TypeVar("A", bound=Action)


@define(kw_only=True)
class _Ledger:
    """Since when suspects look abandoned: those of before that are still suspect, and the new ones, from now on."""

    now_ms: int
    grace_ms: float
    before: dict[Suspect, int]
    since: dict[Suspect, int] = field(default=Factory(dict))

    def date(self, suspect: Suspect) -> int:
        """Since when it is suspect."""
        return self.since.setdefault(suspect, self.before.get(suspect, self.now_ms))

    def is_ripe(self, suspect: Suspect) -> bool:
        """Whether it has been suspect for the grace period; never where nothing is judged by time."""
        return self.grace_ms > 0 and self.now_ms - self.date(suspect) >= self.grace_ms


@frozen
class _Claim:
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
class _Desk:
    """A view, looked up from the sides that the rules need."""

    view: View
    now: Moment
    ledger: _Ledger
    failures: dict[str, int]
    blocks: dict[Prefix, Record[Block]]
    claims: dict[Key[Affinity], _Claim]
    unreadable: tuple[Malformed, ...]
    pods: dict[PodName, KnownPod | None]
    held: tuple[Holding, ...]
    gone: frozenset[str]

    @classmethod
    def open(cls, view: View, memory: Memory, settings: Settings, now: Moment) -> _Desk:
        held = tuple(holding for record in view.blocks for holding in holdings(record.value))
        claims, unreadable = _claims(view)
        return cls(
            view=view,
            now=now,
            ledger=_Ledger(now_ms=now.elapsed_ms, grace_ms=settings.grace_s * 1000, before=dict(memory.since)),
            failures=dict(memory.failures),
            blocks={record.value.prefix: record for record in view.blocks},
            claims={claim.record.key: claim for claim in claims},
            unreadable=unreadable,
            pods={pod.pod: pod for pod in view.cluster.pods} if view.cluster else {},
            held=held,
            gone=_gone_names(view.cluster, held, claims),
        )

    def urgent(self, actions: Iterable[A], order: Callable[[A], tuple[object, ...]]) -> tuple[A, ...]:
        """Actions in an order, those that failed before behind the others: none can hold up the rest for ever."""
        return tuple(sorted(actions, key=lambda action: (self.failures.get(action.subject, 0), *order(action))))


def _claims(view: View) -> tuple[list[_Claim], tuple[Malformed, ...]]:
    """The claims of a view, and the complaints about those that name no block: one of them must not stop the rest."""
    claims: list[_Claim] = []
    unreadable: list[Malformed] = []
    for record in view.affinities:
        try:
            claims.append(_Claim(record, claimed_block(record.key)))
        except Malformed as error:
            unreadable.append(error)
    return claims, tuple(unreadable)


def survey(view: View, memory: Memory, settings: Settings, now: Moment) -> Findings:
    """Everything in a complete view that is abandoned, and the memory for the next survey."""
    desk = _Desk.open(view, memory, settings, now)
    verdicts = [(holding, _judge(desk, holding)) for holding in desk.held]
    leaks, candidates = _leaks(desk, verdicts)
    claims = (*_claims_without_block(desk), *_spare_claims(desk))
    blocks, handles, cooled = tuple(_unclaimed(desk)), tuple(_wrong_handles(desk)), tuple(_cooled(desk))
    gone = _gone_nodes(desk, frozenset(leak.handle for leak in leaks))
    actions: list[Action] = [*leaks, *claims, *blocks, *handles, *cooled]
    due = {action.subject for action in chain(actions, *(node.claims for node in gone))}
    return Findings(
        memory=Memory(
            since=tuple(desk.ledger.since.items()),
            failures=tuple((subject, count) for subject, count in desk.failures.items() if subject in due),
        ),
        leaks=desk.urgent(leaks, _by_age(desk)),
        cooled=desk.urgent(cooled, _by_subject),
        claims=desk.urgent(claims, _by_subject),
        blocks=desk.urgent(blocks, _by_subject),
        handles=desk.urgent(handles, _by_subject),
        gone=gone,
        candidates=candidates,
        unjudged=tuple(
            Unjudged(holding=holding, doubt=verdict) for holding, verdict in verdicts if isinstance(verdict, Doubt)
        ),
        unreadable=desk.unreadable,
    )


def _by_subject(action: Action) -> tuple[object, ...]:
    return (action.subject,)


# --- leaked addresses -------------------------------------------------------------------------------------------------


def _judge(desk: _Desk, holding: Holding) -> Verdict:
    if desk.view.cluster is None and holding.handle is not None:
        return Doubt.NO_ORCHESTRATOR
    return judge(holding, desk.pods, gone=desk.gone)


def _leaks(desk: _Desk, verdicts: list[tuple[Holding, Verdict]]) -> tuple[list[FreeHandle], tuple[Leak, ...]]:
    """The handles of which every address is leaked and may be freed, and the leaks of all others."""
    by_handle: defaultdict[str, list[Leak | None]] = defaultdict(list)
    for holding, verdict in verdicts:
        leak = _leak(desk, holding, verdict) if isinstance(verdict, LeakReason) else None
        by_handle[holding.handle or ""].append(leak)
    free: list[FreeHandle] = []
    candidates: list[Leak] = []
    for handle, found in by_handle.items():
        leaks = tuple(leak for leak in found if leak is not None)
        if len(leaks) == len(found) and all(leak.basis for leak in leaks):
            free.append(FreeHandle(handle=handle, leaks=leaks))
        else:
            candidates.extend(leaks)
    return free, tuple(candidates)


def _leak(desk: _Desk, holding: Holding, reason: LeakReason) -> Leak:
    is_ripe = desk.ledger.is_ripe(_taken(holding))
    basis = Basis.GRACE if is_ripe else Basis.NODE_GONE if holding.node in desk.gone else None
    return Leak(holding=holding, reason=reason, basis=basis)


def _taken(holding: Holding) -> Taken:
    return Taken(holding.address, holding.handle or "", holding.sequence)


def _by_age(desk: _Desk) -> Callable[[FreeHandle], tuple[object, ...]]:
    """Pods before tunnels, then who leaks the longest."""
    since = desk.ledger.since
    return lambda action: (
        any(leak.holding.is_tunnel for leak in action.leaks),
        min(since.get(suspect, desk.now.elapsed_ms) for suspect in action.suspects),
        action.handle,
    )


# --- handles ----------------------------------------------------------------------------------------------------------


def _wrong_handles(desk: _Desk) -> Iterator[MendHandle]:
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
        seen = Seen.of(record)
        if desk.ledger.is_ripe(seen):
            named = {prefix for prefix, _count in record.value.blocks}
            yield MendHandle(seen=seen, blocks=tuple(sorted(named | held.keys())))


# --- blocks and claims ------------------------------------------------------------------------------------------------


def _cooled(desk: _Desk) -> Iterator[FreeCooled]:
    for record in desk.view.blocks:
        if record.value.collected(desk.now.wall_ns, desk.view.cooldown_ns) is not record.value:
            yield FreeCooled(seen=Seen.of(record))


def _claims_without_block(desk: _Desk) -> Iterator[GiveUp]:
    """Claims that a crash left, before their block was made or after it was given up; a gone node's are not here."""
    for claim in desk.claims.values():
        is_idle = not _is_theirs(desk, claim) and claim.node not in desk.gone
        if is_idle and desk.ledger.is_ripe(Seen.of(claim.record)):
            reason = ClaimEnd.FOREIGN if claim.block in desk.blocks else ClaimEnd.NO_BLOCK
            yield GiveUp(claim=claim.record.key, reason=reason, revision=claim.record.revision)


def _unclaimed(desk: _Desk) -> Iterator[DeleteBlock]:
    """Blocks that have been empty for the grace period, and that nobody has a claim on."""
    for record in desk.view.blocks:
        claim = _claim_of(record.value)
        if claim not in desk.claims and record.value.is_empty and desk.ledger.is_ripe(Seen.of(record)):
            yield DeleteBlock(seen=Seen.of(record), claim=claim)


def _spare_claims(desk: _Desk) -> Iterator[GiveUp]:
    """The blocks that nodes can do without. A gone node's are not here; who is no node looks after its own."""
    owned: defaultdict[tuple[str, Family], list[Record[Block]]] = defaultdict(list)
    for record in desk.view.blocks:
        node = owner_node(record.value.owner)
        if node and node not in desk.gone and _claim_of(record.value) in desk.claims:
            owned[node, record.value.prefix.family].append(record)
    for records in owned.values():
        yield from _spare(desk, records)


def _claim_of(block: Block) -> Key[Affinity] | None:
    """What a block's owner claims it with; None where it has no owner."""
    return affinity_key(block.owner, block.prefix) if block.owner else None


def _spare(desk: _Desk, records: list[Record[Block]]) -> Iterator[GiveUp]:
    """The empty blocks of one node and family that it can do without; one block stays, if it can one that may serve."""
    empty = [record for record in records if record.value.is_empty]
    ripe = [record for record in empty if desk.ledger.is_ripe(Seen.of(record))]
    ripe.sort(key=lambda record: (not _may_serve(desk, record.value.prefix), record.value.prefix))
    for record in ripe[len(ripe) == len(records) :]:
        yield GiveUp(
            claim=affinity_key(record.value.owner, record.value.prefix),
            reason=ClaimEnd.UNUSED,
            revision=record.revision,
        )


def _may_serve(desk: _Desk, block: Prefix) -> bool:
    """Whether addresses of a block may still be given: it lies in a pool that is neither disabled nor being removed."""
    return any(
        pool.value.spec.prefix.covers(block) and not pool.value.spec.is_disabled and not pool.value.is_terminating
        for pool in desk.view.pools
    )


# --- gone nodes -------------------------------------------------------------------------------------------------------


def _gone_names(cluster: Cluster | None, held: tuple[Holding, ...], claims: list[_Claim]) -> frozenset[str]:
    """The nodes that hold or claim something and do not exist. Without an orchestrator nobody can say that."""
    if cluster is None:
        return frozenset()
    named = {holding.node for holding in held} | {claim.node for claim in claims}
    return frozenset(named - cluster.nodes - {""})


def _gone_nodes(desk: _Desk, freed: frozenset[str]) -> tuple[GoneNode, ...]:
    """Gone nodes with claims: given up are those of blocks that are free of addresses which may still be used."""
    claims: defaultdict[str, list[_Claim]] = defaultdict(list)
    owners: dict[Prefix, str] = {}
    for claim in desk.claims.values():
        if claim.node in desk.gone:
            claims[claim.node].append(claim)
            if _is_theirs(desk, claim):
                owners[claim.block] = claim.node
    concerned: defaultdict[str, list[Holding]] = defaultdict(list)
    for holding in desk.held:
        for node in {holding.node, owners.get(holding.block, "")} & claims.keys():
            concerned[node].append(holding)
    nodes = (_gone_node(desk, theirs, concerned[node], freed) for node, theirs in sorted(claims.items()))
    return tuple(sorted(nodes, key=lambda gone: _failed(desk, gone)))


def _gone_node(desk: _Desk, claims: list[_Claim], concerned: list[Holding], freed: frozenset[str]) -> GoneNode:
    """A gone node's own addresses keep its blocks, wherever they are; those of others keep the block they are in.

    What keeps a block keeps its claim; claims that lead to no block of the node are of no use to anybody.
    """
    node = claims[0].node
    kept = [holding for holding in concerned if holding.handle not in freed]
    in_use = {holding.block for holding in kept}
    keeps_all = any(holding.node == node for holding in kept)
    return GoneNode(
        node=node,
        claims=tuple(
            GiveUp(claim=claim.record.key, reason=ClaimEnd.NODE_GONE)
            for claim in claims
            if not _is_theirs(desk, claim) or not (keeps_all or claim.block in in_use)
        ),
        awaits=freed & {holding.handle or "" for holding in concerned},
        kept_by=tuple(sorted(holding.address for holding in kept)),
    )


def _is_theirs(desk: _Desk, claim: _Claim) -> bool:
    """Whether a claim leads to a block of the claimant's."""
    block = desk.blocks.get(claim.block)
    return block is not None and block.value.owner == claim.owner


def _failed(desk: _Desk, gone: GoneNode) -> int:
    return max((desk.failures.get(claim.subject, 0) for claim in gone.claims), default=0)
