"""Creates a resource, or changes the stored one."""

from __future__ import annotations

from collections.abc import Callable

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.change import (
    ResourceChange,
    commit_change,
    decide_creation,
    decide_repair,
    decide_replacement,
)
from netplug_core.flows.resources.outcome import Effect, Outcome, ResourceMissing
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.records import Decision, NeedMore, Snapshot
from netplug_core.resources.manifest import Manifest

__all__ = ["apply"]


def apply(
    store: Datastore,
    manifest: Manifest,
    *,
    pace: Pace,
    new_uid: Callable[[], str],
    run: PoolNeighbours | None = None,
) -> Outcome:
    """Store a new resource, or give the stored one the labels, the annotations and the spec of a manifest.

    Everything else of the stored resource stays: identity, times, finalizers, owners, status, and fields of a newer
    release. If nothing differs, nothing is written. A damaged resource is replaced whole.

    ``run`` has what a run of many resources has read of their neighbours; it confirms their creation in the end.

    Raises:
        InvalidResource: it breaks rules, alone, beside what is stored, or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        ResourceMissing: the manifest names a resource version, and nothing is stored.
        ResourceOutdated: the manifest names another resource version than the latest.
        Unavailable: the store does not answer.
    """
    change = ResourceChange.of(manifest, "Apply", pace, uid=new_uid())

    def decide(snapshot: Snapshot, neighbours: PoolNeighbours) -> Decision[Effect] | NeedMore:
        repair = decide_repair(snapshot, change, neighbours)
        if repair is not None:
            return repair
        stored = snapshot.find(change.key)
        if stored is None:
            missing = ResourceMissing.of(change.key)
            return Decision((), missing) if change.revision else decide_creation(snapshot, change, neighbours)
        if change.is_stored_as(stored):
            return Decision((), Effect.CREATED)
        return decide_replacement(stored, change.wanted, change.revision)

    return commit_change(store, change, decide, pace, run)
