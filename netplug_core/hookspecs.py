"""Every hook a backend may implement, and the two markers.

A backend is a module whose functions carry ``hookimpl``; ``registry`` registers exactly the one a configuration names
and wraps each hook in a typed function. A ``hookimpls`` module imports its client inside the hook's body, so that
registering costs nothing. Each hook answers None for a name that is not its own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pluggy import HookimplMarker, HookspecMarker

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.dataplane.protocol import Dataplane
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.ipam.protocol import IPAM
    from netplug_core.log import Log
    from netplug_core.orchestrator.protocol import Orchestrator
    from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "PROJECT",
    "hookimpl",
    "hookspec",
    "netplug_open_dataplane",
    "netplug_open_datastore",
    "netplug_open_ipam",
    "netplug_open_orchestrator",
]

PROJECT = "netplug"

hookspec = HookspecMarker(PROJECT)
hookimpl = HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def netplug_open_datastore(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Datastore] | None:
    """The datastore with that ``datastore_type``, opened for as long as the context lasts."""


@hookspec(firstresult=True)
def netplug_open_ipam(name: str, datastore: Datastore, clock: Clock) -> AbstractContextManager[IPAM] | None:
    """The IPAM with that ``ipam.type``."""


@hookspec(firstresult=True)
def netplug_open_dataplane(name: str, clock: Clock, log: Log) -> AbstractContextManager[Dataplane] | None:
    """The dataplane with that ``dataplane_options.type``."""


@hookspec(firstresult=True)
def netplug_open_orchestrator(
    name: str, settings: DatastoreSettings, clock: Clock
) -> AbstractContextManager[Orchestrator] | None:
    """Who schedules pods, by the name of its kind (``kubernetes``), reached as the settings say."""
