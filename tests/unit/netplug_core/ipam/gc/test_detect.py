"""A scan: its history, and the order of its actions. ``flows/ipam/test_collect*.py`` has what is found and done."""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.gc.candidates import AllocationRef, FreeCondition, RecordRef, ScanHistory, ScanResult, ScanTime
from netplug_core.ipam.gc.detect import detect
from netplug_core.ipam.model import AffinityState, Handle, handle_key
from tests.harness.collector import GRACE_S, CollectorHarness

GRACE_MS = int(GRACE_S * 1000)


@pytest.fixture
def harness() -> CollectorHarness:
    harness = CollectorHarness()
    harness.add_pool("main", "10.0.0.0/24")
    return harness


def scan(harness: CollectorHarness, history: ScanHistory, elapsed_ms: int) -> ScanResult:
    now = ScanTime(wall_ns=harness.clock.now_ns(), elapsed_ms=elapsed_ms)
    return detect(harness.view(), history, harness.settings, now)


def test_a_candidate_is_dated_once(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    (held,) = harness.get(harness.key_of("10.0.0.1")).held()
    candidate = AllocationRef(held.address, "h-web", held.sequence)
    first = scan(harness, ScanHistory(), 5)
    assert first.history == ScanHistory(since=((candidate, 5),))
    second = scan(harness, first.history, 5 + GRACE_MS - 1)
    assert (second.history, second.leaks) == (first.history, ())
    third = scan(harness, second.history, 5 + GRACE_MS)
    assert [leak.condition for action in third.leaks for leak in action.leaks] == [FreeCondition.GRACE]


def test_a_jump_of_the_wall_clock_does_not_shorten_the_grace_period(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.tick()
    harness.clock.wall_ns += 10**18
    assert harness.tick().done == ()


def test_a_record_that_is_written_is_another_candidate(harness: CollectorHarness) -> None:
    key = handle_key("h")
    harness.put(key, Handle())
    first = scan(harness, ScanHistory(), 5)
    harness.put(key, Handle())
    record = harness.find_record(key)
    assert record is not None
    assert scan(harness, first.history, 6).history == ScanHistory(since=((RecordRef(key, record.revision), 6),))


def test_failures_are_kept_while_the_action_is_due(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.orchestrator.nodes.remove("node-a")
    failures = (("handle h-web", 2), ("handle gone", 1))
    assert scan(harness, ScanHistory(failures=failures), 5).history.failures == (("handle h-web", 2),)


def test_actions_that_failed_come_last(harness: CollectorHarness) -> None:
    for n, node in ((1, "node-a"), (5, "node-b"), (9, "node-c")):
        harness.assign_to_pod(f"10.0.0.{n}", f"p{n}", node=node)
    harness.orchestrator.nodes.clear()
    history = ScanHistory(
        failures=(
            ("handle h-p1", 2),
            ("handle h-p5", 1),
            ("BlockAffinity(host/node-a/ipv4/10.0.0.0/30)", 1),
            ("BlockAffinity(host/node-b/ipv4/10.0.0.4/30)", 3),
        )
    )
    found = scan(harness, history, 5)
    assert [action.handle for action in found.leaks] == ["h-p9", "h-p5", "h-p1"]
    assert [gone.node for gone in found.gone] == ["node-c", "node-a", "node-b"]


def test_actions_of_one_kind_are_sorted_by_name(harness: CollectorHarness) -> None:
    for n in (12, 8, 4):
        harness.put_affinity(f"10.0.1.{n}/30", state=AffinityState.PENDING)
        harness.put(handle_key(f"h{n:02}"), Handle())
    history = scan(harness, ScanHistory(), 0).history
    found = scan(harness, history, GRACE_MS)
    assert [action.subject for action in found.handles] == ["handle h04", "handle h08", "handle h12"]
    assert [action.affinity.name for action in found.affinities] == ["10.0.1.12/30", "10.0.1.4/30", "10.0.1.8/30"]


def test_a_gone_node_names_the_handles_it_waits_for_and_the_addresses_that_keep_it(harness: CollectorHarness) -> None:
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to("10.0.0.5", None, node="node-b", block_of="node-a")
    harness.add_block("10.0.0.8/30")
    harness.put_affinity("10.0.0.12/30", state=AffinityState.PENDING)
    harness.orchestrator.nodes.remove("node-a")
    (gone,) = scan(harness, ScanHistory(), 5).gone
    assert (gone.node, gone.awaits, [str(address) for address in gone.kept_by]) == (
        "node-a",
        frozenset({"h-web"}),
        ["10.0.0.5"],
    )
    assert [action.affinity.name for action in gone.affinities] == ["10.0.0.0/30", "10.0.0.12/30", "10.0.0.8/30"]


def test_an_empty_view_has_nothing_due(harness: CollectorHarness) -> None:
    assert scan(harness, ScanHistory(), 5) == ScanResult(history=ScanHistory())
    assert (
        scan(
            harness, ScanHistory(since=((RecordRef(handle_key("h"), harness.view().pools[0].revision), 1),)), 5
        ).history
        == ScanHistory()
    )


def test_an_address_in_no_pool_is_a_candidate_too(harness: CollectorHarness) -> None:
    harness.assign_to_pod("172.16.0.1")
    found = scan(harness, ScanHistory(), 5)
    assert [leak.owner.block for leak in found.candidates] == [Prefix.parse("172.16.0.0/30")]
