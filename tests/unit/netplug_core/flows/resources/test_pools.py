"""The deletion of a pool before its record is deleted: it is disabled, and its blocks are relinquished."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.resources.outcome import Effect, ResourceOutdated
from netplug_core.flows.resources.pools import drain_pool, held_warnings
from netplug_core.ipam.model.affinity import AFFINITY, Affinity, AffinityState, affinity_key
from netplug_core.ipam.model.block import BLOCK, Attribute, Block
from netplug_core.records import Create, List, OutcomeUnknown
from netplug_core.testing.faults import Fault, LostReply, ProcessDeath, ProcessDied, RunBefore
from tests.harness.resources import ResourceHarness, make_pool


@pytest.fixture
def harness() -> ResourceHarness:
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    harness.create(make_pool())
    return harness


def drain(harness: ResourceHarness, revision: str = "", store: Datastore | None = None) -> None:
    drain_pool(store or harness.store, harness.stored(), revision=revision, pace=harness.pace)


def make_block(cidr: str, *held: int, owner: str = "host:a") -> tuple[Create[object], Create[object]]:
    block = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    block = block.assign(tuple(map(Ordinal, held)), Attribute(handle="h")) if held else block
    return Create(affinity_key(owner, block.prefix), Affinity(state=AffinityState.CONFIRMED)), Create(block.key, block)


def test_a_pool_is_disabled_before_it_is_deleted(harness: ResourceHarness) -> None:
    before = harness.stored().value
    drain(harness)
    assert harness.stored().value == evolve(before, spec=evolve(before.spec, is_disabled=True))
    commits = harness.store.calls.commits
    drain(harness)
    assert harness.store.calls.commits == commits


@pytest.mark.parametrize("mode, waited_s", [(MemoryMode.ATOMIC, 0.0), (MemoryMode.ORDERED, 0.5)])
def test_on_an_ordered_store_running_assignments_are_waited_for(mode: MemoryMode, waited_s: float) -> None:
    harness = ResourceHarness.with_mode(mode)
    harness.create(make_pool())
    before = harness.clock.monotonic()
    drain(harness)
    assert harness.clock.monotonic() - before == waited_s
    assert harness.stored().value.spec.is_disabled


def test_a_pool_of_another_version_is_not_disabled(harness: ResourceHarness) -> None:
    first = harness.stored().revision
    harness.apply(make_pool(has_outgoing_nat=True))
    with pytest.raises(ResourceOutdated):
        drain(harness, revision=first)
    assert not harness.stored().value.spec.is_disabled
    drain(harness, revision=harness.stored().revision)
    assert harness.stored().value.spec.is_disabled


def test_a_lost_reply_with_a_version_is_an_unknown_outcome(harness: ResourceHarness) -> None:
    with pytest.raises(OutcomeUnknown):
        drain(harness, revision=harness.stored().revision, store=harness.with_faults(commit_1=LostReply()))
    assert harness.stored().value.spec.is_disabled


def test_another_pool_of_the_same_name_stays_enabled(harness: ResourceHarness) -> None:
    def replace_pool() -> None:
        harness.delete("p")
        harness.create(make_pool("10.9.0.0/16"))

    drain(harness, store=harness.with_faults(commit_1=RunBefore(replace_pool)))
    assert not harness.stored().value.spec.is_disabled


def test_nothing_is_done_for_a_pool_that_is_gone(harness: ResourceHarness) -> None:
    seen = harness.stored()
    assert (
        harness.delete("p", store=harness.with_faults(commit_1=RunBefore(lambda: harness.delete("p")))).effect
        is Effect.DELETED
    )
    commits = harness.store.calls.commits
    drain_pool(harness.store, seen, revision="", pace=harness.pace)
    assert harness.store.calls.commits == commits


def test_the_blocks_of_a_deleted_pool_are_relinquished_for_all_owners(harness: ResourceHarness) -> None:
    """I-62 of the catalogue, and trap 33: affinities of hosts and of other owners."""
    harness.create(make_pool("10.9.0.0/16", "other"))
    harness.put(
        *make_block("10.0.0.0/26"),
        *make_block("10.0.0.64/26", 5),
        *make_block("10.0.0.128/26", owner="virtual:balancer"),
        *make_block("10.9.0.0/26"),
    )
    drain(harness)
    snapshot = harness.store.read([List(AFFINITY), List(BLOCK)], deadline=harness.deadline)
    assert [record.key.name for record in snapshot.list(List(AFFINITY))] == ["10.9.0.0/26"]
    blocks = {str(record.value.prefix): record.value for record in snapshot.list(List(BLOCK))}
    assert sorted(blocks) == ["10.0.0.64/26", "10.9.0.0/26"]
    assert blocks["10.0.0.64/26"].owner == ""
    assert [held.ordinal for held in blocks["10.0.0.64/26"].held()] == [5]


@pytest.mark.parametrize("fault", [ProcessDeath(0), ProcessDeath(None)])
@pytest.mark.parametrize("commit", ["commit_1", "commit_2", "commit_3"])
def test_a_deletion_that_stopped_is_completed_by_the_next(harness: ResourceHarness, commit: str, fault: Fault) -> None:
    harness.put(*make_block("10.0.0.0/26"), *make_block("10.0.0.64/26", 5))
    with pytest.raises(ProcessDied):
        harness.delete("p", store=harness.with_faults(**{commit: fault}))
    if harness.names():
        assert harness.delete("p").effect is Effect.DELETED
    assert harness.names() == []
    snapshot = harness.store.read([List(AFFINITY), List(BLOCK)], deadline=harness.deadline)
    assert snapshot.list(List(AFFINITY)) == ()
    assert [record.value.owner for record in snapshot.list(List(BLOCK))] == [""]


def test_addresses_that_are_cooling_down_give_no_warning(harness: ResourceHarness) -> None:
    block = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1)
    block = block.assign((Ordinal(0), Ordinal(5)), Attribute(handle="h"))
    resting = block.release(frozenset({Ordinal(0), Ordinal(5)}), cooling_from_ns=5_000_000_000)
    harness.put(Create(resting.key, resting))
    assert held_warnings(harness.store, harness.stored().value, deadline=harness.deadline) == ()
