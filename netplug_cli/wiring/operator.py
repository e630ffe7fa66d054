"""Puts the operator together, and runs it. What is installed only with the operator is imported when it begins."""

from __future__ import annotations

import os
import random
import select
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from importlib.util import find_spec
from threading import Event

from attrs import define, field, frozen

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.kubernetes.installing.cluster import open_cluster_objects
from netplug_backends.kubernetes.installing.manifests import shipped_objects
from netplug_backends.kubernetes.installing.watch import ObjectCollection, collection_of, open_cluster_watch
from netplug_backends.kubernetes.names import CrdMode
from netplug_cli.http_server import PageServer
from netplug_cli.logs import Logger
from netplug_cli.loopback import CannotListen, listen_to_this_machine
from netplug_cli.operator.process import (
    CHANGES,
    END_S,
    Operator,
    OperatorArguments,
    add_values,
    operator_pages,
    parse_arguments,
)
from netplug_cli.operator.world import Actor, Cluster, ComponentStatuses, Observer, Pools, Reporter
from netplug_cli.runtime.controllers import Runtime
from netplug_cli.runtime.election import LeaderElection
from netplug_cli.runtime.signals import StopSignals
from netplug_cli.wiring.backends import open_registry
from netplug_cli.wiring.cni import open_log_file
from netplug_core import __version__
from netplug_core.clock import Clock, Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError
from netplug_core.flows.ipam.check import find_loss
from netplug_core.flows.resources.cluster import (
    ensure_initialized,
    find_cluster_object,
    lock_for_loss,
    unlock_after_loss,
)
from netplug_core.flows.resources.drain import change_pool
from netplug_core.flows.resources.read import list_all
from netplug_core.installation.daemonset import SYSTEM_NAMESPACE
from netplug_core.installation.pools import PoolStep
from netplug_core.log import Level, Log
from netplug_core.names import API_VERSION
from netplug_core.operator.report import COMPONENT_REFS
from netplug_core.operator.state import LEASE, ClusterMode, OperatorSettings, Shipped, installed_refs, ref_of
from netplug_core.resources.clusterinformation import is_locked_for_loss
from netplug_core.resources.installation import INSTALLATION_API_VERSION
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.kinds import get_kind
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess

__all__ = [
    "StoredPools", "main", "run", "serve",
]  # fmt: skip


# --- operator --------------------------------------------------------------------------------------------------------


_LIBRARIES = ("prometheus_client",)
_MODES = {"": None, API_VERSION: ClusterMode.V3, CrdMode.V1.value: ClusterMode.V1}


def main() -> None:
    """Run ``netplug-operator``."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Keep the cluster as its Installation says until a signal comes; return the exit status of the process."""
    options = parse_arguments(arguments)
    missing = next((library for library in _LIBRARIES if find_spec(library) is None), None)
    if missing is not None:
        sys.stderr.write(f"netplug-operator needs netplug[operator]: not installed here: {missing}\n")
        return 1
    try:
        settings = _settings(options, environ)
        listening = listen_to_this_machine(options.health_port)
    except (ConfigurationError, CannotListen) as error:
        sys.stderr.write(f"netplug-operator: {error}\n")
        return 2 if isinstance(error, ConfigurationError) else 1

    return serve(listening, settings, environ)


def _settings(options: OperatorArguments, environ: Mapping[str, str]) -> OperatorSettings:
    group = environ.get("NETPLUG_API_GROUP", "")
    if group not in _MODES:
        raise ConfigurationError("NETPLUG_API_GROUP", group, " or ".join(filter(None, _MODES)))
    if environ.get("NAMESPACE") == SYSTEM_NAMESPACE:
        accepted = "the operator deletes this namespace with an Installation; run it in another one"
        raise ConfigurationError("NAMESPACE", SYSTEM_NAMESPACE, accepted)
    return OperatorSettings(
        version=__version__, manages_definitions=options.manages_definitions, asked_mode=_MODES[group]
    )


# --- operator pools --------------------------------------------------------------------------------------------------


_CHANGE_S = 60.0
"""Longer than a Lease lasts: the deletion of a pool relinquishes its blocks one by one."""


@define
class StoredPools:
    """See :class:`~netplug_cli.operator.world.Pools`. A change is refused if the pool has changed since it was read."""

    access: KubernetesAccess
    clock: Clock
    _stores: dict[ClusterMode, Datastore] = field(factory=dict, init=False)
    _opened: ExitStack = field(factory=ExitStack, init=False)
    _revisions: dict[str, str] = field(factory=dict, init=False)

    def close(self) -> None:
        """Close what was opened."""
        self._opened.close()

    def read(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[IPPool, ...]:
        """All pools."""
        found = list_all(self._store(mode), get_kind("IPPool"), deadline=deadline)
        self._revisions = {record.key.name: record.revision for record in found}
        return tuple(record.value for record in found if isinstance(record.value, IPPool))

    def change(self, mode: ClusterMode, step: PoolStep) -> None:
        """Create, update or delete a pool. A cluster with a pool has an identity."""
        ensure_initialized(self._store(mode), pace=self._pace(), new_uid=HostMachine().new_uid)
        revision = self._revisions.get(step.pool.metadata.name, "")
        change_pool(self._store(mode), step, revision=revision, pace=self._pace(), new_uid=HostMachine().new_uid)

    def find_loss(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[str, bool]:
        """What is lost, and whether the datastore is locked for it."""
        store = self._store(mode)
        information = find_cluster_object(store, deadline=deadline)
        is_locked = information is not None and is_locked_for_loss(information)
        return find_loss(store, deadline=deadline), is_locked

    def lock(self, mode: ClusterMode, *, is_locked: bool) -> None:
        """Lock the datastore because blocks are lost, or unlock it if it is locked for that."""
        if is_locked:
            lock_for_loss(self._store(mode), pace=self._pace(), new_uid=HostMachine().new_uid)
        else:
            unlock_after_loss(self._store(mode), pace=self._pace())

    def _pace(self) -> Pace:
        return Pace(clock=self.clock, deadline=Deadline.after(self.clock, _CHANGE_S), chance=random.random)

    def _store(self, mode: ClusterMode) -> Datastore:
        if mode not in self._stores:
            group = CrdMode[mode.name].value
            settings = DatastoreSettings(type="kubernetes", kubernetes=self.access, api_group=group)
            opened: AbstractContextManager[Datastore] = open_registry().open_datastore(
                "kubernetes", settings, self.clock
            )
            self._stores[mode] = self._opened.enter_context(opened)
        return self._stores[mode]


# --- operator process ------------------------------------------------------------------------------------------------


def serve(listening: socket.socket, settings: OperatorSettings, environ: Mapping[str, str]) -> int:
    """Keep the cluster as its Installation says until a signal comes; return the exit status of the process.

    ``listening`` is where probes and the collectors of metrics ask. It is closed.
    """
    clock, log = SystemClock(), Logger("operator", open_log_file)
    access, has_crashed = KubernetesAccess(kubeconfig=environ.get("KUBECONFIG", "")), Event()
    with ExitStack() as stack:
        signals = stack.enter_context(StopSignals())

        def end_without_watch(error: Exception) -> None:
            log(Level.ERROR, "the cluster is not watched any more", cause=repr(error))
            has_crashed.set()
            signals.ask_to_stop()

        cluster = stack.enter_context(closing(open_cluster_objects(access, environ, clock=clock)))
        pools = stack.enter_context(closing(StoredPools(access, clock)))
        ends = _Ends(cluster=cluster, pools=pools, identity=_identity(environ), clock=clock, log=log)
        operator, election, runtime = _assemble(ends, settings)
        server = PageServer(listening, operator_pages(operator, election, runtime), log)
        server.start()
        stack.callback(server.stop)
        note_change = partial(runtime.wake, CHANGES)
        watch = open_cluster_watch(access, environ, note_change, end_without_watch, clock=clock, log=log)
        runtime.start()
        watch.start(_watched(operator.observer.shipped))
        try:
            select.select([signals.wakeup], [], [])
        finally:
            operator.ask_to_stop()
            runtime.stop(END_S)
            if runtime.has_ended:
                election.give_up()
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


def _assemble(ends: _Ends, settings: OperatorSettings) -> tuple[Operator, LeaderElection, Runtime]:
    from netplug_cli.operator.metrics import OperatorMetrics

    cluster, clock, log = ends.cluster, ends.clock, ends.log
    operator = Operator(
        observer=Observer(cluster=cluster, pools=ends.pools, shipped=shipped_objects(), settings=settings, clock=clock),
        actor=Actor(cluster=cluster, pools=ends.pools, clock=clock),
        reporter=Reporter(cluster=cluster, identity=ends.identity, clock=clock, log=log),
        components=ComponentStatuses(cluster=cluster, clock=clock, log=log),
        metrics=OperatorMetrics(settings.version),
        is_leading=lambda: election.is_leading,
        clock=clock,
        log=log,
    )
    election = LeaderElection(
        role="operator",
        store=cluster,
        lease=LEASE,
        identity=ends.identity,
        on_change=lambda: runtime.wake(CHANGES),
        clock=clock,
        log=log,
    )
    controllers = (operator.controller(), election.controller())
    runtime = Runtime(controllers, clock=clock, log=log, note_pass=operator.note_pass)
    add_values(operator, election)
    return operator, election, runtime


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


if __name__ == "__main__":
    main()
