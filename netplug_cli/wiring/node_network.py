"""Opens what the node process acts through to connect its node with the others: store, kernel, address assignment.

``netplug_cli.wiring.node`` runs the controllers that are made here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from random import random
from threading import Lock
from typing import Final

from attrs import evolve, frozen

from netplug_backends.host.atomic_files import remove_file
from netplug_backends.host.machine import SystemClock
from netplug_backends.host.placing import RunInContainer, run_here
from netplug_backends.linux.addresses import BIRD_PROTOCOL, count_routes, remove_routes
from netplug_backends.linux.conntrack import LinuxConnections
from netplug_backends.linux.nftables import KeptNftables, NftablesRuleset, find_problem
from netplug_backends.linux.policy_guard import LinuxPolicyGuard
from netplug_backends.linux.routing import LinuxKernelEvents, LinuxRouting
from netplug_cli.node.bgp import BGP_USE_CHANGED, NodeBgp
from netplug_cli.node.packet_filter import NAT_KINDS, LocalEndpoints, NodeFacts, PacketFilter
from netplug_cli.node.routing import (
    KERNEL_CHANGED,
    NETWORK_KINDS,
    NetworkCondition,
    NodeRoutes,
    TunnelAddresses,
    kernel_events_controller,
)
from netplug_cli.node.tasks import ENDPOINTS_CHANGED, INTERFACES_CHANGED
from netplug_cli.node_status import NetworkStatus
from netplug_cli.runtime.controllers import Reconciler, Runtime
from netplug_cli.runtime.feed import OpenDatastore, StoreFeed
from netplug_cli.wiring.backends import open_registry
from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.dataplane.bgp import BgpDaemon, BgpPlan, BgpStatus
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import KernelEvents
from netplug_core.dataplane.ruleset import DeleteTable
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.view import View
from netplug_core.flows.cni.call import machine_file
from netplug_core.hookspecs import BgpContext, IPAMContext
from netplug_core.ipam.protocol import IPAM
from netplug_core.log import Level, Log
from netplug_core.names import POLICY_TABLE
from netplug_core.netconf.model import BLOCK_IPAM, NetConf
from netplug_core.reconcile.controller import Problem, Source
from netplug_core.reconcile.nat import NET_TABLE, has_former_rule
from netplug_core.reconcile.peers import SecretName
from netplug_core.reconcile.routes import plan_removal
from netplug_core.reconcile.tunnels import MTUSettings
from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "BACKEND_VARIABLE", "DAEMON_VARIABLE", "FOLDER_VARIABLE", "ROUTER_ID_VARIABLE", "UNIT_VARIABLE", "NodeContainer",
    "NodeNetwork", "network_controllers", "node_bgp", "node_files", "node_network", "open_node_datastore", "remove_bgp",
    "remove_network",
]  # fmt: skip


# --- BGP -------------------------------------------------------------------------------------------------------------

DAEMON_VARIABLE: Final = "NETPLUG_BGP_DAEMON"
"""The BGP daemon: the name of a backend. ``bird`` unless given."""

FOLDER_VARIABLE: Final = "NETPLUG_BGP_DIR"
"""The folder for the files of the daemon, which has to be empty after the next start of the machine."""

UNIT_VARIABLE: Final = "NETPLUG_BGP_UNIT"
"""The service of systemd that runs the daemon, for its files in the default folder; without it this process does."""

ROUTER_ID_VARIABLE: Final = "NETPLUG_ROUTER_ID"
"""An IPv4 address in place of the node's own, or ``hash``."""

_DAEMON: Final = "bird"
_FOLDER: Final = "/run/netplug/bird"
_REMOVAL_S: Final = 30.0


@frozen(kw_only=True)
class NodeContainer:
    """The container of this process: how work is done there, where it has the root of the host, and its account.

    The defaults are those of a process on a host. An empty ``account_folder`` is the usual one of a pod.
    """

    run: RunInContainer = run_here
    host_root: str = ""
    account_folder: str = ""


@contextmanager
def node_bgp(
    environ: Mapping[str, str],
    view: View,
    find_name: Callable[[], str | None],
    log: Log,
    container: NodeContainer,
) -> Iterator[NodeBgp]:
    """What speaks BGP for this node, as long as the context lasts; the daemon goes on.

    In a container the daemon is a program of the image, and its folder is the host's.
    """
    clock = SystemClock()
    with _open_daemon(environ, container.host_root, clock, log) as daemon:
        yield NodeBgp(
            view=view,
            find_name=find_name,
            daemon=_InContainer(daemon, container.run),
            read_password=partial(_read_password, environ, container),
            clock=clock,
            router_id=environ.get(ROUTER_ID_VARIABLE, ""),
        )


def _open_daemon(
    environ: Mapping[str, str], host_root: str, clock: Clock, log: Log
) -> AbstractContextManager[BgpDaemon]:
    folder = environ.get(FOLDER_VARIABLE) or _FOLDER
    context = BgpContext(
        folder=f"{host_root}{folder}",
        clock=clock,
        log=log,
        count_routes=partial(count_routes, BIRD_PROTOCOL),
        remove_routes=partial(remove_routes, BIRD_PROTOCOL),
        unit=environ.get(UNIT_VARIABLE, "") if folder == _FOLDER else "",
    )
    return open_registry().open_bgp(environ.get(DAEMON_VARIABLE) or _DAEMON, context)


def remove_bgp(environ: Mapping[str, str], log: Log) -> bool:
    """End the BGP daemon of this machine, so that neither it nor any of its routes is left; whether it ran.

    Raises:
        NetplugError: it does not end, or the kernel keeps its routes.
    """
    clock = SystemClock()
    deadline = Deadline.after(clock, _REMOVAL_S)
    with _open_daemon(environ, "", clock, log) as daemon:
        has_run = daemon.find_status(deadline=deadline) is not None
        daemon.stop(deadline=deadline)
    return has_run


@frozen
class _InContainer:
    """A BGP daemon whose program, and the libraries of it, are in the image of this process."""

    inner: BgpDaemon
    run: RunInContainer

    def find_status(self, *, deadline: Deadline) -> BgpStatus | None:
        return self.run(lambda: self.inner.find_status(deadline=deadline))

    def apply(self, plan: BgpPlan, *, deadline: Deadline) -> bool:
        return self.run(lambda: self.inner.apply(plan, deadline=deadline))

    def pause(self, *, deadline: Deadline) -> None:
        self.run(lambda: self.inner.pause(deadline=deadline))

    def stop(self, *, deadline: Deadline) -> None:
        self.run(lambda: self.inner.stop(deadline=deadline))


def _read_password(
    environ: Mapping[str, str],
    container: NodeContainer,
    name: SecretName,
    deadline: Deadline,
) -> str | None:
    """The member of a Secret beside this pod; None outside a pod, where there are no Secrets."""
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    # Loads the client of the API server, which no process outside a cluster needs.
    from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
    from netplug_backends.kubernetes.service_account import find_service_account

    def read() -> str | None:
        folder = container.account_folder or SERVICE_ACCOUNT_FOLDER
        account = find_service_account(environ, clock=SystemClock(), folder=folder)
        if account is None:
            return None
        with closing(account):
            return account.find_secret(*name, deadline=deadline)

    return container.run(read)


BACKEND_VARIABLE = "NETPLUG_NETWORKING_BACKEND"
"""Who makes routes to other nodes. ``none``: another program does, and this process makes none. ``vxlan``: this process
alone does, without BGP.
"""

_NONE, _VXLAN = "none", "vxlan"


@frozen
class NodeNetwork:
    """The controllers of the network of this node."""

    feed: StoreFeed
    addresses: TunnelAddresses
    routes: NodeRoutes
    events: KernelEvents
    endpoints: LocalEndpoints
    packet_filter: PacketFilter
    clock: Clock
    woken: list[Runtime]
    bgp: NodeBgp | None = None

    def controllers(self) -> tuple[Reconciler, ...]:
        """All of them."""
        return (
            self.feed.controller(),
            self.addresses.controller(),
            self.routes.controller(),
            kernel_events_controller(self.events, self._note_kernel_change, clock=self.clock),
            self.endpoints.controller(),
            self.packet_filter.controller(frozenset((*NAT_KINDS, ENDPOINTS_CHANGED))),
            *(() if self.bgp is None else (self.bgp.controller(),)),
        )

    def status(self) -> NetworkStatus | None:
        """How the node is connected with the others; None where it is not registered anywhere."""
        found, bgp = self.routes.status(), self.bgp
        if found is None or bgp is None:
            return found
        texts = (f"{one.message}: {one.cause}" for one in self.find_problems())
        obstacle = found.obstacle or bgp.find_pending() or ""
        return evolve(found, obstacle=obstacle, peers=bgp.find_peers(), problems=(*found.problems, *texts))

    def find_problems(self) -> tuple[Problem, ...]:
        """What is wrong with the BGP of the node, as problems."""
        if self.bgp is None:
            return ()
        return (*self.bgp.problems, *(() if self.bgp.refused is None else (self.bgp.refused,)))

    def wake(self, tasks: Runtime) -> None:
        """Let changes of the datastore and of the kernel wake those that they concern."""
        tasks.watch(self.feed.view)
        self.woken.append(tasks)

    def _note_kernel_change(self) -> None:
        self.routes.note_kernel_change()
        for tasks in self.woken:
            tasks.wake(KERNEL_CHANGED)
            tasks.wake(INTERFACES_CHANGED)


@contextmanager
def node_network(
    environ: Mapping[str, str],
    read_datastore: Callable[[], DatastoreSettings | None],
    find_name: Callable[[], str | None],
    open_datastore: OpenDatastore,
    log: Log,
    container: NodeContainer,
) -> Iterator[NodeNetwork | None]:
    """The network of this node, as long as the context lasts; None where another program makes the routes.

    ``read_datastore`` says where the node is registered, and ``find_name`` by which name, once it is.
    """
    if environ.get(BACKEND_VARIABLE) == _NONE:
        yield None
        return
    clock = SystemClock()
    view = View(clock=clock, uncached_kinds=frozenset(), guard=Lock())
    feed = StoreFeed(
        name="network feed",
        what="nodes, pools and blocks",
        kinds=NETWORK_KINDS,
        view=view,
        read_datastore=read_datastore,
        open_datastore=open_datastore,
        clock=clock,
    )
    addresses = TunnelAddresses(
        feed=feed, find_name=find_name, open_ipam=partial(_open_ipam, clock, log), clock=clock, chance=random
    )
    mtus = MTUSettings.parse(environ)
    with (
        closing(feed),
        LinuxRouting.open() as kernel,
        LinuxKernelEvents.open(kernel.port) as events,
        KeptNftables.open() as ruleset,
    ):
        routes = NodeRoutes(
            feed=feed, find_name=find_name, dataplane=kernel, clock=clock, mtus=mtus, kernel=os.uname().release
        )
        woken: list[Runtime] = []
        endpoints = LocalEndpoints(
            view=view,
            find_name=find_name,
            find_datastore=lambda: feed.datastore,
            note_change=partial(_wake, woken, ENDPOINTS_CHANGED),
            clock=clock,
        )
        facts = NodeFacts(view=view, find_name=find_name, endpoints=endpoints)
        routes.find_floating = facts.find_floating
        packet_filter = PacketFilter(ruleset=ruleset, connections=LinuxConnections(), log=log, find_facts=facts)
        parts = (feed, addresses, routes, events, endpoints, packet_filter, clock, woken)
        if environ.get(BACKEND_VARIABLE) == _VXLAN:
            yield NodeNetwork(*parts)
            return
        with node_bgp(environ, view, find_name, log, container) as bgp:
            routes.find_bgp_use = lambda: bgp.use
            routes.find_learned = lambda: bgp.learned
            bgp.on_use_change = partial(_follow_bgp_use, bgp, events, woken)
            yield NodeNetwork(*parts, bgp)


def network_controllers(
    network: NodeNetwork | None,
    environ: Mapping[str, str],
    find_name: Callable[[], str | None],
    container: NodeContainer,
    log: Log,
) -> tuple[Reconciler, ...]:
    """The controllers of the network of this node; in a pod, the cluster learns that it works.

    Where another program makes the network, the packet filter guards the node's loopback alone.
    """
    if network is None:
        packet_filter = PacketFilter(ruleset=NftablesRuleset(), connections=LinuxConnections(), log=log)
        return (packet_filter.controller(),)
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        return network.controllers()
    clear = partial(_clear_network_unavailable, environ, container)
    condition = NetworkCondition(find_name=find_name, find_status=network.status, clear=clear)
    return (*network.controllers(), condition.controller())


def _clear_network_unavailable(
    environ: Mapping[str, str], container: NodeContainer, node: str, deadline: Deadline
) -> None:
    """Do it with the account of the pod; a pod without one says nothing."""
    # Loads the client of the API server, which no process outside a cluster needs.
    from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
    from netplug_backends.kubernetes.service_account import find_service_account

    def clear() -> None:
        clock, folder = SystemClock(), container.account_folder or SERVICE_ACCOUNT_FOLDER
        account = find_service_account(environ, clock=clock, folder=folder)
        if account is not None:
            with closing(account):
                account.clear_network_unavailable(node, now=f"{format_time(clock.now_ns())[:19]}Z", deadline=deadline)

    container.run(clear)


def node_files(environ: Mapping[str, str]) -> NetConf:
    """The configured name of the node, and the paths of its files: keys of a network configuration, in upper case."""
    usual = NetConf()
    nodename_file = _variable(environ, "NODENAME_FILE") or usual.nodename_file
    prefix = _variable(environ, "ENDPOINT_STATUS_PATH_PREFIX")
    status_folder = f"{prefix.rstrip('/')}/endpoint-status" if prefix else usual.endpoint_status_dir
    return NetConf(
        nodename=_variable(environ, "NODENAME"),
        nodename_file=nodename_file,
        mtu_file=_variable(environ, "MTU_FILE") or f"{nodename_file.rpartition('/')[0]}/mtu",
        endpoint_status_dir=_variable(environ, "ENDPOINT_STATUS_DIR") or status_folder,
    )


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(f"NETPLUG_{name}") or environ.get(name, "")


def remove_network(environ: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Take off this machine what connects it with other nodes: the BGP daemon, routes, tunnels and packet filter.

    The files that say its name and the MTU of its pods go too: an ADD waits for the first until the node is registered.

    Routes of pods stay, and so does what other programs have made. No datastore is asked. A node process that runs
    would make everything again. ``report`` gets a line for each step.

    Raises:
        NetplugError: something is left.
    """

    def log(_level: Level, message: str, /, **fields: object) -> None:
        report(" ".join((message, *(f"{name}={value}" for name, value in fields.items()))))

    if remove_bgp(environ, log):
        report("removed: the BGP daemon")
    with LinuxRouting.open() as kernel:
        changes = plan_removal(kernel.read())
        failed = kernel.apply(changes)
    if failed:
        raise failed[0].error
    if changes:
        report(f"removed: {len(changes)} routes, tunnels and neighbours of other nodes")
    if not find_problem():
        _remove_packet_filter(report)
    files = node_files(environ)
    for path in (machine_file(files), files.nodename_file, files.mtu_file):
        if remove_file(path):
            report(f"removed: {path}")


def _remove_packet_filter(report: Callable[[str], None]) -> None:
    """Remove the tables of the node. That of policy stays while pods are attached: without it they are open."""
    ruleset = NftablesRuleset()
    for table, what in ((NET_TABLE, "the packet filter"), (POLICY_TABLE, "policy")):
        try:
            observed = ruleset.read(table)
        except KernelError as error:  # a kernel without nftables has no table either
            report(f"the table {table} of {what} cannot be looked for: {error}")
            continue
        if observed is None:
            continue
        if table == POLICY_TABLE and not has_former_rule(observed) and LinuxPolicyGuard().has_workload_links():
            report(f"the table inet {table} of {what} stays while pods are attached: nft delete table inet {table}")
            continue
        ruleset.apply(DeleteTable(table))
        report(f"removed: the table inet {table} of {what}")


def _follow_bgp_use(bgp: NodeBgp, events: KernelEvents, runtimes: Iterable[Runtime]) -> None:
    """Addresses of workloads are announced as they come and go, if any are."""
    events.follow_workloads(is_asked=bgp.use is not None and bgp.use.is_enabled)
    _wake(runtimes, BGP_USE_CHANGED)


def _wake(runtimes: Iterable[Runtime], source: Source) -> None:
    for each in runtimes:
        each.wake(source)


def _open_ipam(clock: Clock, log: Log, datastore: Datastore) -> AbstractContextManager[IPAM]:
    context = IPAMContext(datastore=datastore, clock=clock, chance=random, log=log)
    return open_registry().open_ipam(BLOCK_IPAM, context)


@contextmanager
def open_node_datastore(
    environ: Mapping[str, str],
    in_pod: RunInContainer,
    clock: Clock,
    settings: DatastoreSettings,
    *,
    account_folder: str = "",
) -> Iterator[Datastore]:
    """The datastore of the node. That of a cluster is opened with the account of the pod, if this process has one.

    The plugin's account, whose kubeconfig lies on the host, may not do what the node process does.
    ``account_folder`` has the files of the account; empty: the usual one.
    """
    if settings.is_kubernetes and environ.get("KUBERNETES_SERVICE_HOST"):
        # Loads the client of the API server, which no process outside a cluster needs.
        from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
        from netplug_backends.kubernetes.datastore import KubernetesDatastore
        from netplug_backends.kubernetes.names import CrdMode
        from netplug_backends.kubernetes.service_account import find_account_client

        with _opened_folder(account_folder or SERVICE_ACCOUNT_FOLDER, in_pod) as folder:
            client = find_account_client(environ, clock=clock, folder=folder) if folder else None
            if client is not None:
                mode, uses_pod_cidr = CrdMode.configured(settings.api_group), settings.uses_pod_cidrs
                with closing(KubernetesDatastore(client, mode=mode, uses_pod_cidr=uses_pod_cidr)) as datastore:
                    yield datastore
                return
    with open_registry().open_datastore(settings.type, settings, clock) as datastore:
        yield datastore


@contextmanager
def _opened_folder(path: str, in_pod: RunInContainer) -> Iterator[str]:
    """A path of a folder of the pod that leads there from the host too; empty if there is no such folder.

    This process has left the mount namespace of the pod. Its descriptor of the folder has not, and the kubelet renews
    what is in it.
    """
    try:
        descriptor = in_pod(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:  # a pod without an account
        yield ""
        return
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
