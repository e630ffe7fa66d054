"""What has to agree before something is freed, and the writes that free it.

``flows.ipam.collect`` runs a rule for a batch of actions as one transaction. Each rule reads its records again and does
only what is still due: an action is skipped if its record was written after the scan, so a concurrent ADD always wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeAlias, TypeVar, assert_never

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.errors import narrow
from netplug_core.ipam.allocation.affinities import Emptiness, RelinquishResult, decide_relinquish, relinquish_queries
from netplug_core.ipam.allocation.context import BLOCKS_FREED_PER_COMMIT, batches
from netplug_core.ipam.allocation.ownership import is_owned
from netplug_core.ipam.allocation.pools import Cooldown
from netplug_core.ipam.allocation.release import decide_release_addresses, release_addresses_queries
from netplug_core.ipam.allocation.request import ReleaseItem
from netplug_core.ipam.gc.candidates import (
    AllocationRef,
    DeleteBlock,
    ExpireCooldown,
    FailedAction,
    FreeCondition,
    FreeHandle,
    GCAction,
    Leak,
    LeakReason,
    LookupResult,
    RelinquishAffinity,
    RelinquishReason,
    RepairHandle,
    judge,
)
from netplug_core.ipam.model import block_key, claimed_block, handle_key
from netplug_core.orchestrator.model import PodName
from netplug_core.records import ABSENT, Decision, Delete, Get, NeedMore, Query, Require, Snapshot, Update, Write
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY

__all__ = [
    "DELETE_BLOCKS", "EXPIRE_COOLDOWN", "FREE_HANDLES", "RELINQUISH_AFFINITIES", "REPAIR_HANDLES",
    "ConfirmationResult", "ReclaimResult", "Reclaimer", "confirm", "lookups_needed", "parts_to_free",
]  # fmt: skip


# --- what has to agree ------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ConfirmationResult:
    """The leaks that the lookups confirmed, and the others.

    ``leaks`` may be freed. ``in_use`` are handles of which an address is in use after all; ``cleared`` are those
    addresses of them that are no candidates any more. ``undetermined`` are handles for which a lookup failed.
    """

    leaks: tuple[FreeHandle, ...] = ()
    in_use: tuple[FreeHandle, ...] = ()
    cleared: tuple[AllocationRef, ...] = ()
    undetermined: tuple[FailedAction, ...] = ()


def lookups_needed(leaks: Iterable[FreeHandle]) -> tuple[PodName | str, ...]:
    """The pods and the nodes (by name) that have to be looked up to confirm some leaks, each once."""
    return tuple(dict.fromkeys(subject for action in leaks for leak in action.leaks for subject in _lookups_of(leak)))


def confirm(leaks: Iterable[FreeHandle], lookups: LookupResult) -> ConfirmationResult:
    """Compare leaks with live lookups. A handle is confirmed with all of its addresses or not at all."""
    confirmed: list[FreeHandle] = []
    in_use: list[FreeHandle] = []
    cleared: list[AllocationRef] = []
    undetermined: list[FailedAction] = []
    for action in leaks:
        unanswered = lookups.unanswered_text(lookups_needed((action,)))
        if unanswered:
            undetermined.append(FailedAction(action=action, cause=unanswered))
            continue
        checked = [_check(leak, lookups) for leak in action.leaks]
        found = tuple(leak for leak in checked if leak is not None and leak.condition)
        if len(found) == len(checked):
            confirmed.append(evolve(action, leaks=found))
        else:
            in_use.append(action)
            cleared.extend(
                candidate for candidate, leak in zip(action.candidates, checked, strict=True) if leak is None
            )
    return ConfirmationResult(
        leaks=tuple(confirmed), in_use=tuple(in_use), cleared=tuple(cleared), undetermined=tuple(undetermined)
    )


def _lookups_of(leak: Leak) -> tuple[PodName | str, ...]:
    pod = leak.owner.pod_name
    by_node = leak.owner.is_tunnel or leak.condition is FreeCondition.NODE_GONE
    pods = (pod,) if pod is not None and not leak.owner.is_tunnel else ()
    return (*pods, *((leak.owner.node,) if by_node else ()))


def _check(leak: Leak, lookups: LookupResult) -> Leak | None:
    """The leak with the reason that the lookups give; None if the address is in use.

    If its node was the condition for freeing it and exists after all, the leak has no condition any more: it is still a
    candidate.
    """
    reason = judge(leak.owner, lookups.pods, gone=lookups.gone)
    if not isinstance(reason, LeakReason):
        return None
    node_exists = leak.condition is FreeCondition.NODE_GONE and leak.owner.node not in lookups.gone
    return evolve(leak, reason=reason, condition=None if node_exists else leak.condition)


# --- the writes -------------------------------------------------------------------------------------------------------


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
    answer = decision.get_result()  # never an error: refused items are listed in it
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
    made = decide_relinquish(snapshot, affinities, Emptiness.REQUIRED, now_ns)
    decision: Decision[RelinquishResult] = narrow(made, Decision)
    gone = frozenset(decision.get_result().relinquished)
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
