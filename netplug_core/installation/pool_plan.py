"""What has to happen to the pools of a cluster, so that they are those of an Installation.

A pool is the operator's if it carries its label, or is already as the Installation wants it. Other pools are never
changed. Nothing is written here: the plan says what and why.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from attrs import evolve, frozen

from netplug_core.installation.defaults import ResolvedInstallation
from netplug_core.installation.facts import ClusterFacts
from netplug_core.names import MANAGED_BY
from netplug_core.resources.ippool import IPPool, IPPoolSpec
from netplug_core.resources.validation import InvalidResource, validate_pool_update

__all__ = ["PoolAPI", "PoolAction", "PoolStep", "plan_pools", "pools_afterwards"]


class PoolAction(enum.Enum):
    """What happens to a pool. The last two leave it as it is, and the installation is degraded."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    LEAVE = "leave"
    WAIT = "ResourceNotReady"
    REFUSE = "ResourceValidationError"


@frozen(kw_only=True)
class PoolStep:
    """One action. ``pool`` is the pool as it will be; for DELETE, LEAVE, WAIT and REFUSE as it is, or is wanted."""

    action: PoolAction
    pool: IPPool
    reason: str


class PoolAPI(enum.Enum):
    """Whether pools can be written through the API that validates them."""

    AVAILABLE = "available"
    MISSING = "missing"


def plan_pools(
    resolved: ResolvedInstallation, facts: ClusterFacts, api: PoolAPI = PoolAPI.AVAILABLE
) -> tuple[PoolStep, ...]:
    """The steps for the wanted pools in their order, then for the other pools by name.

    On a cluster without any pool they are created at once: an aggregated API server itself needs pods.
    """
    existing = {pool.spec.prefix: pool for pool in sorted(facts.pools, key=lambda pool: pool.metadata.name)}
    wanted = [one.pool for one in resolved.pools]
    steps = [_step_for_wanted(pool, existing.get(pool.spec.prefix), facts, api) for pool in wanted]
    prefixes = {pool.spec.prefix for pool in wanted}
    others = (pool for prefix, pool in existing.items() if prefix not in prefixes)
    return (*steps, *(_step_for_other(pool, resolved, api) for pool in others))


def pools_afterwards(facts: ClusterFacts, steps: Iterable[PoolStep]) -> tuple[IPPool, ...]:
    """The pools of the cluster once the steps are done."""
    pools = {pool.metadata.name: pool for pool in facts.pools}
    for step in steps:
        if step.action in (PoolAction.CREATE, PoolAction.UPDATE):
            pools[step.pool.metadata.name] = step.pool
        elif step.action is PoolAction.DELETE:
            del pools[step.pool.metadata.name]
    return tuple(pools.values())


def _step_for_wanted(wanted: IPPool, found: IPPool | None, facts: ClusterFacts, api: PoolAPI) -> PoolStep:
    if found is None:
        return _step_for_missing(wanted, facts, api)
    if found.metadata.name != wanted.metadata.name:
        reason = f"the pool {found.metadata.name} has this CIDR, and the name of a pool cannot be changed"
        return _step(PoolAction.REFUSE, found, reason)
    if not _is_labelled(found) and _comparable(found.spec) != _comparable(wanted.spec):
        reason = f"it is not the operator's and differs; label it {'='.join(MANAGED_BY)} to hand it over"
        return _step(PoolAction.REFUSE, found, reason)
    return _step_for_own(wanted, found)


def _step_for_missing(wanted: IPPool, facts: ClusterFacts, api: PoolAPI) -> PoolStep:
    if not facts.pools:
        return _step(PoolAction.CREATE, _labelled(wanted), "the cluster has no pool")
    former = next((pool for pool in facts.pools if pool.metadata.name == wanted.metadata.name), None)
    if former is not None:
        return _step_for_taken_name(wanted, former)
    if api is PoolAPI.MISSING:
        return _step(PoolAction.WAIT, wanted, "the API that validates pools is not there yet")
    return _step(PoolAction.CREATE, _labelled(wanted), "no pool has this CIDR")


def _step_for_taken_name(wanted: IPPool, former: IPPool) -> PoolStep:
    """The wanted pool has the name of one with another CIDR, which is gone from the Installation."""
    prefix = former.spec.prefix
    if _is_labelled(former):
        return _step(
            PoolAction.WAIT, wanted, f"its name is that of the pool with the CIDR {prefix} until it is deleted"
        )
    return _step(
        PoolAction.REFUSE, wanted, f"its name is that of a pool with the CIDR {prefix}, which is not the operator's"
    )


def _step_for_own(wanted: IPPool, found: IPPool) -> PoolStep:
    """What the Installation cannot say of a pool stays as it is."""
    namespaces, unknown_json = found.spec.namespace_selector, found.spec.unknown_json
    spec = evolve(wanted.spec, namespace_selector=namespaces, unknown_json=unknown_json)
    if _is_labelled(found) and _comparable(found.spec) == _comparable(spec):
        return _step(PoolAction.LEAVE, found, "it is as the Installation wants it")
    updated = _labelled(evolve(found, spec=spec))
    try:
        validate_pool_update(found, updated)
    except InvalidResource as error:
        return _step(PoolAction.REFUSE, found, str(error))
    reason = "it differs" if _is_labelled(found) else "it equals the wanted pool, and gets the label of the operator"
    return _step(PoolAction.UPDATE, updated, reason)


def _step_for_other(found: IPPool, resolved: ResolvedInstallation, api: PoolAPI) -> PoolStep:
    if not _is_labelled(found):
        return _step(PoolAction.LEAVE, found, "it is not the operator's")
    if not resolved.lists_pools:
        return _step(PoolAction.LEAVE, found, "the Installation lists no pools")
    if api is PoolAPI.MISSING:
        return _step(
            PoolAction.WAIT, found, "it is gone from the Installation; the API that deletes pools is not there"
        )
    return _step(PoolAction.DELETE, found, "it is gone from the Installation")


def _step(action: PoolAction, pool: IPPool, reason: str) -> PoolStep:
    return PoolStep(action=action, pool=pool, reason=reason)


def _is_labelled(pool: IPPool) -> bool:
    return MANAGED_BY in pool.metadata.labels


def _labelled(pool: IPPool) -> IPPool:
    name, text = MANAGED_BY
    labels = tuple(sorted((dict(pool.metadata.labels) | {name: text}).items()))
    return evolve(pool, metadata=evolve(pool.metadata, labels=labels))


def _comparable(spec: IPPoolSpec) -> IPPoolSpec:
    """The settings without their order, and without what this release does not know."""
    uses = tuple(sorted(set(spec.allowed_uses), key=lambda use: use.value))
    return evolve(spec, allowed_uses=uses, unknown_json="")
