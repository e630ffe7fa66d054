"""Creates a resource that is not stored yet."""

from __future__ import annotations

from collections.abc import Callable

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.change import ResourceChange, commit_change, decide_creation
from netplug_core.flows.resources.outcome import Effect, Outcome, ResourceExists
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.records import Decision, NeedMore, Snapshot
from netplug_core.resources.manifest import Manifest
from netplug_core.resources.validation import FieldError, InvalidResource

__all__ = ["create"]


def create(
    store: Datastore,
    manifest: Manifest,
    *,
    pace: Pace,
    new_uid: Callable[[], str],
    run: PoolNeighbours | None = None,
) -> Outcome:
    """Store a new resource. People do not set its status and its deletion time, so they are left out.

    ``run`` has what a run of many resources has read of their neighbours; it confirms their creation in the end.

    Raises:
        InvalidResource: it breaks rules, alone or beside what is stored.
        KindNotWritable: people do not write its kind.
        ResourceExists: there is one of that name.
        Unavailable: the store does not answer.
    """
    change = ResourceChange.of(manifest, "Create", pace, uid=new_uid())
    if manifest.revision:
        rule = "field must not be set for a Create request"
        raise InvalidResource.from_field_errors(
            str(change.key), [FieldError("Metadata.ResourceVersion", manifest.revision, rule)]
        )

    def decide(snapshot: Snapshot, neighbours: PoolNeighbours) -> Decision[Effect] | NeedMore:
        stored = snapshot.find(change.key)
        if stored is None:
            return decide_creation(snapshot, change, neighbours)
        if change.is_stored_as(stored):
            return Decision((), Effect.CREATED)
        return Decision((), ResourceExists(str(change.key), change.key.name, "choose another name, or apply"))

    return commit_change(store, change, decide, pace, run)
