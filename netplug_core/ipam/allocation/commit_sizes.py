"""How much goes into one commit: of a bulk change, and of one decision.

Every store has to accept the commit, so all that an item may need, and what the commit has besides, stays below
``records.MAX_COMMIT_WRITES``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = [
    "ACTIONS_PER_COMMIT", "ADDRESSES_PER_COMMIT", "BLOCKS_FREED_PER_COMMIT", "BLOCKS_PER_COMMIT",
    "BLOCKS_PER_RESTORED_HANDLE", "RECORDS_PER_ASSIGNMENT", "RECORDS_PER_RELEASE", "RELEASES_PER_DECISION", "batches",
]  # fmt: skip

T = TypeVar("T")

ADDRESSES_PER_COMMIT = 32
"""Addresses released in one commit. Each may need two writes: its block and its handle."""

BLOCKS_PER_COMMIT = 16
"""Blocks claimed or relinquished in one commit. Each may need three writes: the block and two affinities."""

ACTIONS_PER_COMMIT = 16
"""Actions of the garbage collector in one commit. Freeing a handle writes the handle and each block that it names."""

BLOCKS_FREED_PER_COMMIT = 32
"""Blocks in which one commit of the garbage collector frees addresses. Each is a write, beside those of the handles."""

RELEASES_PER_DECISION = 20
"""Affinities that an assignment gives up beside its own work, and blocks of a handle that one commit releases. Each may
need three writes: the block and two of its affinity. The next decision goes on with the rest."""

RECORDS_PER_ASSIGNMENT = 100
"""Blocks, affinities and pools that the commit of an assignment changes or requires, in both families. What takes
addresses comes first, with the blocks without whose release the claimant would exceed its limit; what is left is for
other affinities to give up. The rest of the commit is for the configuration, the node, the handle and the endpoint."""

RECORDS_PER_RELEASE = 2
"""A block that is given up, and the affinity to it."""

BLOCKS_PER_RESTORED_HANDLE = 100
"""Blocks from which one commit restores a handle: it requires that they are unchanged."""


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in their order, at most ``size`` at a time."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
