"""What tests of the block allocator over a store share: a small cluster, and endpoints to settle with addresses."""

from __future__ import annotations

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.errors import NetplugError
from netplug_core.ipam.allocation.request import Assignment
from netplug_core.ipam.protocol import EndpointWrites
from netplug_core.records import Create, Delete, Get, Kind, Snapshot, Write
from tests.harness.ipam import IPAMHarness

IPV4_POOL, IPV6_POOL = "10.0.0.0/24", "fd00::/120"
NOTE_KIND: Kind[str] = Kind("Note", ("name",))


def note_endpoint_part(key_name: str = "n") -> EndpointWrites:
    """An endpoint whose record has the assigned addresses; idempotent."""
    key = NOTE_KIND.key(key_name)

    def writes(snapshot: Snapshot, assignment: Assignment | None) -> tuple[Write, ...]:
        found = snapshot.find(key)
        if assignment is None:
            return (Delete(key, found.revision),) if found else ()
        text = " ".join(str(assigned.address) for assigned in assignment.addresses)
        return () if found else (Create(key, text),)

    return EndpointWrites(queries=(Get(key),), writes=writes)


def refusing_endpoint_part(error: NetplugError) -> EndpointWrites:
    return EndpointWrites(queries=(), writes=lambda _snapshot, _assignment: error)


def make_cluster(mode: MemoryMode = MemoryMode.ATOMIC) -> IPAMHarness:
    """A cluster with one pool of each family, four blocks each."""
    harness = IPAMHarness.new(mode)
    harness.add_pool("main", IPV4_POOL)
    harness.add_pool("six", IPV6_POOL)
    harness.take_call_counts()
    return harness
