"""Locks and unlocks a datastore: while it is locked, no ADD, release or collector may write, but people may.

An import marks the locked datastore with its id until every record is stored, so that it can be run again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import cast

from attrs import evolve

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction
from netplug_core.errors import ConfigurationError
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.records import Decision, Get, Record, Snapshot, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    LOSS_MARK,
    ClusterInformation,
    is_locked_for_loss,
)

__all__ = [
    "IMPORT_MARK", "ImportUnfinished", "LockState", "find_lock_state", "import_mark", "lock", "lock_for_loss", "unlock",
    "unlock_after_loss",
]  # fmt: skip

IMPORT_MARK = f"{RESOURCE_DOMAIN}/unfinished-import"
"""The annotation of ClusterInformation with the id of the import that is not finished."""


class LockState(enum.Enum):
    """Whether a datastore is locked."""

    LOCKED = "locked"
    UNLOCKED = "unlocked"


class ImportUnfinished(ConfigurationError):
    """A datastore in which an import is not finished; ``value`` is the id of its export."""

    def __str__(self) -> str:
        return f"the import of export {self.value} is not finished: {self.accepted}"


def import_mark(information: ClusterInformation) -> str:
    """The id of the export whose import is not finished; empty for none."""
    return dict(information.metadata.annotations).get(IMPORT_MARK, "")


def find_lock_state(store: Datastore, *, deadline: Deadline) -> LockState:
    """Whether a datastore is locked.

    Raises:
        ImportUnfinished: an import has locked it, and is not finished.
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=deadline.capped(CALL_TIMEOUT_S))
    stored = snapshot.find(CLUSTER_INFORMATION_KEY)
    if stored is None:
        return LockState.UNLOCKED
    _require_no_import(stored.value)
    return LockState.LOCKED if stored.value.is_locked else LockState.UNLOCKED


def lock(store: Datastore, *, pace: Pace, new_uid: Callable[[], str]) -> None:
    """Lock a datastore; one that is locked stays so. A datastore without an identity gets one.

    Raises:
        Unavailable: the store does not answer.
    """
    ensure_initialized(store, pace=pace, new_uid=new_uid)
    _set_ready(store, pace, is_ready=False)


def unlock(store: Datastore, *, pace: Pace) -> None:
    """Unlock a datastore; one that is not locked stays so.

    Raises:
        ImportUnfinished: an import has locked it, and is not finished.
        Unavailable: the store does not answer.
    """
    _set_ready(store, pace, is_ready=True)


def lock_for_loss(store: Datastore, *, pace: Pace, new_uid: Callable[[], str]) -> None:
    """Lock a datastore whose blocks are lost; one that is locked by a person stays theirs.

    Raises:
        Unavailable: the store does not answer.
    """
    ensure_initialized(store, pace=pace, new_uid=new_uid)

    def decide(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(CLUSTER_INFORMATION_KEY)
        if stored is None or stored.value.is_locked:
            return Decision((), None)
        return _change(stored, {**dict(stored.value.metadata.annotations), LOSS_MARK: "true"}, is_ready=False)

    Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide)


def unlock_after_loss(store: Datastore, *, pace: Pace) -> None:
    """Unlock a datastore that is locked for lost blocks, and no other.

    Raises:
        Unavailable: the store does not answer.
    """

    def decide(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(CLUSTER_INFORMATION_KEY)
        if stored is None or not is_locked_for_loss(stored.value):
            return Decision((), None)
        annotations = {name: text for name, text in stored.value.metadata.annotations if name != LOSS_MARK}
        return _change(stored, annotations, is_ready=True)

    Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide)


def _change(stored: Record[ClusterInformation], annotations: Mapping[str, str], *, is_ready: bool) -> Decision[None]:
    metadata = evolve(stored.value.metadata, annotations=tuple(sorted(annotations.items())))
    spec = evolve(stored.value.spec, is_datastore_ready=is_ready)
    return Decision((Update(stored.key, evolve(stored.value, metadata=metadata, spec=spec), stored.revision),), None)


def _set_ready(store: Datastore, pace: Pace, *, is_ready: bool) -> None:
    def decide(snapshot: Snapshot) -> Decision[None]:
        stored = snapshot.find(CLUSTER_INFORMATION_KEY)
        if stored is None:
            return Decision((), None)
        if is_ready:
            _require_no_import(stored.value)
        if stored.value.is_locked is not is_ready:
            return Decision((), None)
        spec = evolve(stored.value.spec, is_datastore_ready=is_ready)
        return Decision((Update(stored.key, evolve(stored.value, spec=spec), stored.revision),), None)

    cast("None", Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide).result)


def _require_no_import(information: ClusterInformation) -> None:
    if mark := import_mark(information):
        raise ImportUnfinished("", mark, "run datastore migrate import with its file again")
