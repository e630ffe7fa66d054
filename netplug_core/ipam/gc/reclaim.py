"""The collector's writes: each rule reads its records again and does only what is still due.

``flows.ipam.collect`` runs a rule for a batch of actions as one transaction. An action is skipped if its record was
written after the scan, so a concurrent ADD always wins. An action that needs no write any more counts as done. That
makes it safe to decide again after a lost reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeAlias, TypeVar, assert_never, cast

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.context import BLOCKS_FREED_PER_COMMIT, batches
from netplug_core.ipam.allocation.ownership import is_owned
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.allocation.release_addresses import decide_release_addresses, release_addresses_queries
from netplug_core.ipam.allocation.relinquish import Emptiness, RelinquishResult, decide_relinquish, relinquish_queries
from netplug_core.ipam.allocation.request import AddressesReleased, ReleaseItem
from netplug_core.ipam.gc.model import (
    DeleteBlock,
    ExpireCooldown,
    FreeHandle,
    GCAction,
    Leak,
    RelinquishAffinity,
    RelinquishReason,
    RepairHandle,
)
from netplug_core.ipam.model.affinity import claimed_block
from netplug_core.ipam.model.block import block_key
from netplug_core.ipam.model.handle import handle_key
from netplug_core.records import ABSENT, Decision, Delete, Get, NeedMore, Query, Require, Snapshot, Update, Write
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY

__all__ = [
    "DELETE_BLOCKS", "EXPIRE_COOLDOWN", "FREE_HANDLES", "RELINQUISH_AFFINITIES", "REPAIR_HANDLES", "ReclaimResult",
    "Reclaimer", "parts_to_free",
]  # fmt: skip

A = TypeVar("A", bound=GCAction)

PlannedWrites: TypeAlias = tuple[Write, ...] | None
"""The writes of one action: empty if it is done already, None if it is skipped."""


@frozen(kw_only=True)
class ReclaimResult:
    """Which actions of a batch are done, and which were skipped."""

    done: tuple[GCAction, ...] = ()
    skipped: tuple[GCAction, ...] = ()


@frozen
class Reclaimer(Generic[A]):
    """How one kind of action is carried out: what to read first, and the decision about a batch."""

    queries: Callable[[tuple[A, ...]], tuple[Query, ...]]
    decide: Callable[[Snapshot, tuple[A, ...], int], Decision[ReclaimResult] | NeedMore]


def _combined(plans: Iterable[tuple[GCAction, PlannedWrites]]) -> Decision[ReclaimResult]:
    """One decision with the writes of some actions."""
    plans = tuple(plans)
    writes = tuple(write for _action, plan in plans for write in plan or ())
    return Decision(
        writes,
        ReclaimResult(
            done=tuple(action for action, plan in plans if plan is not None),
            skipped=tuple(action for action, plan in plans if plan is None),
        ),
    )


# --- leaked addresses -------------------------------------------------------------------------------------------------


def _free_queries(actions: tuple[FreeHandle, ...]) -> tuple[Query, ...]:
    handles = (Get(handle_key(action.handle)) for action in actions)
    blocks = dict.fromkeys(Get(block_key(leak.owner.block)) for action in actions for leak in action.leaks)
    return (*release_addresses_queries(), *handles, *blocks)


def _free(snapshot: Snapshot, actions: tuple[FreeHandle, ...], now_ns: int) -> Decision[ReclaimResult] | NeedMore:
    """Free whole handles. A handle is skipped if one of its addresses was assigned again after the scan."""
    unchanged = [action for action in actions if all(_is_unchanged(snapshot, action, leak) for leak in action.leaks)]
    items = tuple(_item(action, leak) for action in unchanged for leak in action.leaks)
    decision = decide_release_addresses(snapshot, items, now_ns)
    if isinstance(decision, NeedMore):
        return decision
    answer = cast("AddressesReleased", decision.result)  # never an error: refused items are listed in it
    free = {*answer.released, *answer.free_already}
    done = tuple(action for action in unchanged if free.issuperset(leak.owner.address for leak in action.leaks))
    result = ReclaimResult(done=done, skipped=tuple(action for action in actions if action not in done))
    return Decision(decision.writes, result)


def _is_unchanged(snapshot: Snapshot, action: FreeHandle, leak: Leak) -> bool:
    """Whether an address is still assigned as in the scan, or is free by now."""
    record = snapshot.find(block_key(leak.owner.block))
    held = record.value.find(leak.owner.address) if record else None
    if held is None or held.is_cooling:
        return True
    return (held.attribute.handle, held.sequence) == (action.handle, leak.owner.sequence)


def _item(action: FreeHandle, leak: Leak) -> ReleaseItem:
    return ReleaseItem(address=leak.owner.address, handle=action.handle, sequence=leak.owner.sequence)


FREE_HANDLES = Reclaimer(_free_queries, _free)
"""Free all addresses of some handles."""


def parts_to_free(actions: Iterable[FreeHandle]) -> Iterator[tuple[FreeHandle, ...]]:
    """The actions in parts of as many blocks as a commit takes; a handle over more blocks is freed in several."""
    part: list[FreeHandle] = []
    blocks: set[Prefix] = set()
    for action in chain.from_iterable(map(_split, actions)):
        named = {leak.owner.block for leak in action.leaks}
        if part and len(blocks | named) > BLOCKS_FREED_PER_COMMIT:
            yield tuple(part)
            part, blocks = [], set()
        part.append(action)
        blocks |= named
    if part:
        yield tuple(part)


def _split(action: FreeHandle) -> Iterator[FreeHandle]:
    by_block: dict[Prefix, list[Leak]] = {}
    for leak in action.leaks:
        by_block.setdefault(leak.owner.block, []).append(leak)
    for leaks in batches(list(by_block.values()), BLOCKS_FREED_PER_COMMIT):
        yield evolve(action, leaks=tuple(chain.from_iterable(leaks)))


# --- handles ----------------------------------------------------------------------------------------------------------


def _repair_queries(actions: tuple[RepairHandle, ...]) -> tuple[Query, ...]:
    blocks = dict.fromkeys(Get(block_key(prefix)) for action in actions for prefix in action.blocks)
    return (*(Get(action.record.key) for action in actions), *blocks)


def _repair(snapshot: Snapshot, actions: tuple[RepairHandle, ...], _now_ns: int) -> Decision[ReclaimResult]:
    return _combined((action, _repair_writes(snapshot, action)) for action in actions)


def _repair_writes(snapshot: Snapshot, action: RepairHandle) -> PlannedWrites:
    """Correct the counts of the handle, or delete it.

    An ADD writes the handle before the block, in the same commit or at most one call's deadline earlier. So no ADD is
    still using a handle that was not written for the grace period.
    """
    handle = snapshot.find(action.record.key)
    if handle is None:
        return ()
    counts: list[tuple[Prefix, int]] = []
    for prefix in action.blocks:
        block = snapshot.find(block_key(prefix))
        held = len(block.value.held_by(action.record.key.name)) if block else 0
        if held:
            counts.append((prefix, held))
    if counts and tuple(counts) == handle.value.blocks:
        return ()
    if handle.revision != action.record.revision:
        return None
    if not counts:
        return (Delete(handle.key, handle.revision),)
    return (Update(handle.key, evolve(handle.value, blocks=tuple(counts)), handle.revision),)


REPAIR_HANDLES = Reclaimer(_repair_queries, _repair)
"""Correct the counts of some handles."""


# --- blocks -----------------------------------------------------------------------------------------------------------


def _cooldown_queries(actions: tuple[ExpireCooldown, ...]) -> tuple[Query, ...]:
    return (Get(IPAM_CONFIGURATION_KEY), *(Get(action.record.key) for action in actions))


def _expire(snapshot: Snapshot, actions: tuple[ExpireCooldown, ...], now_ns: int) -> Decision[ReclaimResult]:
    cooldown = Cooldown.of(snapshot, now_ns)
    return _combined((action, _expiry_writes(snapshot, action, cooldown)) for action in actions)


def _expiry_writes(snapshot: Snapshot, action: ExpireCooldown, cooldown: Cooldown) -> PlannedWrites:
    """Free the addresses whose cooldown has expired. A block without an owner is deleted with its last address."""
    block = snapshot.find(action.record.key)
    expired = cooldown.expire(block.value) if block else None
    if block is None or expired is None or expired is block.value:
        return ()
    if block.revision != action.record.revision:
        return None
    if expired.is_empty and not expired.owner:
        return (Delete(block.key, block.revision),)
    return (Update(block.key, expired.touched(), block.revision),)


EXPIRE_COOLDOWN = Reclaimer(_cooldown_queries, _expire)
"""Free the addresses of some blocks whose cooldown has expired."""


def _delete_queries(actions: tuple[DeleteBlock, ...]) -> tuple[Query, ...]:
    affinities = (Get(action.affinity) for action in actions if action.affinity is not None)
    return (*(Get(action.record.key) for action in actions), *affinities)


def _delete(snapshot: Snapshot, actions: tuple[DeleteBlock, ...], _now_ns: int) -> Decision[ReclaimResult]:
    return _combined((action, _delete_writes(snapshot, action)) for action in actions)


def _delete_writes(snapshot: Snapshot, action: DeleteBlock) -> PlannedWrites:
    """Delete the block, unless a node has begun to claim it."""
    block = snapshot.find(action.record.key)
    if block is None:
        return ()
    is_claimed = action.affinity is not None and snapshot.find(action.affinity) is not None
    if is_claimed or block.revision != action.record.revision:
        return None
    unclaimed = (Require(action.affinity, ABSENT),) if action.affinity is not None else ()
    return (*unclaimed, Delete(block.key, block.revision))


DELETE_BLOCKS = Reclaimer(_delete_queries, _delete)
"""Delete some empty blocks without an affinity."""


# --- affinities -------------------------------------------------------------------------------------------------------


def _relinquish_queries(actions: tuple[RelinquishAffinity, ...]) -> tuple[Query, ...]:
    return relinquish_queries([action.affinity for action in actions])


def _relinquish(snapshot: Snapshot, actions: tuple[RelinquishAffinity, ...], now_ns: int) -> Decision[ReclaimResult]:
    """Relinquish affinities whose reason still holds. An affinity whose block is in use is skipped."""
    affinities = [action.affinity for action in actions if _is_due(snapshot, action)]
    # Never NeedMore and never an error: everything was read, and refused affinities are listed in the result.
    decision = cast("Decision[RelinquishResult]", decide_relinquish(snapshot, affinities, Emptiness.REQUIRED, now_ns))
    gone = frozenset(cast("RelinquishResult", decision.result).relinquished)
    result = ReclaimResult(
        done=tuple(action for action in actions if action.affinity in gone),
        skipped=tuple(action for action in actions if action.affinity not in gone),
    )
    return Decision(decision.writes, result)


def _is_due(snapshot: Snapshot, action: RelinquishAffinity) -> bool:
    """Whether the reason to relinquish the affinity still holds. An affinity that is gone counts as done."""
    affinity, block = snapshot.find(action.affinity), snapshot.find(block_key(claimed_block(action.affinity)))
    if affinity is None:
        return True
    match action.reason:
        case RelinquishReason.NODE_GONE:
            return True
        case RelinquishReason.UNUSED:
            return block is not None and block.revision == action.revision
        case RelinquishReason.NO_BLOCK | RelinquishReason.FOREIGN:
            return affinity.revision == action.revision and not is_owned(block.value if block else None, affinity.key)
        case _:
            assert_never(action.reason)


RELINQUISH_AFFINITIES = Reclaimer(_relinquish_queries, _relinquish)
"""Relinquish some affinities."""
