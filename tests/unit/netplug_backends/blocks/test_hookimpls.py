"""The block allocator is found by its name, through the registry."""

import pytest

from netplug_backends.blocks import hookimpls
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.testing.clock import ManualClock


def test_netplug_ipam_is_the_block_allocator() -> None:
    clock = ManualClock()
    store = MemoryDatastore(clock=clock)
    opened = hookimpls.netplug_open_ipam("netplug-ipam", store, clock)
    assert opened is not None
    with opened as ipam:
        assert isinstance(ipam, BlockIPAM)
        assert ipam.datastore is store
        assert 0 <= ipam.chance() < 1


@pytest.mark.parametrize("name", ["host-local", "netplug", ""])
def test_other_names_are_somebody_elses(name: str) -> None:
    clock = ManualClock()
    assert hookimpls.netplug_open_ipam(name, MemoryDatastore(clock=clock), clock) is None
