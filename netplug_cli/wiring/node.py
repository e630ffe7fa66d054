"""Composition root of the node process: the console script ``netplug-node`` calls ``main``.

It listens before it imports what calls need, so that a client which comes meanwhile waits and is served.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing

from netplug_cli.cni.method_cache import use_cache
from netplug_cli.node.listening import DEFAULT_SOCKET, CannotListen, Listener, find_activated, listen
from netplug_cli.node.signals import StopSignals

__all__ = ["main", "run"]

_DEFAULT_WORKERS, _MAX_WORKERS = 16, 256
_DEFAULT_QUEUE, _MAX_QUEUE = 256, 65_536

# By name: the flows that ``netplug_cli.cni.main`` imports by need, and what the usual configuration opens.
_MODULES = (
    *(f"netplug_core.flows.cni.{name}" for name in ("add", "delete", "check", "status", "gc")),
    "netplug_core.flows.ipam.service",
    "netplug_core.ipam.allocation.decide",
    "netplug_core.netconf.load",
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
    try:
        listener = find_activated(os.environ) or listen(options.socket)
    except CannotListen as error:
        sys.stderr.write(f"netplug-node: {error}\n")
        return 1
    with StopSignals() as signals:
        return _serve(options, listener, signals)


def _serve(options: argparse.Namespace, listener: Listener, signals: StopSignals) -> int:
    use_cache()
    from netplug_cli.logs import Logger
    from netplug_cli.node.process import NodeProcess
    from netplug_cli.wiring.cni import open_log_file
    from netplug_cli.wiring.node_calls import NodeCalls
    from netplug_cli.wiring.node_tasks import node_tasks

    _import_flows()
    log = Logger("node", open_log_file)
    with closing(NodeCalls(log)) as calls:
        process = NodeProcess(
            answer=calls.answer,
            refuse=calls.refuse,
            tasks=(calls.drain.task, *node_tasks(log)),
            log=log,
            workers=options.workers,
            queue=options.queue,
        )
        return process.run(listener, signals.wakeup)


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
    return parser.parse_args(arguments)


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
