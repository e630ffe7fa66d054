"""What the operator does to a cluster, as values in the order in which it is done."""

from __future__ import annotations

from typing import TypeAlias, assert_never

from attrs import field, frozen

from netplug_core.installation.pool_plan import PoolStep
from netplug_core.operator.objects import Json, ObjectRef, ref_of

__all__ = [
    "Action", "ApplyObject", "ChangePool", "CompleteInstallation", "DeleteObject", "LockDatastore", "SetFinalizer",
    "describe",
]  # fmt: skip


@frozen
class ApplyObject:
    """Apply our fields of an object on the server, which keeps those of others."""

    wanted: Json = field(hash=False)


@frozen
class DeleteObject:
    """Delete the object with that uid; one that was created since then stays."""

    ref: ObjectRef
    uid: str


@frozen
class ChangePool:
    """Create, update or delete a pool, with everything that this has to do with blocks."""

    step: PoolStep


@frozen
class CompleteInstallation:
    """Store the Installation with the settings that it lacked, unless it has changed since it was read."""

    installation: Json = field(hash=False)


@frozen
class SetFinalizer:
    """Put the operator's finalizer on the Installation with that uid, or take it off."""

    name: str
    uid: str
    is_held: bool


@frozen
class LockDatastore:
    """Lock the datastore, because blocks are lost, or unlock it when they are restored."""

    is_locked: bool


Action: TypeAlias = ApplyObject | DeleteObject | ChangePool | CompleteInstallation | SetFinalizer | LockDatastore


def describe(action: Action) -> str:
    """An action in some words, for the log."""
    match action:
        case ApplyObject(wanted):
            return f"apply {ref_of(wanted)}"
        case DeleteObject(ref, _):
            return f"delete {ref}"
        case ChangePool(step):
            return f"{step.action.value} IPPool {step.pool.metadata.name}: {step.reason}"
        case CompleteInstallation(installation):
            return f"complete {ref_of(installation)} with the settings of the static manifest"
        case SetFinalizer(name, _, is_held):
            return f"{'hold' if is_held else 'release'} Installation {name}"
        case LockDatastore(is_locked):
            return "lock the datastore: blocks are lost" if is_locked else "unlock the datastore: blocks are restored"
        case _:
            assert_never(action)
