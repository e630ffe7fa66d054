"""Puts the controllers together, and runs them. What only the operator needs installed is imported when they begin."""

from __future__ import annotations

import os
import random
import select
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.kubernetes.installing.cluster import open_cluster_objects
from netplug_cli.controllers.collection import Collection, History
from netplug_cli.controllers.copies import Copying
from netplug_cli.controllers.nodes import (
    CONFIGURATION_CHANGED,
    CONTROLLER_KINDS,
    LEADER_CHANGED,
    Acting,
    ClusterIdentity,
    Configuration,
    GoneNodes,
    HostEndpoints,
)
from netplug_cli.controllers.process import MetricsPort, controllers_pages, parse_arguments
from netplug_cli.http_server import PageServer
from netplug_cli.logs import Logger
from netplug_cli.loopback import CannotListen, listen_to_this_machine
from netplug_cli.runtime.controllers import Reconciler, Runtime
from netplug_cli.runtime.election import DatastoreLeases, LeaderElection, LeaseStore
from netplug_cli.runtime.feed import OpenedOnce, StoreFeed
from netplug_cli.runtime.signals import StopSignals
from netplug_cli.wiring.backends import open_datastore
from netplug_cli.wiring.cni import open_log_file
from netplug_core import __version__
from netplug_core.clock import Clock
from netplug_core.datastore.view import View
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.flows.ipam.collect import find_addresses, of_addresses
from netplug_core.log import Level, Log
from netplug_core.operator.state import CONTROLLERS_LEASE_REF
from netplug_core.orchestrator.model import KUBERNETES_NODE, POD, PodFacts
from netplug_core.reconcile.controller import Backoff
from netplug_core.reconcile.copies import (
    COPIED_KINDS,
    COPY_KINDS,
    KeptParts,
    account_copies,
    endpoint_copies,
    namespace_copies,
    node_label_copies,
    policy_copies,
)
from netplug_core.reconcile.kubecontrollers import (
    CopySource,
    RunningControllers,
    default_configuration,
    find_running_controllers,
)
from netplug_core.records import Kind
from netplug_core.settings.apiconfig import datastore_settings_from_environment
from netplug_core.settings.model import (
    ETCD_DATASTORE,
    KUBERNETES_DATASTORE,
    DatastoreSettings,
    KubernetesAccess,
)

if TYPE_CHECKING:
    from netplug_cli.controllers.metrics import ControllersMetrics

__all__ = ["main", "run", "serve"]

_LIBRARIES = ("prometheus_client",)
_END_S = 25.0
_FEED_BACKOFF = Backoff(longest_s=10.0)  # a cluster has two or three of these processes, and all of it waits for them
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


def main() -> None:
    """Run ``netplug-controllers``."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Keep the records of the cluster in order until a signal comes; return the exit status of the process."""
    options = parse_arguments(arguments)
    missing = next((library for library in _LIBRARIES if find_spec(library) is None), None)
    if missing is not None:
        sys.stderr.write(f"netplug-controllers needs netplug[operator]: not installed here: {missing}\n")
        return 1
    try:
        stores = _stores(environ)
        find_running_controllers(default_configuration(stores.source).spec, environ, stores.source)
        listening = listen_to_this_machine(options.health_port)
    except (NetplugError, CannotListen) as error:
        sys.stderr.write(f"netplug-controllers: {error}\n")
        return 2 if isinstance(error, ConfigurationError) else 1
    return serve(listening, stores, environ)


@frozen(kw_only=True)
class _Stores:
    """The datastore, and the one that shows the orchestrator's pods and nodes; None: there is no orchestrator."""

    datastore: DatastoreSettings
    cluster: DatastoreSettings | None

    @property
    def are_one(self) -> bool:
        """Whether the orchestrator's own store has the records."""
        return self.datastore.is_kubernetes

    @property
    def source(self) -> CopySource:
        """Where what is copied comes from."""
        if self.are_one:
            return CopySource.DATASTORE
        return CopySource.NONE if self.cluster is None else CopySource.KUBERNETES


def _stores(environ: Mapping[str, str]) -> _Stores:
    datastore = datastore_settings_from_environment(environ)
    if datastore.type not in (ETCD_DATASTORE, KUBERNETES_DATASTORE):
        accepted = f"{ETCD_DATASTORE} or {KUBERNETES_DATASTORE} is: other datastores are of one machine"
        raise ConfigurationError("DATASTORE_TYPE", datastore.type, accepted)
    if datastore.is_kubernetes:
        return _Stores(datastore=datastore, cluster=datastore)
    kubeconfig = environ.get("KUBECONFIG", "")
    if not kubeconfig and not environ.get(_IN_CLUSTER):
        return _Stores(datastore=datastore, cluster=None)
    access = KubernetesAccess(kubeconfig=kubeconfig)
    return _Stores(datastore=datastore, cluster=DatastoreSettings(type=KUBERNETES_DATASTORE, kubernetes=access))


def serve(listening: socket.socket, stores: _Stores, environ: Mapping[str, str]) -> int:
    """Run the controllers until a signal comes; return the exit status of the process. ``listening`` is closed."""
    clock, log = SystemClock(), Logger("controllers", open_log_file)
    with ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        process = _assemble(stack, stores, environ, clock, log)
        pages = controllers_pages(
            process.runtime, process.election, process.metrics, process.find_unready, process.find_running
        )
        server = PageServer(listening, pages, log)
        server.start()
        stack.callback(server.stop)
        process.runtime.start()
        try:
            select.select([signals.wakeup], [], [])
        finally:
            process.runtime.stop(_END_S)
            if not process.runtime.has_ended:
                log(Level.WARNING, "a write lasts; the process ends without it, and its Lease ends by itself")
            else:
                process.election.give_up()
    return 0


@frozen(kw_only=True)
class _Process:
    runtime: Runtime
    election: LeaderElection
    metrics: ControllersMetrics
    find_unready: Callable[[], str]
    find_running: Callable[[], RunningControllers | None]


def _assemble(stack: ExitStack, stores: _Stores, environ: Mapping[str, str], clock: Clock, log: Logger) -> _Process:
    from netplug_cli.controllers.metrics import ControllersMetrics

    metrics = ControllersMetrics(__version__)
    opened = OpenedOnce(open_datastore)
    feed = stack.enter_context(closing(_feed("datastore feed", CONTROLLER_KINDS, stores.datastore, opened)))
    cluster = feed
    if stores.cluster is not None and not stores.are_one:
        cluster = stack.enter_context(closing(_nodes_feed(stores.cluster, opened)))
    leases: LeaseStore = DatastoreLeases(lambda: feed.datastore)
    if stores.cluster is not None:
        access = stores.cluster.kubernetes
        leases = stack.enter_context(closing(open_cluster_objects(access, environ, clock=clock)))
    election = _election(leases, environ, lambda: runtime.wake(LEADER_CHANGED), log)
    acting = Acting(
        view=feed.view,
        find_datastore=lambda: feed.datastore,
        is_leading=lambda: election.is_leading,
        new_uid=HostMachine().new_uid,
        clock=clock,
    )
    configuration = Configuration(
        acting=acting,
        environ=environ,
        source=stores.source,
        note_change=lambda: runtime.wake(CONFIGURATION_CHANGED),
        log=log,
    )
    copying = _copying(stack, stores, configuration, acting, opened)
    pods = copying.sources if cluster is not feed else stack.enter_context(closing(_pods_feed(stores, opened)))
    collection = _collection(acting, configuration, None if stores.cluster is None else cluster, pods, log)
    of_cluster: tuple[Reconciler, ...] = ()
    if cluster is not feed:
        of_cluster = (*_of_nodes(acting, configuration, cluster, log), *copying.controllers())
    elif stores.are_one:
        of_cluster = (pods.controller(),)
    port = MetricsPort(find_running=lambda: configuration.running, render=metrics.render, log=log)
    stack.callback(port.close)
    own = (
        feed.controller(),
        configuration.controller(),
        ClusterIdentity(acting=acting, chance=random.random, log=log).controller(),
        HostEndpoints(acting=acting, find_running=lambda: configuration.running).controller(),
        collection.controller(),
        History(acting=acting, find_running=lambda: configuration.running).controller(),
        port.controller(),
    )
    runtime = Runtime((*own, *of_cluster, election.controller()), clock=clock, log=log, note_pass=metrics.note_pass)
    for view in {id(each.view): each.view for each in (feed, cluster, *copying.feeds)}.values():
        runtime.watch(view)
    metrics.watch(runtime, election, lambda: collection.counts)
    return _Process(
        runtime=runtime,
        election=election,
        metrics=metrics,
        find_unready=lambda: _find_unready(feed, cluster, *copying.wanted_feeds()),
        find_running=lambda: configuration.running,
    )


def _election(
    leases: LeaseStore, environ: Mapping[str, str], note_change: Callable[[], None], log: Log
) -> LeaderElection:
    return LeaderElection(
        role="process of the controllers",
        store=leases,
        lease=CONTROLLERS_LEASE_REF,
        identity=_identity(environ),
        clock=SystemClock(),
        log=log,
        on_change=note_change,
    )


def _nodes_feed(settings: DatastoreSettings, opened: OpenedOnce) -> StoreFeed:
    """The nodes of a Kubernetes beside the datastore."""
    feed = _feed("cluster feed", (KUBERNETES_NODE,), settings, opened)
    feed.view.keep = KeptParts(find_addresses).keep
    return feed


def _pods_feed(stores: _Stores, opened: OpenedOnce) -> StoreFeed:
    """The pods of a cluster, for the collector: to list all of them for each tick takes longer than the tick."""
    feed = _feed("pods feed", (POD,), stores.datastore, opened)
    feed.read_datastore = lambda: stores.datastore if stores.are_one else None
    feed.view.keep = _keep_addresses
    return feed


def _keep_addresses(value: object) -> object:
    return of_addresses(value) if isinstance(value, PodFacts) else value


def _collection(
    acting: Acting, configuration: Configuration, cluster: StoreFeed | None, pods: StoreFeed, log: Log
) -> Collection:
    """The collector; ``cluster`` shows pods and nodes of the orchestrator, if there is one; ``pods`` follows pods."""
    return Collection(
        acting=acting,
        find_running=lambda: configuration.running,
        find_source=lambda: None if cluster is None else cluster.datastore,
        has_source=cluster is not None,
        pods=pods.view,
        chance=random.random,
        log=log,
    )


def _of_nodes(
    acting: Acting, configuration: Configuration, cluster: StoreFeed, log: Log
) -> tuple[Reconciler, Reconciler, Reconciler]:
    """What follows from the nodes of a Kubernetes beside the datastore: which are gone, and their labels."""
    gone = GoneNodes(
        acting=acting,
        find_running=lambda: configuration.running,
        cluster=cluster.view,
        find_source=lambda: cluster.datastore,
        log=log,
    )
    labels = Copying(
        acting=acting,
        rules=node_label_copies(),
        sources=cluster.view,
        copies=acting.view,
        find_running=lambda: configuration.running,
        find_source=lambda: cluster.datastore,
    )
    return cluster.controller(), gone.controller(), labels.controller()


@frozen(kw_only=True)
class _CopyFeeds:
    """What the controllers that copy look at: the cluster's objects, and the copies. Not while none of them runs."""

    sources: StoreFeed
    copies: StoreFeed
    acting: Acting
    configuration: Configuration

    @property
    def feeds(self) -> tuple[StoreFeed, StoreFeed]:
        """Both."""
        return self.sources, self.copies

    def wanted_feeds(self) -> tuple[StoreFeed, ...]:
        """Those that have to be up to date before the process is ready. Both, until the settings are known."""
        running = self.configuration.running
        return self.feeds if running is None or running.copies else ()

    def controllers(self) -> Iterator[Reconciler]:
        """The feeds, and a controller for each kind that is copied."""
        for feed in self.feeds:
            yield evolve(feed.controller(), inputs=frozenset((CONFIGURATION_CHANGED,)))
        for rules in (policy_copies(), namespace_copies(), account_copies(), endpoint_copies()):
            copying = Copying(
                acting=self.acting,
                rules=rules,
                sources=self.sources.view,
                copies=self.copies.view,
                find_running=lambda: self.configuration.running,
                find_source=lambda: self.sources.datastore,
            )
            yield copying.controller()


def _copying(
    stack: ExitStack, stores: _Stores, configuration: Configuration, acting: Acting, opened: OpenedOnce
) -> _CopyFeeds:
    kept = KeptParts(find_addresses)  # two threads may share: whichever of equal parts is kept, it is the same

    def open_feed(name: str, kinds: tuple[Kind[object], ...], settings: DatastoreSettings | None) -> StoreFeed:
        def read_if_wanted() -> DatastoreSettings | None:
            running = configuration.running
            return settings if running is not None and running.copies else None

        feed = _feed(name, kinds, settings or stores.datastore, opened)
        feed.read_datastore = read_if_wanted
        feed.view.keep = kept.keep
        return stack.enter_context(closing(feed))

    return _CopyFeeds(
        sources=open_feed("copied feed", COPIED_KINDS, stores.cluster),
        copies=open_feed("copies feed", COPY_KINDS, stores.datastore),
        acting=acting,
        configuration=configuration,
    )


def _feed(name: str, kinds: tuple[Kind[object], ...], settings: DatastoreSettings, opened: OpenedOnce) -> StoreFeed:
    clock = SystemClock()
    return StoreFeed(
        name=name,
        what=f"the records of {settings.type}",
        kinds=kinds,
        view=View(clock=clock, uncached_kinds=frozenset(), guard=Lock()),
        read_datastore=lambda: settings,
        open_datastore=opened.open,
        clock=clock,
        backoff=_FEED_BACKOFF,
    )


def _find_unready(*feeds: StoreFeed) -> str:
    """Which records have not been listed yet; empty if all have."""
    waiting = (feed for feed in feeds if not feed.view.has_listed(feed.kinds))
    return next((f"{feed.what} have not been read yet" for feed in waiting), "")


def _identity(environ: Mapping[str, str]) -> str:
    """The name of this process in the Lease; the name of a pod alone may come again after a restart."""
    machine = HostMachine()
    return f"{environ.get('POD_NAME') or machine.host_name()}_{machine.new_uid()}"


if __name__ == "__main__":
    main()
