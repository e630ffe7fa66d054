"""The composition root: settings to opened interfaces. The only module of the executables that names a backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from netplug_backends.catalog import CATALOG
from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_core.flows.world import World
from netplug_core.log import Log
from netplug_core.registry import Registry

if TYPE_CHECKING:
    from netplug_backends.kubernetes.lab import LabCluster
    from netplug_backends.linux.pinned_namespaces import PinnedNamespaces
    from netplug_core.clock import Clock
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.ipam.protocol import IPAM
    from netplug_core.netconf.model import NetConf
    from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "install_executables",
    "open_cni_world",
    "open_datastore",
    "open_ipam",
    "open_lab_cluster",
    "open_memory_datastore",
    "pinned_namespaces",
    "server_addresses",
    "system_clock",
    "uninstall_executables",
]


@contextmanager
def open_cni_world(netconf: NetConf, log: Log) -> Iterator[World]:
    """Everything that a CNI command acts through, opened for as long as the context lasts.

    Raises:
        ConfigurationError: a name that nobody offers, or settings that its backend cannot use.
    """
    registry, clock = _open_registry(), SystemClock()
    with ExitStack() as stack:
        settings = netconf.datastore
        store = stack.enter_context(registry.open_datastore(settings.type, settings, clock))
        ipam = stack.enter_context(registry.open_ipam("netplug-ipam", store, clock))
        dataplane = stack.enter_context(registry.open_dataplane("linux", clock, log))
        yield World(datastore=store, ipam=ipam, dataplane=dataplane, host=HostMachine(), clock=clock, log=log)


def open_datastore(settings: DatastoreSettings) -> AbstractContextManager[Datastore]:
    """The datastore that some settings name, for ``netplugctl``.

    Raises:
        ConfigurationError: a name that nobody offers, or settings that its backend cannot use.
    """
    return _open_registry().open_datastore(settings.type, settings, system_clock())


def open_memory_datastore(clock: Clock) -> AbstractContextManager[Datastore]:
    """A datastore in the memory of this process that holds nothing, in a time of its own: for simulation."""
    from netplug_core.settings.model import DatastoreSettings

    return _open_registry().open_datastore("memory", DatastoreSettings(type="memory"), clock)


def open_ipam(store: Datastore) -> AbstractContextManager[IPAM]:
    """What assigns and releases the addresses of an open datastore, for the lab."""
    return _open_registry().open_ipam("netplug-ipam", store, system_clock())


def _open_registry() -> Registry:
    """Whoever offers backends, in a process of our own, where names of hosts are found as by everybody on the machine.

    gRPC, which reads this when it is loaded, would ask name servers also for what ``/etc/hosts`` has, and wait for
    those that are silent.
    """
    os.environ.setdefault("GRPC_DNS_RESOLVER", "native")
    return Registry(CATALOG)


def install_executables(bin_dir: str, report: Callable[[str], None]) -> None:
    """Write the CNI executables into a folder of this host and see them run."""
    from netplug_backends.host.install import install

    install(bin_dir, report)


def uninstall_executables(bin_dir: str, report: Callable[[str], None]) -> None:
    """Remove the CNI executables from a folder of this host."""
    from netplug_backends.host.install import uninstall

    uninstall(bin_dir, report)


def pinned_namespaces() -> PinnedNamespaces:
    """The network namespaces of this machine that outlive a process, for the lab."""
    from netplug_backends.linux.pinned_namespaces import PinnedNamespaces

    return PinnedNamespaces()


def server_addresses(settings: DatastoreSettings) -> tuple[tuple[str, int], ...]:
    """Host and port of each server of etcd or Kubernetes that settings name, for the lab.

    Raises:
        ConfigurationError: they name none.
    """
    if settings.is_kubernetes:
        from netplug_backends.kubernetes.lab import get_api_address

        return (get_api_address(settings.kubernetes),)
    from netplug_backends.etcdv3.endpoints import parse_endpoints

    return tuple((member.host, member.port) for member in parse_endpoints(settings.etcd_endpoints))


def open_lab_cluster(settings: DatastoreSettings, lab_uid: str) -> AbstractContextManager[LabCluster]:
    """The API server that settings lead to, for a lab's own node and pods."""
    from netplug_backends.kubernetes.lab import open_cluster

    return open_cluster(settings, lab_uid, clock=system_clock())


def system_clock() -> SystemClock:
    """The machine's own time."""
    return SystemClock()
