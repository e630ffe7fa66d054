"""Which pools may serve a request, as the oracle sees it: the rules once more, independent of the allocator."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Specific
from netplug_core.resources.ippool import AssignmentMode, IPPool
from netplug_core.selectors import matches, parse
from tests.harness.allocator.state import ClusterConfiguration

__all__ = ["PoolRefusal", "block_limits", "eligible_pools", "is_enabled", "pool_of_address"]


class PoolRefusal(enum.Enum):
    """Why no pool serves a request: an error of the request (hard), or no matching pool (soft)."""

    HARD = "a named pool cannot be used, or the request is not complete"
    SOFT = "no pool is meant for it"


def block_limits(configuration: ClusterConfiguration, request: AssignRequest) -> tuple[int, ...]:
    """The configured limits of the claimant's blocks of a family."""
    of_request = () if request.block_limit is None else (request.block_limit,)
    return (
        *((configuration.settings.max_blocks_per_host,) if configuration.settings.max_blocks_per_host else ()),
        *of_request,
    )


def eligible_pools(
    configuration: ClusterConfiguration, request: AssignRequest, wanted: Automatic
) -> tuple[IPPool, ...] | PoolRefusal:
    """The pools that a family of a request may be served from."""
    if request.use is None:
        return PoolRefusal.HARD
    pools = sorted(configuration.pools.values(), key=lambda pool: pool.metadata.name)
    if wanted.pools:
        return _named_pools(pools, request, wanted)
    found = tuple(
        pool
        for pool in pools
        if pool.spec.prefix.family is wanted.family
        and is_enabled(pool)
        and _is_selected(pool, configuration, request)
        and _is_fit(pool, request)
        and not _overlaps_older(pool, pools)
    )
    return found or PoolRefusal.SOFT


def _named_pools(
    pools: Iterable[IPPool], request: AssignRequest, wanted: Automatic
) -> tuple[IPPool, ...] | PoolRefusal:
    by_name = {pool.metadata.name: pool for pool in pools}
    found: dict[str, IPPool] = {}
    for name in wanted.pools:
        pool = by_name.get(name)
        if pool is None or pool.spec.prefix.family is not wanted.family or not is_enabled(pool):
            return PoolRefusal.HARD
        if not _is_fit(pool, request):
            return PoolRefusal.SOFT
        if _overlaps_older(pool, pools):
            return PoolRefusal.HARD
        found[name] = pool
    return tuple(found.values())


def is_enabled(pool: IPPool) -> bool:
    """Whether a pool may give addresses and blocks at all."""
    return not (pool.spec.is_disabled or pool.is_terminating or pool.not_allocatable_condition)


def _overlaps_older(pool: IPPool, pools: Iterable[IPPool]) -> bool:
    """Whether a pool overlaps an older one, enabled or not, and so gives no addresses."""
    return any(_age(other) < _age(pool) and other.spec.prefix.overlaps(pool.spec.prefix) for other in pools)


def _may_give(pool: IPPool, pools: Iterable[IPPool]) -> bool:
    return is_enabled(pool) and not _overlaps_older(pool, pools)


def _age(pool: IPPool) -> tuple[int, str]:
    return (pool.metadata.creation_time_ns or 0, pool.metadata.name)


def _is_selected(pool: IPPool, configuration: ClusterConfiguration, request: AssignRequest) -> bool:
    spec = pool.spec
    return (
        spec.assignment_mode is AssignmentMode.AUTOMATIC
        and _matches(spec.node_selector, configuration.labels.get(request.node, {}))
        and _matches(spec.namespace_selector, dict(request.namespace_labels))
    )


def _matches(selector: str, labels: Mapping[str, str]) -> bool:
    return matches(parse(selector), labels)


def _is_fit(pool: IPPool, request: AssignRequest) -> bool:
    size = pool.spec.prefix.subprefix(0, pool.spec.block_length).size
    return request.use in pool.spec.allowed_uses and (
        not sum(request.host_reserved) or sum(request.host_reserved) < size
    )


def pool_of_address(configuration: ClusterConfiguration, request: AssignRequest, wanted: Specific) -> IPPool | None:
    """The pool that a specific address may come from; None if there is none."""
    address, known = wanted.address, configuration.pools
    if not all(name in known and known[name].spec.prefix.family is address.family for name in wanted.pools):
        return None
    pools = sorted(known.values(), key=lambda pool: pool.metadata.name)
    pool = next((pool for pool in pools if pool.spec.prefix.contains(address) and _may_give(pool, pools)), None)
    if pool is None or (wanted.pools and pool.metadata.name not in wanted.pools):
        return None
    return pool if request.use is None or request.use in pool.spec.allowed_uses else None
