"""The two records of which a cluster has one: ClusterInformation, its identity, and IPAMConfiguration.

The second is created when a person changes a setting; until then the defaults apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from attrs import evolve

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import CALL_TIMEOUT_S, Transaction
from netplug_core.errors import ConfigurationError
from netplug_core.records import Create, Decision, Get, Snapshot, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY, IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.validation import validate_resource
from netplug_core.settings.model import KUBERNETES_DATASTORE

__all__ = [
    "VersionMismatch", "cluster_type_on", "configure_ipam", "ensure_initialized", "find_cluster_information",
    "find_cluster_object",    "find_ipam_configuration", "is_older_release", "refuse_older_client", "require_release",
]  # fmt: skip

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


def find_ipam_configuration(store: Datastore, *, deadline: Deadline) -> IPAMConfigurationSpec:
    """The IPAM configuration; the defaults if none is stored. Nothing is written.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(IPAM_CONFIGURATION_KEY)], deadline=deadline.capped(CALL_TIMEOUT_S))
    stored = snapshot.find(IPAM_CONFIGURATION_KEY)
    return stored.value.spec if stored else IPAMConfigurationSpec()


def configure_ipam(
    store: Datastore,
    change: Callable[[IPAMConfigurationSpec], IPAMConfigurationSpec],
    *,
    pace: Pace,
    new_uid: Callable[[], str],
) -> IPAMConfigurationSpec:
    """Change the IPAM configuration by a function of it; other fields keep concurrent changes.

    Raises:
        InvalidResource: the changed configuration breaks rules.
        Unavailable: the store does not answer.
    """
    metadata = Metadata(name=IPAM_CONFIGURATION_KEY.name, uid=new_uid(), creation_time_ns=pace.clock.now_ns())

    def decide(snapshot: Snapshot) -> Decision[IPAMConfigurationSpec]:
        stored = snapshot.find(IPAM_CONFIGURATION_KEY)
        before = stored.value if stored else IPAMConfiguration(metadata=metadata)
        wanted = evolve(before, spec=change(before.spec))
        validate_resource(wanted)
        if stored is None:
            return Decision((Create(IPAM_CONFIGURATION_KEY, wanted),), wanted.spec)
        if wanted == before:
            return Decision((), wanted.spec)
        return Decision((Update(IPAM_CONFIGURATION_KEY, wanted, stored.revision),), wanted.spec)

    return cast("IPAMConfigurationSpec", Transaction(store, pace).run([Get(IPAM_CONFIGURATION_KEY)], decide).result)


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
