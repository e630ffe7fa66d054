"""A tick that only looks says what one that acts does, and writes and logs nothing."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.flows.ipam.collect import TickMode, tick
from netplug_core.ipam.gc.candidates import CollectionReport
from netplug_core.ipam.model import handle_key
from tests.harness.collector import (
    GRACE_S,
    CollectorHarness,
    action_texts,
    leave_affinity,
    leave_block,
    leave_handle,
)
from tests.harness.stores import RecordingStore


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> CollectorHarness:
    """One of everything that is collected, and a node that is gone."""
    harness = CollectorHarness()
    harness.inner = harness.store = MemoryDatastore(request.param, clock=harness.clock)
    harness.add_pool("four", "10.0.0.0/24")
    harness.set_cooldown(60)
    harness.assign_to_pod("10.0.0.1")
    harness.assign_to_pod("10.0.0.9", "gone", node="node-z")
    harness.assign_to_pod("10.0.0.21", "cooling", node="node-b")
    harness.release("10.0.0.21", cooling=True)
    harness.remove(handle_key("h-cooling"))
    leave_handle(harness)
    leave_affinity(harness)
    leave_block(harness)
    return harness


def look(harness: CollectorHarness) -> CollectionReport:
    """A tick that changes neither the store nor what the harness remembers."""
    store = RecordingStore(harness.inner)
    collector = evolve(harness.collector, store=store, mode=TickMode.LOOK)
    lines = len(harness.log.lines)
    _history, report = tick(collector, harness.view(), harness.history)
    assert store.commits == []
    assert len(harness.log.lines) == lines
    return report


def test_what_is_due_at_once(harness: CollectorHarness) -> None:
    harness.clock.sleep(100)
    seen = look(harness)
    done = harness.tick()
    assert action_texts(seen) == action_texts(done)
    assert any("10.0.0.9 of pod default/gone" in text for text in action_texts(seen))
    assert any("whose cooldown has expired" in text for text in action_texts(seen))
    assert [str(leak.owner.address) for leak in seen.freed] == ["10.0.0.9"]


def test_what_waits_and_what_is_due_after_the_grace_period(harness: CollectorHarness) -> None:
    first = look(harness)
    assert [str(leak.owner.address) for leak in first.candidates] == ["10.0.0.1"]
    names = {record.key.name for record in first.pending}
    assert {"h-left", "10.0.0.12/30", "10.0.0.16/30"} <= names
    harness.tick()
    harness.clock.sleep(GRACE_S)
    seen = look(harness)
    done = harness.tick()
    assert action_texts(seen) == action_texts(done)
    assert seen.pending == done.pending == ()
    assert [str(leak.owner.address) for leak in seen.freed] == ["10.0.0.1"]


def test_a_gone_node_is_relinquished_with_its_addresses_unless_these_cool_down(harness: CollectorHarness) -> None:
    relinquished = "relinquish the affinity of host:node-z for block 10.0.0.8/30: the node is gone"
    assert relinquished not in action_texts(look(harness))
    harness.set_cooldown(0)
    seen = look(harness)
    assert relinquished in action_texts(seen)
    assert action_texts(harness.tick()) == action_texts(seen)
