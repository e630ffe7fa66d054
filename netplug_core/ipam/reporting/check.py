"""What does not fit together among blocks, handles and affinities, and what of it can be repaired.

Blocks say who holds which address; handles and affinities only lead to them. So a handle or an affinity can always be
made to fit the blocks, and no repair frees an address. ``flows.ipam.check`` reads the records and commits the repairs.

A handle that counts more than it holds is what a killed assignment leaves. It leads to all its addresses, and its next
assignment or release corrects it, so it is no problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.pools import find_selector_problems, unread_entries
from netplug_core.ipam.gc.detect import detect_inconsistencies
from netplug_core.ipam.gc.handle_counts import HandleTally
from netplug_core.ipam.gc.model import (
    DeleteBlock,
    RelinquishAffinity,
    RelinquishReason,
    RepairHandle,
    ScanTime,
    StoreView,
)
from netplug_core.ipam.model.affinity import AFFINITY, Affinity, affinity_key
from netplug_core.ipam.model.block import BLOCK, RESERVED_HANDLE, Block
from netplug_core.ipam.model.handle import HANDLE, Handle, handle_key
from netplug_core.ipam.reporting.restore import DeleteDamaged, RestoreAffinity, RestoreBlock, RestoreHandle
from netplug_core.records import Key, Kind, Malformed, Record
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.ipreservation import IPReservation

__all__ = ["CheckReport", "CheckedRecords", "DamagedRecord", "Repair", "Unrepairable", "WithoutPool", "check"]

Repair: TypeAlias = (
    RepairHandle | RestoreHandle | RelinquishAffinity | RestoreAffinity | RestoreBlock | DeleteBlock | DeleteDamaged
)
"""A change that makes records fit together. Its text says what is done and why."""


@frozen(kw_only=True)
class DamagedRecord:
    """A record that cannot be decoded, and its kind."""

    kind: Kind[object]
    error: Malformed


@frozen(kw_only=True)
class CheckedRecords:
    """What is checked: blocks and affinities, the stored handles compared with the blocks, and what is damaged.

    Of pools and reservations it is checked whether assignments can use the whole of them. ``has_all_pools``: every pool
    was read, so that an address which none of them contains is in no pool.
    """

    blocks: tuple[Record[Block], ...]
    affinities: tuple[Record[Affinity], ...]
    handles: HandleTally
    damaged: tuple[DamagedRecord, ...] = ()
    pools: tuple[Record[IPPool], ...] = ()
    has_all_pools: bool = False
    reservations: tuple[Record[IPReservation], ...] = ()


@frozen
class Unrepairable:
    """What does not fit, and why no repair is safe."""

    problem: str

    def __str__(self) -> str:
        return self.problem


@frozen
class WithoutPool(Unrepairable):
    """Addresses of a block that are held and in no pool."""


@frozen(kw_only=True)
class CheckReport:
    """The problems that a check found, and how much it looked at.

    ``high_counts`` are handles that count more than they hold: no problem, but a repair corrects them too.
    """

    repairs: tuple[Repair, ...]
    unrepairable: tuple[Unrepairable, ...]
    high_counts: tuple[RepairHandle, ...] = ()
    blocks: int
    addresses: int
    handles: int
    affinities: int

    @property
    def problems(self) -> int:
        """How many there are."""
        return len(self.repairs) + len(self.unrepairable)

    def before_pools(self) -> CheckReport:
        """The report on a cluster whose pools are still to be made: addresses in no pool are no problem there."""
        return evolve(self, unrepairable=tuple(each for each in self.unrepairable if not isinstance(each, WithoutPool)))


def check(records: CheckedRecords, now: ScanTime) -> CheckReport:
    """Everything that does not fit together. Pods and nodes are not considered: no address is called leaked."""
    damaged, handles = records.damaged, records.handles
    kinds = {each.kind for each in damaged}
    view = StoreView(blocks=records.blocks, affinities=records.affinities, handles=tuple(handles.wrong))
    found = detect_inconsistencies(view, handles.counts, now)
    deleted = (action for action in found.blocks if action.affinity is None or AFFINITY not in kinds)
    restored = tuple(_lost_handles(records))
    claimed = tuple(_lost_affinities(records, is_damaged=AFFINITY in kinds))
    candidates: tuple[Repair, ...] = (
        *found.handles,
        *restored,
        *found.affinities,
        *claimed,
        *deleted,
        *_useless(damaged, restored, claimed),
    )
    readable = frozenset(record.value.prefix for record in records.blocks)
    kept = frozenset(repair for repair in candidates if BLOCK in kinds and _may_lead_to_damage(readable, repair))
    high = frozenset(record.key for record in handles.wrong if handles.counts.is_high(record))
    high_counts = tuple(repair for repair in found.handles if repair.record.key in high and repair not in kept)
    passed = kept.union(high_counts)
    repairs = tuple(repair for repair in candidates if repair not in passed)
    replaced = {repair.key for repair in repairs if isinstance(repair, DeleteDamaged | RestoreHandle | RestoreAffinity)}
    return CheckReport(
        repairs=repairs,
        unrepairable=(
            *(Unrepairable(str(each.error)) for each in damaged if each.error.subject not in replaced),
            *(Unrepairable(str(error)) for error in found.unreadable),
            *(
                Unrepairable(f"{repair}: not while a block is damaged, which it may lead to")
                for repair in candidates
                if repair in kept
            ),
            *_overlaps(record.value.prefix for record in records.blocks),
            *_without_pool(records),
            *_unjudged(records),
        ),
        high_counts=high_counts,
        blocks=len(records.blocks),
        addresses=handles.counts.addresses,
        handles=handles.count,
        affinities=len(records.affinities),
    )


def _without_pool(records: CheckedRecords) -> Iterator[WithoutPool]:
    """The blocks that hold addresses of no pool: it was deleted, or replaced by a smaller one.

    Their workloads go on, and a new pool around them may have blocks of another size. Addresses that cool down end by
    themselves, and those that a host reserves are of no workload.
    """
    if not records.has_all_pools:
        return
    pools = [record.value.spec.prefix for record in records.pools]
    for record in records.blocks:
        block = record.value
        if any(pool.covers(block.prefix) for pool in pools):
            continue
        held = [
            each.address
            for each in block.held()
            if not each.is_cooling
            and each.attribute.handle != RESERVED_HANDLE
            and not any(pool.contains(each.address) for pool in pools)
        ]
        if held:
            which = f"{held[0]} is" if len(held) == 1 else f"{len(held)} addresses, {held[0]} to {held[-1]}, are"
            remedy = f"create a pool with block size {block.prefix.length} around the block, or let its workloads end"
            yield WithoutPool(f"block {block.prefix}: {which} held, and in no pool; {remedy}")


def _unjudged(records: CheckedRecords) -> Iterator[Unrepairable]:
    """What assignments pass over because they cannot judge it."""
    for pool in records.pools:
        for problem in find_selector_problems(pool):
            yield Unrepairable(f"{problem}; the pool serves only who names it")
    for reservation in records.reservations:
        yield from (Unrepairable(str(entry)) for entry in unread_entries(reservation))


def _lost_handles(records: CheckedRecords) -> Iterator[RestoreHandle]:
    """The handles that hold addresses and are not stored, or cannot be read."""
    keys = {record.value.prefix: record.key for record in records.blocks}
    for handle in sorted(records.handles.missing):
        blocks = sorted(records.handles.counts.blocks_of(handle))
        yield RestoreHandle(key=handle_key(handle), blocks=tuple(map(keys.__getitem__, blocks)))


def _lost_affinities(records: CheckedRecords, *, is_damaged: bool) -> Iterator[RestoreAffinity]:
    """The affinities of blocks with an owner that are not stored, or cannot be read.

    An empty block goes without its affinity, unless that may be a damaged one.
    """
    known = {record.key for record in records.affinities}
    for record in records.blocks:
        block = record.value
        if block.owner and (is_damaged or not block.is_empty):
            key = affinity_key(block.owner, block.prefix)
            if key not in known:
                yield RestoreAffinity(key=key, block=record.key)


def _useless(
    damaged: Iterable[DamagedRecord], handles: Iterable[RestoreHandle], affinities: Iterable[RestoreAffinity]
) -> Iterator[DeleteDamaged]:
    """Damaged handles that hold nothing, and damaged affinities that own no block."""
    needed: set[Key[Handle] | Key[Affinity]] = {*(each.key for each in handles), *(each.key for each in affinities)}
    for each in damaged:
        key = each.error.subject
        if key is not None and each.kind in (HANDLE, AFFINITY) and key not in needed:
            yield DeleteDamaged(key=key, revision=each.error.revision)


def _may_lead_to_damage(readable: frozenset[Prefix], repair: Repair) -> bool:
    """Whether a repair drops or shortens what may lead to a block that cannot be read; ``readable`` are the others."""
    match repair:
        case RepairHandle():
            return not readable.issuperset(repair.blocks)
        case RelinquishAffinity():
            return repair.reason is RelinquishReason.NO_BLOCK
        case RestoreHandle() | DeleteDamaged():
            return True
        case _:
            return False


def _overlaps(prefixes: Iterable[Prefix]) -> Iterator[Unrepairable]:
    """The blocks that lie in other blocks: an address of both may be held twice."""
    widest: Prefix | None = None
    for prefix in sorted(prefixes):
        if widest is not None and widest.covers(prefix):
            yield Unrepairable(f"block {prefix} lies in block {widest}: an address of both may have two owners")
        else:
            widest = prefix
