"""The order in which a node tries the blocks of a pool: all positions in turn, from the one that its name hashes to.

So two first requests of one node try the same block and do not claim two, and different nodes start at different
blocks. Positions are integers and the order is lazy, so a /64 with 2**58 blocks costs no more than a /24.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.reservations import Reserved

__all__ = ["BlockOrder", "block_order", "block_positions", "hashed_start"]

BlockOrder = Callable[[str, Prefix, int], int]
"""The position at which a node starts, from node name, pool and number of blocks."""


def hashed_start(node: str, pool: Prefix, count: int) -> int:
    """The position that the node's name and the pool hash to."""
    digest = hashlib.sha256(f"{node} {pool}".encode()).digest()
    return int.from_bytes(digest[:16], "big") % count


def block_order(start: int, pool: Prefix, length: int, reserved: Reserved | None = None) -> Iterator[Prefix]:
    """Every block of a pool once, from a position upwards and around, without those that are reserved as a whole."""
    return (pool.subprefix(position, length) for position in block_positions(start, pool, length, reserved))


def block_positions(start: int, pool: Prefix, length: int, reserved: Reserved | None = None) -> Iterator[int]:
    """The same as positions in the pool; a reserved range is skipped in one step, however long it is."""
    count = pool.subprefix_count(length)
    if reserved is None:
        yield from ((start + distance) % count for distance in range(count))
        return
    shift = pool.family.width - length
    distance = 0
    while distance < count:
        position = (start + distance) % count
        block = pool.subprefix(position, length)
        if not reserved.covers(block):
            yield position
            distance += 1
        else:
            behind = (reserved.end(block.first) - pool.base) >> shift
            distance += min(behind, count) - position
