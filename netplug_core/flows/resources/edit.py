"""Changes a stored resource by a function of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.flows.resources.change import Writable, decide_replacement, require_writable
from netplug_core.flows.resources.outcome import Effect, LabelKept, Outcome, ResourceMissing
from netplug_core.flows.resources.read import find
from netplug_core.records import Decision, Get, Key, Snapshot
from netplug_core.resources.kinds import Resource
from netplug_core.resources.node import NODE
from netplug_core.resources.validation import validate_resource

__all__ = ["edit"]


def edit(store: Datastore, key: Key[Resource], change: Callable[[Resource], Resource], *, pace: Pace) -> Outcome:
    """Give a stored resource the labels, the annotations and the spec that ``change`` makes of it.

    ``change`` gets what is stored at the moment of writing, and gets it again after a conflict, so concurrent changes
    of other parts are kept. It may refuse by raising.

    Raises:
        InvalidResource: the changed resource breaks rules, alone or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        LabelKept: it removes a label of a node that only the orchestrator removes.
        ResourceMissing: nothing is stored under the key.
        Unavailable: the store does not answer.
    """
    require_writable(key, "Update")
    removed: list[str] = []

    def decide(snapshot: Snapshot) -> Decision[Effect]:
        stored = snapshot.find(key)
        if stored is None:
            return Decision((), ResourceMissing.of(key))
        wanted = cast("Writable", change(stored.value))
        validate_resource(wanted)
        kept = dict(wanted.metadata.labels)
        removed[:] = [name for name, _ in stored.value.metadata.labels if name not in kept]
        return decide_replacement(stored, wanted, revision="")

    effect = cast("Effect", Transaction(store, pace).run([Get(key)], decide).result)
    if removed and key.kind == NODE:
        _require_removed(store, key, removed, pace)
    return Outcome(key=key, effect=effect)


def _require_removed(store: Datastore, key: Key[Resource], labels: Iterable[str], pace: Pace) -> None:
    """Require that a node does not have some labels: where nodes are the orchestrator's own, it may keep them."""
    (record,) = find(store, [key], deadline=pace.deadline)
    kept = dict(record.value.metadata.labels) if record else {}
    for name in labels:
        if name in kept:
            raise LabelKept(str(key), name, "it is the orchestrator's own label of the node; remove it there")
