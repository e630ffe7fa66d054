"""Changes a stored resource to what a manifest has."""

from __future__ import annotations

from collections.abc import Callable

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.change import ResourceChange, commit_change, decide_repair, decide_replacement
from netplug_core.flows.resources.outcome import Effect, Outcome, ResourceMissing
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.records import Decision, NeedMore, Snapshot
from netplug_core.resources.manifest import Manifest

__all__ = ["replace"]


def replace(
    store: Datastore,
    manifest: Manifest,
    *,
    pace: Pace,
    new_uid: Callable[[], str],
    run: PoolNeighbours | None = None,
) -> Outcome:
    """Give a stored resource the labels, the annotations and the spec of a manifest, as ``apply`` does.

    A damaged resource is replaced whole, with a new identity.

    ``run`` has what a run of many resources has read of their neighbours.

    Raises:
        InvalidResource: it breaks rules, alone or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        ResourceMissing: nothing is stored.
        ResourceOutdated: the manifest names another resource version than the latest.
        Unavailable: the store does not answer.
    """
    change = ResourceChange.of(manifest, "Update", pace, uid=new_uid())

    def decide(snapshot: Snapshot, neighbours: PoolNeighbours) -> Decision[Effect] | NeedMore:
        repair = decide_repair(snapshot, change, neighbours)
        if repair is not None:
            return repair
        stored = snapshot.find(change.key)
        if stored is None:
            return Decision((), ResourceMissing.of(change.key))
        return decide_replacement(stored, change.wanted, change.revision)

    return commit_change(store, change, decide, pace, run)
