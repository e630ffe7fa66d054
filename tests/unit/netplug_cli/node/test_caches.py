"""What is shown of caches: their age, and the addresses of pools."""

from contextlib import ExitStack

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_cli.node.stores import OpenCaches, SharedDatastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.feed import follow
from netplug_core.flows.ipam.cache import FOLLOWED_KINDS
from netplug_core.ipam.outcome import FORGOTTEN_AFTER_S, RecordTrace
from netplug_core.records import Create
from netplug_core.resources.ippool import IPPool
from netplug_core.testing.clock import ManualClock

NAME = ("memory", "this process")


def test_the_age_is_that_of_the_last_confirmation() -> None:
    clock = ManualClock()
    shared, caches = SharedDatastore.of(MemoryDatastore(clock=clock), clock), OpenCaches(clock)
    assert shared.queue is not None
    assert shared.queue.cache is not None
    cache = shared.queue.cache
    with caches.used_by(shared):
        assert caches.ages() == {}
        follow(shared.datastore, cache, FOLLOWED_KINDS, deadline=Deadline.after(clock, 30))
        clock.sleep(7)
        assert caches.ages() == {NAME: 7}
        cache.confirm(dict.fromkeys(FOLLOWED_KINDS[1:], clock.monotonic()))
        assert caches.ages() == {NAME: 7}, "one kind is not confirmed"
        cache.lose(frozenset(FOLLOWED_KINDS))
        assert caches.ages() == {}
    assert caches.ages() == {}


def test_pools_that_are_followed_have_a_size() -> None:
    clock = ManualClock()
    shared, caches = SharedDatastore.of(MemoryDatastore(clock=clock), clock), OpenCaches(clock)
    pool = IPPool.for_prefix(Prefix.parse("10.65.0.0/24"), name="main")
    shared.datastore.commit([Create(pool.key, pool)], deadline=Deadline.after(clock, 1))
    assert shared.queue is not None
    assert shared.queue.cache is not None
    with caches.used_by(shared):
        assert caches.range_sizes() == {}
        follow(shared.datastore, shared.queue.cache, FOLLOWED_KINDS, deadline=Deadline.after(clock, 30))
        assert caches.range_sizes() == {(*NAME, "main"): 256}
        assert caches.block_sizes() == caches.in_use() == {(*NAME, "main"): 0}


def test_the_cache_of_an_ordered_store_is_left_out() -> None:
    clock = ManualClock()
    shared = SharedDatastore.of(MemoryDatastore(MemoryMode.ORDERED, clock=clock), clock)
    caches = OpenCaches(clock)
    with ExitStack() as stack:
        stack.enter_context(caches.used_by(shared))
        assert caches.ages() == caches.range_sizes() == {}


def test_records_that_were_passed_over_are_counted_by_kind_on_every_store() -> None:
    clock = ManualClock()
    entry = RecordTrace(kind="Node", record="Node(a)", problem="no JSON")
    for mode in (MemoryMode.ATOMIC, MemoryMode.ORDERED):
        shared, caches = SharedDatastore.of(MemoryDatastore(mode, clock=clock), clock), OpenCaches(clock)
        with caches.used_by(shared):
            assert caches.passed_over() == {}
            shared.memory.note((entry,), clock.monotonic())
            assert caches.passed_over() == {(*NAME, "Node"): 1}
            clock.sleep(FORGOTTEN_AFTER_S + 1)
            assert caches.passed_over() == {(*NAME, "Node"): 0}
        assert caches.passed_over() == {}
