"""Finds what ``apply`` would change, and changes nothing. ``netplugctl diff`` calls it."""

from __future__ import annotations

from typing import cast

from attrs import frozen

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S
from netplug_core.errors import NetplugError
from netplug_core.flows.resources.change import ResourceChange, decide_creation, decide_repair, decide_replacement
from netplug_core.flows.resources.outcome import Effect, ResourceMissing
from netplug_core.flows.resources.pools import PoolNeighbours
from netplug_core.records import Decision, Get, Key, NeedMore, Query, Snapshot, Update
from netplug_core.resources.kinds import Resource
from netplug_core.resources.manifest import Manifest

__all__ = ["Preview", "preview"]


@frozen(kw_only=True)
class Preview:
    """A resource as it is stored and as it would be.

    ``before`` is None if nothing is stored, or a damaged record. A new resource (``after``) is shown without the
    identity and the creation time that it would get.
    """

    key: Key[Resource]
    before: Resource | None
    after: Resource
    is_damaged: bool = False


def preview(store: Datastore, manifest: Manifest, *, pace: Pace, run: PoolNeighbours | None = None) -> Preview:
    """What ``apply`` would do with a manifest, judged by what is stored now.

    ``run`` has what was read for the manifests before; None: this is the only one.

    Raises:
        InvalidResource, KindNotWritable, ResourceMissing, ResourceOutdated: ``apply`` would refuse it.
        Unavailable: the store does not answer.
    """
    change = ResourceChange.of(manifest, "Apply", pace, uid="")
    wanted: tuple[Query, ...] = (Get(change.key),)
    neighbours = PoolNeighbours() if run is None else run
    snapshot = Snapshot.empty()
    while True:
        snapshot = snapshot.merged(store.read(wanted, deadline=pace.deadline.capped(CALL_TIMEOUT_S)))
        decision = _decide(snapshot, change, neighbours)
        if isinstance(decision, Decision):
            neighbours.settle()
            return _preview_of(decision, snapshot, change)
        wanted = decision.queries


def _decide(snapshot: Snapshot, change: ResourceChange, neighbours: PoolNeighbours) -> Decision[Effect] | NeedMore:
    repair = decide_repair(snapshot, change, neighbours)
    if repair is not None:
        return repair
    stored = snapshot.find(change.key)
    if stored is not None:
        return decide_replacement(stored, change.wanted, change.revision)
    if change.revision:
        return Decision((), ResourceMissing.of(change.key))
    return decide_creation(snapshot, change, neighbours)


def _preview_of(decision: Decision[Effect], snapshot: Snapshot, change: ResourceChange) -> Preview:
    if isinstance(decision.result, NetplugError):
        raise decision.result
    is_damaged = decision.result is Effect.REPAIRED
    stored = None if is_damaged else snapshot.find(change.key)
    if stored is None:
        return Preview(key=change.key, before=None, after=change.wanted, is_damaged=is_damaged)
    updates = [write.value for write in decision.writes if isinstance(write, Update)]
    return Preview(key=change.key, before=stored.value, after=cast("Resource", (*updates, stored.value)[0]))
