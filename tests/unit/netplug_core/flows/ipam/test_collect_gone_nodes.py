"""The collector: what gone nodes leave."""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.gc.candidates import FreeHandle, ScanHistory
from netplug_core.ipam.model import Handle, handle_key
from netplug_core.testing.faults import LostRequest
from tests.harness.collector import GRACE_S, CollectorHarness, inject_faults


@pytest.fixture
def harness() -> CollectorHarness:
    return CollectorHarness.with_pools()


def test_i_75_an_address_on_a_gone_node_is_freed_at_once_if_its_pod_runs_elsewhere(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.nodes.remove("node-a")
    harness.orchestrator.run_pod("web", "node-b", "10.0.0.9")
    report = harness.tick()
    assert [str(leak) for leak in report.freed] == [
        "10.0.0.1 of pod default/web on node node-a (its pod runs on another node)"
    ]
    assert (harness.held(), harness.affinities(), harness.blocks()) == ({}, [], [])


def test_i_75_an_address_on_a_gone_node_is_kept_if_its_pod_reports_it(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.nodes.remove("node-a")
    harness.orchestrator.run_pod("web", "node-a", "10.0.0.1")
    report = harness.tick_twice()
    assert report.done == ()
    assert [str(waiting) for waiting in report.waiting] == [
        "node node-a is gone; its affinities are kept because of 10.0.0.1"
    ]
    assert harness.affinities() == ["node-a 10.0.0.0/30"]


def test_the_pods_of_a_node_that_has_returned_get_the_grace_period(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.nodes.remove("node-a")
    stale = harness.view()
    harness.orchestrator.nodes.add("node-a")
    report = harness.tick(stale)
    assert (report.done, len(report.in_use)) == ((), 1)
    harness.clock.sleep(GRACE_S)
    assert len(harness.tick().freed) == 1  # a candidate since the first scan, whatever the node


def test_i_76_tunnel_addresses_of_a_gone_node_are_freed_in_one_tick_with_pods_and_affinities(
    harness: CollectorHarness,
) -> None:
    harness.assign_to("10.0.0.2", "a-tunnel", node="node-a", type="ipipTunnelAddress")
    harness.assign_to("fd00::2", "six-tunnel", block_of="node-a", type="wireguardV6TunnelAddress")
    harness.assign_to_pod("10.0.0.1")
    harness.tick()
    assert len(harness.held()) == 3
    harness.orchestrator.nodes.remove("node-a")
    report = harness.tick()
    freed = [action.handle for action in report.done if isinstance(action, FreeHandle)]
    assert freed == ["h-web", "a-tunnel", "six-tunnel"]  # pods first
    assert (harness.held(), harness.handles(), harness.affinities(), harness.blocks()) == ({}, [], [], [])


def test_without_a_grace_period_only_gone_nodes_are_handled(harness: CollectorHarness) -> None:
    harness.change_settings(grace_s=0)
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to_pod("10.0.0.5", "db", node="node-b")
    harness.add_block("10.0.0.8/30")
    harness.put(handle_key("h-left"), Handle(blocks=((Prefix.parse("10.0.0.0/30"), 1),)))
    assert harness.tick_twice(over_s=1e6).done == ()
    assert harness.history == ScanHistory()
    harness.orchestrator.nodes.remove("node-b")
    harness.tick()
    assert (harness.held(), harness.affinities()) == (
        {"10.0.0.1": "h-web"},
        ["node-a 10.0.0.0/30", "node-a 10.0.0.8/30"],
    )


def test_an_undetermined_address_keeps_all_affinities_of_its_gone_node(harness: CollectorHarness) -> None:
    """In any block: here it is borrowed from another node."""
    harness.add_block("10.0.0.0/30")
    harness.add_block("10.0.0.8/30")
    harness.assign_to("10.0.0.5", "h-bare", block_of="node-b", node="node-a", container="c")
    harness.orchestrator.nodes.remove("node-a")
    report = harness.tick_twice()
    assert [(waiting.node, [str(a) for a in waiting.addresses]) for waiting in report.waiting] == [
        ("node-a", ["10.0.0.5"])
    ]
    assert harness.affinities() == ["node-a 10.0.0.0/30", "node-a 10.0.0.8/30", "node-b 10.0.0.4/30"]


def test_an_address_borrowed_by_another_node_keeps_only_its_block(harness: CollectorHarness) -> None:
    harness.add_block("10.0.0.0/30")
    harness.assign_to_pod("10.0.0.5", node="node-b", block_of="node-a")
    harness.orchestrator.run_pod("web", "node-b", "10.0.0.5")
    harness.orchestrator.nodes.remove("node-a")
    report = harness.tick()
    assert (len(report.waiting), report.skipped) == (1, ())
    assert (harness.affinities(), harness.held()) == (["node-a 10.0.0.4/30"], {"10.0.0.5": "h-web"})


def test_affinities_of_a_gone_node_wait_until_its_addresses_are_freed(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.add_block("10.0.0.4/30")
    harness.orchestrator.nodes.remove("node-a")
    inject_faults(harness, LostRequest())
    report = harness.tick()
    assert (report.done, len(report.failures), len(harness.affinities())) == ((), 1, 2)
    harness.store = harness.inner
    harness.tick()
    assert harness.affinities() == []


def test_affinities_of_a_node_that_a_live_lookup_finds_are_kept(harness: CollectorHarness) -> None:
    harness.add_block("10.0.0.0/30")
    harness.orchestrator.nodes.remove("node-a")
    stale = harness.view()
    harness.orchestrator.nodes.add("node-a")
    assert harness.tick(stale).done == ()
    assert harness.affinities() == ["node-a 10.0.0.0/30"]


def test_i_77_a_node_that_fails_does_not_stop_another_and_is_tried_again(harness: CollectorHarness) -> None:
    harness.add_block("10.0.0.0/30", "node-a")
    harness.add_block("10.0.0.4/30", "node-b")
    harness.orchestrator.nodes.clear()
    inject_faults(harness, LostRequest())
    report = harness.tick()
    assert [failure.action.subject for failure in report.failures] == ["BlockAffinity(host/node-a/ipv4/10.0.0.0/30)"]
    assert (harness.affinities(), report.is_settled) == (["node-a 10.0.0.0/30"], False)
    harness.store = harness.inner
    assert harness.tick().is_settled
    assert harness.affinities() == []


def test_affinities_of_a_node_whose_lookup_fails_are_kept(harness: CollectorHarness) -> None:
    harness.add_block("10.0.0.0/30")
    harness.orchestrator.nodes.remove("node-a")
    harness.orchestrator.is_unavailable = True
    report = harness.tick()
    assert [failure.cause for failure in report.failures] == [
        "node node-a could not be looked up: the orchestrator: connection refused"
    ]
    assert harness.affinities() == ["node-a 10.0.0.0/30"]
