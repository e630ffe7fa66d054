"""What does not fit together among blocks, handles and affinities, and what of it can be repaired.

Blocks say who holds which address; handles and affinities only lead to them. So a handle or an affinity can always be
made to fit the blocks, and no repair frees an address. ``flows.ipam.check`` reads the records and commits the repairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.ipam.gc.candidates import allocation_owners
from netplug_core.ipam.gc.detect import detect
from netplug_core.ipam.gc.model import (
    CollectorSettings,
    DeleteBlock,
    RecordRef,
    RelinquishAffinity,
    RelinquishReason,
    RepairHandle,
    ScanHistory,
    ScanTime,
    StoreView,
)
from netplug_core.ipam.model.affinity import AFFINITY, Affinity, affinity_key
from netplug_core.ipam.model.block import BLOCK, Block
from netplug_core.ipam.model.handle import HANDLE, Handle, handle_key
from netplug_core.ipam.reporting.restore import DeleteDamaged, RestoreAffinity, RestoreHandle
from netplug_core.records import Key, Kind, Malformed

__all__ = ["CheckReport", "DamagedRecord", "Repair", "Unrepairable", "check"]

Repair: TypeAlias = RepairHandle | RestoreHandle | RelinquishAffinity | RestoreAffinity | DeleteBlock | DeleteDamaged
"""A change that makes records fit together. Its text says what is done and why."""

_GRACE_S = 1.0
_SETTINGS = CollectorSettings(grace_s=_GRACE_S)


@frozen(kw_only=True)
class DamagedRecord:
    """A record that cannot be decoded, and its kind."""

    kind: Kind[object]
    error: Malformed


@frozen
class Unrepairable:
    """What does not fit, and why no repair is safe."""

    problem: str

    def __str__(self) -> str:
        return self.problem


@frozen(kw_only=True)
class CheckReport:
    """The problems that a check found, and how much it looked at."""

    repairs: tuple[Repair, ...]
    unrepairable: tuple[Unrepairable, ...]
    blocks: int
    addresses: int
    handles: int
    affinities: int

    @property
    def problems(self) -> int:
        """How many there are."""
        return len(self.repairs) + len(self.unrepairable)


def check(view: StoreView, damaged: Iterable[DamagedRecord], now: ScanTime) -> CheckReport:
    """Everything that does not fit together. Pods and nodes are not considered: no address is called leaked."""
    damaged = tuple(damaged)
    kinds = {each.kind for each in damaged}
    found = detect(evolve(view, cluster=None, unreadable=()), _since_long_ago(view, now), _SETTINGS, now)
    unused = (action for action in found.affinities if action.reason is not RelinquishReason.UNUSED)
    deleted = (action for action in found.blocks if action.affinity is None or AFFINITY not in kinds)
    restored = tuple(_lost_handles(view))
    claimed = tuple(_lost_affinities(view, is_damaged=AFFINITY in kinds))
    candidates: tuple[Repair, ...] = (
        *found.handles,
        *restored,
        *unused,
        *claimed,
        *deleted,
        *_useless(damaged, restored, claimed),
    )
    kept = frozenset(repair for repair in candidates if BLOCK in kinds and _may_lead_to_damage(view, repair))
    repairs = tuple(repair for repair in candidates if repair not in kept)
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
            *_overlaps(record.value.prefix for record in view.blocks),
        ),
        blocks=len(view.blocks),
        addresses=sum(len(allocation_owners(record.value)) for record in view.blocks),
        handles=len(view.handles),
        affinities=len(view.affinities),
    )


def _since_long_ago(view: StoreView, now: ScanTime) -> ScanHistory:
    """A history in which every record has looked so for the grace period: the caller itself waits where it has to."""
    records: Iterable[RecordRef[object]] = (
        *map(RecordRef.of, view.blocks),
        *map(RecordRef.of, view.handles),
        *map(RecordRef.of, view.affinities),
    )
    since_ms = now.elapsed_ms - round(_GRACE_S * 1000)
    return ScanHistory(since=tuple((record, since_ms) for record in records))


def _lost_handles(view: StoreView) -> Iterator[RestoreHandle]:
    """The handles that hold addresses and are not stored, or cannot be read."""
    known = {record.key.name for record in view.handles}
    blocks: defaultdict[str, list[Key[Block]]] = defaultdict(list)
    for record in view.blocks:
        owners = allocation_owners(record.value)
        for handle in sorted({owner.handle for owner in owners if owner.handle is not None} - known):
            blocks[handle].append(record.key)
    for handle, keys in sorted(blocks.items()):
        yield RestoreHandle(key=handle_key(handle), blocks=tuple(keys))


def _lost_affinities(view: StoreView, *, is_damaged: bool) -> Iterator[RestoreAffinity]:
    """The affinities of blocks with an owner that are not stored, or cannot be read.

    An empty block goes without its affinity, unless that may be a damaged one.
    """
    known = {record.key for record in view.affinities}
    for record in view.blocks:
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


def _may_lead_to_damage(view: StoreView, repair: Repair) -> bool:
    """Whether a repair drops or shortens what may lead to a block that cannot be read."""
    match repair:
        case RepairHandle():
            return not {record.value.prefix for record in view.blocks}.issuperset(repair.blocks)
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
