"""Every block of a family, for decisions that borrow, report a shortfall, or search without a pool."""

from __future__ import annotations

from collections.abc import Mapping

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.model.block import BLOCK, Block, blocks_path
from netplug_core.records import PAGE_SIZE, List, NeedMore, Record, Snapshot

__all__ = ["all_blocks"]


def all_blocks(snapshot: Snapshot, family: Family) -> Mapping[Prefix, Record[Block]] | NeedMore:
    """The blocks of all pages that can be read; a request for the next page while one is missing."""
    blocks: dict[Prefix, Record[Block]] = {}
    after = ""
    while True:
        page = List(BLOCK, blocks_path(family), limit=PAGE_SIZE, after=after)
        if not snapshot.has(page):
            return NeedMore((page,))
        blocks.update((record.value.prefix, record) for record in snapshot.readable(page))
        after = snapshot.after(page)
        if not after:
            return blocks
