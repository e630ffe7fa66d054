"""The pools of the cluster for the operator, changed as ``netplugctl`` does: with everything that blocks need."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, ExitStack

from attrs import define, field

from netplug_backends.host.machine import HostMachine
from netplug_backends.kubernetes.names import CrdMode
from netplug_cli.wiring.backends import open_registry
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.check import find_loss
from netplug_core.flows.resources.cluster import find_cluster_object, lock_for_loss, unlock_after_loss
from netplug_core.flows.resources.drain import change_pool
from netplug_core.flows.resources.read import list_all
from netplug_core.installation.pools import PoolStep
from netplug_core.operator.state import ClusterMode
from netplug_core.resources.clusterinformation import is_locked_for_loss
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import get_kind
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess

__all__ = ["StoredPools"]

_CHANGE_S = 60.0
"""Longer than a Lease lasts: the deletion of a pool relinquishes its blocks one by one."""


@define
class StoredPools:
    """See :class:`~netplug_cli.operator.world.Pools`. A change is refused if the pool has changed since it was read."""

    access: KubernetesAccess
    clock: Clock
    _stores: dict[ClusterMode, Datastore] = field(factory=dict, init=False)
    _opened: ExitStack = field(factory=ExitStack, init=False)
    _revisions: dict[str, str] = field(factory=dict, init=False)

    def close(self) -> None:
        """Close what was opened."""
        self._opened.close()

    def read(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[IPPool, ...]:
        """All pools."""
        found = list_all(self._store(mode), get_kind("IPPool"), deadline=deadline)
        self._revisions = {record.key.name: record.revision for record in found}
        return tuple(record.value for record in found if isinstance(record.value, IPPool))

    def change(self, mode: ClusterMode, step: PoolStep) -> None:
        """Create, update or delete a pool."""
        revision = self._revisions.get(step.pool.metadata.name, "")
        change_pool(self._store(mode), step, revision=revision, pace=self._pace(), new_uid=HostMachine().new_uid)

    def find_loss(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[str, bool]:
        """What is lost, and whether the datastore is locked for it."""
        store = self._store(mode)
        information = find_cluster_object(store, deadline=deadline)
        is_locked = information is not None and is_locked_for_loss(information)
        return find_loss(store, deadline=deadline), is_locked

    def lock(self, mode: ClusterMode, *, is_locked: bool) -> None:
        """Lock the datastore because blocks are lost, or unlock it if it is locked for that."""
        if is_locked:
            lock_for_loss(self._store(mode), pace=self._pace(), new_uid=HostMachine().new_uid)
        else:
            unlock_after_loss(self._store(mode), pace=self._pace())

    def _pace(self) -> Pace:
        return Pace(clock=self.clock, deadline=Deadline.after(self.clock, _CHANGE_S), chance=random.random)

    def _store(self, mode: ClusterMode) -> Datastore:
        if mode not in self._stores:
            group = CrdMode[mode.name].value
            settings = DatastoreSettings(type="kubernetes", kubernetes=self.access, api_group=group)
            opened: AbstractContextManager[Datastore] = open_registry().open_datastore(
                "kubernetes", settings, self.clock
            )
            self._stores[mode] = self._opened.enter_context(opened)
        return self._stores[mode]
