"""A handle: the key under which a workload's addresses are released together.

It counts, for each block, how many addresses it holds there. It is written before the block and removed after it, so
after a crash a count may be too high, never too low. Every assignment and every release corrects its own handle.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.records import Get, Key, Kind

__all__ = ["HANDLE", "Handle", "handle_key", "handle_query"]


@frozen(kw_only=True)
class Handle:
    """How many addresses are held in which blocks: pairs sorted by block, each count above 0.

    ``sequence`` grows with a write that changes no count (``touched``).
    """

    blocks: tuple[tuple[Prefix, int], ...] = ()
    sequence: int = 0
    unknown_json: str = ""

    def with_count(self, prefix: Prefix, count: int) -> Handle:
        """This handle with that count for one block; 0 forgets the block."""
        blocks = [pair for pair in self.blocks if pair[0] != prefix]
        if count:
            blocks.append((prefix, count))
        return Handle(blocks=tuple(sorted(blocks)), sequence=self.sequence, unknown_json=self.unknown_json)

    def touched(self) -> Handle:
        """The same handle to be stored again: its new revision makes an unfinished deletion of it fail.

        An API server keeps the revision of a record that does not change.
        """
        return evolve(self, sequence=self.sequence + 1)

    def count(self, prefix: Prefix) -> int:
        """How many addresses it holds in a block; 0 for a block it does not know."""
        return next((count for known, count in self.blocks if known == prefix), 0)


HANDLE: Kind[Handle] = Kind("IPAMHandle", ("id",))


def handle_key(handle_id: str) -> Key[Handle]:
    """The key of the handle with that id."""
    return handle_query(handle_id).key


@lru_cache(maxsize=256)  # equal queries are the same object, so that a lookup need not compare them
def handle_query(handle_id: str) -> Get[Handle]:
    """The query for the handle with that id."""
    return Get(HANDLE.key(handle_id))
