"""A cluster in which every block is claimed and nearly all are full, on each store: what a full node's request reads.

The last free address is found and given once; after that requests are refused. Each takes a bounded number of reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Shortfall
from netplug_core.ipam.model import (
    BLOCK,
    FULL,
    Affinity,
    AffinityState,
    Attribute,
    Block,
    affinity_key,
    block_key,
    blocks_path,
    host_owner,
)
from netplug_core.ipam.outcome import PoolsExhausted
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, List, Write
from netplug_core.resources.ippool import AllowedUse, ippool_key
from tests.harness.datastores import STORES, open_empty_store
from tests.harness.ipam import make_pool
from tests.harness.stores import RecordingStore

POOL = Prefix.parse("10.0.0.0/24")
BLOCK_COUNT, LENGTH = 128, 31
WITH_ROOM = 77
WRITES_PER_COMMIT = 60
MAX_READS = 8


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Datastore]:
    """Each of the stores in turn, with a pool all of whose blocks are claimed and but for one are full."""
    with open_empty_store(request.param, request, tmp_path) as opened:
        fill(opened)
        yield opened


def deadline() -> Deadline:
    return Deadline.after(SystemClock(), 60)


def fill(store: Datastore) -> None:
    writes: list[Write] = [Create(ippool_key("main"), make_pool("main", str(POOL), LENGTH))]
    now_ns = SystemClock().now_ns()
    for number in range(BLOCK_COUNT):
        prefix, owner = POOL.subprefix(number, LENGTH), host_owner(f"node-{number}")
        block = Block.new(prefix, owner=owner, now_ns=now_ns)
        held = block.free[:1] if number == WITH_ROOM else block.free
        affinity = Affinity(state=AffinityState.CONFIRMED)
        writes.append(Create(affinity_key(owner, prefix), affinity))
        writes.append(Create(block_key(prefix), block.assign(held, Attribute(handle=f"pod-{number}"))))
    for first in range(0, len(writes), WRITES_PER_COMMIT):
        store.commit(writes[first : first + WRITES_PER_COMMIT], deadline=deadline())


def test_the_last_address_is_found_and_then_the_cluster_is_full(store: Datastore) -> None:
    recorded = RecordingStore(store)
    ipam = BlockIPAM(datastore=recorded, clock=SystemClock(), chance=lambda: 0.5)

    def assign(handle: str) -> tuple[str, ...]:
        request = AssignRequest(
            handle=handle, node="node-full", wanted=(Automatic(family=POOL.family),), use=AllowedUse.WORKLOAD,
            shortfall=Shortfall.REFUSE,
        )  # fmt: skip
        assignment = ipam.assign(request, NO_ENDPOINT, deadline=deadline())
        return tuple(str(assigned.address) for assigned in assignment.addresses)

    assert assign("pod-last") == (str(POOL.subprefix(WITH_ROOM, LENGTH).last),)
    assert len(recorded.reads) <= MAX_READS
    recorded.reads.clear()
    with pytest.raises(PoolsExhausted):
        assign("pod-too-many")
    assert len(recorded.reads) <= MAX_READS


def test_full_blocks_are_listed_by_their_keys(store: Datastore) -> None:
    page = List(BLOCK, blocks_path(POOL.family), keys_only_if=FULL)
    found = store.read([page], deadline=deadline())
    with_room = block_key(POOL.subprefix(WITH_ROOM, LENGTH))
    assert [record.key for record in found.list(page)] == [with_room]
    all_keys = {block_key(POOL.subprefix(number, LENGTH)) for number in range(BLOCK_COUNT)}
    assert set(found.keys(page)) == all_keys - {with_room}
