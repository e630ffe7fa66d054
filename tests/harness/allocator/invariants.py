"""The invariants of block assignment.

Each is a function that raises AssertionError; its docstring begins with its number.

Those of ``STATE_INVARIANTS`` hold for every stored state, and those of ``COMMIT_INVARIANTS`` for every commit, also a
failed one. Those of ``SETTLED_STATE_INVARIANTS`` hold while no crash has left records to repair. ``history`` has the
invariants over several commits, and ``call_invariants`` those of a whole call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.allocation.pools import block_order, hashed_start
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, LinkLayer, Specific
from netplug_core.ipam.model import RESERVED_HANDLE, AffinityState, Block, affinity_key, claimed_block, claiming_owner
from netplug_core.resources.ippool import IPPoolSpec
from netplug_core.testing.assertions import expect, expect_same
from tests.harness.allocator.operations import Assign, ClaimBlocks, EnsureBlocks, Operation
from tests.harness.allocator.oracle import DEFAULT_BLOCK_LIMIT, is_free
from tests.harness.allocator.oracle_pools import PoolRefusal, block_limits, eligible_pools, is_enabled
from tests.harness.allocator.pool_invariants import POOL_INVARIANTS
from tests.harness.allocator.state import ClusterConfiguration, StoredState

__all__ = [
    "COMMIT_INVARIANTS", "SETTLED_STATE_INVARIANTS", "STATE_INVARIANTS", "ObservedCommit",
    "order_is_a_permutation",
]  # fmt: skip


@frozen(kw_only=True, eq=False)
class ObservedCommit:
    """One commit: the state before and after it, its operation, and the time.

    ``configurations`` are those that its decision may have used. In an atomic store, which checks conditions, that is
    the current one. In an ordered store earlier ones that were read are possible.
    """

    operation: Operation
    before: StoredState
    after: StoredState
    configurations: tuple[ClusterConfiguration, ...]
    now_ns: int
    is_exact: bool

    @property
    def request(self) -> AssignRequest | None:
        """The request of an assignment; None for other operations."""
        return self.operation.request if isinstance(self.operation, Assign) else None

    @property
    def newly_held(self) -> dict[Address, Block]:
        """The addresses that the commit assigned, with their blocks."""
        addresses = [address for address in self.after.held if address not in self.before.held]
        blocks = self.after.blocks
        return {address: next(blocks[p] for p in blocks if p.contains(address)) for address in addresses}


# --- every stored state -----------------------------------------------------------------------------------------------


def blocks_are_consistent(state: StoredState) -> None:
    """V2: every attribute of a block is used, and its queue has each free ordinal once."""
    for prefix, block in state.blocks.items():
        indexes = [index for index in block.allocations if index is not None]
        expect_same(len(block.allocations), prefix.size, f"V2: the allocations of {prefix}")
        expect_same(sorted(set(indexes)), list(range(len(block.attributes))), f"V2: the attributes used in {prefix}")
        expect_same(len(set(block.free)), len(block.free), f"V2: the queue of {prefix} has each ordinal once")
        free = [ordinal for ordinal, index in enumerate(block.allocations) if index is None]
        expect_same(sorted(block.free), free, f"V2: the queue of {prefix}")


def sequence_numbers_are_consistent(state: StoredState) -> None:
    """V3: each address was assigned at a sequence number below the block's own."""
    for prefix, block in state.blocks.items():
        expect_same(len(block.sequences), prefix.size, f"V3: the numbers of {prefix}")
        expect(
            all(number < block.sequence for number in block.sequences),
            f"V3: {prefix} has a sequence number of the future",
        )


def handle_counts_are_not_too_low(state: StoredState) -> None:
    """V4: a handle's count of a block is at least the number of its addresses there."""
    for address, held in state.held.items():
        handle, block = held.attribute.handle, state.find_block(address)
        if handle is None or block is None:
            continue
        count = state.handles[handle].count(block.prefix) if handle in state.handles else 0
        holds = len(block.held_by(handle))
        expect(count >= holds, f"V4: {handle} holds {holds} addresses of {block.prefix} and counts {count}")


def block_owners_have_affinities(state: StoredState) -> None:
    """V6: the owner of a block has an affinity to it, and no other affinity to it is confirmed."""
    for prefix, block in state.blocks.items():
        if block.owner:
            key = affinity_key(block.owner, prefix)
            expect(key in state.affinities, f"V6: {block.owner} owns {prefix} and has no affinity to it")
    confirmed = [
        claimed_block(key) for key, claim in state.affinities.items() if claim.state is AffinityState.CONFIRMED
    ]
    expect_same(len(set(confirmed)), len(confirmed), "V6: the blocks with more than one confirmed affinity")


def confirmed_affinities_own_their_block(state: StoredState) -> None:
    """V7: a confirmed affinity leads to a block that its owner owns."""
    for key, claim in state.affinities.items():
        if claim.state is AffinityState.CONFIRMED:
            block = state.blocks.get(claimed_block(key))
            owner = block.owner if block else "no one: there is no such block"
            expect_same(owner, claiming_owner(key), f"V7: who owns the block of {key}")


STATE_INVARIANTS = (
    blocks_are_consistent,
    sequence_numbers_are_consistent,
    handle_counts_are_not_too_low,
    block_owners_have_affinities,
    confirmed_affinities_own_their_block,
    *POOL_INVARIANTS,
)
"""The invariants of every stored state."""


# --- states without leftovers of a crash -----------------------------------------------------------------------------


def handle_counts_are_exact(state: StoredState) -> None:
    """V5: a handle counts exactly the addresses that it holds, and exists exactly while it holds one."""
    counts: dict[str, dict[Prefix, int]] = {}
    for prefix, block in state.blocks.items():
        for held in block.held():
            handle = held.attribute.handle
            if handle is not None and handle != RESERVED_HANDLE and not held.is_cooling:
                of_handle = counts.setdefault(handle, {})
                of_handle[prefix] = of_handle.get(prefix, 0) + 1
    found = {handle: dict(value.blocks) for handle, value in state.handles.items()}
    expect_same(found, counts, "V5: what handles count")


def affinities_have_blocks(state: StoredState) -> None:
    """V7: every affinity leads to a block that its owner owns, and is confirmed."""
    for key, claim in state.affinities.items():
        block = state.blocks.get(claimed_block(key))
        expect(
            block is not None and block.owner == claiming_owner(key), f"V7: {key} leads to no block that its owner owns"
        )
        expect_same(claim.state, AffinityState.CONFIRMED, f"V7: the state of {key}")


SETTLED_STATE_INVARIANTS = (handle_counts_are_exact, affinities_have_blocks)
"""The further invariants where no crash (on ordered stores: and no lost race) left anything to repair."""


# --- every commit -----------------------------------------------------------------------------------------------------


def new_blocks_are_blocks_of_a_pool(commit: ObservedCommit) -> None:
    """V8: a new block lies in a pool and has its block size."""
    for prefix in commit.after.blocks.keys() - commit.before.blocks.keys():
        fits = any(_is_block_of(prefix, pool.spec) for rules in commit.configurations for pool in rules.pools.values())
        expect(fits, f"V8: {prefix} was created and is no block of any pool")


def _is_block_of(prefix: Prefix, pool: IPPoolSpec) -> bool:
    return pool.prefix.covers(prefix) and pool.block_length == prefix.length


def strict_affinity_is_respected(commit: ObservedCommit) -> None:
    """V9: under strict affinity an address is assigned only from a block that the claimant owns."""
    request = commit.request
    if request is None or not all(rules.settings.is_affinity_strict for rules in commit.configurations):
        return
    for address, block in commit.newly_held.items():
        expect_same(block.owner, request.claimant, f"V9: the owner of the block of {address} when it was assigned")


def only_assignable_addresses_are_assigned(commit: ObservedCommit) -> None:
    """V10: no automatic address is reserved, cools down, or belongs to a pool that may not serve the request."""
    request = commit.request
    if request is None:
        return
    automatic = {wanted.family: wanted for wanted in request.wanted if isinstance(wanted, Automatic)}
    for address in commit.newly_held:
        wanted = automatic.get(address.family)
        expect(_was_free(commit, address), f"V10: {address} was assigned while it cooled down or was held")
        if wanted is not None:
            fits = any(_may_assign(rules, request, wanted, address) for rules in commit.configurations)
            expect(fits, f"V10: {address} was assigned to {request}, for which it is not allowed")


def _was_free(commit: ObservedCommit, address: Address) -> bool:
    """Whether an address could be assigned at the time of a commit.

    What an owner reserved for its host is free for the next owner of the block.
    """
    block, after = commit.before.find_block(address), commit.after.find_block(address)
    held = block.find(address) if block else None
    is_given_up = bool(
        held and held.attribute.handle == RESERVED_HANDLE and block and after and block.owner != after.owner
    )
    return is_given_up or any(is_free(held, rules, commit.now_ns) for rules in commit.configurations)


def _may_assign(
    configuration: ClusterConfiguration, request: AssignRequest, wanted: Automatic, address: Address
) -> bool:
    pools = eligible_pools(configuration, request, wanted)
    if isinstance(pools, PoolRefusal) or configuration.is_reserved(address) or configuration.is_locked:
        return False
    return any(pool.spec.prefix.contains(address) for pool in pools)


def longest_free_addresses_go_first(commit: ObservedCommit) -> None:
    """V11: of the assignable addresses of a block, those are assigned that have been free the longest."""
    request = commit.request
    if request is None or not commit.is_exact:
        return
    automatic = {wanted.family: wanted for wanted in request.wanted if isinstance(wanted, Automatic)}
    by_block: dict[Prefix, set[Address]] = {}
    for address, block in commit.newly_held.items():
        if address.family in automatic:
            by_block.setdefault(block.prefix, set()).add(address)
    for prefix, taken in by_block.items():
        old = commit.before.blocks.get(prefix)
        if old is None or old.owner != commit.after.blocks[prefix].owner:
            continue  # a block that is new or has another owner starts with a new queue
        cooled_down = (held.address for held in old.held() if held.is_cooling and _was_free(commit, held.address))
        wanted = automatic[prefix.family]
        queue = [
            address
            for address in (*map(prefix.nth, old.free), *cooled_down)
            if _may_serve(commit, request, wanted, address)
        ]
        last = max(queue.index(address) for address in taken)
        expect_same(
            set(queue[: last + 1]),
            taken,
            f"V11: the addresses of {prefix} that are free the longest, and those assigned",
        )


def cooldown_is_respected(commit: ObservedCommit) -> None:
    """V11: a released address stays in cooldown until its time is over."""
    for block in commit.before.blocks.values():
        for held in block.held():
            if held.is_cooling and not _was_free(commit, held.address):
                now = commit.after.blocks.get(block.prefix)
                allocation = now.find(held.address) if now else None
                is_cooling = allocation is not None and allocation.is_cooling
                expect(is_cooling, f"V11: the cooldown of {held.address} ended too early")


def _may_serve(commit: ObservedCommit, request: AssignRequest, wanted: Automatic, address: Address) -> bool:
    """Whether an address of a block may be assigned to a request; pools that overlap have different edges."""
    rules = commit.before.configuration
    pools = eligible_pools(rules, request, wanted)
    prefixes = [] if isinstance(pools, PoolRefusal) else [pool.spec.prefix for pool in pools]
    edges = {edge for prefix in prefixes if prefix.contains(address) for edge in _edge_addresses(prefix)}
    return not rules.is_reserved(address) and not (request.link_layer is LinkLayer.L2 and address in edges)


def _edge_addresses(pool: Prefix) -> Sequence[Address]:
    return (pool.first, pool.nth(1 % pool.size), pool.last)


def block_limits_are_respected(commit: ObservedCommit) -> None:
    """V14: an owner has no more blocks than its limit, and only a claim increases their number."""
    owners = {block.owner for block in commit.after.blocks.values() if block.owner}
    for owner in owners:
        for family in Family:
            before, after = (
                len(commit.before.owned_blocks(owner, family)),
                len(commit.after.owned_blocks(owner, family)),
            )
            if after > before:
                expect_same(
                    owner,
                    _claimant(commit.operation),
                    f"V14: whose blocks {commit.operation} may increase, by {after - before}",
                )
                limit, counted = _block_limit(commit, family), _counted_blocks(commit, owner, family)
                expect(
                    limit is None or counted <= limit, f"V14: {owner} owns {counted} {family} blocks of at most {limit}"
                )


def _counted_blocks(commit: ObservedCommit, owner: str, family: Family) -> int:
    """The blocks of an owner that count against its limit; the default limit counts those of enabled pools.

    A block does not count while the affinity to it is damaged: it is not known whose that is.
    """
    owned = commit.after.owned_blocks(owner, family) - commit.before.damaged_blocks
    rules = commit.before.configuration
    if isinstance(commit.operation, Assign | EnsureBlocks) and block_limits(rules, commit.operation.request):
        return len(owned)
    enabled = [pool.spec for pool in rules.pools.values() if is_enabled(pool)]
    return sum(any(spec.prefix.covers(each) and spec.block_length == each.length for spec in enabled) for each in owned)


def _claimant(operation: Operation) -> str:
    if isinstance(operation, ClaimBlocks):
        return operation.claimant
    return operation.request.claimant if isinstance(operation, Assign | EnsureBlocks) else ""


def _block_limit(commit: ObservedCommit, family: Family) -> int | None:
    """The limit for a family; None where there is none, and on stores that check no conditions."""
    operation = commit.operation
    if not isinstance(operation, Assign | EnsureBlocks) or not commit.is_exact:
        return None
    if any(isinstance(wanted, Specific) and wanted.family is family for wanted in operation.request.wanted):
        return None
    return min(block_limits(commit.before.configuration, operation.request), default=DEFAULT_BLOCK_LIMIT)


COMMIT_INVARIANTS = (
    new_blocks_are_blocks_of_a_pool,
    strict_affinity_is_respected,
    only_assignable_addresses_are_assigned,
    longest_free_addresses_go_first,
    cooldown_is_respected,
    block_limits_are_respected,
)
"""The invariants of every commit."""


# --- pure -------------------------------------------------------------------------------------------------------------


def order_is_a_permutation(nodes: Iterable[str], pool: Prefix, length: int) -> None:
    """V20: each node visits every block of a pool once, in an order of its own that is always the same."""
    count = pool.subprefix_count(length)
    for node in nodes:
        start = hashed_start(node, pool, count)
        expect(0 <= start < count, f"V20: {node} starts outside of {pool}")
        order, again = list(block_order(start, pool, length)), list(block_order(start, pool, length))
        expect_same(order, again, f"V20: the order of {node} in {pool}")
        expect_same(
            sorted(order), [pool.subprefix(index, length) for index in range(count)], f"V20: the blocks of {pool}"
        )
