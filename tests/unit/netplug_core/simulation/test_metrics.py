"""What is read off a simulated cluster: pools, borrowed addresses, and the blocks of each node."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.model import Attribute, Block, host_owner
from netplug_core.records import Create, Get, Update
from netplug_core.resources.ippool import IPPool
from netplug_core.simulation.simulator import ClusterMetrics, Distribution, MetricsReader
from netplug_core.testing.clock import ManualClock
from tests.harness.simulation import make_pool

MAIN, OTHER = make_pool("10.0.0.0/24", 26), make_pool("10.1.0.0/28", 30, "other")


def block(cidr: str, owner: str, *holders: str) -> Block:
    """A block of a node (or without an owner) with an address for each of some nodes."""
    made = Block.new(Prefix.parse(cidr), owner=host_owner(owner) if owner else "", now_ns=1)
    for ordinal, node in enumerate(holders):
        attribute = Attribute(handle=f"h{ordinal}", owner=(("node", node),))
        made = made.assign((Ordinal(ordinal),), attribute)
    return made


@pytest.fixture
def store() -> MemoryDatastore:
    store = MemoryDatastore(clock=ManualClock())
    values: list[IPPool | Block] = [
        MAIN,
        OTHER,
        block("10.0.0.0/26", "a", "a", "a", "b"),
        block("10.0.0.64/26", "a", "a"),
        block("10.0.0.128/26", "", "b"),
        block("10.1.0.0/30", "b", "b", "c", "c", "c"),
        block("10.9.0.0/26", "c", "c"),
    ]
    store.commit([Create(value.key, value) for value in values], deadline=Deadline.after(ManualClock(), 5))
    return store


def read(gauge: MetricsReader) -> ClusterMetrics:
    return gauge.read(deadline=Deadline.after(ManualClock(), 5))


def test_pools_are_counted_as_ipam_show_counts_them(store: MemoryDatastore) -> None:
    main, other = read(MetricsReader(store, ("a", "b", "c"))).pools
    assert (main.name, main.prefix, main.in_use, main.available) == ("main", MAIN.spec.prefix, 5, 251)
    assert (main.blocks, main.max_blocks, main.unaffined_blocks, main.borrowed) == (3, 4, 1, 1)
    assert (other.in_use, other.available, other.blocks, other.max_blocks, other.borrowed) == (4, 12, 1, 4, 3)


def test_blocks_of_a_node_are_counted_in_a_pool_and_in_all(store: MemoryDatastore) -> None:
    found = read(MetricsReader(store, ("a", "b", "c")))
    assert found.pools[0].blocks_per_node == Distribution(minimum=0, median=0, maximum=2)
    assert found.pools[1].blocks_per_node == Distribution(minimum=0, median=0, maximum=1)
    assert found.blocks_per_node == Distribution(minimum=1, median=1, maximum=2)


def test_the_blocks_of_no_pool_are_among_the_usages_alone(store: MemoryDatastore) -> None:
    found = read(MetricsReader(store, ("a",)))
    assert [usage.name for usage in found.usages] == ["main", "other", "orphaned allocation blocks"]
    assert [sample.name for sample in found.pools] == ["main", "other"]


def test_a_block_that_changed_is_looked_at_again(store: MemoryDatastore) -> None:
    gauge, deadline = MetricsReader(store, ("a", "b")), Deadline.after(ManualClock(), 5)
    assert read(gauge).pools[0].borrowed == 1
    assert read(gauge).pools[0].borrowed == 1
    key = block("10.0.0.64/26", "a").key
    record = store.read([Get(key)], deadline=deadline).find(key)
    assert record is not None
    lent = record.value.assign((Ordinal(9),), Attribute(handle="h9", owner=(("node", "b"),)))
    store.commit([Update(key, lent, record.revision)], deadline=deadline)
    assert read(gauge).pools[0].borrowed == 2


def test_a_pool_that_is_smaller_than_its_blocks_can_have_none() -> None:
    """A disabled pool may be."""
    store = MemoryDatastore(clock=ManualClock())
    small = make_pool("10.0.0.0/28", 26, is_disabled=True)
    store.commit([Create(small.key, small)], deadline=Deadline.after(ManualClock(), 5))
    (found,) = read(MetricsReader(store, ("a",))).pools
    assert (found.max_blocks, found.available) == (0, 16)
    assert evolve(found, in_use=4).utilization == 0.25
