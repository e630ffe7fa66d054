"""Composition root of the executables ``netplug`` and ``netplug-ipam``: the file on a host calls ``main``.

Nothing but the cache of compiled methods is imported here before a command needs more, so that VERSION stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from netplug_cli.cni.method_cache import use_cache

if TYPE_CHECKING:
    from netplug_cli.logs import LineFile, Report
    from netplug_cli.wiring.backends import Backends
    from netplug_core.clock import Clock, Deadline
    from netplug_core.cni.request import CNIRequest
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.flows.world import CNIWorld, PolicyGuard
    from netplug_core.log import Log, LogSettings
    from netplug_core.netconf.model import NetConf
    from netplug_core.orchestrator.model import NodeFacts, Orchestrator
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["main", "open_cni_world", "open_log_file"]


def main(stdin: bytes | None = None, *, is_resumed: bool = False) -> int:
    """Serve one call of a runtime; return the exit status of the process.

    ``stdin`` is all of standard input, if it has been read already. ``is_resumed``: another process began the call.
    """
    use_cache()
    from netplug_cli.cni.main import serve

    return serve(open_cni_world, open_log_file, is_own_namespace=_is_own_namespace, stdin=stdin, is_resumed=is_resumed)


def open_cni_world(
    netconf: NetConf, log: Log, request: CNIRequest | None = None, backends: Backends | None = None
) -> AbstractContextManager[CNIWorld]:
    """Open everything that a CNI command acts through; without a request, no other IPAM plugin is executed.

    ``backends`` opens the interfaces; None: the registry of a process that serves one call.

    Raises:
        ConfigurationError: no backend has the configured name, or a backend cannot use its settings.
    """
    if backends is None:
        from netplug_cli.wiring.backends import open_registry

        backends = open_registry()
    return _open_world(backends, netconf, log, request)


@contextmanager
def _open_world(registry: Backends, netconf: NetConf, log: Log, request: CNIRequest | None) -> Iterator[CNIWorld]:
    from random import random

    from netplug_backends.host.machine import HostMachine, SystemClock
    from netplug_backends.host.release_records import ReleaseRecordFolder
    from netplug_core.flows.world import CNIWorld
    from netplug_core.hookspecs import IPAMContext
    from netplug_core.locks import CallLocks

    clock, host = SystemClock(), HostMachine()
    locks = CallLocks(host=host, clock=clock, log=log, path=netconf.ipam_lock_file)
    with ExitStack() as stack:
        open_orchestrator = _orchestrator_opener(registry, netconf, clock)
        store = _open_datastore(stack, registry, netconf.datastore, clock)
        context = IPAMContext(
            datastore=store,
            clock=clock,
            chance=random,
            lock=locks.host_lock,
            netconf=netconf.own_keys,
            find_node=_node_lookup(open_orchestrator, netconf.datastore.kubernetes.node_name),
            request=request,
            log=log,
        )
        ipam = stack.enter_context(registry.open_ipam(_ipam_name(netconf, request), context))
        yield CNIWorld(
            datastore=store,
            ipam=ipam,
            dataplane=stack.enter_context(registry.open_dataplane(netconf.dataplane_type, clock, log)),
            host=host,
            records=ReleaseRecordFolder(netconf.release_record_dir),
            locks=locks,
            clock=clock,
            log=log,
            open_guard=_open_guard,
            open_orchestrator=open_orchestrator,
        )


def _open_datastore(stack: ExitStack, registry: Backends, settings: DatastoreSettings, clock: Clock) -> Datastore:
    """The configured datastore, until the stack is closed.

    A DEL cleans the node even if a file of the configuration is gone; any other command fails at first use.
    """
    from netplug_core.errors import UnusableFile

    try:
        return stack.enter_context(registry.open_datastore(settings.type, settings, clock))
    except UnusableFile as error:
        from netplug_cli.wiring.backends import UnopenedDatastore

        return UnopenedDatastore(settings.type, error)


def _ipam_name(netconf: NetConf, request: CNIRequest | None) -> str:
    """The IPAM to open. A DEL of ``netplug-ipam``, or without a type, looks for addresses of pools."""
    from netplug_core.netconf.model import BLOCK_IPAM, HOST_LOCAL_IPAM

    if netconf.ipam.is_delegated and request is not None:
        return "delegate"
    return HOST_LOCAL_IPAM if netconf.ipam.type == HOST_LOCAL_IPAM else BLOCK_IPAM


def _orchestrator_opener(
    registry: Backends, netconf: NetConf, clock: Clock
) -> Callable[[], AbstractContextManager[Orchestrator]] | None:
    """What opens the orchestrator; None if the configuration does not say how to reach it."""
    if not netconf.has_orchestrator:
        return None
    from functools import partial

    return partial(registry.open_orchestrator, "kubernetes", netconf.datastore, clock)


def _node_lookup(
    open_orchestrator: Callable[[], AbstractContextManager[Orchestrator]] | None, configured_name: str
) -> Callable[[str, Deadline], NodeFacts | None] | None:
    """Look nodes up at the orchestrator, which is opened for it; None if there is none.

    A configured name is that of this node's object, whatever the node is called otherwise.
    """
    if open_orchestrator is None:
        return None

    def find_node(name: str, deadline: Deadline) -> NodeFacts | None:
        with open_orchestrator() as orchestrator:
            return orchestrator.find_node(configured_name or name, deadline=deadline)

    return find_node


def _open_guard() -> PolicyGuard:
    """The table of policy of this machine."""
    from netplug_backends.linux.policy_guard import LinuxPolicyGuard

    return LinuxPolicyGuard()


def open_log_file(settings: LogSettings, report: Report) -> LineFile:
    """The log file of this machine."""
    from netplug_backends.host.log_file import LogFile

    return LogFile(settings, report)


def _is_own_namespace(path: str) -> bool:
    from netplug_backends.linux.netns import is_own_namespace

    return is_own_namespace(path)
