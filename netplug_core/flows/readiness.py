"""The gate that a locked cluster holds shut: the ready flag of ``ClusterInformation``.

Flows hand :data:`READINESS_GATE` to a transaction that acts for a workload or for the collector: assign, release,
ensure blocks, and everything that the collector frees. Operations of a person run without a gate on purpose: to claim
and relinquish blocks, to free or reassign single addresses and to change resources must be possible in a locked
cluster, because an upgrade or a repair locks it and then does exactly that. A read needs no gate.
"""

from __future__ import annotations

from netplug_core.datastore.transaction import WriteGate
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.records import Get, Require, Snapshot, Write
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY

__all__ = ["READINESS_GATE"]

_QUERY = Get(CLUSTER_INFORMATION_KEY)


def _check_ready(snapshot: Snapshot) -> NetplugError | Write:
    # Only a flag that can be read locks: a damaged record must not stop the whole cluster.
    if any(record.value.is_locked for record in snapshot.readable(_QUERY)):
        return Unavailable("ClusterInformation default", "spec.datastoreReady is false: pod networking is locked")
    return Require(CLUSTER_INFORMATION_KEY, snapshot.state(_QUERY))


READINESS_GATE = WriteGate(_QUERY, _check_ready)
"""Refuses while ``ClusterInformation`` says that the datastore is not ready; a missing record means ready."""
