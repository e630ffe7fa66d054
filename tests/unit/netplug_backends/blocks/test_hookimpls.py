"""The registry finds the block allocator by its name."""

from typing import NoReturn

import pytest

from netplug_backends.blocks import hookimpls
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.clock import Deadline
from netplug_core.datastore.batch import RequestQueue
from netplug_core.flows.ipam.cache import make_node_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.hookspecs import IPAMContext
from netplug_core.testing.clock import ManualClock


def test_netplug_ipam_is_the_block_allocator() -> None:
    clock = ManualClock()
    store = MemoryDatastore(clock=clock)
    context = IPAMContext(datastore=store, clock=clock, chance=lambda: 0.25)
    opened = hookimpls.netplug_open_ipam("netplug-ipam", context)
    assert opened is not None
    with opened as ipam:
        assert isinstance(ipam, BlockIPAM)
        assert ipam.datastore is store
        assert ipam.clock is clock
        assert ipam.chance() == 0.25


def test_with_a_queue_no_lock_keeps_calls_apart_that_could_share_a_commit() -> None:
    clock = ManualClock()
    store = MemoryDatastore(clock=clock)
    queue = RequestQueue(store=store)

    def lock(_deadline: Deadline) -> NoReturn:
        raise AssertionError("it is taken")

    cache = make_node_cache(store, clock=clock)
    context = IPAMContext(datastore=store, clock=clock, chance=lambda: 0.25, lock=lock, queue=queue, cache=cache)
    opened = hookimpls.netplug_open_ipam("netplug-ipam", context)
    assert opened is not None
    with opened as ipam:
        assert isinstance(ipam, BlockIPAM)
        assert (ipam.queue, ipam.cache) == (queue, cache)
        with ipam.lock(Deadline.after(clock, 1)):
            pass


@pytest.mark.parametrize("name", ["host-local", "netplug", ""])
def test_other_names_are_not_opened(name: str) -> None:
    clock = ManualClock()
    context = IPAMContext(datastore=MemoryDatastore(clock=clock), clock=clock, chance=lambda: 0.5)
    assert hookimpls.netplug_open_ipam(name, context) is None
