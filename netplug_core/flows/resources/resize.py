"""Replaces a pool by a successor with another range or block size; ``drain`` then empties the old pool.

The range and the block size of a pool cannot be changed, and pools must not overlap. So the successor has another
range. It has the settings and labels of the old pool, and an annotation that names it, by which a later run finds out
that it is the successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import evolve, frozen

from netplug_core.addressing import Prefix
from netplug_core.datastore.transaction import CALL_TIMEOUT_S
from netplug_core.errors import ConfigurationError, excerpt
from netplug_core.flows.resources.create import create
from netplug_core.flows.resources.drain import Drainer, require_unmanaged
from netplug_core.flows.resources.outcome import Outcome, ResourceExists, ResourceMissing
from netplug_core.flows.resources.pools import POOLS
from netplug_core.ipam.reporting.drain_plan import was_disabled
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.records import Get, Record
from netplug_core.resources.ippool import IPPool, ippool_key
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.validation import validate_pool_overlaps, validate_resource

__all__ = ["SUCCESSOR_MARK", "ResizePlan", "ResizeRefused", "WantedSize", "create_successor", "plan_resize"]

SUCCESSOR_MARK = f"{RESOURCE_DOMAIN}/successor-of"
"""The annotation of a successor: the name of the old pool, a slash, and its uid."""


class ResizeRefused(ConfigurationError):
    """A size that a pool cannot get."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {self.accepted}"


@frozen(kw_only=True)
class WantedSize:
    """What a pool shall be replaced by; None: the same as that of the old pool."""

    successor: str
    prefix: Prefix | None = None
    block_length: int | None = None


@frozen(kw_only=True)
class ResizePlan:
    """The old pool (None if it is drained and gone) and its successor, and whether that is stored already."""

    old: Record[IPPool] | None
    successor: IPPool
    is_created: bool


def plan_resize(drainer: Drainer, name: str, wanted: WantedSize) -> ResizePlan:
    """What is left to do until a pool is replaced; nothing is written.

    Raises:
        InvalidResource: the successor breaks rules, alone or beside another pool.
        PoolManaged: the operator would delete the successor, and keep the old pool.
        ResizeRefused: the wanted size is that of the pool, or the successor would overlap it.
        ResourceExists: a pool has the successor's name, and is not the successor.
        ResourceMissing: there is no such pool.
        Unavailable: the store does not answer.
    """
    old_query, new_query = Get(ippool_key(name)), Get(ippool_key(wanted.successor))
    deadline = drainer.pace().deadline
    snapshot = drainer.store.read((old_query, new_query, POOLS), deadline=deadline.capped(CALL_TIMEOUT_S))
    old, stored = snapshot.find(old_query), snapshot.find(new_query)
    if stored is not None and name != wanted.successor and _is_successor(stored.value, name, old, wanted):
        return ResizePlan(old=old, successor=stored.value, is_created=True)
    if old is None:
        raise ResourceMissing.of(ippool_key(name))
    require_unmanaged(old.value)
    if stored is not None:
        problem = f"it is not the successor of {old.key} with that size; choose another name"
        raise ResourceExists(str(stored.key), stored.key.name, problem)
    successor = _make_successor(old.value, wanted)
    _require_new_size(old.value, successor)
    validate_resource(successor)
    validate_pool_overlaps(successor, (record.value for record in snapshot.list(POOLS)))
    return ResizePlan(old=old, successor=successor, is_created=False)


def create_successor(drainer: Drainer, plan: ResizePlan, *, new_uid: Callable[[], str]) -> Outcome:
    """Store the successor of a plan.

    Raises:
        InvalidResource: another pool overlaps it, or blocks of another size in its range are in use.
        ResourceExists: its name was taken meanwhile, perhaps by another run of the same resize: plan again.
        ContentionExhausted, Unavailable: not now.
    """
    return create(drainer.store, Manifest(resource=plan.successor), pace=drainer.pace(), new_uid=new_uid)


def _make_successor(old: IPPool, wanted: WantedSize) -> IPPool:
    metadata = Metadata(
        name=wanted.successor, labels=old.metadata.labels, annotations=((SUCCESSOR_MARK, _mark(old)),)
    )  # fmt: skip
    spec = evolve(
        old.spec,
        prefix=wanted.prefix or old.spec.prefix,
        block_length=old.spec.block_length if wanted.block_length is None else wanted.block_length,
        is_disabled=was_disabled(old),
    )
    return IPPool(metadata=metadata, spec=spec)


def _mark(old: IPPool) -> str:
    return f"{old.metadata.name}/{old.metadata.uid}"


def _is_successor(pool: IPPool, name: str, old: Record[IPPool] | None, wanted: WantedSize) -> bool:
    """Whether a stored pool is the one that an earlier run created for this size; its other settings may be changed."""
    mark = dict(pool.metadata.annotations).get(SUCCESSOR_MARK, "")
    is_of_old = mark.startswith(f"{name}/") if old is None else mark == _mark(old.value)
    has_range = wanted.prefix in (None, pool.spec.prefix)
    return is_of_old and has_range and wanted.block_length in (None, pool.spec.block_length)


def _require_new_size(old: IPPool, successor: IPPool) -> None:
    before, after, where = old.spec, successor.spec, str(old.key)
    if before.prefix.family is not after.prefix.family:
        raise ResizeRefused(where, str(after.prefix), f"{after.prefix} is of another family than {before.prefix}")
    if (before.prefix, before.block_length) == (after.prefix, after.block_length):
        raise ResizeRefused(where, str(after.prefix), "it has that CIDR and block size already")
    if after.prefix == before.prefix:
        how = f"give a CIDR that no pool has, or drain {where}, and create it again when it is gone"
        problem = f"another block size needs another pool, and two pools must not have {before.prefix}"
        raise ResizeRefused(where, str(after.prefix), f"{problem}: {how}")
    if after.prefix.covers(before.prefix):
        beside = ", ".join(map(str, _beside(before.prefix, after.prefix)))
        how = f"keep {where} and create pools for what lies beside it, {beside}; or give a CIDR apart from it"
        raise ResizeRefused(where, str(after.prefix), f"{after.prefix} contains {before.prefix}: {how}")
    if before.prefix.covers(after.prefix):
        how = f"give a CIDR apart from it, or drain {where}, and create the smaller pool when it is gone"
        raise ResizeRefused(where, str(after.prefix), f"{after.prefix} is a part of {before.prefix}: {how}")


def _beside(inner: Prefix, outer: Prefix) -> Iterator[Prefix]:
    """The prefixes that make up ``outer`` together with ``inner``, the largest first."""
    for length in range(outer.length + 1, inner.length + 1):
        around = Prefix.at(inner.first, length)
        sibling = around.base ^ (1 << (inner.family.width - length))
        yield Prefix(inner.family, sibling, length)
