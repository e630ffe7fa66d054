"""The collector's writes: each rule looks at its records afresh and does only what is still due.

``flows.collect`` runs a rule over a batch of actions through the one loop. A record that was written since it was
seen belongs to whoever wrote it: the action is passed over, and a racing ADD always wins. What needs no write any
more counts as done, whoever did it, so deciding again after a lost reply is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar, assert_never, cast

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.ipam.affinity import claimed_block, claiming_owner
from netplug_core.ipam.block import block_key
from netplug_core.ipam.collection import Action, ClaimEnd, DeleteBlock, FreeCooled, FreeHandle, GiveUp, Leak, MendHandle
from netplug_core.ipam.cooling import Cooling
from netplug_core.ipam.handle import handle_key
from netplug_core.ipam.readiness import locked, still_ready
from netplug_core.ipam.release_addresses import decide_release_addresses, release_addresses_queries
from netplug_core.ipam.relinquish import Emptiness, Relinquished, decide_relinquish, relinquish_queries
from netplug_core.ipam.request import AddressesReleased, ReleaseItem
from netplug_core.records import (
    ABSENT,
    Decision,
    Delete,
    Get,
    NeedMore,
    Query,
    Require,
    Snapshot,
    Update,
    Write,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY

__all__ = ["COOLED", "DELETING", "FREEING", "GIVING_UP", "MENDING", "Reclaimed", "Rule"]

A = TypeVar("A", bound=Action)

Plan: TypeAlias = tuple[Write, ...] | None
"""What an action takes: some writes, none where it is done already, None where it is passed over."""


@frozen(kw_only=True)
class Reclaimed:
    """Which actions of a batch hold now, and which were passed over."""

    done: tuple[Action, ...] = ()
    passed_over: tuple[Action, ...] = ()


@frozen
class Rule(Generic[A]):
    """How one sort of action is carried out: what to read first, and the decision about a batch at a time."""

    queries: Callable[[tuple[A, ...]], tuple[Query, ...]]
    decide: Callable[[Snapshot, tuple[A, ...], int], Decision[Reclaimed] | NeedMore]


def _settled(snapshot: Snapshot, plans: Iterable[tuple[Action, Plan]]) -> Decision[Reclaimed]:
    """One decision of the plans for some actions; nothing where the cluster is locked."""
    refusal = locked(snapshot)
    if refusal is not None:
        return Decision((), refusal)
    plans = tuple(plans)
    writes = tuple(write for _action, plan in plans for write in plan or ())
    return Decision(
        (still_ready(snapshot), *writes) if writes else (),
        Reclaimed(
            done=tuple(action for action, plan in plans if plan is not None),
            passed_over=tuple(action for action, plan in plans if plan is None),
        ),
    )


# --- leaked addresses -------------------------------------------------------------------------------------------------


def _freeing_queries(actions: tuple[FreeHandle, ...]) -> tuple[Query, ...]:
    handles = (Get(handle_key(action.handle)) for action in actions)
    blocks = dict.fromkeys(Get(block_key(leak.holding.block)) for action in actions for leak in action.leaks)
    return (Get(CLUSTER_INFORMATION_KEY), *release_addresses_queries(), *handles, *blocks)


def _free(snapshot: Snapshot, actions: tuple[FreeHandle, ...], now_ns: int) -> Decision[Reclaimed] | NeedMore:
    """Free whole handles, by handle and sequence number; one of which an address was taken anew is left as it is."""
    refusal = locked(snapshot)
    if refusal is not None:
        return Decision((), refusal)
    same = [action for action in actions if all(_is_as_seen(snapshot, action, leak) for leak in action.leaks)]
    items = tuple(_item(action, leak) for action in same for leak in action.leaks)
    decision = decide_release_addresses(snapshot, items, now_ns)
    if isinstance(decision, NeedMore):
        return decision
    answer = cast("AddressesReleased", decision.result)  # refusals of items are in it; it is never an error
    free = {*answer.released, *answer.free_already}
    done = tuple(action for action in same if free.issuperset(leak.holding.address for leak in action.leaks))
    result = Reclaimed(done=done, passed_over=tuple(action for action in actions if action not in done))
    before = (still_ready(snapshot),) if decision.writes else ()
    return Decision(decision.with_writes(before).writes, result)


def _is_as_seen(snapshot: Snapshot, action: FreeHandle, leak: Leak) -> bool:
    """Whether an address is held as it was when it was found leaked, or free by now."""
    record = snapshot.find(block_key(leak.holding.block))
    held = record.value.find(leak.holding.address) if record else None
    if held is None or held.is_cooling:
        return True
    return (held.attribute.handle, held.sequence) == (action.handle, leak.holding.sequence)


def _item(action: FreeHandle, leak: Leak) -> ReleaseItem:
    return ReleaseItem(address=leak.holding.address, handle=action.handle, sequence=leak.holding.sequence)


FREEING = Rule(_freeing_queries, _free)
"""Free every address of some handles."""


# --- handles ----------------------------------------------------------------------------------------------------------


def _mending_queries(actions: tuple[MendHandle, ...]) -> tuple[Query, ...]:
    blocks = dict.fromkeys(Get(block_key(prefix)) for action in actions for prefix in action.blocks)
    return (Get(CLUSTER_INFORMATION_KEY), *(Get(action.seen.key) for action in actions), *blocks)


def _mend(snapshot: Snapshot, actions: tuple[MendHandle, ...], _now_ns: int) -> Decision[Reclaimed]:
    return _settled(snapshot, ((action, _mending(snapshot, action)) for action in actions))


def _mending(snapshot: Snapshot, action: MendHandle) -> Plan:
    """The handle with true counts, or without it.

    Whoever takes addresses writes the handle before the block, in the same commit or at most a call's deadline
    earlier. A handle that was not written for the grace period is therefore being counted on by nobody.
    """
    handle = snapshot.find(action.seen.key)
    if handle is None:
        return ()
    counts: list[tuple[Prefix, int]] = []
    for prefix in action.blocks:
        block = snapshot.find(block_key(prefix))
        held = len(block.value.held_by(action.seen.key.name)) if block else 0
        if held:
            counts.append((prefix, held))
    if counts and tuple(counts) == handle.value.blocks:
        return ()
    if handle.revision != action.seen.revision:
        return None
    if not counts:
        return (Delete(handle.key, handle.revision),)
    return (Update(handle.key, evolve(handle.value, blocks=tuple(counts)), handle.revision),)


MENDING = Rule(_mending_queries, _mend)
"""Make some handles count what their blocks hold."""


# --- blocks -----------------------------------------------------------------------------------------------------------


def _cooling_queries(actions: tuple[FreeCooled, ...]) -> tuple[Query, ...]:
    return (Get(CLUSTER_INFORMATION_KEY), Get(IPAM_CONFIGURATION_KEY), *(Get(action.seen.key) for action in actions))


def _free_cooled(snapshot: Snapshot, actions: tuple[FreeCooled, ...], now_ns: int) -> Decision[Reclaimed]:
    cooling = Cooling.of(snapshot, now_ns)
    return _settled(snapshot, ((action, _cooled(snapshot, action, cooling)) for action in actions))


def _cooled(snapshot: Snapshot, action: FreeCooled, cooling: Cooling) -> Plan:
    """The block without what has cooled down; one that nobody owns goes with its last address."""
    block = snapshot.find(action.seen.key)
    rested = cooling.rested(block.value) if block else None
    if block is None or rested is None or rested is block.value:
        return ()
    if block.revision != action.seen.revision:
        return None
    if rested.is_empty and not rested.owner:
        return (Delete(block.key, block.revision),)
    return (Update(block.key, rested.touched(), block.revision),)


COOLED = Rule(_cooling_queries, _free_cooled)
"""Free what has cooled down in some blocks."""


def _deleting_queries(actions: tuple[DeleteBlock, ...]) -> tuple[Query, ...]:
    claims = (Get(action.claim) for action in actions if action.claim is not None)
    return (Get(CLUSTER_INFORMATION_KEY), *(Get(action.seen.key) for action in actions), *claims)


def _delete(snapshot: Snapshot, actions: tuple[DeleteBlock, ...], _now_ns: int) -> Decision[Reclaimed]:
    return _settled(snapshot, ((action, _deleting(snapshot, action)) for action in actions))


def _deleting(snapshot: Snapshot, action: DeleteBlock) -> Plan:
    """Without the block, unless somebody has begun to claim it."""
    block = snapshot.find(action.seen.key)
    if block is None:
        return ()
    is_claimed = action.claim is not None and snapshot.find(action.claim) is not None
    if is_claimed or block.revision != action.seen.revision:
        return None
    unclaimed = (Require(action.claim, ABSENT),) if action.claim is not None else ()
    return (*unclaimed, Delete(block.key, block.revision))


DELETING = Rule(_deleting_queries, _delete)
"""Delete some empty blocks that nobody claims."""


# --- claims -----------------------------------------------------------------------------------------------------------


def _giving_up_queries(actions: tuple[GiveUp, ...]) -> tuple[Query, ...]:
    return (Get(CLUSTER_INFORMATION_KEY), *relinquish_queries([action.claim for action in actions]))


def _give_up(snapshot: Snapshot, actions: tuple[GiveUp, ...], now_ns: int) -> Decision[Reclaimed]:
    """Give up claims that nothing speaks for, as when they were seen; none with a block in use."""
    refusal = locked(snapshot)
    if refusal is not None:
        return Decision((), refusal)
    claims = [action.claim for action in actions if _is_due(snapshot, action)]
    # All that it needs was read, and what it refuses stands in its result.
    decision = cast("Decision[Relinquished]", decide_relinquish(snapshot, claims, Emptiness.REQUIRED, now_ns))
    gone = frozenset(cast("Relinquished", decision.result).gone)
    result = Reclaimed(
        done=tuple(action for action in actions if action.claim in gone),
        passed_over=tuple(action for action in actions if action.claim not in gone),
    )
    before = (still_ready(snapshot),) if decision.writes else ()
    return Decision(decision.with_writes(before).writes, result)


def _is_due(snapshot: Snapshot, action: GiveUp) -> bool:
    """Whether the claim is still as superfluous as it was seen to be; one that is gone stays gone."""
    claim, block = snapshot.find(action.claim), snapshot.find(block_key(claimed_block(action.claim)))
    if claim is None:
        return True
    match action.reason:
        case ClaimEnd.NODE_GONE:
            return True
        case ClaimEnd.UNUSED:
            return block is not None and block.revision == action.revision
        case ClaimEnd.NO_BLOCK | ClaimEnd.FOREIGN:
            is_theirs = block is not None and block.value.owner == claiming_owner(action.claim)
            return claim.revision == action.revision and not is_theirs
        case _:
            assert_never(action.reason)


GIVING_UP = Rule(_giving_up_queries, _give_up)
"""Give up some claims."""
