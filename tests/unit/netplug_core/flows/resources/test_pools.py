"""What deleting a pool does before the record goes: it serves nobody, gives up its blocks, and says who is left."""

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
def bench() -> ResourceHarness:
    bench = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    bench.create(make_pool())
    return bench


def stop(harness: ResourceHarness, revision: str = "", store: Datastore | None = None) -> None:
    drain_pool(store or harness.store, harness.stored(), revision=revision, pace=harness.pace)


def claimed(cidr: str, *held: int, owner: str = "host:a") -> tuple[Create[object], Create[object]]:
    block = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    block = block.assign(tuple(map(Ordinal, held)), Attribute(handle="h")) if held else block
    return Create(affinity_key(owner, block.prefix), Affinity(state=AffinityState.CONFIRMED)), Create(block.key, block)


def test_a_pool_that_goes_is_disabled_first(bench: ResourceHarness) -> None:
    before = bench.stored().value
    stop(bench)
    assert bench.stored().value == evolve(before, spec=evolve(before.spec, is_disabled=True))
    commits = bench.store.calls.commits
    stop(bench)
    assert bench.store.calls.commits == commits


@pytest.mark.parametrize("mode, waited_s", [(MemoryMode.ATOMIC, 0.0), (MemoryMode.ORDERED, 0.5)])
def test_where_writes_carry_no_conditions_assignments_in_flight_are_waited_for(
    mode: MemoryMode, waited_s: float
) -> None:
    bench = ResourceHarness.with_mode(mode)
    bench.create(make_pool())
    before = bench.clock.monotonic()
    stop(bench)
    assert bench.clock.monotonic() - before == waited_s
    assert bench.stored().value.spec.is_disabled


def test_only_the_version_that_was_meant_is_disabled(bench: ResourceHarness) -> None:
    first = bench.stored().revision
    bench.apply(make_pool(has_outgoing_nat=True))
    with pytest.raises(ResourceOutdated):
        stop(bench, revision=first)
    assert not bench.stored().value.spec.is_disabled
    stop(bench, revision=bench.stored().revision)
    assert bench.stored().value.spec.is_disabled


def test_a_version_that_was_meant_and_a_lost_reply_are_reported(bench: ResourceHarness) -> None:
    with pytest.raises(OutcomeUnknown):
        stop(bench, revision=bench.stored().revision, store=bench.with_faults(commit_1=LostReply()))
    assert bench.stored().value.spec.is_disabled


def test_a_pool_that_took_the_name_meanwhile_goes_on_serving(bench: ResourceHarness) -> None:
    def take_over() -> None:
        bench.delete("p")
        bench.create(make_pool("10.9.0.0/16"))

    stop(bench, store=bench.with_faults(commit_1=RunBefore(take_over)))
    assert not bench.stored().value.spec.is_disabled


def test_a_pool_that_is_gone_meanwhile_needs_nothing(bench: ResourceHarness) -> None:
    seen = bench.stored()
    assert (
        bench.delete("p", store=bench.with_faults(commit_1=RunBefore(lambda: bench.delete("p")))).effect
        is Effect.DELETED
    )
    commits = bench.store.calls.commits
    drain_pool(bench.store, seen, revision="", pace=bench.pace)
    assert bench.store.calls.commits == commits


def test_the_blocks_of_a_pool_that_goes_are_given_up_by_everybody(bench: ResourceHarness) -> None:
    """I-62 of the catalogue, and trap 33: claims of hosts and of others."""
    bench.create(make_pool("10.9.0.0/16", "other"))
    bench.put(
        *claimed("10.0.0.0/26"),
        *claimed("10.0.0.64/26", 5),
        *claimed("10.0.0.128/26", owner="virtual:balancer"),
        *claimed("10.9.0.0/26"),
    )
    stop(bench)
    snapshot = bench.store.read([List(AFFINITY), List(BLOCK)], deadline=bench.deadline)
    assert [record.key.name for record in snapshot.list(List(AFFINITY))] == ["10.9.0.0/26"]
    blocks = {str(record.value.prefix): record.value for record in snapshot.list(List(BLOCK))}
    assert sorted(blocks) == ["10.0.0.64/26", "10.9.0.0/26"]
    assert blocks["10.0.0.64/26"].owner == ""
    assert [held.ordinal for held in blocks["10.0.0.64/26"].held()] == [5]


@pytest.mark.parametrize("fault", [ProcessDeath(0), ProcessDeath(None)])
@pytest.mark.parametrize("commit", ["commit_1", "commit_2", "commit_3"])
def test_a_deletion_that_died_is_finished_by_the_next(bench: ResourceHarness, commit: str, fault: Fault) -> None:
    bench.put(*claimed("10.0.0.0/26"), *claimed("10.0.0.64/26", 5))
    with pytest.raises(ProcessDied):
        bench.delete("p", store=bench.with_faults(**{commit: fault}))
    if bench.names():
        assert bench.delete("p").effect is Effect.DELETED
    assert bench.names() == []
    snapshot = bench.store.read([List(AFFINITY), List(BLOCK)], deadline=bench.deadline)
    assert snapshot.list(List(AFFINITY)) == ()
    assert [record.value.owner for record in snapshot.list(List(BLOCK))] == [""]


def test_addresses_that_cool_down_are_held_by_nobody(bench: ResourceHarness) -> None:
    block = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1)
    block = block.assign((Ordinal(0), Ordinal(5)), Attribute(handle="h"))
    resting = block.release(frozenset({Ordinal(0), Ordinal(5)}), cooling_from_ns=5_000_000_000)
    bench.put(Create(resting.key, resting))
    assert held_warnings(bench.store, bench.stored().value, deadline=bench.deadline) == ()
