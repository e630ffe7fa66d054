"""Deletion: claims on blocks first, races and lost replies."""

import pytest
from attrs import evolve

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.outcome import (
    Effect,
    Outcome,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.ipam.model.affinity import AFFINITY, Affinity, AffinityState, affinity_key
from netplug_core.ipam.model.block import BLOCK, Attribute, Block
from netplug_core.records import Create, List
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.testing.faults import LostReply, RunBefore
from tests.harness.resources import CONFIGURATION, NODE, RESERVATION, ResourceHarness, make_pool


def test_delete_removes_and_a_second_one_finds_nothing(bench: ResourceHarness) -> None:
    bench.create(make_pool())
    assert bench.delete("p") == Outcome(key=ippool_key("p"), effect=Effect.DELETED)
    assert bench.names() == []
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        bench.delete("p")


def test_delete_says_how_many_addresses_are_still_held(bench: ResourceHarness) -> None:
    bench.create(make_pool())
    inside = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1)
    inside = inside.assign((Ordinal(0), Ordinal(5)), Attribute(handle="h"))
    outside = Block.new(Prefix.parse("10.9.0.0/26"), owner="host:a", now_ns=1)
    outside = outside.assign((Ordinal(0),), Attribute(handle="h"))
    bench.create(make_pool("10.1.0.0/16", "other"))
    bench.put(Create(inside.key, inside), Create(outside.key, outside))
    (warning,) = bench.delete("p").warnings
    assert warning == "IPPool(p): addresses of it that are still held: 2; their workloads keep them"


@pytest.mark.parametrize("commit", ["commit_1", "commit_2"])
def test_delete_after_a_lost_reply_is_done(bench: ResourceHarness, commit: str) -> None:
    bench.create(make_pool())
    assert bench.delete("p", store=bench.with_faults(**{commit: LostReply()})).effect is Effect.DELETED
    assert bench.names() == []


def test_delete_leaves_a_pool_that_took_the_name_meanwhile(bench: ResourceHarness) -> None:
    bench.create(make_pool())

    def replace() -> None:
        bench.delete("p")
        bench.create(make_pool("10.9.0.0/16"))

    assert bench.delete("p", store=bench.with_faults(commit_2=RunBefore(replace))).effect is Effect.DELETED
    assert str(bench.stored().value.spec.prefix) == "10.9.0.0/16"


@pytest.mark.parametrize("resource", [NODE, RESERVATION, CONFIGURATION])
def test_delete_honours_a_resource_version(bench: ResourceHarness, resource: Resource) -> None:
    key = key_of(resource)
    bench.create(resource)
    first = bench.find(key)
    assert first is not None
    bench.apply(evolve(resource, metadata=evolve(resource.metadata, annotations=(("a", "b"),))))
    with pytest.raises(ResourceOutdated):
        delete(bench.store, key, revision=first.revision, pace=bench.pace)
    latest = bench.find(key)
    assert latest is not None
    assert delete(bench.store, key, revision=latest.revision, pace=bench.pace).effect is Effect.DELETED


def test_a_change_between_looking_and_deleting_is_seen(bench: ResourceHarness) -> None:
    bench.create(NODE)
    first = bench.find(key_of(NODE))
    assert first is not None
    relabelled = evolve(NODE, metadata=Metadata(name="node-a", labels=(("rack", "b"),)))
    store = bench.with_faults(commit_1=RunBefore(lambda: bench.apply(relabelled)))
    with pytest.raises(ResourceOutdated):
        delete(store, key_of(NODE), revision=first.revision, pace=bench.pace)
    assert bench.find(key_of(NODE)) is not None


def test_a_node_that_goes_gives_up_its_blocks_and_nobodys_addresses(bench: ResourceHarness) -> None:
    """I-64 of the catalogue for one without blocks."""
    bench.create(NODE)
    mine = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:node-a", now_ns=1)
    used = mine.assign((Ordinal(1),), Attribute(handle="h"))
    theirs = Block.new(Prefix.parse("10.0.0.64/26"), owner="host:node-b", now_ns=1)
    state = Affinity(state=AffinityState.CONFIRMED)
    for block in (used, theirs):
        bench.put(Create(affinity_key(block.owner, block.prefix), state), Create(block.key, block))
    for name in ("node-a", "node-c"):
        bench.apply(Node(metadata=Metadata(name=name)))
        assert delete(bench.store, node_key(name), pace=bench.pace).effect is Effect.DELETED
    snapshot = bench.store.read([List(AFFINITY), List(BLOCK)], deadline=bench.deadline)
    assert [record.key for record in snapshot.list(List(AFFINITY))] == [affinity_key("host:node-b", theirs.prefix)]
    left = {record.value.owner: record.value for record in snapshot.list(List(BLOCK))}
    assert left["host:node-b"] == theirs
    assert left[""].held() == used.held()
