"""What the block IPAM of a resident process remembers: one place says which records a cache does not keep."""

from __future__ import annotations

from netplug_core.clock import Clock
from netplug_core.datastore.cache import DatastoreCache
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.model.block import BLOCK
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.records import Kind
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = ["UNCACHED_ABSENT_KINDS", "UNCACHED_KINDS", "make_ipam_cache"]

UNCACHED_KINDS: frozenset[Kind[object]] = frozenset((HANDLE, WORKLOAD_ENDPOINT))
"""Kinds with a record for every workload: a cache of them would only grow."""

UNCACHED_ABSENT_KINDS: frozenset[Kind[object]] = frozenset((BLOCK,))
"""A claim looks for all blocks that the new one would overlap. That they do not exist is not remembered."""


def make_ipam_cache(
    datastore: Datastore, *, clock: Clock, further_uncached_kinds: frozenset[Kind[object]] = frozenset()
) -> DatastoreCache:
    """An empty cache for the block IPAM over a datastore.

    ``further_uncached_kinds`` are kinds of the caller's own that are not kept either.
    """
    return DatastoreCache.for_datastore(
        datastore,
        clock=clock,
        uncached_kinds=UNCACHED_KINDS | further_uncached_kinds,
        uncached_absent_kinds=UNCACHED_ABSENT_KINDS,
    )
