"""In which order a node looks at the blocks of a pool: a rotation that starts where the node's name hashes to.

Two first requests of one node aim at the same block instead of claiming two, and different nodes start apart.
Positions are integers and the order is lazy, so a /64 with 2**58 blocks costs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from netplug_core.addressing import Prefix

__all__ = ["BlockOrder", "block_order", "hashed_start"]

BlockOrder = Callable[[str, Prefix, int], int]
"""Where a node starts: node, pool and number of blocks in; a position below that number out."""


def hashed_start(node: str, pool: Prefix, count: int) -> int:
    """The position that the node's name and the pool hash to."""
    digest = hashlib.sha256(f"{node} {pool}".encode()).digest()
    return int.from_bytes(digest[:16], "big") % count


def block_order(start: int, pool: Prefix, length: int) -> Iterator[Prefix]:
    """Every block of a pool once, from a position upwards and around."""
    count = pool.part_count(length)
    for offset in range(count):
        yield pool.part((start + offset) % count, length)
