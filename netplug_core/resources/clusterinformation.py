"""The kind ClusterInformation: one object, ``default``, that says whether the datastore is ready.

Flows hand :data:`READINESS_GATE` to a transaction that acts for a workload or for the collector: assign, release,
ensure blocks, and everything that the collector frees. Operations of a person run without a gate on purpose: to claim
and relinquish blocks, to free or reassign single addresses and to change resources must be possible in a locked
cluster, because an upgrade or a repair locks it and then does exactly that. A read needs no gate.
"""

from __future__ import annotations

from attrs import field, frozen

from netplug_core.decoding.codecs import BOOLEAN, TEXT
from netplug_core.decoding.tables import json_object, member
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.records import Get, Key, Kind, Require, Snapshot, Write, WriteGate
from netplug_core.resources.fields import ENVELOPE, Metadata

__all__ = [
    "CLUSTER_INFORMATION", "CLUSTER_INFORMATION_KEY", "LOSS_MARK", "READINESS_GATE", "ClusterInformation",
    "ClusterInformationSpec", "is_locked_for_loss",
]  # fmt: skip


@frozen(kw_only=True)
class ClusterInformationSpec:
    """The cluster's identity and its ready flag.

    ``is_datastore_ready`` is None when unset, which means ready; only an explicit false locks the datastore.
    """

    cluster_guid: str = field(default="", metadata=member("clusterGUID", TEXT, "The cluster's identity."))
    cluster_type: str = field(default="", metadata=member("clusterType", TEXT, "What it is made of."))
    version: str = field(default="", metadata=member("netplugVersion", TEXT, "The release that runs it."))
    is_datastore_ready: bool | None = field(
        default=None, metadata=member("datastoreReady", BOOLEAN, "False locks the datastore: nothing new is attached.")
    )
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class ClusterInformation:
    """The cluster's one information object as it is stored. A missing object means ready too."""

    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: ClusterInformationSpec = field(
        default=ClusterInformationSpec(),
        metadata=member("spec", ClusterInformationSpec, "What netplug says of the cluster.", is_always_written=True),
    )
    unknown_json: str = ""

    @property
    def is_locked(self) -> bool:
        """Whether the datastore was explicitly declared not ready."""
        return self.spec.is_datastore_ready is False


CLUSTER_INFORMATION: Kind[ClusterInformation] = Kind("ClusterInformation", ("name",))
CLUSTER_INFORMATION_KEY: Key[ClusterInformation] = CLUSTER_INFORMATION.key("default")

LOSS_MARK = f"{RESOURCE_DOMAIN}/definitions-lost"
"""The annotation of a ClusterInformation that is locked because workloads have addresses and there are no blocks."""


def is_locked_for_loss(information: ClusterInformation) -> bool:
    """Whether the datastore is locked for that, and not by a person."""
    return information.is_locked and LOSS_MARK in dict(information.metadata.annotations)


_QUERY = Get(CLUSTER_INFORMATION_KEY)


def _check_ready(snapshot: Snapshot) -> NetplugError | Write:
    # Only a flag that can be read locks, also in a damaged record, which must not stop the whole cluster otherwise.
    parts = [error.counts_as for error in snapshot.malformed(_QUERY)]
    for value in (*(record.value for record in snapshot.readable(_QUERY)), *parts):
        if isinstance(value, ClusterInformation) and value.is_locked:
            return Unavailable("ClusterInformation default", "spec.datastoreReady is false: pod networking is locked")
    return Require(CLUSTER_INFORMATION_KEY, snapshot.state(_QUERY))


READINESS_GATE = WriteGate(_QUERY, _check_ready)
"""Refuses while ``ClusterInformation`` says that the datastore is not ready; a missing record means ready."""
