"""The cluster as a whole: its release and identity, and the lock of its datastore.

A locked datastore takes no new attachment; a mark on the lock says who set it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import cast

from attrs import evolve

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import ConfigurationError
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.records import Create, Decision, Get, Record, Snapshot, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    LOSS_MARK,
    ClusterInformation,
    ClusterInformationSpec,
    is_locked_for_loss,
)
from netplug_core.resources.metadata import Metadata
from netplug_core.settings.model import KUBERNETES_DATASTORE

__all__ = [
    "IMPORT_MARK", "ImportUnfinished", "LockState", "VersionMismatch", "cluster_type_on",
    "ensure_initialized", "find_cluster_information", "find_cluster_object",
    "find_lock_state", "import_mark", "is_older_release", "lock", "lock_for_loss",
    "refuse_older_client", "require_release", "unlock", "unlock_after_loss",
]  # fmt: skip


# --- the cluster ------------------------------------------------------------------------------------------------------


_OF_KUBERNETES = "kdd"
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:[-+].*)?", re.ASCII)


class VersionMismatch(ConfigurationError):
    """A client of an older release than the cluster; ``where`` is the client's release, ``value`` the cluster's."""

    def __str__(self) -> str:
        rule = f"{self.accepted}; --allow-version-mismatch goes on all the same"
        return f"version mismatch. This is {self.where}, and the cluster runs {self.value}: {rule}"


def find_cluster_information(store: Datastore, *, deadline: Deadline) -> ClusterInformationSpec:
    """The identity of the cluster; an empty one if none is stored.

    Raises:
        Unavailable: the store does not answer.
    """
    stored = find_cluster_object(store, deadline=deadline)
    return stored.spec if stored else ClusterInformationSpec()


def find_cluster_object(store: Datastore, *, deadline: Deadline) -> ClusterInformation | None:
    """The object with the identity of the cluster; None if none is stored. Errors are those of its spec's reader."""
    snapshot = store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=deadline.capped(CALL_TIMEOUT_S))
    stored = snapshot.find(CLUSTER_INFORMATION_KEY)
    return stored.value if stored else None


def refuse_older_client(store: Datastore, client: str, *, deadline: Deadline) -> None:
    """Refuse a client of an older release than the cluster.

    Only major and minor numbers are compared. A newer client is accepted, since new fields are configured before an
    upgrade. So is every client if the cluster names no release.

    Raises:
        VersionMismatch: the client is older, or the two cannot be compared.
        Unavailable: the store does not answer.
    """
    require_release(find_cluster_information(store, deadline=deadline).version, client)


def require_release(cluster: str, client: str) -> None:
    """Refuse a client of an older release than a cluster; an empty one is of any release.

    Raises:
        VersionMismatch: the client is older, or the two cannot be compared.
    """
    if not cluster:
        return
    ours, theirs = _release(client), _release(cluster)
    if ours is None or theirs is None:
        raise VersionMismatch(client, cluster, "the two cannot be compared")
    if ours[:2] < theirs[:2]:
        raise VersionMismatch(client, cluster, f"use a client of release {theirs[0]}.{theirs[1]} or later")


def ensure_initialized(
    store: Datastore, *, pace: Pace, new_uid: Callable[[], str], version: str = ""
) -> ClusterInformation:
    """Create the identity of the cluster, or complete it; fields that are set are not overwritten.

    ``version`` is stored if it differs; only the node process passes one. A cluster whose datastore is Kubernetes has
    ``kdd`` in its type.

    Raises:
        Unavailable: the store does not answer.
    """
    uid, guid = new_uid(), new_uid().replace("-", "")
    metadata = Metadata(name=CLUSTER_INFORMATION_KEY.name, uid=uid, creation_time_ns=pace.clock.now_ns())

    def decide(snapshot: Snapshot) -> Decision[ClusterInformation]:
        stored = snapshot.find(CLUSTER_INFORMATION_KEY)
        spec = stored.value.spec if stored else ClusterInformationSpec()
        spec = evolve(
            spec,
            cluster_guid=spec.cluster_guid or guid,
            cluster_type=cluster_type_on(store, spec.cluster_type),
            version=version or spec.version,
            # An explicit false locks the cluster.
            is_datastore_ready=spec.is_datastore_ready is not False,
        )
        if stored is None:
            created = ClusterInformation(metadata=metadata, spec=spec)
            return Decision((Create(CLUSTER_INFORMATION_KEY, created),), created)
        wanted = evolve(stored.value, spec=spec)
        if wanted == stored.value:
            return Decision((), wanted)
        return Decision((Update(CLUSTER_INFORMATION_KEY, wanted, stored.revision),), wanted)

    return cast("ClusterInformation", Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide).result)


def is_older_release(release: str, than: str) -> bool:
    """Whether a release is older than another by its three numbers; no release, or none that can be read, is older."""
    former, other = _release(release), _release(than)
    if former is None or other is None:
        return former is None
    return former < other


def _release(text: str) -> tuple[int, int, int] | None:
    """The three numbers of a release such as ``v3.33.0-rc1``; None for anything else."""
    found = _RELEASE.fullmatch(text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def cluster_type_on(store: Datastore, known: str) -> str:
    """The type of a cluster whose datastore is this one: ``kdd`` is added on Kubernetes, and never removed."""
    parts = [part for part in known.split(",") if part]
    if store.description.name != KUBERNETES_DATASTORE or _OF_KUBERNETES in parts:
        return known
    return ",".join((*parts, _OF_KUBERNETES))


# --- the lock ---------------------------------------------------------------------------------------------------------


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
