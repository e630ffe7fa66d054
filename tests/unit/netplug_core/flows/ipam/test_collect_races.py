"""The collector among concurrent writers, lost requests and replies, and malformed records."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.ipam.model import AffinityState, Handle, block_key, handle_key
from netplug_core.testing.faults import FaultyDatastore, LostReply, LostRequest, RunBefore
from tests.harness.collector import GRACE_S, CollectorHarness, MalformedBlockDatastore, inject_faults


@pytest.fixture
def harness() -> CollectorHarness:
    return CollectorHarness.with_pools()


def test_a_concurrent_add_wins(harness: CollectorHarness) -> None:
    """The address is released and assigned again between the tick's read and its commit."""

    def reassign() -> None:
        harness.release("10.0.0.1")
        harness.assign_to_pod("10.0.0.1")

    harness.assign_to_pod("10.0.0.1")
    inject_faults(harness, RunBefore(reassign))
    report = harness.tick_twice()
    assert (report.done, [action.subject for action in report.skipped]) == ((), ["handle h-web"])
    assert harness.held() == {"10.0.0.1": "h-web"}


def test_trap_40_a_release_whose_reply_was_lost_is_done(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    inject_faults(harness, LostReply())
    report = harness.tick_twice()
    assert (len(report.freed), report.failures) == (1, ())
    assert harness.held() == {}
    assert harness.get(block_key(Prefix.parse("10.0.0.0/30"))).problem() == ""


def test_what_the_workload_has_released_itself_counts_as_done(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.tick()
    harness.clock.sleep(GRACE_S)
    stale = harness.view()
    harness.release("10.0.0.1")
    harness.remove(handle_key("h-web"))
    commits = harness.inner.calls.commits
    assert len(harness.tick(stale).done) == 1
    assert harness.inner.calls.commits == commits


def test_an_outdated_view_does_not_free_an_address_twice(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    stale = harness.view()
    assert len(harness.tick_twice().freed) == 1
    report = harness.tick(stale)
    assert (report.done, len(report.candidates)) == ((), 1)


def test_trap_20_a_failing_batch_does_not_stop_the_others(harness: CollectorHarness) -> None:
    harness.change_settings(batch_size=1)
    for n in (1, 5, 9):
        harness.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    inject_faults(harness, LostRequest())
    report = harness.tick_twice()
    assert [failure.action.subject for failure in report.failures] == ["handle h-p1"]
    assert str(report.failures[0]).endswith(": the scripted datastore: the request was lost")
    assert harness.held() == {"10.0.0.1": "h-p1"}
    harness.store = harness.inner
    assert len(harness.tick().freed) == 1


def test_an_unavailable_store_is_called_once_for_each_batch(harness: CollectorHarness) -> None:
    for n in (1, 5, 9):
        harness.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    store = FaultyDatastore(harness.inner, {1: LostRequest()})
    harness.store = store
    report = harness.tick_twice()
    assert (len(report.failures), report.done, store.commits) == (3, (), 1)


def test_trap_20_a_malformed_record_does_not_stop_its_batch(harness: CollectorHarness) -> None:
    for n in (1, 5, 9):
        harness.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    harness.store = MalformedBlockDatastore(harness.inner, "10.0.0.4/30")
    report = harness.tick_twice()
    assert [failure.cause for failure in report.failures] == [
        "the stored record IPAMBlock(ipv4/10.0.0.4/30) is malformed: attributes: 7 is not an object"
    ]
    assert harness.held() == {"10.0.0.5": "h-p5"}


def test_trap_20_an_outdated_sequence_number_stops_only_its_own_handle(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to_pod("10.0.0.2", "db")
    harness.tick()
    harness.clock.sleep(GRACE_S)
    stale = harness.view()
    harness.release("10.0.0.1")
    harness.assign_to_pod("10.0.0.1")
    report = harness.tick(stale)
    assert [leak.owner.handle for leak in report.freed] == ["h-db"]
    assert harness.held() == {"10.0.0.1": "h-web"}


@pytest.mark.parametrize("mode", list(MemoryMode))
def test_a_tick_that_stops_at_any_commit_is_completed_by_the_next(mode: MemoryMode) -> None:
    for cut in range(1, 8):
        harness = CollectorHarness()
        harness.inner = MemoryDatastore(mode, clock=harness.clock)
        harness.store = harness.inner
        harness.add_pool("four", "10.0.0.0/24")
        harness.assign_to_pod("10.0.0.1")
        harness.assign_to("10.0.0.5", "tunnel", node="node-b", type="ipipTunnelAddress")
        harness.add_block("10.0.0.8/30")
        harness.put_affinity("10.0.0.12/30", state=AffinityState.PENDING)
        harness.add_block("10.0.0.16/30", "")
        harness.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
        harness.orchestrator.nodes.remove("node-b")
        harness.store = FaultyDatastore(harness.inner, {cut: LostRequest()})
        harness.tick_twice()
        harness.store = harness.inner
        harness.tick()
        harness.clock.sleep(GRACE_S)
        harness.tick()
        assert (harness.held(), harness.handles()) == ({}, [])
        assert harness.affinities() == [f"node-a {block}" for block in harness.blocks()]
        assert len(harness.blocks()) == 1
