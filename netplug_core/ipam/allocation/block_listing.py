"""Every block of a family, read page by page: what a loan, a shortfall or a search without a pool forces."""

from __future__ import annotations

from collections.abc import Mapping

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.model.block import BLOCK, Block, blocks_path
from netplug_core.records import List, NeedMore, Record, Snapshot

__all__ = ["PAGE", "all_blocks"]

PAGE = 1000
"""Blocks listed in one read."""


def all_blocks(snapshot: Snapshot, family: Family) -> Mapping[Prefix, Record[Block]] | NeedMore:
    """The blocks of all pages, or the next page to read."""
    blocks: dict[Prefix, Record[Block]] = {}
    after = ""
    while True:
        query = List(BLOCK, blocks_path(family), limit=PAGE, after=after)
        if not snapshot.has(query):
            return NeedMore((query,))
        blocks.update((record.value.prefix, record) for record in snapshot.list(query))
        after = snapshot.after(query)
        if not after:
            return blocks
