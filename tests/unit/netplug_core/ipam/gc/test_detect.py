"""The survey by itself: what it remembers, and in which order it wants things done.

``tests/unit/netplug_core/flows/ipam/test_collect.py`` has the verdicts, together with what becomes of them.
"""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.gc.detect import detect
from netplug_core.ipam.gc.model import AllocationRef, FreeCondition, RecordRef, ScanHistory, ScanResult, ScanTime
from netplug_core.ipam.model.affinity import AffinityState
from netplug_core.ipam.model.handle import Handle, handle_key
from tests.harness.collector import GRACE_S, CollectorHarness

GRACE_MS = int(GRACE_S * 1000)


@pytest.fixture
def bench() -> CollectorHarness:
    made = CollectorHarness()
    made.add_pool("main", "10.0.0.0/24")
    return made


def look(harness: CollectorHarness, memory: ScanHistory, elapsed_ms: int) -> ScanResult:
    moment = ScanTime(wall_ns=harness.clock.now_ns(), elapsed_ms=elapsed_ms)
    return detect(harness.view(), memory, harness.settings, moment)


def test_a_suspect_is_dated_once(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    (held,) = bench.get(bench.key_of("10.0.0.1")).held()
    suspect = AllocationRef(held.address, "h-web", held.sequence)
    first = look(bench, ScanHistory(), 5)
    assert first.history == ScanHistory(since=((suspect, 5),))
    second = look(bench, first.history, 5 + GRACE_MS - 1)
    assert (second.history, second.leaks) == (first.history, ())
    third = look(bench, second.history, 5 + GRACE_MS)
    assert [leak.condition for action in third.leaks for leak in action.leaks] == [FreeCondition.GRACE]


def test_a_wall_clock_that_jumps_hastens_nothing(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.tick()
    bench.clock.wall_ns += 10**18
    assert bench.tick().done == ()


def test_a_record_that_is_written_is_another_suspect(bench: CollectorHarness) -> None:
    key = handle_key("h")
    bench.put(key, Handle())
    first = look(bench, ScanHistory(), 5)
    bench.put(key, Handle())
    record = bench.find_record(key)
    assert record is not None
    assert look(bench, first.history, 6).history == ScanHistory(since=((RecordRef(key, record.revision), 6),))


def test_failures_are_remembered_while_the_thing_is_due(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.orchestrator.nodes.remove("node-a")
    failures = (("handle h-web", 2), ("handle gone", 1))
    assert look(bench, ScanHistory(failures=failures), 5).history.failures == (("handle h-web", 2),)


def test_what_failed_comes_after_what_did_not(bench: CollectorHarness) -> None:
    for n, node in ((1, "node-a"), (5, "node-b"), (9, "node-c")):
        bench.assign_to_pod(f"10.0.0.{n}", f"p{n}", node=node)
    bench.orchestrator.nodes.clear()
    memory = ScanHistory(
        failures=(
            ("handle h-p1", 2),
            ("handle h-p5", 1),
            ("BlockAffinity(host/node-a/ipv4/10.0.0.0/30)", 1),
            ("BlockAffinity(host/node-b/ipv4/10.0.0.4/30)", 3),
        )
    )
    found = look(bench, memory, 5)
    assert [action.handle for action in found.leaks] == ["h-p9", "h-p5", "h-p1"]
    assert [gone.node for gone in found.gone] == ["node-c", "node-a", "node-b"]


def test_things_of_one_sort_come_in_the_order_of_their_names(bench: CollectorHarness) -> None:
    for n in (12, 8, 4):
        bench.put_affinity(f"10.0.1.{n}/30", state=AffinityState.PENDING)
        bench.put(handle_key(f"h{n:02}"), Handle())
    memory = look(bench, ScanHistory(), 0).history
    found = look(bench, memory, GRACE_MS)
    assert [action.subject for action in found.handles] == ["handle h04", "handle h08", "handle h12"]
    assert [action.affinity.name for action in found.affinities] == ["10.0.1.12/30", "10.0.1.4/30", "10.0.1.8/30"]


def test_a_gone_node_says_what_it_waits_for_and_what_keeps_it(bench: CollectorHarness) -> None:
    bench.assign_to_pod("10.0.0.1")
    bench.assign_to("10.0.0.5", None, node="node-b", block_of="node-a")
    bench.add_block("10.0.0.8/30")
    bench.put_affinity("10.0.0.12/30", state=AffinityState.PENDING)
    bench.orchestrator.nodes.remove("node-a")
    (gone,) = look(bench, ScanHistory(), 5).gone
    assert (gone.node, gone.awaits, [str(address) for address in gone.kept_by]) == (
        "node-a",
        frozenset({"h-web"}),
        ["10.0.0.5"],
    )
    assert [action.affinity.name for action in gone.affinities] == ["10.0.0.0/30", "10.0.0.12/30", "10.0.0.8/30"]


def test_an_empty_view_has_nothing_due(bench: CollectorHarness) -> None:
    assert look(bench, ScanHistory(), 5) == ScanResult(history=ScanHistory())
    assert (
        look(bench, ScanHistory(since=((RecordRef(handle_key("h"), bench.view().pools[0].revision), 1),)), 5).history
        == ScanHistory()
    )


def test_a_pool_that_is_gone_changes_no_verdict(bench: CollectorHarness) -> None:
    bench.assign_to_pod("172.16.0.1")
    found = look(bench, ScanHistory(), 5)
    assert [leak.owner.block for leak in found.candidates] == [Prefix.parse("172.16.0.0/30")]
