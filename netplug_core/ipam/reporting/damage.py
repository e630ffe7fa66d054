"""What may be lost with a damaged block or pool that is deleted. Nothing in it can be read, so other records tell."""

from __future__ import annotations

from collections.abc import Iterable

from netplug_core.addressing import Prefix
from netplug_core.errors import excerpt
from netplug_core.ipam.gc.candidates import allocation_owners
from netplug_core.ipam.model.block import BLOCK
from netplug_core.ipam.model.handle import HANDLE
from netplug_core.records import List, Query, Snapshot
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = ["BLOCK_RISK_QUERIES", "POOL_RISK_QUERIES", "find_block_risks", "find_pool_risks"]

_HANDLES = List(HANDLE)
_ENDPOINTS = List(WORKLOAD_ENDPOINT)
_BLOCKS = List(BLOCK)
_POOLS = List(IPPOOL)
_MAX_NAMES = 5

BLOCK_RISK_QUERIES: tuple[Query, ...] = (_HANDLES, _ENDPOINTS)
"""What to read before ``find_block_risks``."""

POOL_RISK_QUERIES: tuple[Query, ...] = (_POOLS, _BLOCKS)
"""What to read before ``find_pool_risks``."""


def find_block_risks(snapshot: Snapshot, block: Prefix) -> tuple[str, ...]:
    """Why addresses of a block may be in use; empty if none is.

    A handle never counts too little, so that a block that no handle and no endpoint names holds nothing for workloads.
    """
    handles = [record.key.name for record in snapshot.readable(_HANDLES) if record.value.count(block)]
    endpoints = [
        record.key.name
        for record in snapshot.readable(_ENDPOINTS)
        if any(block.contains(address) for address in record.value.spec.addresses)
    ]
    return (
        *_named("handles that count addresses in it", handles),
        *_named("workload endpoints with an address of it", endpoints),
        *_counted("handles that cannot be read", len(snapshot.malformed(_HANDLES))),
        *_counted("workload endpoints that cannot be read", len(snapshot.malformed(_ENDPOINTS))),
    )


def find_pool_risks(snapshot: Snapshot) -> tuple[str, ...]:
    """Why addresses of a pool whose range cannot be read may be in use; empty if none is."""
    ranges = [record.value.spec.prefix for record in snapshot.readable(_POOLS)]
    outside = [
        record.value
        for record in snapshot.readable(_BLOCKS)
        if not any(range_.covers(record.value.prefix) for range_ in ranges)
    ]
    return (
        *_counted("addresses held in blocks of no other pool", sum(len(allocation_owners(block)) for block in outside)),
        *_counted("blocks that cannot be read", len(snapshot.malformed(_BLOCKS))),
    )


def _named(what: str, names: Iterable[str]) -> tuple[str, ...]:
    """How many there are, with the first names; nothing if there is none."""
    found = sorted(map(excerpt, names))
    more = ", …" if len(found) > _MAX_NAMES else ""
    return (f"{what}: {len(found)} ({', '.join(found[:_MAX_NAMES])}{more})",) if found else ()


def _counted(what: str, count: int) -> tuple[str, ...]:
    return (f"{what}: {count}",) if count else ()
