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
from netplug_core.ipam.model import AFFINITY, BLOCK, Affinity, AffinityState, Attribute, Block, affinity_key
from netplug_core.records import Create, List
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.node import Node, node_key
from netplug_core.testing.faults import LostReply, RunBefore
from tests.harness.resources import CONFIGURATION, NODE, RESERVATION, ResourceHarness, make_pool


def test_delete_removes_and_a_second_one_finds_nothing(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    assert harness.delete("p") == Outcome(key=ippool_key("p"), effect=Effect.DELETED)
    assert harness.names() == []
    with pytest.raises(ResourceMissing, match=r"^resource does not exist: IPPool\(p\)$"):
        harness.delete("p")


def test_delete_says_how_many_addresses_are_still_held(harness: ResourceHarness) -> None:
    harness.create(make_pool())
    inside = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1)
    inside = inside.assign((Ordinal(0), Ordinal(5)), Attribute(handle="h"))
    outside = Block.new(Prefix.parse("10.9.0.0/26"), owner="host:a", now_ns=1)
    outside = outside.assign((Ordinal(0),), Attribute(handle="h"))
    harness.create(make_pool("10.1.0.0/16", "other"))
    harness.put(Create(inside.key, inside), Create(outside.key, outside))
    (warning,) = harness.delete("p").warnings
    assert warning == "IPPool(p): addresses of it that are still held: 2; their workloads keep them"


@pytest.mark.parametrize("commit", ["commit_1", "commit_2"])
def test_delete_after_a_lost_reply_is_done(harness: ResourceHarness, commit: str) -> None:
    harness.create(make_pool())
    assert harness.delete("p", store=harness.with_faults(**{commit: LostReply()})).effect is Effect.DELETED
    assert harness.names() == []


def test_delete_leaves_a_pool_that_took_the_name_meanwhile(harness: ResourceHarness) -> None:
    harness.create(make_pool())

    def replace() -> None:
        harness.delete("p")
        harness.create(make_pool("10.9.0.0/16"))

    assert harness.delete("p", store=harness.with_faults(commit_2=RunBefore(replace))).effect is Effect.DELETED
    assert str(harness.stored().value.spec.prefix) == "10.9.0.0/16"


@pytest.mark.parametrize("resource", [NODE, RESERVATION, CONFIGURATION])
def test_delete_honours_a_resource_version(harness: ResourceHarness, resource: Resource) -> None:
    key = key_of(resource)
    harness.create(resource)
    first = harness.find(key)
    assert first is not None
    harness.apply(evolve(resource, metadata=evolve(resource.metadata, annotations=(("a", "b"),))))
    with pytest.raises(ResourceOutdated):
        delete(harness.store, key, revision=first.revision, pace=harness.pace)
    latest = harness.find(key)
    assert latest is not None
    assert delete(harness.store, key, revision=latest.revision, pace=harness.pace).effect is Effect.DELETED


def test_a_change_between_looking_and_deleting_is_seen(harness: ResourceHarness) -> None:
    harness.create(NODE)
    first = harness.find(key_of(NODE))
    assert first is not None
    relabelled = evolve(NODE, metadata=Metadata(name="node-a", labels=(("rack", "b"),)))
    store = harness.with_faults(commit_1=RunBefore(lambda: harness.apply(relabelled)))
    with pytest.raises(ResourceOutdated):
        delete(store, key_of(NODE), revision=first.revision, pace=harness.pace)
    assert harness.find(key_of(NODE)) is not None


def test_a_node_that_goes_gives_up_its_blocks_and_nobodys_addresses(harness: ResourceHarness) -> None:
    """I-64 of the catalogue for one without blocks."""
    harness.create(NODE)
    mine = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:node-a", now_ns=1)
    used = mine.assign((Ordinal(1),), Attribute(handle="h"))
    theirs = Block.new(Prefix.parse("10.0.0.64/26"), owner="host:node-b", now_ns=1)
    state = Affinity(state=AffinityState.CONFIRMED)
    for block in (used, theirs):
        harness.put(Create(affinity_key(block.owner, block.prefix), state), Create(block.key, block))
    for name in ("node-a", "node-c"):
        harness.apply(Node(metadata=Metadata(name=name)))
        assert delete(harness.store, node_key(name), pace=harness.pace).effect is Effect.DELETED
    snapshot = harness.store.read([List(AFFINITY), List(BLOCK)], deadline=harness.deadline)
    assert [record.key for record in snapshot.list(List(AFFINITY))] == [affinity_key("host:node-b", theirs.prefix)]
    left = {record.value.owner: record.value for record in snapshot.list(List(BLOCK))}
    assert left["host:node-b"] == theirs
    assert left[""].held() == used.held()
