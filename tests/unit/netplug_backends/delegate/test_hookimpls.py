"""The hook of the IPAM that executes a program."""

from netplug_backends.delegate.hookimpls import netplug_describe, netplug_open_ipam
from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.hookspecs import IPAMContext
from netplug_core.testing.clock import ManualClock


def test_without_a_call_of_a_runtime_there_is_none() -> None:
    """The catalogue's test opens it with one."""
    clock = ManualClock()
    context = IPAMContext(datastore=MemoryDatastore(clock=clock), clock=clock, chance=lambda: 0.5)
    assert netplug_open_ipam("delegate", context) is None
    assert netplug_describe().names == {"ipam": ("delegate",)}
