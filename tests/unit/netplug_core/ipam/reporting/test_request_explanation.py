"""What a request would get: the decision of the allocator, a lock and damaged records as an ADD meets them."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Family
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.allocation.pools import hashed_start
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Shortfall, Specific
from netplug_core.ipam.outcome import NoPoolServes
from netplug_core.ipam.reporting.explanation import RequestExplanation, explain_request, request_queries
from netplug_core.records import Create, Malformed, NeedMore
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse
from netplug_core.testing.faults import DamagedDatastore
from tests.harness.resources import ResourceHarness, make_pool

REQUEST = AssignRequest(
    handle=None,
    node="a",
    wanted=(Automatic(family=Family.IPV4),),
    use=AllowedUse.WORKLOAD,
    shortfall=Shortfall.REFUSE,
)


@pytest.fixture
def harness() -> ResourceHarness:
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    harness.create(make_pool("10.0.0.0/26", "four"))
    return harness


def explain(
    harness: ResourceHarness, request: AssignRequest = REQUEST, store: Datastore | None = None
) -> RequestExplanation:
    store = store or harness.store
    snapshot = store.read(request_queries(request), deadline=harness.deadline)
    while isinstance(found := explain_request(snapshot, request, 1, hashed_start), NeedMore):
        snapshot = snapshot.merged(store.read(found.queries, deadline=harness.deadline))
    return found


def test_a_request_that_can_be_served_gets_its_address_and_the_trace(harness: ResourceHarness) -> None:
    found = explain(harness)
    assert (found.addresses, found.refusal) == ((Address.parse("10.0.0.0"),), None)
    assert list(map(str, found.trace)) == [
        "IPPool four (10.0.0.0/26) may serve",
        "block 10.0.0.0/26 was claimed",
    ]


def test_a_refusal_is_the_error_of_the_allocator(harness: ResourceHarness) -> None:
    found = explain(harness, evolve(REQUEST, wanted=(Automatic(family=Family.IPV6),)))
    assert found.addresses == ()
    assert isinstance(found.refusal, NoPoolServes)


def test_a_locked_datastore_refuses_first(harness: ResourceHarness) -> None:
    spec = ClusterInformationSpec(is_datastore_ready=False)
    harness.put(Create(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec)))
    assert "spec.datastoreReady is false: pod networking is locked" in str(explain(harness).refusal)


def test_a_damaged_block_refuses_a_request_for_an_address_of_it(harness: ResourceHarness) -> None:
    from netplug_core.addressing import Prefix
    from netplug_core.ipam.model import Block

    block = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:b", now_ns=1)
    harness.put(Create(block.key, block))
    store = DamagedDatastore(harness.store, damage={block.key: b"{"})
    found = explain(harness, evolve(REQUEST, wanted=(Specific(address=Address.parse("10.0.0.3")),)), store)
    assert isinstance(found.refusal, Malformed)
