"""Carries out a step that an Installation asks for about a pool: for the operator, and for ``netplugctl install``."""

from __future__ import annotations

from collections.abc import Callable

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.apply import apply
from netplug_core.flows.resources.create import create
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.outcome import Outcome
from netplug_core.installation.pool_plan import PoolAction, PoolStep
from netplug_core.resources.manifest import Manifest

__all__ = ["change_pool"]


def change_pool(
    store: Datastore, step: PoolStep, *, revision: str, pace: Pace, new_uid: Callable[[], str]
) -> Outcome:  # fmt: skip
    """Create, update or delete a pool that was read with that revision, which is empty if there was none.

    Raises:
        InvalidResource: the pool breaks a rule, alone or beside another one.
        ResourceExists: another program has made the pool since then.
        ResourceMissing, ResourceOutdated: it was deleted or changed since then.
        ContentionExhausted, Unavailable: not now.
    """
    pool = step.pool
    if step.action is PoolAction.DELETE:
        return delete(store, pool.key, revision=revision, pace=pace)
    if step.action is PoolAction.CREATE:
        return create(store, Manifest(resource=pool), pace=pace, new_uid=new_uid)
    return apply(store, Manifest(resource=pool, revision=revision), pace=pace, new_uid=new_uid)
