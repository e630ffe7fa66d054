"""A scan: everything in a view that looks abandoned. Leaked addresses, wrong handles, unused affinities and blocks.

A scan depends on the view, the history of earlier scans and the time, and reads and writes nothing. ``reclaim``
compares its candidates with live lookups before it writes. Handles are compared with their blocks by counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeVar

from attrs import Factory, define, evolve, field, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.clock import SECOND_NS
from netplug_core.ipam.allocation.ownership import is_owned
from netplug_core.ipam.allocation.pools import Cooldown, find_pool_of_block, is_enabled
from netplug_core.ipam.gc.candidates import (
    AllocationOwner,
    AllocationRef,
    Candidate,
    CollectorSettings,
    DeleteBlock,
    ExpireCooldown,
    FreeCondition,
    FreeHandle,
    GCAction,
    GoneNode,
    Inconsistencies,
    Leak,
    LeakReason,
    RecordRef,
    RelinquishAffinity,
    RelinquishReason,
    RepairHandle,
    ScanHistory,
    ScanResult,
    ScanTime,
    StoreView,
    Undetermined,
    UndeterminedReason,
    Verdict,
    allocation_owners,
    judge,
)
from netplug_core.ipam.model import (
    RESERVED_HANDLE,
    Affinity,
    Block,
    Handle,
    affinity_key,
    claimed_block,
    claiming_owner,
    owner_node,
)
from netplug_core.orchestrator.model import ClusterView, PodFacts, PodName
from netplug_core.records import Key, Malformed, Record

__all__ = [
    "MIN_BLOCK_AGE_S", "GraceLedger", "HandleCounts", "HandleTally", "detect", "detect_inconsistencies",
]  # fmt: skip


# --- what blocks hold for a handle ------------------------------------------------------------------------------------


@frozen(kw_only=True)
class HandleCounts:
    """For each handle its blocks in order, each with the number of addresses that it holds there.

    ``addresses`` is the number of assigned addresses, also of those without a handle. Addresses that cool down and
    those that a host reserves are in neither.
    """

    by_handle: dict[str, tuple[tuple[Prefix, int], ...]]
    addresses: int

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> HandleCounts:
        """The counts of some blocks."""
        by_handle: dict[str, tuple[tuple[Prefix, int], ...]] = {}
        addresses = 0
        for block in sorted(blocks, key=lambda block: block.prefix):
            counts = _count_by_handle(block)
            addresses += counts.total()
            pairs = {count: ((block.prefix, count),) for count in set(counts.values())}
            for handle, count in counts.items():
                if handle is not None:
                    by_handle[handle] = by_handle.get(handle, ()) + pairs[count]
        return cls(by_handle=by_handle, addresses=addresses)

    def is_right(self, record: Record[Handle]) -> bool:
        """Whether a stored handle holds something, and counts it as the blocks do."""
        name = record.key.name
        return name == RESERVED_HANDLE or self.by_handle.get(name) == record.value.blocks

    def is_high(self, record: Record[Handle]) -> bool:
        """Whether a stored handle holds something, leads to all of it, and counts too much."""
        held = self.by_handle.get(record.key.name, ())
        is_enough = all(record.value.count(block) >= count for block, count in held)
        return bool(held) and is_enough and not self.is_right(record)

    def blocks_of(self, handle: str) -> frozenset[Prefix]:
        """The blocks that name a handle."""
        return frozenset(block for block, _count in self.by_handle.get(handle, ()))


@define(kw_only=True)
class HandleTally:
    """Stored handles, compared one by one, so that not all of them are kept.

    ``wrong`` are those that differ from the blocks, ``missing`` the names of those that the blocks name and that have
    not been seen, and ``count`` is how many have been.
    """

    counts: HandleCounts
    wrong: list[Record[Handle]]
    missing: set[str]
    count: int = 0

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> HandleTally:
        """The tally of no handle yet."""
        counts = HandleCounts.of(blocks)
        return cls(counts=counts, wrong=[], missing=set(counts.by_handle))

    def add(self, record: Record[Handle]) -> None:
        """Compare a stored handle."""
        self.count += 1
        self.missing.discard(record.key.name)
        if not self.counts.is_right(record):
            self.wrong.append(record)


def _count_by_handle(block: Block) -> Counter[str | None]:
    uses = Counter(block.allocations)
    cooling = {index for index, _released_ns in block.attributes.cooling()}
    counts: Counter[str | None] = Counter()
    for index, handle in enumerate(block.attributes.handles):
        if uses[index] and handle != RESERVED_HANDLE and index not in cooling:
            counts[handle] += uses[index]
    return counts


# --- since when -------------------------------------------------------------------------------------------------------


@define(kw_only=True)
class GraceLedger:
    """Since when each candidate looks abandoned.

    ``previous`` is from earlier scans; what is not in it looks so since ``new_since_ms``. ``since`` has the candidates
    of this scan: only they are kept.
    """

    now_ms: int
    grace_ms: float
    new_since_ms: int
    previous: dict[Candidate, int]
    since: dict[Candidate, int] = field(default=Factory(dict))

    def first_seen(self, candidate: Candidate) -> int:
        """Since when it looks abandoned."""
        return self.since.setdefault(candidate, self.previous.get(candidate, self.new_since_ms))

    def is_due(self, candidate: Candidate) -> bool:
        """Whether it has looked abandoned for the grace period; never if the grace period is 0."""
        return self.grace_ms > 0 and self.now_ms - self.first_seen(candidate) >= self.grace_ms


# --- the scan ---------------------------------------------------------------------------------------------------------


MIN_BLOCK_AGE_S = 60
"""An empty block is kept at least so long after its creation, in seconds, however short the grace period is."""

A = TypeVar("A", bound=GCAction)


@frozen
class _ReadAffinity:
    """An affinity whose key names a block."""

    record: Record[Affinity]
    block: Prefix

    @property
    def key(self) -> Key[Affinity]:
        return self.record.key

    @property
    def node(self) -> str:
        return owner_node(claiming_owner(self.key))


@frozen(kw_only=True)
class _Scan:
    """A view, indexed as the rules need it."""

    view: StoreView
    now: ScanTime
    grace: GraceLedger
    failures: dict[str, int]
    blocks: dict[Prefix, Record[Block]]
    affinities: dict[Key[Affinity], _ReadAffinity]
    unreadable: tuple[Malformed, ...]
    pods: dict[PodName, PodFacts | None]
    held: tuple[AllocationOwner, ...]
    gone: frozenset[str]

    @classmethod
    def open(
        cls, view: StoreView, held: tuple[AllocationOwner, ...], failures: dict[str, int], grace: GraceLedger,
        now: ScanTime,
    ) -> _Scan:  # fmt: skip
        affinities, unreadable = _read_affinities(view)
        return cls(
            view=view,
            now=now,
            grace=grace,
            failures=failures,
            blocks={record.value.prefix: record for record in view.blocks},
            affinities={affinity.key: affinity for affinity in affinities},
            unreadable=unreadable,
            pods={pod.pod_name: pod for pod in view.cluster.pods} if view.cluster else {},
            held=held,
            gone=_gone_names(view.cluster, held, affinities),
        )

    def by_urgency(self, actions: Iterable[A], order: Callable[[A], tuple[object, ...]]) -> tuple[A, ...]:
        """Actions in an order, those that failed before last: a failing action does not hold up the others."""
        return tuple(sorted(actions, key=lambda action: (self.failures.get(action.subject, 0), *order(action))))

    def owns_block(self, affinity: _ReadAffinity) -> bool:
        """Whether the block of an affinity exists and belongs to the affinity's owner."""
        block = self.blocks.get(affinity.block)
        return is_owned(block.value if block else None, affinity.key)


def _read_affinities(view: StoreView) -> tuple[list[_ReadAffinity], tuple[Malformed, ...]]:
    """The affinities of a view, and errors for those whose keys name no block: these do not stop the scan."""
    affinities: list[_ReadAffinity] = []
    unreadable = list(view.unreadable)
    for record in view.affinities:
        try:
            affinities.append(_ReadAffinity(record, claimed_block(record.key)))
        except Malformed as error:
            unreadable.append(error)
    return affinities, tuple(unreadable)


def detect(view: StoreView, history: ScanHistory, settings: CollectorSettings, now: ScanTime) -> ScanResult:
    """Everything in a complete view that looks abandoned, and the history for the next scan."""
    now_ms = now.elapsed_ms
    ledger = GraceLedger(
        now_ms=now_ms, grace_ms=settings.grace_s * 1000, new_since_ms=now_ms, previous=dict(history.since)
    )
    held = tuple(owner for record in view.blocks for owner in allocation_owners(record.value))
    scan = _Scan.open(view, held, dict(history.failures), ledger, now)
    verdicts = [(owner, _judge(scan, owner)) for owner in scan.held]
    leaks, candidates = _leaks(scan, verdicts)
    affinities = (*_affinities_without_block(scan), *_unused_affinities(scan))
    blocks = tuple(_blocks_without_affinity(scan))
    counts = HandleCounts.of(record.value for record in view.blocks)
    wrong = (record for record in view.handles if not counts.is_right(record))
    handles = tuple(_repaired_handles(scan, wrong, counts))
    cooldowns = tuple(_expired_cooldowns(scan))
    gone = _gone_nodes(scan, frozenset(leak.handle for leak in leaks))
    actions: list[GCAction] = [*leaks, *affinities, *blocks, *handles, *cooldowns]
    due = {action.subject for action in chain(actions, *(node.affinities for node in gone))}
    return ScanResult(
        history=ScanHistory(
            since=tuple(scan.grace.since.items()),
            failures=tuple((subject, count) for subject, count in scan.failures.items() if subject in due),
        ),
        leaks=scan.by_urgency(leaks, _by_age(scan)),
        cooldowns=scan.by_urgency(cooldowns, _by_subject),
        affinities=scan.by_urgency(affinities, _by_subject),
        blocks=scan.by_urgency(blocks, _by_subject),
        handles=scan.by_urgency(handles, _by_subject),
        gone=gone,
        candidates=candidates,
        undetermined=tuple(
            Undetermined(owner=owner, reason=verdict)
            for owner, verdict in verdicts
            if isinstance(verdict, UndeterminedReason)
        ),
        unreadable=scan.unreadable,
    )


def detect_inconsistencies(view: StoreView, counts: HandleCounts, now: ScanTime) -> Inconsistencies:
    """The records that do not fit together, however short the time since. It is not judged which address is leaked.

    ``counts`` are those of the blocks, and of the handles the view needs only those that differ from them.
    """
    now_ms, grace_ms = now.elapsed_ms, 1
    ledger = GraceLedger(now_ms=now_ms, grace_ms=grace_ms, new_since_ms=now_ms - grace_ms, previous={})
    scan = _Scan.open(evolve(view, cluster=None), (), {}, ledger, now)
    return Inconsistencies(
        handles=scan.by_urgency(_repaired_handles(scan, view.handles, counts), _by_subject),
        affinities=scan.by_urgency(_affinities_without_block(scan), _by_subject),
        blocks=scan.by_urgency(_blocks_without_affinity(scan), _by_subject),
        unreadable=scan.unreadable,
    )


def _by_subject(action: GCAction) -> tuple[object, ...]:
    return (action.subject,)


# --- leaked addresses -------------------------------------------------------------------------------------------------


def _judge(scan: _Scan, owner: AllocationOwner) -> Verdict:
    if scan.view.cluster is None and owner.handle is not None:
        return UndeterminedReason.NO_ORCHESTRATOR
    return judge(owner, scan.pods, gone=scan.gone)


def _leaks(scan: _Scan, verdicts: list[tuple[AllocationOwner, Verdict]]) -> tuple[list[FreeHandle], tuple[Leak, ...]]:
    """The handles of which all addresses are leaked and may be freed, and the leaks of all other handles."""
    by_handle: defaultdict[str, list[Leak | None]] = defaultdict(list)
    for owner, verdict in verdicts:
        leak = _leak(scan, owner, verdict) if isinstance(verdict, LeakReason) else None
        by_handle[owner.handle or ""].append(leak)
    free: list[FreeHandle] = []
    candidates: list[Leak] = []
    for handle, found in by_handle.items():
        leaks = tuple(leak for leak in found if leak is not None)
        if len(leaks) == len(found) and all(leak.condition for leak in leaks):
            free.append(FreeHandle(handle=handle, leaks=leaks))
        else:
            candidates.extend(leaks)
    return free, tuple(candidates)


def _leak(scan: _Scan, owner: AllocationOwner, reason: LeakReason) -> Leak:
    is_due = scan.grace.is_due(AllocationRef(owner.address, owner.handle or "", owner.sequence))
    condition = FreeCondition.GRACE if is_due else FreeCondition.NODE_GONE if owner.node in scan.gone else None
    return Leak(owner=owner, reason=reason, condition=condition)


def _by_age(scan: _Scan) -> Callable[[FreeHandle], tuple[object, ...]]:
    """Pods before tunnels, then the longest leaked first."""
    since = scan.grace.since
    return lambda action: (
        any(leak.owner.is_tunnel for leak in action.leaks),
        min(since.get(candidate, scan.now.elapsed_ms) for candidate in action.candidates),
        action.handle,
    )


# --- handles ----------------------------------------------------------------------------------------------------------


def _repaired_handles(scan: _Scan, wrong: Iterable[Record[Handle]], counts: HandleCounts) -> Iterator[RepairHandle]:
    """The repairs of handles that differ from their blocks."""
    for record in wrong:
        reference = RecordRef.of(record)
        if scan.grace.is_due(reference):
            named = {prefix for prefix, _count in record.value.blocks}
            yield RepairHandle(record=reference, blocks=tuple(sorted(named | counts.blocks_of(record.key.name))))


# --- blocks and affinities --------------------------------------------------------------------------------------------


def _expired_cooldowns(scan: _Scan) -> Iterator[ExpireCooldown]:
    cooldown = Cooldown(scan.view.cooldown_ns, scan.now.wall_ns)
    for record in scan.view.blocks:
        if cooldown.expire(record.value) is not record.value:
            yield ExpireCooldown(record=RecordRef.of(record))


def _affinities_without_block(scan: _Scan) -> Iterator[RelinquishAffinity]:
    """Affinities of existing nodes that own no block: the node died before it created the block or after it deleted it.

    Affinities of gone nodes are in ``_gone_nodes``.
    """
    for affinity in scan.affinities.values():
        is_unused = not scan.owns_block(affinity) and affinity.node not in scan.gone
        if is_unused and scan.grace.is_due(RecordRef.of(affinity.record)):
            reason = RelinquishReason.FOREIGN if affinity.block in scan.blocks else RelinquishReason.NO_BLOCK
            yield RelinquishAffinity(affinity=affinity.key, reason=reason, revision=affinity.record.revision)


def _blocks_without_affinity(scan: _Scan) -> Iterator[DeleteBlock]:
    """Blocks without an affinity that have been empty for the grace period."""
    for record in scan.view.blocks:
        key = _affinity_of(record.value)
        is_due = record.value.is_empty and scan.grace.is_due(RecordRef.of(record))
        if key not in scan.affinities and is_due and not _is_young(scan, record.value):
            yield DeleteBlock(record=RecordRef.of(record), affinity=key)


def _unused_affinities(scan: _Scan) -> Iterator[RelinquishAffinity]:
    """The affinities of empty blocks that existing nodes can do without. Only nodes are considered, no other owners."""
    owned: defaultdict[tuple[str, Family], list[Record[Block]]] = defaultdict(list)
    for record in scan.view.blocks:
        node = owner_node(record.value.owner)
        if node and node not in scan.gone and _affinity_of(record.value) in scan.affinities:
            owned[node, record.value.prefix.family].append(record)
    for records in owned.values():
        yield from _spare_blocks(scan, records)


def _is_young(scan: _Scan, block: Block) -> bool:
    """Whether a block was created less than ``MIN_BLOCK_AGE_S`` ago; its first sequence number is that time.

    A release may have created it, so that the late creation by a killed assignment fails.
    """
    return scan.now.wall_ns - (block.claim_time_ns or block.sequence) < MIN_BLOCK_AGE_S * SECOND_NS


def _affinity_of(block: Block) -> Key[Affinity] | None:
    """The key of the affinity of a block's owner; None if the block has no owner."""
    return affinity_key(block.owner, block.prefix) if block.owner else None


def _spare_blocks(scan: _Scan, records: list[Record[Block]]) -> Iterator[RelinquishAffinity]:
    """The empty blocks of one node and family, without the one that it keeps: if possible one of an enabled pool."""
    empty = [record for record in records if record.value.is_empty]
    old = [record for record in empty if scan.grace.is_due(RecordRef.of(record))]
    due = [record for record in old if not _is_young(scan, record.value)]
    due.sort(key=lambda record: (not _is_in_enabled_pool(scan, record.value.prefix), record.value.prefix))
    for record in due[len(due) == len(records) :]:
        yield RelinquishAffinity(
            affinity=affinity_key(record.value.owner, record.value.prefix),
            reason=RelinquishReason.UNUSED,
            revision=record.revision,
        )


def _is_in_enabled_pool(scan: _Scan, block: Prefix) -> bool:
    pool = find_pool_of_block(scan.view.pools, block)
    return pool is not None and is_enabled(pool.value)


# --- gone nodes -------------------------------------------------------------------------------------------------------


def _gone_names(
    cluster: ClusterView | None, held: tuple[AllocationOwner, ...], affinities: list[_ReadAffinity]
) -> frozenset[str]:
    """The nodes that hold addresses or affinities and do not exist. Without an orchestrator this is not known."""
    if cluster is None:
        return frozenset()
    named = {owner.node for owner in held} | {affinity.node for affinity in affinities}
    return frozenset(named - cluster.nodes - {""})


def _gone_nodes(scan: _Scan, freed: frozenset[str]) -> tuple[GoneNode, ...]:
    """Gone nodes with affinities. ``freed`` are the handles that are about to be freed."""
    affinities: defaultdict[str, list[_ReadAffinity]] = defaultdict(list)
    owners: dict[Prefix, str] = {}
    for affinity in scan.affinities.values():
        if affinity.node in scan.gone:
            affinities[affinity.node].append(affinity)
            if scan.owns_block(affinity):
                owners[affinity.block] = affinity.node
    concerned: defaultdict[str, list[AllocationOwner]] = defaultdict(list)
    for owner in scan.held:
        for node in {owner.node, owners.get(owner.block, "")} & affinities.keys():
            concerned[node].append(owner)
    nodes = (_gone_node(scan, of_node, concerned[node], freed) for node, of_node in sorted(affinities.items()))
    return tuple(sorted(nodes, key=lambda gone: _failure_count(scan, gone)))


def _gone_node(
    scan: _Scan, affinities: list[_ReadAffinity], concerned: list[AllocationOwner], freed: frozenset[str]
) -> GoneNode:
    """Which affinities of a gone node can be relinquished.

    An address of the node itself that may be in use keeps all of its blocks; an address of another node keeps the block
    that it is in. A block that is kept keeps its affinity. Affinities that own no block are always relinquished.
    """
    node = affinities[0].node
    kept = [owner for owner in concerned if owner.handle not in freed]
    in_use = {owner.block for owner in kept}
    keeps_all = any(owner.node == node for owner in kept)
    return GoneNode(
        node=node,
        affinities=tuple(
            RelinquishAffinity(affinity=affinity.key, reason=RelinquishReason.NODE_GONE)
            for affinity in affinities
            if not scan.owns_block(affinity) or not (keeps_all or affinity.block in in_use)
        ),
        awaits=freed & {owner.handle or "" for owner in concerned},
        kept_by=tuple(sorted(owner.address for owner in kept)),
    )


def _failure_count(scan: _Scan, gone: GoneNode) -> int:
    return max((scan.failures.get(action.subject, 0) for action in gone.affinities), default=0)
