"""The cluster's ready flag: when nothing may be written, and the condition that every commit carries."""

import pytest

from netplug_core.errors import Unavailable
from netplug_core.records import ABSENT, Get, Require, Snapshot
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    READINESS_GATE,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from tests.harness.ipam import IPAMHarness


def snapshot_with_flag(*, is_ready: bool | None) -> Snapshot:
    harness = IPAMHarness.new()
    spec = ClusterInformationSpec(is_datastore_ready=is_ready)
    harness.put(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec))
    return harness.read(Get(CLUSTER_INFORMATION_KEY))


def snapshot_without_record() -> Snapshot:
    return IPAMHarness.new().read(Get(CLUSTER_INFORMATION_KEY))


def test_only_an_explicit_false_locks() -> None:
    assert isinstance(READINESS_GATE.check(snapshot_without_record()), Require)
    assert isinstance(READINESS_GATE.check(snapshot_with_flag(is_ready=None)), Require)
    assert isinstance(READINESS_GATE.check(snapshot_with_flag(is_ready=True)), Require)
    refusal = READINESS_GATE.check(snapshot_with_flag(is_ready=False))
    assert isinstance(refusal, Unavailable)
    assert str(refusal) == "ClusterInformation default: spec.datastoreReady is false: pod networking is locked"


@pytest.mark.parametrize("snapshot", [snapshot_without_record(), snapshot_with_flag(is_ready=True)])
def test_a_commit_requires_the_flag_as_it_was_read(snapshot: Snapshot) -> None:
    found = snapshot.find(CLUSTER_INFORMATION_KEY)
    required = Require(CLUSTER_INFORMATION_KEY, found.revision if found else ABSENT)
    assert READINESS_GATE.check(snapshot) == required
