"""The calls of the node process: as the executables answer them, on datastores that stay open.

``netplug_cli.wiring.node`` imports it once the process listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, evolve

from netplug_backends.host.machine import SystemClock
from netplug_backends.host.release_records import ReleaseRecordFolder
from netplug_backends.linux.netns import is_own_namespace
from netplug_cli.cni.main import answer_call, refuse_call
from netplug_cli.node.calls import NodeProcessBusy
from netplug_cli.node.datastores import OpenDatastores
from netplug_cli.node.lookups import CachedLookups
from netplug_cli.node.shared import OpeningUse, SharedDatastore, SharedOpenings
from netplug_cli.node.tasks import RecordReplay
from netplug_cli.wiring.backends import open_registry
from netplug_cli.wiring.cni import open_cni_world, open_log_file
from netplug_core import __version__
from netplug_core.clock import Clock
from netplug_core.cni.dispatch import Invocation, Plugin, PluginIdentity, ProcessOutput
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.wire import WireReply, WireRequest
from netplug_core.dataplane.protocol import Dataplane
from netplug_core.datastore.protocol import Datastore, EndpointStorage, ShowsNodeEndpoints
from netplug_core.flows.cni.release_records import replay
from netplug_core.flows.world import CNIWorld, ReplayTime
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.protocol import IPAM
from netplug_core.log import Log
from netplug_core.netconf.model import NetConf
from netplug_core.orchestrator.protocol import Orchestrator
from netplug_core.registry import Registry
from netplug_core.settings.model import DatastoreSettings

if TYPE_CHECKING:
    from netplug_cli.logs import WriteLine

__all__ = ["NodeCalls"]

_REPLAY_S = 5.0  # for the records of one configuration


class NodeCalls:
    """Answers the requests of clients. Any number of threads may use it at once."""

    def __init__(self, log: Log, open_datastores: OpenDatastores) -> None:
        self._log = log
        self._open_datastores = open_datastores
        self._registry = open_registry()
        self._datastores: SharedOpenings[DatastoreSettings, SharedDatastore] = SharedOpenings(log=log)
        self._orchestrators: SharedOpenings[DatastoreSettings, Orchestrator] = SharedOpenings(log=log)
        self.replay = RecordReplay(self._replay, ReleaseRecordFolder, clock=SystemClock(), log=log)

    def answer(self, request: WireRequest, namespace: int | None) -> WireReply:
        """Do what a request asks for, with the same code as the executables."""
        lines: list[bytes] = []
        path = request.environ.get("CNI_NETNS", "")
        namespaces = {path: namespace} if path and namespace is not None else {}
        backends = self._backends(namespaces, lines.append)

        @contextmanager
        def open_world(netconf: NetConf, log: Log, call: CNIRequest | None) -> Iterator[CNIWorld]:
            self.replay.note(netconf, call)
            with open_cni_world(netconf, log, call, backends) as world:
                yield evolve(world, replay_time=ReplayTime.BY_TASK)

        output = answer_call(
            _invocation(request),
            open_world,
            open_log_file,
            is_own_namespace=lambda path: is_own_namespace(path, namespaces),
            write_line=lines.append,
        )
        return _reply(output, lines)

    def refuse(self, request: WireRequest, error: NodeProcessBusy) -> WireReply:
        """The reply to a request that is not served."""
        lines: list[bytes] = []
        return _reply(refuse_call(_invocation(request), error, open_log_file, write_line=lines.append), lines)

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

    def open_dataplane(self, name: str, clock: Clock, log: Log) -> AbstractContextManager[Dataplane]:
        return self.registry.open_dataplane(name, clock, log, self.namespaces)

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
