"""The two records that a cluster has one of: who it is, and how it assigns addresses.

Nothing but a person, or the wish to change it, creates the second; while there is none, defaults hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from attrs import evolve

from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.interface import Datastore
from netplug_core.datastore.loop import CALL_S, run
from netplug_core.records import Create, Decision, Get, Snapshot, Update
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY, IPAMConfiguration, IPAMConfigurationSpec
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.validation import check

__all__ = ["configure_ipam", "ensure_initialized", "find_cluster_information", "find_ipam_configuration"]


def find_cluster_information(store: Datastore, *, deadline: Deadline) -> ClusterInformationSpec:
    """What the cluster says of itself; an empty one where nothing was ever stored.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=deadline.capped(CALL_S))
    stored = snapshot.find(CLUSTER_INFORMATION_KEY)
    return stored.value.spec if stored else ClusterInformationSpec()


def ensure_initialized(
    store: Datastore, *, pace: Pace, new_uid: Callable[[], str], version: str = ""
) -> ClusterInformation:
    """Make sure that the cluster has an identity; what is set already is never overwritten.

    Only the owner of the cluster's version passes one; it is stored when it differs.

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

    return cast("ClusterInformation", run(store, [Get(CLUSTER_INFORMATION_KEY)], decide, pace=pace).result)


def find_ipam_configuration(store: Datastore, *, deadline: Deadline) -> IPAMConfigurationSpec:
    """How addresses are assigned; the defaults where nothing was ever stored. Asking stores nothing.

    Raises:
        Unavailable: the store does not answer.
    """
    snapshot = store.read([Get(IPAM_CONFIGURATION_KEY)], deadline=deadline.capped(CALL_S))
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
        check(wanted)
        if stored is None:
            return Decision((Create(IPAM_CONFIGURATION_KEY, wanted),), wanted.spec)
        if wanted == before:
            return Decision((), wanted.spec)
        return Decision((Update(IPAM_CONFIGURATION_KEY, wanted, stored.revision),), wanted.spec)

    return cast("IPAMConfigurationSpec", run(store, [Get(IPAM_CONFIGURATION_KEY)], decide, pace=pace).result)
