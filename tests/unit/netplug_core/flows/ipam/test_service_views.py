"""An allocator that remembers a store whose endpoints are views of pods: what it reads."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.flows.ipam.cache import make_node_cache
from netplug_core.ipam.allocation.request import Assignment, ReleaseRequest
from netplug_core.ipam.protocol import EndpointWrites
from netplug_core.records import Create, Delete, Get, Kind, Snapshot, Update, Write
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from tests.harness.ipam import IPAMHarness, make_request
from tests.harness.ipam_service import make_cluster

POD_ENDPOINT = Kind[str](WORKLOAD_ENDPOINT.name, WORKLOAD_ENDPOINT.segments).key("shop", "web")


def view_part() -> EndpointWrites:
    """The endpoint of a pod that exists: an ADD updates it, a DEL deletes it if it has this call's text."""

    def writes(snapshot: Snapshot, assignment: Assignment | None) -> tuple[Write, ...]:
        found = snapshot.find(POD_ENDPOINT)
        if found is None or (assignment is None and found.value != "ours"):
            return ()
        update = Update(POD_ENDPOINT, "ours", found.revision)
        return (Delete(POD_ENDPOINT, found.revision) if assignment is None else update,)

    return EndpointWrites(queries=(Get(POD_ENDPOINT),), writes=writes)


@pytest.fixture
def views() -> IPAMHarness:
    """A cluster whose endpoints are views of pods, with one pod, and a resident process that has a block."""
    harness = make_cluster(MemoryMode.ORDERED)
    harness.store.description = evolve(harness.store.description, endpoints=EndpointStorage.PODS)
    harness.cache = make_node_cache(harness.store, clock=harness.clock)
    harness.store.commit([Create(POD_ENDPOINT, "free")], deadline=harness.deadline)
    harness.assign(make_request("first"))
    harness.take_call_counts()
    return harness


def test_an_endpoint_that_was_read_for_the_call_is_not_read_for_its_commit(views: IPAMHarness) -> None:
    assert views.cache is not None
    views.cache.read(views.store, [Get(POD_ENDPOINT)], deadline=views.deadline)
    views.take_call_counts()
    views.assign(make_request("h"), part=view_part())
    assert views.take_call_counts() == (0, 1)
    assert views.cache.lookup([Get(POD_ENDPOINT)])[1], "it is not kept: others change the pod"


def test_an_endpoint_that_was_changed_since_it_was_read_is_read_again(views: IPAMHarness) -> None:
    assert views.cache is not None
    views.cache.read(views.store, [Get(POD_ENDPOINT)], deadline=views.deadline)
    change_endpoint(views, "theirs")
    views.assign(make_request("h"), part=view_part())
    assert stored_endpoint(views) == "ours"


def test_a_release_reads_the_endpoint(views: IPAMHarness) -> None:
    assert views.cache is not None
    views.assign(make_request("h"), part=view_part())
    views.cache.read(views.store, [Get(POD_ENDPOINT)], deadline=views.deadline)
    change_endpoint(views, "theirs")
    freed = views.ipam().release(ReleaseRequest(handle="h"), view_part(), deadline=views.deadline)
    assert len(freed.addresses) == 1
    assert stored_endpoint(views) == "theirs"


def change_endpoint(harness: IPAMHarness, text: str) -> None:
    found = harness.store.read([Get(POD_ENDPOINT)], deadline=harness.deadline).find(POD_ENDPOINT)
    assert found is not None
    write: Write = Update(found.key, text, found.revision)
    harness.store.commit([write], deadline=harness.deadline)


def stored_endpoint(harness: IPAMHarness) -> object:
    found = harness.store.read([Get(POD_ENDPOINT)], deadline=harness.deadline).find(POD_ENDPOINT)
    return None if found is None else found.value
