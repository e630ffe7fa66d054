"""The names of netplug's own backends, and how one is opened; a stand-in for a datastore that cannot be."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NoReturn, Protocol

from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Atomicity, DatastoreDescription
from netplug_core.errors import NetplugError
from netplug_core.records import Kind, Query, Revision, Write
from netplug_core.registry import Registry

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.dataplane.protocol import Dataplane
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.hookspecs import IPAMContext
    from netplug_core.ipam.protocol import IPAM
    from netplug_core.log import Log
    from netplug_core.orchestrator.model import Orchestrator
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["CATALOG", "Backends", "UnopenedDatastore", "open_datastore", "open_registry"]


# --- the catalog -----------------------------------------------------------------------------------------------------

CATALOG: Mapping[str, Mapping[str, str]] = {
    "datastore": {
        "etcdv3": "netplug_backends.etcdv3.hookimpls",
        "kubernetes": "netplug_backends.kubernetes.hookimpls",
        "memory": "netplug_backends.memory.hookimpls",
        "sqlite": "netplug_backends.sqlite.hookimpls",
    },
    "ipam": {
        "delegate": "netplug_backends.delegate.hookimpls",
        "host-local": "netplug_backends.hostlocal.hookimpls",
        "netplug-ipam": "netplug_backends.blocks.hookimpls",
    },
    "dataplane": {"linux": "netplug_backends.linux.hookimpls", "memory": "netplug_backends.memory.hookimpls"},
    "bgp": {"bird": "netplug_backends.bird.hookimpls", "memory": "netplug_backends.memory.hookimpls"},
    "host": {"host": "netplug_backends.host.hookimpls"},
    "orchestrator": {
        "kubernetes": "netplug_backends.kubernetes.hookimpls",
        "memory": "netplug_backends.memory.hookimpls",
    },
}


# --- backends --------------------------------------------------------------------------------------------------------


class Backends(Protocol):
    """What opens the interfaces of a CNI command, as :class:`~netplug_core.registry.Registry` does."""

    def open_datastore(self, name: str, settings: DatastoreSettings, clock: Clock) -> AbstractContextManager[Datastore]:
        """The datastore of that name."""
        ...

    def open_ipam(self, name: str, context: IPAMContext) -> AbstractContextManager[IPAM]:
        """The IPAM of that name."""
        ...

    def open_dataplane(self, name: str, clock: Clock, log: Log) -> AbstractContextManager[Dataplane]:
        """The dataplane of that name."""
        ...

    def open_orchestrator(
        self, name: str, settings: DatastoreSettings, clock: Clock
    ) -> AbstractContextManager[Orchestrator]:
        """The orchestrator of that name."""
        ...


def open_registry() -> Registry:
    """The backends of our catalog, in a process that resolves host names as every other program on the machine does.

    gRPC reads the variable when it is loaded. Its own resolver would ask name servers for names that are in
    ``/etc/hosts`` too, and wait for servers that do not answer.
    """
    os.environ.setdefault("GRPC_DNS_RESOLVER", "native")
    return Registry(CATALOG)


def open_datastore(settings: DatastoreSettings) -> AbstractContextManager[Datastore]:
    """The datastore that settings name.

    Raises:
        ConfigurationError: no backend has that name, or the backend cannot use its settings.
    """
    return open_registry().open_datastore(settings.type, settings, SystemClock())


# --- unopened --------------------------------------------------------------------------------------------------------


class UnopenedDatastore:
    """A datastore that could not be opened: each use of it raises the reason."""

    def __init__(self, name: str, error: NetplugError) -> None:
        self.description = DatastoreDescription(name=name, atomicity=Atomicity.ORDERED, location="")
        self._error = error

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> NoReturn:
        """Raise the reason."""
        del queries, deadline
        raise self._error

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> NoReturn:
        """Raise the reason."""
        del writes, deadline
        raise self._error

    def watch(self, start: Mapping[Kind[object], Revision], *, deadline: Deadline) -> NoReturn:
        """Raise the reason."""
        del start, deadline
        raise self._error
