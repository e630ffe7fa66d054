"""The collector: when a leaked address is freed, what limits a tick, and what is logged."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.ipam.allocation.context import BLOCKS_FREED_PER_COMMIT
from netplug_core.ipam.gc.candidates import CollectionReport, IdleReason, ScanHistory, StoreView, UndeterminedReason
from netplug_core.ipam.model import AFFINITY, BLOCK, Handle, handle_key
from netplug_core.log import Level
from netplug_core.resources.ippool import ippool_key
from tests.harness.collector import (
    GRACE_S,
    HALF_GRACE_S,
    CollectorHarness,
    MalformedBlockDatastore,
    action_texts,
    leak_address,
    leave_affinity,
    leave_block,
    leave_handle,
)
from tests.harness.stores import RecordingStore


@pytest.fixture
def harness() -> CollectorHarness:
    return CollectorHarness.with_pools()


def test_an_address_whose_pod_is_gone_is_freed_after_the_grace_period(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to_pod("10.0.0.2", "db")
    harness.orchestrator.run_pod("db", "node-a", "10.0.0.2")
    report = harness.tick()
    assert (report.done, [leak.owner.handle for leak in report.candidates]) == ((), ["h-web"])
    harness.clock.sleep(HALF_GRACE_S)
    assert harness.tick().done == ()
    harness.clock.sleep(HALF_GRACE_S)
    assert action_texts(harness.tick()) == [
        "free the addresses of handle h-web: 10.0.0.1 of pod default/web on node node-a (its pod does not exist)"
    ]
    assert (harness.held(), harness.handles()) == ({"10.0.0.2": "h-db"}, ["h-db"])
    assert harness.tick().is_quiet


def test_the_grace_period_of_an_address_that_was_used_again_starts_again(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    assert harness.tick().candidates == ()
    harness.orchestrator.remove_pod("web")
    harness.clock.sleep(HALF_GRACE_S)
    assert harness.tick().done == ()
    harness.clock.sleep(GRACE_S)
    assert len(harness.tick().freed) == 1


def test_an_address_that_was_assigned_again_is_another_candidate(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    harness.release("10.0.0.1")
    harness.assign_to_pod("10.0.0.1")
    harness.put(handle_key("h-web"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    assert harness.tick().done == ()
    assert harness.held() == {"10.0.0.1": "h-web"}


def test_an_outdated_view_frees_nothing(harness: CollectorHarness) -> None:
    """The pod is not in the view yet, and a live lookup finds it."""
    harness.assign_to_pod("10.0.0.1")
    stale = harness.view()
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    harness.tick(stale)
    harness.clock.sleep(GRACE_S)
    report = harness.tick(stale)
    assert (report.done, [action.handle for action in report.in_use]) == ((), ["h-web"])
    assert harness.orchestrator.lookups == ["pod default/web"]
    harness.clock.sleep(HALF_GRACE_S)
    assert harness.tick(stale).in_use == ()  # its grace period has started again
    assert harness.held() == {"10.0.0.1": "h-web"}


def test_a_faulty_view_without_pods_and_nodes_frees_nothing(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to("10.0.0.5", "tunnel", node="node-b", type="vxlanTunnelAddress")
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    before = harness.blocks(), harness.affinities(), harness.handles()
    empty = evolve(harness.view(), cluster=evolve(harness.orchestrator.cluster, pods=(), nodes=frozenset()))
    for _ in range(3):
        assert harness.tick(empty).done == ()
        harness.clock.sleep(GRACE_S)
    assert (harness.blocks(), harness.affinities(), harness.handles()) == before


def test_nothing_is_freed_while_live_lookups_fail(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.is_unavailable = True
    report = harness.tick_twice()
    assert (report.done, report.is_settled) == ((), False)
    assert harness.held() == {"10.0.0.1": "h-web"}
    level, message, fields = harness.log.lines[-2]
    assert (level, message, fields["count"]) == (Level.WARNING, "could not be collected", 1)
    assert fields["cause"] == "pod default/web could not be looked up: the orchestrator: connection refused"
    harness.orchestrator.is_unavailable = False
    assert len(harness.tick().freed) == 1


def test_all_addresses_of_a_handle_are_freed_or_none(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to_pod("fd00::1")
    harness.assign_to_pod("10.0.0.5", "db", handle="h-web", node="node-b")
    harness.orchestrator.run_pod("db", "node-b", "10.0.0.5")
    report = harness.tick_twice()
    assert (report.done, len(report.candidates)) == ((), 2)
    harness.orchestrator.remove_pod("db")
    assert harness.tick_twice().done != ()
    assert (harness.held(), harness.handles()) == ({}, [])


def test_a_dual_stack_handle_waits_for_its_newer_address(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    harness.assign_to_pod("fd00::1")
    harness.tick()
    harness.clock.sleep(HALF_GRACE_S)
    assert harness.tick().done == ()
    harness.clock.sleep(HALF_GRACE_S)
    assert len(harness.tick().freed) == 2


def test_an_address_without_a_handle_record_is_freed_like_any_other(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.remove(handle_key("h-web"))
    assert len(harness.tick_twice().freed) == 1
    assert harness.held() == {}


def test_an_address_in_no_pool_is_freed_too(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.remove(ippool_key("four"))
    assert len(harness.tick_twice().freed) == 1
    assert harness.held() == {}


def test_an_address_in_a_block_of_another_size_than_its_pool_has_now_is_freed(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    pool = harness.get(ippool_key("four"))
    harness.put(pool.key, evolve(pool, spec=evolve(pool.spec, block_length=28)))
    assert len(harness.tick_twice().freed) == 1
    assert (harness.held(), harness.handles()) == ({}, [])


def test_a_handle_over_many_blocks_is_freed_in_several_commits(harness: CollectorHarness) -> None:
    for block in range(150):
        harness.assign_to_pod(f"10.1.{block // 64}.{block % 64 * 4}")
    harness.assign_to_pod("10.0.0.1", "db")
    harness.store = recording = RecordingStore(harness.inner)
    assert len(harness.tick_twice().freed) == 151
    assert (harness.held(), harness.handles()) == ({}, [])
    assert max(map(len, recording.commits)) <= 2 * BLOCKS_FREED_PER_COMMIT


def test_an_undetermined_address_is_kept_and_reported(harness: CollectorHarness) -> None:
    harness.assign_to("10.0.0.1", None, node="node-a")
    harness.assign_to("10.0.0.2", "h-bare", node="node-a", container="c", network="net1", interface="eth0")
    harness.assign_to("10.0.0.5", "h-half", node="node-b", pod="web")
    report = harness.tick_twice()
    assert [str(address) for address in report.undetermined] == [
        "10.0.0.1 (handle None): it has no handle",
        "10.0.0.2 (handle h-bare): its attributes name neither a pod nor a tunnel",
        "10.0.0.5 (handle h-half): its attributes have only one of pod and namespace",
    ]
    assert len(harness.held()) == 3


def test_without_an_orchestrator_every_address_is_undetermined(harness: CollectorHarness) -> None:
    """Handles are repaired all the same: that needs no pods."""
    harness.is_orchestrated = False
    harness.orchestrator.nodes = set()
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to("10.0.0.5", "tunnel", node="node-b", type="vxlanTunnelAddress")
    harness.assign_to("10.0.0.9", None, node="node-b")
    harness.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
    report = harness.tick_twice()
    assert action_texts(report) == ["repair handle h-left: its counts differ from its blocks"]
    assert [address.reason for address in report.undetermined] == [
        UndeterminedReason.NO_ORCHESTRATOR,
        UndeterminedReason.NO_ORCHESTRATOR,
        UndeterminedReason.NO_HANDLE,
    ]
    assert harness.orchestrator.lookups == []
    assert len(harness.held()) == 3


def test_i_79_nothing_is_written_while_the_cluster_is_locked(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.tick()
    harness.clock.sleep(GRACE_S)
    harness.set_ready()
    commits = harness.inner.calls.commits
    report = harness.tick()
    assert (report.idle, report.is_settled) == (IdleReason.LOCKED, False)
    assert harness.log.lines[-1] == (
        Level.INFO,
        "the collector is idle",
        {"why": "ClusterInformation default: spec.datastoreReady is false"},
    )
    assert (harness.inner.calls.commits, harness.history) == (commits, ScanHistory())
    harness.set_ready(is_ready=True)
    assert harness.tick().done == ()  # the grace period starts again
    harness.clock.sleep(GRACE_S)
    assert len(harness.tick().freed) == 1


def test_nothing_is_done_with_an_incomplete_view(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.nodes.clear()
    report = harness.tick(StoreView(idle=IdleReason.INCOMPLETE))
    assert report == CollectionReport(idle=IdleReason.INCOMPLETE)
    assert harness.held() == {"10.0.0.1": "h-web"}


@pytest.mark.parametrize("leave", [leak_address, leave_handle, leave_affinity, leave_block])
def test_a_lock_during_a_tick_stops_it(harness: CollectorHarness, leave: Callable[[CollectorHarness], None]) -> None:
    leave(harness)
    harness.tick()
    harness.clock.sleep(GRACE_S)
    stale = harness.view()
    harness.set_ready()
    before = harness.held(), harness.blocks(), harness.handles(), harness.affinities()
    report = harness.tick(stale)
    assert [failure.cause for failure in report.failures] == [
        "ClusterInformation default: spec.datastoreReady is false: pod networking is locked"
    ]
    assert (harness.held(), harness.blocks(), harness.handles(), harness.affinities()) == before


def test_a_tick_does_at_most_max_actions(harness: CollectorHarness) -> None:
    harness.change_settings(max_actions=3, batch_size=2)
    for n in range(8):
        harness.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    report = harness.tick_twice()
    assert (len(report.done), report.postponed, report.is_settled) == (3, 5, False)
    assert (len(harness.tick().freed), len(harness.tick().freed), len(harness.held())) == (3, 2, 0)


def test_the_longest_leaked_address_is_freed_first(harness: CollectorHarness) -> None:
    harness.change_settings(max_actions=1)
    harness.assign_to_pod("10.0.0.2", "b")
    harness.tick()
    harness.clock.sleep(1)
    harness.assign_to_pod("10.0.0.1", "a")
    harness.tick_twice()
    assert harness.held() == {"10.0.0.1": "h-a"}


def test_failing_actions_do_not_hold_up_the_others(harness: CollectorHarness) -> None:
    harness.change_settings(max_actions=1, batch_size=1)
    for n in (1, 2, 5):
        harness.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    harness.store = MalformedBlockDatastore(harness.inner, "10.0.0.0/30")
    harness.tick_twice()
    assert dict(harness.history.failures) == {"handle h-p1": 1}
    harness.tick()
    harness.tick()
    assert harness.held() == {"10.0.0.1": "h-p1", "10.0.0.2": "h-p2"}
    harness.store = harness.inner
    harness.tick()
    harness.tick()
    assert (harness.held(), harness.history.failures) == ({}, ())


def test_live_lookups_take_at_most_half_of_a_tick(harness: CollectorHarness) -> None:
    harness.change_settings(batch_size=1)
    for n in range(8):
        harness.assign_to_pod(f"10.0.0.{n}", f"p{n}")
    leave_handle(harness)
    harness.tick()
    harness.clock.sleep(GRACE_S)
    harness.change_settings(tick_s=60)
    harness.orchestrator.is_unavailable = True
    harness.orchestrator.delay = lambda: harness.clock.sleep(11)
    report = harness.tick()
    assert (len(report.failures), report.postponed) == (3, 5)
    assert harness.handles() == [f"h-p{n}" for n in range(8)]  # the handle was repaired in the other half


def test_trap_20_the_history_drops_what_is_gone(harness: CollectorHarness) -> None:
    leak_address(harness)
    leave_handle(harness)
    leave_affinity(harness)
    leave_block(harness)
    harness.add_block("10.0.0.20/30", "node-b")
    harness.tick()
    assert len(harness.history.since) == 5
    harness.release("10.0.0.1")
    for kind in (AFFINITY, BLOCK):
        for name in harness.names(kind):
            record = next(r for r in harness.view().affinities + harness.view().blocks if r.key.name == name)
            harness.remove(record.key)
    for handle in harness.handles():
        harness.remove(handle_key(handle))
    harness.tick()
    assert harness.history == ScanHistory()


def test_a_tick_logs_what_was_done_and_what_was_not(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to("10.0.0.5", None, node="node-b")
    report = harness.tick_twice()
    assert harness.log.lines[-2:] == [
        (Level.INFO, "collected", {"what": str(report.done[0])}),
        (
            Level.INFO,
            "collector tick",
            {
                "freed": 1,
                "done": 1,
                "skipped": 0,
                "failed": 0,
                "in_use": 0,
                "candidates": 0,
                "undetermined": 1,
                "postponed": 0,
            },
        ),
    ]
    harness.tick()
    assert harness.log.lines[-1][0] is Level.DEBUG


def test_a_view_has_the_records_of_all_pages(harness: CollectorHarness) -> None:
    for n in range(1001):
        harness.put(handle_key(f"h{n:04}"), Handle())
    assert len(harness.view().handles) == 1001
