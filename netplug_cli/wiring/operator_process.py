"""Puts the operator together, and runs it. It imports what is installed only with the operator."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from threading import Event

from attrs import frozen

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.kubernetes.cluster import open_cluster_objects
from netplug_backends.kubernetes.cluster_watch import ObjectCollection, collection_of, open_cluster_watch
from netplug_backends.kubernetes.names import CrdMode
from netplug_cli.http_server import PageServer
from netplug_cli.logs import Logger
from netplug_cli.operator.acting import Actor
from netplug_cli.operator.component_statuses import ComponentStatuses
from netplug_cli.operator.election import Election
from netplug_cli.operator.metrics import OperatorMetrics
from netplug_cli.operator.observing import Observer
from netplug_cli.operator.pages import add_values, operator_pages
from netplug_cli.operator.process import OperatorLoop
from netplug_cli.operator.reporting import Reporter
from netplug_cli.operator.watching import open_changes
from netplug_cli.operator.world import Cluster, Pools
from netplug_cli.wiring.cni import open_log_file
from netplug_cli.wiring.operator_pools import StoredPools
from netplug_cli.wiring.shipped import shipped_objects
from netplug_core.clock import Clock
from netplug_core.log import Level, Log
from netplug_core.operator.report import COMPONENT_REFS
from netplug_core.operator.state import ClusterMode, OperatorSettings, Shipped, installed_refs, ref_of
from netplug_core.resources.installation import INSTALLATION_API_VERSION
from netplug_core.settings.model import KubernetesAccess

__all__ = ["serve"]


def serve(listening: socket.socket, settings: OperatorSettings, environ: Mapping[str, str]) -> int:
    """Keep the cluster as its Installation says until a signal comes; return the exit status of the process.

    ``listening`` is where probes and the collectors of metrics ask. It is closed.
    """
    clock, log = SystemClock(), Logger("operator", open_log_file)
    access, has_crashed, stop = KubernetesAccess(kubeconfig=environ.get("KUBECONFIG", "")), Event(), Event()

    def end_after_crash() -> None:
        has_crashed.set()
        stop.set()

    def end_without_watch(error: Exception) -> None:
        log(Level.ERROR, "the cluster is not watched any more", cause=repr(error))
        end_after_crash()

    with ExitStack() as stack:
        cluster = stack.enter_context(closing(open_cluster_objects(access, environ, clock=clock)))
        pools = stack.enter_context(closing(StoredPools(access, clock)))
        ends = _Ends(cluster=cluster, pools=pools, identity=_identity(environ), clock=clock, log=log)
        loop, election, metrics = _assemble(ends, settings, end_after_crash)
        server = PageServer(listening, operator_pages(loop, election, metrics), log)
        server.start()
        stack.callback(server.stop)
        changes = stack.enter_context(open_changes(clock))
        watch = open_cluster_watch(access, environ, changes.note, end_without_watch, clock=clock, log=log)
        election.start()
        loop.start()
        watch.start(_watched(loop.observer.shipped))
        try:
            changes.follow(loop.wake, stop)
        finally:
            if loop.stop():
                election.stop()
            else:
                log(Level.WARNING, "an action lasts; the process ends without it, and its Lease ends by itself")
            if not watch.stop():
                log(Level.WARNING, "a request of a watch lasts; the process ends without it")
    return 1 if has_crashed.is_set() else 0


@frozen(kw_only=True)
class _Ends:
    """What the parts of the process share."""

    cluster: Cluster
    pools: Pools
    identity: str
    clock: Clock
    log: Log


def _assemble(
    ends: _Ends, settings: OperatorSettings, on_crash: Callable[[], None]
) -> tuple[OperatorLoop, Election, OperatorMetrics]:
    cluster, clock, log, metrics = ends.cluster, ends.clock, ends.log, OperatorMetrics(settings.version)
    loop = OperatorLoop(
        observer=Observer(cluster=cluster, pools=ends.pools, shipped=shipped_objects(), settings=settings, clock=clock),
        actor=Actor(cluster=cluster, pools=ends.pools, clock=clock),
        reporter=Reporter(cluster=cluster, identity=ends.identity, clock=clock, log=log),
        components=ComponentStatuses(cluster=cluster, clock=clock, log=log),
        metrics=metrics,
        is_leading=lambda: election.is_leading,
        on_crash=on_crash,
        clock=clock,
        log=log,
    )
    election = Election(
        cluster=cluster, identity=ends.identity, on_change=loop.wake, on_crash=on_crash, clock=clock, log=log
    )
    add_values(metrics, loop, election)
    return loop, election, metrics


def _identity(environ: Mapping[str, str]) -> str:
    """The name of this process in the Lease; the name of a pod alone may come again after a restart."""
    machine = HostMachine()
    return f"{environ.get('POD_NAME') or machine.host_name()}_{machine.new_uid()}"


def _watched(shipped: Shipped) -> Iterator[ObjectCollection]:
    """The Installations, the components, the pools of either API group, and everything that is installed."""
    yield collection_of(INSTALLATION_API_VERSION, "installations")
    for version, plural in sorted({(ref.api_version, ref.plural) for ref in COMPONENT_REFS.values()}):
        yield collection_of(version, plural)
    for mode in CrdMode:
        yield collection_of(mode.value, "ippools")
    crds = (definition for mode in ClusterMode for definition in shipped.definitions[mode].values())
    kept = (*shipped.protection, *shipped.operator_definitions, *crds)
    names: dict[tuple[str, str, str], set[str]] = {}
    for ref in (*installed_refs(shipped), *map(ref_of, kept)):
        names.setdefault((ref.api_version, ref.plural, ref.namespace), set()).add(ref.name)
    for (version, plural, namespace), found in names.items():
        yield collection_of(version, plural, namespace=namespace, names=found)
