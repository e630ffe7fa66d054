"""The endpoint of an IPAM without a datastore of its own: committed alone, behind the gate."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline, Pace
from netplug_core.errors import NetplugError, RequestError
from netplug_core.flows.ipam.service import require_ready, settle_endpoint
from netplug_core.ipam.allocation.request import Assignment
from netplug_core.ipam.protocol import EndpointWrites
from netplug_core.records import Create, Get, NeedMore, Snapshot, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.testing.clock import ManualClock

KEY = node_key("stands-for-an-endpoint")
QUERY = Get(KEY)


@pytest.fixture
def store() -> MemoryDatastore:
    return MemoryDatastore(clock=ManualClock())


def pace() -> Pace:
    clock = ManualClock()
    return Pace(clock=clock, deadline=Deadline.after(clock, 5), chance=lambda: 0.5)


def find(store: MemoryDatastore) -> object:
    return store.read((QUERY,), deadline=pace().deadline).find(QUERY)


def test_what_it_needs_is_read_before_it_is_committed(store: MemoryDatastore) -> None:
    def writes(snapshot: Snapshot, _assignment: Assignment | None) -> tuple[Write, ...] | NeedMore:
        if not snapshot.has(QUERY):
            return NeedMore((QUERY,))
        return (Create(KEY, Node(metadata=Metadata(name=KEY.name))),)

    settle_endpoint(store, EndpointWrites(queries=(), writes=writes), None, pace=pace())
    assert find(store) is not None


def test_its_refusal_is_raised_and_nothing_is_written(store: MemoryDatastore) -> None:
    def refuse(_snapshot: Snapshot, _assignment: Assignment | None) -> NetplugError:
        return RequestError("no")

    with pytest.raises(RequestError, match="no"):
        settle_endpoint(store, EndpointWrites(queries=(QUERY,), writes=refuse), None, pace=pace())
    assert find(store) is None
    require_ready(store, pace=pace())
