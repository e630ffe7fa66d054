"""Composition root of the executables ``netplug`` and ``netplug-ipam``: the file on a host calls ``main``.

Nothing but the cache of compiled methods is imported here before a command needs more, so that VERSION stays cheap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from netplug_cli.cni.method_cache import use_cache

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.flows.world import CNIWorld
    from netplug_core.log import Log
    from netplug_core.netconf.model import NetConf
    from netplug_core.registry import Registry
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["main", "open_cni_world"]


def main() -> int:
    """Serve one call of a runtime; return the exit status of the process."""
    use_cache()
    from netplug_cli.cni.main import serve

    return serve(open_cni_world, is_own_namespace=_is_own_namespace)


@contextmanager
def open_cni_world(netconf: NetConf, log: Log) -> Iterator[CNIWorld]:
    """Open everything that a CNI command acts through, for as long as the context lasts.

    A datastore with a file that is gone says so when it is used.

    Raises:
        ConfigurationError: no backend has the configured name, or a backend cannot use its settings.
    """
    from functools import partial
    from random import random

    from netplug_backends.host.machine import HostMachine, SystemClock
    from netplug_cli.wiring.backends import open_registry
    from netplug_core.flows.locks import CallLocks
    from netplug_core.flows.world import CNIWorld
    from netplug_core.hookspecs import IPAMContext

    registry, clock, host = open_registry(), SystemClock(), HostMachine()
    locks = CallLocks(host=host, clock=clock, log=log, path=netconf.ipam_lock_file)
    with ExitStack() as stack:
        store = _open_datastore(stack, registry, netconf.datastore, clock)
        context = IPAMContext(
            datastore=store, clock=clock, chance=random, lock=locks.host_lock, netconf=netconf.own_keys
        )
        ipam = stack.enter_context(registry.open_ipam("netplug-ipam", context))
        dataplane = stack.enter_context(registry.open_dataplane("linux", clock, log))
        yield CNIWorld(
            datastore=store,
            ipam=ipam,
            dataplane=dataplane,
            host=host,
            locks=locks,
            clock=clock,
            log=log,
            open_orchestrator=partial(registry.open_orchestrator, "kubernetes", netconf.datastore, clock)
            if netconf.has_orchestrator
            else None,
        )


def _open_datastore(stack: ExitStack, registry: Registry, settings: DatastoreSettings, clock: Clock) -> Datastore:
    """The configured datastore, until the stack is closed.

    A DEL cleans the node even if a file of the configuration is gone; any other command fails at first use.
    """
    from netplug_cli.wiring.backends import UnopenedDatastore
    from netplug_core.errors import UnusableFile

    try:
        return stack.enter_context(registry.open_datastore(settings.type, settings, clock))
    except UnusableFile as error:
        return UnopenedDatastore(settings.type, error)


def _is_own_namespace(path: str) -> bool:
    from netplug_backends.linux.netns import is_own_namespace

    return is_own_namespace(path)
