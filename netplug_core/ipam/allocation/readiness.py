"""Whether the cluster lets anything be written now, and the condition that it still does when a commit arrives."""

from __future__ import annotations

from netplug_core.errors import NetplugError, Unavailable
from netplug_core.records import ABSENT, Get, Require, Snapshot, Write
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY

__all__ = ["READINESS", "lock_refusal", "ready_condition"]

READINESS = Get(CLUSTER_INFORMATION_KEY)
"""The question for the record that locks a cluster."""


def lock_refusal(snapshot: Snapshot) -> NetplugError | None:
    """Why nothing may be written now: the cluster's ready flag says so; None when it does not."""
    information = snapshot.find(READINESS)
    if information is None or not information.value.is_locked:
        return None
    return Unavailable("ClusterInformation default", "spec.datastoreReady is false: pod networking is locked")


def ready_condition(snapshot: Snapshot) -> Write:
    """The condition that nothing was locked since the snapshot; it belongs to every commit of a workload's call."""
    information = snapshot.find(READINESS)
    return Require(CLUSTER_INFORMATION_KEY, information.revision if information else ABSENT)
