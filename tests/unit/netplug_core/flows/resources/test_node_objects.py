"""What goes with a node: its own objects, and none of another node."""

from __future__ import annotations

import pytest
from attrs import define, evolve

from netplug_core.addressing import Prefix
from netplug_core.errors import DatastoreError
from netplug_core.flows.resources.delete import delete, delete_node_objects
from netplug_core.flows.resources.outcome import ResourceOutdated
from netplug_core.ipam.model import AFFINITY, Affinity, AffinityState, Block, affinity_key
from netplug_core.records import Create, Delete, Key, List, NotSupported, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.hostendpoint import HostEndpoint
from netplug_core.resources.kinds import KINDS, Resource, key_of
from netplug_core.resources.node import NODE as NODE_KIND
from netplug_core.testing.faults import DamagedDatastore, LostReply, RunBefore
from tests.harness.resources import (
    BGP_CONFIGURATION,
    BGP_PEER,
    HOST_ENDPOINT,
    NODE,
    NODE_CONFIGURATION,
    ResourceHarness,
)
from tests.harness.stores import StoreWrapper

OWN_PEER = evolve(BGP_PEER, metadata=Metadata(name="own"), spec=evolve(BGP_PEER.spec, node="node-a", node_selector=""))
OWN_BGP = evolve(BGP_CONFIGURATION, metadata=Metadata(name="node.node-a"))
OWN = (HOST_ENDPOINT, OWN_BGP, OWN_PEER, NODE_CONFIGURATION)
OTHERS: tuple[Resource, ...] = (
    BGP_CONFIGURATION,
    BGP_PEER,
    evolve(HOST_ENDPOINT, metadata=Metadata(name="b"), spec=evolve(HOST_ENDPOINT.spec, node="node-b")),
    evolve(NODE_CONFIGURATION, metadata=Metadata(name="node.node-b")),
)


@define
class Refusing(StoreWrapper):
    """A store whose cluster deletes its nodes by itself."""

    def find_refusal(self, write: Write) -> DatastoreError | None:
        refused = isinstance(write, Delete) and write.key == key_of(NODE)
        return NotSupported("Delete", NODE_KIND, "the cluster deletes its nodes") if refused else None


def put(harness: ResourceHarness, *resources: Resource) -> None:
    harness.put(*(Create(key_of(resource), resource) for resource in resources))


def stored(harness: ResourceHarness) -> set[Key[Resource]]:
    queries = [List(row.kind) for row in KINDS]
    snapshot = harness.store.read(queries, deadline=harness.deadline)
    return {record.key for query in queries for record in snapshot.list(query)}


def test_a_node_takes_its_own_objects_with_it_and_no_others(harness: ResourceHarness) -> None:
    put(harness, NODE, *OWN, *OTHERS)
    warnings = delete(harness.store, key_of(NODE), pace=harness.pace).warnings
    assert stored(harness) == set(map(key_of, OTHERS))
    assert warnings[0] == "HostEndpoint(node-a-lan): it belonged to the node node-a alone, and is deleted too"
    assert {warning.partition(":")[0] for warning in warnings} == {str(key_of(resource)) for resource in OWN}


def test_every_kind_with_objects_of_nodes_is_among_them() -> None:
    named = {row.kind for row in KINDS if row.has_node_objects}
    assert named <= {key_of(resource).kind for resource in OWN}


def test_a_damaged_node_takes_them_too(harness: ResourceHarness) -> None:
    put(harness, NODE, *OWN)
    store = DamagedDatastore(harness.store)
    store.damage[key_of(NODE)] = b"{"
    *warnings, last = delete(store, key_of(NODE), pace=harness.pace).warnings
    assert stored(harness) == set()
    assert len(warnings) == len(OWN)
    assert last.startswith("Node(node-a): it was damaged")


def test_what_cannot_be_read_stays_and_is_named(harness: ResourceHarness) -> None:
    """Whose a host endpoint is stands in it, so a damaged one may be of another node."""
    put(harness, *OWN)
    store = DamagedDatastore(harness.store)
    for damaged in (HOST_ENDPOINT, OWN_BGP):
        store.damage[key_of(damaged)] = b"{"
    warnings = delete_node_objects(store, "node-a", pace=harness.pace)
    assert stored(harness) == {key_of(HOST_ENDPOINT), key_of(OWN_BGP)}
    assert [warning.partition(",")[0] for warning in warnings[2:]] == [
        "HostEndpoint(node-a-lan): it stays",
        "BGPConfiguration(node.node-a): it stays",
    ]


def test_one_that_was_given_to_another_node_meanwhile_stays(harness: ResourceHarness) -> None:
    put(harness, HOST_ENDPOINT)
    moved = evolve(HOST_ENDPOINT, spec=evolve(HOST_ENDPOINT.spec, node="node-b"))
    store = harness.with_faults(commit_1=RunBefore(lambda: harness.apply(moved)))
    assert delete_node_objects(store, "node-a", pace=harness.pace) == ()
    (left,) = stored(harness)
    found = harness.find(left)
    assert found is not None
    assert isinstance(found.value, HostEndpoint)
    assert found.value.spec.node == "node-b"


def test_one_that_is_gone_after_a_lost_reply_is_no_error(harness: ResourceHarness) -> None:
    put(harness, HOST_ENDPOINT)
    assert delete_node_objects(harness.with_faults(commit_1=LostReply()), "node-a", pace=harness.pace) == ()
    assert stored(harness) == set()


def test_a_revision_that_does_not_fit_keeps_everything(harness: ResourceHarness) -> None:
    put(harness, NODE, *OWN)
    damaged = DamagedDatastore(harness.store)
    damaged.damage[key_of(NODE)] = b"{"
    for store in (harness.store, damaged):
        with pytest.raises(ResourceOutdated):
            delete(store, key_of(NODE), revision="0", pace=harness.pace)
    assert stored(harness) == {key_of(resource) for resource in (NODE, *OWN)}


def test_a_store_that_deletes_no_nodes_loses_nothing(harness: ResourceHarness) -> None:
    """The nodes of Kubernetes: blocks of a node that runs must not lose their owner for a deletion that is refused."""
    put(harness, NODE, *OWN)
    block = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:node-a", now_ns=1)
    affinity = affinity_key(block.owner, block.prefix)
    harness.put(Create(affinity, Affinity(state=AffinityState.CONFIRMED)), Create(block.key, block))
    damaged = DamagedDatastore(harness.store)
    damaged.damage[key_of(NODE)] = b"{"
    for store in (harness.store, damaged):
        with pytest.raises(NotSupported, match="the cluster deletes its nodes"):
            delete(Refusing(store), key_of(NODE), pace=harness.pace)
    assert stored(harness) == {key_of(resource) for resource in (NODE, *OWN)}
    assert harness.store.read([List(AFFINITY)], deadline=harness.deadline).list(List(AFFINITY))[0].key == affinity
