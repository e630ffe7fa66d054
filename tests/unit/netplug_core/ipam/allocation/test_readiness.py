"""The cluster's ready flag: when nothing may be written, and the condition that every commit carries."""

import pytest

from netplug_core.errors import Unavailable
from netplug_core.ipam.allocation.readiness import lock_refusal, ready_condition
from netplug_core.records import ABSENT, Get, Require, Snapshot
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.metadata import Metadata
from tests.harness.ipam import IPAMHarness


def saying(*, is_ready: bool | None) -> Snapshot:
    bench = IPAMHarness.new()
    spec = ClusterInformationSpec(is_datastore_ready=is_ready)
    bench.put(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec))
    return bench.read(Get(CLUSTER_INFORMATION_KEY))


def silent() -> Snapshot:
    return IPAMHarness.new().read(Get(CLUSTER_INFORMATION_KEY))


def test_only_an_explicit_false_locks() -> None:
    assert lock_refusal(silent()) is None
    assert lock_refusal(saying(is_ready=None)) is None
    assert lock_refusal(saying(is_ready=True)) is None
    refusal = lock_refusal(saying(is_ready=False))
    assert isinstance(refusal, Unavailable)
    assert str(refusal) == "ClusterInformation default: spec.datastoreReady is false: pod networking is locked"


@pytest.mark.parametrize("snapshot", [silent(), saying(is_ready=True)])
def test_a_commit_requires_the_flag_as_it_was_read(snapshot: Snapshot) -> None:
    found = snapshot.find(CLUSTER_INFORMATION_KEY)
    assert ready_condition(snapshot) == Require(CLUSTER_INFORMATION_KEY, found.revision if found else ABSENT)
