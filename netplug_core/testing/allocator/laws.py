"""The invariants of block assignment, each a function that raises where it does not hold; its docstring names it.

Those of ``STATE_LAWS`` hold of every stored state, those of ``STEP_LAWS`` of every commit, whatever became of it, and
those of ``QUIET_LAWS`` whenever nothing is under way that a crash cut short. ``history`` has what takes a memory, and
``bench`` what is said of a whole call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.affinity import AffinityState, affinity_key, claimed_block, claiming_owner
from netplug_core.ipam.block import RESERVED_HANDLE, Block
from netplug_core.ipam.request import AssignRequest, Automatic, Reach, Specific
from netplug_core.ipam.reservations import Reserved
from netplug_core.ipam.search import block_order, hashed_start
from netplug_core.ipam.utilization import utilization
from netplug_core.resources.ippool import IPPoolSpec
from netplug_core.testing.allocator.acts import Act, Assign, Claim, Ensure
from netplug_core.testing.allocator.oracle import Refusal, is_free, limits, serving
from netplug_core.testing.allocator.stored import Rules, Stored
from netplug_core.testing.bench import expect, expect_same

__all__ = ["BLOCK_LIMIT", "QUIET_LAWS", "STATE_LAWS", "STEP_LAWS", "Step", "order_is_a_permutation"]

BLOCK_LIMIT = 20
"""Blocks of a family that a node claims where nobody set a limit."""


@frozen(kw_only=True, eq=False)
class Step:
    """One commit: the state before and after it, whose act it belongs to, and the time.

    ``rules`` are those that its decision may have rested on: in an atomic store, which judges conditions, those of
    the moment, in an ordered one also earlier ones that it may have read.
    """

    act: Act
    before: Stored
    after: Stored
    rules: tuple[Rules, ...]
    now_ns: int
    is_exact: bool

    @property
    def request(self) -> AssignRequest | None:
        """The request that is served, if it is one."""
        return self.act.request if isinstance(self.act, Assign) else None

    @property
    def given(self) -> dict[Address, Block]:
        """The addresses that somebody holds now and did not before, with their blocks."""
        fresh = [address for address in self.after.held if address not in self.before.held]
        blocks = self.after.blocks
        return {address: next(blocks[p] for p in blocks if p.contains(address)) for address in fresh}


# --- every stored state -----------------------------------------------------------------------------------------------


def blocks_are_sound(stored: Stored) -> None:
    """V2: allocations and attributes fit together, and the queue has each free ordinal once."""
    for prefix, block in stored.blocks.items():
        indexes = [index for index in block.allocations if index is not None]
        expect_same(len(block.allocations), prefix.size, f"V2: the allocations of {prefix}")
        expect_same(sorted(set(indexes)), list(range(len(block.attributes))), f"V2: the attributes used in {prefix}")
        expect_same(len(set(block.free)), len(block.free), f"V2: the queue of {prefix} has each ordinal once")
        free = [ordinal for ordinal, index in enumerate(block.allocations) if index is None]
        expect_same(sorted(block.free), free, f"V2: the queue of {prefix}")


def numbers_fit(stored: Stored) -> None:
    """V3: whoever holds an address took it under a number below the block's own."""
    for prefix, block in stored.blocks.items():
        expect_same(len(block.sequences), prefix.size, f"V3: the numbers of {prefix}")
        expect(all(number < block.sequence for number in block.sequences), f"V3: {prefix} has a number of the future")


def handles_count_enough(stored: Stored) -> None:
    """V4: a handle counts, for each block, at least what it holds there."""
    for address, held in stored.held.items():
        handle, block = held.attribute.handle, stored.block_of(address)
        if handle is None or block is None:
            continue
        count = stored.handles[handle].count(block.prefix) if handle in stored.handles else 0
        holds = len(block.held_by(handle))
        expect(count >= holds, f"V4: {handle} holds {holds} addresses of {block.prefix} and counts {count}")


def owners_have_claims(stored: Stored) -> None:
    """V6: who owns a block has a claim on it, and nobody else's claim on it is confirmed."""
    for prefix, block in stored.blocks.items():
        if block.owner:
            key = affinity_key(block.owner, prefix)
            expect(key in stored.claims, f"V6: {block.owner} owns {prefix} and has no claim on it")
    confirmed = [claimed_block(key) for key, claim in stored.claims.items() if claim.state is AffinityState.CONFIRMED]
    expect_same(len(set(confirmed)), len(confirmed), "V6: the blocks with more than one confirmed claim")


def confirmed_claims_own(stored: Stored) -> None:
    """V7: a confirmed claim leads to a block of the claimant's."""
    for key, claim in stored.claims.items():
        if claim.state is AffinityState.CONFIRMED:
            block = stored.blocks.get(claimed_block(key))
            owner = block.owner if block else "nobody: there is no such block"
            expect_same(owner, claiming_owner(key), f"V7: who owns the block of {key}")


def blocks_fit(stored: Stored) -> None:
    """V8: blocks do not overlap, and those in a pool have its block size."""
    for one, following in pairwise(sorted(stored.blocks)):
        expect(not one.overlaps(following), f"V8: blocks {one} and {following} overlap")
    for pool in stored.rules.pools.values():
        for prefix in stored.blocks:
            if pool.spec.prefix.overlaps(prefix):
                expect_same(prefix.length, pool.spec.block_length, f"V8: the length of {prefix} in {pool.key}")


def usage_adds_up(stored: Stored) -> None:
    """V17: what is in use and what is free make up each block, and blocks and the rest make up each pool."""
    reserved = Reserved.of(stored.rules.reserved)
    for usage in utilization(stored.rules.pools.values(), stored.blocks.values(), reserved):
        for block in usage.blocks:
            expect_same(block.in_use + len(block.block.free), block.capacity, f"V17: the parts of {block.block.prefix}")
            expect(0 <= block.available <= block.capacity - block.in_use, f"V17: {block} has more than its free ones")
        in_blocks = sum(block.capacity for block in usage.blocks)
        expect_same(usage.in_use, sum(block.in_use for block in usage.blocks), f"V17: what is in use of {usage.name}")
        expect(in_blocks <= usage.capacity, f"V17: the blocks of {usage.name} are larger than it")
        expect(0 <= usage.available <= usage.capacity - usage.reserved, f"V17: {usage.name} has reserved ones to give")
        if usage.capacity <= _COUNTABLE and usage.pool is not None:
            expect_same(usage.available, _available(stored, usage.prefix), f"V17: what is left of {usage.name}")


_COUNTABLE = 1024


def _available(stored: Stored, pool: Prefix) -> int:
    """The addresses of a pool that nobody has and nobody reserved, counted one by one."""
    taken = {held.address for block in stored.blocks.values() for held in block.held()}
    addresses = (pool.nth(offset) for offset in range(pool.size))
    return sum(address not in taken and not stored.rules.is_reserved(address) for address in addresses)


STATE_LAWS = (
    blocks_are_sound,
    numbers_fit,
    handles_count_enough,
    owners_have_claims,
    confirmed_claims_own,
    blocks_fit,
    usage_adds_up,
)
"""What holds of everything that is ever stored."""


# --- whenever nothing is left over by a crash -------------------------------------------------------------------------


def handles_are_exact(stored: Stored) -> None:
    """V5: a handle counts what it holds and nothing else, and is there as long as it holds something."""
    counts: dict[str, dict[Prefix, int]] = {}
    for prefix, block in stored.blocks.items():
        for held in block.held():
            handle = held.attribute.handle
            if handle is not None and handle != RESERVED_HANDLE and not held.is_cooling:
                of_handle = counts.setdefault(handle, {})
                of_handle[prefix] = of_handle.get(prefix, 0) + 1
    found = {handle: dict(value.blocks) for handle, value in stored.handles.items()}
    expect_same(found, counts, "V5: what handles count")


def claims_lead_to_blocks(stored: Stored) -> None:
    """V7: every claim leads to a block of the claimant's and is confirmed."""
    for key, claim in stored.claims.items():
        block = stored.blocks.get(claimed_block(key))
        expect(block is not None and block.owner == claiming_owner(key), f"V7: {key} leads to no block of its own")
        expect_same(claim.state, AffinityState.CONFIRMED, f"V7: the state of {key}")


QUIET_LAWS = (handles_are_exact, claims_lead_to_blocks)
"""What holds beside that while no crash, and on ordered stores no lost race, has left anything to heal."""


# --- every commit -----------------------------------------------------------------------------------------------------


def new_blocks_lie_in_a_pool(step: Step) -> None:
    """V8: a block that is made lies in one pool and has its block size."""
    for prefix in step.after.blocks.keys() - step.before.blocks.keys():
        fits = any(_is_block_of(prefix, pool.spec) for rules in step.rules for pool in rules.pools.values())
        expect(fits, f"V8: {prefix} was made and is no block of any pool")


def _is_block_of(prefix: Prefix, pool: IPPoolSpec) -> bool:
    return pool.prefix.covers(prefix) and pool.block_length == prefix.length


def strict_affinity_is_kept(step: Step) -> None:
    """V9: under strict affinity an address is given from a block of the claimant's and no other."""
    request = step.request
    if request is None or not all(rules.settings.is_affinity_strict for rules in step.rules):
        return
    for address, block in step.given.items():
        expect_same(block.owner, request.claimant, f"V9: who owned the block of {address} when it was given")


def only_what_may_be_given_is(step: Step) -> None:
    """V10: no automatic address is reserved, cools down, or is of a pool that may not serve the request."""
    request = step.request
    if request is None:
        return
    automatic = {wanted.family: wanted for wanted in request.wanted if isinstance(wanted, Automatic)}
    for address in step.given:
        wanted = automatic.get(address.family)
        expect(_was_free(step, address), f"V10: {address} was given while it cooled down or was held")
        if wanted is not None:
            fits = any(_may_give(rules, request, wanted, address) for rules in step.rules)
            expect(fits, f"V10: {address} was given to {request}, which it may not be")


def _was_free(step: Step, address: Address) -> bool:
    """Whether an address could be given at the time of a commit."""
    block = step.before.block_of(address)
    held = block.find(address) if block else None
    return any(is_free(held, rules, step.now_ns) for rules in step.rules)


def _may_give(rules: Rules, request: AssignRequest, wanted: Automatic, address: Address) -> bool:
    pools = serving(rules, request, wanted)
    if isinstance(pools, Refusal) or rules.is_reserved(address) or rules.is_locked:
        return False
    return any(pool.spec.prefix.contains(address) for pool in pools)


def the_longest_free_go_first(step: Step) -> None:
    """V11: of the addresses of a block that may serve, those are given that are free the longest."""
    request = step.request
    if request is None or not step.is_exact:
        return
    automatic = {wanted.family for wanted in request.wanted if isinstance(wanted, Automatic)}
    by_block: dict[Prefix, set[Address]] = {}
    for address, block in step.given.items():
        if address.family in automatic:
            by_block.setdefault(block.prefix, set()).add(address)
    for prefix, taken in by_block.items():
        old = step.before.blocks.get(prefix)
        if old is None or old.owner != step.after.blocks[prefix].owner:
            continue  # a block that begins anew
        rested = (held.address for held in old.held() if held.is_cooling and _was_free(step, held.address))
        queue = [address for address in (*map(prefix.nth, old.free), *rested) if _may_serve(step, request, address)]
        last = max(queue.index(address) for address in taken)
        expect_same(set(queue[: last + 1]), taken, f"V11: what is free the longest in {prefix}, and what was given")


def the_rest_is_kept(step: Step) -> None:
    """V11: an address that was released is nobody's, and stays so, until its rest is over."""
    for block in step.before.blocks.values():
        for held in block.held():
            if held.is_cooling and not _was_free(step, held.address):
                now = step.after.blocks.get(block.prefix)
                rests = now.find(held.address) if now else None
                expect(rests is not None and rests.is_cooling, f"V11: {held.address} left its rest before it was over")


def _may_serve(step: Step, request: AssignRequest, address: Address) -> bool:
    rules = step.before.rules
    edges = {edge for pool in rules.pools.values() for edge in _edges(pool.spec.prefix)}
    return not rules.is_reserved(address) and not (request.reach is Reach.ON_LINK and address in edges)


def _edges(pool: Prefix) -> Sequence[Address]:
    return (pool.first, pool.nth(1 % pool.size), pool.last)


def limits_are_kept(step: Step) -> None:
    """V14: who has a limit of blocks owns no more; and only a claim makes anybody own more."""
    owners = {block.owner for block in step.after.blocks.values() if block.owner}
    for owner in owners:
        for family in Family:
            before, after = len(step.before.owned(owner, family)), len(step.after.owned(owner, family))
            if after > before:
                expect_same(owner, _claimant(step.act), f"V14: who may own {after - before} blocks more by {step.act}")
                most = _most(step, family)
                expect(most is None or after <= most, f"V14: {owner} owns {after} {family} blocks of at most {most}")


def _claimant(act: Act) -> str:
    if isinstance(act, Claim):
        return act.claimant
    return act.request.claimant if isinstance(act, Assign | Ensure) else ""


def _most(step: Step, family: Family) -> int | None:
    """The limit for a family; None where none holds, or (on stores that judge no conditions) where it may be passed."""
    act = step.act
    if not isinstance(act, Assign | Ensure) or not step.is_exact:
        return None
    if any(isinstance(wanted, Specific) and wanted.family is family for wanted in act.request.wanted):
        return None
    return min(limits(step.before.rules, act.request), default=BLOCK_LIMIT)


STEP_LAWS = (
    new_blocks_lie_in_a_pool,
    strict_affinity_is_kept,
    only_what_may_be_given_is,
    the_longest_free_go_first,
    the_rest_is_kept,
    limits_are_kept,
)
"""What holds of every commit."""


# --- pure -------------------------------------------------------------------------------------------------------------


def order_is_a_permutation(nodes: Iterable[str], pool: Prefix, length: int) -> None:
    """V20: each node looks at every block of a pool once, in an order of its own that never changes."""
    count = pool.part_count(length)
    for node in nodes:
        start = hashed_start(node, pool, count)
        expect(0 <= start < count, f"V20: {node} begins outside of {pool}")
        order, again = list(block_order(start, pool, length)), list(block_order(start, pool, length))
        expect_same(order, again, f"V20: the order of {node} in {pool}")
        expect_same(sorted(order), [pool.part(index, length) for index in range(count)], f"V20: the blocks of {pool}")
