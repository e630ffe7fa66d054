"""Composition root of the node process: the console script ``netplug-node`` calls ``main``.

It listens before it imports what calls need, so that a client which comes meanwhile waits and is served.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from netplug_cli.cni.method_cache import use_cache
from netplug_cli.loopback import CannotListen, listen_to_this_machine
from netplug_cli.node.listening import Listener, find_activated, listen
from netplug_cli.runtime.signals import StopSignals
from netplug_core.cni.node_socket import DEFAULT_SOCKET

if TYPE_CHECKING:
    from netplug_backends.host.placing import RunInContainer
    from netplug_cli.node.metrics import NodeMetrics
    from netplug_cli.node.process import NodeOperations
    from netplug_cli.node.stores import OpenDatastores
    from netplug_cli.node.tasks import NodeRegistration
    from netplug_cli.runtime.controllers import Runtime
    from netplug_cli.runtime.feed import OpenDatastore
    from netplug_cli.wiring.node_network import NodeContainer, NodeNetwork
    from netplug_cli.wiring.node_policy import PolicyEnforcement
    from netplug_core.flows.world import RecordCounts
    from netplug_core.log import Log

__all__ = ["main", "run"]

_DEFAULT_WORKERS, _MAX_WORKERS = 16, 256
_DEFAULT_QUEUE, _MAX_QUEUE = 256, 65_536
_MAX_PORT = 65_535

_LIBRARY = "prometheus_client"  # what an installation of an earlier release lacks

# By name: the flows that ``netplug_core.flows.cni.call`` imports by need, and what the usual configuration opens.
_MODULES = (
    *(f"netplug_core.flows.cni.{name}" for name in ("add", "delete", "check", "status")),
    "netplug_core.flows.ipam.service",
    "netplug_core.ipam.allocation.decide",
    "netplug_core.netconf.model",
    "netplug_core.cni.result",
    "netplug_backends.linux.dataplane",
    "netplug_backends.host.machine",
    "netplug_backends.host.log_file",
)


def main() -> None:
    """Run ``netplug-node``."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Serve the calls of this machine until a signal comes; return the exit status of the process."""
    options = _parse(arguments)
    if find_spec(_LIBRARY) is None:
        sys.stderr.write(f"netplug-node needs netplug[host]: not installed here: {_LIBRARY}\n")
        return 1
    with ExitStack() as stack:
        in_container = _enter_host(options.host_root) if options.host_root else None
        try:
            listener = find_activated(os.environ) or listen(options.socket)
            stack.callback(listener.close)
            pages = listen_to_this_machine(options.metrics_port) if options.metrics_port else None
        except CannotListen as error:
            sys.stderr.write(f"netplug-node: {error}\n")
            return 1
        if in_container is None:
            use_cache()
        sockets = _Sockets(listener, pages, stack.enter_context(_status_listener(listener)))
        from netplug_core.errors import ConfigurationError

        with StopSignals() as signals:
            try:
                return _serve(options, sockets, signals, in_container)
            except ConfigurationError as error:
                sys.stderr.write(f"netplug-node: {error}\n")
                return 1


def _enter_host(path: str) -> RunInContainer:
    """Move this process from its container to the host whose root is at a path; end it if that cannot be done."""
    from netplug_backends.host.placing import CannotEnterHost, enter_host  # no process outside a container needs it
    from netplug_backends.linux.nftables import load_library

    use_cache()  # its file is in the container
    load_library()  # so are its files
    try:
        return enter_host(path)
    except CannotEnterHost as error:
        sys.stderr.write(f"netplug-node: {error}\n")
        sys.exit(1)


class _Sockets(NamedTuple):
    """Where the process listens: for calls, and perhaps for those who ask for metrics and for its status."""

    calls: Listener
    pages: socket.socket | None
    status: socket.socket | None


@contextmanager
def _status_listener(listener: Listener) -> Iterator[socket.socket | None]:
    """The socket for the status; None if there can be none, which keeps no call from being served."""
    from netplug_cli.node_status import status_socket_of

    if not listener.path:
        yield None
        return
    try:
        status = listen(status_socket_of(listener.path))
    except CannotListen as error:
        sys.stderr.write(f"netplug-node: its status cannot be asked for: {error}\n")
        yield None
        return
    with closing(status):
        yield status.socket


def _serve(
    options: argparse.Namespace, sockets: _Sockets, signals: StopSignals, in_container: RunInContainer | None
) -> int:
    from attrs import evolve

    from netplug_backends.host.machine import SystemClock
    from netplug_backends.host.placing import run_here
    from netplug_cli.logs import Logger
    from netplug_cli.node.metrics import NodeMetrics
    from netplug_cli.node.process import NodeProcess
    from netplug_cli.node.stores import OpenDatastores
    from netplug_cli.runtime.controllers import Runtime
    from netplug_cli.runtime.feed import OpenedOnce
    from netplug_cli.wiring import node_process
    from netplug_cli.wiring.cni import open_log_file
    from netplug_cli.wiring.node_network import NodeContainer, network_controllers, open_node_datastore
    from netplug_core import __version__

    _import_flows()
    log, clock, metrics = Logger("node", open_log_file), SystemClock(), NodeMetrics(__version__)
    datastores = OpenDatastores(clock, metrics.note_datastore_call)
    open_datastore = OpenedOnce(partial(open_node_datastore, os.environ, in_container or run_here, clock)).open
    registration = node_process.node_registration(os.environ, options.config, log, open_datastore)
    container = NodeContainer(run=in_container or run_here, host_root=options.host_root or "")
    with (
        closing(node_process.NodeCalls(log, datastores)) as calls,
        _opened_networks(registration, open_datastore, log, container) as (network, policy),
    ):
        plugins = node_process.helper_plugins(os.environ, in_container)
        operations = evolve(
            _operations(options, sockets, metrics, datastores, calls.replay.count, log),
            missing_plugins=lambda: tuple(map(str, plugins.missing)),
            registration=registration.status,
            network=(lambda: None) if network is None else network.status,
            policy=(lambda: None) if policy is None else policy.status,
            check_policy=(lambda: None) if policy is None else policy.check,
        )
        controllers = (
            calls.replay.controller(),
            *node_process.node_tasks(os.environ, registration, log, datastores.credentials, plugins, in_container),
            *network_controllers(network, os.environ, lambda: registration.name, container, log),
            *(() if policy is None else policy.controllers()),
            *node_process.conflict_reports(os.environ, registration, network, in_container),
        )
        tasks = Runtime(controllers, clock=clock, log=log, note_pass=metrics.note_task)
        calls.attachments = policy
        _wake_by_changes(tasks, registration, network, policy)
        if policy is not None:
            metrics.add_policy(policy.policy)
        metrics.expect_tasks(tasks.names)
        return NodeProcess(
            answer=metrics.measured(calls.answer),
            refuse=metrics.counted(calls.refuse),
            tasks=tasks,
            observe=operations.running,
            log=log,
            share_workers=calls.use_stand_ins,
            **_limits(options),
        ).run(sockets.calls, signals.wakeup)


class _Limits(TypedDict):
    workers: int
    queue: int


def _limits(options: argparse.Namespace) -> _Limits:
    """How many calls are served at once, and how many wait."""
    return _Limits(workers=options.workers, queue=options.queue)


@contextmanager
def _opened_networks(
    registration: NodeRegistration, open_datastore: OpenDatastore, log: Log, container: NodeContainer
) -> Iterator[tuple[NodeNetwork | None, PolicyEnforcement | None]]:
    """What connects the node with others, and what enforces policy on it; None where this process does not."""
    from netplug_cli.wiring.node_network import node_network
    from netplug_cli.wiring.node_policy import node_policy

    def find_name() -> str | None:
        return registration.name

    read_datastore = registration.read_datastore
    with (
        node_network(os.environ, read_datastore, find_name, open_datastore, log, container) as network,
        node_policy(os.environ, registration, open_datastore, log, network) as policy,
    ):
        yield network, policy


def _wake_by_changes(
    tasks: Runtime, registration: NodeRegistration, network: NodeNetwork | None, policy: PolicyEnforcement | None
) -> None:
    """Let what is followed, and the registration, wake those that it concerns."""
    from netplug_cli.node.tasks import NODE_REGISTERED

    if network is not None:
        registration.view = network.feed.view
        network.wake(tasks)
    if policy is not None:
        policy.wake(tasks)
    registration.on_registered = partial(tasks.wake, NODE_REGISTERED)


def _operations(
    options: argparse.Namespace,
    sockets: _Sockets,
    metrics: NodeMetrics,
    datastores: OpenDatastores,
    count_records: Callable[[], RecordCounts],
    log: Log,
) -> NodeOperations:
    """How the process is observed."""
    from netplug_backends.host.machine import SystemClock
    from netplug_cli.node.process import NodeIdentity, NodeOperations, ServiceManager
    from netplug_core import __version__

    clock = SystemClock()
    return NodeOperations(
        metrics=metrics,
        datastores=datastores,
        count_records=count_records,
        clock=clock,
        log=log,
        manager=ServiceManager.find(os.environ, log),
        identity=NodeIdentity(
            version=__version__, pid=os.getpid(), started_ns=clock.now_ns(), socket=sockets.calls.path
        ),
        listening=sockets.pages,
        status_listening=sockets.status,
        metrics_file=options.metrics_file,
    )


def _import_flows() -> None:
    """Import what the calls of every configuration need, so that the first one does not wait for it."""
    from importlib import import_module

    for module in _MODULES:
        import_module(module)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="netplug-node",
        description="Serve the calls of the executables netplug and netplug-ipam, which ask this process if it runs.",
    )
    parser.add_argument(
        "--socket",
        default=DEFAULT_SOCKET,
        metavar="PATH",
        help="listen there, unless systemd has passed a socket (default: %(default)s)",
    )
    parser.add_argument(
        "--host-root",
        default="",
        metavar="DIR",
        help="in a container: serve the host whose root is mounted there; all other paths are the host's",
    )
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="register the node in the datastore of this NetplugAPIConfig (default: in that of the environment)",
    )
    parser.add_argument(
        "--workers",
        type=_count(_MAX_WORKERS),
        default=_DEFAULT_WORKERS,
        metavar="N",
        help="serve so many calls at once (default: %(default)s)",
    )
    parser.add_argument(
        "--queue",
        type=_count(_MAX_QUEUE),
        default=_DEFAULT_QUEUE,
        metavar="N",
        help="let so many further calls wait (default: %(default)s)",
    )
    _add_metrics_options(parser)
    return parser.parse_args(arguments)


def _add_metrics_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port",
        type=_count(_MAX_PORT),
        metavar="N",
        help="serve /metrics, /livez and /readyz at this port of 127.0.0.1 (default: at none)",
    )
    parser.add_argument(
        "--metrics-file",
        default="",
        metavar="PATH",
        help="write the metrics there every few seconds, for the textfile collector of the Prometheus node exporter",
    )


def _count(most: int) -> Callable[[str], int]:
    """A reader of numbers from 1 to that many."""

    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() else 0
        if not 1 <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not accepted; a number from 1 to {most} is")
        return number

    return parse


if __name__ == "__main__":
    main()
