"""The survey by itself: what it remembers, and in which order it wants things done.

``tests/unit/netplug_core/flows/test_collect.py`` has the verdicts, together with what becomes of them.
"""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.affinity import AffinityState
from netplug_core.ipam.collection import Basis, Findings, Memory, Moment, Seen, Taken
from netplug_core.ipam.handle import Handle, handle_key
from netplug_core.ipam.survey import survey
from tests.collector_bench import GRACE_S, CollectorBench

GRACE_MS = int(GRACE_S * 1000)


@pytest.fixture
def bench() -> CollectorBench:
    made = CollectorBench()
    made.add_pool("main", "10.0.0.0/24")
    return made


def look(bench: CollectorBench, memory: Memory, elapsed_ms: int) -> Findings:
    moment = Moment(wall_ns=bench.clock.now_ns(), elapsed_ms=elapsed_ms)
    return survey(bench.view(), memory, bench.settings, moment)


def test_a_suspect_is_dated_once(bench: CollectorBench) -> None:
    bench.hold_for_pod("10.0.0.1")
    (held,) = bench.get(bench.key_of("10.0.0.1")).held()
    suspect = Taken(held.address, "h-web", held.sequence)
    first = look(bench, Memory(), 5)
    assert first.memory == Memory(since=((suspect, 5),))
    second = look(bench, first.memory, 5 + GRACE_MS - 1)
    assert (second.memory, second.leaks) == (first.memory, ())
    third = look(bench, second.memory, 5 + GRACE_MS)
    assert [leak.basis for action in third.leaks for leak in action.leaks] == [Basis.GRACE]


def test_a_wall_clock_that_jumps_hastens_nothing(bench: CollectorBench) -> None:
    bench.hold_for_pod("10.0.0.1")
    bench.tick()
    bench.clock.wall_ns += 10**18
    assert bench.tick().done == ()


def test_a_record_that_is_written_is_another_suspect(bench: CollectorBench) -> None:
    key = handle_key("h")
    bench.put(key, Handle())
    first = look(bench, Memory(), 5)
    bench.put(key, Handle())
    record = bench.find_record(key)
    assert record is not None
    assert look(bench, first.memory, 6).memory == Memory(since=((Seen(key, record.revision), 6),))


def test_failures_are_remembered_while_the_thing_is_due(bench: CollectorBench) -> None:
    bench.hold_for_pod("10.0.0.1")
    bench.orchestrator.nodes.remove("node-a")
    failures = (("handle h-web", 2), ("handle gone", 1))
    assert look(bench, Memory(failures=failures), 5).memory.failures == (("handle h-web", 2),)


def test_what_failed_comes_after_what_did_not(bench: CollectorBench) -> None:
    for n, node in ((1, "node-a"), (5, "node-b"), (9, "node-c")):
        bench.hold_for_pod(f"10.0.0.{n}", f"p{n}", node=node)
    bench.orchestrator.nodes.clear()
    memory = Memory(
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


def test_things_of_one_sort_come_in_the_order_of_their_names(bench: CollectorBench) -> None:
    for n in (12, 8, 4):
        bench.claim(f"10.0.1.{n}/30", state=AffinityState.PENDING)
        bench.put(handle_key(f"h{n:02}"), Handle())
    memory = look(bench, Memory(), 0).memory
    found = look(bench, memory, GRACE_MS)
    assert [action.subject for action in found.handles] == ["handle h04", "handle h08", "handle h12"]
    assert [action.claim.name for action in found.claims] == ["10.0.1.12/30", "10.0.1.4/30", "10.0.1.8/30"]


def test_a_gone_node_says_what_it_waits_for_and_what_keeps_it(bench: CollectorBench) -> None:
    bench.hold_for_pod("10.0.0.1")
    bench.hold("10.0.0.5", None, node="node-b", block_of="node-a")
    bench.add_block("10.0.0.8/30")
    bench.claim("10.0.0.12/30", state=AffinityState.PENDING)
    bench.orchestrator.nodes.remove("node-a")
    (gone,) = look(bench, Memory(), 5).gone
    assert (gone.node, gone.awaits, [str(address) for address in gone.kept_by]) == (
        "node-a",
        frozenset({"h-web"}),
        ["10.0.0.5"],
    )
    assert [action.claim.name for action in gone.claims] == ["10.0.0.0/30", "10.0.0.12/30", "10.0.0.8/30"]


def test_an_empty_view_has_nothing_due(bench: CollectorBench) -> None:
    assert look(bench, Memory(), 5) == Findings(memory=Memory())
    assert (
        look(bench, Memory(since=((Seen(handle_key("h"), bench.view().pools[0].revision), 1),)), 5).memory == Memory()
    )


def test_a_pool_that_is_gone_changes_no_verdict(bench: CollectorBench) -> None:
    bench.hold_for_pod("172.16.0.1")
    found = look(bench, Memory(), 5)
    assert [leak.holding.block for leak in found.candidates] == [Prefix.parse("172.16.0.0/30")]
