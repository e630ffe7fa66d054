"""The invariants of blocks among pools: no two blocks overlap, each belongs to its pool, and the sums are right.

Those of ``POOL_INVARIANTS`` hold for every stored state. Those of ``CHECKED_POOL_INVARIANTS`` hold as long as every
pool was created through the flows, which compare it with the other pools and with the stored blocks. A program such as
kubectl compares nothing: its pools may overlap each other, or blocks of another size that an earlier pool left.
"""

from __future__ import annotations

from itertools import pairwise

from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.reporting.usage import PoolUsage, utilization
from netplug_core.testing.assertions import expect, expect_same
from tests.harness.allocator.state import StoredState

__all__ = ["CHECKED_POOL_INVARIANTS", "POOL_INVARIANTS"]

_MAX_COUNTED_ADDRESSES = 1024


def blocks_do_not_overlap(state: StoredState) -> None:
    """V8: no block overlaps another, of whatever pool and size."""
    for one, following in pairwise(sorted(state.blocks)):
        expect(not one.overlaps(following), f"V8: blocks {one} and {following} overlap")


def utilization_adds_up(state: StoredState) -> None:
    """V17: the addresses in use and the free ones add up in each block and in each pool."""
    for usage in _utilization(state):
        for block in usage.blocks:
            expect_same(block.in_use + len(block.block.free), block.capacity, f"V17: the parts of {block.block.prefix}")
            expect(
                0 <= block.available <= block.capacity - block.in_use,
                f"V17: {block} has more available addresses than free ones",
            )
        in_blocks = sum(block.capacity for block in usage.blocks)
        expect_same(
            usage.in_use, sum(block.in_use for block in usage.blocks), f"V17: the addresses in use of {usage.name}"
        )
        expect(in_blocks <= usage.capacity, f"V17: the blocks of {usage.name} are larger than it")
        expect(
            0 <= usage.available <= usage.capacity - usage.reserved,
            f"V17: {usage.name} counts reserved addresses as available",
        )


POOL_INVARIANTS = (blocks_do_not_overlap, utilization_adds_up)
"""The invariants of every stored state."""


# --- pools that the flows have created -------------------------------------------------------------------------------


def blocks_fit_their_pools(state: StoredState) -> None:
    """V8: a block in the range of a pool has the pool's block size."""
    for pool in state.configuration.pools.values():
        for prefix in state.blocks:
            if pool.spec.prefix.overlaps(prefix):
                expect_same(prefix.length, pool.spec.block_length, f"V8: the length of {prefix} in {pool.key}")


def available_addresses_are_counted(state: StoredState) -> None:
    """V17: the available addresses of a pool are those that a count one by one finds."""
    for usage in _utilization(state):
        if usage.capacity <= _MAX_COUNTED_ADDRESSES and usage.pool is not None:
            expect_same(
                usage.available, _count_available(state, usage.prefix), f"V17: the available addresses of {usage.name}"
            )


def _utilization(state: StoredState) -> tuple[PoolUsage, ...]:
    reserved = Reserved.of(state.configuration.reserved)
    return utilization(state.configuration.pools.values(), state.blocks.values(), reserved)


def _count_available(state: StoredState, pool: Prefix) -> int:
    """The addresses of a pool that are neither in a block's allocations nor reserved, counted one by one."""
    taken = {held.address for block in state.blocks.values() for held in block.held()}
    addresses = (pool.nth(offset) for offset in range(pool.size))
    return sum(address not in taken and not state.configuration.is_reserved(address) for address in addresses)


CHECKED_POOL_INVARIANTS = (blocks_fit_their_pools, available_addresses_are_counted)
"""The further invariants as long as every pool was created through the flows."""
