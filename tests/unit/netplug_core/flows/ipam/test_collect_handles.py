"""The collector: handles whose counts differ from their blocks."""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.model import RESERVED_HANDLE, Block, Handle, block_key, handle_key
from netplug_core.testing.faults import RunBefore
from tests.harness.collector import GRACE_S, HALF_GRACE_S, CollectorHarness, action_texts, inject_faults, leave_handle


@pytest.fixture
def harness() -> CollectorHarness:
    return CollectorHarness.with_pools()


def test_trap_47_a_handle_without_addresses_is_deleted_after_the_grace_period(harness: CollectorHarness) -> None:
    leave_handle(harness)
    harness.tick()
    assert harness.handles() == ["h-left"]
    harness.clock.sleep(GRACE_S)
    assert action_texts(harness.tick()) == ["repair handle h-left: its counts differ from its blocks"]
    assert harness.handles() == []


def test_i_87_a_handle_that_was_written_before_its_block_is_kept(harness: CollectorHarness) -> None:
    """An assignment on an ordered store stopped after the handle, and was repeated half a grace period later."""
    leave_handle(harness)
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    leave_handle(harness)  # written again: it is another candidate
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    assert harness.tick().done == ()
    assert harness.handles() == ["h-left"]


def test_a_count_that_is_too_high_is_corrected(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    one, two = Prefix.parse("10.0.0.0/30"), Prefix.parse("10.0.0.4/30")
    harness.put(handle_key("h-web"), Handle(blocks=((one, 3), (two, 1))))
    harness.tick_twice()
    assert harness.get(handle_key("h-web")).blocks == ((one, 1),)


def test_a_missing_count_is_added(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    harness.put(handle_key("h-web"), Handle())
    harness.tick_twice()
    assert harness.get(handle_key("h-web")).blocks == ((Prefix.parse("10.0.0.0/30"), 1),)


def test_a_handle_that_is_written_in_the_meantime_is_skipped(harness: CollectorHarness) -> None:
    leave_handle(harness)
    inject_faults(harness, RunBefore(lambda: leave_handle(harness)))
    report = harness.tick_twice()
    assert (report.done, [action.subject for action in report.skipped]) == ((), ["handle h-left"])
    assert harness.handles() == ["h-left"]


def test_the_handle_of_host_reserved_addresses_is_ignored(harness: CollectorHarness) -> None:
    prefix = Prefix.parse("10.0.0.0/30")
    harness.add_block(str(prefix))
    harness.put(block_key(prefix), Block.new(prefix, owner="host:node-a", now_ns=1, host_reserved=(2, 1)))
    harness.put(handle_key(RESERVED_HANDLE), Handle(blocks=((prefix, 3),)))
    assert harness.tick_twice().is_quiet
    assert harness.tick().undetermined == ()


@pytest.mark.parametrize("end", ["filled", "deleted"])
def test_a_handle_that_is_correct_by_now_needs_no_write(harness: CollectorHarness, end: str) -> None:
    leave_handle(harness)
    harness.tick()
    harness.clock.sleep(GRACE_S)
    stale = harness.view()
    if end == "filled":
        harness.assign_to_pod("10.0.0.1", handle="h-left")
        harness.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
    else:
        harness.remove(handle_key("h-left"))
    commits = harness.inner.calls.commits
    assert len(harness.tick(stale).done) == 1
    assert harness.inner.calls.commits == commits
