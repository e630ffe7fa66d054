"""Opens what the node process acts through: for the calls that it serves, and for its controllers on this machine.

``netplug_cli.wiring.node`` imports it once the process listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from random import random
from typing import TYPE_CHECKING, TypeVar

from attrs import define, evolve, field, frozen

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.host.placing import RunInContainer, run_here
from netplug_backends.host.release_records import ReleaseRecordFolder
from netplug_backends.host.requirements import look_for_plugins
from netplug_backends.linux.addresses import find_interfaces, find_source_address
from netplug_backends.linux.netns import is_own_namespace
from netplug_cli.logs import Logger
from netplug_cli.node.calls import AttachmentNotes, CachedLookups, NodeProcessBusy, NotedDataplane
from netplug_cli.node.stores import KnownCredentials, OpenDatastores, OpeningUse, SharedDatastore, SharedOpenings
from netplug_cli.node.tasks import (
    LOOK_EVERY_S,
    ConflictReports,
    HelperPlugins,
    NodeRegistration,
    RecordReplay,
    TokenRefresh,
)
from netplug_cli.runtime.controllers import Reconciler
from netplug_cli.runtime.feed import OpenDatastore
from netplug_cli.wiring.backends import open_registry
from netplug_cli.wiring.cni import open_cni_world, open_log_file
from netplug_cli.wiring.node_network import NodeNetwork, node_files, open_node_datastore
from netplug_core import __version__
from netplug_core.addressing import Address, Family
from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.cni.dispatch import Invocation, Plugin, PluginIdentity, ProcessOutput
from netplug_core.cni.plugins import MissingPlugin
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.wire import WireReply, WireRequest
from netplug_core.dataplane.protocol import Dataplane
from netplug_core.dataplane.routing import HostInterface
from netplug_core.datastore.protocol import Datastore, EndpointStorage, ShowsNodeEndpoints
from netplug_core.errors import ConfigurationError
from netplug_core.flows.cni.call import answer, refuse
from netplug_core.flows.cni.release_records import replay
from netplug_core.flows.node import NodeWorld
from netplug_core.flows.world import CNIWorld, ReplayTime
from netplug_core.hookspecs import IPAMContext
from netplug_core.installation.installer import (
    FILE_NAME,
    IssuedToken,
    PluginFile,
    SecretHost,
    TokenIssuer,
    renew_plugin_token,
)
from netplug_core.ipam.protocol import IPAM
from netplug_core.log import Level, Log
from netplug_core.netconf.model import NetConf
from netplug_core.orchestrator.model import Orchestrator
from netplug_core.reconcile.cluster import parse_types
from netplug_core.reconcile.controller import Problem
from netplug_core.reconcile.registration import RegistrationSettings
from netplug_core.registry import Registry
from netplug_core.resources.fields import parse_duration_s
from netplug_core.settings.apiconfig import datastore_settings_from_environment, has_datastore
from netplug_core.settings.model import MEMORY_DATASTORE, DatastoreSettings

if TYPE_CHECKING:
    from netplug_cli.logs import WriteLine
    from netplug_core.operator.status import Event

R = TypeVar("R")

__all__ = [
    "NodeCalls", "find_token_refresh", "helper_plugins", "node_registration", "node_tasks",
]  # fmt: skip


# --- node calls ------------------------------------------------------------------------------------------------------


_REPLAY_S = 5.0  # for the records of one configuration


@define(eq=False)
class NodeCalls:
    """Answers the requests of clients. Any number of threads may use it at once."""

    _log: Log
    _open_datastores: OpenDatastores
    while_waiting: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, init=False)
    """What a call enters while it only waits for others."""
    attachments: AttachmentNotes | None = field(default=None, init=False)
    """Who has to know of attachments, if anyone."""
    replay: RecordReplay = field(init=False)
    _registry: Registry = field(factory=open_registry, init=False)
    _datastores: SharedOpenings[DatastoreSettings, SharedDatastore] = field(init=False)
    _orchestrators: SharedOpenings[DatastoreSettings, Orchestrator] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._datastores, self._orchestrators = SharedOpenings(log=self._log), SharedOpenings(log=self._log)
        self.replay = RecordReplay(self._replay, ReleaseRecordFolder, clock=SystemClock(), log=self._log)

    def answer(self, request: WireRequest, namespace: int | None) -> WireReply:
        """Do what a request asks for, with the same code as the executables."""
        lines: list[bytes] = []
        path = request.environ.get("CNI_NETNS", "")
        namespaces = {path: namespace} if path and namespace is not None else {}
        container_id = request.environ.get("CNI_CONTAINERID", "")
        backends = evolve(self._backends(namespaces, lines.append), container_id=container_id)

        @contextmanager
        def open_world(netconf: NetConf, log: Log, call: CNIRequest | None) -> Iterator[CNIWorld]:
            self.replay.note(netconf, call)
            with open_cni_world(netconf, log, call, backends) as world:
                yield evolve(world, replay_time=ReplayTime.BY_TASK, while_waiting=self.while_waiting)

        invocation = _invocation(request)
        with closing(Logger(invocation.identity.plugin.log_name, open_log_file, lines.append)) as log:
            output = answer(
                invocation, open_world, log=log, is_own_namespace=lambda path: is_own_namespace(path, namespaces)
            )
        return _reply(output, lines)

    def use_stand_ins(self, stand_in: Callable[[], AbstractContextManager[None]]) -> None:
        """Let calls enter this while they only wait for others."""
        self.while_waiting = stand_in

    def refuse(self, request: WireRequest, error: NodeProcessBusy) -> WireReply:
        """The reply to a request that is not served."""
        lines: list[bytes] = []
        invocation = _invocation(request)
        with closing(Logger(invocation.identity.plugin.log_name, open_log_file, lines.append)) as log:
            output = refuse(invocation, error, log=log)
        return _reply(output, lines)

    def close(self) -> None:
        """Close the datastores."""
        self._datastores.close()
        self._orchestrators.close()

    def _replay(self, netconf: NetConf, call: CNIRequest | None) -> bool:
        """Replay with the datastore of calls; another IPAM plugin gets the variables of the last call."""
        with open_cni_world(netconf, self._log, call, self._backends({}, None, OpeningUse.TASK)) as world:
            return replay(world, netconf, seconds=_REPLAY_S)

    def _backends(
        self, namespaces: Mapping[str, int], write_stderr: WriteLine | None, use: OpeningUse = OpeningUse.CALL
    ) -> _CallBackends:
        return _CallBackends(
            registry=self._registry,
            open_datastores=self._open_datastores,
            datastores=self._datastores,
            orchestrators=self._orchestrators,
            namespaces=namespaces,
            log=self._log,
            write_stderr=write_stderr,
            use=use,
            attachments=self.attachments,
        )


@define(kw_only=True)
class _CallBackends:
    """The backends of one call: datastores and orchestrators that other calls use too, and a dataplane of its own."""

    registry: Registry
    open_datastores: OpenDatastores
    datastores: SharedOpenings[DatastoreSettings, SharedDatastore]
    orchestrators: SharedOpenings[DatastoreSettings, Orchestrator]
    namespaces: Mapping[str, int]
    log: Log
    write_stderr: Callable[[bytes], None] | None
    use: OpeningUse
    attachments: AttachmentNotes | None = None
    container_id: str = ""
    shared: SharedDatastore | None = None

    @contextmanager
    def open_datastore(self, name: str, settings: DatastoreSettings, clock: Clock) -> Iterator[Datastore]:
        opening = partial(self._new_datastore, name, settings, clock)
        with self.datastores.open(settings, opening, use=self.use) as shared:
            self.shared = shared
            yield shared.datastore

    @contextmanager
    def _new_datastore(self, name: str, settings: DatastoreSettings, clock: Clock) -> Iterator[SharedDatastore]:
        with (
            self.registry.open_datastore(name, settings, clock) as datastore,
            self.open_datastores.measured(datastore) as measured,
            SharedDatastore.of(measured, clock, datastore if isinstance(datastore, ShowsNodeEndpoints) else None).fed(
                self.log
            ) as shared,
            self.open_datastores.caches.used_by(shared),
        ):
            yield shared

    def open_ipam(self, name: str, context: IPAMContext) -> AbstractContextManager[IPAM]:
        own = evolve(context, write_stderr=self.write_stderr)
        if self.shared is not None:
            shared = self.shared
            turn = context.turn if shared.turn is None else shared.turn.taken
            own = evolve(own, queue=shared.queue, cache=shared.cache, turn=turn, memory=shared.memory)
        return self.registry.open_ipam(name, own)

    @contextmanager
    def open_dataplane(self, name: str, clock: Clock, log: Log) -> Iterator[Dataplane]:
        with self.registry.open_dataplane(name, clock, log, self.namespaces) as dataplane:
            notes = self.attachments
            if notes is None:
                yield dataplane
            else:
                yield NotedDataplane(dataplane=dataplane, container_id=self.container_id, notes=notes)

    @contextmanager
    def open_orchestrator(self, name: str, settings: DatastoreSettings, clock: Clock) -> Iterator[Orchestrator]:
        shared = self.shared
        opening = partial(self._new_orchestrator, name, settings, clock)
        with self.orchestrators.open(settings, opening, use=self.use) as orchestrator:
            if shared is None or shared.datastore.description.endpoints is not EndpointStorage.PODS:
                yield orchestrator
                return
            follow_node = shared.endpoints.follow_node if shared.endpoints is not None else None
            yield CachedLookups(
                orchestrator=orchestrator, datastore=shared.datastore, cache=shared.cache, follow_node=follow_node
            )

    @contextmanager
    def _new_orchestrator(self, name: str, settings: DatastoreSettings, clock: Clock) -> Iterator[Orchestrator]:
        with (
            self.registry.open_orchestrator(name, settings, clock) as orchestrator,
            self.open_datastores.credentials.used_by(orchestrator),
        ):
            yield orchestrator


def _invocation(request: WireRequest) -> Invocation:
    identity = PluginIdentity(plugin=Plugin(request.program), version=__version__)
    return Invocation(identity=identity, environ=request.environ, stdin=lambda: request.stdin)


def _reply(output: ProcessOutput, lines: list[bytes]) -> WireReply:
    return WireReply(
        exit_status=output.exit_status,
        stdout=output.stdout.encode(),
        stderr=b"".join(lines) + output.stderr.encode(),
    )


# --- node token ------------------------------------------------------------------------------------------------------


_ACCOUNT = "netplug-cni-plugin"
_PLUGINS = "/opt/cni/bin"
_CONFIGURATIONS = "/etc/cni/net.d"
_RENEW_S = 20.0


def find_token_refresh(
    environ: Mapping[str, str],
    log: Log,
    in_pod: RunInContainer = run_here,
    *,
    account_folder: str = "",
    conf_dir: str = "",
) -> TokenRefresh | None:
    """What renews the token; None outside a pod, or where ``NETPLUG_MANAGE_CNI`` is ``false``.

    ``in_pod`` does what reads files of the pod; the kubeconfig is the host's. ``account_folder`` has the files of the
    pod's service account; empty: the usual one. ``conf_dir`` is the folder of the kubeconfig, if that of the host is
    mounted elsewhere.
    """
    if not environ.get("KUBERNETES_SERVICE_HOST") or environ.get("NETPLUG_MANAGE_CNI") == "false":
        return None
    # Loads the client of the API server, which no process outside a pod needs for this.
    from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
    from netplug_backends.kubernetes.service_account import find_service_account

    clock = SystemClock()
    folder = account_folder or SERVICE_ACCOUNT_FOLDER
    account = in_pod(lambda: find_service_account(environ, clock=clock, folder=folder))
    if account is None:
        return None
    file = PluginFile(
        path=f"{conf_dir or environ.get('CNI_NET_DIR') or _CONFIGURATIONS}/{FILE_NAME}",
        account=environ.get("NETPLUG_CNI_SERVICE_ACCOUNT") or _ACCOUNT,
        skips_tls_verification=environ.get("SKIP_TLS_VERIFY") == "true",
    )
    return TokenRefresh(
        renew=partial(_renew, _IssuerOfPod(account, in_pod), HostMachine(), file, clock),
        find_stamps=lambda: in_pod(account.find_stamps),
        path=file.path,
        clock=clock,
        chance=random,
        log=log,
        interval_s=_find_interval_s(environ, log),
    )


@frozen
class _IssuerOfPod:
    """An issuer that reads its files in the pod."""

    inner: TokenIssuer
    in_pod: RunInContainer

    @property
    def server(self) -> str:
        return self.inner.server

    def read_certificate_authority(self) -> bytes:
        return self.in_pod(self.inner.read_certificate_authority)

    def issue(self, account: str, *, deadline: Deadline) -> IssuedToken:
        return self.in_pod(lambda: self.inner.issue(account, deadline=deadline))


def _renew(issuer: TokenIssuer, host: SecretHost, file: PluginFile, clock: SystemClock) -> IssuedToken:
    return renew_plugin_token(issuer, host, file, deadline=Deadline.after(clock, _RENEW_S))


def _find_interval_s(environ: Mapping[str, str], log: Log) -> float | None:
    """The configured pause; None if there is none, or it is not usable, which is a line of the log."""
    text = environ.get("CNI_TOKEN_REFRESH_INTERVAL")
    if not text:
        return None
    try:
        return parse_duration_s(text)
    except ValueError as error:
        log(Level.WARNING, "CNI_TOKEN_REFRESH_INTERVAL is not used", cause=str(error))
        return None


# --- node tasks ------------------------------------------------------------------------------------------------------


def node_registration(
    environ: Mapping[str, str], config_file: str, log: Log, open_datastore: OpenDatastore | None = None
) -> NodeRegistration:
    """What keeps the node registered. ``config_file`` names its datastore; empty: the environment does.

    ``open_datastore`` opens it; None: it is opened for each look.
    """
    host, clock = HostMachine(), SystemClock()
    return NodeRegistration(
        names=node_files(environ),
        read_datastore=partial(_read_datastore, environ, config_file),
        open_world=partial(
            _open_world, host, clock, log, open_datastore or partial(open_node_datastore, environ, run_here, clock)
        ),
        read_settings=partial(RegistrationSettings.parse, environ),
        network=_Network(),
        cluster_types=parse_types(environ.get("CLUSTER_TYPE", "")),
        poll_s=_find_poll_s(environ, log),
        host=host,
        clock=clock,
        log=log,
    )


def node_tasks(
    environ: Mapping[str, str],
    registration: NodeRegistration,
    log: Log,
    credentials: KnownCredentials,
    plugins: HelperPlugins,
    in_container: RunInContainer | None = None,
) -> tuple[Reconciler, ...]:
    """The controllers that need no call.

    ``credentials`` gets those that one of them renews. ``in_container`` reads the files of a container that this
    process has left; None: it has left none.
    """
    in_pod = in_container or run_here
    refresh = find_token_refresh(environ, log, in_pod)
    controllers: tuple[Reconciler, ...] = (
        *registration.controllers(),
        plugins.controller(),
    )
    if refresh is None:
        return controllers
    credentials.add(refresh.credentials_in_use)
    return (*controllers, refresh.controller())


def helper_plugins(environ: Mapping[str, str], in_container: RunInContainer | None = None) -> HelperPlugins:
    """What looks for plugins that are missing on this host, and reports them where the node is one of a cluster."""
    has_orchestrator = bool(environ.get("KUBERNETES_SERVICE_HOST"))
    bin_dir, conf_dir = environ.get("CNI_BIN_DIR") or _PLUGINS, environ.get("CNI_NET_DIR") or _CONFIGURATIONS
    node = environ.get("NODENAME", "")
    report = partial(_report_plugins, environ, in_container or run_here, node) if has_orchestrator and node else None
    return HelperPlugins(
        look=partial(look_for_plugins, bin_dir, conf_dir, has_orchestrator=has_orchestrator),
        report=report,
        clock=SystemClock(),
    )


def conflict_reports(
    environ: Mapping[str, str],
    registration: NodeRegistration,
    network: NodeNetwork | None,
    in_container: RunInContainer | None = None,
) -> tuple[Reconciler, ...]:
    """What reports conflicts where the node is one of a cluster; elsewhere log and status say them."""
    node = environ.get("NODENAME", "")
    if not environ.get("KUBERNETES_SERVICE_HOST") or not node:
        return ()

    def find_problems() -> tuple[Problem, ...]:
        return (*registration.find_conflicts(), *(() if network is None else network.find_problems()))

    report = partial(_report_problem, environ, in_container or run_here, node)
    return (ConflictReports(find_problems=find_problems, report=report, clock=SystemClock()).controller(),)


def _report_plugins(
    environ: Mapping[str, str],
    in_pod: RunInContainer,
    node: str,
    missing: tuple[MissingPlugin, ...],
    deadline: Deadline,
    *,
    account_folder: str = "",
) -> None:
    from netplug_core.operator.status import event_of_plugins  # the rules of the operator, of which a node needs none

    _write_event(_PodAccount(environ, in_pod, account_folder), node, event_of_plugins(missing), deadline)


def _report_problem(
    environ: Mapping[str, str],
    in_pod: RunInContainer,
    node: str,
    problem: Problem,
    deadline: Deadline,
    *,
    account_folder: str = "",
) -> None:
    from netplug_core.operator.status import event_of_problem  # the rules of the operator, of which a node needs none

    _write_event(_PodAccount(environ, in_pod, account_folder), node, event_of_problem(problem), deadline)


@frozen
class _PodAccount:
    """How the account of the pod is reached. ``folder`` has its files; empty: the usual one."""

    environ: Mapping[str, str]
    in_pod: RunInContainer
    folder: str


def _write_event(account: _PodAccount, node: str, event: Event, deadline: Deadline) -> None:
    """Write an Event about the Node; a pod without an account reports nothing."""
    # Loads the client of the API server, which a node otherwise does not need for this.
    from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
    from netplug_backends.kubernetes.installing.cluster import ClusterObjects
    from netplug_backends.kubernetes.service_account import find_account_client
    from netplug_core.operator.status import ref_of_event, render_event

    clock = SystemClock()
    about = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node, "uid": node},
    }  # so kubectl describe finds it

    def report_in_pod() -> None:
        client = find_account_client(account.environ, clock=clock, folder=account.folder or SERVICE_ACCOUNT_FOLDER)
        if client is None:
            return
        with closing(client):
            objects, now = ClusterObjects(client), f"{format_time(clock.now_ns())[:19]}Z"
            found = objects.find(ref_of_event(event, about), deadline=deadline)
            objects.replace(render_event(event, about, found, identity=node, now=now), deadline=deadline)

    account.in_pod(report_in_pod)


def _read_datastore(environ: Mapping[str, str], config_file: str) -> DatastoreSettings | None:
    """The datastore that the file, or else the environment names; None if neither does.

    Raises:
        ConfigurationError: it cannot be read or understood, or it names a datastore that ends with this process.
    """
    if config_file:
        from netplug_cli.ctl.session import read_settings  # loads the library that reads YAML

        settings = read_settings(environ, config_file=config_file, default_file="")
    elif has_datastore(environ):
        settings = datastore_settings_from_environment(environ)
    else:
        return None
    if settings.type == MEMORY_DATASTORE:
        raise ConfigurationError("datastore", settings.type, "it ends with this process; name one that stays")
    return settings


@contextmanager
def _open_world(
    host: HostMachine, clock: SystemClock, log: Log, open_datastore: OpenDatastore, netconf: NetConf
) -> Iterator[NodeWorld]:
    """What one look acts through. The orchestrator is opened when it is asked, with the credentials of that time."""
    settings = netconf.datastore
    open_orchestrator = partial(open_registry().open_orchestrator, "kubernetes", settings, clock)
    with open_datastore(settings) as datastore:
        yield NodeWorld(
            datastore=datastore,
            host=host,
            clock=clock,
            chance=random,
            log=log,
            open_orchestrator=open_orchestrator if netconf.has_orchestrator else None,
            release=f"v{__version__}",
        )


class _Network:
    """The network of this machine."""

    def find_interfaces(self) -> tuple[HostInterface, ...]:
        return find_interfaces()

    def find_source_address(self, target: str, family: Family, *, deadline: Deadline) -> Address:
        return find_source_address(target, family, deadline=deadline)


def _find_poll_s(environ: Mapping[str, str], log: Log) -> float:
    """How often the node is looked at; a duration that is not usable is a line of the log."""
    text = environ.get("AUTODETECT_POLL_INTERVAL")
    if not text:
        return LOOK_EVERY_S
    try:
        return parse_duration_s(text)
    except ValueError as error:
        log(Level.WARNING, "AUTODETECT_POLL_INTERVAL is not used", cause=str(error))
        return LOOK_EVERY_S
