"""Carries out one action of a plan, and writes the status."""

from __future__ import annotations

from typing import Final, assert_never

from attrs import frozen

from netplug_cli.operator.world import Cluster, Pools
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import Unavailable
from netplug_core.operator.state import (
    FINALIZER,
    Action,
    ApplyObject,
    ChangePool,
    ClusterMode,
    CompleteInstallation,
    DeleteObject,
    Json,
    LockDatastore,
    SetFinalizer,
    find_text,
    ref_of,
)
from netplug_core.resources.installation import INSTALLATION_API_VERSION, INSTALLATION_KIND

__all__ = ["Actor"]

_WRITE_S: Final = 5.0
"""How long the write of an object may take: with it, one that was begun ends before another operator acts.

A change of a pool may take longer (``world.Pools``). It may end while another operator acts, so it relies on the
revisions of what it has read, and on nothing else.
"""


@frozen(kw_only=True)
class Actor:
    """Writes to a cluster. Every method raises NetplugError if it cannot be done."""

    cluster: Cluster
    pools: Pools
    clock: Clock

    def act(self, action: Action, mode: ClusterMode) -> None:
        """Do what an action says."""
        deadline = Deadline.after(self.clock, _WRITE_S)
        match action:
            case ApplyObject(wanted):
                self.cluster.apply(wanted, deadline=deadline)
            case DeleteObject(ref, uid):
                self.cluster.delete(ref, uid, deadline=deadline)
            case ChangePool(step):
                self.pools.change(mode, step)
            case CompleteInstallation(installation):
                if self.cluster.replace(installation, deadline=deadline) is None:
                    raise Unavailable(str(ref_of(installation)), "it has changed meanwhile, and is read again")
            case LockDatastore(is_locked):
                self.pools.lock(mode, is_locked=is_locked)
            case SetFinalizer(name, uid, is_held):
                finalizers = [FINALIZER] if is_held else []
                metadata = {"name": name, "uid": uid, "finalizers": finalizers}
                self.cluster.apply(_installation(metadata), deadline=deadline)
            case _:
                assert_never(action)

    def write_status(self, found: Json, status: Json) -> None:
        """Write the status of an object that was read."""
        head = {member: find_text(found, member) for member in ("apiVersion", "kind")}
        metadata = {member: find_text(found, "metadata", member) for member in ("name", "uid")}
        deadline = Deadline.after(self.clock, _WRITE_S)
        self.cluster.apply({**head, "metadata": metadata, "status": status}, deadline=deadline, subresource="status")


def _installation(metadata: Json) -> Json:
    return {"apiVersion": INSTALLATION_API_VERSION, "kind": INSTALLATION_KIND, "metadata": metadata}
