"""The collector's writes: one read and one commit for each batch, and the condition of each commit."""

from collections.abc import Callable

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.model import AffinityState, Block, Handle, block_key, handle_key
from netplug_core.records import ABSENT, Create, Require
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from tests.harness.collector import GRACE_S, CollectorHarness
from tests.harness.stores import RecordingStore


@pytest.fixture
def harness() -> CollectorHarness:
    harness = CollectorHarness()
    harness.add_pool("main", "10.0.0.0/24")
    return harness


def leak_addresses(harness: CollectorHarness) -> None:
    for n in (1, 2, 5):
        harness.assign_to_pod(f"10.0.0.{n}", f"p{n}")


def leave_handles(harness: CollectorHarness) -> None:
    for n in range(3):
        harness.put(handle_key(f"h{n}"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))


def leave_cooldowns(harness: CollectorHarness) -> None:
    harness.set_cooldown(60)
    for n in (1, 5):
        harness.assign_to(f"10.0.0.{n}", None, node="node-a")
        harness.release(f"10.0.0.{n}", cooling=True)
        harness.assign_to(f"10.0.0.{n + 1}", None, node="node-a")


def leave_affinities(harness: CollectorHarness) -> None:
    for n in (4, 8, 12):
        harness.put_affinity(f"10.0.1.{n}/30", state=AffinityState.PENDING)


def leave_blocks(harness: CollectorHarness) -> None:
    for n in (4, 8, 12):
        prefix = Prefix.parse(f"10.0.1.{n}/30")
        harness.put(block_key(prefix), Block.new(prefix, owner="host:node-a", now_ns=1))


@pytest.mark.parametrize("leave", [leak_addresses, leave_handles, leave_cooldowns, leave_affinities, leave_blocks])
def test_a_batch_takes_one_read_and_one_commit(
    harness: CollectorHarness, leave: Callable[[CollectorHarness], None]
) -> None:
    leave(harness)
    harness.tick()
    harness.clock.sleep(GRACE_S)
    view = harness.view()
    calls = harness.inner.calls
    reads, commits = calls.reads, calls.commits
    report = harness.tick(view)
    assert len(report.done) >= 2
    assert (calls.reads - reads, calls.commits - commits) == (1, 1)


@pytest.mark.parametrize("leave", [leak_addresses, leave_handles, leave_cooldowns, leave_affinities, leave_blocks])
def test_each_commit_requires_that_the_cluster_is_not_locked(
    harness: CollectorHarness, leave: Callable[[CollectorHarness], None]
) -> None:
    leave(harness)
    harness.tick()
    harness.clock.sleep(GRACE_S)
    harness.store = store = RecordingStore(harness.inner)
    harness.tick()
    committed = [write for writes in store.commits for write in writes]
    assert committed[0] == Require(CLUSTER_INFORMATION_KEY, ABSENT)
    assert not any(isinstance(write, Create) for write in committed)


def test_a_handle_that_names_no_block_is_deleted(harness: CollectorHarness) -> None:
    harness.put(handle_key("h"), Handle())
    assert len(harness.tick_twice().done) == 1
    assert harness.handles() == []
