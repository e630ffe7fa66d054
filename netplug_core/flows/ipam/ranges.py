"""Reads the blocks of a range, and the affinities to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.paging import read_pages
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.model.block import BLOCK, blocks_path
from netplug_core.ipam.model.ranges import is_within, raise_if_within
from netplug_core.records import Kind, Malformed, Record

__all__ = ["read_within"]

V = TypeVar("V")


def read_within(store: Datastore, kind: Kind[V], range_: Prefix, *, deadline: Deadline) -> Iterator[Record[V]]:
    """The blocks that have addresses of a range, or the affinities to them.

    Raises:
        Malformed: one of them cannot be understood; one elsewhere is passed over.
        Unavailable: the store does not answer.
    """
    path = blocks_path(range_.family) if kind == BLOCK else ()
    malformed: list[Malformed] = []
    for record in read_pages(store, kind, path, deadline=deadline, malformed=malformed):
        if is_within(record.key, range_):
            yield record
    raise_if_within(malformed, range_)
