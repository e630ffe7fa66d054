"""Offers the datastore, the dataplane, the orchestrator and the BGP daemon ``memory``, which live in one process."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from netplug_core import __version__
from netplug_core.hookspecs import BackendDescription, hookimpl

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.dataplane.bgp import BgpDaemon
    from netplug_core.dataplane.protocol import Dataplane
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.hookspecs import BgpContext
    from netplug_core.log import Log
    from netplug_core.orchestrator.model import Orchestrator
    from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "netplug_describe", "netplug_open_bgp", "netplug_open_dataplane", "netplug_open_datastore",
    "netplug_open_orchestrator",
]  # fmt: skip


@hookimpl
def netplug_open_datastore(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Datastore] | None:
    """A fresh, empty store that ends with the process."""
    del settings  # the memory store has no settings
    if name != "memory":
        return None
    from netplug_backends.memory.datastore import MemoryDatastore

    return nullcontext(MemoryDatastore(clock=clock))


@hookimpl
def netplug_open_dataplane(name: str, clock: Clock, log: Log) -> AbstractContextManager[Dataplane] | None:
    """A dataplane without a kernel."""
    del clock, log  # it neither waits nor warns
    if name != "memory":
        return None
    from netplug_backends.memory.dataplane import MemoryDataplane

    return nullcontext(MemoryDataplane())


@hookimpl
def netplug_open_orchestrator(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Orchestrator] | None:
    """An orchestrator of nothing, until something is put there."""
    del settings  # the memory store has no settings
    if name != "memory":
        return None
    from netplug_backends.memory.orchestrator import MemoryOrchestrator

    return nullcontext(MemoryOrchestrator(clock=clock))


@hookimpl
def netplug_open_bgp(name: str, context: BgpContext) -> AbstractContextManager[BgpDaemon] | None:
    """A BGP daemon that reaches no other one."""
    if name != "memory":
        return None
    from netplug_backends.memory.bgp import MemoryBgpNetwork

    del context  # it has no files
    return nullcontext(MemoryBgpNetwork().add())


@hookimpl
def netplug_describe() -> BackendDescription:
    """One of each."""
    return BackendDescription(
        version=__version__, names=dict.fromkeys(("datastore", "dataplane", "orchestrator", "bgp"), ("memory",))
    )
