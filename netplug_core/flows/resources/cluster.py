"""The cluster as a whole: its release and identity, and the lock of its datastore.

A locked datastore takes no new attachment; a mark on the lock says who set it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from attrs import evolve, frozen

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import CALL_TIMEOUT_S, Datastore
from netplug_core.datastore.transaction import Transaction
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.reconcile.cluster import (
    KUBERNETES_TYPE,
    Release,
    add_cluster_types,
    complete_information,
    raised_release,
)
from netplug_core.records import Create, Decision, Get, List, Malformed, NeedMore, Record, Snapshot, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    LOSS_MARK,
    ClusterInformation,
    ClusterInformationSpec,
    is_locked_for_loss,
)
from netplug_core.resources.fields import Metadata
from netplug_core.settings.model import KUBERNETES_DATASTORE

__all__ = [
    "IMPORT_MARK", "ImportUnfinished", "LockState", "NodeRelease", "VersionMismatch", "cluster_type_on",
    "ensure_initialized", "find_cluster_information", "find_cluster_object",
    "find_lock_state", "import_mark", "lock", "lock_for_loss", "refuse_older_client", "require_release",
    "store_release", "unlock", "unlock_after_loss",
]  # fmt: skip


# --- the cluster ------------------------------------------------------------------------------------------------------


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
    upgrade. So is every client if the cluster names no release, or has a record that cannot be read: who repairs it
    needs a client.

    Raises:
        VersionMismatch: the client is older, or the two cannot be compared.
        Unavailable: the store does not answer.
    """
    try:
        cluster = find_cluster_information(store, deadline=deadline).version
    except Malformed:
        return
    require_release(cluster, client)


def require_release(cluster: str, client: str) -> None:
    """Refuse a client of an older release than a cluster; an empty one is of any release.

    Raises:
        VersionMismatch: the client is older, or the two cannot be compared.
    """
    if not cluster:
        return
    ours, theirs = Release.parse(client), Release.parse(cluster)
    if ours is None or theirs is None:
        raise VersionMismatch(client, cluster, "the two cannot be compared")
    major, minor, _patch = theirs.numbers
    if ours.numbers[:2] < (major, minor):
        raise VersionMismatch(client, cluster, f"use a client of release {major}.{minor} or later")


def ensure_initialized(
    store: Datastore,
    *,
    pace: Pace,
    new_uid: Callable[[], str],
    types: Iterable[str] = (),
    recorded: Iterable[str] = (),
) -> ClusterInformation:
    """Create the identity of the cluster, or complete it; fields that are set are not overwritten.

    ``types`` are parts of the type that are added if they are missing. ``recorded`` are the releases that nodes have
    recorded: the lowest one raises that of the cluster.

    Raises:
        Malformed: the stored record cannot be read. It is left as it is.
        Unavailable: the store does not answer.
    """
    completion = _Completion.begin(store, pace, new_uid, types)

    def decide(snapshot: Snapshot) -> Decision[ClusterInformation]:
        return completion.of(snapshot.find(CLUSTER_INFORMATION_KEY), recorded)

    return Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide).get_result()


@frozen(kw_only=True)
class NodeRelease:
    """The release of a node process, by the name of its node, with the parts of the cluster's type that it knows.

    ``others`` are the releases that other nodes have recorded; None: they are not known, and read if they matter.
    """

    node: str
    release: str
    types: tuple[str, ...] = ()
    others: tuple[str, ...] | None = None


def store_release(store: Datastore, own: NodeRelease, *, pace: Pace, new_uid: Callable[[], str]) -> str:
    """Complete the identity of the cluster, and raise its release if that of this node was the last lower one.

    Return the release that the cluster runs from now on; empty if it has not changed. The other nodes are read only if
    this one runs a later release than the cluster.

    Raises:
        Malformed: the stored record cannot be read. It is left as it is.
        Unauthorized: the datastore refuses.
        Unavailable, ContentionExhausted: not now; the datastore is away or locked.
    """
    # Only here: every client that is guarded by its release would load the kind with the rest of this module.
    from netplug_core.resources.node import NODE, node_key

    completion = _Completion.begin(store, pace, new_uid, own.types)
    every_node = List(NODE)

    def decide(snapshot: Snapshot) -> Decision[str] | NeedMore:
        stored = snapshot.find(CLUSTER_INFORMATION_KEY)
        if stored is not None and stored.value.is_locked:
            reason = "spec.datastoreReady is false: nothing is changed meanwhile"
            return Decision((), Unavailable("ClusterInformation default", reason))
        known, others = stored.value.spec.version if stored else "", own.others
        if others is None and raised_release(known, (own.release,)) == known:
            others = ()
        if others is None and not snapshot.has(every_node):
            return NeedMore((every_node,))
        if others is None:
            found = (record for record in snapshot.readable(every_node) if record.key != node_key(own.node))
            others = tuple(record.value.status.release for record in found)
        recorded = (own.release, *others)
        after = raised_release(known, recorded)
        return Decision(completion.of(stored, recorded).writes, "" if after == known else after)

    return Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide).get_result()


@frozen(kw_only=True)
class _Completion:
    """The write that completes the identity of the cluster; the identity of a new one is the same in each attempt."""

    metadata: Metadata
    guid: str
    types: tuple[str, ...]

    @classmethod
    def begin(cls, store: Datastore, pace: Pace, new_uid: Callable[[], str], types: Iterable[str]) -> _Completion:
        uid, guid = new_uid(), new_uid().replace("-", "")
        metadata = Metadata(name=CLUSTER_INFORMATION_KEY.name, uid=uid, creation_time_ns=pace.clock.now_ns())
        return cls(metadata=metadata, guid=guid, types=(*types, *_own_types(store)))

    def of(self, stored: Record[ClusterInformation] | None, recorded: Iterable[str]) -> Decision[ClusterInformation]:
        spec = stored.value.spec if stored else ClusterInformationSpec()
        spec = complete_information(spec, guid=self.guid, types=self.types, recorded=recorded)
        if stored is None:
            created = ClusterInformation(metadata=self.metadata, spec=spec)
            return Decision((Create(CLUSTER_INFORMATION_KEY, created),), created)
        wanted = evolve(stored.value, spec=spec)
        if wanted == stored.value:
            return Decision((), wanted)
        return Decision((Update(CLUSTER_INFORMATION_KEY, wanted, stored.revision),), wanted)


def cluster_type_on(store: Datastore, known: str) -> str:
    """The type of a cluster whose datastore is this one: ``kdd`` is added on Kubernetes, and never removed."""
    return add_cluster_types(known, _own_types(store))


def _own_types(store: Datastore) -> tuple[str, ...]:
    return (KUBERNETES_TYPE,) if store.description.name == KUBERNETES_DATASTORE else ()


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

    Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide).get_result()


def _require_no_import(information: ClusterInformation) -> None:
    if mark := import_mark(information):
        raise ImportUnfinished("", mark, "run datastore migrate import with its file again")
