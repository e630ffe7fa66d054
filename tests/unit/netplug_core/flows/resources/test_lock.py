"""Locking and unlocking a datastore."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.flows.resources.cluster import (
    IMPORT_MARK,
    ImportUnfinished,
    LockState,
    find_lock_state,
    import_mark,
    lock,
    lock_for_loss,
    unlock,
    unlock_after_loss,
)
from netplug_core.records import Create, Get
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY, ClusterInformation, is_locked_for_loss
from tests.harness.resources import CLUSTER, ResourceHarness


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> ResourceHarness:
    return ResourceHarness.with_mode(request.param)


def information(harness: ResourceHarness) -> ClusterInformation:
    found = harness.store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=harness.deadline).find(CLUSTER_INFORMATION_KEY)
    assert found is not None
    return found.value


def test_a_lock_keeps_the_identity_and_is_written_once(harness: ResourceHarness) -> None:
    assert find_lock_state(harness.store, deadline=harness.deadline) is LockState.UNLOCKED
    lock(harness.store, pace=harness.pace, new_uid=harness.new_uid)
    locked = information(harness)
    assert locked.is_locked
    assert locked.spec.cluster_guid
    commits = harness.store.calls.commits
    lock(harness.store, pace=harness.pace, new_uid=harness.new_uid)
    assert (information(harness), harness.store.calls.commits) == (locked, commits)
    assert find_lock_state(harness.store, deadline=harness.deadline) is LockState.LOCKED
    unlock(harness.store, pace=harness.pace)
    assert information(harness).spec == evolve(locked.spec, is_datastore_ready=True)
    assert find_lock_state(harness.store, deadline=harness.deadline) is LockState.UNLOCKED


def test_a_store_without_identity_is_unlocked_already(harness: ResourceHarness) -> None:
    unlock(harness.store, pace=harness.pace)
    assert harness.store.calls.commits == 0


def test_an_unfinished_import_is_not_unlocked(harness: ResourceHarness) -> None:
    marked = evolve(
        CLUSTER,
        metadata=evolve(CLUSTER.metadata, annotations=((IMPORT_MARK, "e-1"),)),
        spec=evolve(CLUSTER.spec, is_datastore_ready=False),
    )
    harness.put(Create(CLUSTER_INFORMATION_KEY, marked))
    assert import_mark(marked) == "e-1"
    message = "the import of export e-1 is not finished: run datastore migrate import with its file again"
    for call in (
        lambda: unlock(harness.store, pace=harness.pace),
        lambda: find_lock_state(harness.store, deadline=harness.deadline),
    ):
        with pytest.raises(ImportUnfinished) as refused:
            call()
        assert str(refused.value) == message
    assert information(harness) == marked


def test_a_lock_for_lost_blocks_is_removed_with_its_mark(harness: ResourceHarness) -> None:
    unlock_after_loss(harness.store, pace=harness.pace)
    assert harness.store.calls.commits == 0
    lock_for_loss(harness.store, pace=harness.pace, new_uid=harness.new_uid)
    assert is_locked_for_loss(information(harness))
    locked = information(harness)
    lock_for_loss(harness.store, pace=harness.pace, new_uid=harness.new_uid)
    assert information(harness) == locked
    unlock_after_loss(harness.store, pace=harness.pace)
    assert not information(harness).is_locked
    assert information(harness).metadata.annotations == ()


def test_who_has_locked_unlocks(harness: ResourceHarness) -> None:
    lock(harness.store, pace=harness.pace, new_uid=harness.new_uid)
    lock_for_loss(harness.store, pace=harness.pace, new_uid=harness.new_uid)
    assert not is_locked_for_loss(information(harness))
    unlock_after_loss(harness.store, pace=harness.pace)
    assert information(harness).is_locked
