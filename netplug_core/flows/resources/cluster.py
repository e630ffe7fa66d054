"""The two records that a cluster has one of: who it is, and how it assigns addresses.

Nothing but a person, or the wish to change it, creates the second; while there is none, defaults hold.
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
    "VersionMismatch",
    "configure_ipam",
    "ensure_initialized",
    "find_cluster_information",
    "find_ipam_configuration",
    "refuse_older_client",
]

_OF_KUBERNETES = "kdd"
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)*(?:[-+].*)?", re.ASCII)


class VersionMismatch(ConfigurationError):
    """A client that must not touch the cluster; ``where`` is the client's release, ``value`` the cluster's."""

    def __str__(self) -> str:
        rule = f"{self.accepted}; --allow-version-mismatch goes on all the same"
        return f"version mismatch. This is {self.where}, and the cluster runs {self.value}: {rule}"


def find_cluster_information(store: Datastore, *, deadline: Deadline) -> ClusterInformationSpec:
    """What the cluster says of itself; an empty one where nothing was ever stored.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=deadline.capped(CALL_TIMEOUT_S))
    stored = snapshot.find(CLUSTER_INFORMATION_KEY)
    return stored.value.spec if stored else ClusterInformationSpec()


def refuse_older_client(store: Datastore, client: str, *, deadline: Deadline) -> None:
    """See that the client's release is not older than the cluster's (spec 9.4).

    Only major and minor numbers count. A newer one may read and write, since new fields are configured before an
    upgrade; a cluster that names no release has none to be older than.

    Raises:
        VersionMismatch: it is older, or the cluster's is none that could be compared.
        Unavailable: the store does not answer.
    """
    cluster = find_cluster_information(store, deadline=deadline).version
    if not cluster:
        return
    ours, theirs = _release(client), _release(cluster)
    if ours is None or theirs is None:
        raise VersionMismatch(client, cluster, "the two cannot be compared")
    if ours < theirs:
        raise VersionMismatch(client, cluster, f"use a client of release {theirs[0]}.{theirs[1]} or later")


def ensure_initialized(
    store: Datastore, *, pace: Pace, new_uid: Callable[[], str], version: str = ""
) -> ClusterInformation:
    """Make sure that the cluster has an identity; what is set already is never overwritten.

    Only the owner of the cluster's version passes one; it is stored when it differs. A cluster whose datastore is
    Kubernetes has ``kdd`` in its type.

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
            cluster_type=_type_on(store, spec.cluster_type),
            version=version or spec.version,
            # An explicit false is somebody's lock.
            is_datastore_ready=spec.is_datastore_ready is not False,
        )
        if stored is None:
            made = ClusterInformation(metadata=metadata, spec=spec)
            return Decision((Create(CLUSTER_INFORMATION_KEY, made),), made)
        wanted = evolve(stored.value, spec=spec)
        if wanted == stored.value:
            return Decision((), wanted)
        return Decision((Update(CLUSTER_INFORMATION_KEY, wanted, stored.revision),), wanted)

    return cast("ClusterInformation", Transaction(store, pace).run([Get(CLUSTER_INFORMATION_KEY)], decide).result)


def find_ipam_configuration(store: Datastore, *, deadline: Deadline) -> IPAMConfigurationSpec:
    """How addresses are assigned; the defaults where nothing was ever stored. Asking stores nothing.

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
    """Change how addresses are assigned, and leave alone what ``change`` leaves alone: others may be changing that.

    Raises:
        InvalidResource: what would come of it breaks rules.
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


def _release(text: str) -> tuple[int, int] | None:
    """Major and minor number of a release such as ``v3.33.0-rc1``; None for anything else."""
    found = _RELEASE.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def _type_on(store: Datastore, known: str) -> str:
    parts = [part for part in known.split(",") if part]
    if store.description.name != KUBERNETES_DATASTORE or _OF_KUBERNETES in parts:
        return known
    return ",".join((*parts, _OF_KUBERNETES))
