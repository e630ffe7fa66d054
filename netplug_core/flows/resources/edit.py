"""Changes a stored resource by a function of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from netplug_core.clock import Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.flows.resources.change import Writable, decide_replacement, require_writable
from netplug_core.flows.resources.outcome import Effect, Outcome, ResourceMissing
from netplug_core.records import Decision, Get, Key, Snapshot
from netplug_core.resources.kinds import Resource
from netplug_core.resources.validation import validate_resource

__all__ = ["edit"]


def edit(store: Datastore, key: Key[Resource], change: Callable[[Resource], Resource], *, pace: Pace) -> Outcome:
    """Give a stored resource the labels, the annotations and the spec that ``change`` makes of it.

    ``change`` gets what is stored at the moment of writing, and gets it again after a conflict, so concurrent changes
    of other parts are kept. It may refuse by raising.

    Raises:
        InvalidResource: the changed resource breaks rules, alone or by changing what cannot be changed.
        KindNotWritable: people do not write its kind.
        ResourceMissing: nothing is stored under the key.
        Unavailable: the store does not answer.
    """
    require_writable(key, "Update")

    def decide(snapshot: Snapshot) -> Decision[Effect]:
        stored = snapshot.find(key)
        if stored is None:
            return Decision((), ResourceMissing.of(key))
        wanted = cast("Writable", change(stored.value))
        validate_resource(wanted)
        return decide_replacement(stored, wanted, revision="")

    return Outcome(key=key, effect=cast("Effect", Transaction(store, pace).run([Get(key)], decide).result))
