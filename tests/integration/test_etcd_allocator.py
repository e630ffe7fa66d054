"""The allocator keeps its invariants over a real etcd: the machine that it passes over every store of ours.

Time is the machine's own, moved by hand; only the store is real.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from attrs import evolve

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Family
from netplug_core.clock import Clock, Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.check import RepairResult, check_ipam, repair
from netplug_core.ipam.allocation.request import ReleaseRequest, Shortfall
from netplug_core.ipam.model import Affinity, AffinityState, Block, affinities_query, affinity_key, handle_key
from netplug_core.ipam.outcome import CommitFull
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, Delete, Get, Update
from netplug_core.resources.ippool import ippool_key
from tests.harness.allocator.machine import allocator_machine
from tests.harness.example_counts import ETCD_EXAMPLES
from tests.harness.ipam import ipv4, make_pool, make_request
from tests.harness.local_stores import open_standalone_ipam
from tests.harness.servers.etcd import EtcdCluster, delete_all_entries, make_client, start_etcd

pytestmark = pytest.mark.etcd


class SharedEtcd:
    """The one that the stores are in: a machine is a class and takes no fixture."""

    etcd: EtcdCluster


@pytest.fixture(autouse=True, scope="module")
def _served() -> Iterator[None]:
    with start_etcd() as etcd:
        SharedEtcd.etcd = etcd
        yield


@contextmanager
def open_empty_store(clock: Clock) -> Iterator[Datastore]:
    """A store in which nothing is."""
    delete_all_entries(SharedEtcd.etcd)
    with closing(EtcdDatastore(make_client(SharedEtcd.etcd, clock=clock))) as store:
        yield store


TestOnEtcd = allocator_machine(open_empty_store, open_standalone_ipam).TestCase
TestOnEtcd.settings = ETCD_EXAMPLES


# --- more blocks than one transaction takes -------------------------------------------------------------------------

COUNT = 150
NODE_A = "host:node-a"


@pytest.fixture
def wide() -> Iterator[Datastore]:
    """150 blocks of a node, all empty, in a pool of their own; another pool is for everything else."""
    clock = SystemClock()
    with open_empty_store(clock) as store:
        small = make_pool("small", "10.0.0.0/20", 30)
        store.commit([Create(small.key, small)], deadline=Deadline.after(clock, 5))
        prefixes = [small.spec.prefix.subprefix(number, 30) for number in range(COUNT)]
        for prefix in prefixes:
            block = Block.new(prefix, owner=NODE_A, now_ns=clock.now_ns())
            confirmed = Affinity(state=AffinityState.CONFIRMED)
            writes = [Create(affinity_key(NODE_A, prefix), confirmed), Create(block.key, block)]
            store.commit(writes, deadline=Deadline.after(clock, 5))
        yield store


def assign(store: Datastore, handle: str, count: int = 1) -> int:
    clock = SystemClock()
    assignment = open_standalone_ipam(store, clock).assign(
        make_request(handle, ipv4(count)), NO_ENDPOINT, deadline=Deadline.after(clock, 30)
    )
    return len(assignment.addresses)


def test_a_handle_of_150_blocks_is_released(wide: Datastore) -> None:
    for total in range(60, 4 * COUNT + 1, 60):
        assert assign(wide, "wide", total) == total
    clock = SystemClock()
    released = open_standalone_ipam(wide, clock).release(
        ReleaseRequest(handle="wide"), NO_ENDPOINT, deadline=Deadline.after(clock, 30)
    )
    assert len(released.addresses) == 4 * COUNT
    assert wide.read([Get(handle_key("wide"))], deadline=Deadline.after(clock, 5)).find(handle_key("wide")) is None


def test_a_node_that_has_to_give_up_150_blocks_assigns_addresses(wide: Datastore) -> None:
    clock, key = SystemClock(), ippool_key("small")
    stored = wide.read([Get(key)], deadline=Deadline.after(clock, 5)).find(key)
    assert stored is not None
    elsewhere = evolve(stored.value, spec=evolve(stored.value.spec, node_selector="rack == 'b'"))
    main = make_pool("main", "10.1.0.0/24")
    deadline = Deadline.after(clock, 5)
    wide.commit([Update(key, elsewhere, stored.revision), Create(main.key, main)], deadline=deadline)
    left = []
    for number in range(9):
        assert assign(wide, f"h{number}") == 1
        listed = affinities_query(NODE_A, Family.IPV4)
        left.append(len(wide.read([listed], deadline=Deadline.after(clock, 5)).list(listed)))
    assert left == [131, 111, 91, 71, 51, 31, 11, 1, 1]


def test_a_request_over_150_blocks_takes_several_transactions_or_is_refused(wide: Datastore) -> None:
    clock = SystemClock()
    ipam, request = open_standalone_ipam(wide, clock), make_request("wide", ipv4(4 * COUNT))
    with pytest.raises(CommitFull):
        ipam.assign(request, NO_ENDPOINT, deadline=Deadline.after(clock, 30))
    accepting = evolve(request, shortfall=Shortfall.RETURN)
    assert len(ipam.assign(accepting, NO_ENDPOINT, deadline=Deadline.after(clock, 30)).addresses) == 4 * COUNT


def test_a_lost_handle_of_150_blocks_is_restored(wide: Datastore) -> None:
    for total in range(60, 4 * COUNT + 1, 60):
        assign(wide, "wide", total)
    clock, query = SystemClock(), Get(handle_key("wide"))
    stored = wide.read([query], deadline=Deadline.after(clock, 5)).find(query)
    assert stored is not None
    wide.commit([Delete(stored.key, stored.revision)], deadline=Deadline.after(clock, 5))
    for repairs in (1, 1, 0):
        deadline = Deadline.after(clock, 30)
        report = check_ipam(wide, clock=clock, deadline=deadline)
        attempts = tuple(repair(wide, report, chance=lambda: 0.5, deadline=deadline))
        assert [attempt.result for attempt in attempts] == [RepairResult.DONE] * repairs
    restored = wide.read([query], deadline=Deadline.after(clock, 5)).find(query)
    assert restored is not None
    assert restored.value == stored.value
