"""What tests of the block allocator over a store share: a small cluster, and endpoints to settle with addresses."""

from __future__ import annotations

from netplug_core.datastore.interface import Atomicity
from netplug_core.errors import NetplugError
from netplug_core.ipam.interface import EndpointPart
from netplug_core.ipam.request import Assignment
from netplug_core.records import Create, Delete, Get, Kind, Snapshot, Write
from tests.unit.netplug_core.ipam.bench import Bench

POOL, SIX = "10.0.0.0/24", "fd00::/120"
NOTE: Kind[str] = Kind("Note", ("name",))


def part(key_name: str = "n") -> EndpointPart:
    """An endpoint that notes what it was told; idempotent."""
    key = NOTE.key(key_name)

    def writes(snapshot: Snapshot, assignment: Assignment | None) -> tuple[Write, ...]:
        found = snapshot.find(key)
        if assignment is None:
            return (Delete(key, found.revision),) if found else ()
        text = " ".join(str(assigned.address) for assigned in assignment.addresses)
        return () if found else (Create(key, text),)

    return EndpointPart(queries=(Get(key),), writes=writes)


def refusing(error: NetplugError) -> EndpointPart:
    return EndpointPart(queries=(), writes=lambda _snapshot, _assignment: error)


def cluster(atomicity: Atomicity = Atomicity.ATOMIC) -> Bench:
    """A cluster with one pool of each family, four blocks each."""
    made = Bench.new(atomicity)
    made.add_pool("main", POOL)
    made.add_pool("six", SIX)
    made.spent()
    return made
